"""Layers that exporters write as several operators: found in every form, and only there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from dlv.network.graph import Network
from tests.onnx_models import array, constant, model, op
from tests.onnx_reading import (
    in_onnxruntime,
    in_torch,
    network_of,
    opened,
    random_input,
    sound,
    words,
)

torch.set_num_threads(1)

X: dict[str, Any] = {"x": ["B", 5, 6]}
NUMBERS = {
    "half": 0.5,
    "one": 1,
    "two": 2,
    "three": 3,
    "root": np.sqrt(2),
    "inverse": np.sqrt(0.5),
    "scale": np.sqrt(2 / np.pi),
    "cubic": 0.044715,
    "eps": 1e-6,
}


def with_numbers(
    nodes: Sequence[onnx.NodeProto], weights: dict[str, Any] | None = None, **more: Any
) -> onnx.ModelProto:
    constants = [constant(name, number, "float32") for name, number in NUMBERS.items()]
    return model([*constants, *nodes], X, weights, **more)


def check(made: onnx.ModelProto, folder: Path, wanted: Sequence[str]) -> Network:
    with opened(made, folder) as checkpoint:
        network = sound(checkpoint)
        assert words(network) == list(wanted)
        inputs = random_input(made)
        for one, other in zip(
            in_onnxruntime(made, inputs), in_torch(checkpoint, inputs), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    return network


HEADS = {
    "divided": [op("Div", "x root", "s")],
    "multiplied": [op("Mul", "x inverse", "s")],
    "multiplied the other way": [op("Mul", "inverse x", "s")],
}
TAILS = {
    "last by a half": [op("Mul", "x p", "m"), op("Mul", "m half")],
    "a half first": [op("Mul", "p half", "m"), op("Mul", "x m")],
    "the half of x": [op("Mul", "half x", "h"), op("Mul", "h p")],
    "the other way": [op("Mul", "p x", "m"), op("Mul", "half m")],
}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("head", HEADS)
def test_gelu(tmp_path: Path, head: str, tail: str) -> None:
    middle = [op("Erf", "s", "e"), op("Add", "one e" if "other" in tail else "e one", "p")]
    network = check(with_numbers([*HEADS[head], *middle, *TAILS[tail]]), tmp_path, ["ACT.GELU"])
    assert network.nodes[0].attrs == {"approximate": "none"}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("cube", ["Pow", "Mul"])
def test_gelu_by_tanh(tmp_path: Path, cube: str, tail: str) -> None:
    power = [op("Pow", "x three", "c")]
    if cube == "Mul":
        power = [op("Mul", "x x", "q"), op("Mul", "x q", "c")]
    nodes = [
        *power,
        op("Mul", "c cubic", "k"),
        op("Add", "x k", "a"),
        op("Mul", "scale a", "s"),
        op("Tanh", "s", "t"),
        op("Add", "t one", "p"),
        *TAILS[tail],
    ]
    network = check(with_numbers(nodes), tmp_path, ["ACT.GELU"])
    assert network.nodes[0].attrs == {"approximate": "tanh"}


NO_GELU = {
    "another root": [
        op("Div", "x two", "s"),
        op("Erf", "s", "e"),
        op("Add", "e one", "p"),
        *TAILS["last by a half"],
    ],
    "another one": [
        op("Div", "x root", "s"),
        op("Erf", "s", "e"),
        op("Add", "e two", "p"),
        *TAILS["last by a half"],
    ],
    "another half": [
        op("Div", "x root", "s"),
        op("Erf", "s", "e"),
        op("Add", "e one", "p"),
        op("Mul", "x p", "m"),
        op("Mul", "m two"),
    ],
    "another x": [
        op("Div", "x root", "s"),
        op("Erf", "s", "e"),
        op("Add", "e one", "p"),
        op("Mul", "s p", "m"),
        op("Mul", "m half"),
    ],
    "read in the middle": [
        op("Div", "x root", "s"),
        op("Erf", "s", "e"),
        op("Add", "e one", "p"),
        op("Mul", "x p", "m"),
        op("Mul", "m half", "g"),
        op("Add", "g e"),
    ],
    "its argument read": [
        op("Div", "x root", "s"),
        op("Erf", "s", "e"),
        op("Add", "e one", "p"),
        op("Mul", "x p", "m"),
        op("Mul", "m half", "g"),
        op("Add", "g s"),
    ],
    "an output in the middle": [
        op("Div", "x root", "s"),
        op("Erf", "s", "z"),
        op("Add", "z one", "p"),
        *TAILS["last by a half"],
    ],
}


@pytest.mark.parametrize("case", NO_GELU)
def test_no_gelu(tmp_path: Path, case: str) -> None:
    outputs = {"y": None, "z": None} if "output" in case else None
    made = with_numbers(NO_GELU[case], outputs=outputs)
    with opened(made, tmp_path) as checkpoint:
        assert "ACT.GELU" not in words(sound(checkpoint))
        inputs = random_input(made)
        for one, other in zip(
            in_onnxruntime(made, inputs), in_torch(checkpoint, inputs), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def layer_norm(square: str = "Pow", **mean: Any) -> list[onnx.NodeProto]:
    mean = mean or {"axes": [-1]}
    inputs = "d two" if square == "Pow" else "d d"
    return [
        op("ReduceMean", "x", "m", **mean),
        op("Sub", "x m", "d"),
        op(square, inputs, "p"),
        op("ReduceMean", "p", "v", **mean),
        op("Add", "v eps", "e"),
        op("Sqrt", "e", "r"),
    ]


WEIGHTS = {"w": array(6), "b": array(6, seed=1), "one_number": array(1), "matrix": array(5, 6)}


@pytest.mark.parametrize("square", ["Pow", "Mul"])
@pytest.mark.parametrize(
    ("tail", "params"),
    [
        ([op("Div", "d r")], {}),
        ([op("Div", "d r", "q"), op("Mul", "q w")], {"weight": "w"}),
        (
            [op("Div", "d r", "q"), op("Mul", "w q", "g"), op("Add", "b g")],
            {"weight": "w", "bias": "b"},
        ),
    ],
)
def test_layer_norm(
    tmp_path: Path, square: str, tail: list[onnx.NodeProto], params: dict[str, str]
) -> None:
    used = {name: WEIGHTS[name] for name in params.values()}
    made = with_numbers([*layer_norm(square), *tail], used)
    [node] = check(made, tmp_path, ["NORM.LAYER"]).nodes
    assert dict(node.params) == params
    assert dict(node.attrs) == {"eps": 1e-6, "axis": -1}


def test_layer_norm_over_the_last_axis_by_number(tmp_path: Path) -> None:
    nodes = [*layer_norm(axes=[2]), op("Div", "d r")]
    check(with_numbers(nodes), tmp_path, ["NORM.LAYER"])


@pytest.mark.parametrize(
    "nodes",
    [
        [*layer_norm(axes=[1]), op("Div", "d r")],
        [*layer_norm(axes=[-1, -2]), op("Div", "d r")],
        [*layer_norm(axes=[1])[:3], *layer_norm()[3:], op("Div", "d r")],
        [*layer_norm(), op("Div", "r d")],
        [*layer_norm(), op("Div", "d r", "q"), op("Add", "q r")],
    ],
)
def test_no_layer_norm(tmp_path: Path, nodes: list[onnx.NodeProto]) -> None:
    made = with_numbers(nodes)
    assert "NORM.LAYER" not in words(network_of(made, tmp_path))


def test_a_scale_that_is_none(tmp_path: Path) -> None:
    """Behind the division stands something else than the weights of a normalisation."""
    for name in ("one_number", "matrix"):
        nodes = [*layer_norm(), op("Div", "d r", "q"), op("Mul", f"q {name}")]
        made = with_numbers(nodes, {name: WEIGHTS[name]})
        check(made, tmp_path, ["NORM.LAYER", "MUL"])


def rms_norm(square: str) -> list[onnx.NodeProto]:
    return [
        op(square, "x two" if square == "Pow" else "x x", "p"),
        op("ReduceMean", "p", "v", axes=[-1]),
        op("Add", "v eps", "e"),
        op("Sqrt", "e", "r"),
    ]


@pytest.mark.parametrize("square", ["Pow", "Mul"])
@pytest.mark.parametrize(
    "quotient",
    [
        [op("Div", "x r", "q")],
        [op("Div", "one r", "i"), op("Mul", "x i", "q")],
        [op("Reciprocal", "r", "i"), op("Mul", "i x", "q")],
    ],
)
def test_rms_norm(tmp_path: Path, square: str, quotient: list[onnx.NodeProto]) -> None:
    nodes = [*rms_norm(square), *quotient, op("Mul", "w q")]
    [node] = check(with_numbers(nodes, {"w": WEIGHTS["w"]}), tmp_path, ["NORM.RMS"]).nodes
    assert dict(node.params) == {"weight": "w"}
    assert dict(node.attrs) == {"eps": 1e-6, "axis": -1}


def test_a_pattern_whose_weights_do_not_fit(tmp_path: Path) -> None:
    """It is taken apart again: every operator becomes a node of its own."""
    nodes = [*layer_norm(), op("Div", "d r", "q"), op("Mul", "q w")]
    made = with_numbers(nodes, {"w": array(6)})
    made.graph.input[0].type.tensor_type.shape.dim[2].Clear()
    found = words(network_of(made, tmp_path))
    assert found[0] == "POOL.MEAN"
    assert len(found) == 8
