"""Charts as SVG: every line by colour and dashes, with axes, and readable without scripts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

import numpy as np

from dlv.report.courses import Chart, Course, Numbers, log_ticks, padded, thinned, ticks

WIDTH, HEIGHT = 640, 300
COLOURS = 8  # classes c0 .. c7 of the page's style; then they come again, dashed
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 16, 12, 24
_COLUMNS = 320


def svg(chart: Chart, place: int) -> Iterator[str]:
    """The lines of the element; `place` tells it from the others of a page."""
    box = _Box(chart)
    title = escape(chart.title)
    yield (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t{place}">'
        f'<title id="t{place}">{title}, by step</title>'
    )
    yield from box.axes()
    for number, course in enumerate(chart.courses):
        yield f'<g class="{line_class(number)}"><title>{escape(course.label)}</title>'
        if course.smoothed is not None:
            yield f'<path class="raw" d="{box.path(course.steps, course.values)}"/>'
            yield f'<path d="{box.path(course.steps, course.smoothed)}"/>'
        else:
            yield f'<path d="{box.path(course.steps, course.values)}"/>'
        yield from box.single(course)
        yield "</g>"
    yield "</svg>"


def line_class(number: int) -> str:
    """Of the line with that number: its colour, and its dashes once the colours are used up."""
    dashes = number // COLOURS % 4
    return f"c{number % COLOURS}" + (f" d{dashes}" if dashes else "")


class _Box:
    """Where steps and values lie in the picture."""

    def __init__(self, chart: Chart) -> None:
        self.log = chart.log
        self.across = padded(chart.across)
        self.upwards = padded(chart.upwards, 0.04)
        self.real = chart.across

    def x(self, step: float) -> float:
        return _LEFT + _share(step, self.across) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - _share(value, self.upwards) * (HEIGHT - _TOP - _BOTTOM)

    def axes(self) -> Iterator[str]:
        right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
        for mark in (log_ticks if self.log else ticks)(self.upwards, 5):
            y = self.y(mark)
            word = f"{10**mark if self.log else mark:.4g}"
            yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>'
            yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{word}</text>'
        if self.real[0] == self.real[1]:
            marks = [self.real[0]]
        else:
            marks = [mark for mark in ticks(self.across, 6) if mark == round(mark)]
        for mark in marks:
            x = self.x(mark)
            yield f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>'
            yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{mark:,.0f}</text>'
        yield f'<text x="{_LEFT - 10}" y="{bottom + 16}" text-anchor="end">step</text>'

    def path(self, steps: Numbers, values: Numbers) -> str:
        """Straight lines through the points; a new beginning behind each gap."""
        steps, values = thinned(steps, values, self.across, _COLUMNS)
        if self.log:
            values = np.log10(values)
        parts, pen = [], "M"
        for step, value in zip(steps.tolist(), values.tolist(), strict=True):
            if value != value:
                pen = "M"
                continue
            parts.append(f"{pen}{_short(self.x(step))} {_short(self.y(value))}")
            pen = "L"
        return "".join(parts)

    def single(self, course: Course) -> Iterator[str]:
        """Points with a gap on both sides have no line: they are dots."""
        known = course.values == course.values
        before, after = np.append(False, known[:-1]), np.append(known[1:], False)
        for place in np.flatnonzero(known & ~before & ~after):
            value = float(course.values[place])
            y = self.y(math.log10(value) if self.log else value)
            yield f'<circle cx="{self.x(float(course.steps[place])):.1f}" cy="{y:.1f}" r="3"/>'


def _share(value: float, span: tuple[float, float]) -> float:
    low, high = span
    return float((value / 2 - low / 2) / (high / 2 - low / 2))  # halves: no overflow


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
