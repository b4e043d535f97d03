"""Networks as these tests write, change and run them: by hand, in torch, apart from dlv's code."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

KERNELS = ("CONV", "DECONV")
WEIGHTED = ("CONV", "DECONV", "FULL", "RNN")


@dataclass
class Layer:
    """A layer. `uid`: what it was called at first; `kept`: it hands its input's features on."""

    name: str
    op: str
    inputs: list[tuple[str, int]]
    attrs: dict[str, Any] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    variant: str | None = None
    uid: str = ""
    kept: bool = False
    ghost: Layer | None = None  # the layer that stood here and was deleted
    slots: list[int] = field(default_factory=list)  # which inputs these were at first


class Sketch:
    """Layers by name, network inputs by shape without the batch axis, one output."""

    def __init__(self, **inputs: tuple[int, ...]) -> None:
        self.inputs = inputs
        self.layers: dict[str, Layer] = {}
        self.output = ""

    def copied(self) -> Sketch:
        return copy.deepcopy(self)

    def add(self, name: str, op: str, *inputs: str | tuple[str, int], **more: Any) -> str:
        ports = [(each, 0) if isinstance(each, str) else each for each in inputs]
        shared, variant = more.pop("shared", name), more.pop("variant", None)
        slots = more.pop("slots", ())
        params = {slot: f"{shared}.{slot}" for slot in slots}
        made = Layer(name, op, ports, more, params, variant, name, slots=list(range(len(ports))))
        self.layers[name] = made
        self.output = name
        return name

    def conv(self, name: str, source: Any, out: int, kernel: int = 3, **more: Any) -> str:
        pad = more.pop("pad", kernel // 2)
        more = {"kernel": [kernel] * 2, "pad": pad, **more}
        return self.add(name, "CONV", source, out=out, slots=("weight", "bias"), **more)

    def full(self, name: str, source: Any, out: int, **more: Any) -> str:
        return self.add(name, "FULL", source, out=out, slots=("weight", "bias"), **more)

    def norm(self, name: str, source: Any) -> str:
        slots = ("weight", "bias", "running_mean", "running_var")
        return self.add(name, "NORM", source, variant="BATCH", slots=slots)

    def relu(self, name: str, source: Any) -> str:
        return self.add(name, "RELU", source)

    def cat(self, name: str, *sources: Any, axis: int = 1) -> str:
        return self.add(name, "CONCAT", *sources, axis=axis)

    def head(self, source: Any, out: int = 5) -> Sketch:
        """A mean over the map, and the scores."""
        self.add("gap", "POOL", source, variant="MEAN", axis=[2, 3])
        self.full("head", "gap", out)
        return self

    def readers(self, name: str) -> list[Layer]:
        return [each for each in self.layers.values() if name in [n for n, _ in each.inputs]]

    def json(self) -> dict[str, Any]:
        """The same in dlv's plain form."""
        nodes = []
        for each in self.layers.values():
            node: dict[str, Any] = {
                "name": each.name,
                "op": each.op,
                "attrs": {key: a for key, a in each.attrs.items() if key[0] != "_"},
                "inputs": [name if not port else [name, port] for name, port in each.inputs],
                "params": each.params,
            }
            nodes.append(node | ({} if each.variant is None else {"variant": each.variant}))
        inputs = [{"name": name, "shape": ["B", *dims]} for name, dims in self.inputs.items()]
        return {"dlv_network": 1, "inputs": inputs, "nodes": nodes, "outputs": [self.output]}


class Run:
    """Every activation of a sketch, computed by torch when it is asked for."""

    def __init__(self, net: Sketch, tensors: dict[str, Any], inputs: dict[str, Any]) -> None:
        self.net = net
        self.tensors = tensors
        self.known: dict[str, tuple[Any, ...]] = {name: (x,) for name, x in inputs.items()}

    def value(self, name: str, port: int = 0) -> Any:
        if name not in self.known:
            layer = self.net.layers[name]
            given = [self.value(*each) for each in layer.inputs]
            self.known[name] = self._made(layer, given)
        return self.known[name][port]

    def _made(self, layer: Layer, given: Sequence[Any]) -> tuple[Any, ...]:
        if layer.ghost is not None:
            return (given[0],)
        p = {slot: self.tensors[name] for slot, name in layer.params.items()}
        found = _COMPUTE[layer.op](layer, given, p)
        return found if isinstance(found, tuple) else (found,)


Given = Sequence[Any]
Slots = dict[str, Any]


def _conv(layer: Layer, given: Given, p: Slots) -> Any:
    a = layer.attrs
    return functional.conv2d(
        given[0], p["weight"], p["bias"], padding=a["pad"], groups=a.get("groups", 1)
    )


def _deconv(layer: Layer, given: Given, p: Slots) -> Any:
    a = layer.attrs
    return functional.conv_transpose2d(
        given[0], p["weight"], p["bias"], stride=a["stride"], groups=a.get("groups", 1)
    )


def _full(layer: Layer, given: Given, p: Slots) -> Any:
    weight = p["weight"].T if layer.attrs.get("layout") == "in_out" else p["weight"]
    return functional.linear(given[0], weight, p["bias"])


def _pool(layer: Layer, given: Given, _: Slots) -> Any:
    a = layer.attrs
    if layer.variant == "MEAN":
        return given[0].mean(dim=tuple(a["axis"]))
    pool: Any = functional.max_pool2d if layer.variant == "MAX" else functional.avg_pool2d
    return pool(given[0], a["kernel"], a["stride"], padding=a.get("pad", 0))


def _norm(layer: Layer, given: Given, p: Slots) -> Any:
    if layer.variant == "LAYER":
        return functional.layer_norm(given[0], given[0].shape[-1:], p["weight"], p["bias"])
    if layer.variant == "GROUP":
        return functional.group_norm(given[0], layer.attrs["groups"], p["weight"], p["bias"])
    return functional.batch_norm(
        given[0], p["running_mean"], p["running_var"], p["weight"], p["bias"]
    )


def _act(layer: Layer, given: Given, _: Slots) -> Any:
    acts: dict[str, Any] = {"TANH": torch.tanh, "SIGMOID": torch.sigmoid, "SILU": functional.silu}
    return acts[str(layer.variant)](given[0])


def _reshape(layer: Layer, given: Given, _: Slots) -> Any:
    a, x = layer.attrs, given[0]
    if a["kind"] == "flatten":
        return x.flatten(1)
    if a["kind"] == "select":
        return x.select(a["axis"], a["index"])
    if a["kind"] == "permute":
        return x.permute(a["axes"])
    if a["kind"] == "split":
        return tuple(x.split(a["sizes"], a["axis"]))
    assert a["kind"] == "slice"
    return x[(slice(None),) * a["axis"] + (slice(a.get("start"), a.get("end")),)]


def _attention(layer: Layer, given: Given, _: Slots) -> Any:
    heads = layer.attrs["heads"]
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in given)
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def _rnn(layer: Layer, given: Given, p: Slots) -> Any:
    module = torch.nn.LSTM(given[0].shape[-1], layer.attrs["hidden"], batch_first=True)
    call: Any = torch.func.functional_call
    return call(module.to(given[0].dtype), p, (given[0],))[0]


_COMPUTE: dict[str, Any] = {
    "CONV": _conv,
    "DECONV": _deconv,
    "FULL": _full,
    "POOL": _pool,
    "NORM": _norm,
    "ACT": _act,
    "RESHAPE": _reshape,
    "ATTENTION": _attention,
    "RNN": _rnn,
    "RELU": lambda _, given, __: torch.relu(given[0]),
    "DROPOUT": lambda _, given, __: given[0],  # as at test time
    "SOFTMAX": lambda layer, given, _: torch.softmax(given[0], layer.attrs["axis"]),
    "ADD": lambda _, given, __: sum(given[1:], given[0]),
    "CONCAT": lambda layer, given, _: torch.cat(list(given), layer.attrs["axis"]),
}
