"""Only `gmlfm.models` knows which models there are and of which kinds; import-linter holds the layers themselves."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "src" / "gmlfm"
# What others may import of the models: the protocol, the registry, the settings, and what trainers work on.
OPEN = {"base", "registry", "settings", "gradient", "frozen", "history", "terms"}
# The trainer of episodic models, and the scikit-learn estimators, which are GML-FM by name.
# And the bench's FM with histories in plain PyTorch.
EXCEPTIONS = {
    ("bench/history.py", "fm"),
    ("training/episode_trainer.py", "episodic"),
    ("fitting/plan.py", "episodic"),
    ("estimators.py", "gmlfm"),
}


def model_modules(path: Path) -> set[str]:
    """The modules of gmlfm.models that a file imports."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gmlfm.models."):
            imported.add((node.module or "").split(".")[2])
        if isinstance(node, ast.ImportFrom) and node.module == "gmlfm.models":
            imported |= {alias.name for alias in node.names}
    return imported


OUTSIDE = sorted(path for path in SOURCES.rglob("*.py") if path.relative_to(SOURCES).parts[0] not in ("models", "__init__.py"))


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(SOURCES)))
def test_no_other_package_names_a_model_or_a_kind_of_model(path: Path) -> None:
    place = path.relative_to(SOURCES).as_posix()
    assert {name for name in model_modules(path) - OPEN if (place, name) not in EXCEPTIONS} == set()


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(SOURCES)))
def test_nothing_asks_what_kind_of_model_it_holds(path: Path) -> None:
    kinds = {"GradientModel", "PairwiseModel", "ClosedFormModel", "EpisodicModel"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
            names = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
            assert not names & kinds, f"{path.name}:{node.lineno}"
