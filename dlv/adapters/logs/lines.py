"""A text file in blocks of whole lines, each bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dlv.adapters.source import Source
from dlv.errors import Damaged, UnsafeInput

MOST_LINE_BYTES = 1 << 20
BLOCK = 1 << 18


class Block(NamedTuple):
    """Lines without their ends; `number` is that of the first.

    `ended` is False of the last line of a file that has no end: such a line is a block of its own.
    """

    number: int
    lines: list[str]
    ended: bool


def blocks(file: Source) -> Iterator[Block]:
    waiting = bytearray()
    number, offset = 1, 0
    while offset < file.size or waiting:
        end = waiting.rfind(b"\n")
        if end < 0 and offset < file.size:
            if len(waiting) > MOST_LINE_BYTES:
                raise UnsafeInput(f"{file.name}, line {number}, is longer than 1 MiB")
            block = file.read(offset, min(BLOCK, file.size - offset))
            waiting += block
            offset += len(block)
            continue
        taken = bytes(waiting if end < 0 else memoryview(waiting)[:end])
        waiting = waiting[end + 1 :] if end >= 0 else bytearray()
        made = Block(number, _text(file, taken, number, ended=end >= 0), end >= 0)
        yield made
        number += len(made.lines)


def _text(file: Source, taken: bytes, number: int, *, ended: bool) -> list[str]:
    raw = taken.removeprefix(b"\xef\xbb\xbf") if number == 1 else taken
    if len(raw) > MOST_LINE_BYTES:
        for at, line in enumerate(raw.split(b"\n"), number):
            if len(line) > MOST_LINE_BYTES:
                raise UnsafeInput(f"{file.name}, line {at}, is longer than 1 MiB")
    try:
        # A character may be cut where the line is.
        text = raw.decode("utf-8", "strict" if ended else "ignore")
    except UnicodeDecodeError as error:
        at = number + raw.count(b"\n", 0, error.start)
        raise Damaged(f"{file.name}, line {at}, is not UTF-8", why=str(error)) from error
    if "\0" in text:
        at = number + text.count("\n", 0, text.index("\0"))
        raise Damaged(f"{file.name}, line {at}, holds a NUL")
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines
