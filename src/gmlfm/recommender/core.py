"""The Recommender's verbs. Each hands over to the module that knows how."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from gmlfm.data.dataset import Dataset
from gmlfm.data.prepared import PreparedData
from gmlfm.data.splits import AUTO
from gmlfm.errors import DataError, GmlfmError, OptionError
from gmlfm.evaluation.protocols import Evaluation, check_protocol
from gmlfm.fitting import FittedRun, Refit, fit
from gmlfm.fitting.plan import CHECKPOINTS, CHECKPOINTS_OF_REFIT
from gmlfm.models.base import Model
from gmlfm.progress import activity, shows_progress
from gmlfm.recommender import changes, printing, reasons
from gmlfm.recommender.candidates import as_ids, candidate_items, caps_of
from gmlfm.recommender.evaluating import evaluate_other, evaluate_part
from gmlfm.recommender.ranking import rank_for_newcomer, rank_for_users, score_given_pairs
from gmlfm.recommender.run_index import RunIndex
from gmlfm.recommender.stock import STOCK, Stock, read_marks
from gmlfm.recommender.user_side import known_users
from gmlfm.retrieval import DEFAULT_N
from gmlfm.retrieval.explaining import Explanation, contrast
from gmlfm.runs import MODEL_FOLDER, load_run, save_run
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import DivergedError, Observer


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
        self._written: dict[Path, type[Model] | None] = {}

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

    def __str__(self) -> str:
        return printing.as_text(self)

    def _repr_html_(self) -> str:
        return printing.as_html(self)

    @shows_progress
    def fit(
        self,
        data: Dataset | PreparedData,
        split: str = AUTO,
        *,
        refit: bool | str | Refit = False,
        split_options: Mapping[str, Any] | None = None,
        out: str | Path | None = None,
        resume: bool = False,
        observer: Observer | None = None,
        progress: bool | None = None,
    ) -> Recommender:
        """Hold out what `split` says, stop early on validation; refit=True then trains again on train + validation.

        split: auto is leave-one-out, but by time where items sell once and at random where no time is declared.

        data may be a prepared folder (PreparedData), which is trained from shard by shard.
        out: a run folder for the training curve and checkpoints, from which resume=True goes on; the model is saved there too.
        Training that diverges raises DivergedError: with the best epoch before it fitted and saved, or, where nothing was
        learned, without a model (`is_fitted`).
        progress: a bar on standard error; None shows it at a terminal and in a notebook, and nowhere else.
        """
        if not isinstance(data, Dataset | PreparedData):
            raise OptionError(
                f"fit takes a Dataset, not {type(data).__name__}; load_dataset({data!r:.40}) makes one of a path or name."
            )
        folder = None if out is None else Path(out)
        if folder is not None:
            self._remember(folder, self.settings)  # checkpoints are there even if training never ends
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
        users: int | None = None,
    ) -> Evaluation:
        """The run's own validation or test part; or all rows of other data with the same fields.

        users: a seeded sample of so many tested users; the errors are in Evaluation.errors.
        """
        check_protocol(protocol, seed)
        if data is not None:
            return evaluate_other(self.fitted, data, protocol, seed, cutoffs, users)
        return evaluate_part(self.fitted, protocol, part, seed, cutoffs, users)

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
        return rank_for_users(self._lookup, ids, n, items, caps_of(self.fitted, at_most), context, seen=seen)

    def recommend_for(
        self,
        attributes: Mapping[str, Any] | None = None,
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
        items = candidate_items(self._lookup, self._stock, n, filter, available, "interactions")
        attributes = {} if attributes is None else attributes
        return rank_for_newcomer(self.fitted, attributes, history, n, items, caps_of(self.fitted, at_most), context)

    def predict(self, pairs: Any, *, context: Mapping[str, Any] | None = None) -> pl.DataFrame:
        """Scores of (user, item) pairs: a table with the columns user and item, or a list of pairs.

        Users may be unknown; items must be of the catalogue.
        """
        return score_given_pairs(self.fitted, pairs, context)

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

    def add_items(self, items: Any, *, update: bool = False) -> None:
        """New items enter the catalogue from their attributes alone: a table with the columns of the item table.

        update=True: items that are in the catalogue take over the columns of the table; otherwise they are refused.
        """
        run = changes.with_items(self.fitted, items, update=update)
        self._take(run, self._stock.over(run.data.items.ids.to_list()))

    def forget(self, user: Any) -> None:
        """The user's id, attributes, history and row are gone, and they are unknown from then on: here, and in every folder
        that this Recommender wrote or was loaded from. A folder that could not be changed is named in a warning."""
        is_gone_elsewhere = False
        for folder, model in self._written.items():
            if folder != self._folder:
                is_gone_elsewhere |= _forget_in(folder, model, user)
        if is_gone_elsewhere and self.fitted.encoder.user_numbers([user])[0] < 0:
            return
        self._take(changes.without_user(self.fitted, user), self._stock)
        if self._folder is not None:
            self.save(self._folder)
            for name in (CHECKPOINTS, CHECKPOINTS_OF_REFIT):  # their optimiser state remembers the user
                shutil.rmtree(self._folder / name, ignore_errors=True)

    @activity("writing the run")
    def save(self, folder: str | Path) -> None:
        self._folder = self._remember(Path(folder), self.fitted.settings)
        save_run(self.fitted, self._folder, {STOCK: self._stock.to_text()})
        self._stock.keep_in(self._folder / MODEL_FOLDER / STOCK)

    def _remember(self, folder: Path, settings: Settings) -> Path:
        """Every folder that this object writes or is read from, with the class of a model that has no registered name.

        Absolute, so that a change of the working folder does not hide what was written.
        """
        self._written[folder.absolute()] = settings.info.cls if ":" in settings.model else None
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
        recommender._written = {}
        recommender._folder = recommender._remember(Path(folder), settings)
        stock_file = recommender._folder / MODEL_FOLDER / STOCK
        recommender._take(run, Stock(run.data.items.ids.to_list(), read_marks(stock_file)))
        recommender._stock.keep_in(stock_file)
        return recommender


def _forget_in(folder: Path, model: type[Model] | None, user: Any) -> bool:
    """Whether a run on disk held the user, who is gone from it now. It may be of other data than the run at hand, so it is
    changed as it stands, and not replaced."""
    if not folder.exists():
        return False
    try:
        other = Recommender.load(folder, model)
        if other.fitted.encoder.user_numbers([user])[0] < 0:
            return False
        other.forget(user)
    except GmlfmError as error:
        warnings.warn(f"{folder} may still hold the user '{user}' ({error}) and should be deleted.", stacklevel=3)
        return False
    return True
