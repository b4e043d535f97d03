"""Pickle opcodes in use, and the walk over them that refuses what could cost more than it is long.

Only protocols 2 to 5, as torch.save has ever written; nothing here makes an object of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from dlv.errors import Damaged, UnsafeInput

MOST_OPCODES = 2_000_000
MOST_STACK = 10_000  # batches of a dict push 2,000
MOST_MARKS = 100
_MOST_NAME = 512

_NUMBERS = {
    "u1": struct.Struct("<B"),
    "u2": struct.Struct("<H"),
    "u4": struct.Struct("<I"),
    "i4": struct.Struct("<i"),
    "u8": struct.Struct("<Q"),
    "f8": struct.Struct(">d"),
}

# opcode: name, argument, values taken, values left; "*" in the argument: also down to a MARK
_OPCODES: dict[int, tuple[str, str, int, int]] = {
    0x80: ("PROTO", "u1", 0, 0),
    0x95: ("FRAME", "u8", 0, 0),
    ord("."): ("STOP", "", 1, 0),
    ord("("): ("MARK", "", 0, 0),
    ord("0"): ("POP", "", 1, 0),
    ord("1"): ("POP_MARK", "*", 0, 0),
    ord("2"): ("DUP", "", 1, 2),
    ord("N"): ("NONE", "", 0, 1),
    0x88: ("NEWTRUE", "", 0, 1),
    0x89: ("NEWFALSE", "", 0, 1),
    ord("J"): ("PUSH", "i4", 0, 1),
    ord("K"): ("PUSH", "u1", 0, 1),
    ord("M"): ("PUSH", "u2", 0, 1),
    ord("G"): ("PUSH", "f8", 0, 1),
    0x8A: ("PUSH", "long u1", 0, 1),
    0x8B: ("PUSH", "long i4", 0, 1),
    ord("U"): ("PUSH", "string u1", 0, 1),
    ord("T"): ("PUSH", "string i4", 0, 1),
    ord("C"): ("PUSH", "bytes u1", 0, 1),
    ord("B"): ("PUSH", "bytes u4", 0, 1),
    0x8E: ("PUSH", "bytes u8", 0, 1),
    0x96: ("PUSH", "bytes u8", 0, 1),
    0x8C: ("PUSH", "text u1", 0, 1),
    ord("X"): ("PUSH", "text u4", 0, 1),
    0x8D: ("PUSH", "text u8", 0, 1),
    ord("]"): ("EMPTY_LIST", "", 0, 1),
    0x8F: ("EMPTY_LIST", "", 0, 1),  # a set
    ord("}"): ("EMPTY_DICT", "", 0, 1),
    ord(")"): ("EMPTY_TUPLE", "", 0, 1),
    ord("a"): ("APPEND", "", 2, 1),
    ord("e"): ("APPENDS", "*", 1, 1),
    0x90: ("APPENDS", "*", 1, 1),  # to a set
    ord("s"): ("SETITEM", "", 3, 1),
    ord("u"): ("SETITEMS", "*", 1, 1),
    ord("t"): ("TUPLE", "*", 0, 1),
    0x91: ("TUPLE", "*", 0, 1),  # a frozenset
    ord("l"): ("LIST", "*", 0, 1),
    ord("d"): ("DICT", "*", 0, 1),
    0x85: ("TUPLE1", "", 1, 1),
    0x86: ("TUPLE2", "", 2, 1),
    0x87: ("TUPLE3", "", 3, 1),
    ord("c"): ("GLOBAL", "name", 0, 1),
    0x93: ("STACK_GLOBAL", "", 2, 1),
    ord("R"): ("REDUCE", "", 2, 1),
    0x81: ("REDUCE", "", 2, 1),  # NEWOBJ: a class instead of a function
    0x92: ("NEWOBJ_EX", "", 3, 1),
    ord("b"): ("BUILD", "", 2, 1),
    ord("Q"): ("BINPERSID", "", 1, 1),
    0x94: ("MEMOIZE", "", 1, 1),
    ord("q"): ("PUT", "u1", 1, 1),
    ord("r"): ("PUT", "u4", 1, 1),
    ord("h"): ("GET", "u1", 0, 1),
    ord("j"): ("GET", "u4", 0, 1),
}

_REFUSED = {
    ord("i"): "INST, which calls a name",
    ord("o"): "OBJ, which calls a name",
    0x82: "EXT1, a name from a registry",
    0x83: "EXT2, a name from a registry",
    0x84: "EXT4, a name from a registry",
    ord("P"): "PERSID, a reference in text",
    0x97: "NEXT_BUFFER, data outside of the file",
    0x98: "READONLY_BUFFER, data outside of the file",
}


def instructions(data: bytes, where: str) -> Iterator[tuple[int, str, Any]]:
    """Position, name and argument of every opcode; no argument reaches beyond the data."""
    at = 0
    while at < len(data):
        position, code = at, data[at]
        at += 1
        if code in _REFUSED:
            raise UnsafeInput(
                f"{where} uses {_REFUSED[code]}",
                why=f"at byte {position}; torch.save never writes this",
            )
        if code not in _OPCODES:
            raise Damaged(
                f"{where} is damaged", why=f"{code:#04x} at byte {position} is no opcode in use"
            )
        name, form, _, _ = _OPCODES[code]
        argument: Any = None
        if form == "name":
            found = []
            for _ in range(2):
                end = data.find(b"\n", at, at + _MOST_NAME)
                if end < 0:
                    raise Damaged(f"{where} is damaged", why=f"no name at byte {position}")
                found.append(_text(data[at:end], where))
                at = end + 1
            argument = tuple(found)
        elif form not in ("", "*"):
            kind, _, width = form.rpartition(" ")
            number = _NUMBERS[width]
            if at + number.size > len(data):
                raise _short(where, position)
            (argument,) = number.unpack_from(data, at)
            at += number.size
            if kind:
                if argument < 0 or argument > len(data) - at:
                    raise _short(where, position)
                piece = data[at : at + argument]
                at += argument
                argument = _value(kind, piece, where)
        yield position, name, argument
        if name == "STOP":
            break
    else:
        raise _short(where, at)
    if at != len(data):
        raise Damaged(f"{where} is damaged", why=f"{len(data) - at} bytes after its end")


def _short(where: str, position: int) -> Damaged:
    return Damaged(f"{where} ends too early", why=f"in the opcode at byte {position}")


def _value(kind: str, piece: bytes, where: str) -> Any:
    if kind == "text":
        return _text(piece, where)
    if kind == "string":  # Python 2: text or bytes, nothing says which
        return piece.decode() if piece.isascii() else piece
    if kind == "long":
        return int.from_bytes(piece, "little", signed=True)
    return piece


def _text(piece: bytes, where: str) -> str:
    try:
        return piece.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Damaged(f"{where} is damaged", why=f"text that is not UTF-8: {error}") from error


def check(data: bytes, where: str) -> None:
    """Every limit, before the first object exists."""
    count = total = depth = 0  # total: values on the stack; depth: those above the last MARK
    frames: list[int] = []
    shapes = {name: (form == "*", take, leave) for name, form, take, leave in _OPCODES.values()}
    for position, name, argument in instructions(data, where):
        count += 1
        if count > MOST_OPCODES:
            raise UnsafeInput(f"{where} is too long", why=f"more than {MOST_OPCODES} opcodes")
        if (name == "PROTO") != (count == 1) or (count == 1 and not 2 <= argument <= 5):
            raise Damaged(
                f"{where} is not a pickle of protocol 2 to 5", why=f"{name} at byte {position}"
            )
        if name == "FRAME" and argument > len(data) - position - 9:
            raise _short(where, position)
        if name in ("PUT", "GET") and argument > count:
            raise UnsafeInput(
                f"{where} uses memo index {argument} after {count} opcodes",
                why="reading it would allocate memory for all indices below",
            )
        if name == "MARK":
            frames.append(depth)
            depth = 0
            if len(frames) > MOST_MARKS:
                raise UnsafeInput(f"{where} is nested too deeply", why=f"{MOST_MARKS} open marks")
            continue
        marked, take, leave = shapes[name]
        if marked:
            if not frames:
                raise Damaged(f"{where} is damaged", why=f"{name} without MARK at byte {position}")
            total -= depth
            depth = frames.pop()
        if depth < take:
            raise Damaged(f"{where} is damaged", why=f"{name} lacks values at byte {position}")
        depth += leave - take
        total += leave - take
        if total > MOST_STACK:
            raise UnsafeInput(f"{where} fills the stack", why=f"more than {MOST_STACK} values")
    if total or frames:
        raise Damaged(f"{where} is damaged", why="values are left at its end")
