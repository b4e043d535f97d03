"""Graphs and run metadata as text: stored messages in protobuf's text format."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dlv.errors import Damaged
from dlv.events.formats.graph_messages import ENUMERATIONS, MESSAGES
from dlv.events.formats.wire import (
    BYTES,
    DEPTH,
    FIXED32,
    FIXED64,
    VARINT,
    Malformed,
    double,
    fields,
    signed,
    signed32,
    single,
)
from dlv.events.formats.wire import varint as varint_at

_WIRE = {"string": BYTES, "bytes": BYTES, "double": FIXED64, "fixed64": FIXED64}
_WIRE |= {"float": FIXED32}
_SHORT = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}
_ESCAPED = [
    _SHORT.get(byte, chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in range(256)
]


@dataclass(frozen=True)
class Field:
    name: str
    mark: str  # "", or as in MESSAGES
    kind: str  # a scalar type, "@Enumeration" or a message

    @property
    def scalar(self) -> bool:
        return self.kind[0] == "@" or self.kind.islower()

    @property
    def wire(self) -> int:
        """The wire type that it has, but for numbers that are packed together."""
        return _WIRE.get(self.kind, VARINT) if self.scalar and self.mark != "%" else BYTES


@cache
def _messages() -> Mapping[str, Mapping[int, Field]]:
    found: dict[str, dict[int, Field]] = {}
    for name, rest in _paragraphs(MESSAGES):
        fields = found.setdefault(name, {})
        for item in rest.split(","):
            number, field, kind = item.split()
            mark = field[-1] if field[-1] in "*?=%" else ""
            fields[int(number)] = Field(field.removesuffix(mark), mark, kind)
    return found


@cache
def _enumerations() -> Mapping[str, Mapping[int, str]]:
    return {
        f"@{name}": {
            int(number): word for number, _, word in (each.partition("=") for each in rest.split())
        }
        for name, rest in _paragraphs(ENUMERATIONS)
    }


def _paragraphs(text: str) -> Iterator[tuple[str, str]]:
    for paragraph in text.replace("\n  ", " ").splitlines():
        name, _, rest = paragraph.partition(": ")
        yield name, rest


def text(message: str, data: bytes) -> Iterator[str]:
    """The lines of a stored message; fields that are not known are left out."""
    return _lines(message, data, "")


def limited_graph(data: bytes, limit: int, large_attrs_key: str) -> bytes:
    """A GraphDef without the attributes of nodes that take more than `limit` bytes.

    Each node that lost some has their names in a list under `large_attrs_key`.
    """
    graph = bytearray()
    for number, kind, value in _parts(data):
        if number == 1 and kind == BYTES:
            node = _limited_node(value, limit, large_attrs_key.encode("utf-8", "replace"))
            graph += tagged(1, node)
        else:
            graph += _again(number, kind, value)
    return bytes(graph)


def _limited_node(data: bytes, limit: int, key: bytes) -> bytes:
    kept, large = bytearray(), []
    for number, kind, value in _parts(data):
        if number == 5 and kind == BYTES:
            entry = {n: v for n, k, v in _parts(value) if k == BYTES}
            if len(entry.get(2, b"")) > limit:
                large.append(entry.get(1, b""))
                continue
        kept += _again(number, kind, value)
    if large:
        names = b"".join(tagged(2, name) for name in sorted(large))
        kept += tagged(5, tagged(1, key) + tagged(2, tagged(1, names)))
    return bytes(kept)


def tagged(number: int, data: bytes) -> bytes:
    """A field of bytes, text or a message as it is stored."""
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _parts(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value (a whole number, or bytes) of each field."""
    try:
        for number, kind, value, end in fields(data):
            yield number, kind, data[value:end] if kind == BYTES else value
    except Malformed as error:
        raise _damaged(str(error)) from error


def _again(number: int, kind: int, value: Any) -> bytes:
    """A field as it was stored."""
    if kind == BYTES:
        return tagged(number, value)
    key = varint(number << 3 | kind)
    if kind == VARINT:
        return key + varint(value)
    return key + int(value).to_bytes(8 if kind == FIXED64 else 4, "little")


def _damaged(why: str) -> Damaged:
    return Damaged("a stored graph is damaged", why=why, hint="dlv fsck")


