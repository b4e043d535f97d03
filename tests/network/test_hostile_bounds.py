"""Radii that are no numbers, numbers that overflow or vanish: nothing rests on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.network.bounds.adjoint import Adjoint
from dlv.network.bounds.ball import F64, REFERENCES, STRICT, Ball, Norms, sealed
from dlv.network.bounds.interval import Balls, certain
from dlv.network.ops.op import NoRule
from dlv.network.program import program
from tests.evaluation.progressive.random_nets import RandomNet, random_net
from tests.evaluation.stored_models import full, network_of
from tests.network.bounds.test_adjoint import prepared, scores_of

HOSTILE = [0.0, 1e-45, 1e-42, 1e-38, 1e-30, 1e20, 1e30, 3e38, np.inf, -np.inf, np.nan]


def spoiled(seed: int) -> RandomNet:
    """A random network with numbers in its weights and rows that break arithmetic."""
    net = random_net(seed)
    rng = np.random.default_rng(seed)
    for each in net.tensors.values():
        if rng.random() < 0.5 and each.size:
            flat = each.reshape(-1)
            some = rng.choice(flat.size, max(1, flat.size // 4), replace=False)
            size = rng.choice(HOSTILE)
            with np.errstate(all="ignore"):
                scaled = (flat[some] * size).clip(-3e38, 3e38)
            flat[some] = size if rng.random() < 0.5 else scaled
    for row in rng.choice(len(net.x), 6, replace=False):
        net.x[row].reshape(-1)[rng.integers(net.x[row].size)] = rng.choice(HOSTILE)
    return net


def told(
    net: RandomNet, bits: int, reference: Any, how: Any = lambda norms: norms
) -> list[tuple[Any, Any]]:
    """Labels, and which rows are certain: by balls, and followed backwards."""
    balls, _, inputs = prepared(net, bits, reference)
    norms = {name: how(each) for name, each in balls.norms.items()}
    made = balls.program, balls._tensor, norms, reference
    known = Balls(*made).balls(inputs)
    assert not any(np.isnan(ball.radius).any() for ball in known.values())
    labels, sure = certain(balls, known)
    order, also = Adjoint(*made).told(inputs)
    return [(labels, sure), (order[:, 0], also)]


@pytest.mark.parametrize("reference", REFERENCES.values(), ids=lambda each: each.name)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 20), st.sampled_from([2, 4, 8, 16, 40]))
def test_what_is_certain_is_so_in_torch(reference: Any, seed: int, bits: int) -> None:
    net = spoiled(seed)
    if reference is STRICT and net.normalised:
        return
    with np.errstate(all="ignore"):
        try:
            found = told(net, bits, reference)
        except (NoRule, np.linalg.LinAlgError, ValueError, OverflowError):
            return  # such weights have no record
    dtypes = ["float64"] if reference is F64 else ["float32", "float64"]
    for dtype in dtypes:
        scores = scores_of(net, dtype)
        for labels, sure in found:
            assert np.isfinite(scores[sure]).all()
            assert (scores[sure].argmax(1) == labels[sure]).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["opn", "fro", "dn", "dfro", "rows", "drows"])
def test_norms_that_are_no_numbers_prove_nothing(name: str, value: float) -> None:
    held = 0
    for seed in range(40):
        net = random_net(seed)
        if net.normalised or len(net.matrices) < 2:
            continue

        def broken(norms: Any) -> Any:
            old = getattr(norms, name)
            return replace(norms, **{name: old * 0 + value})

        try:
            if net.network.nodes[-1].op == "SOFTMAX" or not told(net, 20, STRICT)[0][1].any():
                continue
            found = told(net, 20, STRICT, broken)
        except NoRule:
            continue
        held += 1
        if held > 2:
            break
        right = scores_of(net).argmax(1)
        for labels, sure in found:
            assert (labels[sure] == right[sure]).all()
            assert name in ("rows", "drows") or not sure.any()
    assert held


def test_an_infinite_radius_times_nothing() -> None:
    """A layer norm without a bound, then a sum with weights of zero: not a number."""
    net = random_net(42864)
    _, tight, inputs = prepared(net, 2, STRICT)
    known = tight.known(inputs)
    assert all(np.isinf(ball.radius).all() for (name, _), ball in known.items() if name == "n11")
    assert not tight.told(inputs)[1].any()


def test_a_row_is_lost_for_good() -> None:
    fine = Ball(np.ones((3, 2)), np.zeros(3), np.zeros((3, 2)))
    for radius in (np.nan, np.inf):
        lost = replace(fine, radius=np.array([0.0, radius, 0.0]))
        for found in (sealed(lost), sealed(fine, [lost]), sealed(fine, [fine, lost])):
            assert found.box is not None
            np.testing.assert_array_equal(found.radius, [0, np.inf, 0])
            np.testing.assert_array_equal(found.box[:, 0], [0, np.inf, 0])
    constant = Ball(np.ones((1, 2)), np.array([np.nan]))
    assert np.isinf(sealed(fine, [constant]).radius).all()
    for centre in (np.nan, np.inf):
        broken = replace(fine, centre=np.array([[1, 1], [1, centre], [1, 1]]))
        np.testing.assert_array_equal(sealed(broken).radius, [0, np.inf, 0])
    hidden = replace(fine, box=np.array([[0, 0], [0, 0], [np.nan, 0]]))
    np.testing.assert_array_equal(sealed(hidden).radius, [0, 0, np.inf])
    assert sealed(fine, [fine]) is fine
    whole = Ball(np.asarray(np.inf), np.zeros(1))
    assert np.isinf(sealed(whole).radius).all()


@pytest.mark.parametrize(("weight", "number"), [(1e-39, 1e30), (1e30, 1e-39)])
def test_numbers_that_torch_takes_for_zero(weight: float, number: float) -> None:
    """One factor is below all normal numbers, the product is not: flushed, all of it is lost."""
    network = network_of([full("fc", "x", 3)], (4,))
    rng = np.random.default_rng(0)
    matrix = ((1 + rng.random((3, 4))) * weight).astype(np.float32)
    x = ((1 + rng.random((5, 4))) * number).astype(np.float32)
    steps = program(network, {"fc.weight": ("float32", (3, 4)), "fc.bias": ("float32", (3,))})
    tensors = {"fc.weight": matrix.astype("f8"), "fc.bias": np.zeros(3)}
    size = float(np.linalg.norm(matrix.astype("f8"))) * (1 + 1e-6)
    norms = Norms(size, size, float(matrix.max()), 0.0, 0.0)
    balls = Balls(steps, tensors.__getitem__, {"fc": norms}, STRICT)
    ball = balls.balls({"x": x})[steps.scores]
    assert (ball.radius >= np.linalg.norm(ball.centre, axis=1)).all()  # torch may give zeros
    assert not certain(balls, balls.balls({"x": x}))[1].any()
