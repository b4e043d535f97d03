"""Caffe's layers into a graph: who wrote last what a layer reads, what comes in, what goes out.

A `Builder` grows the nodes; what no rule says becomes OP with the layer's settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from dlv.adapters.caffe.spec import MOST_ELEMENTS, Layer, Spec, checked, is_data, shape_of
from dlv.adapters.protobuf import Message
from dlv.canonical import number
from dlv.dataclass import dataclass
from dlv.errors import Damaged, UnsafeInput, nearest
from dlv.network.fields import FieldError
from dlv.network.graph import Input, Network, Node, Port
from dlv.network.inference import attribute_faults
from dlv.network.ops.op import op_of
from dlv.network.order import FreeNames
from dlv.network.sizes import Shape, ShapeError
from dlv.network.vocabulary import complete

# Of no meaning for what a layer computes.
_SKIPPED = ("engine", "filler")
_NOT_KEPT = {"transform_param", "loss_param", "param"}


class Builder:
    """What has been built so far; nodes are called after `layer`, the one at work.

    `batch` is how many examples the file itself speaks of.
    """

    layer: Layer

    def __init__(self, batch: int | None) -> None:
        self.batch = batch
        self.nodes: list[Node] = []
        self.shapes: dict[Port, Shape | None] = {}
        self.names = FreeNames()
        self.notes: list[str] = []

    def mark(self) -> tuple[int, FreeNames, int]:
        return len(self.nodes), self.names.copy(), len(self.notes)

    def back_to(self, mark: tuple[int, FreeNames, int]) -> None:
        """Remove all nodes added since the mark."""
        nodes, self.names, notes = mark
        del self.nodes[nodes:], self.notes[notes:]

    def shape(self, port: Port) -> Shape | None:
        return self.shapes.get(port)

    def rank(self, port: Port) -> int | None:
        shape = self.shapes.get(port)
        return None if shape is None else len(shape)

    def add(
        self,
        op: str,
        inputs: Sequence[Port],
        attrs: Mapping[str, Any] | None = None,
        *,
        variant: str | None = None,
        params: Mapping[str, str] | None = None,
        part: str = "",
    ) -> Port:
        """A node called like the layer, or `layer.part`; its first output."""
        params = dict(params or {})
        try:
            settled = complete(op, variant, attrs or {}, params=params)
        except FieldError as error:
            raise Damaged(f"{self.layer.where()}: {error.message}", why=error.why) from error
        return self._place(Node("", op, variant, settled, tuple(inputs), params), part)

    def raw(
        self,
        inputs: Sequence[Port],
        shape: Shape | None = None,
        params: Mapping[str, str] | None = None,
    ) -> list[Port]:
        """A layer outside the vocabulary: what it is, with its parameters, and its outputs."""
        layer = self.layer
        if params is None:
            params = {layer.slot(i): layer.tensor(layer.slot(i)) for i in range(len(layer.blobs))}
        source = {
            "dialect": "caffe",
            "op": layer.type,
            "args": [{"n": place} for place in range(len(inputs))]
            + [{"p": slot} for slot in params],
            "kwargs": _keywords(layer.body),
        }
        node = Node("", "OP", "raw", {}, tuple(inputs), dict(params), source, shape)
        whole = self._place(node)
        if len(layer.tops) < 2:
            return [whole]
        ports = []
        for index in range(len(layer.tops)):
            attrs = {"kind": "getitem", "index": index}
            ports.append(self.add("RESHAPE", [whole], attrs, part=f"top{index}"))
            self.shapes[ports[-1]] = shape if not index else None
        return ports

    def _place(self, node: Node, part: str = "") -> Port:
        layer = self.layer
        name = self.names.take(f"{layer.name}.{part}" if part else layer.name)
        node = Node(name, *(getattr(node, field) for field in _FIELDS))
        for rule, message in attribute_faults(node):
            raise Damaged(f"{layer.where()}: {message}", why=rule)
        self.nodes.append(node)
        try:
            shapes = op_of(node).shape(node, [self.shape(port) for port in node.inputs])
        except ShapeError:
            # What does not fit is told, with all the rest, where networks are verified.
            shapes = (None,)
        for port, shape in enumerate(shapes):
            self._check(shape)
            self.shapes[(name, port)] = shape
        return name, 0

    def _check(self, shape: Shape | None) -> None:
        elements = 1
        for side in shape or ():
            elements *= max(side, 1) if isinstance(side, int) else 1
        if elements > MOST_ELEMENTS:
            raise UnsafeInput(
                f"{self.layer.where()}: its output is too large",
                why=f"{elements} elements, Caffe's own limit is {MOST_ELEMENTS}",
            )


_FIELDS = ("op", "variant", "attrs", "inputs", "params", "source", "out_shape")


def _keywords(body: Message) -> dict[str, Any]:
    """`convolution_param.num_output` and so on, as a source keeps arguments."""
    result: dict[str, Any] = {}
    for name in body.fields:
        if name.endswith("_param") and name not in _NOT_KEPT:
            for message in body.messages(name):
                _collect(result, name, message, 0)
    return result


def _collect(result: dict[str, Any], name: str, message: Message, depth: int) -> None:
    """Depth is that of the text, which is limited where it is read."""
    for key, values in message.fields.items():
        if key.endswith(_SKIPPED):
            continue
        path = f"{name}.{key}"
        plain = [{"c": _plain(value)} for value in values if not isinstance(value, Message)]
        if plain:
            result[path] = plain[0] if len(plain) == 1 else {"l": plain}
        for place, value in enumerate(values):
            if isinstance(value, Message):
                _collect(result, path if len(values) == 1 else f"{path}.{place}", value, depth + 1)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str):
        return str(value)
    # JSON here keeps 64 bits.
    return value if isinstance(value, bool) or -(2**63) <= value < 2**64 else str(value)


def tops_of(layer: Layer) -> list[tuple[str, Shape | None]]:
    """(blob, shape) of each top; None stands for an unknown axis or rank."""
    read = _READERS.get(layer.type, _images)
    shapes = read(layer)
    return [
        (top, shapes[index] if index < len(shapes) else None)
        for index, top in enumerate(layer.tops)
    ]


def _input_shapes(layer: Layer) -> list[Shape | None]:
    shapes: list[Shape | None] = [
        shape_of(message) for message in layer.param("input").messages("shape")
    ]
    if len(shapes) == 1:
        return shapes * len(layer.tops)
    if shapes and len(shapes) != len(layer.tops):
        raise Damaged(f"{layer.where()} has {len(layer.tops)} tops and {len(shapes)} shapes")
    return shapes


def _dummy(layer: Layer) -> list[Shape | None]:
    param = layer.param("dummy_data")
    shapes: list[Shape | None] = [shape_of(message) for message in param.messages("shape")]
    if not shapes:
        sides = [param.counts(name) for name in ("num", "channels", "height", "width")]
        count = max(map(len, sides))
        for index in range(count):
            shape = [side[index] if index < len(side) else side[-1] for side in sides if side]
            shapes.append(checked(param, shape) if len(shape) == 4 else None)
    return shapes * len(layer.tops) if len(shapes) == 1 else shapes


def _memory(layer: Layer) -> list[Shape | None]:
    param = layer.param("memory_data")
    sides = [param.count(name, 0) for name in ("batch_size", "channels", "height", "width")]
    shape: Shape = checked(param, sides)
    return [tuple(side or None for side in shape), (shape[0] or None,)]


def _images(layer: Layer) -> list[Shape | None]:
    """Pictures and their labels; the data base knows the size if they are not cropped."""
    transform = layer.param("transform")
    own = Message(layer.body.file)
    for name in ("data", "image_data", "window_data"):
        if f"{name}_param" in layer.body:
            own = layer.param(name)
    crop = transform.count("crop_size", 0) or own.count("crop_size", 0)
    height = crop or own.count("new_height", 0)
    width = crop or own.count("new_width", 0)
    depth: int | None = None
    if transform.flag("force_gray", False):
        depth = 1
    elif transform.flag("force_color", False) or layer.type == "WindowData":
        depth = 3
    elif len(transform.fields.get("mean_value", ())) > 1:  # one for each
        depth = len(transform.fields["mean_value"])
    elif layer.type == "ImageData":
        depth = 3 if own.flag("is_color", True) else 1
    batch = own.count("batch_size", 0)
    checked(layer.body, [batch, depth or 1, height, width])
    return [(batch or None, depth, height or None, width or None), (batch or None,)]


def _unknown(layer: Layer) -> list[Shape | None]:  # noqa: ARG001
    return []


_READERS = {
    "Input": _input_shapes,
    "DummyData": _dummy,
    "MemoryData": _memory,
    "HDF5Data": _unknown,
    "Python": _unknown,
}


ORIGIN = {"importer": "caffe", "version": 1}
# What a norm and its scale may say to become one node.
_OF_NORMS = {"use_global_stats", "moving_average_fraction", "eps", "engine"}
_OF_SCALES = {"axis", "num_axes", "bias_term", "filler", "bias_filler"}

Translate = Callable[[Builder, Layer, list[Port], Layer | None], list[Port]]

# Layers that only compare with labels, or write files.
_MEASURES = ("Loss", "Accuracy")
_SINKS = {"HDF5Output", "DetectionEvaluate", "Silence"}
_SPATIAL = {"Convolution", "Deconvolution", "Pooling", "LRN"}


@dataclass
class _Blob:
    """One state of a blob: a layer that writes in place makes another one."""

    name: str
    writer: int | None  # position of the layer; None: it comes in
    top: int = 0
    shape: Shape | None = None
    handed: bool = False  # people hand it in, even if nothing reads it
    readers: list[int] = field(default_factory=list)
    port: Port | None = None  # None: what computes it is left out


def build(spec: Spec, translate: Translate) -> tuple[Network, list[str]]:
    """The network, and what of the file is not in it."""
    reads, writes, coming = _wire(spec)
    notes: list[str] = []
    inputs, batch = _network_inputs(coming, _needed(spec.layers, writes), notes)
    builder = Builder(batch)
    for blob, item in inputs:
        builder.names.take(item.name)
        blob.port = (item.name, 0)
        builder.shapes[blob.port] = item.shape
    scales = _scales(spec.layers, reads, writes)
    absorbed = {scale: norm for norm, scale in scales.items()}
    dropped: list[str] = []
    silent: set[Port] = set()
    targets: set[Port] = set()
    for place, layer in enumerate(spec.layers):
        if is_data(layer):
            continue
        ports = [blob.port for blob in reads[place]]
        if _measures(layer) or any(port is None for port in ports):
            if layer.type == "Silence":
                silent.update(port for port in ports if port is not None)
            elif layer.type != "Split":
                # The first one is what is measured; the others may be no more than the data.
                targets.update(port for port in ports[1:] if port is not None)
                dropped.append(f"{layer.name} ({layer.type})")
            continue
        given = [port for port in ports if port is not None]
        if layer.type == "Split":
            made = given[:1] * len(layer.tops)
        elif place in absorbed:
            made = given
        else:
            scale = scales.get(place)
            made = translate(builder, layer, given, None if scale is None else spec.layers[scale])
        for blob, port in zip(writes[place], made, strict=False):
            blob.port = port
    if dropped:
        shown = ", ".join(dropped[:5]) + (", …" if len(dropped) > 5 else "")
        notes.append(f"skipped (they only compare with labels or write files): {shown}")
    plumbing = {node.name for node in builder.nodes if node.plumbing}
    silent |= {port for port in targets if port[0] in plumbing}
    outputs = _outputs(builder, writes, silent)
    network = Network(
        inputs=tuple(item for _, item in inputs),
        nodes=_needed_plumbing(builder.nodes, outputs),
        outputs=outputs,
        aliases=_aliases(spec.layers, builder),
        origin=ORIGIN,
    )
    return network, notes + builder.notes


def _measures(layer: Layer) -> bool:
    return layer.type.endswith(_MEASURES) or layer.type in _SINKS


def _wire(spec: Spec) -> tuple[list[list[_Blob]], list[list[_Blob]], list[_Blob]]:
    """The blobs that each layer reads, that each writes, and the inputs, in the file's order."""
    current: dict[str, _Blob] = {}
    coming: list[_Blob] = []
    reads: list[list[_Blob]] = []
    writes: list[list[_Blob]] = []
    # Of a training network, the data of its own phase.
    spare = {
        top: shape
        for layer in reversed(spec.left)
        if is_data(layer)
        for top, shape in tops_of(layer)
    }
    for name, shape, handed in spec.inputs:
        if name in current:
            raise Damaged(f"the input {name!r} is there twice")
        current[name] = _Blob(name, None, 0, shape, handed)
        coming.append(current[name])
    for place, layer in enumerate(spec.layers):
        data = is_data(layer)
        for name in layer.bottoms:
            if name not in current and name in spare:
                current[name] = _Blob(name, None, 0, spare[name])
                coming.append(current[name])
            if name not in current:
                raise Damaged(
                    f"{layer.where()} reads the blob {name!r}",
                    why="no layer before it writes it",
                    hint=_hint(name, current),
                )
        found = [current[name] for name in layer.bottoms]
        for blob in found:
            blob.readers.append(place)
        reads.append(found)
        shapes = dict(tops_of(layer)) if data else {}
        made = []
        for index, name in enumerate(layer.tops):
            if name in layer.tops[:index] or (name in current and name not in layer.bottoms):
                raise Damaged(
                    f"{layer.where()} writes the blob {name!r}", why="another layer writes it too"
                )
            blob = _Blob(name, None if data else place, index, shapes.get(name))
            blob.handed = data and layer.type == "Input"
            made.append(blob)
        for blob in made:
            current[blob.name] = blob
        if data:
            coming += made
        writes.append(made)
    return reads, writes, coming


