"""What comes from what, drawn beside a list: a lane for each line of versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlv.dataclass import dataclass
from dlv.report.markup import Html, text

STEP, LANE, MOST = 26.0, 12.0, 12  # height of a row, width of a lane, lanes that are drawn


@dataclass(frozen=True)
class Row:
    """One version in its row: its lane, lanes that pass, and where its parents' lanes are below."""

    name: str
    lane: int
    passing: tuple[int, ...]  # lanes that run through the row from above to below
    down: tuple[int, ...]  # lanes below in which its parents are
    above: bool  # a child is further up


def rows(nodes: Iterable[tuple[str, Sequence[str]]]) -> list[Row]:
    """Rows for (id, parents), children before their parents."""
    lanes: list[str | None] = []
    drawn = []
    for name, parents in nodes:
        above = name in lanes
        lane = lanes.index(name) if above else _free(lanes)
        if not above:
            lanes[lane] = name
        lanes[lane] = None
        passing = tuple(place for place, awaited in enumerate(lanes) if awaited is not None)
        down = []
        for parent in dict.fromkeys(parents):
            if parent not in lanes:
                place = lane if lanes[lane] is None else _free(lanes)
                lanes[place] = parent
            down.append(lanes.index(parent))
        while lanes and lanes[-1] is None:
            lanes.pop()
        drawn.append(Row(name, lane, passing, tuple(down), above))
    return drawn


def _free(lanes: list[str | None]) -> int:
    for place, awaited in enumerate(lanes):
        if awaited is None:
            return place
    lanes.append(None)
    return len(lanes) - 1


def cell(row: Row, width: int) -> Html:
    """The part of the drawing that stands in one row of a table, `width` lanes wide."""
    across = LANE * min(width, MOST) + 4
    parts = [
        f'<svg class="lanes" viewBox="0 0 {across:.0f} {STEP:.0f}" width="{across:.0f}"'
        f' height="{STEP:.0f}" aria-hidden="true">'
    ]
    middle = STEP / 2
    for lane in row.passing:
        if lane < MOST and not (lane in row.down and lane == row.lane):
            parts.append(f'<path class="c{lane % 8}" d="M{_x(lane)} 0V{STEP}"/>')
    if row.above and row.lane < MOST:
        parts.append(f'<path class="c{row.lane % 8}" d="M{_x(row.lane)} 0V{middle}"/>')
    for lane in row.down:
        if max(lane, row.lane) < MOST:
            parts.append(_bent(row.lane, lane, middle))
    if row.lane < MOST:
        parts.append(f'<circle class="c{row.lane % 8}" cx="{_x(row.lane)}" cy="{middle}" r="4"/>')
    return Html("".join([*parts, "</svg>"]))


def _x(lane: int) -> float:
    return LANE / 2 + lane * LANE + 2


def _bent(lane: int, target: int, middle: float) -> str:
    x, end = _x(lane), _x(target)
    if lane == target:
        return f'<path class="c{target % 8}" d="M{x} {middle}V{STEP}"/>'
    course = f"M{x} {middle}C{x} {STEP - 3} {end} {middle + 3} {end} {STEP}"
    return f'<path class="c{target % 8}" d="{course}"/>'


def picture(nodes: Sequence[tuple[str, Sequence[str]]], labels: Sequence[str]) -> Html:
    """All rows below each other with their labels: a drawing of its own."""
    drawn = rows(nodes)
    width = max((row.lane + 1 for row in drawn), default=1)
    left = LANE * min(width, MOST) + 12
    most = max((len(label) for label in labels), default=0)
    across, tall = left + 7.3 * most + 12, STEP * len(drawn)
    parts = [
        f'<svg class="lineage" viewBox="0 0 {across:.0f} {tall:.0f}" width="{across:.0f}"'
        f' height="{tall:.0f}" role="img" aria-label="lineage">'
    ]
    for place, (row, label) in enumerate(zip(drawn, labels, strict=True)):
        drawing = cell(row, width)
        inner = drawing[drawing.index(">") + 1 : -6]
        y = place * STEP
        parts.append(f'<g class="lanes" transform="translate(0 {y:.0f})">{inner}</g>')
        parts.append(f'<text class="ink" x="{left:.0f}" y="{y + 17:.0f}">{text(label)}</text>')
    return Html("".join([*parts, "</svg>"]))


def file(nodes: Sequence[tuple[str, Sequence[str]]], labels: Sequence[str], style: str) -> str:
    """The same as a file of its own."""
    markup = picture(nodes, labels).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    start = markup.index(">") + 1
    return f"{markup[:start]}<style>{style}</style>{markup[start:]}\n"
