"""What runs a node in torch from its operation and attributes alone."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from dlv.network.graph import Node
from dlv.network.inference import attribute_faults, enough
from dlv.network.ops.registry import layer_of
from dlv.network.torch.ops_norms import norm
from dlv.network.torch.ops_sequences import attention, recurrent
from dlv.network.torch.ops_shapes import reshape
from dlv.network.torch.ops_windows import conv, deconv, pool
from dlv.network.torch.types import Call, Run, functional, refuse, torch


def run_of(node: Node, *, positions: bool = False) -> Run:
    """What runs the node; `positions`: the second output of a POOL is read too."""
    if node.op == "OP":
        source = node.source or {}
        raise refuse(
            node,
            f"`{source.get('op')}` of the dialect {source.get('dialect')} cannot be run in torch",
            hint="replace the node by one of the vocabulary",
        )
    faults = attribute_faults(node)
    if faults:
        raise refuse(node, faults[0][1])
    if not enough(node):
        raise refuse(node, f"{len(node.inputs)} inputs are the wrong number")
    missing = layer_of(node).required(node) - node.params.keys()
    if missing:
        raise refuse(node, f"no tensor is named for the slot {min(missing)!r}")
    if node.op == "POOL":
        return pool(node, positions=positions)
    return _MAKERS[node.op](node)


def _relu(node: Node) -> Run:
    slope = node.attrs["slope"]
    if not slope:
        return lambda call: functional.relu(call.inputs[0])
    return lambda call: functional.leaky_relu(call.inputs[0], slope)


def _act(node: Node) -> Run:
    if node.variant == "GELU":
        approximate = node.attrs["approximate"]
        return lambda call: functional.gelu(call.inputs[0], approximate=approximate)
    function = _ACTIVATIONS[str(node.variant)]
    return lambda call: function(call.inputs[0])


_ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {
    "SILU": functional.silu,
    "SIGMOID": torch.sigmoid,
    "TANH": torch.tanh,
    "RELU6": functional.relu6,
}


def _softmax(node: Node) -> Run:
    axis = node.attrs["axis"]
    function = functional.log_softmax if node.attrs["log"] else functional.softmax
    return lambda call: function(call.inputs[0], axis)


def _concat(node: Node) -> Run:
    axis = node.attrs["axis"]
    return lambda call: torch.cat(list(call.inputs), axis)


def _dropout(node: Node) -> Run:
    p = node.attrs["p"]
    return lambda call: functional.dropout(call.inputs[0], p, call.training)


def _combine(function: Callable[[Any, Any], Any]) -> Callable[[Node], Run]:
    def made(node: Node) -> Run:
        const = node.attrs["const"]
        if "value" in node.params:
            return lambda call: function(call.inputs[0], call.params["value"])
        if const is None:
            return lambda call: functools.reduce(function, call.inputs)
        whole = int(const) if const.is_integer() else const
        return lambda call: function(call.inputs[0], const if _fractions(call.inputs[0]) else whole)

    return made


def _fractions(x: Any) -> bool:
    """Whether a constant may meet it as a fraction: 2.0 would make whole numbers floats."""
    return isinstance(x, float) or (
        isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex())
    )


def _full(node: Node) -> Run:
    turned = node.attrs["layout"] == "in_out"

    def run(call: Call) -> Any:
        weight = call.params["weight"]
        return functional.linear(
            call.inputs[0], weight.t() if turned else weight, call.param("bias")
        )

    return run


def _embed(node: Node) -> Run:  # noqa: ARG001
    def run(call: Call) -> Any:
        rows = call.inputs[0]
        # Other frameworks hand in row numbers of any dtype.
        if rows.dtype not in (torch.int64, torch.int32):
            rows = rows.long()
        return functional.embedding(rows, call.params["weight"])

    return run


def _euclidean(x: Any, wanted: Any) -> Any:
    """Caffe's: half the squared distance, for each of the batch."""
    return (x - wanted).square().sum() / (2 * x.shape[0])


def _nll(x: Any, wanted: Any) -> Any:
    return functional.nll_loss(x, wanted.long())


def _cross_entropy(x: Any, wanted: Any) -> Any:
    # Shares have the shape of x, class numbers have it without the classes.
    if wanted.shape == x.shape:
        return functional.cross_entropy(x, wanted.to(x.dtype))
    if wanted.dim() == x.dim() and wanted.shape[1:2] == (1,):
        wanted = wanted.squeeze(1)
    return functional.cross_entropy(x, wanted.long())


_LOSSES: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("crossentropy", "softmaxwithloss", "softmaxcrossentropy"), _cross_entropy),
    **dict.fromkeys(("nll", "negativeloglikelihood"), _nll),
    **dict.fromkeys(("mse", "meansquarederror"), functional.mse_loss),
    **dict.fromkeys(("l1", "mae", "meanabsoluteerror"), functional.l1_loss),
    **dict.fromkeys(("smoothl1",), functional.smooth_l1_loss),
    **dict.fromkeys(("huber",), functional.huber_loss),
    **dict.fromkeys(("bce", "binarycrossentropy"), functional.binary_cross_entropy),
    **dict.fromkeys(
        ("bcewithlogits", "binarycrossentropywithlogits", "sigmoidcrossentropy"),
        functional.binary_cross_entropy_with_logits,
    ),
    **dict.fromkeys(("kldiv", "kullbackleiblerdivergence"), functional.kl_div),
    "euclidean": _euclidean,
}


def _loss(node: Node) -> Run:
    name = node.attrs["name"]
    word = re.sub("[^a-z0-9]", "", name.lower())
    function = _LOSSES.get(word) or _LOSSES.get(word.removesuffix("loss"))
    if function is None:
        raise refuse(node, f"the loss {name!r} is not known to dlv")
    if len(node.inputs) != 2:
        raise refuse(node, f"{name} takes what was computed and what was wanted")
    return lambda call: function(*call.inputs)


_MAKERS: Mapping[str, Callable[[Node], Run]] = {
    "LOSS": _loss,
    "CONV": conv,
    "DECONV": deconv,
    "FULL": _full,
    "EMBED": _embed,
    "NORM": norm,
    "RELU": _relu,
    "ACT": _act,
    "SOFTMAX": _softmax,
    "CONCAT": _concat,
    "DROPOUT": _dropout,
    "ADD": _combine(operator.add),
    "MUL": _combine(operator.mul),
    "ATTENTION": attention,
    "RNN": recurrent,
    "RESHAPE": reshape,
}
