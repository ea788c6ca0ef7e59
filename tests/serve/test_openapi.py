"""The description of the API is true: whatever it allows is answered as it says."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable as NothingToMake
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from gmlfm.serve import ServeOptions, create_app
from gmlfm.serve.describing import docs_page

_SETTINGS = settings(
    max_examples=12,  # of each operation, right and wrong
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
_FOR_SOMEBODY = ("/recommend", "/score", "/explain")
_CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


def test_whatever_is_asked_is_answered_as_described(own_folder: Path, items: list[str]) -> None:
    """schemathesis makes the requests of the description itself, right ones and wrong ones."""
    app = create_app(own_folder, ServeOptions(log="errors"))
    users = app.state.service.default.served.recommender.fitted.data.users.ids.to_list()
    names: list[str] = []
    answered: Counter[tuple[str, int]] = Counter()
    for result in schemathesis.openapi.from_asgi("/openapi.json", app).get_all_operations():
        operation = result.ok()
        names.append(f"{operation.method.upper()} {operation.path}")
        user = users[1] if operation.method == "delete" else users[0]
        answered.update((names[-1], status) for status in _answers(operation, user, items))
    assert {"POST /recommend", "POST /events", "DELETE /users/{user}", "GET /health"} <= set(names)
    assert [name for name in names if not answered[name, 200]] == [], "none was answered"


def _answers(operation: Any, user: str, items: list[str]) -> list[int]:
    statuses: list[int] = []

    def asks(case: schemathesis.Case) -> None:
        if mode is schemathesis.GenerationMode.POSITIVE:
            _of_what_is_there(case, user, items)
        statuses.append(case.call_and_validate(checks=_CHECKS).status_code)

    for mode in schemathesis.GenerationMode:
        with suppress(NothingToMake):  # where nothing is taken, nothing can be wrong
            _SETTINGS(given(case=operation.as_strategy(generation_mode=mode))(asks))()
    return statuses


def _of_what_is_there(case: schemathesis.Case, user: str, items: list[str]) -> None:
    """Made-up ids are hardly ever known: those of the data in their place."""
    case.query = {name: value for name, value in (case.query or {}).items() if name != "run"}
    if case.path_parameters:
        case.path_parameters = {"user": user, "item": items[0]}
    body = case.body if isinstance(case.body, dict) else {}
    for asked in [body, *body.get("requests", ()), *body.get("events", ())]:
        known = {"user": user, "item": items[0], "items": items[:2], "n": 3, "most": 3}
        asked.update({name: value for name, value in known.items() if name in asked})
        is_question = case.operation.path.startswith(_FOR_SOMEBODY) and "requests" not in asked
        if is_question and not asked.keys() & {"user", "attributes", "history"}:
            asked["user"] = user  # what is made up seldom says for whom, and then none of a few is answered
        if "user" in asked and "event" not in asked and "time" not in asked:
            for name in ("attributes", "history", "context", "filter", "caps", "available", "seen"):
                asked.pop(name, None)
    if case.operation.path == "/availability":
        body.update({name: items[:1] for name in ("sold",) if name in body}, available=items[1:2])
    if case.operation.path == "/items" and "items" in body:
        body["items"] = [{"item": f"new {number}"} for number in range(len(body["items"]))]


def test_the_page_of_the_api_names_every_route_and_loads_nothing(reader: TestClient) -> None:
    page = reader.get("/docs").text
    for path, methods in reader.get("/openapi.json").json()["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in page
    assert not re.search(r"https?://|<script|src=", page)


def test_what_describes_is_shown_as_text() -> None:
    content = {
        "info": {"description": "<b>"},
        "components": {"schemas": {}},
        "paths": {"/<i>": {"get": {"summary": "<u>", "responses": {}}}},
    }
    page = docs_page(content)
    assert not re.search("<[biu]>", page)
