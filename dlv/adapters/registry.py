"""The weight adapters by format. A new adapter is a row here and one in `detect`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlv.adapters import safetensors
from dlv.adapters.checkpoint import Adapter, ModelWriter
from dlv.errors import UnsafeInput, UsageError, nearest
from dlv.lazy import lazy

if TYPE_CHECKING:
    from dlv.adapters.aten import pt2
    from dlv.adapters.caffe import files as caffe
    from dlv.adapters.gguf import reader as gguf
    from dlv.adapters.keras import files as keras
    from dlv.adapters.keras import h5 as keras_h5
    from dlv.adapters.keras.writing import writer as keras_writer
    from dlv.adapters.numpy import npz
    from dlv.adapters.onnx import files as onnx
    from dlv.adapters.onnx.writing import writer as onnx_writer
    from dlv.adapters.torch import reader as torch
else:
    # Most projects have one format, and these cost more to load than most files to look at.
    caffe = lazy("dlv.adapters.caffe.files")
    gguf = lazy("dlv.adapters.gguf.reader")
    keras = lazy("dlv.adapters.keras.files")
    keras_h5 = lazy("dlv.adapters.keras.h5")
    keras_writer = lazy("dlv.adapters.keras.writing.writer")
    npz = lazy("dlv.adapters.numpy.npz")
    onnx = lazy("dlv.adapters.onnx.files")
    onnx_writer = lazy("dlv.adapters.onnx.writing.writer")
    pt2 = lazy("dlv.adapters.aten.pt2")
    torch = lazy("dlv.adapters.torch.reader")

ADAPTERS: dict[str, Adapter] = {
    "safetensors": safetensors,
    "pt": torch,
    "pt2": pt2,
    "npz": npz,
    "npy": npz,
    "onnx": onnx,
    "keras": keras,
    "hdf5": keras_h5,
    "gguf": gguf,
    "caffemodel": caffe,
    "prototxt": caffe,
}

# Formats that hold a network with its weights, and what writes them.
MODELS: dict[str, ModelWriter] = {
    "onnx": onnx_writer,
    "keras": keras_writer,
}


def model_writer(format_: str) -> ModelWriter:
    """What writes a network with its weights to a file of this format."""
    return MODELS[format_]


def adapter(format_: str) -> Adapter:
    """The adapter of a format that `detect` found or a manifest names."""
    if format_ in ADAPTERS:
        return ADAPTERS[format_]
    if format_ == "pickle":
        raise UnsafeInput(
            "this is a pickle: loading it can run any program",
            hint="save the weights by torch.save of 1.6 or newer, or as safetensors; or --as file",
        )
    raise UsageError(
        f"dlv cannot read weights from {format_} files",
        why="known are " + ", ".join(sorted(ADAPTERS)),
        hint="convert the weights to safetensors, or add the file as `--as file`",
        did_you_mean=nearest(format_, ADAPTERS),
    )
