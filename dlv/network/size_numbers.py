"""Arithmetic on sizes: the numbers about shapes that plumbing needs at run time."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlv.errors import UsageError
from dlv.network.ops.op import Node

_MOST_BITS = 63
Number = int | float | bool


def _power(base: Any, exponent: Any) -> Any:
    """Of sizes: what cannot be one is not worked out."""
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and base.bit_length() * max(exponent, 0) > 4 * _MOST_BITS:
        raise UsageError(f"{base} ** {exponent} is no size")
    return base**exponent


def _choose(condition: Any, first: Any, second: Any) -> Any:
    return first if condition else second


_FUNCTIONS: Mapping[str, tuple[int, Callable[..., Any]]] = {
    "add": (2, operator.add),
    "sub": (2, operator.sub),
    "mul": (2, operator.mul),
    "floordiv": (2, operator.floordiv),
    "truediv": (2, operator.truediv),
    "mod": (2, operator.mod),
    "neg": (1, operator.neg),
    "pos": (1, operator.pos),
    "abs": (1, abs),
    "pow": (2, _power),
    "eq": (2, operator.eq),
    "ne": (2, operator.ne),
    "lt": (2, operator.lt),
    "le": (2, operator.le),
    "gt": (2, operator.gt),
    "ge": (2, operator.ge),
    "and_": (2, operator.and_),
    "or_": (2, operator.or_),
    "not_": (1, operator.not_),
    "not": (1, operator.not_),
    "ceil": (1, math.ceil),
    "floor": (1, math.floor),
    "trunc": (1, math.trunc),
    "int": (1, int),
    "float": (1, float),
    "round": (1, round),
    "sqrt": (1, math.sqrt),
    "max": (2, max),
    "min": (2, min),
    "ite": (3, _choose),
}


def evaluate(node: Node, given: Sequence[Number]) -> Number | None:
    """The number that an `arithmetic` node works out; None where its attributes do not say how.

    Numbers that stood in the exported call are in its `source` alone.
    """
    word = str(node.attrs["operator"]).rpartition(".")[2].removeprefix("sym_")
    given = _arguments(node, given)
    try:
        if word == "sum":
            return sum(given)
        count, function = _FUNCTIONS.get(word, (None, None))
        if function is None or count != len(given):
            return None
        found: Number = function(*given)
        return found
    except (ArithmeticError, TypeError, ValueError) as error:
        raise UsageError(f"{word} of {', '.join(map(str, given))}", why=str(error)) from error


def _arguments(node: Node, given: Sequence[Number]) -> Sequence[Number]:
    """What comes in, between the constants of the recorded call."""
    recorded = (node.source or {}).get("args")
    if not isinstance(recorded, list):
        return given
    result: list[Number] = []
    for item in recorded:
        if not isinstance(item, dict) or len(item) != 1:
            return given
        [(tag, value)] = item.items()
        if tag == "n" and type(value) is int and 0 <= value < len(given):
            result.append(given[value])
        elif tag == "c" and isinstance(value, int | float):
            result.append(value)
        else:
            return given
    return result
