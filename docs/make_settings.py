"""docs/settings.md, from what the settings declare: python docs/make_settings.py"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gmlfm.models.registry import MODELS
from gmlfm.training.settings import settings_table

HEAD = """# Settings

Every setting with its kind, default, range and meaning, as declared in the code: `gmlfm settings [MODEL]` prints them,
`--set NAME=VALUE` and keywords of `Recommender` set them. This page is written by `python docs/make_settings.py`; a test holds
it to the code.
"""
COLUMNS = ("name", "kind", "default", "range", "meaning", "tuned")


def page() -> str:
    parts = [HEAD]
    of_all = settings_table()
    for part, title in (("training", "Training"), ("batches", "Batches"), ("history", "What users did before")):
        parts += [f"## {title}", "", _table([row for row in of_all if row["of"] == part]), ""]
    parts += ["## Models", ""]
    for name, info in MODELS.items():
        rows = settings_table(name, info.tasks[0])
        shared = {row["name"]: row["default"] for row in of_all}
        differ = [
            f"`{row['name']}={row['default']}`" for row in rows if shared.get(row["name"], row["default"]) != row["default"]
        ]
        own = [row for row in rows if row["of"] == "model"]
        parts += [f"### {name}", "", f"{info.about[0].upper()}{info.about[1:]}."]
        parts += [f"Other defaults under this name: {', '.join(differ)}."] if differ else []
        parts += ["", _table(own)] if own else []
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        cells = [
            f"`{row['name']}`",
            row["kind"],
            f"{row['default']}",
            row["range"],
            row["meaning"],
            "yes" if row["searched"] else "",
        ]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    (Path(__file__).parent / "settings.md").write_text(page(), encoding="utf-8")
