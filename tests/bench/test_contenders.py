"""The ways to train that are compared compute the same step."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from gmlfm.bench.contenders import DenseEager, Side, Task
from gmlfm.bench.roofline import counted, measured
from gmlfm.cli import main
from gmlfm.errors import OptionError
from gmlfm.training.settings import Settings


def task(folder: Path, way: str = "ours", model: str = "gml-fm") -> Task:
    return Task(str(folder), None, model, way, 6, 60, 1, "cpu")


def test_outer_products_one_product_and_groups_are_the_same_step(small_market: Path) -> None:
    side = Side(task(small_market, "eager"))
    batch = next(side.batches[0].steps(side.groups_per_step))
    found = []
    for way in ("group_step", "outer_step", "flat_step"):
        settings = Settings.make("gml-fm", "topn", {"k": 6, "form": "factored" if way == "flat_step" else "pairs"})
        dense = DenseEager(settings.build(side.material.layout), side.n_rows, settings, "cpu")
        getattr(dense, way)(batch)
        found.append({name: one.detach() for name, one in dense._model.named_parameters()} | {"table": dense._table.detach()})
    for other in found[1:]:
        for name, one in found[0].items():
            torch.testing.assert_close(other[name], one, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("way", ["ours", "eager", "factored", "factored-product"])
def test_every_way_goes_through_whole_batches(small_market: Path, way: str) -> None:
    instances, seconds = Side(task(small_market, way)).run(0.0, time.perf_counter)
    assert instances > 0
    assert instances % 5 == 0
    assert seconds > 0


def test_a_model_without_rows_of_its_own_says_so(small_market: Path) -> None:
    for model, way, message in (
        ("popularity", "ours", "'popularity' is not trained by steps"),
        ("nfm", "factored", "--against factored is for the GML-FM models; 'nfm' has no such form"),
        ("ngcf", "eager", "compares models of rows alone"),
    ):
        with pytest.raises(OptionError, match=message):
            Side(task(small_market, way, model))


def test_operations_are_counted_from_the_batches(small_market: Path) -> None:
    side = Side(task(small_market))
    found = counted(side)
    assert found is not None
    part = next(side.batches[0].steps(side.groups_per_step))
    pairs = 0
    for group in range(len(part)):
        user = int((part.user_x[group] != 0).sum())
        items = (part.item_x[group] != 0).sum(1).tolist()
        pairs += user * (user - 1) // 2 + sum(n * (n - 1) // 2 + user * n for n in items)
    rows = len(np.unique(np.r_[part.user_ids.ravel(), part.item_ids.ravel()]))
    expected = (12 * 6 * pairs + (6 * 36 + 12 * 7) * rows) / part.labels.size
    assert found["operations"] == pytest.approx(expected, rel=0.05)  # the average over eight steps against the first
    assert measured("cpu")["bytes_per_second"] > 1e6


def test_bench_train_prints_what_others_rely_on(small_market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "train", str(small_market), "--k", "4", "--batch", "50", "--threads", "1", "--rounds", "2"]
    assert main([*command, "--seconds", "0.01", "--against", "eager", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ratio"] == pytest.approx(
        np.median([one / other for one, other in zip(told["rounds"]["ours"], told["rounds"]["eager"], strict=True)])
    )
    assert {"instances_per_second", "baseline_instances_per_second", "peak_memory_gib"} <= told.keys()
    assert 0 < told["roofline"]["share_reached"]


def test_bench_train_until_a_result_is_reached(small_market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "train", str(small_market), "--k", "4", "--batch", "64", "--threads", "1", "--json"]
    assert main([*command, "--until", "hr@10=0.01"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["reached"] is True
    assert len(told["epochs"]) == told["epochs"][-1]["epoch"]
    assert told["epochs"][-1]["hr@10"] >= 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--until", "nonsense"], "--until takes METRIC=X"),
        (["--until", "hr@10=much"], "--until takes METRIC=X"),
        (["--until", "recall=0.1"], "--until names 'recall'; validation tells hr@10, ndcg@10"),
        (["--k", "0"], "--k is 0; expected 1 or more"),
        (["--threads", "0"], "--threads is 0"),
        (["--seconds", "-1"], "--seconds is -1.0"),
        (["--model", "popularity"], "'popularity' is not trained by steps"),
        (["--model", "popularity", "--until", "hr@10=0.5"], "'popularity' is not trained by steps"),
        (["--device", "cuda"], "device is 'cuda', but there is none here"),
    ],
)
def test_wrong_use_is_one_sentence(
    small_market: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "cuda" in options and torch.cuda.is_available():
        pytest.skip("there is one here")
    assert main(["bench", "train", str(small_market), "--json", *options]) == 2
    told = capsys.readouterr()
    assert message in json.loads(told.out)["error"]
    assert "Traceback" not in told.err
