"""Cells that know their full and their short form, and the tables made of them."""

from __future__ import annotations

import datetime
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from dlv.dataclass import dataclass

SHORT_ID = 7
CUT = "…"

# Control characters, bidirectional overrides and lone surrogates: a name holding them could
# move the cursor or make one text look like another.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


@dataclass(frozen=True)
class Text:
    value: str
    style: str = ""


@dataclass(frozen=True)
class Id:
    """A hash: short on a terminal, whole everywhere else."""

    value: str


@dataclass(frozen=True)
class Bytes:
    value: int


@dataclass(frozen=True)
class Time:
    """A moment in dlv's own notation; its age on a terminal."""

    value: str


@dataclass(frozen=True)
class Moment:
    """A moment that was asked for as such: on a terminal to the second, not as an age."""

    value: str


@dataclass(frozen=True)
class Number:
    """`digits` significant ones on a terminal, all of them elsewhere."""

    value: float
    digits: int = 4
    unit: str = ""
    style: str = ""


@dataclass(frozen=True)
class Range:
    """Between two numbers, both included: on a terminal rounded outwards, so that it holds."""

    low: float
    high: float
    digits: int = 4


@dataclass(frozen=True)
class Count:
    """How many: digits in groups on a terminal, plain elsewhere."""

    value: int


@dataclass(frozen=True)
class Items:
    """Several short values in one cell, such as tags or parents."""

    values: Sequence[Cell]


Cell = (
    Text | Id | Bytes | Time | Moment | Number | Range | Count | Items
    | str | bool | int | float | None
)  # fmt: skip
_HOLDERS = (Text, Id, Bytes, Time, Moment, Number, Count)
_NUMERIC = (Bytes, Number, Range, Count, int, float)


def is_numeric(cell: Cell) -> bool:
    return isinstance(cell, _NUMERIC) and not isinstance(cell, bool)


def escape(text: str) -> str:
    """The text with everything that would act on a terminal written out as an escape."""
    return _UNSAFE.sub(_escape_one, text)


def _escape_one(match: re.Match[str]) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    code = ord(match.group())
    return named.get(match.group()) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def raw(cell: Cell) -> object:
    """The value as it stands in JSON."""
    if isinstance(cell, Items):
        return [raw(item) for item in cell.values]
    if isinstance(cell, Range):
        return [raw(cell.low), raw(cell.high)]
    value = cell.value if isinstance(cell, _HOLDERS) else cell
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def full(cell: Cell) -> str:
    """The value as it stands in a pipe: everything, nothing rounded."""
    if cell is None:
        return ""
    if isinstance(cell, Items):
        return ",".join(full(item) for item in cell.values)
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, Range):
        return " .. ".join(str(raw(end)) for end in (cell.low, cell.high))
    return escape(str(raw(cell)))


def short(cell: Cell, now: datetime.datetime) -> str:
    """The value as a person reads it."""
    if cell is None:
        return "-"
    if isinstance(cell, Id):
        return escape(cell.value[:SHORT_ID])
    if isinstance(cell, Bytes):
        return human_bytes(cell.value)
    if isinstance(cell, Count):
        return f"{cell.value:,}"
    if isinstance(cell, Time):
        return age(cell.value, now)
    if isinstance(cell, Moment):
        return escape(cell.value[:19].replace("T", " "))
    if isinstance(cell, Items):
        return ", ".join(short(item, now) for item in cell.values) or "-"
    if isinstance(cell, Range):
        return outwards(cell)
    if isinstance(cell, float):
        cell = Number(cell)
    if isinstance(cell, Number):
        text = str(raw(cell))
        if isinstance(cell.value, float) and math.isfinite(cell.value):
            text = f"{cell.value:.{cell.digits}g}"
        return text + escape(cell.unit)
    return full(cell)


def outwards(cell: Range) -> str:
    """A range with few digits, never a narrower one."""
    return f"{_outwards(cell.low, cell.digits, False)} .. {_outwards(cell.high, cell.digits, True)}"


def _outwards(value: float, digits: int, up: bool) -> str:
    """Rounded to as many digits, never inwards."""
    if isinstance(value, int):
        return f"{value:,}"
    text = f"{value:.{digits}g}"
    if math.isfinite(value) and (float(text) < value if up else float(text) > value):
        step = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
        text = f"{value + step if up else value - step:.{digits}g}"
    return text


def style_of(cell: Cell) -> str:
    if isinstance(cell, (Text, Number)):
        return cell.style
    if isinstance(cell, Id):
        return "yellow"
    return "dim" if cell is None or isinstance(cell, Time) else ""


def human_bytes(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    size, units = count / 1000, ["kB", "MB", "GB", "TB", "PB"]
    while round(size, 1) >= 1000 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:.1f} {units[0]}"


_UNITS = (
    ("second", 1),
    ("minute", 60),
    ("hour", 3600),
    ("day", 86400),
    ("week", 604800),
    ("month", 2629746),
    ("year", 31556952),
)


