"""Facts: what is true of a version but not part of its content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dlv.canonical import WRITER, dumps, hash_bytes, is_hash, is_time, loads
from dlv.objects.manifest import NAME
from dlv.objects.record import Reader, as_json, check_format, natural, whole

FORMAT = "dlv/fact/1"
KINDS = (
    "number",
    "tag",
    "removal",
    "undo",
    "evaluation",
    "query",
    "archive",
    "remote-head",
    "card",
)


@dataclass(frozen=True)
class Fact:
    """What is true of a version but not part of its content: a number, a tag, a removal."""

    kind: str
    subject: str | None
    author: str
    created: str
    data: dict[str, Any]
    replaces: str | None = None
    writer: str = WRITER

    def encode(self) -> bytes:
        return dumps({"format": FORMAT, **as_json(self)})

    @property
    def hash(self) -> str:
        return hash_bytes(self.encode())


def decode_fact(data: bytes, what: str = "fact") -> Fact:
    """Read a fact strictly; an unknown kind was written by a newer dlv."""
    value = loads(data, what)
    check_format(value, FORMAT, what)
    reader = Reader(value, what, "format writer kind subject author created replaces data")
    fact = Fact(
        kind=reader.one_of("kind", KINDS),
        subject=reader.optional("subject", str),
        author=reader.take("author", str),
        created=reader.take("created", str, is_time),
        data=reader.take("data", dict),
        replaces=reader.optional("replaces", str, is_hash),
        writer=reader.take("writer", str),
    )
    _check_fact(fact, reader)
    return fact


def _name_and_number(data: dict[str, Any]) -> bool:
    name = data.get("name")
    return isinstance(name, str) and NAME.match(name) is not None and natural(data.get("number"))


def _steps(data: dict[str, Any]) -> bool:
    """`collected`: what gc has taken of them for good; True = the whole version."""
    collected = data.get("collected", [])
    return _listed(data.get("steps", False)) and (collected is True or _listed(collected))


def _listed(steps: object) -> bool:
    return steps is None or (
        isinstance(steps, list) and all(step is None or whole(step) for step in steps)
    )


def _step(data: dict[str, Any]) -> bool:
    step = data.get("step", False)
    return (step is None or whole(step)) and isinstance(data.get("metrics"), dict)


# What the kinds say that change what is seen of a version; the data of the others is free.
_DATA: Mapping[str, Callable[[dict[str, Any]], bool]] = {
    "number": _name_and_number,
    "tag": lambda data: "version" in data and (data["version"] is None or is_hash(data["version"])),
    "removal": _steps,
    "undo": lambda data: not data,
    "evaluation": _step,
    "query": lambda data: "text" in data and isinstance(data["text"], str | None),
    "archive": lambda data: (
        isinstance(data.get("packs"), list) and all(map(is_hash, data["packs"]))
    ),
    "remote-head": lambda data: natural(data.get("seq")) and is_hash(data.get("hash")),
}
_OF_ID = ("number", "removal", "undo", "evaluation", "card")


def _check_fact(fact: Fact, reader: Reader) -> None:
    if fact.kind in _OF_ID and not is_hash(fact.subject):
        raise reader.damaged("`subject` is not an id")
    if (fact.subject is None) != (fact.kind == "archive"):
        raise reader.damaged(f"`subject` does not fit the kind {fact.kind}")
    check = _DATA.get(fact.kind)
    if check is not None and not check(fact.data):
        raise reader.damaged(f"`data` does not fit the kind {fact.kind}")
