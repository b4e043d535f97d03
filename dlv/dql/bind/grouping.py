"""Aggregates and groups: what may stand beside them, and what may order rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from typing import Any

from dlv.dql.bind.reading import Reading
from dlv.dql.words import ast
from dlv.metadata.select import relations
from dlv.metadata.select.field_names import FIELD_NAMES
from dlv.metadata.select.node_sets import Nodes
from dlv.metadata.select.relations import Aggregate, Value

_LEAVES = (
    relations.Column,
    relations.Hyperparameter,
    relations.Metric,
    relations.MetricAt,
    relations.Whole,
    relations.Listed,
    relations.NodeCount,
    relations.AnyNode,
    relations.EveryNode,
    relations.AnyOf,
    relations.Is,
    relations.Same,
    relations.Related,
)


def has_aggregate(*trees: Any) -> bool:
    return any(isinstance(each, Aggregate) for tree in trees for each in _within(tree, ()))


def ungrouped(tree: Any, keys: Sequence[Value]) -> Iterator[Any]:
    """What in a tree has no one value in a group."""
    whole = {key.variable for key in keys if isinstance(key, relations.Whole)}
    for each in _within(tree, keys):
        if isinstance(each, _LEAVES) and not variables(each) <= whole:
            yield each


def variables(tree: Any) -> set[str]:
    """The variables that a value or condition is about."""
    found: set[str] = set()
    for each in _within(tree, ()):
        if isinstance(each, (relations.Same, relations.Related)):
            found |= {side for side in (each.left, each.right) if isinstance(side, str)}
        elif isinstance(each, (*_LEAVES, Nodes)):
            found |= {name} if (name := getattr(each, "variable", None)) else set()
    return found


def _within(tree: Any, keys: Sequence[Value]) -> Iterator[Any]:
    """A tree's parts, without what stands in aggregates, in queries, or is a key of the groups."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += part
        elif is_dataclass(part) and not isinstance(part, relations.Query) and part not in keys:
            yield part
            if not isinstance(part, Aggregate):
                waiting += [getattr(part, name) for name in FIELD_NAMES[type(part)] or ()]


def check_grouped(
    reading: Reading,
    keys: Sequence[Value],
    columns: Sequence[tuple[ast.Part, Any]],
) -> None:
    """Columns beside aggregates: each is one of what is grouped by, or made of that."""
    for part, tree in columns:
        if next(ungrouped(tree, keys), None) is not None:
            said = reading.short(part)
            why = f"{said} has a value for each version, and"
            reading.found.faults.append(
                reading.fault(
                    part.span,
                    f"{said} cannot stand beside aggregates",
                    why=f"{why} a group has many" if keys else f"{why} all versions are one group",
                    hint=f"group by {said}",
                )
            )


def check_distinct(
    reading: Reading,
    items: Sequence[relations.Item],
    orders: Sequence[tuple[ast.Part, Value]],
) -> None:
    """With `distinct`, only what is seen can order the rows."""
    shown = [item.value for item in items]
    whole = {value.variable for value in shown if isinstance(value, relations.Whole)}
    for part, value in orders:
        if value not in shown and not variables(value) <= whole:
            reading.found.faults.append(
                reading.fault(
                    part.span,
                    f"distinct rows cannot be ordered by {reading.short(part)}",
                    why="it is not selected, and rows that are put together may differ in it",
                    hint=f"select {reading.short(part)} as well",
                )
            )
