"""`dlv help`: of a command, of a topic, of nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dlv.commands.shared.topics import TOPICS

Dlv = Callable[..., Any]


@pytest.mark.parametrize("topic", [*TOPICS, "options"])
def test_topics(dlv: Dlv, snapshot: Dlv, topic: str) -> None:
    snapshot(dlv("help", topic), topic)


def test_a_command_says_what_its_option_says(dlv: Dlv) -> None:
    assert dlv("help", "commit").stdout == dlv("commit", "--help").stdout
    assert dlv("help").stdout == dlv("--help").stdout


@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_a_typo(dlv: Dlv, snapshot: Dlv, mode: str) -> None:
    result = dlv("help", "comit", json=mode == "json")
    snapshot(result)
    assert result.code == 2


def test_as_json(dlv: Dlv) -> None:
    document = dlv("help", "references", json=True).document
    assert document["topic"] == "references"
    assert document["text"].splitlines()[0]