def _hint(name: str, known: Mapping[str, _Blob]) -> str | None:
    close = nearest(name, known)
    return f"did you mean {close[0]!r}?" if close else None


def _needed(layers: Sequence[Layer], writes: Sequence[list[_Blob]]) -> list[Layer | None]:
    """The layers that need what they read; a Split needs it for those behind it."""
    found: list[Layer | None] = [None] * len(layers)
    for place in reversed(range(len(layers))):
        layer = layers[place]
        if layer.type == "Split":
            readers = (reader for blob in writes[place] for reader in blob.readers)
            found[place] = next((found[reader] for reader in readers if found[reader]), None)
        elif not _measures(layer):
            found[place] = layer
    return found


def _network_inputs(
    coming: Sequence[_Blob], needed: Sequence[Layer | None], notes: list[str]
) -> tuple[list[tuple[_Blob, Input]], int | None]:
    """Those that people hand in, and of what data layers bring that which a layer needs."""
    batch = next(
        (blob.shape[0] for blob in coming if blob.shape and isinstance(blob.shape[0], int)), None
    )
    found: list[tuple[_Blob, Input]] = []
    left: list[str] = []
    names = FreeNames()
    for blob in coming:
        users = [user for place in blob.readers if (user := needed[place]) is not None]
        if not blob.handed and not users:
            left.append(blob.name)
            continue
        shape = blob.shape
        if shape is None:
            shape = _guess_shape(users)
            notes.append(f"the file does not say what shape the input {blob.name!r} has")
        shape = _with_known_channels(shape, users)
        if shape and (shape[0] is None or shape[0] == batch):
            shape = ("B", *shape[1:])
        found.append((blob, Input(names.take(blob.name), shape)))
    if left:
        notes.append(f"skipped (used only by a loss): {', '.join(left[:5])}")
    return found, batch if isinstance(batch, int) else None


