"""Normal forms of layers, and how the elements of their tensors correspond."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import prod
from typing import Any

import numpy as np
import pytest

from dlv.network.graph import Network
from dlv.network.likeness.equality import Normal, turned
from dlv.network.ops.axes import Axes, Part


def _axes(*axes: str) -> Axes:
    """`c4*s2` is an axis of four c times two s."""
    return tuple(tuple(Part(word[0], int(word[1:])) for word in axis.split("*")) for axis in axes)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_turned_back(order: tuple[int, ...]) -> None:
    """Elements that are labelled by their coordinates come into the other's order."""
    parts = [("a", 2), ("b", 3), ("c", 4), ("d", 5)]
    names = [f"{key}{size}" for key, size in parts]
    old = _axes(names[0], f"{names[1]}*{names[2]}", names[3])
    new = _axes(f"{names[order[0]]}*{names[order[1]]}", names[order[2]], names[order[3]])
    values = np.arange(prod(size for _, size in parts)).reshape([size for _, size in parts])
    stored = values.transpose(order)
    found = turned(old, new)
    if order == (0, 1, 2, 3):
        assert found is None
        return
    assert found is not None
    factors, places = found
    assert (stored.reshape(factors).transpose(places) == values).all()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("a2", "b3"), ("a2*b3",)),
        (("a2", "u1", "b3"), ("a2", "b3")),
        (("a2", "b3"), ("b3", "a4")),
        (("a2", "b3"), ("b3", "c2")),
        (("a2", "a2"), ("a2", "a2")),
        (("a2", "a2", "b3"), ("b3", "a2", "a2")),
    ],
)
def test_alike_or_not_to_be_told(old: tuple[str, ...], new: tuple[str, ...]) -> None:
    assert turned(_axes(*old), _axes(*new)) is None


def test_symbols_cannot_be_turned() -> None:
    old, new = ((Part("b", "B"),), (Part("c", 3),)), ((Part("c", 3),), (Part("b", "B"),))
    assert turned(old, new) is None


def test_every_layer_has_the_kind_that_it_has(load: Callable[[str], Network], named: str) -> None:
    one, other = Normal(load(named)), Normal(load(named))
    for node in one.network.nodes:
        assert one.kind(node) == other.kind(node)
        assert one.same_shape(node, other, node)
    numbers: dict[Any, int] = {}
    assert one.hashes(numbers) == other.hashes(numbers)
