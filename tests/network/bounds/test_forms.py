"""Each rule held against moves that it must just survive: no loss may be smaller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.network.bounds.ball import F64, STRICT, Ball, BallRun, Form, Norms, least_of, total
from dlv.network.graph import Node
from dlv.network.ops.op import Run, op_of
from dlv.network.vocabulary import complete

Array = NDArray[Any]
Floats = NDArray[np.float64]
PAIRS = 16


def node_of(op: str, variant: str | None = None, **attrs: Any) -> Node:
    params = {"weight": "w"} if op in ("FULL", "CONV") else {}
    return Node("n", op, variant, complete(op, variant, attrs, params=params), (("x", 0),), params)


def forward(node: Node, inputs: list[Array], params: Mapping[str, Array]) -> Array:
    return np.asarray(op_of(node).forward(node, Run(inputs, params, {}))[0])


def ball_of(rng: np.random.Generator, shape: tuple[int, ...]) -> Ball:
    """Of one row, with a box; some coordinates exact."""
    centre = rng.normal(size=(1, *shape))
    box = np.abs(rng.normal(size=(1, *shape))) * (rng.random((1, *shape)) < 0.8)
    return Ball(centre, np.sqrt((box**2).sum(axis=tuple(range(1, box.ndim)))), box)


def moves(rng: np.random.Generator, ball: Ball, a: Floats) -> list[Floats]:
    """Corners of the box: drawn, and those that a form in the input likes least or most."""
    assert ball.box is not None
    signs = [np.sign(rng.normal(size=ball.box.shape)) for _ in range(6)]
    signs += [np.sign(a), -np.sign(a), np.zeros(ball.box.shape)]
    signs += [rng.uniform(-1, 1, ball.box.shape)]
    return [ball.box * sign for sign in signs]


def checked(
    node: Node,
    balls: list[Ball],
    rng: np.random.Generator,
    params: Mapping[str, Array] | None = None,
    norms: Norms | None = None,
    worst: Callable[[Array, list[Array]], Mapping[str, Array]] | None = None,
) -> float:
    """The least that was left between a form and its bound, relative to the loss.

    `worst`: true parameters that are bad for a form, given it and the true inputs.
    """
    params = params or {}
    centre = forward(node, [ball.centre for ball in balls], params)
    run = BallRun(balls, params, norms, F64, {})
    a = rng.normal(size=(PAIRS, *centre.shape[1:])) * (rng.random((PAIRS, *centre.shape[1:])) < 0.8)
    output = Ball(centre, np.full(1, np.inf))
    found = op_of(node).adjoint(node, Form(run, output, a, np.zeros(PAIRS, np.intp)))
    assert found is not None
    forms, loss = found
    left = np.inf
    for pair in range(PAIRS):
        tried = [
            moves(rng, ball, np.zeros((1, 1)) if form is None else form[pair : pair + 1])
            for ball, form in zip(balls, forms, strict=True)
        ]
        for step in zip(*tried, strict=True):
            true = [ball.centre + e for ball, e in zip(balls, step, strict=True)]
            held = params if worst is None else worst(a[pair], true)
            out = float((a[pair] * (forward(node, true, held) - centre)[0]).sum())
            back = sum(
                float((form[pair] * e[0]).sum())
                for form, e in zip(forms, step, strict=True)
                if form is not None
            )
            gap = out - (back - loss[pair])
            assert gap >= -1e-11
            left = min(left, gap / max(float(loss[pair]), 1e-9))
    return left


def test_relu_is_tight() -> None:
    rng = np.random.default_rng(0)
    left = min(checked(node_of("RELU"), [ball_of(rng, (1,))], rng) for _ in range(40))
    assert left < 1e-6


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32))
def test_relu(seed: int) -> None:
    rng = np.random.default_rng(seed)
    checked(node_of("RELU"), [ball_of(rng, (5,))], rng)


POOL = {"kernel": [2, 2], "stride": [2, 2]}
OVERLAPPING = {"kernel": [3, 2], "stride": [1, 2], "pad": [[1, 1], [0, 1]], "ceil": True}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([POOL, OVERLAPPING]), st.booleans())
def test_max_pool(seed: int, attrs: dict[str, Any], last: bool) -> None:
    rng = np.random.default_rng(seed)
    node = node_of("POOL", "MAX", **attrs, channels="last" if last else "first")
    shape = (5, 4, 2) if last else (2, 5, 4)
    checked(node, [ball_of(rng, shape)], rng)


def test_max_pool_is_tight() -> None:
    rng = np.random.default_rng(1)
    node = node_of("POOL", "MAX", kernel=[2, 1], stride=[2, 1])
    left = min(checked(node, [ball_of(rng, (1, 2, 1))], rng) for _ in range(60))
    assert left < 1e-6


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([POOL, OVERLAPPING]), st.booleans())
def test_means(seed: int, attrs: dict[str, Any], count_pad: bool) -> None:
    rng = np.random.default_rng(seed)
    node = node_of("POOL", "AVG", **attrs, count_pad=count_pad)
    checked(node, [ball_of(rng, (2, 5, 4))], rng)
    checked(node_of("POOL", "AVG", size=[3, 2]), [ball_of(rng, (2, 5, 4))], rng)
    for keep in (False, True):
        node = node_of("POOL", "MEAN", axis=[2, 3], keep=keep)
        checked(node, [ball_of(rng, (2, 5, 4))], rng)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32))
def test_what_only_moves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    checked(node_of("RESHAPE", kind="flatten"), [ball_of(rng, (2, 3, 2))], rng)
    checked(node_of("RESHAPE", kind="permute", axes=[0, 3, 1, 2]), [ball_of(rng, (2, 3, 4))], rng)
    checked(node_of("RESHAPE", kind="transpose", axes=[1, 3]), [ball_of(rng, (2, 3, 4))], rng)
    checked(node_of("RESHAPE", kind="squeeze", axis=[2]), [ball_of(rng, (2, 1, 4))], rng)
    checked(node_of("DROPOUT"), [ball_of(rng, (3,))], rng)
    sides = [ball_of(rng, (2, 3)), ball_of(rng, (4, 3))]
    checked(node_of("CONCAT", axis=1), sides, rng)
    checked(node_of("ADD"), [ball_of(rng, (2, 3)), ball_of(rng, (2, 3))], rng)


def norms_of(centre: Array, dn: float, drows: Floats | None) -> Norms:
    flat = centre.reshape(len(centre), -1)
    size = float(np.linalg.norm(flat))
    most = float(np.sqrt((drows**2).sum())) if drows is not None else dn * len(flat) ** 0.5
    return Norms(size + most, size + most, 9.0, dn, most, None, drows)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32), st.booleans(), st.sampled_from(["FULL", "CONV"]))
def test_unread_bits_at_their_worst(seed: int, by_rows: bool, op: str) -> None:
    """Rows of dW along the input, or dW of rank one along the form: the loss is just enough."""
    rng = np.random.default_rng(seed)
    # One window holds everything, so that the convolution is a product with a matrix.
    shape: tuple[int, ...] = (6,) if op == "FULL" else (2, 2, 3)
    node = node_of("FULL", out=4) if op == "FULL" else node_of("CONV", out=4, kernel=[2, 3])
    size = (4, *shape)
    centre, drows = rng.normal(size=size), np.abs(rng.normal(size=4))
    dn = float(np.sqrt((drows**2).sum()) if by_rows else drows[0])

    def worst(a: Array, true: list[Array]) -> Mapping[str, Array]:
        x = true[0].reshape(-1)
        along = x / np.linalg.norm(x)
        column = -np.sign(a.reshape(-1)) * drows
        if not by_rows:
            column = -a.reshape(-1) / max(float(np.linalg.norm(a)), 1e-300) * dn
        return {"weight": centre + np.outer(column, along).reshape(size)}

    norms = norms_of(centre, dn, drows if by_rows else None)
    ball = ball_of(rng, shape)
    assert checked(node, [ball], rng, {"weight": centre}, norms, worst) < 0.7


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([1, 2]), st.booleans())
def test_convolutions(seed: int, groups: int, last: bool) -> None:
    rng = np.random.default_rng(seed)
    attrs: dict[str, Any] = {
        "stride": [2, 1],
        "pad": [[1, 0], [1, 1]],
        "dilation": [1, 2],
        "groups": groups,
    }
    channels = "last" if last else "first"
    node = node_of("CONV", out=4, kernel=[2, 3], channels=channels, **attrs)
    shape = (6, 6, 2) if last else (2, 6, 6)
    centre = rng.normal(size=(4, 2 // groups, 2, 3))
    wrong = rng.normal(size=centre.shape) * 0.1
    rows = np.sqrt((wrong.reshape(4, -1) ** 2).sum(1)) * (1 + 1e-9)
    flat = [each.reshape(4 // groups, -1) for each in np.split(wrong, groups)]
    dn = max(float(np.linalg.norm(part, 2)) for part in flat) * (1 + 1e-9)
    for drows in (rows, None):
        norms = norms_of(centre, dn, drows)
        true = {"weight": centre + rng.choice([-1, 1]) * wrong}
        checked(node, [ball_of(rng, shape)], rng, {"weight": centre}, norms, lambda *_, t=true: t)


def test_no_rule_is_none() -> None:
    ball = ball_of(np.random.default_rng(0), (3,))
    run = BallRun([ball], {}, None, STRICT, {})
    for node in (node_of("ACT", "TANH"), node_of("RELU", slope=0.1), node_of("MUL", const=2.0)):
        form = Form(run, ball, np.ones((1, 3)), np.zeros(1, np.intp))
        assert op_of(node).adjoint(node, form) is None


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e100])
def test_sums_are_rounded_up(scale: float) -> None:
    form = np.array([[3.0, -4.0]])
    assert total(np.abs(form) * scale) >= 7 * scale
    assert least_of(form, np.full((1, 2), scale), np.array([scale])) >= 5 * scale
    assert least_of(form, np.full((1, 2), scale), np.array([scale])) <= 5.001 * scale
