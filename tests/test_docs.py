"""Pages that are written from the code say what the code says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_the_page_of_settings_is_what_the_settings_declare() -> None:
    page = runpy.run_path(str(DOCS / "make_settings.py"))["page"]()
    assert (DOCS / "settings.md").read_text(encoding="utf-8") == page, "run: python docs/make_settings.py"


def test_the_example_of_history_is_true() -> None:
    section = (DOCS / "data.md").read_text(encoding="utf-8").partition("## What counts as history")[2].partition("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert example.count("assert ") == 3
    exec(compile(example, "docs/data.md", "exec"), {})
