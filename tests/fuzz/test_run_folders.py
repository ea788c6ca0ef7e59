"""Run folders with any file flipped, cut, edited or exchanged: what is not what was written is refused in one sentence.

Of today's format every change is found by a checksum. Edits are therefore also tried with checksums that fit again, as a forger
or another program would write them, and on runs of the formats before, which have none.
"""

from __future__ import annotations

import copy
import io
import json
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gmlfm import Recommender
from gmlfm.errors import DataError
from gmlfm.runs import load_run
from tests.contracts.checkerboard import checkerboard
from tests.fuzz.cases import DAMAGES, check, damaged, generator, n_cases
from tests.runs.edited import reseal

# What is observed by a run without histories is kept, and said to change no score.
pytestmark = pytest.mark.filterwarnings("ignore:this run of .* does not read what users did before")


ARCHIVES = Path(__file__).parent.parent / "runs"
KINDS = {"format 4": ("fm", ""), "format 3": ("gml-fm", "runs-of-format-3.zip"), "format 2": ("ease", "runs-of-format-2.zip")}
WRONG: dict[str, Any] = {
    "null": None,
    "text": "x",
    "empty": "",
    "minus": -1,
    "huge": 10**30,
    "float": 0.5,
    "true": True,
    "list": [],
    "list of lists": [[[]]],
    "dict": {},
    "deep": json.loads("[" * 400 + "]" * 400),
    "nul": "a\0b",
    "path": "../../../etc/passwd",
    "surrogate": "\ud800",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each format. Read-only."""
    folder = tmp_path_factory.mktemp("runs")
    for kind, (name, archive) in KINDS.items():
        if archive:
            with zipfile.ZipFile(ARCHIVES / archive) as file:
                file.extractall(folder / "all", [inner for inner in file.namelist() if inner.startswith(f"{name}/")])
            (folder / "all" / name).rename(folder / kind)
            (folder / kind / "expected.json").unlink()
        else:
            recommender = Recommender(name, k=4, epochs=1, threads=1).fit(checkerboard(), out=folder / kind)
            recommender.mark_sold(["i1", "i2"])
            recommender.forget("u3")
            with pytest.warns(UserWarning, match="the data have no column of events"):
                recommender.observe({"user": ["u1", "w"], "item": ["i7", "i8"], "time": [900, None], "event": ["click", None]})
    return folder


def use(run: Path) -> None:
    """What people do with a run; whatever a forged one holds, it ends in answers or in one sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recommender = Recommender.load(run)
        recommender.recommend(["u1", "nobody"], 3)
        recommender.predict([("u1", "i1")])
        if len(recommender.fitted.split.test) and recommender.fitted.refit.value == "none":
            recommender.evaluate(protocol="sampled")
        recommender.mark_sold(["i5"])
        recommender.observe([{"user": "u1", "item": "i5", "time": 7}, {"user": "w", "item": "i6"}])
        recommender.forget("w")
        recommender.forget("u2")


def files_of(run: Path) -> list[Path]:
    names = (path.relative_to(run) for path in run.rglob("*") if path.is_file() and not path.name.endswith("lock"))
    return sorted(name for name in names if "checkpoints" not in name.parts)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused_or_harmless(kind: str, runs: Path, tmp_path: Path) -> None:
    names = files_of(runs / kind)
    for number in range(n_cases(60)):
        rng = generator("flips", kind, number)
        name, damage = names[int(rng.integers(len(names)))], DAMAGES[int(rng.integers(len(DAMAGES)))]
        run = Path(shutil.copytree(runs / kind, tmp_path / "run"))
        content = (run / name).read_bytes()
        (run / name).write_bytes(damaged(content, damage, rng) if content else b"x")
        is_changed = (run / name).read_bytes() != content
        message = _checked(partial(use, run), tmp_path / "run", f"{name} {damage} {number}")
        is_covered = kind == "format 4" and (name.name == "run.json" or name.parts[0] == "generations")
        if is_covered and is_changed:
            assert message, f"{name} {damage} {number} was not noticed"
        shutil.rmtree(run)


def _checked(work: Callable[[], None], folder: Path, name: str) -> str:
    try:
        return check(lambda _: work(), folder.parent / "nothing")
    except Exception as error:
        raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_another_run_are_refused(kind: str, runs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    Recommender("fm", k=4, epochs=1, threads=1, seed=7).fit(checkerboard(), out=other)
    for name in files_of(runs / "format 4") if kind == "format 4" else ():
        if name.parts[0] != "generations":
            continue
        run = Path(shutil.copytree(runs / kind, tmp_path / "run"))
        others = [path for path in other.rglob(name.name) if path.parent.name == name.parent.name or path.name == "card.md"]
        source = next((path for path in others if path.read_bytes() != (run / name).read_bytes()), None)
        if source is not None:
            (run / name).write_bytes(source.read_bytes())
            with pytest.raises(DataError, match=rf"{name.name} is damaged, or not the file of this run"):
                load_run(run)
        shutil.rmtree(run)


def paths_in(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON document."""
    yield path
    inner = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in inner:
        yield from paths_in(value, (*path, key))


def edited(document: Any, path: tuple[Any, ...], wrong: Any, *, gone: bool) -> Any:
    if not path:
        return wrong
    document = copy.deepcopy(document)
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    if gone:
        del holder[path[-1]]
    else:
        holder[path[-1]] = wrong
    return document


def json_edits(run: Path) -> Iterator[tuple[Path, str, str]]:
    """(file, what was edited, its new text)."""
    for name in files_of(run):
        if name.suffix not in (".json", ".jsonl"):
            continue
        lines = (run / name).read_text().splitlines() if name.suffix == ".jsonl" else [(run / name).read_text()]
        for number, text in enumerate(lines[:4]):
            document = json.loads(text)
            for path in paths_in(document):
                for label in ("gone", *WRONG) if path else WRONG:
                    changed = edited(document, path, WRONG.get(label), gone=label == "gone")
                    new = "\n".join([*lines[:number], json.dumps(changed), *lines[number + 1 :]]) + "\n"
                    yield name, f"{'/'.join(map(str, path))} {label} in line {number + 1}", new


def frame_edits(run: Path) -> Iterator[tuple[Path, str, bytes]]:
    for name in files_of(run):
        if name.suffix != ".parquet":
            continue
        frame = pl.read_parquet(run / name)
        changes: dict[str, pl.DataFrame] = {
            "no rows": frame.clear(),
            "twice": pl.concat([frame, frame]),
            "no columns": pl.DataFrame(),
        }
        for column in frame.columns:
            changes[f"{column} gone"] = frame.drop(column)
            changes[f"{column} renamed"] = frame.rename({column: "other"})
            changes[f"{column} null"] = frame.with_columns(pl.lit(None).alias(column))
            changes[f"{column} a constant"] = frame.with_columns(pl.lit(10**12).alias(column))
            changes[f"{column} negative"] = frame.with_columns(pl.lit(-5).alias(column))
            changes[f"{column} texts"] = frame.with_columns(pl.lit("x").alias(column))
            changes[f"{column} lists"] = frame.with_columns(pl.lit([[1.5]]).first().alias(column)) if frame.height else frame
            changes[f"{column} reversed"] = frame.with_columns(frame[column].reverse())
        for label, changed in changes.items():
            buffer = io.BytesIO()
            changed.write_parquet(buffer)
            yield name, label, buffer.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_edited_files_are_refused_or_harmless(kind: str, runs: Path, tmp_path: Path) -> None:
    """With checksums that fit, where there are some."""
    edits: list[tuple[Path, str, str | bytes]] = [*json_edits(runs / kind), *frame_edits(runs / kind)]
    assert len(edits) > 400
    chosen = generator("edits", kind).permutation(len(edits))[: n_cases(120)]
    failures = []
    for place in chosen:
        name, label, content = edits[int(place)]
        run = Path(shutil.copytree(runs / kind, tmp_path / "run"))
        (run / name).write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        try:
            if kind == "format 4" and name.parts[0] == "generations":
                reseal(run)
            elif kind == "format 4" and name.name == "run.json":
                _reseal_edited(run)
            check(lambda _, run=run: use(run), tmp_path / "nothing")  # type: ignore[misc]
        except Exception as error:
            failures.append(f"{name} {label}: {type(error).__name__}: {error}"[:300])
        shutil.rmtree(run)
    assert failures == []


def _reseal_edited(run: Path) -> None:
    """As far as what was edited still can have a checksum."""
    from gmlfm.runs.checksums import sealed

    about = json.loads((run / "run.json").read_text())
    if isinstance(about, dict):
        (run / "run.json").write_text(json.dumps(sealed(about)))
