"""Every command that writes, on a disk that is full, read-only or of the wrong kind: one sentence, exit 2, nothing half-written.

A limit on the size of files stands in for a full disk: every write beyond it fails.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gmlfm.cli import main
from gmlfm.data.sources.bazaar import Market, write_bazaar
from tests.fuzz.cases import n_cases

WRITING: dict[str, list[str]] = {
    "init": ["init", "{table}", "--force", "--out", "{out}"],
    "data prepare": ["data", "prepare", "{market}", "--out", "{out}"],
    "data get": ["data", "get", "bazaar", "--purchases", "2000", "--data-root", "{out}"],
    "train": ["train", "{market}", "--out", "{out}", "--model", "fm", "--set", "k=4", "--set", "epochs=1", "--threads", "1"],
    "train in place": ["train", "{market}", "--out", "{run}", "--force", "--model", "fm", "--set", "k=4", "--set", "epochs=1"],
    "tune": ["tune", "{market}", "--model", "item-knn", "--trials", "1", "--out", "{out}"],
    "compare": ["compare", "{market}", "--models", "popularity,item-knn", "--trials", "1", "--seeds", "1", "--out", "{out}"],
    "recommend all": ["recommend", "{run}", "--all", "--out", "{out}.parquet"],
    "explain": ["explain", "{run}", "--user", "b0000003", "--item", "t000000001", "--picture", "{out}.svg"],
    "attributes": ["attributes", "{run}", "--picture", "{out}.svg"],
    "sold": ["sold", "{run}", *(f"t{number:09d}" for number in range(1, 500))],
    "observe": ["observe", "{run}", "{clicks}"],
    "add-items": ["add-items", "{run}", "{items}"],
    "forget": ["forget", "{run}", "--user", "b0000004"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A market, a run of it, and tables. Read-only."""
    folder = tmp_path_factory.mktemp("full")
    write_bazaar(Market(n_users=80, n_purchases=1_000), folder / "market")
    assert main([word.format(market=folder / "market", out=folder / "run") for word in WRITING["train"]]) == 0
    (folder / "table.csv").write_text("user,item,price\n" + "".join(f"u{n % 9},i{n % 7},{n}\n" for n in range(200)))
    schema = (folder / "market" / "dataset.toml").read_text()
    column = next(text.split('"')[1] for text in schema.split("[items]")[1].splitlines() if text.startswith("id "))
    (folder / "items.csv").write_text(f"{column}\nn1\nn2\n")
    clicks = "".join(f"w{n % 97},t{1 + n % 9:09d},{n}\n" for n in range(2_000))
    (folder / "clicks.csv").write_text(f"user,item\n{clicks}".replace("user,item", "user,item,event"))
    return folder


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("lock"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if "checkpoints" not in str(path)}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", WRITING)
def test_a_full_disk_is_one_sentence(name: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n_refused = 0
    for size in (0, 300, 3_000, 30_000, 150, 1_000, 10_000)[: n_cases(3)]:
        folder = tmp_path / str(size)
        run = Path(shutil.copytree(home / "run", folder / "run"))
        paths = {
            "market": home / "market",
            "run": run,
            "table": home / "table.csv",
            "items": home / "items.csv",
            "clicks": home / "clicks.csv",
        }
        before = _content(run)
        with files_of_at_most(size):
            code = main([word.format(**paths, out=folder / "out") for word in WRITING[name]])
        errors = capsys.readouterr().err
        assert code in (0, 2), errors
        if code == 2:
            n_refused += 1
            sentence = [text for text in errors.splitlines() if text.startswith("gmlfm: ")]
            assert len(sentence) == 1, errors
            assert "unexpectedly" not in sentence[0]
            after = _content(run)
            after.pop("fit.json", None), after.pop("curve.jsonl", None)
            before.pop("fit.json", None), before.pop("curve.jsonl", None)
            assert after == before
            left = [str(path) for path in folder.rglob("*") if ".draft" in path.name or path.suffix in (".tmp", ".old")]
            assert left == []
        assert main(["recommend", str(run), "--user", "b0000003", "-n", "2"]) == 0  # whatever happened, the run is whole
        capsys.readouterr()
    assert n_refused > 0


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("where", ["/proc/gmlfm", "/dev/null/x", "{file}/x"])
@pytest.mark.parametrize("name", [name for name, words in WRITING.items() if any("{out}" in word for word in words)])
def test_a_place_that_cannot_be_written_is_one_sentence(
    name: str, where: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(home / "run", tmp_path / "run"))
    (tmp_path / "file").write_text("keep")
    paths = {
        "market": home / "market",
        "run": run,
        "table": home / "table.csv",
        "items": home / "items.csv",
        "clicks": home / "clicks.csv",
    }
    out = where.format(file=tmp_path / "file")
    code = main([word.format(**paths, out=out) for word in WRITING[name]])
    errors = capsys.readouterr().err
    assert code == 2, errors
    assert len([text for text in errors.splitlines() if text.startswith("gmlfm: ")]) == 1
    assert "unexpectedly" not in errors
    assert (tmp_path / "file").read_text() == "keep"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["init", "recommend all", "explain", "attributes"])
def test_links_and_devices_are_not_replaced(name: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(shutil.copytree(home / "run", tmp_path / "run"))
    (tmp_path / "precious").write_text("keep")
    paths = {
        "market": home / "market",
        "run": run,
        "table": home / "table.csv",
        "items": home / "items.csv",
        "clicks": home / "clicks.csv",
    }
    words = [word.format(**paths, out=tmp_path / "out") for word in WRITING[name]]
    target = tmp_path / next(word for word in reversed(words) if "out" in Path(word).name)
    target.symlink_to(tmp_path / "precious")
    assert main(words) == 2
    assert "is a symbolic link and would be replaced" in capsys.readouterr().err
    assert target.is_symlink()
    assert (tmp_path / "precious").read_text() == "keep"
