"""One ONNX operator while it is translated: its arguments checked, and what comes out."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlv.adapters.onnx.builder import Builder, Cannot, Held
from dlv.adapters.onnx.model import (
    Body,
    Form,
    Opaque,
    Operator,
    bodies_in,
    captured,
    form,
    read_value,
    unknown,
)
from dlv.adapters.onnx.tensors import Stored, dtype_named
from dlv.adapters.onnx.values import Entry, Known, Literal, Sizes, whole_numbers
from dlv.adapters.protobuf import Schema, Span, shortest
from dlv.canonical import hasher, number
from dlv.errors import Damaged, DlvError
from dlv.network.graph import Port
from dlv.network.sizes import MAX_RANK, Shape, ShapeError, broadcast

Type = str | None
_BODY = Schema("GraphProto", {12: "output message*"})


def result_types(
    kind: str,
    known_form: Form | None,
    attrs: Mapping[str, Any],
    inputs: Sequence[Type],
    count: int,
    bodies: Sequence[Type] = (),
) -> list[Type]:
    """A type for each output, None where nothing tells it.

    `attrs` hold numbers and texts as they are, and for tensors something with a `dtype`;
    `bodies`: what the graphs of an If, Loop or Scan give.
    """
    if kind in ("If", "Loop", "Scan", "SequenceMap"):
        return list(bodies) if len(bodies) == count else [None] * count
    if known_form is None:
        return [None] * count
    words = known_form.results[:count]
    words += words[-1:] * (count - len(words))  # as many as there are, all of one kind
    made = [_type(word, attrs, inputs) for word in words]
    if made and made[0] is None:
        made[0] = _special(kind, attrs, inputs)
    return made


def body_types(kind: str, body: Span) -> list[Type]:
    """What the graph of an If, Loop or Scan gives to the outside."""
    if kind not in ("If", "Loop", "Scan", "SequenceMap"):
        return []
    try:
        given = [read_value(part)[1] for part in _BODY.read(body)["output"]]
    except DlvError:  # a type without a rule: leave it undeclared
        return []
    types = [None if value is None else value.dtype for value in given]
    if kind == "SequenceMap":
        return [None if each is None else f"raw:seq({each.removeprefix('raw:')})" for each in types]
    return types[1:] if kind == "Loop" else types  # whether it goes on is its own affair


def _type(words: str, attrs: Mapping[str, Any], inputs: Sequence[Type]) -> Type:
    for word in words.split("|"):
        told: Type = word
        if word.startswith("@"):
            number = attrs.get(word[1:])
            told = dtype_named(number) if type(number) is int and number else None
        elif word.startswith("="):
            told = _type_at(inputs, int(word[1:]))
        elif word == "?":
            told = None
        elif "(" in word:
            told = f"raw:{word}"
        if told is not None:
            return told
    return None


def _type_at(inputs: Sequence[Type], place: int) -> Type:
    return inputs[place] if place < len(inputs) else None


def _special(kind: str, attrs: Mapping[str, Any], inputs: Sequence[Type]) -> Type:
    """What no schema says: types within types, and values of attributes."""
    first = _type_at(inputs, 0)
    if kind in ("Constant", "ConstantOfShape"):
        return _of_value(kind, attrs)
    if kind == "QuantizeLinear":
        return "uint8"
    if kind == "DequantizeLinear":
        return _type_at(inputs, 1)
    if kind == "SequenceEmpty":
        return "raw:seq(float32)"
    if first is None:
        return "raw:STRING" if attrs.get("classlabels_strings") else None
    if kind in ("SplitToSequence", "SequenceConstruct"):
        return f"raw:seq({first.removeprefix('raw:')})"
    if kind in ("SequenceAt", "ConcatFromSequence"):
        return inner(first, "seq")
    if kind == "Optional":
        return f"raw:optional({first.removeprefix('raw:')})"
    if kind == "OptionalGetElement":
        return inner(first, "optional") or first
    if kind.endswith("Classifier"):
        return "raw:STRING" if attrs.get("classlabels_strings") else "int64"
    return None


def _of_value(kind: str, attrs: Mapping[str, Any]) -> Type:
    value = attrs.get("value")
    if value is not None:
        return getattr(value, "dtype", None)
    if kind == "ConstantOfShape" or any(name.startswith("value_float") for name in attrs):
        return "float32"
    if any(name.startswith("value_int") for name in attrs):
        return "int64"
    return "raw:STRING" if any(name.startswith("value_string") for name in attrs) else None


def inner(type_: str, around: str) -> Type:
    """What a sequence or an optional is of."""
    start = f"raw:{around}("
    if not type_.startswith(start):
        return None
    found = type_[len(start) : -1]
    return f"raw:{found}" if "(" in found or found.isupper() else found


# Shapes, where neither the file nor a rule tells them

_SAME = (
    "Acosh Asinh Atanh BatchNormalization Bernoulli BitwiseNot Cast CastLike Celu Clip CumProd"
    " CumSum DequantizeLinear Dropout Elu Erf Exp EyeLike Gelu GroupNormalization HardSigmoid"
    " HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LRN LayerNormalization LeakyRelu"
    " LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg Not PRelu QuantizeLinear"
    " RMSNormalization RandomNormalLike RandomUniformLike Relu ReverseSequence RotaryEmbedding"
    " Round Scatter ScatterElements ScatterND Selu Shrink Sigmoid Sign Softmax Softplus Softsign"
    " Swish Tanh TensorScatter ThresholdedRelu Trilu"
)
_TOGETHER = (
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less"
    " LessOrEqual Max Mean Min Mod Mul Or Pow StringConcat Sub Sum Where Xor"
)
# As many axes as the first input, of lengths that take working out.
_RANKS = (
    "AveragePool Concat Conv ConvInteger ConvTranspose DepthToSpace GlobalAveragePool"
    " GlobalLpPool GlobalMaxPool GridSample LpPool MaxPool MaxUnpool Pad QLinearConv Resize Slice"
    " SpaceToDepth Split Tile TopK Upsample"
)
_FIXED: dict[str, Shape] = {
    "Size": (),
    "SequenceLength": (),
    "OptionalHasElement": (),
    "Range": (None,),
    "Shape": (None,),
    "NonZero": (None, None),
    "NonMaxSuppression": (None, 3),
    "HannWindow": (None,),
    "HammingWindow": (None,),
    "BlackmanWindow": (None,),
    "MelWeightMatrix": (None, None),
}


_HOW = {
    **dict.fromkeys(_SAME.split(), "same"),
    **dict.fromkeys(_TOGETHER.split(), "together"),
    **dict.fromkeys(_RANKS.split(), "rank"),
}


def result_shape(
    kind: str, inputs: Sequence[Shape | None], attrs: Mapping[str, Any]
) -> Shape | None:
    """The shape of the first output; None: not worked out."""
    if kind in _FIXED:
        return _FIXED[kind]
    first, how = inputs[0] if inputs else None, _HOW.get(kind)
    if how == "same":
        return first
    if how == "rank":
        return None if first is None else (None,) * len(first)
    second = inputs[1] if len(inputs) > 1 else None
    if kind in ("Reshape", "Expand"):
        return _listed(kind, first, second)
    if kind in ("Gather", "GatherElements", "GatherND") and first is not None:
        return None if second is None else _looked_up(kind, first, second, attrs)
    if kind.startswith(("Reduce", "Arg")) and first is not None:
        kept = attrs.get("keepdims", 1)
        one = kind.startswith("Arg") and len(first) > 0
        return (None,) * (len(first) - (not kept)) if kept or one else None
    if kind == "OneHot" and first is not None:
        return (None,) * (len(first) + 1)
    if how != "together" or not inputs or None in inputs:
        return None
    try:
        return broadcast([shape for shape in inputs if shape is not None])
    except ShapeError:
        return None


def _looked_up(kind: str, x: Shape, indices: Shape, attrs: Mapping[str, Any]) -> Shape | None:
    """The shape of what stands at the places that indices name."""
    if kind == "GatherElements":
        return indices
    if kind == "Gather":
        axis = attrs.get("axis", 0)
        if type(axis) is not int or not -len(x) <= axis < len(x):
            return None
        return (*x[: axis % len(x)], *indices, *x[axis % len(x) + 1 :])
    depth, lead = indices[-1] if indices else None, attrs.get("batch_dims", 0)
    if not isinstance(depth, int) or type(lead) is not int:
        return None
    return (*indices[:-1], *x[lead + depth :])


def _listed(kind: str, first: Shape | None, lengths: Shape | None) -> Shape | None:
    """As many axes as there are lengths in a list."""
    if lengths is None or len(lengths) != 1 or not isinstance(lengths[0], int):
        return None
    if kind == "Expand" and first is None:
        return None
    axes = max(lengths[0], len(first or ()) if kind == "Expand" else 0)
    return (None,) * axes if axes <= MAX_RANK else None


MOST_BODY_BYTES = 64 << 10
_MOST_TENSOR_BYTES = 4096


def attribute_json(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"l": [attribute_json(item) for item in value]}
    if isinstance(value, float):
        return {"c": number(shortest(value))}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, Body):
        return _body_json(value.span)
    if isinstance(value, Opaque):
        return {"unread": value.kind, "bytes": value.size}
    if isinstance(value, Stored):
        made: dict[str, Any] = {"dtype": value.dtype, "shape": list(value.shape)}
        if value.nbytes <= _MOST_TENSOR_BYTES:
            made["elements"] = base64.b64encode(bytes(value.read())).decode("ascii")
        return {"tensor": made}
    return {"c": value}


def _body_json(span: Span) -> dict[str, Any]:
    size = span.size
    if size > MOST_BODY_BYTES:
        made = hasher()
        for start in range(0, size, 1 << 20):
            made.update(span.file.read(span.offset + start, min(1 << 20, size - start)))
        return {"graph": None, "bytes": size, "blake3": made.hexdigest()}
    return {"graph": base64.b64encode(bytes(span.peek())).decode("ascii")}


WEIGHT_NAME = re.compile(r"(.+?)[._/](?:weight|kernel|gamma|scale|[wW])")
# Slots of tensors in operators that are often met and kept raw.
ARGUMENTS = {
    "LSTM": ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"),
    "GRU": ("X", "W", "R", "B", "sequence_lens", "initial_h"),
    "RNN": ("X", "W", "R", "B", "sequence_lens", "initial_h"),
    "PRelu": ("X", "slope"),
    "Conv": ("X", "W", "B"),
    "ConvTranspose": ("X", "W", "B"),
    "Gemm": ("A", "B", "C"),
    "BatchNormalization": ("X", "scale", "B", "input_mean", "input_var"),
    "InstanceNormalization": ("input", "scale", "B"),
    "LayerNormalization": ("X", "Scale", "B"),
    "GroupNormalization": ("X", "scale", "bias"),
}
# Inputs that are settings, not weights, whatever their dtype.
SETTINGS = {
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "Pad": (1, 2, 3),
    "Clip": (1, 2),
    "Dropout": (1, 2),
    "OneHot": (1, 2),
    "NonMaxSuppression": (2, 3, 4),
    "Range": (0, 1, 2),
}


def aten_source(op: str, *arguments: Any, **named: Any) -> dict[str, Any]:
    """A recorded call of aten; numbers and lists, which are not tagged yet, are tagged here."""
    args = [_tagged(item) for item in arguments]
    kwargs = {name: _tagged(item) for name, item in named.items()}
    return {"dialect": "aten", "op": f"aten.{op}", "args": args, "kwargs": kwargs}


def _tagged(item: Any) -> dict[str, Any]:
    if isinstance(item, dict):
        return item
    return {"l": [_tagged(each) for each in item]} if isinstance(item, list) else {"c": item}


def recurrent_shape(attrs: Mapping[str, Any], shape: Shape) -> Shape:
    """The shape of the states that an LSTM, GRU or RNN gives for a sequence of this shape."""
    ways, hidden = 2 if attrs.get("direction") == "bidirectional" else 1, attrs.get("hidden_size")
    return (*shape[:2], ways, hidden) if attrs.get("layout") else (shape[0], ways, shape[1], hidden)


class Call:
    """`outputs` is what it has to give. `flow`: weights may flow in where data is expected.

    Attributes that no rule has read count as not understood.
    """

    def __init__(
        self, builder: Builder, operator: Operator, outputs: list[str], *, flow: bool = False
    ) -> None:
        self.operator = operator
        self.builder = builder
        self.outputs = outputs
        self.flow = flow
        self.name = ""  # of the node, where it is not what `label` says
        self.version = builder.model.opsets.get(operator.domain, 1)
        self._attributes: set[str] = set()  # that were read
        self._places: set[int] = set()  # of inputs that were read
        # What a raw node takes: tensors that flow in, and those of the file by slot.
        self._ports: list[Port] = []
        self._slots: dict[str, str] = {}

    def settle(self) -> None:
        """Cannot if the operator says anything that the rule has not asked for."""
        operator = self.operator
        found = form(operator.domain, operator.kind, self.version)
        name = unknown(found, operator.attrs, self._attributes)
        if found is None or name is not None:
            raise Cannot(f"{name or 'its version'} is not supported")
        for place, value in enumerate(operator.inputs):
            if value and (place >= found.most or place not in self._places):
                raise Cannot(f"its input {place} is not supported")

    # Inputs

    def has(self, place: int) -> bool:
        return place < len(self.operator.inputs) and bool(self.operator.inputs[place])

    def value(self, place: int) -> str:
        if not self.has(place):
            raise Cannot(f"{self.operator.kind} lacks its input {place}")
        self._places.add(place)
        return self.operator.inputs[place]

    def port(self, place: int) -> Port:
        return self.port_of(self.value(place))

    def port_of(self, value: str) -> Port:
        """Data that flows in."""
        builder = self.builder
        state = builder.states[value]
        if isinstance(state, tuple):
            return state
        if isinstance(state, Sizes):
            if value not in builder.computed:
                self._compute(value)
            return builder.computed[value]
        if isinstance(state, Held) and (state.trainable or state.flipped):
            if not self.flow and not state.flipped:
                raise Cannot(f"a weight flows into {self.operator.kind}")
            return self.flowing(value, state)
        return builder.constant(value)

    def flowing(self, value: str, held: Held) -> Port:
        """A tensor of the file as data, or its transpose: a node that gives it."""
        builder = self.builder
        if value not in builder.computed:
            source, shape = aten_source("alias.default", {"p": "p0"}), held.stored.shape
            if held.flipped:
                source, shape = aten_source("transpose.int", {"p": "p0"}, 0, 1), shape[::-1]
            name = f"{value}.value" if value in builder.graph.stored else value
            params = {"p0": self.tensor(held)}
            made = builder.emit_call(name, source, (), params=params, shape=shape)
            builder.dtypes[made, 0] = held.stored.dtype
            builder.computed[value] = made, 0
        return builder.computed[value]

    def _compute(self, value: str) -> None:
        """Emit what computes a value of which only lengths seemed to be needed."""
        builder, todo = self.builder, [value]
        while todo:
            operator = builder.waiting[todo[-1]]
            missing = [
                name
                for name in operator.inputs
                if isinstance(builder.states.get(name), Sizes) and name not in builder.computed
            ]
            if missing:
                todo.extend(missing)
                continue
            made = todo.pop()
            if made not in builder.computed:
                state = builder.states[made]
                Call(builder, operator, [made]).raw()
                port = builder.states[made]
                assert isinstance(port, tuple)
                builder.computed[made], builder.states[made] = port, state

    def held(self, place: int) -> Held | None:
        state = self.builder.states.get(self.value(place)) if self.has(place) else None
        return state if isinstance(state, Held) else None

    def weight(self, place: int, *, flipped: bool = False) -> str:
        """The name of the tensor that stands at an input."""
        held = self.held(place)
        if held is None or held.flipped != flipped:
            raise Cannot(f"the input {place} of {self.operator.kind} is not a tensor of the file")
        return self.tensor(held)

    def tensor(self, held: Held) -> str:
        self.builder.tensors.setdefault(held.stored.name, held.stored)
        return held.stored.name

    def shape(self, place: int) -> Shape | None:
        return self.builder.shape(self.value(place))

    def rank(self, place: int = 0) -> int:
        shape = self.shape(place)
        if shape is None:
            raise Cannot("the rank is unknown")
        return len(shape)

    def axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise Cannot(f"the axis {axis} does not exist")
        return axis % rank

    def dtype(self, place: int = 0) -> str | None:
        return self.builder.dtype(self.value(place))

    def known(self, place: int) -> Known | None:
        return self.builder.known(self.value(place)) if self.has(place) else None

    def numbers(self, place: int) -> tuple[Any, ...]:
        """Numbers that are written in the file, floats too."""
        held = self.held(place)
        values = held.stored.values() if held is not None and not held.flipped else None
        if values is None:
            item = self.known(place)
            if not isinstance(item, Literal):
                raise Cannot(f"the input {place} is unknown")
            values = item.values
        return values

    def scalar(self, place: int) -> float:
        values = self.numbers(place)
        if len(values) != 1:
            raise Cannot(f"the input {place} is not a single number")
        value = values[0]
        return shortest(value) if isinstance(value, float) else value

    def entries(self, place: int) -> tuple[Entry, ...]:
        """Whole numbers and lengths."""
        item = self.known(place)
        if isinstance(item, Sizes):
            return item.entries
        return tuple(self.whole(place))

    def whole(self, place: int) -> list[int]:
        item = self.known(place)
        if item is None:
            raise Cannot(f"the input {place} is unknown")
        try:
            return list(whole_numbers(item))
        except ValueError:
            raise Cannot(f"the input {place} is not a list of whole numbers") from None

    # Attributes

    def attribute(self, name: str) -> Any:
        """What the file says, of whatever kind; None: nothing."""
        self._attributes.add(name)
        return self.operator.attrs.get(name)

    def idle(self, *names: str) -> None:
        """These make no difference here, whatever they are."""
        self._attributes.update(names)

    def integer(self, name: str, default: int | None = None) -> int:
        return int(self._typed(name, default, int))

    def flag(self, name: str, default: int) -> bool:
        """0 or 1; what any other number means is told differently by everybody."""
        value = self.integer(name, default)
        if value not in (0, 1):
            raise Cannot(f"{name} is {value}")
        return bool(value)

    def decimal(self, name: str, default: float | None = None) -> float:
        return shortest(float(self._typed(name, default, float)))

    def text(self, name: str, default: str | None = None) -> str:
        return str(self._typed(name, default, str))

    def integers(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        found: list[int] = list(self._typed(name, default, list))
        if not all(type(item) is int for item in found):
            raise Cannot(f"{name} are not whole numbers")
        return found

    def _typed(self, name: str, default: Any, kind: type) -> Any:
        value = self.attribute(name)
        value = default if value is None else value
        if value is not default and type(value) is not kind:
            raise Cannot(f"{name} is of a wrong kind")
        if value is None:
            raise Cannot(f"{self.operator.kind} lacks {name}")
        return value

    def axes(self, name: str = "axes", place: int = 1) -> list[int] | None:
        """Axes as an attribute, or since some version as an input; None: not given."""
        if self.attribute(name) is not None:
            return self.integers(name)
        return self.whole(place) if self.has(place) else None

    def reduced_axes(self) -> tuple[list[int] | None, bool]:
        """Axes of a reduction (None: all), and whether they stay with length 1."""
        axes = self.axes()
        noop = self.flag("noop_with_empty_axes", 0)
        if not axes:
            if noop:
                raise Cannot("a reduction over nothing")
            axes = None
        return axes, self.flag("keepdims", 1)

    # What becomes of it

    def label(self, params: Mapping[str, str] | None = None) -> str:
        """Its own name, else that of its weight's module, else that of its output."""
        if self.operator.name:
            return self.operator.name
        for slot in ("weight", "value"):
            found = WEIGHT_NAME.fullmatch((params or {}).get(slot, ""))
            if found and self.builder.free(found[1]):
                return found[1]
        value = next((name for name in self.operator.outputs if name), self.operator.kind)
        while not self.builder.free(value):
            value += "_"
        return value

    def emit(
        self,
        op: str,
        attrs: Mapping[str, Any],
        inputs: Sequence[Port],
        *,
        variant: str | None = None,
        params: Mapping[str, str] | None = None,
        dtype: str | None = None,
    ) -> None:
        """The node that gives the operator's (only) output."""
        label = self.name or self.label(params)
        made = self.builder.emit(label, op, attrs, inputs, variant=variant, params=params)
        self.give((made, 0), dtype=dtype)

    def before(
        self, op: str, attrs: Mapping[str, Any], inputs: Sequence[Port], **more: Any
    ) -> Port:
        """A node on the way to it."""
        kind = attrs.get("kind", op).lower()
        return self.builder.emit(f"{self.label()}.{kind}", op, attrs, inputs, **more), 0

    def give(self, port: Port, shape: Shape | None = None, dtype: str | None = None) -> None:
        self.builder.bind(self.outputs[0], port, shape, dtype)

    # Raw nodes, in the words of aten or of ONNX

    def argument(self, place: int) -> dict[str, Any]:
        """An input as an argument of a recorded call."""
        return self.argument_of(self.value(place))

    def argument_of(self, value: str, slot: str = "") -> dict[str, Any]:
        builder = self.builder
        state = builder.states.get(value)
        if state is None:
            raise Damaged(f"{builder.model.span.file.name} uses {value!r}, which nothing produces")
        if isinstance(state, Held) and (
            state.trainable or state.flipped or state.stored.elements > 4096
        ):
            if state.flipped:
                return self.port_argument(self.flowing(value, state))
            slot = slot or f"p{len(self._slots)}"
            self._slots[slot] = self.tensor(state)
            return {"p": slot}
        return self.port_argument(self.port_of(value))

    def port_argument(self, port: Port) -> dict[str, Any]:
        self._ports.append(port)
        return {"n": len(self._ports) - 1}

    def length_argument(self, entry: Entry) -> dict[str, Any]:
        """A number that is known, or the node that tells it."""
        if isinstance(entry, int):
            return {"c": entry}
        return self.port_argument(self.builder.number(entry))

    def aten(
        self,
        op: str,
        *arguments: Any,
        shape: Shape | None = None,
        dtype: str | None = None,
        keywords: Mapping[str, Any] | None = None,
    ) -> None:
        """Emit the operator as OP in the words of aten.

        So it can be run, and is the same whichever way a model came in.
        """
        self.emit_call(aten_source(op, *arguments, **(keywords or {})), shape, dtype)

    def only_output(self) -> None:
        if any(self.operator.outputs[1:]):
            raise Cannot(f"{self.operator.kind} has several outputs")

    def raw(self) -> None:
        """OP, in the words of ONNX."""
        operator, builder = self.operator, self.builder
        slots = ARGUMENTS.get(operator.kind, ()) if not operator.domain else ()
        settings = SETTINGS.get(operator.kind, ()) if not operator.domain else ()
        args: list[dict[str, Any]] = []
        for place, value in enumerate(operator.inputs):
            if not value:
                args.append({"c": None})
            elif place in settings and self._written(value):
                args.append(self.port_argument(builder.constant(value)))
            else:
                args.append(self.argument_of(value, slots[place] if place < len(slots) else ""))
        kwargs = {name: attribute_json(value) for name, value in operator.attrs.items()}
        bodies = [body for value in operator.attrs.values() for body in bodies_in(value)]
        source: dict[str, Any] = {
            "dialect": "onnx",
            "op": operator.full_kind,
            "args": args,
            "kwargs": kwargs,
            "opset": self.version,
            "outputs": len(operator.outputs),
        }
        types = self._types(bodies)
        results = self._results(types)
        if results:
            source["results"] = results
        if bodies:
            names = [name for name in captured(bodies) if name in builder.states]
            source["captured"] = {name: self.argument_of(name) for name in names}
            builder.notes[
                f"{operator.kind} {self.label()!r} contains graphs of its own: their layers and"
                " weights stay in the file"
            ] = None
        kind = operator.full_kind
        builder.raw_kinds[kind] = builder.raw_kinds.get(kind, 0) + 1
        self.emit_call(source, self._sequence(), types=types)

    def _results(self, types: Sequence[str | None]) -> list[list[Any]]:
        """Dtypes and ranks that a reader of the node could not find out; none: it can."""
        said = [self.builder.graph.values.get(name) for name in self.operator.outputs]
        if len(types) == 1 and types[0] is not None:
            return []
        found = [
            [type_ or (v.dtype if v else None), len(v.shape) if v and v.shape is not None else None]
            for type_, v in zip(types, said, strict=True)
        ]
        return found if any(map(any, found)) else []

    def _types(self, bodies: Sequence[Body]) -> list[str | None]:
        operator, builder = self.operator, self.builder
        found = form(operator.domain, operator.kind, self.version)
        inputs = [builder.dtype(name) if name else None for name in operator.inputs]
        inner = body_types(operator.kind, bodies[0].span) if bodies else []
        count = len(operator.outputs)
        return result_types(operator.kind, found, operator.attrs, inputs, count, inner)

    def _written(self, value: str) -> bool:
        state = self.builder.states.get(value)
        return isinstance(state, Held) and not state.flipped

    def _sequence(self) -> Shape | None:
        """What a recurrent operator gives; the file often does not say it."""
        operator, hidden = self.operator, self.operator.attrs.get("hidden_size")
        recurrent = operator.kind in ("LSTM", "GRU", "RNN") and not operator.domain
        if not recurrent or type(hidden) is not int or not self.has(0):
            return None
        shape = self.shape(0)
        if shape is None or len(shape) != 3:
            return None
        return recurrent_shape(operator.attrs, shape)

    def emit_call(
        self,
        source: Mapping[str, Any],
        shape: Shape | None = None,
        dtype: str | None = None,
        types: Sequence[str | None] = (),
    ) -> None:
        builder, operator = self.builder, self.operator
        wanted = [(place, name) for place, name in enumerate(operator.outputs) if name]
        said = builder.graph.values.get(self.outputs[0] if self.outputs else "")
        if shape is None and said is not None:
            shape = said.shape
        if shape is None and source["dialect"] == "onnx" and not operator.domain:
            shapes = [builder.shape(name) if name else () for name in operator.inputs]
            shape = result_shape(operator.kind, shapes, operator.attrs)
        made = self.call_node(source, shape)
        if len(wanted) == 1 and len(operator.outputs) == 1:
            builder.bind(self.outputs[0], (made, 0), shape, dtype or (types[0] if types else None))
            return
        for place, value in wanted:
            attrs = {"kind": "getitem", "index": place}
            item = builder.emit(f"{made}.{place}", "RESHAPE", attrs, [(made, 0)])
            builder.dtypes.pop((item, 0), None)
            builder.bind(value, (item, 0), None, types[place] if types else None)

    def call_node(self, source: Mapping[str, Any], shape: Shape | None) -> str:
        """The node of a recorded call whose arguments are all read."""
        label, ports, slots = self.label(), self._ports, self._slots
        return self.builder.emit_call(label, source, ports, params=slots, shape=shape)


# What reads one kind of operator.
Reader = Callable[[Call], None]
