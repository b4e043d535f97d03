"""HDF5 files `.h5`: whole Keras models of the older form, Keras' weights, or plain tensors.

Skeleton: splice form. Tensors of a file that Keras did not write are named by their paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, BinaryIO

from dlv.adapters import splice
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.hdf5 import file as hdf5
from dlv.adapters.hdf5 import writer as hdf5_writer
from dlv.adapters.hdf5.file import Contents
from dlv.adapters.hdf5.objects import Window
from dlv.adapters.keras.config import parse
from dlv.adapters.keras.files import Description, checkpoint_of, describe
from dlv.adapters.keras.weights import Found, named, numbered
from dlv.adapters.source import Source, opened

FORMAT = "hdf5"
SUFFIX = ".h5"


def open(path: str) -> Checkpoint:  # noqa: A001 (the name in the Adapter protocol)
    """Check the whole structure; tensors are read when they are asked for."""
    return opened(path, _open)


def configuration(path: str) -> dict[str, Any]:
    """The configuration of the file's model; empty if it holds none."""
    with closing(Source(path)) as file:
        config = hdf5.read(Window(file, 0, file.size, file.name)).groups[""].get("model_config")
        return {} if config is None else _json(config, f"model_config of {file.name}")


restore = splice.restore


def _open(file: Source) -> Checkpoint:
    contents = hdf5.read(Window(file, 0, file.size, file.name))
    description, weights = _understood(contents, file.name)
    return checkpoint_of(file, contents, weights, description, base=0)


def save(out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:
    """One data set for each tensor; a slash in a name makes a group."""
    hdf5_writer.write(out, [(tensor.name, tensor) for tensor in tensors], metadata)


def _understood(contents: Contents, name: str) -> tuple[Description, Found]:
    root = contents.groups[""]
    config = root.get("model_config")
    if config is not None and "model_weights" in contents.groups:
        version = "".join(root.get("keras_version", ())) or None
        settings = _json(config, f"model_config of {name}")
        training = root.get("training_config")
        compiled = _json(training, f"training_config of {name}") if training else None
        description = describe(FORMAT, settings, version, name, compiled)
        return description, named(contents, description.model, "model_weights")
    description = Description(FORMAT)
    if any(key.startswith("layer_names") for key in root):
        return description, named(contents, None, "")
    if _is_numbered(contents):
        note = "weights without the model: variables are named by their numbers"
        description.notes.append(note)
        return description, numbered(contents, None)
    weights = Found()
    for path, dataset in contents.datasets.items():
        weights.add(path, dataset, "weight")
    return description, weights


def _is_numbered(contents: Contents) -> bool:
    """Whether Keras 3 wrote it: variables only in groups called vars, which know their layer."""
    owners = {path.rpartition("/")[0] for path in contents.datasets}
    known = [owner for owner in owners if "name" in contents.groups.get(owner, {})]
    every = all(owner == "vars" or owner.endswith("/vars") for owner in owners)
    return every and bool(known or "vars" in contents.groups)


def _json(texts: Sequence[str], label: str) -> dict[str, Any]:
    return parse("".join(texts).encode("utf-8"), label)
