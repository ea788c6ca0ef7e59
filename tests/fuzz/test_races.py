"""Several processes on one folder at the same time: every change that was answered is there, and nothing is torn."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path

import polars as pl
import pytest

from gmlfm import Recommender
from gmlfm.cli import main
from gmlfm.data.sources.bazaar import Market, write_bazaar
from tests.fuzz.processes import ended, python, started

TRAIN = ["--model", "fm", "--set", "k=4", "--set", "epochs=2", "--threads", "1"]
CHANGING = textwrap.dedent("""
    import sys, warnings
    warnings.simplefilter("ignore")
    from gmlfm import Recommender
    from gmlfm.errors import GmlfmError
    kind, folder, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    recommender = Recommender.load(folder)
    for step in range(5):
        name = number * 10 + step + 1
        try:
            if kind == "sold":
                name = recommender.fitted.data.items.ids[name]
                recommender.mark_sold([name])
            elif kind == "observe":
                rows = {"user": [f"w{number}", "all"], "item": [recommender.fitted.data.items.ids[name]] * 2, "time": [step, name]}
                recommender.observe(rows)
            elif kind == "forget":
                recommender.forget(f"b{name:07d}")
            elif kind == "add":
                recommender = Recommender.load(folder)
                recommender.add_items({recommender.fitted.data.schema.items.id: [f"n{name}"]})
                recommender.save(folder)
            elif kind == "load":
                Recommender.load(folder).recommend(["b0000099"], 3)
            print("done", kind, name)
        except GmlfmError as error:
            print("refused", kind, name, error)
""")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A market and a run of it. Read-only."""
    folder = tmp_path_factory.mktemp("races")
    write_bazaar(Market(n_users=120, n_purchases=1_400), folder / "market")
    assert main(["train", str(folder / "market"), "--out", str(folder / "run"), *TRAIN]) == 0
    return folder


def changed(run: Path, *kinds: str) -> list[list[str]]:
    """What the processes say that they have done."""
    processes = [python(CHANGING, kind, run, number) for number, kind in enumerate(kinds)]
    outputs = []
    for process in processes:
        out, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        outputs += [text.split() for text in out.splitlines()]
    return outputs


@pytest.mark.parametrize(
    "kinds",
    [
        *(("sold",) * 4, ("forget",) * 3, ("sold", "forget", "load"), ("add", "add", "sold"), ("forget", "add", "load")),
        *(("observe",) * 4, ("observe", "forget", "add", "observe")),
    ],
    ids="+".join,
)
def test_changes_of_several_processes_are_all_there(kinds: tuple[str, ...], home: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(home / "run", tmp_path / "run"))
    said = changed(run, *kinds)
    after = Recommender.load(run)
    users, items = set(after.fitted.data.users.ids), set(after.fitted.data.items.ids)
    for answer, kind, number, *rest in said:
        if kind in ("sold", "forget", "load", "observe"):
            assert answer == "done", (kind, number, rest)
        if answer == "done" and kind == "sold":
            assert after.stock.marks[number] == "sold"
        if answer == "done" and kind == "forget":
            assert f"b{int(number):07d}" not in users
        if answer == "done" and kind == "add":
            assert f"n{number}" in items
        if answer == "refused":
            assert "was changed by somebody else" in " ".join(rest)
            assert f"n{number}" not in items
    assert any(answer == "done" for answer, *_ in said)
    times = [time for _, time in after.observed.of("all")]
    assert times == sorted(int(number) for answer, kind, number, *_ in said if kind == "observe")


def test_two_trainings_in_one_folder(home: Path, tmp_path: Path) -> None:
    words = [
        "train",
        str(home / "market"),
        "--out",
        str(tmp_path / "run"),
        *TRAIN,
        "--set",
        "epochs=12",
        "--set",
        "patience=20",
    ]
    outcomes = [ended(process) for process in [started(words), started(words)]]
    assert sorted(code for code, _ in outcomes) == [0, 2]
    refusal = next(errors for code, errors in outcomes if code == 2)
    assert "is being trained in by process" in refusal or "holds a" in refusal
    Recommender.load(tmp_path / "run").recommend(["b0000099"], 3)


def test_two_preparations_into_one_folder(home: Path, tmp_path: Path) -> None:
    words = ["data", "prepare", str(home / "market"), "--out", str(tmp_path / "prepared"), "--rows-in-memory", "300"]
    outcomes = [ended(process) for process in [started(words), started(words)]]
    assert sorted(code for code, _ in outcomes) == [0, 2], outcomes
    refusal = next(errors for code, errors in outcomes if code == 2)
    assert "is being prepared by process" in refusal or "prepared already" in refusal
    assert main([*words[:4], str(tmp_path / "alone"), *words[5:]]) == 0
    names = sorted(path.relative_to(tmp_path / "alone") for path in (tmp_path / "alone").rglob("*.parquet"))
    assert all((tmp_path / "alone" / name).read_bytes() == (tmp_path / "prepared" / name).read_bytes() for name in names)


def test_two_lists_for_everybody_into_one_file(home: Path, tmp_path: Path) -> None:
    words = ["recommend", str(home / "run"), "--all", "--out", str(tmp_path / "best.parquet"), "-n", "3"]
    outcomes = [ended(process) for process in [started(words), started(words)]]
    assert 0 in [code for code, _ in outcomes], outcomes
    assert all(code == 0 or "is being written by process" in errors for code, errors in outcomes), outcomes
    expected = tmp_path / "expected.parquet"
    assert main([*words[:4], str(expected), *words[5:]]) == 0
    assert pl.read_parquet(tmp_path / "best.parquet").equals(pl.read_parquet(expected))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.parquet", "expected.parquet"]
