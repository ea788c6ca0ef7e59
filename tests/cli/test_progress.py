from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from gmlfm.cli.progress import TrainingBar, bar, steps


def test_training_prints_a_row_for_each_epoch() -> None:
    console = Console(file=io.StringIO(), width=200)
    reports: list[Any] = [
        SimpleNamespace(epoch=1, loss=0.5, validation={"hr@10": 0.25}, best=True, instances_per_second=2_000.0),
        SimpleNamespace(epoch=2, loss=0.4, validation={}, best=True, instances_per_second=3_000.0),
    ]
    trainer: Any = None
    with TrainingBar(console) as observer:
        for report in reports:
            observer.on_step(1, 2, report.loss)
            observer.on_epoch(report, trainer)
    row_1, row_2 = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert row_1 == "epoch   1  loss 0.5000  hr@10 0.2500  2 k instances/s  best so far"
    assert row_2 == "epoch   2  loss 0.4000    3 k instances/s"


def test_bars_are_silent_without_a_terminal(capsys: Any) -> None:
    with bar("work") as report:
        report(1, 2)
    with steps() as report_step:
        report_step("first part", 1, 2)
    assert capsys.readouterr().err == ""
