"""Rounds of training, ours and another's in turn, and the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from gmlfm.bench import training
from gmlfm.bench.contenders import Task
from gmlfm.cli import main
from gmlfm.errors import OptionError

MakeTask = Callable[..., Task]


class FakeWorker:
    """Reaches speeds that are listed, without a process."""

    speeds: dict[str, list[float]]
    order: list[str]
    n_ended: int

    def __init__(self, task: Task) -> None:
        self._way, self._left = task.way, list(type(self).speeds[task.way])
        self.about = {"rows": 100, "parts": {"operations": 10.0, "bytes": 4.0}}

    def ask(self, question: Any) -> dict[str, Any]:
        if question == "rates":
            return {"operations_per_second": 1000.0, "bytes_per_second": 200.0}
        type(self).order.append(self._way)
        return {"instances": self._left.pop(0) * question, "seconds": question, "peak": 2**30}

    def end(self) -> None:
        type(self).n_ended += 1


@pytest.fixture
def fake_worker(monkeypatch: pytest.MonkeyPatch) -> type[FakeWorker]:
    monkeypatch.setattr(training, "_Worker", FakeWorker)
    FakeWorker.order, FakeWorker.n_ended = [], 0
    FakeWorker.speeds = {"ours": [40.0, 10.0, 30.0], "eager": [10.0, 5.0, 30.0]}
    return FakeWorker


def test_rounds_alternate_and_medians_are_taken(fake_worker: type[FakeWorker], make_task: MakeTask) -> None:
    measured = training.measure(make_task(), ["eager"], rounds=3, seconds=2.0)
    assert fake_worker.order == ["ours", "eager"] * 3
    assert fake_worker.n_ended == 2
    assert measured["rounds"] == fake_worker.speeds
    assert (measured["instances_per_second"], measured["baseline_instances_per_second"]) == (30.0, 10.0)
    assert measured["ratio"] == 2.0  # of 4, 2 and 1: each round's own, not the ratio of the medians
    assert measured["peak_memory_gib"] == 1.0
    # 10 operations at 1000 a second take 0.01 s an instance, 4 bytes at 200 a second 0.02 s, which is the bound.
    assert measured["roofline"]["instances_per_second"] == pytest.approx(50.0)
    assert measured["roofline"]["share_reached"] == pytest.approx(0.6)
    assert "way" not in measured


def test_with_a_history_each_round_has_a_large_product(
    fake_worker: type[FakeWorker], make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = {"rows": 9, "parts": None, "softmax_operations": 5e9, "batch": 60, "settings": {"n_negatives": -1}}
    products = [{"operations": 4e11, "seconds": seconds, "busy": 2.0} for seconds in (2.0, 4.0, 8.0)]
    ask = FakeWorker.ask

    def answers(self: FakeWorker, question: Any) -> dict[str, Any]:
        if question == "sgemm":
            FakeWorker.order.append("sgemm")
            return products.pop(0)
        return {**ask(self, question), "busy": 0.5 * question}

    monkeypatch.setattr(FakeWorker, "ask", answers)
    monkeypatch.setattr(FakeWorker, "about", about, raising=False)
    monkeypatch.setattr(
        FakeWorker, "__setattr__", lambda self, name, value: name == "about" or object.__setattr__(self, name, value)
    )
    measured = training.measure(make_task(model="fm"), ["eager"], rounds=3, seconds=2.0)
    assert fake_worker.order == ["ours", "eager", "sgemm"] * 3
    # 40, 10 and 30 rows a second of 5 GFLOP each, and 200, 100 and 50 GFLOP/s: shares of 1, .5 and 3.
    assert (measured["gflops"], measured["sgemm_gflops"], measured["share"]) == (150.0, 100.0, 1.0)
    assert measured["n_negatives"] == "all"
    by_processor = measured["by_processor_time"]
    assert by_processor["instances_per_second"] == 60.0
    assert (by_processor["gflops"], by_processor["sgemm_gflops"], by_processor["share"]) == (300.0, 200.0, 1.5)
    assert by_processor["ratio"] == 2.0
    assert "roofline" not in measured


def test_sasrec_takes_its_own_steps(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[Task] = []

    def refuses(task: Task) -> None:
        tasks.append(task)
        if task.model == "sasrec":
            raise OptionError("enough")

    class Refusing(FakeWorker):
        speeds: ClassVar[dict[str, list[float]]] = {"ours": []}

        def __init__(self, task: Task) -> None:
            refuses(task)
            super().__init__(task)

    monkeypatch.setattr(training, "_Worker", Refusing)
    Refusing.n_ended = 0
    with pytest.raises(OptionError, match="enough"):
        training.measure(make_task(model="fm"), ["sasrec"], rounds=1, seconds=1.0)
    assert [(task.way, task.model, task.batch) for task in tasks] == [("ours", "fm", 60), ("ours", "sasrec", None)]


def test_alone_there_is_no_ratio(fake_worker: type[FakeWorker], make_task: MakeTask) -> None:
    measured = training.measure(make_task(), [], rounds=1, seconds=1.0)
    assert "ratio" not in measured
    assert measured["instances_per_second"] == 40.0


def test_workers_end_though_a_round_fails(
    fake_worker: type[FakeWorker], make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: FakeWorker, question: Any) -> dict[str, Any]:
        raise OptionError("no more")

    monkeypatch.setattr(FakeWorker, "ask", fails)
    with pytest.raises(OptionError, match="no more"):
        training.measure(make_task(), ["eager"], rounds=1, seconds=1.0)
    assert fake_worker.n_ended == 2


def test_a_worker_that_ends_early_is_named(make_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(OptionError, match="a side of the comparison ended early, with exit code 1"):
        training.measure(make_task(), [], rounds=1, seconds=1.0)


def test_the_command_prints_what_others_rely_on(small_market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--model", "gml-fm-unit", "--set", "k=4", "--set", "batch_size=50", "--threads", "1", "--rounds", "2"]
    assert main(["bench", "train", str(small_market), *settings, "--seconds", "0.01", "--against", "eager", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    ratios = [ours / other for ours, other in zip(printed["rounds"]["ours"], printed["rounds"]["eager"], strict=True)]
    assert printed["ratio"] == pytest.approx(np.median(ratios))
    assert {"instances_per_second", "baseline_instances_per_second", "peak_memory_gib"} <= printed.keys()
    assert 0 < printed["roofline"]["share_reached"]


HISTORY = ["--model", "fm", "--set", "history=last,recent,past", "--set", "k=4", "--threads", "1"]


def test_with_a_history_the_command_prints_rates_and_their_share(
    timed_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = [*HISTORY, "--set", "negatives=30", "--rounds", "2", "--seconds", "0.01", "--against", "torch"]
    assert main(["bench", "train", str(timed_folder), *short, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["n_negatives"] == 30
    assert printed["batch"] == 64
    ours, others = printed["rounds"]["ours"], printed["rounds"]["torch"]
    assert printed["ratio"] == pytest.approx(np.median(np.divide(ours, others)))
    assert printed["gflops"] == pytest.approx(np.median(ours) * 6 * 30 * 4 * 1.1 / 1e9)
    assert 0 < printed["share"] < 1
    assert printed["sgemm_gflops"] > 0
    assert {"instances_per_second", "gflops", "sgemm_gflops", "share", "ratio"} == printed["by_processor_time"].keys()


def test_a_history_that_is_on_by_default_can_be_left_out(small_market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--model", "fm", "--set", "history=none", "--set", "k=4", "--threads", "1", "--rounds", "1", "--seconds", "0.01"]
    assert main(["bench", "train", str(small_market), *short, "--against", "eager", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert "gflops" not in printed
    assert printed["roofline"]["operations"] > 0


def test_training_with_a_history_until_a_result_is_reached(small_market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "train", str(small_market), *HISTORY, "--until", "ndcg@10=0.01", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["reached"] is True
    assert printed["history"] == "last,recent,past"
    assert printed["epochs"][-1]["ndcg@10"] >= 0.01
    assert "batch_size" not in printed  # as training takes it


def test_training_until_a_result_is_reached(small_market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--set", "k=4", "--set", "batch_size=64", "--threads", "1", "--json"]
    assert main(["bench", "train", str(small_market), *settings, "--until", "hr@10=0.01"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["reached"] is True
    assert len(printed["epochs"]) == printed["epochs"][-1]["epoch"]
    assert printed["epochs"][-1]["hr@10"] >= 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--until", "nonsense"], "--until takes METRIC=X"),
        (["--until", "hr@10=much"], "--until takes METRIC=X"),
        (["--until", "recall=0.1", "--set", "k=2"], "--until names 'recall'; validation tells hr@10, ndcg@10"),
        (["--set", "k=0"], "k is 0; expected a whole number of 1 or more"),
        (["--threads", "0"], "--threads is 0"),
        (["--seconds", "-1"], "--seconds is -1.0"),
        (["--model", "fm", "--set", "history=none", "--set", "lr=0.1"], "'lr' goes with --until only"),
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
    printed = capsys.readouterr()
    assert message in json.loads(printed.out)["error"]
    assert "Traceback" not in printed.err
