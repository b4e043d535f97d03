"""Recurrent layers, with the masks that they take; both ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.keras.build import OPS, Held, Model, Out, Write, arranged, refuse, sharing_key
from dlv.adapters.keras.config import (
    OF_TRAINING,
    Layer,
    Settings,
    Unsayable,
    asks_nothing,
    flag,
    policy,
)
from dlv.adapters.keras.graph import Convert, Use
from dlv.adapters.keras.rules.activations import name_of, number_of
from dlv.adapters.keras.rules.attention import port_of, unsqueezed
from dlv.adapters.keras.rules.windows import count_of
from dlv.adapters.keras.weights import snake
from dlv.dtypes import DTYPES
from dlv.network.graph import Network, Node, Port
from dlv.network.ops.recurrent import GATES
from dlv.network.sizes import Shape

# Settings of a recurrent layer that say how it is trained or made faster.
_IDLE = ("unroll", "implementation", "use_cudnn", "unit_forget_bias", "seed", "time_major")


def _flattened(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flattened(item)
    elif value is not None:
        yield value


def _mask_of(use: Use, port: Port, states: Sequence[Port]) -> Port | None:
    """Where the steps of a sequence count; None where all do.

    Keras hands no mask on to a layer that starts from states, unless the call names it.
    """
    mask = use.handed or (None if states else use.mask_at(port))
    if mask is None:
        return None
    counts = use.graph.counted(mask, use)
    if counts is None:
        raise Unsayable("the mask of its input is unknown")
    return counts


def _sequence_call(use: Use) -> tuple[Port, list[Port]]:
    """The sequence and the states of a call of a recurrent layer."""
    kwargs = dict(use.call.kwargs)
    first, *more = use.call.args or [kwargs.pop("sequences", None)]
    states = list(_flattened([more, kwargs.pop("initial_state", None)]))
    if isinstance(first, list) and first:  # as Keras 2 wrote it
        states = [*first[1:], *states]
        first = first[0]
    odd = [key for key, value in kwargs.items() if not asks_nothing(key, value)]
    if odd:
        raise Unsayable(f"it is called with {odd[0][:40]}")
    return port_of(use, first), [port_of(use, state) for state in states]


def _checked_cell(use: Use, config: Settings, kind: str) -> int:
    """The number of units of an LSTM or GRU that computes what everybody's do."""
    given = replace(use, config=config)
    units = count_of(given, "units")
    names = [name_of(config.get(key, usual)) for key, usual in _USUAL.items()]
    if names != list(_USUAL.values()):
        raise Unsayable(f"its activations are {names[0]} and {names[1]}")
    if kind == "GRU" and not flag(config, "reset_after", False):
        raise Unsayable("it resets before the product")
    if flag(config, "stateful", False):
        raise Unsayable("it keeps its states from one batch to the next")
    for key in ("dropout", "recurrent_dropout"):
        number_of(given, key, default=0.0)
    for key in _IDLE:
        if key == "time_major" and config.get(key):
            raise Unsayable("its first axis is the time")
        config.get(key)
    return units


_USUAL = {"activation": "tanh", "recurrent_activation": "sigmoid"}


def _cell_params(use: Use, kind: str, bias: bool, end: str, *inside: str) -> dict[str, str]:
    names = {"weight_ih": "kernel", "weight_hh": "recurrent_kernel"}
    names |= {"bias_ih": "bias"} if bias else {}
    path = (*inside, f"{snake(kind)}_cell")
    return {f"{slot}_l0{end}": use.tensor(name, *path) for slot, name in names.items()}


def _flipped(use: Use, port: Port, word: str) -> Port:
    axes = {"l": [{"c": 1}]}
    return use.aten("flip.default", {"n": 0}, axes, shape=use.shape(port), inputs=[port], word=word)


def _zeroed(use: Use, sequence: Port, counts: Port) -> Port:
    """A sequence with zeros at the steps that do not count."""
    to = {"kind": "to", "dtype": use.graph.dtype or "float32"}
    kept = use.add("RESHAPE", None, to, inputs=[counts], word="counts")
    kept = unsqueezed(use, kept, 2, "steps")
    return use.add("MUL", inputs=[sequence, kept], word="zeroed")


def read_recurrent(use: Use) -> list[Port]:
    kind, config = use.layer.kind, use.config
    units, bias = _checked_cell(use, config, kind), flag(config, "use_bias", True)
    x, states = _sequence_call(use)
    if states and len(states) != (2 if kind == "LSTM" else 1):
        raise Unsayable(f"it starts from {len(states)} states")
    counts = _mask_of(use, x, states)
    sequences, backwards = (
        flag(config, key, False) for key in ("return_sequences", "go_backwards")
    )
    zeros = flag(config, "zero_output_for_mask", False) and counts is not None
    if zeros and not sequences:
        raise Unsayable("its last output is zero where the last step does not count")
    if backwards:
        x = _flipped(use, x, "backwards")
        counts = None if counts is None else _flipped(use, counts, "mask_backwards")
    start = [unsqueezed(use, state, 0, f"start{place}") for place, state in enumerate(states)]
    attrs = {"hidden": units, "batch_first": True, "layout": "keras", "masked": counts is not None}
    inputs = [x, *start, *([] if counts is None else [counts])]
    params = _cell_params(use, kind, bias, "")
    name, _ = use.add("RNN", kind, attrs, inputs=inputs, params=params)
    ends = 2 if kind == "LSTM" else 1
    stated = flag(config, "return_state", False)
    squeeze = {"kind": "squeeze", "axis": (0,)}
    last = [
        use.add("RESHAPE", None, squeeze, inputs=[(name, 1 + place)], word=f"state{place}")
        for place in range(ends if stated else 0 if sequences else 1)
    ]
    result: Port = (name, 0) if sequences else last[0]
    if zeros and counts is not None:
        result = _zeroed(use, result, counts)
    return [result, *(last if stated else [])]


