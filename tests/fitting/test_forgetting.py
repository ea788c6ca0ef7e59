from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from gmlfm import Dataset, Recommender
from gmlfm.errors import DataError
from gmlfm.fitting.forgetting import without_user, without_users

SECRETS = ("u-secret-7f3a", "Atlantis-9d1", "taxidermy-c2e", "carrier pigeon", "Somebody Unique")
SCHEMA = {
    "interactions": {"user": "user", "item": "item", "time": "time", "context": {"channel": "category"}},
    "users": {"id": "user", "title": "name", "fields": {"city": "category", "hobbies": {"kind": "set"}}},
}


@pytest.fixture(scope="module")
def data() -> Dataset:
    """A user who alone has a city, a hobby, a channel and a name."""
    users = [("u-secret-7f3a", "Somebody Unique", "Atlantis-9d1", ["taxidermy-c2e", "golf"])]
    users += [(f"u{n}", f"name {n}", ("Oslo", "Rome")[n % 2], ["golf"]) for n in range(12)]
    rows = [
        (user, f"i{(7 * n + 3 * place) % 15}", n * 20 + place, "web")
        for n, (user, *_) in enumerate(users)
        for place in range(6)
    ]
    rows[1] = (*rows[1][:3], "carrier pigeon")
    return Dataset.from_tables(
        pl.DataFrame(rows, schema=["user", "item", "time", "channel"], orient="row"),
        users=pl.DataFrame(users, schema=["user", "name", "city", "hobbies"], orient="row"),
        schema=SCHEMA,
    )


def contents(folder: Path) -> dict[str, bytes]:
    """Every byte of every file by its path, hidden ones included; of Parquet also what is in it."""
    texts = {}
    for path in folder.rglob("*"):
        if path.is_file():
            texts[str(path)] = str(path).encode() + path.read_bytes()
            if path.suffix == ".parquet":
                texts[str(path)] += repr(pl.read_parquet(path).to_dict(as_series=False)).encode()
    return texts


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("model", ["gml-fm", "ngcf", "ease", "nfm"])
def test_no_byte_of_the_folder_tells_of_a_forgotten_user(model: str, refit: bool, data: Dataset, tmp_path: Path) -> None:
    options: dict[str, Any] = {} if model == "ease" else {"k": 4, "epochs": 2, "threads": 1}
    recommender = Recommender(model, **options).fit(data, out=tmp_path / "run", refit=refit)
    before = b"".join(contents(tmp_path).values())
    assert all(secret.encode() in before for secret in SECRETS)
    others = recommender.predict([("u1", "i1"), ("u2", "i7")])["score"].to_list()
    # what a death of a writer and of a training may have left
    copy = tmp_path / "run" / "generations" / "000099" / "data"
    copy.mkdir(parents=True)
    (copy / "users.parquet").write_bytes((next(tmp_path.rglob("users.parquet"))).read_bytes())
    (tmp_path / "run" / ".run.json.abc").write_text("u-secret-7f3a")
    (tmp_path / "run" / ".events.jsonl.abc").write_text("u-secret-7f3a")
    (tmp_path / "run" / "report.html").write_text("<p>u-secret-7f3a chose i3</p>")
    recommender.forget("u-secret-7f3a")
    for path, content in contents(tmp_path).items():
        for secret in SECRETS:
            assert secret.encode() not in content, (path, secret)
    assert not list(tmp_path.rglob("epoch-*"))
    loaded = Recommender.load(tmp_path / "run")
    assert loaded.predict([("u1", "i1")]).equals(recommender.predict([("u1", "i1")]))
    if model in ("gml-fm", "nfm"):
        assert loaded.predict([("u1", "i1"), ("u2", "i7")])["score"].to_list() == pytest.approx(others, abs=1e-6)
    assert loaded.recommend_for({"city": "Rome", "hobbies": ["golf"]}, n=3).height == 3


def test_values_of_a_forgotten_user_count_as_unknown(data: Dataset) -> None:
    recommender = Recommender("gml-fm", k=4, epochs=3, threads=1, lr=0.1).fit(data)
    known = recommender.recommend_for({"city": "Atlantis-9d1"}, n=15).sort("item")["score"]
    recommender.forget("u-secret-7f3a")
    with pytest.warns(UserWarning, match="was never met in training; it counts as unknown"):
        forgotten = recommender.recommend_for({"city": "Atlantis-9d1"}, n=15).sort("item")["score"]
    with pytest.warns(UserWarning, match="counts as unknown"):
        unknown = recommender.recommend_for({"city": "nowhere"}, n=15).sort("item")["score"]
    assert forgotten.to_list() == unknown.to_list()
    assert np.abs(known.to_numpy() - unknown.to_numpy()).max() > 1e-4


def test_their_rows_of_the_table_are_the_unknown_ones(data: Dataset) -> None:
    run = Recommender("fm", history="none", k=4, epochs=2, threads=1).fit(data).fitted
    table = run.model.state_dict()["table"].clone()
    after = without_user(run, "u-secret-7f3a")
    changed = (after.model.state_dict()["table"] != table).any(1).nonzero()[:, 0].tolist()
    fields = {row[:2] for row in run.encoder.attribute_names(changed).rows()}
    assert fields == {("user", "user"), ("user", "city"), ("user", "hobbies"), ("context", "channel")}
    assert torch.equal(run.model.state_dict()["table"], table)


def test_several_users_are_forgotten_one_after_another(data: Dataset) -> None:
    run = Recommender("popularity").fit(data).fitted
    after = without_users(run, ["u1", "u-secret-7f3a", "u5"])
    assert sorted(after.data.users.ids.to_list()) == sorted(f"u{n}" for n in range(12) if n not in (1, 5))
    assert len(after.split.train) == len(run.split.train) - 3 * 3
    assert after.split.data_hash == after.data.content_hash
    with pytest.raises(DataError, match="the user 'u1' is unknown already"):
        without_user(after, "u1")
