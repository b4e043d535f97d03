"""Membership: `in` with lists, spans, parameters, and the rows of another query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlv.dql.bind import constants, values
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
    LIST,
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
from dlv.metadata.select import relations
from dlv.metadata.select.relations import (
    Column,
    Condition,
    Constant,
    Either,
    Not,
    OneOf,
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
