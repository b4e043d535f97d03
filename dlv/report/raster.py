"""Networks and lineage as PNG, drawn by matplotlib from the places that the SVG uses, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

from dlv.errors import require
from dlv.report.courses import LINE_COLORS
from dlv.report.lineage import LANE, STEP, Row
from dlv.report.network_picture import Sketch, places_of

_DPI = 150
_LARGEST = 60_000.0  # pixels of a side: more than any viewer shows
_COLORS = {"tinted": ("#e8f0fc", "#1559b7"), "end": ("#ffffff", "#566072")}
_PLAIN = ("#f6f7f9", "#c4cad4")


def _canvas(width: float, height: float) -> tuple[Any, Any]:
    """A figure of so many points, and its axes, which count points from the upper left corner."""
    figures = require("matplotlib.figure", "plots")
    dpi = min(_DPI, _LARGEST / (max(width, height) / 72))
    figure = figures.Figure(figsize=(width / 72, height / 72), dpi=dpi)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_axis_off()
    return figure, axes


def write_network(drawing: Sketch, title: str, target: BinaryIO) -> None:
    """All layers in one picture; of a very long network with fewer pixels an inch."""
    patches = require("matplotlib.patches", "plots")
    places = places_of(drawing)
    width, height = places.width + 8, places.height + 30
    figure, axes = _canvas(width, height)
    axes.text(8, 16, _plain(title), fontsize=11, color="#1c2330")
    for _, _, points in places.lines:
        axes.plot([x for x, _ in points], [y + 24 for _, y in points], color="#566072", lw=0.8)
    for name, card in drawing.cards.items():
        x, y, wide, tall = places.boxes[name]
        fill, edge = _COLORS.get(card.kind, _PLAIN)
        axes.add_patch(
            patches.Rectangle((x, y + 24), wide, tall, facecolor=fill, edgecolor=edge, lw=0.8)
        )
        for line, words, size in ((14, card.title, 7.5), (27, card.name, 6.5), (39, card.shape, 6)):
            most = int((wide - 14) / (size * 0.62))
            shown = words if len(words) <= most else words[: most - 1] + "…"
            axes.text(x + 7, y + 24 + line, _plain(shown), fontsize=size, family="monospace")
    figure.savefig(target, format="png")


def write_lineage(rows: Sequence[Row], labels: Sequence[str], target: BinaryIO) -> None:
    """A line for each version, with the lanes of those that it comes from."""
    lanes = max((lane for row in rows for lane in (row.lane, *row.passing, *row.down)), default=0)
    left = LANE * (lanes + 1) + 14
    width = left + 6.2 * max((len(label) for label in labels), default=0) + 12
    height = max(STEP * len(rows), STEP)
    figure, axes = _canvas(width, height)
    for place, (row, label) in enumerate(zip(rows, labels, strict=True)):
        top, middle, below = place * STEP, (place + 0.5) * STEP, (place + 1) * STEP
        x = LANE / 2 + row.lane * LANE + 2

        def line(lane: int, course: Sequence[tuple[float, float]]) -> None:
            color = LINE_COLORS[lane % len(LINE_COLORS)]
            axes.plot([a for a, _ in course], [b for _, b in course], color=color, lw=1.2)

        for lane in row.passing:
            at = LANE / 2 + lane * LANE + 2
            line(lane, [(at, top), (at, below)])
        if row.above:
            line(row.lane, [(x, top), (x, middle)])
        for lane in row.down:
            line(lane, [(x, middle), (LANE / 2 + lane * LANE + 2, below)])
        axes.plot([x], [middle], "o", color=LINE_COLORS[row.lane % len(LINE_COLORS)], ms=5)
        axes.text(left, middle + 3, _plain(label), fontsize=7.5, family="monospace")
    figure.savefig(target, format="png")


def _plain(words: str) -> str:
    """Dollar signs would be read as formulas."""
    return words.replace("$", r"\$")
