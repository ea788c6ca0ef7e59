"""Models that are not gmlfm's own, from anybody's file: by instance, class, name and path; saved, loaded and refused."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gmlfm import Attributes, Dataset, GradientModel, PairwiseModel, Recommender, register
from gmlfm.errors import NotSupportedError, OptionError
from gmlfm.models.base import Model
from gmlfm.models.registry import MODELS
from tests.contracts.checkerboard import N_USERS, checkerboard
from tests.contracts.foreign import FOREIGN, Bilinear, ChosenTogether, TwoTowers

USERS = np.arange(N_USERS, dtype=np.int32)
QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 64, "lr": 0.02, "n_negatives": 2, "threads": 1}
Fit = Callable[..., Recommender]
foreign = pytest.mark.parametrize("cls", FOREIGN.values())


@pytest.fixture(scope="module")
def board() -> Dataset:
    return checkerboard()


@pytest.fixture(scope="module")
def fitted(board: Dataset) -> Fit:
    """A Recommender of each class, fitted once. No test may change it."""
    return cache(lambda cls: recommender_of(cls, cls, k=4).fit(board))


def recommender_of(cls: type[Model], model: Any, **settings: Any) -> Recommender:
    return Recommender(model, **(QUICK if cls.learns_in_epochs else {}), **settings)


def scores_of(recommender: Recommender) -> np.ndarray:
    return recommender.fitted.ranker.score_all(USERS, recommender.fitted.data.seen_items)


def name_of(cls: type[Model]) -> str:
    return next(name for name, listed in FOREIGN.items() if listed is cls)


@pytest.fixture
def unregistered() -> Iterator[None]:
    """As in another process, which knows nothing of the classes' names."""
    registered = {name: MODELS.pop(name) for name in FOREIGN}
    yield
    MODELS.update(registered)


@foreign
def test_by_instance_class_name_and_path_it_scores_the_same(cls: Any, board: Dataset, fitted: Fit) -> None:
    instance = cls(k=4)
    expected = scores_of(fitted(cls))
    others = {
        "instance": recommender_of(cls, instance),
        "name": recommender_of(cls, name_of(cls), k=4),
        "path": recommender_of(cls, f"{cls.__module__}:{cls.__qualname__}", k="4"),
    }
    for recommender in others.values():
        assert np.array_equal(scores_of(recommender.fit(board)), expected)
    assert not np.array_equal(scores_of(recommender_of(cls, instance, k=1).fit(board)), expected)  # what is given counts
    assert not hasattr(instance, "table")  # the caller's own instance is not trained
    assert not hasattr(instance, "history")


@pytest.mark.usefixtures("unregistered")
@foreign
def test_saved_under_its_path_it_is_loaded_with_its_class(cls: Any, board: Dataset, tmp_path: Path) -> None:
    recommender = recommender_of(cls, cls(k=4)).fit(board)
    recommender.save(tmp_path / "run")
    path = f"{cls.__module__}:{cls.__qualname__}"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["model"] == path
    for model in (cls, path):
        loaded = Recommender.load(tmp_path / "run", model=model)
        assert np.array_equal(scores_of(loaded), scores_of(recommender))
        assert loaded.settings == recommender.settings
        assert loaded.recommend(["u3"], 4).equals(recommender.recommend(["u3"], 4))
        assert np.array_equal(scores_of(loaded.clone().fit(board)), scores_of(recommender))
    with pytest.raises(OptionError) as caught:
        Recommender.load(tmp_path / "run")
    folder = tmp_path / "run"
    assert str(caught.value) == (
        f"{folder} holds a run of '{path}', which is no model of gmlfm's own; give its class: "
        f"Recommender.load('{folder}', model={cls.__qualname__}), or --model {path}."
    )
    other = Bilinear if cls is TwoTowers else TwoTowers
    with pytest.raises(OptionError, match=rf"holds a run of '{path}', not of '.*{other.__qualname__}'"):
        Recommender.load(tmp_path / "run", model=other)


