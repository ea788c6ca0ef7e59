"""Names say what they hold: no module, class, function, parameter, attribute or setting bears a retired word."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from gmlfm.models.registry import MODELS
from gmlfm.training.settings import ALIASES, settings_table

SOURCES = Path(__file__).parent.parent / "src" / "gmlfm"
# Each had a meaning of our own where the field has a word (docs/architecture.md, the glossary).
RETIRED = frozenset(
    "asking answering Strangers Meetings strangers meetings hide everything everything_for pairs_for Answers Counted Pairwise "
    "ready see kept own sides Known Job Material Fitted Outcome first again slopes slope fading lanes lane line decoy worth "
    "regime dealing numbering getting fetching frames said heard told she her".split()
)
# Words that name nothing: what is held is what should be named. They may not be local variables either.
EMPTY = frozenset("one found at there".split())
# The contract's own names, and the words of file formats and libraries.
ALLOWED = {("function", "pairs"), ("attribute", "ready")}  # of /health


def defined_names(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """(kind, name, line) of everything that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield "class", node.name, node.lineno
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield "attribute", statement.target.id, statement.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield "function", node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield "parameter", node.arg, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield "attribute", node.attr, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield "variable", node.id, node.lineno


def breaks_a_rule(kind: str, name: str) -> bool:
    bare = name.lstrip("_")
    if bare in EMPTY:
        return True
    words = bare.upper().split("_")
    if bare.isupper() and len(words) == 3 and words[1] in ("A", "AN"):
        return True  # ROWS_A_BLOCK is ROWS_PER_BLOCK
    return kind != "variable" and bare in RETIRED and (kind, bare) not in ALLOWED


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCES)))
def test_no_name_is_retired_or_empty(path: Path) -> None:
    names = [("module", path.stem, 1), *defined_names(ast.parse(path.read_text(encoding="utf-8")))]
    wrong = [f"{path.name}:{line} {kind} {name}" for kind, name, line in names if breaks_a_rule(kind, name)]
    assert not wrong


def test_no_setting_is_retired() -> None:
    names = {row["name"] for model in MODELS for row in settings_table(model, MODELS[model].tasks[0])}
    assert not names & (RETIRED | EMPTY | set(ALIASES))


def test_the_rule_sees_each_kind_of_name() -> None:
    source = (
        "class Job:\n    own: int\n    def see(self, asking):\n        self.line = 1\n        for one in asking: found = one\n"
    )
    broken = {(kind, name) for kind, name, _ in defined_names(ast.parse(source)) if breaks_a_rule(kind, name)}
    assert broken == {
        ("class", "Job"),
        ("attribute", "own"),
        ("function", "see"),
        ("parameter", "asking"),
        ("attribute", "line"),
        ("variable", "one"),
        ("variable", "found"),
    }
