"""What commands print, as HTML: escaped, aligned, folded, with links."""

from __future__ import annotations

import datetime
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.report import markup
from dlv.report.markup import Html, Part
from dlv.terminal.output import Fields, Heading, Line, Verbatim
from dlv.terminal.table import Bytes, Cell, Count, Id, Items, Number, Range, Table, Text, Time
from tests.commands.test_reports import Page

NOW = datetime.datetime(2026, 6, 15, 12, tzinfo=datetime.UTC)


def plain(html: str) -> str:
    return re.sub("<[^>]*>", "", html)


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (None, "–"),
        ("", "–"),
        ("a", "a"),
        (True, "yes"),
        (3, "3"),
        (Count(1234567), "1,234,567"),
        (Bytes(1500), "1.5 kB"),
        (Number(0.123456), "0.1235"),
        (0.1234567, "0.1235"),
        ("0.03333333333333333", "0.0333333"),
        ("1.5", "1.5"),
        (Range(1, 2), "1 .. 2"),
        (Id("abcdef0123456789"), "abcdef0"),
        (Time("2026-06-15T11:00:00Z"), "1 hour ago"),
        (Items(["a", Text("b", "green")]), "a, b"),
        (Items([]), "–"),
    ],
)
def test_cells_are_what_people_read(cell: Cell, shown: str) -> None:
    assert plain(markup.cell(cell, NOW)) == shown


def test_what_was_rounded_away_stands_in_the_title() -> None:
    assert 'title="0.123456"' in markup.cell(Number(0.123456), NOW)
    assert 'title="abcdef0123456789"' in markup.cell(Id("abcdef0123456789"), NOW)
    assert "title" not in markup.cell(Number(0.5), NOW)


HOSTILE = st.text(alphabet=st.sampled_from("<>&\"'/ab\u202e\u200f\x00\x1b\n\ud800="), max_size=30)


@given(HOSTILE)
def test_any_string_is_only_text(words: str) -> None:
    table = Table(["a", "b"], [[words, Text(words, "red")]])
    blocks: list[Part] = [
        table,
        Fields({words: words}),
        Heading(words),
        Line(words),
        Verbatim([words]),
        words,
    ]
    html = markup.parts(blocks, NOW, lambda _, __: "/x?a=1&b=2")
    page = Page(html)
    assert page.handlers == page.loads == []
    for sign in "\u202e\u200f\x00\x1b\ud800":
        assert sign not in html


def test_numbers_are_flush_right_and_long_texts_may_break() -> None:
    html = markup.table(Table(["n", "words"], [[1, "x " * 60], [None, "y"]]), NOW)
    assert '<th scope="col" class="n">n</th>' in html
    assert '<td class="n">1</td><td class="long">' in html


def test_the_rest_of_a_long_table_is_folded() -> None:
    rows = [[i] for i in range(200)]
    html = markup.table(Table(["n"], rows), NOW)
    assert "<summary>160 more</summary>" in html
    assert html.count("<tr>") == 202
    assert "<summary>" not in markup.table(Table(["n"], rows), NOW, fold=None)
    assert "<summary>" not in markup.table(Table(["n"], rows[:45]), NOW)
    assert markup.table(Table(["n"], []), NOW) == ""


def test_cells_become_links() -> None:
    table = Table(["version", "parents"], [["a@1", Items(["b@1", "c@1"])]])
    html = markup.table(table, NOW, lambda title, cell: f"/v/{cell}" if title else None)
    assert re.findall('href="([^"]*)"', html) == ["/v/a@1", "/v/b@1", "/v/c@1"]


def test_drawings_among_cells_stay_as_they_are() -> None:
    drawing = Html("<svg></svg>")
    assert "<td><svg></svg></td>" in markup.table(Table(["a"], [[drawing]]), NOW)
    assert markup.part(drawing, NOW) == drawing
