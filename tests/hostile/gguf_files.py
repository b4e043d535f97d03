"""GGUF files made to attack their reader: `HOSTILE` maps a file name to what builds it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

HOSTILE: dict[str, Callable[[], bytes]] = {}


def add(name: str, data: bytes | Callable[[], bytes]) -> None:
    assert f"{name}.gguf" not in HOSTILE, name
    HOSTILE[f"{name}.gguf"] = data if callable(data) else lambda: data


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: bytes, length: int | None = None) -> bytes:
    return u64(len(value) if length is None else length) + value


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return text(name) + u32(kind) + value


def array(kind: int, count: int, data: bytes = b"") -> bytes:
    return u32(kind) + u64(count) + data


def tensor(
    name: bytes = b"a",
    sides: Sequence[int] = (4,),
    kind: int = 0,
    offset: int = 0,
    axes: int | None = None,
) -> bytes:
    dims = b"".join(map(u64, sides))
    return text(name) + u32(len(sides) if axes is None else axes) + dims + u32(kind) + u64(offset)


def file(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    key_count: int | None = None,
    tensor_count: int | None = None,
) -> bytes:
    head = b"GGUF" + u32(version)
    head += u64(len(tensors) if tensor_count is None else tensor_count)
    head += u64(len(keys) if key_count is None else key_count)
    head += b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


ONE = key(b"x", 4, u32(1))
NAME = key(b"general.architecture", 8, text(b"llama"))
GOOD = file([NAME, ONE], [tensor()], bytes(32))
HUGE = (1 << 64) - 1

add("magic-alone", b"GGUF")
add("cut-in-version", GOOD[:6])
add("cut-in-counts", GOOD[:20])
add("cut-in-key", GOOD[:40])
add("cut-in-value", GOOD[: GOOD.index(b"llama") + 2])
add("cut-in-tensor", GOOD[: GOOD.index(b"\x01\0\0\0\0\0\0\0a") + 12])
add("cut-in-data", GOOD[:-17])
add("trailing", GOOD + b"\0" * 32)
add("version-0", file(version=0))
add("version-1", file(version=1))
add("version-4", file(version=4))
add("version-huge", file(version=0xFFFFFFFF))
add("big-endian-lies", GOOD[:4] + struct.pack(">I", 3) + GOOD[8:])
add("tensors-2pow64", file(tensor_count=HUGE))
add("tensors-2pow40", file([ONE], tensor_count=1 << 40))
add("tensors-more-than-there", file([ONE], [tensor()], bytes(32), tensor_count=9))
add("keys-2pow64", file(key_count=HUGE))
add("keys-more-than-there", file([ONE], key_count=60_000))
add("key-length-2pow64", file([text(b"x", HUGE) + u32(4) + u32(1)]))
add("key-length-2gib", file([text(b"x", 1 << 31) + u32(4) + u32(1)]))
add("key-empty", file([key(b"", 4, u32(1))]))
add("key-nul", file([key(b"a\0b", 4, u32(1))]))
add("key-not-utf8", file([key(b"\xc3\x28", 4, u32(1))]))
add("key-twice", file([ONE, ONE]))
add("type-13", file([key(b"x", 13, u32(1))]))
add("type-huge", file([key(b"x", 0xFFFFFFFF, u32(1))]))
add("text-2pow63", file([key(b"x", 8, text(b"a", 1 << 63))]))
add("text-longer-than-file", file([key(b"x", 8, text(b"a", 5000))]))
add("bool-2", file([key(b"x", 7, b"\2")]))
add("array-2pow64-bytes", file([key(b"x", 9, array(0, HUGE))]))
add("array-2pow61-doubles", file([key(b"x", 9, array(12, 1 << 61))]))
add("array-2pow60-texts", file([key(b"x", 9, array(8, 1 << 60))]))
add("array-text-lies", file([key(b"x", 9, array(8, 40, text(b"a", 1 << 40) * 40))]))
add("array-unknown-type", file([key(b"x", 9, array(77, 1, b"a"))]))
add("array-of-2pow60-arrays", file([key(b"x", 9, array(9, 1 << 60))]))
add("array-depth-1000", file([key(b"x", 9, array(9, 1) * 1000 + array(0, 1, b"a"))]))
add("alignment-0", file([key(b"general.alignment", 4, u32(0))], [tensor()], bytes(32)))
add("alignment-3", file([key(b"general.alignment", 4, u32(3))], [tensor()], bytes(32)))
add("alignment-2gib", file([key(b"general.alignment", 4, u32(1 << 31))], [tensor()], bytes(32)))
add("alignment-text", file([key(b"general.alignment", 8, text(b"32"))], [tensor()], bytes(32)))
add("alignment-negative", file([key(b"general.alignment", 5, b"\xff" * 4)], [tensor()], bytes(32)))
add("name-twice", file([], [tensor(), tensor(offset=32)], bytes(64)))
add("name-empty", file([], [tensor(b"")], bytes(32)))
add("name-nul", file([], [tensor(b"a\0")], bytes(32)))
add("name-not-utf8", file([], [tensor(b"\xff\xfe")], bytes(32)))
add("name-2mib", file([], [tensor(b"a" * (2 << 20))], bytes(32)))
add("axes-5", file([], [tensor(sides=[1] * 5)], bytes(32)))
add("axes-2pow32", file([], [tensor(axes=0xFFFFFFFF)], bytes(32)))
add("overflow", file([], [tensor(sides=[1 << 32, 1 << 32])], bytes(32)))
add("overflow-to-zero", file([], [tensor(sides=[1 << 62, 4])], bytes(32)))
add("overflow-and-zero", file([], [tensor(sides=[1 << 62, 1 << 62, 0])], bytes(32)))
add("terabyte", file([], [tensor(sides=[1 << 40])], bytes(32)))
add("type-of-tensor-99", file([], [tensor(kind=99)], bytes(32)))
add("type-of-tensor-removed", file([], [tensor(kind=4)], bytes(32)))
add("half-a-block", file([], [tensor(sides=[16, 2], kind=2)], bytes(32)))
add("block-along-the-wrong-axis", file([], [tensor(sides=[2, 256], kind=12)], bytes(512)))
add("offset-not-aligned", file([], [tensor(offset=4)], bytes(64)))
add("offset-beyond", file([], [tensor(offset=1 << 20)], bytes(32)))
add("offset-2pow64", file([], [tensor(offset=HUGE - 31)], bytes(32)))
add("overlap", file([], [tensor(sides=[16]), tensor(b"b", offset=32)], bytes(64)))
add("same-bytes", file([], [tensor(), tensor(b"b")], bytes(32)))
add("hole", file([], [tensor(), tensor(b"b", offset=64)], bytes(96)))
add("starts-late", file([], [tensor(offset=32)], bytes(64)))
add("header-70mib", lambda: file([key(b"x", 9, array(0, 70 << 20, bytes(70 << 20)))]))
add("texts-5m-empty", lambda: file([key(b"x", 9, array(8, 5_000_000, bytes(40_000_000)))]))
add("arrays-5m-empty", lambda: file([key(b"x", 9, array(9, 5_000_000, array(0, 0) * 5_000_000))]))
add("tensors-100001", lambda: file([], [tensor(b"%d" % i, [0]) for i in range(100_001)]))
