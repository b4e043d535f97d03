"""Several matrices at once: what their chains of deltas share is decoded once.

The chains form trees. A tree is walked from its root, each matrix in the place of its base;
where it forks, a copy of the base serves all branches but the largest. One copy is kept at a
time, so memory stays at twice the largest matrix: a fork within such a branch is reached
again from the root.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from dlv.errors import StorageError
from dlv.kinds import Raw
from dlv.pas.deltas.links import Link, Lookup, chain, links_of
from dlv.pas.footer import Encoding
from dlv.pas.layouts.segments import raw_of
from dlv.pas.pieces import ChunkSource
from dlv.pas.read import ALL, Builder, check_hash, far_scales


def families(matrices: Iterable[str], lookup: Lookup) -> list[list[str]]:
    """Those matrices that share a root, together, in the order in which they were named."""
    found: dict[str, list[str]] = {}
    for matrix in dict.fromkeys(matrices):
        found.setdefault(chain(matrix, lookup)[-1].matrix, []).append(matrix)
    return list(found.values())


def read_together(
    matrices: Iterable[str], lookup: Lookup, source: ChunkSource
) -> Iterator[tuple[str, Raw]]:
    """Each of the matrices once, by name, bases before what rests on them.

    The bytes are checked against the name. They hold until the next ones are asked for.
    """
    tree = _Tree(matrices, lookup, source)
    while tree.waiting:
        yield from tree.walk(tree.waiting.popleft())


class _Tree:
    """The links of all chains; each stands upon its base."""

    def __init__(self, matrices: Iterable[str], lookup: Lookup, source: ChunkSource) -> None:
        self._source = source
        self._wanted = dict.fromkeys(matrices)
        self._links: dict[str, Link] = {}
        self._children: dict[str, list[str]] = {}
        self._keep: dict[str, set[str]] = {}  # whose exponents are needed above each matrix
        self.waiting: deque[str] = deque()  # where walks have to start
        chains = sorted((chain(matrix, lookup) for matrix in self._wanted), key=len, reverse=True)
        for encodings in chains:  # the longest first: most others are part of them
            self._load(encodings)
        self._sizes = self._weigh()

    def _load(self, encodings: Sequence[Encoding]) -> None:
        if encodings[0].matrix in self._links:
            return
        links = links_of(encodings, self._source, ALL)
        for link in links:
            if link.matrix in self._links:
                break
            self._links[link.matrix] = link
            self._children.setdefault(link.matrix, [])
            if link.delta is None:
                self.waiting.append(link.matrix)
            else:
                self._children.setdefault(link.delta.base, []).append(link.matrix)

    def _weigh(self) -> dict[str, int]:
        """How many bytes rest on each matrix, with its own."""
        order: list[str] = []
        rest = list(self.waiting)
        while rest:
            order.append(rest.pop())
            rest += self._children[order[-1]]
        sizes: dict[str, int] = {}
        for name in reversed(order):
            link, above = self._links[name], self._children[name]
            sizes[name] = link.count * link.word + sum(sizes[child] for child in above)
            self._keep[name] = far_scales([self._links[child] for child in above]).union(
                *(self._keep[child] for child in above)
            )
        return sizes

    def walk(self, start: str) -> Iterator[tuple[str, Raw]]:
        """From one matrix to what rests on it."""
        builder = Builder(self._source)
        path: list[Link] = []
        delta = self._links[start].delta
        while delta is not None:
            path.append(self._links[delta.base])
            delta = path[-1].delta
        for link in reversed(path):
            self._add(builder, link)
        yield from self._along(builder, start, fork=True)

    def _along(self, builder: Builder, start: str, *, fork: bool) -> Iterator[tuple[str, Raw]]:
        name: str | None = start
        while name is not None:
            link = self._links[name]
            self._add(builder, link)
            if name in self._wanted:
                check_hash(link, builder.words)
                yield name, raw_of(builder.words)
            others = self._by_size(name)
            name = others.pop() if others else None
            # Whoever got the last bytes may hold them still: no branch has memory of its own.
            copy = np.empty_like(builder.words) if fork and others else None
            for other in others:
                if copy is None:
                    self.waiting.append(other)
                    continue
                np.copyto(copy, builder.words)
                branch = Builder(self._source)
                branch.words, branch.link, branch.held = copy, link, {**builder.held}
                yield from self._along(branch, other, fork=False)

    def _by_size(self, name: str) -> list[str]:
        """What rests on a matrix, the largest branch last."""
        return sorted(self._children[name], key=lambda child: self._sizes[child])

    def _add(self, builder: Builder, link: Link) -> None:
        builder.keep = self._keep[link.matrix]
        try:
            builder.add(link, 0, link.count)
        except MemoryError as error:
            raise StorageError(
                f"matrix {link.matrix} does not fit into memory",
                why=f"it has {link.count * link.word} bytes",
            ) from error
