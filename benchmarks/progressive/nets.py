"""The networks of the benchmark: what they look like, as network JSON, and how they are trained.

Five architectures and a small transformer encoder, trained from a seed on scikit-learn's digits.
The seed picks the rows of the test set, the initial weights and the order of training.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch.nn import functional

from benchmarks.storage.models import Model, matrix
from dlv.adapters import network_json
from dlv.network.graph import Network
from dlv.network.torch.module import NetworkModule, build

# Part of the cached folder's name: raised whenever a recipe changes.
VERSION = 3
TEST, CALIBRATION = 540, 200
BATCH = 32

Shape = tuple[int, ...]
Array = NDArray[Any]


@dataclass(frozen=True)
class Net:
    """One architecture: how its input is made from 8x8 images, and how long it trains."""

    name: str
    title: str
    draw: Callable[[], Drawing]
    side: int | None  # images of this side, one channel; None: 16 patches of 2x2 pixels
    epochs: int
    rate: float = 1e-3
    flat: bool = False
    gain: float = 2.0  # of fresh weights: He's, for what stands before a ReLU

    def network(self) -> Network:
        return self.draw().network()


@dataclass
class Drawing:
    """A network on its way: nodes, and the shapes of their tensors."""

    input_shape: Shape
    nodes: list[dict[str, Any]] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    last: str = "x"

    def node(
        self,
        name: str,
        op: str,
        *inputs: str,
        variant: str | None = None,
        tensors: Mapping[str, Shape] | None = None,
        **attrs: Any,
    ) -> str:
        made: dict[str, Any] = {"name": name, "op": op, "inputs": list(inputs) or [self.last]}
        if variant is not None:
            made["variant"] = variant
        if attrs:
            made["attrs"] = attrs
        if tensors:
            made["params"] = {slot: f"{name}.{slot}" for slot in tensors}
            self.shapes |= {f"{name}.{slot}": shape for slot, shape in tensors.items()}
        self.nodes.append(made)
        self.last = name
        return name

    def full(self, name: str, wide: int, out: int, *inputs: str) -> str:
        tensors = {"weight": (out, wide), "bias": (out,)}
        return self.node(name, "FULL", *inputs, tensors=tensors, out=out)

    def conv(
        self,
        name: str,
        wide: int,
        out: int,
        kernel: int,
        *inputs: str,
        bias: bool = True,
        **more: int,
    ) -> str:
        tensors: dict[str, Shape] = {"weight": (out, wide, kernel, kernel)}
        if bias:
            tensors["bias"] = (out,)
        attrs: dict[str, Any] = {"out": out, "kernel": [kernel, kernel], **more}
        return self.node(name, "CONV", *inputs, tensors=tensors, **attrs)

    def relu(self, name: str) -> str:
        return self.node(name, "RELU")

    def pool(self, name: str) -> str:
        return self.node(name, "POOL", variant="MAX", kernel=[2, 2], stride=[2, 2])

    def batch_norm(self, name: str, wide: int) -> str:
        slots = ("weight", "bias", "running_mean", "running_var")
        return self.node(name, "NORM", variant="BATCH", tensors=dict.fromkeys(slots, (wide,)))

    def network(self) -> Network:
        data = {
            "dlv_network": 1,
            "inputs": [{"name": "x", "shape": ["B", *self.input_shape], "dtype": "float32"}],
            "nodes": self.nodes,
            "outputs": [self.last],
        }
        return network_json.parse(json.dumps(data).encode())[0]


def mlp() -> Drawing:
    d = Drawing((64,))
    d.full("fc1", 64, 256)
    d.relu("relu1")
    d.full("fc2", 256, 256)
    d.relu("relu2")
    d.full("fc3", 256, 10)
    return d


def lenet() -> Drawing:
    """Caffe's: no activation behind the convolutions."""
    d = Drawing((1, 28, 28))
    d.conv("conv1", 1, 20, 5)
    d.pool("pool1")
    d.conv("conv2", 20, 50, 5)
    d.pool("pool2")
    d.node("flat", "RESHAPE", kind="flatten")
    d.full("ip1", 800, 500)
    d.relu("relu1")
    d.full("ip2", 500, 10)
    return d


def alexnet() -> Drawing:
    """Five convolutions, pools behind the first, second and last, and three full layers."""
    d = Drawing((1, 16, 16))
    wide = 1
    for number, (out, pooled) in enumerate(
        [(32, True), (64, True), (96, False), (96, False), (64, True)], 1
    ):
        d.conv(f"conv{number}", wide, out, 3, pad=1)
        d.relu(f"relu{number}")
        if pooled:
            d.pool(f"pool{number}")
        wide = out
    return _classifier(d, 256, 320, 160)


