"""The public face of the package: what it offers, and that it keeps quiet."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gmlfm

SOURCES = Path(gmlfm.__file__).parent


def test_dir_lists_what_there_is_and_each_name_resolves() -> None:
    names = dir(gmlfm)
    assert sorted(names) == sorted({*gmlfm.__all__, "__version__"})
    for name in names:
        assert getattr(gmlfm, name) is not None
    for name in ("Recommender", "load_dataset", "Dataset", "Model", "GradientModel", "PairwiseModel", "ClosedFormModel"):
        assert getattr(gmlfm, name).__name__ == name
    with pytest.raises(AttributeError, match="module 'gmlfm' has no attribute 'Recomender'"):
        gmlfm.Recomender  # noqa: B018


def _prints(path: Path) -> list[str]:
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    names = [(node.func.id, node.lineno) for node in calls if isinstance(node.func, ast.Name)]
    return [f"{path.relative_to(SOURCES)}:{line}" for name, line in names if name in ("print", "pprint")]


def test_nothing_but_the_command_line_prints() -> None:
    paths = [path for path in SOURCES.rglob("*.py") if path.relative_to(SOURCES).parts[0] != "cli"]
    assert len(paths) > 100
    assert [place for path in paths for place in _prints(path)] == []
    assert any(_prints(path) for path in (SOURCES / "cli").glob("*.py"))  # the walk does see calls
