"""Values and conditions for versions that variables stand for, straight from the tree."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from typing import Any

from dlv.canonical import dumps
from dlv.dql.words import ast
from dlv.network.patterns import compare
from dlv.network.selector import selector
from tests.dql import brute_nodes, brute_order, brute_paths
from tests.dql.brute_changes import Change
from tests.dql.brute_model import Layer, Repository, Version
from tests.dql.brute_truth import (
    Moment,
    Other,
    Truth,
    arithmetic,
    both,
    compared,
    either,
    is_nan,
    kind,
    like,
    opposite,
)

AGGREGATES = ("count", "sum", "avg", "min", "max", "stddev", "median", "argmin", "argmax")
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


_FUNCTIONS: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "lower": ("text", str.lower),
    "upper": ("text", str.upper),
    "length": ("text", len),
    "abs": ("number", abs),
    "round": ("number", lambda x, digits=0: round(x, digits) if math.isfinite(x) else x),
}


def _whole(value: Any) -> Any:
    """Lists as canonical JSON, as those of settings."""
    return Other(dumps(list(value)).decode()) if isinstance(value, (list, tuple)) else value


def _each_node(test: Any, path: ast.Path) -> bool:
    """Whether a test is made node by node: of the attribute itself, beside constants."""
    if not isinstance(test, ast.Compare):
        return True
    other = test.right if test.left == path else test.left
    return path in (test.left, test.right) and not _varies(other)


def _varies(tree: Any) -> bool:
    if isinstance(tree, (ast.Path, ast.OneValue, ast.Call, ast.Case)):
        return True
    return isinstance(tree, (ast.Binary, ast.Unary)) and any(
        _varies(getattr(tree, name, None)) for name in ("left", "right", "operand")
    )


@dataclass(frozen=True)
class Scope:
    """What variables stand for. `members`: of a group; `at_hand`: the value of a path just now."""

    versions: Mapping[str, Version]
    members: Sequence[Mapping[str, Version]] | None = None
    at_hand: tuple[ast.Path, Any] | None = None


class Conditions:
    """`rows` gives those of a query inside another one, for the versions of the outer one."""

    def __init__(
        self,
        repository: Repository,
        parameters: Mapping[str, Any],
        rows: Callable[[ast.Query | ast.Saved, Mapping[str, Version]], list[tuple[Any, ...]]],
    ) -> None:
        self.repository = repository
        self.parameters = parameters
        self._rows = rows
        self._chosen: dict[tuple[int, int], list[Layer]] = {}  # by path and graph

    # Values

    def literal(self, tree: Any) -> Any:
        if isinstance(tree, ast.Listing):
            return [self.literal(item) for item in tree.items]
        return self.value(tree, Scope({}))

    def value(self, tree: Any, scope: Scope) -> Any:
        match tree:
            case ast.Number() | ast.Text() | ast.Boolean():
                return tree.value
            case ast.Null():
                return None
            case ast.Listing():
                return self.literal(tree)
            case ast.Parameter():
                return self.parameters[tree.name]
            case ast.Binary():
                left, right = self.value(tree.left, scope), self.value(tree.right, scope)
                return arithmetic(tree.operator, left, right)
            case ast.Unary(operator="-"):
                found = self.value(tree.operand, scope)
                return -found if kind(found) == "number" else None
            case ast.Call() if tree.name.lower() in AGGREGATES:
                return self._aggregate(tree, scope)
            case ast.Case():
                for test, value in tree.whens:
                    if self.holds(test, scope) is True:
                        return self.value(value, scope)
                return None if tree.otherwise is None else self.value(tree.otherwise, scope)
            case ast.OneValue():
                rows = self._rows(tree.query, scope.versions)
                return rows[0][0] if rows else None
            case ast.Call() if tree.name.lower() in _FUNCTIONS:
                first, *rest = (self.value(each.value, scope) for each in tree.args)
                wanted, function = _FUNCTIONS[tree.name.lower()]
                return function(first, *rest) if kind(first) == wanted else None
            case ast.Call():
                assert tree.name.lower() == "coalesce"
                found = (self.value(each.value, scope) for each in tree.args)
                return next((each for each in found if each is not None), None)
        assert isinstance(tree, ast.Path), tree
        if scope.at_hand is not None and scope.at_hand[0] == tree:
            return scope.at_hand[1]
        return self._path(tree, scope)

    def _path(self, tree: ast.Path, scope: Scope) -> Any:
        version = scope.versions[tree.name]
        if isinstance(version, Change):
            (attribute,) = tree.trailers
            assert isinstance(attribute, ast.Attribute)
            return getattr(version, attribute.name)
        match brute_paths.read(tree):
            case brute_paths.Whole():
                return version
            case brute_paths.Column(name):
                return _column(version, name)
            case brute_paths.Parameter(key):
                found = version.parameters.get(key)
                json = isinstance(found, (list, dict))
                return Other(dumps(found).decode()) if json else found
            case brute_paths.Metric(name, "at", step):
                assert step is not None
                return version.at(name, step)
            case brute_paths.Metric(name, figure):
                return version.figure(name, figure)
            case brute_paths.NodeCount(trailers):
                return len(self._nodes_of(tree, trailers, version))
            case brute_paths.NodeAttribute(trailers, name):
                held = [each.value(name) for each in self._nodes_of(tree, trailers, version)]
                held = [value for value in held if value is not None]
                shared = all(value == held[0] for value in held)
                return None if not held else _whole(held[0] if shared else held)
        raise AssertionError(tree)

    def _aggregate(self, tree: ast.Call, scope: Scope) -> Any:
        assert scope.members is not None
        argument, name = tree.args[0].value, tree.name.lower()
        if isinstance(argument, ast.Star):
            return len(scope.members)
        if name in ("argmin", "argmax"):
            return self._best(tree, scope.members, name)
        values = [self.value(argument, Scope(each)) for each in scope.members]
        values = [value for value in values if value is not None]
        if name == "count" and tree.args[0].distinct:
            return len({brute_order.same(value) for value in values})
        if name == "count":
            return len(values)
        if name in ("min", "max"):
            values = [value for value in values if not is_nan(value)] or values[:1]
            line = sorted(values, key=cmp_to_key(brute_order.ascending))
            return None if not line else line[0 if name == "min" else -1]
        numbers = [value for value in values if kind(value) == "number"]
        if (name == "stddev" and len(numbers) < 2) or not numbers:
            return None
        if any(map(is_nan, numbers)) or (name == "stddev" and any(map(math.isinf, numbers))):
            return math.nan
        if name == "stddev":
            return statistics.stdev(numbers)
        if name in ("sum", "avg") and {math.inf, -math.inf} & {*numbers}:
            return sum(numbers)  # of both there is none
        figure: Any = {"sum": sum, "avg": statistics.fmean, "median": statistics.median}[name]
        return figure(numbers)

    def _best(self, tree: ast.Call, members: Sequence[Mapping[str, Version]], name: str) -> Any:
        """Of equal ones the least value."""
        wanted, by = (each.value for each in tree.args)
        assert not isinstance(wanted, ast.Star)
        assert not isinstance(by, ast.Star)
        rows = [(self.value(by, Scope(each)), self.value(wanted, Scope(each))) for each in members]
        rows = [row for row in rows if row[0] is not None]
        rows = [row for row in rows if not is_nan(row[0])] or rows
        if not rows:
            return None
        line = sorted((row[0] for row in rows), key=cmp_to_key(brute_order.ascending))
        best = brute_order.same(line[0 if name == "argmin" else -1])
        found = [value for key, value in rows if brute_order.same(key) == best]
        found = [value for value in found if value is not None]
        found = [value for value in found if not is_nan(value)] or found[:1]
        return min(found, key=cmp_to_key(brute_order.ascending), default=None)

    # Conditions

    def holds(self, tree: Any, scope: Scope) -> Truth:
        match tree:
            case ast.And():
                return both(self.holds(part, scope) for part in tree.parts)
            case ast.Or():
                return either(self.holds(part, scope) for part in tree.parts)
            case ast.Unary(operator="not"):
                return opposite(self.holds(tree.operand, scope))
            case ast.Quantified():
                return self._tested(tree.test, scope, tree.quantifier)
            case ast.Lineage():
                return self._related(tree, scope)
            case ast.Exists(tested=ast.Path() as path):
                return bool(self._nodes(path, scope))
            case ast.Exists(tested=ast.Query() as query):
                return bool(self._rows(query, scope.versions))
            case ast.Path() | ast.Boolean() | ast.Null():
                found = self.value(tree, scope)
                assert found is None or isinstance(found, bool)
                return found
        return self._tested(tree, scope, "any")

    def _nodes(self, path: ast.Path, scope: Scope) -> list[Layer]:
        reading = brute_paths.read(path, nodes=True)
        assert isinstance(reading, (brute_paths.NodeSet, brute_paths.NodeAttribute))
        return self._nodes_of(path, reading.trailers, scope.versions[path.name])

    def _nodes_of(
        self, path: ast.Path, trailers: Sequence[ast.Trailer], version: Version
    ) -> list[Layer]:
        """Found once for each graph: most versions share theirs."""
        key = id(path), id(version.graph)
        if key not in self._chosen:
            self._chosen[key] = brute_nodes.chosen(version.graph, trailers, self.literal)
        return self._chosen[key]

    def _tested(self, test: Any, scope: Scope, quantifier: str) -> Truth:
        """A test on nodes, or on one of several values, holds if it holds of one of them."""
        if isinstance(test, ast.Has) and "$1" in str(test.templates):
            return _quantified(quantifier, list(self._captured(test, scope)))
        if isinstance(test, ast.Has):
            found = [
                any(brute_nodes.fits(layer, each, self.literal) for each in test.templates)
                != test.negated
                for layer in self._nodes(test.left, scope)  # type: ignore[arg-type]
            ]
            return _quantified(quantifier, found)
        operands = (test.left, *((test.right,) if isinstance(test, ast.Compare) else ()))
        for path in (each for operand in operands for each in _paths(operand)):
            reading = brute_paths.read(path)
            if isinstance(reading, brute_paths.NodeAttribute):
                if not _each_node(test, path):
                    continue
                values = [layer.value(reading.name) for layer in self._nodes(path, scope)]
            elif isinstance(reading, brute_paths.Many):
                version = scope.versions[path.name]
                values = list(version.tags if reading.name == "tag" else version.parents)
                if isinstance(test, ast.IsNull):
                    return bool(values) == test.negated
            else:
                continue
            scopes = [replace(scope, at_hand=(path, value)) for value in values]
            return _quantified(quantifier, [self._single(test, each) is True for each in scopes])
        assert quantifier == "any"
        return self._single(test, scope)

    def _captured(self, test: ast.Has, scope: Scope) -> Iterator[bool]:
        """Of each node, with what was captured on the way to it."""
        assert isinstance(test.left, ast.Path)
        first, *rest = test.left.trailers
        assert isinstance(first, ast.Selector)
        graph = scope.versions[test.left.name].graph
        for text, names in brute_nodes.captured(graph, first).items():

            def literal(tree: Any, text: str = text) -> Any:
                found = self.literal(tree)
                return found.replace("$1", text) if isinstance(found, str) else found

            for layer in brute_nodes.walked(graph, names, rest, literal):
                fits = any(brute_nodes.fits(layer, each, literal) for each in test.templates)
                yield fits != test.negated

    def _single(self, test: Any, scope: Scope) -> Truth:
        if isinstance(test, ast.Compare):
            return self._compared(test.operator, test.left, test.right, scope)
        found = self._positive(test, scope)
        return opposite(found) if test.negated else found

    def _positive(self, test: Any, scope: Scope) -> Truth:
        match test:
            case ast.Like():
                left, pattern = self.value(test.left, scope), self.value(test.pattern, scope)
                return like(left, pattern, test.folded, test.escape)
            case ast.Matches():
                left = self.value(test.left, scope)
                return left in selector(test.pattern) if isinstance(left, str) else None
            case ast.Between():
                return both(
                    [
                        self._compared(">=", test.left, test.low, scope),
                        self._compared("<=", test.left, test.high, scope),
                    ]
                )
            case ast.IsNull():
                return self.value(test.left, scope) is None
            case ast.IsNan():
                return is_nan(self.value(test.left, scope))
        assert isinstance(test, ast.In)
        return either([self._equal(test.left, each, scope) for each in self._options(test, scope)])

    def _options(self, test: ast.In, scope: Scope) -> Iterator[Any]:
        """Trees, or plain values."""
        match test.within:
            case ast.Parameter(name):
                yield from self.parameters[name]
            case ast.Listing(items) | ast.Group(items):
                for item in items:
                    if isinstance(item, ast.Stretch):
                        at = item.first
                        while at <= item.last:
                            yield at
                            at += item.step or 1
                    else:
                        yield item
            case query:
                assert isinstance(query, (ast.Query, ast.Saved))
                yield from (_Cell(row[0]) for row in self._rows(query, scope.versions))

    def _equal(self, left: Any, option: Any, scope: Scope) -> Truth:
        return self._compared("=", left, option, scope)

    def _compared(self, sign: str, left: Any, right: Any, scope: Scope) -> Truth:
        if _identity(left) or _identity(right):
            return compared(sign, self._id(left, scope), self._id(right, scope))
        a, b = self._operand(left, scope), self._operand(right, scope)
        if scope.at_hand is not None and isinstance(
            brute_paths.read(scope.at_hand[0]), brute_paths.NodeAttribute
        ):
            if left == scope.at_hand[0]:
                return compare(sign, a, b)
            if right == scope.at_hand[0]:
                return compare(_TURNED.get(sign, sign), b, a)
        return compared(sign, a, b)

    def _operand(self, tree: Any, scope: Scope) -> Any:
        if isinstance(tree, _Cell):
            return tree.value
        return self.value(tree, scope) if isinstance(tree, ast.Part) else tree

    def _id(self, tree: Any, scope: Scope) -> Any:
        """The full id of what stands for a version."""
        found = self._operand(tree, scope)
        if isinstance(found, Version):
            return found.id
        written = not isinstance(tree, (ast.Path, _Cell))
        return self.repository.reference(found).id if written and found is not None else found

    def _related(self, tree: ast.Lineage, scope: Scope) -> bool:
        left, right = self._id(tree.left, scope), self._id(tree.right, scope)
        relation = tree.relation
        if relation in ("ancestor_of", "parent_of"):
            left, right = right, left
        if relation in ("child_of", "parent_of"):
            return right in self.repository.by_id[left].parents
        if relation == "sibling_of":
            most = tree.within or 1
            above = [
                {key for key, steps in self.repository.ancestors(each).items() if steps <= most}
                for each in (left, right)
            ]
            return left != right and bool(above[0] & above[1])
        steps = self.repository.ancestors(left).get(right)
        return steps is not None and (tree.within is None or steps <= tree.within)


@dataclass(frozen=True)
class _Cell:
    """A value that an inner query gave."""

    value: Any


def _column(version: Version, name: str) -> Any:
    graph = version.graph
    match name:
        case "creation_time":
            return Moment(version.created)
        case "net":
            return None if graph is None else graph.structure
        case "n_nodes":
            return None if graph is None else len(graph.layers)
        case "n_params" | "depth":
            return None if graph is None else getattr(graph, name)
    return getattr(version, name)


def _quantified(quantifier: str, found: Sequence[bool]) -> bool:
    if quantifier == "every":
        return bool(found) and all(found)
    return any(found) != (quantifier == "no")


def _identity(tree: Any) -> bool:
    if not isinstance(tree, ast.Path):
        return False
    reading = brute_paths.read(tree)
    return reading in (brute_paths.Whole(), brute_paths.Column("id"), brute_paths.Many("parents"))


def _paths(tree: Any) -> Iterator[ast.Path]:
    """Those that a value is made from."""
    match tree:
        case ast.Path():
            yield tree
        case ast.Binary():
            yield from _paths(tree.left)
            yield from _paths(tree.right)
        case ast.Unary():
            yield from _paths(tree.operand)
        case ast.Call():
            for argument in tree.args:
                yield from _paths(argument.value)
