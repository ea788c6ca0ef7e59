from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.data.columns import Origin
from gmlfm.errors import DataError, GmlfmError, OptionError
from gmlfm.recommender.observing import ObserveReport
from tests.recommender.conftest import QUICK

# The runs here read no history: test_complete_history.py has what is observed in scores.
pytestmark = pytest.mark.filterwarnings("ignore:this run of .* does not read what users did before")

NEW_ITEM = pl.DataFrame({"item": ["n"], "colour": ["red"], "price": [1.0], "tags": [["x"]]})
ROWS = {"user": ["u1", "u1", "visitor"], "item": ["i40", "i41", "i3"], "time": [100, None, 90]}
TABLES = {
    "columns": lambda rows: rows,
    "polars": pl.DataFrame,
    "lazy": pl.LazyFrame,
    "pandas": lambda rows: pd.DataFrame(rows),
    "arrow": pa.table,
    "rows": lambda rows: pl.DataFrame(rows).to_dicts(),
    "rows without empty places": lambda rows: [
        {name: value for name, value in row.items() if value is not None} for row in pl.DataFrame(rows).to_dicts()
    ],
}


def _items(recommender: Recommender, user: str, **options: Any) -> list[str]:
    table = recommender.recommend([user], 42, candidates="catalogue", **options)
    return table["item"].to_list()


@pytest.fixture
def log(own_folder: Path) -> Path:
    return own_folder / "events.jsonl"


@pytest.mark.filterwarnings("ignore:n is 42")
@pytest.mark.parametrize("kind", TABLES)
def test_what_was_observed_counts_at_once_here_and_for_who_loads(kind: str, own_run: Recommender, own_folder: Path) -> None:
    assert own_run.observe(TABLES[kind](ROWS)) == ObserveReport(3, 0, 1)
    for run in (own_run, Recommender.load(own_folder)):
        assert run.observed.n == 3
        assert run.observed.of("u1") == ((40, 100), (41, None))
        assert run.observed.of("visitor") == ((3, 90),)
        assert {"i40", "i41"}.isdisjoint(_items(run, "u1"))
        assert "i3" not in _items(run, "visitor")
        assert {"i40", "i41"} <= set(_items(run, "u1", seen=True))
        assert {"i40", "i41"} <= set(_items(run, "u2"))


def test_one_row_is_a_dict(own_run: Recommender) -> None:
    assert own_run.observe({"user": "u1", "item": "i40"}) == ObserveReport(1, 0, 0)
    with pytest.warns(UserWarning, match="kinds of events that are observed: 'click'; the data have no column of events"):
        report = own_run.observe({"user": "visitor", "item": "i40", "time": 3, "event": "click"})
    assert report == ObserveReport(1, 0, 1)
    assert own_run.observe({"user": "visitor", "item": "i41"}) == ObserveReport(1, 0, 0)
    assert own_run.observed.rows_of("visitor") == (("visitor", "i40", 3, "click"), ("visitor", "i41", None, None))
    assert own_run.observe([]) == own_run.observe({"user": [], "item": []}) == ObserveReport(0, 0, 0)


def test_columns_may_be_named_as_in_the_data() -> None:
    rows = [(n % 5, f"p{n % 7}", n) for n in range(35)]
    orders = pl.DataFrame(rows, schema=["customer", "product", "when"], orient="row")
    schema = {"interactions": {"user": "customer", "item": "product", "time": "when"}}
    run = Recommender("ease").fit(Dataset.from_tables(orders, schema=schema), "none")
    run.observe(pl.DataFrame({"customer": [3], "product": ["p2"], "when": [77]}))
    run.observe({"user": 3.0, "item": "p4", "time": 78})
    assert run.observed.of("3") == ((2, 77), (4, 78))
    assert set(run.recommend([3], 7, seen=True)["item"]) > set(run.recommend([4], 3, available=["p2", "p4", "p5"])["item"]) - {
        ""
    }
    with pytest.raises(DataError, match=r"the columns are customer, when; expected user, item and perhaps time and event"):
        run.observe({"customer": [3], "when": [77]})


