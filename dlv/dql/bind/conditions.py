"""Conditions of `where` and `having`: who is compared with what, and by which rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dlv.dql.bind import captured, comparing, constants, paths, template_names, values
from dlv.dql.bind.binder import Binder, Reported
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
from dlv.dql.bind.things import (
    ANY,
    BOOLEAN,
    CONDITION,
    LIST,
    NODES,
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


def among(binder: Binder, part: ast.In) -> Condition:
    left = values.value(binder, part.left)
    if isinstance(part.within, (ast.Query, ast.Saved)):
        return _within(binder, part, left)
    written: list[tuple[Any, Any]] = []
    single: list[Condition] = []
    for item in _options(part.within):
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


def _options(within: Any) -> Sequence[Any]:
    if isinstance(within, ast.Parameter):
        return (within,)
    assert isinstance(within, (ast.Listing, ast.Group))
    return within.items


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
            within.span,
            f"the query behind `in` has {len(result.kinds)} columns, and one is wanted",
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
            raise binder.fault(within.span, f"`{left.name}` holds texts, and these are versions")
        if kind not in (VERSION, TEXT, ANY):
            raise binder.fault(within.span, f"`{left.name}` holds texts, not {WORDS[kind]}")
        return holding(binder, part, left, lambda one: Within(one, result.query))
    single = values.single(binder, part.left, left)
    if kind != ANY and not binder.is_kind(single, kind):
        raise binder.fault(
            part.span,
            f"{binder.short(part.left)} is {binder.holds(single)}, and the query behind"
            f" `in` gives {WORDS[kind]}",
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
        raise binder.fault(part.span, f"`{part.quantifier}` stands before one test on nodes")
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
        binder,
        part,
        left,
        lambda value: Like(value, pattern.value, part.folded, part.escape),
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
    asked = captured.wanted(part.templates)
    for template in part.templates:
        with binder.collecting():
            blank = dict.fromkeys(asked, "") if asked else None
            patterns.append(template_names.pattern(binder, template, blank))
    nodes = node_set(binder, part.left)
    if asked and len(patterns) == len(part.templates):
        return _has_captured(binder, part, nodes.nodes)
    if len(patterns) < len(part.templates):
        raise Reported
    fits: Condition = Fits(tuple(patterns))
    return comparing.of_nodes(binder, nodes.nodes, Not(fits) if part.negated else fits)


def _has_captured(binder: Binder, part: ast.Has, nodes: Nodes) -> Condition:
    def fits(captures: captured.Captures) -> Condition:
        patterns = [template_names.pattern(binder, each, captures) for each in part.templates]
        found = Fits(tuple(patterns))
        return Not(found) if part.negated else found

    made = next(v for v in binder.scope.visible().values() if v.unique == nodes.variable)
    holds = captured.some(binder, part, nodes, made.derived, fits)
    return captured.of_nodes(binder.scope.quantifier, nodes, holds)


def node_set(binder: Binder, part: ast.Expression) -> NodeSet:
    """The nodes that an expression stands for."""
    nodes = values.value(binder, part)
    if isinstance(nodes, Selected):
        return NodeSet(paths.start(binder, nodes.variable, nodes.selector))
    if not isinstance(nodes, NodeSet):
        raise binder.mismatch(part, nodes, NODES)
    return nodes


def _exists(binder: Binder, part: ast.Exists) -> Condition:
    if isinstance(part.what, ast.Query):
        return relations.Exists(binder.query(part.what).query)
    found = values.value(binder, part.what)
    if isinstance(found, (NodeSet, Selected, Whole)):
        return AnyNode(node_set(binder, part.what).nodes)
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
    found = values.value(binder, part)
    if isinstance(found, Scalar) and isinstance(found.value, Constant) and found.kind == BOOLEAN:
        return Truth(bool(found.value.value))
    if isinstance(found, Several):
        raise binder.mismatch(part, found, CONDITION)
    binder.expect(part, found, CONDITION)
    return holding(binder, part, found, _is_true)


def _is_true(value: Value) -> Condition:
    return Compare("=", value, Constant(True))


def _no_function(binder: Binder, call: ast.Call) -> Condition:
    known = ["not", "exists", "every", "any", "no", *values.AGGREGATES, "coalesce"]
    raise binder.fault(
        ast.Span(call.span.start, call.span.start + len(call.name)),
        f"there is no function {call.name}",
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
    ast.Between: comparing.between,
    ast.IsNull: _is_null,
    ast.IsNan: _is_nan,
    ast.Has: _has,
    ast.Quantified: _quantified,
    ast.Lineage: _lineage,
    ast.Exists: _exists,
}