def vgg() -> Drawing:
    """VGG-11 of an eighth of the width or so: eight convolutions, three full layers."""
    d = Drawing((1, 16, 16))
    wide = 1
    plan = [(16, True), (32, True), (64, False), (64, True)]
    for number, (out, pooled) in enumerate([*plan, *[(128, False)] * 3, (128, True)], 1):
        d.conv(f"conv{number}", wide, out, 3, pad=1)
        d.relu(f"relu{number}")
        if pooled:
            d.pool(f"pool{number}")
        wide = out
    return _classifier(d, 128, 256, 192)


def _classifier(d: Drawing, wide: int, first: int, second: int) -> Drawing:
    d.node("flat", "RESHAPE", kind="flatten")
    d.full("fc1", wide, first)
    d.relu("relu_fc1")
    d.full("fc2", first, second)
    d.relu("relu_fc2")
    d.full("fc3", second, 10)
    return d


def resnet() -> Drawing:
    """A stem, three stages of two residual blocks (16, 32, 64 channels), one full layer."""
    d = Drawing((1, 16, 16))
    d.conv("stem", 1, 16, 3, pad=1, bias=False)
    d.batch_norm("stem_bn", 16)
    below = d.relu("stem_relu")
    wide = 16
    for stage, out in enumerate((16, 32, 64), 1):
        for block in (1, 2):
            name = f"s{stage}b{block}"
            stride = 2 if out != wide else 1
            d.conv(f"{name}.conv1", wide, out, 3, below, bias=False, pad=1, stride=stride)
            d.batch_norm(f"{name}.bn1", out)
            d.relu(f"{name}.relu1")
            d.conv(f"{name}.conv2", out, out, 3, bias=False, pad=1)
            branch = d.batch_norm(f"{name}.bn2", out)
            if stride == 2:
                d.conv(f"{name}.short", wide, out, 1, below, bias=False, stride=2)
                below = d.batch_norm(f"{name}.short_bn", out)
            d.node(f"{name}.add", "ADD", branch, below)
            below = d.relu(f"{name}.relu2")
            wide = out
    d.node("mean", "POOL", variant="MEAN", axis=[2, 3])
    d.full("fc", 64, 10)
    return d


def transformer(
    blocks: int = 2, tokens: int = 16, wide: int = 64, heads: int = 4, *, pre: bool = False
) -> Drawing:
    """An encoder over patches of 2x2 pixels, its norms behind the sums or before the layers, as
    torch's TransformerEncoderLayer has them; the label from the mean token."""
    d = Drawing((tokens, 4))
    d.full("embed", 4, wide)
    below = d.node("place", "ADD", tensors={"value": (1, tokens, wide)}, shape=[1, tokens, wide])
    norm = {"weight": (wide,), "bias": (wide,)}
    for number in range(1, blocks + 1):
        name = f"block{number}"

        def normed(part: str, name: str = name) -> str:
            return d.node(f"{name}.{part}", "NORM", variant="LAYER", tensors=norm)

        given = normed("norm1") if pre else below
        parts = [d.full(f"{name}.{part}", wide, wide, given) for part in "qkv"]
        d.node(f"{name}.attention", "ATTENTION", *parts, heads=heads)
        mixed = d.full(f"{name}.out", wide, wide)
        below = d.node(f"{name}.add1", "ADD", below, mixed)
        given = normed("norm2" if pre else "norm1")
        if not pre:
            below = given
        d.full(f"{name}.up", wide, 2 * wide, given)
        d.relu(f"{name}.relu")
        mixed = d.full(f"{name}.down", 2 * wide, wide)
        below = d.node(f"{name}.add2", "ADD", below, mixed)
        if not pre:
            below = normed("norm2")
    d.node("mean", "POOL", variant="MEAN", axis=[1])
    d.full("fc", wide, 10)
    return d


NETS: Mapping[str, Net] = {
    net.name: net
    for net in (
        Net("mlp", "MLP", mlp, 8, 30, flat=True),
        Net("lenet", "LeNet", lenet, 28, 8),
        Net("alexnet", "AlexNet-like", alexnet, 16, 8),
        Net("vgg", "VGG-like", vgg, 16, 8),
        Net("resnet", "ResNet", resnet, 16, 15),
        # As torch's own linear layers begin: of its matrices only one in six has a ReLU behind it.
        Net("transformer", "transformer, 2 blocks", transformer, None, 25, gain=1 / 3),
    )
}

