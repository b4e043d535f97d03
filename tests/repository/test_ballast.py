"""A file of nothing: kept where there is room, given up where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dlv.repository.ballast as ballast
from dlv.repository.handle import Repository


def free(size: int) -> Callable[..., int]:
    return lambda _: size


def test_kept_after_a_commit(lived: Repository) -> None:
    assert ballast.path_of(lived).stat().st_size == ballast.SMALL


def test_put_aside_only_where_there_is_room(
    lived: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    ballast.path_of(lived).unlink()
    monkeypatch.setattr(ballast, "_free", free(ballast.SMALL * ballast.ROOM - 1))
    ballast.keep(lived)
    assert not ballast.path_of(lived).exists()
    monkeypatch.setattr(ballast, "_free", free(ballast.SMALL * ballast.ROOM))
    ballast.keep(lived)
    assert ballast.path_of(lived).exists()


def test_given_up_only_where_it_is_needed(
    lived: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not ballast.give_up(lived)
    monkeypatch.setattr(ballast, "_free", free(1 << 20))
    assert ballast.give_up(lived)
    assert not ballast.path_of(lived).exists()
    assert not ballast.give_up(lived)


def test_nothing_fails_for_its_sake(lived: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    ballast.path_of(lived).unlink()

    def refused(*_: Any) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(ballast, "_fill", refused)
    ballast.keep(lived)
    monkeypatch.setattr(ballast, "_free", refused)
    ballast.keep(lived)
    assert not ballast.give_up(lived)
