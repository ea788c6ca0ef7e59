"""The Recommender's verbs. Each hands over to the module that knows how."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from gmlfm.arguments import id_of, ids_of, path_of, shown
from gmlfm.data.columns import Origin
from gmlfm.data.dataset import Dataset
from gmlfm.data.interop import is_table
from gmlfm.data.prepared import PreparedData
from gmlfm.data.splits import AUTO
from gmlfm.errors import DataError, GmlfmError, OptionError
from gmlfm.evaluation.newcomer_curve import COUNTS, NewcomerCurve
from gmlfm.evaluation.protocols import Evaluation, check_protocol
from gmlfm.fitting import FittedRun, Refit, fit
from gmlfm.fitting.forgetting import without_user, without_users
from gmlfm.fitting.plan import chosen_device
from gmlfm.fitting.update import UpdateOptions, UpdateReport
from gmlfm.forking import refuse_after_fork
from gmlfm.models.base import Model
from gmlfm.progress import activity, shows_progress
from gmlfm.recommender import changes, printing, reasons
from gmlfm.recommender.because import check_because
from gmlfm.recommender.candidates import candidate_items, caps_of, note_caps
from gmlfm.recommender.evaluating import evaluate_curve, evaluate_other, evaluate_part
from gmlfm.recommender.forgotten import Forgotten
from gmlfm.recommender.newcomers import explain_for_newcomer, score_for_newcomer
from gmlfm.recommender.observed import Observed
from gmlfm.recommender.observing import (
    ObserveReport,
    checked_rows,
    state_observing,
    state_observing_each,
    state_with_items,
)
from gmlfm.recommender.ranking import Ranked, rank_for_newcomer, rank_for_users, ranked_users, score_given_pairs
from gmlfm.recommender.state import State
from gmlfm.recommender.stock import BACK, SOLD, Stock
from gmlfm.recommender.updating import updated
from gmlfm.retrieval import DEFAULT_N
from gmlfm.retrieval.explaining import Explanation
from gmlfm.runs import RunFolder, claimed, run_path
from gmlfm.runs.event_lines import Event, ObservedRow
from gmlfm.runs.events import forgetting
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import DivergedError, Observer, TrainingInterrupted


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
        self._device = device
        self._begin()

    def _begin(self) -> None:
        self._state: State | None = None
        self._saved: FittedRun | None = None  # the run as it is in the folder
        self._folder: RunFolder | None = None
        self._folders: dict[Path, RunFolder] = {}  # every one that this object wrote or was read from
        self._n_forgotten = 0  # of the folder's events, those that are taken note of
        self._forgotten: tuple[Event, ...] = ()  # who was forgotten while there was no folder
        self._changing = threading.RLock()

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
        run = None if self._state is None else self._state.run
        fitted = "not fitted" if run is None else f"fitted on '{run.data.name}', {run.refit.label}"
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
        force: bool = False,
        observer: Observer | None = None,
        progress: bool | None = None,
    ) -> Recommender:
        """Hold out what `split` says, stop early on validation; refit=True then trains again on train + validation.

        split: auto is leave-one-out, but by time where items sell once and at random where no time is declared.

        data may be a prepared folder (PreparedData), which is trained from shard by shard.
        out: a run folder for the training curve and checkpoints, from which resume=True goes on; the model is saved there too.
        A folder with anything else in it is refused, and one with a run unless force=True replaces it. Users who were forgotten
        there are left out. Training that diverges raises DivergedError, and Ctrl-C raises TrainingInterrupted: with the best
        epoch before it fitted and saved, or, where nothing was learned, without a model (`is_fitted`).
        progress: a bar on standard error; None shows it at a terminal and in a notebook, and nowhere else.
        """
        refuse_after_fork()
        if is_table(data):
            raise OptionError(
                f"fit takes a Dataset, not a table ({type(data).__name__}); make one with Dataset.from_tables(interactions, "
                "users, items), which takes your tables as they are."
            )
        if not isinstance(data, Dataset | PreparedData):
            raise OptionError(
                f"fit takes a Dataset, not {type(data).__name__}; load_dataset({shown(data)}) makes one of a path or name."
            )
        with self._claimed(out, resume=resume, force=force) as folder:
            run = fit(
                data if folder is None else Forgotten(folder).left_out_of(data),
                self.settings,
                split=split,
                split_options=split_options,
                refit=refit,
                folder=None if folder is None else folder.path,
                resume=resume,
                device=self._device,
                observer=observer,
            )
            with self._changing:
                self._folder, self._saved, self._forgotten = folder, None, ()
                self._state = State.of(run)
                if folder is not None:
                    self._state = self._state.in_folder(folder)
                    self._save(folder)
        if run.report.interrupted:
            raise TrainingInterrupted(run.best_epoch)
        if run.report.diverged:
            raise DivergedError(run.report.diverged)
        return self

    @contextmanager
    def _claimed(self, out: str | Path | None, *, resume: bool, force: bool) -> Iterator[RunFolder | None]:
        if out is None:
            yield None
            return
        with claimed(out, self._class_of(self.settings), resume=resume, force=force) as folder:
            self._folders[folder.path] = folder  # checkpoints are there even if training never ends
            yield folder

    @property
    def fitted(self) -> FittedRun:
        return self._fitted_state.run

    @property
    def _fitted_state(self) -> State:
        refuse_after_fork()
        if self._state is None:
            raise OptionError("this Recommender is not fitted yet; call fit(data), or Recommender.load(folder).")
        return self._state

    @property
    def is_fitted(self) -> bool:
        return self._state is not None

    @property
    def stock(self) -> Stock:
        """Which items are marked sold."""
        return self._fitted_state.stock

    @property
    def observed(self) -> Observed:
        """What users were observed to do since the data were collected."""
        return self._fitted_state.observed

    @property
    def folder(self) -> Path | None:
        """Where the run was read from or saved last; None where it has no folder."""
        return None if self._folder is None else self._folder.path

    @property
    def model_class(self) -> type[Model] | str | None:
        """To load such a run by: the class of a model that is not gmlfm's own; None of one that is found by its name."""
        given = None if self._folder is None else self._folder.model
        return self._class_of(self.settings) if given is None else given

    @property
    def about(self) -> dict[str, Any]:
        """run.json of the folder that the run was read from or saved in last; {} where there is none."""
        return {} if self._folder is None else self._folder.about

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
        if data is not None and not isinstance(data, Dataset):
            raise OptionError(f"evaluate takes a Dataset, not {shown(data)}; load_dataset makes one of a path or name.")
        if data is not None:
            return evaluate_other(self.fitted, data, protocol, seed, cutoffs, users)
        return evaluate_part(self.fitted, protocol, part, seed, cutoffs, users)

    def newcomer_curve(
        self,
        counts: Sequence[int] = COUNTS,
        *,
        protocol: str = "full",
        part: str = "test",
        seed: int = 0,
        cutoffs: Sequence[int] = (DEFAULT_N,),
        users: int | None = None,
    ) -> NewcomerCurve:
        """How soon somebody new is known: users without a learned row, a target of each, with the last `counts` rows before it
        given. For splits with users unseen in training, such as newcomers.

        users: a seeded sample of so many newcomers; 200 for a model that fits a row to each.
        """
        check_protocol(protocol, seed)
        return evaluate_curve(self.fitted, counts, protocol, part, seed, cutoffs, users)

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
        because: bool = False,
    ) -> pl.DataFrame:
        """The n best items for each user: user, item, score, rank, known (was the user met in training?) and title.

        Items the user had, by the data or as observed, are left out unless seen=True; what is marked sold, filter and available
        narrow the items before they are ranked; at_most={"category": 2} holds within the ranking. A user of whom nothing at all
        is known gets what is popular; the score is then the share of training users who chose it.
        because=True: a column names the earlier item that adds most to the score, null where none adds to it.
        """
        state = self._fitted_state
        items = candidate_items(state.index, state.stock, n, filter, available, candidates)
        ids = ids_of(users, "users")
        if not ids:
            raise OptionError("users is empty; name one or more.")
        caps = caps_of(state.index, at_most)
        table = rank_for_users(state.observed, ids, n, items, caps, context, seen=seen, because=because)
        note_caps(table.height, len(ids), n, items, at_most)
        return table

    def ranked(
        self,
        user: Any,
        n: int = DEFAULT_N,
        *,
        seen: bool = False,
        context: Mapping[str, Any] | None = None,
        filter: str | None = None,
        available: Sequence[Any] | None = None,
        candidates: str = "interactions",
        at_most: Mapping[str, int] | None = None,
        because: bool = False,
    ) -> Ranked:
        """`recommend` for one user as numbers of items, for who has the items' ids and titles already, as a service has."""
        state = self._fitted_state
        items = candidate_items(state.index, state.stock, n, filter, available, candidates)
        caps = caps_of(state.index, at_most)
        if because:
            check_because(state.run)
        users = [id_of(user, "the user")]
        ranked = ranked_users(state.observed, users, n, items, caps, context, seen=seen, because=because)
        note_caps(len(ranked.items), 1, n, items, at_most)
        return ranked

    def recommend_for(
        self,
        attributes: Mapping[str, Any] | None = None,
        history: Sequence[Any] = (),
        n: int = DEFAULT_N,
        *,
        seen: bool = False,
        context: Mapping[str, Any] | None = None,
        filter: str | None = None,
        available: Sequence[Any] | None = None,
        candidates: str = "interactions",
        at_most: Mapping[str, int] | None = None,
        because: bool = False,
    ) -> pl.DataFrame:
        """For a user never seen, from what is known of them and from what they chose, which is then left out, unless seen=True
        or the data keep repeats.

        A model that learns a row for each user fits one to the history with everything else frozen; without a history the
        unknown row stands for them. because: as for `recommend`.
        """
        state = self._fitted_state
        items = candidate_items(state.index, state.stock, n, filter, available, candidates)
        attributes = {} if attributes is None else attributes
        caps = caps_of(state.index, at_most)
        table = rank_for_newcomer(state.run, attributes, history, n, items, caps, context, seen=seen, because=because)
        note_caps(table.height, 1, n, items, at_most)
        return table

    def predict(self, pairs: Any, *, context: Mapping[str, Any] | None = None) -> pl.DataFrame:
        """Scores of (user, item) pairs: a table with the columns user and item, or a list of pairs.

        Users may be unknown; items must be of the catalogue.
        """
        return score_given_pairs(self._fitted_state.observed, pairs, context)

    def explain(self, user: Any, item: Any, *, context: Mapping[str, Any] | None = None) -> Explanation:
        """The exact sum that the score consists of: global, linear and pair terms."""
        return reasons.explain_pair(self._fitted_state.observed, user, item, context)

    def predict_for(
        self,
        attributes: Mapping[str, Any] | None = None,
        history: Sequence[Any] = (),
        items: Sequence[Any] = (),
        *,
        context: Mapping[str, Any] | None = None,
    ) -> pl.DataFrame:
        """Scores of items for a user never seen: item and score."""
        return score_for_newcomer(self.fitted, attributes, history, items, context)

    def explain_for(
        self,
        attributes: Mapping[str, Any] | None = None,
        history: Sequence[Any] = (),
        item: Any = None,
        *,
        context: Mapping[str, Any] | None = None,
    ) -> Explanation:
        """`explain` for a user never seen, from what is known of them and from what they chose."""
        return explain_for_newcomer(self.fitted, attributes, history, item, context)

    def contrast(
        self, user: Any, item: Any, against: Any = None, *, context: Mapping[str, Any] | None = None
    ) -> dict[tuple[str, ...], float]:
        """By fields, what sets the item apart for this user: from another item, or from the mean of the catalogue."""
        return reasons.contrast_with(self._fitted_state.observed, user, item, against, context)

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
        """These items vanish from the next recommendation on, without training; written to the run's folder at once."""
        self._mark(items, SOLD)

    def mark_back(self, items: Sequence[Any]) -> None:
        self._mark(items, BACK)

    def _mark(self, items: Sequence[Any], kind: str) -> None:
        with self._changing:
            state, ids = self._fitted_state, ids_of(items, "items")
            numbers = state.run.encoder.item_numbers(ids)
            if (numbers < 0).any():
                raise DataError(f"the item '{ids[int((numbers < 0).argmax())]}' is not in the catalogue; nothing was marked.")
            names = [str(state.run.encoder.item_ids[int(number)]) for number in numbers]
            if self._folder is None:
                marks: Mapping[str, str] = {**state.stock.marks, **dict.fromkeys(names, kind)}
            else:
                marks = self._folder.mark(names, kind)
            self._state = replace(state, stock=Stock.over(state.run.encoder, marks))

    def observe(self, interactions: Any, *, items: Any = None, origin: Origin | None = None) -> ObserveReport:
        """What users just did, which counts from the next call on, without training: a table of user, item and perhaps time (on
        the scale of the data's times, or a date) and event, a list of rows, or one row {'user': 'u17', 'item': 'i3'}.

        It is on the disk of the run's folder when this returns, or, where a row cannot be kept, nothing of it is. Users may be
        new; new items need their attributes: those of the table `items` that the catalogue lacks enter it as by add_items, and
        the folder is saved with them first. A row without a time is its user's latest, and one that is known already is counted
        alone. evaluate never reads them. origin: names the rows' places in messages.
        """
        with self._changing:
            before = self._fitted_state
            if items is not None:
                self._state = state_with_items(before, interactions, items, origin)
                if self._state is not before and self._folder is not None:
                    try:
                        self._save(self._folder)
                    except BaseException:
                        self._state = before
                        raise
            self._state, report = state_observing(self._fitted_state, self._folder, interactions, origin)
            n_new_items = len(self._state.run.data.items) - len(before.run.data.items)
        return replace(report, n_new_items=n_new_items)

    def rows_to_observe(self, interactions: Any, *, origin: Origin | None = None) -> list[ObservedRow]:
        """What `observe` would keep of a table, for `observe_each`; refused where it cannot be kept."""
        return checked_rows(self._fitted_state, interactions, origin)

    def observe_each(self, parts: Sequence[list[ObservedRow]]) -> list[ObserveReport]:
        """The rows of several who observe at the same time, a report for each: one write makes all of them durable, or none of
        them is kept."""
        with self._changing:
            self._state, reports = state_observing_each(self._fitted_state, self._folder, parts)
        return reports

    @shows_progress
    def update(
        self,
        data: Any = None,
        *,
        epochs: int = UpdateOptions.epochs,
        lr: float | None = None,
        replay: float = UpdateOptions.replay,
        held_out: float = UpdateOptions.held_out,
        device: str | None = None,
        observer: Observer | None = None,
        progress: bool | None = None,
    ) -> UpdateReport:
        """Train on from here with what is new in `data`, a Dataset or a table of interactions: rows that differ in user, item
        or time from those of the run, and new users and items with their attributes. Without data, what was observed.

        The steps are in proportion to the new rows: `epochs` over them, with `replay` old rows beside each against forgetting,
        at lr, a tenth of the run's. What the run held out stays held out. Of a share `held_out` of the users with new rows the
        latest one is held back, to report metrics before and after, and is learned last. A model of closed form is fitted
        again on all rows. The run's folder, where there is one, holds the result when this returns; observed rows that are
        part of the data now are no longer counted as observed. An update that fails or is interrupted changes nothing.
        """
        options = UpdateOptions(epochs, lr, replay, held_out)
        folder = self._folder
        with nullcontext() if folder is None else folder.held_for_update():
            with self._changing:
                state = self._fitted_state if folder is None else self._fitted_state.in_folder(folder)
                self._state = state
            device = chosen_device(self._device if device is None else device)
            forgotten = Forgotten(folder, self._forgotten)
            run, report, learned = updated(state, data, options, device, observer, forgotten)
            with self._changing:
                now = self._fitted_state
                if now.run is not state.run:
                    raise DataError("the run was changed while it was being updated, so that was given up; update it again.")
                self._state = State.of(run, now.stock.marks, now.observed.less(learned))
                try:
                    if folder is not None:
                        self._save(folder, learned=learned)
                except BaseException:
                    self._state = now
                    raise
        return report

    def reload(self) -> None:
        """Take note of what others did to the run's folder since it was read or written here: of what was observed and marked,
        only what is new is read; a run that was replaced is read as a whole.

        Refused where the run was replaced there and changed here, by add_items.
        """
        with self._changing:
            state, folder = self._fitted_state, self._folder
            if folder is None:
                raise OptionError("this Recommender has no folder to reload from; save(folder) gives it one.")
            if not folder.is_current():
                if state.run is not self._saved:
                    raise DataError(
                        f"{folder.path} was changed by somebody else, and the run was changed here; load the folder anew, or "
                        "save on purpose (force)."
                    )
                self._saved = folder.load()
                self.settings = self._saved.settings
                state = State.of(self._saved, state.stock.marks)  # whose data may have learned what was observed
            self._state = state.in_folder(folder)

    def follow(self, *, keep_run: bool = False) -> bool:
        """Take note of what others observed, marked and forgot in the run's folder, as `reload` does; but the run stays the one
        that is loaded, also where another one stands in the folder or none at all.

        Users who were forgotten leave the run, which renumbers the others. keep_run: where that is to be done, nothing is, and
        the answer is False: for whoever holds numbers of this run, and lets a twin follow.
        """
        with self._changing:
            state, folder = self._fitted_state, self._folder
            if folder is None:
                return True
            n_forgotten = folder.n_forgotten
            if n_forgotten != self._n_forgotten:
                users = folder.forgotten_among(state.run.encoder.user_ids)
                if users and keep_run:
                    return False
                if users:
                    state = State.of(without_users(state.run, users), state.stock.marks, state.observed)
                state = replace(state, observed=state.observed.unfollowed())  # what is held of them goes, too
                self._n_forgotten = n_forgotten
            self._state = state.in_folder(folder)
        return True

    def twin(self) -> Recommender:
        """Another one that answers the same and has the same folder; a change of the run in one is none in the other."""
        refuse_after_fork()
        with self._changing:
            other = Recommender.__new__(Recommender)
            other.__dict__.update(self.__dict__)
            other._changing = threading.RLock()
            other._folders = {path: folder.twin() for path, folder in self._folders.items()}
            other._folder = None if self._folder is None else other._folders[self._folder.path]
        return other

    def add_items(self, items: Any, *, update: bool = False) -> None:
        """New items enter the catalogue from their attributes alone: a table with the columns of the item table.

        update=True: items that are in the catalogue take over the columns of the table; otherwise they are refused.
        """
        with self._changing:
            state = self._fitted_state
            self._state = State.of(changes.with_items(state.run, items, update=update), state.stock.marks, state.observed)

    def forget(self, user: Any) -> None:
        """The user's id, attributes, history, observed rows and row are gone, and they are unknown from then on: here, and in
        every folder that this Recommender wrote or was loaded from. Weights that others share stay as they were trained. A
        folder that could not be changed is named in a warning. Who is observed after that is a new user."""
        refuse_after_fork()
        user = id_of(user, "the user")
        with self._changing:
            is_gone = self._folder is not None and self._folder.forget(user, self._saved)
            for folder in self._folders.values():
                try:
                    is_gone |= folder is not self._folder and folder.forget(user, None)
                except GmlfmError as error:
                    warnings.warn(
                        f"{folder.path} may still hold the user '{user}' ({error}) and should be deleted.", stacklevel=2
                    )
            if self._state is None:
                return
            text = self._state.run.encoder.texts_of([user])[0]
            is_gone |= text in self._state.observed
            state = self._state.without_observed(text)
            if self._folder is None and (is_gone or state.run.encoder.user_numbers([user])[0] >= 0):
                self._forgotten = forgetting(self._forgotten, text)
            if is_gone and state.run.encoder.user_numbers([user])[0] < 0:
                self._state = state
                return
            is_saved = state.run is self._saved
            self._state = State.of(without_user(state.run, user), state.stock.marks, state.observed)
            self._saved = self._state.run if is_saved else None

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the run, so that the folder holds the old one or the new one, whatever happens.

        A folder that holds another run, or was changed by somebody else since it was read, is refused unless force=True.
        """
        with self._changing:
            path = run_path(folder).absolute()
            known = self._folders.get(path) or RunFolder(path, self._class_of(self.fitted.settings))
            self._save(known, force=force)
            self._folders[path] = known

    @activity("writing the run")
    def _save(self, folder: RunFolder, *, learned: Sequence[ObservedRow] = (), force: bool = False) -> None:
        state = self._fitted_state
        rows = list(state.observed.rows())
        marks, origin = state.stock.marks, self._folder
        events = self._forgotten
        run = folder.save(state.run, marks=marks, observed=rows, origin=origin, learned=learned, forgotten=events, force=force)
        self._state = State.of(run, state.stock.marks, state.observed).in_folder(folder)
        self._folder, self._saved = folder, run

    @staticmethod
    def _class_of(settings: Settings) -> type[Model] | None:
        """Of a model that has no registered name."""
        return settings.info.cls if ":" in settings.model else None

    @classmethod
    def load(cls, folder: str | Path, model: str | type[Model] | None = None) -> Recommender:
        """A saved run. model: the class of a run whose model is not gmlfm's own, or 'module:Class'."""
        refuse_after_fork()
        run_folder = RunFolder(path_of(folder, "the run folder"), model)
        n_forgotten = run_folder.n_forgotten  # before the run: who is forgotten in between is noticed by `follow`
        run = run_folder.load()
        settings = run.settings
        named = {"task": settings.task, "preset": settings.preset, **settings.to_dict()["settings"]}
        recommender = cls.__new__(cls)
        recommender._params = {"model": model or settings.model, **named, "device": "auto"}
        recommender.settings, recommender._device = settings, "auto"
        recommender._begin()
        recommender._state = State.of(run).in_folder(run_folder)
        recommender._folder, recommender._saved, recommender._n_forgotten = run_folder, run, n_forgotten
        recommender._folders = {run_folder.path: run_folder}
        return recommender
