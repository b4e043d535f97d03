"""Graphs drawn beside a list: the strokes must connect exactly the parents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.terminal.lanes import ASCII, BOX, Row, draw

Nodes = list[tuple[str, list[str]]]


def text(nodes: Nodes, ascii_only: bool = False) -> str:
    lines = []
    for (name, _), row in zip(nodes, draw(nodes, ASCII if ascii_only else BOX), strict=True):
        lines += [f"{row.node} {name}", *([] if row.links is None else [row.links])]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("nodes", "drawn"),
    [
        ([("b", ["a"]), ("a", [])], "● b\n● a"),
        ([("c", ["a"]), ("b", ["a"]), ("a", [])], "● c\n│ ● b\n├─╯\n● a"),
        (
            [("m", ["b", "c"]), ("b", ["a"]), ("c", ["a"]), ("a", [])],
            "● m\n├─╮\n● │ b\n│ ● c\n├─╯\n● a",
        ),
        (  # an octopus
            [("m", ["b", "c", "d"]), ("b", []), ("c", []), ("d", [])],
            "● m\n├─┬─╮\n● │ │ b\n  ● │ c\n    ● d",
        ),
        (  # a lane is crossed
            [("d", ["a"]), ("x", ["y"]), ("e", ["a"]), ("y", []), ("a", [])],
            "● d\n│ ● x\n│ │ ● e\n├─┼─╯\n│ ● y\n● a",
        ),
        # What has no children does not seem to go on from what ends above it.
        ([("b", []), ("a", [])], "● b\n  ● a"),
        ([("b", ["elsewhere"]), ("a", [])], "● b\n│ ● a"),
        ([], ""),
    ],
)
def test_drawings(nodes: Nodes, drawn: str) -> None:
    assert text(nodes) == drawn


def test_without_box_characters() -> None:
    nodes: Nodes = [("m", ["b", "c"]), ("b", ["a"]), ("c", ["a"]), ("a", [])]
    assert text(nodes, ascii_only=True) == "* m\n+-.\n* | b\n| * c\n+-'\n* a"


@st.composite
def histories(draw_: st.DrawFn) -> Nodes:
    """Children before parents."""
    count = draw_(st.integers(1, 12))
    nodes: Nodes = []
    for i in range(count):
        later = [str(k) for k in range(i + 1, count)]
        parents = draw_(st.lists(st.sampled_from(later), max_size=3, unique=True)) if later else []
        nodes.append((str(i), parents))
    return nodes


UP, DOWN = set("│╵╯╰┤├┴┼"), set("│╷╮╭┤├┬┼")
LEFT, RIGHT = set("─╯╮┤┴┬┼"), set("─╰╭├┴┬┼")


def followed(grid: list[str], row: int, column: int) -> set[int]:
    """Rows of the nodes that the strokes down from a node reach, walked character by character."""

    def at(r: int, c: int) -> str:
        return grid[r][c] if 0 <= r < len(grid) and 0 <= c < len(grid[r]) else " "

    reached: set[int] = set()
    seen: set[tuple[int, int, str]] = set()
    pending = [(row + 1, column, "v")]
    while pending:
        r, c, way = pending.pop()
        if (r, c, way) in seen:
            continue
        seen.add((r, c, way))
        char = at(r, c)
        if char == "●" and way == "v":
            reached.add(r)
        elif way == "v":
            if char == "│":
                pending.append((r + 1, c, "v"))
            elif char in UP:
                pending += [(r, c - 1, "h-")] if char in LEFT else []
                pending += [(r, c + 1, "h+")] if char in RIGHT else []
                pending += [(r + 1, c, "v")] if char in DOWN else []
        elif char in (RIGHT if way == "h-" else LEFT):
            pending += [(r + 1, c, "v")] if char in DOWN else []
            pending += [(r, c + (1 if way == "h+" else -1), way)] if char in LEFT & RIGHT else []
    return reached


@given(histories())
def test_every_parent_is_reached(nodes: Nodes) -> None:
    rows: list[Row] = draw(nodes)
    grid: list[str] = []
    place: dict[str, tuple[int, int]] = {}
    for (name, _), row in zip(nodes, rows, strict=True):
        assert row.node.count("●") == 1
        place[name] = (len(grid), row.node.index("●"))
        grid += [row.node, *([] if row.links is None else [row.links])]
    for name, parents in nodes:
        reached = followed(grid, *place[name])
        assert {place[parent][0] for parent in parents} <= reached
        if not parents:
            assert reached == set()
