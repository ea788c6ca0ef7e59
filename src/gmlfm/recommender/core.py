"""The Recommender's verbs. Each hands over to the module that knows how."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.dataset import Dataset
from gmlfm.data.interop import as_frame
from gmlfm.data.prepared import PreparedData
from gmlfm.errors import DataError, GmlfmError, OptionError
from gmlfm.evaluation.protocols import Evaluation, check_protocol
from gmlfm.fitting import FittedRun, Refit, fit
from gmlfm.recommender import changes, reasons
from gmlfm.recommender.candidates import candidate_items, caps_of, listed
from gmlfm.recommender.evaluating import evaluate_other, evaluate_part
from gmlfm.recommender.run_index import RunIndex
from gmlfm.recommender.user_side import known_user_side, newcomer_side
from gmlfm.retrieval import Cap, best_items
from gmlfm.retrieval.explaining import Explanation, contrast
from gmlfm.runs import STOCK, load_run, save_run
from gmlfm.training.loop import DivergedError, Observer
from gmlfm.training.settings import Settings

Ints = npt.NDArray[np.int32]
_USERS_PER_BLOCK = 512


class Recommender:
    """Recommender(model="gml-fm", task="topn", k=64, seed=0).fit(data).recommend(["u17"], n=10)

    Settings of the model, the training and the batches are keywords (k, lr, loss, negatives, epochs, hide, ...);
    preset="paper" trains as published.
    """

    def __init__(
        self, model: str = "gml-fm", task: str = "topn", *, preset: str | None = None, device: str = "auto", **settings: Any
    ) -> None:
        self.settings = Settings.make(model, task, settings, preset)
        self._device = device
        self._fitted: FittedRun | None = None
        self._folder: Path | None = None
        self._written: tuple[Path, ...] = ()  # every folder that this object wrote or was read from

    def fit(
        self,
        data: Dataset | PreparedData,
        split: str = "leave-one-out",
        *,
        refit: Refit = False,
        split_options: Mapping[str, Any] | None = None,
        out: str | Path | None = None,
        resume: bool = False,
        observer: Observer | None = None,
    ) -> Recommender:
        """Hold out what `split` says, stop early on validation; refit=True then trains again on train + validation.

        data may be a prepared folder (PreparedData), which is trained from shard by shard.
        out: a run folder for history and checkpoints, from which resume=True goes on; the model is saved there too.
        """
        if not isinstance(data, Dataset | PreparedData):
            raise OptionError(
                f"fit takes a Dataset, not {type(data).__name__}; load_dataset({data!r:.40}) makes one of a path or name."
            )
        folder = None if out is None else Path(out)
        if folder is not None:
            self._wrote(folder)  # checkpoints are there even if training never ends
        self._fitted = fit(
            data,
            self.settings,
            split=split,
            split_options=split_options,
            refit=refit,
            folder=folder,
            resume=resume,
            device=self._device,
            observer=observer,
        )
        if folder is not None:
            self.save(folder)
        if self._fitted.diverged:
            raise DivergedError(self._fitted.diverged)
        return self

    @property
    def fitted(self) -> FittedRun:
        if self._fitted is None:
            raise OptionError("this Recommender is not fitted yet; call fit(data), or Recommender.load(folder).")
        return self._fitted

    @property
    def _known(self) -> RunIndex:
        if self._looked_up is None or self._looked_up.fitted is not self.fitted:
            self._looked_up = RunIndex(self.fitted)
        return self._looked_up

    @property
    def is_fitted(self) -> bool:
        return self._fitted is not None

    def evaluate(self, data: Dataset | None = None, *, protocol: str = "full", part: str = "test", seed: int = 0) -> Evaluation:
        """The run's own validation or test part; or all rows of other data with the same fields."""
        check_protocol(protocol, seed)
        if data is not None:
            return evaluate_other(self.fitted, data, protocol, seed)
        return evaluate_part(self.fitted, protocol, part, seed)

    def recommend(
        self,
        users: Sequence[Any] | str | int,
        n: int = 10,
        *,
        seen: bool = False,
        context: Mapping[str, Any] | None = None,
        filter: str | None = None,
        available: Sequence[Any] | None = None,
        candidates: str = "interactions",
        at_most: Mapping[str, int] | None = None,
    ) -> pl.DataFrame:
        """The n best items for each user: user, item, score, rank, known (was the user met in training?) and title.

        Items the user had are left out unless seen=True; what is marked sold, filter and available narrow the items before
        they are ranked; at_most={"category": 2} holds within the ranking. Somebody of whom nothing at all is known gets what
        is popular; the score is then the share of training users who chose it.
        """
        items = candidate_items(self._known, n, filter, available, candidates)
        asked = listed(users)
        if not asked:
            raise OptionError("users is empty; name one or more.")
        return pl.concat(self._blocks(asked, n, seen, context, items, caps_of(self.fitted, at_most)))

    def recommend_blocks(
        self, users: Sequence[Any], n: int = 10, *, seen: bool = False, filter: str | None = None
    ) -> Iterator[pl.DataFrame]:
        """The same, some hundred users at a time."""
        return self._blocks(users, n, seen, None, candidate_items(self._known, n, filter, None, "interactions"), [])

    def recommend_for(
        self,
        attributes: Mapping[str, Any],
        history: Sequence[Any] = (),
        n: int = 10,
        *,
        filter: str | None = None,
        available: Sequence[Any] | None = None,
        at_most: Mapping[str, int] | None = None,
    ) -> pl.DataFrame:
        """For somebody never seen, from what is known of her and from what she chose, which is then left out.

        A row of her own is fitted to the history with everything else frozen; without one the unknown row stands for her.
        """
        fitted = self.fitted
        items = candidate_items(self._known, n, filter, available, "interactions")
        user_side = newcomer_side(fitted, attributes)
        named = listed(history)
        had = fitted.encoder.item_numbers(named)
        for one, number in zip(named, had, strict=True):
            if number < 0:
                warnings.warn(f"the item '{one}' of the history is unknown and has no effect.", stacklevel=2)
        known = had[had >= 0].astype(np.int32)
        if len(known) and not fitted.uses_histories:
            told = f"'{fitted.settings.model}' cannot learn from a history without training; it is only left out."
            warnings.warn(told, stacklevel=2)
        caps = caps_of(fitted, at_most)
        ranked = self._ranked(user_side, items, n, [known], caps, history=known if len(known) else None)
        nobody = fitted.encoder.ids_of_users(np.full(ranked.height, -1))
        return ranked.drop("place").insert_column(0, nobody)

    def predict(self, pairs: Any) -> pl.DataFrame:
        """Scores of (user, item) pairs: a table with the columns user and item, or a list of pairs.

        Users may be unknown; items must be of the catalogue.
        """
        fitted = self.fitted
        table = _pairs(pairs)
        users = fitted.encoder.user_numbers(table["user"].to_list())
        items = fitted.encoder.item_numbers(table["item"].to_list())
        if (items < 0).any():
            unknown = table["item"][int((items < 0).argmax())]
            raise DataError(
                f"the item '{unknown}' is not in the catalogue, so nothing is known of it; {int((items < 0).sum())} such pairs."
            )
        user_side = known_user_side(fitted, users, None)
        single = fitted.scores.score_pairs_for(user_side, items[:, None].astype(np.int32), users.astype(np.int32))[:, 0]
        return table.select("user", "item").with_columns(
            pl.Series("score", single.astype(np.float64)), pl.Series("known", users >= 0)
        )

    def explain(self, user: Any, item: Any) -> Explanation:
        """The exact sum that the score consists of: global, linear and pair terms."""
        return reasons.explain_pair(self.fitted, user, item)

    def contrast(self, user: Any, item: Any, against: Any = None) -> dict[tuple[str, ...], float]:
        """By fields, what sets the item apart for this user: from another item, or from the mean of the catalogue."""
        fitted = self.fitted
        one = self.explain(user, item)
        if against is not None:
            return contrast(one, [self.explain(user, against)])
        user_side = known_user_side(fitted, fitted.encoder.user_numbers([user]), None)
        return contrast(one, [reasons.explain_user_side(fitted, user_side, int(at)) for at in reasons.sampled_items(fitted)])

    def similar_items(self, item: Any, n: int = 10) -> pl.DataFrame:
        """The nearest items in the learned metric: item, distance, rank and title."""
        return reasons.similar(self.fitted, "item", item, n)

    def similar_users(self, user: Any, n: int = 10) -> pl.DataFrame:
        return reasons.similar(self.fitted, "user", user, n)

    def field_pairs(self) -> pl.DataFrame:
        """Which pairs of fields carry the score over the data."""
        return reasons.field_pairs(self.fitted)

    def directions(self, n: int = 3) -> pl.DataFrame:
        """The eigen-directions of a Mahalanobis metric, and the attributes furthest along each."""
        return reasons.directions(self.fitted, n)

    def mark_sold(self, items: Sequence[Any]) -> None:
        """These items vanish from the next recommendation on, without training; saved with the run."""
        self._mark(items, sold=True)

    def mark_back(self, items: Sequence[Any]) -> None:
        self._mark(items, sold=False)

    def _mark(self, items: Sequence[Any], *, sold: bool) -> None:
        given = listed(items)
        numbers = self.fitted.encoder.item_numbers(given)
        if (numbers < 0).any():
            raise DataError(f"the item '{given[int((numbers < 0).argmax())]}' is not in the catalogue; nothing was marked.")
        self.fitted.stock.mark(numbers, [str(one) for one in given], sold=sold)

    def add_items(self, items: Any) -> None:
        """New items enter the catalogue from their attributes alone: a table with the columns of the item table."""
        self._fitted = changes.with_items(self.fitted, items)

    def forget(self, user: Any) -> None:
        """Her id, attributes, history and row are gone, and she is unknown from then on: here, and in every folder that this
        Recommender wrote or was loaded from. A folder that could not be changed is named in a warning."""
        elsewhere = False
        for one in self._written:
            if one != self._folder:
                elsewhere |= _forgotten_in(one, user)
        if elsewhere and self.fitted.encoder.user_numbers([user])[0] < 0:
            return
        self._fitted = changes.without_user(self.fitted, user)
        if self._folder is not None:
            self.save(self._folder)
            for name in ("checkpoints", "checkpoints-refit"):  # their optimiser state remembers her
                shutil.rmtree(self._folder / name, ignore_errors=True)

    def save(self, folder: str | Path) -> None:
        self._folder = self._wrote(Path(folder))
        save_run(self.fitted, self._folder)
        self.fitted.stock.keep_in(self._folder / STOCK)

    def _wrote(self, folder: Path) -> Path:
        """Absolute, so that a change of the working folder does not hide what was written."""
        self._written = tuple(dict.fromkeys((*self._written, folder.absolute())))
        return folder.absolute()

    @classmethod
    def load(cls, folder: str | Path) -> Recommender:
        fitted, about = load_run(Path(folder))
        made = cls.__new__(cls)
        made.settings, made._device, made._fitted, made._written = fitted.settings, "auto", fitted, ()
        made._folder = made._wrote(Path(folder))
        fitted.stock.keep_in(made._folder / STOCK)
        made.about = about
        return made

    _looked_up: RunIndex | None = None
    about: dict[str, Any] = {}  # noqa: RUF012 - the card of a loaded run

    def _blocks(
        self,
        users: Sequence[Any],
        n: int,
        seen: bool,
        context: Mapping[str, Any] | None,
        items: Ints,
        caps: list[Cap],
    ) -> Iterator[pl.DataFrame]:
        fitted, known = self.fitted, self._known
        names = fitted.encoder.ids_given(users)
        for start in range(0, len(users), _USERS_PER_BLOCK):
            asked = list(users[start : start + _USERS_PER_BLOCK])
            numbers = fitted.encoder.user_numbers(asked)
            gone = [np.empty(0, np.int32) if seen or number < 0 else known.had(int(number)) for number in numbers]
            user_side = known_user_side(fitted, numbers, context)
            ranked = self._ranked(user_side, items, n, gone, caps, users=numbers.astype(np.int32))
            place = ranked["place"].to_numpy()
            yield ranked.with_columns(names[start + place], pl.Series("known", known.trained_users[numbers[place]])).select(
                "user", pl.exclude("user", "place")
            )

    def _ranked(
        self,
        user_side: AttributeTable,
        items: Ints,
        n: int,
        gone: list[Ints],
        caps: list[Cap],
        users: Ints | None = None,
        history: Ints | None = None,
    ) -> pl.DataFrame:
        fitted = self.fitted
        scores = fitted.scores.score_all_for(user_side, items, users, history)
        if users is not None and (users < 0).any():
            scores[users < 0] = self._known.popularity[items]
        best = best_items(scores, items, n, gone, caps)
        place, rank = np.nonzero(best.items >= 0)
        chosen = best.items[place, rank]
        columns = [
            pl.Series("place", place),
            fitted.encoder.ids_of_items(chosen),
            pl.Series("score", best.scores[place, rank].astype(np.float64)),
            pl.Series("rank", rank + 1),
        ]
        if fitted.data.items.titles is not None:
            columns.append(fitted.data.items.titles[chosen].alias("title"))
        return pl.DataFrame(columns)


def _pairs(given: Any) -> pl.DataFrame:
    if isinstance(given, list | tuple):
        if any(len(one) != 2 for one in given):
            raise OptionError("pairs takes (user, item) pairs; one has another length.")
        return pl.DataFrame(given, schema=["user", "item"], orient="row", strict=False)
    table = as_frame(given, "pairs")
    if not {"user", "item"} <= set(table.columns):
        raise OptionError(f"pairs has the columns {', '.join(table.columns)}; expected user and item.")
    return table.select("user", "item")


def _forgotten_in(folder: Path, user: Any) -> bool:
    """Whether a run on disk knew the user, who is gone from it now. It may be of other data than the run at hand, so it is
    changed as it stands, and not replaced."""
    if not folder.exists():
        return False
    try:
        other = Recommender.load(folder)
        if other.fitted.encoder.user_numbers([user])[0] < 0:
            return False
        other.forget(user)
    except GmlfmError as error:
        warnings.warn(f"{folder} may still hold the user '{user}' ({error}) and should be deleted.", stacklevel=3)
        return False
    return True
