"""`.keras` files from networks and their tensors, without Keras and without h5py.

What comes out is a functional model of Keras' own layers and functions: every Keras 3 loads it
in safe mode, on each of its backends. The same input gives the same bytes.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, cast

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.hdf5 import writer as hdf5_writer
from dlv.adapters.hdf5.writer import Group
from dlv.adapters.keras.build import Model, Out, Written, refuse
from dlv.adapters.keras.files import CONFIG, METADATA, WEIGHTS
from dlv.adapters.keras.rules.recurrent import is_zero_state
from dlv.adapters.keras.rules.table import WRITERS
from dlv.adapters.keras.weights import listed, snake
from dlv.canonical import WRITER
from dlv.errors import UsageError
from dlv.network.graph import Network, Node
from dlv.network.inference import node_shapes
from dlv.network.ops.op import op_of
from dlv.network.sizes import ShapeError, fits, text

_OLDEST = "3.0.0"  # the Keras whose form of configuration this is
_DATE = (1980, 1, 1, 0, 0, 0)
# Ports behind the first bring lengths or zero states, which Keras has of its own.
_FIRST_ONLY = ("RESHAPE", "RNN")


def save_network(
    out: BinaryIO,
    network: Network,
    tensors: Sequence[Tensor],
    constants: Sequence[Tensor],
    *,
    metadata: Mapping[str, str] | None = None,
) -> list[str]:
    """Write the model; notes say what is not as it was. UsageError names what cannot be said."""
    model = _build(network, tensors, constants)
    for name, place in network.outputs:
        if (name, place) not in model.values:
            raise UsageError(
                f"Keras cannot express output {place} of {name!r}", why="it gives no such output"
            )
    outputs = [model.plain(port) for port in network.outputs]
    if not outputs:
        raise UsageError("a Keras model needs an output, the network has none")
    layers = _in_keras_order(model, outputs)
    needed = _needed(network)
    dead = [node.name for node in network.nodes if node.name not in needed and not node.plumbing]
    if dead:
        model.notes.append(f"what no output needs is skipped: {listed(dead)}")
    if model.dotted:
        model.notes.append("dots in the names of layers became underscores")
    if model.renamed:
        model.notes.append(f"names that Keras does not take were changed: {listed(model.renamed)}")
    used = {name for node in network.nodes for name in node.params.values()}
    used |= {network.aliases.get(name, name) for name in used}
    left = [
        tensor.name
        for tensor in tensors
        if tensor.name not in used and tensor.tied not in used and not _counts(tensor)
    ]
    if left:
        model.notes.append(f"tensors that no layer has are skipped: {listed(left)}")
    _write(out, _config(network, model, layers, outputs), _groups(layers), dict(metadata or {}))
    return model.notes


def _counts(tensor: Tensor) -> bool:
    """torch counts the batches of a norm, Keras does not."""
    return tensor.name.endswith("num_batches_tracked") and not tensor.shape


def _build(network: Network, tensors: Sequence[Tensor], constants: Sequence[Tensor]) -> Model:
    stored = {tensor.name: (tensor.dtype, tensor.shape) for tensor in (*tensors, *constants)}
    model = Model(network, tensors, constants, node_shapes(network, stored))
    for item in network.inputs:
        if not item.shape:
            raise UsageError(f"Keras cannot express the input {item.name!r}", why="it has no axes")
        model.input(item.name, item.shape, item.dtype)
    needed = _needed(network)
    for node in network.topological():
        if node.name not in needed:
            continue
        if model.fold(node):
            continue
        for port in node.inputs:
            if model.array(port) is not None and node.op not in ("ADD", "MUL", "OP"):
                refuse(node, f"its input {port[0]!r} is a constant")
        if node.op not in WRITERS:
            refuse(node, "Keras has no such layer")
        for port in node.inputs:
            known = port in model.values or model.array(port) is not None
            if not known and node.op not in _FIRST_ONLY:
                refuse(node, f"output {port[1]} of {port[0]!r} is not there in Keras")
        _check_tensors(model, node)
        model.values[node.name, 0] = WRITERS[node.op](model, node)
    return model


def _check_tensors(model: Model, node: Node) -> None:
    """Refuse a node whose tensors are of other shapes than it takes."""
    shapes = [model.shape(port) for port in node.inputs]
    try:
        wanted = op_of(node).parameter_shapes(node, shapes)
    except ShapeError as error:
        refuse(node, error.message)
    for slot, shape in wanted.items():
        name = node.params.get(slot, "")
        stored = model.tensors.get(name) or model.tensors.get(model.network.aliases.get(name, name))
        if stored is not None and not fits(stored.shape, shape):
            seen = f"{text(stored.shape)}, expected {text(shape)}"
            refuse(node, f"its tensor {slot} has the shape {seen}")


def _needed(network: Network) -> set[str]:
    """What outputs need as data: lengths are known from shapes, and zero states are Keras' own."""
    found: set[str] = set()
    waiting = [name for name, _ in network.outputs]
    while waiting:
        name = waiting.pop()
        if name in found or name not in network:
            continue
        found.add(name)
        node = network.node(name)
        ports = node.inputs
        if node.op == "RESHAPE":
            ports = node.inputs[:1]
        elif node.op == "RNN":
            ports = tuple(p for p in node.inputs if not is_zero_state(network, p[0]))
        waiting += [producer for producer, _ in ports]
    return found


