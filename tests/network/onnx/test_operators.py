"""Operators of ONNX by numpy, each held against onnxruntime: the same numbers, the same dtype."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from dlv.network.bounds.ball import F64, Ball, BallRun
from dlv.network.calls import exact, run_call
from dlv.network.graph import Node
from dlv.network.onnx.calls import FUNCTIONS
from dlv.network.ops.op import NoRule, NotRunnable, Run, op_of

onnx: Any = pytest.importorskip("onnx", reason="the models are made by onnx here")
pytest.importorskip("onnxruntime", reason="onnxruntime is the oracle here")

R = np.random.default_rng(7)
F = np.float32


def floats(*shape: int) -> Any:
    return R.standard_normal(shape).astype(F)


def ints(*numbers: Any) -> Any:
    return np.asarray(numbers, np.int64)


X, POSITIVE, WITHIN = floats(3, 4, 5), np.abs(floats(3, 4, 5)) + F(0.1), floats(3, 4, 5) / 8
WHOLE = R.integers(-9, 9, (3, 4, 5))
BYTES = R.integers(0, 255, (3, 4), np.uint8)
FLAGS = WHOLE > 0
IMAGE, MAP = floats(2, 4, 6, 7), floats(1, 2, 5, 4)
GRID = R.uniform(-1.3, 1.3, (1, 3, 3, 2)).astype(F)
ONE = np.asarray(1, np.int64)
SCALE, ZERO = np.asarray(0.05, F), np.asarray(120, np.uint8)
SEQUENCE = floats(5, 2, 3)
HEADS, MASK = floats(2, 4, 5, 4), R.random((5, 5)) < 0.7
MASK[:, 0] = True
RISING = np.arange(12, dtype=F).reshape(3, 4)


def gates(count: int, ways: int) -> list[Any]:
    return [floats(ways, count * 4, 3), floats(ways, count * 4, 4), floats(ways, count * 8)]


# The operator, its inputs, its attributes (`opset`: its version), how many outputs.
Case = tuple[Any, ...]
CASES: list[Case] = [
    *(
        (name, [X])
        for name in (  # noqa: SIM905
            "Abs Neg Sign Ceil Floor Round Exp Sin Cos Tan Sinh Cosh Atan Asinh Erf Sigmoid Tanh"
            " Relu HardSwish Mish IsNaN Softplus Softsign Gelu LeakyRelu ThresholdedRelu"
            " HardSigmoid Shrink Elu Selu Celu Identity Reciprocal"
        ).split()
    ),
    *((name, [WITHIN.clip(-0.9, 0.9)]) for name in ("Asin", "Acos", "Atanh")),
    *((name, [POSITIVE + F(name == "Acosh")]) for name in ("Log", "Sqrt", "Acosh")),
    ("Not", [FLAGS]),
    ("BitwiseNot", [WHOLE]),
    ("IsInf", [np.asarray([1, np.inf, -np.inf], F)], {"detect_negative": 0}),
    ("Gelu", [X], {"approximate": "tanh"}),
    ("Swish", [X], {"alpha": 0.7, "opset": 24}),
    ("LeakyRelu", [X], {"alpha": 0.3}),
    ("Elu", [X], {"alpha": 0.7}),
    ("Selu", [X], {"alpha": 1.5, "gamma": 1.2}),
    ("Celu", [X], {"alpha": 0.7}),
    ("HardSigmoid", [X], {"alpha": 0.3, "beta": 0.4}),
    ("Shrink", [X], {"bias": 0.3, "lambd": 0.4}),
    ("PRelu", [X, floats(5)]),
    *((name, [X, POSITIVE]) for name in ("Add", "Sub", "Mul", "Div", "Less", "GreaterOrEqual")),
    *((name, [X, X[:, :1]]) for name in ("Equal", "Greater", "LessOrEqual", "Max", "Min", "Mean")),
    *((name, [WHOLE, WHOLE[:1] * 2 + 1]) for name in ("Add", "Mul", "Div", "Mod", "Max", "Equal")),
    *((name, [FLAGS, FLAGS[:1]]) for name in ("And", "Or", "Xor")),
    *((name, [WHOLE, WHOLE[:1]]) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    ("Sum", [X, POSITIVE, X[0]]),
    ("Mod", [X, POSITIVE], {"fmod": 1}),
    ("Mod", [WHOLE, WHOLE * 2 + 1], {"fmod": 1}),
    ("Pow", [POSITIVE, X]),
    ("Pow", [np.abs(WHOLE), np.asarray(2, np.int64)]),
    ("Pow", [X, np.asarray(2, np.int64)]),
    ("BitShift", [BYTES, np.asarray([1, 3, 7, 2], np.uint8)], {"direction": "LEFT"}),
    ("BitShift", [BYTES, np.asarray([1, 3, 7, 2], np.uint8)], {"direction": "RIGHT"}),
    ("Cast", [X * 5], {"to": 7}),
    ("Cast", [WHOLE], {"to": 1}),
    ("Cast", [X], {"to": 9}),
    ("CastLike", [X * 5, WHOLE]),
    ("Clip", [X, np.asarray(-0.5, F), np.asarray(0.5, F)]),
    ("Clip", [X, None, np.asarray(0.5, F)]),
    ("Clip", [X, np.asarray(0.5, F), np.asarray(-0.5, F)]),
    ("Where", [FLAGS, X, POSITIVE[:1]]),
    # Moved.
    ("Gather", [X, ints([0, -1], [1, 2])], {"axis": 1}),
    ("Gather", [X, ONE], {"axis": -1}),
    ("GatherElements", [X, R.integers(-4, 4, (2, 3, 5))], {"axis": 1}),
    ("GatherND", [X, ints([0, 1], [2, -1])]),
    ("GatherND", [X, ints([[1], [0]], [[2], [3]], [[0], [0]])], {"batch_dims": 1}),
    ("ScatterElements", [X, ints([[0], [1]]), floats(1, 2, 1)], {"axis": 1}),
    *(
        (
            "ScatterElements",
            [X, ints([[0, 1], [0, 0]]), floats(1, 2, 2)],
            {"axis": 1, "reduction": how},
        )
        for how in ("add", "mul", "max", "min")
    ),
    ("Scatter", [X, ints([[0], [1]]), floats(1, 2, 1)], {"axis": 1, "opset": 10}),
    ("ScatterND", [X, ints([0, 1], [2, 3]), floats(2, 5)]),
    ("ScatterND", [X, ints([0], [0]), floats(2, 4, 5)], {"reduction": "add"}),
    ("Slice", [X, ints(1, -3), ints(9, -1), ints(0, 2), ints(1, 1)]),
    ("Slice", [X, ints(-1, 3), ints(-9, 0), ints(2, 1), ints(-2, -1)]),
    ("Slice", [X, ints(-100), ints(-200), ints(1), ints(-1)]),
    ("Slice", [X, ints(1), ints(3)]),
    ("Slice", [X], {"starts": [1], "ends": [-1], "axes": [1], "opset": 9}),
    ("Expand", [X[:, :1], ints(2, 1, 4, 1)]),
    ("Reshape", [X, ints(0, 2, -1)]),
    ("Reshape", [X, ints(-1, 0)]),
    ("Flatten", [X], {"axis": 2}),
    ("Flatten", [X], {"axis": -1}),
    ("Squeeze", [X[:, :1], ints(1)]),
    ("Squeeze", [X[:, :1]]),
    ("Unsqueeze", [X, ints(0, -1)]),
    ("Transpose", [X], {"perm": [2, 0, 1]}),
    ("Transpose", [X]),
    ("Concat", [X, POSITIVE], {"axis": -2}),
    ("Split", [X, ints(1, 3)], {"axis": 1}, 2),
    ("Split", [X], {"axis": 2, "num_outputs": 2}, 2),
    ("Tile", [X, ints(1, 2, 3)]),
    ("Pad", [X, ints(1, 0, 2, 0, 1, 0)]),
    ("Pad", [X, ints(1, -1, 0, 0, 1, 0), np.asarray(7, F)]),
    ("Pad", [X, ints(1, 2), None, ints(2)], {"mode": "reflect"}),
    ("Pad", [X, ints(1, 2), None, ints(-1)], {"mode": "edge"}),
    ("Pad", [X, ints(1, 2), None, ints(1)], {"mode": "wrap"}),
    ("Range", [np.asarray(1, F), np.asarray(7.5, F), np.asarray(2, F)]),
    ("Range", [ints(9).reshape(()), ints(1).reshape(()), ints(-3).reshape(())]),
    ("ConstantOfShape", [ints(2, 3)]),
    ("ConstantOfShape", [ints(2, 3)], {"value": ints(5)}),
    ("EyeLike", [X[0]], {"k": 1}),
    ("EyeLike", [X[0]], {"dtype": 7, "k": -1}),
    ("OneHot", [ints(0, -1, 7, 2), np.asarray(4, np.int64), np.asarray([-1, 3], F)], {"axis": 0}),
    ("Trilu", [X], {"upper": 0}),
    ("Trilu", [X, ONE]),
    ("Shape", [X], {"start": 1}),
    ("Size", [X]),
    ("NonZero", [FLAGS]),
    ("Compress", [X, np.asarray([True, False, True])], {"axis": 1}),
    ("Compress", [X, np.asarray([True, False, True])]),
    ("Unique", [WHOLE], {}, 4),
    ("Unique", [WHOLE], {"sorted": 0}, 4),
    ("Unique", [np.asarray([[1, 2], [0, 1], [1, 2]], F)], {"axis": 0}, 4),
    ("ReverseSequence", [X, ints(2, 1, 3, 0)]),
    ("ReverseSequence", [X, ints(2, 1, 4)], {"batch_axis": 0, "time_axis": 1}),
    ("DepthToSpace", [IMAGE], {"blocksize": 2}),
    ("DepthToSpace", [IMAGE], {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", [IMAGE[..., :6]], {"blocksize": 2}),
    ("Dropout", [X]),
    # One number of many.
    *(
        (f"Reduce{name}", [POSITIVE, ints(-1)], {"keepdims": keep})
        for name in ("Sum", "Prod", "Max", "Min", "Mean", "L1", "L2", "SumSquare", "LogSum")
        for keep in (0, 1)
    ),
    ("ReduceLogSumExp", [X * 90, ints(1)]),
    ("ReduceSum", [WHOLE]),
    ("ReduceSum", [X, ints()], {"noop_with_empty_axes": 1}),
    ("ReduceMax", [X, ints(0, 2)]),
    ("ReduceMean", [X], {"axes": [1], "opset": 13}),
    ("ArgMax", [WHOLE], {"axis": 1}),
    ("ArgMax", [WHOLE], {"axis": 1, "select_last_index": 1}),
    ("ArgMin", [X], {"axis": -1, "keepdims": 0}),
    ("CumSum", [X, ONE]),
    ("CumSum", [WHOLE, ONE], {"exclusive": 1, "reverse": 1}),
    ("CumSum", [X, ONE], {"exclusive": 1}),
    ("TopK", [X, ints(2)], {}, 2),
    ("TopK", [WHOLE, ints(3)], {"axis": 1, "largest": 0}, 2),
    *((name, [X]) for name in ("Softmax", "LogSoftmax", "Hardmax")),
    ("Softmax", [X], {"axis": 1, "opset": 11}),
    ("LpNormalization", [X], {"axis": 1, "p": 1}),
    ("LpNormalization", [X]),
    ("MeanVarianceNormalization", [IMAGE]),
    # Multiplied.
    ("MatMul", [X, floats(3, 5, 2)]),
    ("Gemm", [floats(5, 3), floats(2, 5), floats(2)], {"transA": 1, "transB": 1, "beta": 0.5}),
    ("Gemm", [floats(3, 5), floats(5, 2)], {"alpha": 0.5}),
    ("Einsum", [X, floats(3, 5, 2)], {"equation": "bij,bjk->bki"}),
    ("Conv", [IMAGE, floats(6, 2, 3, 2), floats(6)], {"group": 2, "pads": [1, 0, 2, 1]}),
    ("Conv", [IMAGE, floats(3, 4, 3, 3)], {"strides": [2, 3], "dilations": [2, 1]}),
    ("Conv", [IMAGE, floats(3, 4, 3, 2)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("Conv", [IMAGE, floats(3, 4, 3, 2)], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ("Conv", [X, floats(2, 4, 3)], {"auto_pad": "VALID"}),
    ("ConvTranspose", [IMAGE, floats(4, 3, 3, 2), floats(3)], {"strides": [2, 2]}),
    ("ConvTranspose", [IMAGE, floats(4, 3, 3, 2)], {"strides": [2, 2], "output_shape": [12, 14]}),
    (
        "ConvTranspose",
        [IMAGE, floats(4, 3, 2, 2)],
        {"strides": [2, 2], "output_padding": [1, 0], "pads": [1, 0, 0, 1], "group": 2},
    ),
    ("LayerNormalization", [X, floats(4, 5), floats(4, 5)], {"axis": 1}),
    ("LayerNormalization", [X, floats(5)], {"epsilon": 0.1}, 3),
    ("RMSNormalization", [X, floats(5)], {"opset": 23}),
    ("GroupNormalization", [IMAGE, floats(4), floats(4)], {"num_groups": 2}),
    ("GroupNormalization", [IMAGE, floats(2), floats(2)], {"num_groups": 2, "opset": 18}),
    ("InstanceNormalization", [IMAGE, floats(4), floats(4)], {"epsilon": 0.01}),
    ("BatchNormalization", [IMAGE, floats(4), floats(4), floats(4), np.abs(floats(4)) + F(1)]),
    # Attending.
    ("Attention", [HEADS, HEADS, HEADS], {"opset": 23}),
    ("Attention", [HEADS, HEADS[:, :2], HEADS[:, 2:]], {"is_causal": 1, "opset": 23}),
    ("Attention", [HEADS, HEADS, HEADS, floats(5, 5)], {"scale": 0.3, "opset": 23}),
    ("Attention", [HEADS, HEADS, HEADS, MASK], {"opset": 23}),
    ("Attention", [HEADS, HEADS, HEADS], {"softcap": 0.5, "opset": 23}),
    (
        "Attention",
        [*[floats(2, 3, 8)] * 3, None, floats(2, 4, 2, 2), floats(2, 4, 2, 2)],
        {"q_num_heads": 4, "kv_num_heads": 4, "is_causal": 1, "opset": 23},
        3,
    ),
    *(
        ("RotaryEmbedding", [HEADS, floats(2, 5, 2), floats(2, 5, 2)], {**how, "opset": 23})
        for how in ({}, {"interleaved": 1})
    ),
    (
        "RotaryEmbedding",
        [floats(2, 3, 8), floats(9, 1), floats(9, 1), ints([1, 2, 8], [0, 0, 3])],
        {"num_heads": 2, "rotary_embedding_dim": 2, "opset": 23},
    ),
    # Scaled.
    *(
        ("Resize", [MAP, None, None, ints(1, 2, high, wide)], {"mode": mode, **how})
        for high, wide in ((10, 7), (3, 2))
        for mode, how in (
            ("nearest", {}),
            ("nearest", {"nearest_mode": "round_prefer_ceil"}),
            ("nearest", {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}),
            ("nearest", {"nearest_mode": "ceil", "coordinate_transformation_mode": "asymmetric"}),
            ("linear", {}),
            ("linear", {"coordinate_transformation_mode": "align_corners"}),
            ("linear", {"coordinate_transformation_mode": "pytorch_half_pixel"}),
            ("linear", {"coordinate_transformation_mode": "asymmetric"}),
            ("cubic", {"cubic_coeff_a": -0.5}),
            ("cubic", {"coordinate_transformation_mode": "align_corners"}),
        )
    ),
    ("Resize", [MAP, None, np.asarray([1, 1, 1.7, 0.6], F)], {"mode": "linear"}),
    ("Resize", [MAP, None, np.asarray([1.7, 0.6], F)], {"mode": "linear", "axes": [2, 3]}),
    ("Resize", [MAP, np.asarray([1, 1, 2, 2], F)], {"opset": 10}),
    ("Upsample", [MAP, np.asarray([1, 1, 2, 3], F)], {"opset": 9}),
    *(
        (
            "GridSample",
            [MAP, GRID],
            {"mode": mode, "padding_mode": padding, "align_corners": corners},
        )
        for mode in ("linear", "nearest", "cubic")
        for padding in ("zeros", "border", "reflection")
        for corners in (0, 1)
    ),
    # Quantized.
    ("QuantizeLinear", [X, SCALE, ZERO]),
    ("QuantizeLinear", [X, np.abs(floats(4)) + F(0.1), np.zeros(4, np.int8)], {"axis": 1}),
    ("QuantizeLinear", [X, SCALE], {"output_dtype": 3}),
    ("DequantizeLinear", [BYTES, SCALE, ZERO]),
    ("DequantizeLinear", [BYTES, floats(3), R.integers(0, 9, 3, np.uint8)], {"axis": 0}),
    ("DequantizeLinear", [BYTES, floats(3, 2)], {"axis": 1, "block_size": 2}),
    ("DynamicQuantizeLinear", [X], {}, 3),
    ("MatMulInteger", [BYTES, BYTES.T.copy(), ZERO, ZERO]),
    ("ConvInteger", [BYTES[None, None], BYTES[None, None, :2, :2], ZERO], {"pads": [1, 0, 1, 0]}),
    ("QLinearMatMul", [BYTES, SCALE, ZERO, BYTES.T.copy(), SCALE, ZERO, F(0.9), ZERO]),
    (
        "QLinearConv",
        [
            *(BYTES[None, None], SCALE, ZERO, BYTES[None, None, :2, :2], SCALE, ZERO),
            *(F(0.4), ZERO, np.asarray([40], np.int32)),
        ],
    ),
    # Sequences.
    ("LSTM", [SEQUENCE, *gates(4, 1)], {"hidden_size": 4}, 3),
    (
        "LSTM",
        [SEQUENCE, *gates(4, 2), None, floats(2, 2, 4), floats(2, 2, 4), floats(2, 12)],
        {"hidden_size": 4, "direction": "bidirectional"},
        3,
    ),
    ("GRU", [SEQUENCE, *gates(3, 1)], {"hidden_size": 4, "direction": "reverse"}, 2),
    ("GRU", [SEQUENCE, *gates(3, 1)], {"hidden_size": 4, "linear_before_reset": 1}, 2),
    ("RNN", [SEQUENCE, *gates(1, 1)], {"hidden_size": 4, "activations": ["Relu"]}, 2),
]


def _node(name: str, inputs: list[Any], attrs: dict[str, Any], outputs: int, opset: int) -> Node:
    given = [place for place, x in enumerate(inputs) if x is not None]
    args = [{"c": None} if x is None else {"n": given.index(n)} for n, x in enumerate(inputs)]
    source = {
        "dialect": "onnx",
        "op": name,
        "args": args,
        "kwargs": {key: _attribute(value) for key, value in attrs.items()},
        "opset": opset,
        "outputs": outputs,
    }
    ports = tuple((f"i{n}", 0) for n in range(len(given)))
    return Node("n", "OP", "raw", {}, ports, {}, source)


def _attribute(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"l": [{"c": each} for each in value]}
    if isinstance(value, np.ndarray):
        held = base64.b64encode(value.tobytes()).decode()
        return {"tensor": {"dtype": str(value.dtype), "shape": value.shape, "elements": held}}
    return {"c": value}


def _by_onnxruntime(
    name: str, inputs: list[Any], attrs: dict[str, Any], outputs: int, opset: int
) -> list[Any]:
    from tests.onnx_runs import session

    helper = onnx.helper
    said = {
        key: onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for key, value in attrs.items()
    }
    names = ["" if x is None else f"i{n}" for n, x in enumerate(inputs)]
    node = helper.make_node(name, names, [f"o{n}" for n in range(outputs)], **said)
    kinds = [
        helper.make_tensor_value_info(
            f"i{n}", helper.np_dtype_to_tensor_dtype(x.dtype), list(x.shape)
        )
        for n, x in enumerate(inputs)
        if x is not None
    ]
    ends = [onnx.ValueInfoProto(name=f"o{n}") for n in range(outputs)]
    graph = helper.make_graph([node], "g", kinds, ends)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    feeds = {f"i{n}": np.asarray(x) for n, x in enumerate(inputs) if x is not None}
    found: list[Any] = session(model.SerializeToString()).run(None, feeds)
    return found


def _parts(case: Case) -> tuple[str, list[Any], dict[str, Any], int, int]:
    name, inputs = case[:2]
    attrs = dict(case[2]) if len(case) > 2 else {}
    outputs = case[3] if len(case) > 3 else 1
    opset = attrs.pop("opset", 22)
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    return name, arrays, attrs, outputs, opset


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case[0]))
def test_each_operator_is_onnxruntimes(case: Case, precision: str) -> None:
    name, inputs, attrs, outputs, opset = _parts(case)
    wanted = _by_onnxruntime(name, inputs, attrs, outputs, opset)
    given = [x.astype(precision) if x.dtype == F else x for x in inputs if x is not None]
    copies = [x.copy() for x in given]
    with np.errstate(all="ignore"):  # as a whole run has it
        found = run_call(
            _node(name, inputs, attrs, outputs, opset), Run(given, {}, {}, dtype=precision)
        )
    assert all(np.array_equal(a, b) for a, b in zip(given, copies, strict=True))
    assert len(found) >= outputs
    for ours, theirs in zip(found, wanted, strict=False):
        assert ours.dtype == (precision if theirs.dtype == F else theirs.dtype)
        assert ours.shape == theirs.shape
        assert np.allclose(ours, theirs, rtol=3e-5, atol=3e-5, equal_nan=True)


def test_every_operator_is_tried() -> None:
    # onnxruntime runs no CumProd; the suite of ONNX has it.
    assert FUNCTIONS.keys() - {case[0] for case in CASES} == {"CumProd"}


HUGE = ints(1 << 20, 1 << 20)
REFUSED: list[Case] = [
    ("Expand", [np.ones((1, 1), F), HUGE]),
    ("Expand", [np.ones((1, 1), F), ints(-5, 2)]),
    ("ConstantOfShape", [HUGE]),
    ("ConstantOfShape", [ints(-1)]),
    ("Tile", [X, ints(1 << 20, 1 << 20, 1)]),
    ("Pad", [X, ints(1 << 40, 0, 0, 0, 0, 0)]),
    ("Range", [np.asarray(0, F), np.asarray(1e30, F), np.asarray(1e-3, F)]),
    ("Range", [ints(0).reshape(()), ints(5).reshape(()), ints(0).reshape(())]),
    ("OneHot", [ints(1), np.asarray(1 << 40, np.int64), np.asarray([0, 1], F)]),
    ("Gather", [X, ints(9)]),
    ("Gather", [np.ones((1, 1 << 12), F), np.zeros((1 << 9, 1 << 9), np.int64)]),
    ("GatherND", [X, ints([0, 9])]),
    ("GatherElements", [X, ints([[99]])]),
    ("ScatterND", [X, ints([9]), floats(1, 4, 5)]),
    ("ScatterND", [X, ints([0]), floats(1)]),
    ("ScatterElements", [X, ints([[0]]), floats(1, 1, 1)], {"reduction": "mean"}),
    ("Conv", [IMAGE, floats(3, 4, 3, 3)], {"pads": [1 << 40, 0, 0, 0]}),
    ("Conv", [IMAGE, floats(3, 4, 3, 3)], {"pads": [-1, 0, 0, 0]}),
    ("Conv", [IMAGE, floats(3, 4, 3, 3)], {"strides": [0, 1]}),
    ("Conv", [IMAGE, floats(3, 5, 3, 3)]),
    ("Resize", [MAP, None, None, ints(1, 2, 1 << 30, 1 << 30)]),
    ("Resize", [MAP, None, None, ints(1, 2, 3, 3)], {"antialias": 1, "mode": "linear"}),
    ("Slice", [X, ints(0), ints(1), ints(0), ints(0)]),
    ("Slice", [X, ints(0), ints(1), ints(7)]),
    ("Reshape", [X, ints(7)]),
    ("TopK", [X, ints(99)]),
    ("Split", [X, ints(9, 9)]),
    ("Split", [X], {"num_outputs": 1 << 40}),
    ("Split", [X], {}, 1 << 40),
    ("Unsqueeze", [X, ints(9)]),
    ("Div", [WHOLE, np.zeros_like(WHOLE)]),
    ("Mod", [X, POSITIVE]),
    ("Cast", [np.asarray([1e30], F)], {"to": 6}),
    ("Cast", [X], {"to": 17}),
    ("Cast", [X], {"to": "x"}),
    ("CastLike", [X, X]),
    ("Dropout", [X, np.asarray(0.5, F), np.asarray(True)]),
    ("BatchNormalization", [IMAGE, *[floats(4)] * 4], {"training_mode": 1}),
    ("LSTM", [SEQUENCE, *gates(4, 1)], {"hidden_size": 4, "clip": 1.0}),
    ("LSTM", [SEQUENCE, *gates(4, 1), ints(5, 3)], {"hidden_size": 4}),
    ("GridSample", [MAP, GRID], {"padding_mode": "wrap"}),
    ("Attention", [HEADS, HEADS, HEADS, np.zeros((5, 5), bool)]),
    ("Attention", [HEADS, HEADS, HEADS, MASK], {"softcap": 1.0}),
    ("Attention", [SEQUENCE, SEQUENCE, SEQUENCE]),
    ("Add", [X, X], {"broadcast": 1}),
    ("If", [FLAGS]),
    ("com.microsoft::Gelu", [X]),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: str(case[0]))
def test_what_it_cannot_run_is_refused(case: Case) -> None:
    name, inputs, attrs, outputs, opset = _parts(case)
    with pytest.raises(NotRunnable), np.errstate(all="ignore"):
        run_call(
            _node(name, inputs, attrs, outputs, opset),
            Run([x for x in inputs if x is not None], {}, {}),
        )


def _bounds(case: Case, radius: float = 0.0) -> tuple[Ball, ...]:
    name, inputs, attrs, outputs, opset = _parts(case)
    node = _node(name, inputs, attrs, outputs, opset)
    balls = [
        Ball(
            x if x.dtype == bool else x.astype(np.float64), np.full(len(x) if x.ndim else 1, radius)
        )
        for x in inputs
        if x is not None
    ]
    return op_of(node).bounds(node, BallRun(balls, {}, None, F64, {}))


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case[0]))
def test_bounds_of_whole_numbers_are_what_onnxruntime_gives(case: Case) -> None:
    """Whichever dtype the network computes them in: of floats, and of whole numbers."""
    name, inputs, attrs, outputs, opset = _parts(case)
    whole = [x if x is None or x.dtype != F else np.rint(x * 3) for x in inputs]
    try:
        balls = _bounds((name, whole, {**attrs, "opset": opset}, outputs))
    except NoRule:
        return
    wanted = _by_onnxruntime(name, whole, attrs, outputs, opset)
    for ball, right in zip(balls, wanted, strict=False):
        assert ball.exact
        assert np.array_equal(ball.centre, right)


@pytest.mark.parametrize(
    "case",
    [
        ("Div", [np.asarray([7.0, 8.0], F), np.asarray([2.0, 2.0], F)]),
        ("Pow", [np.full(2, 2.0, F), np.full(2, 3.0, F)]),
        ("ReduceProd", [np.full(100, 2.0, F)]),
        ("ReduceSum", [np.asarray([2.0**23, 2.0**23, 1, -(2.0**23), -(2.0**23)], F)]),
        ("ReduceMean", [RISING]),
        ("Cast", [RISING], {"to": 2}),
        ("ScatterElements", [RISING, ints([0, 0]), floats(1, 2)], {"reduction": "mul"}),
    ],
    ids=lambda case: str(case[0]),
)
def test_what_depends_on_the_dtype_has_no_bounds(case: Case) -> None:
    with pytest.raises(NoRule):
        _bounds(case)


@pytest.mark.parametrize(
    "source",
    [
        {"dialect": "onnx", "op": "Cast", "kwargs": {"to": 7}},
        {"dialect": "onnx", "op": "Gather", "kwargs": 7},
        {"dialect": "onnx", "op": "Gather", "args": [7]},
        {"dialect": "aten", "op": "aten.add.Tensor", "args": None},
        {"dialect": "onnx", "op": "Gather", "args": [{"n": 0}, {"n": 9}]},
        {"dialect": "onnx", "op": ["Gather"]},
    ],
)
def test_sources_that_nothing_recorded_have_no_bounds(source: Any) -> None:
    node = Node("n", "OP", "raw", {}, (("x", 0),), {}, source)
    with pytest.raises(NoRule):
        op_of(node).bounds(node, BallRun([Ball(np.ones(3), np.zeros(3))], {}, None, F64, {}))


def test_uncertain_numbers_have_no_bounds() -> None:
    assert _bounds(("Gather", [RISING, ints(0, 1)]))[0].exact
    with pytest.raises(NoRule):
        _bounds(("Gather", [RISING, ints(0, 1)]), radius=1e-9)
    name, inputs, attrs, outputs, opset = _parts(("Gather", [RISING, ints(0)]))
    assert exact(_node(name, inputs, attrs, outputs, opset), inputs)
