from __future__ import annotations

import shutil
from dataclasses import FrozenInstanceError, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from gmlfm import Dataset, Recommender
from gmlfm.errors import DataError, OptionError
from gmlfm.fitting import FittedRun
from gmlfm.fitting.forgetting import without_user
from gmlfm.recommender.changes import with_items
from gmlfm.runs import model_folder
from tests.recommender.conftest import QUICK

NEW = pl.DataFrame(
    {"item": ["n-red", "n-blue"], "colour": ["red", "blue"], "price": [3.0, 3.0], "tags": [["x", "red"], ["x", "blue"]]}
)
# A name for each way in which a model forgets: rows, histories alone, a graph, a fit in closed form, adaptation to ratings.
FORGETTING: dict[str, dict[str, Any]] = {
    "gml-fm": {**QUICK, "epochs": 2, "history": "none"},
    "fm": {**QUICK, "epochs": 2, "history": "auto"},
    "nfm": {**QUICK, "epochs": 2},
    "ngcf": {"k": 8, "epochs": 2, "threads": 1, "lr": 0.02},
    "ease": {},
    "item-knn": {},
    "popularity": {},
    "mamo": {"k": 4, "epochs": 1},
}


def _fitted(name: str, data: Dataset, **more: Any) -> Recommender:
    return Recommender(name, "rating" if name == "mamo" else "topn", **FORGETTING[name]).fit(data, **more)


def _content(run: FittedRun) -> dict[str, Any]:
    """What a run consists of, in copies."""
    users, items = np.arange(len(run.data.users), dtype=np.int32), np.arange(len(run.data.items), dtype=np.int32)
    return {
        "scores": run.ranker.score_all(users, items).tobytes(),
        "pairs": run.ranker.score_pairs(users, items[None, :5].repeat(len(users), 0)).tobytes(),
        "weights": {name: tensor.numpy().tobytes() for name, tensor in run.model.state_dict().items()},
        "users": run.data.users.ids.to_list(),
        "items": run.data.items.ids.to_list(),
        "interactions": run.data.interactions.to_dict(as_series=False),
        "user ids": [values.to_list() for values in (run.encoder.user_ids, run.encoder.item_ids, *run.encoder.values)],
        "encoded": [side.ids.tobytes() + side.values.tobytes() for side in (run.encoded.user, run.encoded.item)],
        "split": [rows.tolist() for rows in (run.split.train, run.split.validation, run.split.test)],
        "extra_items": run.extra_items,
    }


@pytest.mark.parametrize("name", FORGETTING)
def test_a_run_stays_as_it_was_when_another_is_made_of_it(name: str, board: Dataset) -> None:
    recommender = _fitted(name, board)
    before = recommender.fitted
    content = _content(before)
    recommender.forget("u17")
    assert recommender.fitted is not before
    assert len(recommender.fitted.data.users) == 39
    assert _content(before) == content
    after_forgetting = recommender.fitted
    content_after_forgetting = _content(after_forgetting)
    if before.model.inputs.attributes:
        recommender.add_items(NEW)
        assert len(recommender.fitted.data.items) == 44
        assert _content(with_items(before, NEW))["items"][:42] == content["items"]
    recommender.forget("u18")
    _content(recommender.fitted)  # scoring the new one, with all that it keeps between calls
    assert _content(after_forgetting) == content_after_forgetting
    assert _content(before) == content


def test_new_items_leave_the_stock_and_the_catalogue_before_alone(own_run: Recommender) -> None:
    own_run.mark_sold(["i1"])
    run, stock = own_run.fitted, own_run.stock
    own_run.add_items(NEW)
    own_run.mark_sold(["n-red"])
    own_run.mark_back(["i1"])
    assert (len(run.data.items), len(run.encoder.item_ids), len(run.encoded.item)) == (42, 42, 42)
    assert len(stock.is_available) == 42
    assert np.flatnonzero(~stock.is_available).tolist() == [1]
    assert np.flatnonzero(~own_run.stock.is_available).tolist() == [42]
    assert stock.marks == {"i1": "sold"}


