"""NORM in torch: batch, layer, root mean square, group, instance, local response."""

from __future__ import annotations

from typing import Any

from dlv.network.graph import Node
from dlv.network.torch.types import Call, Run, functional, torch

COUNTER = "num_batches_tracked"


def norm(node: Node) -> Run:
    return _MAKERS[str(node.variant)](node)


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


_MAKERS = {
    "BATCH": _batch,
    "INSTANCE": _instance,
    "LAYER": _layer,
    "RMS": _root_mean_square,
    "GROUP": _group,
    "LRN": _local_response,
}