def age(moment: str, now: datetime.datetime) -> str:
    """How long ago, in the largest unit that fits; a date where it lies ahead."""
    try:
        then = datetime.datetime.fromisoformat(moment)
    except ValueError:
        return escape(moment)
    seconds = (now - then).total_seconds()
    if seconds < -60:
        return moment[:10]
    if seconds < 1:
        return "just now"
    name, length = [unit for unit in _UNITS if seconds >= unit[1]][-1]
    count = int(seconds // length)
    return f"{count} {name}{'' if count == 1 else 's'} ago"


def width(text: str) -> int:
    """The columns that the text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def cut(text: str, limit: int, mark: str = CUT) -> str:
    """The text, shortened with a mark so that it takes at most `limit` columns."""
    if width(text) <= limit:
        return text
    room = limit - width(mark)
    if room < 0:
        return mark[:limit]
    text = text[:room]  # each character takes a column, but for those without any
    while width(text) > room:
        text = text[:-1]
    return text + mark


@dataclass(frozen=True)
class Column:
    """`key` names the value in JSON; `least` is the width below which it is never cut."""

    title: str
    key: str = ""
    least: int = 8
    fixed: bool = False  # never cut, whatever the width

    @property
    def name(self) -> str:
        return self.key or self.title.lower().replace(" ", "_")


class Table:
    """Rows of cells under columns; a column may be given as its title alone."""

    def __init__(self, columns: Iterable[Column | str], rows: Iterable[Sequence[Cell]]) -> None:
        self.columns = [Column(c) if isinstance(c, str) else c for c in columns]
        self.rows = [tuple(row) for row in rows]
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells under {len(self.columns)} columns")

    def records(self) -> list[dict[str, object]]:
        """The rows as JSON objects."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, map(raw, row), strict=True)) for row in self.rows]

    def ids(self) -> list[str]:
        """The first id of each row."""
        found = [next((c.value for c in row if isinstance(c, Id)), None) for row in self.rows]
        return [value for value in found if value is not None]

    def tabbed(self, *, header: bool = False) -> list[str]:
        titles = ["\t".join(escape(column.title) for column in self.columns)] if header else []
        return titles + ["\t".join(map(full, row)) for row in self.rows]

    def csv(self) -> list[str]:
        """RFC 4180, with a header; a cell that a spreadsheet would run stays a text."""
        rows = [
            [escape(c.title) for c in self.columns],
            *([full(cell) for cell in row] for row in self.rows),
        ]
        texts = [[True] * len(self.columns)]
        texts += [[not isinstance(cell, _NUMERIC) for cell in row] for row in self.rows]
        return [
            ",".join(_csv_field(value, text) for value, text in zip(row, kinds, strict=True))
            for row, kinds in zip(rows, texts, strict=True)
        ]

    def markdown(self) -> list[str]:
        head = "| " + " | ".join(_markdown_field(c.title) for c in self.columns) + " |"
        rule = "|" + "|".join("---:" if right else "---" for right in self.right()) + "|"
        body = [
            "| " + " | ".join(_markdown_field(full(c)) for c in row) + " |" for row in self.rows
        ]
        return [head, rule, *body]

    def right(self) -> list[bool]:
        """Columns of numbers are flush right."""
        return [
            any(isinstance(row[i], _NUMERIC) for row in self.rows)
            and all(row[i] is None or isinstance(row[i], _NUMERIC) for row in self.rows)
            for i in range(len(self.columns))
        ]

    def aligned(
        self, limit: int, now: datetime.datetime, paint: Callable[[str, str], str], mark: str = CUT
    ) -> list[str]:
        """Aligned lines with a header, cut to `limit` columns."""
        if not self.rows:
            return []
        texts = [[escape(c.title) for c in self.columns]]
        texts += [[short(cell, now) for cell in row] for row in self.rows]
        styles = [["bold"] * len(self.columns), *([style_of(c) for c in row] for row in self.rows)]
        widths = self._fit([max(map(width, column)) for column in zip(*texts, strict=True)], limit)
        right = self.right()
        lines = []
        for row, looks in zip(texts, styles, strict=True):
            line = ""
            for i, text in enumerate(row):
                text = cut(text, widths[i], mark)
                pad = " " * (widths[i] - width(text))
                text = paint(text, looks[i])
                line += pad + text if right[i] else text + pad
                line += "  "
            lines.append(line.rstrip())
        return lines

    def _fit(self, widths: list[int], limit: int) -> list[int]:
        """Take from the widest column that may be cut until the line fits or none is left."""
        while sum(widths) + 2 * (len(widths) - 1) > limit:
            open_ones = [
                i
                for i, column in enumerate(self.columns)
                if not column.fixed and widths[i] > column.least
            ]
            if not open_ones:
                break
            widths[max(open_ones, key=lambda i: widths[i])] -= 1
        return widths


def _csv_field(value: str, text: bool) -> str:
    if text and value[:1] in ("=", "+", "-", "@"):
        value = "'" + value
    return '"' + value.replace('"', '""') + '"' if re.search('[",\n\r]', value) else value


def _markdown_field(value: str) -> str:
    return re.sub(r"([\\|<>*_`\[\]])", r"\\\1", value)