def test_a_run_cannot_be_written_to(trained: Recommender) -> None:
    assert is_dataclass(FittedRun)
    with pytest.raises(FrozenInstanceError):
        trained.fitted.model = None  # type: ignore[misc,assignment]
    with pytest.raises(FrozenInstanceError):
        trained.fitted.report.best_epoch = 7  # type: ignore[misc]


def test_the_loaded_weights_are_the_loaded_runs_alone(run_folder: Path, trained: Recommender) -> None:
    """Two loads share no tensor, and forgetting in one leaves the other alone."""
    content = _content(trained.fitted)
    other = Recommender.load(run_folder)
    for name, tensor in other.fitted.model.state_dict().items():
        assert tensor.data_ptr() != trained.fitted.model.state_dict()[name].data_ptr() or tensor.numel() == 0
    assert _content(without_user(other.fitted, "u3"))["scores"] != content["scores"]
    assert _content(trained.fitted) == content


@pytest.mark.parametrize("name", ["gml-fm", "nfm", "ngcf"])
def test_weights_loaded_into_the_new_run_are_not_the_old_runs(name: str, board: Dataset) -> None:
    before = _fitted(name, board).fitted
    content = _content(before)
    made = [without_user(before, "u17"), *([with_items(before, NEW)] if before.model.inputs.attributes else [])]
    for run in made:
        run.model.load_state_dict({key: torch.zeros_like(tensor) for key, tensor in run.model.state_dict().items()})
    assert _content(before) == content


def test_new_items_enter_by_their_attributes(own_run: Recommender, tmp_path: Path) -> None:
    pairs = [("u1", "i1"), ("u2", "i7")]
    before = own_run.predict(pairs)["score"].to_list()
    own_run.add_items(NEW)
    assert own_run.predict(pairs)["score"].to_list() == pytest.approx(before, abs=1e-6)
    new_pairs = [("u0", "n-red"), ("u0", "n-blue"), ("u1", "n-red"), ("u1", "n-blue")]
    scores = dict(zip(new_pairs, own_run.predict(new_pairs)["score"].to_list(), strict=True))
    assert scores["u0", "n-red"] > scores["u0", "n-blue"]
    assert scores["u1", "n-blue"] > scores["u1", "n-red"]
    assert {"n-red", "n-blue"} <= set(own_run.recommend(["u0"], 42)["item"])
    own_run.save(tmp_path / "grown")
    loaded = Recommender.load(tmp_path / "grown")
    assert loaded.recommend(["u0"], 9).equals(own_run.recommend(["u0"], 9))
    assert {"n-red", "n-blue"} <= set(loaded.recommend(["u0"], 42)["item"])


def test_new_items_that_do_not_fit_are_refused(own_run: Recommender, board: Dataset) -> None:
    with pytest.raises(DataError, match="no column 'item'"):
        own_run.add_items(pl.DataFrame({"colour": ["red"]}))
    with pytest.raises(DataError, match=r"'i1' is in the catalogue already; leave it out, or change it with update=True"):
        own_run.add_items(pl.DataFrame({"item": ["i1"], "colour": ["red"], "price": [1.0], "tags": [["x"]]}))
    for update in (False, True):
        with pytest.raises(DataError, match="'n' comes twice among the new items; give it once"):
            own_run.add_items(
                pl.DataFrame({"item": ["n", "n"], "colour": "red", "price": 1.0, "tags": [["x"], ["x"]]}), update=update
            )
    for nameless in ("", " ", None):
        with pytest.raises(DataError, match=r"row 2: the column 'item' is empty; every new item needs an id"):
            own_run.add_items(pl.DataFrame({"item": ["n", nameless], "colour": "red", "price": 1.0, "tags": [["x"], ["x"]]}))
    for endless in (float("inf"), float("-inf")):
        with pytest.raises(DataError, match="row 1: the column 'price' is infinite; give a finite number"):
            own_run.add_items(pl.DataFrame({"item": ["n"], "colour": ["red"], "price": [endless], "tags": [["x"]]}))
    assert len(own_run.fitted.data.items) == len(own_run.stock.is_available) == 42
    with pytest.warns(UserWarning, match="no column 'price'"):
        own_run.add_items(pl.DataFrame({"item": ["n"], "colour": ["red"], "tags": [["x"]]}))
    with pytest.raises(OptionError, match="knows items by their ids alone"):
        Recommender("mf", **{**QUICK, "epochs": 1}).fit(board).add_items(pl.DataFrame({"item": ["n"]}))


