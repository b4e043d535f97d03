"""Values: what stands in columns, on the sides of comparisons, in `order by` and `group by`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlv.dql.bind import constants, paths
from dlv.dql.bind.reading import Reading, Reported
from dlv.dql.bind.scopes import Scope
from dlv.dql.bind.things import (
    ANY,
    LIST,
    NULL,
    NUMBER,
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
)
from dlv.dql.words import ast
from dlv.errors import nearest
from dlv.metadata.select import relations
from dlv.metadata.select.relations import Aggregate, Arithmetic, Coalesce, Negative, Value

AGGREGATES = ("count", "sum", "avg", "min", "max", "stddev", "median")
_ORDERED = ("min", "max")  # of texts and times as well
_CONDITIONS = (
    *(ast.And, ast.Or, ast.Compare, ast.Like, ast.Matches, ast.In, ast.Between, ast.IsNull),
    *(ast.IsNan, ast.Has, ast.Quantified, ast.Lineage, ast.Exists),
)


def value(reading: Reading, scope: Scope, part: ast.Expression) -> Thing:
    """What an expression stands for, before its use is known."""
    if constants.is_constant(part):
        return constants.scalar(reading, part)
    if isinstance(part, ast.Path):
        if not part.trailers and part.name in scope.titles and part.name not in scope.variables:
            return scope.titles[part.name]
        return paths.thing(reading, scope, part)
    if isinstance(part, ast.Binary):
        return _arithmetic(reading, scope, part)
    if isinstance(part, ast.Unary) and part.operator == "-":
        operand = _number(reading, scope, part.operand)
        return Scalar(Negative(operand.value), NUMBER)
    if isinstance(part, ast.Call):
        return _call(reading, scope, part)
    if isinstance(part, (*_CONDITIONS, ast.Unary)):
        raise reading.fault(
            part.span,
            f"{reading.short(part)} is a condition, and a value is wanted here",
            hint="conditions stand in where and having",
        )
    raise reading.fault(
        part.span,
        f"{reading.short(part)} is no value",
        hint="lists stand behind `in`",
    )


def scalar(reading: Reading, scope: Scope, part: ast.Expression) -> Scalar:
    """One value; nodes, versions and attributes with several values are none."""
    found = value(reading, scope, part)
    return single(reading, part, found)


def single(reading: Reading, part: ast.Expression, found: Thing) -> Scalar:
    said = reading.short(part)
    if isinstance(found, Scalar):
        return found
    if isinstance(found, Selected):
        return paths.metric(reading, found.variable, found.selector)
    if isinstance(found, Whole):
        raise reading.fault(
            part.span,
            f"`{said}` is a version, and a value is wanted here",
            did_you_mean=nearest(said, ["true", "false", "null"]),
            hint=f"ask for something of it: {said}.name, {said}.id",
        )
    if isinstance(found, NodeSet):
        raise reading.fault(
            part.span,
            f"{said} is a set of nodes, and a value is wanted here",
            hint=f"{said}.count is how many there are; attributes such as .out stand in where",
        )
    if isinstance(found, NodeAttribute):
        raise reading.fault(
            part.span,
            f"{said} is an attribute of each node of a set, not one value",
            hint="in where it is compared with a constant",
        )
    raise reading.fault(
        part.span,
        f"{said} can be several values, and one is wanted here",
        hint=f"in where, {said} = .. asks whether one of them is that",
    )


def is_kind(reading: Reading, found: Scalar, *kinds: str) -> bool:
    """Whether a value can be of one of these kinds, as far as that is known."""
    if found.kind != ANY or found.key is None:
        return found.kind in (*kinds, ANY, NULL)
    return any(reading.known.has_kind(found.key, kind) for kind in kinds)


def holds(reading: Reading, found: Scalar) -> str:
    """The kinds of a value as a message says them."""
    if found.key is not None:
        kinds = [kind for kind in reading.known.kinds(found.key) if kind != NULL] or [NULL]
        return "always " + " or ".join(WORDS[kind] for kind in kinds)
    return WORDS[found.kind]


def _number(reading: Reading, scope: Scope, part: ast.Expression) -> Scalar:
    found = scalar(reading, scope, part)
    if not is_kind(reading, found, NUMBER):
        raise reading.fault(
            part.span,
            f"{reading.short(part)} is {holds(reading, found)}, not a number to calculate with",
        )
    return found


def _arithmetic(reading: Reading, scope: Scope, part: ast.Binary) -> Scalar:
    """A long sum is nested to the left, and is gone through without recursion."""
    chain: list[ast.Binary] = [part]
    while isinstance(chain[-1].left, ast.Binary):
        chain.append(chain[-1].left)
    found: list[Scalar] = []
    for operand in (chain[-1].left, *(each.right for each in reversed(chain))):
        with reading.collecting():
            found.append(_number(reading, scope, operand))
    if len(found) <= len(chain):
        raise Reported
    total, rest = found[0], found[1:]
    for each, right in zip(reversed(chain), rest, strict=True):
        total = Scalar(Arithmetic(each.operator, total.value, right.value), NUMBER)
    return total


# Calls


def _call(reading: Reading, scope: Scope, call: ast.Call) -> Scalar:
    name = call.name.lower()
    if name in AGGREGATES:
        return _aggregate(reading, scope, call, name)
    if name == "coalesce":
        return _coalesce(reading, scope, call)
    known = [*AGGREGATES, "coalesce", "not", "exists"]
    raise reading.fault(
        ast.Span(call.span.start, call.span.start + len(call.name)),
        f"there is no function {call.name}",
        why=f"known are {', '.join([*AGGREGATES, 'coalesce'])}",
        did_you_mean=nearest(call.name, known),
    )


def arguments(reading: Reading, call: ast.Call) -> Sequence[ast.Argument]:
    for argument in call.args:
        if argument.name is not None or argument.direction is not None:
            raise reading.fault(argument.span, f"{call.name} takes plain values")
    return call.args


def _aggregate(reading: Reading, scope: Scope, call: ast.Call, name: str) -> Scalar:
    if scope.clause is not None:
        raise reading.fault(
            call.span,
            f"{name} cannot stand in {scope.clause}",
            hint="what is asked of groups stands behind having"
            if "where" in scope.clause
            else None,
        )
    args = arguments(reading, call)
    if len(args) != 1:
        raise reading.fault(call.span, f"{name} takes one value", hint=f'{name}(m["loss"])')
    inside = args[0].value
    if isinstance(inside, ast.Star):
        if name != "count":
            raise reading.fault(call.span, f"{name} needs a value", hint=f'{name}(m["loss"])')
        return Scalar(Aggregate("count", None), NUMBER)
    scope = replace(scope, clause=f"{name}(..)", titles={})
    found = value(reading, scope, inside)
    if isinstance(found, Whole):
        if name != "count":
            raise reading.fault(
                inside.span, f"{name} of versions", hint="versions are only counted"
            )
        return Scalar(Aggregate("count", relations.Whole(found.variable.unique)), NUMBER)
    one = single(reading, inside, found)
    if name == "count":
        return Scalar(Aggregate("count", one.value), NUMBER)
    wanted = (NUMBER, TEXT, TIME) if name in _ORDERED else (NUMBER,)
    if not is_kind(reading, one, *wanted):
        raise reading.fault(
            inside.span, f"{name} of {reading.short(inside)}, which is {holds(reading, one)}"
        )
    kind = one.kind if name in _ORDERED else NUMBER
    return Scalar(Aggregate(name, one.value), kind)


def _coalesce(reading: Reading, scope: Scope, call: ast.Call) -> Scalar:
    args = arguments(reading, call)
    if not args:
        raise reading.fault(call.span, "coalesce takes values", hint="coalesce(m.lr, 0.1)")
    found: list[Scalar] = []
    for argument in args:
        with reading.collecting():
            if isinstance(argument.value, ast.Star):
                raise reading.fault(argument.span, "coalesce takes values, not *")
            found.append(scalar(reading, scope, argument.value))
    if len(found) < len(args):
        raise Reported
    kinds = {each.kind for each in found} - {NULL}
    return Scalar(
        Coalesce(tuple(each.value for each in found)), kinds.pop() if len(kinds) == 1 else ANY
    )


def shown(
    reading: Reading, scope: Scope, part: ast.Expression, *, column: bool = True
) -> tuple[Value, str]:
    """What stands in a column, which may be a version or a list, and its kind.

    What is only ordered or grouped by (no `column`) cannot be names of nodes.
    """
    found = value(reading, scope, part)
    if isinstance(found, Whole):
        return relations.Whole(found.variable.unique), "version"
    if isinstance(found, Several):
        return relations.Listed(found.name, found.variable.unique), LIST
    if isinstance(found, NodeSet):
        return relations.Listed(found.nodes, found.nodes.variable), LIST
    if isinstance(found, Selected) and column:
        return _selected(reading, found)
    one = single(reading, part, found)
    return one.value, one.kind


def _selected(reading: Reading, found: Selected) -> tuple[Value, str]:
    """`m["x"]` as a column: the metric, else the names of the nodes."""
    selector, whose = found.selector, found.variable
    name = selector.text
    series = not selector.regular and reading.known.has_series(name)
    if series and reading.known.has_layer(name):
        raise reading.fault(
            selector.span,
            f'"{name}" is a metric, and nodes are called so, too',
            hint=f'{whose.name}.metrics["{name}"] or {whose.name}.nodes["{name}"]',
        )
    if series:
        one = paths.metric(reading, whose, selector)
        return one.value, one.kind
    nodes = paths.start(reading, whose, selector)
    return relations.Listed(nodes, whose.unique), LIST