@foreign
def test_saved_under_a_registered_name_it_is_loaded_by_it_or_by_its_class(
    cls: Any, fitted: Fit, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    recommender, folder = fitted(cls), tmp_path / "run"
    recommender.save(folder)
    assert np.array_equal(scores_of(Recommender.load(folder)), scores_of(recommender))
    request.getfixturevalue("unregistered")
    with pytest.raises(
        OptionError, match=rf"holds a run of '{name_of(cls)}', which is no model of gmlfm's own; give its class: "
    ):
        Recommender.load(folder)
    assert np.array_equal(scores_of(Recommender.load(folder, model=cls)), scores_of(recommender))


MODULE = """
import gmlfm
from gmlfm.models.fm import FM


class Elsewhere(FM):
    pass
"""


def test_a_run_never_imports_a_module_by_itself(board: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models_elsewhere.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    run = tmp_path / "run"
    recommender = Recommender("models_elsewhere:Elsewhere", k=4, **QUICK).fit(board)
    recommender.save(run)
    cls = sys.modules.pop("models_elsewhere").Elsewhere
    (tmp_path / "models_elsewhere.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    importlib.invalidate_caches()
    with pytest.raises(
        OptionError, match=r"give its class: Recommender\.load\('.*', model=Elsewhere\), or --model models_elsewhere:E"
    ):
        Recommender.load(run)
    assert np.array_equal(scores_of(Recommender.load(run, model=cls)), scores_of(recommender))
    assert "models_elsewhere" not in sys.modules
    with pytest.raises(SystemExit, match="imported"):  # the file does end whoever imports it
        importlib.import_module("models_elsewhere")


def test_a_pairwise_model_is_explained_and_others_say_that_they_cannot_be(fitted: Fit) -> None:
    recommender = fitted(Bilinear)
    reason = recommender.explain("u3", "i4")
    assert sum(term.value for term in reason.terms) == pytest.approx(reason.score)
    assert reason.score == pytest.approx(recommender.predict([("u3", "i4")])["score"][0], abs=1e-5)
    assert recommender.similar_items("i4", 3).height == 3
    for cls in (TwoTowers, ChosenTogether):
        with pytest.raises(NotSupportedError, match=f"not available for '{name_of(cls)}': its score is no sum over pairs"):
            fitted(cls).explain("u3", "i4")


def test_settings_of_a_model_are_checked_and_shown(board: Dataset) -> None:
    with pytest.raises(OptionError, match="k is 0; expected 1 or more"):
        Recommender(TwoTowers, k=0)
    with pytest.raises(OptionError, match="k is 'many'; expected a whole number"):
        Recommender(ChosenTogether, k="many")
    with pytest.raises(OptionError, match="unknown setting 'kk' for the model 'two-towers'"):
        Recommender("two-towers", kk=4)
    with pytest.raises(OptionError, match="the model 'chosen-together' cannot do the task 'rating'; it does topn"):
        Recommender(ChosenTogether, "rating")


class WrongShape(TwoTowers):
    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        return super().scores(rows, user_side, item_side)[:, :1]


class NoNumbers(TwoTowers):
    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        return super().scores(rows, user_side, item_side) * float("nan")


class WrongRows(TwoTowers):
    def initial_rows(self, n: int, generator: Any) -> Tensor:
        return super().initial_rows(n, generator)[:, :2]


class NoScores(GradientModel):
    row_width = 2


@pytest.mark.parametrize(
    ("cls", "error", "message"),
    [
        (
            WrongShape,
            OptionError,
            r"WrongShape\.scores gave the shape \(\d+, 1\); expected \(B, G\), here \(\d+, 3\): a score for each",
        ),
        (WrongRows, OptionError, r"WrongRows\.initial_rows gave the shape \(\d+, 2\); expected \(\d+, "),
        (
            NoNumbers,
            OptionError,
            r"NoNumbers\.scores gives NaN or infinity in the first step, before anything was learned; check",
        ),
        (
            NoScores,
            OptionError,
            r"NoScores has no scores\(self, rows, user_side, item_side\), which returns \(B, G\) scores; see docs/",
        ),
    ],
)
def test_a_model_that_is_wrong_says_so_in_a_sentence(cls: Any, error: type[Exception], message: str, board: Dataset) -> None:
    with pytest.raises(error, match=message) as caught:
        Recommender(cls, **QUICK).fit(board)
    assert "\n" not in str(caught.value)


def test_a_name_is_not_taken_twice() -> None:
    with pytest.raises(
        OptionError, match=r"a model named 'two-towers' is registered already \(tests\.contracts\.foreign:TwoTowers\)"
    ):
        register("two-towers")(Bilinear)


class BareTensor(PairwiseModel):
    row_width = 3

    def pair_parts(self, left: Tensor, right: Tensor) -> Any:
        return left @ right.T


class NothingScored(TwoTowers):
    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Any:
        return None


class NotInitialised(GradientModel):
    row_width = 3

    def __init__(self) -> None:
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def scores(self, rows: Tensor, user_side: Attributes, item_side: Attributes) -> Tensor:
        return rows[item_side.ids[..., 0], 0]


@pytest.mark.parametrize("cls", [BareTensor, NothingScored, NotInitialised])
def test_an_authors_mistake_is_told_as_the_models_own(cls: Any, board: Dataset) -> None:
    with pytest.raises(
        OptionError, match=rf"the model {cls.__name__} \(tests.contracts.test_foreign_models\) failed: "
    ) as caught:
        Recommender(cls, epochs=1, threads=1).fit(board)
    assert "\n" not in str(caught.value)
    assert "docs/add-a-model.md" in str(caught.value)