def test_new_items_come_with_their_attributes(own_run: Recommender, own_folder: Path) -> None:
    board = own_run.fitted.data.items
    changed = pl.DataFrame({"item": ["i3"], "colour": ["blue"], "price": [99.0], "tags": [["y"]]})
    rows = {"user": ["u1", "visitor"], "item": ["n", "n"]}
    assert own_run.observe(rows, items=pl.concat([changed, NEW_ITEM])) == ObserveReport(2, 0, 1, 1)
    for run in (own_run, Recommender.load(own_folder)):
        assert run.fitted.data.items.ids.to_list() == [*board.ids, "n"]
        assert run.fitted.data.items.fields[3].equals(board.fields[3])  # what the catalogue has stays as it is
        assert run.observed.of("visitor") == ((len(board), None),)
        assert "n" in _items(run, "u2")
        assert "n" not in _items(run, "u1")
    files = sorted(path.name for path in own_folder.iterdir())
    assert own_run.observe({"user": "u2", "item": "n"}, items=NEW_ITEM) == ObserveReport(1, 0, 0, 0)
    assert sorted(path.name for path in own_folder.iterdir()) == files  # nothing new, so that no generation was written


@pytest.mark.parametrize(
    ("rows", "items", "message"),
    [
        ({"user": ["u1", ""], "item": ["n", "n"]}, NEW_ITEM, "the column 'user' is empty"),
        ({"user": ["u1"], "item": ["gone"]}, NEW_ITEM, "the item 'gone' is not in the catalogue"),
        ({"user": ["u1"], "item": ["n"]}, NEW_ITEM.drop("item"), "have no column 'item'"),
        ({"user": ["u1"], "item": ["n"]}, pl.concat([NEW_ITEM, NEW_ITEM]), "the item 'n' comes twice"),
    ],
)
def test_rows_or_items_that_cannot_be_kept_leave_both_out(
    rows: Any, items: pl.DataFrame, message: str, own_run: Recommender, own_folder: Path
) -> None:
    before, files = own_run.fitted, {path: path.stat().st_mtime_ns for path in own_folder.rglob("*")}
    with pytest.raises(DataError, match=message):
        own_run.observe(rows, items=items)
    assert own_run.fitted is before
    assert {path: path.stat().st_mtime_ns for path in own_folder.rglob("*")} == files


