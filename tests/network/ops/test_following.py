"""Which axes of a view are made of which, against products; and sizes that follow."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.network.graph import Node
from dlv.network.ops.op import op_of
from dlv.network.sizes import Shape, grouping


def _followed(node: Node, old: Shape, new: Shape) -> dict[str, Any]:
    return op_of(node).following(node, old, new)


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same factors, joined in two ways."""
    factors = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))

    def joined() -> tuple[int, ...]:
        result = [factors[0]]
        for factor in factors[1:]:
            if draw(st.booleans()):
                result[-1] *= factor
            else:
                result.append(factor)
        return tuple(result)

    return joined(), joined()


@settings(max_examples=300, deadline=None)
@given(_pairs())
def test_groups_hold_the_same_elements(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    old, new = pair
    groups = grouping(old, new)
    assert groups is not None
    assert [i for ours, _ in groups for i in ours] == list(range(len(old)))
    assert [j for _, theirs in groups for j in theirs] == list(range(len(new)))
    for ours, theirs in groups:
        assert prod(old[i] for i in ours) == prod(new[j] for j in theirs)
    # Of what lies in one group of the old axes nothing moves to another one.
    for ours, theirs in groups:
        if not ours:
            continue
        index = np.indices(old)[list(ours)]
        flat = np.ravel_multi_index(tuple(index), [old[i] for i in ours]).reshape(new)
        rest = [axis for axis in range(len(new)) if axis not in theirs]
        moved = np.moveaxis(flat, rest, range(len(rest))).reshape(prod(new[r] for r in rest), -1)
        assert (moved == moved[0]).all()


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        (("B", 50, 4, 4), ("B", 800), [((0,), (0,)), ((1, 2, 3), (1,))]),
        (("B", 10, 64), ("B", 10, 4, 16), [((0,), (0,)), ((1,), (1,)), ((2,), (2, 3))]),
        ((2, 3), (3, 2), [((0, 1), (0, 1))]),
        (("B", 5, 1, 1), ("B", 5), [((0,), (0,)), ((1,), (1,)), ((2,), ()), ((3,), ())]),
        (("B", None), ("B", 5), None),
        ((2, 3), (4, 2), None),
    ],
)
def test_examples(old: Any, new: Any, wanted: Any) -> None:
    assert grouping(old, new) == wanted


def _view(*size: Any) -> Node:
    return Node("v", "RESHAPE", None, {"kind": "view", "size": size})


@pytest.mark.parametrize(
    ("size", "old", "new", "wanted"),
    [
        (("B", 800), ("B", 50, 4, 4), ("B", 60, 4, 4), ("B", 960)),
        ((2, 800), (2, 50, 4, 4), (2, 60, 4, 4), (2, 960)),
        (("B", -1), ("B", 50, 4, 4), ("B", 60, 4, 4), ("B", -1)),
        (("B", 10, 4, 16), ("B", 10, 64), ("B", 10, 128), ("B", 10, 4, 32)),
        (("B", -1, 4, 16), ("B", 10, 64), ("B", 10, 128), ("B", -1, 4, 32)),
        (("B", 10, 64), ("B", 10, 4, 16), ("B", 10, 4, 32), ("B", 10, 128)),
        # The number of heads times the batch is known only when it runs.
        ((10, None, 16), (10, "B", 64), (10, "B", 128), (10, None, 32)),
        ((10, None, 64), (10, "B", 4, 16), (10, "B", 4, 32), (10, None, 128)),
        (("B", 4, 10, 16), (None, 10, 16), (None, 10, 32), ("B", 4, 10, 32)),
    ],
)
def test_sizes_that_follow(size: Any, old: Any, new: Any, wanted: Any) -> None:
    assert _followed(_view(*size), old, new) == {"size": wanted}


@pytest.mark.parametrize(
    ("size", "old", "new"),
    [
        (("B", 10, 4, 16), ("B", 10, 64), ("B", 10, 66)),
        ((3, 2), (2, 3), (2, 5)),
        (("B", 10, 64), ("B", 10, 64), ("B", 64)),
        ((None, None), ("B", 4), ("B", 8)),
    ],
)
def test_sizes_that_cannot(size: Any, old: Any, new: Any) -> None:
    found = _followed(_view(*size), old, new)
    assert found.get("size", size) == size
