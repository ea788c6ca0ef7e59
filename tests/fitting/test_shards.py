"""Fitting from a prepared folder, shard after shard."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Recommender, Schema, load_dataset
from gmlfm.cli import main
from gmlfm.data.prepared import PreparedData
from gmlfm.data.restoring import restore
from gmlfm.data.sources.preparing import prepare
from gmlfm.errors import DataError, OptionError
from gmlfm.fitting import Refit, fit
from gmlfm.fitting.shards import ShardPlan
from gmlfm.training.settings import Settings
from tests.fitting.catalogues import write_catalogue

QUICK: dict[str, Any] = {"k": 8, "epochs": 4, "threads": 1, "seed": 1}


def test_a_prepared_folder_is_trained_from_and_recommended_from(
    small_prepared: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    settings = ["--set", "k=8", "--set", "epochs=4", "--threads", "1"]
    assert main(["train", str(small_prepared.folder), "--out", run, *settings, "--json"]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert trained["validation"]["hr@10"] > 0.1  # a constant scorer has .10 among 100
    assert main(["evaluate", run, "--protocol", "sampled", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["split_hash"] == trained["split_hash"]
    assert main(["recommend", run, "--user", "b0000003", "-n", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["rank"] for row in rows] == [1, 2, 3]
    data = restore(small_prepared)[0]
    bought = data.items.ids.gather(data.item_numbers[data.user_numbers == data.users.ids.index_of("b0000003")])
    assert set(bought.to_list()).isdisjoint({row["item"] for row in rows})


def test_saved_and_loaded_it_scores_the_same(small_prepared: PreparedData, tmp_path: Path) -> None:
    fitted = Recommender(**{**QUICK, "epochs": 2}).fit(small_prepared, out=tmp_path / "run", refit=True)
    loaded = Recommender.load(tmp_path / "run")
    users = fitted.fitted.data.users.ids.head(5).to_list()
    assert fitted.recommend(users, 5).equals(loaded.recommend(users, 5))
    assert "of" in loaded.fitted.validation_protocol
    assert not list((small_prepared.folder / "cache").glob("*parts*"))  # the refit's own rows take no room any more


@pytest.mark.parametrize(
    ("name", "settings"),
    [("popularity", {}), ("item-knn", {}), ("ease", {}), ("ease", {"half_life": 3}), ("ease", {"user_rows": "training"})],
)
def test_closed_form_models_are_fitted_from_shards_as_from_memory(
    name: str, settings: dict[str, Any], small_prepared: PreparedData, small_market: Path
) -> None:
    shards, memory = (Recommender(name, **settings).fit(data) for data in (small_prepared, load_dataset(small_market)))
    expected = memory.evaluate(protocol="full").metrics["hr@10"]
    assert shards.evaluate(protocol="full").metrics["hr@10"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("refit", list(Refit))
def test_the_parts_that_are_read_are_the_rows_that_the_run_learned_from(small_prepared: PreparedData, refit: Refit) -> None:
    """Shards go by the parts of their rows, a run by its split: both must name the same rows."""
    settings = Settings.make("popularity", "topn", {})
    plan = ShardPlan(small_prepared, settings, "auto", {}, "cpu")
    inputs = plan.selection_inputs() if refit is Refit.NONE else plan.refit_inputs(refit)
    positives, of_run = inputs.positives(), fit(small_prepared, settings, refit=refit).inputs.positives()
    for names in ("users", "items"):
        np.testing.assert_array_equal(getattr(positives, names), getattr(of_run, names))


def test_forgetting_after_a_fit_from_shards_keeps_what_others_learned(small_prepared: PreparedData) -> None:
    recommender = Recommender("popularity").fit(small_prepared, refit="all")
    counts = recommender.fitted.model.state_dict()["counts"].numpy()
    data = recommender.fitted.data
    of_user = data.item_numbers[data.user_numbers == 7]
    recommender.forget(data.users.ids[7])
    expected = counts - np.bincount(of_user, minlength=len(counts))
    np.testing.assert_array_equal(recommender.fitted.model.state_dict()["counts"].numpy(), expected)


def test_a_cut_cache_is_made_again_and_missing_values_are_named_before_training(
    small_prepared: PreparedData, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small_prepared.folder, copy)
    cache = copy / "cache" / "items.ids.npy"
    cache.write_bytes(cache.read_bytes()[:200])
    np.testing.assert_array_equal(PreparedData(copy).items.ids, small_prepared.items.ids)
    (copy / "values.parquet").unlink()
    with pytest.raises(DataError, match=r"values.parquet is missing or damaged"):
        Recommender(**QUICK).fit(PreparedData(copy))


def prepared_table(folder: Path, columns: dict[str, Any], declared: str = "", rows_per_bucket: int = 10**6) -> PreparedData:
    pl.DataFrame(columns).write_csv(folder / "r.csv")
    (folder / "dataset.toml").write_text(f'[interactions]\npath = "r.csv"\nuser = "u"\nitem = "i"\n{declared}')
    return prepare(Schema.from_toml(folder / "dataset.toml"), folder, folder / "p", rows_per_bucket=rows_per_bucket)


def test_data_with_few_items_are_validated_on_fewer_candidates(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    prepared = prepared_table(tmp_path, {"u": rng.integers(0, 30, 400), "i": rng.integers(0, 40, 400)})
    run = Recommender(**QUICK).fit(prepared).fitted
    assert 1 <= int(run.validation_protocol.split()[0]) < 40


def test_validation_is_on_a_seeded_sample_of_the_held_out_rows(
    small_prepared: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_validation = sum(shard.validation for shard in small_prepared.info.interactions)
    monkeypatch.setattr("gmlfm.fitting.held_out._MOST_TESTED", n_validation // 3)
    settings = Settings.make("fm", "topn", {"k": 2, "epochs": 1, "threads": 1})
    runs = [fit(small_prepared, settings) for _ in range(2)]
    assert runs[0].validation == runs[1].validation
    n_tested, n_all = (int(word.replace(",", "")) for word in runs[0].validation_protocol.split()[2::2][:2])
    assert n_all == n_validation
    assert n_validation / 5 < n_tested < n_validation / 2


def test_another_split_or_task_is_refused(small_prepared: PreparedData) -> None:
    with pytest.raises(OptionError, match="is split already"):
        Recommender(**QUICK).fit(small_prepared, split="random")
    with pytest.raises(OptionError, match="is split already"):
        Recommender(**QUICK).fit(small_prepared, split_options={"seed": 1})
    with pytest.raises(OptionError, match="serves the tasks topn and rating"):
        Recommender("gml-fm", "implicit", **QUICK).fit(small_prepared)
    with pytest.raises(OptionError, match="without the preset 'paper'"):
        Recommender("gml-fm", preset="paper", **QUICK).fit(small_prepared)
    with pytest.raises(OptionError, match="the model 'mamo' learns user by user and cannot read a prepared folder"):
        Recommender("mamo", "rating").fit(small_prepared)
    with pytest.raises(DataError, match="has no label, which the task 'rating' predicts"):
        Recommender("gml-fm", "rating", **QUICK).fit(small_prepared)


def test_what_histories_ask_is_refused_in_the_words_of_memory(small_prepared: PreparedData, tmp_path: Path) -> None:
    with pytest.raises(
        OptionError, match=r"negatives = all .* not everything can be had at the time of every row; give a number"
    ):
        Recommender("fm", history="auto", negatives="all", **QUICK).fit(small_prepared)
    with pytest.raises(OptionError, match="negatives = all is for models that read a history, and here none is read"):
        Recommender("fm", "rating", history="auto", negatives="all", **QUICK).fit(labelled_folder(tmp_path))
    untimed = PreparedData(tmp_path / "p")
    for model, settings in (("fm", {"history": "last"}), ("sasrec", {})):
        with pytest.raises(OptionError, match="but the data have no times"):
            Recommender(model, **settings, **QUICK).fit(untimed)
    automatic = Recommender("fm", history="auto", **QUICK).fit(untimed).fitted
    assert (automatic.settings.history.history, automatic.model.reads_history) == ("none", False)


def labelled_folder(folder: Path) -> PreparedData:
    """Ratings without times."""
    rng = np.random.default_rng(0)
    return prepared_table(
        folder,
        {"u": rng.integers(0, 30, 400), "i": rng.integers(0, 40, 400), "stars": rng.integers(1, 6, 400)},
        'label = "stars"\n',
    )


def test_times_that_are_all_equal_say_nothing_however_many_shards(tmp_path: Path) -> None:
    """One shard's equal times would not: what can be said is decided over all of them."""
    rng = np.random.default_rng(0)
    columns = {"u": rng.integers(0, 90, 900), "i": rng.integers(0, 60, 900)}
    for name, times, is_ordered in (("same", np.full(900, 7), False), ("one", np.arange(900) // 899, True)):
        folder = tmp_path / name
        folder.mkdir()
        prepared = prepared_table(folder, {**columns, "t": times}, 'time = "t"\n', rows_per_bucket=150)
        assert (prepared.n_shards > 1, prepared.is_ordered) == (True, is_ordered)
        file_order = prepared.info.__class__(**{**vars(prepared.info), "ties": "file"})
        prepared.__dict__.pop("is_ordered")
        prepared.info = file_order
        assert prepared.is_ordered


def test_a_history_needs_a_folder_that_can_be_written(small_prepared: PreparedData, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("gmlfm.data.refitting.write_header", full)
    with pytest.raises(DataError, match=r"Read-only file system.*allow writing, or leave the refit out and set history = none"):
        Recommender("fm", history="last", **QUICK).fit(small_prepared)
    Recommender("fm", history="none", **QUICK).fit(small_prepared)


def test_ratings_are_learned_from_shards(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 60, 1500), rng.integers(0, 30, 1500)
    stars = 3 + (users % 2) * 2 - (items % 2)
    columns = {"u": [f"u{user}" for user in users], "i": [f"i{item}" for item in items], "stars": stars}
    prepared = prepared_table(tmp_path, columns, 'label = "stars"\n', rows_per_bucket=500)
    recommender = Recommender("gml-fm", "rating", k=8, epochs=20, lr=0.02, threads=1).fit(prepared)
    assert recommender.evaluate().metrics["rmse"] < 0.5 * float(np.std(stars))
    assert recommender.fitted.limits == (2.0, 5.0)


def test_a_run_from_a_folder_answers_as_one_from_memory(tmp_path: Path) -> None:
    """With one shard all is the same, once trained: what is recommended and why, what is observed, what is measured."""
    folder = write_catalogue(tmp_path / "data", "events")
    prepared = prepare(Schema.from_toml(folder / "dataset.toml"), folder, folder / "p", split="none")
    settings = {"k": 4, "epochs": 3, "v_scale": 0.3, "threads": 1, "history": "last,recent,past"}
    shards = Recommender("fm", **settings).fit(prepared, out=tmp_path / "shards")
    memory = Recommender("fm", **settings).fit(load_dataset(folder), "none", out=tmp_path / "memory")
    kinds = shards.fitted.data.schema.interactions
    assert (kinds.targets, kinds.history_events) == (("buy", "gift"), ("buy", "click"))
    users = [f"u{user:05d}" for user in range(0, 60, 7)]

    def answers(rec: Recommender) -> list[list[dict[str, Any]]]:
        return [
            rec.recommend(users, 5, because=True).to_dicts(),
            rec.recommend_for({"age": 23}, ["i00003", "i00009"], 5).to_dicts(),
            [vars(term) for term in rec.explain(users[0], "i00011").terms],
        ]

    before = answers(shards)
    assert before == answers(memory)
    observed = {"user": [users[0], users[7]], "item": ["i00004", "i00005"], "time": [50, 60], "event": ["click", "gift"]}
    for recommender in (shards, memory):
        recommender.observe(pl.DataFrame(observed))
    assert before != answers(shards) == answers(memory)
    assert answers(Recommender.load(tmp_path / "shards")) == answers(memory)


def test_what_a_run_from_a_folder_is_evaluated_by_is_that_of_memory(tmp_path: Path) -> None:
    folder = write_catalogue(tmp_path / "data", "events")
    prepared = prepare(Schema.from_toml(folder / "dataset.toml"), folder, folder / "p", split="leave-one-out")
    settings = {"k": 4, "epochs": 1, "v_scale": 0.3, "threads": 1, "history": "last,recent,past"}
    shards = Recommender("fm", **settings).fit(prepared, refit=True)
    memory = Recommender("fm", **settings).fit(load_dataset(folder), "leave-one-out", refit=True)
    left, right = (recommender.evaluate(protocol="full").metrics for recommender in (shards, memory))
    assert left == right
