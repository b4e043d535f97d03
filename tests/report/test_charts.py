"""Charts as SVG: well-formed, every name escaped, gaps left open."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import numpy as np

from dlv.report.courses import Chart, course
from dlv.report.curves_picture import COLOURS, HEIGHT, WIDTH, line_class, svg

NAMESPACE = "{http://www.w3.org/2000/svg}"


def _tree(chart: Chart) -> ElementTree.Element:
    text = "".join(svg(chart, 0)).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return ElementTree.fromstring(text)


def _points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path)]


def test_points_lie_where_their_numbers_say() -> None:
    tree = _tree(Chart("loss", (course("a", [0, 10, 20], [0.0, 1.0, 4.0]),)))
    (group,) = tree.findall(f"{NAMESPACE}g")
    (path,) = group.findall(f"{NAMESPACE}path")
    (x0, y0), (x1, y1), (x2, y2) = _points(path.attrib["d"])
    assert abs((x1 - x0) - (x2 - x1)) < 0.2
    assert abs((y0 - y1) * 4 - (y0 - y2)) < 0.5
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in ((x0, y0), (x2, y2)))


def test_names_are_only_names() -> None:
    hostile = '"><script>alert(1)</script>&\x00'
    text = "".join(svg(Chart(hostile, (course(hostile, [1, 2], [1.0, 2.0]),)), 0))
    assert "<script" not in text
    assert text.count("&lt;script") == 3  # title, name and label of the line


def test_behind_a_gap_a_line_begins_anew_and_a_lone_point_is_a_dot() -> None:
    values = [1.0, 2.0, math.nan, 3.0, math.nan, 4.0, 5.0]
    tree = _tree(Chart("loss", (course("a", range(7), values),)))
    (group,) = tree.findall(f"{NAMESPACE}g")
    (path,) = group.findall(f"{NAMESPACE}path")
    assert re.sub(r"[-\d. ]+", "", path.attrib["d"]) == "MLMML"
    assert len(group.findall(f"{NAMESPACE}circle")) == 1


def test_a_smoothed_line_has_the_points_behind_it() -> None:
    tree = _tree(Chart("loss", (course("a", [0, 1], [0.0, 1.0], smooth=0.5),)))
    (group,) = tree.findall(f"{NAMESPACE}g")
    assert [path.attrib.get("class") for path in group.findall(f"{NAMESPACE}path")] == ["raw", None]


def test_lines_differ_by_more_than_colour_once_there_are_many() -> None:
    classes = [line_class(number) for number in range(4 * COLOURS)]
    assert len(set(classes)) == 4 * COLOURS


def test_a_hundred_runs_stay_small() -> None:
    lot = np.random.default_rng(0)
    courses = tuple(
        course(str(i), range(10_000), lot.standard_normal(10_000).tolist()) for i in range(100)
    )
    size = sum(len(line) for line in svg(Chart("loss", courses), 0))
    assert size < 100 * 20_000
