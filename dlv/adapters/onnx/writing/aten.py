"""Calls of aten operations beyond the vocabulary, as torch.export records them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from dlv.adapters.onnx.graph import Graph, Item
from dlv.adapters.onnx.recorded import Rule, arguments
from dlv.adapters.onnx.writing.aten_acts import ACTS
from dlv.adapters.onnx.writing.aten_images import IMAGES
from dlv.adapters.onnx.writing.aten_make import MADE
from dlv.adapters.onnx.writing.aten_math import MATH
from dlv.adapters.onnx.writing.aten_nn import LAYERS
from dlv.adapters.onnx.writing.aten_reduce import REDUCTIONS
from dlv.adapters.onnx.writing.aten_shape import SHAPES
from dlv.errors import UsageError, nearest
from dlv.network.graph import Node

# By operation, or operation and overload where those differ in more than their arguments.
RULES: dict[str, Rule] = {**MATH, **REDUCTIONS, **SHAPES, **MADE, **LAYERS, **IMAGES, **ACTS}


def aten(g: Graph, node: Node, inputs: Sequence[Item]) -> Item | Sequence[Item]:
    """What the recorded call gives, in inference."""
    name = str((node.source or {}).get("op"))
    base, _, overload = name.removeprefix("aten.").partition(".")
    rule = RULES.get(f"{base}.{overload}") or RULES.get(base)
    if rule is None:
        raise _unknown(name, base)
    args, kwargs = arguments(g, node, inputs)
    try:
        inspect.signature(rule).bind(g, *args, **kwargs)
    except TypeError as error:
        raise UsageError(
            f"{name} cannot be exported with these arguments", why=str(error)
        ) from None
    return rule(g, *args, **kwargs)


def _unknown(name: str, base: str) -> UsageError:
    if base.endswith("_") and not base.startswith("_") and base[:-1] in RULES:
        return UsageError(
            f"{name} changes a tensor in place, which ONNX cannot say",
            hint=f"write it as x = x.{base[:-1]}(..) and import the module again",
        )
    near = nearest(base, [rule.partition(".")[0] for rule in RULES])
    return UsageError(
        f"{name} has no counterpart in dlv's ONNX export",
        hint="torch.onnx.export may have one: export a .pt of the version and call it,"
        " or replace the operation",
        did_you_mean=[f"aten.{word}" for word in near],
    )
