"""Whatever is handed to the Python interface: an answer, or one sentence."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gmlfm import Dataset, Recommender
from tests.contracts.checkerboard import checkerboard
from tests.fuzz.cases import Case, check, generator, n_cases, named

# By what they are: things that a caller may hold by mistake.
ODD: dict[str, Any] = {
    "None": None,
    "True": True,
    "zero": 0,
    "minus one": -1,
    "a billion": 10**9,
    "fifty digits": 10**50,
    "a half": 0.5,
    "nan": math.nan,
    "inf": math.inf,
    "empty": "",
    "space": " ",
    "nul": "a\0b",
    "surrogate": "\ud800",
    "escape": "\x1b[31mred",
    "long": "x" * 100_000,
    "bytes": b"u1",
    "list": [],
    "list of None": [None],
    "nested": [["u1"]],
    "dict": {},
    "dict of None": {None: None},
    "set": {"u1"},
    "tuple": ("u1", "i1"),
    "object": object(),
    "function": len,
    "numpy": np.arange(3),
    "numpy nan": np.array([math.nan]),
    "series": pl.Series(["u1"]),
    "frame": pl.DataFrame({"user": ["u1"], "item": ["i1"]}),
    "empty frame": pl.DataFrame(),
    "path": Path("nowhere"),
    "generator": (n for n in range(2)),
    "class": Recommender,
    "complex": 1j,
    "date": pl.Series(["2026-01-01"]).str.to_date(),
}
Verb = Callable[[Recommender, Any], Any]
VERBS: dict[str, Verb] = {
    "recommend users": lambda run, odd: run.recommend(odd),
    "recommend in a list": lambda run, odd: run.recommend(["u1", odd]),
    "recommend n": lambda run, odd: run.recommend(["u1"], odd),
    "recommend filter": lambda run, odd: run.recommend(["u1"], filter=odd),
    "recommend available": lambda run, odd: run.recommend(["u1"], available=odd),
    "recommend available in a list": lambda run, odd: run.recommend(["u1"], available=["i1", odd]),
    "recommend candidates": lambda run, odd: run.recommend(["u1"], candidates=odd),
    "recommend at_most": lambda run, odd: run.recommend(["u1"], at_most=odd),
    "recommend at_most field": lambda run, odd: run.recommend(["u1"], at_most={odd: 1} if _is_hashable(odd) else odd),
    "recommend at_most number": lambda run, odd: run.recommend(["u1"], at_most={"colour": odd}),
    "recommend context": lambda run, odd: run.recommend(["u1"], context=odd),
    "recommend context of a name": lambda run, odd: run.recommend(["u1"], context={"colour": odd}),
    "recommend_for attributes": lambda run, odd: run.recommend_for(odd),
    "recommend_for a value": lambda run, odd: run.recommend_for({"team": odd}),
    "recommend_for a name": lambda run, odd: run.recommend_for({odd: "red"} if _is_hashable(odd) else odd),
    "recommend_for history": lambda run, odd: run.recommend_for({}, history=odd),
    "recommend_for in the history": lambda run, odd: run.recommend_for({}, history=["i1", odd]),
    "recommend_for n": lambda run, odd: run.recommend_for({}, n=odd),
    "predict": lambda run, odd: run.predict(odd),
    "predict a pair": lambda run, odd: run.predict([("u1", "i1"), odd]),
    "predict an item": lambda run, odd: run.predict([("u1", odd)]),
    "predict a user": lambda run, odd: run.predict([(odd, "i1")]),
    "explain a user": lambda run, odd: run.explain(odd, "i1"),
    "explain an item": lambda run, odd: run.explain("u1", odd),
    "contrast": lambda run, odd: run.contrast("u1", "i1", odd),
    "similar_items": lambda run, odd: run.similar_items(odd),
    "similar_items n": lambda run, odd: run.similar_items("i1", odd),
    "similar_users": lambda run, odd: run.similar_users(odd),
    "mark_sold": lambda run, odd: run.mark_sold(odd),
    "mark_sold in a list": lambda run, odd: run.mark_sold(["i1", odd]),
    "mark_back": lambda run, odd: run.mark_back(odd),
    "add_items": lambda run, odd: run.add_items(odd),
    "add_items ids": lambda run, odd: run.add_items({"item": [odd], "colour": ["red"], "price": [1.0], "tags": [["x"]]}),
    "add_items numbers": lambda run, odd: run.add_items({"item": ["n"], "colour": ["red"], "price": [odd], "tags": [["x"]]}),
    "observe": lambda run, odd: run.observe(odd),
    "observe a row": lambda run, odd: run.observe([{"user": "u1", "item": "i1"}, odd]),
    "observe a user": lambda run, odd: run.observe({"user": odd, "item": "i1"}),
    "observe an item": lambda run, odd: run.observe({"user": "u1", "item": odd}),
    "observe a time": lambda run, odd: run.observe({"user": "u1", "item": "i1", "time": odd}),
    "observe an event": lambda run, odd: run.observe({"user": "u1", "item": "i1", "event": odd}),
    "observe users": lambda run, odd: run.observe({"user": ["u1", odd], "item": ["i1", "i2"]}),
    "observe times": lambda run, odd: run.observe({"user": ["u1", "u2"], "item": ["i1", "i2"], "time": [5, odd]}),
    "observe a name": lambda run, odd: run.observe({"user": ["u1"], "item": ["i1"], odd: [1]} if _is_hashable(odd) else odd),
    "observed": lambda run, odd: run.observed.of(odd) if isinstance(odd, str) else None,
    "forget": lambda run, odd: run.forget(odd),
    "evaluate data": lambda run, odd: run.evaluate(odd),
    "evaluate protocol": lambda run, odd: run.evaluate(protocol=odd),
    "evaluate part": lambda run, odd: run.evaluate(part=odd),
    "evaluate seed": lambda run, odd: run.evaluate(protocol="sampled", seed=odd),
    "evaluate cutoffs": lambda run, odd: run.evaluate(cutoffs=odd),
    "evaluate users": lambda run, odd: run.evaluate(users=odd),
    "model": lambda run, odd: Recommender(odd),
    "task": lambda run, odd: Recommender("fm", odd),
    "preset": lambda run, odd: Recommender("fm", preset=odd),
    "device": lambda run, odd: Recommender("popularity", device=odd).fit(BOARD),
    "k": lambda run, odd: Recommender("fm", k=odd),
    "lr": lambda run, odd: Recommender("fm", lr=odd),
    "epochs": lambda run, odd: Recommender("fm", epochs=odd),
    "threads": lambda run, odd: Recommender("fm", threads=odd),
    "batch_size": lambda run, odd: Recommender("fm", batch_size=odd),
    "negatives": lambda run, odd: Recommender("fm", negatives=odd),
    "seed": lambda run, odd: Recommender("fm", seed=odd),
    "loss": lambda run, odd: Recommender("fm", loss=odd),
    "set_params": lambda run, odd: Recommender("fm").set_params(k=odd),
    "fit data": lambda run, odd: Recommender("popularity").fit(odd),
    "fit split": lambda run, odd: Recommender("popularity").fit(BOARD, odd),
    "fit split options": lambda run, odd: Recommender("popularity").fit(BOARD, split_options=odd),
    "fit split seed": lambda run, odd: Recommender("popularity").fit(BOARD, "random", split_options={"seed": odd}),
    "fit refit": lambda run, odd: Recommender("popularity").fit(BOARD, refit=odd),
    "load": lambda run, odd: Recommender.load(odd),
    "load model": lambda run, odd: Recommender.load("nowhere", model=odd),
    "from_tables": lambda run, odd: Dataset.from_tables(odd),
    "from_tables users": lambda run, odd: Dataset.from_tables({"user": ["a"], "item": ["b"]}, users=odd),
    "from_tables schema": lambda run, odd: Dataset.from_tables({"user": ["a"], "item": ["b"]}, schema=odd),
}
BOARD = checkerboard()


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a small run. Read-only."""
    path = tmp_path_factory.mktemp("arguments") / "run"
    Recommender("fm", k=4, epochs=1, threads=1).fit(BOARD, out=path)
    return path


def _cases() -> Iterator[tuple[str, Case]]:
    """All pairs, in an order drawn once: the first ones are a sample."""
    pairs = [(verb, odd) for verb in VERBS for odd in ODD]
    for place in generator("python arguments").permutation(len(pairs)):
        verb, odd = pairs[int(place)]
        yield f"{verb}: {odd}", lambda run, verb=verb, odd=odd: VERBS[verb](run, ODD[odd])  # type: ignore[misc]


CASES = named(_cases())


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("verb", VERBS)
def test_odd_arguments_are_answered_or_refused_in_one_sentence(
    verb: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [name for name in CASES if name.startswith(f"{verb}: ")]
    run = Recommender.load(folder)
    run._folder, run._folders = None, {}  # in memory alone
    failures = []
    for name in names[: n_cases(12)]:
        try:
            with warnings.catch_warnings():
                check(lambda _, name=name: CASES[name](run), tmp_path)  # type: ignore[misc,arg-type]
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}"[:300])
    assert failures == []
    assert run.recommend(["u1"], 3).height == 3  # nothing that was refused has left a trace
