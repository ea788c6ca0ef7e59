"""Draws the pictures of README and docs from real runs of the commands: python docs/make_pictures.py"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from rich.console import Console

from gmlfm.cli.init import show
from gmlfm.cli.summary import show_summary
from gmlfm.data.describe import describe
from gmlfm.data.sources import load_dataset
from gmlfm.data.sources.inspection import inspect_files

ROOT = Path(__file__).parent.parent
SHOP = ("purchases.csv", "buyers.csv", "catalogue.csv")


def draw(name: str, title: str, print_to: object) -> None:
    assert callable(print_to)
    console = Console(record=True, force_terminal=True, width=100, file=open("/dev/null", "w", encoding="utf-8"))
    print_to(console)
    console.save_svg(str(ROOT / "docs" / "images" / name), title=title, unique_id=name.split(".")[0])


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        shop = Path(shutil.copytree(ROOT / "examples" / "shop", Path(temporary) / "shop"))
        inspected = inspect_files([shop / name for name in SHOP], shop)
        draw("init.svg", f"gmlfm init {' '.join(SHOP)}", lambda console: show(inspected, console))
    summary = describe(load_dataset("bazaar"))
    draw("describe.svg", "gmlfm data describe bazaar", lambda console: show_summary(summary, console))


if __name__ == "__main__":
    main()
