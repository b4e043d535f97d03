"""Which class speaks for which operation."""

from __future__ import annotations

from collections.abc import Mapping

from dlv.network.graph import Node
from dlv.network.ops.activation import Act, Dropout, Loss, Placeholder, Raw, Relu, Softmax
from dlv.network.ops.attention import Attention
from dlv.network.ops.combine import Add, Concat, Mul
from dlv.network.ops.conv import Conv, Deconv
from dlv.network.ops.dense import Embed, Full
from dlv.network.ops.layer import Layer
from dlv.network.ops.norm import Norm
from dlv.network.ops.pool import Pool
from dlv.network.ops.recurrent import Recurrent
from dlv.network.ops.shape import Reshape

_CLASSES: tuple[type[Layer], ...] = (
    Placeholder, Loss, Conv, Deconv, Full, Embed, Pool, Norm, Relu, Act, Softmax, Concat,
    Dropout, Add, Mul, Attention, Recurrent, Reshape, Raw,
)  # fmt: skip
LAYERS: Mapping[str, Layer] = {each.op: each() for each in _CLASSES}


def layer_of(node: Node) -> Layer:
    """The layer of a node's operation."""
    return LAYERS[node.op]
