"""One Recommender used by several threads, and after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gmlfm import Dataset, Recommender

OPTIONS: dict[str, dict[str, Any]] = {
    "gml-fm": {"k": 4, "epochs": 1, "threads": 1},
    "fm": {"k": 4, "epochs": 1, "threads": 1},
    "nfm": {"k": 4, "epochs": 1, "threads": 1},
    "ngcf": {"k": 4, "epochs": 1, "threads": 1},
    "ease": {},
    "item-knn": {},
}


def _new_item(name: str) -> pl.DataFrame:
    return pl.DataFrame({"item": [name], "colour": ["red"], "price": [1.0], "tags": [["x"]]})


@pytest.mark.parametrize("name", OPTIONS)
def test_no_change_is_lost_and_no_question_fails(name: str, board: Dataset, tmp_path: Path) -> None:
    recommender = Recommender(name, **OPTIONS[name]).fit(board, out=tmp_path / "run")
    takes_items = recommender.fitted.model.inputs.attributes
    learns_from_history = recommender.fitted.model.inputs.history
    errors: list[BaseException] = []
    done = threading.Event()

    def guarded(work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)

        return run

    def ask() -> None:
        while not done.is_set():
            ranked = recommender.recommend([f"u{n}" for n in range(30, 40)], 5, seen=True)
            assert ranked.height == 50
            recommender.recommend_for({"team": "red"}, history=["i30"] if learns_from_history else [], n=3)
            recommender.predict([("u30", "i30"), ("u31", "i31")])
            if name in ("gml-fm", "fm"):
                recommender.explain("u30", "i30")

    def mark() -> None:
        for number in range(10):
            recommender.mark_sold([f"i{number}"])
            recommender.mark_back([f"i{10 + number}"])

    def forget() -> None:
        for number in range(5):
            recommender.forget(f"u{number}")

    def add() -> None:
        for number in range(5):
            if takes_items:
                recommender.add_items(_new_item(f"n{number}"))
            recommender.save(tmp_path / "run")

    askers = [threading.Thread(target=guarded(ask)) for _ in range(2)]
    changers = [threading.Thread(target=guarded(work)) for work in (mark, forget, add)]
    for thread in (*askers, *changers):
        thread.start()
    for thread in changers:
        thread.join()
    done.set()
    for thread in askers:
        thread.join()
    assert errors == []
    recommender.save(tmp_path / "run")
    for run in (recommender, Recommender.load(tmp_path / "run")):
        assert run.stock.marks == {f"i{n}": "sold" for n in range(10)} | {f"i{10 + n}": "back" for n in range(10)}
        assert run.fitted.encoder.user_numbers([f"u{n}" for n in range(5)]).max() < 0
        if takes_items:
            assert run.fitted.encoder.item_numbers([f"n{n}" for n in range(5)]).min() >= 0


def test_after_a_fork_it_says_so_at_once(tmp_path: Path) -> None:
    """Trained and asked with several threads before; in a process of its own, since a fork must not have this one's threads."""
    code = textwrap.dedent("""
        import os
        import torch
        from gmlfm import Recommender, load_dataset
        from gmlfm.errors import GmlfmError
        from gmlfm.estimators import GMLFMRegressor
        from tests.contracts.checkerboard import checkerboard
        torch.set_num_threads(2)
        board = checkerboard()
        recommender = Recommender("fm", k=4, epochs=1, threads=2).fit(board, out="run")
        users = [f"u{n}" for n in range(40)] * 40
        before = recommender.recommend(users, 3)
        uses = {
            "recommend": lambda: recommender.recommend(users, 3),
            "recommend_for": lambda: recommender.recommend_for({}, history=["i3"]),
            "mark_sold": lambda: recommender.mark_sold(["i3"]),
            "observe": lambda: recommender.observe({"user": "u1", "item": "i3"}),
            "forget": lambda: recommender.forget("u3"),
            "evaluate": recommender.evaluate,
            "fit": lambda: Recommender("ease").fit(board),
            "load": lambda: Recommender.load("run"),
            "load_dataset": lambda: load_dataset("bazaar"),
            "estimator": lambda: GMLFMRegressor().fit([[1.0], [2.0]], [1.0, 2.0]),
        }
        child = os.fork()
        if child == 0:
            for name, use in uses.items():
                try:
                    use()
                except GmlfmError as error:
                    print(name, "forked from one that had used gmlfm" in str(error), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert recommender.recommend(users, 3).equals(before)
        print("parent", True)
    """)
    command = [sys.executable, "-W", "ignore", "-c", code]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment, cwd=tmp_path)
    names = "recommend recommend_for mark_sold observe forget evaluate fit load load_dataset estimator parent".split()
    assert done.stdout.splitlines() == [f"{name} True" for name in names], done.stderr


def test_a_process_that_was_forked_before_the_first_use_works(tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import os
        from gmlfm import Recommender
        from tests.contracts.checkerboard import checkerboard
        children = []
        for _ in range(2):
            child = os.fork()
            if child == 0:
                Recommender("fm", k=4, epochs=1, threads=2).fit(checkerboard()).recommend(["u1"], 3)
                os._exit(7)
            children.append(child)
        print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
    """)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert done.stdout.strip() == "[7, 7]", done.stderr
