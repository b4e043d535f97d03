"""What stands in parentheses behind a word of `evaluate`: top(5, ..), tpe(50, seed=1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlv.dql.bind.binder import Binder, Reported
from dlv.dql.bind.constants import is_constant, plain
from dlv.dql.words import ast
from dlv.errors import nearest

WHOLE, NUMBER, FLAG, TEXT, ANYTHING = "whole", "number", "flag", "text", "anything"
_WORDS = {
    WHOLE: "a whole number",
    NUMBER: "a number",
    FLAG: "true or false",
    TEXT: "a text",
}


@dataclass(frozen=True)
class Wanted:
    """An argument. `named`: it cannot stand without its name; `above` excludes its own value."""

    kind: str
    required: bool = False
    named: bool = False
    least: float | None = None
    above: float | None = None
    most: float = 2**53


def read(
    binder: Binder,
    name: str,
    args: Sequence[ast.Argument],
    wanted: Mapping[str, Wanted],
    span: ast.Span,
    example: str,
) -> dict[str, Any]:
    """The values by name; of what is `anything` the argument as it stands.

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
                why=f"it takes {', '.join(wanted)}" if wanted else "it takes nothing",
                did_you_mean=nearest(key, wanted),
            )
    else:
        left = [each for each in places if each not in found]
        if not left:
            raise binder.fault(
                argument.span,
                f"{name} takes nothing more",
                why=f"it takes {', '.join(wanted)}" if wanted else None,
                hint=_hint(wanted, places),
            )
        key = left[0]
    if key in found:
        raise binder.fault(argument.span, f"`{key}` of {name} is said twice")
    return key


def _hint(wanted: Mapping[str, Wanted], places: Sequence[str]) -> str | None:
    named = [key for key in wanted if key not in places]
    return f"with its name: {named[0]} = .." if named else None


def _value(binder: Binder, name: str, key: str, argument: ast.Argument, wanted: Wanted) -> Any:
    if wanted.kind == ANYTHING:
        return argument
    part = argument.value
    said = f"`{key}` of {name} is {_WORDS[wanted.kind]}"
    if argument.direction is not None:
        raise binder.fault(argument.span, f"{said}: `{argument.direction}` is said of metrics")
    if isinstance(part, ast.Star) or not is_constant(part):
        raise binder.fault(part.span, f"{said}, and not {binder.short(part)}")
    value = plain(binder, part)
    if wanted.kind == NUMBER and isinstance(value, (int, float)):
        value = value if isinstance(value, bool) else float(value)
    kinds: dict[str, tuple[type, ...]] = {
        WHOLE: (int,),
        NUMBER: (float,),
        FLAG: (bool,),
        TEXT: (str,),
    }
    fits = isinstance(value, kinds[wanted.kind]) and isinstance(value, bool) == (
        wanted.kind == FLAG
    )
    if not fits or (isinstance(value, float) and not math.isfinite(value)):
        raise binder.fault(part.span, f"{said}, and not {binder.short(part)}")
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
