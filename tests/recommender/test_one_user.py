"""What is kept between questions of one user changes no answer: beside a slow reference that keeps nothing."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.data.splits import AUTO
from gmlfm.recommender.complete_history import complete_history
from gmlfm.recommender.user_side import known_users

N_USERS, N_ITEMS = 12, 30
SETTINGS: dict[str, dict[str, Any]] = {
    "gml-fm": {"k": 6, "epochs": 2, "v_scale": 0.3, "threads": 1},
    "gml-fm-md": {"k": 6, "epochs": 1, "v_scale": 0.3, "threads": 1},
    "fm": {"k": 6, "epochs": 1, "v_scale": 0.3, "threads": 1, "history": "last,recent"},
    "mf": {"k": 6, "epochs": 1, "threads": 1},
    "item-knn": {},
    "popularity": {},
}


def data(*, repeats: str = "merge", context: bool = False) -> Dataset:
    rng = np.random.default_rng(4)
    rows = [(f"u{n % N_USERS}", f"i{int(rng.integers(N_ITEMS - 4)):02d}", n, ("web", "app")[n % 2]) for n in range(150)]
    table = pl.DataFrame(rows, schema=["user", "item", "time", "channel"], orient="row")
    items = pl.DataFrame(
        {
            "item": [f"i{n:02d}" for n in range(N_ITEMS)],
            "kind": [None if n == 7 else f"kind {n % 3}" for n in range(N_ITEMS)],
            "tags": [[f"t{n % 4}", f"t{n % 5}"] if n % 6 else [] for n in range(N_ITEMS)],
            "price": [float(n) for n in range(N_ITEMS)],
            "name": [f"Thing {n}" for n in range(N_ITEMS)],
        }
    )
    users = pl.DataFrame({"user": [f"u{n}" for n in range(N_USERS)], "city": [f"city {n % 3}" for n in range(N_USERS)]})
    fields = {"kind": {"kind": "category"}, "tags": {"kind": "set"}, "price": {"kind": "number"}}
    interactions: dict[str, Any] = {"user": "user", "item": "item", "time": "time", "repeats": repeats}
    if context:
        interactions["context"] = {"channel": "category"}
    else:
        table = table.drop("channel")
    schema = {
        "interactions": interactions,
        "items": {"id": "item", "title": "name", "fields": fields},
        "users": {"id": "user", "fields": {"city": {"kind": "category"}}},
    }
    return Dataset.from_tables(table, users=users, items=items, schema=schema)


def slow(
    recommender: Recommender,
    user: str,
    n: int,
    *,
    seen: bool = False,
    context: dict[str, Any] | None = None,
    most_price: float | None = None,
    available: list[str] | None = None,
    candidates: str = "interactions",
    at_most: dict[str, int] | None = None,
) -> list[tuple[str, float]]:
    """By loops over all items, of a model that keeps nothing."""
    run, observed = recommender.fitted, recommender.observed
    ids, fields = run.data.items.ids.to_list(), run.data.items.fields
    named = set(run.data.interactions["item"].to_list())
    marks = recommender.stock.marks
    kept = []
    for number, item in enumerate(ids):
        is_offered = item in available if available is not None else candidates == "catalogue" or number in named
        fits = most_price is None or fields["price"][number] < most_price
        if is_offered and fits and marks.get(item) != "sold":
            kept.append(number)
    users = run.data.users.ids.to_list()
    numbers = np.array([users.index(user) if user in users else -1])
    side = known_users(run, numbers, context, complete_history(observed, [user], numbers))
    model = copy.deepcopy(run.model)
    scores = model.score_all(side, np.array(kept, np.int32))[0]
    if numbers[0] < 0 and (side.history is None or len(side.history.items) == 0):
        scores = observed.index.popularity[kept]
    had = set()
    if not seen:
        of_user = run.data.interactions.filter((pl.col("user") == int(numbers[0])) & pl.col("positive"))
        had = {ids[number] for number in of_user["item"]}
        had |= {row[1] for row in observed.rows_of(user)} if run.data.schema.interactions.repeats != "keep" else set()
    places = sorted((place for place in range(len(kept)) if ids[kept[place]] not in had), key=lambda p: (-scores[p], p))
    chosen: list[tuple[str, float]] = []
    counts: dict[str, int] = {}
    for place in places:
        name, most = next(iter((at_most or {}).items()), (None, 0))
        value = None if name is None else fields[name][kept[place]]
        groups = list(dict.fromkeys(value)) if isinstance(value, list | pl.Series) else [] if value is None else [value]
        if any(counts.get(group, 0) >= most for group in groups) or len(chosen) == n:
            continue
        for group in groups:
            counts[group] = counts.get(group, 0) + 1
        chosen.append((ids[kept[place]], float(scores[place])))
    return chosen


def check(recommender: Recommender, user: str, n: int = 6, **choices: Any) -> None:
    """Twice: the second one is of what the first one left."""
    price = choices.pop("most_price", None)
    expected = slow(recommender, user, n, most_price=price, **choices)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            table = recommender.recommend([user], n, filter=None if price is None else f"price < {price}", **choices)
        assert list(zip(table["item"], table["score"], strict=True)) == expected
        assert table["user"].to_list() == [user] * len(expected)
        assert table["rank"].to_list() == list(range(1, len(expected) + 1))
        assert table["title"].to_list() == [f"Thing {int(item[1:])}" for item, _ in expected]
        assert set(table["known"]) <= {user in recommender.fitted.data.users.ids}


@pytest.fixture(scope="module", params=SETTINGS)
def fitted(request: pytest.FixtureRequest) -> Recommender:
    """Read-only."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return Recommender(request.param, **SETTINGS[request.param]).fit(data(), AUTO)


