from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.network.sizes import (
    Shape,
    ShapeError,
    axis_of,
    broadcast,
    dim_of,
    elements,
    fits,
    product,
    refill,
    text,
    transposed,
    window,
)

DIMS = st.integers(1, 6)
SHAPES = st.lists(DIMS, max_size=4).map(tuple)


def slid(length: int, kernel: int, stride: int, pad: tuple[int, int], dilation: int) -> int:
    """How often a window fits, found by sliding it."""
    before, after = pad
    start, count = -before, 0
    while start + dilation * (kernel - 1) < length + after:
        count, start = count + 1, start + stride
    return count


@given(
    st.integers(1, 30),
    st.integers(1, 6),
    st.integers(1, 4),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.integers(1, 3),
)
def test_a_window_fits_as_often_as_it_can_be_slid(
    length: int, kernel: int, stride: int, pad: tuple[int, int], dilation: int
) -> None:
    wanted = slid(length, kernel, stride, pad, dilation)
    if wanted:
        assert window(length, kernel, stride, pad, dilation, False) == wanted
    else:
        with pytest.raises(ShapeError) as caught:
            window(length, kernel, stride, pad, dilation, False)
        assert str(length + sum(pad)) in caught.value.seen


@given(st.integers(1, 30), st.integers(1, 6), st.integers(1, 4), st.integers(0, 2))
def test_rounding_up_adds_a_window_that_begins_before_the_end(
    length: int, kernel: int, stride: int, pad: int
) -> None:
    full = slid(length, kernel, stride, (pad, pad), 1)
    if not full or pad >= kernel:
        return
    covered = (full - 1) * stride + kernel
    more = covered < length + 2 * pad and full * stride < length + pad
    assert window(length, kernel, stride, (pad, pad), 1, True) == full + more


def test_the_window_rounded_up_is_dropped_if_it_would_start_in_the_padding() -> None:
    assert window(5, 2, 2, (0, 0), 1, True) == 3
    assert window(5, 2, 2, (0, 0), 1, False) == 2
    # Begins at 6 = 5 + 1 before: in the padding behind the input.
    assert window(5, 2, 3, (1, 1), 1, True) == 2
    assert window(2, 3, 2, (0, 0), 1, True) == 1


@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 2),
    st.integers(0, 1),
)
def test_a_transposed_convolution_undoes_a_convolution(
    length: int, kernel: int, stride: int, pad: int, dilation: int, extra: int
) -> None:
    if extra >= max(stride, dilation):
        return
    try:
        grown = transposed(length, kernel, stride, (pad, pad), dilation, extra)
    except ShapeError:
        assert (length - 1) * stride + dilation * (kernel - 1) + 1 + extra <= 2 * pad
        return
    assert isinstance(grown, int)
    if extra < stride:
        assert slid(grown, kernel, stride, (pad, pad), dilation) == length


def test_a_symbol_passes_where_the_length_stays() -> None:
    assert window("W", 3, 1, (1, 1), 1, False) == "W"
    assert window("W", 5, 1, (4, 0), 1, False) == "W"
    assert window("W", 3, 2, (1, 1), 1, False) is None
    assert transposed("W", 3, 1, (1, 1), 1, 0) == "W"
    assert transposed("W", 2, 2, (0, 0), 1, 0) is None


@given(st.lists(SHAPES, min_size=1, max_size=3))
def test_broadcast_follows_the_rule_of_equal_or_one(shapes: list[Shape]) -> None:
    rank = max(map(len, shapes))
    columns = list(zip(*[(1,) * (rank - len(s)) + s for s in shapes], strict=True))
    legal = all(len({dim for dim in column if dim != 1}) <= 1 for column in columns)
    if legal:
        # A set that holds a 1 has its other element, if any, as the largest.
        wanted = tuple(sorted(column, key=lambda dim: dim or 0)[-1] for column in columns)
        assert broadcast(shapes) == wanted
    else:
        with pytest.raises(ShapeError):
            broadcast(shapes)


def test_broadcast_of_symbols_and_unknowns() -> None:
    assert broadcast([("B", 1), (1, 5)]) == ("B", 5)
    assert broadcast([("B", 3), (None, 3)]) == (None, 3)
    assert broadcast([("B",), (7,)]) == (7,)
    assert broadcast([("B", "T"), ("B", "T")]) == ("B", "T")


@given(SHAPES, SHAPES, st.integers(0, 4))
def test_view_keeps_the_elements(shape: Shape, size: Shape, hole: int) -> None:
    have, want = elements(shape), elements(size)
    assert have is not None
    assert want is not None
    if have == want:
        assert refill(shape, size) == size
    else:
        with pytest.raises(ShapeError):
            refill(shape, size)
    with_hole = (*size[:hole], -1, *size[hole:])
    if have % want == 0:
        filled = refill(shape, with_hole)
        assert elements(filled) == have
        assert len(filled) == len(size) + 1
    else:
        with pytest.raises(ShapeError):
            refill(shape, with_hole)


@pytest.mark.parametrize(
    ("shape", "size", "wanted"),
    [
        (("B", 16, 5, 5), (-1, 400), ("B", 400)),
        (("B", 16, 5, 5), ("B", -1), ("B", 400)),
        (("B", "T", 64), ("B", "T", 4, 16), ("B", "T", 4, 16)),
        (("B", "T", 64), ("B", -1, 4, 16), ("B", "T", 4, 16)),
        (("B", "T", 64), (-1, 64), (None, 64)),
        (("B", 6), (-1, 4), (None, 4)),
        ((None, 6), (-1, 6), (None, 6)),
        (("B", 6), (None, 6), ("B", 6)),
        (("B", 6), (2, 3), (2, 3)),
    ],
)
def test_view_with_symbols(shape: Shape, size: Shape, wanted: Shape) -> None:
    assert refill(shape, size) == wanted


def test_view_that_cannot_be() -> None:
    for shape, size in ((("B", 6), ("B", 7)), ((4,), (-1, -1)), ((4,), (0, -1))):
        with pytest.raises(ShapeError):
            refill(shape, size)


def test_axes_fits_and_text() -> None:
    assert [axis_of(axis, 3, "axis") for axis in (-3, -1, 0, 2)] == [0, 2, 0, 2]
    for axis, rank in itertools.product((3, -4), (3,)):
        with pytest.raises(ShapeError):
            axis_of(axis, rank, "axis")
    assert fits((1, "B", 3), (1, 5, 3))
    assert not fits((1, 2), (1, 3))
    assert not fits((1, 2), (1, 2, 1))
    assert fits(None, (1,))
    assert text(("B", None, 3)) == "B×?×3"
    assert text(()) == "scalar"
    assert text(None) == "?"
    assert elements(("B", 2)) is None
    assert dim_of(product(("B", 0))) == 0
    assert dim_of(product(("B", 2))) is None
    assert dim_of(product(("B", 1))) == "B"
