"""A repository as plain Python and networkx: what brute force looks at."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import networkx as nx

from dlv.metadata.networks import NodeFigures
from dlv.network.graph import Network, Node
from dlv.network.ops.shape import SIZE_KINDS

VISIBLE = ("live", "recovered")


@dataclass(frozen=True)
class Layer:
    """A node. What it lacks is None: plumbing has no alias."""

    name: str
    alias: str | None
    op: str
    variant: str | None
    attrs: Mapping[str, Any]
    out_shape: tuple[Any, ...] | None
    n_params: int
    raw: str | None = None  # what an operation outside the vocabulary is called where it is from

    def value(self, attribute: str) -> Any:
        if attribute in ("name", "alias", "op", "variant", "out_shape", "n_params"):
            return getattr(self, attribute)
        return self.attrs.get(attribute)


class Graph:
    """A network as two graphs of names: every edge, and those between layers past plumbing."""

    def __init__(self, network: Network, figures: Mapping[str, NodeFigures]) -> None:
        self.structure = network.structure
        nodes = {node.name: node for node in network.nodes}
        place = {name: position for position, name in enumerate(nodes)}
        self.raw = nx.DiGraph()
        self.raw.add_nodes_from(nodes)
        for node in network.nodes:
            self.raw.add_edges_from((name, node.name) for name, _ in node.inputs if name in nodes)
        order = list(nx.lexicographical_topological_sort(self.raw, place.__getitem__))
        self.logical = nx.DiGraph()
        self.logical.add_nodes_from(name for name in order if nodes[name].op != "RESHAPE")
        for name in self.logical.nodes:
            for producer, _ in nodes[name].inputs:
                source: str | None = producer
                while source in nodes and nodes[source].op == "RESHAPE":
                    below = nodes[source]
                    lost = below.attrs["kind"] in SIZE_KINDS or not below.inputs
                    source = None if lost else below.inputs[0][0]
                if source in nodes:
                    self.logical.add_edge(source, name)
        self.reshaped = self._at_plumbing(nodes)
        self.layers: dict[str, Layer] = {}
        count: dict[str, int] = {}
        for name in order:
            node, figure = nodes[name], figures.get(name)
            alias = None
            if node.op != "RESHAPE":
                count[node.op] = count.get(node.op, 0) + 1
                alias = f"{node.op.lower()}{count[node.op]}"
            shape = None if figure is None or figure.out_shape is None else (*figure.out_shape,)
            parameters = 0 if figure is None else figure.parameters
            self.layers[name] = Layer(
                *(name, alias, node.op, node.variant, node.attrs, shape, parameters),
                (node.source or {}).get("op") if node.op == "OP" else None,
            )

    def _at_plumbing(self, nodes: Mapping[str, Node]) -> nx.DiGraph:
        """Along the data, first inputs and no sizes: from each RESHAPE node, and to it."""

        def kept(source: str, target: str) -> bool:
            first = [name for name, _ in nodes[target].inputs][:1]
            return nodes[target].op != "RESHAPE" or source in first

        flow = nx.subgraph_view(self.raw, filter_edge=kept)
        found = nx.DiGraph()
        for name in (name for name, node in nodes.items() if node.op == "RESHAPE"):
            for forward in (True, False):
                step = flow.successors if forward else flow.predecessors
                todo, seen = [*step(name)], set()
                while todo:
                    other = todo.pop()
                    if nodes[other].op != "RESHAPE":
                        found.add_edge(*((name, other) if forward else (other, name)))
                    elif other not in seen and nodes[other].attrs["kind"] not in SIZE_KINDS:
                        seen.add(other)
                        todo += step(other)
        return found

    @property
    def n_params(self) -> int:
        return sum(layer.n_params for layer in self.layers.values())

    @property
    def depth(self) -> int:
        return int(nx.dag_longest_path_length(self.logical)) + 1 if self.logical else 0


@dataclass
class Series:
    """The points of a metric in the order in which they were written."""

    points: Sequence[tuple[int, float]]


@dataclass
class Version:
    id: str
    name: str
    number: int | None
    created: int  # microseconds since 1970
    author: str = "Ada <ada@example.org>"
    message: str = "made"
    framework: str | None = None
    dirty: bool | None = None
    state: str = "live"
    graph: Graph | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)
    results: Mapping[str, float] = field(default_factory=dict)  # of evaluations
    parents: Sequence[str] = ()
    tags: Sequence[str] = ()

    def figure(self, name: str, which: str) -> float | None:
        """last, min, max, last_step, min_step, max_step or n; None: not there."""
        points = self.series[name].points if name in self.series else ()
        numbers = [(value, step) for step, value in points if not math.isnan(value)]
        result = self.results.get(name)
        if not points and result is not None:
            return {"last": result, "min": result, "max": result, "n": 1}.get(which)
        if not points:
            return None
        if which == "n":
            return len(points)
        if which == "last":
            return points[-1][1]
        if which == "last_step":
            return points[-1][0]
        if not numbers:
            return math.nan if which in ("min", "max") else None
        least, most = min(value for value, _ in numbers), max(value for value, _ in numbers)
        wanted = least if which.startswith("min") else most
        if which in ("min", "max"):
            return wanted
        return next(step for value, step in numbers if value == wanted)

    def at(self, name: str, step: int) -> float | None:
        points = self.series[name].points if name in self.series else ()
        found = [value for where, value in points if where == step]
        return found[-1] if found else None


class Repository:
    """Versions, hidden ones too, and what follows from their parents."""

    def __init__(self, versions: Sequence[Version], saved: Mapping[str, str] | None = None) -> None:
        self.all = list(versions)
        self.saved = dict(saved or {})
        self.by_id = {version.id: version for version in versions}
        self.visible = [version for version in versions if version.state in VISIBLE]

    @cached_property
    def lineage(self) -> nx.DiGraph:
        """An edge from each version to what was made from it."""
        made = nx.DiGraph()
        made.add_nodes_from(self.by_id)
        made.add_edges_from(
            (parent, version.id)  # which may be of another repository
            for version in self.all
            for parent in version.parents
        )
        return made

    @cached_property
    def _up(self) -> dict[str, dict[str, int]]:
        found = dict(nx.all_pairs_shortest_path_length(self.lineage.reverse()))
        return {key: {k: n for k, n in each.items() if n > 0} for key, each in found.items()}

    def ancestors(self, version: str) -> Mapping[str, int]:
        """Each with the least number of steps up to it."""
        return self._up[version]

    def metrics(self) -> Iterator[str]:
        for version in self.visible:
            yield from version.series
            yield from version.results

    def reference(self, text: str) -> Version:
        """lenet, lenet@3, a tag, an id or its beginning; each with ~n behind it."""
        base, *walk = text.split("~")
        name, at, number = base.partition("@")
        if at and number != "latest":
            found = [v for v in self.all if v.name == name and v.number == int(number)]
        else:
            named = [v for v in self.all if v.name == name and v.state == "live"]
            tagged = [v for v in self.all if name in v.tags]
            found = sorted(named, key=lambda v: v.number or 0)[-1:] or tagged
            found = found or [v for v in self.all if v.id.startswith(name)]
        (version,) = found
        for steps in walk:
            for _ in range(int(steps or 1)):
                version = self.by_id[version.parents[0]]
        return version
