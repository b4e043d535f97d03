"""Curves of versions as a page: a chart for each series, and what it comes to in figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
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


# Nothing may be loaded and nothing run, whatever a name of a model holds.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1c2330; --soft: #586274; --grid: #e3e7ee;
  --c0: #1763c6; --c1: #b34a00; --c2: #1b7a3d; --c3: #a3217f; --c4: #6a4bc4; --c5: #8a6100;
  --c6: #0b7580; --c7: #c0272d; }
@media (prefers-color-scheme: dark) { :root { --page: #14181f; --ink: #e6eaf1; --soft: #a2adbf;
  --grid: #2b323e; --c0: #6aa9ff; --c1: #ff9d5c; --c2: #5fd08a; --c3: #f08fd2; --c4: #b3a0ff;
  --c5: #e0b64a; --c6: #4fc7d3; --c7: #ff8a85; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 88rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 .25rem; }
h2 { font-size: 1rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
p { margin: 0 0 1rem; color: var(--soft); }
main { display: grid; gap: 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); }
section { min-width: 0; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
svg path { fill: none; stroke: currentColor; stroke-width: 1.6; stroke-linejoin: round; }
svg circle { fill: currentColor; }
svg .grid { stroke: var(--grid); stroke-width: 1; }
svg .raw { opacity: .3; stroke-width: 1; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); }
.c3 { color: var(--c3); } .c4 { color: var(--c4); } .c5 { color: var(--c5); }
.c6 { color: var(--c6); } .c7 { color: var(--c7); }
.d1 path { stroke-dasharray: 6 3; } .d2 path { stroke-dasharray: 2 3; }
.d3 path { stroke-dasharray: 8 3 2 3; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; }
th, td { padding: .1rem .8rem .1rem 0; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { font-weight: 500; color: var(--soft); }
td svg { display: inline-block; width: 1.8rem; height: .7rem; vertical-align: middle;
  margin-right: .4rem; }
@media print { body { max-width: none; } section { break-inside: avoid; } }
"""


def page(title: str, about: str, sections: Iterable[Iterable[str]]) -> Iterator[str]:
    """The lines of the file; `title` and `about` are texts, sections are HTML."""
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
    yield f"<header><h1>{escape(title)}</h1><p>{escape(about)}</p></header><main>"
    for section in sections:
        yield "<section>"
        yield from section
        yield "</section>"
    yield "</main></body></html>"


def html(drawn: Sequence[Chart], title: str, about: str) -> Iterator[str]:
    sections = [list(_section(chart, place)) for place, chart in enumerate(drawn)]
    return page(title, about, sections)


def _section(chart: Chart, place: int) -> Iterator[str]:
    yield f"<h2>{escape(chart.title)}</h2>"
    yield from svg(chart, place)
    unusual = any(course.left_out for course in chart.courses)
    yield '<div class="table"><table><thead><tr><th>version</th>'
    more = "<th>not drawn</th>" if unusual else ""
    titles = ("last", "min", "at step", "max", "at step")
    yield "".join(f"<th>{title}</th>" for title in titles) + f"{more}</tr></thead>"
    yield "<tbody>"
    for number, course in enumerate(chart.courses):
        yield _row(number, course, unusual=unusual)
    yield "</tbody></table></div>"


def _row(number: int, course: Course, *, unusual: bool) -> str:
    key = (
        f'<svg viewBox="0 0 28 10" aria-hidden="true" class="{line_class(number)}">'
        '<path d="M0 5H28"/></svg>'
    )
    cells = [f"{key}{escape(course.label)}", *_figures(course)]
    cells += [str(course.left_out or "")] if unusual else []
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


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
