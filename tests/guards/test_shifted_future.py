"""A shifted future: what happens in held-out rows changes nothing that was learned, or chosen, before them.

Items, or users, are permuted among the rows of a part; which there are, the rows' times and their parts stay. The item and user
tables are given: entities are then numbered by them and not by the rows in which they occur first.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
from torch import Tensor

from gmlfm import Dataset
from gmlfm.data.splits import Split, make_split
from gmlfm.fitting.fit import fit, make_plan
from gmlfm.fitting.plan import Stage
from gmlfm.fitting.run import FittedRun
from gmlfm.models.base import Model
from gmlfm.training.settings import Settings
from gmlfm.training.trainer import NullObserver
from tests.guards.quick import quick
from tests.guards.worlds import make_tables

# By compiled kernels, by eager steps, over a graph, in closed form; the others on request.
MODELS: list[Any] = ["fm", "ncf", "ngcf", "item-knn", "ease"]
MODELS += [pytest.param(name, marks=pytest.mark.slow) for name in ("mf", "gml-fm", "nfm", "deepfm", "transfm", "popularity")]
OPTIONS: dict[str, dict[str, float]] = {"newcomers": {"share": 0.2, "validation_share": 0.2}}
CASES = [
    ("ordinary", "random"),
    ("attributes", "leave-one-out"),
    ("attributes", "random"),
    ("attributes", "global-time"),
    ("attributes", "newcomers"),
    ("repeats", "leave-one-out"),
    ("sold-once", "global-time"),
    ("sold-once-listed", "global-time"),
    ("sold-once-listed", "leave-one-out"),
    ("sold-once-exempt", "global-time"),
]
tables_of = cache(make_tables)


def settings_of(model: str, task: str = "topn", **more: Any) -> Settings:
    return quick(model, task, **{"epochs": 2, **more}).settings


def split_of(data: Dataset, split: str, task: str) -> Split:
    return make_split(data, split, task=task, **OPTIONS.get(split, {}))  # type: ignore[arg-type]


def shifted(shape: str, split: str, part: str, column: str, task: str = "topn") -> tuple[Dataset, Dataset]:
    """The data, and the same with users or items permuted among the rows of a part: within a group, where the split has groups."""
    tables = dict(tables_of(shape))
    data = Dataset.from_tables(**tables)
    of_data = split_of(data, split, task)
    rows = getattr(of_data, part)
    groups = of_data.test_groups if part == "test" else of_data.validation_groups
    table = tables["interactions"]
    users, items = data.user_numbers.copy(), data.item_numbers.copy()
    moved = users if column == "user" else items
    rng = np.random.default_rng(5)
    if groups is None:
        permute(users, items, moved, rows, rng)
    else:
        counts = np.bincount(items[rows], minlength=len(data.items))
        for group in np.unique(groups):
            is_moved = groups == group
            if split == "newcomers" and group % 2 == 1:
                # A new item has most of its rows in the part; one of few rows may be a known item whose others are held out, too.
                is_moved &= counts[items[rows]] >= 4
            permute(users, items, moved, rows[is_moved], rng)
    ids = (data.users if column == "user" else data.items).ids
    tables["interactions"] = table.with_columns(ids[moved].alias(column))
    other = Dataset.from_tables(**tables)
    of_other = split_of(other, split, task)
    for name in ("train", "validation", "test", "unused"):
        assert np.array_equal(getattr(of_data, name), getattr(of_other, name))
    n_moved = int((other.item_numbers != data.item_numbers).sum() + (other.user_numbers != data.user_numbers).sum())
    assert n_moved > 0.5 * len(rows)
    assert other.content_hash != data.content_hash
    return data, other


def permute(users: np.ndarray, items: np.ndarray, moved: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> None:
    """In place, so that no (user, item) pair occurs that was there before or twice: such rows would be merged."""
    taken = set(zip(users.tolist(), items.tolist(), strict=True))
    moved[rows] = moved[rng.permutation(rows)]
    others = np.setdiff1d(np.arange(len(users)), rows)
    fixed = set(zip(users[others].tolist(), items[others].tolist(), strict=True))
    for _ in range(1000):
        pairs = list(zip(users[rows].tolist(), items[rows].tolist(), strict=True))
        seen: set[tuple[int, int]] = set()
        clashes = []
        for row, pair in zip(rows.tolist(), pairs, strict=True):
            if pair in fixed or pair in seen:
                clashes.append(row)
            seen.add(pair)
        if not clashes:
            assert taken != fixed | seen or len(rows) < 2
            return
        for row in clashes:
            other = rng.choice(rows)
            moved[row], moved[other] = moved[other], moved[row]
    raise AssertionError("no permutation without a repeated pair")


def same_weights(left: Model, right: Model) -> None:
    tensors, others = left.state_dict(), right.state_dict()
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        assert equal(tensor, others[name]), name


def equal(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and left.dtype == right.dtype and left.numpy().tobytes() == right.numpy().tobytes()


def choices(run: FittedRun) -> list[Any]:
    """What validation said, and what was chosen by it."""
    curve = [(entry["epoch"], entry["loss"], entry["validation"], entry["best"]) for entry in run.curve]
    return [run.best_epoch, run.validation, run.validation_protocol, curve, run.limits, run.label_scale]


def columns_of(shape: str, split: str) -> list[str]:
    """Users cannot change places where a row's part depends on the user's other rows, or repeats are told apart by nothing."""
    return ["item", "user"] if split in ("random", "global-time") else ["item"]


SHIFTED = [(*case, column) for case in CASES for column in columns_of(*case)]


@pytest.mark.parametrize(("shape", "split", "column"), SHIFTED)
@pytest.mark.parametrize("model", MODELS)
def test_test_rows_change_no_weight_and_no_choice(shape: str, split: str, column: str, model: str) -> None:
    runs = [
        fit(data, settings_of(model), split=split, split_options=OPTIONS.get(split))
        for data in shifted(shape, split, "test", column)
    ]
    same_weights(runs[0].model, runs[1].model)
    assert choices(runs[0]) == choices(runs[1])
    assert runs[0].validation["ndcg@10"] > 0


@pytest.mark.parametrize(("shape", "split", "column"), SHIFTED)
@pytest.mark.parametrize("model", ["fm", "ease"])
def test_nor_after_a_refit(shape: str, split: str, column: str, model: str) -> None:
    runs = [
        fit(data, settings_of(model), split=split, split_options=OPTIONS.get(split), refit=True)
        for data in shifted(shape, split, "test", column)
    ]
    same_weights(runs[0].model, runs[1].model)


@pytest.mark.parametrize("split", ["random", "leave-one-out", "cold-start"])
@pytest.mark.parametrize("model", ["mamo", "fm", "mf"])
def test_nor_where_labels_are_predicted(split: str, model: str) -> None:
    runs = [
        fit(data, settings_of(model, "rating"), split=split)
        for data in shifted("rated-attributes", split, "test", "item", task="rating")
    ]
    same_weights(runs[0].model, runs[1].model)
    assert choices(runs[0]) == choices(runs[1])
    assert runs[0].validation["rmse"] > 0


def trained(data: Dataset, settings: Settings, split: str) -> Model:
    """On the training rows for all epochs, without a look at validation."""
    plan = make_plan(data, settings, split, OPTIONS.get(split))
    inputs = plan.selection_inputs()
    model = settings.build(inputs.layout)
    model.fit(inputs, Stage(plan, None, False, NullObserver(), epochs=2))
    return model


@pytest.mark.parametrize(("shape", "split", "column"), SHIFTED)
@pytest.mark.parametrize("model", MODELS)
def test_validation_rows_change_no_weight_of_a_fixed_number_of_epochs(shape: str, split: str, column: str, model: str) -> None:
    left, right = (trained(data, settings_of(model), split) for data in shifted(shape, split, "validation", column))
    same_weights(left, right)


@pytest.mark.parametrize("split", ["random", "leave-one-out", "cold-start"])
@pytest.mark.parametrize("model", ["mamo", "fm"])
def test_nor_where_labels_are_predicted_for_a_fixed_number_of_epochs(split: str, model: str) -> None:
    both = shifted("rated-attributes", split, "validation", "item", task="rating")
    left, right = (trained(data, settings_of(model, "rating"), split) for data in both)
    same_weights(left, right)


def test_nor_where_there_is_no_table_of_items() -> None:
    """Negatives and sampled candidates are drawn by number."""
    runs = []
    for data in shifted("ordinary", "random", "test", "item"):
        names = {"user": data.users.ids[data.user_numbers], "item": data.items.ids[data.item_numbers]}
        without_tables = Dataset.from_tables(pl.DataFrame(names), schema={"interactions": {"user": "user", "item": "item"}})
        runs.append(fit(without_tables, settings_of("fm"), split="random"))
    same_weights(runs[0].model, runs[1].model)
    assert choices(runs[0]) == choices(runs[1])
