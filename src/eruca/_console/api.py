"""The API: every page of a cluster as JSON, the page that explains it, and its OpenAPI document.

All of it is made from the declared routes, so a page cannot be missing. A read is `GET /api/c/{cluster}/...`; a change
is a POST of a JSON object, and with `"dry_run": true` it only shows what would change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from eruca import __version__
from eruca._console.identity.rights import Need
from eruca._console.pages.forms import Field
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.texts import Texts, texts_of
from eruca._console.pages.visit import Shown, Visit

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_TYPES: Final = {"number": "integer", "check": "boolean"}
_PROBLEM: Final = {"$ref": "#/components/responses/Problem"}
_LIST_QUERY: Final = {
    "q": "keep only rows that contain this",
    "sort": "the key of a column; `-` before it: descending",
    "page": "one page of 100 rows; without it all rows are returned",
}


def list_api_routes(routes: Sequence[Route]) -> list[Route]:
    """Return the routes that have a twin for JSON."""
    return [route for route in routes if route.in_api and route.path.startswith("/c/")]


def write_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the OpenAPI document of routes."""
    texts = texts_of("en")
    paths: dict[str, dict[str, Any]] = {}
    for route in list_api_routes(routes):
        operations = paths.setdefault(f"/api{route.path}", {})
        if "POST" in route.methods:
            operations["post"] = _describe_post(route, texts)
        # Where there is a POST too, GET is the page with the form: it has no data.
        elif "GET" in route.methods:
            operations["get"] = _describe_get(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Eruca console",
            "version": __version__,
            "description": "The reads and changes of the web console. Log in first; a change also needs the token of"
            " the session, which `GET /api/session` returns.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": "eruca_session"},
                "token": {"type": "apiKey", "in": "header", "name": "X-CSRF-Token"},
            },
            "responses": {
                "Problem": {
                    "description": "It was refused, or the cluster did not answer.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }
            },
            "schemas": {
                "Problem": {
                    "type": "object",
                    "required": ["error"],
                    "properties": {
                        "error": {"type": "string"},
                        "hint": {"type": "string"},
                        "status": {"type": "integer"},
                    },
                }
            },
        },
    }


def _describe_get(route: Route) -> dict[str, Any]:
    query = {**_LIST_QUERY, **route.fields}
    return {
        **_describe(route),
        "security": [{"session": []}],
        "parameters": [
            *_list_path_parameters(route),
            *(
                {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
                for name, text in query.items()
            ),
        ],
        "responses": _list_answers(),
    }


def _describe_post(route: Route, texts: Texts) -> dict[str, Any]:
    properties = {field.name: _describe_field(field, texts) for field in route.form}
    properties |= {name: {"type": "string", "description": text} for name, text in route.fields.items()}
    properties["dry_run"] = {"type": "boolean", "description": "Show what would change, and change nothing."}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    required = [field.name for field in route.form if field.required and field.default is None]
    if required:
        schema["required"] = required
    return {
        **_describe(route),
        "security": [{"session": [], "token": []}],
        "parameters": _list_path_parameters(route),
        "requestBody": {"content": {"application/json": {"schema": schema}}},
        "responses": _list_answers(),
    }


def _describe(route: Route) -> dict[str, Any]:
    return {
        "summary": route.summary,
        "operationId": route.handler.__name__,
        "description": f"Needs the role {route.need.name.lower()}.",
    }


def _list_path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]


def _describe_field(field: Field, texts: Texts) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES.get(field.kind, "string"), "description": texts(field.label)}
    for name, value in (("minimum", field.low), ("maximum", field.high), ("default", field.default)):
        if value is not None:
            schema[name] = value
    if field.choices:
        schema["enum"] = list(field.choices)
    if schema["type"] == "string":
        schema["maxLength"] = field.chars_max
    return schema


def _list_answers() -> dict[str, Any]:
    answer = {"description": "The data of the page.", "content": {"application/json": {"schema": {}}}}
    return {"200": answer, "400": _PROBLEM, "401": _PROBLEM, "403": _PROBLEM, "404": _PROBLEM, "502": _PROBLEM}


# -- the pages about it ------------------------------------------------------------------------------------------------


async def show_api(visit: Visit) -> Shown:
    """Show which paths there are, and how to call them."""
    routes = list_api_routes(visit.parts.routes)
    rows = [
        ("POST" if "POST" in route.methods else "GET", f"/api{route.path}", route.summary, route.need.name.lower())
        for route in routes
    ]
    return visit.show("api.html", None, rows=rows)


async def send_document(visit: Visit) -> Response:
    """Return the OpenAPI document."""
    return JSONResponse(write_document(visit.parts.routes))


async def show_session(visit: Visit) -> Response:
    """Return who is logged in, and the token for changes."""
    assert visit.session is not None
    found = {"user": visit.user.name, "csrf": visit.session.csrf, "clusters": visit.parts.clusters.names}
    return JSONResponse(found, headers={"Cache-Control": "no-store"})


ROUTES = (
    Route("/api", show_api, Need.LOGGED_IN, nav=Nav("console", 40, "nav.api", "api"), in_api=False),
    Route("/api/openapi.json", send_document, Need.LOGGED_IN, in_api=False),
    Route("/api/session", show_session, Need.LOGGED_IN, in_api=False),
)
