"""DQL's select by trying every assignment of versions to variables: slow, and easy to believe."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cmp_to_key
from typing import Any, cast

from dlv.dql.words import ast
from dlv.dql.words.parser import parse
from tests.dql import brute_nodes, brute_order, brute_paths
from tests.dql.brute_changes import Change, changes
from tests.dql.brute_conditions import AGGREGATES, Conditions, Scope
from tests.dql.brute_model import Repository, Version
from tests.dql.brute_truth import Moment, is_nan

Row = tuple[Any, ...]
Versions = Mapping[str, Any]  # or changes between two


@dataclass
class Found:
    """A row; what it is ordered by where nothing is said, and what decides between equals."""

    cells: Row
    scope: Scope
    usual: list[Any] = field(default_factory=list)


def run(
    repository: Repository, text: str, parameters: Mapping[str, Any] | None = None
) -> list[Row]:
    """What a select gives, in order."""
    return BruteForce(repository, parameters or {}).query(_statement(text), {})


def _statement(text: str) -> ast.Query:
    (statement,) = parse(text)
    assert isinstance(statement, ast.Query)
    return statement


class BruteForce:
    def __init__(self, repository: Repository, parameters: Mapping[str, Any]) -> None:
        self.repository = repository
        self.parameters = parameters
        self.conditions = Conditions(repository, parameters, self.rows)
        self.known = set(repository.metrics())
        self._kept: dict[int, tuple[Any, list[Row]]] = {}
        self._saved = {name: _statement(text) for name, text in repository.saved.items()}

    def rows(self, query: ast.Query | ast.Saved, outer: Versions) -> list[Row]:
        """Of an inner query; one that does not speak of outer variables is asked once."""
        if id(query) not in self._kept:
            found = self._rows(query, outer)
            if set(_all_names(query)) & outer.keys():
                return found
            self._kept[id(query)] = query, found
        return self._kept[id(query)][1]

    def _rows(self, query: ast.Query | ast.Saved, outer: Versions) -> list[Row]:
        if isinstance(query, ast.Saved):
            return self.query(self._saved[query.name], {})
        return self.query(query, outer)

    def query(self, query: ast.Query, outer: Versions) -> list[Row]:
        body = query.body
        if isinstance(body, ast.Select):
            found = self._select(body, query.order_by, outer)
            titles = [item.name for item in body.items]
        else:
            found = [Found(cells, Scope({}), [*cells]) for cells in self._combined(body, outer)]
            titles = [item.name for item in _first(body).items]
        if query.order_by or not isinstance(body, ast.Query):
            found = self._ordered(found, query.order_by, titles)
        cells = [each.cells for each in found]
        start = self._count(query.offset) or 0
        most = self._count(query.limit)
        return cells[start:] if most is None else cells[start : start + most]

    def _count(self, wanted: int | ast.Parameter | None) -> int | None:
        if isinstance(wanted, ast.Parameter):
            return int(self.parameters[wanted.name])
        return wanted

    # Set operations

    def _combined(self, body: ast.Body, outer: Versions) -> list[Row]:
        if isinstance(body, ast.Query):
            return self.query(body, outer)
        if not isinstance(body, ast.SetOperation):
            assert isinstance(body, ast.Select)
            return [each.cells for each in self._select(body, (), outer)]
        left, right = self._combined(body.left, outer), self._combined(body.right, outer)
        if body.operator == "union all":
            return left + right
        if body.operator == "union":
            return _once(left + right)
        there = {_key(row) for row in right}
        wanted = body.operator == "intersect"
        return _once([row for row in left if (_key(row) in there) == wanted])

    # Select

    def _select(
        self, body: ast.Select, order_by: Sequence[ast.Order], outer: Versions
    ) -> list[Found]:
        ranges = self._ranges(body, outer)
        assignments = [
            {**outer, **dict(zip(ranges, chosen, strict=True))}
            for chosen in itertools.product(*ranges.values())
        ]
        for source in body.sources:
            if isinstance(source.query, ast.Call):
                assignments = [
                    {**each, source.name or "": change}
                    for each in assignments
                    for change in changes(*(self._end(a.value, each) for a in source.query.args))
                ]
        if body.where is not None:
            where = body.where
            assignments = [
                each for each in assignments if self.conditions.holds(where, Scope(each)) is True
            ]
        asked = [*(item.value for item in body.items), body.having, *order_by]
        if body.group_by or any(_aggregates(each) for each in asked):
            return self._grouped(body, assignments)
        found = []
        for versions in assignments:
            scope = Scope(versions)
            cells = self._cells(body, scope, list(ranges))
            usual = [cell for cell in cells if isinstance(cell, Version)]
            if body.distinct:
                usual += [cell for cell in cells if not isinstance(cell, Version)]
            else:
                usual += [versions[name] for name in ranges]
            found.append(Found(cells, scope, usual))
        if body.distinct:
            found = list({_key(each.cells): each for each in reversed(found)}.values())
        return found

    def _ranges(self, body: ast.Select, outer: Versions) -> dict[str, Sequence[Version]]:
        free = [name for name in dict.fromkeys(_names(body)) if name not in outer]
        if not body.sources:
            return dict.fromkeys(free, self.repository.visible)
        declared = {source.name for source in body.sources}
        ranges: dict[str, Sequence[Version]] = {}
        for source in body.sources:
            name = source.name or next(name for name in free if name not in declared)
            if isinstance(source.query, ast.Call):
                continue
            if source.query is None:
                ranges[name] = self.repository.visible
            else:
                rows = self.rows(source.query, outer)
                ranges[name] = list({row[0].id: row[0] for row in rows}.values())
        return ranges

    def _end(self, part: Any, versions: Versions) -> Version:
        if isinstance(part, ast.Path):
            version: Version = versions[part.name]
            return version
        return self.repository.reference(part.value)

    def _cells(self, body: ast.Select, scope: Scope, names: Sequence[str]) -> Row:
        cells: list[Any] = []
        for item in body.items:
            if isinstance(item.value, ast.Star):
                cells += [scope.versions[name] for name in names]
            else:
                cells.append(self._cell(item.value, scope))
        return tuple(cells)

    def _cell(self, tree: ast.Expression, scope: Scope) -> Any:
        if isinstance(tree, ast.Path):
            version = scope.versions[tree.name]
            if isinstance(version, Change):
                return self.conditions.value(tree, scope)
            reading = brute_paths.read(tree, nodes=brute_paths.bare_selector(tree, self.known))
            if isinstance(reading, brute_paths.NodeSet):
                found = brute_nodes.chosen(version.graph, reading.trailers, self.conditions.literal)
                return tuple(layer.name for layer in found)
            if isinstance(reading, brute_paths.Many):
                return tuple(sorted(version.tags) if reading.name == "tag" else version.parents)
        return self.conditions.value(tree, scope)

    def _grouped(self, body: ast.Select, assignments: Sequence[Versions]) -> list[Found]:
        groups: dict[Any, list[Versions]] = {}
        values: dict[Any, list[Any]] = {}
        for versions in assignments:
            value = [self.conditions.value(each, Scope(versions)) for each in body.group_by]
            key = tuple(map(brute_order.same, value))
            groups.setdefault(key, []).append(versions)
            values.setdefault(key, value)
        if not body.group_by and not groups:
            groups[()], values[()] = [], []
        found = []
        for key, members in groups.items():
            scope = Scope(members[0] if members else {}, members)
            if body.having is None or self.conditions.holds(body.having, scope) is True:
                found.append(Found(self._cells(body, scope, ()), scope, values[key]))
        if body.distinct:
            for each in found:
                each.usual = [*each.cells]
            found = list({_key(each.cells): each for each in found}.values())
        return found

    # Order

    def _ordered(
        self, found: list[Found], order_by: Sequence[ast.Order], titles: Sequence[str | None]
    ) -> list[Found]:
        compares = [brute_order.asked(each.descending, each.nulls_first) for each in order_by]
        keys = {id(row): [self._key(each, row, titles) for each in order_by] for row in found}
        rest = brute_order.ascending if order_by else brute_order.newest

        def compare(a: Found, b: Found) -> int:
            for one, left, right in zip(compares, keys[id(a)], keys[id(b)], strict=True):
                if sign := one(left, right):
                    return sign
            signs = (rest(left, right) for left, right in zip(a.usual, b.usual, strict=True))
            return next((sign for sign in signs if sign), 0)

        return sorted(found, key=cmp_to_key(compare))

    def _key(self, by: ast.Order, row: Found, titles: Sequence[str | None]) -> Any:
        tree = by.value
        if isinstance(tree, ast.Path) and not tree.trailers and tree.name in titles:
            return row.cells[titles.index(tree.name)]
        scope = row.scope
        if not scope.versions and scope.members is None:  # of a set operation: its first column
            first: Version = row.cells[0]
            scope = Scope(dict.fromkeys(_names(tree), first))
        return self.conditions.value(tree, scope)


def _first(body: ast.Body) -> ast.Select:
    while not isinstance(body, ast.Select):
        body = body.left if isinstance(body, ast.SetOperation) else cast(ast.Query, body).body
    return body


def _key(row: Row) -> Any:
    return tuple(map(brute_order.same, row))


def _once(rows: Sequence[Row]) -> list[Row]:
    return list({_key(row): row for row in rows}.values())


def _children(tree: Any) -> Iterator[Any]:
    """The parts of a tree in the order of the text, without queries and templates in it."""
    if isinstance(tree, (tuple, list)):
        yield from tree
    elif not isinstance(tree, (ast.Query, ast.Template, ast.Source)):
        yield from _fields(tree)


def _names(tree: Any) -> Iterator[str]:
    """The variables that a query itself speaks of."""
    if isinstance(tree, ast.Path):
        yield tree.name
    else:
        for child in _children(tree):
            yield from _names(child)


def _all_names(tree: Any) -> Iterator[str]:
    """With those of queries inside."""
    if isinstance(tree, ast.Path):
        yield tree.name
    for child in tree if isinstance(tree, (tuple, list)) else _fields(tree):
        yield from _all_names(child)


def _fields(tree: Any) -> list[Any]:
    if not isinstance(tree, ast.Part):
        return []
    return [getattr(tree, each.name) for each in fields(tree) if each.name != "span"]


def _aggregates(tree: Any) -> bool:
    if isinstance(tree, ast.Call) and tree.name.lower() in AGGREGATES:
        return True
    return any(_aggregates(child) for child in _children(tree))


def plain(value: Any) -> Any:
    """A cell to be compared with that of another way to answer the query."""
    match value:
        case Version():
            return ("version", value.id)
        case Moment(at):
            return ("time", at)
        case bool() | None | str():
            return value
        case int() | float():
            return "NaN" if is_nan(value) else float(value)
        case tuple():
            return [plain(each) for each in value]
    return brute_order.same(value)
