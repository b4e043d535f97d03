"""The progress bar: nothing for quick work, gone when slow work is done."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

import pytest

import dlv.screen as screen


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
    with (
        shown() as stderr,
        pytest.raises(TypeError),
        screen.progress("x", 5, colour=True) as bar,
    ):
        bar.advance(1) + 1  # type: ignore[func-returns-value, operator]
    assert "\x1b[?25h" in stderr.getvalue()  # the cursor is back
