"""Whole models in ball arithmetic: what torch computes from all bits is in every ball."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlv.network.bounds.ball import F64, STRICT, Norms, Reference
from dlv.network.bounds.interval import Balls
from dlv.network.bounds.norms import level_norms, norms_of
from dlv.network.graph import Network
from dlv.network.inference import input_shapes, node_shapes
from dlv.network.ops.op import NoRule
from dlv.network.program import Program, params_of, program

torch: Any = pytest.importorskip("torch", reason="torch is the reference here")
engines: Any = pytest.importorskip("dlv.evaluation.engines")
traces: Any = pytest.importorskip("tests.zoo.traced")

Array = NDArray[Any]
KEPT = ("CONV", "FULL", "NORM", "ATTENTION", "ACT", "POOL", "ADD", "EMBED", "CONCAT", "DECONV")
CASES = {
    "lenet": (F64, STRICT),
    "alexnet": (F64, STRICT),
    "resnet16": (F64,),
    "densenet": (F64,),
    "inception": (F64,),
    "mobilenet": (F64,),
    "generator": (F64,),
    "bert": (F64, STRICT),
    "encoder": (F64, STRICT),
    "shared": (F64, STRICT),
    # Its places and its mask are recorded calls on whole numbers.
    "gpt": (F64, STRICT),
}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def centre_of(weight: Array, bits: int) -> Array:
    """The middle of what the first bits of each number leave open."""
    flat = weight.reshape(len(weight), -1)
    top = np.ceil(np.log2(np.abs(flat).max(axis=1, keepdims=True) * (1 + 1e-12) + 1e-300))
    cell = 2.0 ** (top - (bits - 1))
    found = np.sign(flat) * (np.floor(np.abs(flat) / cell) + 0.5) * cell
    return np.asarray(found.reshape(weight.shape))


class Model:
    def __init__(self, name: str, *, fold: bool) -> None:
        traced = traces.traced(name)
        self.network: Network = traced.network
        nodes = [node.name for node in self.network.nodes if node.op in KEPT]
        # A kept value of a convolution forbids that a norm is folded into it.
        until = [] if fold else nodes
        self.program: Program = program(self.network, traced.tensors, fold=fold, until=until)
        state = traced.module.state_dict().items()
        self.whole = {
            key: tensor.numpy().astype(float) if tensor.is_floating_point() else tensor.numpy()
            for key, tensor in state
        }
        self.whole |= {key: tensor.numpy() for key, tensor in traced.constants.items()}
        self.shapes = node_shapes(self.network, traced.tensors)
        given = zip(self.network.inputs, traced.inputs, strict=True)
        self.inputs = {item.name: x.numpy() for item, x in given}

    def tensor(self, name: str) -> Array:
        return np.asarray(self.whole[self.network.aliases.get(name, name)])

    def balls(self, bits: int, reference: Reference) -> Balls:
        centres = dict(self.whole)
        if bits < 32:
            for name in self.program.matrices:
                centres[name] = centre_of(self.whole[name], bits)

        def centre(name: str) -> Array:
            return np.asarray(centres[self.network.aliases.get(name, name)])

        norms = {}
        for step in self.program.linear:
            whole, part = params_of(step, self.tensor), params_of(step, centre)
            shape = input_shapes(step.node, self.shapes)[0]
            told = norms_of(step.node, whole["weight"], shape)
            left = level_norms(step.node, whole["weight"], part["weight"], shape)
            norms[step.node.name] = Norms(
                *(told.opn, told.fro, told.absmax, left.dn, left.dfro),
                rows=told.rows,
                drows=left.drows,
                dopn=left.dopn,
            )
        return Balls(self.program, centre, norms, reference)


@pytest.mark.parametrize("bits", [12, 20, 32])
@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("name", list(CASES))
def test_what_torch_computes_is_in_every_ball(name: str, fold: bool, bits: int) -> None:
    model = Model(name, fold=fold)
    for reference in CASES[name]:
        known = model.balls(bits, reference).balls(model.inputs)
        precision = "float32" if reference is STRICT else "float64"
        engine = engines.engine("torch", model.program, model.tensor, precision)
        for port, value in engine.values(model.inputs).items():
            ball = known[port]
            error = value.astype(float) - ball.centre
            rows = np.sqrt((error * error).sum(axis=tuple(range(1, error.ndim))))
            assert (rows <= ball.radius).all(), port
            assert np.isfinite(ball.radius).all() or reference is STRICT
            if ball.tokens is not None:
                assert (np.sqrt((error * error).sum(axis=-1)) <= ball.tokens).all(), port
            if bits == 32 and reference is F64:
                assert ball.radius.max() < 1e-6


def test_models_without_a_rule_say_which_node() -> None:
    for name, node in (("lstm", "lstm"), ("functional", "div"), ("norms", "untracked")):
        model = Model(name, fold=False)
        balls = model.balls(20, F64)
        with pytest.raises(NoRule, match=f"`{node}`"):
            balls.balls(model.inputs)
