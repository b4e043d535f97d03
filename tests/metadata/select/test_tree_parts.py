"""Parts of trees are to each other what frozen dataclasses are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dlv.metadata.select.tree_parts import part

Decorator = Callable[[type], type]
NAN = float("nan")


def classes(decorate: Decorator) -> tuple[Any, Any, Any]:
    class Placed:
        at: int = field(compare=False, kw_only=True, default=0)

    placed = decorate(Placed)

    class Pair(placed):  # type: ignore[misc, valid-type]
        left: Any
        right: Any = None

    class One(placed):  # type: ignore[misc, valid-type]
        value: Any

    return placed, decorate(Pair), decorate(One)


def some(decorate: Decorator) -> list[Any]:
    placed, pair, one = classes(decorate)
    values = [0, 1, True, 1.0, "a", None, NAN, (1, 2)]
    made = [placed(), placed(at=1), *(one(each) for each in values), one(1, at=7)]
    made += [pair(*each) for each in itertools.product(values[:4], values[4:])]
    return [
        *made,
        pair(1),
        pair(right=1, left=2, at=3),
        *map(replace, made),
        replace(made[-1], at=9),
    ]


def test_they_are_equal_and_told_as_frozen_dataclasses_are() -> None:
    ours, theirs = some(part(frozen=True)), some(dataclass(frozen=True))
    assert list(map(repr, ours)) == list(map(repr, theirs))
    assert [[one == other for other in ours] for one in ours] == [
        [one == other for other in theirs] for one in theirs
    ]
    assert list(map(hash, ours)) == list(map(hash, theirs))
    assert [[each.name for each in fields(one)] for one in ours] == [
        [each.name for each in fields(one)] for one in theirs
    ]


def test_they_are_matched_by_place() -> None:
    _, pair, _ = classes(part(frozen=True))
    match pair(1, right=2, at=3):
        case pair(left, right):
            assert (left, right) == (1, 2)
        case _:
            raise AssertionError("it is one")
    assert pair(1) != (1, None)
