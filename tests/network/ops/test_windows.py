"""Convolutions and pools in numpy against torch, over random attributes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.network.graph import Node
from dlv.network.ops.op import Run, op_of
from dlv.network.ops.windows import Axis, multiplicity
from dlv.network.sizes import ShapeError
from dlv.network.torch.ops import run_of
from dlv.network.torch.types import Call
from dlv.network.vocabulary import complete

Array = NDArray[Any]


def made(
    op: str, variant: str | None, slots: tuple[str, ...], attrs: dict[str, Any], axes: int
) -> Node:
    params = {slot: f"n.{slot}" for slot in slots}
    full = complete(op, variant, attrs, axes=axes, params=params)
    return Node("n", op, variant, full, (("x", 0),), params)


def in_torch(node: Node, x: Array, params: dict[str, Array], positions: bool = False) -> list[Any]:
    run = run_of(node, positions=positions)
    values = {slot: torch.from_numpy(np.ascontiguousarray(v)) for slot, v in params.items()}
    given = [torch.from_numpy(np.ascontiguousarray(x))]
    found = run(Call(given, values, False, {}, torch.device("cpu")))
    return [each.numpy() for each in (found if isinstance(found, tuple) else (found,))]


def in_numpy(node: Node, x: Array, params: dict[str, Array], ports: Any = (0,)) -> list[Array]:
    with np.errstate(all="ignore"):
        return list(op_of(node).forward(node, Run([x], params, {}, ports)))


def in_any_order(rng: np.random.Generator, x: Array) -> Array:
    """The same numbers, laid out in memory in another order of axes."""
    order = rng.permutation(x.ndim)
    return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))


@st.composite
def windows(draw: st.DrawFn, op: str) -> tuple[Node, tuple[int, ...], int]:
    """A node with windows, the shape of its input, and a seed."""
    axes = draw(st.integers(1, 3))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(axes)]

    channels = draw(st.sampled_from(["first", "last"]))
    kernel, dilation = each(1, (4, 4, 3)[axes - 1]), each(1, (3, 3, 2)[axes - 1])
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    most = [min(3, n) for n in reach] if op == "POOL" else [3] * axes
    even = draw(st.booleans())
    pad = [[draw(st.integers(0, n)), draw(st.integers(0, n))] for n in most]
    pad = [[before, before if even else after] for before, after in pad]
    attrs: dict[str, Any] = {
        "kernel": kernel,
        "stride": each(1, 3),
        "dilation": dilation,
        "pad": pad,
        "channels": channels,
    }
    least = [max(1, n + 1 - sum(sides)) for n, sides in zip(reach, pad, strict=True)]
    if op == "POOL" and axes == 3:  # torch looks at the map without its padding
        least = [n + 1 for n in reach]
    lengths = [n + draw(st.integers(0, (6, 5, 3)[axes - 1])) for n in least]
    depth = draw(st.integers(1, 5))
    slots: tuple[str, ...] = ()
    if op in ("CONV", "DECONV"):
        attrs["groups"] = groups = draw(st.sampled_from([1, 1, 2, 3, depth]))
        attrs["out"] = groups * draw(st.integers(1, 3))
        layouts = ["kernel_last", "kernel_first"]
        if op == "CONV":
            layouts.append("depthwise")
        attrs["layout"] = layout = draw(st.sampled_from(layouts))
        depth = groups if layout == "depthwise" else groups * draw(st.integers(1, 3))
        slots = ("weight", "bias") if draw(st.booleans()) else ("weight",)
    if op == "DECONV":
        room = zip(attrs["stride"], attrs["dilation"], strict=True)
        attrs["output_pad"] = [draw(st.integers(0, max(pair) - 1)) for pair in room]
    variant = draw(st.sampled_from(["MAX", "AVG"])) if op == "POOL" else None
    if op == "POOL":
        attrs["ceil"] = draw(st.booleans())
        if variant == "AVG":
            attrs["count_pad"] = draw(st.booleans())
    node = made(op, variant, slots, attrs, axes)
    batch = draw(st.integers(1, 3))
    shape = (batch, *lengths, depth) if channels == "last" else (batch, depth, *lengths)
    return node, shape, draw(st.integers(0, 2**32))


def fits(node: Node, shape: tuple[int, ...]) -> bool:
    layer = op_of(node)
    if layer.faults(node):
        return False
    try:
        layer.shape(node, [shape])
    except ShapeError:
        return False
    return True


def filled(node: Node, shape: tuple[int, ...], rng: np.random.Generator) -> dict[str, Array]:
    shapes = op_of(node).parameter_shapes(node, [shape])
    return {
        slot: rng.normal(size=tuple(n for n in wanted or () if isinstance(n, int)))
        for slot, wanted in shapes.items()
    }


@pytest.mark.parametrize("op", ["CONV", "DECONV", "POOL"])
def test_values_are_torchs(op: str) -> None:
    tried = 0

    @settings(max_examples=150, deadline=None)
    @given(windows(op))
    def check(case: tuple[Node, tuple[int, ...], int]) -> None:
        nonlocal tried
        node, shape, seed = case
        if not fits(node, shape):
            return
        rng = np.random.default_rng(seed)
        x = in_any_order(rng, rng.normal(size=shape))
        params = filled(node, shape, rng)
        wanted = in_torch(node, x, params)[0]
        found = in_numpy(node, x, params)[0]
        assert found.shape == op_of(node).shape(node, [shape])[0] == wanted.shape
        scale = 1 + np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
        assert np.allclose(found, wanted, rtol=0, atol=1e-12 * scale)
        assert found.dtype == np.float64
        narrow = {slot: value.astype(np.float32) for slot, value in params.items()}
        found = in_numpy(node, x.astype(np.float32), narrow)[0]
        assert found.dtype == np.float32
        assert np.allclose(found, wanted, rtol=0, atol=1e-4 * scale)
        tried += 1

    check()
    assert tried > 50


@settings(max_examples=150, deadline=None)
@given(windows("POOL"), st.booleans())
def test_positions_are_torchs(case: tuple[Node, tuple[int, ...], int], ties: bool) -> None:
    node, shape, seed = case
    # A window with no place inside has no position.
    lengths = shape[1:-1] if node.attrs["channels"] == "last" else shape[2:]
    sparse = any(n < d for n, d in zip(lengths, node.attrs["dilation"], strict=True))
    if node.variant != "MAX" or not fits(node, shape) or sparse:
        return
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, shape).astype(np.float64) if ties else rng.normal(size=shape)
    x = in_any_order(rng, x)
    values, places = in_numpy(node, x, {}, (0, 1))
    wanted = in_torch(node, x, {}, positions=True)
    assert np.array_equal(values, wanted[0])
    assert np.array_equal(places, wanted[1])
    assert places.dtype == np.int64


def test_nan_spreads_and_has_a_position() -> None:
    node = made("POOL", "MAX", (), {"kernel": [2, 3], "stride": 1}, 2)
    x = np.random.default_rng(0).normal(size=(1, 1, 5, 7))
    x[0, 0, 2, 3] = x[0, 0, 3, 3] = np.nan
    values, places = in_numpy(node, x, {}, (0, 1))
    wanted = in_torch(node, x, {}, positions=True)
    assert np.array_equal(values, wanted[0], equal_nan=True)
    assert np.array_equal(places, wanted[1])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=3),
    st.sampled_from(["MAX", "AVG"]),
    st.sampled_from(["first", "last"]),
    st.integers(0, 2**32),
)
def test_adaptive_pools_are_torchs(
    axes: list[tuple[int, int]], variant: str, channels: str, seed: int
) -> None:
    # 0 stands for an axis that keeps its length.
    size = [wanted or None for _, wanted in axes]
    node = made("POOL", variant, (), {"size": size, "channels": channels}, len(axes))
    lengths = [length for length, _ in axes]
    shape = (2, *lengths, 3) if channels == "last" else (2, 3, *lengths)
    rng = np.random.default_rng(seed)
    x = in_any_order(rng, rng.integers(0, 4, shape).astype(np.float64))
    largest = variant == "MAX"
    found = in_numpy(node, x, {}, (0, 1))
    wanted = in_torch(node, x, {}, positions=largest)
    assert len(found) == len(wanted) == 1 + largest
    for ours, theirs in zip(found, wanted, strict=True):
        assert np.allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("axis", [None, [1], [-1, 2], [3, 1]])
@pytest.mark.parametrize("keep", [False, True])
def test_means_are_torchs(axis: list[int] | None, keep: bool) -> None:
    node = made("POOL", "MEAN", (), {"axis": axis, "keep": keep}, 0)
    x = np.random.default_rng(1).normal(size=(2, 3, 4, 5))
    found = in_numpy(node, x, {})[0]
    assert np.allclose(found, in_torch(node, x, {})[0], rtol=0, atol=1e-14)


def test_whole_numbers_are_pooled_as_they_are() -> None:
    x = np.random.default_rng(2).integers(-9, 9, (2, 3, 6, 6))
    most = made("POOL", "MAX", (), {"kernel": [3, 3], "stride": 2, "pad": 1}, 2)
    found = in_numpy(most, x, {})[0]
    assert found.dtype == x.dtype
    assert np.array_equal(found, in_torch(most, x.astype(np.float64), {})[0])
    mean = made("POOL", "AVG", (), {"kernel": [3, 3], "stride": 2}, 2)
    wanted = in_torch(mean, x.astype(np.float64), {})[0]
    assert np.allclose(in_numpy(mean, x, {})[0], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(40, 3, 30, 30), (3, 6, 96, 96), (1, 64, 7, 7)])
@pytest.mark.parametrize("pad", [0, 2])
def test_maps_cut_into_several_pieces(shape: tuple[int, ...], pad: int) -> None:
    """Batches whose patches do not fit into the cache at once."""
    attrs = {"kernel": [3, 3], "out": 6, "pad": pad, "stride": 2}
    node = made("CONV", None, ("weight",), attrs, 2)
    rng = np.random.default_rng(3)
    x, params = rng.normal(size=shape), filled(node, shape, rng)
    wanted = in_torch(node, x, params)[0]
    assert np.allclose(in_numpy(node, x, params)[0], wanted, rtol=0, atol=1e-11)


def test_the_result_lies_channels_last_in_memory() -> None:
    """So that the next convolution takes it as it is."""
    node = made("CONV", None, ("weight",), {"kernel": [3, 3], "out": 6}, 2)
    rng = np.random.default_rng(4)
    params = filled(node, (2, 3, 9, 9), rng)
    found = in_numpy(node, rng.normal(size=(2, 3, 9, 9)), params)[0]
    assert found.transpose(0, 2, 3, 1).flags.c_contiguous


def test_wrong_channels_are_refused() -> None:
    node = made("CONV", None, ("weight",), {"kernel": [3, 3], "out": 6}, 2)
    params = filled(node, (2, 3, 9, 9), np.random.default_rng(5))
    with pytest.raises(ValueError, match="4 channels"):
        in_numpy(node, np.zeros((2, 4, 9, 9)), params)
    with pytest.raises(ShapeError):
        in_numpy(node, np.zeros((2, 3, 9)), params)


def test_windows_are_counted() -> None:
    chance = random.Random(6)
    for _ in range(200):
        length, kernel, stride = chance.randint(1, 9), chance.randint(1, 4), chance.randint(1, 4)
        dilation, before = chance.randint(1, 3), chance.randint(0, 3)
        axis = Axis(length, kernel, stride, before, dilation, chance.randint(1, 6))
        held = [0] * length
        for o in range(axis.count):
            for t in range(kernel):
                place = o * stride + t * dilation - before
                if 0 <= place < length:
                    held[place] += 1
        assert multiplicity(axis).tolist() == held