def _lines(message: str, data: bytes, indent: str) -> Iterator[str]:
    if len(indent) > 2 * DEPTH:
        raise _damaged(f"it is nested more than {DEPTH} deep")
    known = _messages()[message]
    found: dict[int, list[Any]] = {}
    chosen = 0  # of the fields that exclude each other, the last one counts
    for number, kind, value in _parts(data):
        field = known.get(number)
        if field is None:
            continue
        if kind == field.wire:
            if field.mark == "?" and number != chosen:
                found.pop(chosen, None)
                chosen = number
            found.setdefault(number, []).append(value)
        elif kind == BYTES and field.mark == "*":
            found.setdefault(number, []).extend(_unpacked(value, field.wire))
    for number in sorted(found):
        yield from _field(known[number], found[number], indent)


def _unpacked(data: bytes, kind: int) -> Iterator[int]:
    """The numbers of a repeated field that stand together."""
    at, size = 0, {FIXED64: 8, FIXED32: 4}.get(kind)
    while at < len(data):
        if size is None:
            try:
                value, at = varint_at(data, at, len(data))
            except Malformed as error:
                raise _damaged(str(error)) from error
            yield value
        else:
            if at + size > len(data):
                raise _damaged("a list ends within a number")
            yield int.from_bytes(data[at : at + size], "little")
            at += size


def _field(field: Field, values: Sequence[Any], indent: str) -> Iterator[str]:
    name = field.name
    if field.mark == "%":
        yield from _entries(field, values, indent)
    elif not field.scalar:
        # Two halves of one message are merged by reading them as one.
        for value in values if field.mark == "*" else [b"".join(values)]:
            yield f"{indent}{name} {{"
            yield from _lines(field.kind, value, f"{indent}  ")
            yield f"{indent}}}"
    elif field.mark == "*":
        for value in values:
            yield f"{indent}{name}: {_shown(field.kind, value)}"
    else:
        shown = _shown(field.kind, values[-1])
        if field.mark or shown != _absent(field.kind):
            yield f"{indent}{name}: {shown}"


def _entries(field: Field, values: Sequence[bytes], indent: str) -> Iterator[str]:
    """A map, sorted; of two entries with one key the later one counts."""
    key_kind, _, kind = field.kind.partition(":")
    key_field, value_field = Field("key", "=", key_kind), Field("value", "=", kind)
    latest: dict[Any, list[Any]] = {}
    for entry in values:
        key: Any = _nothing(key_field)
        held: list[Any] = []
        for number, wire, part in _parts(entry):
            if number == 1 and wire == key_field.wire:
                key = part
            elif number == 2 and wire == value_field.wire:
                held.append(part)
        latest[key] = held or [_nothing(value_field)]
    for key in sorted(latest):
        yield f"{indent}{field.name} {{"
        yield from _field(key_field, [key], f"{indent}  ")
        yield from _field(value_field, latest[key], f"{indent}  ")
        yield f"{indent}}}"


def _nothing(field: Field) -> bytes | int:
    return b"" if field.wire == BYTES else 0


def _absent(kind: str) -> str:
    if kind in ("string", "bytes"):
        return '""'
    if kind[0] == "@":
        return _enumerations()[kind].get(0, "0")
    return {"bool": "false", "double": "0.0", "float": "0.0"}.get(kind, "0")


def _shown(kind: str, value: Any) -> str:
    if kind in ("string", "bytes"):
        return quoted(value)
    if kind == "double":
        return str(double(value))
    if kind == "float":
        return _shortest(single(value))
    if kind == "bool":
        return "true" if value else "false"
    if kind[0] == "@":
        return _enumerations()[kind].get(signed32(value), str(signed32(value)))
    if kind in ("int32", "int64"):
        return str(signed32(value) if kind == "int32" else signed(value))
    return str(value & 0xFFFFFFFF if kind == "uint32" else value)


def _shortest(value: float) -> str:
    """The fewest digits that give the same single-precision number."""
    if value - value != 0:  # not finite
        return str(value)
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        try:
            if struct.unpack("<f", struct.pack("<f", short))[0] == value:
                return str(short)
        except OverflowError:  # rounded beyond the largest one
            continue
    return str(float(f"{value:.9g}"))


def quoted(data: bytes) -> str:
    """Bytes or UTF-8 as they stand in protobuf's text format."""
    return '"' + "".join(_ESCAPED[byte] for byte in data) + '"'
