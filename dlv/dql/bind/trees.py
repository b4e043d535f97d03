"""Trees of bound queries gone through and changed, whatever they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from dlv.metadata.select.field_names import FIELD_NAMES
from dlv.metadata.select.relations import All, Condition, Constant
from dlv.network.patterns import Pattern
from dlv.network.selector import Selector

T = TypeVar("T")
_WHOLE = (Constant, Pattern, Selector)  # nothing in them is a part of the query
_LEAVES = {str, int, float, bool, type(None)}
_NAMING = {"variable", "left", "right"}  # where a text is the name of a variable


def changed(tree: T, change: Callable[[Any], Any]) -> T:
    """Every part through `change`, inner ones first. What stays equal stays the same object."""
    if isinstance(tree, tuple):
        parts = []
        same = True
        for part in tree:
            made = changed(part, change)
            same = same and made is part
            parts.append(made)
        return tree if same else tuple(parts)  # type: ignore[return-value]
    names = None if isinstance(tree, _WHOLE) else FIELD_NAMES[type(tree)]
    if names is None:
        return tree
    given: dict[str, Any] = {}
    for name in names:
        old = getattr(tree, name)
        if type(old) in _LEAVES:
            continue
        made = changed(old, change)
        if made is not old:
            given[name] = made
    result: T = change(replace(tree, **given) if given else tree)  # type: ignore[type-var]
    return result


def parts(tree: Any) -> Iterator[Any]:
    """A tree and all that it is made of."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += part
        elif part is not None:
            yield part
            names = None if isinstance(part, _WHOLE) else FIELD_NAMES[type(part)]
            waiting += [getattr(part, name) for name in names or ()]


def conjuncts(condition: Condition) -> list[Condition]:
    """The conditions that all have to hold, however they are put together."""
    if not isinstance(condition, All):
        return [condition]
    return [single for part in condition.parts for single in conjuncts(part)]


def renamed(tree: T, old: str, new: str) -> T:
    """The same of another variable."""

    def change(part: Any) -> Any:
        given = {
            name: new
            for name in FIELD_NAMES[type(part)] or ()
            if name in _NAMING and getattr(part, name) == old
        }
        return replace(part, **given) if given else part

    return changed(tree, change)
