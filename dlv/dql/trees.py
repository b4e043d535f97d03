"""Trees of bound queries gone through and changed, whatever they are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from dlv.metadata.relations import Constant
from dlv.network.patterns import Pattern
from dlv.network.selector import Selector

T = TypeVar("T")
_WHOLE = (Constant, Pattern, Selector)  # nothing in them is a part of the query
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
    if not is_dataclass(tree) or isinstance(tree, (type, *_WHOLE)):
        return tree
    given: dict[str, Any] = {}
    for each in fields(tree):
        old = getattr(tree, each.name)
        made = changed(old, change) if is_dataclass(old) or isinstance(old, tuple) else old
        if made is not old:
            given[each.name] = made
    result: T = change(replace(tree, **given) if given else tree)
    return result


def renamed(tree: T, old: str, new: str) -> T:
    """The same of another variable."""

    def change(part: Any) -> Any:
        given = {
            each.name: new
            for each in fields(part)
            if each.name in _NAMING and getattr(part, each.name) == old
        }
        return replace(part, **given) if given else part

    return changed(tree, change)
