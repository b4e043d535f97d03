"""Output: which rendering, which colours, which pager, and what an error looks like."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.errors import Conflict, DlvError, NotFound
from dlv.terminal.output import Fields, Heading, Line, Output, Verbatim, error_lines, sparkline
from dlv.terminal.table import Bytes, Id, Table, Text

HASH = "ab" * 32


class Stream(io.TextIOWrapper):
    def __init__(self, terminal: bool = False, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    @property
    def text(self) -> str:
        below = self.buffer
        assert isinstance(below, io.BytesIO)
        return below.getvalue().decode(self.encoding)


def make(
    terminal: bool = False,
    environ: dict[str, str] | None = None,
    encoding: str = "utf-8",
    **options: Any,
) -> tuple[Output, Stream, Stream]:
    out, err = Stream(terminal, encoding), Stream(terminal, encoding)
    return Output(out, err, environ or {"COLUMNS": "40"}, **options), out, err


TABLE = Table(["id", "name", "size"], [[Id(HASH), Text("n\x1b[2J", "red"), Bytes(1500)]])
DOCUMENT = {"rows": [{"id": Id(HASH), "size": Bytes(1500), "loss": float("nan")}]}


def test_bytes_in_the_place_of_a_text() -> None:
    """As a damaged catalogue gives them: told as far as they are one."""
    output, _, _ = make()
    assert json.loads(output.dumps({"name": b"lenet\xff"})) == {"name": "lenet\\xff"}


class TestEmit:
    def test_pipe(self) -> None:
        output, out, _ = make()
        output.emit("x", DOCUMENT, Heading("rows"), TABLE, Fields({"a": 1, "long": Id(HASH)}))
        assert out.text == f"rows\n{HASH}\tn\\x1b[2J\t1500\na\t1\nlong\t{HASH}\n"

    def test_terminal(self) -> None:
        output, out, _ = make(True, color="never")
        output.emit(
            "x", DOCUMENT, TABLE, Fields({"a": 1, "long": Id(HASH)}), Line("done", Id(HASH))
        )
        assert out.text == (
            "id       name        size\n"
            "abababa  n\\x1b[2J  1.5 kB\n"
            "a:    1\nlong: abababa\ndone  abababa\n"
        )

    def test_colour_on_a_terminal(self) -> None:
        output, out, _ = make(True)
        output.emit("x", {}, Line(Text("ok", "bold green")))
        assert out.text == "\x1b[1;32mok\x1b[0m\n"

    def test_json(self) -> None:
        output, out, _ = make(True, json=True)
        output.emit("x", DOCUMENT, TABLE)
        assert json.loads(out.text) == {
            "schema": "dlv/x/1",
            "rows": [{"id": HASH, "size": 1500, "loss": "NaN"}],
        }

    def test_quiet_prints_ids(self) -> None:
        output, out, _ = make(quiet=True)
        output.emit("x", DOCUMENT, "text", TABLE)
        output.emit("x", DOCUMENT, TABLE, ids=["one", "two"])
        assert out.text == f"{HASH}\none\ntwo\n"

    def test_json_beats_quiet(self) -> None:
        output, out, _ = make(json=True, quiet=True)
        output.emit("x", {})
        assert json.loads(out.text) == {"schema": "dlv/x/1"}

    def test_text_is_escaped_and_verbatim_is_not(self) -> None:
        output, out, _ = make()
        output.emit("x", {}, "a\n\x07b", Verbatim(["\tc"]))
        assert out.text == "a\n\\x07b\n\tc\n"

    def test_bytes_go_out_unchanged(self) -> None:
        output, out, _ = make(encoding="ascii")
        output.write("é\n")
        output.raw(b"\x00\xff")
        below = out.buffer
        assert isinstance(below, io.BytesIO)
        assert below.getvalue() == b"\\xe9\n\x00\xff"

    @given(st.text())
    def test_json_is_safe_on_any_terminal(self, name: str) -> None:
        for encoding in ("utf-8", "ascii", "latin-1"):
            output, out, _ = make(json=True, encoding=encoding)
            output.emit("x", {"name": name})
            assert json.loads(out.text)["name"] == name
            assert not set(out.text) & {chr(c) for c in (*range(10), 0x1B, 0x7F, 0x9B, 0x202E)}

    def test_poor_terminal_gets_ascii(self) -> None:
        output, out, _ = make(True, encoding="ascii", color="never")
        output.emit("x", {}, Table(["name"], [["x" * 60]]))
        assert out.text.splitlines()[1] == "x" * 37 + "..."


COLOURS: list[tuple[str | None, str | None, dict[str, str], bool, bool]] = [
    # --color, core.color, environment, terminal -> colour
    (None, None, {}, True, True),
    (None, None, {}, False, False),
    (None, None, {"TERM": "dumb"}, True, False),
    (None, None, {"TERM": "dumb", "FORCE_COLOR": "1"}, True, True),
    (None, None, {"FORCE_COLOR": "1"}, False, True),
    (None, None, {"FORCE_COLOR": ""}, False, False),
    (None, None, {"NO_COLOR": "1"}, True, False),
    (None, None, {"NO_COLOR": ""}, True, True),
    (None, None, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
    ("always", None, {"NO_COLOR": "1", "TERM": "dumb"}, False, True),
    ("never", None, {"FORCE_COLOR": "1"}, True, False),
    ("auto", "always", {}, False, False),
    ("auto", None, {"NO_COLOR": "1"}, True, False),
    (None, "always", {"NO_COLOR": "1"}, False, True),
    (None, "never", {}, True, False),
    (None, "auto", {}, True, True),
    ("never", "always", {}, True, False),
]


@pytest.mark.parametrize(("flag", "configured", "environ", "terminal", "expected"), COLOURS)
def test_colour(
    flag: str | None,
    configured: str | None,
    environ: dict[str, str],
    terminal: bool,
    expected: bool,
) -> None:
    output, out, _ = make(terminal, environ, color=flag, configured=lambda _: configured)
    assert output.colour(out) is expected


def test_a_broken_configuration_does_not_stop_printing() -> None:
    def broken(key: str) -> str | None:
        raise DlvError(key)

    output, _, err = make(True, configured=broken)
    output.warn("x")
    assert err.text == "\x1b[33mwarning: \x1b[0mx\n"


class TestPager:
    """The pager here is a script that writes what it is given to a file."""

    @pytest.fixture
    def pager(self, tmp_path: Path) -> tuple[str, Path]:
        seen = tmp_path / "seen"
        script = tmp_path / "my pager"
        script.write_text(f"#!/bin/sh\ncat > '{seen}'\n")
        script.chmod(0o755)
        return f"'{script}' -x", seen

    LONG = "\n".join(map(str, range(30)))

    @pytest.mark.parametrize("way", ["DLV_PAGER", "core.pager", "PAGER"])
    def test_long_text(self, pager: tuple[str, Path], way: str) -> None:
        environ = {"LINES": "24", way: pager[0]}
        output, out, _ = make(
            True, environ, configured=lambda key: pager[0] if key == way else None
        )
        output.emit("x", {}, self.LONG)
        assert out.text == ""
        assert pager[1].read_text() == self.LONG + "\n"

    def test_order(self, pager: tuple[str, Path]) -> None:
        environ = {"LINES": "24", "DLV_PAGER": "cat", "PAGER": pager[0]}
        output, out, _ = make(True, environ, configured=lambda _: pager[0])
        output.emit("x", {}, self.LONG)
        assert out.text == self.LONG + "\n"

    @pytest.mark.parametrize("why", ["short", "pipe", "json", "quiet", "off", "missing", "empty"])
    def test_not_used(self, pager: tuple[str, Path], why: str) -> None:
        named = {"missing": "/no/such/pager", "empty": ""}.get(why, pager[0])
        output, out, _ = make(
            why != "pipe",
            {"LINES": "24", "DLV_PAGER": named},
            json=why == "json",
            quiet=why == "quiet",
            pager=why != "off",
            color="never",
        )
        output.emit("x", {}, "short" if why == "short" else self.LONG, ids=["1"])
        assert not pager[1].exists()
        assert out.text

    def test_a_reader_who_quits_is_no_error(self, tmp_path: Path) -> None:
        script = tmp_path / "quits"
        script.write_text("#!/bin/sh\nexit 0\n")
        script.chmod(0o755)
        output, _, _ = make(True, {"LINES": "2", "DLV_PAGER": str(script)}, color="never")
        output.emit("x", {}, "line\n" * 200_000)


class TestMessages:
    def test_where_they_go(self) -> None:
        output, out, err = make(verbose=True)
        output.message("a\x1b")
        output.detail("b")
        output.hint("c")
        output.warn("d")
        assert out.text == ""
        assert err.text == "a\\x1b\nb\nhint: c\nwarning: d\n"

    def test_quiet_keeps_warnings(self) -> None:
        output, _, err = make(quiet=True)
        output.message("a")
        output.hint("c")
        output.warn("d")
        assert err.text == "warning: d\n"

    def test_json_has_warnings_as_objects(self) -> None:
        output, _, err = make(json=True)
        output.message("a")
        output.warn("d")
        assert json.loads(err.text) == {"warning": {"message": "d"}}

    def test_detail_needs_verbose(self) -> None:
        output, _, err = make()
        output.detail("b")
        assert err.text == ""


class TestErrors:
    def test_form(self) -> None:
        error = NotFound(
            "no version matches `lnet@3`",
            why="no model `lnet` here (3 names)",
            hint="all names: dlv list --names",
            did_you_mean=["lenet@3"],
        )
        assert error_lines(error) == [
            "error: no version matches `lnet@3`",
            "note:  no model `lnet` here (3 names)",
            "hint:  did you mean `lenet@3`? All names: dlv list --names",
        ]

    def test_several_meant_and_a_command_as_hint(self) -> None:
        error = NotFound("x", hint="dlv list", did_you_mean=["a", "b", "c"])
        assert error_lines(error)[1] == "hint:  did you mean `a`, `b` or `c`? dlv list"

    def test_an_own_did_you_mean_is_not_doubled(self) -> None:
        error = NotFound("x", hint="did you mean `a`?", did_you_mean=["a"])
        assert error_lines(error)[1] == "hint:  did you mean `a`?"

    @given(st.text(min_size=1), st.none() | st.text(), st.none() | st.text())
    def test_never_more_than_six_lines(self, what: str, why: str | None, hint: str | None) -> None:
        lines = error_lines(Conflict(what, why=why, hint=hint))
        assert len(lines) <= 6
        assert all("\n" not in line and "\x1b" not in line for line in lines)

    def test_long_parts_are_cut_visibly(self) -> None:
        lines = error_lines(Conflict("a\nb\nc", why="d", hint="e"))
        assert lines == ["error: a", "       b ...", "note:  d", "hint:  e"]

    def test_json(self) -> None:
        output, out, err = make(json=True)
        output.error(Conflict("x", did_you_mean=["y"]))
        assert out.text == ""
        assert json.loads(err.text)["error"] == {
            "code": 5, "kind": "conflict", "message": "x", "why": None, "hint": None,
            "did_you_mean": ["y"],
        }  # fmt: skip

    def test_colour(self) -> None:
        output, _, err = make(True)
        output.error(Conflict("x", hint="y"))
        assert err.text == "\x1b[1;31merror:\x1b[0m x\n\x1b[36mhint:\x1b[0m  y\n"


class TestSparkline:
    BARS = "12345678"

    def test_course(self) -> None:
        assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8, self.BARS) == self.BARS
        assert sparkline([7, 0], 8, self.BARS) == "81"
        assert sparkline([5, 5, 5], 8, self.BARS) == "111"
        assert sparkline([], 8, self.BARS) == ""

    def test_what_is_not_finite_is_a_gap(self) -> None:
        assert sparkline([0, float("nan"), 1, float("inf")], 8, self.BARS) == "1 8 "

    @given(st.lists(st.floats(), max_size=100), st.integers(0, 30))
    def test_always_fits(self, values: list[float], columns: int) -> None:
        text = sparkline(values, columns, self.BARS)
        assert len(text) == min(columns, len(values))
        assert set(text) <= set(self.BARS + " ")

    def test_encoding(self) -> None:
        assert make()[0].sparkline([0, 1]) == "▁█"
        assert make(encoding="ascii")[0].sparkline([0, 1]) == "_#"


def test_width_falls_back_to_eighty() -> None:
    assert Output(Stream(), Stream(), {}).width == 80
    assert Output(Stream(), Stream(), {"COLUMNS": "x"}).width == 80
    assert Output(sys.__stdout__ or Stream(), Stream(), {"COLUMNS": "33"}).width == 33
