"""Every way of scoring a catalogue against pair after pair."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from gmlfm import Dataset, Recommender
from gmlfm.data.attributes import AttributeTable, FieldCode
from gmlfm.data.histories import History
from gmlfm.errors import DataError
from gmlfm.fitting import FittedRun
from gmlfm.models.base import Layout, UserSide
from gmlfm.models.gradient import Attributes, GradientModel
from gmlfm.models.pairwise import PairwiseModel
from gmlfm.models.registry import MODELS
from gmlfm.models.scoring import RowScorer
from gmlfm.training.settings import Settings
from tests.contracts.checkerboard import N_USERS, checkerboard

PAIRWISE = [name for name, info in MODELS.items() if info.cls.caches_items and name != "bpr-mf"]  # mf by another loss
QUICK: dict[str, Any] = {"epochs": 1, "threads": 1, "k": 8, "v_scale": 0.5}
USERS = np.arange(N_USERS, dtype=np.int32)
Fit = Callable[..., FittedRun]


@pytest.fixture(scope="module")
def board() -> Dataset:
    return checkerboard()


@pytest.fixture(scope="module")
def fitted(board: Dataset) -> Fit:
    """Runs of the board, each fitted once; no test changes them."""
    return cache(lambda name, **more: Recommender(name, **{**QUICK, **more}).fit(board).fitted)


def scorer_of(run: FittedRun) -> RowScorer:
    """A scorer with nothing cached."""
    model = run.model
    assert isinstance(model, GradientModel)
    return RowScorer(model, model.table, run.encoded.item, None, run.label_scale)


def check_against_pairs(run: FittedRun, users: np.ndarray, *catalogues: np.ndarray) -> None:
    scorer, side = scorer_of(run), run.ranker.user_side(users)
    for items in catalogues:
        by_pairs = scorer.score_pairs(side, np.tile(items, (len(users), 1)))
        np.testing.assert_allclose(scorer.score_all(side, items), by_pairs, rtol=2e-5, atol=2e-5)


def test_the_list_of_pairwise_models_is_whole() -> None:
    layout = Layout((FieldCode("user", "user", "id", 1, 4), FieldCode("item", "item", "id", 7, 4)))
    names = [name for name, info in MODELS.items() if "topn" in info.tasks]
    pairwise = {name for name in names if isinstance(Settings.make(name, "topn", {}).build(layout), PairwiseModel)}
    assert set(PAIRWISE) | {"bpr-mf"} == pairwise


@pytest.mark.parametrize("form", ["table", "vectors"])
@pytest.mark.parametrize("name", PAIRWISE)
def test_tables_and_vectors_give_what_pairs_give(
    board: Dataset, fitted: Fit, name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fitted(name)
    assert isinstance(run.model, PairwiseModel)
    if form == "table" and run.model.ids_only:
        pytest.skip("ids alone have no table of attributes")
    monkeypatch.setattr(RowScorer, "_tables_are_cheaper", lambda self, model, user_width: form == "table")
    monkeypatch.setattr("gmlfm.models.scoring._NUMBERS_PER_BLOCK", 300)  # several blocks
    check_against_pairs(
        run, USERS, board.seen_items, np.arange(len(board.items), dtype=np.int32), np.array([7, 3, 41], np.int32)
    )


@pytest.mark.parametrize("form", ["table", "vectors", "pairs"])
@pytest.mark.parametrize("name", ["gml-fm-md", "gml-fm-dnn", "transfm"])
def test_near_points_far_from_the_origin_keep_their_digits(
    board: Dataset, fitted: Fit, name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each form of the scores in float32 against pairs in float64, where squared lengths are some 1e6 times the distances."""
    run = fitted(name)
    model = copy.deepcopy(run.model)
    assert isinstance(model, PairwiseModel)
    model.table = model.table.clone()
    model.table[:, 0] = 0.0
    if name == "gml-fm-dnn":
        with torch.no_grad():
            model.transform.layers[0].bias += 3.0  # type: ignore[union-attr, index, operator]
    else:
        model.table[1:, 1:9] += 300.0
    monkeypatch.setattr(RowScorer, "_tables_are_cheaper", lambda self, model, user_width: form == "table")
    scorer = RowScorer(model, model.table, run.encoded.item, None, (0.0, 1.0))
    side, items = run.ranker.user_side(USERS), board.seen_items
    every_item = np.tile(items, (len(USERS), 1))
    scores = scorer.score_pairs(side, every_item) if form == "pairs" else scorer.score_all(side, items)
    double = copy.deepcopy(model).double()
    rows = double.transform_rows(model.table.double())
    item = run.encoded.item
    user_x, item_x = (torch.from_numpy(x.copy()).double() for x in (side.attributes.values, item.values[every_item]))
    exact = double.scores(
        rows,
        Attributes(torch.from_numpy(side.attributes.ids.astype(np.int64)), user_x),
        Attributes(torch.from_numpy(item.ids[every_item].astype(np.int64)), item_x),
    )
    difference = torch.from_numpy(scores).double() - exact.detach()
    assert float((difference - difference.mean()).abs().max() / exact.detach().std()) < 1e-3


