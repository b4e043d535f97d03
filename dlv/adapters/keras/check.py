"""A network read from a Keras file, compared with the model in Keras itself.

`held_against` asks a process of its own, as that takes seconds to start and may end in any way;
`main` is what it runs. Nothing of the file is run: Keras gets a configuration of which nothing is
left but the layers, functions and settings that dlv knows.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dlv.disk.children as children
from dlv.adapters.checkpoint import Checkpoint
from dlv.adapters.engine_runs import numpy_outputs, onnxruntime_outputs
from dlv.adapters.keras import files as keras_files
from dlv.adapters.keras import h5 as keras_h5
from dlv.adapters.keras.config import MODEL, MODELS, OF_TRAINING, Unsayable, is_model, policy
from dlv.adapters.keras.rules.activations import NAMES, name_of
from dlv.adapters.keras.rules.table import FUNCTIONS, LAYERS
from dlv.dataclass import dataclass
from dlv.dtypes import DTYPES
from dlv.errors import DlvError, require
from dlv.kinds import Array
from dlv.network.agreement import TOLERANCE, differing, drawn, rows_of, too_long
from dlv.network.graph import Network

MOST_SECONDS = 120


@dataclass(frozen=True)
class Verdict:
    """`refused`: why the network must not be used; `note`: why nothing was compared."""

    refused: str | None = None
    note: str | None = None


_FOUND: dict[str, Verdict] = {}  # by network: many files of a folder have the same


def held_against(opened: Checkpoint, path: Path, format_: str) -> Verdict:
    """The verdict; it is empty without Keras, or if no engine runs one of the layers."""
    network = opened.network
    if network is None or (network.origin or {}).get("importer") != "keras":
        return Verdict()
    if any(node.source and node.source["dialect"] == "keras" for node in network.nodes):
        return Verdict()  # it does not run as a whole, and says so
    if importlib.util.find_spec("keras") is None:
        return Verdict()
    tensors = {tensor.name: (tensor.dtype, tensor.shape) for tensor in opened.tensors}
    long = too_long(network, tensors, batch=5)
    if long is not None:
        return Verdict(note=f"its network was not compared with Keras: {long}")
    if network.id not in _FOUND:
        _FOUND[network.id] = _ask(path, format_)
    return _FOUND[network.id]


def _ask(path: Path, format_: str) -> Verdict:
    command = children.python("dlv.adapters.keras.check", str(path.absolute()), format_)
    try:
        done = children.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=MOST_SECONDS,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
    except subprocess.TimeoutExpired:
        return Verdict(note=f"its network was not compared with Keras within {MOST_SECONDS} s")
    except OSError as error:
        return Verdict(note=f"its network was not compared with Keras: {error.strerror}")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return Verdict(
            note=f"its network was not compared with Keras, which ended {done.returncode}"
        )
    if "skipped" in found:
        return Verdict(note=f"its network was not compared with Keras: {found['skipped']}")
    if "way" in found:
        first = f", first the layer {found['first']!r}" if found.get("first") else ""
        return Verdict(
            refused=f"kept without its network: in {found['way']} it computes something else than"
            f" Keras ({found['why']}{first})"
        )
    return Verdict()


_OPERATIONS = re.compile(r"keras\.src\.ops\.[a-z]{1,20}")
_HOMES = {"LayerScale": "keras.src.applications.convnext"}  # where it is not among the layers
_IN_CALLS = ("__keras_tensor__", "__slice__")


def bare_configuration(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bare model configuration; raise Unsayable for anything else in it."""
    kind, config = data.get("class_name"), data.get("config")
    if isinstance(config, list):
        config = {"name": "sequential", "layers": config}
    if kind not in MODELS or not isinstance(config, dict):
        raise Unsayable(f"{kind!r:.40} is not a model of layers")
    made: dict[str, Any] = {}
    for key, value in config.items():
        if key not in MODEL:
            raise Unsayable(f"it has the setting {key!r:.40}")
        if key == "dtype":
            made[key] = policy(config)
        elif key == "layers":
            made[key] = [_bare_layer(item) for item in value]
        else:
            made[key] = _plain(value)
    functional = kind != "Sequential"
    module = "keras.src.models.functional" if functional else "keras"
    name = "Functional" if functional and "module" in data else str(kind)
    found: dict[str, Any] = {"class_name": name, "config": made}
    if "module" in data:
        found |= {"module": module, "registered_name": name if functional else None}
    return _with_calls(found, data)


