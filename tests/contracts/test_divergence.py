"""What holds of every model that is trained by gradients when its learning rate is far too high, and when it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.errors import DataError
from gmlfm.models.registry import MODELS
from gmlfm.training.rows import row_optimiser
from gmlfm.training.trainer import DivergedError
from gmlfm.tuning.study import Budget, Search, tune
from tests.contracts.checkerboard import checkerboard

CASES = [(name, task) for name, info in MODELS.items() if info.cls.learns_in_epochs for task in info.tasks]
QUICK: dict[str, Any] = {"threads": 1, "k": 8, "epochs": 2, "seed": 0}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return checkerboard()


@pytest.fixture(scope="module")
def noise() -> Dataset:
    """Users, items and labels drawn at random: nothing can be learned but by heart."""
    rng = np.random.default_rng(0)
    ids = {name: [f"{name[0]}{n}" for n in rng.integers(0, size, 500)] for name, size in (("user", 30), ("item", 40))}
    table = pl.DataFrame({**ids, "time": np.arange(500), "stars": rng.integers(1, 6, 500).astype(float)})
    return Dataset.from_tables(
        table, schema={"name": "noise", "interactions": {"user": "user", "item": "item", "time": "time", "label": "stars"}}
    )


def split_of(task: str) -> str:
    return "leave-one-out" if task == "topn" else "random"


@pytest.mark.parametrize(("name", "task"), CASES)
def test_a_rate_far_too_high_is_no_success(name: str, task: str, data: Dataset, tmp_path: Path) -> None:
    recommender = Recommender(name, task, **QUICK, lr=1000.0)
    with pytest.raises(DivergedError, match=r"^nothing was learned: .*lower .*lr \((now|it is) 1000\)\.$"):
        recommender.fit(data, split_of(task), out=tmp_path)
    assert not recommender.is_fitted
    assert not (tmp_path / "run.json").exists()


@pytest.mark.parametrize(("name", "task"), CASES)
def test_defaults_on_noise_are_no_divergence(name: str, task: str, noise: Dataset) -> None:
    assert Recommender(name, task, **QUICK).fit(noise, split_of(task)).fitted.best_epoch > 0


def test_a_trial_that_learned_nothing_is_no_result(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gmlfm.training.row_trainer.row_optimiser", lambda name, table, lr, decay: row_optimiser(name, table, 1000.0, decay)
    )
    with pytest.raises(DataError, match=r"no trial of 'fm' came to an end: nothing was learned: .*; lower lr \(now "):
        tune(Search(data, "fm", tmp_path, threads=1, settings={"history": "none"}), Budget(trials=2))
