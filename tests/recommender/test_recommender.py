from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from gmlfm.errors import DataError, GmlfmError, OptionError
from gmlfm.training.loop import DivergedError, Trainer
from gmlfm.training.sampling.batches import BatchOptions
from tests.contracts.checkerboard import checkerboard

QUICK: dict[str, Any] = {"k": 8, "epochs": 3, "batch_size": 64, "lr": 0.02, "n_negatives": 2, "threads": 1}


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    return Recommender(**QUICK).fit(checkerboard())


def test_seen_items_are_left_out_unless_asked_for(fitted: Recommender) -> None:
    data = fitted.fitted.data
    had = {
        data.items.ids[int(item)]
        for item in data.item_numbers[(data.user_numbers == 1) & data.interactions["positive"].to_numpy()]
    }
    assert had.isdisjoint(fitted.recommend(["u1"], 20)["item"].to_list())
    assert not had.isdisjoint(fitted.recommend(["u1"], 40, seen=True)["item"].to_list())


def test_the_best_come_first_and_are_the_best(fitted: Recommender) -> None:
    table = fitted.recommend(["u1", "u2"], 7)
    assert table.columns[:4] == ["user", "item", "score", "rank"]
    assert table["rank"].to_list() == [*range(1, 8)] * 2
    for user in ("u1", "u2"):
        scores = table.filter(pl.col("user") == user)["score"].to_list()
        assert scores == sorted(scores, reverse=True)
    score_all = fitted.recommend(["u1"], 40, seen=True)
    left = score_all.filter(~pl.col("item").is_in(_had(fitted, 1)))
    assert table.filter(pl.col("user") == "u1")["item"].to_list() == left["item"].to_list()[:7]


def _had(recommender: Recommender, user: int) -> list[str]:
    data = recommender.fitted.data
    mine = (data.user_numbers == user) & data.interactions["positive"].to_numpy()
    return [data.items.ids[int(item)] for item in data.item_numbers[mine]]


def test_filter_and_available_narrow_before_ranking(fitted: Recommender) -> None:
    red = fitted.recommend(["u1"], 8, filter="colour = 'red' and price < 4")
    assert red.height == 8
    assert all(int(item[1:]) % 2 == 0 for item in red["item"])
    assert set(fitted.recommend(["u1"], 2, available=["i0", "i2"])["item"]) <= {"i0", "i2"}
    with pytest.raises(DataError, match="no item is left"):
        fitted.recommend(["u1"], 3, filter="price > 99")
    with pytest.raises(GmlfmError, match="expects a number or a text in quotes at position 8"):
        fitted.recommend(["u1"], 3, filter="price >")
    with pytest.raises(GmlfmError, match="no column 'prise', which filter names; did you mean 'price'"):
        fitted.recommend(["u1"], 3, filter="prise > 1")


def test_available_items_that_are_unknown_are_told_of(fitted: Recommender) -> None:
    with pytest.warns(UserWarning, match="2 of the 4 available items are not in the catalogue, the first 'gone'") as told:
        found = fitted.recommend(["u1"], 2, available=["i3", "gone", "i5", "lost"], seen=True)
    assert set(found["item"]) == {"i3", "i5"}
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("first", "dtype"), [(0, pl.Int64), (2**63 + 11, pl.UInt64), (-(2**63) - 40, pl.Int128), ("n", pl.String)]
)
def test_ids_come_back_in_the_type_of_the_data(first: int | str, dtype: type[pl.DataType], tmp_path: Path) -> None:
    """Whatever type the ids are asked in, users and items alike."""
    ids = [f"{first}{at}" for at in range(12)] if isinstance(first, str) else [first + at for at in range(12)]
    bought = [(ids[user], ids[(user + step) % 12], step) for user in range(12) for step in range(4)]
    table = pl.DataFrame(bought, schema={"user": dtype, "item": dtype, "time": pl.Int64}, orient="row")
    listed = pl.DataFrame({"item": pl.Series(ids, dtype=dtype), "kind": ["a", "b"] * 6})
    schema = {
        "name": "ids",
        "interactions": {"user": "user", "item": "item", "time": "time"},
        "items": {"id": "item", "fields": {"kind": "category"}},
    }
    trained = Recommender(**{**QUICK, "epochs": 1}).fit(Dataset.from_tables(table, None, listed, schema=schema))
    trained.save(tmp_path / "run")
    for one in (trained, Recommender.load(tmp_path / "run")):
        for asked in (ids[3], str(ids[3])):
            found = one.recommend([asked], 2)
            assert (found["user"].dtype, found["item"].dtype) == (dtype, dtype)
            assert found["user"].to_list() == [ids[3]] * 2
            assert set(found["item"]) <= set(ids)
        assert one.recommend_for({}, n=2)["user"].dtype == dtype
        assert one.similar_users(ids[3], 2)["user"].dtype == dtype


