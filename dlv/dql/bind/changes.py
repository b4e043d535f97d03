"""`c in changes(a, b)`: what differs between two versions, one change in each row."""

from __future__ import annotations

from collections.abc import Iterator

from dlv.dql.bind import constants
from dlv.dql.bind.binder import Binder
from dlv.dql.bind.things import Scalar, Variable
from dlv.dql.words import ast
from dlv.errors import nearest
from dlv.metadata.select import relations
from dlv.metadata.select.relations import (
    OF_CHANGES,
    Changes,
    Is,
    Item,
    Query,
    Select,
    Source,
    Whole,
)

_EXAMPLE = "from a, b, c in changes(a, b)"


def changes(binder: Binder, call: ast.Call, *, alone: bool) -> tuple[tuple[Source, ...], Changes]:
    """What the call ranges over, and sources for the versions that it names by references.

    `binder` sees the variables declared before. `alone`: the query derives networks or trains.
    """
    if alone:
        raise binder.fault(
            call.span,
            "only `select` can have changes",
            hint="from m in (select b from a, b, c in changes(a, b) where ..)",
        )
    if call.name.lower() != "changes":
        raise binder.fault(
            call.span, f"no function {call.name} after `in`", why="known: changes", hint=_EXAMPLE
        )
    if len(call.args) != 2 or any(each.name or each.distinct for each in call.args):
        raise binder.fault(call.span, "changes takes two versions", hint=_EXAMPLE)
    named: list[Source] = []
    ends = [_end(binder, argument.value, named) for argument in call.args]
    return tuple(named), Changes(*ends)


def _end(binder: Binder, part: ast.Expression | ast.Star, named: list[Source]) -> str:
    """The variable that stands for one of the two versions."""
    if isinstance(part, ast.Path) and not part.trailers:
        whose = binder.scope.visible().get(part.name)
        if whose is not None and not whose.changes:
            return whose.unique
        raise binder.fault(
            part.span,
            f"`{part.name}` is not a version declared before `changes`",
            did_you_mean=nearest(part.name, binder.scope.visible()),
            hint=_EXAMPLE,
        )
    if not isinstance(part, ast.Star) and constants.is_constant(part):
        digest = constants.reference(
            binder, part, constants.texts(binder, part, constants.plain(binder, part))
        )
        state = binder.known.database.value("SELECT state FROM version WHERE hash = ?", (digest,))
        if state not in ("live", "recovered"):
            raise binder.fault(
                part.span, f"the version {binder.short(part)} was removed", hint="dlv undo"
            )
        outer, inner = binder.new_variable("version"), binder.new_variable("version")
        only = Select((Item(inner, Whole(inner)),), (Source(inner),), Is(inner, (digest,)))
        named.append(Source(outer, Query(only)))
        return outer
    raise binder.fault(part.span, "changes takes variables and references", hint=_EXAMPLE)


def attribute(binder: Binder, whose: Variable, path: ast.Path) -> Scalar:
    """`c.name` and its like; a change has nothing else."""
    first = path.trailers[0] if len(path.trailers) == 1 else None
    name = first.name.lower() if isinstance(first, ast.Attribute) else ""
    if name not in OF_CHANGES:
        raise binder.fault(
            path.span,
            f"`{whose.name}` is a change between versions, which has {', '.join(OF_CHANGES)}",
            did_you_mean=[f"{whose.name}.{near}" for near in nearest(name, OF_CHANGES)],
            hint=f"{whose.name}.name",
        )
    return Scalar(relations.OfChange(whose.unique, name), OF_CHANGES[name])


def columns(whose: Variable) -> Iterator[tuple[Item, str]]:
    """What `select *` shows of a change."""
    for name, kind in OF_CHANGES.items():
        yield Item(f"{whose.name}.{name}", relations.OfChange(whose.unique, name)), kind
