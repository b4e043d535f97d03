"""Slices and constructs bound: of which versions, what is done, at which nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dlv.dql.bind import conditions, sources
from dlv.dql.bind.actions import Work
from dlv.dql.bind.bound import Chosen, Derivation
from dlv.dql.bind.reading import Reading, Reported
from dlv.dql.bind.scopes import Scope, groups, paths_in, used
from dlv.dql.bind.things import Variable
from dlv.dql.words import ast
from dlv.metadata.select import relations
from dlv.metadata.select.relations import All, AnyNode, Condition, Item, Query, Select, Truth
from dlv.objects.manifest import NAME


def derivation(reading: Reading, part: ast.Derived, *, nested: bool) -> int:
    """Binds it, and tells which of the statement's derivations it is."""
    verb = "slice" if isinstance(part, ast.Slice) else "construct"
    before = len(reading.found.faults)
    with reading.collecting():
        _check_into(reading, part, verb, nested=nested)
    scope, ranges = sources.declared(
        reading, None, part.sources, [part.where, part.actions], [part.name]
    )
    where = None
    if part.where is not None:
        where = conditions.noted(reading, replace(scope, clause="where"), part.where)
    source = _source(reading, part, scope)
    work = Work(reading, scope, source, part.name)
    with reading.collecting():
        done = work.cut(part) if verb == "slice" else work.changes(part)
    if len(reading.found.faults) > before or (part.where is not None and where is None):
        raise Reported
    _check_joined(reading, part, scope, source)
    _warn_of_repeated(reading, part)
    whole = Item(source.name, relations.Whole(source.unique))
    select = Select((whole,), ranges, where, distinct=len(ranges) > 1)
    made = Derivation(
        verb,
        part.name,
        source.unique,
        Query(select),
        done,
        bool(part.each),
        _chosen(where, source.unique),
        part.into,
        part.span,
    )
    if verb == "slice" and part.each is not None:
        raise reading.fault(part.span, "a slice is one network; `each` and `all` are of construct")
    reading.found.derivations.append(made)
    return len(reading.found.derivations) - 1


def _check_into(reading: Reading, part: ast.Derived, verb: str, *, nested: bool) -> None:
    if part.into is None:
        return
    end = part.span.end
    start = reading.text.rfind(reading.text[end - 1], part.span.start, end - 1)
    span = ast.Span(start, end)
    if nested:
        raise reading.fault(
            span,
            f"a {verb} inside another query commits nothing",
            hint="`into` stands in the statement's own slice or construct",
        )
    check_name(reading, part.into, span)


def check_name(reading: Reading, name: str, span: ast.Span) -> None:
    if NAME.match(name) is None:
        raise reading.fault(
            span,
            f'"{name}" cannot be the name of a model',
            why="a name has letters, digits and ._+- and begins with a letter or digit",
        )


def _source(reading: Reading, part: ast.Derived, scope: Scope) -> Variable:
    """The variable whose networks are worked on: the one that the actions name."""
    names = [name for name in used(part.actions) if name in scope.variables]
    if len(scope.variables) == 1:
        return next(iter(scope.variables.values()))
    if not names:
        raise reading.fault(
            part.actions[0].span,
            "of which variable are these nodes?",
            why=f"there are {', '.join(scope.variables)}",
            hint=f'{next(iter(scope.variables))}["NODE"]',
        )
    return scope.variables[names[0]]


def _check_joined(reading: Reading, part: ast.Derived, scope: Scope, source: Variable) -> None:
    group = groups(scope.variables, [part.where])
    for name in scope.variables:
        if group[name] != group[source.name]:
            reading.warn(f"`{name}` is not joined to `{source.name}`, and takes part in nothing")


# Nodes that `where` asks something of


def _chosen(where: Condition | None, variable: str) -> tuple[Chosen, ...]:
    """What the conditions that all have to hold ask of nodes of the source."""
    parts = () if where is None else where.parts if isinstance(where, All) else (where,)
    return tuple(
        Chosen(each.nodes, Truth(True) if each.test is None else each.test)
        for each in _flat(parts)
        if isinstance(each, AnyNode) and each.nodes.variable == variable
    )


def _flat(parts: Sequence[Condition]) -> Iterator[Condition]:
    for part in parts:
        if isinstance(part, All):
            yield from _flat(part.parts)
        else:
            yield part


def _warn_of_repeated(reading: Reading, part: ast.Derived) -> None:
    """Under `or` and `not`, `where` picks versions, and does not say which nodes are meant."""
    waiting: list[tuple[ast.Part | None, bool]] = [(part.where, False)]
    loose: list[tuple[str, ast.Trailer]] = []
    while waiting:
        each, under = waiting.pop()
        if isinstance(each, (ast.And, ast.Or)):
            waiting += [(one, under or isinstance(each, ast.Or)) for one in each.parts]
        elif isinstance(each, ast.Unary) and each.operator == "not":
            waiting.append((each.operand, True))
        elif under and each is not None:
            loose += _starts(each)
    for action in part.actions:
        for name, first in _starts(action):
            if (name, first) in loose:
                said = name + reading.said(first)
                reading.warn(
                    f"{said} stands under `or` or `not` in where: all nodes that fit it are changed"
                )


def _starts(part: ast.Part) -> list[tuple[str, ast.Trailer]]:
    """The sets of nodes that a part speaks of, by what they begin with."""
    return [
        (path.name, path.trailers[0])
        for path in paths_in([part])
        if path.trailers and isinstance(path.trailers[0], (ast.Selector, ast.TypeSelector))
    ]
