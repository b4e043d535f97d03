"""Small networks for the suffix metric, and torch running them with errors put in anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from dlv.network.bounds.schedule import Weights
from dlv.network.graph import Port
from dlv.network.json_form import read
from dlv.network.program import Program, Step, params_of, program

Array = NDArray[Any]
Json = dict[str, Any]


class Drawing:
    """Nodes in a row, each behind the last unless its inputs are named; random tensors."""

    def __init__(self, shape: tuple[int, ...], seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = shape
        self.nodes: list[Json] = []
        self.tensors: dict[str, Array] = {}
        self.last = "x"

    def add(
        self, name: str, op: str, *inputs: str, variant: str | None = None, **attrs: Any
    ) -> str:
        node: Json = {"name": name, "op": op, "inputs": list(inputs or [self.last]), "attrs": attrs}
        if variant is not None:
            node["variant"] = variant
        own = [each for each in self.tensors if each.rpartition(".")[0] == name]
        if own:
            node["params"] = {each.rpartition(".")[2]: each for each in own}
        self.nodes.append(node)
        self.last = name
        return name

    def weight(self, name: str, *shape: int, fan: int) -> None:
        made = self.rng.normal(size=shape) * np.sqrt(2 / fan)
        self.tensors[f"{name}.weight"] = made.astype(np.float32)

    def conv(self, name: str, depth: int, out: int, kernel: int, *inputs: str, **attrs: Any) -> str:
        groups = attrs.get("groups", 1)
        fan = depth // groups * kernel * kernel
        shape: tuple[int, ...] = (out, depth // groups, kernel, kernel)
        if attrs.get("layout") == "kernel_first":
            shape = (kernel, kernel, depth // groups, out)
        self.weight(name, *shape, fan=fan)
        bias = self.rng.normal(size=out) * 0.1
        self.tensors[f"{name}.bias"] = bias.astype(np.float32)
        return self.add(name, "CONV", *inputs, out=out, kernel=[kernel, kernel], **attrs)

    def full(self, name: str, depth: int, out: int, *inputs: str, layout: str = "out_in") -> str:
        self.weight(name, *((out, depth) if layout == "out_in" else (depth, out)), fan=depth)
        self.tensors[f"{name}.bias"] = (self.rng.normal(size=out) * 0.1).astype(np.float32)
        return self.add(name, "FULL", *inputs, out=out, layout=layout)

    def norm(self, name: str, depth: int, axis: int = 1) -> str:
        for slot in ("weight", "bias", "running_mean", "running_var"):
            found = self.rng.normal(size=depth) * 0.2 + (slot in ("weight", "running_var"))
            self.tensors[f"{name}.{slot}"] = np.maximum(found, 0.3).astype(np.float32)
        return self.add(name, "NORM", variant="BATCH", axis=axis)

    def case(self) -> Case:
        data = {
            "dlv_network": 1,
            "inputs": [{"name": "x", "shape": ["B", *self.shape]}],
            "nodes": self.nodes,
            "outputs": [self.last],
        }
        network = read(data)[0]
        shapes = {name: (str(each.dtype), each.shape) for name, each in self.tensors.items()}
        return Case(program(network, shapes), self.tensors, self.shape)


class Case(Weights):
    """A program with its tensors; at depth k each weight is rounded to 4 k bits per row."""

    def __init__(
        self, found: Program, tensors: Mapping[str, Array], shape: tuple[int, ...]
    ) -> None:
        self.program, self.tensors, self.shape = found, dict(tensors), shape
        self.centres: dict[tuple[str, int], Array] = {}

    @property
    def depths(self) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(self.program.matrices, (1, 2))

    def tensor(self, name: str, planes: int | None) -> Array:
        whole = np.asarray(self.tensors[name], np.float64)
        if planes is None:
            return whole
        if (name, planes) in self.centres:
            return self.centres[name, planes]
        unit = self.unit(name, planes)
        return (np.floor(whole / unit) + 0.5) * unit

    def unit(self, name: str, planes: int) -> float:
        most = float(np.abs(self.tensors[name]).max())
        return float(2.0 ** (np.floor(np.log2(most)) + 2 - 4 * planes))

    def rows(self, count: int, seed: int = 0) -> Array:
        found = np.random.default_rng(seed).normal(size=(count, *self.shape))
        return np.maximum(found, -0.5).astype(np.float32)

    def run(
        self,
        x: Any,
        errors: Mapping[str, Any] | None = None,
        depths: Mapping[str, int] | None = None,
        dtype: torch.dtype = torch.float64,
        weights: Mapping[str, Any] | None = None,
    ) -> dict[Port, Any]:
        """All values, by torch; `errors` are added to what these steps make."""
        known: dict[Port, Any] = {(self.program.input_names[0], 0): torch.as_tensor(x).to(dtype)}
        for step in self.program.steps:

            def tensor(name: str) -> Array:
                return self.tensor(name, (depths or {}).get(name))

            params = {
                slot: torch.from_numpy(np.asarray(each, np.float64)).to(dtype)
                for slot, each in (params_of(step, tensor).items() if step.node.params else ())
            }
            if weights is not None and step.result in weights:
                params["weight"] = weights[step.result]
            made = _made(step, [known[port] for port in step.inputs], params)
            if errors is not None and step.result in errors:
                made = made + errors[step.result]
            known[step.result, 0] = made
        return known

    def scores(self, x: Any, **more: Any) -> Any:
        return self.run(x, **more)[self.program.scores]


def _made(step: Step, given: list[Any], params: Mapping[str, Any]) -> Any:
    node, x = step.node, given[0]
    attrs = node.attrs
    if node.op == "FULL":
        weight = params["weight"] if attrs["layout"] == "out_in" else params["weight"].T
        return functional.linear(x, weight, params.get("bias"))
    if node.op == "CONV":
        last = attrs["channels"] == "last"
        weight = params["weight"]
        if attrs["layout"] == "kernel_first":
            weight = weight.permute(3, 2, 0, 1)
        x = x.permute(0, 3, 1, 2) if last else x
        (top, bottom), (left, right) = attrs["pad"]
        x = functional.pad(x, (left, right, top, bottom))
        how = {"stride": attrs["stride"], "dilation": attrs["dilation"], "groups": attrs["groups"]}
        made = functional.conv2d(x, weight, params.get("bias"), **how)
        return made.permute(0, 2, 3, 1) if last else made
    if node.op == "NORM":
        shape = [1] * x.ndim
        shape[attrs["axis"]] = -1
        scale = params["weight"] / torch.sqrt(params["running_var"] + attrs["eps"])
        shift = params["bias"] - params["running_mean"] * scale
        return x * scale.reshape(shape) + shift.reshape(shape)
    if node.op == "POOL" and node.variant == "MEAN":
        return x.mean(dim=tuple(attrs["axis"]))
    if node.op == "POOL":
        last = attrs["channels"] == "last"
        x = x.permute(0, 3, 1, 2) if last else x
        pool = functional.max_pool2d if node.variant == "MAX" else functional.avg_pool2d
        made = pool(x, attrs["kernel"], attrs["stride"])
        return made.permute(0, 2, 3, 1) if last else made
    simple = {
        "ADD": lambda: torch.stack(given).sum(0),
        "RELU": lambda: functional.leaky_relu(x, attrs.get("slope", 0.0)),
        "ACT": lambda: torch.clamp(x, 0, 6),
        "RESHAPE": lambda: torch.flatten(x, 1),
    }
    return simple[node.op]()


def mlp(seed: int = 0) -> Case:
    d = Drawing((6,), seed)
    d.full("a", 6, 9)
    d.add("a_relu", "RELU")
    d.full("b", 9, 7, layout="in_out")
    d.add("b_relu", "RELU", slope=0.2)
    d.full("c", 7, 4)
    return d.case()


def chain(seed: int = 0) -> Case:
    """Valid and padded convolutions, a stride, both orders of relu and pool, a flatten."""
    d = Drawing((2, 9, 9), seed)
    d.conv("c1", 2, 3, 3)
    d.add("r1", "RELU")
    d.conv("c2", 3, 4, 3, pad=1)
    d.add("p2", "POOL", variant="MAX", kernel=[3, 3], stride=[2, 2])
    d.add("r2", "RELU")
    d.conv("c3", 4, 4, 2)
    d.add("flat", "RESHAPE", kind="flatten")
    d.full("f1", 16, 6)
    d.add("r3", "RELU")
    d.full("f2", 6, 3)
    return d.case()


def residual(seed: int = 0) -> Case:
    """A block around the identity, one with a stride and a shortcut; norms folded in."""
    d = Drawing((1, 7, 7), seed)
    d.conv("stem", 1, 3, 3, pad=1)
    d.norm("stem_bn", 3)
    below = d.add("r0", "RELU")
    d.conv("b1.c1", 3, 3, 3, pad=1)
    d.norm("b1.n1", 3)
    d.add("b1.r1", "RELU")
    d.conv("b1.c2", 3, 3, 3, pad=1)
    branch = d.norm("b1.n2", 3)
    d.add("b1.add", "ADD", branch, below)
    below = d.add("b1.r2", "RELU")
    d.conv("b2.c1", 3, 4, 3, below, pad=1, stride=2)
    d.add("b2.r1", "RELU")
    branch = d.conv("b2.c2", 4, 4, 3, pad=1)
    short = d.conv("b2.short", 3, 4, 1, below, stride=2)
    d.add("b2.add", "ADD", branch, short)
    d.add("b2.r2", "RELU")
    d.add("mean", "POOL", variant="MEAN", axis=[2, 3])
    d.full("fc", 4, 3)
    return d.case()


def odd(seed: int = 0) -> Case:
    """Channels last, dilation, uneven pads, groups, a norm before its relu, no relu at all."""
    d = Drawing((8, 7, 2), seed)
    last = {"channels": "last", "layout": "kernel_first"}
    d.conv("c1", 2, 4, 3, pad=[[2, 1], [0, 2]], dilation=[2, 1], **last)
    d.conv("c2", 4, 4, 3, pad=1, groups=2, **last)
    below = d.last
    d.norm("n", 4, axis=3)
    d.add("r", "ACT", variant="RELU6")
    d.conv("c3", 4, 4, 3, pad=1, **last)
    d.add("add", "ADD", d.last, below)
    d.add("avg", "POOL", variant="AVG", kernel=[2, 2], stride=[2, 2], channels="last")
    d.add("flat", "RESHAPE", kind="flatten")
    d.full("f", 4 * 3 * 3, 3)
    return d.case()


CASES = {"mlp": mlp, "chain": chain, "residual": residual, "odd": odd}
