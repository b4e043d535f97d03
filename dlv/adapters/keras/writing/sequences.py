"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.keras.writing.layers import shared
from dlv.adapters.keras.writing.model import OPS, Held, Model, Out, arranged, refuse
from dlv.network.graph import Node
from dlv.network.sizes import Shape

# torch's order of gates -> Keras'.
_GATES = {"LSTM": (0, 1, 2, 3), "GRU": (1, 0, 2)}
_FLOATS = {"float32": "f4", "float64": "f8", "float16": "f2"}


def recurrent(model: Model, node: Node) -> Held:
    attrs, kind = node.attrs, node.variant or ""
    if attrs["p"] and attrs["layers"] > 1:
        model.notes.append(f"{node.name}: its dropout between layers is left out")
    for state, _ in node.inputs[1:]:
        if not _zeros(model, state):
            refuse(node, "it starts from states that are handed in")
    out = model.plain(node.inputs[0])
    shape = model.known_shape(node, node.inputs[0])
    if not attrs["batch_first"]:
        turned: Shape = (shape[1], shape[0], shape[2])
        out = model.op(OPS, "Transpose", f"{node.name}.time", {"axes": [1, 0, 2]}, [out], turned)
    ways = 2 if attrs["bidirectional"] else 1
    after: Shape = (None, None, ways * attrs["hidden"])
    last = attrs["layers"] - 1
    states: list[list[Out]] = [[] for _ in range(2 if kind == "LSTM" else 1)]
    for layer in range(attrs["layers"]):
        end = layer == last and attrs["batch_first"]
        name = node.name if end else f"{node.name}.l{layer}"
        config, weights = _layer(model, node, kind, layer)
        out = model.layer(
            *("Bidirectional" if ways == 2 else kind, name, config, [out], after),
            weights=weights,
            share=(shared(node), layer),
        )
        # Behind the sequence come the states, those of one way after those of the other.
        for place in range(ways * len(states)):
            given = replace(out, tensor=1 + place, shape=(shape[0], attrs["hidden"]))
            states[place % len(states)].append(given)
    for port, stacked in enumerate(states, 1):
        if any((node.name, port) in n.inputs for n in model.network.nodes) or (
            (node.name, port) in model.network.outputs
        ):
            args = [[each.as_json() for each in stacked]]
            made = model.op(
                *(OPS, "Stack", f"{node.name}.state{port}", {"axis": 0}, args),
                model.shape((node.name, port)),
                parents=stacked,
            )
            model.values[node.name, port] = Held(plain=made)
    if not attrs["batch_first"]:
        axes = {"axes": [1, 0, 2]}
        out = model.op(OPS, "Transpose", node.name, axes, [out], model.shape((node.name, 0)))
    return Held(plain=out)


def _zeros(model: Model, name: str) -> bool:
    found = model.network.node(name) if name in model.network else None
    return found is not None and found.attrs.get("kind") == "fill" and not found.attrs["const"]


def _layer(
    model: Model, node: Node, kind: str, layer: int
) -> tuple[dict[str, Any], dict[str, Sequence[Tensor]]]:
    attrs = node.attrs
    config: dict[str, Any] = {
        "units": attrs["hidden"],
        "return_sequences": True,
        "return_state": True,
        "use_bias": attrs["bias"],
        "activation": "tanh",
        "recurrent_activation": "sigmoid",
    }
    if kind == "GRU":
        config["reset_after"] = True
    if not attrs["bidirectional"]:
        return config, {"cell": _variables(model, node, kind, f"l{layer}")}
    forward, backward = (
        {
            "module": "keras.layers",
            "class_name": kind,
            "config": {"name": f"{way}_{kind.lower()}", **config, "go_backwards": way != "forward"},
            "registered_name": None,
        }
        for way in ("forward", "backward")
    )
    return {"merge_mode": "concat", "layer": forward, "backward_layer": backward}, {
        "forward_layer/cell": _variables(model, node, kind, f"l{layer}"),
        "backward_layer/cell": _variables(model, node, kind, f"l{layer}_reverse"),
    }


def _variables(model: Model, node: Node, kind: str, end: str) -> list[Tensor]:
    found = [
        _gates(model.tensor(node, f"weight_{side}_{end}"), kind, turned=True)
        for side in ("ih", "hh")
    ]
    if node.attrs["bias"]:
        pair = [model.tensor(node, f"bias_{side}_{end}") for side in ("ih", "hh")]
        found.append(_bias(node, kind, pair))
    return found


def _gates(tensor: Tensor, kind: str, *, turned: bool) -> Tensor:
    """The blocks of the gates in Keras' order, along the last axis."""
    gates = _GATES[kind]
    rest = tensor.shape[1:]
    split = (len(gates), tensor.shape[0] // len(gates), *rest)
    order = (2, 0, 1) if turned else (0, 1)
    moved = Tensor(
        *(tensor.name, tensor.dtype, split, tensor.nbytes, lambda: _picked(tensor, split, gates))
    )
    return arranged(moved, order, (*rest, tensor.shape[0]))


def _picked(tensor: Tensor, split: Sequence[int], gates: Sequence[int]) -> bytes:
    given = np.frombuffer(tensor.read(), np.uint8).reshape(split[0], -1)
    return given[list(gates)].tobytes()


def _bias(node: Node, kind: str, pair: Sequence[Tensor]) -> Tensor:
    first, second = pair
    if kind == "GRU":
        both = [_gates(each, kind, turned=False) for each in pair]
        shape = (2, *first.shape)
        return Tensor(
            *(first.name, first.dtype, shape, 2 * first.nbytes),
            lambda: b"".join(bytes(each.read()) for each in both),
        )
    if first.dtype not in _FLOATS:
        refuse(node, f"its two biases of {first.dtype} would have to be added")
    form = _FLOATS[first.dtype]
    return Tensor(
        *(first.name, first.dtype, first.shape, first.nbytes),
        lambda: np.add(
            *(np.frombuffer(each.read(), f"<{form}") for each in (first, second))
        ).tobytes(),
    )
