from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.errors import DataError, OptionError
from tests.contracts.checkerboard import checkerboard

QUICK: dict[str, Any] = {"epochs": 6, "threads": 1, "k": 8, "lr": 0.02}


@pytest.fixture
def fitted(tmp_path: Path) -> Recommender:
    return Recommender(**QUICK).fit(checkerboard(), out=tmp_path / "run")


def test_a_sold_item_vanishes_at_once_and_comes_back(fitted: Recommender, tmp_path: Path) -> None:
    before = fitted.recommend(["u1"], 3)["item"].to_list()
    fitted.mark_sold(before[:1])
    assert fitted.recommend(["u1"], 2)["item"].to_list() == before[1:]
    again = Recommender.load(tmp_path / "run")  # written when marked, without save
    assert again.recommend(["u1"], 2)["item"].to_list() == before[1:]
    again.mark_back(before[:1])
    assert Recommender.load(tmp_path / "run").recommend(["u1"], 3)["item"].to_list() == before
    again.save(tmp_path / "copy")
    assert Recommender.load(tmp_path / "copy").recommend(["u1"], 3)["item"].to_list() == before
    with pytest.raises(DataError, match="nothing was marked"):
        again.mark_sold(["i1", "nothing"])
    assert again.recommend(["u1"], 3)["item"].to_list() == before


def test_a_line_cut_short_by_a_crash_does_not_count(fitted: Recommender, tmp_path: Path) -> None:
    fitted.mark_sold(["i1"])
    log = tmp_path / "run" / "model" / "stock.jsonl"
    log.write_text(log.read_text() + '["sold", ["i3"')
    again = Recommender.load(tmp_path / "run")
    assert not again.fitted.stock.here[1]
    again.mark_sold(["i5"])  # goes on a line of its own
    assert not Recommender.load(tmp_path / "run").fitted.stock.here[5]
    log.write_text("nonsense\n" + log.read_text())
    with pytest.raises(DataError, match="is damaged in line 1"):
        Recommender.load(tmp_path / "run")


def test_variety_is_kept_within_the_ranking(fitted: Recommender) -> None:
    table = fitted.recommend(["u1", "u2"], 6, at_most={"colour": 3})
    for user in ("u1", "u2"):
        items = table.filter(pl.col("user") == user)["item"].to_list()
        assert len(items) == 6
        assert sum(int(item[1:]) % 2 for item in items) == 3
    with pytest.raises(OptionError, match="no single-valued item field; did you mean 'colour'"):
        fitted.recommend(["u1"], at_most={"color": 2})
    with pytest.raises(OptionError, match="expected one field"):
        fitted.recommend(["u1"], at_most={"colour": 2, "price": 1})
    with pytest.raises(OptionError, match="at_most of 'colour' is 0"):
        fitted.recommend(["u1"], at_most={"colour": 0})


def test_new_items_enter_by_their_attributes(fitted: Recommender, tmp_path: Path) -> None:
    new = pl.DataFrame(
        {
            "item": ["n-red", "n-blue"],
            "colour": ["red", "blue"],
            "price": [3.0, 3.0],
            "tags": [["x", "red"], ["x", "blue"]],
        }
    )
    old = fitted.predict([("u1", "i1"), ("u2", "i7")])["score"].to_list()
    fitted.add_items(new)
    assert fitted.predict([("u1", "i1"), ("u2", "i7")])["score"].to_list() == pytest.approx(old, abs=1e-6)
    scores = {pair: score for pair, score in zip(
        [("u0", "n-red"), ("u0", "n-blue"), ("u1", "n-red"), ("u1", "n-blue")],
        fitted.predict([("u0", "n-red"), ("u0", "n-blue"), ("u1", "n-red"), ("u1", "n-blue")])["score"].to_list(),
        strict=True,
    )}  # fmt: skip
    assert scores["u0", "n-red"] > scores["u0", "n-blue"]
    assert scores["u1", "n-blue"] > scores["u1", "n-red"]
    assert {"n-red", "n-blue"} <= set(fitted.recommend(["u0"], 42)["item"])
    fitted.save(tmp_path / "grown")
    again = Recommender.load(tmp_path / "grown")
    assert again.recommend(["u0"], 9).equals(fitted.recommend(["u0"], 9))
    assert {"n-red", "n-blue"} <= set(again.recommend(["u0"], 42)["item"])


