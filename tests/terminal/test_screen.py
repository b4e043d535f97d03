"""The progress bar: nothing for quick work, gone when slow work is done. The board."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator

import pytest

import dlv.terminal.screen as screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")


@contextlib.contextmanager
def shown() -> Iterator[Terminal]:
    with contextlib.redirect_stderr(Terminal()) as stream:
        yield stream


def test_quick_work_shows_nothing() -> None:
    with shown() as stderr, screen.progress("encode", 10, colour=True) as bar:
        for _ in range(10):
            bar.advance(1)
    assert stderr.getvalue() == ""


@pytest.mark.parametrize("total", [2_000_000, None])
def test_slow_work_shows_description_and_bytes(
    monkeypatch: pytest.MonkeyPatch, total: int | None
) -> None:
    monkeypatch.setattr(screen, "PATIENCE", 0.0)
    with shown() as stderr, screen.progress("encode [red]x[/red]", total, colour=False) as bar:
        bar.advance(1_000_000)
    text = stderr.getvalue()
    assert "encode [red]x[/red]" in text
    assert "1.0" in text
    assert "MB" in text
    assert text.endswith("\x1b[2K") or text.rstrip().endswith("\x1b[?25h")


def test_rows_are_counted_with_a_word_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "PATIENCE", 0.0)
    with shown() as stderr, screen.progress("evaluate", None, colour=False, rows=True) as bar:
        bar.tell("lenet@2", 30, 360, "[8 %], 1.2 MB read")
    text = stderr.getvalue()
    assert "lenet@2" in text
    assert "30/360" in text
    assert "[8 %], 1.2 MB read" in text


def test_a_failure_ends_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "PATIENCE", 0.0)
    with shown() as stderr, pytest.raises(TypeError), screen.progress("x", 5, colour=True) as bar:
        bar.advance(1) + 1  # type: ignore[func-returns-value, operator]
    assert "\x1b[?25h" in stderr.getvalue()  # the cursor is back


def drawn(text: str) -> list[str]:
    """What a terminal shows in the end, of what rich writes: lines, and going up to erase them."""
    lines = [""]
    for piece in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)", text):
        if piece == "\n":
            lines.append("")
        elif piece == "\x1b[1A":
            lines.pop()
        elif piece in ("\x1b[2K", "\r"):
            lines[-1] = "" if piece == "\x1b[2K" else lines[-1]
        elif not piece.startswith("\x1b"):
            lines[-1] += piece
    return [line.rstrip() for line in lines if line.strip()]


def test_a_board_is_drawn_in_place_and_goes() -> None:
    with shown() as stderr, screen.board(colour=False) as board:
        board.show("1 of 2 done", ["trial", "loss"], [["[red]", "0.5"]])
        board.say("#2 stopped")
        board.show("2 of 2 done", ["trial", "loss"], [["#1", "0.25"], ["#2", "12.5"]])
        board.show("2 of 2 done", ["trial", "loss"], [["#1", "0.25"], ["#2", "12.5"]])
        text = stderr.getvalue()
        assert drawn(text) == [
            "#2 stopped",
            "2 of 2 done",
            "trial  loss",
            "#1     0.25",
            "#2     12.5",
        ]
        assert "[red]" in text
    assert drawn(stderr.getvalue()) == ["#2 stopped"]


def test_a_board_is_cut_to_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    with shown() as stderr, screen.board(colour=False) as board:
        board.show("x" * 50, ["trial"], [["y" * 50]])
        lines = drawn(stderr.getvalue())
    assert len(lines) == 3
    assert all(len(line) <= 20 for line in lines)


def test_a_board_goes_when_the_work_fails() -> None:
    def work(board: screen.Board) -> None:
        board.show("here", [], [])
        raise TypeError

    with shown() as stderr, pytest.raises(TypeError), screen.board(colour=True) as board:
        work(board)
    assert drawn(stderr.getvalue()) == []
    assert "\x1b[?25h" in stderr.getvalue()