def test_known_rows_are_counted_and_not_written(own_run: Recommender, board: Dataset, log: Path) -> None:
    of_data = board.interactions.filter(pl.col("user") == 1).row(0, named=True)
    known = {"user": "u1", "item": board.items.ids[of_data["item"]], "time": of_data["time"]}
    own_run.observe(ROWS)
    before = log.read_bytes()
    assert own_run.observe(known) == ObserveReport(0, 1, 0)
    assert own_run.observe(ROWS) == ObserveReport(0, 3, 0)
    assert log.read_bytes() == before
    assert own_run.observe({**known, "time": 777}) == ObserveReport(1, 0, 0)  # bought again
    twice = {"user": ["w"] * 4, "item": ["i1"] * 4, "time": [1, 1, None, None]}
    assert own_run.observe(twice) == ObserveReport(2, 2, 1)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"user": ["u1", "u2"], "item": ["i1", "gone"]}, r"row 2: the item 'gone' is not in the catalogue; give a table of new items beside"),
        ({"user": ["u1"] * 3, "item": ["x", "y", "x"]}, r"row 1: the item 'x' is not in the catalogue \(and 1 others are not\)"),
        ({"user": ["u1", None], "item": ["i1", "i2"]}, r"row 2: the column 'user' is empty; every row needs a user and an item"),
        ({"user": ["u1", " "], "item": ["i1", "i2"]}, r"row 2: the column 'user' is empty"),
        ({"user": ["u1", "u2"], "item": ["i1", None]}, r"row 2: the column 'item' is empty"),
        ({"user": ["u1"]}, "the columns are user; expected user, item"),
        ({"item": ["i1"], "person": ["u1"]}, "the columns are item, person; expected user, item"),
        ({}, "the columns are none; expected user, item"),
        ([{}, {}], "the columns are none; expected user, item"),
        (pl.DataFrame(), "the columns are none; expected user, item"),
        ({"user": ["u1", "u2"], "item": ["i1", "i2"], "time": [1, "soon"]}, "'soon'"),
        ({"user": ["u1", "u2"], "item": [["i1"], ["i2"]]}, "column 'item' holds List.*; expected one id in each row"),
        ({"user": ["u1", "u2"], "item": ["i1", "i2"], "event": [["a"], ["b"]]}, "'event' holds List.*; expected the kind of an event"),
        ([{"user": "u1", "item": "i1"}, ("u1", "i1")], r"expected as a table, or as rows such as .*; got \('u1', 'i1'\) in a list"),
        ("u1", "the observations table is a str"),
        (None, "the observations table is a NoneType"),
        ({"user": "u1", "item": ["i1", "i2"]}, "a column is 'u1'; expected a list"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_with_all_of_its_table(
    table: Any, message: str, own_run: Recommender, log: Path
) -> None:
    own_run.observe({"user": "u5", "item": "i5"})
    before = log.read_bytes()
    with pytest.raises(GmlfmError, match=message):
        own_run.observe(table)
    assert log.read_bytes() == before
    assert own_run.observed.n == 1


def test_the_caller_may_say_where_rows_are_from(own_run: Recommender) -> None:
    with pytest.raises(DataError, match=r"^clicks\.csv line 12: the item 'gone'"):
        own_run.observe(
            {"user": ["u1"], "item": ["gone"]}, origin=Origin("clicks.csv", lambda row: f"clicks.csv line {row + 12}")
        )


def test_columns_that_are_not_read_are_told(own_run: Recommender) -> None:
    with pytest.warns(UserWarning, match="the column 'stars' of the observations is not read; user, item, time and event are"):
        own_run.observe({"user": "u1", "item": "i40", "stars": 1})
    with pytest.warns(UserWarning, match="2 columns, the first 'a', of the observations is not read"):
        own_run.observe({"user": "u1", "item": "i41", "a": 1, "b": 2})


def test_a_model_without_history_keeps_them_and_says_what_will_not_change(board: Dataset, tmp_path: Path) -> None:
    run = Recommender("popularity").fit(board, out=tmp_path / "run")
    before = run.predict([("u1", "i3"), ("u1", "i41")])
    with pytest.warns(UserWarning, match="'popularity' does not read what users did before: .* changes no score until a model"):
        run.observe({"user": "u1", "item": "i3"})
    assert run.predict([("u1", "i3"), ("u1", "i41")]).equals(before)
    assert "i3" not in Recommender.load(tmp_path / "run").recommend(["u1"], 20)["item"].to_list()


def test_where_repeats_are_kept_what_was_observed_can_be_recommended(board: Dataset) -> None:
    rows = [(f"u{n % 6}", f"i{n * 5 % 11}", n) for n in range(90)]
    table = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    for repeats, is_left_out in (("merge", True), ("keep", False)):
        schema = {"interactions": {"user": "user", "item": "item", "time": "time", "repeats": repeats}}
        run = Recommender("item-knn").fit(Dataset.from_tables(table, schema=schema), "none")
        run.observe({"user": "visitor", "item": "i5"})
        assert ("i5" not in run.recommend(["visitor"], 11)["item"].to_list()) == is_left_out


def test_evaluating_and_the_split_know_nothing_of_them(own_run: Recommender, board: Dataset) -> None:
    data, split = own_run.fitted.data, own_run.fitted.split
    before = {part: own_run.evaluate(part=part) for part in ("validation", "test")}
    tested = [board.items.ids[int(item)] for item in board.item_numbers[split.test]]
    users = [board.users.ids[int(user)] for user in board.user_numbers[split.test]]
    own_run.observe({"user": [*users, "visitor"], "item": [*tested, "i1"], "time": [10**6] * (len(users) + 1)})
    own_run.observe({"user": users, "item": ["i41"] * len(users)})
    for part, evaluation in before.items():
        after = own_run.evaluate(part=part)
        assert after.metrics == evaluation.metrics
        assert after.candidates_hash == evaluation.candidates_hash
    assert own_run.fitted.data is data
    assert own_run.fitted.split is split


def test_without_a_folder_they_are_kept_in_memory_and_saved_with_the_run(board: Dataset, tmp_path: Path) -> None:
    run = Recommender("ease").fit(board)
    run.observe(ROWS)
    run.save(tmp_path / "run")
    assert Recommender.load(tmp_path / "run").observed.of("u1") == run.observed.of("u1") == ((40, 100), (41, None))
    run.observe({"user": "u1", "item": "i2", "time": 101})
    run.save(tmp_path / "run")  # which writes none of them again
    run.save(tmp_path / "copy")
    run.observe({"user": "u1", "item": "i4", "time": 102})  # goes to where it was saved last
    first, second = Recommender.load(tmp_path / "run"), Recommender.load(tmp_path / "copy")
    assert [item for item, _ in first.observed.of("u1")] == [40, 41, 2]
    assert [item for item, _ in second.observed.of("u1")] == [40, 41, 2, 4]
    assert first.observed.n == 4
    assert len((tmp_path / "run" / "events.jsonl").read_text().splitlines()) == 3
    run.fit(board)
    assert run.observed.n == 0


def test_a_training_in_the_same_folder_keeps_them(own_folder: Path, own_run: Recommender, board: Dataset) -> None:
    own_run.observe(ROWS)
    trained = Recommender("popularity").fit(board, out=own_folder, force=True)
    assert trained.observed.of("visitor") == Recommender.load(own_folder).observed.of("visitor") == ((3, 90),)


def test_new_items_can_be_observed_before_the_run_is_saved_with_them(own_folder: Path, own_run: Recommender) -> None:
    own_run.observe({"user": "u1", "item": "i40"})
    own_run.add_items(NEW_ITEM)
    assert own_run.observed.of("u1") == ((40, None),)
    own_run.observe({"user": "u1", "item": "n"})
    assert own_run.observed.of("u1") == ((40, None), (42, None))
    other = Recommender.load(own_folder)
    assert other.observed.of("u1") == ((40, None),)
    own_run.save(own_folder)
    other.reload()
    assert other.observed.of("u1") == ((40, None), (42, None))


def test_two_processes_see_each_others_rows_and_write_none_twice(own_folder: Path, log: Path) -> None:
    left, right = Recommender.load(own_folder), Recommender.load(own_folder)
    left.observe({"user": "u1", "item": "i40", "time": 50})
    assert right.observed.n == 0
    assert right.observe({"user": "u1", "item": "i40", "time": 50}) == ObserveReport(0, 1, 0)
    right.observe({"user": "u1", "item": "i41", "time": 49})
    left.mark_sold(["i7"])
    left.reload()
    right.reload()
    for run in (left, right, Recommender.load(own_folder)):
        assert run.observed.of("u1") == ((41, 49), (40, 50))
        assert run.stock.marks == {"i7": "sold"}
    assert len(log.read_text().splitlines()) == 4


def test_reloading_reads_a_run_anew_only_where_it_was_replaced(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = Recommender.load(own_folder), Recommender.load(own_folder)
    run = left.fitted
    right.observe({"user": "u1", "item": "i40"})
    with monkeypatch.context() as patch:
        patch.setattr("gmlfm.runs.run_folder.load_run", lambda *_: pytest.fail("the run was read"))
        left.reload()
    assert left.fitted is run
    assert left.observed.n == 1
    right.add_items(NEW_ITEM)
    right.save(own_folder)
    left.reload()
    assert left.fitted.encoder.item_numbers(["n"])[0] == 42
    assert left.observed.of("u1") == ((40, None),)
    left.save(own_folder)  # which is no conflict now
    left.add_items(NEW_ITEM.with_columns(item=pl.lit("m")))
    right.reload()
    right.forget("u3")
    with pytest.raises(DataError, match="was changed by somebody else, and the run was changed here; load the folder anew"):
        left.reload()
    with pytest.raises(OptionError, match="has no folder to reload from"):
        Recommender("popularity").fit(run.data).reload()


@pytest.mark.parametrize("user", ["u1", "visitor"])
def test_a_forgotten_users_rows_are_gone_everywhere(user: str, own_folder: Path, own_run: Recommender, tmp_path: Path) -> None:
    own_run.save(tmp_path / "copy")
    own_run = Recommender.load(own_folder)
    own_run.save(tmp_path / "other")
    own_run.save(own_folder)
    other = Recommender.load(own_folder)
    own_run.observe(ROWS)
    own_run.observe({"user": ["u2", user, "u12"], "item": ["i5", "i41", "i6"], "time": [3, 4, 5]})
    own_run.save(tmp_path / "other")
    other.reload()
    assert user in other.observed
    n_before = own_run.observed.n
    n_theirs = len(own_run.observed.rows_of(user))
    own_run.forget(user)
    other.reload()
    for run in (own_run, other, Recommender.load(own_folder), Recommender.load(tmp_path / "other")):
        assert user not in run.observed
        assert run.observed.n == n_before - n_theirs
        assert run.observed.of("u12") == ((6, 5),)
    for path in (*own_folder.rglob("*"), *(tmp_path / "other").rglob("*")):
        assert not path.is_file() or f'"{user}"'.encode() not in path.read_bytes(), path
    with pytest.raises(DataError, match=f"the user '{user}' is unknown already"):
        own_run.forget(user)
    other.save(own_folder)
    assert user not in Recommender.load(own_folder).observed


@pytest.mark.parametrize("user", ["u1", "visitor"])
def test_who_has_a_forgotten_users_rows_in_memory_does_not_bring_them_back(user: str, own_folder: Path) -> None:
    left, right = Recommender.load(own_folder), Recommender.load(own_folder)
    left.observe(ROWS)
    right.reload()
    left.forget(user)
    right.save(own_folder, force=True)
    assert user not in right.observed
    assert user not in Recommender.load(own_folder).observed
    assert f'"{user}"' not in (own_folder / "events.jsonl").read_text()


def test_rows_without_a_time_are_not_counted_again_when_the_log_is_followed(own_run: Recommender, own_folder: Path) -> None:
    for step in range(4):
        own_run.observe({"user": ["w", "w"], "item": ["i0", "i1"]})
        if step % 2:
            own_run.reload()
    own_run.save(own_folder)
    for run in (own_run, Recommender.load(own_folder)):
        assert [item for item, _ in run.observed.of("w")] == [0, 1] * 4


def test_who_is_observed_after_they_were_forgotten_is_a_new_user(own_folder: Path, own_run: Recommender) -> None:
    own_run.observe(ROWS)
    own_run.forget("u1")
    own_run.forget("visitor")
    assert own_run.observe({"user": ["u1", "visitor"], "item": ["i2", "i4"], "time": [5, 6]}) == ObserveReport(2, 0, 2)
    for run in (own_run, Recommender.load(own_folder)):
        assert run.observed.of("u1") == ((2, 5),)
        assert run.observed.of("visitor") == ((4, 6),)
        assert run.fitted.encoder.user_numbers(["u1"])[0] < 0
    own_run.save(own_folder)
    assert Recommender.load(own_folder).observed.n == 2


def test_in_memory_who_was_observed_can_be_forgotten(board: Dataset) -> None:
    run = Recommender("ease").fit(board)
    run.observe(ROWS)
    run.forget("visitor")
    run.forget("u1")
    assert run.observed.n == 0
    with pytest.raises(DataError, match="the user 'visitor' is unknown already"):
        run.forget("visitor")


def test_a_kind_that_the_data_cannot_place_is_told_once() -> None:
    rows = [(f"u{n % 5}", f"p{n % 7}", n, ("buy", "view")[n % 2]) for n in range(35)]
    table = pl.DataFrame(rows, schema=["user", "item", "time", "kind"], orient="row")
    spec = {"event": "kind", "targets": ["buy"], "history_events": ["buy", "view"]}
    schema = {"interactions": {"user": "user", "item": "item", "time": "time", **spec}}
    run = Recommender("ease").fit(Dataset.from_tables(table, schema=schema), "none")
    assert run.observe({"user": ["u1", "u1"], "item": ["p1", "p2"], "event": ["view", "buy"]}).n == 2
    with pytest.warns(UserWarning, match="'hover', 'hum'; they are in neither targets nor history_events") as caught:
        run.observe({"user": ["u1"] * 3, "item": ["p1", "p2", "p3"], "event": ["hum", "hover", "view"]})
    assert len(caught) == 1
    run.observe({"user": "u2", "item": "p1", "event": "hum"})
    assert run.observed.n == 6


def test_a_failed_write_keeps_nothing_here_either(own_run: Recommender, log: Path) -> None:
    log.mkdir()
    with pytest.raises(DataError, match=r"events\.jsonl could not be"):
        own_run.observe(ROWS)
    assert own_run.observed.n == 0
    log.rmdir()
    own_run.observe(ROWS)
    assert own_run.observed.n == 3


def test_a_folder_that_holds_no_run_any_more_is_not_made_again(own_run: Recommender, own_folder: Path) -> None:
    own_folder.rename(own_folder.with_name("elsewhere"))
    with pytest.raises(DataError, match="holds no run any more; load another one, or save this one again"):
        own_run.observe(ROWS)
    assert not own_folder.exists()


def test_a_batch_is_written_as_a_few_lines(own_run: Recommender, log: Path) -> None:
    n = 5_000
    rows = {"user": [f"w{k % 700}" for k in range(n)], "item": [f"i{k % 42}" for k in range(n)], "time": list(range(n))}
    assert own_run.observe(rows) == ObserveReport(n, 0, 700)
    lines = [json.loads(text) for text in log.read_text().splitlines()]
    assert [len(event.get("rows", ())) for event in lines] == [0, 1000, 1000, 1000, 1000, 1000]


@pytest.mark.slow
def test_a_million_rows_at_once(own_run: Recommender, own_folder: Path) -> None:
    n = 1_000_000
    frame = pl.DataFrame(
        {"user": [f"w{k % 70_000}" for k in range(n)], "item": [f"i{k % 41}" for k in range(n)], "time": range(n)}
    )
    assert own_run.observe(frame) == ObserveReport(n, 0, 70_000)
    assert own_run.observe(frame.tail(1000)) == ObserveReport(0, 1000, 0)
    loaded = Recommender.load(own_folder)
    assert loaded.observed.n == n
    assert [time for _, time in loaded.observed.of("w7")] == list(range(7, n, 70_000))


def test_threads_lose_no_row_and_readers_see_whole_states(board: Dataset, tmp_path: Path) -> None:
    run = Recommender(**{**QUICK, "epochs": 1}).fit(board, out=tmp_path / "run")
    errors: list[BaseException] = []
    done = threading.Event()

    def observing(number: int) -> None:
        try:
            for step in range(15):
                run.observe(
                    {"user": [f"w{number}", "all"], "item": [f"i{step}", f"i{step}"], "time": [step, 100 * number + step]}
                )
        except BaseException as error:
            errors.append(error)

    def asking() -> None:
        try:
            while not done.is_set():
                observed = run.observed
                pairs = [len(observed.of(f"w{number}")) for number in range(3)]
                assert sum(pairs) == len(observed.of("all"))  # rows of one call come together
                run.recommend(["w0", "w1", "u1"], 3)
        except BaseException as error:
            errors.append(error)

    askers = [threading.Thread(target=asking) for _ in range(2)]
    observers = [threading.Thread(target=observing, args=(number,)) for number in range(3)]
    for thread in (*askers, *observers):
        thread.start()
    for thread in observers:
        thread.join()
    done.set()
    for thread in askers:
        thread.join()
    assert errors == []
    for recommender in (run, Recommender.load(tmp_path / "run")):
        assert recommender.observed.n == 3 * 15 * 2
        assert len(recommender.observed.of("all")) == 45


@pytest.mark.parametrize("time", [1e300, -1e300, float("inf"), 2**63])
def test_a_time_that_the_log_cannot_have_is_refused(time: float, own_run: Recommender, own_folder: Path) -> None:
    own_run.observe({"user": "u1", "item": "i40"})
    with pytest.raises(DataError):
        own_run.observe([{"user": "u1", "item": "i41", "time": time}])
    assert Recommender.load(own_folder).observed.n == 1


def test_following_takes_note_of_all_but_another_run(own_run: Recommender, own_folder: Path) -> None:
    elsewhere = Recommender.load(own_folder)
    elsewhere.observe({"user": "visitor", "item": "i3"})
    elsewhere.mark_sold(["i4"])
    elsewhere.forget("u2")
    elsewhere.save(own_folder)
    elsewhere.add_items(NEW_ITEM)
    elsewhere.save(own_folder)
    own_run.follow()
    assert "visitor" in own_run.observed
    assert own_run.stock.marks == {"i4": "sold"}
    assert own_run.fitted.encoder.user_numbers(["u2"])[0] == -1
    assert own_run.fitted.encoder.item_numbers(["n"])[0] == -1, "the run is the one that was loaded"


def test_following_may_keep_the_run_as_it_is(own_run: Recommender, own_folder: Path) -> None:
    before = own_run.fitted
    elsewhere = Recommender.load(own_folder)
    elsewhere.observe({"user": "visitor", "item": "i3"})
    assert own_run.follow(keep_run=True) is True
    elsewhere.forget("u2")
    elsewhere.observe({"user": "visitor", "item": "i4"})
    assert own_run.follow(keep_run=True) is False
    assert own_run.fitted is before
    assert len(own_run.observed.rows_of("visitor")) == 1, "nothing is taken note of"
    twin = own_run.twin()
    assert twin.follow() is True
    assert twin.follow(keep_run=True) is True
    assert (own_run.fitted is before, len(twin.fitted.data.users)) == (True, len(before.data.users) - 1)
    assert len(twin.observed.rows_of("visitor")) == 2


def test_following_without_a_folder_is_nothing(board: Dataset) -> None:
    run = Recommender(**QUICK).fit(board)
    run.follow()
    assert run.observed.n == 0


def test_a_twin_changes_alone(own_run: Recommender, own_folder: Path) -> None:
    twin = own_run.twin()
    before = own_run.about
    twin.add_items(NEW_ITEM)
    twin.save(own_folder)
    assert own_run.about == before != twin.about
    assert own_run.fitted.encoder.item_numbers(["n"])[0] == -1
    own_run.observe({"user": "visitor", "item": "i3"})
    twin.follow()
    assert "visitor" in twin.observed
    assert "n" in Recommender.load(own_folder).fitted.encoder.item_ids
