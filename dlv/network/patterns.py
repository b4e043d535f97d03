"""Patterns of nodes: `POOL("MAX", kernel=2)`, `CONV(out>=64)`, `OP("aten.roll")`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlv.dataclass import dataclass
from dlv.network.ops.op import op_of
from dlv.network.selector import Selector

if TYPE_CHECKING:
    from dlv.network.graph import Node

RAW = "raw"  # what an OP node is called where it comes from, beside its attributes
Operator = Callable[[Any, Any], bool]
OPERATORS: Mapping[str, Operator] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class AttributeTest:
    """`out >= 64`"""

    name: str
    operator: str
    value: Any

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{self.value!r}"


@dataclass(frozen=True)
class Pattern:
    """What a node has to be: its operation, and whatever else is said. `name`: its name fits.

    `raw`: of an OP node, its name where it comes from; aten.roll is aten.roll.default too.
    """

    op: str
    variant: str | None = None
    name: Selector | None = None
    tests: tuple[AttributeTest, ...] = ()
    raw: Selector | None = None

    def fits(self, op: str, variant: str | None, name: str, attrs: Mapping[str, Any]) -> bool:
        """`attrs` as `attributes_of` gives them."""
        return (
            op == self.op
            and (self.variant is None or variant == self.variant)
            and (self.name is None or name in self.name)
            and (self.raw is None or _called(attrs.get(RAW), self.raw))
            and all(
                compare(test.operator, attrs.get(test.name), test.value) is True
                for test in self.tests
            )
        )


def attributes_of(node: Node) -> Mapping[str, Any]:
    """What a node's attributes are to patterns, in the catalogue as well."""
    if not op_of(node).raw or node.source is None:
        return node.attrs
    return {**node.attrs, RAW: node.source.get("op")}


def _called(operation: Any, wanted: Selector) -> bool:
    if not isinstance(operation, str):
        return False
    dots = [at for at, sign in enumerate(operation) if sign == "." and at]
    return any(operation[:end] in wanted for end in (len(operation), *dots))


def compare(sign: str, found: Any, wanted: Any) -> bool | None:
    """Whether an attribute is as it is wanted; None if it is absent.

    A number stands for a list whose entries are all that number: `kernel=3` is `kernel=[3, 3]`,
    and `kernel>=3` asks it of every axis. Values of different kinds are just not equal.
    """
    if found is None or wanted is None:
        return None
    if sign == "!=":
        same = compare("=", found, wanted)
        return None if same is None else not same
    if _is_list(found) and not _is_list(wanted):
        entries = list(_entries(found))
        return bool(entries) and all(_single(sign, entry, wanted) for entry in entries)
    if _is_list(found) and _is_list(wanted):
        return sign == "=" and _listed(found) == _listed(wanted)
    return not _is_list(wanted) and _single(sign, found, wanted)


def _single(sign: str, found: Any, wanted: Any) -> bool:
    if isinstance(found, bool) != isinstance(wanted, bool):
        return False
    if isinstance(found, str) != isinstance(wanted, str):
        return False
    try:
        return bool(OPERATORS[sign](found, wanted))
    except TypeError:  # a date or a table of a configuration beside a number
        return False


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _listed(value: Any) -> Any:
    return [_listed(each) for each in value] if _is_list(value) else value


def _entries(value: Any) -> Iterator[Any]:
    for each in value:
        yield from _entries(each) if _is_list(each) else [each]
