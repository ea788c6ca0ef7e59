"""Steps with histories against plain autograd over the whole table, in float64: the loss and the gradient of every row."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from gmlfm.data.attributes import PADDING, AttributeTable
from gmlfm.data.dataset import Dataset
from gmlfm.fitting.fit import make_plan
from gmlfm.models.base import HistorySpec
from gmlfm.training.engines import history as engine_module
from gmlfm.training.engines.history import HistoryEngine
from gmlfm.training.row_trainer import RowTrainer
from gmlfm.training.sampling.history_batches import HistoryBatch, HistoryBatches, training_items
from gmlfm.training.settings import Settings
from tests.models.history_world import QUICK, history_data


@dataclass(frozen=True)
class Steps:
    engine: HistoryEngine
    batches: HistoryBatches
    model: Any
    spec: HistorySpec

    @property
    def first(self) -> HistoryBatch:
        return next(iter(self.batches.epoch(0)))


def steps_of(data: Dataset, name: str, task: str = "topn", **changes: Any) -> Steps:
    given = {**QUICK, "batch_size": 40, "cold_start_rate": 0.0, "v_scale": 0.4, "piece": 3, "seed": 5, **changes}
    plan = make_plan(data, Settings.make(name, task, given), "leave-one-out", device="cpu")
    inputs = plan.selection_inputs()
    model: Any = plan.settings.build(inputs.layout)
    model.attach(inputs)
    if name == "gml-fm":
        torch.nn.init.normal_(model.gates, 0.0, 0.5)  # at the start it is an FM
    fields = inputs.layout.field_of_row()
    trainer = RowTrainer(model, inputs.layout.n_rows, plan.settings.training, inputs.batches(), "cpu", fields)
    batches, engine = trainer.batches, trainer.engine
    assert isinstance(batches, HistoryBatches)
    assert isinstance(engine, HistoryEngine)
    assert inputs.history is not None
    return Steps(engine, batches, model, inputs.history)


def gradients_of(steps: Steps, batch: HistoryBatch) -> tuple[float, Tensor, list[Tensor | None]]:
    rng = np.random.default_rng((*batch.seed, 0))
    shares = batch.negatives is None and batch.labels is None
    step = steps.engine._shared(batch, rng, hides=False) if shares else steps.engine._grouped(batch, rng)
    step.loss.backward()  # type: ignore[no-untyped-call]
    assert step.leaf.grad is not None
    table = torch.zeros(steps.model.table.shape, dtype=torch.float64)
    table.index_add_(0, step.numbers, step.leaf.grad.double())
    dense = [parameter.grad for parameter in steps.model.parameters()]
    return float(step.loss.detach()), table, dense


def dense_rows(model: Any, ids: npt.NDArray[Any], x: npt.NDArray[Any], n: int) -> Tensor:
    """(N, n): x of each row of the table."""
    if getattr(model, "ids_only", False):
        ids, x = ids[..., :1], np.ones_like(x[..., :1])
    result = torch.zeros(len(ids), n, dtype=torch.float64)
    for place, (rows, values) in enumerate(zip(ids.tolist(), x.tolist(), strict=True)):
        for row, value in zip(rows, values, strict=True):
            if row != PADDING:
                result[place, row] += value
    return result


def history_rows(steps: Steps, batch: HistoryBatch, earlier: AttributeTable, n: int, *, own: bool = False) -> Tensor:
    """(B, roles, n): the weight of each row of the table in each role. own: of the items' own rows, not those of the role."""
    result, spec = torch.zeros(len(batch), len(steps.spec.roles), n, dtype=torch.float64), steps.spec
    for row in range(len(batch)):
        latest = list(range(batch.row_start[row], batch.row_stop[row]))
        for number, role in enumerate(spec.roles):
            window = latest[-1:] if role == "last" else latest
            weights = {event: 2.0 ** (-(batch.row_stop[row] - 1 - event) / spec.half_life) for event in window}
            if role != "recent":
                weights = dict.fromkeys(window, 1.0)
            if role != "last":
                weights = {event: weight for event, weight in weights.items() if batch.is_kept[event]}
            norm = math.sqrt(sum(weight**2 for weight in weights.values()))
            for event, weight in weights.items():
                item = batch.events[event : event + 1]
                ids = np.where(
                    earlier.ids[item] == PADDING, PADDING, earlier.ids[item] + (0 if own else (number + 1) * spec.block)
                )
                result[row, number] += weight / norm * dense_rows(steps.model, ids, earlier.values[item], n)[0]
    return result


