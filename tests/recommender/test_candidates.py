from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.errors import DataError, GmlfmError, OptionError


def test_filter_and_available_narrow_before_ranking(trained: Recommender) -> None:
    red = trained.recommend(["u1"], 8, filter="colour = 'red' and price < 4")
    assert red.height == 8
    assert all(int(item[1:]) % 2 == 0 for item in red["item"])
    assert set(trained.recommend(["u1"], 2, available=["i0", "i2"])["item"]) <= {"i0", "i2"}
    with pytest.raises(DataError, match="no item is left"):
        trained.recommend(["u1"], 3, filter="price > 99")
    with pytest.raises(GmlfmError, match="expects a number or a text in quotes at position 8"):
        trained.recommend(["u1"], 3, filter="price >")
    with pytest.raises(GmlfmError, match="no column 'prise', which filter names; did you mean 'price'"):
        trained.recommend(["u1"], 3, filter="prise > 1")


def test_available_items_that_are_unknown_are_reported(trained: Recommender) -> None:
    with pytest.warns(UserWarning, match="2 of the 4 available items are not in the catalogue, the first 'gone'") as caught:
        table = trained.recommend(["u1"], 2, available=["i3", "gone", "i5", "lost"], seen=True)
    assert set(table["item"]) == {"i3", "i5"}
    assert caught[0].filename == __file__


def test_more_items_than_exist_gives_all_and_says_so(trained: Recommender) -> None:
    with pytest.warns(UserWarning, match="only 40 items are left to recommend") as caught:
        assert trained.recommend(["nobody"], 100).height == 40
    assert caught[0].filename == __file__
    with pytest.raises(OptionError, match="n is 0"):
        trained.recommend(["u1"], 0)


def test_items_without_interactions_are_candidates_of_the_catalogue_alone(trained: Recommender) -> None:
    """Two of the board's 42 items are in no interaction."""
    by_candidates = {
        candidates: set(trained.recommend(["u1"], n, seen=True, candidates=candidates)["item"])
        for candidates, n in (("interactions", 40), ("catalogue", 42))
    }
    assert by_candidates["catalogue"] - by_candidates["interactions"] == {"i40", "i41"}
    assert len(by_candidates["interactions"]) == 40
    with pytest.raises(OptionError, match="candidates is 'all'; expected interactions or catalogue"):
        trained.recommend(["u1"], 3, candidates="all")


def test_variety_is_kept_within_the_ranking(trained: Recommender) -> None:
    table = trained.recommend(["u1", "u2"], 6, at_most={"colour": 3})
    for user in ("u1", "u2"):
        items = table.filter(pl.col("user") == user)["item"].to_list()
        assert len(items) == 6
        assert sum(int(item[1:]) % 2 for item in items) == 3


@pytest.mark.parametrize(
    ("at_most", "message"),
    [
        ({"color": 2}, "at_most names 'color', which is no item field; did you mean 'colour'"),
        ({3: 2}, "at_most is {3: 2}; expected one field"),
        ({"tags": 0}, "at_most of 'tags' is 0"),
        ({"colour": 2, "price": 1}, "expected one field"),
        ("colour", "at_most is 'colour'; expected one field"),
        ({"colour": 0}, "at_most of 'colour' is 0"),
        ({"colour": True}, "at_most of 'colour' is True"),
        ({"colour": 1.5}, "at_most of 'colour' is 1.5"),
    ],
)
def test_wrong_caps_are_refused(at_most: Any, message: str, trained: Recommender) -> None:
    with pytest.raises(OptionError, match=message):
        trained.recommend(["u1"], at_most=at_most)


def test_a_filter_takes_single_values(trained: Recommender) -> None:
    assert trained.recommend(["u1"], 1, filter="item = 'i3'", seen=True)["item"].to_list() == ["i3"]
    with pytest.raises(GmlfmError, match="tags is a set, which = cannot compare; write tags contains 'x'"):
        trained.recommend(["u1"], filter="tags = 'x'")
    with pytest.raises(GmlfmError, match="price is a number, which no text can be compared with"):
        trained.recommend(["u1"], filter="price < 'abc'")
    with pytest.raises(OptionError, match="filter compares colour with a number, but it holds texts such as 'red'"):
        trained.recommend(["u1"], filter="colour < 5")
    with pytest.raises(OptionError, match="filter is 3; expected a condition"):
        trained.recommend(["u1"], filter=3)  # type: ignore[arg-type]


def single_units(n_sold: int, n_unsold: int) -> Recommender:
    """Popularity over items s0, s1, ... that were sold once, e0 and e1 that sold three times, and u0, u1, ... without a sale."""
    items = [f"s{n}" for n in range(n_sold)] + ["e0", "e1"] * 3
    rows = {"user": [f"b{n % 7}" for n in range(len(items))], "item": items}
    catalogue = [*(f"s{n}" for n in range(n_sold)), "e0", "e1", *(f"u{n}" for n in range(n_unsold))]
    schema = {
        "interactions": {"user": "user", "item": "item", "repeats": "keep"},
        "items": {"id": "item", "sells_once": True, "fields": {"colour": "category"}},
    }
    table = pl.DataFrame({"item": catalogue, "colour": ["red"] * len(catalogue)})
    data = Dataset.from_tables(pl.DataFrame(rows), items=table, schema=schema)
    return Recommender("fm", k=2, epochs=1, threads=1).fit(data, "none")


