"""Curves of versions as charts, and the charts where they are wanted: in a file, on a screen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import dlv.disk.user_files as user_files
import dlv.report.courses as courses
import dlv.report.dots as dots
import dlv.report.page as pages
from dlv.curves.figures import Curve
from dlv.errors import require
from dlv.report.courses import LINE_COLORS, Chart, Course, thinned
from dlv.report.curves_picture import figure_grid, file

KINDS = (".html", ".svg", ".png")
_NAMED = 4  # versions in a title


def charts(
    curves: Sequence[Curve],
    *,
    smooth: float = 0.0,
    log: bool = False,
    about: Mapping[str, str] | None = None,
) -> list[Chart]:
    """A chart for each metric, in the order of their names; a course for each version.

    `about` says by label what is told of a version while hovering.
    """
    about = about or {}
    together: dict[str, list[Course]] = {}
    for curve in curves:
        if curve.points is None:
            continue
        made = courses.course(
            *(curve.version.label, curve.points.steps, curve.points.values),
            smooth=smooth,
            log=log,
            about=about.get(curve.version.label, ""),
        )
        together.setdefault(curve.summary.name, []).append(made)
    return [Chart(name, tuple(each), log) for name, each in sorted(together.items())]


def write(path: Path, drawn: Sequence[Chart], command: str = "") -> None:
    """The page or picture, whole or not at all; what stood there before is replaced.

    `command` is what makes it, for the page to tell.
    """
    labels = list(dict.fromkeys(course.label for chart in drawn for course in chart.courses))
    more = len(labels) - _NAMED
    title = ", ".join(labels[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    with user_files.replacing(path) as out:
        if path.suffix.lower() == ".png":
            png(drawn, title, out)
        elif path.suffix.lower() == ".svg":
            out.write(file(drawn, title, pages.style()).encode())
        else:
            about = "Training curves of " + (
                f"{len(labels)} versions" if len(labels) > 1 else "a version"
            )
            sections = [pages.Section("", figure_grid(drawn))]
            out.write(pages.page(title, about, command, sections).encode())


def lines(drawn: Sequence[Chart], screen: dots.Screen, name: Callable[[str], str]) -> Iterator[str]:
    """For a terminal; `name` makes a name harmless to print."""
    for place, chart in enumerate(drawn):
        if place:
            yield ""
        yield from dots.drawn(chart, screen, name)


# As a PNG, drawn by matplotlib


_COLUMNS = 640
_DASHES = ("-", "--", ":", "-.")


def png(drawn: Sequence[Chart], title: str, target: BinaryIO) -> None:
    """Written to `target`, two charts beside each other."""
    across = min(2, len(drawn))
    down = math.ceil(len(drawn) / across)
    figure = _figure(across, down)
    for place, chart in enumerate(drawn):
        axes = figure.add_subplot(down, across, place + 1)
        _draw_chart(axes, chart)
    figure.suptitle(_plain(title))
    figure.savefig(target, format="png", dpi=120)


def check_matplotlib() -> None:
    """That matplotlib is there."""
    require("matplotlib", "plots")


def _figure(across: int, down: int) -> Any:
    # Not pyplot, which would look for a screen and keep every figure.
    figure_module = require("matplotlib.figure", "plots")
    return figure_module.Figure(figsize=(7 * across, 0.6 + 3.6 * down), layout="constrained")


def _draw_chart(axes: Any, chart: Chart) -> None:
    for number, course in enumerate(chart.courses):
        style = {
            "color": LINE_COLORS[number % len(LINE_COLORS)],
            "linestyle": _DASHES[number // len(LINE_COLORS) % len(_DASHES)],
            "label": _plain(course.label),
        }
        single = ".", 4 if len(course.values) == 1 else 0
        if course.smoothed is not None:
            raw = thinned(course.steps, course.values, chart.across, _COLUMNS)
            axes.plot(*raw, color=style["color"], alpha=0.25, linewidth=0.8)
        shown = course.values if course.smoothed is None else course.smoothed
        points = thinned(course.steps, shown, chart.across, _COLUMNS)
        axes.plot(*points, linewidth=1.4, marker=single[0], markersize=single[1], **style)
    if chart.log:
        axes.set_yscale("log")
    axes.set_title(_plain(chart.title), fontsize=10)
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    if len(chart.courses) > 1:
        axes.legend(fontsize=8)


def _plain(text: str) -> str:
    """Dollar signs would be read as formulas."""
    return text.replace("$", r"\$")
