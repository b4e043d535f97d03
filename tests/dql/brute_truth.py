"""Values of different kinds, and the three truth values: True, False and None."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from dlv.canonical import dumps
from dlv.network.patterns import OPERATORS

Truth: TypeAlias = bool | None


@dataclass(frozen=True)
class Moment:
    """Microseconds since 1970."""

    at: int


@dataclass(frozen=True)
class Other:
    """A list or an object, as canonical JSON."""

    text: str


def both(truths: Iterable[Truth]) -> Truth:
    """and"""
    unknown = False
    for truth in truths:
        if truth is False:
            return False
        unknown = unknown or truth is None
    return None if unknown else True


def either(truths: Iterable[Truth]) -> Truth:
    """or"""
    unknown = False
    for truth in truths:
        if truth is True:
            return True
        unknown = unknown or truth is None
    return None if unknown else False


def opposite(truth: Truth) -> Truth:
    return None if truth is None else not truth


def kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return {str: "text", Moment: "time", Other: "other", tuple: "list"}.get(type(value), "version")


def compared(sign: str, left: Any, right: Any) -> Truth:
    """Values of different kinds are not equal, and which is more is not known."""
    left, right = _whole(left), _whole(right)
    if left is None or right is None:
        return None
    if kind(left) == "time" and kind(right) == "text":
        right = moment(right)
    if kind(left) == "text" and kind(right) == "time":
        left = moment(left)
    if kind(left) != kind(right):
        return {"=": False, "!=": True}.get(sign)
    if kind(left) == "time":
        left, right = left.at, right.at
    if kind(left) == "other":
        left, right = left.text, right.text
    return bool(OPERATORS[sign](left, right))


def _whole(value: Any) -> Any:
    return Other(dumps(value).decode()) if isinstance(value, list) else value


def moment(text: str) -> Moment:
    """An ISO time, of UTC unless it says otherwise."""
    found = datetime.datetime.fromisoformat(text)
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return Moment((found - epoch) // datetime.timedelta(microseconds=1))


def like(value: Any, pattern: Any, folded: bool, escape: str | None) -> Truth:
    """% any run, _ one character; the sign behind `escape` is itself."""
    if not isinstance(value, str) or not isinstance(pattern, str):
        return None
    if folded:
        value, pattern = value.casefold(), pattern.casefold()
    expression, taken = "", False
    for sign in pattern:
        if taken or sign not in ("%", "_", escape):
            expression += re.escape(sign)
            taken = False
        elif sign == escape:
            taken = True
        else:
            expression += ".*" if sign == "%" else "."
    return re.fullmatch(expression, value, re.DOTALL) is not None


def arithmetic(sign: str, left: Any, right: Any) -> float | None:
    if kind(left) != "number" or kind(right) != "number":
        return None
    if sign in "/%" and right == 0:
        return None
    if sign == "/":
        return float(left / right)
    found = {"+": left + right, "-": left - right, "*": left * right}
    return float(left % right if sign == "%" else found[sign])


def is_nan(value: Any) -> bool:
    """The one value that does not equal itself."""
    return isinstance(value, float) and value != value
