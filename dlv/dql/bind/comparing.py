"""Comparisons: which kinds go together, and what is asked of versions, nodes and single values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dlv.dql.bind import constants, values
from dlv.dql.bind.binder import Binder
from dlv.dql.bind.things import (
    ANY,
    NULL,
    TEXT,
    TIME,
    NodeAttribute,
    NodeSet,
    Scalar,
    Selected,
    Several,
    Thing,
    Whole,
)
from dlv.dql.words import ast
from dlv.errors import nearest
from dlv.metadata.select.node_sets import Nodes
from dlv.metadata.select.relations import (
    All,
    AnyNode,
    AnyOf,
    Column,
    Compare,
    Condition,
    Constant,
    EveryNode,
    Is,
    ManyValue,
    NodeValue,
    Not,
    Same,
    Truth,
    Value,
)

Make = Callable[[Value], Condition]
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_EQUALITY = ("=", "!=")


def holding(binder: Binder, part: ast.Part, left: Thing, make: Make) -> Condition:
    """A test of one value, of any or every node of a set, of one of several values."""
    negated = isinstance(part, ast.Test) and part.negated

    def test(value: Value) -> Condition:
        return Not(make(value)) if negated else make(value)

    if isinstance(left, NodeAttribute):
        return of_nodes(binder, left.nodes, test(NodeValue(left.name)))
    if isinstance(left, Several):
        return _of_several(binder, left, test(ManyValue()))
    assert isinstance(left, Scalar)
    quantifier = binder.scope.quantifier
    if quantifier is not None:
        raise binder.fault(
            part.span,
            f"`{quantifier}` is said of nodes, and {binder.short(part)} asks nothing of any",
            hint=f'{quantifier} m["conv*"].out > 64',
        )
    return test(left.value)


def of_nodes(binder: Binder, nodes: Nodes, test: Condition) -> Condition:
    if binder.scope.quantifier == "every":
        return EveryNode(nodes, test)
    some = AnyNode(nodes, test)
    return Not(some) if binder.scope.quantifier == "no" else some


def _of_several(binder: Binder, left: Several, test: Condition) -> Condition:
    whose, name = left.variable.unique, left.name
    if binder.scope.quantifier == "every":
        there = AnyOf(whose, name, Truth(True))
        return All((there, Not(AnyOf(whose, name, Not(test)))))
    some = AnyOf(whose, name, test)
    return Not(some) if binder.scope.quantifier == "no" else some


# = != < <= > >=


def compare(binder: Binder, part: ast.Compare) -> Condition:
    sides = binder.all(partial(values.value, binder), (part.left, part.right))
    written: tuple[Any, Any] = (part.left, part.right)
    if _rank(sides[0]) < _rank(sides[1]):
        sides.reverse()
        turned = ast.Compare(_TURNED[part.operator], part.right, part.left, span=part.span)
        return _compared(binder, turned, sides[0], sides[1], (written[1], written[0]))
    return _compared(binder, part, sides[0], sides[1], written)


def _rank(side: Thing) -> int:
    """What decides by which rule is compared stands on the left."""
    if isinstance(side, Scalar):
        return 0 if side.constant else 1
    return {Selected: 1, Whole: 2, NodeSet: 3, Several: 4, NodeAttribute: 5}[type(side)]


def _compared(
    binder: Binder,
    part: ast.Compare,
    left: Thing,
    right: Thing,
    written: tuple[Any, Any],
) -> Condition:
    sign = part.operator
    if isinstance(left, NodeAttribute):
        fixed = _beside_nodes(binder, left, right, *written)
        return holding(binder, part, left, lambda one: Compare(sign, one, fixed))
    if isinstance(left, Several):
        other = beside_several(binder, part, left, right, written[1])
        return holding(binder, part, left, lambda one: Compare(sign, one, other))
    if isinstance(left, Whole) and not isinstance(right, NodeSet):
        if binder.scope.quantifier is not None:
            raise binder.fault(part.span, f"`{binder.scope.quantifier}` is said of nodes")
        return _versions(binder, part, left, right, written)
    one = values.single(binder, written[0], left)
    two = values.single(binder, written[1], right)
    if is_id(one) and sign in _EQUALITY and two.constant and two.kind == TEXT:
        assert isinstance(one.value, Column)
        found = these(binder, one.value.variable, [(written[1], two.value)])
        return Not(found) if sign == "!=" else found
    if sign in _EQUALITY and one.check is not None and isinstance(two.value, Constant):
        one.check(written[1], two.value.value)
    one, two = alike(binder, part, (one, two), written)
    return holding(binder, part, one, lambda value: Compare(sign, value, two.value))


def _beside_nodes(
    binder: Binder, left: NodeAttribute, right: Thing, said: ast.Part, other: ast.Part
) -> Constant:
    """What attributes of nodes are compared with: constants of the right kind."""
    if not isinstance(right, Scalar) or not isinstance(right.value, Constant):
        raise binder.fault(
            other.span,
            f"{binder.short(said)} is an attribute of nodes, which is compared with constants",
            why=f"{binder.short(other)} is none",
        )
    check_attribute(binder, left, right.value.value, said, other)
    return right.value


def check_attribute(
    binder: Binder, left: NodeAttribute, value: Any, said: ast.Part, other: ast.Part
) -> None:
    if value is None:
        raise _beside_null(binder, said, other)
    binder.expect_constant(other, value, binder.short(said), left.kinds)


def _beside_null(binder: Binder, said: ast.Part, other: ast.Part) -> Exception:
    return binder.fault(other.span, "nothing equals null", hint=f"{binder.short(said)} is null")


def beside_several(
    binder: Binder, part: ast.Compare, left: Several, right: Thing, other: Any
) -> Value:
    if left.name == "parents" and isinstance(right, Whole):
        return Column(right.variable.unique, "id")
    one = values.single(binder, other, right)
    if one.constant and one.kind == NULL:
        raise _beside_null(binder, part.left, other)
    if not binder.is_kind(one, TEXT):
        raise binder.fault(
            other.span,
            f"`{left.name}` holds texts, and {binder.short(other)} is {binder.holds(one)}",
        )
    if left.name == "parents" and isinstance(one.value, Constant):
        if part.operator not in _EQUALITY:
            raise binder.fault(part.span, "parents are only compared by = and !=")
        return Constant(constants.reference(binder, other, str(one.value.value)))
    return one.value


def _versions(
    binder: Binder, part: ast.Compare, left: Whole, right: Thing, written: tuple[Any, Any]
) -> Condition:
    whose, other = left.variable.unique, written[1]
    said = binder.short(written[0])
    if part.operator in _EQUALITY and isinstance(right, Scalar) and _is_source(right):
        return Compare(part.operator, Column(whose, "id"), right.value)
    if isinstance(right, Scalar) and (not right.constant or right.kind != TEXT):
        words = nearest(said, ["true", "false", "null"])
        behind = written[0].span.start > other.span.start  # then it may be a word
        hint = f'{said} = "lenet@3", {said}.name = .., {said}.id = ..'
        if behind:
            hint = f'a text stands in quotes: "{said}"'
        raise binder.fault(
            (written[0] if behind else other).span,
            f"`{said}` is a version, and {binder.short(other)} is {binder.holds(right)}",
            did_you_mean=words,
            hint=None if words else hint,
        )
    if part.operator not in _EQUALITY:
        raise binder.fault(
            part.span,
            "versions are only compared by = and !=",
            hint=f"an order is that of {said}.creation_time or {said}.number",
        )
    if isinstance(right, Whole):
        found: Condition = Same(whose, right.variable.unique)
    elif isinstance(right, Scalar):
        found = these(binder, whose, [(other, right.value)])
    else:
        raise binder.fault(other.span, f"`{said}` is a version, and {binder.short(other)} is none")
    return Not(found) if part.operator == "!=" else found


def these(binder: Binder, whose: str, wanted: Sequence[tuple[Any, Value]]) -> Is:
    """One of these versions, which are named by texts."""

    def version_id(one: tuple[Any, Value]) -> str:
        part, value = one
        assert isinstance(value, Constant)
        return constants.reference(binder, part, constants.texts(binder, part, value.value))

    return Is(whose, tuple(dict.fromkeys(binder.all(version_id, wanted))))


def is_id(found: Scalar) -> bool:
    return isinstance(found.value, Column) and found.value.name == "id"


def _is_source(found: Scalar) -> bool:
    return isinstance(found.value, Column) and found.value.name == "source"


def alike(
    binder: Binder,
    part: ast.Part,
    found: tuple[Scalar, Scalar],
    written: tuple[ast.Part, ast.Part],
) -> tuple[Scalar, Scalar]:
    """The two sides, texts of times read; a fault if they can never be of one kind."""
    one, two = found
    for side, said, other in ((one, written[1], written[0]), (two, written[0], written[1])):
        if side.constant and side.kind == NULL:
            raise _beside_null(binder, said, other)
    if one.kind == TIME and two.kind == TEXT and isinstance(two.value, Constant):
        two = Scalar(constants.moment(binder, written[1], str(two.value.value)), TIME)
    if _is_source(one) and isinstance(two.value, Constant) and two.kind == TEXT:
        two = Scalar(Constant(constants.reference(binder, written[1], str(two.value.value))), TEXT)
    if ANY not in (one.kind, two.kind):
        agree = one.kind == two.kind
    elif one.kind == ANY and two.kind == ANY:
        agree = True
    else:
        open_one, kind = (one, two.kind) if one.kind == ANY else (two, one.kind)
        agree = binder.is_kind(open_one, kind)
    if not agree:
        hint = None
        if TIME in (one.kind, two.kind):
            hint = 'times are written as texts: "2026-06-01"'
        elif is_id(one):
            hint = 'a version reference is a text: "lenet@3"'
        raise binder.fault(
            part.span,
            f"{binder.short(written[0])} is {binder.holds(one)}, and"
            f" {binder.short(written[1])} is {binder.holds(two)}",
            hint=hint,
        )
    return one, two


# between


def between(binder: Binder, part: ast.Between) -> Condition:
    """From low to high, both included."""
    left, *ends = binder.all(partial(values.value, binder), (part.left, part.low, part.high))
    bounds: list[Value] = []
    if not isinstance(left, NodeAttribute):
        left = values.single(binder, part.left, left)
    for end, side in zip(ends, (part.low, part.high), strict=True):
        if isinstance(left, NodeAttribute):
            bounds.append(_beside_nodes(binder, left, end, part.left, side))
            continue
        single = values.single(binder, side, end)
        _, right = alike(binder, part, (left, single), (part.left, side))
        bounds.append(right.value)
    low, high = bounds
    return holding(
        binder,
        part,
        left,
        lambda one: All((Compare(">=", one, low), Compare("<=", one, high))),
    )
