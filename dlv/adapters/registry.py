"""The weight adapters by format. A new adapter is a row here and one in `detect`."""

from __future__ import annotations

import importlib

from dlv.adapters.checkpoint import Adapter, ModelWriter
from dlv.errors import UnsafeInput, UsageError, nearest

# Format -> the module that reads it. Names, not modules: most projects have one format, and an
# adapter takes longer to load than most files take to read.
READERS = {
    "safetensors": "dlv.adapters.safetensors",
    "pt": "dlv.adapters.torch.reader",
    "pt2": "dlv.adapters.aten.pt2",
    "npz": "dlv.adapters.npz",
    "npy": "dlv.adapters.npz",
    "onnx": "dlv.adapters.onnx.files",
    "keras": "dlv.adapters.keras.files",
    "hdf5": "dlv.adapters.keras.h5",
    "gguf": "dlv.adapters.gguf",
    "caffemodel": "dlv.adapters.caffe.files",
    "prototxt": "dlv.adapters.caffe.files",
}
# Formats that hold a network with its weights, and what writes them.
MODEL_WRITERS = {"onnx": "dlv.adapters.onnx.writer", "keras": "dlv.adapters.keras.writer"}


def model_writer(format_: str) -> ModelWriter:
    """The module that writes a network with its weights to a file of this format."""
    writer: ModelWriter = importlib.import_module(MODEL_WRITERS[format_])
    return writer


def adapter(format_: str) -> Adapter:
    """The adapter of a format that `detect` found or a manifest names."""
    if format_ in READERS:
        reader: Adapter = importlib.import_module(READERS[format_])
        return reader
    if format_ == "pickle":
        raise UnsafeInput(
            "a pickle is not loaded, because it can run any code",
            hint="save the weights as safetensors or by torch.save (1.6 or newer), "
            "or keep the file as it is: dlv add --as file FILE",
        )
    raise UsageError(
        f"dlv cannot read weights from {format_} files",
        why="known: " + ", ".join(sorted(READERS)),
        hint="convert the weights to safetensors, or add the file as `--as file`",
        did_you_mean=nearest(format_, READERS),
    )
