"""ONNX models by the onnx package, for the tests of the reader: small ones, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
Spec = Sequence[int | str | None] | tuple[str, Sequence[int | str | None]] | None


def array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def op(kind: str, inputs: str, outputs: str = "y", **attrs: Any) -> onnx.NodeProto:
    """`inputs` and `outputs` separated by blanks; `-` is one that is left out."""
    names = [[("" if name == "-" else name) for name in text.split()] for text in (inputs, outputs)]
    return helper.make_node(kind, names[0], names[1], **attrs)


def constant(name: str, value: Any, dtype: str = "int64") -> onnx.NodeProto:
    stored = numpy_helper.from_array(np.asarray(value, dtype))
    return helper.make_node("Constant", [], [name], value=stored)


def value(name: str, spec: Spec, dtype: str = "float32") -> onnx.ValueInfoProto:
    if isinstance(spec, tuple):
        dtype, spec = spec
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, kind, spec)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Spec],
    weights: Mapping[str, Array] | None = None,
    outputs: Mapping[str, Spec] | None = None,
    *,
    opset: int = 17,
    values: Sequence[onnx.ValueInfoProto] = (),
    **more: Any,
) -> onnx.ModelProto:
    """A model; its outputs are `y` unless told otherwise."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [value(name, spec) for name, spec in inputs.items()],
        [value(name, spec) for name, spec in (outputs or {"y": None}).items()],
        [numpy_helper.from_array(data, name) for name, data in (weights or {}).items()],
        value_info=list(values),
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **more)
    made.ir_version = min(made.ir_version, 10 if opset > 12 else 7)
    return made


def lenet() -> onnx.ModelProto:
    """The LeNet of Caffe's examples, as a program with names writes it."""
    nodes = [
        op("Conv", "x conv1.weight conv1.bias", "a"),
        op("MaxPool", "a", "b", kernel_shape=[2, 2], strides=[2, 2], name="pool1"),
        op("Conv", "b conv2.weight conv2.bias", "c", kernel_shape=[5, 5]),
        op("MaxPool", "c", "d", kernel_shape=[2, 2], strides=[2, 2], name="pool2"),
        op("Flatten", "d", "e", name="flatten"),
        op("Gemm", "e ip1.weight ip1.bias", "f", transB=1),
        op("Relu", "f", "g", name="relu1"),
        op("Gemm", "g ip2.weight ip2.bias", "h", transB=1),
        op("Softmax", "h", "y", name="softmax", axis=-1),
    ]
    weights = {
        "conv1.weight": array(20, 1, 5, 5),
        "conv1.bias": array(20),
        "conv2.weight": array(50, 20, 5, 5) / 20,
        "conv2.bias": array(50),
        "ip1.weight": array(500, 800) / 30,
        "ip1.bias": array(500),
        "ip2.weight": array(10, 500) / 20,
        "ip2.bias": array(10),
    }
    return model(nodes, {"x": ["B", 1, 28, 28]}, weights, {"y": ["B", 10]})


def residual() -> onnx.ModelProto:
    """A block with batch normalisation and a shortcut."""
    nodes = [
        op("Conv", "x c1.weight", "a", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        op("BatchNormalization", "a n1.weight n1.bias n1.running_mean n1.running_var", "b"),
        op("Relu", "b", "c"),
        op("Conv", "c c2.weight", "d", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        op(
            "BatchNormalization",
            "d n2.weight n2.bias n2.running_mean n2.running_var",
            "e",
            epsilon=1e-3,
            momentum=0.99,
        ),
        op("Add", "x e", "f"),
        op("Relu", "f", "y"),
    ]
    weights = {"c1.weight": array(4, 4, 3, 3), "c2.weight": array(4, 4, 3, 3, seed=1)}
    for name in ("n1", "n2"):
        weights |= {f"{name}.{slot}": array(4, seed=2) for slot in ("weight", "bias")}
        weights |= {f"{name}.running_mean": array(4), f"{name}.running_var": array(4) ** 2 + 1}
    return model(nodes, {"x": ["N", 4, 6, 6]}, weights)


def attention() -> onnx.ModelProto:
    """A transformer block of primitive operators, as exporters used to write it."""

    def norm(x: str, y: str, name: str) -> list[onnx.NodeProto]:
        return [
            op("ReduceMean", x, f"{name}.m", axes=[-1]),
            op("Sub", f"{x} {name}.m", f"{name}.d"),
            op("Pow", f"{name}.d two", f"{name}.p"),
            op("ReduceMean", f"{name}.p", f"{name}.v", axes=[-1]),
            op("Add", f"{name}.v eps", f"{name}.e"),
            op("Sqrt", f"{name}.e", f"{name}.s"),
            op("Div", f"{name}.d {name}.s", f"{name}.q"),
            op("Mul", f"{name}.q {name}.weight", f"{name}.w"),
            op("Add", f"{name}.w {name}.bias", y, name=f"/{name}/Add"),
        ]

    def heads(name: str, perm: list[int]) -> list[onnx.NodeProto]:
        return [
            op("MatMul", f"h {name}.w", f"{name}.0", name=f"/{name}/MatMul"),
            op("Add", f"{name}.0 {name}.b", f"{name}.1"),
            op("Reshape", f"{name}.1 split", f"{name}.2"),
            op("Transpose", f"{name}.2", f"{name}.3", perm=perm),
        ]

    nodes = [
        constant("two", 2, "float32"),
        constant("eps", 1e-5, "float32"),
        constant("half", 0.5, "float32"),
        constant("one", 1, "float32"),
        constant("root", np.sqrt(2), "float32"),
        constant("scale", 0.5, "float32"),
        *norm("x", "h", "ln1"),
        *heads("q", [0, 2, 1, 3]),
        *heads("k", [0, 2, 3, 1]),
        *heads("v", [0, 2, 1, 3]),
        op("MatMul", "q.3 k.3", "s0"),
        op("Mul", "s0 scale", "s1"),
        op("Softmax", "s1", "s2", axis=-1),
        op("MatMul", "s2 v.3", "o0"),
        op("Transpose", "o0", "o1", perm=[0, 2, 1, 3]),
        op("Reshape", "o1 join", "o2"),
        op("MatMul", "o2 o.w", "o3"),
        op("Add", "o.b o3", "o4"),
        op("Add", "x o4", "r"),
        *norm("r", "r2", "ln2"),
        op("MatMul", "r2 f1.w", "f0"),
        op("Add", "f0 f1.b", "f"),
        op("Div", "f root", "g0"),
        op("Erf", "g0", "g1"),
        op("Add", "g1 one", "g2"),
        op("Mul", "f g2", "g3"),
        op("Mul", "g3 half", "g", name="/act/Mul_1"),
        op("MatMul", "g f2.w", "t0"),
        op("Add", "t0 f2.b", "t"),
        op("Add", "r t", "y"),
    ]
    weights = {
        "split": np.array([0, 0, 2, 4], np.int64),
        "join": np.array([0, 0, 8], np.int64),
        "f1.w": array(8, 16),
        "f1.b": array(16),
        "f2.w": array(16, 8),
        "f2.b": array(8),
    }
    for name in "qkvo":
        weights |= {f"{name}.w": array(8, 8, seed=ord(name)), f"{name}.b": array(8)}
    for name in ("ln1", "ln2"):
        weights |= {f"{name}.weight": array(8) + 1, f"{name}.bias": array(8, seed=3)}
    return model(nodes, {"x": ["B", 5, 8]}, weights)


MODELS = {"lenet": lenet, "residual": residual, "attention": attention}
