"""Whole models by numpy, held against torch in both precisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlv.network.forward import Forward
from dlv.network.graph import Network, Port
from dlv.network.program import program

torch: Any = pytest.importorskip("torch", reason="torch is the oracle here")
nn: Any = torch.nn
zoo: Any = pytest.importorskip("tests.zoo.models")
traces: Any = pytest.importorskip("tests.zoo.traced")
sequences: Any = pytest.importorskip("tests.zoo.sequences")

Array = NDArray[Any]
PRECISIONS = [("float32", 1e-5), ("float64", 1e-12)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tensors_of(traced: Any, network: Network) -> Any:
    state = {name: tensor.detach().numpy() for name, tensor in traced.module.state_dict().items()}
    state |= {name: tensor.numpy() for name, tensor in traced.constants.items()}
    return lambda name: state[network.aliases.get(name, name)]


def computed(traced: Any, port: Port, inputs: Any, precision: str, fold: bool) -> Array:
    """The value of one output, a SOFTMAX included."""
    network = replace(traced.network, outputs=(port,))
    until = [port[0]] if port[1] == 0 else []
    steps = program(network, traced.tensors, fold=fold, until=until)
    forward = Forward(steps, tensors_of(traced, network), precision)
    given = {item.name: x.numpy() for item, x in zip(network.inputs, inputs, strict=True)}
    found = forward.values(given)
    return found[steps.kept.get(port[0], steps.scores)]


def batches(name: str, inputs: Any) -> list[Any]:
    if name in zoo.STATIC:
        return [inputs]
    more = [torch.cat([each, each.flip(0), each]) for each in inputs]
    return [inputs, *(tuple(each[:size] for each in more) for size in (1, 5))]


def compare(module: Any, traced: Any, inputs: Any, precision: str, most: float) -> None:
    dtype = getattr(torch, precision)
    module = module.to(dtype).eval()
    given = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
    with torch.no_grad():
        found = module(*given)
    wanted = torch.utils._pytree.tree_leaves(found)
    assert len(wanted) == len(traced.network.outputs)
    for port, value in zip(traced.network.outputs, wanted, strict=True):
        for fold in (True, False):
            ours = computed(traced, port, given, precision, fold)
            assert ours.dtype == value.numpy().dtype
            assert ours.shape == tuple(value.shape)
            off = np.abs(ours - value.numpy()).max()
            assert off <= most * np.abs(value.numpy()).max(), (port, fold)


@pytest.mark.parametrize(("precision", "most"), PRECISIONS)
@pytest.mark.parametrize("name", sorted(zoo.ZOO))
def test_every_model(name: str, precision: str, most: float) -> None:
    traced = traces.traced(name)
    for given in batches(name, traced.inputs):
        compare(zoo.build(name)[0], traced, given, precision, most)


class Encoder(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Of the size of small sentence encoders: 6 layers, 384 wide, 12 heads."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(300, 384)
        self.places = nn.Embedding(32, 384)
        self.register_buffer("position_ids", torch.arange(32).unsqueeze(0), persistent=False)
        self.norm = nn.LayerNorm(384, eps=1e-12)
        self.layers = nn.ModuleList(sequences.BertLayer(384, 12) for _ in range(6))

    def forward(self, tokens: Any) -> Any:
        places = self.places(self.position_ids[:, : tokens.shape[1]])
        x = self.norm(self.words(tokens) + places)
        for layer in self.layers:
            x = layer(x)
        return x.mean(1)


@pytest.fixture(scope="module")
def encoder() -> Any:
    torch.manual_seed(0)
    module = Encoder()
    tokens = torch.randint(0, 300, (3, 12))
    return traces.trace(module, (tokens,))


@pytest.mark.parametrize(("precision", "most"), PRECISIONS)
def test_an_encoder_of_the_size_of_minilm(encoder: Any, precision: str, most: float) -> None:
    module = Encoder()
    module.load_state_dict(encoder.module.state_dict())
    compare(module, encoder, encoder.inputs, precision, most)
