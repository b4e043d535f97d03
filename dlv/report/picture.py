"""The same charts as a PNG, drawn by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, BinaryIO

from dlv.errors import require
from dlv.report.courses import Chart, thinned

_COLUMNS = 640
_COLOURS = ("#1763c6", "#b34a00", "#1b7a3d", "#a3217f", "#6a4bc4", "#8a6100", "#0b7580", "#c0272d")
_DASHES = ("-", "--", ":", "-.")


def png(drawn: Sequence[Chart], title: str, target: BinaryIO) -> None:
    """Written to `target`, two charts beside each other."""
    across = min(2, len(drawn))
    down = math.ceil(len(drawn) / across)
    figure = _figure(across, down)
    for place, chart in enumerate(drawn):
        axes = figure.add_subplot(down, across, place + 1)
        _draw(axes, chart)
    figure.suptitle(_plain(title))
    figure.savefig(target, format="png", dpi=120)


def check() -> None:
    """That matplotlib is there."""
    require("matplotlib", "plots")


def _figure(across: int, down: int) -> Any:
    # Not pyplot, which would look for a screen and keep every figure.
    figure_module = require("matplotlib.figure", "plots")
    return figure_module.Figure(figsize=(7 * across, 0.6 + 3.6 * down), layout="constrained")


def _draw(axes: Any, chart: Chart) -> None:
    for number, course in enumerate(chart.courses):
        style = {
            "color": _COLOURS[number % len(_COLOURS)],
            "linestyle": _DASHES[number // len(_COLOURS) % len(_DASHES)],
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
