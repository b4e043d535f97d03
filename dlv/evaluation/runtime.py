"""What onnxruntime must not be asked to compute, and its outputs of narrow floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import dlv.weights.arrays as arrays
from dlv.errors import UsageError
from dlv.kinds import Array
from dlv.network.graph import Network, Node

_RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial")
)
# What it gives for floats that Python's arrays have no type for: their bits.
_NARROW = {
    "tensor(bfloat16)": "bfloat16",
    "tensor(float8e4m3fn)": "float8_e4m3",
    "tensor(float8e4m3fnuz)": "float8_e4m3fnuz",
    "tensor(float8e5m2)": "float8_e5m2",
    "tensor(float8e5m2fnuz)": "float8_e5m2fnuz",
}


def widened(outputs: list[Array], types: list[str]) -> list[Array]:
    """Floats of 8 bits, and bfloat16, as the numbers that they are."""
    return [
        arrays.to_array(_NARROW[type_], x.shape, x.tobytes())
        if type_ in _NARROW and x.dtype.kind == "u"
        else x
        for x, type_ in zip(outputs, types, strict=True)
    ]


def check(network: Network, constant: Callable[[str], Array]) -> None:
    """UsageError for what two runs answer in two ways, or onnxruntime otherwise than ONNX says."""
    for node in network.nodes:
        source = node.source or {}
        if node.op != "OP" or source.get("dialect") != "onnx":
            continue
        why = _doubt(node, source, network, constant)
        if why is not None:
            raise UsageError(
                f"onnxruntime is not asked to run {source.get('op')} `{node.name}`",
                why=why,
                hint="dlv export writes the network as ONNX, for a runtime of yours",
            )


def _doubt(
    node: Node, source: Mapping[str, Any], network: Network, constant: Callable[[str], Array]
) -> str | None:
    kind, args, kwargs = source.get("op"), source.get("args", []), source.get("kwargs", {})
    if kind in _RANDOM or kind == "Bernoulli":
        return "it draws random numbers: every run gives another answer"
    if kind == "CastLike":
        return "it takes over the dtype of a tensor, and here all floats are of one dtype"
    if kind == "Dropout" and _given(args, 2):
        return "it drops at random, as in training"
    if kind == "BatchNormalization" and _value(kwargs, "training_mode"):
        return "it is in training: it normalises by the batch"
    if kind == "MaxUnpool" and _given(args, 2):
        return "onnxruntime reads the places of the maxima by another shape than ONNX says"
    if kind == "Attention" and source.get("outputs", 1) > 3 and _value(kwargs, "is_causal"):
        return "onnxruntime masks the products that it gives with other numbers than ONNX says"
    if kind == "Resize" and _value(kwargs, "coordinate_transformation_mode") == "align_corners":
        name = _constant(node, args, network)
        if not _given(args, 3) and (name is None or np.any(np.mod(constant(name), 1))):
            return "onnxruntime rounds lengths before it aligns corners; ONNX does not"
    return None


def _given(args: list[Any], place: int) -> bool:
    return place < len(args) and args[place] != {"c": None}


def _value(kwargs: Mapping[str, Any], name: str) -> Any:
    found = kwargs.get(name)
    return found.get("c") if isinstance(found, Mapping) else None


def _constant(node: Node, args: list[Any], network: Network) -> str | None:
    """The constant that holds the factors of a Resize."""
    told = args[2] if len(args) > 2 else None
    place = told.get("n") if isinstance(told, Mapping) else None
    name = node.inputs[place][0] if type(place) is int and place < len(node.inputs) else None
    return name if name in network.constants else None
