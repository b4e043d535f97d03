"""Trees deeper than SQLite's parser stands: Python puts together what their leaves are.

Its stack holds a hundred signs, and every parenthesis that is still open takes two or three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dlv.metadata.nan import known
from dlv.metadata.select import relations as r
from dlv.metadata.select.scope import Statement, encoded
from dlv.metadata.select.truth import arithmetic

_MOST = 8  # levels that are written as SQL
_LEAVES = 90  # SQLite hands a function 127 values at most

T = TypeVar("T")


def deep(tree: Any) -> bool:
    return _depth(tree, _MOST + 1) > _MOST and len(_parts(tree)) <= _LEAVES // 2


def _depth(tree: Any, most: int) -> int:
    parts = _parts(tree) if most else ()
    return 1 + max(_depth(part, most - 1) for part in parts) if parts else 0


def _parts(tree: Any) -> Sequence[Any]:
    match tree:
        case r.All(parts) | r.Either(parts):
            return parts
        case r.Not(part):
            return (part,)
        case r.Arithmetic(_, left, right):
            return (left, right)
        case r.Negative(value):
            return (value,)
    return ()


def folded(s: Statement, tree: T, leaf: Callable[[T], str]) -> str:
    """A call of a function that is this tree, with the SQL of its leaves."""
    leaves: list[str] = []

    def build(here: Any, room: int) -> Callable[[Sequence[Any]], Any]:
        parts = _parts(here)
        if not parts or room < len(parts):
            leaves.append(leaf(here))
            place = len(leaves) - 1
            return lambda given: known(given[place])
        built = [build(part, some) for part, some in zip(parts, _shares(parts, room), strict=True)]
        return lambda given: _value(here, [each(given) for each in built])

    whole = build(tree, _LEAVES)
    called = s.function("dql_tree", lambda *given: encoded(whole(given)))
    return f"{called}({', '.join(leaves)})"


def reckon(operator: str, left: Any, right: Any) -> Any:
    """For SQL: what two numbers give, NaN among them."""
    return encoded(arithmetic(operator, known(left), known(right)))


def _shares(parts: Sequence[Any], room: int) -> list[int]:
    """How many leaves each may have: the largest what the others leave, as in a long chain."""
    sizes = [_size(part, room) for part in parts]
    largest = max(range(len(parts)), key=sizes.__getitem__)
    left = room - (sum(sizes) - sizes[largest])
    if left < 1:
        return [room // len(parts)] * len(parts)
    return [left if at == largest else size for at, size in enumerate(sizes)]


def _size(tree: Any, most: int) -> int:
    """Leaves, as far as it matters."""
    parts, found = _parts(tree), 0
    for part in parts:
        found += _size(part, most - found)
        if found >= most:
            break
    return found if parts else 1


def _value(tree: Any, parts: Sequence[Any]) -> Any:
    match tree:
        case r.All():
            return 0 if 0 in parts else None if None in parts else 1
        case r.Either():
            return 1 if 1 in parts else None if None in parts else 0
        case r.Not():
            return None if parts[0] is None else 1 - parts[0]
        case r.Arithmetic(operator):
            return arithmetic(operator, *parts)
    return arithmetic("-", 0, *parts)
