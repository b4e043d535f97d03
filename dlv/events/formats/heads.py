"""The head of a frozen series: what it is, and the blocks of its points by their hashes."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dlv.canonical import WRITER, dumps, is_hash, loads
from dlv.errors import Damaged, NewerFormat

FORMAT = "dlv/series/1"
BLOCK = 4096  # points at most
UNKNOWN, SCALARS, TENSORS, BLOBS = range(4)  # data classes; of unknown ones tensors are kept

_KEYS = {
    *("format", "writer", "run", "tag", "plugin", "data_class", "plugin_content"),
    *("display_name", "description", "n", "points", "purges"),
}
_TEXTS = ("run", "tag", "plugin", "display_name", "description")


@dataclass(frozen=True)
class Head:
    """`purges` are (policy, seq, step): of the points before `seq`, those from `step` on went."""

    run: str
    tag: str
    plugin: str
    data_class: int
    content: bytes
    display_name: str
    description: str
    points: tuple[tuple[str, int], ...] = ()
    purges: tuple[tuple[str, int, int], ...] = ()

    @property
    def n(self) -> int:
        return sum(count for _, count in self.points)

    def encode(self) -> bytes:
        return dumps(
            {
                "format": FORMAT,
                "writer": WRITER,
                "run": self.run,
                "tag": self.tag,
                "plugin": self.plugin,
                "data_class": self.data_class,
                "plugin_content": base64.b64encode(self.content).decode(),
                "display_name": self.display_name,
                "description": self.description,
                "n": self.n,
                "points": [list(block) for block in self.points],
                "purges": [list(purge) for purge in self.purges],
            }
        )


def decode(data: bytes) -> Head:
    value = loads(data, "series")
    if not isinstance(value, dict) or not isinstance(value.get("format"), str):
        raise damaged("it names no format")
    if value["format"] != FORMAT:
        raise NewerFormat(
            f"a metric series has the format `{value['format']}`",
            why=f"this dlv reads `{FORMAT}`; it was written by {value.get('writer')}",
            hint="pip install --upgrade dlv",
        )
    if missing := sorted(_KEYS - set(value)):
        raise damaged(f"keys are missing: {', '.join(missing)}")
    for key in sorted(set(value) - _KEYS):
        raise _newer(value, f"the key `{key}`")
    kind = value["data_class"]
    if type(kind) is not int or not UNKNOWN <= kind <= BLOBS:
        raise _newer(value, f"the data class {kind!r}")
    if not all(isinstance(value[key], str) for key in _TEXTS):
        raise damaged("a name is not text")
    try:
        content = base64.b64decode(value["plugin_content"], validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise damaged("what its plugin says is not base64") from error
    head = Head(
        *(value["run"], value["tag"], value["plugin"], value["data_class"], content),
        *(value["display_name"], value["description"]),
        tuple(_points(value)),
        tuple(_purges(value)),
    )
    if type(value["n"]) is not int or value["n"] != head.n:
        raise damaged(f"{value['n']!r} points are announced, its blocks hold another number")
    return head


def blocks(data: bytes) -> list[str]:
    """The hashes of the blocks that a head names."""
    return [digest for digest, _ in _points(loads(data, "series"))]


def _points(value: Any) -> Iterator[tuple[str, int]]:
    for item in _list(value, "points"):
        if not (isinstance(item, list) and len(item) == 2 and is_hash(item[0])):
            raise damaged("a block has no hash")
        if not (type(item[1]) is int and 0 < item[1] <= BLOCK):
            raise damaged("a block has an impossible length")
        yield item[0], item[1]


def _purges(value: Any) -> Iterator[tuple[str, int, int]]:
    for item in _list(value, "purges"):
        if not (isinstance(item, list) and len(item) == 3 and isinstance(item[0], str)):
            raise damaged("a restart is not a policy and two numbers")
        if not (type(item[1]) is int and item[1] >= 0 and type(item[2]) is int):
            raise damaged("a restart has an impossible number")
        yield item[0], item[1], item[2]


def _list(value: Any, key: str) -> Iterable[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise damaged(f"it lists no {key}")
    return found


def _newer(value: dict[str, Any], thing: str) -> NewerFormat:
    return NewerFormat(
        f"a metric series has {thing}, which this dlv does not know",
        why=f"it was written by {value.get('writer')}",
        hint="pip install --upgrade dlv",
    )


def damaged(why: str) -> Damaged:
    return Damaged("a metric series is damaged", why=why, hint="dlv fsck")
