"""dlv.adapters.keras.h5: plain tensors, and the files that Keras writes with h5py."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from dlv.adapters.checkpoint import Adapter, Checkpoint
from dlv.adapters.keras import h5 as keras_h5
from dlv.errors import Damaged, DlvError, UsageError
from tests.conformance.adapter import AdapterSuite

h5py = pytest.importorskip("h5py")

NAMES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 bfloat16 float16 float64 float32"


class TestConformance(AdapterSuite):
    adapter = cast(Adapter, keras_h5)
    dtypes = ("complex64", "complex128", *NAMES.split())


def opened(path: Path) -> tuple[Checkpoint, dict[str, bytes]]:
    checkpoint = keras_h5.open(str(path))
    try:
        return checkpoint, {tensor.name: bytes(tensor.read()) for tensor in checkpoint.tensors}
    finally:
        checkpoint.close()


def restored(path: Path) -> bytes:
    checkpoint, out = keras_h5.open(str(path)), io.BytesIO()
    try:
        assert checkpoint.skeleton is not None
        keras_h5.restore(out, checkpoint.skeleton, checkpoint.tensors)
    finally:
        checkpoint.close()
    return out.getvalue()


def test_plain_files_come_back(tmp_path: Path) -> None:
    path = tmp_path / "plain.h5"
    with h5py.File(path, "w") as file:
        file["a/b"] = np.arange(6, dtype=">f4").reshape(2, 3)
        file["c"] = np.arange(4, dtype="f8")
        file["a"].attrs["note"] = "kept"
    checkpoint, tensors = opened(path)
    assert tensors == {
        "a/b": np.arange(6, dtype="<f4").tobytes(),
        "c": np.arange(4, dtype="f8").tobytes(),
    }
    assert (checkpoint.network, checkpoint.notes, checkpoint.exact) == (None, [], True)
    assert restored(path) == path.read_bytes()
    parts = {tensor.name: tensor.part for tensor in checkpoint.tensors}
    assert parts["a/b"] is None  # its bytes are turned
    assert parts["c"] is not None


def test_packed_tensors(tmp_path: Path) -> None:
    path = tmp_path / "packed.h5"
    array = np.random.default_rng(0).normal(size=(70, 50)).astype("f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=array, compression="gzip", shuffle=True)
        file["b"] = array
    checkpoint, tensors = opened(path)
    assert tensors == {"a": array.tobytes(), "b": array.tobytes()}
    assert (checkpoint.exact, checkpoint.skeleton) == (False, None)
    assert "packed" in checkpoint.notes[0]


def old_model(path: Path, config: Any, weights: dict[str, list[str]], **attributes: str) -> None:
    """As Keras 2 lays it out."""
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = "2.11.0"
        file.attrs["model_config"] = json.dumps(config)
        for name, value in attributes.items():
            file.attrs[name] = value
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [name.encode() for name in weights]
        for layer, names in weights.items():
            group.create_group(layer).attrs["weight_names"] = [name.encode() for name in names]
            for place, name in enumerate(names):
                shape = SHAPES[name.rpartition("/")[2].removesuffix(":0")]
                group[layer][name] = np.full(shape, place + 1, "f4")


SHAPES = {
    "kernel": (3, 4),
    "bias": (4,),
    "gamma": (4,),
    "beta": (4,),
    "moving_mean": (4,),
    "moving_variance": (4,),
    "depthwise_kernel": (2, 2, 3, 2),
}


def dense(name: str, calls: Any = None, **settings: Any) -> dict[str, Any]:
    config = {"name": name, "units": 4, "activation": "relu", **settings}
    layer: dict[str, Any] = {"class_name": "Dense", "config": config}
    return layer if calls is None else {**layer, "name": name, "inbound_nodes": calls}


def test_a_sequential_model_of_keras_2(tmp_path: Path) -> None:
    layers = [
        dense("one", batch_input_shape=[None, 3]),
        {"class_name": "BatchNormalization", "config": {"name": "bn", "axis": [1]}},
        {"class_name": "Activation", "config": {"name": "act", "activation": "linear"}},
    ]
    path = tmp_path / "old.h5"
    config = {"class_name": "Sequential", "config": {"name": "s", "layers": layers}}
    statistics = [f"bn/{name}:0" for name in ("gamma", "beta", "moving_mean", "moving_variance")]
    weights = {"one": ["one/kernel:0", "one/bias:0"], "bn": statistics, "act": []}
    training = {
        "loss": "mse",
        "optimizer_config": {"class_name": "Adam", "config": {"learning_rate": 0.01, "decay": 0.0}},
    }
    old_model(path, config, weights, training_config=json.dumps(training))
    checkpoint, tensors = opened(path)
    roles = {tensor.name: tensor.role for tensor in checkpoint.tensors}
    assert roles == {
        "one.kernel": "weight",
        "one.bias": "weight",
        "bn.gamma": "weight",
        "bn.beta": "weight",
        "bn.moving_mean": "buffer",
        "bn.moving_variance": "buffer",
    }
    assert tensors["bn.beta"] == np.full(4, 2, "f4").tobytes()
    network = checkpoint.network
    assert network is not None
    assert [(node.name, node.op) for node in network.nodes] == [
        ("one", "FULL"),
        ("one.relu", "RELU"),
        ("bn", "NORM"),
    ]
    assert network.inputs[0].shape == ("B", 3)
    assert network.node("bn").params["running_var"] == "bn.moving_variance"
    assert checkpoint.hyperparameters == {
        "optimizer": "Adam",
        "learning_rate": 0.01,
        "decay": 0.0,
        "loss": "mse",
    }
    assert network.origin == {"importer": "keras", "version": "2.11.0"}
    assert restored(path) == path.read_bytes()


def test_a_functional_model_of_keras_2(tmp_path: Path) -> None:
    """Lists for nodes, a nested model whose making counts as its first call, and constants."""
    inner_layers = [
        {
            "class_name": "InputLayer",
            "name": "i",
            "config": {"name": "i", "batch_input_shape": [None, 4]},
            "inbound_nodes": [],
        },
        dense("d", [[["i", 0, 0, {}]]], activation="linear"),
    ]
    inner = {
        "name": "inner",
        "layers": inner_layers,
        "input_layers": [["i", 0, 0]],
        "output_layers": [["d", 0, 0]],
    }
    layers = [
        {
            "class_name": "InputLayer",
            "name": "x",
            "config": {"name": "x", "batch_input_shape": [None, 4], "dtype": "float32"},
            "inbound_nodes": [],
        },
        {
            "class_name": "Functional",
            "name": "inner",
            "config": inner,
            "inbound_nodes": [[["x", 0, 0, {}]], [["inner", 1, 0, {}]]],
        },
        {
            "class_name": "Add",
            "name": "sum",
            "config": {"name": "sum"},
            "inbound_nodes": [[["inner", 1, 0, {}], ["inner", 2, 0, {}]]],
        },
        {
            "class_name": "TFOpLambda",
            "name": "tf.math.multiply",
            "config": {"name": "tf.math.multiply", "function": "math.multiply"},
            "inbound_nodes": [["sum", 0, 0, {"y": 2.0}]],
        },
    ]
    config = {
        "class_name": "Functional",
        "config": {
            "name": "m",
            "layers": layers,
            "input_layers": [["x", 0, 0]],
            "output_layers": [["tf.math.multiply", 0, 0]],
        },
    }
    path = tmp_path / "old.h5"
    old_model(path, config, {"inner": ["d/kernel:0", "d/bias:0"]})
    checkpoint, _ = opened(path)
    network = checkpoint.network
    assert network is not None
    assert {node.name: node.inputs for node in network.nodes} == {
        "inner.d": (("x", 0),),
        "inner.d_1": (("inner.d", 0),),
        "sum": (("inner.d", 0), ("inner.d_1", 0)),
        "tf.math.multiply": (("sum", 0),),
    }
    params = {"weight": "inner.d.kernel", "bias": "inner.d.bias"}
    assert network.node("inner.d_1").params == params
    raw = network.node("tf.math.multiply")
    assert raw.source is not None
    assert (raw.source["op"], raw.source["kwargs"]["y"]) == ("TFOpLambda", {"c": 2.0})
    assert "tf.math.multiply (TFOpLambda)" in checkpoint.notes[0]


def test_weights_of_keras_2_alone(tmp_path: Path) -> None:
    path = tmp_path / "weights.h5"
    with h5py.File(path, "w") as file:
        file.attrs["layer_names0"] = [b"a"]
        file.attrs["layer_names1"] = [b"b"]
        for layer in "ab":
            file.create_group(layer).attrs["weight_names"] = [f"{layer}/kernel:0".encode()]
            file[layer][f"{layer}/kernel:0"] = np.zeros(3, "f4")
    checkpoint, tensors = opened(path)
    assert list(tensors) == ["a.kernel", "b.kernel"]
    assert checkpoint.network is None


def test_what_is_named_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "lost.h5"
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [b"a"]
        file.create_group("a").attrs["weight_names"] = [b"kernel:0"]
        file["a/other"] = np.zeros(3)
    with pytest.raises(Damaged, match="named, but not there"):
        opened(path)


def test_configurations_that_are_none(tmp_path: Path) -> None:
    for config in ("[]", "{", '{"a": NaN}', '{"a": 1, "a": 2}'):
        path = tmp_path / "odd.h5"
        with h5py.File(path, "w") as file:
            file.attrs["model_config"] = config
            file.create_group("model_weights")
        with pytest.raises(DlvError):
            opened(path)


def test_names_with_two_meanings(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        keras_h5.save(io.BytesIO(), [], {"x" * 70_000: "y"})
    path = tmp_path / "clash.h5"
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [b"a", b"a.b"]
        file.create_group("a").attrs["weight_names"] = [b"a/b/kernel"]
        file.create_group("a.b").attrs["weight_names"] = [b"kernel"]
        file["a/a/b/kernel"] = np.zeros(1)
        file["a.b/kernel"] = np.ones(1)
    _, tensors = opened(path)
    assert len(tensors) == 2