def test_what_sells_once_is_recommended_until_it_is_sold() -> None:
    recommender = single_units(20, 4)
    everything = {"e0", "e1", *(f"u{n}" for n in range(4))}
    assert set(recommender.recommend(["nobody"], 6)["item"]) == everything
    assert set(recommender.recommend_for({}, n=6)["item"]) == everything
    recommender.mark_sold(["u2"])
    recommender.mark_back(["s3"])  # somebody brought it back
    assert set(recommender.recommend(["nobody"], 6)["item"]) == (everything - {"u2"}) | {"s3"}
    recommender.mark_sold(["s3"])
    assert set(recommender.recommend(["nobody"], 5)["item"]) == everything - {"u2"}
    assert len(recommender.recommend(["nobody"], 24, candidates="catalogue")) == 24
    assert set(recommender.recommend(["nobody"], 2, available=["s1", "s2"])["item"]) == {"s1", "s2"}


def test_where_everything_is_sold_sold_items_are_recommended_and_a_warning_says_so() -> None:
    recommender = single_units(20, 0)
    with pytest.warns(UserWarning, match=r"every item that sells once is sold, .*gmlfm add-items\) brings new ones") as caught:
        assert recommender.recommend(["nobody"], 22).height == 22
    assert caught[0].filename == __file__
    recommender.add_items(pl.DataFrame({"item": ["n0"], "colour": ["red"]}))
    assert set(recommender.recommend(["nobody"], 3)["item"]) == {"e0", "e1", "n0"}


@pytest.fixture(scope="module")
def tagged() -> Recommender:
    """Thirty items with sets of tags, some empty and some missing, and a name that a filter must quote."""
    rng = np.random.default_rng(4)
    tags = [[f"t{tag}" for tag in np.flatnonzero(rng.random(6) < 0.3)] for _ in range(30)]
    items = pl.DataFrame(
        {
            "item": [f"i{n}" for n in range(30)],
            "tags": [None if n % 11 == 0 else tags[n] for n in range(30)],
            "Age group": [("old", "new")[n % 2] for n in range(30)],
        },
        schema_overrides={"tags": pl.List(pl.String)},
    )
    rows = {"user": [f"u{n % 9}" for n in range(90)], "item": [f"i{(n * 7) % 30}" for n in range(90)]}
    schema = {
        "interactions": {"user": "user", "item": "item"},
        "items": {"id": "item", "fields": {"tags": {"kind": "set"}, "Age group": "category"}},
    }
    data = Dataset.from_tables(pl.DataFrame(rows), items=items, schema=schema)
    return Recommender("fm", k=2, epochs=1, threads=1).fit(data, "none")


def tags_of(recommender: Recommender) -> dict[str, list[str]]:
    items = recommender.fitted.data.items
    return {item: tags or [] for item, tags in zip(items.ids, items.fields["tags"].to_list(), strict=True)}


@pytest.mark.filterwarnings("ignore:n is 30")
def test_a_filter_takes_sets_and_odd_names(tagged: Recommender) -> None:
    tags = tags_of(tagged)
    chosen = tagged.recommend(["u1"], 30, filter="tags contains 't2' and `Age group` = 'new'", seen=True)["item"]
    assert set(chosen) == {item for item, members in tags.items() if "t2" in members and int(item[1:]) % 2}
    chosen = tagged.recommend(["u1"], 30, filter="tags in ('t0', 't1') or item like 'i_'", seen=True)["item"]
    assert set(chosen) == {item for item, members in tags.items() if {"t0", "t1"} & set(members) or len(item) == 2}
    with pytest.raises(GmlfmError, match="a name like that goes in backticks: `Age group`"):
        tagged.recommend(["u1"], filter="Age group = 'new'")


@pytest.mark.filterwarnings("ignore:at_most leaves")
@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 5, 30])
def test_of_a_set_an_item_counts_for_each_of_its_members(tagged: Recommender, most: int, n: int) -> None:
    tags = tags_of(tagged)
    ranked = tagged.recommend(["u1", "u5"], 30, seen=True)
    capped = tagged.recommend(["u1", "u5"], n, seen=True, at_most={"tags": most})
    for user in ("u1", "u5"):
        expected: list[str] = []
        for item in ranked.filter(pl.col("user") == user)["item"]:
            is_full = any(sum(member in tags[other] for other in expected) >= most for member in tags[item])
            if len(expected) < n and not is_full:
                expected.append(item)
        assert capped.filter(pl.col("user") == user)["item"].to_list() == expected


def test_a_cap_that_leaves_too_few_is_noted(trained: Recommender) -> None:
    with pytest.warns(UserWarning, match=r"at_most leaves \d rows instead of 20; raise it to have more"):
        trained.recommend(["u1"], 20, at_most={"colour": 1})


def test_an_empty_choice_names_what_narrowed_it(trained: Recommender) -> None:
    with pytest.raises(DataError, match=r"no item is left to recommend from; widen filter \(texts are compared as they are"):
        trained.recommend(["u1"], 1, filter="colour = 'RED'")
