"""Curves as SVG: a chart for each metric, a line for each version, and figures below it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dlv.report.courses import Chart, Course, Numbers, log_ticks, padded, thinned, ticks
from dlv.report.markup import Html, scrolling, text

WIDTH, HEIGHT = 640, 300
COLOURS = 8  # classes c0 .. c7 of the page's style; then they come again, dashed
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 16, 12, 24
_COLUMNS = 320
FEW = 8  # lines of which the numbers are shown at once


def svg(chart: Chart, place: int) -> Iterator[str]:
    """The lines of the element; `place` tells it from the others of a page."""
    box = _Box(chart)
    yield (
        f'<svg class="curves" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t{place}"'
        f' data-scale="{box.scale()}"{" data-log" if chart.log else ""}>'
        f'<title id="t{place}">{text(chart.title)}, by step</title>'
    )
    yield from box.axes()
    yield '<path class="guide" d=""/>'
    for number, course in enumerate(chart.courses):
        about = f' data-about="{text(course.about)}"' if course.about else ""
        tooltip = f"{course.label}: {course.about}" if course.about else course.label
        yield (
            f'<g class="{line_class(number)}" data-name="{text(course.label)}"{about}>'
            f"<title>{text(tooltip)}</title>"
        )
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

    def scale(self) -> str:
        """Left, right, bottom and top in the picture, then the steps and values there."""
        places = (_LEFT, WIDTH - _RIGHT, HEIGHT - _BOTTOM, _TOP)
        return " ".join(f"{number:.10g}" for number in (*places, *self.across, *self.upwards))

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
    wide = high / 2 - low / 2  # halves: no overflow
    return float((value / 2 - low / 2) / wide) if wide > 0 else 0.5


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def figure(chart: Chart, place: int) -> Html:
    """The chart under its title, with what it comes to in figures."""
    drawing, numbers = "\n".join(svg(chart, place)), figures(chart)
    if len(chart.courses) > FEW:
        summary = f"numbers of {len(chart.courses)} lines"
        numbers = Html(f"<details><summary>{summary}</summary>{numbers}</details>")
    return Html(
        f"<div><h3>{text(chart.title)}</h3>{drawing}"
        f'<p class="readout" aria-hidden="true"></p>{numbers}</div>'
    )


def figure_grid(charts: Sequence[Chart]) -> Html:
    """Charts beside each other, as many as the page is wide."""
    found = "".join(figure(chart, place) for place, chart in enumerate(charts))
    return Html(f'<div class="charts">{found}</div>') if found else Html("")


def file(charts: Sequence[Chart], title: str, style: str) -> str:
    """All charts below each other in one SVG file, with a key of the lines."""
    height, keys = HEIGHT + 40, list(dict.fromkeys(c.label for x in charts for c in x.courses))
    tall = height * len(charts) + 18 * len(keys) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="curves" viewBox="0 0 {WIDTH} {tall}"'
        f' width="{WIDTH}" height="{tall}" role="img"><title>{text(title)}</title>'
        f"<style>{style}</style>"
        f'<rect width="{WIDTH}" height="{tall}" fill="#fff" style="fill: var(--page)"/>'
    ]
    for place, chart in enumerate(charts):
        parts.append(
            f'<g transform="translate(0 {place * height + 24})">'
            f'<text class="ink" x="{_LEFT}" y="-4">{text(chart.title)}</text>'
        )
        parts += list(svg(chart, place))[1:-1]
        parts.append("</g>")
    for number, label in enumerate(keys):
        y = height * len(charts) + 18 * number + 24
        parts.append(
            f'<g class="{line_class(number)}"><path d="M{_LEFT} {y}h28"/>'
            f'<text x="{_LEFT + 36}" y="{y + 4}">{text(label)}</text></g>'
        )
    return "\n".join([*parts, "</svg>\n"])


def figures(chart: Chart) -> Html:
    """A row for each version: last, smallest and largest value, and where they are."""
    unusual = any(course.left_out for course in chart.courses)
    more = '<th scope="col" class="n">not drawn</th>' if unusual else ""
    titles = ("last", "min", "at step", "max", "at step")
    heads = "".join(f'<th scope="col" class="n">{title}</th>' for title in titles)
    rows = "".join(_row(n, course, unusual=unusual) for n, course in enumerate(chart.courses))
    head = f'<thead><tr><th scope="col">version</th>{heads}{more}</tr></thead>'
    table = f"<table>{head}<tbody>{rows}</tbody></table>"
    return scrolling(f"{chart.title} in numbers", table)


def key(number: int) -> Html:
    """A piece of the line with that number."""
    return Html(
        f'<svg viewBox="0 0 28 10" aria-hidden="true" class="key {line_class(number)}">'
        '<path d="M0 5H28"/></svg>'
    )


def _row(number: int, course: Course, *, unusual: bool) -> str:
    cells = [*_figures(course), *([str(course.left_out or "")] if unusual else [])]
    numbers = "".join(f'<td class="n">{value}</td>' for value in cells)
    return f"<tr><td>{key(number)}{text(course.label)}</td>{numbers}</tr>"


def _figures(course: Course) -> list[str]:
    known = course.values == course.values
    values, steps = course.values[known], course.steps[known]
    if not len(values):
        return [""] * 5
    low, high = int(values.argmin()), int(values.argmax())
    return [
        f"{values[-1]:.6g}",
        *(f"{values[low]:.6g}", f"{steps[low]:,.0f}"),
        *(f"{values[high]:.6g}", f"{steps[high]:,.0f}"),
    ]
