"""A Caffe network as a list of layers: one spelling for all its dialects, one phase chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from dlv.adapters.protobuf import Message, Schema, Span, Word
from dlv.dataclass import dataclass
from dlv.errors import Damaged, UnsafeInput, UsageError
from dlv.network.order import FreeNames
from dlv.network.sizes import Shape

MOST_LAYERS = 20_000
MOST_BLOBS = 100
MOST_AXES = 32  # as in Caffe
MOST_ELEMENTS = (1 << 31) - 1  # as in Caffe
MOST_FIELDS = 300_000

# Message -> number -> "name kind"; `kind` as in `protobuf.Schema`, or the name of a message
# or of an enum.
_RULE = {1: "phase Phase", 2: "min_level int32", 3: "max_level int32", 4: "stage text*"}
_FIELDS: dict[str, dict[int, str]] = {
    "Shape": {1: "dim int*"},
    "State": {1: "phase Phase", 2: "level int32", 3: "stage text*"},
    "Rule": {**_RULE, 5: "not_stage text*"},
    "Param": {1: "name text"},
    "transform_param": {
        3: "crop_size uint",
        5: "mean_value float*",
        6: "force_color bool",
        7: "force_gray bool",
    },
    "concat_param": {1: "concat_dim uint", 2: "axis int32"},
    "convolution_param": {
        1: "num_output uint",
        2: "bias_term bool",
        3: "pad uint*",
        4: "kernel_size uint*",
        5: "group uint",
        6: "stride uint*",
        9: "pad_h uint",
        10: "pad_w uint",
        11: "kernel_h uint",
        12: "kernel_w uint",
        13: "stride_h uint",
        14: "stride_w uint",
        16: "axis int32",
        18: "dilation uint*",
    },
    "data_param": {4: "batch_size uint", 5: "crop_size uint"},
    "dropout_param": {1: "dropout_ratio float"},
    "dummy_data_param": {
        2: "num uint*",
        3: "channels uint*",
        4: "height uint*",
        5: "width uint*",
        6: "shape Shape*",
    },
    "eltwise_param": {1: "operation Eltwise", 2: "coeff float*"},
    "exp_param": {1: "base float", 2: "scale float", 3: "shift float"},
    "image_data_param": {
        4: "batch_size uint",
        5: "crop_size uint",
        9: "new_height uint",
        10: "new_width uint",
        11: "is_color bool",
    },
    "inner_product_param": {
        1: "num_output uint",
        2: "bias_term bool",
        5: "axis int32",
        6: "transpose bool",
    },
    "lrn_param": {
        1: "local_size uint",
        2: "alpha float",
        3: "beta float",
        4: "norm_region Region",
        5: "k float",
    },
    "memory_data_param": {
        1: "batch_size uint",
        2: "channels uint",
        3: "height uint",
        4: "width uint",
    },
    "mvn_param": {1: "normalize_variance bool", 2: "across_channels bool", 3: "eps float"},
    "pooling_param": {
        1: "pool Pool",
        2: "kernel_size uint",
        3: "stride uint",
        4: "pad uint",
        5: "kernel_h uint",
        6: "kernel_w uint",
        7: "stride_h uint",
        8: "stride_w uint",
        9: "pad_h uint",
        10: "pad_w uint",
        12: "global_pooling bool",
        13: "round_mode Rounding",
    },
    "power_param": {1: "power float", 2: "scale float", 3: "shift float"},
    "relu_param": {1: "negative_slope float"},
    "softmax_param": {2: "axis int32"},
    "slice_param": {1: "slice_dim uint", 2: "slice_point uint*", 3: "axis int32"},
    "threshold_param": {1: "threshold float"},
    "window_data_param": {4: "batch_size uint", 5: "crop_size uint"},
    "python_param": {1: "module text", 2: "layer text", 3: "param_str text"},
    "prelu_param": {2: "channel_shared bool"},
    "spp_param": {1: "pyramid_height uint", 2: "pool Pool"},
    "reshape_param": {1: "shape Shape", 2: "axis int32", 3: "num_axes int32"},
    "log_param": {1: "base float", 2: "scale float", 3: "shift float"},
    "flatten_param": {1: "axis int32", 2: "end_axis int32"},
    "reduction_param": {1: "operation Reduction", 2: "axis int32", 3: "coeff float"},
    "embed_param": {1: "num_output uint", 2: "input_dim uint", 3: "bias_term bool"},
    "tile_param": {1: "axis int32", 2: "tiles int32"},
    "batch_norm_param": {
        1: "use_global_stats bool",
        2: "moving_average_fraction float",
        3: "eps float",
    },
    "elu_param": {1: "alpha float"},
    "bias_param": {1: "axis int32", 2: "num_axes int32"},
    "scale_param": {1: "axis int32", 2: "num_axes int32", 4: "bias_term bool"},
    "input_param": {1: "shape Shape*"},
    "crop_param": {1: "axis int32", 2: "offset uint*"},
    "parameter_param": {1: "shape Shape"},
    "recurrent_param": {1: "num_output uint", 5: "expose_hidden bool"},
    "argmax_param": {1: "out_max_val bool", 2: "top_k uint", 3: "axis int32"},
    "swish_param": {1: "beta float"},
    "clip_param": {1: "min float", 2: "max float"},
    "permute_param": {1: "order uint*"},  # of the SSD branch
}

# Enum -> its values from 0 on.
ENUMS = {
    "Phase": ("TRAIN", "TEST"),
    "Eltwise": ("PROD", "SUM", "MAX"),
    "Region": ("ACROSS_CHANNELS", "WITHIN_CHANNEL"),
    "Pool": ("MAX", "AVE", "STOCHASTIC"),
    "Rounding": ("CEIL", "FLOOR"),
    "Reduction": ("", "SUM", "ASUM", "SUMSQ", "MEAN"),
}

# The types of the old `layers` by number, with what `layer` calls them.
TYPES_V1 = (
    "NONE= ACCURACY=Accuracy BNLL=BNLL CONCAT=Concat CONVOLUTION=Convolution DATA=Data"
    " DROPOUT=Dropout EUCLIDEAN_LOSS=EuclideanLoss FLATTEN=Flatten HDF5_DATA=HDF5Data"
    " HDF5_OUTPUT=HDF5Output IM2COL=Im2col IMAGE_DATA=ImageData INFOGAIN_LOSS=InfogainLoss"
    " INNER_PRODUCT=InnerProduct LRN=LRN"
    " MULTINOMIAL_LOGISTIC_LOSS=MultinomialLogisticLoss POOLING=Pooling RELU=ReLU"
    " SIGMOID=Sigmoid SOFTMAX=Softmax SOFTMAX_LOSS=SoftmaxWithLoss SPLIT=Split TANH=TanH"
    " WINDOW_DATA=WindowData ELTWISE=Eltwise POWER=Power"
    " SIGMOID_CROSS_ENTROPY_LOSS=SigmoidCrossEntropyLoss HINGE_LOSS=HingeLoss"
    " MEMORY_DATA=MemoryData ARGMAX=ArgMax THRESHOLD=Threshold DUMMY_DATA=DummyData SLICE=Slice"
    " MVN=MVN ABSVAL=AbsVal SILENCE=Silence CONTRASTIVE_LOSS=ContrastiveLoss EXP=Exp"
    " DECONVOLUTION=Deconvolution"
)
V1_NAMES = tuple(pair.partition("=")[0] for pair in TYPES_V1.split())
V1_TO_V2 = dict(pair.split("=") for pair in TYPES_V1.split())

_PARAMS_V2 = {
    100: "transform",
    103: "argmax",
    104: "concat",
    106: "convolution",
    107: "data",
    108: "dropout",
    109: "dummy_data",
    110: "eltwise",
    111: "exp",
    115: "image_data",
    117: "inner_product",
    118: "lrn",
    119: "memory_data",
    120: "mvn",
    121: "pooling",
    122: "power",
    123: "relu",
    125: "softmax",
    126: "slice",
    128: "threshold",
    129: "window_data",
    130: "python",
    131: "prelu",
    132: "spp",
    133: "reshape",
    134: "log",
    135: "flatten",
    136: "reduction",
    137: "embed",
    138: "tile",
    139: "batch_norm",
    140: "elu",
    141: "bias",
    142: "scale",
    143: "input",
    144: "crop",
    145: "parameter",
    146: "recurrent",
    147: "swish",
    148: "clip",
    202: "permute",
}
_PARAMS_V1 = {
    9: "concat",
    10: "convolution",
    11: "data",
    12: "dropout",
    15: "image_data",
    17: "inner_product",
    18: "lrn",
    19: "pooling",
    20: "window_data",
    21: "power",
    22: "memory_data",
    23: "argmax",
    24: "eltwise",
    25: "threshold",
    26: "dummy_data",
    30: "relu",
    31: "slice",
    34: "mvn",
    36: "transform",
    39: "softmax",
    41: "exp",
}

_FIELDS["Layer"] = {
    1: "name text",
    2: "type text",
    3: "bottom text*",
    4: "top text*",
    6: "param Param*",
    7: "blobs message*",
    8: "include Rule*",
    9: "exclude Rule*",
    **{number: f"{name}_param {name}_param" for number, name in _PARAMS_V2.items()},
}
_FIELDS["LayerV1"] = {
    1: "layer message",
    2: "bottom text*",
    3: "top text*",
    4: "name text",
    5: "type Type",
    6: "blobs message*",
    32: "include Rule*",
    33: "exclude Rule*",
    1001: "param text*",
    **{number: f"{name}_param {name}_param" for number, name in _PARAMS_V1.items()},
}
_FIELDS["Net"] = {
    1: "name text",
    2: "layers LayerV1*",
    3: "input text*",
    4: "input_dim int*",
    6: "state State",
    8: "input_shape Shape*",
    100: "layer Layer*",
}
ENUMS["Type"] = V1_NAMES
_BLOB = Schema(
    "BlobProto",
    {
        1: "num int32",
        2: "channels int32",
        3: "height int32",
        4: "width int32",
        5: "data fixed32s",
        6: "diff fixed32s",
        7: "shape message",
        8: "double_data fixed64s",
        9: "double_diff fixed64s",
    },
)


def _schema(name: str) -> tuple[Schema, dict[str, tuple[str, bool]]]:
    """What the reader of bytes needs, and the fields that are messages or enums of ours."""
    plain, ours = {}, {}
    for number, text in _FIELDS[name].items():
        field, kind = text.split()
        bare = kind.removesuffix("*")
        if bare in _FIELDS:
            ours[field] = bare, True
            kind = kind.replace(bare, "message")
        elif bare in ENUMS:
            ours[field] = bare, False
            kind = "int32"
        plain[number] = f"{field} {kind}"
    return Schema(name, plain), ours


PARAMETERS = frozenset(name for name in _FIELDS if name.endswith("_param"))
_SCHEMAS = {name: _schema(name) for name in _FIELDS}


# Fields by number that say nothing about what a layer computes: fillers, which program runs it.
_IGNORED = {
    "bias_param": {3}, "convolution_param": {7, 8, 15, 17}, "eltwise_param": {3},
    "embed_param": {4, 5}, "inner_product_param": {3, 4}, "lrn_param": {6},
    "pooling_param": {11}, "prelu_param": {1}, "relu_param": {2}, "scale_param": {3, 5},
    "softmax_param": {1},
}  # fmt: skip


@dataclass(frozen=True)
class Blob:
    """The weights of a layer as the file has them; `spans` say where their bytes lie."""

    dtype: str
    shape: tuple[int, ...]
    legacy: bool  # four axes whatever it holds, filled up with ones in front
    spans: tuple[Span, ...]
    gradient: tuple[Span, ...]

    @property
    def nbytes(self) -> int:
        return sum(span.size for span in self.spans)


def read_net(root: Span) -> tuple[Message, list[list[Blob]]]:
    """The network of a file, and the blobs of each layer, in the same order."""
    blobs: list[list[Blob]] = []
    net = _read("Net", root, blobs)
    if len(blobs) > MOST_LAYERS:
        raise UnsafeInput(f"{root.file.name} has too many layers", why=f"{len(blobs)}")
    return net, blobs


def _read(name: str, span: Span, blobs: list[list[Blob]]) -> Message:
    """As deep as the table of messages, whatever the file is like."""
    schema, ours = _SCHEMAS[name]
    result = Message(span.file.name)
    if name.endswith("_param"):  # an unknown parameter message is reported, not skipped
        for number, _, _ in span.fields():
            if number not in _FIELDS[name] and number not in _IGNORED.get(name, ()):
                result.add(f"field_{number}", number)
    for key, found in schema.read(span).items():
        values = found if isinstance(found, list) else [] if found is None else [found]
        if key == "blobs":
            if len(values) > MOST_BLOBS:
                raise UnsafeInput(f"{span.file.name} is corrupt", why=f"{len(values)} blobs")
            blobs.append([_blob(value) for value in values])
            continue
        kind, is_message = ours.get(key, ("", False))
        for value in values:
            if is_message:
                value = _read(kind, value, blobs)
            elif kind and 0 <= value < len(ENUMS[kind]):
                value = Word(ENUMS[kind][value])
            elif isinstance(value, Span):
                value = Message(span.file.name)  # of the oldest form, which is refused later
            result.add(key, value)
    return result


def _blob(span: Span) -> Blob:
    found = _BLOB.read(span)
    problem = f"{span.file.name} is wrong at byte {span.offset}"
    double = bool(found["double_data"])
    if double and found["data"]:
        raise Damaged(problem, why="a blob of two types")
    shape, legacy = _shape(found, problem)
    elements = math.prod(shape)
    spans = found["double_data" if double else "data"]
    gradient = found["double_diff" if double else "diff"]
    for label, given in (("numbers", spans), ("gradients", gradient)):
        size = sum(item.size for item in given)
        if size != elements * (8 if double else 4) and (given or label == "numbers"):
            raise Damaged(
                problem, why=f"a blob has the shape {list(shape)}, and {size} bytes of {label}"
            )
    return Blob("float64" if double else "float32", shape, legacy, tuple(spans), tuple(gradient))


def _shape(fields: Mapping[str, Any], problem: str) -> tuple[tuple[int, ...], bool]:
    old = [fields[name] for name in ("num", "channels", "height", "width")]
    legacy = fields["shape"] is None and any(side is not None for side in old)
    if legacy:
        sides: Iterable[int] = [side or 0 for side in old]
    elif fields["shape"] is None:
        sides = []
    else:
        sides = _SCHEMAS["Shape"][0].read(fields["shape"])["dim"]
    shape = tuple(sides)
    if len(shape) > MOST_AXES:
        raise UnsafeInput(problem, why=f"a blob with {len(shape)} axes")
    elements = 1
    for side in shape:
        elements *= max(side, 1)
        if side < 0 or elements > MOST_ELEMENTS:
            raise UnsafeInput(problem, why=f"a blob with the shape {list(shape)[:8]}")
    return shape, legacy


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
        return f"{self.body.place()}: the layer {self.name!r}"

    def slot(self, index: int) -> str:
        names = SLOTS.get(self.type, ())
        return names[index] if index < len(names) else f"blob{index}"

    def tensor(self, slot: str) -> str:
        return f"{self.name}.{slot}"


@dataclass
class Spec:
    """A network as its file states it, in the file's order."""

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
        raise UsageError(f"{net.file} has no layers", hint="dlv add --as file keeps it as it is")
    if len(found) + len(old) > MOST_LAYERS:
        raise UnsafeInput(f"{net.file} has too many layers", why=f"the limit is {MOST_LAYERS}")
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
        raise UsageError(f"{net.file} has no layers of the phase that is run")
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
            f"{body.place()}: this is Caffe's form of 2013, which dlv does not read",
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
            words = "".join(part.capitalize() for part in value.split("_"))
            return V1_TO_V2.get(value) or words or value
        if type(value) is int and 0 < value < len(V1_NAMES):
            return V1_TO_V2[V1_NAMES[value]]
        if isinstance(value, str) and value:
            return _name(body, value)
        if type(value) is int:
            return f"V1_{value}"
    raise Damaged(f"{body.place()}: a layer has no type", why=f"name: {body.text('name')!r}")


def _name(body: Message, name: str) -> str:
    if not name or "\0" in name:
        raise UnsafeInput(f"{body.place()}: {name!r} is not a name", why="empty, or with a NUL")
    return name


def _names(body: Message, kind: str) -> list[str]:
    found = body.texts(kind)
    if len(found) > _MOST_NAMES:
        raise UnsafeInput(f"{body.place()}: too many of {kind}", why=f"{len(found)}")
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
        raise Damaged(f"{body.place()}: a layer has rules to include and to exclude it")
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
                f"{message.place()}: the shape {list(sides)[:8]} is too large",
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
                f"{net.place('input_dim')}: input_dim is there {len(dims)} times",
                why=f"there are {len(names)} inputs, with four each",
            )
        shapes = [checked(net, dims[at : at + 4]) for at in range(0, len(dims), 4)]
    if shapes and len(shapes) != len(names):
        raise Damaged(f"{net.file} has {len(names)} inputs and {len(shapes)} shapes of inputs")
    return [(name, shapes[at] if shapes else None, True) for at, name in enumerate(names)]
