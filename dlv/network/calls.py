"""A recorded call run by numpy: its name looked up, its arguments put together."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlv.canonical import NON_FINITE, float_of
from dlv.dtypes import DTYPES, ONNX_DTYPES
from dlv.kinds import Array
from dlv.network.aten.calls import function_of
from dlv.network.aten.making import MAKING
from dlv.network.aten.moving import MOVING
from dlv.network.aten.precision import Function, Precision, Unknown
from dlv.network.onnx.calls import FUNCTIONS as OPERATORS
from dlv.network.onnx.moving import MOVING as OPERATORS_MOVING
from dlv.network.ops.op import Node, NotRunnable, Run

_ENGINES = {"aten": ("torch", "torch"), "onnx": ("onnxruntime", "onnxruntime --precision float32")}
_MOST_DEPTH = 8
# What arguments that no importer records lead to; networks may come from anywhere.
_FAULTS = (
    *(Unknown, ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError),
    *(RecursionError, TypeError, ValueError),
)
# Calls that give of whole numbers the same in every dtype, if no number on the way is larger
# than a float has exactly; and, of those, the ones that add many up.
_EXACT = {
    "aten": {
        *(*MOVING, *MAKING),
        *(  # noqa: SIM905
            "abs neg square sign sgn floor ceil trunc round isnan isinf isfinite relu relu6"
            " hardtanh threshold add sub rsub mul div multiply subtract divide true_divide"
            " floor_divide remainder fmod minimum maximum fmin fmax eq ne lt le gt ge"
            " logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor"
            " bitwise_not __and__ __or__ __xor__ where masked_fill clamp clamp_min clamp_max clip"
            " nan_to_num max min amax amin argmax argmin any all count_nonzero isin searchsorted"
            " bucketize sort argsort topk sum cumsum matmul mm bmm mv dot outer"
        ).split(),
    },
    "onnx": {
        *OPERATORS_MOVING,
        *(  # noqa: SIM905
            "Abs Neg Sign Ceil Floor Round Relu Not IsNaN IsInf Add Sub Mul Equal Less"
            " LessOrEqual Greater GreaterOrEqual And Or Xor Sum Max Min Cast Clip Where"
            " Identity ReduceSum ReduceMax ReduceMin ArgMax ArgMin CumSum TopK MatMul"
        ).split(),
    },
}
_ADDING = frozenset(
    (  # noqa: SIM905
        "sum cumsum matmul mm bmm mv dot index_add index_put scatter_add diff"
        " Sum ReduceSum CumSum MatMul ScatterElements ScatterND"
    ).split()
)
_WIDE = ("int32", "int64", "bool", "float", "float16", "float32", "float64", "bfloat16")


def function_for(node: Node) -> Function | None:
    """The numpy form of a node's recorded call, if there is one."""
    source = node.source or {}
    dialect, op = source.get("dialect"), source.get("op")
    if not isinstance(op, str):
        return None
    if dialect == "onnx":
        return OPERATORS.get(op)
    return function_of(op) if dialect == "aten" and op.startswith("aten.") else None


def run_call(node: Node, run: Run) -> tuple[Array, ...]:
    """What the call in the source of a node gives, one array per output."""
    source = node.source or {}
    op, dialect = source.get("op"), source.get("dialect")
    extra, engine = _ENGINES.get(str(dialect), _ENGINES["aten"])
    function = function_for(node)
    if function is None:
        raise NotRunnable(
            node,
            f"`{op}` of the dialect {dialect} is outside the vocabulary that dlv runs by itself",
            hint=f"pip install 'dlv[{extra}]', and dlv eval --engine {engine}",
        )
    try:
        opset, outputs = (int(source.get(name, 1)) for name in ("opset", "outputs"))
        at = Precision(np.dtype(run.dtype), opset, outputs)
        args = [_argument(node, run, item, 0) for item in source.get("args", [])]
        kwargs = {k: _argument(node, run, v, 0) for k, v in source.get("kwargs", {}).items()}
        result = function(at, *args, **kwargs)
    except _FAULTS as error:
        raise NotRunnable(node, f"{op}: {error}", hint=f"dlv eval --engine {engine}") from error
    values: Sequence[Any] = result if isinstance(result, tuple) else (result,)
    return tuple(np.asarray(each) for each in values)


def exact(node: Node, inputs: Sequence[Array]) -> bool:
    """Whether a call gives the same of these whole numbers, whatever their dtype and precision."""
    try:
        return _exact(node, inputs)
    except _FAULTS:
        return False


def _exact(node: Node, inputs: Sequence[Array]) -> bool:
    source = node.source or {}
    dialect, op = str(source.get("dialect")), str(source.get("op"))
    name = op.removeprefix("aten.").partition(".")[0]
    args, kwargs = source.get("args", []), source.get("kwargs", {})
    if name not in _EXACT.get(dialect, ()) or kwargs.keys() & {"alpha", "beta"}:
        return False
    if name in ("add", "sub", "rsub") and len(args) > 2:  # times a number
        return False
    if kwargs.get("reduction", {"c": "none"}) not in ({"c": "none"}, {"c": "add"}):
        return False
    if name == "Cast":
        named = ONNX_DTYPES.get(kwargs.get("to", {}).get("c"))
        return named is not None and named.name in _WIDE
    if any(item.get("dtype", "bool") not in _WIDE for item in (*args, *kwargs.values())):
        return False
    if name not in _ADDING:
        return True
    sizes = [np.abs(x.astype(np.float64)) for x in inputs]
    most = max((float(x.max(initial=1.0)) for x in sizes), default=1.0)
    return most * sum(float(x.sum()) for x in sizes) < 2.0**24


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
    if tag == "tensor" and isinstance(value, Mapping) and "elements" in value:
        return _tensor(value, np.dtype(run.dtype))
    if tag in ("device", "layout", "memory_format"):
        return None
    raise Unknown(f"{str(item)[:60]} is not a valid argument")


def _tensor(described: Mapping[str, Any], floats: np.dtype[Any]) -> Array:
    """A small tensor among the attributes."""
    dtype = DTYPES[described["dtype"]].numpy
    if dtype is None:
        raise Unknown(f"numpy has no dtype {described['dtype']}")
    shape = tuple(int(length) for length in described["shape"])
    data = np.frombuffer(base64.b64decode(described["elements"]), np.dtype(dtype).newbyteorder("<"))
    return data.reshape(shape).astype(floats if data.dtype.kind == "f" else np.dtype(dtype))
