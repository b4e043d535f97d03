"""Bounds on errors through what moves numbers: real errors, moved, stay within them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.network.bounds.ball import F64, Ball, constant, point
from dlv.network.bounds.grains import (
    blocks,
    grids,
    level,
    most,
    norm,
    reshaped,
    settled,
    slip,
    spread,
)
from tests.network.ops.oracle import bounded, node_of
from tests.network.ops.test_forward import move

Array = NDArray[Any]
MORE = 1 + 1e-12


def around(error: Array, *, tokens: bool, box: bool) -> Ball:
    """A ball whose radii are exactly those of an error."""
    rank = error.ndim
    rows = np.sqrt((error * error).sum(axis=tuple(range(1, rank))))
    each = np.sqrt((error * error).sum(axis=-1)) if tokens and rank > 2 else None
    return Ball(np.zeros(error.shape), rows, np.abs(error) if box and rank > 1 else None, each)


def holds(ball: Ball, error: Array) -> bool:
    axes = tuple(range(1, error.ndim))
    inside = (np.sqrt((error * error).sum(axis=axes)) <= ball.radius * MORE).all()
    if ball.tokens is not None:
        inside &= (np.sqrt((error * error).sum(axis=-1)) <= ball.tokens * MORE).all()
    if ball.box is not None:
        inside &= (np.abs(error) <= ball.box * MORE).all()
    for grid in ball.groups:
        axes = tuple(axis for axis in range(error.ndim) if grid.shape[axis] == 1)
        inside &= (np.sqrt((error * error).sum(axis=axes, keepdims=True)) <= grid * MORE).all()
    return bool(inside)


@given(st.data())
@settings(max_examples=500, deadline=None)
def test_errors_stay_in_the_balls_of_moved_numbers(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    node, extra = move(data, shape)
    if node.attrs["kind"] == "to":
        return
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    # Sizes that differ by place, so that nothing holds by chance.
    error = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 3, size=shape)
    ball = around(error, tokens=data.draw(st.booleans()), box=data.draw(st.booleans()))
    more = [constant(each) for each in extra]
    found = bounded(node, [ball, *more], F64, B=shape[0])
    exact = [point(error), *more]
    for made, moved in zip(found, bounded(node, exact, F64, B=shape[0]), strict=True):
        wanted = moved.centre
        assert made.centre.shape == wanted.shape
        assert made.radius.shape == (wanted.shape[:1] or (1,))
        assert made.tokens is None or made.tokens.shape == wanted.shape[:-1]
        assert made.box is None or made.box.shape == wanted.shape
        if wanted.ndim:
            assert holds(made, wanted)
        else:
            assert abs(wanted) <= made.radius[0] * MORE
        # Where every number's bound was known, it still is.
        if ball.box is not None and made.box is not None:
            np.testing.assert_allclose(made.box, np.abs(wanted), rtol=1e-6)


def test_tokens_survive_heads_and_turned_axes() -> None:
    """What an encoder does to a sequence: nothing of the radius of a token is lost."""
    error = np.random.default_rng(0).normal(size=(3, 5, 8)) * np.arange(1, 6).reshape(1, 5, 1)
    ball = around(error, tokens=True, box=False)
    steps = [
        (node_of("RESHAPE", kind="transpose", axes=[0, 1]), (5, 3, 8)),
        (node_of("RESHAPE", kind="view", size=[5, 3, 1, 8]), (5, 3, 1, 8)),
        (node_of("RESHAPE", kind="reshape", size=[15, 8]), (15, 8)),
        (node_of("RESHAPE", kind="view", size=[5, 3, 8]), (5, 3, 8)),
        (node_of("RESHAPE", kind="permute", axes=[1, 0, 2]), (3, 5, 8)),
    ]
    now = ball
    for node, shape in steps:
        [now] = bounded(node, [now], F64)
        assert now.centre.shape == shape
    assert ball.tokens is not None
    assert now.tokens is not None
    np.testing.assert_allclose(now.tokens, ball.tokens, rtol=1e-6)
    np.testing.assert_allclose(now.radius, ball.radius, rtol=1e-6)
    [heads] = bounded(node_of("RESHAPE", kind="view", size=[3, 5, 2, 4]), [ball], F64)
    [turned] = bounded(node_of("RESHAPE", kind="transpose", axes=[1, 2]), [heads], F64)
    assert turned.tokens is not None
    np.testing.assert_allclose(turned.tokens[:, 1], ball.tokens, rtol=1e-6)
    # What bounds all heads of a token together is kept, and is all there is of the joined ones.
    assert [grid.shape for grid in turned.groups] == [(3, 1, 5, 1)]
    [back] = bounded(node_of("RESHAPE", kind="transpose", axes=[1, 2]), [turned], F64)
    [joined] = bounded(node_of("RESHAPE", kind="view", size=[3, 5, 8]), [back], F64)
    assert joined.tokens is not None
    np.testing.assert_allclose(joined.tokens, ball.tokens, rtol=1e-6)
    [first] = bounded(node_of("RESHAPE", kind="select", axis=1, index=0), [ball], F64)
    np.testing.assert_allclose(first.radius, ball.tokens[:, 0], rtol=1e-6)


SHAPES = st.lists(st.integers(1, 4), max_size=4).map(tuple)


@given(SHAPES, st.randoms(use_true_random=False))
@example((), None)
def test_blocks_are_runs_of_equal_products(old: tuple[int, ...], rng: Any) -> None:
    parts = [2] * 0
    for length in old:
        parts += [2, 2] if length == 4 else [length]
    if rng is not None:
        rng.shuffle(parts)
    for new in (tuple(parts), (int(np.prod(old, dtype=int)),), (1, *old, 1), old):
        found = blocks(old, new)
        assert sum(count for count, _ in found) == len(old)
        assert [length for _, dims in found for length in dims] == list(new)
        at = 0
        for count, dims in found:
            assert np.prod(old[at : at + count], dtype=int) == np.prod(dims, dtype=int)
            at += count
        if new == old:
            assert [count for count, _ in found] == [1] * len(old)


def test_norms_of_groups_are_rounded_up() -> None:
    x = np.random.default_rng(0).normal(size=(4, 5, 6))
    for lead, axes in ((0, (0, 1, 2)), (1, (1, 2)), (2, (2,))):
        wanted = np.sqrt((x.astype(np.longdouble) ** 2).sum(axis=axes, keepdims=True))
        found = norm(x, lead)
        assert (found >= wanted).all()
        assert (found <= wanted * (1 + 1e-8)).all()
        np.testing.assert_array_equal(most(x, lead), np.abs(x).max(axis=axes, keepdims=True))
    np.testing.assert_array_equal(norm(x, 3), np.abs(x))
    assert norm(np.full((1, 3), 1e-200), 1)[0, 0] >= 1e-200


def test_levels_take_the_least_that_is_known() -> None:
    ball = Ball(np.zeros((2, 3, 2)), np.array([2.0, 9.0]), None, np.full((2, 3), 1.5))
    found = level(grids(ball), (2, 3, 2), 1).reshape(-1)
    np.testing.assert_allclose(found, [2.0, 1.5 * 3**0.5])
    found = level(grids(ball), (2, 3, 2), 2)[..., 0]
    np.testing.assert_allclose(found, np.full((2, 3), 1.5))
    # What is not a number stays none, wherever it is.
    hidden = Ball(ball.centre, np.array([np.nan, 1.0]), None, ball.tokens)
    assert np.isnan(settled(hidden.centre, grids(hidden)).radius[0])


def test_repeated_numbers_have_their_error_again() -> None:
    ball = Ball(np.zeros((1, 2)), np.array([3.0]))
    found = level(spread(ball, (4, 5, 2)), (4, 5, 2), 1).reshape(-1)
    np.testing.assert_allclose(found, np.full(4, 3 * 5**0.5))
    assert level(spread(constant(np.array(2.0)), (4, 5)), (4, 5), 1).max() < 1e-100


def test_joined_axes_keep_sums_and_places() -> None:
    grid = np.array([[[3.0], [4.0]]])  # (1, 2, 1) of a centre of (1, 2, 5)
    wide, sums = reshaped(grid, (1, 2, 5), (1, 10))
    np.testing.assert_allclose(sums, [[5.0]])
    np.testing.assert_allclose(wide, [[3.0] * 5 + [4.0] * 5])


def test_roundings_of_both_sides() -> None:
    size = np.array([[1.0]])
    assert slip(F64, 2, size, 0.0, 1)[0, 0] >= 4 * 2.0**-53
    assert slip(F64, 2, size, 1.0, 1)[0, 0] >= 6 * 2.0**-53
    assert slip(F64, 0, size, 1.0, 1)[0, 0] == 0
