"""Faults that axe-core finds in what a page shows."""

from __future__ import annotations

import os
from pathlib import Path

from tests.browser.chromium import Page

ROOT = Path(__file__).parent.parent.parent
_AXE = Path(os.environ.get("GMLFM_AXE", ROOT / ".browser" / "node_modules" / "axe-core" / "axe.min.js"))
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_RUN = """
const [rules, done] = arguments;
axe.run(document, {runOnly: rules, resultTypes: ["violations"]}).then(
  (found) => done(found.violations.map((fault) => `${fault.id}: ${fault.help}: ` + fault.nodes.slice(0, 3).map(
    (node) => node.html.slice(0, 160) + " (" + node.failureSummary.split("\\n")[1] + ")").join(" | "))),
  (error) => done([String(error)]));
"""


def faults(page: Page) -> list[str]:
    assert _AXE.is_file(), f"{_AXE} is missing; make browser installs axe-core."
    page.run(_AXE.read_text(encoding="utf-8"))
    return list(page.run_async(_RUN, _RULES))
