"""The API's description: OpenAPI with its problems, and the same as a plain page that loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from gmlfm import __version__
from gmlfm.serve.contracts import ProblemDetail
from gmlfm.serve.problems import MEDIA_TYPE

_PROBLEMS = {
    "400": "What was asked cannot be answered: an unknown id, field or filter, a number out of range, no JSON",
    "401": "A token is needed, or it is wrong",
    "403": "This token may not write, or a page of another site asked",
    "404": "There is nothing at this address",
    "408": "The body came too slowly",
    "413": "The body is too large",
    "422": "A value is of a wrong type",
    "503": "Full, or not ready; Retry-After says when to ask again",
    "504": "The answer took too long",
}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "pre{overflow:auto;padding:.75rem;border:1px solid #8886;border-radius:.5rem;font-size:.85rem}"
    "h2{border-top:1px solid #8886;padding-top:1rem}code{font-size:.95em}"
)


def description(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = _described(app)
    return app.openapi_schema


def _described(app: FastAPI) -> dict[str, Any]:
    content = get_openapi(title="gmlfm", version=__version__, description=app.description, routes=app.routes)
    schemas = content["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["ProblemDetail"] = ProblemDetail.model_json_schema()
    problem = {"schema": {"$ref": "#/components/schemas/ProblemDetail"}}
    for _, operation in _operations(content):
        responses = operation["responses"]
        for status, about in _PROBLEMS.items():
            responses[status] = {"description": about, "content": {MEDIA_TYPE: problem}}
        responses["503"]["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "seconds"}}
        operation["security"] = [{}, {"bearer": []}]
    content["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    return content


def _operations(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in content["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def docs_page(content: dict[str, Any]) -> str:
    """Every operation with what it takes and gives."""
    schemas = content["components"]["schemas"]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>gmlfm: the API</title><style>{_STYLE}</style><h1>gmlfm: the API</h1>"
        f"<p>{escape(content['info'].get('description', ''))}</p>"
        "<p>For machines: <a href=/openapi.json>/openapi.json</a>. Errors are application/problem+json with one sentence "
        "in <code>detail</code>.</p>"
    ]
    for name, operation in _operations(content):
        parts.append(f"<h2><code>{escape(name)}</code></h2><p>{escape(operation.get('summary', ''))}.</p>")
        named = [f"{parameter['name']} ({parameter['in']})" for parameter in operation.get("parameters", ())]
        if named:
            parts.append(f"<p>Parameters: {escape(', '.join(named))}</p>")
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        if body:
            parts.append(f"<p>Takes</p><pre>{escape(_outline(body, schemas))}</pre>")
        answer = operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema")
        if answer:
            parts.append(f"<p>Answers</p><pre>{escape(_outline(answer, schemas))}</pre>")
    return "\n".join(parts)


def _outline(schema: dict[str, Any], schemas: dict[str, Any], depth: int = 0) -> str:
    """A schema as a sketch of the JSON it stands for."""
    if "$ref" in schema:
        return _outline(schemas[schema["$ref"].rpartition("/")[2]], schemas, depth)
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_outline(part, schemas, depth) for part in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " | ".join(repr(value) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"[{_outline(schema.get('items', {}), schemas, depth)}, ...]"
    if "properties" in schema:
        indent, required = "  " * (depth + 1), schema.get("required", ())
        lines = []
        for name, part in schema["properties"].items():
            about = f"   # {part['description']}" if part.get("description") else ""
            default = f" = {part['default']!r}" if "default" in part and name not in required else ""
            lines.append(f"{indent}{name}: {_outline(part, schemas, depth + 1)}{default}{about}")
        return "{\n" + "\n".join(lines) + "\n" + "  " * depth + "}"
    return str(schema.get("type", "anything"))
