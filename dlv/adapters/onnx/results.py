"""Types and shapes of the outputs of an ONNX operator, from its schema and its inputs.

Types are dtypes, or `raw:seq(..)` and `raw:optional(..)` of them: ONNX's own words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlv.adapters.onnx.model import read_value
from dlv.adapters.onnx.operators import Form
from dlv.adapters.onnx.tensors import dtype_named
from dlv.adapters.protobuf.reader import Schema, Span
from dlv.errors import DlvError
from dlv.network.sizes import MAX_RANK, Shape, ShapeError, broadcast

Type = str | None
_BODY = Schema("GraphProto", {12: "output message*"})


def result_types(
    kind: str,
    known_form: Form | None,
    attrs: Mapping[str, Any],
    inputs: Sequence[Type],
    count: int,
    bodies: Sequence[Type] = (),
) -> list[Type]:
    """A type for each output, None where nothing tells it.

    `attrs` hold numbers and texts as they are, and for tensors something with a `dtype`;
    `bodies`: what the graphs of an If, Loop or Scan give.
    """
    if kind in ("If", "Loop", "Scan", "SequenceMap"):
        return list(bodies) if len(bodies) == count else [None] * count
    if known_form is None:
        return [None] * count
    words = known_form.results[:count]
    words += words[-1:] * (count - len(words))  # as many as there are, all of one kind
    made = [_type(word, attrs, inputs) for word in words]
    if made and made[0] is None:
        made[0] = _special(kind, attrs, inputs)
    return made


def body_types(kind: str, body: Span) -> list[Type]:
    """What the graph of an If, Loop or Scan gives to the outside."""
    if kind not in ("If", "Loop", "Scan", "SequenceMap"):
        return []
    try:
        given = [read_value(part)[1] for part in _BODY.read(body)["output"]]
    except DlvError:  # a type without a rule: leave it undeclared
        return []
    types = [None if value is None else value.dtype for value in given]
    if kind == "SequenceMap":
        return [None if each is None else f"raw:seq({each.removeprefix('raw:')})" for each in types]
    return types[1:] if kind == "Loop" else types  # whether it goes on is its own affair


def _type(words: str, attrs: Mapping[str, Any], inputs: Sequence[Type]) -> Type:
    for word in words.split("|"):
        told: Type = word
        if word.startswith("@"):
            number = attrs.get(word[1:])
            told = dtype_named(number) if type(number) is int and number else None
        elif word.startswith("="):
            told = _type_at(inputs, int(word[1:]))
        elif word == "?":
            told = None
        elif "(" in word:
            told = f"raw:{word}"
        if told is not None:
            return told
    return None


def _type_at(inputs: Sequence[Type], place: int) -> Type:
    return inputs[place] if place < len(inputs) else None


def _special(kind: str, attrs: Mapping[str, Any], inputs: Sequence[Type]) -> Type:
    """What no schema says: types within types, and values of attributes."""
    first = _type_at(inputs, 0)
    if kind in ("Constant", "ConstantOfShape"):
        return _of_value(kind, attrs)
    if kind == "QuantizeLinear":
        return "uint8"
    if kind == "DequantizeLinear":
        return _type_at(inputs, 1)
    if kind == "SequenceEmpty":
        return "raw:seq(float32)"
    if first is None:
        return "raw:STRING" if attrs.get("classlabels_strings") else None
    if kind in ("SplitToSequence", "SequenceConstruct"):
        return f"raw:seq({first.removeprefix('raw:')})"
    if kind in ("SequenceAt", "ConcatFromSequence"):
        return inner(first, "seq")
    if kind == "Optional":
        return f"raw:optional({first.removeprefix('raw:')})"
    if kind == "OptionalGetElement":
        return inner(first, "optional") or first
    if kind.endswith("Classifier"):
        return "raw:STRING" if attrs.get("classlabels_strings") else "int64"
    return None


def _of_value(kind: str, attrs: Mapping[str, Any]) -> Type:
    value = attrs.get("value")
    if value is not None:
        return getattr(value, "dtype", None)
    if kind == "ConstantOfShape" or any(name.startswith("value_float") for name in attrs):
        return "float32"
    if any(name.startswith("value_int") for name in attrs):
        return "int64"
    return "raw:STRING" if any(name.startswith("value_string") for name in attrs) else None


def inner(type_: str, around: str) -> Type:
    """What a sequence or an optional is of."""
    start = f"raw:{around}("
    if not type_.startswith(start):
        return None
    found = type_[len(start) : -1]
    return f"raw:{found}" if "(" in found or found.isupper() else found


# Shapes, where neither the file nor a rule tells them

_SAME = (
    "Acosh Asinh Atanh BatchNormalization Bernoulli BitwiseNot Cast CastLike Celu Clip CumProd"
    " CumSum DequantizeLinear Dropout Elu Erf Exp EyeLike Gelu GroupNormalization HardSigmoid"
    " HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LRN LayerNormalization LeakyRelu"
    " LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg Not PRelu QuantizeLinear"
    " RMSNormalization RandomNormalLike RandomUniformLike Relu ReverseSequence RotaryEmbedding"
    " Round Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sign Softmax Softplus Softsign"
    " Swish Tanh TensorScatter ThresholdedRelu Trilu"
)
_TOGETHER = (
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less"
    " LessOrEqual Max Mean Min Mod Mul Or Pow StringConcat Sub Sum Where Xor"
)
# As many axes as the first input, of lengths that take working out.
_RANKS = (
    "AveragePool Concat Conv ConvInteger ConvTranspose DepthToSpace GlobalAveragePool"
    " GlobalLpPool GlobalMaxPool LpPool MaxPool MaxUnpool Pad QLinearConv Resize SpaceToDepth Tile"
    " TopK Upsample"
)
_FIXED: dict[str, Shape] = {
    "Size": (),
    "SequenceLength": (),
    "OptionalHasElement": (),
    "Range": (None,),
    "Shape": (None,),
    "NonZero": (None, None),
    "NonMaxSuppression": (None, 3),
    "HannWindow": (None,),
    "HammingWindow": (None,),
    "BlackmanWindow": (None,),
    "MelWeightMatrix": (None, None),
}


_HOW = {
    **dict.fromkeys(_SAME.split(), "same"),
    **dict.fromkeys(_TOGETHER.split(), "together"),
    **dict.fromkeys(_RANKS.split(), "rank"),
}


def result_shape(kind: str, inputs: Sequence[Shape | None]) -> Shape | None:
    """The shape of the first output; None: not worked out."""
    if kind in _FIXED:
        return _FIXED[kind]
    first, how = inputs[0] if inputs else None, _HOW.get(kind)
    if how == "same":
        return first
    if how == "rank":
        return None if first is None else (None,) * len(first)
    if kind in ("Reshape", "Expand"):
        return _listed(kind, first, inputs[1] if len(inputs) > 1 else None)
    if how != "together" or not inputs or None in inputs:
        return None
    try:
        return broadcast([shape for shape in inputs if shape is not None])
    except ShapeError:
        return None


def _listed(kind: str, first: Shape | None, lengths: Shape | None) -> Shape | None:
    """As many axes as there are lengths in a list."""
    if lengths is None or len(lengths) != 1 or not isinstance(lengths[0], int):
        return None
    if kind == "Expand" and first is None:
        return None
    axes = max(lengths[0], len(first or ()) if kind == "Expand" else 0)
    return (None,) * axes if axes <= MAX_RANK else None
