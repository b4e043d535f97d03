"""Sets of nodes of one network, in Python: what they mean is what they mean in SQL.

A match keeps what selectors on its way captured as ($1). A node that is reached in several ways
has the captures of the first of the nodes, in topological order, from which it is reached.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from typing import Any

from dlv.dataclass import dataclass
from dlv.dql.bind.bound import Chosen
from dlv.metadata.networks import NodeFigures
from dlv.metadata.select.relations import (
    All,
    Condition,
    Hop,
    Named,
    Nodal,
    Nodes,
    NodeValue,
    Pick,
    Step,
    Value,
)
from dlv.metadata.select.truth import ElsewhereError, Layer, truth
from dlv.network.graph import Network, Node
from dlv.network.graph import plain as written
from dlv.network.patterns import attributes_of
from dlv.network.selector import searching
from dlv.weights.store import node_figures

Attribute = Callable[[str], Any]


def condition_holds(test: Condition, attribute: Attribute, layer: Callable[[], Layer]) -> bool:
    """Whether the node is so. A part that is about more than the node alone counts as fulfilled."""
    if isinstance(test, All):
        return all(condition_holds(part, attribute, layer) for part in test.parts)

    def leaf(value: Value) -> Any:
        if not isinstance(value, NodeValue):
            raise ElsewhereError
        return attribute(value.attribute)

    try:
        return truth(test, leaf, layer) is True
    except ElsewhereError:
        return True


@dataclass(frozen=True)
class Match:
    """A node that is meant. `captures`: number -> text."""

    name: str
    captures: Mapping[int, str] = field(default_factory=dict)


def nodes(network: Network, wanted: Nodes) -> list[Match]:
    """The nodes, in topological order."""
    return Layers(network).nodes(wanted)


def fulfils(network: Network, match: Match, test: Condition) -> bool:
    """Whether a node is as a condition asks; what is not about the node alone is no obstacle."""
    return Layers(network).fulfils(match.name, test)


@dataclass(frozen=True)
class _Reached:
    """A node on the way, and at which nodes of an earlier place of the way it began."""

    captures: Mapping[int, str]
    begun: frozenset[str]


_Place = dict[str, _Reached]  # in topological order


def _behind(neighbours: Mapping[str, Iterable[str]], name: str, *, closure: bool) -> Iterable[str]:
    """The neighbours of a node; with `closure` theirs, too, and so on."""
    if not closure:
        return neighbours.get(name, ())
    found: dict[str, None] = {}
    waiting = [name]
    while waiting:
        for other in neighbours.get(waiting.pop(), ()):
            if other not in found:
                found[other] = None
                waiting.append(other)
    return found


class Layers:
    """The nodes of a network: their order, names and neighbours, found once."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def nodes(self, wanted: Nodes, chosen: Sequence[Chosen] = ()) -> list[Match]:
        """The nodes; of those of which `chosen` asks something, only the ones that fulfil it."""
        place = self._start(wanted.start)
        place = self._kept(place, wanted, 0, chosen)
        for count, step in enumerate(wanted.steps, 1):
            place = self._step(place, step)
            place = self._kept(place, wanted, count, chosen)
        return [Match(name, reached.captures) for name, reached in place.items()]

    def fulfils(self, name: str, test: Condition) -> bool:
        return condition_holds(test, partial(self.value, name), partial(self.as_layer, name))

    def edge(self, source: str, target: str) -> bool:
        """Whether one is read by the other, directly or past plumbing; also of an input."""
        return (source, target) in self._edges

    @cached_property
    def _edges(self) -> set[tuple[str, str]]:
        edges = (*self.network.logical_edges(), *self.network.edges())
        return {(edge.src, edge.dst) for edge in edges}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All names, in topological order; those on a cycle, or behind one, last."""
        rest = dict.fromkeys(node.name for node in self.network.sorted_part)
        rest.update(dict.fromkeys(node.name for node in self.network.nodes))
        return tuple(rest)

    @cached_property
    def aliases(self) -> dict[str, str]:
        return self.network.node_aliases()

    # Walking

    def _start(self, start: Nodal) -> _Place:
        found = self._fitting(start)
        return {
            name: _Reached(found[name], frozenset([name])) for name in self.order if name in found
        }

    def _step(self, place: _Place, step: Step) -> _Place:
        if isinstance(step, Pick):
            names = list(place)
            try:
                name = names[step.place]
            except IndexError:
                return {}
            return {name: place[name]}
        if not isinstance(step, Hop):
            found = self._fitting(step)
            return {
                name: _Reached({**reached.captures, **found[name]}, reached.begun)
                for name, reached in place.items()
                if name in found
            }
        neighbours = self._neighbours(step)
        ways: dict[str, list[_Reached]] = {}
        for name, reached in place.items():
            for other in _behind(neighbours, name, closure=step.closure):
                ways.setdefault(other, []).append(reached)
        return {
            name: _Reached(
                ways[name][0].captures, frozenset().union(*(w.begun for w in ways[name]))
            )
            for name in self.order
            if name in ways
        }

    def _kept(self, place: _Place, wanted: Nodes, done: int, chosen: Sequence[Chosen]) -> _Place:
        """The nodes of this place from which those that a test asks for are reached.

        Each test is applied where the ways of the two sets of nodes part.
        """
        for each in chosen:
            other = each.nodes
            if (other.variable, other.start) != (wanted.variable, wanted.start):
                continue
            if _shared(wanted.steps, other.steps) != done:
                continue
            there = {name: _Reached({}, frozenset([name])) for name in place}
            for step in other.steps[done:]:
                there = self._step(there, step)
            meant = {
                begun
                for name, reached in there.items()
                if self.fulfils(name, each.test)
                for begun in reached.begun
            }
            place = {name: reached for name, reached in place.items() if name in meant}
        return place

    def _neighbours(self, hop: Hop) -> Mapping[str, Iterable[str]]:
        edges = self._raw if hop.raw else self._logical
        return edges[0] if hop.forward else edges[1]

    @cached_property
    def _logical(self) -> tuple[dict[str, dict[str, None]], dict[str, dict[str, None]]]:
        behind, before = self._both((e.src, e.dst) for e in self.network.logical_edges())
        for node in self.network.nodes:
            if node.plumbing:
                _, source = self._way_back(node.inputs[0][0] if node.inputs else "")
                if source is not None:
                    before.setdefault(node.name, {})[source] = None
                continue
            for name, _ in node.inputs:
                for passed in self._way_back(name)[0]:
                    behind.setdefault(passed, {})[node.name] = None
        return behind, before

    def _way_back(self, name: str) -> tuple[list[str], str | None]:
        """Against the data: the plumbing from here on, and the layer in front of it.

        Numbers about shapes end the way; so does an input of the network.
        """
        passed: dict[str, None] = {}
        while name in self.network and name not in passed:
            node = self._node(name)
            if not node.plumbing:
                return list(passed), name
            passed[name] = None
            if node.sizes_only or not node.inputs:
                break
            name = node.inputs[0][0]
        return list(passed), None

    @cached_property
    def _raw(self) -> tuple[dict[str, dict[str, None]], dict[str, dict[str, None]]]:
        return self._both((edge.src, edge.dst) for edge in self.network.edges())

    def _both(
        self, pairs: Iterable[tuple[str, str]]
    ) -> tuple[dict[str, dict[str, None]], dict[str, dict[str, None]]]:
        """Who is behind a node, and who before it; inputs and constants are no nodes."""
        behind: dict[str, dict[str, None]] = {}
        before: dict[str, dict[str, None]] = {}
        for source, target in pairs:
            if source in self.network:
                behind.setdefault(source, {})[target] = None
                before.setdefault(target, {})[source] = None
        return behind, before

    # What a node is

    def _fitting(self, wanted: Nodal) -> dict[str, dict[int, str]]:
        """Name -> what was captured, of all nodes of the network that fit."""
        if not isinstance(wanted, Named):
            patterns = wanted.patterns
            return {name: {} for name in self.order if self._fits(name, patterns)}
        found = {name: caught(wanted.pattern, name) for name in self.order}
        if all(captures is None for captures in found.values()):
            found = {name: caught(wanted.pattern, alias) for name, alias in self.aliases.items()}
        only = None if wanted.captured is None else dict(wanted.captured)
        return {
            name: captures
            for name, captures in found.items()
            if captures is not None and only in (None, captures)
        }

    def _fits(self, name: str, patterns: Iterable[Any]) -> bool:
        layer = self.as_layer(name)
        return any(pattern.fits(*layer) for pattern in patterns)

    def as_layer(self, name: str) -> tuple[str, str | None, str, Mapping[str, Any]]:
        """What patterns look at."""
        node = self._node(name)
        return node.op, node.variant, name, self._attrs(node)

    def _node(self, name: str) -> Node:
        return self.network.node(name)

    def _attrs(self, node: Node) -> Mapping[str, Any]:
        return {key: written(value) for key, value in attributes_of(node).items()}

    def value(self, name: str, attribute: str) -> Any:
        """An attribute of a node; None if it has none of that name."""
        node = self._node(name)
        if attribute == "out_shape":
            return None if name not in self._figures else self._figures[name].out_shape
        if attribute == "n_params":
            return self._figures[name].parameters if name in self._figures else 0
        if attribute == "alias":
            return self.aliases.get(name)
        if attribute in ("name", "op", "variant"):
            return getattr(node, attribute)
        return written(node.attrs.get(attribute))

    @cached_property
    def _figures(self) -> Mapping[str, NodeFigures]:
        return node_figures(self.network)


def caught(pattern: Any, text: str) -> dict[int, str] | None:
    """What is captured of a name that fits; None if it does not."""
    if not isinstance(pattern, re.Pattern):
        found: dict[int, str] | None = pattern.match(text)
        return found
    hit = searching(pattern)(text)
    return None if hit is None else dict(enumerate((each or "" for each in hit.groups()), 1))


def _shared(first: Sequence[Step], second: Sequence[Step]) -> int:
    """How many steps two ways have in common."""
    count = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        count += 1
    return count
