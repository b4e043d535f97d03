"""A directed graph drawn beside a list: one line per node, lines for branches and merges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlv.dataclass import dataclass

# Where the strokes of a character go.
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_BOX = {
    0: " ",
    _UP: "╵",
    _DOWN: "╷",
    _UP | _DOWN: "│",
    _LEFT | _RIGHT: "─",
    _UP | _LEFT: "╯",
    _UP | _RIGHT: "╰",
    _DOWN | _LEFT: "╮",
    _DOWN | _RIGHT: "╭",
    _UP | _DOWN | _LEFT: "┤",
    _UP | _DOWN | _RIGHT: "├",
    _UP | _LEFT | _RIGHT: "┴",
    _DOWN | _LEFT | _RIGHT: "┬",
    _UP | _DOWN | _LEFT | _RIGHT: "┼",
}
_ASCII = dict.fromkeys(_BOX, "+") | {0: " ", _UP | _DOWN: "|", _LEFT | _RIGHT: "-"}
_ASCII |= {_UP | _LEFT: "'", _UP | _RIGHT: "`", _DOWN | _LEFT: ".", _DOWN | _RIGHT: "."}


@dataclass(frozen=True)
class Style:
    node: str
    chars: dict[int, str]


BOX = Style("●", _BOX)
ASCII = Style("*", _ASCII)


@dataclass(frozen=True)
class Row:
    """The node's own line, and the line below it where lanes part or meet."""

    node: str
    links: str | None


def draw(nodes: Iterable[tuple[str, Sequence[str]]], style: Style = BOX) -> list[Row]:
    """Rows for (id, parents) given children first; a parent that is not listed ends open."""
    lanes: list[str | None] = []  # whom each lane leads down to
    ended: int | None = None  # a line that begins just below an end would seem to go on from it
    rows = []
    for name, parents in nodes:
        at = _lane_of(lanes, name, ended)
        above = list(lanes)
        line = "".join(
            (style.node if i == at else style.chars[_UP | _DOWN if lane else 0]) + " "
            for i, lane in enumerate(above)
        )
        strokes = [_UP | _DOWN if lane else 0 for lane in above]
        strokes[at] = _UP
        lanes[at] = None
        targets = []
        for parent in dict.fromkeys(parents):
            if parent in lanes:
                target = lanes.index(parent)
            else:
                # The first parent goes on below its child.
                target = at if lanes[at] is None else _free(lanes)
                lanes[target] = parent
            targets.append(target)
        _link(strokes, at, targets, len(lanes))
        ended = None if parents else at
        while lanes and lanes[-1] is None:
            lanes.pop()
        bent = any(target != at for target in targets)
        rows.append(Row(line.rstrip(), _line(strokes, style) if bent else None))
    return rows


def _lane_of(lanes: list[str | None], name: str, ended: int | None) -> int:
    if name in lanes:
        return lanes.index(name)
    at = _free(lanes, ended)
    lanes[at] = name
    return at


def _free(lanes: list[str | None], but: int | None = None) -> int:
    for i, lane in enumerate(lanes):
        if lane is None and i != but:
            return i
    while len(lanes) == but:
        lanes.append(None)
    lanes.append(None)
    return len(lanes) - 1


def _link(strokes: list[int], lane: int, targets: Sequence[int], width: int) -> None:
    """Strokes from the node's lane down to each target lane."""
    strokes += [0] * (width - len(strokes))
    for target in targets:
        strokes[target] |= _DOWN
        low, high = min(lane, target), max(lane, target)
        for i in range(low, high):
            strokes[i] |= _RIGHT
            strokes[i + 1] |= _LEFT


def _line(strokes: Sequence[int], style: Style) -> str:
    text = ""
    for stroke in strokes:
        text += style.chars[stroke] + style.chars[_LEFT | _RIGHT if stroke & _RIGHT else 0]
    return text.rstrip()
