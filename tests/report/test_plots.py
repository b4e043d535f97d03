"""Small plots: every value in its place, nothing that a number may be makes them fail."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from dlv.report import delta_graph, lineage, plots
from dlv.report.markup import Html
from dlv.report.plots import Axis, Dot

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
AXES = Axis("x"), Axis("y", "bytes")


def tree(html: str) -> ElementTree.Element:
    """Fails unless it is well-formed."""
    named = html.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return ElementTree.fromstring(named)


def inside(root: ElementTree.Element) -> None:
    """Every mark lies in the picture."""
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for mark in root.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 <= float(mark.attrib["cx"]) <= width
        assert 0 <= float(mark.attrib["cy"]) <= height


@given(st.lists(st.tuples(NUMBERS, st.floats(-1e12, 1e12)), max_size=20))
def test_scatter(points: list[tuple[float, float]]) -> None:
    root = tree(plots.scatter("t", [Dot(x, y, "a", 1, label="b") for x, y in points], *AXES))
    inside(root)
    drawn = [*root.iter("{http://www.w3.org/2000/svg}circle")]
    assert len(drawn) == sum(math.isfinite(x) for x, _ in points)


def test_larger_values_are_further_right_and_up() -> None:
    html = plots.scatter("t", [Dot(0, 0), Dot(1, 1), Dot(2, 4)], *AXES)
    places = [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', html)]
    assert places[0][0] < places[1][0] < places[2][0]
    assert places[0][1] > places[1][1] > places[2][1]
    assert math.isclose(places[2][0] - places[1][0], places[1][0] - places[0][0], abs_tol=0.2)
    assert math.isclose(places[0][1] - places[2][1], 4 * (places[0][1] - places[1][1]), abs_tol=0.5)


@given(st.lists(st.tuples(st.text(max_size=60), st.floats(0, 1e15), st.text(max_size=9))))
def test_bars(rows: list[tuple[str, float, str]]) -> None:
    html = plots.bars("t", rows)
    assert not rows or len([*tree(html)]) == 3 * len(rows)


def test_the_longest_bar_is_the_largest_value() -> None:
    html = plots.bars("t", [("a", 1.0, "1"), ("b", 4.0, "4"), ("c", 2.0, "2")])
    wide = [float(width) for width in re.findall(r'class="bar"[^>]* width="([\d.]+)"', html)]
    assert wide[1] == max(wide)
    assert math.isclose(wide[1], 4 * wide[0], abs_tol=0.5)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=40))
def test_histogram(counts: list[int]) -> None:
    edges = [float(i) for i in range(len(counts) + 1)]
    assert len([*tree(plots.histogram("t", edges, counts))]) == len(counts) + 2


@given(st.lists(NUMBERS, max_size=30))
def test_sparkline(values: list[float]) -> None:
    html = plots.sparkline(values)
    assert html == "" or tree(html) is not None


SETTINGS = st.one_of(st.none(), st.booleans(), st.floats(-1e9, 1e9), st.text(max_size=20))


@given(st.lists(st.tuples(st.text(max_size=9), SETTINGS, SETTINGS, NUMBERS), max_size=12))
def test_parallel(rows: list[tuple[str, object, object, float]]) -> None:
    lines = [(name, {"a": a, "b": b}, value) for name, a, b, value in rows]
    html = plots.parallel("t", lines, ["a", "b"], "loss")
    known = [value for *_, value in rows if math.isfinite(value)]
    assert (html == "") == (len(known) < 2)
    if html:
        assert html.count('class="line') == len(known)
        ElementTree.fromstring(html)


@given(st.lists(st.lists(st.integers(0, 30), max_size=3), max_size=30))
def test_lineage_lanes_lead_from_children_to_parents(links: list[list[int]]) -> None:
    nodes = [
        (str(i), [str(p) for p in parents if p > i and p < len(links)])
        for i, parents in enumerate(links)
    ]
    rows = lineage.rows(nodes)
    held: dict[int, str] = {}  # what each lane leads to
    for row, (name, parents) in zip(rows, nodes, strict=True):
        assert row.above == (name in held.values())
        if row.above:
            assert held.pop(row.lane) == name
        assert set(row.passing) == set(held)
        for lane, parent in zip(row.down, dict.fromkeys(parents), strict=True):
            assert held.get(lane, parent) == parent
            held[lane] = parent
    assert not held
    tree(lineage.picture(nodes, [name for name, _ in nodes]))
    width = max((row.lane + 1 for row in rows), default=0)
    for row in rows:
        tree(lineage.cell(row, width))


@given(st.dictionaries(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")),
                       st.floats(1, 1e12), min_size=1))  # fmt: skip
def test_deltas_in_circles_are_drawn(lines: dict[tuple[str, str], float]) -> None:
    apart = {edge: size for edge, size in lines.items() if edge[0] != edge[1]}
    if not apart:
        return
    html = delta_graph.svg(dict.fromkeys("abcdef", 1.0), apart)
    assert isinstance(html, Html)
    ElementTree.fromstring(html)
    pairs = {frozenset(edge) for edge in apart}
    assert html.count('class="flow"') == len(pairs)
