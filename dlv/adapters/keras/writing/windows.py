"""Windows for Keras: channels behind, pads as layers of their own, pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlv.adapters.keras.writing.model import OPS, Held, Model, Out, refuse
from dlv.network.graph import Node
from dlv.network.sizes import Shape

Write = Callable[[Model, Node], Held]
Pairs = Sequence[tuple[int, int]]
_LOWEST = -3.4028234663852886e38  # what JSON can hold in place of minus infinity


def channels_of(model: Model, node: Node) -> tuple[Out, Shape, bool]:
    """The input with its channels last, its shape so, and whether the network has them first."""
    [port] = node.inputs
    first = node.attrs["channels"] == "first"
    shape = model.known_shape(node, port)
    if first:
        shape = (shape[0], *shape[2:], shape[1])
    return (model.last(node, port) if first else model.plain(port)), shape, first


def held(out: Out, first: bool) -> Held:
    return Held(last=out) if first else Held(plain=out)


def moved(shape: Shape | None, first: bool) -> Shape | None:
    """The shape of an output as it stands with its channels last."""
    if shape is None or not first:
        return shape
    return (shape[0], *shape[2:], shape[1])


def same_pads(shape: Shape, stride: Sequence[int], reach: Sequence[int]) -> Pairs | None:
    """The pads that Keras' `same` comes to, where that is known."""
    found = []
    for n, s, r in zip(shape[1:-1], stride, reach, strict=True):
        if s == 1:
            total = r
        elif isinstance(n, int):
            total = max((-(-n // s) - 1) * s + r + 1 - n, 0)
        else:
            return None
        found.append((total // 2, total - total // 2))
    return found


def padded(model: Model, node: Node, x: Out, shape: Shape, pad: Pairs) -> Out:
    """Zeros around the spatial axes."""
    axes = len(pad)
    amounts: Any = [list(pair) for pair in pad]
    after = (shape[0], *grown(shape[1:-1], pad), shape[-1])
    if axes == 1:
        amounts = amounts[0]
    config: dict[str, Any] = {"padding": amounts}
    if axes > 1:
        config["data_format"] = "channels_last"
    return model.layer(f"ZeroPadding{axes}D", f"{node.name}.pad", config, [x], after)


def grown(lengths: Shape, pad: Pairs) -> Shape:
    return tuple(
        n + before + after if isinstance(n, int) else n
        for n, (before, after) in zip(lengths, pad, strict=True)
    )


def spatial(node: Node) -> int:
    axes = len(node.attrs["kernel"])
    if not 1 <= axes <= 3:
        refuse(node, f"it has {axes} spatial axes")
    return axes


def pool(model: Model, node: Node) -> Held:
    attrs = node.attrs
    if node.variant == "MEAN":
        return _mean(model, node)
    if attrs["size"] is not None:
        return _adaptive(model, node)
    axes = spatial(node)
    if any(d > 1 for d in attrs["dilation"]):
        refuse(node, "it has a dilation")
    x, shape, first = channels_of(model, node)
    kernel, stride = attrs["kernel"], attrs["stride"]
    pad, largest = _rounded(node, shape), node.variant == "MAX"
    padding = "valid"
    if any(map(any, pad)):
        counted = not largest and attrs["count_pad"]
        reach = [k - 1 for k in kernel]
        even = all(before == after for before, after in pad)
        if not counted and list(pad) == same_pads(shape, stride, reach):
            padding = "same"
            if not largest and not even:
                model.notes.append(
                    f"{node.name}: Keras' torch backend counts padding in uneven average pools"
                )
        elif counted:
            x = padded(model, node, x, shape, pad)
        elif largest:
            width = [[0, 0], *(list(pair) for pair in pad), [0, 0]]
            after = (shape[0], *grown(shape[1:-1], pad), shape[-1])
            config = {"pad_width": width, "mode": "constant"}
            x = model.op(
                *(OPS, "Pad", f"{node.name}.pad", config, [x], after, {"constant_values": _LOWEST})
            )
        else:
            refuse(node, "its padding is neither counted nor what Keras calls same")
    settings = {
        "pool_size": list(kernel),
        "padding": padding,
        "strides": list(stride),
        "data_format": "channels_last",
    }
    kind = f"{'Max' if largest else 'Average'}Pooling{axes}D"
    after_pool = moved(model.shape((node.name, 0)), first)
    return held(model.layer(kind, node.name, settings, [x], after_pool), first)


def _rounded(node: Node, shape: Shape) -> list[tuple[int, int]]:
    """The pads, grown behind so that windows are rounded up where the node does so."""
    attrs = node.attrs
    pad = [tuple(pair) for pair in attrs["pad"]]
    if not attrs["ceil"]:
        return pad
    grown = []
    rows = zip(shape[1:-1], attrs["kernel"], attrs["stride"], pad, strict=True)
    for n, k, s, (before, after) in rows:
        if not isinstance(n, int):
            refuse(node, "it rounds up over an axis of unknown length")
        count = -(-(n + before + after - k) // s) + 1
        if (count - 1) * s >= n + before:
            count -= 1
        more = max((count - 1) * s + k - n - before - after, 0)
        if more and node.variant == "AVG":
            refuse(node, "its last window is rounded up and averages what is there")
        grown.append((before, after + more))
    return grown


def _mean(model: Model, node: Node) -> Held:
    [port] = node.inputs
    shape, axis, keep = model.known_shape(node, port), node.attrs["axis"], node.attrs["keep"]
    rank = len(shape)
    places = sorted(range(rank) if axis is None else {a % rank for a in axis})
    after = model.shape((node.name, 0))
    config: dict[str, Any] = {"data_format": "channels_last", "keepdims": keep}
    kind = f"GlobalAveragePooling{rank - 2}D"
    if 3 <= rank <= 5 and places == list(range(1, rank - 1)):
        return Held(plain=model.layer(kind, node.name, config, [model.plain(port)], after))
    if 3 <= rank <= 5 and places == list(range(2, rank)):
        x = model.last(node, port)
        out = model.layer(kind, node.name, config, [x], moved(after, True) if keep else after)
        return held(out, first=keep)
    if 0 in places:
        refuse(node, "it averages over the batch")
    mean = {"axis": places, "keepdims": keep}
    return Held(plain=model.op(OPS, "Mean", node.name, mean, [model.plain(port)], after))


def _adaptive(model: Model, node: Node) -> Held:
    size = node.attrs["size"]
    x, shape, first = channels_of(model, node)
    after, axes = moved(model.shape((node.name, 0)), first), len(size)
    word = "Max" if node.variant == "MAX" else "Average"
    config: dict[str, Any] = {"data_format": "channels_last"}
    if all(n == 1 for n in size) and axes <= 3:
        config["keepdims"] = True
        out = model.layer(f"Global{word}Pooling{axes}D", node.name, config, [x], after)
        return held(out, first)
    window = []
    for n, wanted in zip(shape[1:-1], size, strict=True):
        if not isinstance(n, int) or (wanted and n % wanted):
            refuse(node, "its size does not divide the length")
        window.append(n // wanted if wanted else 1)
    config |= {"pool_size": window, "strides": window, "padding": "valid"}
    return held(model.layer(f"{word}Pooling{axes}D", node.name, config, [x], after), first)
