"""What dlv prints: one document for people, pipes and programs; color, pager, messages, errors."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from dlv.dataclass import dataclass
from dlv.errors import DlvError, UsageError
from dlv.terminal.table import CUT, Cell, Table, escape, full, raw, short, style_of, width

MAX_ERROR_LINES = 6
BEFORE = 24  # columns that stay in front of the fault, to see where it is


def error_lines(error: DlvError) -> list[str]:
    """What, why and the next command, in at most six lines."""
    hint = hint_text(error.hint or "", error.did_you_mean)
    parts = [("error: ", error.message), ("note:  ", error.why or ""), ("hint:  ", hint)]
    parts = [(label, text.strip()) for label, text in parts if text.strip()]
    most = MAX_ERROR_LINES // len(parts) if parts else 0
    lines = []
    for label, text in parts:
        given = [escape(line) for line in text.split("\n")]
        if len(given) > most:
            given = [*given[: most - 1], f"{given[most - 1]} ..."]
        lines += [(label if i == 0 else " " * len(label)) + line for i, line in enumerate(given)]
    return lines


def hint_text(hint: str, did_you_mean: Sequence[str]) -> str:
    if not did_you_mean or "did you mean" in hint:
        return hint
    names = [f"`{name}`" for name in did_you_mean]
    listed = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    if not hint.startswith("dlv "):
        hint = hint[:1].upper() + hint[1:]
    return f"did you mean {listed}? {hint}".rstrip()


def line_with_caret(line: str, mark: str, room: int) -> tuple[str, str]:
    """The line and the mark in at most `room` columns, with the beginning of the fault in view."""
    start, room = len(mark) - len(mark.lstrip()), max(room, BEFORE + 8)
    if width(line) <= room and len(mark) <= room:
        return line, mark
    left = 0 if start < room - 8 else start - BEFORE
    shown, lead = _from(line, left)
    head = CUT if left else ""
    cut = _upto(shown, room - lead - len(head) - len(CUT))
    tail = CUT if cut != shown else ""
    wide = lead + len(head) + width(cut) + len(tail)
    moved = " " * (start - left + len(head)) + mark.strip()
    return head + " " * lead + cut + tail, moved[: max(wide, start - left + len(head) + 1)]


def _from(line: str, columns: int) -> tuple[str, int]:
    """The text without its first columns, and how many of a character that was cut in two."""
    at = taken = 0
    while at < len(line) and taken < columns:
        taken += width(line[at])
        at += 1
    return line[at:], taken - columns


def _upto(text: str, columns: int) -> str:
    if width(text) <= columns + len(CUT):
        return text
    taken = 0
    for at, sign in enumerate(text):
        taken += width(sign)
        if taken > columns:
            return text[:at]
    return text


_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}
_STYLES |= {"magenta": "35", "cyan": "36"}
_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN = str.maketrans({"×": "x", "→": "->"})  # where the encoding has neither
_BARS = ("▁▂▃▄▅▆▇█", "_.-~=+*#")


class Line:
    """Cells on one line: two blanks between them for people, a tab in a pipe."""

    def __init__(self, *cells: Cell) -> None:
        self.cells = cells


@dataclass(frozen=True)
class Heading:
    text: str


class Fields:
    """Names with values, one per line."""

    def __init__(self, values: Mapping[str, Cell]) -> None:
        self.values = values


@dataclass(frozen=True)
class Verbatim:
    """Ready-made lines (CSV, a script, a drawing), printed as they are, nothing escaped."""

    lines: Sequence[str]


Block = Table | Line | Heading | Fields | Verbatim | str


def _as_table(block: Block) -> Table | None:
    """A block as rows and columns; headings and sentences are none."""
    if isinstance(block, Fields):
        return Table(["field", "value"], [list(pair) for pair in block.values.items()])
    return block if isinstance(block, Table) else None


def _nothing(key: str) -> str | None:  # noqa: ARG001
    return None


class Output:
    """Where a command's result and messages go."""

    def __init__(
        self,
        stdout: TextIO,
        stderr: TextIO,
        environ: Mapping[str, str],
        *,
        json: bool = False,
        quiet: bool = False,
        form: str = "table",
        header: bool = False,
        verbose: bool = False,
        color: str | None = None,
        pager: bool = True,
        configured: Callable[[str], str | None] = _nothing,
        now: datetime.datetime | None = None,
    ) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.environ = environ
        self.json = json
        self.quiet = quiet
        self.format = form  # table, json, jsonl, csv, md or ids
        self.header = header
        self.verbose = verbose
        self.color = color
        self.pager = pager
        self.configured = configured
        self.now = now or datetime.datetime.now(datetime.UTC)
        self._colour: dict[int, bool] = {}

    # What the streams are

    @property
    def terminal(self) -> bool:
        """The result goes to a person."""
        return self.stdout.isatty() and self.format == "table"

    @property
    def interactive(self) -> bool:
        """Somebody sees stderr now: progress is worth showing."""
        return self.stderr.isatty() and not self.quiet and not self.json

    @property
    def width(self) -> int:
        return self._size()[0]

    def _size(self) -> tuple[int, int]:
        columns, lines = self.environ.get("COLUMNS", ""), self.environ.get("LINES", "")
        try:
            real = os.get_terminal_size(self.stdout.fileno())
        except (OSError, ValueError, AttributeError):
            real = os.terminal_size((80, 24))
        wide = int(columns) if columns.isdigit() and int(columns) else real.columns or 80
        high = int(lines) if lines.isdigit() and int(lines) else real.lines or 24
        return wide, high

    def colour(self, stream: TextIO) -> bool:
        """--color, core.color, NO_COLOR, FORCE_COLOR, TERM=dumb, terminal: the first that says."""
        if id(stream) not in self._colour:
            self._colour[id(stream)] = self._decide_colour(stream)
        return self._colour[id(stream)]

    def _decide_colour(self, stream: TextIO) -> bool:
        said = self.color
        if said is None:
            # A configuration that cannot be read is reported by the command, not by its colours.
            with contextlib.suppress(DlvError):
                said = self.configured("core.color")
        if said in ("always", "never"):
            return said == "always"
        if self.environ.get("NO_COLOR"):
            return False
        if self.environ.get("FORCE_COLOR"):
            return True
        return self.environ.get("TERM") != "dumb" and stream.isatty()

    def paint(self, text: str, style: str, stream: TextIO | None = None) -> str:
        codes = [_STYLES[name] for name in style.split()]
        if not codes or not text or not self.colour(stream or self.stdout):
            return text
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m"

    def can_print(self, text: str) -> bool:
        """Whether the stream's encoding has these characters."""
        try:
            text.encode(self.stdout.encoding or "utf-8")
        except (UnicodeEncodeError, LookupError):
            return False
        return True

    def sparkline(self, values: Sequence[float], columns: int = 20) -> str:
        """The course of a series in one short word."""
        return sparkline(values, columns, _BARS[0] if self.can_print(_BARS[0]) else _BARS[1])

    # Results

    def emit(
        self,
        name: str,
        document: Mapping[str, Any],
        *body: Block,
        ids: Iterable[str] | None = None,
        schema: int = 1,
    ) -> None:
        """Print one result: `document` with --json, `ids` with -q, else `body`.

        Cells inside the document become plain values. Without `ids`, -q prints the first id of
        each row of the body's tables.
        """
        if self.json:
            self.write(self.dumps({"schema": f"dlv/{name}/{schema}", **document}) + "\n")
        elif self.quiet:
            tables = [block for block in body if isinstance(block, Table)]
            chosen = [i for t in tables for i in t.ids()] if ids is None else ids
            self.write("".join(f"{escape(i)}\n" for i in chosen))
        elif self.format in ("csv", "md", "jsonl"):
            self.write("".join(f"{line}\n" for line in self._as_format(name, body)))
        else:
            lines = [line for block in body for line in self.lines(block)]
            self.page("".join(f"{line}\n" for line in lines))

    def _as_format(self, name: str, body: Sequence[Block]) -> Iterator[str]:
        """Print tables alone, in a format that other programs read.

        Sums below a table are not part of it: csv and jsonl leave them out.
        """
        if any(isinstance(block, Verbatim) for block in body):
            for block in body:
                yield from block.lines if isinstance(block, Verbatim) else ()
            return
        tables = [_as_table(block) for block in body]
        whole = [block for block in body if isinstance(block, Table)]
        found = whole or [table for table in tables if table is not None]
        if self.format == "md":
            for block, table in zip(body, tables, strict=True):
                if isinstance(block, Heading):
                    yield from ("", f"### {escape(block.text)}", "")
                yield from table.markdown() if table is not None else ()
        elif len(found) > 1:
            raise UsageError(
                f"dlv {name} prints several tables here; {self.format} contains one",
                hint="use --format json or --format md",
            )
        elif self.format == "csv":
            yield from found[0].csv() if found else ()
        else:
            for record in found[0].records() if found else ():
                yield json.dumps(record, ensure_ascii=True)

    def lines(self, block: Block) -> list[str]:
        """One block as text, for the terminal or for a pipe."""
        mark = CUT if self.can_print(CUT) else "..."
        if isinstance(block, str):
            return [escape(line) for line in block.split("\n")]
        if isinstance(block, Verbatim):
            return list(block.lines)
        if isinstance(block, Heading):
            return [self.paint(escape(block.text), "bold")]
        if isinstance(block, Table):
            if not self.terminal:
                return block.tabbed(header=self.header)
            return block.aligned(self.width, self.now, self.paint, mark)
        if isinstance(block, Fields):
            if not self.terminal:
                return [f"{escape(key)}\t{full(value)}" for key, value in block.values.items()]
            room = max(map(len, block.values), default=0)
            return [
                f"{escape(key) + ':':<{room + 1}} {self._cell(value)}".rstrip()
                for key, value in block.values.items()
            ]
        if not self.terminal:
            return ["\t".join(full(cell) for cell in block.cells)]
        return ["  ".join(self._cell(cell) for cell in block.cells)]

    def _cell(self, cell: Cell) -> str:
        return self.paint(short(cell, self.now), style_of(cell))

    def dumps(self, value: Any) -> str:
        """JSON that no terminal and no encoding can trip over."""
        plain = not self.can_print("\U0001f600")  # only Unicode encodings have it
        text = json.dumps(_jsonable(value), indent=2, ensure_ascii=plain, allow_nan=False)
        return _IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)

    def write(self, text: str) -> None:
        self.stdout.write(_encodable(text, self.stdout))

    def raw(self, data: bytes) -> None:
        """Bytes as they are: the content of a file."""
        self.stdout.flush()
        buffer = getattr(self.stdout, "buffer", None)
        if buffer is None:
            self.stdout.write(data.decode("utf-8", "replace"))
        else:
            buffer.write(data)
            buffer.flush()

    def page(self, text: str) -> None:
        """Through the pager if a person would have to scroll back."""
        command = self._pager_command(text)
        if command is None:
            self.write(text)
            return
        environ = {"LESS": "FRX", **self.environ}
        try:
            # A pager that is told to end leaves the terminal as it was.
            import signal
            import subprocess

            import dlv.disk.children as children

            process = children.start(
                command, ends_by=signal.SIGTERM, stdin=subprocess.PIPE, env=environ
            )
        except OSError:
            self.write(text)
            return
        # The reader may quit long before the end.
        with contextlib.suppress(BrokenPipeError):
            process.communicate(text.encode(self.stdout.encoding or "utf-8", "backslashreplace"))
        process.wait()

    def _pager_command(self, text: str) -> list[str] | None:
        if not self.pager or not self.terminal or text.count("\n") < self._size()[1]:
            return None
        import shlex
        import shutil

        for named in (
            self.environ.get("DLV_PAGER"),
            self.configured("core.pager"),
            self.environ.get("PAGER"),
            "less -FRX",
        ):
            if named is not None:
                try:
                    words = shlex.split(named)
                except ValueError:
                    return None
                found = shutil.which(words[0], path=self.environ.get("PATH")) if words else None
                return [found, *words[1:]] if found and words != ["cat"] else None
        return None

    # Messages

    def message(self, text: str) -> None:
        """Something worth knowing that is not the result; silent with -q and --json."""
        if not self.quiet and not self.json:
            self._say("", text)

    def detail(self, text: str) -> None:
        """Only with -v."""
        if self.verbose:
            self.message(text)

    def hint(self, text: str) -> None:
        if not self.quiet and not self.json:
            self._say(self.paint("hint: ", "cyan", self.stderr), text)

    def next_step(self, text: str) -> None:
        """A dim line after a success."""
        self.stderr.write(
            self.paint(_encodable(escape(text), self.stderr), "dim", self.stderr) + "\n"
        )

    def warn(self, text: str) -> None:
        if self.json:
            self._say("", json.dumps({"warning": {"message": text}}))
        else:
            self._say(self.paint("warning: ", "yellow", self.stderr), text)

    def error(self, error: DlvError) -> None:
        if self.json:
            self.stderr.write(json.dumps(_jsonable(error.as_json())) + "\n")
            return
        if error.spots:
            self._spots(error)
            return
        styles = {"error:": "bold red", "note:": "bold", "hint:": "cyan"}
        for line in error_lines(error):
            label, space, rest = line.partition(" ")
            if label in styles:
                label = self.paint(label, styles[label], self.stderr)
            self.stderr.write(_encodable(label + space + rest, self.stderr) + "\n")

    def _spots(self, error: DlvError) -> None:
        """Each fault in a text with its place; a line that is too long is cut around it."""
        for spot in error.spots:
            place, space, rest = escape(spot.message).partition(" ")
            line, mark = line_with_caret(spot.line, spot.mark, self.width - 4)
            hint = hint_text(spot.hint or "", spot.did_you_mean)
            told = [
                self.paint(place, "bold red", self.stderr) + space + rest,
                f"    {escape(line)}",
                "    " + self.paint(mark, "red", self.stderr),
                *([f"  {self.paint('hint:', 'cyan', self.stderr)} {escape(hint)}"] if hint else []),
            ]
            self.stderr.write(_encodable("\n".join(told), self.stderr) + "\n")

    def _say(self, label: str, text: str) -> None:
        lines = "\n".join(escape(line) for line in text.split("\n"))
        self.stderr.write(label + _encodable(lines, self.stderr) + "\n")


def sparkline(values: Sequence[float], columns: int, bars: str) -> str:
    """Each character is the mean of its share of the values; a blank stands for nothing finite."""
    if not values or columns < 1:
        return ""
    count = min(columns, len(values))
    finite = [v for v in values if v - v == 0]
    low, span = min(finite, default=0.0), max(finite, default=0.0) - min(finite, default=0.0)
    text = ""
    for i in range(count):
        share = values[i * len(values) // count : (i + 1) * len(values) // count]
        known = [v for v in share if v - v == 0]
        if not known:
            text += " "
            continue
        height = (sum(v / len(known) for v in known) - low) / span if 0 < span < float("inf") else 0
        text += bars[min(len(bars) - 1, max(0, int(height * len(bars))))]
    return text


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_jsonable(item) for item in value]
    if isinstance(value, bytes):  # a damaged catalogue may give that for a text
        return value.decode("utf-8", "backslashreplace")
    return raw(value)


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAIN)
    return text.encode(encoding, "backslashreplace").decode(encoding)
