"""The description of the hub's API, made from its routes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from dlv.canonical import VERSION
from dlv.hub.server import answers
from dlv.hub.server.access import Role
from dlv.hub.server.exchange import JSON, Route

_NAMES = re.compile(r"\{(\w+)\}")
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_STATUS = {
    200: "Success", 201: "Created", 202: "Not yet", 204: "Done", 206: "A part of the object",
    304: "The client has it", 307: "At the address in Location", 400: "Not valid",
    401: "The token is not valid", 403: "The role is too low",
    404: "Does not exist, or may not be known", 408: "Too slow", 409: "Conflict", 412: "Exists",
    413: "Too large", 416: "No such bytes", 422: "Not valid", 428: "A condition is missing",
    429: "Too many requests", 502: "The store of the hub does not answer",
    503: "Try again", 507: "Over the quota",
}  # fmt: skip
_HASH = "^[0-9a-f]{64}$"
_PATTERNS = {"hash": _HASH, "seq": "^[0-9]{1,16}$", "kind": "^(packs|manifests|locators|facts)$"}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "kind", "message", "why", "hint", "did_you_mean"],
            "properties": {
                "code": {"type": "integer"},
                "kind": {"type": "string"},
                "message": {"type": "string"},
                "why": {"type": ["string", "null"]},
                "hint": {"type": ["string", "null"]},
                "did_you_mean": {"type": "array", "items": {"type": "string"}},
            },
        }
    },
}


def describe(routes: Iterable[Route], url: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dlv hub",
            "version": VERSION,
            "description": "Publish, find and fetch versions of deep-learning models.",
        },
        "servers": [{"url": url}],
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    required = ["{namespace}" in route.path and route.role > Role.READER, route.known]
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "description": f"Role: {_role(route)}.",
        "parameters": _parameters(route),
        "responses": _responses(route),
        "security": [{"token": []}] if any(required) or route.operator else [{}, {"token": []}],
    }
    if route.body is bytes or route.streams:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/octet-stream": {"schema": answers.BYTES}},
        }
    elif route.body is not None:
        schema = schema_of(route.body)
        operation["requestBody"] = {
            "required": bool(schema.get("required")),
            "content": {JSON: {"schema": schema}},
        }
    return operation


def _operation_id(route: Route) -> str:
    function = getattr(route.handler, "__name__", "handler")
    # Some handlers answer for a namespace and for a repository.
    return function + ("_of_namespace" if "/{namespace}/-/" in route.path else "")


def _role(route: Route) -> str:
    if route.operator:
        return "operator of the hub"
    if route.role is not Role.NONE:
        return route.role.word
    return "any token" if route.known else "none"


def _parameters(route: Route) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    for name in _NAMES.findall(route.path):
        schema: dict[str, Any] = {"type": "string", "minLength": 1}
        if name in _PATTERNS:
            schema["pattern"] = _PATTERNS[name]
        parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    for name, description in route.query.items():
        parameters.append(
            {"name": name, "in": "query", "description": description, "schema": {"type": "string"}}
        )
    if route.streams:
        headers = {"Upload-Offset": "^[0-9]{1,15}$", "Upload-Complete": r"^\?[01]$"}
        for name, pattern in headers.items():
            schema = {"type": "string", "pattern": pattern}
            required = name == "Upload-Offset"
            parameters.append(
                {"name": name, "in": "header", "required": required, "schema": schema}
            )
    if route.body is bytes:
        schema = {"type": "string", "pattern": r"^\*$"}
        parameters.append(
            {"name": "If-None-Match", "in": "header", "required": True, "schema": schema}
        )
    return parameters


def _responses(route: Route) -> dict[str, Any]:
    statuses = {*route.statuses, 400, 401, 404, 429, 502, 503}
    if route.role > Role.READER or route.operator or route.known:
        statuses.add(403)
    if route.body is not None or route.streams:
        statuses |= {408, 413, 422}
    if route.body is bytes:
        statuses.add(428)
    responses: dict[str, Any] = {}
    for status in sorted(statuses):
        response: dict[str, Any] = {"description": _STATUS.get(status, "Answer")}
        if status >= 400:
            schema = {"$ref": "#/components/schemas/Error"}
            response["content"] = {JSON: {"schema": schema}}
        elif status in (200, 201, 202, 206) and route.answer is not None:
            schema = route.answer if isinstance(route.answer, dict) else schema_of(route.answer)
            response["content"] = {route.media: {"schema": schema}}
        responses[str(status)] = response
    return responses


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type, as bodies are read."""
    origin, arguments = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        fields = dataclasses.fields(kind)
        needed = [f.name for f in fields if f.default is dataclasses.MISSING]
        return {
            "type": "object",
            "properties": {name: schema_of(hint) for name, hint in hints.items()},
            "required": needed,
            "additionalProperties": False,
        }
    if origin in (tuple, list):
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin is dict:
        return {"type": "object"}
    if arguments and NoneType in arguments:
        inner = schema_of(next(each for each in arguments if each is not NoneType))
        return {**inner, "type": [inner["type"], "null"]}
    return {"type": _TYPES[kind]}
