"""The paper's own progressive evaluation: an interval for each weight, intervals all the way up.

Every weight lies between the least and the largest number that its first planes allow. Layers
pass on the least and the largest value of every activation (section IV-D of the paper); a label
holds if its least score lies above the largest score of all others (its lemma 4). As in the
paper, rounding is left out of account. Nothing of dlv's own bounds is used here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from dlv.network.graph import Network, Node

Array = NDArray[Any]
Layout = Literal["ieee", "fixed"]
Interval = tuple[Any, Any]  # of torch tensors, float64

PLANES = 4


def bounds_of(weights: Array, layout: Layout, planes: int) -> tuple[Array, Array]:
    """The least and the largest value of each float32 weight that its first planes allow."""
    if planes >= PLANES:
        exact = weights.astype(np.float64)
        return exact, exact
    if layout == "ieee":
        words = np.ascontiguousarray(weights).view(np.uint32)
        rest = np.uint32((1 << (8 * (PLANES - planes))) - 1)
        near = (words & ~rest).view(np.float32).astype(np.float64)
        far = (words | rest).view(np.float32).astype(np.float64)
    else:
        rows = np.abs(weights.reshape(len(weights), -1)).max(1).astype(np.float64)
        exponents = np.frexp(rows)[1].reshape(-1, *[1] * (weights.ndim - 1))
        unit = np.ldexp(1.0, exponents + 1 - 8 * planes)
        known = (rows == 0).reshape(exponents.shape)  # rows of zeros
        cells = np.floor(np.abs(weights) / unit)
        sign = np.where(np.signbit(weights), -1.0, 1.0)
        # All but the last plane hold 23 bits of the number; what is below them is open, too.
        near, far = sign * cells * unit, sign * np.where(known, 0, cells + 1) * unit
    return np.minimum(near, far), np.maximum(near, far)


def scores(
    network: Network, tensors: Mapping[str, Array], layout: Layout, planes: int, x: Array
) -> tuple[Array, Array]:
    """The least and the largest score of every class and row; biases and norms are read whole."""
    known: dict[str, Interval] = {}
    given = torch.from_numpy(x.astype(np.float64))
    known[network.inputs[0].name] = given, given
    norms = {
        node.inputs[0][0]: node
        for node in network.nodes
        if node.op == "NORM" and node.variant == "BATCH"
    }
    for node in network.nodes:
        inputs = [known[name] for name, _ in node.inputs]
        if node.op in ("CONV", "FULL"):
            low, high = bounds_of(tensors[node.params["weight"]], layout, planes)
            bias = None
            if "bias" in node.params:
                bias = tensors[node.params["bias"]].astype(np.float64)
            if node.name in norms:
                low, high, bias = _folded(norms[node.name], tensors, low, high, bias)
            known[node.name] = _linear(node, inputs[0], low, high, bias)
        elif node.name in {norm.name for norm in norms.values()}:
            known[node.name] = inputs[0]
        elif node.op == "ADD" and len(inputs) == 2:
            (low, high), (other_low, other_high) = inputs
            known[node.name] = low + other_low, high + other_high
        else:
            growing = _growing(node)
            known[node.name] = growing(inputs[0][0]), growing(inputs[0][1])
    low, high = known[network.outputs[0][0]]
    return low.numpy(), high.numpy()


def _folded(
    norm: Node, tensors: Mapping[str, Array], low: Array, high: Array, bias: Array | None
) -> tuple[Array, Array, Array]:
    weight, shift, mean, var = (
        tensors[norm.params[slot]].astype(np.float64)
        for slot in ("weight", "bias", "running_mean", "running_var")
    )
    scale = weight / np.sqrt(var + norm.attrs["eps"])
    wide = scale.reshape(-1, *[1] * (low.ndim - 1))
    ends = wide * low, wide * high
    return np.minimum(*ends), np.maximum(*ends), shift + scale * ((bias or 0) - mean)


def _linear(node: Node, x: Interval, low: Array, high: Array, bias: Array | None) -> Interval:
    """Sums of the least and of the largest products.

    No weight may be of either sign: the sign is in the first plane. So each least product is one
    of two, by the sign of the weight and of the input.
    """
    multiply = _product(node)
    positive = (high > 0).astype(np.float64)
    up = [torch.from_numpy(part * positive) for part in (low, high)]
    down = [torch.from_numpy(part * (1 - positive)) for part in (low, high)]
    least, most = x
    plus = least.clamp(min=0), most.clamp(min=0)
    smallest = multiply(plus[0], up[0]) + multiply(plus[1], down[0])
    largest = multiply(plus[1], up[1]) + multiply(plus[0], down[1])
    if bool((least < 0).any()):
        minus = least.clamp(max=0), most.clamp(max=0)
        smallest = smallest + multiply(minus[0], up[1]) + multiply(minus[1], down[1])
        largest = largest + multiply(minus[1], up[0]) + multiply(minus[0], down[0])
    if bias is None:
        return smallest, largest
    side = torch.from_numpy(bias)
    if node.op == "CONV":
        side = side[:, None, None]
    return smallest + side, largest + side


def _product(node: Node) -> Callable[[Any, Any], Any]:
    if node.op == "FULL":
        return lambda x, weight: x @ weight.T
    stride, ((top, bottom), (left, right)) = tuple(node.attrs["stride"]), node.attrs["pad"]

    def convolved(x: Any, weight: Any) -> Any:
        padded = functional.pad(x, (left, right, top, bottom))
        return functional.conv2d(padded, weight, stride=stride)

    return convolved


def _growing(node: Node) -> Callable[[Any], Any]:
    """Operations that grow with their input, so that intervals pass through end by end."""
    attrs = node.attrs
    if node.op == "RELU":
        return lambda x: x.clamp(min=0)
    if node.op == "POOL" and node.variant == "MAX":
        return lambda x: functional.max_pool2d(x, tuple(attrs["kernel"]), tuple(attrs["stride"]))
    if node.op == "POOL" and node.variant == "MEAN":
        return lambda x: x.mean(tuple(attrs["axis"]))
    if node.op == "RESHAPE" and attrs["kind"] == "flatten":
        return lambda x: x.flatten(1)
    raise NotImplementedError(f"the paper is empty of {node.op}")


def determined(low: Array, high: Array, k: int = 1) -> Array:
    """Rows whose k best classes are certain, as a set."""
    order = np.argsort(low, axis=1)[:, ::-1]
    best = np.take_along_axis(low, order[:, :k], axis=1).min(1)
    if k >= low.shape[1]:
        return np.ones(len(low), bool)
    rest = np.take_along_axis(high, order[:, k:], axis=1).max(1)
    return np.asarray(best > rest)


def labels(low: Array) -> Array:
    """The label of each row that `determined` accepts."""
    return np.asarray(low.argmax(1))
