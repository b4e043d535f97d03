"""Shapes of what ONNX operators give that no rule speaks of, where the file does not say them."""

from __future__ import annotations

from collections.abc import Sequence

from dlv.network.sizes import MAX_RANK, Shape, ShapeError, broadcast

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
    """Of the first output; None: not worked out."""
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