def _guess_shape(users: Sequence[Layer]) -> Shape:
    spatial = any(user.type in _SPATIAL for user in users)
    return (None, None, None, None) if spatial else (None, None)


def _with_known_channels(shape: Shape, users: Sequence[Layer]) -> Shape:
    """The channels, where the weights of a layer say them and the data do not."""
    if len(shape) < 2 or shape[1] is not None:
        return shape
    for user in users:
        if user.blobs and user.type in ("Convolution", "InnerProduct"):
            weight = user.blobs[0].shape
            if user.type == "Convolution" and len(weight) == len(shape):
                groups = user.param("convolution").count("group", 1)
                return (shape[0], weight[1] * groups, *shape[2:])
            if user.type == "InnerProduct" and len(shape) == 2 and weight:
                transposed = user.param("inner_product").flag("transpose", False)
                return (shape[0], weight[-2 if transposed and len(weight) > 1 else -1])
    return shape


def _scales(
    layers: Sequence[Layer], reads: Sequence[list[_Blob]], writes: Sequence[list[_Blob]]
) -> dict[int, int]:
    """BatchNorm -> the Scale that belongs to it: the only reader, along the same axis."""
    found = {}
    for place, layer in enumerate(layers):
        if layer.type != "BatchNorm" or len(writes[place]) != 1:
            continue
        readers = writes[place][0].readers
        scale = layers[readers[0]] if len(readers) == 1 else layer
        if scale.type == "Scale" and len(reads[readers[0]]) == 1 and len(writes[readers[0]]) == 1:
            param, norm = scale.param("scale"), layer.param("batch_norm")
            plain = param.integer("axis", 1) == 1 and param.integer("num_axes", 1) == 1
            known = {*norm.fields} <= _OF_NORMS and {*param.fields} <= _OF_SCALES
            if plain and known and norm.flag("use_global_stats", True):
                found[place] = readers[0]
    return found


