"""What the items of a history add, against slow loops over the equation in float64."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gmlfm.data.attributes import AttributeTable
from gmlfm.data.histories import History
from gmlfm.errors import NotSupportedError
from gmlfm.models import reasons
from gmlfm.models.base import HistorySpec, UserSide
from gmlfm.models.fm import FM
from gmlfm.models.gmlfm import GMLFM
from gmlfm.models.history import earlier_items
from gmlfm.models.mf import MF
from gmlfm.models.nfm import NFM
from gmlfm.models.transfm import TransFM
from tests.models.slow_loops import LAYOUT, attribute_inputs

BLOCK = LAYOUT.n_rows - 11  # the items' rows, which begin at 11
SPEC = HistorySpec(("last", "recent", "past"), half_life=2.0, length=3, block=BLOCK)
SPECS = [SPEC, replace(SPEC, roles=("recent",), length=50), replace(SPEC, roles=("last", "past"), length=1)]
BEFORE: list[list[int]] = [[4, 1, 1, 0], [3], [], [2, 0, 2, 2, 3, 1]]
MODELS: dict[str, Any] = {
    "fm": lambda: FM(k=3),
    "gml-fm": lambda: GMLFM(k=3),
    "cosine": lambda: GMLFM(k=3, distance="cosine"),
    "gml-fm-md": lambda: GMLFM(k=3, transform="mahalanobis"),
    "transfm": lambda: TransFM(k=3),
    "mf": lambda: MF(k=3),
    "mf without biases": lambda: MF(k=3, biases=False),
}


def attached(make: Any, spec: HistorySpec = SPEC, label_scale: tuple[float, float] = (0.0, 1.0)) -> Any:
    model = make()
    n_rows = LAYOUT.n_rows + len(spec.roles) * BLOCK
    model.table = torch.empty(n_rows, model.row_width).normal_(0.0, 0.7, generator=torch.Generator().manual_seed(1))
    model.attach(replace(attribute_inputs(label_scale), history=spec))
    return model


def users(before: list[list[int]] = BEFORE) -> UserSide:
    return UserSide(np.arange(4, dtype=np.int32), attribute_inputs().encoded.user, History.of(before))


def slow_weights(events: list[int], role: str, spec: HistorySpec) -> list[float]:
    """Of each event, the latest one being the last."""
    n = len(events)
    if role == "last":
        return [float(place == n - 1) for place in range(n)]
    weights = [0.0 if place < n - spec.length else 1.0 for place in range(n)]
    if role == "recent":
        weights = [weight * 2.0 ** (-(n - 1 - place) / spec.half_life) for place, weight in enumerate(weights)]
    return [weight / sum(other**2 for other in weights) ** 0.5 for weight in weights]


@torch.no_grad()
def slow_terms(model: Any, spec: HistorySpec, events: list[int], item: int) -> dict[tuple[int, str], float]:
    """By earlier item and role what it adds, pair after pair."""
    encoded, model = attribute_inputs().encoded.item, copy.deepcopy(model).double()
    rows = model.transform_rows(model.table.double())

    def attributes(number: int) -> list[tuple[int, float]]:
        pairs = [(int(row), float(x)) for row, x in zip(encoded.ids[number], encoded.values[number], strict=True) if row]
        return [(pairs[0][0], 1.0)] if model.ids_only else pairs

    sums: dict[tuple[int, str], float] = {}
    for number, role in enumerate(spec.roles):
        for event, weight in zip(events, slow_weights(events, role, spec), strict=True):
            if weight == 0.0:
                continue
            total = 0.0
            for row, x in attributes(event):
                left = rows[row + (number + 1) * BLOCK][None]
                total += float(model.linear(left)[0]) * x
                for other, y in attributes(item):
                    pair, distance = model.pair_parts(left, rows[other][None])
                    total += float(pair[0, 0]) * (1.0 if distance is None else float(distance[0, 0])) * x * y
            sums[event, role] = sums.get((event, role), 0.0) + weight * total
    return sums


@pytest.mark.parametrize("spec", SPECS)
def test_each_distinct_item_has_the_weights_of_its_events(spec: HistorySpec) -> None:
    earlier = earlier_items(History.of(BEFORE), spec)
    for user, events in enumerate(BEFORE):
        part = slice(earlier.starts[user], earlier.starts[user + 1])
        expected = {item: [0.0] * len(spec.roles) for item in events[-max(spec.length, 1) :]}
        for number, role in enumerate(spec.roles):
            for item, weight in zip(events, slow_weights(events, role, spec), strict=True):
                if item in expected:
                    expected[item][number] += weight
        assert earlier.items[part].tolist() == sorted(expected)
        np.testing.assert_allclose(
            earlier.weights[part].reshape(-1, len(spec.roles)),
            [expected[i] for i in sorted(expected)] or np.empty((0, len(spec.roles))),
            rtol=1e-6,
        )


@pytest.mark.parametrize("label_scale", [(0.0, 1.0), (3.0, 2.0)])
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", MODELS)
def test_terms_of_earlier_items_are_slow_loops_and_all_sum_to_the_score(
    name: str, spec: HistorySpec, label_scale: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reasons, "_ATTRIBUTES_PER_BLOCK", 4)
    model = attached(MODELS[name], spec, label_scale)
    scores = model.score_all(users(), np.arange(5, dtype=np.int32))
    for user, events in enumerate(BEFORE):
        for item in range(5):
            terms = model.explain(users().slice(user, user + 1), item)
            distance = 1.0 if terms.distance is None else terms.distance
            total = terms.constant + terms.linear.sum()
            total += np.triu(terms.weight * distance * np.outer(terms.x, terms.x), 1).sum()
            if not events:
                assert terms.earlier is None
                assert total == pytest.approx(scores[user, item], rel=1e-4, abs=1e-4)
                continue
            earlier = terms.earlier
            scored = terms.x[-earlier.weight.shape[1] :]
            values = earlier.weight * (1.0 if earlier.distance is None else earlier.distance) * np.outer(earlier.x, scored)
            sums: dict[tuple[int, str], float] = {}
            for number, role, value in zip(earlier.items, earlier.roles, earlier.linear + values.sum(1), strict=True):
                sums[int(number), role] = sums.get((int(number), role), 0.0) + value
            expected = slow_terms(model, spec, events, item)
            assert set(sums) == set(expected)
            for key, value in expected.items():
                assert sums[key] == pytest.approx(label_scale[1] * value, rel=1e-4, abs=1e-4)
            assert total + sum(sums.values()) == pytest.approx(scores[user, item], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("most", [8_000_000, 40, 1])
@pytest.mark.parametrize("name", MODELS)
def test_the_strongest_is_that_of_the_slow_loops(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "_NUMBERS_PER_BLOCK", most)
    model = attached(MODELS[name])
    targets = np.array([[0, 3, 4], [1, -1, 2], [0, 1, 2], [-1, 4, 1]], np.int32)
    strongest = model.strongest_earlier(users(), targets)
    assert strongest.dtype == np.int32
    for user, events in enumerate(BEFORE):
        for place, item in enumerate(targets[user].tolist()):
            sums: dict[int, float] = {}
            for (earlier, _), value in slow_terms(model, SPEC, events, item).items() if item >= 0 else ():
                sums[earlier] = sums.get(earlier, 0.0) + value
            best = max(sums, key=lambda earlier: sums[earlier]) if sums else -1
            assert strongest[user, place] == (best if sums and sums[best] > 0 else -1)
    nobody = model.strongest_earlier(users([[], [], [], []]), targets)
    assert (nobody == -1).all()
    assert (model.strongest_earlier(replace(users(), history=None), targets) == -1).all()
    assert model.strongest_earlier(users().slice(0, 0), targets[:0]).shape == (0, 3)


def test_an_attribute_of_x_0_is_named_and_padding_is_not() -> None:
    model, inputs = attached(MODELS["fm"]), attribute_inputs()
    item = AttributeTable(inputs.encoded.item.ids, inputs.encoded.item.values.copy())
    item.values[1, 1] = 0.0
    model.attach(replace(inputs, encoded=replace(inputs.encoded, item=item), history=SPEC))
    earlier = model.explain(users([[0, 1], [], [], []]).slice(0, 1), 2).earlier
    of_last = [place for place, role in enumerate(earlier.roles) if role == "last"]
    assert earlier.ids[of_last].tolist() == [14 + BLOCK, 20 + BLOCK, 21 + BLOCK]
    assert earlier.x[of_last].tolist() == pytest.approx([1.0, 0.0, 0.7])
    assert (np.isin(earlier.ids, [0, BLOCK, 2 * BLOCK, 3 * BLOCK])).sum() == 0


def test_a_long_history_makes_no_pairs_of_its_own() -> None:
    """100 events in three roles: terms of the size events x the item's attributes."""
    events = np.random.default_rng(0).integers(0, 5, 100).tolist()
    model = attached(MODELS["fm"], replace(SPEC, length=100))
    terms = model.explain(users([events, [], [], []]).slice(0, 1), 2)
    assert terms.weight.shape == (5, 5)
    assert terms.earlier.weight.shape == (2 * 13 + 3 - int(events[-1] in (0, 4)), 3)


def test_without_a_history_or_a_sum_it_is_refused() -> None:
    plain, pooled = FM(k=3), NFM(k=3)
    for model in (plain, pooled):
        model.table = torch.zeros(LAYOUT.n_rows + 3 * BLOCK, model.row_width)
    plain.attach(attribute_inputs())
    pooled.attach(replace(attribute_inputs(), history=SPEC))
    with pytest.raises(NotSupportedError, match="'FM' has no sum over earlier items"):
        plain.strongest_earlier(users(), np.zeros((4, 1), np.int32))
    with pytest.raises(NotSupportedError, match="'NFM' has no sum over earlier items"):
        pooled.strongest_earlier(users(), np.zeros((4, 1), np.int32))
    assert plain.explain(users().slice(0, 1), 2).earlier is None
