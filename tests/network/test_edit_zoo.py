"""Networks of real torch models edited and cut: run by torch, against the whole model."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import dlv.network.edits.edit as editing
import dlv.versions.copying as copying
from dlv.errors import DlvError
from dlv.network.edits import reuse
from dlv.network.edits.slicing import slice as cut
from dlv.network.graph import Network, Port
from dlv.network.likeness.comparison import compare
from dlv.network.patterns import template
from dlv.weights.arrays import to_tensors, to_torch

torch: Any = pytest.importorskip("torch", reason="torch runs the networks: dlv[torch]")
torch_module: Any = pytest.importorskip("dlv.network.torch.module")
traced: Any = pytest.importorskip("tests.zoo.traced")
zoo: Any = pytest.importorskip("tests.zoo.models")

NAMES = ["lenet", "resnet16", "unet", "mobilenet", "encoder", "gpt", "lstm", "norms"]
every = pytest.mark.parametrize("name", NAMES)


class Model:
    """A model of the zoo, its network, and what that computes."""

    def __init__(self, name: str) -> None:
        found = traced.traced(name)
        self.network: Network = found.network
        self.inputs = list(found.inputs)
        self.state = zoo.state(found.module)
        self.constants = found.constants
        self.tensors = found.tensors

    def run(self, network: Network, inputs: list[Any], tensors: Any = None) -> list[Any]:
        held = self.state if tensors is None else tensors
        constants = {name: self.constants[name] for name in network.constants}
        module = torch_module.build(network, held, constants).eval()
        with torch.no_grad():
            found = module(*inputs)
        return list(found) if isinstance(found, tuple | list) else [found]

    def at(self, *ports: Port) -> list[Any]:
        """Values of the whole network."""
        return self.run(replace(self.network, outputs=ports), self.inputs)


@cache
def _model(name: str) -> Model:
    torch.set_num_threads(1)
    return Model(name)


def _fed(model: Model, made: Network) -> list[Any]:
    """Values for the inputs of a slice."""
    names = [item.name for item in model.network.inputs]
    given = dict(zip(names, model.inputs, strict=True))
    found = []
    for item in made.inputs:
        if item.name in given:
            found.append(given[item.name])
            continue
        ports = [
            model.network.node(node.name).inputs[place]
            for node in made.nodes
            for place, port in enumerate(node.inputs)
            if port == (item.name, 0) and node.attrs.get("kind") != "size"
        ]
        found += model.at(ports[0])
    return found


@every
def test_slices_compute_what_the_model_does(name: str) -> None:
    model, source = _model(name), random.Random(5)
    layers = [node.name for node in model.network.nodes if not node.plumbing]
    count = 0
    while count < 8:
        start, end = source.choice(layers), source.choice(layers)
        try:
            made = cut(model.network, start, end, support=source.choice(["keep", "inputs"])).network
        except DlvError:
            continue
        count += 1
        plan = reuse.plan(model.network, made, model.tensors)
        assert {item.action for item in plan.tensors} <= {"copy"}
        kept = {item.name: model.state[item.name] for item in plan.tensors}
        for ours, theirs in zip(
            model.run(made, _fed(model, made), kept), model.at(*made.outputs), strict=True
        ):
            assert torch.equal(ours, theirs), (start, end)


@every
def test_dropout_anywhere_changes_nothing(name: str) -> None:
    model = _model(name)
    before = model.run(model.network, model.inputs)
    layers = [node.name for node in model.network.nodes if not node.plumbing]
    for layer in layers[:: max(1, len(layers) // 6)]:
        made = editing.insert(model.network, layer, template("DROPOUT", "new")).network
        after = model.run(made, model.inputs)
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        assert editing.delete(made, "new").network.id == model.network.id


@every
def test_what_is_resized_runs(name: str) -> None:
    """With its weights as planned; or it was refused, or said to be past checking."""
    model = _model(name)
    held = to_tensors(model.state)
    done = 0
    for node in model.network.nodes:
        key = next((key for key in ("out", "hidden") if key in node.attrs), None)
        if key is None or done == 5:
            continue
        try:
            made = editing.set_attributes(model.network, node.name, **{key: node.attrs[key] * 2})
        except DlvError:
            continue
        if made.warnings:
            continue
        plan = reuse.plan(model.network, made.network, model.tensors)
        assert plan.count("overlap") >= 1
        found = {
            tensor.name: to_torch(tensor.dtype, tensor.shape, tensor.read())
            for tensor in copying.derived_tensors(plan, held)
        }
        assert all(each.isfinite().all() for each in model.run(made.network, model.inputs, found))
        done += 1
    assert done


@every
def test_renamed_it_is_equal(name: str) -> None:
    network = _model(name).network
    names = {node.name: f"q{place}" for place, node in enumerate(network.nodes)}
    found = compare(network, editing.rename(network, names).network)
    assert (found.equal, found.up_to) == (True, ("names",))
    assert {pair.old.name: pair.new.name for pair in found.pairs} == names


def test_what_nobody_knows_is_said() -> None:
    """`unet` resizes its maps by an operation that is none of the vocabulary."""
    model = _model("unet")
    behind = next(node for node in model.network.nodes if node.op == "OP")
    before = behind
    while "out" not in before.attrs:
        port = model.network.data_of(before.inputs[0])
        assert port is not None
        before = model.network.node(port[0])
    made = editing.set_attributes(model.network, before.name, out=24)
    assert len(made.warnings) == 1
    assert f"`{behind.name}`" in made.warnings[0]