def _outputs(
    builder: Builder, writes: Sequence[list[_Blob]], silent: set[Port]
) -> tuple[Port, ...]:
    """The outputs: blobs that a layer computes and no other reads, as in Caffe itself."""
    read = {port for node in builder.nodes for port in node.inputs} | silent
    made = {node.name for node in builder.nodes}
    found: dict[Port, None] = {}
    for blobs in writes:
        for blob in blobs:
            if blob.port is not None and blob.port not in read and blob.port[0] in made:
                found[blob.port] = None
    return tuple(found)


def _needed_plumbing(nodes: Sequence[Node], outputs: Sequence[Port]) -> tuple[Node, ...]:
    """The nodes, less what only rearranged data for layers that are left out."""
    read = {name for name, _ in outputs}
    kept = []
    for node in reversed(nodes):
        if not node.plumbing or node.name in read:
            kept.append(node)
            read.update(name for name, _ in node.inputs)
    return tuple(reversed(kept))


def _aliases(layers: Sequence[Layer], builder: Builder) -> dict[str, str]:
    """Blobs that several layers share by a name: one tensor, kept under its first name."""
    used = {name for node in builder.nodes for name in node.params.values()}
    first: dict[str, str] = {}
    aliases = {}
    for layer in layers:
        for index, name in enumerate(layer.shared):
            tensor = layer.tensor(layer.slot(index))
            if name and tensor in used:
                kept = first.setdefault(name, tensor)
                if kept != tensor:
                    aliases[tensor] = kept
    return aliases
