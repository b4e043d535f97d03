"""Whether tables of bounds have the sizes of the network that they are held against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from dlv.dataclass import dataclass
from dlv.network.program import Program, Step
from dlv.network.suffix.record import Suffix, SuffixNode

Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Sizes:
    """Of the weight of a linear step: its rows, what it takes in, and places of its kernel."""

    rows: int
    channels: int
    taps: int


def sizes_of(step: Step, shape: Sequence[int]) -> Sizes:
    """As told by the shape in which the weight is stored."""
    attrs, op = step.node.attrs, step.node.op
    if op == "EMBED":
        return Sizes(shape[0], shape[1], 1)
    layout = attrs["layout"]
    if op == "FULL":
        return Sizes(attrs["out"], shape[1] if layout == "out_in" else shape[0], 1)
    taps = prod(attrs["kernel"])
    if layout == "depthwise":
        return Sizes(attrs["out"], attrs["groups"], taps)
    depth = shape[1] if layout == "kernel_last" else shape[-2]
    return Sizes(attrs["out"], depth * attrs["groups"], taps)


def misfits(
    program: Program, shapes: Shapes, rows: Mapping[str, int], suffix: Suffix | None
) -> Iterator[str]:
    """What is of another size than the network's weights, which have these shapes.

    `rows`: how many norms of rows are told of linear nodes.
    """
    aliases = program.network.aliases
    known: dict[str, Sizes] = {}
    for step in program.linear:
        name = step.node.params["weight"]
        sizes = sizes_of(step, shapes[aliases.get(name, name)])
        known[step.result] = sizes
        told = rows.get(step.node.name, sizes.rows)
        if told != sizes.rows:
            yield f"`{step.node.name}` has {sizes.rows} rows, norms are told of {told}"
    if suffix is None:
        return
    results = {step.result for step in program.steps}
    last = known.get(program.scores[0])
    if last is not None and len(suffix.pairs) != last.rows:
        yield f"its table of pairs is of {len(suffix.pairs)} classes, there are {last.rows}"
    for result, node in suffix.nodes.items():
        if result not in results:
            yield f"the network has no node `{result}`"
        elif node.a is not None:
            yield from _misfits_of(result, node, known.get(result))


def _misfits_of(result: str, node: SuffixNode, sizes: Sizes | None) -> Iterator[str]:
    if sizes is None:
        yield f"`{result}` has no weight, but numbers of its channels"
        return
    channels = len(node.scale)
    if channels != sizes.channels:
        yield f"`{result}` takes in {sizes.channels} channels, numbers are told of {channels}"
        return
    for level in node.levels:
        if level.correction is None:
            continue
        wanted, told = sizes.rows * sizes.taps, len(level.correction.floats)
        if told != wanted:
            yield f"`{result}` has {wanted} rows and places, a correction is of {told}"
