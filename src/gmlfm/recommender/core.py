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

from gmlfm.data.dataset import Dataset
from gmlfm.data.interop import as_frame
from gmlfm.data.prepared import PreparedData
from gmlfm.errors import DataError, GmlfmError, OptionError
from gmlfm.evaluation.protocols import Evaluation, check_protocol
from gmlfm.fitting import FittedRun, Refit, fit
from gmlfm.fitting.plan import CHECKPOINTS, CHECKPOINTS_OF_REFIT
from gmlfm.models.base import Model, UserSide
from gmlfm.recommender import changes, reasons
from gmlfm.recommender.candidates import as_ids, candidate_items, caps_of
from gmlfm.recommender.evaluating import evaluate_other, evaluate_part
from gmlfm.recommender.run_index import RunIndex
from gmlfm.recommender.stock import STOCK, Stock, read_marks
from gmlfm.recommender.user_side import known_users, newcomer
from gmlfm.retrieval import DEFAULT_N, Cap, best_items
from gmlfm.retrieval.explaining import Explanation, contrast
from gmlfm.runs import MODEL_FOLDER, load_run, save_run
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import DivergedError, Observer

Ints = npt.NDArray[np.int32]
_USERS_PER_BLOCK = 512


class Recommender:
    """Recommender(model="gml-fm", task="topn", k=64, seed=0).fit(data).recommend(["u17"], n=10)

    model: a name (`gmlfm models`), 'module:Class', a Model class or an instance. Settings of the model, the training and the
    batches are keywords (k, lr, loss, negatives, epochs, ...: `gmlfm settings`); preset="paper" trains as published.
    """

    def __init__(
        self,
        model: str | type[Model] | Model = "gml-fm",
        task: str = "topn",
        *,
        preset: str | None = None,
        device: str = "auto",
        **settings: Any,
    ) -> None:
        self._params: dict[str, Any] = {"model": model, "task": task, "preset": preset, "device": device, **settings}
        self.settings = Settings.make(model, task, settings, preset)
        self.about: dict[str, Any] = {}  # run.json of a loaded run
        self._device = device
        self._run: FittedRun | None = None
        self._index: RunIndex | None = None
        self._stock = Stock(())
        self._folder: Path | None = None
        self._written: tuple[Path, ...] = ()  # every folder that this object wrote or was read from

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments that this Recommender was made with."""
        return dict(self._params)

    def set_params(self, **params: Any) -> Recommender:
        """Change some of them, for the next fit; what is fitted stays."""
        changed = {**self._params, **params}
        named = {name: changed[name] for name in ("model", "task", "preset", "device")}
        settings = {name: value for name, value in changed.items() if name not in named}
        self.settings = Settings.make(named["model"], named["task"], settings, named["preset"])
        self._params, self._device = changed, named["device"]
        return self

    def clone(self) -> Recommender:
        """Another one with the same arguments, not fitted."""
        return Recommender(**self._params)

    def __repr__(self) -> str:
        shown = {name: value for name, value in self._params.items() if name not in ("model", "task")}
        defaults = {"preset": None, "device": "auto"}
        extra = "".join(f", {name}={value!r}" for name, value in shown.items() if defaults.get(name, ...) != value)
        fitted = "not fitted" if self._run is None else f"fitted on '{self._run.data.name}', {self._run.refit.label}"
        return f"<Recommender('{self.settings.model}', '{self.settings.task}'{extra}): {fitted}>"

    def fit(
        self,
        data: Dataset | PreparedData,
        split: str = "leave-one-out",
        *,
        refit: bool | str | Refit = False,
        split_options: Mapping[str, Any] | None = None,
        out: str | Path | None = None,
        resume: bool = False,
        observer: Observer | None = None,
    ) -> Recommender:
        """Hold out what `split` says, stop early on validation; refit=True then trains again on train + validation.

        data may be a prepared folder (PreparedData), which is trained from shard by shard.
        out: a run folder for the training curve and checkpoints, from which resume=True goes on; the model is saved there too.
        """
        if not isinstance(data, Dataset | PreparedData):
            raise OptionError(
                f"fit takes a Dataset, not {type(data).__name__}; load_dataset({data!r:.40}) makes one of a path or name."
            )
        folder = None if out is None else Path(out)
        if folder is not None:
            self._remember(folder)  # checkpoints are there even if training never ends
        run = fit(
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
        self._take(run, Stock(run.data.items.ids.to_list()))
        if folder is not None:
            self.save(folder)
        if run.report.diverged:
            raise DivergedError(run.report.diverged)
        return self

    @property
    def fitted(self) -> FittedRun:
        if self._run is None:
            raise OptionError("this Recommender is not fitted yet; call fit(data), or Recommender.load(folder).")
        return self._run

    @property
    def is_fitted(self) -> bool:
        return self._run is not None

    @property
    def stock(self) -> Stock:
        """Which items are marked sold."""
        return self._stock

    def _take(self, run: FittedRun, stock: Stock) -> None:
        self._run, self._index, self._stock = run, RunIndex(run), stock

    @property
    def _lookup(self) -> RunIndex:
        if self._index is None or self._index.run is not self.fitted:
            self._index = RunIndex(self.fitted)
        return self._index

    def evaluate(
        self,
        data: Dataset | None = None,
        *,
        protocol: str = "full",
        part: str = "test",
        seed: int = 0,
        cutoffs: Sequence[int] = (DEFAULT_N,),
    ) -> Evaluation:
        """The run's own validation or test part; or all rows of other data with the same fields."""
        check_protocol(protocol, seed)
        if data is not None:
            return evaluate_other(self.fitted, data, protocol, seed, cutoffs)
        return evaluate_part(self.fitted, protocol, part, seed, cutoffs)

    def recommend(
        self,
        users: Sequence[Any] | str | int,
        n: int = DEFAULT_N,
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
        they are ranked; at_most={"category": 2} holds within the ranking. A user of whom nothing at all is known gets what
        is popular; the score is then the share of training users who chose it.
        """
        items = candidate_items(self._lookup, self._stock, n, filter, available, candidates)
        ids = as_ids(users)
        if not ids:
            raise OptionError("users is empty; name one or more.")
        return pl.concat(self._blocks(ids, n, seen, context, items, caps_of(self.fitted, at_most)))

    def recommend_for(
        self,
        attributes: Mapping[str, Any],
        history: Sequence[Any] = (),
        n: int = DEFAULT_N,
        *,
        context: Mapping[str, Any] | None = None,
        filter: str | None = None,
        available: Sequence[Any] | None = None,
        at_most: Mapping[str, int] | None = None,
    ) -> pl.DataFrame:
        """For a user never seen, from what is known of them and from what they chose, which is then left out.

        A model that learns a row for each user fits one to the history with everything else frozen; without a history the
        unknown row stands for them.
        """
        run = self.fitted
        items = candidate_items(self._lookup, self._stock, n, filter, available, "interactions")
        ids = as_ids(history)
        numbers = run.encoder.item_numbers(ids)
        for item, number in zip(ids, numbers, strict=True):
            if number < 0:
                warnings.warn(f"the item '{item}' of the history is unknown and has no effect.", stacklevel=2)
        chosen = numbers[numbers >= 0].astype(np.int32)
        if len(chosen) and not run.model.inputs.history:
            message = f"'{run.settings.model}' cannot learn from a history without training; it is only left out."
            warnings.warn(message, stacklevel=2)
        user = newcomer(run, attributes, chosen if len(chosen) else None, context)
        ranked = self._ranked(user, items, n, [chosen], caps_of(run, at_most))
        no_ids = run.encoder.ids_of_users(np.full(ranked.height, -1))
        return ranked.drop("place").insert_column(0, no_ids)

    def predict(self, pairs: Any, *, context: Mapping[str, Any] | None = None) -> pl.DataFrame:
        """Scores of (user, item) pairs: a table with the columns user and item, or a list of pairs.

        Users may be unknown; items must be of the catalogue.
        """
        run = self.fitted
        table = _pairs(pairs)
        users = run.encoder.user_numbers(table["user"].to_list())
        items = run.encoder.item_numbers(table["item"].to_list())
        if (items < 0).any():
            unknown = table["item"][int((items < 0).argmax())]
            raise DataError(
                f"the item '{unknown}' is not in the catalogue, so nothing is known of it; {int((items < 0).sum())} such pairs."
            )
        scores = run.model.score_pairs(known_users(run, users, context), items[:, None].astype(np.int32))[:, 0]
        return table.select("user", "item").with_columns(
            pl.Series("score", scores.astype(np.float64)), pl.Series("known", users >= 0)
        )

    def explain(self, user: Any, item: Any, *, context: Mapping[str, Any] | None = None) -> Explanation:
        """The exact sum that the score consists of: global, linear and pair terms."""
        return reasons.explain_pair(self.fitted, user, item, context)

    def contrast(
        self, user: Any, item: Any, against: Any = None, *, context: Mapping[str, Any] | None = None
    ) -> dict[tuple[str, ...], float]:
        """By fields, what sets the item apart for this user: from another item, or from the mean of the catalogue."""
        run = self.fitted
        explanation = self.explain(user, item, context=context)
        if against is not None:
            return contrast(explanation, [self.explain(user, against, context=context)])
        side = known_users(run, run.encoder.user_numbers([user]), context)
        others = [reasons.explain_item(run, side, int(number)) for number in reasons.sampled_items(run)]
        return contrast(explanation, others)

    def similar_items(self, item: Any, n: int = DEFAULT_N) -> pl.DataFrame:
        """The nearest items in the learned metric: item, distance, rank and title."""
        return reasons.similar(self.fitted, "item", item, n)

    def similar_users(self, user: Any, n: int = DEFAULT_N) -> pl.DataFrame:
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
        ids = as_ids(items)
        numbers = self.fitted.encoder.item_numbers(ids)
        if (numbers < 0).any():
            raise DataError(f"the item '{ids[int((numbers < 0).argmax())]}' is not in the catalogue; nothing was marked.")
        self._stock.mark(numbers, [str(item) for item in ids], sold=sold)

    def add_items(self, items: Any) -> None:
        """New items enter the catalogue from their attributes alone: a table with the columns of the item table."""
        run = changes.with_items(self.fitted, items)
        self._take(run, self._stock.over(run.data.items.ids.to_list()))

    def forget(self, user: Any) -> None:
        """The user's id, attributes, history and row are gone, and they are unknown from then on: here, and in every folder
        that this Recommender wrote or was loaded from. A folder that could not be changed is named in a warning."""
        is_gone_elsewhere = False
        for folder in self._written:
            if folder != self._folder:
                is_gone_elsewhere |= _forget_in(folder, user)
        if is_gone_elsewhere and self.fitted.encoder.user_numbers([user])[0] < 0:
            return
        self._take(changes.without_user(self.fitted, user), self._stock)
        if self._folder is not None:
            self.save(self._folder)
            for name in (CHECKPOINTS, CHECKPOINTS_OF_REFIT):  # their optimiser state remembers the user
                shutil.rmtree(self._folder / name, ignore_errors=True)

    def save(self, folder: str | Path) -> None:
        self._folder = self._remember(Path(folder))
        save_run(self.fitted, self._folder, {STOCK: self._stock.to_text()})
        self._stock.keep_in(self._folder / MODEL_FOLDER / STOCK)

    def _remember(self, folder: Path) -> Path:
        """Absolute, so that a change of the working folder does not hide what was written."""
        self._written = tuple(dict.fromkeys((*self._written, folder.absolute())))
        return folder.absolute()

    @classmethod
    def load(cls, folder: str | Path, model: str | type[Model] | None = None) -> Recommender:
        """A saved run. model: the class of a run whose model is not gmlfm's own, or 'module:Class'."""
        run, about = load_run(Path(folder), model)
        settings = run.settings
        named = {"task": settings.task, "preset": settings.preset, **settings.to_dict()["settings"]}
        recommender = cls.__new__(cls)
        recommender._params = {"model": model or settings.model, **named, "device": "auto"}
        recommender.settings, recommender.about, recommender._device = settings, about, "auto"
        recommender._written = ()
        recommender._folder = recommender._remember(Path(folder))
        stock_file = recommender._folder / MODEL_FOLDER / STOCK
        recommender._take(run, Stock(run.data.items.ids.to_list(), read_marks(stock_file)))
        recommender._stock.keep_in(stock_file)
        return recommender

    def _blocks(
        self,
        users: Sequence[Any],
        n: int,
        seen: bool,
        context: Mapping[str, Any] | None,
        items: Ints,
        caps: list[Cap],
    ) -> Iterator[pl.DataFrame]:
        run, index = self.fitted, self._lookup
        ids = run.encoder.ids_given(users)
        for start in range(0, len(users), _USERS_PER_BLOCK):
            numbers = run.encoder.user_numbers(list(users[start : start + _USERS_PER_BLOCK]))
            nothing = np.empty(0, np.int32)
            left_out = [nothing if seen or number < 0 else index.positives(int(number)) for number in numbers]
            ranked = self._ranked(known_users(run, numbers, context), items, n, left_out, caps, popular_for_unknown=True)
            place = ranked["place"].to_numpy()
            is_known = pl.Series("known", index.trained_users[numbers[place]])
            yield ranked.with_columns(ids[start + place], is_known).select("user", pl.exclude("user", "place"))

    def _ranked(
        self,
        users: UserSide,
        items: Ints,
        n: int,
        left_out: list[Ints],
        caps: list[Cap],
        *,
        popular_for_unknown: bool = False,
    ) -> pl.DataFrame:
        run = self.fitted
        scores = run.model.score_all(users, items)
        if popular_for_unknown and (users.numbers < 0).any():
            scores[users.numbers < 0] = self._lookup.popularity[items]
        best = best_items(scores, items, n, left_out, caps)
        place, rank = np.nonzero(best.items >= 0)
        chosen = best.items[place, rank]
        columns = [
            pl.Series("place", place),
            run.encoder.ids_of_items(chosen),
            pl.Series("score", best.scores[place, rank].astype(np.float64)),
            pl.Series("rank", rank + 1),
        ]
        if run.data.items.titles is not None:
            columns.append(run.data.items.titles[chosen].alias("title"))
        return pl.DataFrame(columns)


def _pairs(pairs: Any) -> pl.DataFrame:
    if isinstance(pairs, list | tuple):
        if any(len(pair) != 2 for pair in pairs):
            raise OptionError("pairs takes (user, item) pairs; one has another length.")
        return pl.DataFrame(pairs, schema=["user", "item"], orient="row", strict=False)
    table = as_frame(pairs, "pairs")
    if not {"user", "item"} <= set(table.columns):
        raise OptionError(f"pairs has the columns {', '.join(table.columns)}; expected user and item.")
    return table.select("user", "item")


def _forget_in(folder: Path, user: Any) -> bool:
    """Whether a run on disk held the user, who is gone from it now. It may be of other data than the run at hand, so it is
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
