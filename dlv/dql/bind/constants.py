"""Constants as queries write them: numbers, texts, lists, spans, parameters, times, references.

`read_arguments` reads those that stand in parentheses behind a word of `evaluate`.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import dlv.repository.revisions as revisions
from dlv.canonical import current_moment
from dlv.dataclass import dataclass
from dlv.dql.bind.binder import Binder, Reported
from dlv.dql.bind.things import ANY, BOOLEAN, NUMBER, TEXT, WORDS, Scalar, constant
from dlv.dql.words import ast
from dlv.errors import NotFound, UsageError, nearest
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
        raise binder.fault(part.span, f"{binder.short(part)} is not a number to calculate with")
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
            hint=f"put the smaller end first: {part.last}..{part.first}",
        )
    count = (last - first) / by
    if count >= MOST_VALUES:
        raise binder.fault(part.span, f"the span has more than {MOST_VALUES} values")
    whole = all(isinstance(each, int) for each in (part.first, step))
    found = [first + by * place for place in range(int(count) + 1)]
    return [int(each) if whole else float(each) for each in found]


def moment(binder: Binder, part: ast.Part, text: str) -> Constant:
    """Microseconds since 1970 of an ISO date or time, or of one such as "2 days ago".

    In UTC unless it has a zone.
    """
    try:
        then = _relative(text) or datetime.datetime.fromisoformat(text)
        if then.tzinfo is None:
            then = then.replace(tzinfo=datetime.UTC)
        return Constant((then - _EPOCH) // datetime.timedelta(microseconds=1))
    except (ValueError, OverflowError):
        raise binder.fault(
            part.span,
            f'"{text}" is not a time',
            hint='write "2026-06-01", "2026-06-01T12:00" (UTC by default), "yesterday",'
            ' "7 days ago"',
        ) from None


_AGO = re.compile(r"(\d{1,6}) (second|minute|hour|day|week|month|year)s? ago", re.IGNORECASE)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}
_SECONDS |= {"month": 30 * 86400, "year": 365 * 86400}
_DAYS = {"today": 0, "yesterday": 1}


def _relative(text: str) -> datetime.datetime | None:
    """A time told from now: "3 hours ago", "2 weeks ago"; "today" and "yesterday" begin at 0:00."""
    now = current_moment()
    word = " ".join(text.split()).lower()
    if word in _DAYS:
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight - datetime.timedelta(days=_DAYS[word])
    if word == "now":
        return now
    found = _AGO.fullmatch(word)
    if found is None:
        return None
    return now - datetime.timedelta(seconds=int(found[1]) * _SECONDS[found[2]])


def reference(binder: Binder, part: ast.Part, text: str) -> str:
    """The full hash of a version that is named: `lenet@3`, a prefix, a tag, HEAD, `lenet~1`."""
    try:
        found = revisions.whole(binder.known.database, text)
    except (NotFound, UsageError) as error:
        raise binder.refused(part.span, error) from None
    for note in found.notes:
        binder.warn(note)
    return found.version.id


def texts(binder: Binder, part: ast.Part, value: Any) -> str:
    """A value that has to be a text, as a reference is."""
    if not isinstance(value, str):
        raise binder.fault(
            part.span,
            f"{binder.short(part)} names no version",
            hint='a version is written as a string: "lenet@3", "HEAD", "3f2a9c"',
        )
    return value


def scalar(binder: Binder, part: Any) -> Scalar:
    return constant(plain(binder, part))


def whole(binder: Binder, number: int | ast.Parameter | None, clause: str) -> int | None:
    """The number of `limit` and `offset`."""
    if not isinstance(number, ast.Parameter):
        return number
    value = binder.parameter(number)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise binder.fault(
            number.span,
            f"{clause} takes a whole number, and ${number.name} is {value!r}",
            hint=f"-P {number.name}=10",
        )
    return value


# Arguments of the words of `evaluate`: top(5, ..), tpe(50, seed=1)

WHOLE = "whole"  # beside the kinds of things


@dataclass(frozen=True)
class Wanted:
    """An argument. `named`: it cannot stand without its name; `above` excludes its own value."""

    kind: str
    required: bool = False
    named: bool = False
    least: float | None = None
    above: float | None = None
    most: float = 2**53


def read_arguments(
    binder: Binder,
    name: str,
    args: Sequence[ast.Argument],
    wanted: Mapping[str, Wanted],
    span: ast.Span,
    example: str,
) -> dict[str, Any]:
    """The values by name; of what may be anything the argument as it stands.

    All that is wrong is noted; Reported then.
    """
    found: dict[str, Any] = {}
    before = len(binder.notes.faults)
    missing = len(binder.notes.missing)
    places = [key for key, each in wanted.items() if not each.named]
    for argument in args:
        with binder.collecting():
            key = _key(binder, name, argument, wanted, places, found)
            found[key] = None
            found[key] = _value(binder, name, key, argument, wanted[key])
    absent = [key for key, each in wanted.items() if each.required and key not in found]
    if absent and len(binder.notes.faults) == before:
        raise binder.fault(
            span, f"{name} needs {' and '.join(f'`{key}`' for key in absent)}", hint=example
        )
    if len(binder.notes.faults) > before or len(binder.notes.missing) > missing:
        raise Reported
    return found


def _key(
    binder: Binder,
    name: str,
    argument: ast.Argument,
    wanted: Mapping[str, Wanted],
    places: Sequence[str],
    found: Mapping[str, Any],
) -> str:
    if argument.name is not None:
        key = argument.name
        if key not in wanted:
            raise binder.fault(
                argument.span,
                f"{name} takes no `{key}`",
                why=f"it takes {', '.join(wanted)}" if wanted else "it takes no arguments",
                did_you_mean=nearest(key, wanted),
            )
    else:
        left = [each for each in places if each not in found]
        if not left:
            raise binder.fault(
                argument.span,
                f"{name} takes no more arguments",
                why=f"it takes {', '.join(wanted)}" if wanted else None,
                hint=_hint(wanted, places),
            )
        key = left[0]
    if key in found:
        raise binder.fault(argument.span, f"`{key}` of {name} is given twice")
    return key


def _hint(wanted: Mapping[str, Wanted], places: Sequence[str]) -> str | None:
    named = [key for key in wanted if key not in places]
    return f"with its name: {named[0]} = .." if named else None


def _value(binder: Binder, name: str, key: str, argument: ast.Argument, wanted: Wanted) -> Any:
    if wanted.kind == ANY:
        return argument
    part = argument.value
    said = (
        f"`{key}` of {name} is {'a whole number' if wanted.kind == WHOLE else WORDS[wanted.kind]}"
    )
    if argument.direction is not None:
        raise binder.fault(argument.span, f"{said}: `{argument.direction}` requires metrics")
    if isinstance(part, ast.Star) or not is_constant(part):
        raise binder.fault(part.span, f"{said}, not {binder.short(part)}")
    value = plain(binder, part)
    if wanted.kind == NUMBER and isinstance(value, (int, float)):
        value = value if isinstance(value, bool) else float(value)
    kinds = {WHOLE: int, NUMBER: float, BOOLEAN: bool, TEXT: str}
    fits = isinstance(value, kinds[wanted.kind]) and isinstance(value, bool) == (
        wanted.kind == BOOLEAN
    )
    if not fits or (isinstance(value, float) and not math.isfinite(value)):
        raise binder.fault(part.span, f"{said}, not {binder.short(part)}")
    if wanted.kind in (WHOLE, NUMBER):
        _check_limits(binder, part, key, name, value, wanted)
    return value


def _check_limits(
    binder: Binder, part: ast.Part, key: str, name: str, value: float, wanted: Wanted
) -> None:
    if wanted.least is not None and value < wanted.least:
        raise binder.fault(part.span, f"`{key}` of {name} is at least {wanted.least:g}")
    if wanted.above is not None and value <= wanted.above:
        raise binder.fault(part.span, f"`{key}` of {name} is above {wanted.above:g}")
    if value > wanted.most:
        raise binder.fault(part.span, f"`{key}` of {name} is at most {wanted.most:g}")
