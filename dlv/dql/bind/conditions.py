"""Conditions of `where` and `having`: who is compared with what, and by which rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlv.dql.bind import captured, comparing, constants, paths, template_names, values
from dlv.dql.bind.comparing import (
    Make,
    alike,
    beside_several,
    check_attribute,
    compare,
    holding,
    is_id,
    these,
)
from dlv.dql.bind.reading import Reading, Reported
from dlv.dql.bind.scopes import Scope
from dlv.dql.bind.things import (
    ANY,
    BOOLEAN,
    LIST,
    NULL,
    NUMBER,
    TEXT,
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
from dlv.metadata.select.node_sets import Nodes
from dlv.metadata.select.relations import (
    All,
    AnyNode,
    AnyOf,
    Column,
    Compare,
    Condition,
    Constant,
    Either,
    Fits,
    Fixed,
    IsNan,
    IsNull,
    Like,
    Matches,
    Not,
    OneOf,
    Related,
    Truth,
    Value,
    Within,
)


def among(reading: Reading, scope: Scope, part: ast.In) -> Condition:
    left = values.value(reading, scope, part.left)
    if isinstance(part.within, (ast.Query, ast.Saved)):
        return _within(reading, scope, part, left)
    written: list[tuple[Any, Any]] = []
    single: list[Condition] = []
    for item in _options(part.within):
        with reading.collecting():
            if isinstance(item, ast.Stretch):
                written += [(item, each) for each in constants.stretch(reading, item)]
            elif isinstance(item, ast.Parameter):
                given = constants.plain(reading, item)
                several = given if isinstance(given, tuple) else (given,)
                written += [(item, each) for each in several]
            elif constants.is_constant(item):
                written.append((item, constants.plain(reading, item)))
            else:
                test = ast.Compare("=", part.left, item, span=item.span)
                single.append(compare(reading, scope, test))
    return _listed(reading, scope, part, left, written, single)


def _options(within: Any) -> Sequence[Any]:
    if isinstance(within, ast.Parameter):
        return (within,)
    assert isinstance(within, (ast.Listing, ast.Group))
    return within.items


def _listed(
    reading: Reading,
    scope: Scope,
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
        found = these(reading, whose, [(item, Constant(value)) for item, value in written])
        either = Either((found, *single)) if single else found
        return Not(either) if part.negated else either
    options: list[Constant] = []
    for item, value in written:
        with reading.collecting():
            options.append(_option(reading, part, left, item, value))
    if len(options) < len(written):
        raise Reported
    if isinstance(left, (Selected, NodeSet)):
        left = values.single(reading, part.left, left)
    if single:
        either = Either((holding(reading, scope, _positive(part), left, _one_of(options)), *single))
        return Not(either) if part.negated else either
    return holding(reading, scope, part, left, _one_of(options))


def _one_of(options: Sequence[Constant]) -> Make:
    return lambda value: OneOf(value, tuple(options))


def _positive(part: ast.In) -> ast.In:
    return ast.In(part.left, False, part.within, span=part.span)


def _option(reading: Reading, part: ast.In, left: Thing, item: Any, value: Any) -> Constant:
    """One of the values that a list holds, as it is compared with the left side."""
    if isinstance(left, NodeAttribute):
        check_attribute(reading, left, value, part.left, item)
        return constant_of(value).value  # type: ignore[return-value]
    given = constant_of(value)
    if isinstance(left, Several):
        test = ast.Compare("=", part.left, item, span=item.span)
        return beside_several(reading, test, left, given, item)  # type: ignore[return-value]
    one = values.single(reading, part.left, left)
    if given.kind == LIST and one.kind not in (ANY, LIST):
        raise reading.fault(item.span, f"{reading.short(item)} is a list in a list")
    _, right = alike(reading, item, (one, given), (part.left, item))
    return right.value  # type: ignore[return-value]


def _within(reading: Reading, scope: Scope, part: ast.In, left: Thing) -> Condition:
    within = part.within
    if isinstance(within, ast.Saved):
        result = reading.nested.saved(reading, scope, within)
    else:
        assert isinstance(within, ast.Query)
        result = reading.nested.query(reading, scope, within)
    if len(result.kinds) != 1:
        raise reading.fault(
            within.span,
            f"the query behind `in` has {len(result.kinds)} columns, and one is wanted",
        )
    kind = result.kinds[0]
    if isinstance(left, Whole) or (isinstance(left, Scalar) and is_id(left) and kind == VERSION):
        return _versions_within(reading, part, left, result.query, kind)
    if isinstance(left, NodeAttribute):
        raise reading.fault(
            within.span, "attributes of nodes are compared with constants", hint="in [1, 2]"
        )
    if isinstance(left, Several):
        if kind == VERSION and left.name != "parents":
            raise reading.fault(within.span, f"`{left.name}` holds texts, and these are versions")
        if kind not in (VERSION, TEXT, ANY):
            raise reading.fault(within.span, f"`{left.name}` holds texts, not {WORDS[kind]}")
        return holding(reading, scope, part, left, lambda one: Within(one, result.query))
    single = values.single(reading, part.left, left)
    if kind != ANY and not values.is_kind(reading, single, kind):
        raise reading.fault(
            part.span,
            f"{reading.short(part.left)} is {values.holds(reading, single)}, and the query behind"
            f" `in` gives {WORDS[kind]}",
        )
    return holding(reading, scope, part, single, lambda one: Within(one, result.query))


def _versions_within(
    reading: Reading, part: ast.In, left: Whole | Scalar, query: relations.Query, kind: str
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
        raise reading.fault(
            part.span, f"{reading.short(part.left)} is a version, and these are {WORDS[kind]}"
        )
    return Not(found) if part.negated else found


Binder = Callable[[Reading, Scope, Any], Condition]


def condition(reading: Reading, scope: Scope, part: ast.Expression) -> Condition:
    """Whether something is so. Each fault is noted; Reported if there was one."""
    return _BINDERS.get(type(part), _plain)(reading, scope, part)


def noted(reading: Reading, scope: Scope, part: ast.Expression) -> Condition | None:
    """The same, None if there was a fault."""
    with reading.collecting():
        return condition(reading, scope, part)
    return None


def _parts(reading: Reading, scope: Scope, part: ast.And | ast.Or) -> Condition:
    found = []
    for each in part.parts:
        with reading.collecting():
            found.append(condition(reading, scope, each))
    if len(found) < len(part.parts):
        raise Reported
    return All(tuple(found)) if isinstance(part, ast.And) else Either(tuple(found))


def _not(reading: Reading, scope: Scope, part: ast.Unary) -> Condition:
    if part.operator != "not":
        return _plain(reading, scope, part)
    return Not(condition(reading, scope, part.operand))


def _quantified(reading: Reading, scope: Scope, part: ast.Quantified) -> Condition:
    test = part.test
    if isinstance(test, ast.Quantified) or not isinstance(test, (ast.Compare, ast.Test)):
        raise reading.fault(part.span, f"`{part.quantifier}` stands before one test on nodes")
    return condition(reading, replace(scope, quantifier=part.quantifier), test)


def _compare(reading: Reading, scope: Scope, part: ast.Compare) -> Condition:
    return comparing.compare(reading, scope, part)


def _between(reading: Reading, scope: Scope, part: ast.Between) -> Condition:
    return comparing.between(reading, scope, part)


def _in(reading: Reading, scope: Scope, part: ast.In) -> Condition:
    return among(reading, scope, part)


# Texts


def _like(reading: Reading, scope: Scope, part: ast.Like) -> Condition:
    word = "ilike" if part.folded else "like"
    if part.escape is not None and len(part.escape) != 1:
        raise reading.fault(part.span, "escape takes one character", hint='like "50!%" escape "!"')
    left = values.value(reading, scope, part.left)
    pattern = values.scalar(reading, scope, part.pattern)
    if not values.is_kind(reading, pattern, TEXT) or pattern.kind == NULL:
        raise reading.fault(
            part.pattern.span,
            f"{word} takes a text",
            why=f"{reading.short(part.pattern)} is {values.holds(reading, pattern)}",
        )
    if isinstance(left, NodeAttribute) and not pattern.constant:
        raise reading.fault(part.pattern.span, "attributes of nodes are compared with constants")
    left = _textual(reading, part, left, word)
    return holding(
        reading,
        scope,
        part,
        left,
        lambda value: Like(value, pattern.value, part.folded, part.escape),
    )


def _matches(reading: Reading, scope: Scope, part: ast.Matches) -> Condition:
    behind = ast.Span(part.left.span.end, part.span.end)
    selector = reading.selector(part.pattern, behind)
    left = _textual(reading, part, values.value(reading, scope, part.left), "matches")
    return holding(reading, scope, part, left, lambda value: Matches(value, selector))


def _textual(reading: Reading, part: ast.Test, left: Thing, word: str) -> Thing:
    """What is to be a text on the left side."""
    said = reading.short(part.left)
    if isinstance(left, Whole):
        raise reading.fault(
            part.left.span, f"`{said}` is a version, not a text", hint=f"{said}.name {word} .."
        )
    if isinstance(left, (Selected, NodeSet)):
        one = isinstance(left, Selected)
        raise reading.fault(
            part.left.span,
            f"{said} is {'no text' if one else 'a set of nodes, not a text'}",
            hint=f"names of nodes: {said}.name {word} ..",
        )
    if isinstance(left, NodeAttribute):
        if TEXT not in left.kinds:
            raise reading.fault(part.left.span, f"{said} is no text")
    elif isinstance(left, Scalar) and not values.is_kind(reading, left, TEXT):
        raise reading.fault(
            part.left.span,
            f"{said} is {values.holds(reading, left)}, and {word} is asked of texts",
        )
    return left


# Null, nodes, lineage


def _is_null(reading: Reading, scope: Scope, part: ast.IsNull) -> Condition:
    left = values.value(reading, scope, part.left)
    said = reading.short(part.left)
    if isinstance(left, (Whole, NodeSet)):
        what = "a version" if isinstance(left, Whole) else "a set of nodes"
        raise reading.fault(
            part.left.span,
            f"{said} is {what}, which is never null",
            hint=None if isinstance(left, Whole) else f"exists {said}",
        )
    if isinstance(left, Several):
        some = AnyOf(left.variable.unique, left.name, Truth(True))
        return some if part.negated else Not(some)
    if isinstance(left, Selected):
        left = paths.metric(reading, left.variable, left.selector)
    return holding(reading, scope, part, left, IsNull)


def _is_nan(reading: Reading, scope: Scope, part: ast.IsNan) -> Condition:
    left = values.value(reading, scope, part.left)
    if isinstance(left, Selected):
        left = paths.metric(reading, left.variable, left.selector)
    said = reading.short(part.left)
    if isinstance(left, NodeAttribute):
        number, what = NUMBER in left.kinds, "is never a number"
    elif isinstance(left, Scalar):
        number, what = values.is_kind(reading, left, NUMBER), f"is {values.holds(reading, left)}"
    else:
        number, what = False, "is no value"
    if not number:
        raise reading.fault(part.left.span, f"{said} {what}, and `is nan` is asked of numbers")
    return holding(reading, scope, part, left, IsNan)


def _has(reading: Reading, scope: Scope, part: ast.Has) -> Condition:
    patterns = []
    asked = captured.wanted(part.templates)
    for template in part.templates:
        with reading.collecting():
            blank = dict.fromkeys(asked, "") if asked else None
            patterns.append(template_names.pattern(reading, template, blank))
    nodes = node_set(reading, scope, part.left, "has")
    if asked and len(patterns) == len(part.templates):
        return _has_captured(reading, scope, part, nodes.nodes)
    if len(patterns) < len(part.templates):
        raise Reported
    fits: Condition = Fits(tuple(patterns))
    return comparing.of_nodes(scope, nodes.nodes, Not(fits) if part.negated else fits)


def _has_captured(reading: Reading, scope: Scope, part: ast.Has, nodes: Nodes) -> Condition:
    def fits(captures: captured.Captures) -> Condition:
        patterns = [template_names.pattern(reading, each, captures) for each in part.templates]
        found = Fits(tuple(patterns))
        return Not(found) if part.negated else found

    made = next(v for v in scope.every() if v.unique == nodes.variable)
    holds = captured.some(reading, part, nodes, made.derived, fits)
    return captured.of_nodes(scope.quantifier, nodes, holds)


def node_set(reading: Reading, scope: Scope, part: ast.Expression, use: str) -> NodeSet:
    """The nodes that an expression stands for."""
    found = values.value(reading, scope, part)
    said = reading.short(part)
    if isinstance(found, NodeSet):
        return found
    if isinstance(found, Selected):
        return NodeSet(paths.start(reading, found.variable, found.selector))
    if isinstance(found, Whole):
        raise reading.fault(
            part.span,
            f"{use} is asked of nodes, and `{said}` is a version",
            hint=f'{said}["conv*"] is a set of nodes; exists {said}[CONV] asks for any',
        )
    raise reading.fault(
        part.span,
        f"{use} is asked of nodes, and {said} is none",
        hint='nodes are chosen by name or template: m["conv*"], m[CONV], m["conv*"].next',
    )


def _exists(reading: Reading, scope: Scope, part: ast.Exists) -> Condition:
    if isinstance(part.what, ast.Query):
        return relations.Exists(reading.nested.query(reading, scope, part.what).query)
    found = values.value(reading, scope, part.what)
    if isinstance(found, (NodeSet, Selected)):
        return AnyNode(node_set(reading, scope, part.what, "exists").nodes)
    if isinstance(found, Whole):
        return AnyNode(node_set(reading, scope, part.what, "exists").nodes)
    if isinstance(found, Several):
        return AnyOf(found.variable.unique, found.name, Truth(True))
    if isinstance(found, NodeAttribute):
        return AnyNode(found.nodes, Not(IsNull(relations.NodeValue(found.name))))
    return Not(IsNull(found.value))


def _lineage(reading: Reading, scope: Scope, part: ast.Lineage) -> Condition:
    sides: list[str | Fixed] = []
    for side in (part.left, part.right):
        with reading.collecting():
            sides.append(_end(reading, scope, part, side))
    if part.within is not None and part.within < 1:
        raise reading.fault(part.span, "within takes at least one step")
    if part.relation in ("child_of", "parent_of") and (part.within or 1) > 1:
        far = "derived_from" if part.relation == "child_of" else "ancestor_of"
        raise reading.fault(
            part.span,
            f"{part.relation} is one step",
            hint=f"{far} .. within {part.within} is over more of them",
        )
    if len(sides) < 2:
        raise Reported
    return Related(part.relation, sides[0], sides[1], part.within)


def _end(reading: Reading, scope: Scope, part: ast.Lineage, side: ast.Expression) -> str | Fixed:
    found = values.value(reading, scope, side)
    if isinstance(found, Whole):
        return found.variable.unique
    if isinstance(found, Scalar) and isinstance(found.value, Constant) and found.kind == TEXT:
        return Fixed(constants.reference(reading, side, str(found.value.value)))
    said = reading.short(side)
    whose = said.split(".")[0].split("[")[0]
    raise reading.fault(
        side.span,
        f"{part.relation} stands between versions, and {said} is none",
        hint=f'write a variable such as {whose}, or a reference: "lenet@3"',
    )


# What is no test


def _plain(reading: Reading, scope: Scope, part: ast.Expression) -> Condition:
    """`true`, `m.frozen`: something that is true or false by itself."""
    if isinstance(part, ast.Boolean):
        return Truth(part.value)
    if isinstance(part, ast.Null):
        return Truth(None)
    if isinstance(part, ast.Call) and part.name.lower() not in (*values.AGGREGATES, "coalesce"):
        return _no_function(reading, part)
    found = values.value(reading, scope, part)
    said = reading.short(part)
    if isinstance(found, Whole):
        raise reading.fault(
            part.span,
            f"`{said}` is a version, not a condition",
            did_you_mean=nearest(said, ["true", "false"]),
        )
    if isinstance(found, NodeSet):
        raise reading.fault(
            part.span, f"{said} is a set of nodes, not a condition", hint=f"exists {said}"
        )
    if isinstance(found, Selected):
        known = reading.known.has_series(found.selector.text)
        hint = f"{said} > 0.5" if known and not found.selector.regular else f"exists {said}"
        raise reading.fault(part.span, f"{said} is no condition", hint=hint)
    if isinstance(found, Several):
        raise reading.fault(part.span, f"{said} is no condition", hint=f'{said} = ".."')
    if isinstance(found, NodeAttribute):
        if BOOLEAN not in found.kinds:
            raise reading.fault(part.span, f"{said} is no condition", hint=f"{said} = ..")
    elif isinstance(found.value, Constant) and found.kind == BOOLEAN:
        return Truth(bool(found.value.value))
    elif found.kind not in (ANY, BOOLEAN) or not values.is_kind(reading, found, BOOLEAN):
        raise reading.fault(
            part.span,
            f"{said} is {values.holds(reading, found)}, not a condition",
            hint=f"compare it: {said} = ..",
        )
    return holding(reading, scope, part, found, _is_true)


def _is_true(value: Value) -> Condition:
    return Compare("=", value, Constant(True))


def _no_function(reading: Reading, call: ast.Call) -> Condition:
    known = ["not", "exists", "every", "any", "no", *values.AGGREGATES, "coalesce"]
    raise reading.fault(
        ast.Span(call.span.start, call.span.start + len(call.name)),
        f"there is no function {call.name}",
        did_you_mean=nearest(call.name, known),
    )


_BINDERS: Mapping[type, Binder] = {
    ast.And: _parts,
    ast.Or: _parts,
    ast.Unary: _not,
    ast.Compare: _compare,
    ast.Like: _like,
    ast.Matches: _matches,
    ast.In: _in,
    ast.Between: _between,
    ast.IsNull: _is_null,
    ast.IsNan: _is_nan,
    ast.Has: _has,
    ast.Quantified: _quantified,
    ast.Lineage: _lineage,
    ast.Exists: _exists,
}
