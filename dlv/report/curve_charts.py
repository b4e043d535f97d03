"""Curves of versions as charts, and the charts where they are wanted: in a file, on a screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import dlv.disk.user_files as user_files
import dlv.report.courses as courses
import dlv.report.curves_page as curves_page
import dlv.report.dots as dots
from dlv.curves.figures import Curve
from dlv.errors import UsageError
from dlv.report.courses import Chart, Course

KINDS = (".html", ".png")
_NAMED = 4  # versions in a title


def charts(found: Sequence[Curve], *, smooth: float = 0.0, log: bool = False) -> list[Chart]:
    """A chart for each name of a series, in the order of the names; a course for each version."""
    together: dict[str, list[Course]] = {}
    for curve in found:
        if curve.points is None:
            continue
        made = courses.course(
            *(curve.version.label, curve.points.steps, curve.points.values), smooth=smooth, log=log
        )
        together.setdefault(curve.summary.name, []).append(made)
    return [Chart(name, tuple(each), log) for name, each in sorted(together.items())]


def target(path: Path) -> Path:
    """The path, if it can become a page or a picture: known before anything is read."""
    if path.suffix.lower() not in KINDS:
        raise UsageError(
            f"`{path}` is neither .html nor .png", hint="--output curves.html, --output curves.png"
        )
    if path.suffix.lower() == ".png":
        import dlv.report.picture as picture

        picture.check()
    return path


def write(path: Path, drawn: Sequence[Chart]) -> None:
    """The page or picture, whole or not at all; what stood there before is replaced."""
    labels = list(dict.fromkeys(course.label for chart in drawn for course in chart.courses))
    more = len(labels) - _NAMED
    title = ", ".join(labels[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    with user_files.replacing(path) as out:
        if path.suffix.lower() == ".png":
            import dlv.report.picture as picture

            picture.png(drawn, title, out)
        else:
            about = "Training curves of " + (
                f"{len(labels)} versions" if len(labels) > 1 else "a version"
            )
            out.write(("\n".join(curves_page.html(drawn, title, about)) + "\n").encode())


def lines(drawn: Sequence[Chart], screen: dots.Screen, name: Callable[[str], str]) -> Iterator[str]:
    """For a terminal; `name` makes a name harmless to print."""
    for place, chart in enumerate(drawn):
        if place:
            yield ""
        yield from dots.drawn(chart, screen, name)
