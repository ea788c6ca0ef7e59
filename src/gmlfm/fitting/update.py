"""Training on from a fitted run with what is new: rows, users, items and values.

The steps taken are in proportion to the new rows. The bookkeeping around them (recognising rows, encoding, sorting histories,
writing the run) passes over all data once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from gmlfm.arguments import shown, whole_number
from gmlfm.data.dataset import Rows
from gmlfm.data.encoder_growth import grown_encoder
from gmlfm.data.growing import GrownData
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.metrics import default_metric
from gmlfm.evaluation.protocols import evaluate_labels, evaluate_ranking, protocol_for
from gmlfm.fitting.epochs import epochs_told
from gmlfm.fitting.labels import labelled
from gmlfm.fitting.plan import refuse_too_large
from gmlfm.fitting.run import FittedRun, learned_rows
from gmlfm.fitting.training_rows import TrainingRows
from gmlfm.models.base import Layout
from gmlfm.models.registry import authors_mistakes
from gmlfm.progress import activity
from gmlfm.retrieval import ModelRanker
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.trainer import DivergedError, EpochReport, NullObserver, Observer, Resumable

_LR_SHARE = 0.1


@dataclass(frozen=True)
class UpdateOptions:
    """epochs: over the new rows. lr: None is a tenth of the run's: its table is near a minimum, and Adam's moments begin anew.
    replay: old rows learned again beside each new one, against forgetting. held_out: the share of the users with new rows
    whose latest one is held back, to say how good the run is at new rows before and after; they are learned last."""

    epochs: int = 3
    lr: float | None = None
    replay: float = 1.0
    held_out: float = 0.1

    def __post_init__(self) -> None:
        whole_number(self.epochs, "epochs", most=100_000)
        for name, most in (("lr", 3e38), ("replay", 1e6), ("held_out", 0.5)):
            value = getattr(self, name)
            if name == "lr" and value is None:
                continue
            is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
            if not is_number or not 0 <= value <= most or (name == "lr" and value == 0):
                limits = "a number above 0" if name == "lr" else f"a number of 0 to {most:g}"
                raise OptionError(f"{name} is {shown(value)}; expected {limits}.")


@dataclass(frozen=True)
class UpdateReport:
    """What was new and what was done with it. n_rows: new rows that were learned; n_history: new rows that count as history
    alone; n_values: new rows of the table; n_replayed: old rows learned again; n_steps, n_instances: taken and shown in all.

    before, after: metrics on the n_held_out rows that were held back; none where the share of users is nobody.
    is_refitted: the model is of closed form, and was fitted again on all rows.
    """

    n_rows: int
    n_history: int
    n_users: int
    n_items: int
    n_values: int
    n_replayed: int = 0
    n_steps: int = 0
    n_instances: int = 0
    epochs: int = 0
    lr: float = 0.0
    n_held_out: int = 0
    protocol: str = ""
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    is_refitted: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_updatable(run: FittedRun) -> None:
    """Refuse a run that cannot go on."""
    if run.settings.preset == "paper":
        raise OptionError("the run was trained as published (preset 'paper'), which knows no update; train it anew.")
    if run.instances is not None:
        raise OptionError("a run of the task 'implicit' draws its instances anew from all rows; train it anew.")
    if "prepared" in run.split.options:
        raise OptionError("the run was trained from a prepared folder; prepare the new data and train it anew.")


def update(
    run: FittedRun,
    grown: GrownData,
    options: UpdateOptions,
    device: str = "cpu",
    observer: Observer | None = None,
) -> tuple[FittedRun, UpdateReport]:
    """The run over the grown data, trained on. Rows that the run held out stay held out, and unseen in training."""
    check_updatable(run)
    if grown.n_new == 0:
        raise DataError("the data have no row that the run does not have; nothing was changed.")
    with activity("growing"):
        later, report = _grown_run(run, grown)
    if not later.model.learns_in_epochs:
        report = replace(report, is_refitted=True)
        return _noted(later, report), report
    targets = np.intersect1d(grown.rows, later.split.train)
    old_rows = run.learned_rows
    update_training = _Update(later, options, device, observer or NullObserver())
    with authors_mistakes(run.settings.info.cls):
        report = update_training.run_stages(old_rows, targets, report)
    later.model.attach(later.inputs)  # without what scoring kept of the weights before
    return _noted(later, report), report


def _noted(run: FittedRun, report: UpdateReport) -> FittedRun:
    return replace(run, updates=(*run.updates, report.to_dict()))


def _grown_run(run: FittedRun, grown: GrownData) -> tuple[FittedRun, UpdateReport]:
    """Before any training: known pairs have the scores that they had."""
    data, settings = grown.data, run.settings
    targets = np.intersect1d(grown.rows, data.rows_for(settings.task))  # type: ignore[arg-type]
    train = np.concatenate([run.split.train, targets])
    split = replace(run.split, train=train, data_hash=data.content_hash)
    rows = learned_rows(split, settings, run.refit)
    grown_rows = grown_encoder(run.encoder, data, rows, user_ids=_has_user_ids(run))
    encoder = grown_rows.encoder
    limits = run.limits
    if settings.task == "rating":
        labels = data.interactions["label"].to_numpy()[train]
        limits = (min(limits[0], float(labels.min())), max(limits[1], float(labels.max())))
    later = replace(run, data=data, split=split, encoder=encoder, encoded=encoder.encode(data), limits=limits)
    model = settings.build(Layout(encoder.fields))
    model.grow_from(run.model, grown_rows.origins, later.inputs)
    report = UpdateReport(
        len(targets),
        grown.n_history,
        len(data.users) - len(run.data.users),
        len(data.items) - len(run.data.items),
        grown_rows.n_new,
    )
    return replace(later, model=model), report


def _has_user_ids(run: FittedRun) -> bool:
    return not run.encoder.roles or run.settings.history.user_id is not False


@dataclass(frozen=True)
class _Update:
    """run: grown, its model trained in place."""

    run: FittedRun
    options: UpdateOptions
    device: str
    observer: Observer

    def run_stages(self, old_rows: Rows, targets: Rows, report: UpdateReport) -> UpdateReport:
        """Learn all but what is held back, measure, then learn that too."""
        options, settings = self.options, self.run.settings
        if options.epochs == 0 or len(targets) == 0:
            return report
        held_out = self._held_out(targets)
        learned, protocol = np.setdiff1d(targets, held_out), self._protocol
        before = self._measured(held_out, protocol)
        counter, replayed, visible = _StepCounter(self.observer), np.empty(0, np.int64), np.union1d(old_rows, learned)
        rng = np.random.default_rng([settings.training.seed, 21, len(self.run.updates)])
        after: dict[str, float] = {}
        for stage, rows in enumerate((learned, held_out)):
            if len(rows):
                n_replayed = min(round(options.replay * len(rows)), len(old_rows))
                chosen = np.sort(rng.choice(old_rows, n_replayed, replace=False))
                replayed = np.concatenate([replayed, chosen])
                visible = np.union1d(visible, rows)
                self._train(np.union1d(rows, chosen), visible, counter)
            if stage == 0:
                after = self._measured(held_out, protocol)
        return replace(
            report,
            n_replayed=len(replayed),
            n_steps=counter.n_steps,
            n_instances=counter.n_instances,
            epochs=options.epochs,
            lr=self._lr,
            n_held_out=len(held_out),
            protocol=protocol if len(held_out) else "",
            before=before,
            after=after,
        )

    @property
    def _lr(self) -> float:
        return self.run.settings.training.lr * _LR_SHARE if self.options.lr is None else float(self.options.lr)

    @property
    def _protocol(self) -> str:
        return "labels" if self.run.settings.task == "rating" else protocol_for(self.run.data)

    def _held_out(self, targets: Rows) -> Rows:
        """The latest new row of a seeded share of the users that have some."""
        data = self.run.data
        ordered = data.order_in_time(targets)
        latest = dict(zip(data.user_numbers[ordered].tolist(), ordered.tolist(), strict=True))
        users = np.array(sorted(latest), np.int64)
        rng = np.random.default_rng([self.run.settings.training.seed, 20, len(self.run.updates)])
        chosen = rng.choice(users, round(self.options.held_out * len(users)), replace=False)
        return np.sort(np.array([latest[int(user)] for user in chosen], np.int64))

    def _measured(self, rows: Rows, protocol: str) -> dict[str, float]:
        """With all that users did before a row, held-out rows of the run included: so they are asked from now on."""
        if len(rows) == 0:
            return {}
        run, data = self.run, self.run.data
        with activity("measuring new rows"):
            ranker = ModelRanker(run.model.over(run.inputs.items), run.encoded, histories=run.histories)
            if run.settings.task == "rating":
                users, items, labels, interactions = labelled(data, None, rows)
                predicted = ranker.score_pairs(users, items[:, None], interactions)[:, 0]
                return evaluate_labels(predicted, labels, run.limits, implicit=False).metrics
            metrics = evaluate_ranking(ranker, data, rows, protocol).metrics
        return {name: metrics[name] for name in map(default_metric, ("hr", "ndcg"))}

    def _train(self, targets: Rows, visible: Rows, counter: _StepCounter) -> None:
        """Adam's moments begin anew: runs do not hold them, and the small learning rate bounds what their first steps move."""
        run = self.run
        model: Any = run.model  # one that grows and learns in epochs is trained by rows
        training = replace(run.settings.training, lr=self._lr, epochs=model.warm_epochs + self.options.epochs)
        rows = TrainingRows(run.data, run.settings, run.split.name, None, run.label_scale)
        batches = rows.batches(visible, run.encoder, run.encoded, targets)
        n_rows, inputs = run.encoder.n_rows, run.inputs
        refuse_too_large(n_rows, model.row_width)
        weights = model.state_dict()
        trainer = RowTrainer(model, n_rows, training, batches, self.device, inputs.layout.field_of_row())
        trainer.load_weights(weights)
        trainer.epoch = model.warm_epochs  # its parts were trained apart when the run was
        with epochs_told(trainer, None, counter) as (_, observer):
            trainer.fit(None, "", observer)
        if trainer.interrupted:
            raise KeyboardInterrupt("the update was interrupted; the run is as it was.")
        if trainer.diverged:
            raise DivergedError(f"the update diverged, and the run is as it was: {trainer.diverged}")
        model.cpu()
        model.table = trainer.table.detach().cpu()


class _StepCounter:
    """An observer that counts, and hands on."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.n_steps = self.n_instances = 0
        self._done = 0

    def on_step(self, done: int, total: int, loss: float) -> None:
        self.n_steps += 1
        self.n_instances += done - (self._done if done > self._done else 0)
        self._done = done
        self._observer.on_step(done, total, loss)

    def on_epoch(self, report: EpochReport, trainer: Resumable) -> None:
        self._done = 0
        self._observer.on_epoch(report, trainer)