def test_a_user_who_cannot_be_of_the_datas_type_comes_back_as_text() -> None:
    table = pl.DataFrame({"user": [1, 1, 1, 2, 2, 2] * 2, "item": [1, 2, 3, 4, 5, 6] * 2, "time": range(12)})
    schema = {"name": "n", "interactions": {"user": "user", "item": "item", "time": "time"}}
    trained = Recommender("popularity").fit(Dataset.from_tables(table, schema=schema), split="none")
    asked = [1] * 600 + ["a stranger"]  # more than one block of users
    found = trained.recommend(asked, 1)
    assert found["user"].to_list() == [str(one) for one in asked]
    assert found["item"].dtype == pl.Int64
    assert trained.recommend([1, 7], 1)["user"].to_list() == [1, 7]


def test_more_items_than_exist_gives_all_and_says_so(fitted: Recommender) -> None:
    with pytest.warns(UserWarning, match="only 40 items can be recommended"):
        assert fitted.recommend(["nobody"], 100).height == 40
    with pytest.raises(OptionError, match="n is 0"):
        fitted.recommend(["u1"], 0)


def test_a_newcomer_is_served_from_her_attributes(fitted: Recommender) -> None:
    table = fitted.recommend_for({"team": "red"}, history=["i0"], n=5)
    assert "i0" not in table["item"].to_list()
    with pytest.warns(UserWarning, match="user.team = 'green' was never met"):
        fitted.recommend_for({"team": "green"}, n=2)
    with pytest.warns(UserWarning, match="the item 'zzz' of the history is unknown"):
        fitted.recommend_for({}, history=["zzz"], n=2)
    with pytest.raises(OptionError, match="no user field 'taem'; did you mean 'team'"):
        fitted.recommend_for({"taem": "red"})


def test_refit_trains_again_on_more_rows() -> None:
    data = checkerboard()
    plain, again, score_all = (Recommender(**QUICK).fit(data, refit=refit) for refit in (False, True, "all"))
    assert again.fitted.best_epoch == plain.fitted.best_epoch
    assert not np.array_equal(
        plain.fitted.weights["table"].numpy(), again.fitted.weights["table"].numpy()[: len(plain.fitted.weights["table"])]
    )
    assert [one.fitted.regime for one in (plain, again, score_all)] == [
        "no refit",
        "refit on train + validation",
        "refit on all rows",
    ]
    with pytest.raises(OptionError, match="refit is 'some'"):
        Recommender(**QUICK).fit(data, refit="some")


def test_context_is_learned_and_asked_for() -> None:
    rows = [(f"u{n % 10}", f"i{(n * 7) % 12}", ("web", "app")[n % 2]) for n in range(120)]
    table = pl.DataFrame(rows, schema=["u", "i", "on"], orient="row")
    data = Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i", "context": {"on": "category"}}})
    recommender = Recommender(**QUICK).fit(data)
    one, two = (
        recommender.recommend(["u1"], 3, context={"on": value}, seen=True)["score"].to_list() for value in ("web", "app")
    )
    assert one != two
    assert recommender.recommend(["u1"], 3, seen=True).height == 3
    with pytest.raises(OptionError, match="no context field 'onn'"):
        recommender.recommend(["u1"], 3, context={"onn": "web"})


def test_early_stopping_keeps_the_best_epoch() -> None:
    recommender = Recommender(**{**QUICK, "epochs": 12, "patience": 2}).fit(checkerboard())
    history = recommender.fitted.history
    best = max(history, key=lambda one: one["validation"]["ndcg@10"])
    assert recommender.fitted.best_epoch == best["epoch"]
    assert recommender.fitted.validation == best["validation"]
    assert recommender.fitted.validation_protocol == "full"  # forty items leave nobody 99
    found = recommender.evaluate(protocol="full", part="validation")
    assert found.metrics["ndcg@10"] == pytest.approx(best["validation"]["ndcg@10"])