# Encoders of other sizes and recipes, on which nothing was tuned: rate, epochs, gain.
RECIPES = (
    ({"wide": 64, "heads": 4}, 1e-3, 25, 1 / 3),
    ({"wide": 48, "heads": 3}, 2e-3, 15, 1.0),
    ({"wide": 96, "heads": 6}, 5e-4, 40, 1 / 3),
)
HELD_OUT: Mapping[str, Net] = {
    f"{norm}-norm-{number}": Net(
        *(f"{norm}-norm-{number}", f"{norm}-norm encoder, recipe {number}"),
        *(partial(transformer, pre=norm == "pre", **sizes), None, epochs, rate),
        gain=gain,
    )
    for norm in ("post", "pre")
    for number, (sizes, rate, epochs, gain) in enumerate(RECIPES, 1)
}
ALL: Mapping[str, Net] = {**NETS, **HELD_OUT}


@dataclass(frozen=True)
class Data:
    """Rows of digits, float32 as the network takes them, and their labels."""

    x: Array
    y: Array
    test_x: Array
    test_y: Array

    @property
    def calibration(self) -> Array:
        """Training rows, for what a writer tunes: never rows that are tested."""
        return self.x[:CALIBRATION]

    def mixes(self) -> Array:
        """As many mixes of two test rows each, which are harder to tell."""
        x = self.test_x
        rng = np.random.default_rng(0)
        one, other = (x[rng.integers(0, len(x), len(x))] for _ in range(2))
        share = rng.uniform(0, 1, (len(x), *[1] * (x.ndim - 1)))
        mixed: Array = (share * one + (1 - share) * other).astype(np.float32)
        return mixed


def data_of(net: Net, seed: int) -> Data:
    digits = load_digits()
    images = digits.images.astype(np.float32) / 16
    y = digits.target.astype(np.int64)
    order = np.random.default_rng([seed, 1]).permutation(len(y))
    x = inputs_of(net, images)[order]
    return Data(x[TEST:], y[order][TEST:], x[:TEST], y[order][:TEST])


def inputs_of(net: Net, images: Array) -> Array:
    """8x8 images as the network takes them."""
    if net.side is None:
        patches = images.reshape(-1, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4)
        return np.ascontiguousarray(patches.reshape(-1, 16, 4))
    if net.flat:
        return images.reshape(len(images), -1)
    tensor = torch.from_numpy(images)[:, None]
    if net.side != images.shape[-1]:
        size = (net.side, net.side)
        tensor = functional.interpolate(tensor, size=size, mode="bilinear", align_corners=False)
    return np.ascontiguousarray(tensor.numpy())


def fresh(shapes: Mapping[str, Shape], seed: int, *, gain: float = 2.0) -> dict[str, Any]:
    """Normal weights of variance gain / inputs; norms begin as the identity, biases at zero."""
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for name, shape in shapes.items():
        slot = name.rsplit(".", 1)[1]
        if slot in ("bias", "running_mean"):
            made[name] = torch.zeros(shape)
        elif slot == "value":
            made[name] = 0.1 * torch.randn(shape, generator=generator)
        elif len(shape) == 1:
            made[name] = torch.ones(shape)
        else:
            spread = (gain / float(np.prod(shape[1:]))) ** 0.5
            made[name] = spread * torch.randn(shape, generator=generator)
    return made


def train(net: Net, seed: int) -> NetworkModule:
    """AdamW, its rate falling to zero along a cosine."""
    drawing = net.draw()
    data = data_of(net, seed)
    module = build(drawing.network(), fresh(drawing.shapes, seed, gain=net.gain), {})
    module.train()
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    optimizer = torch.optim.AdamW(module.parameters(), lr=net.rate)
    batches = len(x) // BATCH
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, net.epochs * batches)
    order = np.random.default_rng([seed, 2])
    for _ in range(net.epochs):
        for rows in np.array_split(order.permutation(len(x)), batches):
            optimizer.zero_grad()
            loss: Any = functional.cross_entropy(module(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            schedule.step()
    module.eval()
    return module


def tensors_of(module: NetworkModule) -> Model:
    return {name: matrix(held.numpy()) for name, held in module.state_dict().items()}


def module_of(net: Net, model: Model) -> NetworkModule:
    """The trained network in torch."""
    tensors = {name: torch.from_numpy(held.array().copy()) for name, held in model.items()}
    module = build(net.network(), tensors, {})
    module.eval()
    return module


def accuracy(module: NetworkModule, data: Data) -> float:
    with torch.no_grad():
        found = module(torch.from_numpy(data.test_x)).argmax(1).numpy()
    return float((found == data.test_y).mean())


def lines(seed: int, end: Callable[[str], Model]) -> dict[str, Callable[[], Iterator[Model]]]:  # noqa: ARG001
    """One trained checkpoint for each network, for `benchmarks.storage.corpora.Corpus`."""

    def one(net: Net) -> Iterator[Model]:
        yield tensors_of(train(net, seed))

    return {name: partial(one, net) for name, net in ALL.items()}
