"""ONNX operators as dlv reads them: the right layers, and in torch what onnxruntime gives."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
import torch

from dlv.adapters.onnx.writer import save_network
from dlv.network.verify import infer
from tests.onnx_models import Array, array, constant, model, op
from tests.onnx_reading import (
    FAILURES,
    in_onnxruntime,
    in_torch,
    opened,
    random_input,
    sound,
    words,
)

torch.set_num_threads(1)


class Case(NamedTuple):
    words: str  # the expected nodes
    nodes: Sequence[onnx.NodeProto]
    inputs: Mapping[str, Any]
    weights: Mapping[str, Array] = {}
    opset: int = 17
    runs: bool = True
    outputs: Mapping[str, Any] | None = None


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def single(*values: float) -> Array:
    """One float, or a list."""
    return np.array(values[0] if len(values) == 1 else values, np.float32)


IMAGE = {"x": ["B", 4, 7, 9]}
ROWS = {"x": ["B", 6]}
TOKENS = {"x": ["B", 5, 6]}
PAIR = {"x": ["B", 6], "z": ["B", 6]}
W = {"w.weight": array(8, 4, 3, 3), "w.bias": array(8)}
DW = {"w.weight": array(4, 3, 3, 2), "w.bias": array(6)}
NORM = {slot: array(4, seed=i) ** 2 for i, slot in enumerate(("s", "b", "m", "v"))}
HALF = {"c": single(0.5)}

CASES: dict[str, Case] = {
    # Convolutions
    "conv": Case("CONV", [op("Conv", "x w.weight w.bias")], IMAGE, W),
    "conv everything": Case(
        "CONV",
        [
            op(
                "Conv",
                "x w",
                kernel_shape=[3, 2],
                strides=[2, 1],
                pads=[1, 0, 2, 3],
                dilations=[2, 1],
                group=2,
            )
        ],
        IMAGE,
        {"w": array(6, 2, 3, 2)},
    ),
    "conv depthwise": Case(
        "CONV", [op("Conv", "x w", group=4, pads=[1, 1, 1, 1])], IMAGE, {"w": array(4, 1, 3, 3)}
    ),
    "conv 1d": Case("CONV", [op("Conv", "x w")], {"x": ["B", 3, 9]}, {"w": array(2, 3, 4)}),
    "conv 3d": Case(
        "CONV", [op("Conv", "x w")], {"x": ["B", 2, 4, 4, 4]}, {"w": array(2, 2, 2, 2, 2)}
    ),
    **{
        f"conv {how}": Case(
            "CONV",
            [op("Conv", "x w", auto_pad=how, strides=[2, 3])],
            IMAGE,
            {"w": array(2, 4, 3, 4)},
        )
        for how in ("SAME_UPPER", "SAME_LOWER", "VALID")
    },
    "conv same of unknown length": Case(
        "CONV",
        [op("Conv", "x w", auto_pad="SAME_UPPER")],
        {"x": ["B", 4, "H", "W"]},
        {"w": array(2, 4, 3, 4)},
    ),
    "conv with a computed weight": Case(
        "onnx:Conv", [op("Conv", "x z")], {"x": ["B", 4, 5, 5], "z": [2, 4, 3, 3]}, runs=False
    ),
    "deconv": Case(
        "DECONV",
        [op("ConvTranspose", "x w.weight w.bias", group=2)],
        IMAGE,
        {"w.weight": array(4, 3, 3, 2), "w.bias": array(6)},
    ),
    "deconv everything": Case(
        "DECONV",
        [
            op(
                "ConvTranspose",
                "x w",
                strides=[2, 3],
                pads=[1, 0, 1, 2],
                output_padding=[1, 0],
                dilations=[1, 2],
            )
        ],
        IMAGE,
        {"w": array(4, 3, 3, 2)},
    ),
    "deconv same": Case(
        "DECONV",
        [op("ConvTranspose", "x w", strides=[2, 2], auto_pad="SAME_UPPER")],
        IMAGE,
        {"w": array(4, 3, 3, 3)},
    ),
    "deconv to a shape": Case(
        "DECONV",
        [op("ConvTranspose", "x w", strides=[2, 2], output_shape=[14, 19])],
        IMAGE,
        {"w": array(4, 3, 3, 3)},
    ),
    # Matrices
    "gemm": Case("FULL", [op("Gemm", "x w b")], ROWS, {"w": array(6, 3), "b": array(3)}),
    "gemm turned": Case(
        "FULL", [op("Gemm", "x w b", transB=1)], ROWS, {"w": array(3, 6), "b": array(3)}
    ),
    "gemm alone": Case("FULL", [op("Gemm", "x w")], ROWS, {"w": array(6, 3)}),
    "gemm plus a row": Case(
        "FULL ADD", [op("Gemm", "x w b")], ROWS, {"w": array(6, 3), "b": array(1, 3)}
    ),
    "gemm plus data": Case(
        "FULL ADD", [op("Gemm", "x w z")], {"x": ["B", 6], "z": ["B", 3]}, {"w": array(6, 3)}
    ),
    "gemm plus what does not fit": Case(
        "onnx:Gemm", [op("Gemm", "x w b")], ROWS, {"w": array(6, 3), "b": array(7)}, runs=False
    ),
    "gemm scaled": Case(
        "onnx:Gemm", [op("Gemm", "x w", alpha=0.5)], ROWS, {"w": array(6, 3)}, runs=False
    ),
    "matmul": Case("FULL", [op("MatMul", "x w")], TOKENS, {"w": array(6, 3)}),
    "matmul and add": Case(
        "FULL",
        [op("MatMul", "x w", "a"), op("Add", "b a")],
        TOKENS,
        {"w": array(6, 3), "b": array(3)},
    ),
    "matmul used twice": Case(
        "FULL ADD ADD",
        [op("MatMul", "x w", "a"), op("Add", "a b", "c"), op("Add", "a c")],
        TOKENS,
        {"w": array(6, 3), "b": array(3)},
    ),
    "matmul and a number": Case(
        "FULL ADD",
        [op("MatMul", "x w", "a"), op("Add", "a b")],
        TOKENS,
        {"w": array(6, 3), "b": array(1)},
    ),
    "matmul turned": Case(
        "FULL",
        [op("Transpose", "w", "t", perm=[1, 0]), op("MatMul", "x t", "a"), op("Add", "a b")],
        TOKENS,
        {"w": array(3, 6), "b": array(3)},
    ),
    "matmul turned twice": Case(
        "FULL",
        [op("Transpose", "w", "t"), op("Transpose", "t", "u"), op("MatMul", "x u")],
        TOKENS,
        {"w": array(6, 3)},
    ),
    "matmul of data": Case(
        "aten.matmul.default", [op("MatMul", "x z")], {"x": ["B", 2, 3], "z": ["B", 3, 4]}
    ),
    "matmul from the left": Case(
        "aten.matmul.default", [op("MatMul", "w x")], TOKENS, {"w": array(4, 5)}
    ),
    "matmul in batches": Case(
        "aten.matmul.default", [op("MatMul", "x w")], TOKENS, {"w": array(1, 6, 4)}
    ),
    "a turned matrix flows": Case(
        "aten.transpose.int ADD",
        [op("Transpose", "w", "t"), op("Add", "x t")],
        {"x": [3, 6]},
        {"w": array(6, 3)},
    ),
    "einsum": Case(
        "aten.einsum.default",
        [op("Einsum", "x z", equation="bij,bjk->bik")],
        {"x": ["B", 2, 3], "z": ["B", 3, 4]},
    ),
    # Normalisation
    "batch norm": Case("NORM.BATCH", [op("BatchNormalization", "x s b m v")], IMAGE, NORM),
    "batch norm of 3d": Case(
        "NORM.BATCH", [op("BatchNormalization", "x s b m v", epsilon=0.1)], {"x": ["B", 4, 3]}, NORM
    ),
    "instance norm": Case("NORM.INSTANCE", [op("InstanceNormalization", "x s b")], IMAGE, NORM),
    "layer norm": Case(
        "NORM.LAYER",
        [op("LayerNormalization", "x s b", epsilon=0.01)],
        TOKENS,
        {"s": array(6), "b": array(6)},
    ),
    "layer norm of two axes": Case(
        "NORM.LAYER", [op("LayerNormalization", "x s", axis=1)], TOKENS, {"s": array(5, 6)}
    ),
    "layer norm with one number": Case(
        "onnx:LayerNormalization",
        [op("LayerNormalization", "x s")],
        TOKENS,
        {"s": array(1)},
        runs=False,
    ),
    "group norm": Case(
        "NORM.GROUP", [op("GroupNormalization", "x s b", num_groups=2)], IMAGE, NORM, opset=21
    ),
    "group norm of version 18": Case(
        "onnx:GroupNormalization",
        [op("GroupNormalization", "x s b", num_groups=2)],
        IMAGE,
        {"s": array(2), "b": array(2)},
        opset=18,
        runs=False,
    ),
    "group norm of version 18 and unknown channels": Case(
        "onnx:GroupNormalization",
        [op("GroupNormalization", "x s b", num_groups=2)],
        {"x": ["B", None, 7]},
        {"s": array(2), "b": array(2)},
        opset=18,
        runs=False,
    ),
    "rms norm": Case(
        "NORM.RMS", [op("RMSNormalization", "x s", epsilon=0.01)], TOKENS, {"s": array(6)}, opset=23
    ),
    "lrn": Case("NORM.LRN", [op("LRN", "x", size=3, alpha=0.2, beta=0.5, bias=2.0)], IMAGE),
    # Activations
    "relu": Case("RELU", [op("Relu", "x")], ROWS),
    "leaky relu": Case("RELU", [op("LeakyRelu", "x", alpha=0.3)], ROWS),
    "sigmoid": Case("ACT.SIGMOID", [op("Sigmoid", "x")], ROWS),
    "tanh": Case("ACT.TANH", [op("Tanh", "x")], ROWS),
    "gelu": Case("ACT.GELU", [op("Gelu", "x")], ROWS, opset=20),
    "gelu by tanh": Case("ACT.GELU", [op("Gelu", "x", approximate="tanh")], ROWS, opset=20),
    "silu": Case("ACT.SILU", [op("Sigmoid", "x", "a"), op("Mul", "x a")], ROWS),
    "no silu": Case(
        "ACT.SIGMOID MUL ADD",
        [op("Sigmoid", "x", "a"), op("Mul", "x a", "b"), op("Add", "a b")],
        ROWS,
    ),
    "relu6": Case("ACT.RELU6", [op("Clip", "x l h")], ROWS, {"l": single(0), "h": single(6)}),
    "relu6 before version 11": Case(
        "ACT.RELU6", [op("Clip", "x", min=0.0, max=6.0)], ROWS, opset=9
    ),
    "relu as clip": Case("RELU", [op("Clip", "x l")], ROWS, {"l": single(0)}),
    "clip": Case("aten.clamp.default", [op("Clip", "x - c")], ROWS, {"c": single(0.25)}),
    "clip of version 6": Case("aten.clamp.default", [op("Clip", "x", min=-0.5)], ROWS, opset=6),
    "prelu": Case("onnx:PRelu", [op("PRelu", "x s")], IMAGE, {"s": array(4, 1, 1)}, runs=False),
    "elu": Case("aten.elu.default", [op("Elu", "x", alpha=0.4)], ROWS),
    "celu": Case("aten.celu.default", [op("Celu", "x", alpha=0.4)], ROWS),
    "selu": Case("aten.selu.default", [op("Selu", "x")], ROWS),
    "selu of other slopes": Case("onnx:Selu", [op("Selu", "x", gamma=2.0)], ROWS, runs=False),
    "softplus": Case("aten.softplus.default", [op("Softplus", "x")], ROWS),
    "hard swish": Case("aten.hardswish.default", [op("HardSwish", "x")], ROWS),
    "hard sigmoid": Case(
        "aten.hardsigmoid.default", [op("HardSigmoid", "x", alpha=1 / 6, beta=0.5)], ROWS
    ),
    "hard sigmoid by default": Case("onnx:HardSigmoid", [op("HardSigmoid", "x")], ROWS, runs=False),
    "softmax": Case("SOFTMAX", [op("Softmax", "x")], TOKENS),
    "softmax of an axis": Case("SOFTMAX", [op("Softmax", "x", axis=1)], TOKENS),
    "softmax of version 11": Case("SOFTMAX", [op("Softmax", "x", axis=2)], TOKENS, opset=11),
    "softmax of two axes": Case(
        "onnx:Softmax", [op("Softmax", "x", axis=1)], TOKENS, opset=11, runs=False
    ),
    "log softmax": Case("SOFTMAX", [op("LogSoftmax", "x", axis=-1)], ROWS),
    "dropout": Case("DROPOUT", [op("Dropout", "x c")], ROWS, HALF),
    "dropout of version 10": Case("DROPOUT", [op("Dropout", "x", ratio=0.3)], ROWS, opset=10),
    # Pools
    "max pool": Case(
        "POOL.MAX",
        [op("MaxPool", "x", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 0, 1])],
        IMAGE,
    ),
    "max pool rounding up": Case(
        "POOL.MAX",
        [op("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, dilations=[2, 2])],
        IMAGE,
    ),
    "max pool same": Case(
        "POOL.MAX",
        [op("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER")],
        IMAGE,
    ),
    "max pool with places": Case(
        "onnx:MaxPool getitem",
        [op("MaxPool", "x", "a y", kernel_shape=[2, 2])],
        IMAGE,
        runs=False,
        outputs={"y": ("int64", None)},
    ),
    "average pool": Case(
        "POOL.AVG",
        [op("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])],
        IMAGE,
    ),
    "average pool counting padding": Case(
        "POOL.AVG",
        [op("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)],
        IMAGE,
    ),
    "global average": Case("POOL.AVG", [op("GlobalAveragePool", "x")], IMAGE),
    "global maximum": Case("POOL.MAX", [op("GlobalMaxPool", "x")], {"x": ["B", 4, 7]}),
    "mean": Case("POOL.MEAN", [op("ReduceMean", "x", axes=[1, 2], keepdims=0)], IMAGE),
    "mean of all": Case("POOL.MEAN", [op("ReduceMean", "x")], TOKENS),
    "mean of version 18": Case(
        "POOL.MEAN", [op("ReduceMean", "x a")], TOKENS, {"a": ints(-1)}, opset=18
    ),
    # Plumbing
    "concat": Case("CONCAT", [op("Concat", "x z", axis=1)], PAIR),
    "concat with a weight": Case(
        "aten.cat.default", [op("Concat", "w x", axis=0)], {"x": ["B", 6]}, {"w": array(1, 6)}
    ),
    "concat with a constant": Case(
        "CONCAT", [constant("c", [[1.0] * 6], "float32"), op("Concat", "x c", axis=0)], ROWS
    ),
    "reshape to rows": Case("flatten", [op("Reshape", "x s")], IMAGE, {"s": ints(0, -1)}),
    "reshape behind two": Case("flatten", [op("Reshape", "x s")], IMAGE, {"s": ints(0, 0, -1)}),
    "reshape": Case("view", [op("Reshape", "x s")], TOKENS, {"s": ints(-1, 3, 2)}),
    "reshape keeping axes": Case("view", [op("Reshape", "x s")], TOKENS, {"s": ints(0, 0, 3, 2)}),
    "reshape as an attribute": Case(
        "view", [op("Reshape", "x", shape=[-1, 2])], TOKENS, opset=4, runs=False
    ),
    "reshape by its own shape": Case(
        "view",
        [
            op("Shape", "x", "s"),
            constant("i", 0),
            op("Gather", "s i", "n", axis=0),
            constant("a", [0]),
            op("Unsqueeze", "n a", "u"),
            constant("t", [15, 2]),
            op("Concat", "u t", "z", axis=0),
            op("Reshape", "x z"),
        ],
        TOKENS,
    ),
    "expand by products of lengths": Case(
        "size arithmetic expand",
        [
            op("Shape", "x", "s"),
            constant("i", 0),
            constant("j", 1),
            constant("one", [1]),
            constant("two", [2]),
            op("Gather", "s j", "m"),
            op("Mul", "m two", "k"),
            op("Gather", "s i", "n"),
            op("Reshape", "n one", "n1"),
            op("Concat", "k n1 one", "z", axis=0),
            op("Expand", "w z"),
        ],
        {"x": ["B", None], "w": [1, 1, 6]},
    ),
    "flatten": Case("flatten", [op("Flatten", "x")], IMAGE),
    "flatten at 2": Case("flatten flatten", [op("Flatten", "x", axis=2)], IMAGE),
    "flatten at the end": Case("flatten unsqueeze", [op("Flatten", "x", axis=4)], IMAGE),
    "flatten at 0": Case("view", [op("Flatten", "x", axis=0)], IMAGE),
    "flatten from behind": Case("flatten flatten", [op("Flatten", "x", axis=-2)], IMAGE),
    "transpose": Case("transpose", [op("Transpose", "x", perm=[0, 2, 1])], TOKENS),
    "permute": Case("permute", [op("Transpose", "x", perm=[2, 0, 1])], TOKENS),
    "transpose by default": Case("transpose", [op("Transpose", "x")], TOKENS),
    "squeeze": Case("squeeze", [op("Squeeze", "x a")], {"x": ["B", 1, 6]}, {"a": ints(1)}),
    "squeeze of version 11": Case(
        "squeeze", [op("Squeeze", "x", axes=[1])], {"x": ["B", 1, 6]}, opset=11
    ),
    "unsqueeze": Case("unsqueeze", [op("Unsqueeze", "x a")], ROWS, {"a": ints(1)}),
    "unsqueeze twice": Case(
        "unsqueeze unsqueeze", [op("Unsqueeze", "x a")], ROWS, {"a": ints(3, 0)}
    ),
    "slice": Case(
        "slice slice",
        [op("Slice", "x s e a t")],
        TOKENS,
        {"s": ints(1, -4), "e": ints(2**63 - 1, -1), "a": ints(1, 2), "t": ints(2, 1)},
    ),
    "slice of version 9": Case(
        "slice", [op("Slice", "x", starts=[1], ends=[3], axes=[1])], TOKENS, opset=9
    ),
    "slice backwards": Case(
        "onnx:Slice",
        [op("Slice", "x s e a t")],
        TOKENS,
        {"s": ints(-1), "e": ints(-9), "a": ints(1), "t": ints(-1)},
        runs=False,
    ),
    "slice up to a length": Case(
        "size aten.slice.Tensor",
        [
            op("Shape", "z", "s"),
            constant("i", 1),
            op("Gather", "s i", "n"),
            constant("a", [0]),
            op("Unsqueeze", "n a", "e"),
            op("Slice", "x a e a"),
        ],
        {"x": [9, 6], "z": [2, None]},
    ),
    "split": Case(
        "split CONCAT",
        [op("Split", "x s", "a b", axis=1), op("Concat", "b a", axis=1)],
        ROWS,
        {"s": ints(2, 4)},
    ),
    "split evenly": Case(
        "split ADD", [op("Split", "x", "a b", axis=-1), op("Add", "b a")], ROWS, opset=11
    ),
    "embedding": Case(
        "EMBED", [op("Gather", "e.weight x")], {"x": ("int64", ["B", 3])}, {"e.weight": array(7, 4)}
    ),
    "element": Case("select", [op("Gather", "x i", axis=1)], TOKENS, {"i": np.array(2)}),
    "last element, kept": Case("slice", [op("Gather", "x i", axis=1)], TOKENS, {"i": ints(-1)}),
    "elements by a list": Case(
        "aten.index_select.default", [op("Gather", "x i", axis=-2)], TOKENS, {"i": ints(2, 0, 2)}
    ),
    "elements by a list from the end": Case(
        "onnx:Gather", [op("Gather", "x i", axis=1)], TOKENS, {"i": ints(0, -1)}, runs=False
    ),
    "gather of data": Case(
        "onnx:Gather",
        [op("Gather", "x i", axis=1)],
        {"x": ["B", 5, 6], "i": ("int64", [2])},
        runs=False,
    ),
    "expand": Case("expand", [op("Expand", "x s")], {"x": ["B", 1, 6]}, {"s": ints(4, 1, 3, 1)}),
    "cast": Case(
        "to", [op("Cast", "x", to=onnx.TensorProto.DOUBLE)], ROWS, outputs={"y": ("float64", None)}
    ),
    "identity": Case(
        "RELU", [op("Identity", "x", "a"), op("Relu", "a", "b"), op("Identity", "b")], ROWS
    ),
    "weight through an identity": Case(
        "FULL", [op("Identity", "w", "v"), op("MatMul", "x v")], ROWS, {"w": array(6, 6)}
    ),
    "pad": Case(
        "aten.constant_pad_nd.default",
        [op("Pad", "x p c")],
        IMAGE,
        {"p": ints(0, 0, 1, 2, 0, 0, 3, 4), "c": single(7)},
    ),
    "pad of version 2": Case(
        "aten.constant_pad_nd.default", [op("Pad", "x", pads=[0, 1, 2, 0])], ROWS, opset=9
    ),
    "pad by reflection": Case(
        "onnx:Pad",
        [op("Pad", "x p", mode="reflect")],
        IMAGE,
        {"p": ints(0, 0, 1, 2, 0, 0, 3, 4)},
        runs=False,
    ),
    # Elements
    "add": Case("ADD", [op("Add", "x z")], PAIR),
    "add a number": Case("ADD", [constant("c", 0.1, "float32"), op("Add", "c x")], ROWS),
    "add a weight": Case("ADD", [op("Add", "w x")], ROWS, {"w": array(6)}),
    "add a constant": Case(
        "ADD", [constant("c", [1, 2, 3, 4, 5, 6], "float32"), op("Add", "x c")], ROWS
    ),
    "add an axis": Case("ADD", [constant("c", [[[2]]], "float32"), op("Add", "x c")], ROWS),
    "add whole numbers": Case(
        "aten.add.Tensor",
        [constant("c", 3), op("Add", "x c")],
        {"x": ("int64", ["B", 2])},
        outputs={"y": ("int64", None)},
    ),
    "sum": Case("ADD", [op("Sum", "x z x")], PAIR),
    "multiply": Case("MUL", [constant("c", 0.5, "float32"), op("Mul", "x c")], ROWS),
    "subtract": Case("aten.sub.Tensor", [op("Sub", "x z")], PAIR),
    "subtract a number": Case("ADD", [constant("c", 0.1, "float32"), op("Sub", "x c")], ROWS),
    "subtract from a number": Case(
        "aten.rsub.Scalar", [constant("c", 0.1, "float32"), op("Sub", "c x")], ROWS
    ),
    "subtract a weight": Case("aten.sub.Tensor", [op("Sub", "x w")], ROWS, {"w": array(6)}),
    "divide": Case("aten.div.Tensor", [op("Div", "x z")], PAIR),
    "divide by a number": Case(
        "aten.div.Tensor", [constant("c", 8, "float32"), op("Div", "x c")], ROWS
    ),
    "divide a number": Case(
        "aten.div.Tensor", [constant("c", 8, "float32"), op("Div", "c x")], ROWS
    ),
    "divide whole numbers": Case(
        "aten.div.Tensor_mode",
        [constant("c", -3), op("Div", "x c")],
        {"x": ("int64", ["B", 2])},
        outputs={"y": ("int64", None)},
    ),
    "power": Case("aten.pow.Tensor_Scalar", [constant("c", 3, "float32"), op("Pow", "x c")], ROWS),
    "power of data": Case(
        "ACT.SIGMOID aten.pow.Tensor_Tensor", [op("Sigmoid", "x", "a"), op("Pow", "a z")], PAIR
    ),
    "modulo": Case(
        "to aten.fmod.Scalar to",
        [
            op("Cast", "x", "i", to=7),
            constant("c", 3, "int64"),
            op("Mod", "i c", "m", fmod=1),
            op("Cast", "m", to=1),
        ],
        ROWS,
    ),
    "where": Case(
        "aten.gt.Scalar aten.where.self",
        [constant("c", 0.1, "float32"), op("Greater", "x c", "g"), op("Where", "g x c")],
        ROWS,
    ),
    "truths": Case(
        "aten.lt.Tensor aten.logical_not.default aten.eq.Tensor aten.logical_or.default to",
        [
            op("Less", "x z", "a"),
            op("Not", "a", "b"),
            op("Equal", "x z", "c"),
            op("Or", "b c", "d"),
            op("Cast", "d", to=1),
        ],
        PAIR,
    ),
    "largest": Case("aten.maximum.default", [op("Max", "x z")], PAIR),
    "smallest of a number": Case(
        "aten.minimum.default", [constant("c", 0.1, "float32"), op("Min", "x c")], ROWS
    ),
    "largest of three": Case("onnx:Max", [op("Max", "x z x")], PAIR, runs=False),
    **{
        kind: Case(f"aten.{kind.lower()}.default", [op(kind, "x")], ROWS)
        for kind in ("Exp", "Neg", "Abs", "Sin", "Floor", "Ceil", "Round", "Sign", "Erf", "Atan")
    },
    "sum along": Case(
        "aten.sum.dim_IntList", [op("ReduceSum", "x a", keepdims=0)], TOKENS, {"a": ints(-2)}
    ),
    "sum of all": Case("aten.sum.dim_IntList", [op("ReduceSum", "x")], TOKENS),
    "maximum along": Case("aten.amax.default", [op("ReduceMax", "x", axes=[2])], TOKENS),
    "norm along": Case("aten.linalg_vector_norm.default", [op("ReduceL2", "x", axes=[-1])], TOKENS),
    "place of the largest": Case(
        "aten.argmax.default",
        [op("ArgMax", "x", axis=1, keepdims=0)],
        TOKENS,
        outputs={"y": ("int64", None)},
    ),
    "place of the smallest": Case(
        "aten.argmin.default",
        [op("ArgMin", "x", axis=-2, keepdims=0)],
        {"x": ["B", 5, 6, 2]},
        outputs={"y": ("int64", None)},
    ),
    "running sum": Case("aten.cumsum.default", [op("CumSum", "x a")], TOKENS, {"a": np.array(1)}),
    "tile": Case("aten.repeat.default", [op("Tile", "x r")], ROWS, {"r": ints(2, 3)}),
    "top": Case(
        "aten.sort.stable getitem slice getitem slice to ADD",
        [op("TopK", "x k", "a b"), op("Cast", "b", "c", to=1), op("Add", "a c")],
        ROWS,
        {"k": ints(2)},
    ),
    "triangle": Case("aten.tril.default", [op("Trilu", "x", upper=0)], TOKENS),
    "range": Case(
        "size aten.arange.start_step",
        [
            op("Shape", "x", "s"),
            constant("i", 0),
            op("Gather", "s i", "n"),
            constant("one", 1),
            op("Range", "i n one"),
        ],
        ROWS,
        outputs={"y": ("int64", None)},
    ),
    "fill": Case(
        "fill ADD", [op("Shape", "x", "s"), op("ConstantOfShape", "s", "f"), op("Add", "x f")], ROWS
    ),
    "upsample": Case(
        "aten.upsample_nearest2d.vec",
        [
            op(
                "Resize",
                "x - s",
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )
        ],
        IMAGE,
        {"s": single(1, 1, 2, 3)},
    ),
    "upsample between": Case(
        "aten.upsample_bilinear2d.vec",
        [op("Resize", "x - s", mode="linear")],
        IMAGE,
        {"s": single(1, 1, 2, 2)},
    ),
    "upsample in another way": Case(
        "onnx:Resize",
        [op("Resize", "x - s", mode="cubic")],
        IMAGE,
        {"s": single(1, 1, 2, 2)},
        runs=False,
    ),
    "attention": Case(
        "ATTENTION",
        [op("Attention", "x x x", is_causal=1, scale=0.3)],
        {"x": ["B", 2, 5, 6]},
        opset=23,
    ),
    "attention by heads": Case(
        "ATTENTION", [op("Attention", "x x x", q_num_heads=2, kv_num_heads=2)], TOKENS, opset=23
    ),
    # Recurrent, and what is kept as it is
    "lstm": Case(
        "onnx:LSTM getitem",
        [op("LSTM", "x w r b", "y - c", hidden_size=3)],
        {"x": [4, "B", 2]},
        {"w": array(1, 12, 2), "r": array(1, 12, 3), "b": array(1, 24)},
        runs=False,
    ),
    "gru": Case(
        "onnx:GRU getitem",
        [op("GRU", "x w r", "- y", hidden_size=3)],
        {"x": [4, "B", 2]},
        {"w": array(1, 9, 2), "r": array(1, 9, 3)},
        runs=False,
    ),
    "unknown": Case("onnx:NotThere", [op("NotThere", "x")], ROWS, runs=False),
    "foreign": Case(
        "onnx:com.example::Relu",
        [onnx.helper.make_node("Relu", ["x"], ["y"], domain="com.example")],
        ROWS,
        runs=False,
    ),
}


def made(case: Case) -> onnx.ModelProto:
    return model(case.nodes, case.inputs, case.weights, case.outputs, opset=case.opset)


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    given = made(case)
    with opened(given, tmp_path) as checkpoint:
        assert words(sound(checkpoint)) == case.words.split()
        assert checkpoint.exact
        if not case.runs:
            return
        network = sound(checkpoint)
        nodes = {node.name: node for node in infer(network).nodes}
        for batch in (2, 3):
            inputs = random_input(given, batch)
            wanted, got = in_onnxruntime(given, inputs), in_torch(checkpoint, inputs)
            assert len(wanted) == len(got)
            for one, other in zip(wanted, got, strict=True):
                assert one.shape == other.shape
                assert one.dtype == other.dtype
                told = nodes[network.outputs[0][0]].out_shape
                if told is not None and network.outputs[0][1] == 0:
                    seen = [batch if isinstance(dim, str) else dim for dim in told]
                    assert all(
                        dim in (None, side) for dim, side in zip(seen, one.shape, strict=True)
                    )
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


# Operators that have another form since then, which dlv does not translate.
REFUSED = {
    "group norm of version 18",
    "group norm of version 18 and unknown channels",
    "softmax of two axes",
}


@pytest.mark.parametrize("name", [name for name in CASES if name not in REFUSED])
def test_written_again(name: str, tmp_path: Path) -> None:
    """What dlv's writer makes of the network computes what the file did."""
    given, out = made(CASES[name]), io.BytesIO()
    with opened(given, tmp_path) as checkpoint:
        save_network(out, sound(checkpoint), checkpoint.tensors, checkpoint.constants)
    again = onnx.ModelProto.FromString(out.getvalue())
    inputs = random_input(given)
    try:
        wanted = in_onnxruntime(given, inputs)
    except FAILURES:
        return  # made up, or not in this runtime: that it could be written is enough
    for one, other in zip(wanted, in_onnxruntime(again, inputs), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
