"""The process that holds a network against Keras, and says on its last line what came out."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dlv.adapters.keras.check.bare as bare
from dlv.adapters.engine_runs import numpy_outputs, onnxruntime_outputs
from dlv.adapters.keras import files as keras_files
from dlv.adapters.keras import h5 as keras_h5
from dlv.adapters.keras.understood import Unsayable
from dlv.errors import DlvError, require
from dlv.kinds import Array
from dlv.network.agreement import TOLERANCE, differing, drawn, rows_of
from dlv.network.graph import Network

# How many rows, and how long axes are of which nothing is said.
_BATCHES = ((2, 8), (5, 11))


def main() -> None:
    """Arguments: the file, and its format. The result is one line of JSON on stdout."""
    path, format_ = sys.argv[1:3]
    if importlib.util.find_spec("torch") is not None:
        os.environ.setdefault("KERAS_BACKEND", "torch")
    # What Keras and its backends print does not get between.
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        found = compared(Path(path), format_)
    except (DlvError, Unsayable) as error:
        found = {"skipped": str(error)}
    except Exception as error:  # of Keras, of many kinds: then nothing is known
        lines = str(error).strip().splitlines()
        found = {"skipped": f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]}
    os.write(out, (json.dumps(found) + "\n").encode())
    os._exit(0)


def compared(path: Path, format_: str) -> dict[str, Any]:
    """The first difference, on either batch and by any engine; `compared` if there is none."""
    opener = keras_files if format_ == keras_files.FORMAT else keras_h5
    opened = opener.open(str(path))
    try:
        network = opened.network
        if network is None:
            return {}
        held = {item.name: _array(item) for item in opened.tensors if item.role != "optimizer"}
    finally:
        opened.close()
    model = _keras_model(path, format_)
    for seed, (rows, length) in enumerate(_BATCHES):
        given = _example_inputs(network, rows, length, seed)
        wanted = _listed(model(_as_arguments(model, list(given.values())), training=False))
        names = [f"output {place}" for place in range(len(wanted))]
        numbers = dict(zip(names, map(_numbers, wanted), strict=True))
        for way, results in _results_by_engine(network, held, given):
            got = {names[place]: value for place, value in results.items()}
            off = differing(names, got, numbers, TOLERANCE)
            if off is not None:
                where = _first(model, network, held, given)
                return {"way": way, "why": str(off), "first": where}
    return {"compared": True}


def _keras_model(path: Path, format_: str) -> Any:
    """Built by Keras from settings of which dlv knows all, with the weights that Keras reads."""
    keras: Any = require("keras", "keras")
    read = keras_files.configuration if format_ == keras_files.FORMAT else keras_h5.configuration
    config = read(str(path))
    if format_ == keras_files.FORMAT:
        model = keras.saving.deserialize_keras_object(
            bare.bare_configuration(config), safe_mode=True
        )
        with tempfile.TemporaryDirectory() as folder:
            weights = Path(folder, "model.weights.h5")
            if keras_files.unpack_weights(str(path), weights):
                model.load_weights(str(weights))
        return model
    legacy: Any = require("keras.src.legacy.saving.legacy_h5_format", "keras")
    saving: Any = require("keras.src.legacy.saving.saving_utils", "keras")
    h5py: Any = require("h5py", "keras")
    model = saving.model_from_config(bare.bare_configuration(config))
    with h5py.File(path) as file:
        legacy.load_weights_from_hdf5_group(file["model_weights"], model)
    return model


def _array(tensor: Any) -> Array:
    return np.frombuffer(bytes(tensor.read()), np.dtype(tensor.dtype)).reshape(tensor.shape)


def _example_inputs(network: Network, rows: int, length: int, seed: int) -> dict[str, Array]:
    """Numbers for the inputs; of every second batch the last steps are zeros, as if padded."""
    limits = dict(rows_of(network))
    floats: dict[str, int] = {}
    for node in network.nodes:  # rows of a table that come as floats
        [source, *_] = node.inputs or [("", 0)]
        for table in network.nodes if node.attrs.get("kind") == "to" else ():
            if table.op == "EMBED" and (node.name, 0) in table.inputs:
                floats[source[0]] = int(table.attrs["rows"])
    found = drawn(network.inputs, batch=rows, other=length, seed=seed, limits=limits)
    dice = np.random.default_rng(seed)
    for name, most in floats.items():
        found[name] = dice.integers(0, most, found[name].shape).astype(found[name].dtype)
    if seed % 2:
        for value in found.values():
            if value.ndim > 1 and value.shape[1] > 2:
                value[:, value.shape[1] * 2 // 3 :] = 0
    return found


def _results_by_engine(
    network: Network, held: Mapping[str, Array], inputs: Mapping[str, Array]
) -> Iterator[tuple[str, dict[int, Array]]]:
    """Yield (engine, outputs by position) of every engine that runs the network."""
    # What an engine does not run, it refuses when it is asked to.
    with contextlib.suppress(Exception):
        yield "torch", dict(enumerate(_torch(network, held, inputs)))
    with contextlib.suppress(Exception):
        yield "numpy", dict(numpy_outputs(network, held.__getitem__, inputs))
    yield "onnxruntime", dict(onnxruntime_outputs(network, held, {}, inputs))


def _torch(
    network: Network, held: Mapping[str, Array], inputs: Mapping[str, Array]
) -> Sequence[Array]:
    if importlib.util.find_spec("torch") is None:
        return ()
    torch: Any = require("torch", "torch")
    build: Any = require("dlv.network.torch.module", "torch").build
    tensors = {name: torch.from_numpy(value.copy()) for name, value in held.items()}
    module = build(network, tensors, {}).eval()
    with torch.no_grad():
        found = module(*(torch.from_numpy(value) for value in inputs.values()))
    return [each.numpy() for each in (found if isinstance(found, tuple) else (found,))]


def _first(
    model: Any, network: Network, held: Mapping[str, Array], inputs: Mapping[str, Array]
) -> str | None:
    """The first layer from which on the two differ."""
    keras: Any = require("keras", "keras")
    with contextlib.suppress(Exception):
        ports = {}
        for layer in model.layers:
            own = [n for n in network.nodes if n.name == layer.name or _below(n.name, layer.name)]
            if own and len(layer._inbound_nodes) == 1:
                ports[layer.name] = (own[-1].name, 0)
        layers = [layer for layer in model.layers if layer.name in ports]
        inner = keras.Model(model.inputs, [layer.output for layer in layers])
        wanted = _listed(inner(_as_arguments(inner, list(inputs.values())), training=False))
        got = _torch(replace(network, outputs=tuple(ports.values())), held, inputs)
        names = [layer.name for layer in layers]
        ours = dict(zip(names, got, strict=True))
        off = differing(names, ours, dict(zip(names, map(_numbers, wanted), strict=True)))
        return None if off is None else off.where
    return None


def _below(name: str, layer: str) -> bool:
    return name.startswith(f"{layer}.")


def _as_arguments(model: Any, inputs: list[Any]) -> Any:
    """The inputs as the model takes them: a list, or the only one."""
    return inputs if len(model.inputs) > 1 else inputs[0]


def _listed(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [each for key in sorted(value) for each in _listed(value[key])]
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _numbers(value: Any) -> Array:
    keras: Any = require("keras", "keras")
    found: Array = keras.ops.convert_to_numpy(value)
    return found


if __name__ == "__main__":
    main()
