"""From curves of versions to files."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

import dlv.report.curve_charts as curve_charts
from dlv.errors import StorageError
from dlv.report.courses import Chart, course

CHART = Chart("loss", (course("lenet@1", [1, 2], [1.0, 0.5]),))


def test_the_page_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "curves.html"
    path.write_text("old")
    curve_charts.write(path, [CHART])
    assert path.read_text().startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot write"):
        curve_charts.write(tmp_path / "none" / "curves.html", [CHART])


def test_an_svg_is_a_drawing_of_its_own(tmp_path: Path) -> None:
    curve_charts.write(tmp_path / "c.svg", [CHART, Chart("<b>", CHART.courses)])
    root = ElementTree.fromstring((tmp_path / "c.svg").read_text())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


def test_titles_name_some_of_many(tmp_path: Path) -> None:
    many = Chart("loss", tuple(course(f"m@{i}", [1], [1.0]) for i in range(9)))
    curve_charts.write(tmp_path / "c.html", [many])
    text = (tmp_path / "c.html").read_text()
    assert "<h1>m@0, m@1, m@2, m@3 and 5 more</h1>" in text
    assert ">Training curves of 9 versions</p>" in text
