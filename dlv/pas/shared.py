"""Reading several matrices: what their chains share is decoded once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dlv.errors import StorageError
from dlv.pas.links import Link, Lookup, chain, check_chain, link_of
from dlv.pas.pieces import ChunkSource, Raw
from dlv.pas.read import ALL, Builder, check_hash
from dlv.pas.segments import raw_of


@dataclass
class _Node:
    """A matrix that is wanted, or that a wanted one is a delta against."""

    link: Link
    wanted: bool = False
    below: list[_Node] = field(default_factory=list)
    size: int = 1  # nodes from here on
    scales: set[str] = field(default_factory=set)  # whose exponents are needed further on


def read_matrices(
    matrices: Iterable[str], lookup: Lookup, source: ChunkSource
) -> Iterator[tuple[str, Raw]]:
    """Each matrix by name with its bytes, checked; in an order that decodes shared bases once.

    The buffers are the caller's. At most 1 + log2 of the number of matrices on the chains are
    held besides: of those that depend on one matrix, the largest family comes last, in place.
    """
    nodes: dict[str, _Node] = {}
    tops: list[_Node] = []
    for matrix in dict.fromkeys(matrices):
        encodings = chain(matrix, lookup)
        known: _Node | None = None
        for encoding in reversed(encodings):
            node = nodes.get(encoding.matrix)
            if node is None:
                node = nodes[encoding.matrix] = _Node(link_of(encoding, source, ALL))
                (tops if known is None else known.below).append(node)
            known = node
        check_chain([nodes[encoding.matrix].link for encoding in encodings])
        nodes[matrix].wanted = True
    for node in reversed(_from_the_top(tops)):
        for after in node.below:
            node.size += after.size
            node.scales |= after.scales
            delta, scale = after.link.delta, after.link.scale
            if scale is not None and delta is not None and scale != delta.base:
                node.scales.add(scale)
        node.below.sort(key=lambda one: one.size)
    # Each waits with what its base left; the last of a family takes it over.
    waiting: list[tuple[_Node, Builder | None, bool]] = [(top, None, True) for top in tops]
    while waiting:
        node, base, last = waiting.pop()
        builder = _after(node, base, source, last=last)
        if node.wanted:
            check_hash(node.link, builder.words)
            yield node.link.matrix, raw_of(builder.words)
        for index, after in enumerate(reversed(node.below)):
            waiting.append((after, builder, index == 0 and not node.wanted))


def _after(node: _Node, base: Builder | None, source: ChunkSource, *, last: bool) -> Builder:
    """The words of a node, from those of its base."""
    builder = Builder(source, node.scales)
    try:
        if base is not None:
            builder.link, builder.held = base.link, dict(base.held)
            builder.words = base.words if last else base.words.copy()
        builder.add(node.link, 0, node.link.count)
    except MemoryError as error:
        raise StorageError(
            f"matrix {node.link.matrix} does not fit into memory",
            why=f"it has {node.link.count * node.link.word} bytes",
        ) from error
    return builder


def _from_the_top(tops: list[_Node]) -> list[_Node]:
    """Every node after its base."""
    found = list(tops)
    for node in found:
        found.extend(node.below)
    return found