@dataclass(frozen=True)
class Naive:
    """Everything of a step written out: the model in float64 over a leaf of the whole table."""

    steps: Steps
    batch: HistoryBatch
    model: Any
    table: Tensor
    earlier: AttributeTable  # the items as they stand in histories

    @classmethod
    def of(cls, steps: Steps, batch: HistoryBatch) -> Naive:
        model = copy.deepcopy(steps.model).double()
        table = steps.model.table.double().clone().requires_grad_()
        return cls(steps, batch, model, table, steps.batches.encoded.item)

    def scores(self, items: npt.NDArray[Any]) -> Tensor:
        """items (B, G) -> (B, G), by the pairs of all rows of the table with each other."""
        n, batch, model = len(self.table), self.batch, self.model
        rows = model.transform_rows(self.table)
        pairs, linear = model.pair_values(rows, rows), model.linear(rows)
        scored = training_items(self.steps.batches.encoded.item, self.steps.batches.ids)
        user = dense_rows(model, batch.users.ids, batch.users.values, n)
        item = dense_rows(model, scored.ids[items.ravel()], scored.values[items.ravel()], n)
        history, in_roles = history_rows(self.steps, batch, self.earlier, n), []
        own = history_rows(self.steps, batch, self.earlier, n, own=True)
        for number, role in enumerate(self.steps.spec.roles):
            weight, distance = model.earlier_pair_parts(rows, rows, role)
            in_roles.append(history[:, number] @ (weight if distance is None else weight * distance))
            if self.steps.spec.with_own:
                in_roles.append(own[:, number] @ model.own_pair_values(rows, rows, role))

        def self_terms(side: Tensor) -> Tensor:
            both = ((side @ pairs) * side).sum(1) - (side.square() * pairs.diagonal()).sum(1)
            return side @ linear + both / 2

        cross = torch.einsum("bc,bgc->bg", user @ pairs + torch.stack(in_roles).sum(0), item.view(*items.shape, n))
        by_user = self_terms(user) + history.sum(1) @ linear + model.global_term()
        return by_user[:, None] + self_terms(item).view(items.shape) + cross

    def compare(self, loss: Tensor, absolute: float = 2e-6) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        loss_of_step, table, dense = gradients_of(self.steps, self.batch)
        assert loss_of_step == pytest.approx(float(loss.detach()), rel=1e-5)
        assert self.table.grad is not None
        assert self.table.grad.abs().max() > 1e-3
        torch.testing.assert_close(table, self.table.grad, rtol=2e-4, atol=absolute)
        for expected, gradient in zip(self.model.parameters(), dense, strict=True):
            if expected.grad is not None and gradient is not None:
                torch.testing.assert_close(gradient.double(), expected.grad, rtol=2e-4, atol=1e-5)
            else:  # what cancels in a softmax has no gradient
                assert expected.grad is None or expected.grad.abs().max() < 1e-9


def had_before(batch: HistoryBatch, row: int) -> set[int]:
    had = batch.had
    return {int(had.items[place]) for place in range(had.start[row], had.stop[row]) if had.is_had[place]}


MODELS = ("fm", "gml-fm", "gml-fm-unit", "gml-fm-md", "mf")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_softmax_over_all_items(name: str, dropout: float) -> None:
    steps = steps_of(history_data(weight="n"), name, n_negatives="all", history_dropout=dropout)
    batch, candidates = steps.first, steps.batches.candidates
    naive = Naive.of(steps, batch)
    scores = naive.scores(np.broadcast_to(candidates, (len(batch), len(candidates))))
    losses = []
    for row, target in enumerate(batch.targets.tolist()):
        left = [place for place, item in enumerate(candidates) if item == target or item not in had_before(batch, row)]
        losses.append(torch.logsumexp(scores[row, left], 0) - scores[row, candidates.tolist().index(target)])
    assert batch.weights is not None
    weights = torch.from_numpy(batch.weights.astype(np.float64))
    assert len(weights.unique()) > 1
    naive.compare((torch.stack(losses) * weights).sum() / weights.sum())


