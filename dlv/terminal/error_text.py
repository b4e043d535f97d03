"""An error as lines: what, why and the next command; and where in a line of text the fault is."""

from __future__ import annotations

from collections.abc import Sequence

from dlv.errors import DlvError
from dlv.terminal.table import CUT, escape, width

MAX_ERROR_LINES = 6
BEFORE = 24  # columns that stay in front of the fault, to see where it is


def error_lines(error: DlvError) -> list[str]:
    """What, why and the next command, in at most six lines."""
    hint = hint_text(error.hint or "", error.did_you_mean)
    parts = [("error: ", error.message), ("why:   ", error.why or ""), ("hint:  ", hint)]
    parts = [(label, text.strip()) for label, text in parts if text.strip()]
    most = MAX_ERROR_LINES // len(parts) if parts else 0
    lines = []
    for label, text in parts:
        given = [escape(line) for line in text.split("\n")]
        if len(given) > most:
            given = [*given[: most - 1], f"{given[most - 1]} ..."]
        lines += [(label if i == 0 else " " * len(label)) + line for i, line in enumerate(given)]
    return lines


def hint_text(hint: str, did_you_mean: Sequence[str]) -> str:
    if not did_you_mean or "did you mean" in hint:
        return hint
    names = [f"`{name}`" for name in did_you_mean]
    listed = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    if not hint.startswith("dlv "):
        hint = hint[:1].upper() + hint[1:]
    return f"did you mean {listed}? {hint}".rstrip()


def line_with_caret(line: str, mark: str, room: int) -> tuple[str, str]:
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
