"""Linear forms taken backwards: never more is promised than any reference has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.network.bounds.adjoint import Adjoint
from dlv.network.bounds.ball import F64, STRICT, Form, Norms, Passed, Reference
from dlv.network.bounds.interval import Balls, certain
from dlv.network.graph import Node
from dlv.network.ops.op import NoRule
from dlv.network.program import Program, params_of, program
from dlv.network.vocabulary import OPS
from tests.evaluation.progressive.random_nets import RandomNet, random_net
from tests.evaluation.stored_models import conv, fresh, full, network_of, plain

Array = NDArray[Any]
Tensors = dict[str, Array]

UP = 1 + 1e-7


def scores_of(net: RandomNet, dtype: str = "float64") -> Array:
    """By torch, before a softmax at the end."""
    return net.values([net.scores_of], dtype=getattr(torch, dtype))[net.scores_of]


def rounded(tensors: Tensors, names: list[str], bits: int) -> Tensors:
    """The weights as if only their first bits were known."""
    found = dict(tensors)
    for name in names:
        unit = np.ldexp(1.0, int(np.frexp(np.abs(tensors[name]).max(initial=1e-30))[1]) - bits)
        found[name] = (np.floor(tensors[name].astype("f8") / unit) + 0.5) * unit
    return found


def norms_of(steps: Program, true: Tensors, centre: Tensors, *, rows: bool) -> dict[str, Norms]:
    """Of each linear node, by plain linear algebra; convolutions by their patches."""
    found = {}
    for step in steps.linear:
        whole = np.asarray(params_of(step, lambda n: true[n].astype("f8"))["weight"], "f8")
        about = np.asarray(params_of(step, lambda n: centre[n].astype("f8"))["weight"], "f8")
        groups = step.node.attrs.get("groups", 1)
        overlap = float(np.prod(step.node.attrs.get("kernel", (1,))))
        w, d = whole.reshape(len(whole), -1), (whole - about).reshape(len(whole), -1)

        def sigma(matrix: Array, groups: int = groups) -> float:
            return max(float(np.linalg.norm(part, 2)) for part in np.split(matrix, groups)) * UP

        found[step.node.name] = Norms(
            opn=sigma(w) * overlap**0.5,
            fro=float(np.linalg.norm(w)) * UP,
            absmax=float(np.abs(w).max(initial=0)),
            dn=sigma(d),
            dfro=float(np.linalg.norm(d)) * UP,
            rows=np.sqrt((w * w).sum(1)) * UP if rows else None,
            drows=np.sqrt((d * d).sum(1)) * UP if rows else None,
        )
    return found


def prepared(
    net: RandomNet, bits: int, reference: Reference, *, rows: bool = True
) -> tuple[Balls, Adjoint, Mapping[str, Array]]:
    shapes = {name: ("float32", each.shape) for name, each in net.tensors.items()}
    steps = program(net.network, shapes)
    centre = rounded(net.tensors, net.matrices, bits)
    norms = norms_of(steps, net.tensors, centre, rows=rows)

    def tensor(name: str) -> Array:
        return centre[name].astype("f8")

    given = steps, tensor, norms, reference
    return Balls(*given), Adjoint(*given), {"x": net.x}


@pytest.mark.parametrize("reference", [F64, STRICT], ids=["f64", "strict"])
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 20), st.integers(2, 14), st.booleans())
def test_no_pair_is_nearer_than_promised(
    reference: Reference, seed: int, bits: int, rows: bool
) -> None:
    net = random_net(seed)
    if reference is STRICT and net.normalised:
        return
    balls, tight, inputs = prepared(net, bits, reference, rows=rows)
    try:
        known = tight.known(inputs)
        scores = known[balls.program.scores].centre
        if scores.ndim != 2 or not np.isfinite(scores).all():
            return
        plain = balls.balls(inputs)
    except NoRule:
        return
    true = scores_of(net, "float32" if reference is STRICT else "float64")
    for ball in (known[balls.program.scores], plain[balls.program.scores]):
        away = np.sqrt(((true - ball.centre) ** 2).sum(1))
        assert (away <= ball.radius * (1 + 1e-6) + 1e-30).all()
    every, drawn = np.arange(len(scores)), np.random.default_rng(seed)
    for _ in range(4):
        top, other = drawn.integers(0, scores.shape[1], (2, len(scores)))
        least = tight.apart(inputs, known, every, top, other)
        assert not (least > true[every, top] - true[every, other]).any()


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 20), st.integers(3, 12), st.sampled_from([1, 2]))
def test_rows_are_told_as_the_reference_has_them(seed: int, bits: int, top_k: int) -> None:
    net = random_net(seed)
    balls, tight, inputs = prepared(net, bits, F64)
    try:
        known = balls.balls(inputs)
        sure = certain(balls, known, top_k)[1]
        order, told = tight.told(inputs, top_k)
    except NoRule:
        return
    assert not (sure & ~told).any()  # nothing is lost
    true = scores_of(net)
    right = np.sort(np.argsort(-true, axis=1, kind="stable")[:, :top_k], axis=1)
    assert (np.sort(order, axis=1)[told] == right[told]).all()


def test_it_tells_more_than_balls_do() -> None:
    told = more = 0
    for seed in range(30):
        net = random_net(seed)
        balls, tight, inputs = prepared(net, 9, F64)
        try:
            known = balls.balls(inputs)
            told += int(certain(balls, known)[1].sum())
            more += int(tight.told(inputs)[1].sum())
        except NoRule:
            continue
    assert more > 1.1 * told > 50


def test_ties_and_nan_stay_open() -> None:
    net = next(net for net in map(random_net, range(99)) if net.x.ndim == 2)
    net.x[0] = np.nan
    net.x[1] = np.inf
    last = [name for name in net.tensors if net.tensors[name].ndim == 2][-1]
    for name in (last, last.replace("weight", "bias")):
        if name in net.tensors:
            net.tensors[name][:] = net.tensors[name][:1]  # all classes alike
    _, tight, inputs = prepared(net, 12, F64)
    assert not tight.told(inputs)[1].any()


def branching(seed: int) -> RandomNet:
    """A network with a node of each kind that has a rule."""
    window: dict[str, Any] = {"kernel": [2, 2], "stride": [2, 2]}
    nodes = [conv("c1", "x", 4, pad=1), plain("r1", "RELU", "c1"), conv("c2", "r1", 4, pad=1)]
    nodes += [plain("s", "ADD", "r1", "c2"), plain("r2", "RELU", "s"), plain("d", "DROPOUT", "r2")]
    nodes += [plain("m", "POOL", "d", variant="MAX", attrs=window)]
    nodes += [plain("v", "POOL", "d", variant="AVG", attrs=window)]
    nodes += [plain("j", "CONCAT", "m", "v", attrs={"axis": 1}), conv("c3", "j", 6)]
    nodes += [plain("g", "POOL", "c3", variant="MEAN", attrs={"axis": [2, 3]}), full("f", "g", 5)]
    shapes = {"c1.weight": (4, 2, 3, 3), "c2.weight": (4, 4, 3, 3), "c3.weight": (6, 8, 3, 3)}
    biases = {"c1.bias": (4,), "c2.bias": (4,), "c3.bias": (6,), "f.bias": (5,)}
    tensors = fresh({**shapes, **biases, "f.weight": (5, 6)}, seed)
    x = np.random.default_rng(seed).normal(size=(24, 2, 8, 8)).astype(np.float32)
    return RandomNet(network_of(nodes, (2, 8, 8)), tensors, x, [*shapes, "f.weight"], "f")


def test_through_a_node_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[tuple[str, str | None]] = set()

    def watched(original: Callable[[Node, Form], Passed | None]) -> object:
        def adjoint(node: Node, form: Form) -> Passed | None:
            found = original(node, form)
            if found is not None:
                used.add((node.op, node.variant))
            return found

        return adjoint

    for op in OPS.values():
        monkeypatch.setattr(op, "adjoint", watched(op.adjoint))
    sure = more = 0
    for seed in range(6):
        net = branching(seed)
        balls, tight, inputs = prepared(net, 7, F64)
        known, true = tight.known(inputs), scores_of(net)
        every = np.arange(len(net.x))
        for top in range(5):
            for other in set(range(5)) - {top}:
                least = tight.apart(inputs, known, every, every * 0 + top, every * 0 + other)
                assert not (least > true[:, top] - true[:, other]).any()
        sure += int(certain(balls, balls.balls(inputs))[1].sum())
        more += int(tight.told(inputs)[1].sum())
    assert used >= {("POOL", variant) for variant in ("MAX", "AVG", "MEAN")}
    assert used >= {(op, None) for op in ("FULL", "CONV", "RELU", "ADD", "CONCAT", "DROPOUT")}
    assert more > 1.5 * sure