def test_new_items_that_do_not_fit_are_refused(fitted: Recommender) -> None:
    with pytest.raises(DataError, match="a column 'color', which the model does not know; did you mean 'colour'"):
        fitted.add_items(pl.DataFrame({"item": ["n"], "color": ["red"]}))
    with pytest.raises(DataError, match="no column 'item'"):
        fitted.add_items(pl.DataFrame({"colour": ["red"]}))
    with pytest.raises(DataError, match="'i1' is in the catalogue already"):
        fitted.add_items(pl.DataFrame({"item": ["i1"], "colour": ["red"], "price": [1.0], "tags": [["x"]]}))
    for nameless in ("", " ", None):
        with pytest.raises(DataError, match=r"row 2: the column 'item' is empty; every new item needs an id"):
            fitted.add_items(pl.DataFrame({"item": ["n", nameless], "colour": "red", "price": 1.0, "tags": [["x"], ["x"]]}))
    for endless in (float("inf"), float("-inf")):
        with pytest.raises(DataError, match="row 1: the column 'price' is infinite; give a finite number"):
            fitted.add_items(pl.DataFrame({"item": ["n"], "colour": ["red"], "price": [endless], "tags": [["x"]]}))
    assert len(fitted.fitted.data.items) == len(fitted.fitted.stock.here) == 42
    with pytest.warns(UserWarning, match="no column 'price'"):
        fitted.add_items(pl.DataFrame({"item": ["n"], "colour": ["red"], "tags": [["x"]]}))
    with pytest.raises(OptionError, match="knows items by their ids alone"):
        Recommender("mf", **QUICK).fit(checkerboard()).add_items(pl.DataFrame({"item": ["n"]}))


@pytest.mark.parametrize("name", ["gml-fm", "fm", "mf", "nfm", "deepfm", "ncf", "item-knn", "ease"])
def test_a_newcomer_is_known_by_what_she_chose(name: str) -> None:
    settings = {} if name in ("item-knn", "ease") else {**QUICK, "epochs": 15}
    recommender = Recommender(name, **settings).fit(checkerboard())
    for colour, history in ((0, ["i0", "i4", "i8", "i12"]), (1, ["i1", "i5", "i9", "i13"])):
        table = recommender.recommend_for({}, history=history, n=10)
        assert set(history).isdisjoint(table["item"].to_list())
        assert sum(int(item[1:]) % 2 == colour for item in table["item"]) >= 8
    # Somebody else asked in between changes nothing.
    assert recommender.recommend_for({}, history=["i1", "i5"], n=5).equals(
        recommender.recommend_for({}, history=["i1", "i5"], n=5)
    )


@pytest.mark.parametrize("name", ["gml-fm", "ngcf", "ease", "nfm"])
def test_a_forgotten_user_is_nowhere(name: str, tmp_path: Path) -> None:
    settings = {} if name == "ease" else {**QUICK, "epochs": 2}
    recommender = Recommender(name, **settings).fit(checkerboard(), out=tmp_path / "run", refit=True)
    others = recommender.predict([("u3", "i1"), ("u39", "i2")])["score"].to_list()
    weights = (tmp_path / "run" / "model" / "weights.safetensors").read_bytes()
    recommender.forget("u17")
    assert (tmp_path / "run" / "model" / "weights.safetensors").read_bytes() != weights
    for path in (tmp_path / "run").rglob("*"):
        if path.suffix == ".parquet":
            for column in pl.read_parquet(path).select(pl.col(pl.String)).iter_columns():
                assert "u17" not in column.to_list()
        elif path.is_file():
            assert b'"u17"' not in path.read_bytes()
    assert not list((tmp_path / "run").glob("checkpoints*/*"))
    again = Recommender.load(tmp_path / "run")
    for one in (recommender, again):
        assert one.recommend(["u17"], 3)["known"].to_list() == [False] * 3
        assert not np.isin("u17", one.fitted.data.users.ids.to_list())
        assert one.fitted.data.n_interactions == checkerboard().n_interactions - 19
    if name in ("gml-fm", "nfm"):  # a graph and a closed form do change for the others
        assert again.predict([("u3", "i1"), ("u39", "i2")])["score"].to_list() == pytest.approx(others, abs=1e-6)
    again.forget("u18")
    again.evaluate()
    with pytest.raises(DataError, match="is unknown already"):
        again.forget("u17")


def holders(folder: Path, user: str) -> list[Path]:
    """The files that name a user."""
    found = []
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            texts = pl.read_parquet(path).select(pl.col(pl.String)).iter_columns()
            found += [path] if any(user in column.to_list() for column in texts) else []
        elif path.is_file() and f'"{user}"'.encode() in path.read_bytes():
            found.append(path)
    return found


def test_forgetting_reaches_every_folder_that_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recommender = Recommender(**{**QUICK, "epochs": 1}).fit(checkerboard(), out="a")
    recommender.save(tmp_path / "b")
    before = Recommender.load("a").predict([("u3", "i1")])["score"].to_list()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert holders(tmp_path / "a", "u17")
    recommender.forget("u17")
    for name in ("a", "b"):
        assert holders(tmp_path / name, "u17") == []
        assert not list((tmp_path / name).glob("checkpoints*/*"))
        again = Recommender.load(tmp_path / name)
        assert again.predict([("u3", "i1")])["score"].to_list() == pytest.approx(before, abs=1e-6)
    with pytest.raises(DataError, match="is unknown already"):
        recommender.forget("u17")


