"""The map of all items, drawn once and kept beside the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.errors import NotSupportedError
from gmlfm.recommender import item_map as module
from gmlfm.recommender.item_map import ItemMap, draw, item_map
from gmlfm.runs.layout import ITEM_MAP, refuse_foreign_files


def islands(n: int, width: int = 6, n_islands: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    which = rng.integers(0, n_islands, n)
    return (np.eye(n_islands, width)[which] + 0.05 * rng.standard_normal((n, width))).astype(np.float32), which


def test_items_beyond_the_landmarks_stand_on_their_island(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LANDMARKS", 60)
    positions, which = islands(400)
    drawn = draw(positions)
    middles = np.stack([drawn.xy[drawn.landmarks][which[drawn.landmarks] == island].mean(0) for island in range(3)])
    nearest = np.square(drawn.xy[:, None] - middles[None]).sum(-1).argmin(1)
    assert len(drawn.landmarks) == 60
    assert (nearest == which).mean() > 0.98


def test_the_map_fills_a_square_and_is_the_same_every_time() -> None:
    positions, _ = islands(120)
    drawn, again = draw(positions), draw(positions)
    assert np.array_equal(drawn.xy, again.xy)
    assert np.array_equal(drawn.landmarks, again.landmarks)
    assert np.abs(drawn.xy).max() == pytest.approx(1.0)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("width", [1, 5])
def test_few_items_are_drawn(n: int, width: int) -> None:
    drawn = draw(np.random.default_rng(0).standard_normal((n, width)).astype(np.float32))
    assert drawn.xy.shape == (n, 2)
    assert np.isfinite(drawn.xy).all()


def test_items_that_are_all_alike_are_drawn() -> None:
    assert np.isfinite(draw(np.ones((30, 4), np.float32)).xy).all()


def test_a_sample_holds_every_smaller_one_and_what_is_asked_for() -> None:
    kept = ItemMap(np.zeros((10, 2), np.float32), np.array([3, 7], np.int32))
    assert kept.sample(2).tolist() == [3, 7]
    assert set(kept.sample(4)) < set(kept.sample(6))
    assert sorted(kept.sample(100)) == list(range(10))
    asked = kept.sample(2, [7, 5])
    assert asked.tolist() == [3, 7, 5]


def test_it_is_kept_for_the_run_it_was_drawn_for(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recommender = Recommender.load(own_folder)
    drawn = item_map(recommender.fitted, own_folder, "a")
    assert (own_folder / ITEM_MAP).is_file()
    refuse_foreign_files(own_folder)
    draws: list[int] = []

    def counted(positions: np.ndarray) -> ItemMap:
        draws.append(len(positions))
        return drawn

    monkeypatch.setattr(module, "draw", counted)
    again = item_map(recommender.fitted, own_folder, "a")
    assert np.array_equal(again.xy, drawn.xy)
    assert np.array_equal(again.landmarks, drawn.landmarks)
    assert not draws
    item_map(recommender.fitted, own_folder, "b")
    assert len(draws) == 1


@pytest.mark.parametrize("content", [b"", b"not a map", b"\xff" * 4096])
def test_a_damaged_file_is_drawn_again(own_folder: Path, content: bytes) -> None:
    recommender = Recommender.load(own_folder)
    drawn = item_map(recommender.fitted, own_folder, "a")
    (own_folder / ITEM_MAP).write_bytes(content)
    assert np.array_equal(item_map(recommender.fitted, own_folder, "a").xy, drawn.xy)
    assert (own_folder / ITEM_MAP).read_bytes() != content


def test_a_folder_that_cannot_be_written_gets_a_map_all_the_same(trained: Recommender, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where a folder is expected")
    assert len(item_map(trained.fitted, tmp_path / "run", "a").xy) == len(trained.fitted.data.items)


def test_a_model_without_a_metric_says_so(board: Dataset) -> None:
    popular = Recommender("popularity").fit(board)
    with pytest.raises(NotSupportedError, match="a map is not available for 'popularity'"):
        item_map(popular.fitted)
