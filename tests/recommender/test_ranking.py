from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.errors import DataError, OptionError
from tests.recommender.conftest import QUICK


def _chosen_items(recommender: Recommender, user: int) -> list[str]:
    data = recommender.fitted.data
    is_chosen = (data.user_numbers == user) & data.interactions["positive"].to_numpy()
    return [data.items.ids[int(item)] for item in data.item_numbers[is_chosen]]


def test_seen_items_are_left_out_unless_asked_for(trained: Recommender) -> None:
    chosen = set(_chosen_items(trained, 1))
    assert chosen.isdisjoint(trained.recommend(["u1"], 20)["item"].to_list())
    assert not chosen.isdisjoint(trained.recommend(["u1"], 40, seen=True)["item"].to_list())


def test_the_best_come_first_and_are_the_best(trained: Recommender) -> None:
    table = trained.recommend(["u1", "u2"], 7)
    assert table.columns[:4] == ["user", "item", "score", "rank"]
    assert table["rank"].to_list() == [*range(1, 8)] * 2
    for user in ("u1", "u2"):
        scores = table.filter(pl.col("user") == user)["score"].to_list()
        assert scores == sorted(scores, reverse=True)
    all_items = trained.recommend(["u1"], 40, seen=True)
    unseen = all_items.filter(~pl.col("item").is_in(_chosen_items(trained, 1)))
    assert table.filter(pl.col("user") == "u1")["item"].to_list() == unseen["item"].to_list()[:7]


def test_scores_of_pairs_are_those_of_the_ranking(trained: Recommender) -> None:
    ranked = trained.recommend(["u1", "u2"], 7)
    scored = trained.predict(ranked.select("item", "user"))
    assert scored.columns == ["user", "item", "score", "known"]
    np.testing.assert_allclose(scored["score"], ranked["score"], rtol=1e-5)
    assert trained.predict([("nobody", "i1")])["known"].to_list() == [False]
    with pytest.raises(DataError, match="the item 'gone' is not in the catalogue, so nothing is known of it; 2 such pairs"):
        trained.predict([("u1", "i1"), ("u1", "gone"), ("u1", "lost")])


@pytest.mark.parametrize(
    ("first_id", "dtype"), [(0, pl.Int64), (2**63 + 11, pl.UInt64), (-(2**63) - 40, pl.Int128), ("n", pl.String)]
)
def test_ids_come_back_in_the_type_of_the_data(first_id: int | str, dtype: type[pl.DataType], tmp_path: Path) -> None:
    """Whatever type the ids are asked in, users and items alike."""
    ids = [f"{first_id}{n}" if isinstance(first_id, str) else first_id + n for n in range(12)]
    bought = [(ids[user], ids[(user + step) % 12], step) for user in range(12) for step in range(4)]
    table = pl.DataFrame(bought, schema={"user": dtype, "item": dtype, "time": pl.Int64}, orient="row")
    items = pl.DataFrame({"item": pl.Series(ids, dtype=dtype), "kind": ["a", "b"] * 6})
    schema = {
        "name": "ids",
        "interactions": {"user": "user", "item": "item", "time": "time"},
        "items": {"id": "item", "fields": {"kind": "category"}},
    }
    fitted = Recommender(**{**QUICK, "epochs": 1}).fit(Dataset.from_tables(table, None, items, schema=schema))
    fitted.save(tmp_path / "run")
    for recommender in (fitted, Recommender.load(tmp_path / "run")):
        for user in (ids[3], str(ids[3])):
            ranked = recommender.recommend([user], 2)
            assert (ranked["user"].dtype, ranked["item"].dtype) == (dtype, dtype)
            assert ranked["user"].to_list() == [ids[3]] * 2
            assert set(ranked["item"]) <= set(ids)
        assert recommender.recommend_for({}, n=2)["user"].dtype == dtype
        assert recommender.similar_users(ids[3], 2)["user"].dtype == dtype


