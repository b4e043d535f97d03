"""Recurrent layers and attention as Keras writes them; they are read as layers of Keras' own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.keras.build import NN, OPS, Held, Model, Out, Write, arranged, refuse, sharing_key
from dlv.dtypes import DTYPES
from dlv.network.graph import Node, Port
from dlv.network.sizes import Shape

# torch's order of gates -> Keras'.
_GATES = {"LSTM": (0, 1, 2, 3), "GRU": (1, 0, 2)}


def write_rnn(model: Model, node: Node) -> Held:
    attrs, kind = node.attrs, node.variant or ""
    if attrs["p"] and attrs["layers"] > 1:
        model.notes.append(f"{node.name}: its dropout between layers is left out")
    for state, _ in node.inputs[1:]:
        if not _is_zero_state(model, state):
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
        config, weights = _rnn_layer(model, node, kind, layer)
        out = model.layer(
            "Bidirectional" if ways == 2 else kind,
            name,
            config,
            [out],
            after,
            weights=weights,
            share=(sharing_key(node), layer),
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
                OPS,
                "Stack",
                f"{node.name}.state{port}",
                {"axis": 0},
                args,
                model.shape((node.name, port)),
                parents=stacked,
            )
            model.values[node.name, port] = Held(plain=made)
    if not attrs["batch_first"]:
        axes = {"axes": [1, 0, 2]}
        out = model.op(OPS, "Transpose", node.name, axes, [out], model.shape((node.name, 0)))
    return Held(plain=out)


def _is_zero_state(model: Model, name: str) -> bool:
    found = model.network.node(name) if name in model.network else None
    return found is not None and found.attrs.get("kind") == "fill" and not found.attrs["const"]


def _rnn_layer(
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
        return config, {"cell": _rnn_variables(model, node, kind, f"l{layer}")}
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
        "forward_layer/cell": _rnn_variables(model, node, kind, f"l{layer}"),
        "backward_layer/cell": _rnn_variables(model, node, kind, f"l{layer}_reverse"),
    }


def _rnn_variables(model: Model, node: Node, kind: str, end: str) -> list[Tensor]:
    found = [
        _gates(model.tensor(node, f"weight_{side}_{end}"), kind, turned=True)
        for side in ("ih", "hh")
    ]
    if node.attrs["bias"]:
        pair = [model.tensor(node, f"bias_{side}_{end}") for side in ("ih", "hh")]
        found.append(_rnn_bias(node, kind, pair))
    return found


def _gates(tensor: Tensor, kind: str, *, turned: bool) -> Tensor:
    """The blocks of the gates in Keras' order, along the last axis."""
    gates = _GATES[kind]
    rest = tensor.shape[1:]
    split = (len(gates), tensor.shape[0] // len(gates), *rest)
    order = (2, 0, 1) if turned else (0, 1)
    moved = Tensor(
        tensor.name, tensor.dtype, split, tensor.nbytes, lambda: _pick_gates(tensor, split, gates)
    )
    return arranged(moved, order, (*rest, tensor.shape[0]))


def _pick_gates(tensor: Tensor, split: Sequence[int], gates: Sequence[int]) -> bytes:
    given = np.frombuffer(tensor.read(), np.uint8).reshape(split[0], -1)
    return given[list(gates)].tobytes()


def _rnn_bias(node: Node, kind: str, pair: Sequence[Tensor]) -> Tensor:
    first, second = pair
    if kind == "GRU":
        both = [_gates(each, kind, turned=False) for each in pair]
        shape = (2, *first.shape)
        return Tensor(
            first.name,
            first.dtype,
            shape,
            2 * first.nbytes,
            lambda: b"".join(bytes(each.read()) for each in both),
        )
    if first.dtype not in ("float16", "float32", "float64"):
        refuse(node, f"its two biases of {first.dtype} would have to be added")
    form = f"<{DTYPES[first.dtype].numpy}"
    return Tensor(
        first.name,
        first.dtype,
        first.shape,
        first.nbytes,
        lambda: np.add(*(np.frombuffer(each.read(), form) for each in (first, second))).tobytes(),
    )


def write_attention(model: Model, node: Node) -> Held:
    """keras.ops.dot_product_attention, which has the heads behind the sequence."""
    if len(node.inputs) > 3:
        refuse(node, "it has a mask")
    if node.attrs["p"]:
        model.notes.append(f"{node.name}: its dropout of {node.attrs['p']} is left out")
    shapes = [model.known_shape(node, port) for port in node.inputs]
    heads = node.attrs["heads"]
    if {len(shape) for shape in shapes} != {4 if heads is None else 3}:
        refuse(node, "its heads are not on an axis of their own")
    given = [
        _split_heads(model, node, port, shape, word)
        for port, shape, word in zip(node.inputs, shapes, ("query", "key", "value"), strict=True)
    ]
    config = {"is_causal": node.attrs["causal"], "flash_attention": False}
    after, width = model.shape((node.name, 0)), shapes[0][-1]
    if not isinstance(width, int):
        refuse(node, "the width of its query is not known")
    scale = node.attrs["scale"]
    if scale is None:
        scale = (width // (heads or 1)) ** -0.5
    inner: Shape = (None,) * 4
    out = model.op(
        NN, "DotProductAttention", f"{node.name}.heads", config, given, inner, {"scale": scale}
    )
    if heads is None:
        return model.layer_of(node, "Permute", {"dims": [2, 1, 3]}, [out])
    target = [n if isinstance(n, int) else -1 for n in (after or (None, None, None))[1:]]
    if target.count(-1) > 1:
        refuse(node, "two of its lengths are not known")
    return model.layer_of(node, "Reshape", {"target_shape": target}, [out])


def _split_heads(model: Model, node: Node, port: Port, shape: Shape, word: str) -> Out:
    x, name, heads = model.plain(port), f"{node.name}.{word}", node.attrs["heads"]
    after: Shape = (None,) * 4
    if heads is None:
        return model.layer("Permute", name, {"dims": [2, 1, 3]}, [x], after)
    if not isinstance(shape[-1], int) or shape[-1] % heads:
        refuse(node, "its heads do not divide the width")
    length = shape[1] if isinstance(shape[1], int) else -1
    config = {"target_shape": [length, heads, shape[-1] // heads]}
    return model.layer("Reshape", name, config, [x], after)


WRITERS: Mapping[str, Write] = {"ATTENTION": write_attention, "RNN": write_rnn}
