"""Conditions of `where` and `having`: who is compared with what, and by which rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dlv.dql.bind import constants, paths, sources, templates, values
from dlv.dql.bind.binder import Binder, Reported
from dlv.dql.bind.things import (
    ANY,
    BOOLEAN,
    CONDITION,
    LIST,
    NODES,
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
from dlv.dql.bind.things import constant as constant_of
from dlv.dql.words import ast
from dlv.errors import nearest
from dlv.metadata.select import relations
from dlv.metadata.select.relations import (
    All,
    AnyNode,
    AnyOf,
    Column,
    Compare,
    Condition,
    Constant,
    Either,
    EveryNode,
    Fits,
    Fixed,
    Is,
    IsNan,
    IsNull,
    Like,
    ManyValue,
    Matches,
    Nodes,
    NodeValue,
    Not,
    OneOf,
    Related,
    Same,
    Truth,
    Value,
    Within,
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
            f"`{quantifier}` requires nodes, and {binder.short(part)} has none",
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
    binder: Binder, part: ast.Compare, left: Thing, right: Thing, written: tuple[Any, Any]
) -> Condition:
    sign = part.operator
    if isinstance(left, NodeAttribute) and not _fixed(right):
        left = _as_one(binder, part, left)
        right = _as_one(binder, part, right) if isinstance(right, NodeAttribute) else right
    if isinstance(left, NodeAttribute):
        fixed = _beside_nodes(binder, left, right, *written)
        return holding(binder, part, left, lambda one: Compare(sign, one, fixed))
    if isinstance(left, Several):
        other = beside_several(binder, part, left, right, written[1])
        return holding(binder, part, left, lambda one: Compare(sign, one, other))
    if isinstance(left, Whole) and not isinstance(right, NodeSet):
        if binder.scope.quantifier is not None:
            raise binder.fault(part.span, f"`{binder.scope.quantifier}` requires nodes")
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


def _fixed(side: Thing) -> bool:
    return isinstance(side, Scalar) and side.constant


def _as_one(binder: Binder, part: ast.Compare, side: NodeAttribute) -> Scalar:
    """Beside what differs from version to version, the attribute of all nodes is one value."""
    quantifier = binder.scope.quantifier
    if quantifier is not None:
        raise binder.fault(
            part.span,
            f"`{quantifier}` requires a constant to compare each node with",
            hint=f'{quantifier} m["conv*"].out > 64',
        )
    return Scalar(relations.OfNodes(side.nodes, side.name), ANY)


def _beside_nodes(
    binder: Binder, left: NodeAttribute, right: Thing, attribute: ast.Part, other: ast.Part
) -> Constant:
    """What attributes of nodes are compared with: constants of the right kind."""
    if not isinstance(right, Scalar) or not isinstance(right.value, Constant):
        raise binder.fault(
            other.span,
            f"{binder.short(attribute)} is an attribute of nodes, which is compared with constants",
            why=f"{binder.short(other)} is none",
        )
    check_attribute(binder, left, right.value.value, attribute, other)
    return right.value


def check_attribute(
    binder: Binder, left: NodeAttribute, value: Any, attribute: ast.Part, other: ast.Part
) -> None:
    if value is None:
        raise _beside_null(binder, attribute, other)
    binder.expect_constant(other, value, binder.short(attribute), left.kinds)


def _beside_null(binder: Binder, tested: ast.Part, other: ast.Part) -> Exception:
    return binder.fault(other.span, "nothing equals null", hint=f"{binder.short(tested)} is null")


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
            f"`{left.name}` contains strings, and {binder.short(other)} is {binder.holds(one)}",
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
        others = [name for name in binder.scope.variables if name != said]
        meant = sources.column(binder, said, (others or ["m"])[0])
        words = words if meant is None else [meant]
        behind = written[0].span.start > other.span.start  # then it may be a word
        hint = f'{said} = "lenet@3", {said}.name = .., {said}.id = ..'
        if behind:
            hint = f'write strings in quotes: "{said}"'
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
            hint=f"versions are ordered by {said}.creation_time or {said}.number",
        )
    if isinstance(right, Whole):
        found: Condition = Same(whose, right.variable.unique)
    elif isinstance(right, Scalar):
        found = these(binder, whose, [(other, right.value)])
    else:
        raise binder.fault(other.span, f"`{said}` is a version, and {binder.short(other)} is not")
    return Not(found) if part.operator == "!=" else found


def these(binder: Binder, whose: str, wanted: Sequence[tuple[Any, Value]]) -> Is:
    """One of these versions, which are named by texts."""

    def version_id(named: tuple[Any, Value]) -> str:
        part, value = named
        assert isinstance(value, Constant)
        return constants.reference(binder, part, constants.texts(binder, part, value.value))

    return Is(whose, tuple(dict.fromkeys(binder.all(version_id, wanted))))


def is_id(scalar: Scalar) -> bool:
    return isinstance(scalar.value, Column) and scalar.value.name == "id"


def _is_source(scalar: Scalar) -> bool:
    return isinstance(scalar.value, Column) and scalar.value.name == "source"


def alike(
    binder: Binder, part: ast.Part, sides: tuple[Scalar, Scalar], written: tuple[ast.Part, ast.Part]
) -> tuple[Scalar, Scalar]:
    """The two sides, texts of times read; a fault if they can never be of one kind."""
    one, two = sides
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
            hint = 'times are written as strings: "2026-06-01"'
        elif is_id(one):
            hint = 'a version reference is a string: "lenet@3"'
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
        binder, part, left, lambda one: All((Compare(">=", one, low), Compare("<=", one, high)))
    )


def among(binder: Binder, part: ast.In) -> Condition:
    left = values.value(binder, part.left)
    if isinstance(part.within, (ast.Query, ast.Saved)):
        return _within(binder, part, left)
    written: list[tuple[Any, Any]] = []
    single: list[Condition] = []
    within = part.within
    for item in (within,) if isinstance(within, ast.Parameter) else within.items:
        with binder.collecting():
            if isinstance(item, ast.Stretch):
                written += [(item, each) for each in constants.stretch(binder, item)]
            elif isinstance(item, ast.Parameter):
                given = constants.plain(binder, item)
                several = given if isinstance(given, tuple) else (given,)
                written += [(item, each) for each in several]
            elif constants.is_constant(item):
                written.append((item, constants.plain(binder, item)))
            else:
                test = ast.Compare("=", part.left, item, span=item.span)
                single.append(compare(binder, test))
    return _listed(binder, part, left, written, single)


def _listed(
    binder: Binder,
    part: ast.In,
    left: Thing,
    written: Sequence[tuple[Any, Any]],
    single: Sequence[Condition],
) -> Condition:
    if isinstance(left, Whole) or (isinstance(left, Scalar) and is_id(left)):
        if isinstance(left, Whole):
            whose = left.variable.unique
        else:
            assert isinstance(left.value, Column)
            whose = left.value.variable
        found = these(binder, whose, [(item, Constant(value)) for item, value in written])
        either = Either((found, *single)) if single else found
        return Not(either) if part.negated else either
    options = binder.all(lambda one: _option(binder, part, left, *one), written)
    if isinstance(left, (Selected, NodeSet)):
        left = values.single(binder, part.left, left)
    if single:
        either = Either((holding(binder, _positive(part), left, _one_of(options)), *single))
        return Not(either) if part.negated else either
    return holding(binder, part, left, _one_of(options))


def _one_of(options: Sequence[Constant]) -> Make:
    return lambda value: OneOf(value, tuple(options))


def _positive(part: ast.In) -> ast.In:
    return ast.In(part.left, False, part.within, span=part.span)


def _option(binder: Binder, part: ast.In, left: Thing, item: Any, value: Any) -> Constant:
    """One of the values that a list holds, as it is compared with the left side."""
    if isinstance(left, NodeAttribute):
        check_attribute(binder, left, value, part.left, item)
        return constant_of(value).value  # type: ignore[return-value]
    given = constant_of(value)
    if isinstance(left, Several):
        test = ast.Compare("=", part.left, item, span=item.span)
        return beside_several(binder, test, left, given, item)  # type: ignore[return-value]
    one = values.single(binder, part.left, left)
    if given.kind == LIST and one.kind not in (ANY, LIST):
        raise binder.fault(item.span, f"{binder.short(item)} is a list in a list")
    _, right = alike(binder, item, (one, given), (part.left, item))
    return right.value  # type: ignore[return-value]


def _within(binder: Binder, part: ast.In, left: Thing) -> Condition:
    within: Any = part.within
    result = binder.query(within)
    if len(result.kinds) != 1:
        raise binder.fault(
            within.span, f"the query after `in` has {len(result.kinds)} columns instead of one"
        )
    kind = result.kinds[0]
    if isinstance(left, Whole) or (isinstance(left, Scalar) and is_id(left) and kind == VERSION):
        return _versions_within(binder, part, left, result.query, kind)
    if isinstance(left, NodeAttribute):
        raise binder.fault(
            within.span, "attributes of nodes are compared with constants", hint="in [1, 2]"
        )
    if isinstance(left, Several):
        if kind == VERSION and left.name != "parents":
            raise binder.fault(
                within.span, f"`{left.name}` contains strings, and these are versions"
            )
        if kind not in (VERSION, TEXT, ANY):
            raise binder.fault(within.span, f"`{left.name}` contains strings, not {WORDS[kind]}")
        return holding(binder, part, left, lambda one: Within(one, result.query))
    single = values.single(binder, part.left, left)
    if kind != ANY and not binder.is_kind(single, kind):
        raise binder.fault(
            part.span,
            f"{binder.short(part.left)} is {binder.holds(single)}, and the query after"
            f" `in` returns {WORDS[kind]}",
        )
    return holding(binder, part, single, lambda one: Within(one, result.query))


def _versions_within(
    binder: Binder, part: ast.In, left: Whole | Scalar, query: relations.Query, kind: str
) -> Condition:
    if isinstance(left, Whole):
        whose = left.variable.unique
    else:
        assert isinstance(left.value, Column)
        whose = left.value.variable
    if kind == VERSION:
        found: Condition = Within(relations.Whole(whose), query)
    elif kind in (TEXT, ANY):
        found = Within(Column(whose, "id"), query)
    else:
        raise binder.fault(
            part.span, f"{binder.short(part.left)} is a version, and these are {WORDS[kind]}"
        )
    return Not(found) if part.negated else found


def condition(binder: Binder, part: ast.Expression) -> Condition:
    """Whether something is so. Each fault is noted; Reported if there was one."""
    return _BINDERS.get(type(part), _plain)(binder, part)


def noted(binder: Binder, part: ast.Expression) -> Condition | None:
    """The same, None if there was a fault."""
    with binder.collecting():
        return condition(binder, part)
    return None


def _parts(binder: Binder, part: ast.And | ast.Or) -> Condition:
    parts = tuple(binder.all(partial(condition, binder), part.parts))
    return All(parts) if isinstance(part, ast.And) else Either(parts)


def _not(binder: Binder, part: ast.Unary) -> Condition:
    if part.operator != "not":
        return _plain(binder, part)
    return Not(condition(binder, part.operand))


def _quantified(binder: Binder, part: ast.Quantified) -> Condition:
    test = part.test
    if isinstance(test, ast.Quantified) or not isinstance(test, (ast.Compare, ast.Test)):
        raise binder.fault(part.span, f"`{part.quantifier}` must be followed by one test on nodes")
    return condition(binder.within(quantifier=part.quantifier), test)


# Texts


def _like(binder: Binder, part: ast.Like) -> Condition:
    if part.escape is not None and len(part.escape) != 1:
        raise binder.fault(part.span, "escape takes one character", hint='like "50!%" escape "!"')
    left = values.value(binder, part.left)
    pattern = values.scalar(binder, part.pattern)
    binder.expect(part.pattern, pattern, TEXT)
    if pattern.kind == NULL:
        raise binder.mismatch(part.pattern, pattern, TEXT)
    if isinstance(left, NodeAttribute) and not pattern.constant:
        raise binder.fault(part.pattern.span, "attributes of nodes are compared with constants")
    binder.expect(part.left, left, TEXT)
    return holding(
        binder, part, left, lambda value: Like(value, pattern.value, part.folded, part.escape)
    )


def _matches(binder: Binder, part: ast.Matches) -> Condition:
    behind = ast.Span(part.left.span.end, part.span.end)
    selector = binder.selector(part.pattern, behind)
    left = values.value(binder, part.left)
    binder.expect(part.left, left, TEXT)
    return holding(binder, part, left, lambda value: Matches(value, selector))


# Null, nodes, lineage


def _is_null(binder: Binder, part: ast.IsNull) -> Condition:
    left = values.value(binder, part.left)
    if isinstance(left, (Whole, NodeSet)):
        raise binder.mismatch(part.left, left, ANY)
    if isinstance(left, Several):
        some = AnyOf(left.variable.unique, left.name, Truth(True))
        return some if part.negated else Not(some)
    if isinstance(left, Selected):
        left = paths.metric(binder, left.variable, left.selector)
    return holding(binder, part, left, IsNull)


def _is_nan(binder: Binder, part: ast.IsNan) -> Condition:
    left = values.value(binder, part.left)
    if isinstance(left, Selected):
        left = paths.metric(binder, left.variable, left.selector)
    binder.expect(part.left, left, NUMBER)
    return holding(binder, part, left, IsNan)


def _has(binder: Binder, part: ast.Has) -> Condition:
    patterns = []
    asked = templates.wanted(part.templates)
    for template in part.templates:
        with binder.collecting():
            blank = dict.fromkeys(asked, "") if asked else None
            patterns.append(templates.pattern(binder, template, blank))
    nodes = node_set(binder, part.left)
    if asked and len(patterns) == len(part.templates):
        return _has_captured(binder, part, nodes.nodes)
    if len(patterns) < len(part.templates):
        raise Reported
    fits: Condition = Fits(tuple(patterns))
    return of_nodes(binder, nodes.nodes, Not(fits) if part.negated else fits)


def _has_captured(binder: Binder, part: ast.Has, nodes: Nodes) -> Condition:
    def fits(captures: templates.Captures) -> Condition:
        patterns = [templates.pattern(binder, each, captures) for each in part.templates]
        found = Fits(tuple(patterns))
        return Not(found) if part.negated else found

    made = next(v for v in binder.scope.visible().values() if v.unique == nodes.variable)
    holds = templates.some(binder, part, nodes, made.derived, fits)
    return templates.of_nodes(binder.scope.quantifier, nodes, holds)


def node_set(binder: Binder, part: ast.Expression) -> NodeSet:
    """The nodes that an expression stands for."""
    nodes = values.value(binder, part)
    if isinstance(nodes, Selected):
        return NodeSet(paths.start(binder, nodes.variable, nodes.selector))
    if not isinstance(nodes, NodeSet):
        raise binder.mismatch(part, nodes, NODES)
    return nodes


def _exists(binder: Binder, part: ast.Exists) -> Condition:
    if isinstance(part.tested, ast.Query):
        return relations.Exists(binder.query(part.tested).query)
    found = values.value(binder, part.tested)
    if isinstance(found, (NodeSet, Selected, Whole)):
        return AnyNode(node_set(binder, part.tested).nodes)
    if isinstance(found, Several):
        return AnyOf(found.variable.unique, found.name, Truth(True))
    if isinstance(found, NodeAttribute):
        return AnyNode(found.nodes, Not(IsNull(relations.NodeValue(found.name))))
    return Not(IsNull(found.value))


def _lineage(binder: Binder, part: ast.Lineage) -> Condition:
    left, right = binder.all(partial(_end, binder), (part.left, part.right))
    if part.within is not None and part.within < 1:
        raise binder.fault(part.span, "within takes at least one step")
    if part.relation in ("child_of", "parent_of") and (part.within or 1) > 1:
        far = "derived_from" if part.relation == "child_of" else "ancestor_of"
        raise binder.fault(
            part.span,
            f"{part.relation} is one step",
            hint=f"{far} .. within {part.within} is over more of them",
        )
    return Related(part.relation, left, right, part.within)


def _end(binder: Binder, side: ast.Expression) -> str | Fixed:
    found = values.value(binder, side)
    if isinstance(found, Whole):
        return found.variable.unique
    if isinstance(found, Scalar) and isinstance(found.value, Constant) and found.kind == TEXT:
        return Fixed(constants.reference(binder, side, str(found.value.value)))
    raise binder.mismatch(side, found, VERSION)


# Parts that are not tests


def _plain(binder: Binder, part: ast.Expression) -> Condition:
    """`true`, `m.frozen`: something that is true or false by itself."""
    if isinstance(part, ast.Boolean):
        return Truth(part.value)
    if isinstance(part, ast.Null):
        return Truth(None)
    if isinstance(part, ast.Call) and part.name.lower() not in (*values.AGGREGATES, "coalesce"):
        return _no_function(binder, part)
    if isinstance(part, ast.OneValue):
        raise binder.fault(part.span, "a query is not a condition", hint="exists (select ..)")
    found = values.value(binder, part)
    if isinstance(found, Scalar) and isinstance(found.value, Constant) and found.kind == BOOLEAN:
        return Truth(bool(found.value.value))
    if isinstance(found, Several):
        raise binder.mismatch(part, found, CONDITION)
    binder.expect(part, found, CONDITION)
    return holding(binder, part, found, lambda value: Compare("=", value, Constant(True)))


def _no_function(binder: Binder, call: ast.Call) -> Condition:
    known = ["not", "exists", "every", "any", "no", *values.AGGREGATES, "coalesce"]
    raise binder.fault(
        ast.Span(call.span.start, call.span.start + len(call.name)),
        f"no function {call.name}",
        did_you_mean=nearest(call.name, known),
    )


_BINDERS: Mapping[type, Callable[[Binder, Any], Condition]] = {
    ast.And: _parts,
    ast.Or: _parts,
    ast.Unary: _not,
    ast.Compare: compare,
    ast.Like: _like,
    ast.Matches: _matches,
    ast.In: among,
    ast.Between: between,
    ast.IsNull: _is_null,
    ast.IsNan: _is_nan,
    ast.Has: _has,
    ast.Quantified: _quantified,
    ast.Lineage: _lineage,
    ast.Exists: _exists,
}
