"""Cells and tables: one row list, every rendering."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.terminal.table import (
    Bytes,
    Cell,
    Column,
    Count,
    Id,
    Items,
    Number,
    Range,
    Table,
    Text,
    Time,
    age,
    cut,
    escape,
    full,
    human_bytes,
    raw,
    short,
    width,
)

NOW = datetime.datetime(2026, 6, 15, 12, tzinfo=datetime.UTC)
HOUR_AGO = "2026-06-15T11:00:00.000000Z"
HASH = "0123456789abcdef" * 4


def unpainted(text: str, style: str) -> str:
    return text


CELLS: list[tuple[Cell, object, str, str]] = [
    ("a", "a", "a", "a"),
    (None, None, "", "-"),
    (True, True, "yes", "yes"),
    (3, 3, "3", "3"),
    (0.1 + 0.2, 0.1 + 0.2, "0.30000000000000004", "0.3"),
    (math.nan, "NaN", "NaN", "NaN"),
    (-math.inf, "-Infinity", "-Infinity", "-Infinity"),
    (Text("x", "bold"), "x", "x", "x"),
    (Id(HASH), HASH, HASH, "0123456"),
    (Bytes(1_700_000), 1700000, "1700000", "1.7 MB"),
    (Count(1_234_567), 1234567, "1234567", "1,234,567"),
    (Time(HOUR_AGO), HOUR_AGO, HOUR_AGO, "1 hour ago"),
    (Number(0.123456, 2, "%"), 0.123456, "0.123456", "0.12%"),
    (Number(12345678), 12345678, "12345678", "12345678"),
    (Items(["a", Id(HASH)]), ["a", HASH], f"a,{HASH}", "a, 0123456"),
    (Items([]), [], "", "-"),
    ("a\tb\n\x1b[31m", "a\tb\n\x1b[31m", "a\\tb\\n\\x1b[31m", "a\\tb\\n\\x1b[31m"),
]


@pytest.mark.parametrize(("cell", "in_json", "in_pipe", "on_terminal"), CELLS)
def test_cell(cell: Cell, in_json: object, in_pipe: str, on_terminal: str) -> None:
    assert raw(cell) == in_json
    json.dumps(raw(cell), allow_nan=False)
    assert full(cell) == in_pipe
    assert short(cell, NOW) == on_terminal


@given(st.text())
def test_nothing_escaped_acts_on_a_terminal(text: str) -> None:
    shown = escape(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in shown)
    assert not set(shown) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u200e\u200f")
    if text.isascii() and text.isprintable():
        assert shown == text


@pytest.mark.parametrize(
    "code",
    [
        *b"\0\t\n\x1b\x7f\x80\x9b\x9f",
        0x61C,
        0x200E,
        0x200F,
        0x2028,
        0x2029,
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        0xD800,
        0xDFFF,
    ],
)
def test_each_dangerous_character_is_written_out(code: int) -> None:
    shown = escape(f"a{chr(code)}b")
    assert shown.isascii()
    assert shown[:2] == "a\\"


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"),
        (999_950, "1.0 MB"), (123_456_789, "123.5 MB"), (10**18, "1000.0 PB"),
    ],
)  # fmt: skip
def test_human_bytes(count: int, expected: str) -> None:
    assert human_bytes(count) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "just now"), (1, "1 second ago"), (59, "59 seconds ago"), (60, "1 minute ago"),
        (7200, "2 hours ago"), (86400, "1 day ago"), (14 * 86400, "2 weeks ago"),
        (70 * 86400, "2 months ago"), (800 * 86400, "2 years ago"), (-3600, "2026-06-15"),
    ],
)  # fmt: skip
def test_age(seconds: int, expected: str) -> None:
    moment = NOW - datetime.timedelta(seconds=seconds)
    assert age(moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), NOW) == expected


def test_age_of_no_time() -> None:
    assert age("gone\x07", NOW) == "gone\\x07"


@given(st.text(max_size=30), st.integers(0, 30))
def test_cut_fits(text: str, limit: int) -> None:
    text = escape(text)
    short_text = cut(text, limit)
    assert width(short_text) <= limit
    if width(text) <= limit:
        assert short_text == text
    elif limit:
        assert short_text.endswith("…")


def test_wide_characters_take_two_columns() -> None:
    assert width("模型") == 4
    assert cut("模型模型", 5) == "模型…"
    assert width("e\u0301") == 1


TABLE = Table(
    [Column("version", fixed=True), "id", Column("age", key="created"), "size", "message"],
    [
        [Text("lenet@2", "bold"), Id(HASH), Time("2026-06-15T11:59:00Z"), Bytes(1000), "x" * 60],
        ["vgg@1", Id("f" * 64), Time("2026-06-14T12:00:00Z"), None, "a,b|c\n=d"],
    ],
)


@pytest.mark.parametrize("limit", [40, 60, 80, 200])
def test_aligned(limit: int) -> None:
    lines = TABLE.aligned(limit, NOW, unpainted)
    assert len(lines) == 3
    assert all(width(line) <= max(limit, 50) for line in lines)
    assert "lenet@2" in lines[1]
    assert ("x" * 60 in lines[1]) == (limit == 200)
    start = lines[0].index("message")
    assert lines[1][start] == "x"
    assert lines[2][start] == "a"


def test_numbers_are_flush_right() -> None:
    lines = Table(["n"], [[5], [123], [None]]).aligned(80, NOW, unpainted)
    assert lines == ["  n", "  5", "123", "  -"]


def test_paint_does_not_shift_columns() -> None:
    plain = TABLE.aligned(80, NOW, unpainted)
    painted = TABLE.aligned(80, NOW, lambda text, style: f"<{text}>" if style else text)
    assert [line.replace("<", "").replace(">", "") for line in painted] == plain


def test_empty_table_prints_nothing() -> None:
    assert Table(["a"], []).aligned(80, NOW, unpainted) == []
    assert Table(["a"], []).tabbed() == []


def test_records_and_ids() -> None:
    assert TABLE.records()[0] == {
        "version": "lenet@2",
        "id": HASH,
        "created": "2026-06-15T11:59:00Z",
        "size": 1000,
        "message": "x" * 60,
    }
    assert TABLE.ids() == [HASH, "f" * 64]


@given(st.lists(st.tuples(st.text(), st.integers(), st.none() | st.floats()), max_size=5))
def test_tabbed_keeps_rows_apart(rows: list[tuple[str, int, float | None]]) -> None:
    lines = Table(["a", "b", "c"], rows).tabbed()
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        assert "\n" not in line
        assert line.count("\t") == 2
        assert line.split("\t")[1] == str(row[1])


@given(st.lists(st.tuples(st.text('ab,"\n;é'), st.integers()), max_size=5))
def test_csv_reads_back(rows: list[tuple[str, int]]) -> None:
    text = "\r\n".join(Table(["a", "b"], rows).csv())
    expected = [["a", "b"], *([full(a), str(b)] for a, b in rows)]
    assert list(csv.reader(io.StringIO(text, newline=""))) == expected


def test_csv_runs_nothing_in_a_spreadsheet() -> None:
    assert Table(["a", "b"], [["=SUM(A1)", -1]]).csv()[1] == "'=SUM(A1),-1"


def test_markdown() -> None:
    lines = Table(["name", "n"], [["a|b", 1], ["<script>", 2]]).markdown()
    assert lines == ["| name | n |", "|---|---:|", "| a\\|b | 1 |", "| \\<script\\> | 2 |"]


def test_rows_must_fit_the_columns() -> None:
    with pytest.raises(ValueError, match="2 cells under 1 column"):
        Table(["a"], [[1, 2]])


@pytest.mark.parametrize(
    ("low", "high", "digits", "expected"),
    [
        (1.23456, 1.23456, 4, "1.234 .. 1.235"),
        (-1.23456, 9.99996, 4, "-1.235 .. 10"),
        (-9.99996, 0.0, 3, "-10 .. 0"),
        (0.5, 2.0, 4, "0.5 .. 2"),
        (12, 34567, 4, "12 .. 34,567"),
        (1e-320, math.inf, 4, "1e-320 .. inf"),
    ],
)
def test_a_range_is_rounded_outwards(low: float, high: float, digits: int, expected: str) -> None:
    cell = Range(low, high, digits)
    assert short(cell, NOW) == expected
    assert full(cell) == f"{raw(low)} .. {raw(high)}"
    assert raw(cell) == [raw(low), raw(high)]


@given(st.floats(allow_nan=False), st.floats(allow_nan=False), st.integers(1, 17))
def test_a_range_holds_what_it_held(a: float, b: float, digits: int) -> None:
    low, high = sorted((a, b))
    shown = [float(end) for end in short(Range(low, high, digits), NOW).split(" .. ")]
    assert shown[0] <= low <= high <= shown[1]
