"""Operations outside the vocabulary: by the dialect that they are recorded in."""

from __future__ import annotations

from collections.abc import Sequence

from dlv.adapters.onnx_graph import Graph, Item
from dlv.adapters.onnx_write_aten import aten
from dlv.adapters.onnx_write_source import dialect
from dlv.errors import UsageError
from dlv.network.graph import Node


def raw(g: Graph, node: Node, inputs: Sequence[Item]) -> Item | Sequence[Item]:
    found = dialect(node)
    if found == "aten":
        return aten(g, node, inputs)
    raise UsageError(f"{found} not exported")