def _in_keras_order(model: Model, outputs: Sequence[Out]) -> list[Written]:
    """The layers as Keras itself sorts them: weights are found by their place in this order.

    By depth, which is the longest way to an output, then as a walk back from the outputs
    first comes by. Each call is a node; a layer is as deep as its deepest call.
    """
    seen: dict[str, int] = {}
    finished: list[tuple[str, int]] = []
    done: set[tuple[str, int]] = set()
    for out in outputs:
        _walk(model, (out.layer, out.call), seen, finished, done)
    depths: dict[tuple[str, int], int] = {}
    deepest: dict[str, int] = {}
    for call in reversed(finished):
        depth = max(depths.setdefault(call, 0), deepest.get(call[0], 0))
        deepest[call[0]] = depths[call] = depth
        for parent in _parents(model, call):
            depths[parent] = max(depth + 1, depths.get(parent, 0))
    for name, layer in model.layers.items():
        if layer.kind == "InputLayer" and name not in deepest:
            deepest[name], seen[name] = 0, -1
    order = sorted(deepest, key=lambda name: (-deepest[name], seen[name]))
    return [model.layers[name] for name in order]


def _walk(
    model: Model,
    start: tuple[str, int],
    first_seen: dict[str, int],
    finished: list[tuple[str, int]],
    done: set[tuple[str, int]],
) -> None:
    if start in done:
        return
    done.add(start)
    first_seen.setdefault(start[0], len(first_seen))
    waiting: list[tuple[tuple[str, int], Iterator[tuple[str, int]]]] = [
        (start, iter(_parents(model, start)))
    ]
    while waiting:
        call, parents = waiting[-1]
        for parent in parents:
            if parent not in done:
                done.add(parent)
                first_seen.setdefault(parent[0], len(first_seen))
                waiting.append((parent, iter(_parents(model, parent))))
                break
        else:
            finished.append(call)
            waiting.pop()


def _parents(model: Model, call: tuple[str, int]) -> list[tuple[str, int]]:
    layer = model.layers[call[0]]
    return layer.parents[call[1]] if layer.parents else []


def _config(
    network: Network, model: Model, layers: Sequence[Written], outputs: Sequence[Out]
) -> dict[str, Any]:
    inputs = [model.values[item.name, 0].plain for item in network.inputs]
    ends = [
        [[out.layer, out.call, out.tensor] for out in ports if out] for ports in (inputs, outputs)
    ]
    config = {
        "name": "network",
        "trainable": True,
        "layers": [_layer(layer) for layer in layers],
        "input_layers": ends[0] if len(ends[0]) != 1 else ends[0][0],
        "output_layers": ends[1] if len(ends[1]) != 1 else ends[1][0],
    }
    return {
        "module": "keras.src.models.functional",
        "class_name": "Functional",
        "config": config,
        "registered_name": "Functional",
    }


def _layer(layer: Written) -> dict[str, Any]:
    return {
        "module": layer.module,
        "class_name": layer.kind,
        "config": layer.config,
        "registered_name": None if layer.is_layer else layer.kind,
        "name": layer.name,
        "inbound_nodes": [{"args": args, "kwargs": kwargs} for args, kwargs in layer.calls],
    }


def _groups(layers: Sequence[Written]) -> Group:
    root = Group()
    counts: dict[str, int] = {}
    for layer in layers:
        if not layer.is_layer:
            continue
        word = snake(layer.kind)
        number = counts[word] = counts.get(word, -1) + 1
        name = f"{word}_{number}" if number else word
        group = root.below(["layers", name])
        group.below(["vars"]).attributes["name"] = layer.name
        for below, tensors in layer.weights.items():
            held = group.below([*(part for part in below.split("/") if part), "vars"])
            held.tensors.update({str(place): tensor for place, tensor in enumerate(tensors)})
    root.below(["vars"]).attributes["name"] = "network"
    return root


def _write(
    out: BinaryIO, config: Mapping[str, Any], weights: Group, metadata: dict[str, str]
) -> None:
    about = {"keras_version": _OLDEST, "date_saved": "1980-01-01@00:00:00", "writer": WRITER}
    about |= {f"dlv.{key}": value for key, value in sorted(metadata.items())}
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
        for name, value in ((METADATA, about), (CONFIG, config)):
            text = json.dumps(value, separators=(", ", ": "), ensure_ascii=True, allow_nan=False)
            target.writestr(zipfile.ZipInfo(name, _DATE), text)
        with target.open(zipfile.ZipInfo(WEIGHTS, _DATE), "w", force_zip64=True) as member:
            hdf5_writer.write_tree(cast(BinaryIO, member), weights)
