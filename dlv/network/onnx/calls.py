"""The operators of ONNX that dlv runs itself, by name."""

from __future__ import annotations

from collections.abc import Mapping

from dlv.network.aten.precision import Function
from dlv.network.onnx.attention import ATTENTION
from dlv.network.onnx.layers import LAYERS
from dlv.network.onnx.moving import MOVING
from dlv.network.onnx.pointwise import POINTWISE
from dlv.network.onnx.quantized import QUANTIZED
from dlv.network.onnx.recurrent import RECURRENT
from dlv.network.onnx.reducing import REDUCING

FUNCTIONS: Mapping[str, Function] = {
    **POINTWISE,
    **REDUCING,
    **MOVING,
    **LAYERS,
    **ATTENTION,
    **QUANTIZED,
    **RECURRENT,
}
