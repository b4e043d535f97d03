"""Which class speaks for which operation."""

from __future__ import annotations

from collections.abc import Mapping

from dlv.network.graph import Node
from dlv.network.layers.activation import Act, Dropout, Loss, Placeholder, Raw, Relu, Softmax
from dlv.network.layers.attention import Attention
from dlv.network.layers.combine import Add, Concat, Mul
from dlv.network.layers.conv import Conv, Deconv
from dlv.network.layers.dense import Embed, Full
from dlv.network.layers.layer import Layer
from dlv.network.layers.norm import Norm
from dlv.network.layers.pool import Pool
from dlv.network.layers.recurrent import Recurrent
from dlv.network.layers.shape import Reshape

_CLASSES: tuple[type[Layer], ...] = (
    Placeholder, Loss, Conv, Deconv, Full, Embed, Pool, Norm, Relu, Act, Softmax, Concat,
    Dropout, Add, Mul, Attention, Recurrent, Reshape, Raw,
)  # fmt: skip
LAYERS: Mapping[str, Layer] = {each.op: each() for each in _CLASSES}


def layer_of(node: Node) -> Layer:
    """The layer of a node's operation."""
    return LAYERS[node.op]
