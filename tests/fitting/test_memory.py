"""Fitting from a Dataset in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, load_dataset, make_split
from gmlfm.errors import DataError, OptionError
from gmlfm.evaluation.protocols import evaluate_held_out, evaluate_labels
from gmlfm.fitting import Refit, fit
from gmlfm.fitting.labels import labelled
from gmlfm.fitting.memory import MemoryPlan
from gmlfm.training.sampling.batches import RankingBatches
from gmlfm.training.settings import Settings
from tests.contracts.checkerboard import checkerboard

QUICK = {"history": "none", "k": 4, "threads": 1, "epochs": 1, "batch_size": 200}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return checkerboard()


def plan(
    data: Dataset, task: str = "topn", split: str = "leave-one-out", preset: str | None = None, **options: Any
) -> MemoryPlan:
    return MemoryPlan(data, Settings.make("fm", task, QUICK, preset), split, options, "cpu")


def test_the_selection_reads_the_training_rows_and_the_refit_more(data: Dataset) -> None:
    memory = plan(data)
    split = make_split(data)
    for inputs, rows in (
        (memory.selection_inputs(), split.train),
        (memory.refit_inputs(Refit.VALIDATION), np.sort(np.concatenate([split.train, split.validation]))),
        (memory.refit_inputs(Refit.ALL), np.sort(np.concatenate([split.train, split.validation, split.test]))),
    ):
        np.testing.assert_array_equal(inputs.positives().items, data.item_numbers[rows])
        np.testing.assert_array_equal(inputs.batches().rows, rows)
        assert inputs.layout.n_rows == inputs.layout.fields[-1].end


def test_what_only_held_out_rows_have_is_not_encoded(data: Dataset) -> None:
    memory = plan(data, split="newcomers", share=0.2)
    sizes = [inputs.layout.n_rows for inputs in (memory.selection_inputs(), memory.refit_inputs(Refit.ALL))]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize(("task", "split"), [("topn", "leave-one-out"), ("rating", "random"), ("implicit", "random")])
def test_validation_is_the_evaluation_of_the_validation_part(data: Dataset, task: str, split: str) -> None:
    run = fit(data, Settings.make("fm", task, QUICK), split=split)
    if task == "topn":
        metrics = evaluate_held_out(run.ranker, data, run.split, "validation", "full").metrics
        assert run.validation_protocol == "full"  # forty items leave nobody 99
        assert run.validation.keys() == {"hr@10", "ndcg@10"}
    else:
        users, items, labels, rows = labelled(data, run.instances, run.split.validation)
        scores = run.ranker.score_pairs(users, items[:, None], rows)[:, 0]
        metrics = evaluate_labels(scores, labels, run.limits, implicit=task == "implicit").metrics
        assert run.validation_protocol == ""
        assert "rmse" in run.validation
    assert run.validation == pytest.approx({name: metrics[name] for name in run.validation})


def test_groups_are_averaged_in_validation(data: Dataset) -> None:
    run = fit(
        data, Settings.make("fm", "topn", QUICK), split="newcomers", split_options={"share": 0.2, "validation_share": 0.2}
    )
    evaluation = evaluate_held_out(run.ranker, data, run.split, "validation", "full")
    assert run.validation["ndcg@10"] == pytest.approx(evaluation.balanced()["ndcg@10"])
    n_groups = len(np.unique(run.split.validation_groups))
    assert n_groups > 1
    assert run.validation_protocol == f"full, mean of {n_groups} groups"


@pytest.mark.parametrize("task", ["topn", "implicit"])
def test_as_published_every_id_has_a_row_and_no_row_is_for_negatives_only(small_market: Path, task: str) -> None:
    market = load_dataset(small_market)
    for preset in (None, "paper"):
        inputs = plan(market, task, "auto", preset).selection_inputs()
        batches = inputs.batches()
        item_ids = np.concatenate([batch.item_ids[..., 0].ravel() for batch in batches.epoch(0)])
        # Where items sell once, implicit negatives are items of their own part, which all have a positive.
        assert (batches.ids.negative_only_row in item_ids) == (preset is None and task == "topn")
        n_rows = {code.part: code.n_values for code in inputs.layout.fields if code.kind == "id"}
        assert (n_rows == {"user": len(market.users), "item": len(market.items)}) == (preset == "paper")


def test_the_published_procedure_chooses_on_the_test_part(small_market: Path) -> None:
    market = load_dataset(small_market)
    run = fit(market, Settings.make("fm", "topn", QUICK, "paper"))
    metrics = evaluate_held_out(run.ranker, market, run.split, "test", "paper").metrics
    assert run.validation_protocol == "paper"
    assert run.validation == pytest.approx({name: metrics[name] for name in ("hr@10", "ndcg@10")})
    np.testing.assert_array_equal(run.learned_rows, np.sort(np.concatenate([run.split.train, run.split.validation])))


def test_labels_are_learned_in_the_scale_of_the_training_part(data: Dataset) -> None:
    memory = plan(data, "rating", "random")
    labels = data.interactions["label"].to_numpy()[memory.split.train]
    run = fit(data, memory.settings, split="random")
    assert run.label_scale == memory.selection_inputs().label_scale == pytest.approx((labels.mean(), labels.std()))
    assert run.limits == (1.0, 5.0)
    assert fit(data, Settings.make("popularity", "topn", {})).label_scale == (0.0, 1.0)


def test_weights_reach_the_batches() -> None:
    rows = pl.DataFrame(
        {"u": [f"u{n % 6}" for n in range(30)], "i": [f"i{n % 5}{n % 3}" for n in range(30)], "w": [1.0 + n for n in range(30)]}
    )
    schema = {"interactions": {"user": "u", "item": "i", "weight": "w"}}
    weighted = plan(Dataset.from_tables(rows, schema=schema), split="none").selection_inputs().batches()
    assert isinstance(weighted, RankingBatches)
    assert weighted.weights is not None
    np.testing.assert_array_equal(weighted.weights, weighted.rows + 1.0)
    unweighted = plan(Dataset.from_tables(rows, schema={"interactions": {"user": "u", "item": "i"}}), split="none")
    assert unweighted.selection_inputs().batches().weights is None


def test_a_plan_is_named_by_its_data_and_split(data: Dataset) -> None:
    fingerprints = [plan(data, split="random", **options).fingerprint() for options in ({}, {"seed": 0}, {"seed": 1})]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    assert fingerprints[0]["data"] == data.content_hash


def test_what_cannot_be_split_is_refused(data: Dataset) -> None:
    with pytest.raises(
        OptionError, match="the task 'implicit' splits its drawn instances at random, 70/20/10; 'newcomers' cannot"
    ):
        plan(data, "implicit", "newcomers")
    memory = plan(data)
    memory.split = replace(memory.split, train=np.empty(0, np.int64))
    with pytest.raises(DataError, match="the training part is empty; choose another split"):
        memory.selection_inputs()
