"""Values: what stands in columns, on the sides of comparisons, in `order by` and `group by`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from dlv.dql.bind import constants, paths
from dlv.dql.bind.binder import Binder
from dlv.dql.bind.things import (
    ANY,
    LIST,
    NULL,
    NUMBER,
    TEXT,
    TIME,
    VERSION,
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

AGGREGATES = ("count", "sum", "avg", "min", "max", "stddev", "median", "argmin", "argmax")
# A function of one value: the kind that it takes, and the one that it gives.
FUNCTIONS = {
    "lower": (TEXT, TEXT),
    "upper": (TEXT, TEXT),
    "length": (TEXT, NUMBER),
    "abs": (NUMBER, NUMBER),
    "round": (NUMBER, NUMBER),
}
_MOST_DIGITS = 15
_ORDERED = ("min", "max")  # of texts and times as well
_CONDITIONS = (
    *(ast.And, ast.Or, ast.Compare, ast.Like, ast.Matches, ast.In, ast.Between, ast.IsNull),
    *(ast.IsNan, ast.Has, ast.Quantified, ast.Lineage, ast.Exists),
)


def value(binder: Binder, part: ast.Expression) -> Thing:
    """What an expression stands for, before its use is known."""
    if constants.is_constant(part):
        return constants.scalar(binder, part)
    if isinstance(part, ast.Path):
        scope = binder.scope
        if scope.setting is not None:
            return scope.setting(binder, part)
        if not part.trailers and part.name in scope.titles and part.name not in scope.variables:
            return scope.titles[part.name]
        return paths.thing(binder, part)
    if isinstance(part, ast.Binary):
        return _arithmetic(binder, part)
    if isinstance(part, ast.Unary) and part.operator == "-":
        operand = _number(binder, part.operand)
        return Scalar(Negative(operand.value), NUMBER)
    if isinstance(part, ast.Call):
        return _call(binder, part)
    if isinstance(part, ast.OneValue):
        return _one_value(binder, part)
    if isinstance(part, ast.Case):
        return _case(binder, part)
    if isinstance(part, (*_CONDITIONS, ast.Unary)):
        raise binder.fault(
            part.span,
            f"{binder.short(part)} is a condition, and a value is required here",
            hint="conditions belong in `where` and `having`",
        )
    raise binder.fault(
        part.span, f"{binder.short(part)} is not a value", hint="lists belong after `in`"
    )


def scalar(binder: Binder, part: ast.Expression) -> Scalar:
    """One value; nodes, versions and attributes with several values are none."""
    found = value(binder, part)
    return single(binder, part, found)


def single(binder: Binder, part: ast.Expression, thing: Thing) -> Scalar:
    """One value, of nodes or a metric the metric; of an attribute of nodes what they share."""
    if isinstance(thing, Selected):
        return paths.metric(binder, thing.variable, thing.selector)
    if isinstance(thing, NodeAttribute):
        return Scalar(relations.OfNodes(thing.nodes, thing.name), ANY)
    binder.expect(part, thing, ANY)
    assert isinstance(thing, Scalar)
    return thing


def _number(binder: Binder, part: ast.Expression) -> Scalar:
    number = scalar(binder, part)
    binder.expect(part, number, NUMBER)
    return number


def _arithmetic(binder: Binder, part: ast.Binary) -> Scalar:
    """A long sum is nested to the left, and is gone through without recursion."""
    chain: list[ast.Binary] = [part]
    while isinstance(chain[-1].left, ast.Binary):
        chain.append(chain[-1].left)
    operands = (chain[-1].left, *(each.right for each in reversed(chain)))
    total, *rest = binder.all(partial(_number, binder), operands)
    for each, right in zip(reversed(chain), rest, strict=True):
        total = Scalar(Arithmetic(each.operator, total.value, right.value), NUMBER)
    return total


# Calls


def _call(binder: Binder, call: ast.Call) -> Scalar:
    name = call.name.lower()
    if name in AGGREGATES:
        return _aggregate(binder, call, name)
    if name == "coalesce":
        return _coalesce(binder, call)
    if name in FUNCTIONS:
        return _applied(binder, call, name)
    known = [*AGGREGATES, *FUNCTIONS, "coalesce", "not", "exists"]
    raise binder.fault(
        ast.Span(call.span.start, call.span.start + len(call.name)),
        f"no function {call.name}",
        why=f"known: {', '.join([*AGGREGATES, *FUNCTIONS, 'coalesce'])}",
        did_you_mean=nearest(call.name, known),
    )


def _one_value(binder: Binder, part: ast.OneValue) -> Scalar:
    """A subquery as a value. It selects one column and can give at most one row."""
    subquery = binder.query(part.query)
    body = subquery.query.body
    single = isinstance(body, relations.Select) and not body.group_by
    single = single and relations.has_aggregate(body.items)  # type: ignore[union-attr]
    if len(subquery.kinds) != 1:
        raise binder.fault(part.span, "a query in place of a value selects one column")
    if subquery.kinds[0] in (VERSION, LIST):
        raise binder.fault(
            part.span,
            f"a query in place of a value selects {WORDS[subquery.kinds[0]]}",
            hint="m in (select ..) is for versions",
        )
    if not single and subquery.query.limit not in (0, 1):
        raise binder.fault(
            part.span,
            "a query in place of a value may give many rows",
            hint="select an aggregate, such as max(..), or end it with `limit 1`",
        )
    return Scalar(relations.OneValue(subquery.query), subquery.kinds[0])


def _case(binder: Binder, part: ast.Case) -> Scalar:
    """The value of the first condition that holds. All values are of one kind."""
    binder = binder.within(quantifier=None)
    if binder.scope.setting is not None:
        raise binder.fault(part.span, "conditions on a configuration cannot have `case`")
    values_written = [value for _, value in part.whens]
    values_written += [] if part.otherwise is None else [part.otherwise]
    tests = binder.all(partial(binder.condition, binder), [test for test, _ in part.whens])
    scalars = binder.all(partial(scalar, binder), values_written)
    kinds = list(dict.fromkeys(one.kind for one in scalars if one.kind not in (NULL, ANY)))
    if len(kinds) > 1:
        raise binder.fault(
            part.span, f"the values of this `case` are {WORDS[kinds[0]]} and {WORDS[kinds[1]]}"
        )
    written = [one.value for one in scalars]
    otherwise = relations.Constant(None) if part.otherwise is None else written.pop()
    whens = tuple(zip(tests, written, strict=True))
    known = all(one.kind != ANY for one in scalars)
    return Scalar(relations.Case(whens, otherwise), kinds[0] if kinds and known else ANY)


def _applied(binder: Binder, call: ast.Call, name: str) -> Scalar:
    takes, gives = FUNCTIONS[name]
    args = arguments(binder, call)
    most = 2 if name == "round" else 1
    first: Any = args[0].value if 1 <= len(args) <= most else ast.Star()
    if isinstance(first, ast.Star):
        example = {NUMBER: 'm["loss"]', TEXT: "m.name"}[takes]
        raise binder.fault(call.span, f"{name} takes one value", hint=f"{name}({example})")
    one = scalar(binder, first)
    binder.expect(first, one, takes)
    digits = 0
    if len(args) > 1:
        part: Any = args[1].value
        found = constants.plain(binder, part) if constants.is_constant(part) else None
        if type(found) is not int or not 0 <= found <= _MOST_DIGITS:
            raise binder.fault(part.span, f"round takes a number of digits, at most {_MOST_DIGITS}")
        digits = found
    return Scalar(relations.Applied(name, one.value, digits), gives)


def arguments(binder: Binder, call: ast.Call) -> Sequence[ast.Argument]:
    for argument in call.args:
        if argument.distinct and call.name.lower() != "count":
            raise binder.fault(argument.span, "only count takes `distinct`")
        if argument.name is not None or argument.direction is not None:
            raise binder.fault(argument.span, f"{call.name} takes plain values")
    return call.args


def _aggregate(binder: Binder, call: ast.Call, name: str) -> Scalar:
    if binder.scope.clause is not None:
        raise binder.fault(
            call.span,
            f"{name} is not allowed in {binder.scope.clause}",
            hint=_instead(binder, call, name) if "where" in binder.scope.clause else None,
        )
    args = arguments(binder, call)
    if name in ("argmin", "argmax"):
        return _best(binder, call, name, args)
    if len(args) != 1:
        raise binder.fault(call.span, f"{name} takes one value", hint=f'{name}(m["loss"])')
    inside = args[0].value
    if isinstance(inside, ast.Star):
        if name != "count":
            raise binder.fault(call.span, f"{name} needs a value", hint=f'{name}(m["loss"])')
        return Scalar(Aggregate("count", None), NUMBER)
    binder = binder.within(clause=f"{name}(..)", titles={})
    found = value(binder, inside)
    if isinstance(found, Whole):
        if name != "count":
            raise binder.fault(inside.span, f"{name} of versions", hint="versions are only counted")
        whole = relations.Whole(found.variable.unique)
        return Scalar(Aggregate("count", whole, args[0].distinct), NUMBER)
    one = single(binder, inside, found)
    if name == "count":
        return Scalar(Aggregate("count", one.value, args[0].distinct), NUMBER)
    wanted = (NUMBER, TEXT, TIME) if name in _ORDERED else (NUMBER,)
    binder.expect(inside, one, *wanted)
    kind = one.kind if name in _ORDERED else NUMBER
    return Scalar(Aggregate(name, one.value), kind)


def _instead(binder: Binder, call: ast.Call, name: str) -> str:
    """What to write for an aggregate in `where`."""
    part = call.args[0].value if call.args else ast.Star()
    if (
        name == "count"
        and isinstance(part, ast.Path)
        and isinstance(paths.thing(binder, part), (Selected, NodeSet))
    ):
        return f"{binder.short(part)}.count"
    return "conditions on groups belong in `having`; of all versions: (select .. from n)"


def _best(binder: Binder, call: ast.Call, name: str, args: Sequence[ast.Argument]) -> Scalar:
    """argmin(m, m["loss"]): the version with the least loss; or one of its values."""
    if len(args) != 2 or any(isinstance(each.value, ast.Star) for each in args):
        raise binder.fault(
            call.span, f"{name} takes a value and what to compare", hint=f'{name}(m, m["loss"])'
        )
    binder = binder.within(clause=f"{name}(..)", titles={})
    part: Any
    decides: Any
    part, decides = (each.value for each in args)
    by = scalar(binder, decides)
    binder.expect(decides, by, NUMBER, TEXT, TIME)
    chosen = value(binder, part)
    if isinstance(chosen, Whole):
        whole = relations.Whole(chosen.variable.unique)
        return Scalar(Aggregate(name, whole, by=by.value), VERSION)
    one = single(binder, part, chosen)
    return Scalar(Aggregate(name, one.value, by=by.value), one.kind)


def _coalesce(binder: Binder, call: ast.Call) -> Scalar:
    args = arguments(binder, call)
    if not args:
        raise binder.fault(call.span, "coalesce takes values", hint="coalesce(m.lr, 0.1)")

    def operand(argument: ast.Argument) -> Scalar:
        if isinstance(argument.value, ast.Star):
            raise binder.fault(argument.span, "coalesce takes values, not *")
        return scalar(binder, argument.value)

    scalars = binder.all(operand, args)
    kinds = {each.kind for each in scalars} - {NULL}
    kind = kinds.pop() if len(kinds) == 1 else ANY
    return Scalar(Coalesce(tuple(each.value for each in scalars)), kind)


def shown(binder: Binder, part: ast.Expression, *, column: bool = True) -> tuple[Value, str]:
    """What stands in a column, which may be a version or a list, and its kind.

    What is only ordered or grouped by (no `column`) cannot be names of nodes.
    """
    found = value(binder, part)
    if isinstance(found, Whole):
        return relations.Whole(found.variable.unique), "version"
    if isinstance(found, Several):
        return relations.Listed(found.name, found.variable.unique), LIST
    if isinstance(found, NodeSet):
        return relations.Listed(found.nodes, found.nodes.variable), LIST
    if isinstance(found, Selected) and column:
        return _selected(binder, found)
    one = single(binder, part, found)
    return one.value, one.kind


def _selected(binder: Binder, selected: Selected) -> tuple[Value, str]:
    """`m["x"]` as a column: the metric, else the names of the nodes."""
    selector, whose = selected.selector, selected.variable
    name = selector.text
    series = not selector.regular and binder.known.has_series(name)
    if series and binder.known.has_layer(name):
        raise binder.fault(
            selector.span,
            f'"{name}" is both a metric and a node',
            hint=f'{whose.name}.metrics["{name}"] or {whose.name}.nodes["{name}"]',
        )
    if series:
        one = paths.metric(binder, whose, selector)
        return one.value, one.kind
    nodes = paths.start(binder, whose, selector)
    return relations.Listed(nodes, whose.unique), LIST
