"""What commands have in common: how they are declared, the run that they read, settings, and lists of pairs."""

from __future__ import annotations

import argparse
import shutil
import textwrap
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gmlfm.data.schema import ReadOptions
from gmlfm.data.sources.tables import read_table
from gmlfm.data.splits import AUTO, SPLITS
from gmlfm.errors import DataError, OptionError, did_you_mean
from gmlfm.progress import activity
from gmlfm.reading import READ_ERRORS, reason
from gmlfm.streams import read_text

if TYPE_CHECKING:
    from gmlfm.recommender import Recommender

DATA_HELP = "a name, a folder with a dataset.toml, or the path of a .toml"
MODEL_HELP = "see gmlfm models; or module:Class, a model of your own (default: gml-fm)"
TABLE_HELP = "csv, tsv, jsonl (each also .gz) or parquet"
SPLIT_FILES = ("train", "validation", "test", "validation-candidates", "test-candidates")
_LONGEST_CONFIG = 1 << 20
_OWN_OPTIONS = {"device", "model", "preset", "task"}


def add_command(
    commands: Any, name: str, about: str, description: str, examples: Sequence[str], pointer: str = ""
) -> argparse.ArgumentParser:
    """A command whose --help ends in examples, one a line, and perhaps in where to read on."""
    width = max(shutil.get_terminal_size().columns - 2, 40)
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=textwrap.fill(description, width),
        epilog="Examples:\n" + "\n".join(f"  {example}" for example in examples) + (f"\n\n{pointer}" if pointer else ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def shared_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON value for machines")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def add_data_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-root", metavar="DIR", help="where named datasets lie (else $GMLFM_DATA, else the cache folder)")
    parser.add_argument("--strict", action="store_true", help="refuse interactions whose user or item has no row in its table")


def add_run(parser: argparse.ArgumentParser) -> None:
    """The arguments that `load_run` reads."""
    parser.add_argument("run_folder", metavar="RUN", help="a run folder, written by gmlfm train")
    parser.add_argument("--model", metavar="MODULE:CLASS", help="for a run of a model that is not built in: where its class is")


def load_run(options: argparse.Namespace) -> Recommender:
    from gmlfm.recommender import Recommender

    model: dict[str, Any] = {} if options.model is None else {"model": options.model}
    with activity(f"reading {options.run_folder}"):
        return Recommender.load(options.run_folder, **model)


def add_settings(parser: argparse.ArgumentParser, example: str = "k=32 or lr=0.001", about: str = "a setting, such as") -> None:
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help=f"{about} {example}")


def add_split(parser: argparse.ArgumentParser) -> None:
    """The arguments that `split_of` reads."""
    names = (AUTO, *SPLITS)
    parser.add_argument("--split", default=AUTO, choices=names, metavar="NAME", help=f"{', '.join(names)} (default: auto)")
    parser.add_argument(
        "--split-file",
        dest="split_files",
        action="append",
        default=[],
        metavar="PART=FILE",
        help=f"of --split files: {', '.join(SPLIT_FILES)}; {TABLE_HELP}",
    )


def split_of(options: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """--split and its options: the paths of --split-file, by part."""
    paths: dict[str, Any] = {}
    for text in options.split_files:
        part, equals, path = text.partition("=")
        part = part.strip()
        if not equals or not path:
            raise OptionError(f"--split-file takes PART=FILE, such as test=test.tsv; got '{text}'.")
        if part not in SPLIT_FILES:
            raise OptionError(f"--split-file names the part '{part}'{did_you_mean(part, SPLIT_FILES)}")
        if part.replace("-", "_") in paths:
            raise OptionError(f"--split-file gives '{part}' twice; give each part one file, or a glob in quotes.")
        paths[part.replace("-", "_")] = path
    if paths and options.split != "files":
        raise OptionError(f"--split-file belongs to --split files; got --split {options.split}.")
    return options.split, paths


def shared_settings() -> str:
    """The settings that all trained models share, one a line, from their declarations."""
    from gmlfm.training.settings import settings_table

    rows = [(row["name"], str(row["default"]), row["meaning"]) for row in settings_table()]
    width = max(shutil.get_terminal_size().columns - 2, 60)
    name_width, default_width = (max(len(row[column]) for row in rows) + 2 for column in (0, 1))
    indent = " " * (2 + name_width + default_width)
    lines = []
    for name, default, meaning in rows:
        head = f"  {name:<{name_width}}{default:<{default_width}}"
        lines.append(textwrap.fill(meaning, width, initial_indent=head, subsequent_indent=indent))
    return "Settings for --set, with their defaults; a model's own: gmlfm settings MODEL\n" + "\n".join(lines)


def set_values(options: argparse.Namespace) -> dict[str, str]:
    """What --set gives, as texts; the last one of a name counts."""
    settings = {}
    for text in options.settings:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise OptionError(f"--set takes KEY=VALUE, such as k=32; got '{text}'.")
        settings[name.strip()] = value.strip()
    return settings


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """--config, then --set, then --seed and --threads, as far as the command has them."""
    settings: dict[str, Any] = {}
    config = getattr(options, "config", None)
    if config:
        try:
            settings.update(tomllib.loads(read_text(config, _LONGEST_CONFIG)))
        except (DataError, *READ_ERRORS) as error:
            raise OptionError(f"--config {config} cannot be read ({reason(error)}).") from error
    settings.update(set_values(options))
    for name in settings.keys() & _OWN_OPTIONS:
        raise OptionError(f"{name} is an option of its own; use --{name} {settings[name]}.")
    if getattr(options, "seed", None) is not None:
        settings["seed"] = options.seed
    if options.threads is not None:
        if options.threads < 1:
            raise OptionError(f"--threads is {options.threads}; expected 1 or more.")
        settings["threads"] = options.threads
    return settings


def named_values(text: str, option: str) -> dict[str, str]:
    """K=V,K=V as a mapping."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if not pairs or any(not equals or not name.strip() for name, equals, _ in pairs):
        instead = '; a value with a comma goes in --attribute "K=V"' if option == "--attributes" else ""
        raise OptionError(f"{option} takes K=V,K=V{instead}; got '{text}'.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def add_picture(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--picture", metavar="FILE", help="draw it, too: a file that ends in .svg, .png or .pdf")


def add_context(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--context", metavar="K=V,...", help="the context of the occasion, where the data have context fields")


def context_of(options: argparse.Namespace) -> dict[str, Any]:
    """The keyword `context` of a verb, where one was given."""
    return {} if options.context is None else {"context": named_values(options.context, "--context")}


def comma_list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def read_file(path: str) -> pl.DataFrame:
    """A table by its path, how it is written being found out from the file."""
    with activity(f"reading {path}"):
        return read_table(path, Path(), ReadOptions()).frame
