"""Files of other programs with nothing wrong: a small network with its weights in each format."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from google.protobuf import text_format
from torch import nn

from dlv.adapters import gguf, npz, safetensors
from dlv.adapters.caffe import files as caffe
from dlv.adapters.checkpoint import Checkpoint
from dlv.adapters.keras import writer as keras_writer
from dlv.adapters.onnx import writer as onnx_writer
from tests import onnx_models
from tests.conformance.adapter import in_memory, random_bytes
from tests.fixtures.caffe.nets import LENET, resnet_block
from tests.fixtures.caffe.proto import NetParameter
from tests.hostile import keras_files, onnx_files

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
Tree = dict[str, tuple[str, tuple[int, ...], bytes]]

DTYPES = ("float32", "float16", "int64", "int8", "float64", "int16")
_SMALL_NET = (
    LENET.replace("64", "2")
    .replace("dim: 28", "dim: 12")
    .replace("num_output: 20", "num_output: 2")
    .replace("kernel_size: 5", "kernel_size: 3")
    .replace("num_output: 500", "num_output: 7")
    .replace("num_output: 50", "num_output: 3")
    .replace("num_output: 10", "num_output: 4")
)
_SHAPES = {
    "conv1": ((2, 1, 3, 3), (2,)),
    "conv2": ((3, 2, 3, 3), (3,)),
    "ip1": ((7, 12), (7,)),
    "ip2": ((4, 7), (4,)),
}


def good(suffix: str) -> list[bytes]:
    """Files whose names end so."""
    return [data for name, data in _files().items() if name.endswith(suffix)]


@cache
def _files() -> dict[str, bytes]:
    found = {
        "all.safetensors": _saved(safetensors.save, {"a": "b"}),
        "all.npz": _saved(npz.save, {}),
        "all.gguf": _saved(gguf.save, {}),
        "packed.npz": _packed(),
        "c.npy": _array(np.arange(6, dtype=np.float32).reshape(2, 3)),
        "fortran.npy": _array(np.asfortranarray(np.arange(24.0).reshape(2, 3, 4))),
        "big.npy": _array(np.arange(5, dtype=">i4")),
        "lenet.prototxt": LENET.encode(),
        "residual.prototxt": resnet_block().encode(),
        "small.caffemodel": _caffemodel(),
        "residual.onnx": onnx_models.residual().SerializeToString(),
        "by-hand.onnx": onnx_files.GOOD,
        "attention.onnx": onnx_models.attention().SerializeToString(),
        "by-hand.keras": keras_files.keras(keras_files.FINE, keras_files.GOOD),
        "by-hand.h5": keras_files.GOOD,
        "newer.h5": keras_files.NEW,
        "packed.h5": keras_files.PACKED,
        "exported.pt2": _exported(),
    }
    small = _opened(".caffemodel", found["small.caffemodel"])
    network = small.network
    assert network is not None
    for suffix, writer in (("onnx", onnx_writer), ("keras", keras_writer)):
        save = partial(writer.save_network, network=network, tensors=small.tensors, constants=[])
        found[f"small.{suffix}"] = _written(save)
    for path in sorted(FIXTURES.glob("torch/*.pt")):
        found[path.name] = path.read_bytes()
    return found


def _written(write: Callable[[Any], object]) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def _saved(save: Callable[..., None], metadata: dict[str, str]) -> bytes:
    tensors = [
        in_memory(f"layer{n}.weight", (dtype, shape, random_bytes(dtype, shape, n)))
        for n, (dtype, shape) in enumerate(
            (dtype, shape) for dtype in DTYPES for shape in ((), (5,), (2, 3))
        )
    ]
    return _written(lambda out: save(out, tensors, metadata))


def _packed() -> bytes:
    return _written(
        lambda out: np.savez_compressed(out, a=np.zeros((9, 9)), b=np.arange(40, dtype=np.float32))
    )


def _array(array: Any) -> bytes:
    return _written(lambda out: np.save(out, array))


def _caffemodel() -> bytes:
    net = text_format.Parse(_SMALL_NET, NetParameter())
    dice = np.random.default_rng(1)
    for layer in net.layer:
        for shape in _SHAPES.get(layer.name, ()):
            blob = layer.blobs.add()
            blob.shape.dim.extend(shape)
            blob.data.extend(dice.standard_normal(shape).ravel().tolist())
    data: bytes = net.SerializeToString()
    return data


def _opened(suffix: str, data: bytes) -> Checkpoint:
    """It reads on from its open file when that has no name any more."""
    with tempfile.NamedTemporaryFile(suffix=suffix) as file:
        file.write(data)
        file.flush()
        return caffe.open(file.name)


def _exported() -> bytes:
    layers = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)
    program = torch.export.export(nn.Sequential(*layers).eval(), (torch.zeros(1, 1, 6, 6),))
    return _written(lambda out: torch.export.save(program, out))
