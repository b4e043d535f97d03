"""A line of a query with a mark under its fault, cut so that both fit on a terminal."""

from __future__ import annotations

from dlv.terminal.table import CUT, width

BEFORE = 24  # columns that stay in front of the fault, to see where it is


def around(line: str, mark: str, room: int) -> tuple[str, str]:
    """The line and the mark in at most `room` columns, with the beginning of the fault in view."""
    start, room = len(mark) - len(mark.lstrip()), max(room, BEFORE + 8)
    if width(line) <= room and len(mark) <= room:
        return line, mark
    left = 0 if start < room - 8 else start - BEFORE
    shown, lead = _from(line, left)
    head = CUT if left else ""
    cut = _upto(shown, room - lead - len(head) - len(CUT))
    tail = CUT if cut != shown else ""
    wide = lead + len(head) + width(cut) + len(tail)
    moved = " " * (start - left + len(head)) + mark.strip()
    return head + " " * lead + cut + tail, moved[: max(wide, start - left + len(head) + 1)]


def _from(line: str, columns: int) -> tuple[str, int]:
    """The text without its first columns, and how many of a character that was cut in two."""
    at = taken = 0
    while at < len(line) and taken < columns:
        taken += width(line[at])
        at += 1
    return line[at:], taken - columns


def _upto(text: str, columns: int) -> str:
    if width(text) <= columns + len(CUT):
        return text
    taken = 0
    for at, sign in enumerate(text):
        taken += width(sign)
        if taken > columns:
            return text[:at]
    return text