def test_forgetting_changes_an_earlier_run_as_it_stands(tmp_path: Path) -> None:
    """The first folder holds other training and a user whom the second does not know."""
    board = checkerboard()
    recommender = Recommender(**{**QUICK, "epochs": 1}).fit(board, out=tmp_path / "a")
    first = Recommender.load(tmp_path / "a").predict([("u3", "i1")])["score"].to_list()
    others = Recommender(**{**QUICK, "epochs": 0}).fit(board)
    others.forget("u17")
    recommender.fit(others.fitted.data, out=tmp_path / "b")
    recommender.forget("u17")
    assert holders(tmp_path / "a", "u17") == []
    assert Recommender.load(tmp_path / "a").predict([("u3", "i1")])["score"].to_list() == pytest.approx(first, abs=1e-6)


def test_checkpoints_of_a_training_that_never_ended_are_named(tmp_path: Path) -> None:
    class Impatient:
        def on_step(self, *_: Any) -> None: ...

        def on_epoch(self, *_: Any) -> None:
            raise KeyboardInterrupt

    recommender = Recommender(**{**QUICK, "epochs": 2})
    with pytest.raises(KeyboardInterrupt):
        recommender.fit(checkerboard(), out=tmp_path / "a", observer=Impatient())
    recommender.fit(checkerboard(), out=tmp_path / "b")
    with pytest.warns(UserWarning, match="a may still hold the user 'u17'"):
        recommender.forget("u17")


def test_a_folder_that_cannot_be_changed_is_named(tmp_path: Path) -> None:
    recommender = Recommender(**{**QUICK, "epochs": 1}).fit(checkerboard(), out=tmp_path / "a")
    for name in ("b", "c"):
        recommender.save(tmp_path / name)
    (tmp_path / "a" / "model" / "run.json").write_text("nonsense")
    shutil.rmtree(tmp_path / "b")
    with pytest.warns(UserWarning, match=r"a may still hold the user 'u17' .* and should be deleted") as told:
        recommender.forget("u17")
    assert len(told) == 1
    assert not (tmp_path / "b").exists()
    assert holders(tmp_path / "c", "u17") == []


def test_forgetting_where_users_have_no_fields_and_an_only_owner() -> None:
    rows = [(f"u{n % 5}", f"i{n % 7}") for n in range(35)] + [("z", "only hers")]
    table = pl.DataFrame(rows, schema=["u", "i"], orient="row")
    data = Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i"}})
    recommender = Recommender(k=4, epochs=1, threads=1).fit(data, split="none")
    before = recommender.recommend(["u1"], 8, seen=True)["item"].to_list()
    recommender.forget("z")
    assert sorted(recommender.recommend(["u1"], 8, seen=True)["item"].to_list()) == sorted(before)
    for user in ("u0", "u1", "u2", "u3", "u4"):
        recommender.forget(user)
    assert recommender.recommend(["u1"], 3)["known"].to_list() == [False] * 3


def test_a_forgotten_users_neighbours_keep_their_own_scores(tmp_path: Path) -> None:
    recommender = Recommender("mamo", "rating", k=4, epochs=1).fit(checkerboard(), out=tmp_path / "run")
    others = [("u1", "i1"), ("u2", "i2"), ("u39", "i3")]
    before = recommender.predict(others)["score"].to_list()
    recommender.forget("u0")
    assert recommender.predict(others)["score"].to_list() == pytest.approx(before, abs=1e-5)
    assert Recommender.load(tmp_path / "run").predict(others)["score"].to_list() == pytest.approx(before, abs=1e-5)


def test_a_history_without_effect_is_told_of() -> None:
    recommender = Recommender("ngcf", k=4, epochs=1).fit(checkerboard())
    with pytest.warns(UserWarning, match="cannot learn from a history"):
        recommender.recommend_for({}, history=["i1"], n=2)


def test_marks_reach_items_that_come_later(fitted: Recommender, tmp_path: Path) -> None:
    new = pl.DataFrame({"item": ["n"], "colour": ["red"], "price": [1.0], "tags": [["x"]]})
    fitted.add_items(new)
    fitted.mark_sold("n")
    again = Recommender.load(tmp_path / "run")
    again.add_items(new)
    assert "n" not in again.recommend(["u0"], 40)["item"].to_list()


def test_forgetting_keeps_what_was_learned_from_the_test_rows() -> None:
    """A run refitted on all rows still knows the others' last purchases after somebody is forgotten."""
    recommender = Recommender("ease").fit(checkerboard(), refit="all")
    others = [(f"u{user}", f"i{item}") for user in (1, 2, 39) for item in range(40)]
    before = recommender.predict(others)["score"].to_numpy()
    recommender.forget("u17")
    fresh = Recommender("ease").fit(recommender.fitted.data, refit="all").predict(others)["score"].to_numpy()
    np.testing.assert_allclose(recommender.predict(others)["score"].to_numpy(), fresh, atol=1e-5)
    assert np.abs(before - fresh).max() > 1e-4