def _bare_layer(data: Any) -> dict[str, Any]:
    if not is_model(data):
        raise Unsayable("it has a layer without settings")
    kind = data["class_name"]
    if kind in MODELS:
        return bare_configuration(data)
    config = data["config"]
    if not isinstance(config, dict):
        raise Unsayable(f"{kind!r:.40} has no settings")
    module = data.get("module", "keras.layers")
    function = isinstance(module, str) and _OPERATIONS.fullmatch(module) is not None
    known = {*FUNCTIONS} if function else {*LAYERS, "InputLayer"}
    if "module" not in data:
        known |= {*FUNCTIONS}
    if kind not in known:
        raise Unsayable(f"{kind!r:.40} is unknown")
    made: dict[str, Any] = {}
    for key, value in config.items():
        if key.endswith(OF_TRAINING) or key == "activity_regularizer":
            continue
        if key == "dtype" and (kind != "InputLayer" or isinstance(value, dict)):
            made[key] = policy(config)
        elif key == "activation":
            made[key] = name_of(value) or "linear"
            if made[key] not in (*NAMES, "linear"):
                raise Unsayable(f"the activation {made[key]!r:.40}")
        elif key in ("layer", "backward_layer") and value is not None:
            made[key] = _bare_layer(value)
        else:
            made[key] = _plain(value)
    found = {"class_name": kind, "config": made}
    if "module" in data:
        found["module"] = module if function else _HOMES.get(kind, "keras.layers")
        found["registered_name"] = kind if function else None
    return _with_calls(found, data)


def _with_calls(settings: dict[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """With the name and the calls of a layer, where there are any."""
    for key in ("name", "inbound_nodes"):
        if key in data:
            settings[key] = _plain(data[key], calls=True)
    built = data.get("build_config")
    if isinstance(built, dict) and "input_shape" in built:
        settings["build_config"] = {"input_shape": _plain(built["input_shape"])}
    return settings


def _plain(value: Any, *, calls: bool = False) -> Any:
    """Numbers, texts, lists and objects that stand for no object of a program."""
    if isinstance(value, list):
        return [_plain(item, calls=calls) for item in value]
    if not isinstance(value, dict):
        return value
    if "class_name" in value and not (calls and value["class_name"] in _IN_CALLS):
        inner = value.get("config")
        if value["class_name"] == "__numpy__" and isinstance(inner, dict):
            numbers = _plain(inner.get("value"))
            if not calls or inner.get("dtype") not in DTYPES:
                return numbers
            held = {"value": numbers, "dtype": inner["dtype"]}
            return {"class_name": "__numpy__", "config": held}
        raise Unsayable(f"it holds {value['class_name']!r:.40}")
    odd = value.keys() & {"module", "registered_name"}
    if odd:
        raise Unsayable("it names a module")
    return {key: _plain(item, calls=calls) for key, item in value.items()}


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
        stored = [item for item in opened.tensors if item.role != "optimizer"]
        held = {item.name: _array(item) for item in (*stored, *opened.constants)}
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
        model = keras.saving.deserialize_keras_object(bare_configuration(config), safe_mode=True)
        with tempfile.TemporaryDirectory() as folder:
            weights = Path(folder, "model.weights.h5")
            if keras_files.unpack_weights(str(path), weights):
                model.load_weights(str(weights))
        return model
    legacy: Any = require("keras.src.legacy.saving.legacy_h5_format", "keras")
    saving: Any = require("keras.src.legacy.saving.saving_utils", "keras")
    h5py: Any = require("h5py", "keras")
    model = saving.model_from_config(bare_configuration(config))
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
    constants = {name: tensors.pop(name) for name in network.constants}
    module = build(network, tensors, constants).eval()
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
