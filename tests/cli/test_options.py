from __future__ import annotations

from argparse import ArgumentParser, Namespace
from inspect import signature
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gmlfm.cli.main import main
from gmlfm.cli.options import (
    SPLIT_FILES,
    add_split,
    comma_list,
    context_of,
    load_run,
    named_values,
    read_file,
    settings_of,
    split_of,
)
from gmlfm.data.splits import SPLITS
from gmlfm.errors import DataError, OptionError
from gmlfm.training.settings import settings_table


def test_settings_in_the_order_of_their_precedence(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("k = 8\nlr = 0.1\nseed = 3\n")
    options = Namespace(config=str(tmp_path / "c.toml"), settings=["k=16", " layers = 2"], seed=None, threads=1)
    assert settings_of(options) == {"k": "16", "lr": 0.1, "seed": 3, "layers": "2", "threads": 1}
    options.seed = 5
    assert settings_of(options)["seed"] == 5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"settings": ["k"]}, "--set takes KEY=VALUE, such as k=32; got 'k'"),
        ({"settings": ["task=rating"]}, "task is an option of its own; use --task rating"),
        ({"threads": 0}, "--threads is 0; expected 1 or more"),
        ({"config": "gone.toml"}, "--config gone.toml cannot be read"),
        ({"config": "/dev/zero"}, r"--config /dev/zero cannot be read \(/dev/zero is a device"),
        ({"config": "a\0b"}, r"--config a\\x00b cannot be read"),
    ],
)
def test_wrong_settings_are_one_sentence(more: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        settings_of(Namespace(**{"settings": [], "threads": None, **more}))


def _split(*arguments: str) -> tuple[str, dict[str, Any]]:
    parser = ArgumentParser()
    add_split(parser)
    return split_of(parser.parse_args(arguments))


def test_a_split_and_its_files_by_part() -> None:
    assert _split() == ("auto", {})
    assert _split("--split", "newcomers") == ("newcomers", {})
    files = ["--split-file", "test=a=b.tsv", "--split-file", "test-candidates=lists.tsv"]
    assert _split("--split", "files", *files) == ("files", {"test": "a=b.tsv", "test_candidates": "lists.tsv"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["files", "--split-file", "test.tsv"], "--split-file takes PART=FILE, such as test=test.tsv; got 'test.tsv'"),
        (["files", "--split-file", "tset=t.tsv"], "--split-file names the part 'tset'; did you mean 'test'"),
        (["files", "--split-file", "test=a", "--split-file", "test=b"], "--split-file gives 'test' twice"),
        (["random", "--split-file", "test=a"], "--split-file belongs to --split files; got --split random"),
    ],
)
def test_wrong_split_files_are_one_sentence(arguments: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        _split("--split", *arguments)


def test_the_parts_of_split_files_are_the_options_of_the_split() -> None:
    options = list(signature(SPLITS["files"]).parameters)[1:]
    assert [part.replace("-", "_") for part in SPLIT_FILES] == options


def test_pairs_and_lists() -> None:
    assert named_values("age=20-29, region = Osaka", "--attributes") == {"age": "20-29", "region": "Osaka"}
    assert comma_list("a, b,,c") == ["a", "b", "c"]
    assert context_of(Namespace(context=None)) == {}
    assert context_of(Namespace(context="hour=9")) == {"context": {"hour": "9"}}
    for text in ("age", "=3", ""):
        with pytest.raises(OptionError, match="--context takes K=V,K=V"):
            named_values(text, "--context")


def test_a_run_is_loaded_with_the_class_that_is_named(run: str) -> None:
    assert load_run(Namespace(run_folder=run, model=None)).settings.model == "gml-fm"
    assert load_run(Namespace(run_folder=run, model="gml-fm")).settings.model == "gml-fm"
    for model in ("fm", "gmlfm.models.mf:MF"):
        with pytest.raises(OptionError, match="holds a run of 'gml-fm', not of"):
            load_run(Namespace(run_folder=run, model=model))


def test_tables_of_any_kind(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": ["a", "b"], "item": ["x", "y"]})
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_ndjson(tmp_path / "t.jsonl")
    for ending in ("csv", "parquet", "jsonl"):
        assert read_file(str(tmp_path / f"t.{ending}")).equals(frame)
    with pytest.raises(DataError, match="does not exist"):
        read_file(str(tmp_path / "gone.csv"))


def test_the_help_of_train_ends_in_the_settings_as_they_are_declared(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for row in settings_table():
        assert f"{row['name']} {row['default']} {row['meaning']}" in shown


@pytest.mark.parametrize("content", ["k = " + "[" * 20_000, "k = " + "9" * 5_000, "k = \udcff"])
def test_a_configuration_of_nonsense_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "c.toml").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(OptionError, match=r"--config .*c\.toml cannot be read \("):
        settings_of(Namespace(config=str(tmp_path / "c.toml"), settings=[], threads=None))
