from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.data.prepared import PreparedData
from gmlfm.errors import DataError, OptionError, SchemaError
from gmlfm.recommender import core
from gmlfm.runs.events import EventLog
from gmlfm.runs.layout import EVENTS
from gmlfm.runs.locking import training_lock
from tests.recommender.conftest import WITH_HISTORY

SCHEMA: dict[str, Any] = {
    "interactions": {"user": "who", "item": "what", "time": "when"},
    "items": {"id": "what", "fields": {"colour": "category"}},
}
OLD = [(f"u{user}", f"i{(user * 3 + place * 5) % 17}", 10 + place) for user in range(12) for place in range(6)]
NEW = [("u1", "i17", 100), ("u12", "i17", 101), ("u12", "i2", 102)]
Row = tuple[str, str, int]


def table_of(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["who", "what", "when"], orient="row")


def data_of(rows: list[Row], n_items: int = 17) -> Dataset:
    items = pl.DataFrame(
        {"what": [f"i{n}" for n in range(n_items)], "colour": [("red", "blue")[n % 2] for n in range(n_items)]}
    )
    return Dataset.from_tables(table_of(rows), items=items, schema=SCHEMA)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run. Read-only."""
    folder = tmp_path_factory.mktemp("updating") / "run"
    Recommender("fm", history="last,recent,past", **WITH_HISTORY).fit(data_of(OLD), out=folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(saved, tmp_path / "run"))


def events_of(recommender: Recommender, user: str) -> list[str]:
    run = recommender.fitted
    history = run.histories.complete(run.encoder.user_numbers([user]))
    return [str(run.data.items.ids[int(item)]) for item in history.items]


def in_log(folder: Path) -> list[Any]:
    return [row[:3] for row in EventLog(folder / EVENTS).observed()]


def test_the_folder_holds_the_result(folder: Path) -> None:
    recommender = Recommender.load(folder)
    report = recommender.update(data_of(OLD + NEW, 18))
    assert (report.n_rows, report.n_users, report.n_items) == (3, 1, 1)
    loaded = Recommender.load(folder)
    assert loaded.recommend(["u1", "u12"], 5).equals(recommender.recommend(["u1", "u12"], 5))
    assert events_of(loaded, "u12") == ["i17", "i2"]
    assert loaded.about["updates"][0]["n_rows"] == 3
    assert loaded.fitted.updates == recommender.fitted.updates
    second = loaded.update(data_of([("u13", "i1", 200)]))
    assert (second.n_rows, second.n_users) == (1, 1)
    assert [noted["n_rows"] for noted in Recommender.load(folder).fitted.updates] == [3, 1]
    assert "updated with 3 new rows" in next(folder.glob("generations/*/card.md")).read_text()


def test_a_table_has_the_columns_of_the_data_and_brings_no_attributes(folder: Path) -> None:
    recommender = Recommender.load(folder)
    report = recommender.update(table_of(NEW))
    assert (report.n_rows, report.n_items) == (3, 1)
    assert recommender.fitted.data.items.fields["colour"][-1] is None
    assert recommender.update({"who": ["u14"], "what": ["i3"], "when": [300]}).n_users == 1
    with pytest.raises(SchemaError, match="no column 'who'"):
        recommender.update(pl.DataFrame({"user": ["u1"], "item": ["i1"]}))


def test_a_run_without_a_folder_is_updated_in_memory() -> None:
    recommender = Recommender("fm", **WITH_HISTORY).fit(data_of(OLD))
    before = recommender.fitted
    recommender.update(table_of(NEW))
    assert recommender.fitted is not before
    assert events_of(recommender, "u12") == ["i17", "i2"]


def test_without_data_what_was_observed_is_learned_and_counted_once(folder: Path) -> None:
    recommender = Recommender.load(folder)
    other = Recommender.load(folder)
    recommender.observe([{"user": "u1", "item": "i4", "time": 50}, {"user": "u1", "item": "i2"}])
    other.observe([{"user": "newcomer", "item": "i7", "time": 60}, {"user": "newcomer", "item": "i8"}])
    report = recommender.update()
    assert (report.n_rows, report.n_users) == (4, 1)  # others' rows included
    assert events_of(recommender, "u1")[-2:] == ["i4", "i2"]
    assert events_of(recommender, "newcomer") == ["i7", "i8"]
    assert recommender.observed.n == 0
    assert in_log(folder) == []
    other.reload()
    assert other.observed.n == 0
    assert events_of(other, "newcomer") == ["i7", "i8"]
    with pytest.raises(DataError, match="nothing was observed since"):
        other.update()
    other.observe({"user": "newcomer", "item": "i9", "time": 70})
    assert in_log(folder) == [("newcomer", "i9", 70)]


def test_observed_rows_that_the_data_bring_are_counted_once(folder: Path) -> None:
    recommender = Recommender.load(folder)
    rows = [("u1", "i3", 50), ("u1", "i6", None), ("u2", "i1", None), ("u3", "i1", 40)]
    recommender.observe([{"user": user, "item": item, "time": time} for user, item, time in rows])
    recommender.update(table_of([("u1", "i3", 50), ("u1", "i6", 51)]))
    assert in_log(folder) == [("u2", "i1", None), ("u3", "i1", 40)]
    assert sorted(row[:2] for row in recommender.observed.rows()) == [("u2", "i1"), ("u3", "i1")]
    assert sorted(row[:2] for row in Recommender.load(folder).observed.rows()) == [("u2", "i1"), ("u3", "i1")]


def test_marks_stay(folder: Path) -> None:
    recommender = Recommender.load(folder)
    recommender.mark_sold(["i3"])
    recommender.update(table_of(NEW))
    recommender.mark_sold(["i17"])
    assert Recommender.load(folder).stock.marks == {"i3": "sold", "i17": "sold"}


def test_whoever_was_forgotten_stays_forgotten(folder: Path) -> None:
    recommender = Recommender.load(folder)
    recommender.forget("u1")
    with pytest.warns(UserWarning, match="1 user who was forgotten .* will be left out"):
        recommender.update(data_of(OLD + NEW, 18))
    assert "u1" not in recommender.fitted.encoder.user_ids
    recommender.observe([{"user": "u1", "item": "i3", "time": 500}, {"user": "u2", "item": "i3", "time": 500}])
    assert recommender.update().n_rows == 1
    assert [row[0] for row in recommender.observed.rows()] == ["u1"]  # who came back is a newcomer with what they did since
    assert "u1" not in Recommender.load(folder).fitted.encoder.user_ids
    recommender.forget("u12")
    assert events_of(Recommender.load(folder), "u2")[-1] == "i3"


def test_a_write_that_fails_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recommender = Recommender.load(folder)
    recommender.observe({"user": "u1", "item": "i3", "time": 50})
    before, on_disk = recommender.fitted, (folder / "run.json").read_bytes()

    def full(*args: Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("gmlfm.runs.generation.save_file", full)
    with pytest.raises(DataError, match="could not be written"):
        recommender.update()
    assert recommender.fitted is before
    assert recommender.observed.n == 1
    assert (folder / "run.json").read_bytes() == on_disk
    assert in_log(folder) == [("u1", "i3", 50)]


def test_no_observed_row_leaves_the_log_before_the_run_has_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recommender = Recommender.load(folder)
    recommender.observe({"user": "u1", "item": "i4", "time": 50})
    named: list[str] = []
    rename = os.replace

    def noted(source: Any, target: Any, **keywords: Any) -> None:
        named.append(Path(target).name)
        rename(source, target, **keywords)

    monkeypatch.setattr(os, "replace", noted)
    recommender.update()
    assert [name for name in named if name in ("run.json", EVENTS)] == ["run.json", EVENTS]


def test_an_interrupted_update_changes_nothing(folder: Path) -> None:
    recommender = Recommender.load(folder)
    before = recommender.fitted

    class Stops:
        def on_step(self, done: int, total: int, loss: float) -> None:
            pass

        def on_epoch(self, report: Any, trainer: Any) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recommender.update(table_of(NEW), observer=Stops())
    assert recommender.fitted is before


def test_a_run_that_is_changed_meanwhile_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recommender = Recommender.load(folder)
    whole = core.updated

    def forgetting(*args: Any) -> Any:
        result = whole(*args)
        recommender.forget("u3")
        return result

    monkeypatch.setattr(core, "updated", forgetting)
    with pytest.raises(DataError, match="was changed while it was being updated"):
        recommender.update(table_of(NEW))
    assert "u3" not in Recommender.load(folder).fitted.encoder.user_ids


def test_one_training_at_a_time_and_none_of_a_run_that_others_replaced(folder: Path) -> None:
    recommender, other = Recommender.load(folder), Recommender.load(folder)
    with training_lock(folder), pytest.raises(DataError, match="is being trained in"):
        recommender.update(table_of(NEW))
    other.update(table_of(NEW))
    with pytest.raises(DataError, match="was changed by somebody else"):
        recommender.update(table_of(NEW))


def test_a_training_does_not_go_on_over_an_update(folder: Path) -> None:
    Recommender.load(folder).update(table_of(NEW))
    with pytest.raises(DataError, match="was updated since it was trained"):
        Recommender("fm", history="last,recent,past", **WITH_HISTORY).fit(data_of(OLD), out=folder, resume=True)


def test_a_run_of_before_there_were_updates_loads(folder: Path) -> None:
    about = json.loads((folder / "run.json").read_text())
    assert about["updates"] == []


def test_data_that_update_cannot_read_are_refused(folder: Path, small_prepared: PreparedData) -> None:
    recommender = Recommender.load(folder)
    for data, message in ((7, "update takes a Dataset or a table of interactions, not 7"), (small_prepared, "is prepared")):
        with pytest.raises(OptionError, match=message):
            recommender.update(data)
    with pytest.raises(DataError, match="no row that the run does not have"):
        recommender.update(data_of(OLD))
    with pytest.raises(OptionError, match="not fitted"):
        Recommender("fm").update(data_of(OLD))


def test_a_run_of_a_prepared_folder_is_refused(small_prepared: PreparedData) -> None:
    recommender = Recommender("mf", k=4, epochs=1, threads=1).fit(small_prepared)
    with pytest.raises(OptionError, match="trained from a prepared folder"):
        recommender.update({"user": ["b1"], "item": ["t1"]})


def test_ids_of_a_large_update_are_the_callers(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recommender = Recommender.load(folder)
        recommender.update(table_of([(f"n{n}", f"i{n % 20}", 500 + n) for n in range(60)]))
    assert recommender.recommend(["n59"], 3)["known"].all()


def test_what_another_process_learned_counts_here_until_the_run_is_read_anew(folder: Path) -> None:
    service, other = Recommender.load(folder), Recommender.load(folder)
    other.observe([{"user": "u1", "item": "i4", "time": 50}, {"user": "visitor", "item": "i8"}])
    service.follow()
    other.update()
    service.follow()
    assert service.observed.n == 2
    assert events_of(service, "u1")[-1] != "i4"
    other.observe({"user": "u2", "item": "i5", "time": 80})
    assert service.observe({"user": "u3", "item": "i5", "time": 81}).n == 1
    assert service.observed.n == 4
    other.forget("visitor")
    service.follow()
    assert "visitor" not in service.observed
    assert service.observed.n == 3
    service.reload()
    assert sorted(row[0] for row in service.observed.rows()) == ["u2", "u3"]
    assert events_of(service, "u1")[-1] == "i4"


def test_observations_that_do_not_become_data_stay_observed(tmp_path: Path) -> None:
    table = table_of(OLD).with_columns(what_kind=pl.Series(["buy", "view"] * 36))
    spec = {**SCHEMA["interactions"], "event": "what_kind", "targets": ["buy"], "history_events": ["buy", "view"]}
    data = Dataset.from_tables(table, schema={"interactions": spec})
    recommender = Recommender("fm", **WITH_HISTORY).fit(data, out=tmp_path / "run")
    rows = [("u1", "i4", 50, "view"), ("u1", "i2", 51, "hover"), ("u2", "i2", 52, "buy")]
    columns = ("user", "item", "time", "event")
    with pytest.warns(UserWarning, match="'hover'; they are in neither"):
        recommender.observe([dict(zip(columns, row, strict=True)) for row in rows])
    report = recommender.update()
    assert (report.n_rows, report.n_history) == (1, 1)
    assert list(recommender.observed.rows()) == [rows[1]]
    assert in_log(tmp_path / "run") == [rows[1][:3]]


def test_who_was_forgotten_in_memory_does_not_come_back_with_an_export(tmp_path: Path) -> None:
    recommender = Recommender("fm", **WITH_HISTORY).fit(data_of(OLD))
    recommender.observe({"user": "visitor", "item": "i3"})
    recommender.forget("u1")
    recommender.forget("visitor")
    export = data_of([*OLD, *NEW, ("visitor", "i3", 90)], 18)
    with pytest.warns(
        UserWarning, match="2 users who were forgotten will be left out of the training; to train on all, fit anew"
    ):
        recommender.update(export)
    assert {"u1", "visitor"}.isdisjoint(recommender.fitted.encoder.user_ids)
    recommender.save(tmp_path / "run")
    log = (tmp_path / "run" / EVENTS).read_text()
    assert "u1" not in log
    with pytest.warns(UserWarning, match=r"2 users who were forgotten in .* will be left out"):
        Recommender.load(tmp_path / "run").update(data_of([*OLD, *NEW, ("visitor", "i3", 90), ("u5", "i9", 300)], 18))
    recommender.fit(data_of(OLD))
    assert recommender.update(table_of([("u1", "i16", 300)])).n_users == 0
    assert "u1" in recommender.fitted.encoder.user_ids