@pytest.mark.parametrize("name", MODELS)
def test_the_softmax_over_shared_negatives_is_corrected_for_their_share(name: str) -> None:
    steps = steps_of(history_data(), name, n_negatives=6)
    batch, candidates = steps.first, steps.batches.candidates
    drawn = np.random.default_rng((*batch.seed, 0)).choice(candidates, 6, replace=False, shuffle=False)
    naive = Naive.of(steps, batch)
    scores = naive.scores(np.concatenate([np.broadcast_to(drawn, (len(batch), 6)), batch.targets[:, None]], axis=1))
    losses = []
    for row, target in enumerate(batch.targets.tolist()):
        left = [place for place, item in enumerate(drawn) if item != target and item not in had_before(batch, row)]
        others = scores[row, left] + math.log(len(candidates) / 6)
        losses.append(torch.logsumexp(torch.cat([others, scores[row, 6:]]), 0) - scores[row, 6])
    assert any(target in drawn for target in batch.targets)
    naive.compare(torch.stack(losses).mean())


def group_loss(name: str, scores: Tensor, weights: Tensor) -> Tensor:
    positive, negatives = scores[:, 0], scores[:, 1:]
    losses = {
        "squared": torch.cat([(positive - 1)[:, None].square(), (negatives + 1).square()], 1).mean(1),
        "logistic": torch.log(1 + torch.exp(torch.cat([-positive[:, None], negatives], 1))).mean(1),
        "bpr": -torch.log(torch.sigmoid(positive[:, None] - negatives)).mean(1),
        "softmax": torch.logsumexp(scores, 1) - positive,
    }[name]
    return (losses * weights).sum() / weights.sum()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("loss", ["squared", "logistic", "bpr"])
def test_losses_of_groups(name: str, loss: str) -> None:
    steps = steps_of(history_data(weight="n"), name, loss=loss, n_negatives=3, history_dropout=0.3)
    batch = steps.first
    assert batch.negatives is not None
    assert batch.weights is not None
    naive = Naive.of(steps, batch)
    scores = naive.scores(np.concatenate([batch.targets[:, None], batch.negatives], axis=1))
    naive.compare(group_loss(loss, scores, torch.from_numpy(batch.weights.astype(np.float64))))


def test_ratings_are_learned_from_their_labels() -> None:
    steps = steps_of(history_data(label="stars", positive="stars >= 3"), "fm", "rating")
    batch = steps.first
    assert batch.labels is not None
    naive = Naive.of(steps, batch)
    labels = torch.from_numpy(batch.labels.astype(np.float64))
    assert labels.std() > 0.5
    naive.compare((naive.scores(batch.targets[:, None])[:, 0] - labels).square().mean())


@pytest.mark.parametrize("name", ["nfm", "afm", "deepfm", "xdeepfm"])
@pytest.mark.parametrize("loss", ["softmax", "bpr"])
def test_models_without_two_sides_take_one_more_attribute_for_each_role(name: str, loss: str) -> None:
    changes: dict[str, Any] = {"dropout": 0.0} if "dropout" in Settings.make(name, "topn", {}).info.declared else {}
    steps = steps_of(history_data(), name, loss=loss, n_negatives=3, history_dropout=0.3, **changes)
    batch, n = steps.first, len(steps.model.table)
    assert batch.negatives is not None
    naive, fields = Naive.of(steps, batch), steps.engine._field_of_row
    steps.model.eval()
    naive.model.eval()
    rows = naive.model.transform_rows(naive.table)
    pooled = torch.einsum("brn,nw->brw", history_rows(steps, batch, steps.batches.encoded.item, n), rows)
    scored = training_items(steps.batches.encoded.item, steps.batches.ids)
    role_rows = np.array([int(scored.ids[0, 0]) + steps.spec.shift(role) for role in range(3)])
    scores = []
    for row in range(len(batch)):
        items = np.concatenate([batch.targets[row : row + 1], batch.negatives[row]])
        user = batch.users.ids[row].astype(np.int64)

        def side(ids: Any, x: Any, roles: int = 0) -> engine_module.Attributes:
            of_fields = None if fields is None else torch.from_numpy(fields[np.append(ids, role_rows[:roles])].astype(np.int64))
            places = torch.from_numpy(np.append(ids, np.arange(n, n + roles)))
            return engine_module.Attributes(
                places, torch.from_numpy(np.append(x, np.ones(roles)).astype(np.float64)), of_fields
            )

        def stacked(*parts: engine_module.Attributes) -> engine_module.Attributes:
            of_fields = None if parts[0].fields is None else torch.stack([part.fields for part in parts])[None]  # type: ignore[misc]
            return engine_module.Attributes(
                torch.stack([part.ids for part in parts])[None], torch.stack([part.x for part in parts])[None], of_fields
            )

        user_side = stacked(side(user, batch.users.values[row], 3))
        user_side = engine_module.Attributes(
            user_side.ids[0], user_side.x[0], None if user_side.fields is None else user_side.fields[0]
        )
        item_side = stacked(*(side(scored.ids[item].astype(np.int64), scored.values[item]) for item in items))
        scores.append(naive.model.scores(torch.cat([rows, pooled[row]]), user_side, item_side)[0])
    loss_value = group_loss(loss, torch.stack(scores), torch.ones(len(batch), dtype=torch.float64))
    penalty = naive.model.penalty(naive.table, None, None) if name == "afm" else None
    naive.compare(loss_value if penalty is None else loss_value + penalty)