def test_a_user_who_cannot_be_of_the_datas_type_comes_back_as_text() -> None:
    table = pl.DataFrame({"user": [1, 1, 1, 2, 2, 2, *[3] * 6], "item": [1, 2, 3, 4, 5, 6] * 2, "time": range(12)})
    schema = {"name": "n", "interactions": {"user": "user", "item": "item", "time": "time"}}
    recommender = Recommender("popularity").fit(Dataset.from_tables(table, schema=schema), split="none")
    users = [1] * 600 + ["a stranger"]  # more than one block of users
    ranked = recommender.recommend(users, 1)
    assert ranked["user"].to_list() == [str(user) for user in users]
    assert ranked["item"].dtype == pl.Int64
    assert recommender.recommend([1, 7], 1)["user"].to_list() == [1, 7]


def test_a_newcomer_is_served_from_their_attributes(trained: Recommender) -> None:
    table = trained.recommend_for({"team": "red"}, history=["i0"], n=5)
    assert "i0" not in table["item"].to_list()
    assert table["user"].to_list() == [None] * 5
    for arguments, message in (
        ({"attributes": {"team": "green"}}, "user.team = 'green' was never met"),
        ({"attributes": {}, "history": ["zzz"]}, "the item 'zzz' of the history is unknown"),
    ):
        with pytest.warns(UserWarning, match=message) as caught:
            trained.recommend_for(**arguments, n=2)  # type: ignore[arg-type]
        assert caught[0].filename == __file__


@pytest.mark.parametrize("name", ["gml-fm", "fm", "mf", "nfm", "deepfm", "ncf", "item-knn", "ease"])
def test_a_newcomer_is_known_by_what_they_chose(name: str, board: Dataset) -> None:
    settings: dict[str, Any] = {} if name in ("item-knn", "ease") else {"epochs": 15, "threads": 1, "k": 8, "lr": 0.02}
    recommender = Recommender(name, **settings).fit(board)
    for colour, history in ((0, ["i0", "i4", "i8", "i12"]), (1, ["i1", "i5", "i9", "i13"])):
        table = recommender.recommend_for({}, history=history, n=10)
        assert set(history).isdisjoint(table["item"].to_list())
        assert sum(int(item[1:]) % 2 == colour for item in table["item"]) >= 8
    # Another newcomer in between changes nothing.
    tables = [recommender.recommend_for({}, history=history, n=5) for history in (["i1", "i5"], ["i0"], ["i1", "i5"])]
    assert tables[0].equals(tables[2])


def test_a_newcomers_history_counts_each_item_once(board: Dataset) -> None:
    knn = Recommender("item-knn").fit(board)
    once, twice = (knn.recommend_for({}, history=history, n=5) for history in (["i1", "i2"], ["i1", "i2", "i2", "i2"]))
    assert once.equals(twice)


def test_a_history_without_effect_is_reported(board: Dataset) -> None:
    recommender = Recommender("ngcf", k=4, epochs=1, threads=1).fit(board)
    with pytest.warns(UserWarning, match="'ngcf' cannot learn from a history"):
        recommender.recommend_for({}, history=["i1"], n=2)


def test_somebody_of_whom_nothing_is_known_gets_what_is_popular(trained: Recommender) -> None:
    data, rows = trained.fitted.data, trained.fitted.split.train
    counts = np.bincount(data.item_numbers[rows], minlength=len(data.items))
    table = trained.recommend(["nobody"], 5, filter="colour = 'red'")
    assert table["known"].to_list() == [False] * 5
    red = [item for item in range(40) if item % 2 == 0]
    numbers = [data.items.ids.index_of(f"i{item}") for item in red]
    assert table["score"].to_list() == pytest.approx(sorted((counts[numbers] / 40).tolist(), reverse=True)[:5])


def test_a_run_of_the_implicit_task_recommends(board: Dataset) -> None:
    recommender = Recommender("mf", "implicit", k=4, epochs=1, threads=1).fit(board)
    table = recommender.recommend(["u1", "nobody"], 3)
    assert table["known"].to_list() == [True] * 3 + [False] * 3


def test_pairs_come_as_a_list_or_a_table(trained: Recommender) -> None:
    frame = pl.DataFrame({"item": ["i1"], "user": ["u1"]})
    assert trained.predict(frame)["score"][0] == trained.predict([("u1", "i1")])["score"][0]
    with pytest.raises(OptionError, match="one is none, or has another length"):
        trained.predict([("u1", "i1", 3)])
    with pytest.raises(OptionError, match="pairs has the columns u, item; expected user and item"):
        trained.predict(pl.DataFrame({"u": ["u1"], "item": ["i1"]}))
