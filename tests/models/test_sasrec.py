"""A transformer over users' sequences, against its equation in slow loops."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gmlfm import Dataset, Recommender
from gmlfm.data.attributes import AttributeTable
from gmlfm.data.histories import History
from gmlfm.errors import NotSupportedError, OptionError
from gmlfm.models.base import Ints, ItemSide, UserSide
from gmlfm.models.sasrec import Block, SASRec
from gmlfm.training.settings import Settings
from gmlfm.tuning.spaces import search_space
from tests.contracts.checkerboard import checkerboard
from tests.models.slow_loops import LAYOUT, attribute_inputs, rows_and_batch

K = 4
ITEMS = np.arange(5, dtype=np.int32)
QUICK = {"k": 8, "epochs": 3, "lr": 0.01, "threads": 1}


@pytest.fixture(scope="module")
def board() -> Dataset:
    return checkerboard()


def built(**settings: object) -> SASRec:
    """A model over the five items of slow_loops, nothing of it at 0."""
    model = SASRec(K, **{"length": 6, "v_scale": 0.7, **settings})  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    model.table = torch.randn(LAYOUT.n_rows, K)
    model.table[0] = 0.0
    model.attach(attribute_inputs())
    return model.eval()


def users_with(*histories: list[int]) -> UserSide:
    n = len(histories)
    no_attributes = AttributeTable(np.zeros((n, 0), np.int32), np.zeros((n, 0), np.float32))
    return UserSide(np.full(n, -1, np.int32), no_attributes, History.of(histories))


def slow_norm(vector: Tensor, norm: nn.LayerNorm) -> Tensor:
    spread = (vector - vector.mean()).square().mean() + norm.eps
    return (vector - vector.mean()) / spread.sqrt() * norm.weight + norm.bias


def slow_attention(block: Block, sequence: list[Tensor]) -> list[Tensor]:
    """Place by place, head by head, over the places up to each."""
    weight, bias = block.queries_keys_values.weight, block.queries_keys_values.bias
    size, result = K // block.heads, []
    for n in range(len(sequence)):
        joined = []
        for head in range(block.heads):
            query, key, value = (
                [weight[part * K + head * size :][:size] @ place + bias[part * K + head * size :][:size] for place in sequence]
                for part in range(3)
            )
            weights = [math.exp((query[n] @ key[m]).item() / math.sqrt(size)) for m in range(n + 1)]
            joined.append(sum(share / sum(weights) * value[m] for m, share in enumerate(weights)))
        result.append(block.joined.weight @ torch.cat(joined) + block.joined.bias)
    return result


def slow_network(block: Block, place: Tensor) -> Tensor:
    inner = (block.widened.weight @ place + block.widened.bias).clamp_min(0.0)
    return block.narrowed.weight @ inner + block.narrowed.bias


def slow_outputs(model: SASRec, vectors: list[Tensor]) -> list[Tensor]:
    sequence = [model.place_vectors[0]]
    sequence += [vector * math.sqrt(K) + model.place_vectors[1 + place] for place, vector in enumerate(vectors)]
    for block in model.blocks:
        assert isinstance(block, Block)
        first, second = block.norm_of_attention, block.norm_of_network
        if block.norms_before:
            attended = slow_attention(block, [slow_norm(place, first) for place in sequence])
            sequence = [place + change for place, change in zip(sequence, attended, strict=True)]
            sequence = [place + slow_network(block, slow_norm(place, second)) for place in sequence]
        else:
            attended = slow_attention(block, sequence)
            sequence = [slow_norm(place + change, first) for place, change in zip(sequence, attended, strict=True)]
            sequence = [slow_norm(place + slow_network(block, place), second) for place in sequence]
    return [slow_norm(place, model.last_norm) if isinstance(model.last_norm, nn.LayerNorm) else place for place in sequence]


@pytest.mark.parametrize(("norm", "heads", "inner"), [("pre", 1, 1), ("post", 2, 2)])
def test_it_is_its_equation(norm: str, heads: int, inner: int) -> None:
    model = built(norm=norm, heads=heads, inner=inner).double()
    vectors = torch.randn(3, 5, K, dtype=torch.float64)
    outputs = model.outputs(vectors)
    assert outputs.shape == (3, 6, K)
    for sequence, values in zip(vectors, outputs, strict=True):
        torch.testing.assert_close(values, torch.stack(slow_outputs(model, list(sequence))), rtol=1e-9, atol=1e-9)


def test_an_item_is_the_sum_of_its_attributes_rows() -> None:
    model, (rows, user_side, items) = built().double(), rows_and_batch(K)
    vectors = model.item_vectors(rows, items)
    for b, g in np.ndindex(*items.ids.shape[:2]):
        expected = sum(rows[i] * x for i, x in zip(items.ids[b, g], items.x[b, g], strict=True))
        torch.testing.assert_close(vectors[b, g], expected)
    start = slow_outputs(model, [])[0]
    torch.testing.assert_close(model.scores(rows, user_side, items), vectors @ start)


def test_what_comes_later_changes_no_output() -> None:
    model = built().double()
    vectors = torch.randn(2, 5, K, dtype=torch.float64)
    outputs = model.outputs(vectors)
    for n in range(5):
        changed = vectors.clone()
        changed[:, n:] = torch.randn(2, 5 - n, K, dtype=torch.float64)
        assert torch.equal(model.outputs(changed)[:, : n + 1], outputs[:, : n + 1])
        assert not torch.allclose(model.outputs(changed)[:, n + 1], outputs[:, n + 1])
        permuted = torch.cat([vectors[:, :n], vectors[:, n:].flip(1)], dim=1)
        torch.testing.assert_close(model.outputs(permuted)[:, : n + 1], outputs[:, : n + 1])


@pytest.mark.parametrize("places_per_block", [1, 7, 1000])
def test_users_together_score_as_each_alone(places_per_block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gmlfm.models.sasrec._PLACES_PER_BLOCK", places_per_block)
    monkeypatch.setattr("gmlfm.models.sasrec._SCORES_PER_BLOCK", 2 * K)
    model, histories = built(), [[0, 1, 2, 3], [], [4], [1, 0, 2], [3, 3], []]
    scores = model.score_all(users_with(*histories), ITEMS)
    vectors = model.scorer._vectors
    for history, of_user in zip(histories, scores, strict=True):
        end = slow_outputs(model, [vectors[item] for item in history])[-1]
        np.testing.assert_allclose(of_user, (vectors @ end).detach().numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(model.score_all(users_with(history), ITEMS)[0], of_user, rtol=1e-5, atol=1e-5)
    listed = np.array([[0, 4], [1, 1], [2, 0], [3, 1], [4, 2], [0, 3]], np.int32)
    pairs = model.score_pairs(users_with(*histories), listed)
    np.testing.assert_allclose(pairs, np.take_along_axis(scores, listed, 1), rtol=1e-5, atol=1e-6)
    few: Ints = np.array([3, 1], np.int32)
    np.testing.assert_allclose(model.score_all(users_with(*histories), few), scores[:, few], rtol=1e-6)


def test_the_latest_events_count_in_their_order() -> None:
    model = built(length=3)
    scores = model.score_all(users_with([0, 1, 2, 3], [4, 1, 2, 3], [1, 2, 3], [2, 1, 3], [2, 3]), ITEMS)
    np.testing.assert_allclose(scores[1:3], scores[:1].repeat(2, 0), rtol=1e-6)
    assert not np.allclose(scores[3], scores[2], atol=1e-2)
    assert not np.allclose(scores[4], scores[2], atol=1e-2)


def test_users_of_whom_nothing_is_said_score_by_the_start() -> None:
    model = built()
    silent = users_with([], [])
    unsaid = UserSide(silent.numbers, silent.attributes, None)
    expected = model.scorer._vectors @ slow_outputs(model, [])[0]
    for users in (silent, unsaid):
        np.testing.assert_allclose(model.score_all(users, ITEMS), expected.detach().expand(2, -1).numpy(), rtol=1e-4, atol=1e-5)


def test_new_items_score_and_are_history_by_their_attributes() -> None:
    model, items = built(), attribute_inputs().encoded.item
    unknown = items.ids[1:2].copy()
    unknown[0, 0] = LAYOUT.fields[2].unknown_row
    more = AttributeTable(np.concatenate([items.ids, unknown]), np.concatenate([items.values, items.values[1:2]]))
    wider = model.over(ItemSide(np.arange(6, dtype=np.int32), more))
    before = model.score_all(users_with([1, 2]), ITEMS)
    six = np.arange(6, dtype=np.int32)
    scores = wider.score_all(users_with([1, 2], [5, 2]), six)
    np.testing.assert_allclose(scores[:1, :5], before, rtol=1e-6)
    assert np.isfinite(scores).all()
    assert not np.allclose(scores[0], scores[1], atol=1e-3)


def test_other_weights_are_loaded_with_vectors_of_their_own() -> None:
    model, other = built(), built()
    users = users_with([1, 2])
    scores = other.score_all(users, ITEMS)
    assert not np.allclose(model.score_all(users, ITEMS), scores)
    model.load_state_dict(other.state_dict())
    np.testing.assert_array_equal(model.score_all(users, ITEMS), scores)


def test_a_history_given_with_the_question_counts_as_a_known_users_does(board: Dataset) -> None:
    recommender = Recommender("sasrec", **QUICK).fit(board)
    data = recommender.fitted.data
    rows = np.flatnonzero((data.user_numbers == 3) & data.counts_as_history)
    rows = rows[np.argsort(data.interactions["time"].to_numpy()[rows], kind="stable")]
    history = data.items.ids[data.item_numbers[rows]].to_list()
    known, given = recommender.recommend(["u3"], 5), recommender.recommend_for({}, history=history, n=5)
    assert given["item"].to_list() == known["item"].to_list()
    assert given["score"].to_list() == pytest.approx(known["score"].to_list(), rel=1e-5)
    turned = recommender.recommend_for({}, history=history[::-1], n=5)
    assert turned["score"].to_list() != pytest.approx(known["score"].to_list(), rel=1e-3)


def test_it_is_fitted_again_on_the_held_out_rows(board: Dataset) -> None:
    refitted = Recommender("sasrec", **QUICK).fit(board, refit=True)
    assert refitted.fitted.refit.value == "validation"
    assert refitted.evaluate(protocol="full").metrics["ndcg@10"] > 0


def test_it_has_no_user_rows_and_no_reasons(board: Dataset) -> None:
    recommender = Recommender("sasrec", **QUICK).fit(board)
    users = next(field for field in recommender.fitted.encoder.fields if field.kind == "id" and field.part == "user")
    assert users.n_values == 0
    with pytest.raises(NotSupportedError, match="not available for 'sasrec': its score is no sum over pairs"):
        recommender.explain("u1", "i1")


def test_heads_that_do_not_divide_k_are_refused() -> None:
    with pytest.raises(OptionError, match="heads is 3, of which k = 8 is no multiple"):
        SASRec(8, heads=3)


def test_tuning_tries_its_size_its_dropout_and_how_it_is_trained() -> None:
    space = search_space("sasrec", "topn")
    assert set(space) == {"k", "layers", "dropout", "lr", "cold_start_rate"}


@pytest.mark.parametrize(
    ("given", "n_candidates", "expected"),
    [
        ({}, 4096, -1),
        ({}, 4097, 512),
        ({"n_negatives": 8}, 10, 8),
        ({"n_negatives": "all"}, 10**6, -1),
        ({"loss": "bpr"}, 10, 4),
    ],
)
def test_the_softmax_is_over_all_items_where_they_are_few(given: dict[str, Any], n_candidates: int, expected: int) -> None:
    settings = Settings.make("sasrec", "topn", given).for_data(is_ordered=True, n_candidates=n_candidates)
    assert settings.batches.n_negatives == expected
    assert settings.option("length") == 200
    assert replace(settings, options={"length": 9}).option("length") == 9
