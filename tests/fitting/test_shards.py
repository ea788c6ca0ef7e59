from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gmlfm import Recommender, Schema, load_dataset
from gmlfm.cli import main
from gmlfm.data.prepared import PreparedData
from gmlfm.data.restoring import restore
from gmlfm.data.sources.preparing import prepare
from gmlfm.errors import DataError, OptionError

QUICK = {"k": 8, "epochs": 4, "threads": 1, "seed": 1}


def test_restored_data_are_those_read_in_memory(small_prepared: PreparedData, small_market: Path) -> None:
    data, split, encoder = restore(small_prepared)
    memory = load_dataset(small_market)
    pairs = {
        (data.users.ids[int(user)], data.items.ids[int(item)])
        for user, item in zip(data.user_numbers, data.item_numbers, strict=True)
    }
    assert pairs == {
        (memory.users.ids[int(user)], memory.items.ids[int(item)])
        for user, item in zip(memory.user_numbers, memory.item_numbers, strict=True)
    }
    assert len(split.train) + len(split.validation) + len(split.test) == data.n_interactions
    for restored, read in ((data.users, memory.users), (data.items, memory.items)):
        both = [pl.DataFrame([one.ids.alias("id"), *one.fields.iter_columns()]).sort("id") for one in (restored, read)]
        assert both[0].equals(both[1])
    encoded = encoder.encode(data)
    for one, other in ((encoded.user, small_prepared.users), (encoded.item, small_prepared.items)):
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.values, other.values)


def test_a_prepared_folder_is_trained_from_and_recommended_from(
    small_prepared: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    command = [
        "train",
        str(small_prepared.folder),
        "--out",
        run,
        "--set",
        "k=8",
        "--set",
        "epochs=4",
        "--threads",
        "1",
        "--json",
    ]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["validation"]["hr@10"] > 0.1  # a constant scorer has .10 among 100
    assert main(["evaluate", run, "--protocol", "sampled", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["split_hash"] == told["split_hash"]
    assert main(["recommend", run, "--user", "b0000003", "-n", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["rank"] for row in rows] == [1, 2, 3]
    data = restore(small_prepared)[0]
    had = data.items.ids.gather(data.item_numbers[data.user_numbers == data.users.ids.index_of("b0000003")])
    assert set(had.to_list()).isdisjoint({row["item"] for row in rows})


def test_saved_and_loaded_it_scores_the_same(small_prepared: PreparedData, tmp_path: Path) -> None:
    fitted = Recommender(**QUICK).fit(small_prepared, out=tmp_path / "run", refit=True)
    loaded = Recommender.load(tmp_path / "run")
    users = fitted.fitted.data.users.ids.head(5).to_list()
    assert fitted.recommend(users, 5).equals(loaded.recommend(users, 5))
    assert "of" in loaded.fitted.validation_protocol


def test_counted_models_count_shards_too(small_prepared: PreparedData, small_market: Path) -> None:
    shards, memory = (Recommender("popularity").fit(data) for data in (small_prepared, load_dataset(small_market)))
    for one in (shards, memory):
        assert one.evaluate(protocol="full").metrics["hr@10"] == pytest.approx(
            memory.evaluate(protocol="full").metrics["hr@10"], abs=1e-9
        )


def test_a_cut_cache_is_made_again_and_missing_values_are_told_of_first(small_prepared: PreparedData, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small_prepared.folder, copy)
    cache = copy / "cache" / "items.ids.npy"
    cache.write_bytes(cache.read_bytes()[:200])
    np.testing.assert_array_equal(PreparedData(copy).items.ids, small_prepared.items.ids)
    (copy / "values.parquet").unlink()
    with pytest.raises(DataError, match=r"values.parquet is missing or damaged"):
        Recommender(**QUICK).fit(PreparedData(copy))


def test_data_with_few_items_are_validated_on_fewer_candidates(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pl.DataFrame({"u": rng.integers(0, 30, 400), "i": rng.integers(0, 40, 400)}).write_csv(tmp_path / "r.csv")
    (tmp_path / "dataset.toml").write_text('[interactions]\npath = "r.csv"\nuser = "u"\nitem = "i"\n')
    folder = prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "p")
    fitted = Recommender(**QUICK).fit(folder).fitted
    assert 1 <= int(fitted.validation_protocol.split()[0]) < 40


def test_another_split_or_task_is_refused(small_prepared: PreparedData) -> None:
    with pytest.raises(OptionError, match="is split already"):
        Recommender(**QUICK).fit(small_prepared, split="random")
    with pytest.raises(OptionError, match="serves the tasks topn and rating"):
        Recommender("gml-fm", "implicit", **QUICK).fit(small_prepared)


def test_ratings_are_learned_from_shards(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 60, 1500), rng.integers(0, 30, 1500)
    stars = 3 + (users % 2) * 2 - (items % 2)
    pl.DataFrame({"u": [f"u{one}" for one in users], "i": [f"i{one}" for one in items], "stars": stars}).write_csv(
        tmp_path / "r.csv"
    )
    (tmp_path / "dataset.toml").write_text('[interactions]\npath = "r.csv"\nuser = "u"\nitem = "i"\nlabel = "stars"\n')
    prepared = prepare(Schema.from_toml(tmp_path / "dataset.toml"), tmp_path, tmp_path / "p", rows_per_bucket=500)
    fitted = Recommender("gml-fm", "rating", k=8, epochs=20, lr=0.02, threads=1).fit(prepared)
    assert fitted.evaluate().metrics["rmse"] < 0.5 * float(np.std(stars))
