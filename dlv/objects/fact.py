"""Facts: what is true of a version but not part of its content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from dlv.canonical import WRITER, dumps, hash_bytes, is_hash
from dlv.dataclass import dataclass
from dlv.objects.manifest import NAME
from dlv.objects.record import Hash, Time, Word, as_json, decode, natural, parse, whole

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
    "promise",
    "card",
)


@dataclass(frozen=True)
class Fact:
    """What is true of a version but not part of its content: a number, a tag, a removal."""

    kind: Annotated[str, Word(KINDS.__contains__)]
    subject: str | None
    author: str
    created: Time
    data: dict[str, Any]
    replaces: Hash | None = None
    writer: str = WRITER

    def encode(self) -> bytes:
        return dumps({"format": FORMAT, **as_json(self)})

    @property
    def hash(self) -> str:
        return hash_bytes(self.encode())


def decode_fact(data: bytes, noun: str = "fact") -> Fact:
    """Read a fact strictly; an unknown kind was written by a newer dlv."""
    record, place = parse(data, FORMAT, noun)
    fact = decode(Fact, record, place)
    if fact.kind in _OF_ID and not is_hash(fact.subject):
        raise place.damaged("`subject` is not an id")
    if (fact.subject is None) != (fact.kind == "archive"):
        raise place.damaged(f"`subject` does not fit the kind {fact.kind}")
    check = _DATA.get(fact.kind)
    if check is not None and not check(fact.data):
        raise place.damaged(f"`data` does not fit the kind {fact.kind}")
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
    "promise": lambda data: (
        isinstance(data.get("remote"), str)
        and is_hash(data.get("uuid"))
        and is_hash(data.get("locator"))
    ),
}
_OF_ID = ("number", "removal", "undo", "evaluation", "promise", "card")
