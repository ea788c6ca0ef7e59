"""gmlfm models: the models there are."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.table import Table

from gmlfm.cli.options import add_command, shared_options
from gmlfm.cli.output import console_for, print_json, verbatim
from gmlfm.models.settings import Choice, Space

_WHICH = (
    "Which one: gml-fm where there are times, ease where there are none; sasrec, slower, may be best where items' attributes "
    "tell much. NDCG@10 of gml-fm and fm, validation, all items ranked: ML-1M .1565 .1546, Office .0607 .0555, Auto .0848 "
    ".0845, Clothing .0259 .0205 (docs/research.md)."
)
_MOST = {"newcomers by": 17}  # characters, so that what a model is has room on a narrow terminal

if TYPE_CHECKING:
    from gmlfm.models.registry import ModelInfo


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "models",
        "the models there are",
        "Every model with its tasks, whether it uses attributes, and what it goes by for newcomers. With NAME, that model's "
        "settings and what gmlfm tune tries.",
        ["gmlfm models", "gmlfm models gml-fm", "gmlfm models --json"],
        pointer="What each setting means: gmlfm settings MODEL",
    )
    parser.add_argument("model", nargs="?", metavar="NAME", help="a model in detail; or module:Class, a model of your own")
    shared_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from gmlfm.models.registry import all_models, model_info

    if options.model is not None:
        info = model_info(options.model)
        if options.json:
            print_json(_described(info))
        else:
            _show_model(info)
        return
    if options.json:
        print_json([_described(info) for info in all_models()])
        return
    console = console_for()
    console.print(_models_table(all_models()))
    console.print(_WHICH)
    console.print("gmlfm models NAME tells a model's settings, and what gmlfm tune tries.")


def _models_table(infos: Iterable[ModelInfo]) -> Table:
    """Readable at 80 columns: the tasks are told of models that do not have all of them."""
    from gmlfm.models.base import TASKS

    table = Table(header_style="bold", caption=f"Tasks: {', '.join(TASKS)}, unless others are told.", caption_justify="left")
    for heading in ("name", "what it is", "reads", "newcomers by"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("name", "reads"), max_width=_MOST.get(heading))
    for info in infos:
        tasks = "" if set(info.tasks) == set(TASKS) else f" ({', '.join(info.tasks)} alone)"
        reads = "attributes" if info.uses_attributes else "ids"
        table.add_row(verbatim(info.name), verbatim(info.about + tasks), reads, verbatim(info.newcomers))
    return table


def _described(info: ModelInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "tasks": list(info.tasks),
        "uses_attributes": info.uses_attributes,
        "newcomers": info.newcomers,
        "about": info.about,
        "settings": info.option_names(),
    }


def _show_model(info: ModelInfo) -> None:
    from gmlfm.tuning.spaces import defaults, search_space

    task = next(iter(info.tasks))
    spaces = search_space(info, task)
    default_values = defaults(info, task, spaces)
    console = console_for()
    about = f"{verbatim(info.about)}. Its equation is in the docstring of {verbatim(info.equation)}."
    console.print(f"[bold]{verbatim(info.name)}[/]: {about}", soft_wrap=True)
    uses = "uses attributes" if info.uses_attributes else "uses ids alone"
    console.print(f"Tasks: {', '.join(info.tasks)}; {uses}; newcomers: {info.newcomers}.", soft_wrap=True)
    console.print(f"Settings of its own: {', '.join(info.option_names()) or 'none'}", soft_wrap=True)
    table = Table(title="what gmlfm tune tries", title_justify="left", header_style="bold")
    for heading in ("setting", "by default", "range"):
        table.add_column(heading, overflow="fold")
    for setting, space in spaces.items():
        table.add_row(setting, str(default_values.get(setting, "-")), _range(space))
    if spaces:
        console.print(table)
    console.print(f"gmlfm settings {info.name} tells every setting's meaning.")


def _range(space: Space) -> str:
    if isinstance(space, Choice):
        return ", ".join(str(value) or "none" for value in space.values)
    return f"{space.low:g} to {space.high:g}"
