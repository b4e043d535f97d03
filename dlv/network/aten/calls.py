"""A recorded call of torch run by numpy: its name looked up, its arguments put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlv.canonical import NON_FINITE, float_of
from dlv.kinds import Array
from dlv.network.aten.layers import LAYERS
from dlv.network.aten.making import MAKING
from dlv.network.aten.moving import MOVING
from dlv.network.aten.pointwise import POINTWISE
from dlv.network.aten.precision import Function, Precision, Unknown
from dlv.network.aten.reducing import REDUCING
from dlv.network.ops.op import Node, NotRunnable, Run

FUNCTIONS: Mapping[str, Function] = {**POINTWISE, **REDUCING, **MOVING, **MAKING, **LAYERS}
DIALECT = "aten"
_ENGINE = "pip install 'dlv[torch]', and dlv eval --engine torch"
_MOST_DEPTH = 8
# What arguments that no importer records lead to; networks may come from anywhere.
_FAULTS = (
    *(Unknown, ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError),
    *(TypeError, ValueError),
)


def function_of(op: str) -> Function | None:
    """The numpy form of `aten.NAME.OVERLOAD`: of that overload alone, or of all of the name."""
    name, _, overload = op.removeprefix("aten.").partition(".")
    return FUNCTIONS.get(f"{name}.{overload}") or FUNCTIONS.get(name)


def run_call(node: Node, run: Run) -> tuple[Array, ...]:
    """What the call in the source of a node gives, one array per output."""
    source = node.source or {}
    op = source.get("op")
    function = None
    if source.get("dialect") == DIALECT and isinstance(op, str) and op.startswith("aten."):
        function = function_of(op)
    if function is None:
        raise NotRunnable(
            node,
            f"`{op}` of the dialect {source.get('dialect')} is outside the vocabulary that dlv"
            " runs by itself",
            hint=_ENGINE,
        )
    at = Precision(np.dtype(run.dtype))
    try:
        args = [_argument(node, run, item, 0) for item in source.get("args", [])]
        kwargs = {k: _argument(node, run, v, 0) for k, v in source.get("kwargs", {}).items()}
        result = function(at, *args, **kwargs)
    except _FAULTS as error:
        raise NotRunnable(node, f"{op}: {error}", hint="dlv eval --engine torch") from error
    outputs: Sequence[Any] = result if isinstance(result, tuple) else (result,)
    return tuple(np.asarray(each) for each in outputs)


def _argument(node: Node, run: Run, item: Any, depth: int) -> Any:
    if not isinstance(item, Mapping) or len(item) != 1 or depth > _MOST_DEPTH:
        raise Unknown(f"{str(item)[:60]} is not a valid argument")
    [(tag, value)] = item.items()
    if tag == "n" and type(value) is int and 0 <= value < len(run.inputs):
        return run.inputs[value]
    if tag == "p" and value in run.params:
        return run.params[value]
    if tag == "l" and isinstance(value, list):
        return [_argument(node, run, each, depth + 1) for each in value]
    if tag == "c":
        return float_of(value) if isinstance(value, str) and value in NON_FINITE else value
    if tag == "dtype" and isinstance(value, str):
        return value
    if tag in ("device", "layout", "memory_format"):
        return None
    raise Unknown(f"{str(item)[:60]} is not a valid argument")
