"""deploy/healthcheck.py."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
CHECK: dict[str, Any] = runpy.run_path(str(DEPLOY / "healthcheck.py"), run_name="healthcheck")


@pytest.mark.parametrize(
    ("words", "port"),
    [
        ("gmlfm serve /run-folder --host 0.0.0.0", "8765"),
        ("gmlfm serve /run-folder --host 0.0.0.0 --port 9000", "9000"),
        ("docker-init -- gmlfm serve /run-folder --port=9000 --insecure", "9000"),
        ("gmlfm serve /run-folder --port 1 --port 9000", "9000"),
        ("gmlfm serve /run-folder --port", ""),
    ],
)
def test_health_is_looked_for_where_the_service_listens(words: str, port: str) -> None:
    assert CHECK["port_of"](words.split()) == port


def test_the_image_has_the_check() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    (copy,) = [line for line in lines if line.startswith("COPY") and "healthcheck.py" in line]
    target = copy.split()[-1]
    assert any(target in line for line in lines if "CMD" in line)
    assert "!deploy/healthcheck.py" in (DEPLOY.parent / ".dockerignore").read_text().splitlines(), "all else is left out"
