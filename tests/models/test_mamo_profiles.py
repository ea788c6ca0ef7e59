from __future__ import annotations

import numpy as np
import pytest
import torch

from gmlfm.data.attributes import AttributeTable
from gmlfm.models.base import Layout, Ratings
from gmlfm.models.mamo_profiles import ByUser, divide, profile_sides
from tests.models.mamo_world import WITH_PROFILES, field_codes

RATINGS = Ratings(
    np.array([5, 2, 5, 2, 9, 5], np.int32),
    np.array([0, 1, 2, 3, 4, 5], np.int32),
    np.array([1, 2, 3, 4, 5, 6], np.float32),
)


def test_a_profile_sums_x_times_embedding_within_each_field_and_leaves_ids_and_context_out() -> None:
    codes = field_codes(
        ("user", "user", "id", 2),
        ("user", "tags", "set", 3),
        ("user", "age", "number", 1),
        ("context", "hour", "category", 2),
        ("item", "item", "id", 4),
    )
    tags, age, hour = codes[1].offset, codes[2].offset, codes[3].offset
    ids = [[3, age + 2, tags + 2, tags + 4, hour + 2], [4, age + 2, tags + 3, 0, hour + 3]]
    users = AttributeTable(np.array(ids, np.int32), np.array([[1, 0.5, 2, 3, 1], [1, -0.25, 1, 0, 1]], np.float32))
    user_side, item_side = profile_sides(Layout(codes))
    assert (user_side.start, user_side.end, item_side.end) == (1, 1 + 5 + 3, 1 + 5 + 3 + 6)
    embedding = torch.randn(item_side.end, 2)
    e = embedding.numpy()
    profiles = user_side.attributes(users, np.array([0, 1])).profiles(embedding).numpy()
    assert profiles[0] == pytest.approx(np.concatenate([2 * e[1 + 2] + 3 * e[1 + 4], 0.5 * e[6 + 2]]))
    assert profiles[1] == pytest.approx(np.concatenate([e[1 + 3], -0.25 * e[6 + 2]]))
    backwards = user_side.attributes(users, np.array([1, 0])).profiles(embedding).numpy()
    assert np.array_equal(backwards, profiles[::-1])


def test_ids_are_the_profile_only_where_a_side_has_no_other_field() -> None:
    user_side, item_side = profile_sides(WITH_PROFILES)
    assert [code.name for code in user_side.fields] == ["kind"]
    assert [code.name for code in item_side.fields] == ["look", "sound"]
    by_ids = Layout(field_codes(("user", "user", "id", 6), ("item", "item", "id", 5)))
    user_side, item_side = profile_sides(by_ids)
    assert (user_side.n_fields, user_side.end, item_side.end) == (1, 1 + 8, 1 + 8 + 7)


def test_ratings_are_sorted_by_user_and_keep_their_order() -> None:
    by_user = ByUser.of(RATINGS)
    assert by_user.users.tolist() == [2, 5, 9]
    assert by_user.items[by_user.places(5)].tolist() == [0, 2, 5]
    assert by_user.labels[by_user.places(2)].tolist() == [2.0, 4.0]
    assert by_user.with_ratings(2).tolist() == [2, 5]
    assert by_user.with_ratings(3).tolist() == [5]
    for user in (0, 3, 10):
        assert len(by_user.places(user)) == 0


@pytest.mark.parametrize(("n_ratings", "n_query"), [(2, 1), (3, 1), (7, 1), (8, 2), (20, 5)])
def test_a_quarter_of_a_users_ratings_is_their_query_set(n_ratings: int, n_query: int) -> None:
    items = np.arange(n_ratings, dtype=np.int32)
    by_user = ByUser.of(Ratings(np.full(n_ratings, 4, np.int32), items, items.astype(np.float32)))
    episodes = [divide(by_user, 4, np.random.default_rng(seed)) for seed in range(20)]
    for episode in episodes:
        assert (episode.user, episode.n_query) == (4, n_query)
        assert sorted(episode.items.tolist()) == items.tolist()
        assert np.array_equal(episode.items, episode.labels)
    assert len({tuple(episode.items[:n_query]) for episode in episodes}) > 1
