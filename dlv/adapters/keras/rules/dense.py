"""Dense layers, embeddings, norms, attention and recurrent layers, both ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.keras.build import (
    NN,
    OPS,
    Held,
    Model,
    Out,
    Write,
    arranged,
    channels_last,
    held,
    refuse,
    sharing_key,
)
from dlv.adapters.keras.config import Settings, Unsayable, flag
from dlv.adapters.keras.graph import Convert, Use
from dlv.adapters.keras.rules.activations import number_of, with_activation
from dlv.adapters.keras.rules.windows import count_of, kernel_and_bias
from dlv.dtypes import DTYPES
from dlv.network.fields import whole
from dlv.network.graph import Node, Port
from dlv.network.sizes import Shape

# torch's order of gates -> Keras'.
_GATES = {"LSTM": (0, 1, 2, 3), "GRU": (1, 0, 2)}


def write_rnn(model: Model, node: Node) -> Held:
    attrs, kind = node.attrs, node.variant or ""
    if attrs["p"] and attrs["layers"] > 1:
        model.notes.append(f"{node.name}: its dropout between layers is skipped")
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
        model.notes.append(f"{node.name}: its dropout of {node.attrs['p']} is skipped")
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
        refuse(node, "the width of its query is unknown")
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
        refuse(node, "two of its lengths are unknown")
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


def read_dense(use: Use) -> Port:
    if len(use.shape()) < 2:
        raise Unsayable("its input has one axis")
    attrs = {"out": count_of(use, "units"), "layout": "in_out"}
    return with_activation(use, use.add("FULL", None, attrs, params=kernel_and_bias(use)))


def read_time_distributed(use: Use) -> Port:
    """A dense layer works on the last axis anyway, at every step alike."""
    inner = use.layer.inner.get("layer")
    if inner is None or inner.kind != "Dense" or not inner.known:
        raise Unsayable("what it repeats is not a dense layer")
    settings = Settings(inner.config)
    use.config.get("layer")
    use.graph.check_dtype(settings)
    port = read_dense(replace(use, layer=inner, path=(*use.path, inner.name), config=settings))
    settings.finish(inner.kind)
    return port


def read_einsum_dense(use: Use) -> Port:
    """The equation of a plain dense layer over the last axis, no other."""
    equation = str(use.config.get("equation", "")).replace(" ", "").replace("...", "")
    left, _, result = equation.partition("->")
    given, _, kernel = left.partition(",")
    plain = len(kernel) == 2 and kernel[0] == given[-1:] and result == given[:-1] + kernel[1]
    size = use.config.get("output_shape")
    out = size[-1] if isinstance(size, list) and size else size
    bias = use.config.get("bias_axes")
    if not plain or kernel[1] in given or not whole(out) or bias not in (None, kernel[1]):
        raise Unsayable(f"the equation {equation!r:.40}")
    params = {"weight": use.tensor("kernel")}
    if bias:
        params["bias"] = use.tensor("bias")
    return with_activation(
        use, use.add("FULL", None, {"out": out, "layout": "in_out"}, params=params)
    )


def write_full(model: Model, node: Node) -> Held:
    [port] = node.inputs
    if len(model.known_shape(node, port)) < 2:
        refuse(node, "its input has no batch")
    weight = model.tensor(node, "weight")
    if node.attrs["layout"] == "out_in":
        weight = arranged(weight, (1, 0))
    config = {"units": node.attrs["out"], "activation": "linear", "use_bias": node.attrs["bias"]}
    out = model.layer(
        "Dense",
        node.name,
        config,
        [model.plain(port)],
        model.shape((node.name, 0)),
        weights={"": [weight, *model.bias(node)]},
        share=sharing_key(node),
    )
    return Held(plain=out)


def read_embedding(use: Use) -> Port:
    flag(use.config, "mask_zero", False)  # the mask is an input of the layers that use it
    attrs = {"out": count_of(use, "output_dim"), "rows": count_of(use, "input_dim")}
    rows = use.only_input
    if use.graph.dtypes.get(rows, "int32").startswith("float"):  # Keras' own default for inputs
        rows = use.add("RESHAPE", None, {"kind": "to", "dtype": "int32"}, word="rows")
    return use.add("EMBED", None, attrs, inputs=[rows], params={"weight": use.tensor("embeddings")})


def write_embed(model: Model, node: Node) -> Held:
    [port] = node.inputs
    config = {"input_dim": node.attrs["rows"], "output_dim": node.attrs["out"], "mask_zero": False}
    out = model.layer(
        "Embedding",
        node.name,
        config,
        [model.plain(port)],
        model.shape((node.name, 0)),
        weights={"": [model.tensor(node, "weight")]},
        share=sharing_key(node),
    )
    return Held(plain=out)


def _norm_axes(use: Use, default: Any = -1) -> list[int]:
    """The axes of a norm, counted from the front."""
    value, rank = use.config.get("axis", default), len(use.shape())
    items = [value] if whole(value) else value
    if not isinstance(items, list) or not items or not all(whole(n) for n in items):
        raise Unsayable(f"axis is {value!r:.40}")
    if not all(-rank <= n < rank for n in items):
        raise Unsayable(f"axis is {value!r:.40} of {rank}")
    found = [n % rank for n in items]
    if found != sorted(set(found)):
        raise Unsayable(f"axis is {value!r:.40}")
    return found


def _scale_and_shift(use: Use) -> dict[str, str]:
    params = {}
    if flag(use.config, "scale", True):
        params["weight"] = use.tensor("gamma")
    if flag(use.config, "center", True):
        params["bias"] = use.tensor("beta")
    return params


def read_batch_norm(use: Use) -> Port:
    axis, momentum = _norm_axes(use), number_of(use, "momentum", default=0.99)
    if len(axis) > 1 or not 0 <= momentum <= 1:
        raise Unsayable("it is not over one axis of channels")
    params = _scale_and_shift(use)
    params["running_mean"] = use.tensor("moving_mean")
    params["running_var"] = use.tensor("moving_variance")
    attrs = {
        "eps": number_of(use, "epsilon", default=1e-3),
        "axis": axis[0],
        # Keras says how much of the old value stays; the rest of 1 - 0.99 is rounding.
        "momentum": round(1 - momentum, 12),
    }
    return use.add("NORM", "BATCH", attrs, params=params)


_FITTED = "statistics that `adapt` found are fixed in Keras; training the network updates them"
_LEAST = 1e-14  # the square of the least deviation that Keras divides by


def read_normalization(use: Use) -> Port:
    """What `adapt` was told of the data: a norm by kept statistics, over the last axis."""
    axis, shape = use.config.get("axis", -1), use.shape()
    axes = axis if isinstance(axis, list) else [axis]
    if axes not in ([-1], [len(shape) - 1]) or flag(use.config, "invert", False):
        raise Unsayable("it is not over the last axis, or the other way round")
    if use.config.get("mean") is not None or use.config.get("variance") is not None:
        raise Unsayable("its statistics are settings")
    use.graph.note(_FITTED, use.name)
    params = {"running_mean": use.tensor("mean"), "running_var": use.tensor("variance")}
    attrs = {"eps": _LEAST, "axis": len(shape) - 1, "momentum": 0.0}
    return use.add("NORM", "BATCH", attrs, params=params)


def read_layer_norm(use: Use) -> Port:
    axis, rank = _norm_axes(use), len(use.shape())
    if axis != list(range(axis[0], rank)):
        raise Unsayable("it is not over the last axes")
    attrs = {"eps": number_of(use, "epsilon", default=1e-3), "axis": axis[0] - rank}
    return use.add("NORM", "LAYER", attrs, params=_scale_and_shift(use))


def read_rms_norm(use: Use) -> Port:
    axis, rank = _norm_axes(use), len(use.shape())
    if axis != [rank - 1]:
        raise Unsayable("it is not over the last axis")
    attrs = {"eps": number_of(use, "epsilon", default=1e-6), "axis": -1}
    return use.add("NORM", "RMS", attrs, params={"weight": use.tensor("scale")})


def read_group_norm(use: Use) -> Port:
    axis, groups = _norm_axes(use), use.config.get("groups", 32)
    if len(axis) > 1 or axis[0] == 0:
        raise Unsayable("it is not over one axis of channels")
    if groups == -1:
        groups = use.shape()[axis[0]]
    attrs = {"eps": number_of(use, "epsilon", default=1e-3), "axis": axis[0], "groups": groups}
    return use.add("NORM", "GROUP", attrs, params=_scale_and_shift(use))


_SHORT = {"float32": 1.1920928955078125e-07, "float64": 2.220446049250313e-16}


def write_norm(model: Model, node: Node) -> Held:
    [port] = node.inputs
    shape, attrs, variant = model.known_shape(node, port), node.attrs, node.variant
    rank, axis = len(shape), node.attrs["axis"] % len(shape)
    # The order at hand is kept: nothing is turned for a norm.
    turned = model.values[port].last is not None and axis == 1 and variant not in ("LAYER", "RMS")
    x = model.last(node, port) if turned else model.plain(port)
    place = -1 if turned or axis == rank - 1 else axis
    weight = [model.tensor(node, "weight")] if "weight" in node.params else []
    bias = [model.tensor(node, "bias")] if "bias" in node.params else []
    config: dict[str, Any] = {"epsilon": attrs.get("eps"), "axis": place}
    variables: list[Tensor] = [*weight, *bias]
    if variant != "RMS":
        config |= {"scale": bool(weight), "center": bool(bias)}
    if variant == "BATCH" and "running_mean" in node.params:
        kind, momentum = "BatchNormalization", attrs["momentum"]
        config["momentum"] = 0.99 if momentum is None else round(1 - momentum, 12)
        variables += [model.tensor(node, "running_mean"), model.tensor(node, "running_var")]
    elif variant == "GROUP" or (variant == "INSTANCE" and "running_mean" not in node.params):
        kind, config["groups"] = "GroupNormalization", attrs.get("groups", -1)
    elif variant == "LAYER":
        kind, config["axis"] = "LayerNormalization", list(range(axis, rank))
    elif variant == "RMS" and weight and axis == rank - 1:
        kind = "RMSNormalization"
        if config["epsilon"] is None:
            config["epsilon"] = _SHORT.get(weight[0].dtype) or refuse(node, "its eps is open")
    else:
        refuse(node, "Keras has no such norm")
    after = channels_last(model.shape((node.name, 0)), turned)
    out = model.layer(
        kind, node.name, config, [x], after, weights={"": variables}, share=sharing_key(node)
    )
    return held(out, turned)


READERS: Mapping[str, Convert] = {
    "Dense": read_dense,
    "TimeDistributed": read_time_distributed,
    "EinsumDense": read_einsum_dense,
    "Embedding": read_embedding,
    "BatchNormalization": read_batch_norm,
    "Normalization": read_normalization,
    "LayerNormalization": read_layer_norm,
    "RMSNormalization": read_rms_norm,
    "GroupNormalization": read_group_norm,
}
WRITERS: Mapping[str, Write] = {
    "FULL": write_full,
    "EMBED": write_embed,
    "NORM": write_norm,
    "ATTENTION": write_attention,
    "RNN": write_rnn,
}