def _both_ways(use: Use) -> tuple[Layer, Layer]:
    """The layers of a Bidirectional, which have to be alike but for their direction."""
    use.config.get("backward_layer")
    use.config.get("layer")
    inner = use.layer.inner.get("layer")
    if inner is None or inner.kind not in ("LSTM", "GRU") or not inner.known:
        raise Unsayable("what it runs both ways is not an LSTM or a GRU")
    other = use.layer.inner.get("backward_layer", inner)
    same = [
        {
            key: value
            for key, value in layer.config.items()
            if key not in ("name", "dtype", "go_backwards", "seed")
            and not key.endswith(OF_TRAINING)
        }
        | {"policy": policy(layer.config)}
        for layer in (inner, other)
    ]
    own = "backward_layer" in use.layer.inner
    turned = own and inner.config.get("go_backwards") == other.config.get("go_backwards")
    if same[0] != same[1] or inner.config.get("go_backwards") or other.kind != inner.kind or turned:
        raise Unsayable("its two layers differ in more than their direction")
    return inner, other


def read_bidirectional(use: Use) -> list[Port]:
    inner, other = _both_ways(use)
    kind, config = inner.kind, Settings(inner.config)
    use.graph.check_dtype(config)
    units, bias = _checked_cell(use, config, kind), flag(config, "use_bias", True)
    x, states = _sequence_call(use)
    ends = 2 if kind == "LSTM" else 1
    if states and len(states) != 2 * ends:
        raise Unsayable(f"it starts from {len(states)} states")
    counts = _mask_of(use, x, states)
    sequences, stated = (flag(config, key, False) for key in ("return_sequences", "return_state"))
    config.get("go_backwards")
    config.get("zero_output_for_mask")  # which it sets itself
    config.finish(kind)
    start = []
    for place in range(ends if states else 0):
        pair = [
            unsqueezed(use, states[way * ends + place], 0, f"start{way * ends + place}")
            for way in range(2)
        ]
        start.append(use.add("CONCAT", None, {"axis": 0}, inputs=pair, word=f"starts{place}"))
    params: dict[str, str] = {}
    for side, end, layer in (("forward", "", inner), ("backward", "_reverse", other)):
        base = layer.name.removeprefix("forward_").removeprefix("backward_")
        params |= _cell_params(use, kind, bias, end, f"{side}_{base}")
    attrs = {
        "hidden": units,
        "batch_first": True,
        "bidirectional": True,
        "layout": "keras",
        "masked": counts is not None,
    }
    inputs = [x, *start, *([] if counts is None else [counts])]
    name, _ = use.add("RNN", kind, attrs, inputs=inputs, params=params)

    def end_of(way: int, place: int) -> Port:
        pick = {"kind": "select", "axis": 0, "index": way}
        word = f"state{way * ends + place}"
        return use.add("RESHAPE", None, pick, inputs=[(name, 1 + place)], word=word)

    last = [end_of(way, place) for way in range(2) for place in range(ends if stated else 0)]
    merge = use.config.get("merge_mode", "concat")
    if sequences:
        whole_sequence: Port = (name, 0)
        if counts is not None:
            whole_sequence = _zeroed(use, whole_sequence, counts)
        if merge == "concat":
            return [whole_sequence, *last]
        sides = []
        for way, word in enumerate(("forward", "backward")):
            cut = {"kind": "slice", "axis": 2, "start": way * units, "end": (way + 1) * units}
            cut["step"] = 1
            sides.append(use.add("RESHAPE", None, cut, inputs=[whole_sequence], word=word))
    else:
        sides = [last[0], last[ends]] if stated else [end_of(0, 0), end_of(1, 0)]
    return [*_merged_ways(use, merge, sides), *last]


def _merged_ways(use: Use, merge: Any, sides: list[Port]) -> list[Port]:
    if merge is None:
        return sides
    if merge == "concat":
        axis = len(use.shape(sides[0])) - 1
        return [use.add("CONCAT", None, {"axis": axis}, inputs=sides, word="both")]
    if merge in ("sum", "mul"):
        return [use.add("ADD" if merge == "sum" else "MUL", inputs=sides, word="both")]
    if merge == "ave":
        total = use.add("ADD", inputs=sides, word="sum")
        return [use.add("MUL", None, {"const": 0.5}, inputs=[total], word="both")]
    raise Unsayable(f"merge_mode is {merge!r:.40}")


