"""Small random networks of the operations that have bounds, their weights, and rows for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dlv.adapters import network_json
from dlv.network.graph import Network
from dlv.network.torch.module import build

Array = NDArray[Any]
ROWS = 24


@dataclass
class RandomNet:
    """A network, float32 tensors, and inputs; `matrices` are the weights that have planes."""

    network: Network
    tensors: dict[str, Array]
    x: Array
    matrices: list[str]
    scores_of: str  # the node that makes the scores

    def values(
        self,
        names: Sequence[str],
        changed: Mapping[str, Array] | None = None,
        dtype: Any = torch.float64,
    ) -> dict[str, Array]:
        """What nodes give in an implementation that is not dlv's: torch. As float64.

        `changed`: weights instead of the net's own.
        """
        held = {**self.tensors, **(changed or {})}
        tensors = {name: torch.from_numpy(array).to(dtype) for name, array in held.items()}
        module = build(replace(self.network, outputs=tuple((n, 0) for n in names)), tensors, {})
        module.eval()
        with torch.no_grad():
            found = module(torch.from_numpy(self.x).to(dtype))
        values = [found] if len(names) == 1 else found
        return {name: each.double().numpy() for name, each in zip(names, values, strict=True)}

    @property
    def normalised(self) -> bool:
        return any(node.variant == "BATCH" for node in self.network.nodes)

    def scores(
        self, changed: Mapping[str, Array] | None = None, dtype: Any = torch.float64
    ) -> Array:
        return self.values([self.scores_of], changed, dtype)[self.scores_of]

    def gradients(self, row: int, up: int, down: int) -> dict[str, Array]:
        """Of score `up` minus score `down` of one row, for each weight matrix."""
        tensors = {name: torch.from_numpy(held.astype("f8")) for name, held in self.tensors.items()}
        network = replace(self.network, outputs=((self.scores_of, 0),))
        module = build(network, tensors, {})
        module.eval()
        scores = module(torch.from_numpy(self.x[row : row + 1]).double())[0]
        (scores[up] - scores[down]).backward()
        held = dict(module.named_parameters())
        return {
            name: np.nan_to_num(np.zeros(held[name].shape) if g is None else g.numpy())
            for name in self.matrices
            for g in [held[name].grad]
        }

    def pushes(
        self, row: int, name: str, away: Mapping[str, Array], start: Mapping[str, Array]
    ) -> dict[str, Array]:
        """How weights must move so that a node's value moves most from that with others.

        `away`: the weights to move away from; `start`: those that move.
        """
        network = replace(self.network, outputs=((name, 0),))
        found = []
        for changed in (away, start):
            held = {**self.tensors, **changed}
            tensors = {each: torch.from_numpy(array.astype("f8")) for each, array in held.items()}
            module = build(network, tensors, {})
            module.eval()
            found.append((module, module(torch.from_numpy(self.x[row : row + 1]).double())))
        (_, here), (module, there) = found
        if there.requires_grad:  # else no weight comes before it
            ((there - here.detach()) ** 2).sum().backward()
        moved = dict(module.named_parameters())
        return {
            each: np.zeros(moved[each].shape) if g is None else g.numpy()
            for each in start
            for g in [moved[each].grad]
        }


@dataclass
class _Drawing:
    rng: np.random.Generator
    times: int = 1  # as wide
    nodes: list[dict[str, Any]] = field(default_factory=list)
    tensors: dict[str, Array] = field(default_factory=dict)
    matrices: list[str] = field(default_factory=list)
    shape: tuple[int, ...] = ()
    last: str = "x"

    def node(self, op: str, shape: tuple[int, ...] | None = None, **more: Any) -> str:
        name = f"n{len(self.nodes)}"
        made = {"name": name, "op": op, "inputs": [self.last], **more}
        self.nodes.append({key: value for key, value in made.items() if value is not None})
        self.last = name
        self.shape = self.shape if shape is None else shape
        return name

    def tensor(self, name: str, values: Array) -> str:
        self.tensors[name] = np.ascontiguousarray(values, np.float32)
        return name

    def weight(self, name: str, shape: tuple[int, ...], spread: float) -> str:
        """Rows of unequal sizes; now and then one of zeros, or a very small one."""
        rng = self.rng
        made = rng.normal(size=shape) * spread
        rows = made.reshape(shape[0], -1)
        rows *= 2.0 ** rng.integers(-2, 2, len(rows))[:, None]
        if rng.random() < 0.2:
            rows[rng.integers(len(rows))] = 0.0
        if rng.random() < 0.2:
            rows[rng.integers(len(rows))] *= 1e-39
        if rng.random() < 0.3:
            rows[rng.random(rows.shape) < 0.3] = 0.0
        self.matrices.append(name)
        return self.tensor(name, made)

    def full(self, out: int, gain: float = 1.0) -> str:
        wide, name = self.shape[-1], f"n{len(self.nodes)}"
        params = {"weight": self.weight(f"{name}.weight", (out, wide), gain * wide**-0.5)}
        if self.rng.random() < 0.8:
            params["bias"] = self.tensor(f"{name}.bias", 0.3 * self.rng.normal(size=out))
        return self.node("FULL", (*self.shape[:-1], out), attrs={"out": out}, params=params)


def _pick(rng: np.random.Generator, *choices: Any) -> Any:
    return choices[rng.integers(len(choices))]


def _convolution(d: _Drawing) -> None:
    rng, (c, h, w) = d.rng, d.shape
    groups = c if c > 1 and rng.random() < 0.2 else 1
    out = groups * int(rng.integers(1, 4)) if groups > 1 else d.times * int(rng.integers(1, 6))
    kernel = [int(rng.integers(1, min(4, size + 1))) for size in (h, w)]
    stride = [int(rng.integers(1, 3)) for _ in range(2)]
    pad = [[int(rng.integers(0, k)) for _ in range(2)] for k in kernel]
    dilation = [
        int(rng.integers(1, 3)) if (k - 1) * 2 + 1 <= size else 1
        for k, size in zip(kernel, (h, w), strict=True)
    ]
    after = [
        (size + sum(p) - dil * (k - 1) - 1) // s + 1
        for size, p, dil, k, s in zip((h, w), pad, dilation, kernel, stride, strict=True)
    ]
    name = f"n{len(d.nodes)}"
    wide = c // groups
    spread = (wide * kernel[0] * kernel[1]) ** -0.5
    params = {"weight": d.weight(f"{name}.weight", (out, wide, *kernel), spread)}
    if rng.random() < 0.7:
        params["bias"] = d.tensor(f"{name}.bias", 0.3 * rng.normal(size=out))
    attrs = {
        "out": out,
        "kernel": kernel,
        "stride": stride,
        "pad": pad,
        "dilation": dilation,
        "groups": groups,
    }
    d.node("CONV", (out, *after), attrs=attrs, params=params)
    if rng.random() < 0.4:
        _batch_norm(d)


def _batch_norm(d: _Drawing) -> None:
    rng, wide, name = d.rng, d.shape[0], f"n{len(d.nodes)}"
    params = {
        "weight": d.tensor(f"{name}.weight", rng.normal(size=wide)),
        "bias": d.tensor(f"{name}.bias", rng.normal(size=wide)),
        "running_mean": d.tensor(f"{name}.running_mean", 0.3 * rng.normal(size=wide)),
        "running_var": d.tensor(f"{name}.running_var", rng.uniform(0.1, 2, wide)),
    }
    d.node("NORM", variant="BATCH", params=params)


def _activation(d: _Drawing) -> None:
    made: dict[str, Any] = _pick(
        d.rng,
        {"op": "RELU"},
        {"op": "RELU"},
        {"op": "RELU", "attrs": {"slope": 0.1}},
        *({"op": "ACT", "variant": v} for v in ("GELU", "SILU", "SIGMOID", "TANH", "RELU6")),
        {"op": "ACT", "variant": "GELU", "attrs": {"approximate": "tanh"}},
    )
    d.node(**made)


def _pooling(d: _Drawing) -> None:
    rng, (c, h, w) = d.rng, d.shape
    if min(h, w) < 2:
        return
    stride = int(rng.integers(1, 3))
    pad = int(rng.integers(0, 2))
    after = [(size + 2 * pad - 2) // stride + 1 for size in (h, w)]
    attrs: dict[str, Any] = {"kernel": [2, 2], "stride": [stride, stride], "pad": pad}
    variant = _pick(rng, "MAX", "AVG")
    if variant == "AVG":
        attrs["count_pad"] = bool(rng.integers(2))
    d.node("POOL", (c, *after), variant=variant, attrs=attrs)


def _two_ways(d: _Drawing, way: Callable[[_Drawing], None]) -> None:
    """Something beside a way around it: added, multiplied or put side by side."""
    before, shape = d.last, d.shape
    way(d)
    if d.shape != shape or d.last == before:
        return
    op = _pick(d.rng, "ADD", "ADD", "MUL", "CONCAT")
    if op == "CONCAT":
        d.node(op, (2 * shape[0], *shape[1:]), attrs={"axis": 1}, inputs=[d.last, before])
    else:
        d.node(op, inputs=[before, d.last])


def _layer_norm(d: _Drawing) -> None:
    wide, name = d.shape[-1], f"n{len(d.nodes)}"
    params = {
        "weight": d.tensor(f"{name}.weight", d.rng.normal(size=wide)),
        "bias": d.tensor(f"{name}.bias", d.rng.normal(size=wide)),
    }
    d.node("NORM", variant="LAYER", params=params)


def _images(d: _Drawing) -> None:
    d.shape = (int(d.rng.integers(1, 4)), int(d.rng.integers(4, 9)), int(d.rng.integers(4, 9)))


def _image_body(d: _Drawing) -> None:
    for _ in range(d.rng.integers(1, 4)):
        way = _pick(d.rng, _convolution, _convolution, _convolution, _pooling, _activation)
        _two_ways(d, way) if d.rng.random() < 0.3 else way(d)
        _activation(d)
    if d.rng.random() < 0.3:
        d.node("POOL", d.shape[:1], variant="MEAN", attrs={"axis": [2, 3]})
    else:
        d.node("RESHAPE", (int(np.prod(d.shape)),), attrs={"kind": "flatten"})


def _vector_body(d: _Drawing) -> None:
    for _ in range(d.rng.integers(0, 4)):

        def way(drawing: _Drawing) -> None:
            out = d.times * int(d.rng.integers(2, 30))
            drawing.full(_pick(d.rng, drawing.shape[0], out))

        _two_ways(d, way) if d.rng.random() < 0.3 else way(d)
        if d.rng.random() < 0.2:
            _layer_norm(d)
        _activation(d)


def _token_body(d: _Drawing) -> None:
    """One attention with its residual way and norm."""
    heads = int(d.rng.integers(1, 3))
    wide = d.shape[-1]
    before = d.last
    parts = []
    for _ in range(3):
        d.last = before
        parts.append(d.full(wide, 0.7))
    d.node("ATTENTION", attrs={"heads": heads}, inputs=parts)
    d.full(wide, 0.7)
    d.node("ADD", inputs=[before, d.last])
    _layer_norm(d)
    d.node("POOL", d.shape[-1:], variant="MEAN", attrs={"axis": [1]})


def random_net(seed: int, times: int = 1) -> RandomNet:
    """`times`: as wide, so that weights are large enough to be stored plane by plane."""
    rng = np.random.default_rng(seed)
    d = _Drawing(rng, times)
    kind = _pick(rng, "vector", "image", "image", "tokens")
    if kind == "vector":
        d.shape = (times * int(rng.integers(2, 20)),)
    elif kind == "image":
        _images(d)
    else:
        d.shape = (int(rng.integers(2, 6)), 2 * times * int(rng.integers(1, 5)))
    given = d.shape
    {"vector": _vector_body, "image": _image_body, "tokens": _token_body}[kind](d)
    if d.shape[0] < 2 or rng.random() < 0.9 or not d.matrices:
        d.full(int(rng.integers(2, 7)), gain=2.0)
    scores_of = d.last
    if rng.random() < 0.2:
        d.node("SOFTMAX")
    x = rng.normal(size=(ROWS, *given)) * 10.0 ** rng.integers(-2, 2)
    data = {
        "dlv_network": 1,
        "inputs": [{"name": "x", "shape": ["B", *given], "dtype": "float32"}],
        "nodes": d.nodes,
        "outputs": [d.last],
    }
    network, warnings = network_json.parse(json.dumps(data).encode())
    assert not warnings
    net = RandomNet(network, d.tensors, x.astype(np.float32), d.matrices, scores_of)
    bias = f"{scores_of}.bias"
    if bias in d.tensors:
        # No class shall win everywhere.
        d.tensors[bias] -= np.median(net.scores(), axis=0).astype(np.float32)
    return net