def _files_with(folder: Path, user: str) -> list[Path]:
    """The files that name a user."""
    paths = []
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            columns = pl.read_parquet(path).select(pl.col(pl.String)).iter_columns()
            paths += [path] if any(user in column.to_list() for column in columns) else []
        elif path.is_file() and f'"{user}"'.encode() in path.read_bytes():
            paths.append(path)
    return paths


@pytest.mark.parametrize("name", ["gml-fm", "ngcf", "ease", "nfm"])
def test_a_forgotten_user_is_nowhere(name: str, board: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    recommender = _fitted(name, board, out=folder, refit=True)
    others = recommender.predict([("u3", "i1"), ("u39", "i2")])["score"].to_list()
    weights = (model_folder(folder) / "weights.safetensors").read_bytes()
    assert _files_with(folder, "u17")
    recommender.forget("u17")
    assert (model_folder(folder) / "weights.safetensors").read_bytes() != weights
    assert _files_with(folder, "u17") == []
    assert not list(folder.glob("checkpoints*/*"))
    loaded = Recommender.load(folder)
    for run in (recommender, loaded):
        assert run.recommend(["u17"], 3)["known"].to_list() == [False] * 3
        assert not np.isin("u17", run.fitted.data.users.ids.to_list())
        assert run.fitted.data.n_interactions == board.n_interactions - 19
    if name in ("gml-fm", "nfm"):  # a graph and a closed form do change for the others
        assert loaded.predict([("u3", "i1"), ("u39", "i2")])["score"].to_list() == pytest.approx(others, abs=1e-6)
    loaded.forget("u18")
    loaded.evaluate()
    with pytest.raises(DataError, match="is unknown already"):
        loaded.forget("u17")


def test_forgetting_reaches_every_folder_that_was_written(
    board: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recommender = Recommender(**{**QUICK, "epochs": 1}).fit(board, out="a")
    recommender.save(tmp_path / "b")
    before = Recommender.load("a").predict([("u3", "i1")])["score"].to_list()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert _files_with(tmp_path / "a", "u17")
    recommender.forget("u17")
    for name in ("a", "b"):
        assert _files_with(tmp_path / name, "u17") == []
        assert not list((tmp_path / name).glob("checkpoints*/*"))
        loaded = Recommender.load(tmp_path / name)
        assert loaded.predict([("u3", "i1")])["score"].to_list() == pytest.approx(before, abs=1e-6)
    with pytest.raises(DataError, match="is unknown already"):
        recommender.forget("u17")


def test_forgetting_changes_an_earlier_run_as_it_stands(board: Dataset, tmp_path: Path) -> None:
    """The first folder holds other training and a user whom the second does not know."""
    recommender = Recommender(**{**QUICK, "epochs": 1}).fit(board, out=tmp_path / "a")
    scores = Recommender.load(tmp_path / "a").predict([("u3", "i1")])["score"].to_list()
    others = Recommender(**{**QUICK, "epochs": 0}).fit(board)
    others.forget("u17")
    recommender.fit(others.fitted.data, out=tmp_path / "b")
    recommender.forget("u17")
    assert _files_with(tmp_path / "a", "u17") == []
    assert Recommender.load(tmp_path / "a").predict([("u3", "i1")])["score"].to_list() == pytest.approx(scores, abs=1e-6)


def test_a_training_that_never_ended_forgets_too(board: Dataset, tmp_path: Path) -> None:
    class Interrupting:
        def on_step(self, *_: Any) -> None: ...

        def on_epoch(self, *_: Any) -> None:
            raise KeyboardInterrupt

    recommender = Recommender(**{**QUICK, "epochs": 2})
    with pytest.raises(KeyboardInterrupt, match="the best epoch so far, 1, is kept"):
        recommender.fit(board, out=tmp_path / "a", observer=Interrupting())
    (tmp_path / "a" / "run.json").unlink()  # killed before it could be saved
    recommender.fit(board, out=tmp_path / "b")
    recommender.forget("u17")
    assert not list(tmp_path.glob("a/checkpoints*/*"))
    with pytest.warns(UserWarning, match=r"1 user who was forgotten in .*a will be left out of its training"):
        resumed = Recommender(**{**QUICK, "epochs": 2}).fit(board, out=tmp_path / "a", resume=True)
    assert resumed.fitted.encoder.user_numbers(["u17"])[0] < 0
    assert _files_with(tmp_path, "u17") == []


def test_a_folder_that_cannot_be_changed_is_named(own_run: Recommender, own_folder: Path, tmp_path: Path) -> None:
    for name in ("b", "c"):
        own_run.save(tmp_path / name)
    (own_folder / "run.json").write_text("nonsense")
    shutil.rmtree(tmp_path / "b")
    with pytest.warns(UserWarning, match=r"run may still hold the user 'u17' .* and should be deleted") as caught:
        own_run.forget("u17")
    assert len(caught) == 1
    assert not (tmp_path / "b").exists()
    assert _files_with(tmp_path / "c", "u17") == []


def test_forgetting_where_users_have_no_fields_and_an_only_owner() -> None:
    rows = [(f"u{n % 5}", f"i{n % 7}") for n in range(35)] + [("z", "only theirs")]
    table = pl.DataFrame(rows, schema=["u", "i"], orient="row")
    data = Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i"}})
    recommender = Recommender(k=4, epochs=1, threads=1).fit(data, split="none")
    before = recommender.recommend(["u1"], 8, seen=True)["item"].to_list()
    recommender.forget("z")
    assert sorted(recommender.recommend(["u1"], 8, seen=True)["item"].to_list()) == sorted(before)
    for user in ("u0", "u1", "u2", "u3", "u4"):
        recommender.forget(user)
    assert recommender.recommend(["u1"], 3)["known"].to_list() == [False] * 3


def test_a_forgotten_users_neighbours_keep_their_scores(board: Dataset, tmp_path: Path) -> None:
    recommender = _fitted("mamo", board, out=tmp_path / "run")
    others = [("u1", "i1"), ("u2", "i2"), ("u39", "i3")]
    before = recommender.predict(others)["score"].to_list()
    recommender.forget("u0")
    assert recommender.predict(others)["score"].to_list() == pytest.approx(before, abs=1e-5)
    assert Recommender.load(tmp_path / "run").predict(others)["score"].to_list() == pytest.approx(before, abs=1e-5)


def test_forgetting_keeps_what_was_learned_from_the_test_rows(board: Dataset) -> None:
    """A run refitted on all rows still knows the others' last purchases after somebody is forgotten."""
    recommender = Recommender("ease").fit(board, refit="all")
    others = [(f"u{user}", f"i{item}") for user in (1, 2, 39) for item in range(40)]
    before = recommender.predict(others)["score"].to_numpy()
    recommender.forget("u17")
    fresh = Recommender("ease").fit(recommender.fitted.data, refit="all").predict(others)["score"].to_numpy()
    np.testing.assert_allclose(recommender.predict(others)["score"].to_numpy(), fresh, atol=1e-5)
    assert np.abs(before - fresh).max() > 1e-4


def test_a_forgotten_users_candidate_lists_are_forgotten_too(board: Dataset, tmp_path: Path) -> None:
    pairs = {"user": ["u1", "u17", "u2"], "item": [_last_item(board, user) for user in ("u1", "u17", "u2")]}
    lists = pl.DataFrame({**pairs, "candidate": ["i40", "i41", "i40"]})
    files = {"test": pl.DataFrame(pairs), "test_candidates": lists}
    recommender = Recommender("popularity").fit(board, "files", split_options=files, out=tmp_path / "run")
    recommender.forget("u17")
    for run in (recommender.fitted, Recommender.load(tmp_path / "run").fitted):
        owners = run.data.users.ids.gather(run.data.user_numbers[run.split.test]).to_list()
        assert owners == ["u1", "u2"]
        assert run.split.test_candidates is not None
        assert run.data.items.ids.gather(run.split.test_candidates[:, 0]).to_list() == ["i40", "i40"]


def _last_item(data: Dataset, user: str) -> str:
    number = data.users.ids.to_list().index(user)
    rows = data.positive_rows[data.user_numbers[data.positive_rows] == number]
    return str(data.items.ids[int(data.item_numbers[rows[-1]])])


def test_a_run_of_drawn_instances_cannot_forget(board: Dataset) -> None:
    recommender = Recommender("mf", "implicit", k=4, epochs=1, threads=1).fit(board)
    with pytest.raises(OptionError, match="draws its instances from all users again; train it anew"):
        recommender.forget("u17")


def test_columns_that_the_model_does_not_know_are_left_out_with_a_note(own_run: Recommender) -> None:
    more = NEW.with_columns(color=pl.lit("red"), warehouse=pl.lit(3))
    with pytest.warns(UserWarning, match="which the model does not know") as noted:
        own_run.add_items(more)
    assert [str(warning.message) for warning in noted] == [
        "the new items have a column 'color', which the model does not know: it is left out; did you mean 'colour'?",
        "the new items have a column 'warehouse', which the model does not know: it is left out.",
    ]
    fields = own_run.fitted.data.items.fields
    assert fields.columns == ["colour", "price", "tags"]
    assert fields.tail(2)["colour"].to_list() == NEW["colour"].to_list()


def test_items_of_the_catalogue_take_over_the_columns_of_the_table(own_run: Recommender, tmp_path: Path) -> None:
    before, ids = own_run.fitted.data.items.fields, own_run.fitted.data.items.ids.to_list()
    pairs = [("u0", "i1"), ("u0", "i4"), ("u0", "i7")]
    scores = own_run.predict(pairs)["score"].to_list()
    table = pl.DataFrame({"item": ["n", "i7", "i1"], "colour": ["blue", None, "red"], "tags": [["x"], ["x", "blue"], ["red"]]})
    with pytest.warns(UserWarning, match="no column 'price'; it counts as missing"):
        own_run.add_items(table, update=True)
    side = own_run.fitted.data.items
    assert side.ids.to_list() == [*ids, "n"]
    rows = {item: row for item, row in zip(side.ids.to_list(), side.fields.rows(named=True), strict=True)}
    assert rows["i1"] == {"colour": "red", "price": 1.0, "tags": ["red"]}  # the price stays
    assert rows["i7"] == {"colour": None, "price": 0.0, "tags": ["x", "blue"]}
    assert rows["n"] == {"colour": "blue", "price": None, "tags": ["x"]}
    others = [number for number, item in enumerate(ids) if item not in ("i1", "i7")]
    assert side.fields[others].equals(before[others])
    after = own_run.predict(pairs)["score"].to_list()
    assert after[0] > scores[0] + 0.01  # u0 likes red
    assert after[1] == pytest.approx(scores[1], abs=1e-6)
    assert own_run.stock.is_available.all()
    assert "n" in own_run.recommend(["u0"], 43, candidates="catalogue")["item"].to_list()
    own_run.save(tmp_path / "changed")
    assert Recommender.load(tmp_path / "changed").predict(pairs)["score"].to_list() == pytest.approx(after, abs=1e-6)


def test_an_update_of_known_items_alone_adds_none_and_misses_no_column(own_run: Recommender) -> None:
    own_run.add_items(pl.DataFrame({"item": ["i1"], "price": [99.0]}), update=True)  # warnings are errors here
    side = own_run.fitted.data.items
    assert len(side) == len(own_run.stock.is_available) == 42
    assert side.fields["price"][1] == 99.0
    assert own_run.fitted.extra_items == ()


@pytest.mark.parametrize(
    ("texts", "prices"), [(["13,40", "7"], [13.4, 7.0]), (["13.40", "7"], [13.4, 7.0]), (["0,5", None], [0.5, None])]
)
def test_a_file_with_decimal_commas_is_understood(
    texts: list[str | None], prices: list[float | None], own_run: Recommender
) -> None:
    own_run.add_items(NEW.with_columns(price=pl.Series(texts)))
    assert own_run.fitted.data.items.fields["price"].tail(2).to_list() == prices
    with pytest.raises(DataError, match="holds '1,000' where a number was expected"):  # a thousand, or one
        own_run.add_items(NEW.with_columns(price=pl.Series(["1,000", "2,000"]), item=pl.Series(["a", "b"])))
