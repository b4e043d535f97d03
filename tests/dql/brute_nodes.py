"""Sets of nodes, by looking at every node of a graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from dlv.dql.words import ast
from dlv.network.patterns import compare
from dlv.network.selector import selector
from dlv.network.vocabulary import OPS
from tests.dql.brute_model import Graph, Layer

HOPS = {"next", "prev", "next_raw", "prev_raw", "next*", "prev*"}


def chosen(
    graph: Graph | None, trailers: Sequence[ast.Trailer], literal: Callable[[Any], Any]
) -> list[Layer]:
    """The nodes that trailers lead to, in topological order; none if there is no network."""
    return walked(graph, None, trailers, literal)


def walked(
    graph: Graph | None,
    start: set[str] | None,
    trailers: Sequence[ast.Trailer],
    literal: Callable[[Any], Any],
) -> list[Layer]:
    """The same from these nodes on; None: from all of them."""
    if graph is None:
        return []
    found = set(graph.layers) if start is None else start
    for trailer in trailers:
        if isinstance(trailer, ast.Index):
            line = [name for name in graph.layers if name in found]
            found = {*line[trailer.place : trailer.place + 1]}
        elif isinstance(trailer, ast.Selector):
            found &= _named(graph, trailer)
        elif isinstance(trailer, ast.TypeSelector):
            found = {name for name in found if fits(graph.layers[name], trailer.template, literal)}
        else:
            assert isinstance(trailer, ast.Attribute)
            raw, forward = trailer.name.endswith("_raw"), trailer.name.startswith("next")
            reached = _neighbours(graph, found, raw=raw, forward=forward)
            more = reached if trailer.name.endswith("*") else set()
            while more:
                more = _neighbours(graph, more, raw=False, forward=forward) - reached
                reached |= more
            found = reached
    return [graph.layers[name] for name in graph.layers if name in found]


def _neighbours(graph: Graph, names: set[str], *, raw: bool, forward: bool) -> set[str]:
    reached: set[str] = set()
    for name in names:
        reshapes = not raw and graph.layers[name].op == "RESHAPE"
        edges = graph.raw if raw else graph.reshaped if reshapes else graph.logical
        if name in edges:
            reached.update(edges.successors(name) if forward else edges.predecessors(name))
    return reached


def captured(graph: Graph | None, selector: ast.Selector) -> dict[str, set[str]]:
    """What `($1)` behind a wildcard stands for -> the nodes in whose names it does."""
    if graph is None:
        return {}
    written = re.escape(selector.text).replace(r"\*\(\$1\)", "(.*)").replace(r"\?\(\$1\)", "(.)")
    by: list[dict[str, str | None]] = [
        {name: name for name in graph.layers},
        {name: layer.alias for name, layer in graph.layers.items()},
    ]
    for names in by:
        found: dict[str, set[str]] = {}
        for name, called in names.items():
            if called and (hit := re.fullmatch(written, called)):
                found.setdefault(hit[1], set()).add(name)
        if found:
            return found
    return {}


def _named(graph: Graph, wanted: ast.Selector) -> set[str]:
    """By name; only where nothing in the network is called so, by alias."""
    if wanted.regular:
        expression = re.compile(wanted.text)

        def right(text: str) -> bool:
            return expression.search(text) is not None
    else:
        made = selector(wanted.text)

        def right(text: str) -> bool:
            return text in made

    names = {name for name in graph.layers if right(name)}
    return names or {
        name for name, layer in graph.layers.items() if layer.alias and right(layer.alias)
    }


def fits(layer: Layer, template: ast.Template, literal: Callable[[Any], Any]) -> bool:
    """Whether a node is what a template says, argument by argument."""
    if layer.op != template.name:
        return False
    words = ["variant", "name"] if OPS[template.name].variants else ["name"]
    if template.name == "OP":
        words = ["raw", "name"]
    for argument in template.args:
        if isinstance(argument.value, ast.Compare):
            path = argument.value.left
            assert isinstance(path, ast.Path)
            wanted = literal(argument.value.right)
            sign, attribute = argument.value.operator, path.name
        else:
            sign, attribute = "=", argument.name or words.pop(0)
            wanted = literal(argument.value)
        if sign == "=" and attribute == "name":
            if layer.name not in selector(wanted):
                return False
        elif attribute == "raw":
            parts = (layer.raw or "").split(".")
            called = [".".join(parts[: end + 1]) for end in range(len(parts))]
            if not any(each in selector(wanted) for each in called):
                return False
        elif compare(sign, layer.value(attribute), wanted) is not True:
            return False
    return True
