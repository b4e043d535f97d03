"""Indices of slices, held against numpy's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlv.errors import UsageError
from dlv.weights.reading.reader import Selection

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@st.composite
def indexed(draw: st.DrawFn) -> tuple[tuple[int, ...], Any]:
    shape = draw(SHAPES)
    index: list[Any] = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        whole = st.slices(size) | st.just(slice(None, None, -1))
        index.append(draw(whole | st.integers(-size, size - 1) if size else whole))
    if draw(st.booleans()):
        index.insert(draw(st.integers(0, len(index))), ...)
        if index[-1] is not ...:
            # What stands behind the dots is for the last axes.
            behind = len(index) - index.index(...) - 1
            for at, size in zip(range(1, behind + 1), reversed(shape), strict=False):
                one = index[-at]
                if isinstance(one, int) and not -size <= one < size:
                    index[-at] = slice(None)
    return shape, tuple(index) if len(index) != 1 or draw(st.booleans()) else index[0]


@given(indexed())
@example(((2,), (slice(None, None, 1 << 63),)))
@example(((2, 3), (slice(1, None, -(1 << 70)), 0)))
def test_what_numpy_chooses(case: tuple[tuple[int, ...], Any]) -> None:
    shape, index = case
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    expected = numbers[index]
    found = Selection.of(shape, index, "w")
    assert found.count == expected.size
    places = found.places(0, found.count)
    assert sorted(expected.ravel()) == places.tolist() == sorted(places)
    assert [found.place(i) for i in range(found.count)] == places.tolist()
    shaped = found.shaped(places.copy())
    assert shaped.shape == expected.shape
    assert (shaped == expected).all()
    for place in range(int(np.prod(shape)) + 1):
        assert found.before(place) == (places < place).sum()


@pytest.mark.parametrize(
    ("index", "why"),
    [
        (4, "index 4 on axis 0, which has 4"),
        ((0, -6), "index -6 on axis 1, which has 5"),
        ((0, 0, 0), "3 indices for 2 axes"),
        ((..., 0, ...), "can be used only once"),
        (None, "None is none of"),
        (True, "True is none of"),
        ([1, 2], "of type list"),
        (np.array([1, 2]), "of type ndarray"),
        (1.0, "of type float"),
        (slice(0, 4, 0), "zero"),
        (slice("a", None), "slice indices"),
    ],
)
def test_refused(index: Any, why: str) -> None:
    with pytest.raises(UsageError, match="cannot be indexed like this") as caught:
        Selection.of((4, 5), index, "w")
    assert why in str(caught.value.why)
