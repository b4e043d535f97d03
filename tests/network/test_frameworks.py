"""The same LeNet as four frameworks keep it, through their real files: one network."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.versions.copying as copying
from dlv.adapters.caffe import files as caffe
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.keras import files as keras_files
from dlv.adapters.keras import writer as keras_writer
from dlv.adapters.onnx import files as onnx_files
from dlv.adapters.onnx import writer as onnx_writer
from dlv.network.graph import Network
from dlv.network.likeness.comparison import compare
from dlv.weights.arrays import to_array, to_tensors
from tests.fixtures.caffe import nets

torch: Any = pytest.importorskip("torch", reason="torch makes the network: dlv[torch]")
traced: Any = pytest.importorskip("tests.zoo.traced")

# Keras on torch converts its tensors in a way that numpy has given up.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

WAYS = ["torch", "onnx", "keras", "keras itself", "caffe"]


@dataclass(frozen=True)
class Kept:
    network: Network
    tensors: dict[str, Tensor]

    @property
    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {name: (tensor.dtype, tensor.shape) for name, tensor in self.tensors.items()}


def _kept(opened: Checkpoint) -> Kept:
    assert opened.network is not None
    return Kept(opened.network, {tensor.name: tensor for tensor in opened.tensors})


@cache
def _torch() -> Kept:
    torch.set_num_threads(1)
    found = traced.traced("lenet")
    state = to_tensors(found.module.state_dict())
    return Kept(found.network, {tensor.name: tensor for tensor in state})


def _written(writer: Any, reader: Any, folder: Path, name: str) -> Kept:
    kept = _torch()
    with (folder / name).open("wb") as out:
        writer.save_network(out, kept.network, list(kept.tensors.values()), [])
    return _kept(reader.open(str(folder / name)))


def _keras_itself(folder: Path) -> Kept:
    """Made by keras, with the weights of torch's."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    library: Any = pytest.importorskip("keras", reason="keras makes one of the files")
    layers = library.layers
    model = library.Sequential(
        [
            library.Input((28, 28, 1)),
            layers.Conv2D(20, 5),
            layers.MaxPooling2D(2),
            layers.Conv2D(50, 5),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(500, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    held = {
        name: to_array(tensor.dtype, tensor.shape, tensor.read())
        for name, tensor in _torch().tensors.items()
    }
    full = held["ip1.weight"].reshape(500, 50, 4, 4).transpose(2, 3, 1, 0).reshape(800, 500)
    model.set_weights(
        [
            *(held["conv1.weight"].transpose(2, 3, 1, 0), held["conv1.bias"]),
            *(held["conv2.weight"].transpose(2, 3, 1, 0), held["conv2.bias"]),
            *(full, held["ip1.bias"], held["ip2.weight"].T, held["ip2.bias"]),
        ]
    )
    model.save(folder / "itself.keras")
    return _kept(keras_files.open(str(folder / "itself.keras")))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Kept]:
    folder = tmp_path_factory.mktemp("frameworks")
    text = folder / "lenet.prototxt"
    text.write_text(nets.LENET)

    @cache
    def one(way: str) -> Kept:
        if way == "torch":
            return _torch()
        if way == "onnx":
            return _written(onnx_writer, onnx_files, folder, "lenet.onnx")
        if way == "keras":
            return _written(keras_writer, keras_files, folder, "lenet.keras")
        if way == "keras itself":
            return _keras_itself(folder)
        return _kept(caffe.open(str(text)))

    return one


@pytest.mark.parametrize(("old", "new"), list(permutations(WAYS, 2)), ids=" and ".join)
def test_one_network(kept: Callable[[str], Kept], old: str, new: str) -> None:
    a, b = kept(old), kept(new)
    found = compare(a.network, b.network, a.shapes, b.shapes)
    assert found.equal
    assert (found.only_old, found.only_new) == ((), ())
    layers = [pair for pair in found.pairs if not pair.old.node.plumbing]
    assert [pair.old.node.op for pair in layers] == [
        *("CONV", "POOL", "CONV", "POOL", "FULL", "RELU", "FULL", "SOFTMAX")
    ]
    assert not any(pair.kind == "changed" for pair in found.pairs)
    assert not [layer for layer in (*found.removed, *found.added) if not layer.node.plumbing]
    if "caffe" in (old, new):
        return  # the text holds no weights
    slots = found.slots()
    assert len(slots) == 8
    for ours, theirs in slots:
        one, other = a.tensors[ours], b.tensors[theirs]
        turn = found.turns.get((ours, theirs))
        raw = bytes(other.read())
        raw = raw if turn is None else copying.turned(other.dtype, raw, *turn)
        assert np.array_equal(np.frombuffer(raw, "<f4"), np.frombuffer(one.read(), "<f4"))


@pytest.mark.parametrize("way", WAYS)
def test_another_one(kept: Callable[[str], Kept], way: str, tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(nets.LENET.replace("num_output: 500", "num_output: 400"))
    other = _kept(caffe.open(str(tmp_path / "net.prototxt")))
    found = compare(kept(way).network, other.network)
    assert not found.equal
    changed = [pair for pair in found.pairs if pair.kind == "changed"]
    assert [
        [c.what for c in pair.changes if not c.form and c.what != "name"] for pair in changed
    ] == [["out", "output"]]