def write_rnn(model: Model, node: Node) -> Held:
    attrs, kind = node.attrs, node.variant or ""
    if attrs["p"] and attrs["layers"] > 1:
        model.notes.append(f"{node.name}: its dropout between layers is skipped")
    ports = list(node.inputs[1:])
    mask = model.plain(ports.pop()) if attrs["masked"] else None
    start = [] if all(is_zero_state(model.network, name) for name, _ in ports) else ports
    if attrs["layers"] > 1 and (mask is not None or start):
        refuse(node, "several layers of it have a mask, or start from states that are handed in")
    if start and attrs["bidirectional"]:
        refuse(node, "it starts both ways from states that are handed in")
    out = model.plain(node.inputs[0])
    shape = model.known_shape(node, node.inputs[0])
    if not attrs["batch_first"]:
        turned: Shape = (shape[1], shape[0], shape[2])
        out = model.op(OPS, "Transpose", f"{node.name}.time", {"axes": [1, 0, 2]}, [out], turned)
    ways = 2 if attrs["bidirectional"] else 1
    after: Shape = (None, None, ways * attrs["hidden"])
    if mask is not None and not attrs["batch_first"]:
        refuse(node, "its mask has the steps first")
    if mask is not None or start:
        return _write_steps(model, node, out, mask, start)
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
    _stack_states(model, node, states)
    if not attrs["batch_first"]:
        axes = {"axes": [1, 0, 2]}
        out = model.op(OPS, "Transpose", node.name, axes, [out], model.shape((node.name, 0)))
    return Held(plain=out)


def _stack_states(model: Model, node: Node, states: Sequence[Sequence[Out]]) -> None:
    """The last states, those of each kind in one tensor, where something reads them."""
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


def _write_steps(model: Model, node: Node, x: Out, mask: Out | None, start: Sequence[Port]) -> Held:
    """A layer for each way, as Keras' own for both sets what does not count to zero."""
    attrs, kind = node.attrs, node.variant or ""
    given = []
    for place, port in enumerate(start):
        name, state = f"{node.name}.start{place}", model.plain(port)
        given.append(model.op(OPS, "Squeeze", name, {"axis": 0}, [state], (None, attrs["hidden"])))
    kwargs: dict[str, Any] = {"initial_state": [each.as_json() for each in given]} if start else {}
    kwargs |= {} if mask is None else {"mask": mask.as_json()}
    inputs = [x, *given, *([] if mask is None else [mask])]
    one: Shape = (*(x.shape or (None, None))[:2], attrs["hidden"])
    states: list[list[Out]] = [[] for _ in range(2 if kind == "LSTM" else 1)]
    sides = []
    for way in range(2 if attrs["bidirectional"] else 1):
        end = "l0_reverse" if way else "l0"
        config = {**_cell_config(node, kind), "go_backwards": way == 1}
        out = model.layer(
            kind,
            f"{node.name}.{end}",
            config,
            inputs,
            one,
            weights={"cell": _rnn_variables(model, node, kind, end)},
            args=[x.as_json()],
            kwargs=kwargs,
            share=(sharing_key(node), way),
        )
        for place, kept in enumerate(states):
            kept.append(replace(out, tensor=1 + place, shape=(one[0], attrs["hidden"])))
        if way:
            out = model.op(OPS, "Flip", f"{node.name}.turned", {"axis": 1}, [out], one)
        sides.append(out)
    _stack_states(model, node, states)
    after = model.shape((node.name, 0))
    if len(sides) > 1:
        args = [[side.as_json() for side in sides]]
        out = model.layer("Concatenate", node.name, {"axis": -1}, sides, after, args=args)
    # What follows has its masks as inputs: none may come with the tensor beside these.
    name = f"{node.name}.unmasked"
    return Held(plain=model.op(OPS, "Add", name, {}, [out, 0.0], after))


def is_zero_state(network: Network, name: str) -> bool:
    found = network.node(name) if name in network else None
    return found is not None and found.attrs.get("kind") == "fill" and not found.attrs["const"]


def _cell_config(node: Node, kind: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "units": node.attrs["hidden"],
        "return_sequences": True,
        "return_state": True,
        "use_bias": node.attrs["bias"],
        "activation": "tanh",
        "recurrent_activation": "sigmoid",
    }
    if kind == "GRU":
        config["reset_after"] = True
    return config


def _rnn_layer(
    model: Model, node: Node, kind: str, layer: int
) -> tuple[dict[str, Any], dict[str, Sequence[Tensor]]]:
    attrs, config = node.attrs, _cell_config(node, kind)
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
    if node.attrs["layout"] == "keras":
        slots = ("weight_ih", "weight_hh", *(("bias_ih",) if node.attrs["bias"] else ()))
        return [model.tensor(node, f"{slot}_{end}") for slot in slots]
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
    gates = GATES[kind]
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


READERS: Mapping[str, Convert] = {
    "LSTM": read_recurrent,
    "GRU": read_recurrent,
    "Bidirectional": read_bidirectional,
}
WRITERS: Mapping[str, Write] = {"RNN": write_rnn}
