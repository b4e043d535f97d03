"""Facts: what is true of a version but not part of its content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dlv.canonical import WRITER, dumps, hash_bytes, is_hash, loads
from dlv.errors import NewerFormat
from dlv.manifest import NAME
from dlv.record import Reader, check_format, natural

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
        return dumps(
            {
                "format": FORMAT,
                "writer": self.writer,
                "kind": self.kind,
                "subject": self.subject,
                "author": self.author,
                "created": self.created,
                "replaces": self.replaces,
                "data": self.data,
            }
        )

    @property
    def hash(self) -> str:
        return hash_bytes(self.encode())


def decode_fact(data: bytes, what: str = "fact") -> Fact:
    """Read a fact strictly; an unknown kind was written by a newer dlv."""
    value = loads(data, what)
    check_format(value, FORMAT, what)
    reader = Reader(value, what, "format writer kind subject author created replaces data")
    kind = reader.take("kind", str)
    if kind not in KINDS:
        raise NewerFormat(
            f"{what} is of the unknown kind `{kind}`", hint="pip install --upgrade dlv"
        )
    fact = Fact(
        kind=kind,
        subject=reader.optional("subject", str),
        author=reader.take("author", str),
        created=reader.take("created", str),
        data=reader.take("data", dict),
        replaces=reader.optional("replaces", str, is_hash),
        writer=reader.take("writer", str),
    )
    _check_fact(fact, reader)
    return fact


_FACT_DATA: Mapping[str, Callable[[dict[str, Any]], bool]] = {
    "number": lambda data: (
        isinstance(data.get("name"), str)
        and NAME.match(data["name"]) is not None
        and natural(data.get("number"))
    ),
    "tag": lambda data: "version" in data and (data["version"] is None or is_hash(data["version"])),
    "removal": lambda data: (
        "steps" in data and (data["steps"] is None or isinstance(data["steps"], list))
    ),
    "archive": lambda data: (
        isinstance(data.get("packs"), list) and all(map(is_hash, data["packs"]))
    ),
}


def _check_fact(fact: Fact, reader: Reader) -> None:
    if fact.kind in ("number", "removal", "undo", "evaluation") and not is_hash(fact.subject):
        raise reader.damaged("`subject` is not an id")
    check = _FACT_DATA.get(fact.kind)
    if check is not None and not check(fact.data):
        raise reader.damaged(f"`data` does not fit the kind {fact.kind}")