def test_dropped_ids_stand_at_the_unknown_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """In histories, every third item in each role, in whatever place it stands among those of the step."""
    steps = steps_of(history_data(), "fm", n_negatives=6, cold_start_rate=0.3)
    items, spec, block = steps.batches.encoded.item, steps.spec, steps.spec.block
    first = int(items.ids[:, 0].min())

    def is_dropped(ids: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        return (ids[:, 0] - first) % block % 3 == 0

    def dropped(table: AttributeTable, unknown: int, rate: float, never: int, rng: Any) -> AttributeTable:
        assert rate == 0.3
        ids = np.array(table.ids)
        ids[is_dropped(ids) & (ids[:, 0] != never), 0] = unknown
        return AttributeTable(ids, table.values)

    monkeypatch.setattr(engine_module, "with_ids_dropped", dropped)
    batch, candidates = steps.first, steps.batches.candidates
    drawn = np.random.default_rng((*batch.seed, 0)).choice(candidates, 6, replace=False, shuffle=False)
    hidden = dropped(items, steps.batches.ids.unknown_item, 0.3, -1, None)
    assert 0 < (hidden.ids != items.ids).sum() < len(items)
    naive = replace(Naive.of(steps, batch), earlier=hidden)
    scores = naive.scores(np.concatenate([np.broadcast_to(drawn, (len(batch), 6)), batch.targets[:, None]], axis=1))
    losses = []
    for row, target in enumerate(batch.targets.tolist()):
        left = [place for place, item in enumerate(drawn) if item != target and item not in had_before(batch, row)]
        others = scores[row, left] + math.log(len(candidates) / 6)
        losses.append(torch.logsumexp(torch.cat([others, scores[row, 6:]]), 0) - scores[row, 6])
    naive.compare(torch.stack(losses).mean())
    unknown_rows = [steps.batches.ids.unknown_item + spec.shift(role) for role in range(3)]
    assert naive.table.grad is not None
    assert (naive.table.grad[unknown_rows].abs().max(1).values > 1e-4).all()


def test_the_models_own_penalty_is_added() -> None:
    plain, penalised = (
        steps_of(history_data(), "mf", n_negatives=6, lambda_user=weight, lambda_item=weight, user_id=True)
        for weight in (0.0, 0.5)
    )
    difference = gradients_of(penalised, penalised.first)[0] - gradients_of(plain, plain.first)[0]
    assert difference > 0.01


def test_a_step_moves_the_rows_of_the_batch_alone_and_lowers_its_loss() -> None:
    steps = steps_of(history_data(), "fm", n_negatives=6, lr=0.01)
    batch, before = steps.first, steps.model.table.clone()
    first = gradients_of(steps, batch)[0]
    for _ in range(10):
        ((loss, n_rows),) = steps.engine.run(batch, 40)
    assert n_rows == len(batch)
    assert loss < first
    assert (steps.model.table[0] == 0).all()
    assert (steps.model.table != before).any()


def test_a_loss_that_is_no_number_changes_nothing() -> None:
    steps = steps_of(history_data(), "fm", n_negatives=6)
    steps.model.table[1:] = float("nan")
    assert math.isnan(steps.engine.step(steps.first))
    assert steps.model.table[1:].isnan().all()
    assert (steps.model.table[0] == 0).all()
