"""Random graphs and damaged files: they are read, and come back, or end in a typed error."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dlv.adapters.onnx.network import READERS
from dlv.adapters.onnx.values import FOLDED
from dlv.errors import DlvError
from dlv.network.graph import Network
from dlv.network.verify import verify
from tests.onnx_models import MODELS, constant, model
from tests.onnx_reading import opened, restored

KINDS = [*READERS, *FOLDED, "Shape", "Identity", "LSTM", "If", "Odd"]
ATTRIBUTES = (
    *("axis", "axes", "perm", "kernel_shape", "strides", "pads", "dilations", "group", "to"),
    *("ceil_mode", "auto_pad", "alpha", "beta", "transA", "transB", "epsilon", "momentum"),
    *("keepdims", "starts", "ends", "split", "mode", "num_groups", "size", "value", "equation"),
    *("hidden_size", "shape", "output_shape", "output_padding", "start", "end", "allowzero"),
    *("fmod", "ratio", "spatial", "scale", "q_num_heads", "kv_num_heads", "count_include_pad"),
    *("noop_with_empty_axes", "nearest_mode", "min", "max", "broadcast", "largest"),
)
SHAPES: tuple[Any, ...] = (["B", 4, 6], ["B", 3, 5, 5], [2, 3], [], None, ["B", None, 6])
LENGTHS = (0, 1, 2, 3, -1, -2, 7, 1 << 31, -(1 << 62), (1 << 63) - 1)
# Rules that hold for whatever a file says; the others tell what is wrong with the file.
OWN_RULES = ("port", "producer", "unique", "cycle", "arity", "attribute", "missing", "op", "slot")


def setting(dice: random.Random) -> Any:
    match dice.randrange(6):
        case 0:
            return dice.choice(LENGTHS)
        case 1:
            return [dice.choice(LENGTHS) for _ in range(dice.randrange(1, 5))]
        case 2:
            return dice.choice([0.0, 1.0, 0.5, float("nan"), float("inf"), -1e30])
        case 3:
            return dice.choice(["SAME_UPPER", "VALID", "nearest", "linear", "bij->bji", b"\xff"])
        case 4:
            return [0.5, 1.0]
    data = np.array([dice.randrange(-3, 9)] * dice.randrange(4), dice.choice(["i8", "f4", "?"]))
    return numpy_helper.from_array(data)


def random_model(dice: random.Random) -> onnx.ModelProto:
    weights = {}
    for number in range(dice.randrange(6)):
        shape = [dice.choice([0, 1, 2, 3, 4, 6]) for _ in range(dice.randrange(5))]
        data = np.random.default_rng(number).standard_normal(shape) * 3
        weights[f"w{number}"] = data.astype(dice.choice(["f4", "f4", "i8", "f2", "?"]))
    values, nodes = ["x", "z", *weights, ""], []
    for number in range(dice.randrange(1, 9)):
        made = [f"v{number}", *[f"v{number}_{k}" for k in range(dice.choice([0, 0, 0, 1, 2]))]]
        if dice.random() < 0.2:
            numbers = [dice.choice([0, 1, 2, -1]) for _ in range(dice.randrange(4))]
            nodes.append(constant(made[0], numbers, dice.choice(["int64", "float32"])))
            values.append(made[0])
            continue
        attrs = {dice.choice(ATTRIBUTES): setting(dice) for _ in range(dice.randrange(4))}
        near = values[-5:] if dice.random() < 0.6 else values
        inputs = [dice.choice(near) for _ in range(dice.randrange(5))]
        name = dice.choice(["", "", "n", "a/b"])
        nodes.append(helper.make_node(dice.choice(KINDS), inputs, made, name=name, **attrs))
        values += made
    made = [name for node in nodes for name in node.output]
    inputs_of = {"x": dice.choice(SHAPES), "z": (dice.choice(["float32", "int64"]), [2, 3])}
    opset = dice.choice([1, 6, 9, 11, 13, 17, 18, 21, 23])
    return model(nodes, inputs_of, weights, {dice.choice(made): None}, opset=opset)


def read_all(data: bytes, folder: Path) -> None:
    with opened(data, folder) as checkpoint:
        for tensor in [*checkpoint.tensors, *checkpoint.constants]:
            tensor.read()
        if checkpoint.exact:
            assert restored(checkpoint) == data
        network = checkpoint.network
        if network is None:
            return
        assert Network.from_canonical(network.canonical()).id == network.id
        given = [*checkpoint.tensors, *checkpoint.constants]
        problems = verify(network, {each.name: (each.dtype, each.shape) for each in given})
        errors = [p for p in problems if p.severity == "error" and p.rule in OWN_RULES]
        assert not errors, [str(problem) for problem in errors]


def test_random_graphs(tmp_path: Path) -> None:
    dice, good = random.Random(1), 0
    for _ in range(600):
        data = random_model(dice).SerializeToString()
        with contextlib.suppress(DlvError):
            read_all(data, tmp_path)
            good += 1
    assert good > 540


def test_damaged_files(tmp_path: Path) -> None:
    dice = random.Random(2)
    whole = [MODELS[name]().SerializeToString() for name in ("residual", "attention")]
    for _ in range(700):
        data = bytearray(dice.choice(whole))
        for _ in range(dice.choice([1, 1, 2, 8])):
            at = dice.randrange(len(data))
            match dice.randrange(4):
                case 0:
                    data[at] ^= 1 << dice.randrange(8)
                case 1:
                    del data[at : at + dice.randrange(1, 20)]
                case 2:
                    other = dice.randrange(len(data))
                    data[at:at] = data[other : other + dice.randrange(1, 60)]
                case _:
                    data[at : at + 1] = bytes([dice.choice([0, 1, 0x7F, 0x80, 0xFF])]) * 2
        with contextlib.suppress(DlvError):
            read_all(bytes(data), tmp_path)
