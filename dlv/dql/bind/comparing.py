"""Comparisons: which kinds go together, and what is asked of versions, nodes and single values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlv.dql.bind import constants, values
from dlv.dql.bind.attribute_names import fits
from dlv.dql.bind.reading import Reading, Reported
from dlv.dql.bind.scopes import Scope
from dlv.dql.bind.things import (
    ANY,
    NULL,
    TEXT,
    TIME,
    WORDS,
    NodeAttribute,
    NodeSet,
    Scalar,
    Selected,
    Several,
    Thing,
    Whole,
    kind_of,
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


def holding(reading: Reading, scope: Scope, part: ast.Part, left: Thing, make: Make) -> Condition:
    """A test of one value, of any or every node of a set, of one of several values."""
    negated = isinstance(part, ast.Test) and part.negated

    def test(value: Value) -> Condition:
        return Not(make(value)) if negated else make(value)

    if isinstance(left, NodeAttribute):
        return of_nodes(scope, left.nodes, test(NodeValue(left.name)))
    if isinstance(left, Several):
        return _of_several(scope, left, test(ManyValue()))
    assert isinstance(left, Scalar)
    if scope.quantifier is not None:
        raise reading.fault(
            part.span,
            f"`{scope.quantifier}` is said of nodes, and {reading.short(part)} asks nothing of any",
            hint=f'{scope.quantifier} m["conv*"].out > 64',
        )
    return test(left.value)


def of_nodes(scope: Scope, nodes: Nodes, test: Condition) -> Condition:
    if scope.quantifier == "every":
        return EveryNode(nodes, test)
    some = AnyNode(nodes, test)
    return Not(some) if scope.quantifier == "no" else some


def _of_several(scope: Scope, left: Several, test: Condition) -> Condition:
    whose, name = left.variable.unique, left.name
    if scope.quantifier == "every":
        there = AnyOf(whose, name, Truth(True))
        return All((there, Not(AnyOf(whose, name, Not(test)))))
    some = AnyOf(whose, name, test)
    return Not(some) if scope.quantifier == "no" else some


# = != < <= > >=


def compare(reading: Reading, scope: Scope, part: ast.Compare) -> Condition:
    sides: list[Thing] = []
    for side in (part.left, part.right):
        with reading.collecting():
            sides.append(values.value(reading, scope, side))
    if len(sides) < 2:
        raise Reported
    written: tuple[Any, Any] = (part.left, part.right)
    if _rank(sides[0]) < _rank(sides[1]):
        sides.reverse()
        turned = ast.Compare(_TURNED[part.operator], part.right, part.left, span=part.span)
        return _compared(reading, scope, turned, sides[0], sides[1], (written[1], written[0]))
    return _compared(reading, scope, part, sides[0], sides[1], written)


def _rank(side: Thing) -> int:
    """What decides by which rule is compared stands on the left."""
    if isinstance(side, Scalar):
        return 0 if side.constant else 1
    return {Selected: 1, Whole: 2, NodeSet: 3, Several: 4, NodeAttribute: 5}[type(side)]


def _compared(
    reading: Reading,
    scope: Scope,
    part: ast.Compare,
    left: Thing,
    right: Thing,
    written: tuple[Any, Any],
) -> Condition:
    sign = part.operator
    if isinstance(left, NodeAttribute):
        fixed = _beside_nodes(reading, left, right, *written)
        return holding(reading, scope, part, left, lambda one: Compare(sign, one, fixed))
    if isinstance(left, Several):
        other = beside_several(reading, part, left, right, written[1])
        return holding(reading, scope, part, left, lambda one: Compare(sign, one, other))
    if isinstance(left, Whole) and not isinstance(right, NodeSet):
        if scope.quantifier is not None:
            raise reading.fault(part.span, f"`{scope.quantifier}` is said of nodes")
        return _versions(reading, part, left, right, written)
    one = values.single(reading, written[0], left)
    two = values.single(reading, written[1], right)
    if is_id(one) and sign in _EQUALITY and two.constant and two.kind == TEXT:
        assert isinstance(one.value, Column)
        found = these(reading, one.value.variable, [(written[1], two.value)])
        return Not(found) if sign == "!=" else found
    one, two = alike(reading, part, (one, two), written)
    return holding(reading, scope, part, one, lambda value: Compare(sign, value, two.value))


def _beside_nodes(
    reading: Reading, left: NodeAttribute, right: Thing, said: ast.Part, other: ast.Part
) -> Constant:
    """What attributes of nodes are compared with: constants of the right kind."""
    if not isinstance(right, Scalar) or not isinstance(right.value, Constant):
        raise reading.fault(
            other.span,
            f"{reading.short(said)} is an attribute of nodes, which is compared with constants",
            why=f"{reading.short(other)} is none",
        )
    check_attribute(reading, left, right.value.value, said, other)
    return right.value


def check_attribute(
    reading: Reading, left: NodeAttribute, value: Any, said: ast.Part, other: ast.Part
) -> None:
    kind = kind_of(value)
    if kind == NULL:
        raise _beside_null(reading, said, other)
    if not fits(left.kinds, kind):
        wanted = " or ".join(sorted(WORDS[each] for each in left.kinds))
        raise reading.fault(
            other.span,
            f"{reading.short(said)} is {wanted}, and {reading.short(other)} is {WORDS[kind]}",
        )


def _beside_null(reading: Reading, said: ast.Part, other: ast.Part) -> Exception:
    return reading.fault(other.span, "nothing equals null", hint=f"{reading.short(said)} is null")


def beside_several(
    reading: Reading, part: ast.Compare, left: Several, right: Thing, other: Any
) -> Value:
    if left.name == "parents" and isinstance(right, Whole):
        return Column(right.variable.unique, "id")
    one = values.single(reading, other, right)
    if one.constant and one.kind == NULL:
        raise _beside_null(reading, part.left, other)
    if not values.is_kind(reading, one, TEXT):
        raise reading.fault(
            other.span,
            f"`{left.name}` holds texts, and {reading.short(other)} is"
            f" {values.holds(reading, one)}",
        )
    if left.name == "parents" and isinstance(one.value, Constant):
        if part.operator not in _EQUALITY:
            raise reading.fault(part.span, "parents are only compared by = and !=")
        return Constant(constants.reference(reading, other, str(one.value.value)))
    return one.value


def _versions(
    reading: Reading, part: ast.Compare, left: Whole, right: Thing, written: tuple[Any, Any]
) -> Condition:
    whose, other = left.variable.unique, written[1]
    said = reading.short(written[0])
    if part.operator in _EQUALITY and isinstance(right, Scalar) and _is_source(right):
        return Compare(part.operator, Column(whose, "id"), right.value)
    if isinstance(right, Scalar) and (not right.constant or right.kind != TEXT):
        words = nearest(said, ["true", "false", "null"])
        behind = written[0].span.start > other.span.start  # then it may be a word
        hint = f'{said} = "lenet@3", {said}.name = .., {said}.id = ..'
        if behind:
            hint = f'a text stands in quotes: "{said}"'
        raise reading.fault(
            (written[0] if behind else other).span,
            f"`{said}` is a version, and {reading.short(other)} is {values.holds(reading, right)}",
            did_you_mean=words,
            hint=None if words else hint,
        )
    if part.operator not in _EQUALITY:
        raise reading.fault(
            part.span,
            "versions are only compared by = and !=",
            hint=f"an order is that of {said}.creation_time or {said}.number",
        )
    if isinstance(right, Whole):
        found: Condition = Same(whose, right.variable.unique)
    elif isinstance(right, Scalar):
        found = these(reading, whose, [(other, right.value)])
    else:
        raise reading.fault(
            other.span, f"`{said}` is a version, and {reading.short(other)} is none"
        )
    return Not(found) if part.operator == "!=" else found


def these(reading: Reading, whose: str, wanted: Sequence[tuple[Any, Value]]) -> Is:
    """One of these versions, which are named by texts."""
    ids = []
    for part, value in wanted:
        with reading.collecting():
            assert isinstance(value, Constant)
            text = constants.texts(reading, part, value.value)
            ids.append(constants.reference(reading, part, text))
    if len(ids) < len(wanted):
        raise Reported
    return Is(whose, tuple(dict.fromkeys(ids)))


def is_id(found: Scalar) -> bool:
    return isinstance(found.value, Column) and found.value.name == "id"


def _is_source(found: Scalar) -> bool:
    return isinstance(found.value, Column) and found.value.name == "source"


def alike(
    reading: Reading,
    part: ast.Part,
    found: tuple[Scalar, Scalar],
    written: tuple[ast.Part, ast.Part],
) -> tuple[Scalar, Scalar]:
    """The two sides, texts of times read; a fault if they can never be of one kind."""
    one, two = found
    for side, said, other in ((one, written[1], written[0]), (two, written[0], written[1])):
        if side.constant and side.kind == NULL:
            raise _beside_null(reading, said, other)
    if one.kind == TIME and two.kind == TEXT and isinstance(two.value, Constant):
        two = Scalar(constants.moment(reading, written[1], str(two.value.value)), TIME)
    if _is_source(one) and isinstance(two.value, Constant) and two.kind == TEXT:
        two = Scalar(Constant(constants.reference(reading, written[1], str(two.value.value))), TEXT)
    if ANY not in (one.kind, two.kind):
        agree = one.kind == two.kind
    elif one.kind == ANY and two.kind == ANY:
        agree = True
    else:
        open_one, kind = (one, two.kind) if one.kind == ANY else (two, one.kind)
        agree = values.is_kind(reading, open_one, kind)
    if not agree:
        hint = None
        if TIME in (one.kind, two.kind):
            hint = 'times are written as texts: "2026-06-01"'
        elif is_id(one):
            hint = 'a version reference is a text: "lenet@3"'
        raise reading.fault(
            part.span,
            f"{reading.short(written[0])} is {values.holds(reading, one)}, and"
            f" {reading.short(written[1])} is {values.holds(reading, two)}",
            hint=hint,
        )
    return one, two


# between


def between(reading: Reading, scope: Scope, part: ast.Between) -> Condition:
    """From low to high, both included."""
    left: Thing | None = None
    ends: list[Thing] = []
    with reading.collecting():
        left = values.value(reading, scope, part.left)
    for side in (part.low, part.high):
        with reading.collecting():
            ends.append(values.value(reading, scope, side))
    if left is None or len(ends) < 2:
        raise Reported
    if isinstance(left, (Several, Whole)):
        raise reading.fault(part.left.span, f"{reading.short(part.left)} has no order")
    bounds: list[Value] = []
    if not isinstance(left, NodeAttribute):
        left = values.single(reading, part.left, left)
    for end, side in zip(ends, (part.low, part.high), strict=True):
        if isinstance(left, NodeAttribute):
            bounds.append(_beside_nodes(reading, left, end, part.left, side))
            continue
        single = values.single(reading, side, end)
        _, right = alike(reading, part, (left, single), (part.left, side))
        bounds.append(right.value)
    low, high = bounds
    return holding(
        reading,
        scope,
        part,
        left,
        lambda one: All((Compare(">=", one, low), Compare("<=", one, high))),
    )