@pytest.fixture
def own(fitted: Recommender, tmp_path: Any) -> Recommender:
    """A copy that a test may change."""
    fitted.save(tmp_path / "run", force=True)
    return Recommender.load(tmp_path / "run")


CHOICES: list[dict[str, Any]] = [
    {},
    {"seen": True},
    {"n": 100},
    {"most_price": 11.0},
    {"candidates": "catalogue"},
    {"candidates": "catalogue", "most_price": 29.0},
    {"available": ["i03", "i29", "i11", "i05"]},
    {"at_most": {"kind": 1}},
    {"at_most": {"kind": 2}},
    {"at_most": {"tags": 1}},
    {"at_most": {"tags": 2}, "most_price": 20.0, "seen": True},
]


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_every_choice_is_answered_as_by_loops(fitted: Recommender, choices: dict[str, Any]) -> None:
    for user in ("u3", "u0", "stranger", "u3"):
        check(fitted, user, **choices)


def test_what_users_do_and_what_is_sold_counts_at_once(own: Recommender) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for step, (user, item) in enumerate([("u3", "i04"), ("new", "i05"), ("u3", "i06"), ("new", "i04"), ("u3", "i04")]):
            for asked in ("u3", "new", "u5"):
                check(own, asked)
            own.observe({"user": user, "item": item, "time": 1000 + step})
            for asked in ("u3", "new", "u5"):
                check(own, asked)
                check(own, asked, most_price=15.0)
        first = own.recommend(["u3"], 1)["item"][0]
        own.mark_sold([first])
        check(own, "u3")
        check(own, "u3", most_price=29.0)
        own.mark_back([first])
        check(own, "u3")
        own.forget("u3")
        check(own, "u3")
        check(own, "new")


def test_repeats_that_are_kept_come_again(tmp_path: Any) -> None:
    recommender = Recommender(**SETTINGS["gml-fm"]).fit(data(repeats="keep"))
    check(recommender, "u1")
    recommender.observe({"user": "u1", "item": "i02"})
    check(recommender, "u1")


def test_an_occasion_is_not_taken_for_another() -> None:
    recommender = Recommender(**{**SETTINGS["gml-fm"], "epochs": 6, "lr": 0.05}).fit(data(context=True))
    for context in (None, {"channel": "web"}, {"channel": "app"}, None, {}, {"channel": "web"}):
        check(recommender, "u2", context=context)
    web, app = (recommender.recommend(["u2"], context={"channel": name})["score"].to_list() for name in ("web", "app"))
    assert web != app


def test_items_that_come_later_are_ranked(own: Recommender) -> None:
    if own.settings.model in ("item-knn", "popularity", "mf"):
        pytest.skip("goes by ids alone")
    check(own, "u4")
    own.add_items(pl.DataFrame({"item": ["i99"], "kind": ["kind 1"], "tags": [["t1"]], "price": [1.5], "name": ["Thing 99"]}))
    items = own.recommend(["u4"], 27, seen=True)["item"].to_list()
    assert "i99" in items
    assert own.recommend(["u4"], 1, filter="price == 1.5")["item"].to_list() == ["i99"]


def test_many_users_keep_nothing_that_one_user_is_given(fitted: Recommender) -> None:
    users = [f"u{n}" for n in range(N_USERS)]
    together = fitted.recommend(users, 5)
    for user in users:
        alone, of_user = fitted.recommend([user], 5), together.filter(pl.col("user") == user)
        assert alone["item"].to_list() == of_user["item"].to_list()
        np.testing.assert_allclose(alone["score"], of_user["score"], rtol=1e-5, atol=1e-6)
        assert alone.columns == of_user.columns
        assert alone.dtypes == of_user.dtypes
