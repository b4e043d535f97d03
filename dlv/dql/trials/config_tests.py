"""Conditions on a configuration, as they stand behind `when`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from dlv.metadata.select.tree_parts import part
from dlv.network.selector import Selector
from dlv.training.ledger.space import Key, Lookup

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


@part(frozen=True)
class Setting:
    """A value of the configuration."""

    key: Key


@part(frozen=True)
class Fixed:
    value: Any


Value: TypeAlias = Setting | Fixed


@part(frozen=True)
class Compared:
    operator: str
    left: Value
    right: Value


@part(frozen=True)
class Among:
    value: Value
    within: tuple[Any, ...]


@part(frozen=True)
class Alike:
    """A text that a regular expression fits from end to end."""

    value: Value
    pattern: re.Pattern[str]


@part(frozen=True)
class Named:
    """A text that a selector fits."""

    value: Value
    selector: Selector


@part(frozen=True)
class Absent:
    value: Value


@part(frozen=True)
class Not:
    test: Test


@part(frozen=True)
class Every:
    tests: tuple[Test, ...]


@part(frozen=True)
class Some:
    tests: tuple[Test, ...]


Test: TypeAlias = Compared | Among | Alike | Named | Absent | Not | Every | Some


def holds(test: Test, lookup: Lookup) -> bool:
    """Whether a configuration is so. What is null, or of another kind, is neither more nor less."""
    if isinstance(test, Not):
        return not holds(test.test, lookup)
    if isinstance(test, Every):
        return all(holds(each, lookup) for each in test.tests)
    if isinstance(test, Some):
        return any(holds(each, lookup) for each in test.tests)
    if isinstance(test, Compared):
        return _compared(test.operator, _value(test.left, lookup), _value(test.right, lookup))
    value = _value(test.value, lookup)
    if isinstance(test, Absent):
        return value is None
    if isinstance(test, Among):
        return any(_same(value, each) for each in test.within)
    if isinstance(test, Named):
        return value in test.selector
    return isinstance(value, str) and test.pattern.fullmatch(value) is not None


def reads(test: Test) -> Iterator[Key]:
    """The keys that it asks for."""
    waiting: list[Test | Value] = [test]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Setting):
            yield part.key
        elif isinstance(part, Compared):
            waiting += (part.left, part.right)
        elif isinstance(part, Not):
            waiting.append(part.test)
        elif isinstance(part, (Every, Some)):
            waiting += part.tests
        elif isinstance(part, (Among, Alike, Named, Absent)):
            waiting.append(part.value)


def _value(value: Value, lookup: Lookup) -> Any:
    return lookup(value.key) if isinstance(value, Setting) else value.value


def _compared(operator: str, left: Any, right: Any) -> bool:
    if operator == "=":
        return _same(left, right)
    if operator == "!=":
        return left is not None and right is not None and not _same(left, right)
    numbers = all(isinstance(each, (int, float)) for each in (left, right))
    texts = isinstance(left, str) and isinstance(right, str)
    return (numbers or texts) and _ORDERS[operator](left, right)


def _same(left: Any, right: Any) -> bool:
    """1 and true are two things, 1 and 1.0 one; nothing equals null."""
    return left is not None and isinstance(left, bool) == isinstance(right, bool) and left == right
