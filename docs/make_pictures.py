"""Draw the pictures of README and docs from real runs of the commands: python docs/make_pictures.py"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from gmlfm.cli.data import training_command
from gmlfm.cli.init import show
from gmlfm.cli.main import build_parser
from gmlfm.cli.summary import show_summary
from gmlfm.data.describe import describe
from gmlfm.data.sources import load_dataset
from gmlfm.data.sources.inspection import inspect_files

ROOT = Path(__file__).parent.parent
SHOP = ("purchases.csv", "buyers.csv", "catalogue.csv")


def draw(name: str, title: str, show_on: Callable[[Console], None]) -> None:
    """Record what a command shows on a terminal as an SVG file of docs/images."""
    console = Console(record=True, force_terminal=True, width=100, file=io.StringIO())
    show_on(console)
    console.save_svg(str(ROOT / "docs" / "images" / name), title=title, unique_id=name.split(".")[0])


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        shop = Path(shutil.copytree(ROOT / "examples" / "shop", Path(temporary) / "shop"))
        inspected = inspect_files([shop / name for name in SHOP], shop)
        draw("init.svg", f"gmlfm init {' '.join(SHOP)}", lambda console: show(inspected, console))
    data, options = load_dataset("bazaar"), build_parser().parse_args(["data", "describe", "bazaar"])
    summary, command = describe(data), training_command(options, data.name)
    draw("describe.svg", "gmlfm data describe bazaar", lambda console: show_summary(summary, console, command))


if __name__ == "__main__":
    main()
