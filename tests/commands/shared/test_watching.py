"""What trials show while they run: board, lines, JSON objects, nothing."""

from __future__ import annotations

import io
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dlv.commands.shared.asking as asking
from dlv.commands.shared.invocation import Invocation
from dlv.training.ledger.progress import News
from tests.views.test_trials import PROGRESS

FIRST = replace(PROGRESS, news=[News("note", "w1 \x1b is gone", {})])
SECOND = replace(PROGRESS, news=[News("trial", "#7 done", {"metrics": {"loss": math.nan}})])


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> Any:
    """shown(tty=False, each=60.0, **options) -> (stdout, stderr) of two looks at a run."""

    def show(*, tty: bool = False, each: float = 60.0, **options: bool) -> tuple[str, str]:
        monkeypatch.setattr(asking, "EACH", each)
        with monkeypatch.context() as patch:
            streams = Stream(tty), Stream(tty)
            for name, stream in zip(("stdout", "stderr"), streams, strict=True):
                patch.setattr(sys, name, stream)
            call = Invocation(options, {"COLUMNS": "80", "TERM": "xterm"})
            with asking.watching(call) as progress:
                progress(FIRST)
                progress(SECOND)
            return streams[0].getvalue(), streams[1].getvalue()

    return show


def test_in_a_pipe_a_line_for_each_event(shown: Any) -> None:
    assert shown() == ("", "w1 \\x1b is gone\n#7 done\n")


def test_and_one_from_time_to_time(shown: Any) -> None:
    _, stderr = shown(each=0.0)
    lines = stderr.splitlines()
    assert [line[:7] for line in lines] == ["w1 \\x1b", "72 tria", "#7 done", "72 tria"]


def test_json_objects_one_a_line(shown: Any) -> None:
    stdout, stderr = shown(json=True, each=0.0)
    assert stdout == ""
    events = [json.loads(line, parse_constant=pytest.fail) for line in stderr.splitlines()]
    assert [event["event"] for event in events] == ["note", "progress", "trial", "progress"]
    assert events[2]["metrics"] == {"loss": "NaN"}


def test_on_a_terminal_a_board(shown: Any) -> None:
    stdout, stderr = shown(tty=True)
    assert stdout == ""
    assert "w1 \\x1b is gone" in stderr
    assert "#7     lenet@2  base_lr=0.1" in stderr
    assert "\x1b[?25h" in stderr


def test_quiet_is_quiet(shown: Any) -> None:
    assert shown(quiet=True, each=0.0) == ("", "")
    assert shown(quiet=True, each=0.0, tty=True) == ("", "")
