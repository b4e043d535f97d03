"""Charts for a terminal: dots of Braille, eight in a character, or letters where there are none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from dlv.dataclass import dataclass
from dlv.report.courses import Chart, Course, Numbers, log_ticks, padded, thinned, ticks

ROWS = 12
COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

Paint = Callable[[str, str], str]


@dataclass(frozen=True)
class Screen:
    width: int
    paint: Paint
    colour: bool
    braille: bool  # whether Braille and box drawing can be printed


def drawn(chart: Chart, screen: Screen, name: Callable[[str], str]) -> Iterator[str]:
    """The lines of one chart: title, curves with both axes, and what each line is."""
    several = len(chart.courses) > 1
    yield screen.paint(name(chart.title), "bold")
    upwards = padded(chart.upwards)
    marks = (log_ticks if chart.log else ticks)(upwards, 4)
    words = [_number(10**mark if chart.log else mark) for mark in marks]
    room = max(map(len, words), default=1)
    columns = max(min(screen.width, 100) - room - 3, 10)
    across = padded(chart.across)
    cells = _Cells(columns, ROWS, across, upwards, several)
    for place, course in enumerate(chart.courses):
        cells.draw(place, course, chart.log)
    stroke, corner, tick, level = "│└┤─" if screen.braille else "|++-"
    at = {cells.row(mark): word for mark, word in zip(marks, words, strict=True)}
    letters = several and not screen.colour
    for row in range(ROWS):
        word = at.get(row, "")
        edge = tick if row in at else stroke
        yield f"{word:>{room}} {edge}{''.join(cells.line(row, screen, letters=letters))}".rstrip()
    yield " " * room + f" {corner}{level * columns}"
    low, high = (f"{value:,.0f}" for value in chart.across)
    yield " " * (room + 2) + (low if low == high else f"{low}{high:>{columns - len(low)}}")
    for place, course in enumerate(chart.courses):
        yield _legend(place, course, screen, name, letters=letters, several=several)


def _legend(
    place: int,
    course: Course,
    screen: Screen,
    name: Callable[[str], str],
    *,
    letters: bool,
    several: bool,
) -> str:
    mark = _LETTERS[place % len(_LETTERS)] if letters else ("━━" if screen.braille else "--")
    if several and not letters:
        mark = screen.paint(mark, COLOURS[place % len(COLOURS)])
    finite = course.values[course.values == course.values]
    told = [name(course.label)]
    if len(finite):
        told.append(f"last {_number(float(finite[-1]))}")
        if course.smoothed is not None:
            even = course.smoothed[course.smoothed == course.smoothed]
            told.append(f"smoothed {_number(float(even[-1]))}")
        told.append(f"min {_number(float(finite.min()))}, max {_number(float(finite.max()))}")
    if course.left_out:
        told.append(f"{course.left_out} of {len(course.values)} points cannot be drawn")
    return f"  {mark if several else ''} {'  '.join(told)}".rstrip()


def _number(value: float) -> str:
    return f"{value:.4g}"


class _Cells:
    """Two by four dots in each character; the last course that touches one gives its colour."""

    def __init__(
        self,
        columns: int,
        rows: int,
        across: tuple[float, float],
        upwards: tuple[float, float],
        several: bool,
    ) -> None:
        self.wide, self.high = 2 * columns, 4 * rows
        self.across, self.upwards = across, upwards
        self.several = several
        self.dots = [[0] * columns for _ in range(rows)]
        self.owner = [[-1] * columns for _ in range(rows)]

    def row(self, value: float) -> int:
        return self._y(value) // 4

    def _x(self, step: float) -> int:
        return _place(step, self.across, self.wide)

    def _y(self, value: float) -> int:
        return self.high - 1 - _place(value, self.upwards, self.high)

    def draw(self, place: int, course: Course, log: bool) -> None:
        shown = course.values if course.smoothed is None else course.smoothed
        steps, values = thinned(course.steps, shown, self.across, self.wide)
        before: tuple[int, int] | None = None
        for step, value in _points(steps, values):
            if value is None:
                before = None
                continue
            here = (self._x(step), self._y(math.log10(value) if log else value))
            for x, y in _stroke(before or here, here):
                self.dots[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
                self.owner[y // 4][x // 2] = place
            before = here

    def line(self, row: int, screen: Screen, *, letters: bool) -> Iterator[str]:
        """The row's characters, neighbours of one colour painted together."""
        run, colour = "", ""
        for bits, owner in zip(self.dots[row], self.owner[row], strict=True):
            style = COLOURS[owner % len(COLOURS)] if bits and self.several and not letters else ""
            if style != colour:
                yield screen.paint(run, colour) if colour else run
                run, colour = "", style
            run += self._sign(bits, owner, screen, letters=letters)
        yield screen.paint(run, colour) if colour else run

    def _sign(self, bits: int, owner: int, screen: Screen, *, letters: bool) -> str:
        if not bits:
            return " "
        if letters:
            return _LETTERS[owner % len(_LETTERS)]
        return chr(_BLANK + bits) if screen.braille else "*"


def _points(steps: Numbers, values: Numbers) -> Iterator[tuple[float, float | None]]:
    for step, value in zip(steps.tolist(), values.tolist(), strict=True):
        yield step, None if value != value else value


def _place(value: float, span: tuple[float, float], count: int) -> int:
    low, high = span
    share = (value / 2 - low / 2) / (high / 2 - low / 2)  # halves: their difference is finite
    return min(count - 1, max(0, round(share * (count - 1))))


def _stroke(start: tuple[int, int], end: tuple[int, int]) -> Sequence[tuple[int, int]]:
    """The dots of a straight line, both ends included."""
    (x0, y0), (x1, y1) = start, end
    count = max(abs(x1 - x0), abs(y1 - y0))
    if not count:
        return [start]
    return [
        (round(x0 + (x1 - x0) * i / count), round(y0 + (y1 - y0) * i / count))
        for i in range(count + 1)
    ]
