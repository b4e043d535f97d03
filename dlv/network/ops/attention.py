"""ATTENTION: softmax of scaled query-key products, applied to the values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlv.kinds import Array
from dlv.network.fields import Kind
from dlv.network.ops.axes import Axes, PortAxes
from dlv.network.ops.op import Attribute, Node, NoRule, Op, Run, Shapes
from dlv.network.sizes import Dim, Shape, ShapeError, broadcast, elements, same, text

if TYPE_CHECKING:
    from dlv.network.bounds.ball import Ball, BallRun


class Attention(Op):
    name = "ATTENTION"
    inputs = (3, 4)
    attributes = (
        Attribute("heads", Kind.INT, None, nullable=True, minimum=1),
        Attribute("causal", Kind.BOOL, False),
        Attribute("scale", Kind.FLOAT, None, nullable=True),
        Attribute("p", Kind.FLOAT, 0.0, minimum=0, maximum=1),  # dropout of the shares
    )

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        query, key, value = inputs[:3]
        for item in (query, key, value):
            if item is not None and len(item) < 2:
                raise ShapeError(
                    "attention takes at least 2 axes", seen=text(item), wanted="2 axes"
                )
        if query is not None and key is not None:
            self._same(query[-1], key[-1], query, key, "query and key have other widths")
        if key is not None and value is not None:
            self._same(key[-2], value[-2], key, value, "keys and values have other lengths")
        if query is None or value is None:
            return (None,)
        heads = node.attrs["heads"]
        if heads is not None and len(query) == 3:
            for width in (query[-1], value[-1]):
                if isinstance(width, int) and width % heads:
                    raise ShapeError(
                        f"{heads} heads do not divide the width",
                        seen=text(query),
                        wanted=f"a multiple of {heads}",
                    )
        return ((*self._leading(query, key, value), query[-2], value[-1]),)

    @staticmethod
    def _leading(query: Shape, key: Shape | None, value: Shape) -> Shape:
        """Batch and head axes; grouped queries share keys, so their heads may be a multiple."""
        if len(query) >= 4 and len(value) == len(query):
            ours, theirs = query[-3], value[-3]
            if isinstance(ours, int) and isinstance(theirs, int) and theirs and ours % theirs == 0:
                return (*broadcast([query[:-3], value[:-3]]), ours)
        return broadcast([item[:-2] for item in (query, key, value) if item is not None])

    @staticmethod
    def _same(a: Dim, b: Dim, first: Shape, second: Shape, message: str) -> None:
        if not same(a, b):
            raise ShapeError(message, seen=f"{text(first)} and {text(second)}", wanted=str(a))

    def output_axes(self, node: Node, port: int, inputs: PortAxes, shape: Shape) -> Axes | None:
        query, value = (inputs[0], inputs[2]) if len(inputs) > 2 else (None, None)
        return None if query is None or value is None else (*query[:-1], value[-1])

    def flops(self, node: Node, inputs: Shapes, outputs: Shapes) -> int | None:
        query, key, mixed = inputs[0], inputs[1], elements(outputs[0])
        asked = elements(query)
        if asked is None or mixed is None or key is None or not isinstance(key[-2], int):
            return None
        # Every query meets every key, then the values are mixed with those weights.
        return 2 * (asked + mixed) * key[-2]

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        import dlv.network.ops.attending as attending

        how = attending.How(node.attrs["heads"], node.attrs["causal"], node.attrs["scale"])
        return (attending.values(how, run.inputs),)

    def bounds(self, node: Node, run: BallRun) -> tuple[Ball, ...]:
        mask = run.inputs[3] if len(run.inputs) > 3 else None
        if mask is not None and not mask.exact and mask.centre.dtype.kind == "b":
            raise NoRule(node, "which keys its mask leaves is not certain")
        import dlv.network.ops.attending as attending

        how = attending.How(node.attrs["heads"], node.attrs["causal"], node.attrs["scale"])
        return (attending.bounds(how, run.inputs, run.reference),)
