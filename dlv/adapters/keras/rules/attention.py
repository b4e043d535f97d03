"""Attention, with the masks that it takes; both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlv.adapters.keras.build import CORE, NN, OPS, Held, Model, Out, Write, refuse
from dlv.adapters.keras.config import Ref, Unsayable, flag
from dlv.adapters.keras.graph import Convert, Use
from dlv.adapters.keras.rules.activations import number_of
from dlv.adapters.keras.rules.arithmetic import slice_json
from dlv.adapters.keras.rules.windows import count_of
from dlv.network.fields import whole
from dlv.network.graph import Network, Node, Port
from dlv.network.sizes import Shape, broadcast


def port_of(use: Use, ref: Any) -> Port:
    if not isinstance(ref, Ref):
        raise Unsayable("it is called with more than tensors")
    return use.inputs[use.call.refs.index(ref)]


def unsqueezed(use: Use, port: Port, axis: int, word: str) -> Port:
    attrs = {"kind": "unsqueeze", "axis": axis}
    return use.add("RESHAPE", None, attrs, inputs=[port], word=word)


_ARGUMENTS = (
    *("query", "value", "key", "query_mask", "value_mask", "key_mask", "attention_mask"),
    *("return_attention_scores", "training", "use_causal_mask"),
)


def _attention_call(use: Use) -> dict[str, Any]:
    """The arguments of a call of an attention by name; tensors as ports."""
    args = {**dict(zip(_ARGUMENTS, use.call.args, strict=False)), **use.call.kwargs}
    odd = [
        key
        for key, value in args.items()
        if key not in _ARGUMENTS or (key == "return_attention_scores" and value)
    ]
    if odd:
        raise Unsayable(f"it is called with {odd[0][:40]}")
    causal, training = args.pop("use_causal_mask", None), args.pop("training", None)
    args.pop("return_attention_scores", None)
    if not isinstance(causal, (bool, type(None))) or training is True:
        raise Unsayable("it is called as in training")
    found: dict[str, Any] = {
        key: port_of(use, value) for key, value in args.items() if value is not None
    }
    if "query" not in found or "value" not in found:
        raise Unsayable("it is called with more than tensors")
    for side in ("query", "value", "key"):
        port = found.get(side)
        carried = None if port is None else use.mask_at(port)
        if f"{side}_mask" not in found and carried is not None:
            # Where a call names no masks they come with the tensors.
            mask = use.graph.counted(carried, use)
            if mask is None:
                raise Unsayable("the mask of its input is unknown")
            found[f"{side}_mask"] = mask
    return {**found, "causal": bool(causal)}


def _allowed(use: Use, given: Mapping[str, Any]) -> Port | None:
    """True where a query may look at a key, [batch, head, query, key] or less; None: anywhere."""
    found = []
    for side, axes in (("query", (1, 3)), ("value", (1, 2)), ("key", (1, 2))):
        port = given.get(f"{side}_mask")
        for axis in axes if port is not None else ():
            assert port is not None
            port = unsqueezed(use, port, axis, f"{side}_mask{axis}")
        found += [] if port is None else [port]
    own = given.get("attention_mask")
    if own is not None:
        shape = use.shape(own)
        own = use.aten("ne.Scalar", {"n": 0}, {"c": 0}, shape=shape, inputs=[own], word="own_mask")
        if len(shape) not in (2, 3, 4):
            raise Unsayable(f"its mask has {len(shape)} axes")
        found.append(unsqueezed(use, own, 1, "own_mask_heads") if len(shape) == 3 else own)
    if found and given["causal"]:
        found.append(_triangle(use, given))
    if not found:
        return None
    joined: Port = found[0]
    for place, port in enumerate(found[1:]):
        both = [joined, port]
        shape = broadcast([use.shape(each) for each in both])
        args = ({"n": 0}, {"n": 1})
        word = f"allowed{place}"
        joined = use.aten("logical_and.default", *args, shape=shape, inputs=both, word=word)
    return joined


def _for_all_queries(use: Use, mask: Port, query: Port) -> tuple[Port, Port]:
    """The mask and the queries, where one that may look at nothing looks at everything alike.

    So Keras has it, which adds a number to scores far below all of them: its query becomes zero.
    """
    shape = use.shape(mask)
    last = len(shape) - 1
    after = (*shape[:-1], 1)
    along = ({"n": 0}, {"c": last}, {"c": True})
    seeing = use.aten("any.dim", *along, shape=after, inputs=[mask], word="seeing")
    blind = use.aten("logical_not.default", {"n": 0}, shape=after, inputs=[seeing], word="blind")
    both = [mask, blind]
    args = ({"n": 0}, {"n": 1})
    mask = use.aten("logical_or.default", *args, shape=shape, inputs=both, word="mask")
    to = {"kind": "to", "dtype": use.graph.dtype or "float32"}
    kept = use.add("RESHAPE", None, to, inputs=[seeing], word="kept")
    if len(after) > len(use.shape(query)):
        if after[1] != 1:
            raise Unsayable("each of its heads has a mask of its own")
        squeeze = {"kind": "squeeze", "axis": (1,)}
        kept = use.add("RESHAPE", None, squeeze, inputs=[kept], word="kept_queries")
    return mask, use.add("MUL", inputs=[query, kept], word="asking")


def _heads_first(use: Use, port: Port, word: str) -> Port:
    if len(use.shape(port)) != 4:
        raise Unsayable("its inputs do not have four axes")
    turn = {"kind": "permute", "axes": (0, 2, 1, 3)}
    return use.add("RESHAPE", None, turn, inputs=[port], word=word)


def read_dot_product_attention(use: Use) -> Port:
    """keras.ops.dot_product_attention."""
    names = ("query", "key", "value", "bias", "mask", "scale")
    args = {**dict(zip(names, use.call.args, strict=False)), **use.call.kwargs}
    scale = args.pop("scale", None)
    number = isinstance(scale, (int, float)) and not isinstance(scale, bool)
    if args.keys() - set(names) or not (number or scale is None):
        raise Unsayable("it is called with more than tensors")
    causal = flag(use.config, "is_causal", False)
    use.config.get("flash_attention")
    if use.config.get("attn_logits_soft_cap") is not None:
        raise Unsayable("its scores are capped")
    found = {key: port_of(use, value) for key, value in args.items() if value is not None}
    if not {"query", "key", "value"} <= found.keys() or len(found) > 4:
        raise Unsayable("it is called with more than tensors")
    if causal and len(found) > 3:
        raise Unsayable("it is causal and has a mask besides")
    ports = [_heads_first(use, found[side], side) for side in ("query", "key", "value")]
    if "mask" in found:
        mask, ports[0] = _for_all_queries(use, found["mask"], ports[0])
        ports.append(mask)
    elif "bias" in found:
        ports.append(found["bias"])
    attrs = {"heads": None, "causal": causal, "scale": None if scale is None else float(scale)}
    mixed = use.add("ATTENTION", None, attrs, inputs=ports)
    return _heads_first(use, mixed, "back")


def _triangle(use: Use, given: Mapping[str, Any]) -> Port:
    """True where a key is not behind the query."""
    lengths = [use.shape(given[side])[1] for side in ("query", "value")]
    if not all(isinstance(length, int) for length in lengths):
        raise Unsayable("its lengths are unknown, and its masks are causal")
    rows, columns = (
        use.aten("arange.default", {"c": length}, shape=(length,), inputs=[], word=word)
        for length, word in zip(lengths, ("rows", "columns"), strict=True)
    )
    rows = unsqueezed(use, rows, 1, "rows_first")
    args, shape = ({"n": 0}, {"n": 1}), (lengths[0], lengths[1])
    return use.aten("ge.Tensor", *args, shape=shape, inputs=[rows, columns], word="causal")


def read_attention(use: Use) -> Port:
    """MultiHeadAttention: products with matrices of heads, and what is between them."""
    config, given = use.config, _attention_call(use)
    heads, width = count_of(use, "num_heads"), count_of(use, "key_dim")
    inner = width if config.get("value_dim") is None else count_of(use, "value_dim")
    bias, dropout = flag(config, "use_bias", True), number_of(use, "dropout", default=0.0)
    if config.get("attention_axes") not in (None, 1, -1, [1], [-1]):
        raise Unsayable(f"attention_axes is {config['attention_axes']!r:.40}")
    for key in ("use_gate", "sliding_window"):
        if config.get(key):
            raise Unsayable(f"{key} is {config[key]!r:.40}")
    for key in ("seed", "flash_attention"):
        config.get(key)
    query, value = given["query"], given["value"]
    shapes = [use.shape(given[side]) for side in ("query", "value", "key") if side in given]
    if any(len(shape) != 3 for shape in shapes):
        raise Unsayable("its inputs do not have three axes")
    out: Any = config.get("output_shape")
    out = [use.shape(query)[-1]] if out is None else [out] if whole(out) else out
    if not isinstance(out, list) or len(out) != 1 or not whole(out[0]) or out[0] < 1:
        raise Unsayable(f"output_shape is {out!r:.40}")

    def product(side: str, port: Port, size: int, layout: str) -> Port:
        behind: Shape = (heads, size // heads) if layout == "in_heads" else (size,)
        before: Shape = (use.shape(port)[-1],) if layout == "in_heads" else (heads, inner)
        params = {"weight": use.tensor_of((*before, *behind), "kernel", side)}
        if bias:
            params["bias"] = use.tensor_of(behind, "bias", side)
        attrs = {"out": size, "layout": layout}
        return use.add("FULL", None, attrs, inputs=[port], params=params, word=side)

    ports = [
        product("query", query, heads * width, "in_heads"),
        product("key", given.get("key", value), heads * width, "in_heads"),
        product("value", value, heads * inner, "in_heads"),
    ]
    mask = _allowed(use, given)
    if mask is not None and not dropout:
        mask, ports[0] = _for_all_queries(use, mask, ports[0])
    attrs = {"heads": heads, "causal": given["causal"] and mask is None, "p": dropout}
    ports += [] if mask is None else [mask]
    mixed = use.add("ATTENTION", None, attrs, inputs=ports)
    return product("attention_output", mixed, out[0], "heads_in")


def write_attention(model: Model, node: Node) -> Held:
    """keras.ops.dot_product_attention, which has the heads behind the sequence."""
    if node.attrs["p"]:
        model.notes.append(f"{node.name}: its dropout of {node.attrs['p']} is skipped")
    shapes = [model.known_shape(node, port) for port in node.inputs[:3]]
    heads = node.attrs["heads"]
    if {len(shape) for shape in shapes} != {4 if heads is None else 3}:
        refuse(node, "its heads are not on an axis of their own")
    given = [
        _split_heads(model, node, port, shape, word)
        for port, shape, word in zip(
            node.inputs[:3], shapes, ("query", "key", "value"), strict=True
        )
    ]
    config = {"is_causal": node.attrs["causal"], "flash_attention": False}
    after, width = model.shape((node.name, 0)), shapes[0][-1]
    if not isinstance(width, int):
        refuse(node, "the width of its query is unknown")
    scale = node.attrs["scale"]
    if scale is None:
        scale = (width // (heads or 1)) ** -0.5
    keyed: dict[str, Any] = {"scale": scale}
    masks = [_mask_of_heads(model, node, port) for port in node.inputs[3:]]
    seen = None
    if masks and node.attrs["causal"]:
        refuse(node, "it is causal and has a mask besides")
    if masks and is_truth(model.network, node.inputs[3]):
        keyed["mask"], seen = masks[0].as_json(), masks[0]
    elif masks:
        keyed["bias"] = masks[0].as_json()
    inner: Shape = (None,) * 4
    widths = [shape[-1] for shape in shapes]
    if any(not isinstance(side, int) for side in widths):
        refuse(node, "the width of its values is unknown")
    sizes = [int(side or 0) // (heads or 1) for side in widths]
    # Keras takes the result to be as wide as the queries are: zeros make them as wide.
    most = max(sizes[0], sizes[2])
    for place, size in enumerate(sizes):
        if size < most:
            pads = {"pad_width": [[0, 0], [0, 0], [0, 0], [0, most - size]], "mode": "constant"}
            name = f"{node.name}.wide{place}"
            given[place] = model.op(OPS, "Pad", name, pads, [given[place]], inner)
    parents = [*given, *masks]
    name = f"{node.name}.heads"
    out = model.op(NN, "DotProductAttention", name, config, given, inner, keyed, parents=parents)
    if sizes[2] < most:
        cut = [slice_json(), slice_json(), slice_json(), slice_json(0, sizes[2])]
        out = model.op(OPS, "GetItem", f"{node.name}.cut", {}, [out, cut], inner)
    if seen is not None:
        out = _without_blind(model, node, out, seen)
    if heads is None:
        return model.layer_of(node, "Permute", {"dims": [2, 1, 3]}, [out])
    target = [n if isinstance(n, int) else -1 for n in (after or (None, None, None))[1:]]
    if target.count(-1) > 1:
        refuse(node, "two of its lengths are unknown")
    return model.layer_of(node, "Reshape", {"target_shape": target}, [out])


def _mask_of_heads(model: Model, node: Node, port: Port) -> Out:
    """A mask with an axis for the heads."""
    mask, shape = model.plain(port), model.known_shape(node, port)
    if len(shape) == 4:
        return mask
    if len(shape) != 3:
        refuse(node, f"its mask has {len(shape)} axes")
    name, after = f"{node.name}.mask", (shape[0], 1, *shape[1:])
    return model.op(OPS, "ExpandDims", name, {"axis": 1}, [mask], after)


def is_truth(network: Network, port: Port) -> bool:
    """Whether what is there is true and false, as far as the network says."""
    while port[0] in network:
        node = network.node(port[0])
        name = str((node.source or {}).get("op")).removeprefix("aten.").partition(".")[0]
        if node.op == "OP":
            return name.startswith(("logical_", "bitwise_")) or name in _COMPARING
        if node.op != "RESHAPE" or node.attrs["kind"] == "to" or not node.inputs:
            return node.op == "RESHAPE" and node.attrs.get("dtype") == "bool"
        port = node.inputs[0]
    known = {item.name: item.dtype for item in network.inputs}
    return known.get(port[0]) == "bool"


_COMPARING = frozenset(("any", "all", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf"))


def _without_blind(model: Model, node: Node, out: Out, mask: Out) -> Out:
    """Nothing for queries that may look at nothing: Keras gives the mean of all values then."""
    shape: Shape = (None,) * 4
    base = f"{node.name}.seeing"
    seen = model.op(OPS, "Any", base, {"axis": [3], "keepdims": True}, [mask], shape)
    seen = model.op(CORE, "Cast", f"{base}.number", {"dtype": model.dtype}, [seen], shape)
    seen = model.op(OPS, "Transpose", f"{base}.last", {"axes": [0, 2, 1, 3]}, [seen], shape)
    return model.op(OPS, "Multiply", f"{base}.only", {}, [out, seen], shape)


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


READERS: Mapping[str, Convert] = {"MultiHeadAttention": read_attention}
FUNCTION_READERS: Mapping[str, Convert] = {"DotProductAttention": read_dot_product_attention}
WRITERS: Mapping[str, Write] = {"ATTENTION": write_attention}
