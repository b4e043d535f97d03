"""Curves of versions as a page: a chart for each series, and what it comes to in figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import dlv.report.charts as charts
from dlv.report.courses import Chart, Course
from dlv.report.page import page


def html(drawn: Sequence[Chart], title: str, about: str) -> Iterator[str]:
    sections = [list(_section(chart, place)) for place, chart in enumerate(drawn)]
    return page(title, about, sections)


def _section(chart: Chart, place: int) -> Iterator[str]:
    yield f"<h2>{escape(chart.title)}</h2>"
    yield from charts.svg(chart, place)
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
        f'<svg viewBox="0 0 28 10" aria-hidden="true" class="{charts.line_class(number)}">'
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
