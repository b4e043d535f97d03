"""What runs a node in torch from its operation and attributes alone."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlv.network.graph import Node
from dlv.network.inference import attribute_faults, enough
from dlv.network.ops.op import op_of
from dlv.network.ops.outside import standardising
from dlv.network.ops.recurrent import GATES
from dlv.network.torch.ops_shapes import reshape
from dlv.network.torch.ops_windows import conv, deconv, pool
from dlv.network.torch.types import Call, Run, functional, refuse, torch

COUNTER = "num_batches_tracked"


def run_of(node: Node, *, positions: bool = False) -> Run:
    """What runs the node; `positions`: the second output of a POOL is read too."""
    if op_of(node).raw:
        if op_of(node).passes(node):
            return lambda call: call.inputs[0]
        known = standardising(node)
        if known is not None:
            return _standardised(*known)
        source = node.source or {}
        raise refuse(
            node,
            f"`{source.get('op')}` of the dialect {source.get('dialect')} cannot be run in torch",
            hint="replace the layer by one of the vocabulary",
        )
    faults = attribute_faults(node)
    if faults:
        raise refuse(node, faults[0][1])
    if not enough(node):
        raise refuse(node, f"{len(node.inputs)} inputs are the wrong number")
    missing = op_of(node).required(node) - node.params.keys()
    if missing:
        raise refuse(node, f"no tensor is named for the slot {min(missing)!r}")
    if node.op == "POOL":
        return pool(node, positions=positions)
    return _MAKERS[node.op](node)


def _standardised(means: Sequence[float], deviations: Sequence[float]) -> Run:
    def run(call: Call) -> Any:
        x = call.inputs[0]
        return (x - x.new_tensor(means)) / x.new_tensor(deviations)

    return run


def _relu(node: Node) -> Run:
    slope = node.attrs["slope"]
    if node.params:
        return lambda call: torch.where(
            call.inputs[0] >= 0, call.inputs[0], call.inputs[0] * call.params["slope"]
        )
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
    layout = node.attrs["layout"]

    def run(call: Call) -> Any:
        weight, bias = call.params["weight"], call.param("bias")
        if layout == "in_heads":
            weight, bias = weight.flatten(1), None if bias is None else bias.flatten()
        elif layout == "heads_in":
            weight = weight.flatten(0, 1)
        return functional.linear(call.inputs[0], weight if layout == "out_in" else weight.t(), bias)

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
        raise refuse(node, f"the loss {name!r} is unknown to dlv")
    if len(node.inputs) != 2:
        raise refuse(node, f"{name} takes predictions and targets")
    return lambda call: function(*call.inputs)


def norm(node: Node) -> Run:
    return _NORMS[str(node.variant)](node)


def _on_axis_one(node: Node, inner: Any) -> Run:
    """torch looks for channels on axis 1."""
    axis = node.attrs["axis"]

    def run(call: Call) -> Any:
        x = call.inputs[0]
        place = axis % x.dim()
        if place == 1:
            return inner(call, x)
        return inner(call, x.movedim(place, 1)).movedim(1, place)

    return run


def _batch(node: Node) -> Run:
    momentum, eps = node.attrs["momentum"], node.attrs["eps"]

    def inner(call: Call, x: Any) -> Any:
        mean = call.param("running_mean")
        share = momentum
        if share is None:
            # A plain mean of all batches so far; the module has counted this one already.
            counter = call.param(COUNTER)
            share = 0.0 if counter is None else 1.0 / max(float(counter), 1.0)
        return functional.batch_norm(
            x,
            mean,
            call.param("running_var"),
            call.param("weight"),
            call.param("bias"),
            call.training or mean is None,
            share,
            eps,
        )

    return _on_axis_one(node, inner)


def _instance(node: Node) -> Run:
    momentum, eps = node.attrs["momentum"] or 0.0, node.attrs["eps"]

    def inner(call: Call, x: Any) -> Any:
        mean = call.param("running_mean")
        return torch.instance_norm(
            x,
            call.param("weight"),
            call.param("bias"),
            mean,
            call.param("running_var"),
            call.training or mean is None,
            momentum,
            eps,
            torch.backends.cudnn.enabled,
        )

    return _on_axis_one(node, inner)


def _layer(node: Node) -> Run:
    axis, eps = node.attrs["axis"], node.attrs["eps"]

    def run(call: Call) -> Any:
        x = call.inputs[0]
        weight, bias = call.param("weight"), call.param("bias")
        return functional.layer_norm(x, x.shape[axis % x.dim() :], weight, bias, eps)

    return run


def _root_mean_square(node: Node) -> Run:
    axis, eps = node.attrs["axis"], node.attrs["eps"]

    def run(call: Call) -> Any:
        x = call.inputs[0]
        return functional.rms_norm(x, x.shape[axis % x.dim() :], call.param("weight"), eps)

    return run


def _group(node: Node) -> Run:
    groups, eps = node.attrs["groups"], node.attrs["eps"]

    def inner(call: Call, x: Any) -> Any:
        return functional.group_norm(x, groups, call.param("weight"), call.param("bias"), eps)

    return _on_axis_one(node, inner)


def _local_response(node: Node) -> Run:
    attrs = node.attrs
    size, alpha, beta, k = attrs["size"], attrs["alpha"], attrs["beta"], attrs["k"]

    def inner(call: Call, x: Any) -> Any:  # noqa: ARG001
        if x.dim() < 3:  # torch wants an axis behind the channels
            return functional.local_response_norm(x.unsqueeze(-1), size, alpha, beta, k).squeeze(-1)
        return functional.local_response_norm(x, size, alpha, beta, k)

    return _on_axis_one(node, inner)


_NORMS = {
    "BATCH": _batch,
    "INSTANCE": _instance,
    "LAYER": _layer,
    "RMS": _root_mean_square,
    "GROUP": _group,
    "LRN": _local_response,
}


def attention(node: Node) -> Run:
    heads, causal = node.attrs["heads"], node.attrs["causal"]
    scale, p = node.attrs["scale"], node.attrs["p"]

    def run(call: Call) -> Any:
        query, key, value = call.inputs[:3]
        mask = call.inputs[3] if len(call.inputs) > 3 else None
        split = heads is not None and query.dim() == 3
        if split:
            query, key, value = (
                x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value)
            )
            if mask is not None and mask.dim() == 3:
                mask = mask.unsqueeze(1)
        if causal and mask is not None:
            mask = _and_causal(mask, query.shape[-2], key.shape[-2])
        shared = query.dim() >= 4 and query.shape[-3] != key.shape[-3]
        mixed = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            mask,
            p if call.training else 0.0,
            causal and mask is None,
            scale=scale,
            **({"enable_gqa": True} if shared else {}),
        )
        return mixed.transpose(1, 2).flatten(2) if split else mixed

    return run


def _and_causal(mask: Any, queries: Any, keys: Any) -> Any:
    """torch takes a mask or the causal one, not both."""
    before = torch.ones(queries, keys, dtype=torch.bool, device=mask.device).tril()
    if mask.dtype == torch.bool:
        return mask & before
    return mask.masked_fill(~before, -torch.inf)


def one_dtype(run: Run) -> Run:
    """Start states in the dtype of the sequence: those made in forward have that of the export."""

    def converted(call: Call) -> Any:
        x, *states = call.inputs
        return run(replace(call, inputs=[x, *(state.to(x.dtype) for state in states)]))

    return converted


def recurrent(node: Node) -> Run:
    attrs = node.attrs
    ends = [
        f"l{layer}{end}"
        for layer in range(attrs["layers"])
        for end in (("", "_reverse") if attrs["bidirectional"] else ("",))
    ]
    ways = 2 if attrs["bidirectional"] else 1
    states = 2 if node.variant == "LSTM" else 1
    first, depth, hidden = attrs["batch_first"], attrs["layers"] * ways, attrs["hidden"]
    aten = torch.ops.aten
    function = aten.lstm.input if node.variant == "LSTM" else aten.gru.input

    def run(call: Call) -> Any:
        x, *given = call.inputs
        counts = given.pop() != 0 if attrs["masked"] else None
        while len(given) < states:
            given.append(x.new_zeros(depth, x.shape[0 if first else 1], hidden))
        weights = [each for end in ends for each in _recurrent_weights(node, call, end)]
        if counts is not None:
            return _masked_steps(node, x, given, weights, counts)
        return function(
            x,
            given if states == 2 else given[0],
            weights,
            attrs["bias"],
            attrs["layers"],
            attrs["p"],
            call.training,
            attrs["bidirectional"],
            first,
        )

    return run


def _recurrent_weights(node: Node, call: Call, end: str) -> list[Any]:
    """The tensors of one layer one way, as torch takes them."""
    names = ["weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if node.attrs["bias"] else ())]
    if node.attrs["layout"] == "torch":
        return [call.params[f"{name}_{end}"] for name in names]
    order = GATES[str(node.variant)]
    found = []
    for name in names[:3]:
        gates = call.params[f"{name}_{end}"].chunk(len(order), -1)
        found.append(torch.cat([gates[place] for place in order], -1))
    biases = found[2:]
    if biases:
        gru = node.variant == "GRU"
        biases = list(biases[0].unbind()) if gru else [biases[0], torch.zeros_like(biases[0])]
    return [found[0].t(), found[1].t(), *biases]


def _masked_steps(
    node: Node, x: Any, start: Sequence[Any], weights: Sequence[Any], counts: Any
) -> Any:
    """Step by step: one that does not count leaves the states as they are."""
    attrs, lstm = node.attrs, node.variant == "LSTM"
    ways, each = 2 if attrs["bidirectional"] else 1, 4 if attrs["bias"] else 2
    cell = torch.lstm_cell if lstm else torch.gru_cell
    if attrs["batch_first"]:
        x, counts = x.transpose(0, 1), counts.transpose(0, 1)
    ends: list[list[Any]] = [[] for _ in start]
    for layer in range(attrs["layers"]):
        outputs = []
        for way in range(ways):
            place = layer * ways + way
            own = weights[place * each : (place + 1) * each]
            states = [state[place] for state in start]
            steps = list(zip(x.unbind(), counts.unbind(), strict=True))
            results = []
            for values, kept in reversed(steps) if way else steps:
                made = cell(values, states if lstm else states[0], *own)
                pairs = zip(made if lstm else (made,), states, strict=True)
                states = [torch.where(kept.unsqueeze(-1), a, b) for a, b in pairs]
                results.append(states[0])
            outputs.append(torch.stack(results[::-1] if way else results))
            for end, state in zip(ends, states, strict=True):
                end.append(state)
        x = torch.cat(outputs, -1)
    return (x.transpose(0, 1) if attrs["batch_first"] else x, *(torch.stack(e) for e in ends))


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
