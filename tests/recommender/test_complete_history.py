"""What was observed counts in the next scores, as if the data had it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.recommender.complete_history import complete_history

SCHEMA = {"interactions": {"user": "u", "item": "i", "time": "t"}, "items": {"id": "i", "fields": {"kind": "category"}}}
SETTINGS = {"history": "last,recent,past", "k": 8, "epochs": 3, "threads": 1}


def interactions() -> pl.DataFrame:
    rng = np.random.default_rng(3)
    pairs = np.sort(rng.permutation(20 * 40)[:260])
    return pl.DataFrame({"u": pairs // 40, "i": pairs % 40, "t": rng.permutation(260)})


def items() -> pl.DataFrame:
    return pl.DataFrame({"i": np.arange(40), "kind": [f"k{i % 5}" for i in range(40)]})


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    return Recommender("fm", **SETTINGS).fit(Dataset.from_tables(interactions(), items=items(), schema=SCHEMA))  # type: ignore[arg-type]


@pytest.fixture
def rec(fitted: Recommender, tmp_path: Path) -> Recommender:
    fitted.save(tmp_path / "run")
    return Recommender.load(tmp_path / "run")


def history_of(rec: Recommender, user: int) -> list[int]:
    observed = rec.observed
    history = complete_history(observed, [user], observed.index.run.encoder.user_numbers([user]))
    assert history is not None
    return observed.index.run.encoder.ids_of_items(history.of_user(0)).to_list()


def test_an_observation_changes_the_next_scores_and_is_left_out(rec: Recommender) -> None:
    before, user = rec.recommend([3], n=5), 3
    first = before["item"][0]
    rec.observe({"user": user, "item": first, "time": 1000})
    after = rec.recommend([3], n=5)
    assert first not in after["item"].to_list()
    assert history_of(rec, 3)[-1] == first
    pairs = [(3, item) for item in before["item"][1:]]
    assert (rec.predict(pairs)["score"].to_numpy() != before["score"].to_numpy()[1:]).all()
    explanation = rec.explain(3, before["item"][1])
    assert explanation.score == pytest.approx(rec.predict([pairs[0]])["score"][0], abs=1e-4)
    assert any(term.earlier is not None and str(first) in str(term.earlier) for term in explanation.terms)


def test_an_observed_user_scores_as_a_newcomer_with_that_history(rec: Recommender) -> None:
    rec.observe([{"user": "new", "item": 5, "time": 1000}, {"user": "new", "item": 9, "time": 1001}])
    observed, given = rec.recommend(["new"], n=6), rec.recommend_for(history=[5, 9], n=6)
    assert observed["item"].to_list() == given["item"].to_list()
    assert observed["score"].to_numpy() == pytest.approx(given["score"].to_numpy(), abs=1e-6)


def test_observations_stand_by_their_time_among_the_rows_of_the_data(rec: Recommender) -> None:
    own = interactions().filter(pl.col("u") == 7).sort("t")
    middle = (own["t"][2] + own["t"][3]) / 2
    fresh = [item for item in range(40) if item not in own["i"].to_list()][:2]
    rec.observe([{"user": 7, "item": fresh[0], "time": int(middle)}, {"user": 7, "item": fresh[1]}])
    expected = own["i"].to_list()
    place = int((own["t"] <= int(middle)).sum())
    expected = [*expected[:place], fresh[0], *expected[place:], fresh[1]]
    assert history_of(rec, 7) == expected


def test_a_row_without_a_time_is_younger_than_all_before_it(rec: Recommender) -> None:
    own = interactions().filter(pl.col("u") == 7)
    fresh = [item for item in range(40) if item not in own["i"].to_list()][:3]
    rec.observe([{"user": 7, "item": fresh[0]}, {"user": 7, "item": fresh[1], "time": 5000}, {"user": 7, "item": fresh[2]}])
    observed = rec.observed
    history = complete_history(observed, [7], observed.index.run.encoder.user_numbers([7]))
    assert history is not None
    assert history_of(rec, 7)[-3:] == fresh
    assert history.ages.tolist() == list(range(own.height + 3))[::-1]


def test_what_a_newer_export_has_too_counts_once(rec: Recommender) -> None:
    row = interactions().filter(pl.col("u") == 4).row(0, named=True)
    before = history_of(rec, 4)
    rec.observe({"user": 4, "item": row["i"], "time": row["t"]})
    assert history_of(rec, 4) == before


def test_evaluation_reads_no_observation(rec: Recommender) -> None:
    before = rec.evaluate(protocol="full").metrics
    rec.observe([{"user": user, "item": 1, "time": 5} for user in range(20)])
    assert rec.evaluate(protocol="full").metrics == before


def test_a_model_without_history_says_that_nothing_will_change() -> None:
    data = Dataset.from_tables(interactions(), items=items(), schema=SCHEMA)  # type: ignore[arg-type]
    rec = Recommender("fm", history="none", k=4, epochs=1, threads=1).fit(data)
    with pytest.warns(UserWarning, match="changes no score"):
        rec.observe({"user": 3, "item": 1, "time": 999})


def test_observed_rows_share_the_age_of_rows_of_their_time(rec: Recommender) -> None:
    own = interactions().filter(pl.col("u") == 7).sort("t")
    fresh = [item for item in range(40) if item not in own["i"].to_list()][:4]
    times = [own["t"][2], own["t"][2], own["t"][-1] + 5, own["t"][-1] + 5]
    rec.observe([{"user": 7, "item": item, "time": time} for item, time in zip(fresh, times, strict=True)])
    observed = rec.observed
    history = complete_history(observed, [7, 3], observed.index.run.encoder.user_numbers([7, 3]))
    assert history is not None
    moments = sorted([*own["t"].to_list(), *times])
    assert history.ages[: len(moments)].tolist() == [sum(other > time for other in moments) for time in moments]
    rest = len(history.of_user(1))
    assert history.ages[len(moments) :].tolist() == list(range(rest))[::-1]
