"""`keep`: which trials go on, as plain data that a ledger stores and decides by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import dlv.repository.revisions as revisions
from dlv.dql.bind.binder import Binder
from dlv.dql.bind.call_arguments import ANYTHING, FLAG, NUMBER, WHOLE, Wanted, read
from dlv.dql.bind.constants import is_constant, plain
from dlv.dql.words import ast
from dlv.errors import nearest

_METRIC = Wanted(ANYTHING, required=True)
RULES: Mapping[str, tuple[Mapping[str, Wanted], str]] = {
    "top": (
        {
            "k": Wanted(WHOLE, required=True, least=1),
            "metric": _METRIC,
            "step": Wanted(WHOLE, least=1),
        },
        'top(5, m["loss"], 100)',
    ),
    "asha": (
        {
            "metric": _METRIC,
            "eta": Wanted(WHOLE, least=2, most=1000),
            "first": Wanted(WHOLE, least=1),
            "sync": Wanted(FLAG),
        },
        'asha(m["loss"], eta = 3, first = 10)',
    ),
    "median": ({"metric": _METRIC, "warmup": Wanted(WHOLE, least=0)}, 'median(m["loss"])'),
    "patience": (
        {
            "metric": _METRIC,
            "n": Wanted(WHOLE, required=True, least=1),
            "min_delta": Wanted(NUMBER, least=0),
        },
        'patience(m["loss"], 3)',
    ),
    "threshold": (
        {"metric": _METRIC, "step": Wanted(WHOLE, required=True, least=1)},
        'threshold(m["accuracy"] >= 0.9, 500)',
    ),
}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "asha": {"eta": 3, "sync": False},
    "median": {"warmup": 5},
    "patience": {"min_delta": 0.0},
}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DIRECTIONS = {"asc": "min", "desc": "max"}


def rule(binder: Binder, names: Sequence[str], call: ast.Call) -> dict[str, Any]:
    """One rule; `names`: of the variables that metrics are asked of."""
    name = call.name.lower()
    if name not in RULES:
        raise binder.fault(
            ast.Span(call.span.start, call.span.start + len(call.name)),
            f"there is no rule {call.name}",
            why=f"rules are {', '.join(RULES)}",
            did_you_mean=nearest(name, RULES),
        )
    wanted, example = RULES[name]
    found = read(binder, name, call.args, wanted, call.span, example)
    argument = found.pop("metric")
    if name == "threshold":
        made = _threshold(binder, names, argument)
    else:
        made = dict(zip(("metric", "direction"), directed(binder, names, argument), strict=True))
    return {"rule": name, **_DEFAULTS.get(name, {}), **made, **found}


def directed(binder: Binder, names: Sequence[str], argument: ast.Argument) -> tuple[str, str]:
    """A metric, and whether it is to be small or large: "min" or "max"."""
    tag = metric(binder, names, argument.value)
    if argument.direction is not None:
        return tag, _DIRECTIONS[argument.direction]
    direction = revisions.direction_of(tag)
    if direction is None:
        said = binder.short(argument.value)
        raise binder.fault(
            argument.span,
            f"is a small {said} better, or a large one",
            why="its name does not tell",
            hint=f"{said} asc keeps the smallest, {said} desc the largest",
        )
    return tag, direction


def metric(binder: Binder, names: Sequence[str], part: ast.Part) -> str:
    """The name of a metric that trials log: m["loss"], m.accuracy, m.metrics["loss"].last."""
    example = f'{names[0]}["loss"]'
    if not isinstance(part, ast.Path):
        raise binder.fault(part.span, f"{binder.short(part)} is no metric", hint=example)
    if part.name not in names:
        raise binder.fault(
            ast.Span(part.span.start, part.span.start + len(part.name)),
            f"`{part.name}` is no variable of this query",
            why=f"metrics are asked of {' or '.join(f'`{name}`' for name in names)}",
            did_you_mean=nearest(part.name, names),
        )
    trailers = list(part.trailers)
    if len(trailers) > 1 and _word(trailers[-1]) == "last":
        trailers.pop()
    if len(trailers) > 1 and _word(trailers[0]) == "metrics":
        trailers.pop(0)
    if len(trailers) == 1:
        (only,) = trailers
        if isinstance(only, ast.Attribute):
            return only.name
        if isinstance(only, ast.Selector) and not only.regular:
            return only.text
    raise binder.fault(
        part.span,
        f"{binder.short(part)} is no metric",
        why="rules go by the last value that was logged" if len(trailers) > 1 else None,
        hint=example,
    )


def _word(trailer: ast.Trailer) -> str | None:
    return trailer.name.lower() if isinstance(trailer, ast.Attribute) else None


def _threshold(binder: Binder, names: Sequence[str], argument: ast.Argument) -> dict[str, Any]:
    test = argument.value
    example = f'threshold({names[0]}["accuracy"] >= 0.9, 500)'
    if not isinstance(test, ast.Compare) or test.operator not in _TURNED:
        raise binder.fault(
            argument.span,
            f"{binder.short(test)} is no threshold",
            why="it compares a metric with a number by < <= > or >=",
            hint=example,
        )
    left, operator, right = test.left, test.operator, test.right
    if is_constant(left) and not is_constant(right):
        left, operator, right = right, _TURNED[operator], left
    tag = metric(binder, names, left)
    value: Any = plain(binder, right) if is_constant(right) else None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise binder.fault(right.span, f"{binder.short(right)} is no number", hint=example)
    return {"metric": tag, "op": operator, "value": float(value)}


def said(rule: Mapping[str, Any]) -> str:
    told = ", ".join(f"{key} {value}" for key, value in rule.items() if key != "rule")
    return f"{rule['rule']}: {told}"
