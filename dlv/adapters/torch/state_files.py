"""Pickles of a training's state, kept as files: whole, and what loading them would import."""

from __future__ import annotations

import zlib
from typing import Any

from dlv.adapters.archive import STORED, read_directory
from dlv.adapters.source import Source
from dlv.adapters.torch.pickles import ALLOWED, MOST_BYTES, instructions, may_be_object, printable
from dlv.errors import Damaged, UnsafeInput

_MOST_NAMED = 3


def check_state(path: str) -> str | None:
    """Check that a file of torch.save is whole; return a warning if loading it may run programs.

    Nothing is loaded. Names of the standard library that no state of a training needs are warned
    of; classes of other libraries are usual.
    """
    with Source(path) as file:
        if file.size == 0:
            raise Damaged(f"{file.name} is empty")
        if file.read(0, min(file.size, 2)) != b"PK":  # before torch 1.6: several pickles in a row
            data = bytes(file.read(0, min(file.size, MOST_BYTES)))
            return _warning(_foreign(data, file.name, whole=False)) if data[0] == 0x80 else None
        contents = {
            entry.name.partition("/")[2]: (bytes(file.read(entry.offset, entry.size)), entry.crc)
            for entry in read_directory(file)
            if entry.method == STORED and entry.size <= MOST_BYTES
        }
        pickled, crc = contents.get("data.pkl", (b"", 0))
        if zlib.crc32(pickled) == crc:  # else torch was told to write no checksums
            for name, (data, wanted) in contents.items():
                if zlib.crc32(data) != wanted:
                    raise Damaged(f"{file.name} is corrupt", why=f"wrong checksum of {name}")
        return _warning(_foreign(pickled, file.name, whole=True)) if pickled else None


def _warning(names: set[str]) -> str | None:
    if not names:
        return None
    listed = ", ".join(sorted(names)[:_MOST_NAMED])
    return f"loading this file would import {listed}; dlv keeps it as a file and does not load it"


def _foreign(data: bytes, name: str, *, whole: bool) -> set[str]:
    """The names of the standard library that the pickle imports beyond those of plain values."""
    foreign: set[str] = set()
    strings: list[Any] = ["", ""]  # pushed so far, for names that are taken from the stack
    memo: dict[int, Any] = {}
    try:
        for _, opcode, argument in instructions(data, name):
            if opcode == "PUSH":
                strings.append(argument)
            elif opcode in ("PUT", "MEMOIZE"):
                memo[len(memo) if opcode == "MEMOIZE" else argument] = strings[-1]
            elif opcode == "GET":
                strings.append(memo.get(argument))
            elif opcode in ("GLOBAL", "STACK_GLOBAL"):
                module, what = argument if opcode == "GLOBAL" else strings[-2:]
                pair = (str(module), str(what))
                if pair not in ALLOWED and not may_be_object(*pair):
                    foreign.add(printable(".".join(pair)))
    except UnsafeInput:
        foreign.add("an opcode that torch.save never writes")
    except Damaged:
        if whole:
            raise
    return foreign
