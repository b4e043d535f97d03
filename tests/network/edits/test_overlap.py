"""Which entries are which: against the same worked out entry by entry."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.network.edits.axes import Run, overlap
from dlv.network.ops.axes import Axis, Part, axis_length


def _labels(axis: Axis) -> list[Any]:
    """What each entry of an axis is, in the order in which they lie."""
    factors = []
    for part in axis:
        if part.pieces:
            factors.append([(tag, each) for tag, own in part.pieces for each in _labels(own)])
        else:
            size = part.length
            assert isinstance(size, int)
            factors.append([(part.key, i) for i in range(size)])
    return list(product(*factors))


def _pairs(runs: tuple[Run, ...] | None) -> list[tuple[int, int]]:
    return [(run.new + i, run.old + i) for run in runs or () for i in range(run.size)]


def _expected(old: Axis, new: Axis) -> list[tuple[int, int]]:
    place = {label: i for i, label in enumerate(_labels(old))}
    return [(i, place[label]) for i, label in enumerate(_labels(new)) if label in place]


sizes = st.integers(1, 4)


@st.composite
def _axis_pairs(draw: st.DrawFn) -> tuple[Axis, Axis]:
    """Up to three factors; fixed ones of one length, stretches of joined ones come and go."""
    old: list[Part] = []
    new: list[Part] = []
    for key in draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True)):
        kind = draw(st.sampled_from(["plain", "fixed", "joined"]))
        if kind == "fixed":
            part = Part(key, draw(sizes), True)
            pair = part, part
        elif kind == "plain":
            pair = Part(key, draw(sizes)), Part(key, draw(sizes))
        else:
            tags = draw(st.lists(st.sampled_from("pqrs"), min_size=1, max_size=3, unique=True))
            further = draw(st.permutations([*tags[: draw(st.integers(1, 3))], "t"]))
            pieces = [
                tuple((tag, (Part("z", draw(sizes)),)) for tag in names)
                for names in (tags, further)
            ]
            totals = [sum(axis_length(axis) or 0 for _, axis in own) for own in pieces]  # type: ignore[misc]
            pair = Part(key, totals[0], pieces=pieces[0]), Part(key, totals[1], pieces=pieces[1])
        old.append(pair[0])
        new.append(pair[1])
    return tuple(old), tuple(new)


@settings(max_examples=400, deadline=None)
@given(_axis_pairs())
def test_against_labels(pair: tuple[Axis, Axis]) -> None:
    runs = overlap(*pair)
    assert runs is not None
    assert _pairs(runs) == _expected(*pair)
    assert all(run.size > 0 for run in runs)
    for a, b in pairwise(runs):
        assert (a.new + a.size, a.old + a.size) != (b.new, b.old)


def test_leading_entries() -> None:
    assert overlap((Part("c", 32),), (Part("c", 48),)) == (Run(0, 0, 32),)
    assert overlap((Part("c", 48),), (Part("c", 32),)) == (Run(0, 0, 32),)
    assert overlap((Part("c", 8),), (Part("c", 8),)) == (Run(0, 0, 8),)


def test_a_flattened_map_by_channels() -> None:
    def first(channels: int, side: int = 2) -> Axis:
        return (Part("c", channels), Part("s0", side, True), Part("s1", side, True))

    def last(channels: int, side: int = 2) -> Axis:
        return (Part("s0", side, True), Part("s1", side, True), Part("c", channels))

    assert overlap(first(3), first(5)) == (Run(0, 0, 12),)
    assert overlap(last(3), last(5)) == tuple(Run(5 * i, 3 * i, 3) for i in range(4))
    assert overlap(first(4, 2), first(16, 1)) is None
    assert overlap(last(4, 2), last(4, 3)) is None
    assert overlap(first(3), last(3)) is None


def test_factors_of_one() -> None:
    """A map of one place is its channels, flattened or not."""
    one = (Part("c", 3), Part("s0", 1, True), Part("s1", 1, True))
    assert overlap(one, (Part("c", 5),)) == (Run(0, 0, 3),)
    assert overlap((Part("s0", 1, True), Part("s1", 1, True), Part("c", 5)), one) == (Run(0, 0, 3),)


def test_gates() -> None:
    old, new = ((Part("gate", 4, True), Part("c", n)) for n in (3, 5))
    assert overlap(old, new) == tuple(Run(5 * i, 3 * i, 3) for i in range(4))
    assert overlap(
        (Part("gate", 4, True), Part("c", 3)), (Part("gate", 3, True), Part("c", 3))
    ) is (None)


def test_stretches_that_were_all_renamed() -> None:
    def joined(a: str, b: str, sizes: tuple[int, int]) -> Axis:
        pieces = ((a, (Part("c", sizes[0]),)), (b, (Part("c", sizes[1]),)))
        return (Part("c", sum(sizes), pieces=pieces),)

    assert overlap(joined("a", "b", (2, 3)), joined("x", "y", (4, 3))) == (
        *(Run(0, 0, 2), Run(4, 2, 3)),
    )


@pytest.mark.parametrize("size", ["B", None])
def test_lengths_that_are_no_numbers(size: Any) -> None:
    assert overlap((Part("b", size),), (Part("b", 3),)) is None
    assert overlap((Part("b", size),), (Part("b", size),)) == (Run(0, 0, 1),)


def test_nothing_known() -> None:
    assert overlap((Part("a", 2), Part("b", 3)), (Part("b", 3), Part("a", 2))) is None
    assert overlap((Part("a", 3), Part("b", 3)), (Part("b", 3), Part("a", 3))) is None
    assert overlap((Part("a", 2), Part("b", 3)), (Part("c", 2), Part("d", 3))) == (Run(0, 0, 6),)
    assert overlap((Part("a", 2), Part("b", 3)), (Part("c", 6, True),)) == (Run(0, 0, 6),)
    assert overlap((Part("a", 2), Part("b", 3)), (Part("a", 6),)) is None
    assert overlap((Part("a", 2), Part("b", 3)), (Part("c", 5),)) is None
    assert overlap((Part("a", 6),), (Part("b", 4),)) == (Run(0, 0, 4),)
    assert overlap((Part("a", 6, True),), (Part("b", 4),)) is None
