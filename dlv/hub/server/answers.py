"""JSON schemas of the answers of routes, from which the description of the API is made."""

from __future__ import annotations

from typing import Any

TEXT = ["string", "null"]
NUMBER = ["integer", "null"]
BYTES: dict[str, Any] = {"type": "string", "format": "binary"}


def an_object(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these keys: a type, types, or a schema."""
    kinds = {
        key: {"type": kind} if isinstance(kind, (str, list)) else kind
        for key, kind in properties.items()
    }
    return {"type": "object", "properties": kinds, "required": sorted(kinds)}


def a_list(**properties: Any) -> dict[str, Any]:
    return {"type": "array", "items": an_object(**properties)}


def _map_of(kind: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": {"type": kind}}


HEALTH = an_object(status="string")
LIMITS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": NUMBER}}
CONFIG = an_object(
    format="string", version="string", url="string", login=an_object(openid="boolean"),
    formats={"type": "array", "items": {"type": "string"}}, limits=LIMITS,
)  # fmt: skip
ANYTHING: dict[str, Any] = {"type": "object"}
TEXT_ANSWER: dict[str, Any] = {"type": "string"}

REPOSITORIES = an_object(
    repositories=a_list(name="string", visibility="string", description="string", changed="string")
)
CREATED = an_object(namespace="string", name="string")
REPOSITORY = an_object(
    namespace="string", name="string", visibility="string", description="string", role="string",
    uuid="string", remote="string",
)  # fmt: skip
NEWEST = an_object(refs=_map_of("integer"))
RECORDS = an_object(refs={"type": "array", "items": {"type": "string"}})
REF: dict[str, Any] = {
    **an_object(
        format="string", seq="integer", kind="string", name="string", number="integer",
        manifest="string", locator="string", prev=TEXT, author="string", time="string",
        nonce="string", sig=TEXT, writer="string",
    ),
    "description": "a ref, byte for byte as it was published",
}  # fmt: skip
APPENDED = an_object(seq="integer")
_DIRECT = {
    "oneOf": [
        {"type": "null"},
        an_object(href="string", method="string", headers=_map_of("string")),
    ]
}
BATCH = an_object(
    objects=a_list(
        kind="string", hash="string", present="boolean", offset="integer", upload=_DIRECT
    )
)
LEASE = an_object(lease="string", expires="string")
ALIASES = an_object(
    aliases=a_list(
        name="string", alias="string", number="integer", manifest="string", changed="string"
    )
)
ALIAS = an_object(model="string", alias="string", number="integer")
_KEYS = {"type": "array", "items": {"type": "string"}}
COLLECTED = an_object(deleted=_KEYS, listed=_KEYS, until=TEXT, bytes="integer", leases="integer")
