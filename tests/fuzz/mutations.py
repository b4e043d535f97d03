"""Bytes and JSON with something wrong in them: as an accident or an attacker would have it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

EDGES = (0, 1, 2, 3, 4, 7, 8, 15, 16, 127, 128, 255, 256, 1000, 4095, 4096, 65535, 65536)
LARGE = (1 << 31, (1 << 32) - 1, 1 << 40, 1 << 53, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
TEXTS = (
    *("", " ", "\0", "a" * 300, "é", "\u202e", "\ud800", "..", "../../etc/passwd", "/etc/passwd"),
    *("<script>", "NaN", "Infinity", "-Infinity", "1e999", "null", "true", "C:\\x", "CON", ".git"),
    *("lenet@3", "$1", "($1)", "*", "[", "]" * 50, "(" * 50, "%n%s", "'; drop table version; --"),
)
_TOKENS = (
    *(text.encode("utf-8", "surrogatepass") for text in TEXTS),
    *(b"-1", b"9" * 30, b"1e400", b"0x10", b'"', b"'", b"{", b"}", b"[[", b"]]", b"\r\n", b"#"),
    *(b"\xff\xfe", b"\xef\xbb\xbf", b"\x1f\x8b", b"PK\x03\x04", b"\x80\x04", b"!!python/object:"),
)
_MOST = 1 << 18


def bytes_changed(lot: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """One to a few changes, most often one."""
    found = bytearray(data)
    for _ in range(lot.choice((1, 1, 1, 2, 3, 8))):
        _change(lot, found, others)
    return bytes(found[:_MOST])


def _change(lot: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = lot.randrange(len(data) + 1)
    size = min(lot.choice((1, 1, 2, 4, 8, 16, 100, 1000)), len(data) - at)
    match lot.randrange(9):
        case 0 if at < len(data):
            data[at] ^= 1 << lot.randrange(8)
        case 1 if at < len(data):
            data[at] = lot.choice((0, 1, 0x7F, 0x80, 0xFF, lot.randrange(256)))
        case 2:
            width = lot.choice((2, 4, 8))
            number = lot.choice((*EDGES, *LARGE, len(data), at)) % (1 << 8 * width)
            data[at : at + width] = number.to_bytes(width, lot.choice(("little", "big")))
        case 3:
            del data[at : at + size]
        case 4:
            data[at:at] = data[at : at + size] * lot.choice((1, 2, 50))
        case 5:
            del data[at:]
        case 6 if others:
            other = lot.choice(others)
            start = lot.randrange(len(other) + 1)
            data[at:] = other[start:]
        case 7:
            data[at : at + lot.choice((0, size))] = lot.choice(_TOKENS)
        case _:
            data[at:at] = lot.randbytes(lot.choice((1, 3, 20)))


def json_changed(lot: random.Random, value: Any) -> Any:
    """The tree with another value, key or order somewhere; what is shared stays untouched."""
    for _ in range(lot.choice((1, 1, 1, 2, 4))):
        places = list(_places(value, ()))
        value = _set(value, lot.choice(places), lot)
    return value


def _places(value: Any, here: tuple[Any, ...]) -> Any:
    yield here
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*here, key))
    elif isinstance(value, list):
        for place, item in enumerate(value[:50]):
            yield from _places(item, (*here, place))


def _set(value: Any, path: tuple[Any, ...], lot: random.Random) -> Any:
    if not path:
        return _other(value, lot)
    first, *rest = path
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    chance = lot.random()
    if not rest and chance < 0.15:
        del copy[first]
    elif not rest and chance < 0.25 and isinstance(copy, dict):
        copy[lot.choice((*TEXTS, "format", "id"))] = copy.pop(first)
    elif not rest and chance < 0.35 and isinstance(copy, list):
        copy.insert(lot.randrange(len(copy) + 1), copy[first])
    else:
        copy[first] = _set(value[first], tuple(rest), lot)
    return copy


def _other(value: Any, lot: random.Random) -> Any:
    if isinstance(value, str) and value and lot.random() < 0.4:
        at = lot.randrange(len(value))
        return value[:at] + lot.choice((*TEXTS, "0", "f", "-")) + value[at + 1 :]
    if isinstance(value, int) and lot.random() < 0.4:
        return value + lot.choice((-1, 1, 2, -value, value, 1 << 32))
    if isinstance(value, list) and lot.random() < 0.4:
        return value * lot.choice((0, 2, 3)) if len(value) < 100 else value[::-1]
    deep: Any = lot.choice((0, "x"))
    for _ in range(lot.choice((1, 14, 40))):
        deep = [deep]
    return lot.choice(
        (
            *(None, True, False, [], {}, deep, [0], {"a": 1}, 0.5, -0.0, 1e308, -1),
            *(lot.choice(EDGES), lot.choice(LARGE), -(1 << 63), lot.choice(TEXTS)),
        )
    )
