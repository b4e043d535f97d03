"""`when`: conditions on the configuration, bound."""

from __future__ import annotations

import re
from typing import Any

from dlv.dql.bind.configurations import check_known, fitting, key_of
from dlv.dql.bind.constants import is_constant, plain
from dlv.dql.bind.reading import Reading
from dlv.dql.trials.config_tests import (
    Absent,
    Alike,
    Among,
    Compared,
    Every,
    Fixed,
    Named,
    Not,
    Setting,
    Some,
    Test,
    Value,
)
from dlv.dql.words import ast

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


def condition(reading: Reading, part: Any, *, strict: bool) -> Test:
    """Nesting is as deep as the parser allows."""
    if isinstance(part, ast.Unary) and part.operator == "not":
        return Not(condition(reading, part.operand, strict=strict))
    if isinstance(part, (ast.And, ast.Or)):
        parts = tuple(condition(reading, each, strict=strict) for each in part.parts)
        return Every(parts) if isinstance(part, ast.And) else Some(parts)
    if isinstance(part, ast.Compare):
        return _compared(reading, part, strict)
    if isinstance(part, ast.Path):
        setting = _setting(reading, part, strict)
        known = check_known(reading, part, setting.key, strict=strict)
        if known is not None and known.kind != "bool":
            said = reading.short(part)
            raise reading.fault(part.span, f"{said} is {known.wanted}", hint=f"{said} = ..")
        return Compared("=", setting, Fixed(True))
    if isinstance(part, ast.Between):
        value = _setting(reading, part.left, strict)
        low, high = (Fixed(_fixed(reading, each)) for each in (part.low, part.high))
        both = Every((Compared(">=", value, low), Compared("<=", value, high)))
        return Not(both) if part.negated else both
    if isinstance(part, (ast.In, ast.IsNull, ast.Like, ast.Matches)):
        found = _test(reading, part, _setting(reading, part.left, strict))
        return Not(found) if part.negated else found
    raise reading.fault(
        part.span,
        f"{reading.short(part)} is no condition on the configuration",
        hint='when config.optimizer = "sgd"',
    )


def _test(reading: Reading, part: Any, value: Value) -> Test:
    if isinstance(part, ast.IsNull):
        return Absent(value)
    if isinstance(part, ast.Like):
        pattern = _fixed(reading, part.pattern)
        if not isinstance(pattern, str):
            raise reading.fault(part.pattern.span, "like takes a text", hint='like "adam%"')
        return Alike(value, _like(pattern, part.folded))
    if isinstance(part, ast.Matches):
        return Named(value, reading.selector(part.pattern, part.span))
    within = part.within
    if isinstance(within, (ast.Listing, ast.Group)):
        items = within.items
        if not items:
            raise reading.fault(within.span, "the list is empty")
        if isinstance(within, ast.Listing):
            return Among(value, plain(reading, within))
        return Among(value, tuple(_fixed(reading, each) for each in items))
    if isinstance(within, ast.Parameter):
        given = _fixed(reading, within)
        return Among(value, given if isinstance(given, tuple) else (given,))
    raise reading.fault(within.span, "a list is wanted here", hint='in ["sgd", "adam"]')


def _like(pattern: str, folded: bool) -> re.Pattern[str]:
    signs = {"%": ".*", "_": "."}
    text = "".join(signs.get(sign, re.escape(sign)) for sign in pattern)
    return re.compile(text, re.DOTALL | (re.IGNORECASE if folded else 0))


def _compared(reading: Reading, part: ast.Compare, strict: bool) -> Test:
    left, operator, right = part.left, part.operator, part.right
    if is_constant(left) and not is_constant(right):
        left, operator, right = right, _TURNED[operator], left
    value = _setting(reading, left, strict)
    if not is_constant(right):
        return Compared(operator, value, _setting(reading, right, strict))
    fixed = _fixed(reading, right)
    if fixed is None:
        raise reading.fault(right.span, "nothing equals null", hint="is null")
    if operator in ("=", "!="):
        assert isinstance(left, ast.Path)
        known = check_known(reading, left, value.key, strict=strict)
        fixed = fitting(reading, right, value.key, known, fixed)
    return Compared(operator, value, Fixed(fixed))


def _setting(reading: Reading, part: Any, strict: bool) -> Setting:
    if not isinstance(part, ast.Path):
        raise reading.fault(
            part.span,
            f"{reading.short(part)} is nothing of the configuration",
            hint='when config.optimizer = "sgd"',
        )
    key = key_of(reading, part)
    check_known(reading, part, key, strict=strict)
    return Setting(key)


def _fixed(reading: Reading, part: Any) -> Any:
    if not is_constant(part):
        raise reading.fault(part.span, f"{reading.short(part)} is no value")
    return plain(reading, part)