@pytest.mark.parametrize("distance", ["manhattan", "euclidean", "chebyshev", "minkowski", "cosine"])
@pytest.mark.parametrize("weight", [True, False])
def test_any_distance_ranks_by_tables(
    board: Dataset, fitted: Fit, distance: str, weight: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gmlfm.models.gmlfm._NUMBERS_PER_BLOCK", 2_000)
    check_against_pairs(fitted("gml-fm-dnn", distance=distance, weight=weight, p=3.0), USERS, board.seen_items)


@pytest.mark.parametrize("n_users", [1, N_USERS])
@pytest.mark.parametrize("name", ["gml-fm", "fm", "mf"])
def test_a_single_user_is_scored_as_many_are(board: Dataset, fitted: Fit, name: str, n_users: int) -> None:
    every_item = np.arange(len(board.items), dtype=np.int32)
    check_against_pairs(fitted(name), USERS[:n_users], every_item, np.array([7, 3, 41], np.int32), board.seen_items[1:])


def test_the_cheaper_form_is_chosen(fitted: Fit) -> None:
    for name, by_table in (("gml-fm-unit", True), ("gml-fm", False), ("fm", False)):
        run = fitted(name, k=64)
        assert isinstance(run.model, PairwiseModel)
        assert scorer_of(run)._tables_are_cheaper(run.model, run.encoded.user.ids.shape[1]) is by_table


@pytest.mark.parametrize("name", ["gml-fm", "nfm"])
def test_a_history_gives_a_newcomer_a_row_of_their_own(board: Dataset, fitted: Fit, name: str) -> None:
    run = fitted(name, history="none")
    scorer = scorer_of(run)
    attributes = AttributeTable(run.encoded.user.ids[:1].copy(), run.encoded.user.values[:1])
    attributes.ids[0, 0] = run.inputs.layout.id_field("user").unknown_row
    plain, folded = (
        scorer.score_all(UserSide(np.array([-1], np.int32), attributes, history), board.seen_items)[0]
        for history in (None, History.of([[1, 3]]))
    )
    others = np.setdiff1d(np.arange(len(board.seen_items)), [1, 3])
    assert (folded - plain)[[1, 3]].mean() > (folded - plain)[others].mean() + 1e-3


def test_scores_are_in_the_units_of_the_labels(fitted: Fit) -> None:
    run = fitted("fm")
    side, items = run.ranker.user_side(USERS[:2]), np.array([3, 5], np.int32)
    plain = scorer_of(run).score_all(side, items)
    assert isinstance(run.model, GradientModel)
    scaled = RowScorer(run.model, run.model.table, run.encoded.item, None, (3.0, 2.0)).score_all(side, items)
    np.testing.assert_allclose(scaled, 3.0 + 2.0 * plain, rtol=1e-6)


def test_scores_that_are_no_numbers_are_refused(fitted: Fit) -> None:
    run = fitted("fm")
    assert isinstance(run.model, GradientModel)
    broken = RowScorer(run.model, torch.full_like(run.model.table, torch.nan), run.encoded.item, None, (0.0, 1.0))
    for score, items in ((broken.score_all, [3]), (broken.score_pairs, [[3]])):
        with pytest.raises(DataError, match="scores that are no numbers; it was trained with too high an lr"):
            score(run.ranker.user_side(USERS[:1]), np.array(items, np.int32))
