"""Whole models: exported, made a module again, and held against the original."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from dlv.canonical import dumps, loads
from dlv.network.graph import Network, Node
from dlv.weights.arrays import to_torch

torch: Any = pytest.importorskip("torch", reason="torch runs the networks: dlv[torch]")
torch_export: Any = pytest.importorskip("dlv.adapters.aten.live")
torch_module: Any = pytest.importorskip("dlv.network.torch.module")
zoo: Any = pytest.importorskip("tests.zoo.models")

MOST = 1e-6


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Exported:
    network: Network
    constants: dict[str, Any]


@cache
def exported(name: str) -> Exported:
    """The network of a model, through its stored form."""
    module, inputs = zoo.build(name)
    found = torch_export.trace(module, inputs)
    stored = loads(bytes(dumps(found.network.canonical())), "network")
    network = replace(Network.from_canonical(stored), origin=found.network.origin)
    constants = {c.name: to_torch(c.dtype, c.shape, c.read()) for c in found.constants}
    return Exported(network, constants)


def pair(name: str, network: Network | None = None) -> tuple[Any, Any, Any]:
    """The model, what is made of its network and state, and inputs."""
    module, inputs = zoo.build(name)
    found = exported(name)
    buffers = (found.network.origin or {}).get("buffers", ())
    network = network or found.network
    made = torch_module.build(network, zoo.state(module), found.constants, buffers=buffers)
    return module, made, inputs


def leaves(value: Any) -> list[Any]:
    tree = torch.utils._pytree.tree_leaves(value)
    return [leaf for leaf in tree if isinstance(leaf, torch.Tensor)]


def difference(found: Any, wanted: Any) -> float:
    ours, theirs = leaves(found), leaves(wanted)
    assert len(ours) == len(theirs)
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        worst = max(worst, (a.double() - b.double()).abs().max().item())
    return worst


def score(outputs: Any) -> Any:
    return sum(each.double().square().sum() for each in leaves(outputs) if each.is_floating_point())


def batches(name: str, inputs: Any) -> list[Any]:
    """The inputs as they were exported, and where the batch is open, others."""
    if name in zoo.STATIC:
        return [inputs]
    more = [torch.cat([each, each.flip(0), each]) for each in inputs]
    return [inputs, *(tuple(each[:size] for each in more) for size in (1, 5))]


@pytest.mark.parametrize("name", list(zoo.ZOO))
def test_names_and_values(name: str) -> None:
    module, made, inputs = pair(name)
    assert list(made.state_dict()) == list(module.state_dict())
    wanted = [key for key, _ in module.named_parameters()]
    assert [key for key, _ in made.named_parameters()] == wanted
    made.load_state_dict(module.state_dict(), strict=True)
    module.eval(), made.eval()
    with torch.no_grad():
        for given in batches(name, inputs):
            assert difference(made(*given), module(*given)) <= MOST


def trained(module: Any, inputs: Any, seed: int) -> tuple[Any, dict[str, Any]]:
    """Outputs and gradients of a step, after which the weights have moved."""
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    torch.manual_seed(seed)
    outputs = module.train()(*inputs)
    score(outputs).backward()
    gradients = {
        key: None if tensor.grad is None else tensor.grad.clone()
        for key, tensor in module.named_parameters()
    }
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return outputs, gradients


@pytest.mark.parametrize("name", list(zoo.ZOO))
def test_training(name: str) -> None:
    """Two steps: outputs with equal random numbers, gradients, weights, statistics."""
    module, made, inputs = pair(name)
    for step, given in enumerate(batches(name, inputs)[::2]):
        wanted, their_gradients = trained(module, given, step)
        found, our_gradients = trained(made, given, step)
        assert difference(found, wanted) <= MOST
        assert our_gradients.keys() == their_gradients.keys()
        for key, gradient in their_gradients.items():
            ours = our_gradients[key]
            assert (ours is None) == (gradient is None), key
            assert gradient is None or (ours - gradient).abs().max() <= MOST, key
    state = made.state_dict()
    for key, tensor in module.state_dict().items():
        assert difference(state[key], tensor) <= MOST, key


def from_attributes(network: Network) -> Network:
    """Without what was recorded, as after an edit of every node that the vocabulary has."""

    def told(node: Node) -> bool:
        # Numbers in the call itself are in no attribute.
        literal = node.attrs.get("kind") == "arithmetic" and any(
            "c" in each for each in (node.source or {}).get("args", ())
        )
        return node.op != "OP" and not literal

    nodes = tuple(replace(node, source=None) if told(node) else node for node in network.nodes)
    return replace(network, nodes=nodes)


@pytest.mark.parametrize("name", list(zoo.ZOO))
def test_attributes_alone_say_the_same(name: str) -> None:
    network = from_attributes(exported(name).network)
    module, made, inputs = pair(name, network)
    for train in (True, False):
        # A batch of one has no statistics to train on.
        for given in batches(name, inputs)[:: 2 if train else 1]:
            results = []
            for each in (module, made):
                torch.manual_seed(2)
                with torch.no_grad():
                    results.append(each.train(train)(*given))
            assert difference(*results) <= MOST
    state = made.state_dict()
    for key, tensor in module.state_dict().items():
        assert difference(state[key], tensor) <= MOST, key


@pytest.mark.parametrize("name", ["lenet", "resnet16", "bert", "gpt", "lstm", "gru", "norms"])
def test_other_dtypes(name: str) -> None:
    module, made, inputs = pair(name)
    given = [each.double() if each.is_floating_point() else each for each in inputs]
    wanted = module.double().eval()(*given)
    assert difference(made.double().eval()(*given), wanted) <= MOST


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("name", ["gpt", "bert", "lstm", "gru", "functional", "masked", "rolled"])
def test_it_runs_where_its_inputs_are(name: str, told: bool) -> None:
    """What is made in forward is made there, though a device stands in the recorded call."""
    network = exported(name).network
    _, made, inputs = pair(name, network if told else from_attributes(network))
    there = made.to("meta").eval()(*(each.to("meta") for each in inputs))
    assert {each.device.type for each in leaves(there)} == {"meta"}


@pytest.mark.parametrize("name", ["gpt", "shared"])
def test_ties_survive_training(name: str) -> None:
    module, made, inputs = pair(name)
    ties = exported(name).network.aliases
    assert ties
    trained(made, inputs, 0)
    for tied, kept in ties.items():
        # The very same tensor, as in the original.
        assert made.get_parameter(tied) is made.get_parameter(kept)
    assert len(list(made.parameters())) == len(list(module.parameters()))


def test_an_optimizer_goes_on() -> None:
    """The state of an optimizer counts on the order of the parameters."""
    module, made, inputs = pair("resnet16")
    first = torch.optim.SGD(module.parameters(), 0.01, momentum=0.9)
    score(module.train()(*inputs)).backward()
    first.step()
    made.load_state_dict(module.state_dict())
    second = torch.optim.SGD(made.parameters(), 0.01, momentum=0.9)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for each, optimizer in ((module, first), (made, second)):
        optimizer.zero_grad()
        score(each.train()(*inputs)).backward()
        optimizer.step()
    state = made.state_dict()
    for key, tensor in module.state_dict().items():
        assert difference(state[key], tensor) <= MOST, key


def test_an_edited_model_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes changed, so that the source is gone; what follows is as it was."""
    network = exported("lenet").network
    nodes = []
    for node in network.nodes:
        if node.op == "POOL" and node.variant == "MAX":
            attrs = {**node.attrs, "count_pad": True}
            node = replace(node, variant="AVG", attrs=attrs, source=None)
        nodes.append(node)
    module, made, inputs = pair("lenet", replace(network, nodes=tuple(nodes)))
    assert difference(made.eval()(*inputs), module.eval()(*inputs)) > 1e-3
    functional = torch.nn.functional
    monkeypatch.setattr(functional, "max_pool2d", lambda x, *_, **__: functional.avg_pool2d(x, 2))
    assert difference(made(*inputs), module(*inputs)) <= MOST
