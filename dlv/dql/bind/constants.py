"""Constants as queries write them: numbers, texts, lists, spans, parameters, times, references."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import dlv.repository.revisions as revisions
from dlv.dql.bind.binder import Binder
from dlv.dql.bind.things import Scalar, constant
from dlv.dql.words import ast
from dlv.errors import NotFound, UsageError
from dlv.metadata.select.relations import Constant

MOST_VALUES = 10_000  # that a span or a list may stand for
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SINGLE = (ast.Number, ast.Text, ast.Boolean, ast.Null, ast.Parameter, ast.Listing)


def is_constant(part: ast.Part) -> bool:
    """Whether it is written without a name of the catalogue or a call."""
    waiting: list[Any] = [part]
    while waiting:
        found = waiting.pop()
        if isinstance(found, ast.Unary) and found.operator == "-":
            waiting.append(found.operand)
        elif isinstance(found, ast.Binary):
            waiting += (found.left, found.right)
        elif isinstance(found, ast.Listing):
            waiting += found.items
        elif not isinstance(found, (*_SINGLE, ast.Stretch)):
            return False
    return True


def plain(binder: Binder, part: Any) -> Any:
    """The value of what `is_constant`; spans in a list give all of their numbers."""
    if isinstance(part, (ast.Number, ast.Text, ast.Boolean)):
        return part.value
    if isinstance(part, ast.Null):
        return None
    if isinstance(part, ast.Parameter):
        return _given(binder, part)
    if isinstance(part, ast.Listing):
        return tuple(_items(binder, part))
    if isinstance(part, ast.Unary):
        value = plain(binder, part.operand)
        return None if value is None else -_number(binder, part, value)
    assert isinstance(part, ast.Binary)
    left, right = plain(binder, part.left), plain(binder, part.right)
    if left is None or right is None:
        return None
    left, right = _number(binder, part.left, left), _number(binder, part.right, right)
    return calculated(part.operator, left, right)


def calculated(operator: str, left: Any, right: Any) -> Any:
    """Arithmetic of two numbers; null where the divisor is 0, or no number comes out."""
    try:
        if operator == "/":
            found = left / right
        elif operator == "%":
            found = left % right
        else:
            found = {"+": left + right, "-": left - right, "*": left * right}[operator]
    except (ZeroDivisionError, OverflowError):
        return None
    if isinstance(found, int) and abs(found) >= 1 << 63:
        return float(found) if abs(found) < 1 << 1000 else None
    return found if math.isfinite(found) else None


def _number(binder: Binder, part: ast.Part, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise binder.fault(part.span, f"{binder.short(part)} is no number to calculate with")
    return value


def _given(binder: Binder, part: ast.Parameter) -> Any:
    value = binder.parameter(part)
    if isinstance(value, dict):
        raise binder.fault(
            part.span, f"${part.name} is an object", why="parameters are values or lists of them"
        )
    return constant(value).value.value  # type: ignore[union-attr]


def _items(binder: Binder, listing: ast.Listing) -> Iterator[Any]:
    for item in listing.items:
        if isinstance(item, ast.Stretch):
            yield from stretch(binder, item)
        else:
            yield plain(binder, item)


def stretch(binder: Binder, part: ast.Stretch) -> list[int | float]:
    """All its numbers, both ends included; by 1 where no step is said."""
    step = 1 if part.step is None else part.step
    first, last, by = (Decimal(repr(each)) for each in (part.first, part.last, step))
    if by <= 0:
        raise binder.fault(part.span, "the step of a span is above 0")
    if last < first:
        raise binder.fault(
            part.span,
            "the span is empty",
            hint=f"the smaller end comes first: {part.last}..{part.first}",
        )
    count = (last - first) / by
    if count >= MOST_VALUES:
        raise binder.fault(part.span, f"the span has more than {MOST_VALUES} values")
    whole = all(isinstance(each, int) for each in (part.first, step))
    found = [first + by * place for place in range(int(count) + 1)]
    return [int(each) if whole else float(each) for each in found]


def moment(binder: Binder, part: ast.Part, text: str) -> Constant:
    """Microseconds since 1970 of an ISO date or time, in UTC unless it has a zone."""
    try:
        then = datetime.datetime.fromisoformat(text)
        if then.tzinfo is None:
            then = then.replace(tzinfo=datetime.UTC)
        return Constant((then - _EPOCH) // datetime.timedelta(microseconds=1))
    except (ValueError, OverflowError):
        raise binder.fault(
            part.span,
            f'"{text}" is no time',
            hint='write "2026-06-01" or "2026-06-01T12:00", in UTC if no zone is said',
        ) from None


def reference(binder: Binder, part: ast.Part, text: str) -> str:
    """The full hash of a version that is named: `lenet@3`, a prefix, a tag, HEAD, `lenet~1`."""
    try:
        found = revisions.whole(binder.known.database, text)
    except (NotFound, UsageError) as error:
        raise binder.fault(
            part.span,
            error.message,
            why=error.why,
            hint=error.hint,
            did_you_mean=error.did_you_mean,
            missing=isinstance(error, NotFound),
        ) from None
    for note in found.notes:
        binder.warn(note)
    return found.version.id


def texts(binder: Binder, part: ast.Part, value: Any) -> str:
    """A value that has to be a text, as a reference is."""
    if not isinstance(value, str):
        raise binder.fault(
            part.span,
            f"{binder.short(part)} names no version",
            hint='a version is written as a text: "lenet@3", "HEAD", "3f2a9c"',
        )
    return value


def scalar(binder: Binder, part: Any) -> Scalar:
    return constant(plain(binder, part))


def whole(binder: Binder, given: int | ast.Parameter | None, clause: str) -> int | None:
    """The number of `limit` and `offset`."""
    if not isinstance(given, ast.Parameter):
        return given
    value = binder.parameter(given)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise binder.fault(
            given.span,
            f"{clause} takes a whole number, and ${given.name} is {value!r}",
            hint=f"-P {given.name}=10",
        )
    return value
