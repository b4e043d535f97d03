"""Balls of linear layers and pools: never left, whatever the inputs and the unread bits are.

The reference is torch, in binary64 or float32, over inputs inside the ball and over weights whose
unread part is random or worst; adversarial inputs go along singular vectors of the layer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.network.bounds.ball import F64, STRICT, Ball, BallRun, Norms, Reference, l2, point
from dlv.network.bounds.norms import level_norms, norms_of
from dlv.network.graph import Node
from dlv.network.ops.op import NoRule, Run, op_of
from dlv.network.sizes import Shape
from dlv.network.torch.ops import run_of
from dlv.network.torch.types import Call
from dlv.network.vocabulary import complete

Array = NDArray[Any]
Rng = np.random.Generator
LINEAR = ("CONV", "DECONV", "FULL")


def made(op: str, variant: str | None, axes: int, bias: bool, attrs: dict[str, Any]) -> Node:
    slots = [*(["weight"] if op in (*LINEAR, "EMBED") else []), *(["bias"] if bias else [])]
    params = {slot: f"n.{slot}" for slot in slots}
    full = complete(op, variant, attrs, axes=axes, params=params)
    return Node("n", op, variant, full, (("x", 0),), params)


def windowed(op: str, variant: str | None, rng: Rng) -> tuple[Node, tuple[int, ...]]:
    """A node with random windows and a shape that fits."""
    axes = int(rng.integers(1, 4))
    kernel = rng.integers(1, 4 if axes < 3 else 3, axes)
    dilation = rng.integers(1, 3, axes)
    reach = dilation * (kernel - 1)
    most = {"POOL": reach, "CONV": reach + 1, "DECONV": reach // 2}[op]
    pad = rng.integers(0, most[:, None] + 1, (axes, 2))
    # No window of nothing but padding: its largest value is infinite.
    lengths = np.maximum(reach + 1 - pad.sum(1), dilation)
    if variant == "AVG" and axes == 3:  # torch looks at the map without its padding
        lengths = reach + 1
    lengths = lengths + rng.integers(0, 5 if axes < 3 else 3, axes)
    if op == "DECONV":
        lengths = rng.integers(1, (7, 4, 3)[axes - 1], axes)
    channels = ["first", "last"][rng.integers(2)]
    attrs: dict[str, Any] = {
        "kernel": kernel.tolist(),
        "stride": rng.integers(1, 4, axes).tolist(),
        "dilation": dilation.tolist(),
        "pad": pad.tolist(),
        "channels": channels,
    }
    depth = int(rng.integers(1, 4))
    if op == "POOL":
        attrs["ceil"] = bool(rng.integers(2))
        if variant == "AVG":
            attrs["count_pad"] = bool(rng.integers(2))
        if rng.integers(4) == 0:
            sizes = [int(n) for n in rng.integers(1, lengths + 1)]
            attrs = {"size": sizes, "channels": channels}
    else:
        groups = int(rng.choice([1, 1, 2, 3]))
        layouts = ["kernel_last", "kernel_first", *(["depthwise"] if op == "CONV" else [])]
        layout = layouts[rng.integers(len(layouts))]
        depth = groups * (1 if layout == "depthwise" else depth)
        attrs |= {"groups": groups, "out": groups * int(rng.integers(1, 4)), "layout": layout}
    node = made(op, variant, axes, op != "POOL" and bool(rng.integers(2)), attrs)
    sides = tuple(int(n) for n in lengths)
    return node, ((*sides, depth) if channels == "last" else (depth, *sides))


def some_node(op: str, variant: str | None, rng: Rng) -> tuple[Node, tuple[int, ...]]:
    """A random node and the shape of one row of its input."""
    if op == "FULL":
        shape = tuple(int(n) for n in rng.integers(1, 7, rng.integers(1, 4)))
        layout = ["out_in", "in_out"][rng.integers(2)]
        out = int(rng.integers(1, 8))
        return made("FULL", None, 0, bool(rng.integers(2)), {"out": out, "layout": layout}), shape
    if variant == "MEAN":
        shape = tuple(int(n) for n in rng.integers(1, 6, 3))
        axis = sorted(int(a) for a in rng.choice([1, 2, 3], rng.integers(1, 4), replace=False))
        attrs = {"axis": axis, "keep": bool(rng.integers(2))}
        return made("POOL", "MEAN", 0, False, attrs), shape
    return windowed(op, variant, rng)


def in_torch(node: Node, x: Array, params: dict[str, Array], dtype: Any) -> Array:
    values = {
        slot: torch.from_numpy(np.ascontiguousarray(v)).to(dtype) for slot, v in params.items()
    }
    given = [torch.from_numpy(np.ascontiguousarray(x)).to(dtype)]
    found: Array = run_of(node)(Call(given, values, False, {}, torch.device("cpu"))).numpy()
    return found.astype(np.float64)


class Case:
    """A node whose weight is known up to dW, and inputs known up to a ball."""

    def __init__(self, op: str, variant: str | None, seed: int, *, rows: int = 3) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.node, self.shape = some_node(op, variant, rng)
        self.layer = op_of(self.node)
        unread, moved = rng.choice([0.0, 1e-6, 0.01, 0.3]), rng.choice([0.0, 1e-6, 0.02, 1.0])
        self.truth: dict[str, Array] = {}
        shapes = self.layer.parameter_shapes(self.node, [("B", *self.shape)])
        for slot, wanted in shapes.items():
            size = tuple(n for n in wanted or () if isinstance(n, int))
            self.truth[slot] = _float32(rng.normal(size=size))
        self.centres, self.norms = dict(self.truth), None
        x = _float32(rng.normal(size=(rows, *self.shape)))
        if op in LINEAR:
            weight = self.truth["weight"]
            self.centres["weight"] = weight - _open(weight, x, unread, rng)
            self.norms = self._norms(with_rows=bool(rng.integers(2)))
        self.x = x
        self.centre = x - self._moves(moved)

    def _norms(self, with_rows: bool) -> Norms:
        shape: Shape = ("B", *self.shape)
        whole = norms_of(self.node, self.truth["weight"], shape)
        level = level_norms(self.node, self.truth["weight"], self.centres["weight"], shape)
        drows = level.drows if with_rows else None
        known = (whole.opn, whole.fro, whole.absmax, level.dn, level.dfro)
        return Norms(*known, whole.rows, drows, level.dopn)

    def _moves(self, size: float) -> Array:
        """Random moves, and some along what the layer stretches most."""
        moves: Array = self.rng.normal(size=self.x.shape)
        if self.node.op in LINEAR or self.node.variant != "MAX":
            units = np.eye(int(np.prod(self.shape))).reshape(-1, *self.shape)
            params = {"weight": self.truth["weight"]} if self.node.op in LINEAR else {}
            matrix = self.layer.forward(self.node, Run([units], params, {}))[0]
            matrix = matrix.reshape(len(units), -1).T
            top = np.linalg.eigh(matrix.T @ matrix)[1][:, -1]
            signs = np.ones(len(self.x))
            if self.node.op in LINEAR:
                # As dW turns the centre, so that both errors add up.
                delta = {"weight": self.truth["weight"] - self.centres["weight"]}
                turned = self.layer.forward(self.node, Run([self.x], delta, {}))[0]
                signs[turned.reshape(len(self.x), -1) @ (matrix @ top) < 0] = -1
            moves[:2] = (signs[:2, None] * top).reshape(-1, *self.shape)
        norms = np.sqrt((moves * moves).sum(axis=tuple(range(1, moves.ndim)), keepdims=True))
        found: Array = moves / np.maximum(norms, 1e-300) * size
        return found

    def given(self, with_box: bool) -> Ball:
        apart = np.abs(self.x - self.centre)
        radius = np.where(apart.reshape(len(apart), -1).any(1), l2(apart), 0.0)
        tokens = None
        if self.x.ndim == 3:
            tokens = np.sqrt((apart * apart).sum(-1)) * (1 + 1e-12)
        return Ball(self.centre, radius, apart if with_box else None, tokens)

    def run(self, reference: Reference, given: Ball) -> Ball:
        run = BallRun([given], self.centres, self.norms, reference, {})
        with np.errstate(all="ignore"):
            return self.layer.bounds(self.node, run)[0]

    def check(self, reference: Reference, with_box: bool) -> None:
        given = self.given(with_box)
        found = self.run(reference, given)
        dtype = torch.float32 if reference is STRICT else torch.float64
        said = in_torch(self.node, self.x, self.truth, dtype)
        assert found.centre.shape == said.shape
        apart = np.abs(np.subtract(said, found.centre, dtype=np.longdouble))
        size = np.sqrt((apart * apart).sum(axis=tuple(range(1, apart.ndim))))
        assert (size <= found.radius).all()
        assert found.radius.shape == (len(said),)
        assert (found.box is not None) == (with_box and self.node.op != "DECONV")
        if found.box is not None:
            assert (apart <= found.box).all()
        if found.tokens is not None:
            assert self.node.op == "FULL"
            assert (np.sqrt((apart * apart).sum(-1)) <= found.tokens).all()


def _float32(x: Array) -> Array:
    return x.astype(np.float32).astype(np.float64)


def _open(weight: Array, x: Array, size: float, rng: Rng) -> Array:
    """What is not read: uniform, or all bits one way, or at the signs of some vector."""
    kind = rng.integers(3)
    if kind == 0:
        found = rng.uniform(-size, size, weight.shape)
    else:
        found = np.full(weight.shape, size)
        if kind == 2:
            found *= np.sign(rng.normal(size=weight.shape[-1:]) + 1e-9)
    # So that W - (W - dW) is dW again.
    return weight - (weight - found)


KINDS = [
    ("CONV", None),
    ("DECONV", None),
    ("FULL", None),
    ("POOL", "MAX"),
    ("POOL", "AVG"),
    ("POOL", "MEAN"),
]


@pytest.mark.parametrize("reference", [F64, STRICT], ids=["f64", "strict"])
@pytest.mark.parametrize(("op", "variant"), KINDS)
def test_the_reference_stays_inside(op: str, variant: str | None, reference: Reference) -> None:
    @settings(max_examples=120, deadline=None)
    @given(st.integers(0, 2**32), st.booleans())
    def check(seed: int, with_box: bool) -> None:
        Case(op, variant, seed).check(reference, with_box)

    check()


@pytest.mark.parametrize(("op", "variant"), KINDS)
def test_radii_are_not_far_beyond_the_worst_case(op: str, variant: str | None) -> None:
    """What an adversary reaches in binary64, where only moves of the input count."""
    closest = 0.0
    for seed in range(60):
        case = Case(op, variant, seed)
        if op in LINEAR:
            case.centres = dict(case.truth)
            case.norms = case._norms(with_rows=True)
        case.centre = case.x - case._moves(0.5)
        found = case.run(F64, case.given(False))
        said = in_torch(case.node, case.x, case.truth, torch.float64)
        apart = (said - found.centre).reshape(len(said), -1)
        reached = np.linalg.norm(apart, axis=1) / found.radius
        assert reached.max() <= 1
        closest = max(closest, float(reached.max()))
    assert closest > 0.99


@pytest.mark.parametrize("op", LINEAR)
def test_unread_bits_are_not_far_beyond_the_worst_case(op: str) -> None:
    closest = 0.0
    for seed in range(80):
        case = Case(op, None, seed)
        case.centre = case.x
        case.centres["weight"] = case.truth["weight"] - 0.1
        case.norms = case._norms(with_rows=True)
        found = case.run(F64, case.given(False))
        said = in_torch(case.node, case.x, case.truth, torch.float64)
        apart = np.linalg.norm((said - found.centre).reshape(len(said), -1), axis=1)
        assert (apart <= found.radius).all()
        closest = max(closest, float((apart / found.radius).max()))
    assert closest > 0.9


def test_what_is_exact_has_only_rounding_left() -> None:
    for op, variant in KINDS:
        for seed in range(20):
            case = Case(op, variant, seed)
            if op in LINEAR:
                case.centres = dict(case.truth)
                case.norms = case._norms(with_rows=True)
            case.centre = case.x
            size = l2(case.x).max() * 100 + 100
            for reference in (F64, STRICT):
                found = case.run(reference, case.given(True))
                if variant == "MAX":
                    assert found.exact
                else:
                    assert (found.radius < 100 * reference.unit * size).all()
            case.check(STRICT, True)


def test_float32_rounding_needs_its_own_term() -> None:
    """Against a bound without it the strict reference would be outside."""
    rng = np.random.default_rng(0)
    node = made("FULL", None, 0, True, {"out": 50})
    weight, bias, x = (_float32(rng.normal(size=size)) for size in ((50, 400), (50,), (4, 400)))
    norms = norms_of(node, weight, None)
    run = BallRun(
        [point(x)],
        {"weight": weight, "bias": bias},
        Norms(norms.opn, norms.fro, norms.absmax, 0.0, 0.0),
        STRICT,
        {},
    )
    strict = op_of(node).bounds(node, run)[0]
    double = op_of(node).bounds(node, replace(run, reference=F64))[0]
    said = in_torch(node, x, {"weight": weight, "bias": bias}, torch.float32)
    apart = np.linalg.norm(said - strict.centre, axis=1)
    assert (double.radius < apart).all()
    assert (apart < strict.radius).all()


def test_products_flushed_to_zero_are_counted() -> None:
    node = made("FULL", None, 0, False, {"out": 3})
    weight, x = np.full((3, 5), 1e-20), np.full((2, 5), 1e-20)
    norms = norms_of(node, weight, None)
    known = Norms(norms.opn, norms.fro, norms.absmax, 0.0, 0.0)
    run = BallRun([point(x)], {"weight": weight}, known, STRICT, {})
    found = op_of(node).bounds(node, run)[0]
    assert (np.linalg.norm(found.centre, axis=1) <= found.radius).all()


def test_what_may_overflow_has_no_bound() -> None:
    node = made("FULL", None, 0, False, {"out": 3})
    weight, x = np.full((3, 5), 1e30), np.full((2, 5), 1e10)
    norms = norms_of(node, weight, None)
    known = Norms(norms.opn, norms.fro, norms.absmax, 0.0, 0.0)
    for reference, finite in ((F64, True), (STRICT, False)):
        run = BallRun([point(x)], {"weight": weight}, known, reference, {})
        assert np.isfinite(op_of(node).bounds(node, run)[0].radius).all() == finite


def test_numbers_that_are_none_never_look_certain() -> None:
    node = made("CONV", None, 2, False, {"out": 2, "kernel": [3, 3]})
    weight = np.random.default_rng(1).normal(size=(2, 1, 3, 3))
    whole = norms_of(node, weight, None)
    known = Norms(whole.opn, whole.fro, whole.absmax, 0.1, 0.1)
    for bad in (np.nan, np.inf):
        centre = np.ones((2, 1, 5, 5))
        centre[1, 0, 2, 2] = bad
        run = BallRun([Ball(centre, np.zeros(2))], {"weight": weight}, known, F64, {})
        with np.errstate(all="ignore"):
            radius = op_of(node).bounds(node, run)[0].radius
        assert np.isfinite(radius[0])
        assert not radius[1] < 1e300


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_rows_looked_up(seed: int, with_rows: bool) -> None:
    rng = np.random.default_rng(seed)
    rows, out, length = (int(n) for n in rng.integers(1, 8, 3))
    node = made("EMBED", None, 0, False, {"rows": rows, "out": out})
    weight = _float32(rng.normal(size=(rows, out)))
    centre = weight - rng.normal(size=weight.shape) * rng.choice([0.0, 0.1])
    level = level_norms(node, weight, centre, None)
    known = Norms(1.0, 1.0, 1.0, level.dn, level.dfro, None, level.drows if with_rows else None)
    x = rng.integers(0, rows, (4, length))
    ball = op_of(node).bounds(node, BallRun([point(x)], {"weight": centre}, known, F64, {}))[0]
    apart = weight[x] - ball.centre
    assert (np.sqrt((apart * apart).sum((1, 2))) <= ball.radius).all()
    assert ball.tokens is not None
    assert (np.sqrt((apart * apart).sum(2)) <= ball.tokens).all()
    if not (weight - centre).any():
        assert ball.exact


def test_what_has_no_rule() -> None:
    conv = made("CONV", None, 1, False, {"out": 2, "kernel": [2]})
    weight = {"weight": np.ones((2, 1, 2))}
    ball = point(np.ones((2, 1, 4)))
    with pytest.raises(NoRule, match="no norms"):
        op_of(conv).bounds(conv, BallRun([ball], weight, None, F64, {}))
    mean = made("POOL", "MEAN", 0, False, {"axis": None})
    with pytest.raises(NoRule, match="over the batch"):
        op_of(mean).bounds(mean, BallRun([ball], {}, None, F64, {}))
    embed = made("EMBED", None, 0, False, {"rows": 4, "out": 2})
    known = Norms(1.0, 1.0, 1.0, 0.0, 0.0)
    wide = Ball(np.ones((2, 3)), np.ones(2))
    with pytest.raises(NoRule, match="row numbers"):
        op_of(embed).bounds(embed, BallRun([wide], {"weight": np.ones((4, 2))}, known, F64, {}))
    alone = Ball(np.ones((3, 1, 4)), np.zeros(1))
    with pytest.raises(NoRule, match="not a batch"):
        op_of(conv).bounds(conv, BallRun([alone], weight, known, F64, {}))


def test_row_numbers_outside_are_refused() -> None:
    embed = made("EMBED", None, 0, False, {"rows": 4, "out": 2})
    weight = np.arange(8.0).reshape(4, 2)

    def look(x: Array) -> Array:
        return op_of(embed).forward(embed, Run([x], {"weight": weight}, {}))[0]

    assert np.array_equal(look(np.array([[3.0, 0.0]])), [[[6, 7], [0, 1]]])
    for bad in (-1, 4):
        with pytest.raises(ValueError, match="row numbers"):
            look(np.array([[0, bad]]))
