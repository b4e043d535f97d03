"""Marks stay under what they mark, however long the line is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlv.terminal.output import line_with_caret
from dlv.terminal.table import CUT, width


def test_a_short_line_stays() -> None:
    assert line_with_caret("select m wher", "         ^^^^", 76) == (
        "select m wher",
        "         ^^^^",
    )


def test_a_long_line_is_cut_around_the_fault() -> None:
    line = "select m where " + " and ".join(f"m.p{i} = {i}" for i in range(30))
    start = line.index("p20")
    shown, mark = line_with_caret(line, " " * start + "^^^", 60)
    assert len(shown) <= 60
    assert (shown[0], shown[-1]) == (CUT, CUT)
    at = mark.index("^")
    assert shown[at : at + len(mark.strip())] == "p20"


def test_at_the_end_and_at_the_beginning() -> None:
    shown, mark = line_with_caret("x" * 200, " " * 200 + "^", 50)
    assert shown == CUT + "x" * 24
    assert mark == " " * 25 + "^"
    shown, mark = line_with_caret("y" * 200, "^" * 200, 50)
    assert shown == "y" * 49 + CUT
    assert mark == "^" * 50


@given(st.text("ab語 ́", max_size=120), st.data(), st.integers(20, 90))
def test_never_wider_than_the_room(line: str, data: st.DataObject, room: int) -> None:
    at = data.draw(st.integers(0, len(line)))
    until = data.draw(st.integers(at, len(line)))
    mark = " " * width(line[:at]) + "^" * max(width(line[at:until]), 1)
    shown, moved = line_with_caret(line, mark, room)
    most = max(room, 32)
    assert width(shown) <= most
    assert len(moved) <= most + 1
    assert moved.strip("^ ") == ""
    assert moved.strip()
    # The sign above the mark is the one that was meant.
    begin = len(moved) - len(moved.lstrip())
    place = next((i for i in range(len(shown) + 1) if width(shown[:i]) >= begin), None)
    if place is not None and at < len(line) and width(line[at]) > 0:
        after = shown[place:].lstrip("́")
        assert after[:1] in (line[at], CUT)
