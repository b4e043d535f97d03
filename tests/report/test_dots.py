"""Charts in characters: what stands where."""

from __future__ import annotations

import math

from dlv.report.courses import Chart, course
from dlv.report.dots import ROWS, Screen, drawn


def _plain(text: str, style: str) -> str:
    return text


def _painted(text: str, style: str) -> str:
    return f"<{style}>{text}</>"


def _lines(chart: Chart, *, colour: bool = False, braille: bool = True) -> list[str]:
    paint = _painted if colour else _plain
    return list(drawn(chart, Screen(60, paint, colour, braille), lambda text: text))


def test_a_rising_line() -> None:
    lines = _lines(Chart("loss", (course("a", [0, 50, 100], [0.0, 1.0, 2.0]),)))
    assert lines[0] == "loss"
    body = [line.split("│" if "│" in line else "┤")[1] for line in lines[1 : ROWS + 1]]
    starts = [len(row) - len(row.lstrip()) for row in body]
    assert starts == sorted(starts, reverse=True), "each row begins left of the one above it"
    assert [line.split()[0] for line in lines[1 : ROWS + 1] if "┤" in line] == [
        "2",
        "1.5",
        "1",
        "0.5",
        "0",
    ]
    assert lines[ROWS + 2].split() == ["0", "100"]
    assert lines[-1].strip() == "a  last 2  min 0, max 2"


def test_a_spike_is_seen() -> None:
    values = [1.0] * 100_000
    values[77_777] = 50.0
    lines = _lines(Chart("loss", (course("a", range(100_000), values),)))
    assert lines[1].split("│")[1].strip(), "it reaches the top row"


def test_letters_where_there_is_no_colour() -> None:
    chart = Chart("x", (course("one", [0, 9], [0.0, 0.0]), course("two", [0, 9], [9.0, 9.0])))
    lines = _lines(chart)
    assert set(lines[1].split("│")[1] if "│" in lines[1] else lines[1].split("┤")[1]) == {"b"}
    assert lines[-2].startswith("  a one")
    assert lines[-1].startswith("  b two")
    coloured = _lines(chart, colour=True)
    assert "<yellow>" in coloured[1]
    assert coloured[-2].startswith("  <cyan>━━</> one")


def test_plain_signs_where_there_is_no_braille() -> None:
    lines = _lines(Chart("x", (course("one", [0, 9], [0.0, 1.0]),)), braille=False)
    assert all(line.isascii() for line in lines)
    assert any("*" in line for line in lines)


def test_gaps_are_told_and_not_bridged() -> None:
    chart = Chart("x", (course("a", [0, 50, 100], [1.0, math.nan, 1.0]),))
    lines = _lines(chart)
    (row,) = [line for line in lines[1 : ROWS + 1] if any("⠀" < sign <= "⣿" for sign in line)]
    assert len(row.split("┤" if "┤" in row else "│")[1].split()) == 2
    assert "1 of 3 points cannot be drawn" in lines[-1]


def test_a_logarithmic_axis() -> None:
    chart = Chart("x", (course("a", [0, 1, 2], [1e-4, 1e-2, 1.0], log=True),), log=True)
    lines = _lines(chart)
    assert [line.split()[0] for line in lines[1 : ROWS + 1] if "┤" in line] == [
        *("1", "0.01", "0.0001")
    ]


def test_values_at_the_ends_of_what_a_number_can_be() -> None:
    chart = Chart("x", (course("a", [0, 2**62], [-1.7e308, 1.7e308]),))
    assert len(_lines(chart)) == ROWS + 4
