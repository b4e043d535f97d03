"""Completions have the planes that the format gives them, and reach the ends of what is open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.progressive.completions import Cells, Layout, same_prefix
from dlv.pas.layouts.fixed import Fixed, Halved
from dlv.pas.layouts.registry import default_layout
from dlv.pas.layouts.segments import split_matrix

SHAPES = ((6, 5), (3, 2, 2, 3), (7,), (1, 9))


def weights(seed: int, shape: tuple[int, ...]) -> Any:
    """Of all sizes: ordinary, huge, tiny and denormal rows, rows of zeros, zeros of both signs."""
    rng = np.random.default_rng(seed)
    made = rng.normal(size=shape)
    rows = made.reshape(shape[0] if len(shape) > 1 else 1, -1)
    scale = rng.choice([1.0, 1.0, 1e37, 1e-30, 1e-43, 0.0], len(rows))
    rows *= scale[:, None]
    rows *= 10.0 ** rng.integers(-4, 1, rows.shape)
    rows[rng.random(rows.shape) < 0.1] = 0.0
    made = np.copysign(made, rng.normal(size=shape))
    return made.astype(np.float32)


def planes_of(held: Any, layout: Layout) -> tuple[list[bytes], bytes]:
    raw, dtype = held.tobytes(), "float32"
    made: Any = default_layout()
    if layout != "ieee":
        made = Halved("first", False) if layout == "halved" else Fixed.of([raw], dtype, held.shape)
    planes, side = split_matrix(made, raw, dtype, held.shape)
    return [bytes(plane) for plane in planes], bytes(side)


@pytest.mark.parametrize("layout", ["ieee", "fixed", "halved"])
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 3), st.sampled_from(SHAPES))
def test_completions_have_the_same_first_planes(
    layout: Layout, seed: int, k: int, shape: tuple[int, ...]
) -> None:
    held = weights(seed, shape)
    cells = Cells(held, layout, k)
    rng = np.random.default_rng(seed)
    first, side = planes_of(held, layout)
    gradient = rng.normal(size=shape)
    found = [cells.near, cells.far, cells.random(rng), cells.ends(rng), cells.against(gradient)]
    found += [cells.along(gradient), cells.along(0 * gradient)]
    found += [cells.mixed(cells.far, 0.5), cells.mixed(cells.far, 0.0)]
    for other in found:
        assert other.dtype == np.float32
        assert other.shape == shape
        planes, their_side = planes_of(other, layout)
        assert planes[:k] == first[:k]
        assert their_side == side
        assert same_prefix(held, other, layout, k)
    assert (found[-1].view(np.uint32) == held.view(np.uint32)).all()


@pytest.mark.parametrize("layout", ["ieee", "fixed", "halved"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_step_beyond_the_ends_has_other_planes(layout: Layout, k: int) -> None:
    held = weights(5, (20, 30))
    cells = Cells(held, layout, k)
    first, side = planes_of(held, layout)
    for end, direction in ((cells.near, 0.0), (cells.far, np.inf)):
        beyond = np.nextafter(np.abs(end), np.float32(direction))
        beyond = np.copysign(beyond, held)
        # At zero there is no step down, and the rows of zeros have nothing open.
        moves = (np.abs(beyond) != np.abs(end)) & (np.abs(held).max(1) > 0)[:, None]
        moves &= np.isfinite(beyond)
        for place in np.argwhere(moves)[::37]:
            other = held.copy()
            other[tuple(place)] = beyond[tuple(place)]
            planes, their_side = planes_of(other, layout)
            # Tiny weights beside large ones share their cell with their neighbours all the same.
            assert planes[:k] != first[:k] or their_side != side


def test_against_goes_down_the_gradient() -> None:
    held = weights(3, (6, 5))
    cells = Cells(held, "fixed", 1)
    gradient = np.random.default_rng(0).normal(size=held.shape)
    worst = (gradient * cells.against(gradient)).sum()
    rng = np.random.default_rng(1)
    for _ in range(50):
        assert worst <= (gradient * cells.random(rng)).sum()
        assert worst <= (gradient * cells.ends(rng)).sum()


def test_whole_weights_have_one_completion() -> None:
    held = weights(4, (6, 5))
    cells = Cells(held, "fixed", 4)
    rng = np.random.default_rng(1)
    for other in (cells.random(rng), cells.ends(rng), cells.against(-held)):
        assert (other.view(np.uint32) == held.view(np.uint32)).all()
    assert not cells.width.any()
