"""A map of all items in the learned metric: two numbers each, drawn once and kept beside the run.

Some of the items, the landmarks, are drawn so that neighbours stay together; each other item stands among the landmarks that
are nearest to it. The same run gives the same map.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from gmlfm.errors import DataError, NotSupportedError
from gmlfm.fitting import FittedRun
from gmlfm.recommender.neighbour_map import neighbour_map
from gmlfm.runs.layout import ITEM_MAP
from gmlfm.storage import new_file

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
_FORM = "1"  # of the map: another one makes those on the disk void
_LANDMARKS, _AXES = 1_500, 32
_NEAREST = 6  # landmarks between which another item is put
_ITEMS_PER_BLOCK = 4_096
_SEED = 43


@dataclass(frozen=True)
class ItemMap:
    """xy: (I, 2), within -1 .. 1; landmarks: the numbers of the items that are drawn first."""

    xy: Floats
    landmarks: Ints

    @cached_property
    def _order(self) -> Ints:
        """All items, landmarks first, the others in a seeded order: each sample holds every smaller one."""
        others = np.setdiff1d(np.arange(len(self.xy), dtype=np.int32), self.landmarks)
        return np.concatenate([self.landmarks, np.random.default_rng(_SEED).permutation(others)])

    def sample(self, n: int, including: Sequence[int] = ()) -> Ints:
        """The numbers of `n` items, and of those that must be among them."""
        chosen = self._order[:n]
        asked = np.array(including, np.int32)
        return np.concatenate([chosen, asked[~np.isin(asked, chosen)]])


def item_map(run: FittedRun, folder: Path | None = None, check: str = "") -> ItemMap:
    """The run's map: from its folder where it was kept for this very run, as `check` (of run.json) says; drawn otherwise, and
    kept if the folder can be written."""
    n_items = len(run.data.items)
    made_for = {"form": _FORM, "check": check, "items": str(n_items)}
    path = None if folder is None or not check else folder / ITEM_MAP
    kept = None if path is None else _read(path, made_for, n_items)
    if kept is not None:
        return kept
    try:
        positions = run.model.positions(run.encoded.item)
    except NotSupportedError as error:
        raise NotSupportedError(
            f"a map is not available for '{run.settings.model}': its score is no sum over pairs of attributes, so items have "
            "no place in a metric."
        ) from error
    drawn = draw(positions.cpu().numpy())
    if path is not None:
        with suppress(DataError):  # it is drawn anew next time
            _write(path, drawn, made_for)
    return drawn


def draw(positions: Floats) -> ItemMap:
    """positions: (I, D)."""
    if not len(positions):
        return ItemMap(np.zeros((0, 2), np.float32), np.zeros(0, np.int32))
    axes = _main_axes(positions)
    landmarks = _landmarks(axes)
    xy = _placed(axes, axes[landmarks], neighbour_map(axes[landmarks], axes[landmarks, :2]))
    middle, reach = (xy.max(0) + xy.min(0)) / 2.0, max(float(np.ptp(xy, axis=0).max()) / 2.0, 1e-12)
    return ItemMap(((xy - middle) / reach).astype(np.float32), landmarks)


def _main_axes(positions: Floats) -> Floats:
    """Along the axes of the largest spread, which keep distances best: (I, at least 2)."""
    mean = positions.mean(0, dtype=np.float64)
    n, width = positions.shape
    scatter = np.zeros((width, width))
    for start in range(0, n, _ITEMS_PER_BLOCK):
        block = positions[start : start + _ITEMS_PER_BLOCK] - mean.astype(np.float32)
        scatter += block.T @ block
    _, vectors = np.linalg.eigh(scatter)
    chosen = vectors[:, ::-1][:, :_AXES]
    # An axis may point either way: its largest entry is made positive, so that every machine draws alike.
    chosen = chosen * np.sign(chosen[np.abs(chosen).argmax(0), np.arange(chosen.shape[1])])
    along: Floats = ((positions - mean.astype(np.float32)) @ chosen.astype(np.float32)).astype(np.float32)
    return along if along.shape[1] >= 2 else np.pad(along, ((0, 0), (0, 2 - along.shape[1])))


def _landmarks(axes: Floats) -> Ints:
    """A seeded sample of items, no two in the same place."""
    order = np.random.default_rng(_SEED).permutation(len(axes))[: 4 * _LANDMARKS]
    _, first = np.unique(axes[order].round(4), axis=0, return_index=True)
    return order[np.sort(first)][:_LANDMARKS].astype(np.int32)


def _placed(axes: Floats, landmarks: Floats, drawn: Floats) -> Floats:
    """All items between the landmarks around them, the nearer the closer; a landmark stands where it is drawn: (I, 2).

    Around an item are its nearest landmark and the nearest ones of that, so that a million items need one product and no sort.
    """
    half_squares = np.einsum("nd,nd->n", landmarks, landmarks) / 2.0
    among = half_squares - landmarks @ landmarks.T
    around = np.argsort(among, axis=1, kind="stable")[:, : min(_NEAREST, len(landmarks))]
    xy = np.empty((len(axes), 2), np.float32)
    for start in range(0, len(axes), _ITEMS_PER_BLOCK):
        block = axes[start : start + _ITEMS_PER_BLOCK]
        closeness = block @ landmarks.T
        closeness -= half_squares
        nearest = around[closeness.argmax(1)]
        squared = np.square(block[:, None] - landmarks[nearest]).sum(-1)
        squared = np.maximum(squared, 1e-9)
        # With the second power of 1 / distance^2 the nearest one decides, and an island's items stay on it.
        weights = (squared.min(1, keepdims=True) / squared) ** 2
        xy[start : start + len(block)] = np.einsum("nk,nkd->nd", weights / weights.sum(1, keepdims=True), drawn[nearest])
    return xy


def _read(path: Path, made_for: dict[str, str], n_items: int) -> ItemMap | None:
    """What is kept there, if it is of this run and whole."""
    try:
        if path.is_symlink():
            return None
        with safe_open(path, "np") as file:
            if file.metadata() != made_for:
                return None
            kept = ItemMap(file.get_tensor("xy"), file.get_tensor("landmarks"))
    except (OSError, SafetensorError, ValueError):
        return None
    numbers = kept.landmarks
    is_whole = kept.xy.shape == (n_items, 2) and bool(np.isfinite(kept.xy).all())
    return kept if is_whole and numbers.ndim == 1 and bool(((numbers >= 0) & (numbers < n_items)).all()) else None


def _write(path: Path, drawn: ItemMap, made_for: dict[str, str]) -> None:
    with new_file(path) as draft:
        save_file({"xy": drawn.xy, "landmarks": drawn.landmarks}, draft, made_for)
