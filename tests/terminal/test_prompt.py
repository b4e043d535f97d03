"""The prompt: what is run, what is asked of the prompt itself, how it ends."""

from __future__ import annotations

import builtins
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dlv.dql.words.parser as parser
import dlv.terminal.prompt as prompt


def ready(text: str) -> bool:
    return prompt.ready(text, parser.unfinished)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("select m", True),
        ("select m where", False),
        ("select m where\n", True),  # an empty line: run it, and see what is missing
        ("select m where;", True),
        ("select m wehre m.lr", True),  # more lines would not help
        ("exit", True),
        ("?", True),
        ('select m where m.name = "a', True),
    ],
)
def test_when_a_text_is_run(text: str, expected: bool) -> None:
    assert ready(text) is expected


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[str], list[str], list[str]]]:
    """typed(*lines) -> (queries, what was said, prompts); an exception among lines is raised."""

    def run(*lines: Any) -> tuple[list[str], list[str], list[str]]:
        given: Iterator[Any] = iter([*lines, EOFError()])
        prompts: list[str] = []

        def read(text: str = "") -> str:
            prompts.append(text)
            line = next(given)
            if isinstance(line, BaseException):
                raise line
            return str(line)

        monkeypatch.setattr(builtins, "input", read)
        monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
        said: list[str] = []
        typing = prompt.Typing(ready, lambda _: (), said.append)
        return list(prompt.texts(Path("unused"), typing)), said, prompts

    return run


def test_plain_lines(typed: Callable[..., Any]) -> None:
    queries, said, prompts = typed("select m", "", "slice s from m", "mutate s.input;", "exit", "x")
    assert queries == ["select m", "slice s from m\nmutate s.input;"]
    assert prompts == ["dlv> ", "dlv> ", "dlv> ", "...> ", "dlv> "]
    assert said == ["no completion and no history: pip install 'dlv[prompt]'"]


def test_help_and_interruption(typed: Callable[..., Any]) -> None:
    queries, said, _ = typed("help", KeyboardInterrupt(), "Quit;")
    assert queries == []
    assert said[1].startswith("A query ends with ;")


def test_the_history_is_for_its_owner_alone(tmp_path: Path) -> None:
    history = tmp_path / "state" / "dlv" / "query-history"
    assert prompt._own(history)
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    history.chmod(0o644)
    assert prompt._own(history)
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    link = tmp_path / "link"
    link.symlink_to(elsewhere)
    assert not prompt._own(link)


class TestComfort:
    """With prompt_toolkit, its terminal played by a pipe."""

    @pytest.fixture
    def type_keys(self, tmp_path: Path) -> Callable[..., list[str]]:
        pytest.importorskip("prompt_toolkit")
        from prompt_toolkit.application import create_app_session
        from prompt_toolkit.input import create_pipe_input
        from prompt_toolkit.output import DummyOutput

        def complete(text: str) -> list[tuple[str, int, str]]:
            return [("select", len(text), "keyword")] if "select".startswith(text) else []

        def run(keys: str, later: str = "") -> list[str]:
            typing = prompt.Typing(ready, complete, lambda _: None)
            with create_pipe_input() as given:
                given.send_text(keys)
                if later:
                    threading.Timer(0.5, given.send_text, [later]).start()
                with create_app_session(input=given, output=DummyOutput()):
                    return list(prompt.texts(tmp_path / "history", typing))

        return run

    def test_lines_and_leaving(self, type_keys: Callable[..., list[str]]) -> None:
        assert type_keys("select m\r\x04") == ["select m"]
        assert type_keys("slice s from m\rmutate s.input = m;\r\x04") == [
            "slice s from m\nmutate s.input = m;"
        ]

    def test_ctrl_c_drops_what_is_typed(self, type_keys: Callable[..., list[str]]) -> None:
        assert type_keys("select x\x03select m\rexit\r") == ["select m"]

    def test_tab_completes(self, type_keys: Callable[..., list[str]]) -> None:
        assert type_keys("sel\t", " m\r\x04") == ["select m"]

    def test_what_was_run_comes_back(
        self, type_keys: Callable[..., list[str]], tmp_path: Path
    ) -> None:
        type_keys("select m\r\x04")
        assert "select m" in (tmp_path / "history").read_text()
        assert type_keys("\x1b[A\r\x04") == ["select m"]
