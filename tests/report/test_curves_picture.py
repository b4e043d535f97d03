"""Figures below charts hold what the charts show."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

from dlv.report.courses import Chart, course
from dlv.report.curves_picture import figure_grid


class _Balance(HTMLParser):
    """Fails where elements are not closed in the order in which they were opened."""

    EMPTY = frozenset({"meta", "path", "circle"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None: ...

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_figures_stand_below_the_chart() -> None:
    chart = Chart("loss", (course("lenet@1", [1, 2, 3], [2.0, 0.5, 1.0]),))
    text = figure_grid([chart])
    cells = re.findall(r"<td[^>]*>(.*?)</td>", text.split("<tbody>")[1])
    assert [re.sub("<.*>", "", cell) for cell in cells] == ["lenet@1", "1", "0.5", "2", "2", "1"]
    parser = _Balance()
    parser.feed(text)
    assert parser.open == []


def test_what_cannot_be_drawn_is_counted() -> None:
    chart = Chart("loss", (course("a", [1, 2], [math.nan, 1.0]), course("b", [1], [math.nan])))
    text = figure_grid([chart])
    assert ">not drawn</th>" in text
    assert text.count("<tr>") == 3


def test_numbers_of_many_lines_are_folded() -> None:
    chart = Chart("loss", tuple(course(f"m@{i}", [1, 2], [1.0, 2.0]) for i in range(20)))
    assert "<summary>numbers of 20 lines</summary>" in figure_grid([chart])