def test_ids_hidden_in_training_move_the_unknown_rows() -> None:
    data = checkerboard()
    for cold_start_rate, moves in ((0.0, False), (0.3, True)):
        recommender = Recommender(**{**QUICK, "cold_start_rate": cold_start_rate}).fit(data, "none")
        encoder = recommender.fitted.encoder
        before = recommender.settings.build().initial_rows(encoder.n_rows, __import__("torch").Generator().manual_seed(0))
        for part in ("user", "item"):
            row = encoder.part(part)[0].unknown_row  # type: ignore[arg-type]
            same = bool((recommender.fitted.weights["table"][row] == before[row]).all())
            assert same != moves


def test_an_item_without_a_positive_never_trains_the_unknown_row() -> None:
    """Drawn as a negative it updates its attributes alone (checked without hiding, so that nothing else moves the row)."""
    table = pl.DataFrame({"u": ["a", "a", "b", "b", "b"], "i": ["w", "x", "w", "y", "z"]})
    data = Dataset.from_tables(table, schema={"interactions": {"user": "u", "item": "i"}})
    recommender = Recommender(**{**QUICK, "cold_start_rate": 0.0, "epochs": 5}).fit(data)
    encoder = recommender.fitted.encoder
    unknown = encoder.part("item")[0].unknown_row
    assert (recommender.fitted.encoded.item.ids[:, 0] == unknown).sum() == 2
    before = recommender.settings.build().initial_rows(encoder.n_rows, __import__("torch").Generator().manual_seed(0))
    assert (recommender.fitted.weights["table"][unknown] == before[unknown]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lrr": 0.1}, "unknown setting 'lrr' for the model 'gml-fm'; did you mean 'lr'"),
        ({"lr": -1}, "lr is -1"),
        ({"lr": "fast"}, "lr is 'fast'; expected a number"),
        ({"k": 2.5}, "k is 2.5; expected a whole number"),
        ({"epochs": -1}, "epochs is -1"),
        ({"cold_start_rate": 1.0}, "hide is 1.0"),
        ({"negatives": 0}, "set negatives to 1 or more"),
        ({"loss": "hinge"}, "loss is 'hinge'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"fresh": "perhaps"}, "expected true or false"),
        ({"preset": "papr"}, "did you mean 'paper'"),
        ({"model": "gmlfm"}, "did you mean 'gml-fm'"),
        ({"task": "top"}, "did you mean 'topn'"),
        ({"model": "popularity", "task": "rating"}, "cannot do the task 'rating'"),
        ({"layers": 9}, "layers is 9"),
        ({"task": "rating", "loss": "bpr"}, "which is the task topn"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        Recommender(**settings).settings.build()
    assert message in str(caught.value)


def test_a_loss_that_diverges_stops_and_says_what_to_lower() -> None:
    with pytest.raises(DivergedError, match=r"the loss became .* lower lr \(now 1e\+30\)"):
        Recommender(**{**QUICK, "lr": 1e30, "epochs": 20, "optimiser": "sgd"}).fit(checkerboard())


def test_what_is_no_run_is_refused(tmp_path: Path, fitted: Recommender) -> None:
    with pytest.raises(DataError, match="is no run"):
        Recommender.load(tmp_path)
    fitted.save(tmp_path / "r")
    path = tmp_path / "r" / "model" / "run.json"
    text = path.read_text()
    path.write_text(text.replace('"format": 2', '"format": 7'))
    with pytest.raises(DataError, match="has the format 7, this version reads 2"):
        Recommender.load(tmp_path / "r")
    path.write_text(text.replace('"k": 8', '"k": 9'))
    with pytest.raises(DataError, match="their shape is"):
        Recommender.load(tmp_path / "r")
    path.write_text(text)
    weights = tmp_path / "r" / "model" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(DataError, match="missing or damaged"):
        Recommender.load(tmp_path / "r")
    with pytest.raises(OptionError, match="not fitted yet"):
        Recommender().recommend(["a"])


def test_a_disk_that_is_full_leaves_the_old_run_whole(
    tmp_path: Path, fitted: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted.save(tmp_path / "r")
    before = {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()}

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gmlfm.runs.save_dataset", full)
    with pytest.raises(DataError, match="No space left on device"):
        fitted.save(tmp_path / "r")
    assert {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()} == before


def test_other_data_are_evaluated_by_the_ids_they_share(fitted: Recommender) -> None:
    """Rows of the run's own test part, given as other data in another order, have the same ranks."""
    data, split = fitted.fitted.data, fitted.fitted.split
    test = pl.DataFrame(
        {
            "user": data.users.ids.gather(data.user_numbers[split.test]).reverse(),
            "item": data.items.ids.gather(data.item_numbers[split.test]).reverse(),
            "time": [9] * len(split.test),
            "stars": [5.0] * len(split.test),
        }
    )
    sides = [
        pl.DataFrame([side.ids.alias(name), *side.fields.iter_columns()]).reverse()
        for name, side in (("user", data.users), ("item", data.items))
    ]
    schema = {
        "interactions": {"user": "user", "item": "item", "time": "time", "label": "stars"},
        "users": {"id": "user", "fields": {"team": "category"}},
        "items": {"id": "item", "fields": {"colour": "category", "price": "number", "tags": {"kind": "set"}}},
    }
    other = Dataset.from_tables(test, *sides, schema=schema)
    for recommender in (fitted, Recommender("popularity").fit(checkerboard())):
        own, found = recommender.evaluate(), recommender.evaluate(other)
        np.testing.assert_allclose(found.queries["hr@10"][::-1], own.queries["hr@10"])
        np.testing.assert_allclose(found.queries["ndcg@10"][::-1], own.queries["ndcg@10"])
    with pytest.raises(DataError, match="the run was trained with the user fields"):
        fitted.evaluate(Dataset.from_tables(test, schema={"interactions": {"user": "user", "item": "item"}}))


def test_small_data_get_small_batches_unless_a_size_is_asked_for() -> None:
    sizes = [BatchOptions().groups_per_step(n, 1) for n in (100, 6_000, 1_000_000)]
    assert sizes == [64, 150, 4096]
    assert BatchOptions(batch_size=1000).groups_per_step(100, 5) == 200
    assert Recommender(batch_size="auto").settings.batches.batch_size is None


@pytest.mark.parametrize(("shift", "scale"), [(50.0, 10.0), (0.0, 1.0), (-3.0, 1e-3)])
def test_ratings_are_learned_whatever_their_unit(shift: float, scale: float) -> None:
    board = checkerboard()
    labels = board.interactions["label"] * scale + shift
    data = replace(board, interactions=board.interactions.with_columns(labels))
    recommender = Recommender("gml-fm", "rating", k=8, threads=1).fit(data, "random")
    assert recommender.evaluate().metrics["rmse"] < 0.9 * float(labels.std() or 0)
    assert float(recommender.predict([("u1", "i1")])["score"][0]) == pytest.approx(shift + 3 * scale, abs=3 * scale)


def test_divergence_after_a_good_epoch_keeps_that_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Recommender(**{**QUICK, "epochs": 1}).fit(checkerboard())
    steps = Trainer.steps

    class Broken:
        def run(self, batch: Any, size: int) -> Iterator[tuple[float, int]]:
            yield float("nan"), size

    monkeypatch.setattr(Trainer, "steps", lambda self: steps(self) if self.epoch < 1 else Broken())
    with pytest.raises(DivergedError, match="the weights of epoch 1 are kept; lower lr"):
        Recommender(**QUICK).fit(checkerboard(), out=tmp_path / "r")
    kept = Recommender.load(tmp_path / "r")
    assert kept.recommend(["u1"], 5).equals(plain.recommend(["u1"], 5))


def test_one_sentence_for_each_wrong_use_in_python(fitted: Recommender) -> None:
    assert fitted.recommend("u1", 3)["user"].to_list() == ["u1"] * 3
    for call, message in (
        (lambda: fitted.recommend([]), "users is empty"),
        (lambda: fitted.recommend(["u1"], n="3"), "n is 3; expected a whole number"),  # type: ignore[arg-type]
        (lambda: fitted.recommend(["u1"], n=2.5), "expected a whole number"),  # type: ignore[arg-type]
        (lambda: fitted.predict([("u1", "i1", 3)]), "one has another length"),
        (lambda: fitted.predict(pl.DataFrame({"u": ["u1"], "item": ["i1"]})), "expected user and item"),
        (lambda: Recommender().fit("d"), "fit takes a Dataset, not str"),  # type: ignore[arg-type]
        (lambda: fitted.recommend_for([("team", "red")]), "expected a mapping"),  # type: ignore[arg-type]
        (lambda: fitted.recommend(["u1"], filter="tags = 'x'"), "which is a set"),
        (lambda: fitted.evaluate(protocol="ful"), "did you mean 'full'"),
        (lambda: fitted.evaluate(protocol="sampled", seed=-1), "seed is -1"),
        (lambda: fitted.evaluate(protocol="sampled"), "too small for that protocol, use full"),
        (lambda: Recommender(task="rating", loss="logistic"), "use squared"),
        (lambda: Recommender(task="rating", loss="bpr"), "which is the task topn"),
        (lambda: Recommender(task="implicit").fit(checkerboard(), "newcomers"), "splits its drawn instances at random"),
        (lambda: Recommender(v_scale=-1.0).fit(checkerboard()), "v_scale is -1"),
        (lambda: Recommender(k=10**9).fit(checkerboard()), "expected 1 to 10,000 factors"),
        (lambda: Recommender(seed=10**20), "below 2"),
    ):
        with pytest.raises(GmlfmError, match=message):
            call()
    frame = pl.DataFrame({"item": ["i1"], "user": ["u1"]})
    assert fitted.predict(frame)["score"][0] == fitted.predict([("u1", "i1")])["score"][0]


def test_labels_that_cannot_be_learned_are_named() -> None:
    board = checkerboard()
    for labels, message in (([1e300] * board.n_interactions, "a label is 1e"), ([None] * board.n_interactions, "has a label")):
        data = replace(board, interactions=board.interactions.with_columns(pl.Series("label", labels, dtype=pl.Float64)))
        with pytest.raises(DataError, match=message):
            Recommender(task="rating", k=2).fit(data, "random")


def test_a_run_of_the_implicit_task_recommends(tmp_path: Path) -> None:
    recommender = Recommender("mf", "implicit", k=4, epochs=1, threads=1).fit(checkerboard())
    table = recommender.recommend(["u1", "nobody"], 3)
    assert table["known"].to_list() == [True] * 3 + [False] * 3


def test_somebody_of_whom_nothing_is_known_gets_what_is_popular(fitted: Recommender) -> None:
    data, rows = fitted.fitted.data, fitted.fitted.split.train
    counts = np.bincount(data.item_numbers[rows], minlength=len(data.items))
    table = fitted.recommend(["nobody"], 5, filter="colour = 'red'")
    assert table["known"].to_list() == [False] * 5
    red = [item for item in range(40) if item % 2 == 0]
    numbers = [data.items.ids.index_of(f"i{item}") for item in red]
    assert table["score"].to_list() == pytest.approx(sorted((counts[numbers] / 40).tolist(), reverse=True)[:5])


def test_settings_without_an_effect_are_refused() -> None:
    for name, settings in (("ease", {"lr": 99}), ("popularity", {"loss": "bpr"}), ("mamo", {"cold_start_rate": 0.5})):
        with pytest.raises(OptionError, match="unknown setting"):
            Recommender(name, "rating" if name == "mamo" else "topn", **settings)


def test_pretraining_is_not_judged_and_does_not_cost_patience() -> None:
    recommender = Recommender("ncf", pretrain=4, epochs=20, patience=2, k=4, threads=1, lr=0.02).fit(checkerboard())
    assert recommender.fitted.best_epoch > 4
    assert not any(one["best"] for one in recommender.fitted.history[:4])


def test_a_newcomers_history_counts_each_item_once() -> None:
    knn = Recommender("item-knn").fit(checkerboard())
    once, twice = (knn.recommend_for({}, history=history, n=5) for history in (["i1", "i2"], ["i1", "i2", "i2", "i2"]))
    assert once.equals(twice)


def test_mamo_is_adapted_on_the_training_rows_alone() -> None:
    from gmlfm.fitting.run import learned_rows

    split = Recommender("mamo", "rating", k=4, epochs=1).fit(checkerboard(), "newcomers").fitted.split
    assert len(split.unused) > 0
    assert np.array_equal(learned_rows(split, "no refit"), split.train)
