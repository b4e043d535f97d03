"""What a path of a query speaks of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from dlv.dql.words import ast
from tests.dql.brute_nodes import HOPS

COLUMNS = (
    *("id", "name", "number", "creation_time", "author", "message", "framework", "net"),
    *("n_nodes", "n_params", "depth", "dirty"),
)
MANY = ("tag", "parents")
FIGURES = {"last": "last", "min": "min", "max": "max", "steps": "n", "step": "last_step"}


@dataclass(frozen=True)
class Whole:
    """The version itself."""


@dataclass(frozen=True)
class Column:
    name: str


@dataclass(frozen=True)
class Many:
    name: str


@dataclass(frozen=True)
class Parameter:
    key: str


@dataclass(frozen=True)
class Metric:
    name: str
    figure: str = "last"
    step: int | None = None  # of `at`


@dataclass(frozen=True)
class NodeSet:
    trailers: tuple[ast.Trailer, ...]


@dataclass(frozen=True)
class NodeCount:
    trailers: tuple[ast.Trailer, ...]


@dataclass(frozen=True)
class NodeAttribute:
    trailers: tuple[ast.Trailer, ...]
    name: str


Reading: TypeAlias = (
    Whole | Column | Many | Parameter | Metric | NodeSet | NodeCount | NodeAttribute
)


def read(path: ast.Path, *, nodes: bool = False) -> Reading:
    """`nodes`: a set of nodes is wanted, so a selector alone is none of a metric."""
    trailers = path.trailers
    if not trailers:
        return Whole()
    first = trailers[0]
    if isinstance(first, ast.Attribute):
        word = first.name.lower()
        if len(trailers) > 1 and isinstance(trailers[1], ast.Selector):
            if word == "hparams":
                return Parameter(trailers[1].text)
            if word == "metrics":
                return _metric(trailers[1:])
            assert word == "nodes"
            return _nodes(trailers[1:])
        if len(trailers) == 1 and word in COLUMNS:
            return Column(word)
        if len(trailers) == 1 and word in MANY:
            return Many(word)
        return Parameter(
            ".".join(each.name for each in trailers if isinstance(each, ast.Attribute))
        )
    if isinstance(first, ast.Selector) and not nodes and len(trailers) == 1:
        return _metric(trailers)
    if isinstance(first, ast.Selector) and len(trailers) > 1:
        second = trailers[1]
        method = isinstance(second, ast.Method)
        if method or (isinstance(second, ast.Attribute) and second.name in FIGURES):
            return _metric(trailers)
    return _nodes(trailers)


def _metric(trailers: tuple[ast.Trailer, ...]) -> Metric:
    series, *rest = trailers
    assert isinstance(series, ast.Selector)
    if rest and isinstance(rest[0], ast.Method):
        step = rest[0].args[0].value
        assert isinstance(step, ast.Number)
        return Metric(series.text, "at", int(step.value))
    words = [each.name for each in rest if isinstance(each, ast.Attribute)]
    if len(words) == 2:
        return Metric(series.text, f"{words[0]}_step")
    return Metric(series.text, FIGURES[words[0]] if words else "last")


def _nodes(trailers: tuple[ast.Trailer, ...]) -> NodeSet | NodeCount | NodeAttribute:
    last = trailers[-1]
    if not isinstance(last, ast.Attribute) or last.name in HOPS:
        return NodeSet(trailers)
    if last.name == "count":
        return NodeCount(trailers[:-1])
    return NodeAttribute(trailers[:-1], last.name)


def bare_selector(path: ast.Path, metrics: Collection[str]) -> bool:
    """Whether a column `m["x"]` is that of node names, as there is no such metric."""
    if len(path.trailers) != 1 or not isinstance(path.trailers[0], ast.Selector):
        return False
    return path.trailers[0].regular or path.trailers[0].text not in metrics
