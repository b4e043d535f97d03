"""ATTENTION and RNN in torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dlv.network.graph import Node
from dlv.network.torch.types import Call, Run, functional, torch
from dlv.network.vocabulary import slots


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


def _and_causal(mask: Any, asked: Any, kept: Any) -> Any:
    """torch takes a mask or the causal one, not both."""
    before = torch.ones(asked, kept, dtype=torch.bool, device=mask.device).tril()
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
    order = [slot.name for slot in slots(node.op, node.variant, attrs)]
    order = [name for name in order if attrs["bias"] or not name.startswith("bias")]
    ways = 2 if attrs["bidirectional"] else 1
    states = 2 if node.variant == "LSTM" else 1
    first, depth, hidden = attrs["batch_first"], attrs["layers"] * ways, attrs["hidden"]
    aten = torch.ops.aten
    function = aten.lstm.input if node.variant == "LSTM" else aten.gru.input

    def run(call: Call) -> Any:
        x, *given = call.inputs
        while len(given) < states:
            given.append(x.new_zeros(depth, x.shape[0 if first else 1], hidden))
        return function(
            x,
            given if states == 2 else given[0],
            [call.params[name] for name in order],
            attrs["bias"],
            attrs["layers"],
            attrs["p"],
            call.training,
            attrs["bidirectional"],
            first,
        )

    return run
