"""A Caffe network as a list of layers: one spelling for all its dialects, one phase chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dlv.adapters.caffe.schema import (
    MOST_AXES,
    MOST_ELEMENTS,
    MOST_LAYERS,
    PARAMETERS,
    V1_NAMES,
    V1_TO_V2,
    Blob,
)
from dlv.adapters.names import FreeNames
from dlv.adapters.protobuf.message import Message, Word
from dlv.errors import Damaged, UnsafeInput, UsageError
from dlv.network.sizes import Shape

PHASES = ("TRAIN", "TEST")
# Layers that bring data from outside; in parts of Caffe that people add, a name says it.
_DATA = {"DummyData", "Input"}
_MOST_NAMES = 10_000  # bottoms or tops of one layer

# Which program computes a layer, and of its gradients; what data are made of, and losses.
_HARMLESS = ("engine", "force_nd_im2col", "stable_prod_grad")
_NOT_ITS_OWN = ("transform_param", "loss_param")
_OF_LAYERS = frozenset(
    (
        *("name", "type", "bottom", "top", "include", "exclude", "phase", "loss_weight", "param"),
        *("blobs", "blobs_lr", "weight_decay", "blob_share_mode", "propagate_down", "layer"),
    )
)

# What the blobs of a layer are called, in their order; others are `blob0`, `blob1` and so on.
SLOTS = {
    "Convolution": ("weight", "bias"),
    "Deconvolution": ("weight", "bias"),
    "InnerProduct": ("weight", "bias"),
    "Embed": ("weight", "bias"),
    "Scale": ("weight", "bias"),
    "Bias": ("bias",),
    "PReLU": ("weight",),
}


@dataclass
class Layer:
    """A layer; `name` is the only one of its kind, `type` spelt as in `layer`."""

    name: str
    type: str
    bottoms: list[str]
    tops: list[str]
    body: Message
    shared: list[str] = field(default_factory=list)  # names of its blobs that others share
    blobs: list[Blob] = field(default_factory=list)

    def param(self, name: str | None = None) -> Message:
        """Its own parameters: `convolution_param` of a Convolution."""
        return self.body.message(f"{name}_param")

    def not_understood(self) -> str | None:
        """A field of its own that no reader asked for, and that may change what it computes."""
        for name in self.body.fields:
            if name.endswith("_param") and name not in _NOT_ITS_OWN:
                if name not in PARAMETERS:
                    return name
                for message in self.body.messages(name) if name in self.body.asked else ():
                    for field in message.left:
                        if not field.endswith("filler") and field not in _HARMLESS:
                            return f"{name}.{field}"
            elif name not in _OF_LAYERS and not name.endswith("_param"):
                return name
        return None

    def where(self) -> str:
        return f"{self.body.at()}: the layer {self.name!r}"

    def slot(self, index: int) -> str:
        names = SLOTS.get(self.type, ())
        return names[index] if index < len(names) else f"blob{index}"

    def tensor(self, slot: str) -> str:
        return f"{self.name}.{slot}"


@dataclass
class Spec:
    """What the file says, in the order in which it says it."""

    inputs: list[tuple[str, Shape | None, bool]]  # blob, shape, whether people hand it in
    layers: list[Layer]
    left: list[Layer]  # those of the other phase
    every: list[Layer]  # both


def read_spec(net: Message, blobs: Sequence[list[Blob]] = ()) -> Spec:
    """The layers of the phase that computes outputs: TEST, unless the file says another."""
    found, old = net.messages("layer"), net.messages("layers")
    if found and old:
        raise Damaged(f"{net.file} mixes `layer` and `layers`")
    if not found and not old:
        raise UsageError(f"{net.file} holds no layers", hint="dlv add --as file keeps it as it is")
    if len(found) + len(old) > MOST_LAYERS:
        raise UnsafeInput(f"{net.file} holds too many layers", why=f"the limit is {MOST_LAYERS}")
    state = net.message("state")
    meets = _rules(state.word("phase", PHASES, "TEST"), state)
    spec = Spec(_inputs(net), [], [], [])
    names = FreeNames()
    for index, body in enumerate(found or old):
        layer = _layer(body, old=bool(old))
        layer.blobs = list(blobs[index]) if index < len(blobs) else []
        (spec.layers if _included(body, meets) else spec.left).append(layer)
        spec.every.append(layer)
    if not spec.layers:
        raise UsageError(f"{net.file} holds no layers of the phase that is run")
    # The network's own first: the same names, whatever else is in the file.
    for layer in (*spec.layers, *spec.left):
        layer.name = names.take(layer.name)
    return spec


def is_data(layer: Layer) -> bool:
    if layer.type in _DATA:
        return True
    return not layer.bottoms and (layer.type.endswith("Data") or layer.type == "Python")


def _layer(body: Message, *, old: bool) -> Layer:
    if old and "layer" in body:
        raise UsageError(
            f"{body.at()}: this is Caffe's form of 2013, which dlv does not read",
            hint="rewrite it with Caffe's upgrade_net_proto_text or upgrade_net_proto_binary",
        )
    type_ = _type(body)
    name = _name(body, body.text("name")) if body.text("name") else type_.lower()
    layer = Layer(name, type_, _names(body, "bottom"), _names(body, "top"), body)
    if old:
        layer.shared = body.texts("param")
    else:
        layer.shared = [param.text("name") for param in body.messages("param")]
    return layer


def _type(body: Message) -> str:
    values = body.fields.get("type", [])
    if len(values) == 1:
        value = values[0]
        if isinstance(value, Word):
            return V1_TO_V2.get(value) or _camel(value)
        if type(value) is int and 0 < value < len(V1_NAMES):
            return V1_TO_V2[V1_NAMES[value]]
        if isinstance(value, str) and value:
            return _name(body, value)
        if type(value) is int:
            return f"V1_{value}"
    raise Damaged(f"{body.at()}: a layer has no type", why=f"name: {body.text('name')!r}")


def _camel(word: str) -> str:
    return "".join(part.capitalize() for part in word.split("_")) or word


def _name(body: Message, name: str) -> str:
    if not name or "\0" in name:
        raise UnsafeInput(f"{body.at()}: {name!r} is no name", why="empty, or with a NUL")
    return name


def _names(body: Message, kind: str) -> list[str]:
    found = body.texts(kind)
    if len(found) > _MOST_NAMES:
        raise UnsafeInput(f"{body.at()}: too many of {kind}", why=f"{len(found)}")
    return [_name(body, name) for name in found]


def _rules(phase: str, state: Message) -> Callable[[Message], bool]:
    """Whether the state of the network meets a rule."""
    level, stages = state.integer("level", 0), set(state.texts("stage"))

    def meets(rule: Message) -> bool:
        return (
            rule.word("phase", PHASES, phase) == phase
            and rule.integer("min_level", level) <= level <= rule.integer("max_level", level)
            and stages.issuperset(rule.texts("stage"))
            and stages.isdisjoint(rule.texts("not_stage"))
        )

    return meets


def _included(body: Message, meets: Callable[[Message], bool]) -> bool:
    include, exclude = body.messages("include"), body.messages("exclude")
    if include and exclude:
        raise Damaged(f"{body.at()}: a layer has rules to include and to exclude it")
    if include:
        return any(map(meets, include))
    return not any(map(meets, exclude))


def shape_of(message: Message) -> Shape:
    """`dim: 1 dim: 3`, as far as Caffe itself would take it."""
    return checked(message, message.integers("dim", 0))


def checked(message: Message, sides: Sequence[int]) -> Shape:
    elements = 1
    for side in sides:
        elements *= max(side, 1)
        if elements > MOST_ELEMENTS or len(sides) > MOST_AXES:
            raise UnsafeInput(
                f"{message.at()}: the shape {list(sides)[:8]} is too large",
                why=f"the limit is {MOST_ELEMENTS} elements and {MOST_AXES} axes",
            )
    return tuple(sides)


def _inputs(net: Message) -> list[tuple[str, Shape | None, bool]]:
    """The old way to name inputs, beside the layers."""
    names = _names(net, "input")
    shapes = [shape_of(message) for message in net.messages("input_shape")]
    dims = net.integers("input_dim", 0)
    if dims and not shapes:
        if len(dims) != 4 * len(names):
            raise Damaged(
                f"{net.at('input_dim')}: input_dim is there {len(dims)} times",
                why=f"there are {len(names)} inputs, with four each",
            )
        shapes = [checked(net, dims[at : at + 4]) for at in range(0, len(dims), 4)]
    if shapes and len(shapes) != len(names):
        raise Damaged(f"{net.file} has {len(names)} inputs and {len(shapes)} shapes of inputs")
    return [(name, shapes[at] if shapes else None, True) for at, name in enumerate(names)]
