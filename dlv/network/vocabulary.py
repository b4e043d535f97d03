"""The operations a network is written in: variants, attributes with defaults, parameter slots."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from dlv.errors import nearest
from dlv.network.fields import FieldError, Kind, normal


class Default(enum.Enum):
    """Defaults that are not values."""

    REQUIRED = "required"
    FROM_SLOTS = "from slots"  # true if a bias tensor is there


@dataclass(frozen=True)
class Attribute:
    """One attribute: what it holds, what stands for it when it is left out, what it may be."""

    name: str
    kind: Kind
    default: Any = Default.REQUIRED
    nullable: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()  # empty: all
    unless: str | None = None  # null, and not required, where that attribute is given


@dataclass(frozen=True)
class Slot:
    """One parameter tensor; `when` is always, bias (the attribute says so) or optional."""

    name: str
    when: str = "always"
    buffer: bool = False
    variants: tuple[str, ...] = ()


@dataclass(frozen=True)
class Op:
    """One operation. `arity` bounds its inputs; None: any number."""

    name: str
    arity: tuple[int, int | None]
    variants: tuple[str, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    slots: tuple[Slot, ...] = ()

    @property
    def word(self) -> str:
        """What aliases of this operation begin with."""
        return self.name.lower()


A, K = Attribute, Kind
_WINDOWED = ("MAX", "AVG")
_STATISTICS = ("BATCH", "INSTANCE")
_CHANNELS = A("channels", K.TEXT, "first", choices=("first", "last"))
_KERNEL_LAYOUT = A("layout", K.TEXT, "kernel_last", choices=("kernel_last", "kernel_first"))
# One filter bank per channel, kept as (*kernel, channels, multiplier); groups = channels.
_CONV_LAYOUT = A(
    "layout", K.TEXT, "kernel_last", choices=("kernel_last", "kernel_first", "depthwise")
)
_BIAS = A("bias", K.BOOL, Default.FROM_SLOTS)
_P = A("p", K.FLOAT, 0.5, minimum=0, maximum=1)
_NO_DROPOUT = A("p", K.FLOAT, 0.0, minimum=0, maximum=1)
_WEIGHTS = (Slot("weight"), Slot("bias", "bias"))
_CONVOLUTION = (
    A("out", K.INT, minimum=1),
    A("kernel", K.PER_AXIS, minimum=1),
    A("stride", K.PER_AXIS, 1, minimum=1),
    A("pad", K.PAIRS, 0, minimum=0),
    A("dilation", K.PER_AXIS, 1, minimum=1),
    A("groups", K.INT, 1, minimum=1),
    _BIAS,
)
# The scalar or stored side of ADD and MUL; `shape` is that of the tensor in slot `value`.
_SIDE = (A("const", K.FLOAT, None, nullable=True), A("shape", K.SHAPE, None, nullable=True))

_TABLE = (
    Op("INPUT", (0, 0), (), (A("shape", K.SHAPE), A("dtype", K.DTYPE, "float32"))),
    Op("LOSS", (1, None), (), (A("name", K.TEXT, ""),)),
    Op("CONV", (1, 1), (), (*_CONVOLUTION, _CONV_LAYOUT, _CHANNELS), _WEIGHTS),
    Op(
        "DECONV",
        (1, 1),
        (),
        (
            *(*_CONVOLUTION, _KERNEL_LAYOUT, _CHANNELS),
            A("output_pad", K.PER_AXIS, 0, minimum=0),
        ),
        _WEIGHTS,
    ),
    Op(
        "FULL",
        (1, 1),
        (),
        (
            A("out", K.INT, minimum=1),
            _BIAS,
            A("layout", K.TEXT, "out_in", choices=("out_in", "in_out")),
        ),
        _WEIGHTS,
    ),
    Op(
        "EMBED",
        (1, 1),
        (),
        (A("out", K.INT, minimum=1), A("rows", K.INT, minimum=1)),
        (Slot("weight"),),
    ),
    Op(
        "POOL",
        (1, 1),
        ("MAX", "AVG", "MEAN"),
        (
            A("kernel", K.PER_AXIS, minimum=1, variants=_WINDOWED, unless="size"),
            A("stride", K.PER_AXIS, 1, minimum=1, variants=_WINDOWED, unless="size"),
            A("pad", K.PAIRS, 0, minimum=0, variants=_WINDOWED, unless="size"),
            A("dilation", K.PER_AXIS, 1, minimum=1, variants=_WINDOWED, unless="size"),
            A("ceil", K.BOOL, False, variants=_WINDOWED),
            A("count_pad", K.BOOL, True, variants=("AVG",)),
            A("size", K.PER_AXIS_OR_NULL, None, nullable=True, minimum=1, variants=_WINDOWED),
            A("channels", K.TEXT, "first", choices=("first", "last"), variants=_WINDOWED),
            A("axis", K.AXES, None, nullable=True, variants=("MEAN",)),
            A("keep", K.BOOL, False, variants=("MEAN",)),
        ),
    ),
    Op(
        "NORM",
        (1, 1),
        ("BATCH", "LAYER", "RMS", "GROUP", "INSTANCE", "LRN"),
        (
            A("eps", K.FLOAT, 1e-5, minimum=0, variants=("BATCH", "LAYER", "GROUP", "INSTANCE")),
            # RMS without eps: the rounding unit of the dtype at hand.
            A("eps", K.FLOAT, None, nullable=True, minimum=0, variants=("RMS",)),
            A("axis", K.INT, 1, variants=("BATCH", "GROUP", "INSTANCE", "LRN")),
            # The first of the normalised axes, which reach to the last one.
            A("axis", K.INT, -1, variants=("LAYER", "RMS")),
            A("groups", K.INT, minimum=1, variants=("GROUP",)),
            A("momentum", K.FLOAT, 0.1, nullable=True, variants=_STATISTICS),
            A("size", K.INT, 5, minimum=1, variants=("LRN",)),
            A("alpha", K.FLOAT, 1e-4, variants=("LRN",)),
            A("beta", K.FLOAT, 0.75, variants=("LRN",)),
            A("k", K.FLOAT, 1.0, variants=("LRN",)),
        ),
        (
            Slot("weight", "optional", variants=("BATCH", "LAYER", "RMS", "GROUP", "INSTANCE")),
            Slot("bias", "optional", variants=("BATCH", "LAYER", "GROUP", "INSTANCE")),
            Slot("running_mean", "optional", buffer=True, variants=_STATISTICS),
            Slot("running_var", "optional", buffer=True, variants=_STATISTICS),
        ),
    ),
    Op("RELU", (1, 1), (), (A("slope", K.FLOAT, 0.0),)),
    Op(
        "ACT",
        (1, 1),
        ("GELU", "SILU", "SIGMOID", "TANH", "RELU6"),
        (A("approximate", K.TEXT, "none", choices=("none", "tanh"), variants=("GELU",)),),
    ),
    Op("SOFTMAX", (1, 1), (), (A("axis", K.INT, -1), A("log", K.BOOL, False))),
    Op("CONCAT", (1, None), (), (A("axis", K.INT, 1),)),
    Op("DROPOUT", (1, 1), (), (_P,)),
    Op("ADD", (1, None), (), _SIDE, (Slot("value", "optional"),)),
    Op("MUL", (1, None), (), _SIDE, (Slot("value", "optional"),)),
    Op(
        "ATTENTION",
        (3, 4),
        (),
        (
            A("heads", K.INT, None, nullable=True, minimum=1),
            A("causal", K.BOOL, False),
            A("scale", K.FLOAT, None, nullable=True),
            _NO_DROPOUT,
        ),
    ),
    Op(
        "RNN",
        (1, 3),
        ("LSTM", "GRU"),
        (
            A("hidden", K.INT, minimum=1),
            A("layers", K.INT, 1, minimum=1, maximum=1024),
            A("bidirectional", K.BOOL, False),
            A("batch_first", K.BOOL, False),
            _BIAS,
            _NO_DROPOUT,
        ),
    ),
    Op("RESHAPE", (0, None), (), (A("kind", K.TEXT),)),
    Op("OP", (0, None), ("raw",)),
)
OPS: Mapping[str, Op] = {op.name: op for op in _TABLE}

# What RESHAPE nodes of each kind carry besides `kind`.
RESHAPES: Mapping[str, tuple[Attribute, ...]] = {
    "flatten": (A("start", K.INT, 1), A("end", K.INT, -1)),
    "view": (A("size", K.SHAPE),),
    "reshape": (A("size", K.SHAPE),),
    "transpose": (A("axes", K.AXES),),
    "permute": (A("axes", K.AXES),),
    "squeeze": (A("axis", K.AXES, None, nullable=True),),
    "unsqueeze": (A("axis", K.INT),),
    "select": (A("axis", K.INT), A("index", K.INT)),
    "slice": (
        A("axis", K.INT, 0),
        A("start", K.INT, None, nullable=True),
        A("end", K.INT, None, nullable=True),
        A("step", K.INT, 1, minimum=1),
    ),
    "expand": (A("size", K.SHAPE),),
    "split": (A("axis", K.INT, 0), A("sizes", K.INTS, minimum=0)),
    "contiguous": (),
    "to": (A("dtype", K.DTYPE, None, nullable=True),),
    "getitem": (A("index", K.INT, minimum=0),),
    # Numbers about shapes, and tensors filled from such numbers alone: no data flows through.
    "size": (A("axis", K.INT),),
    "arithmetic": (A("operator", K.TEXT),),
    "fill": (A("size", K.SHAPE), A("const", K.FLOAT, 0.0)),
}
SIZE_KINDS = frozenset({"size", "arithmetic", "fill"})


@cache
def _attributes(op: str, variant: str | None, kind: str | None) -> Mapping[str, Attribute]:
    found = {
        attribute.name: attribute
        for attribute in OPS[op].attributes
        if not attribute.variants or variant in attribute.variants
    }
    if op == "RESHAPE" and kind is not None:
        found.update({attribute.name: attribute for attribute in RESHAPES[kind]})
    return found


def attributes(
    op: str, variant: str | None, attrs: Mapping[str, Any] | None = None
) -> Mapping[str, Attribute]:
    """The attributes of an operation; those of a RESHAPE depend on its `kind` in `attrs`."""
    kind = (attrs or {}).get("kind") if op == "RESHAPE" else None
    if op == "RESHAPE" and (not isinstance(kind, str) or kind not in RESHAPES):
        if kind is None:
            return _attributes(op, variant, None)
        raise FieldError(
            f"unknown kind {kind!r} of RESHAPE", did_you_mean=nearest(str(kind), RESHAPES)
        )
    return _attributes(op, variant, kind)


def slots(op: str, variant: str | None, attrs: Mapping[str, Any]) -> tuple[Slot, ...]:
    """The parameter slots that such a node may have, in the order of its definition."""
    if op != "RNN":
        return tuple(
            slot for slot in OPS[op].slots if not slot.variants or variant in slot.variants
        )
    kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ends = ("", "_reverse") if attrs["bidirectional"] else ("",)
    return tuple(
        Slot(f"{kind}_l{layer}{end}", "bias" if kind.startswith("bias") else "always")
        for layer in range(attrs["layers"])
        for end in ends
        for kind in kinds
    )


def axes_of(
    op: str, variant: str | None, given: Mapping[str, Any]
) -> tuple[int | None, tuple[str, ...]]:
    """How many spatial axes the given lists speak of, and which attributes still need it."""
    count: int | None = None
    open_names = []
    for name, attribute in attributes(op, variant, given).items():
        if not attribute.kind.spatial:
            continue
        value = given.get(name)
        if isinstance(value, (list, tuple)):
            count = len(value) if count is None else count
        elif attribute.default is not None or value is not None:
            open_names.append(name)
    return count, tuple(open_names)


def complete(
    op: str,
    variant: str | None,
    given: Mapping[str, Any],
    *,
    axes: int | None = None,
    params: Iterable[str] = (),
) -> dict[str, Any]:
    """All attributes of a node: those given in their normal form, defaults for the rest.

    `axes` is the number of spatial axes, for scalars that stand for all of them; a list
    among the given ones says it too. FieldError names what is wrong.
    """
    known = attributes(op, variant, given)
    if op == "RESHAPE" and given.get("kind") is None:
        raise FieldError("RESHAPE needs the attribute 'kind'", why="one of " + ", ".join(RESHAPES))
    for name in given:
        if name not in known:
            raise FieldError(
                f"unknown attribute {name!r} of {op}", did_you_mean=nearest(name, known)
            )
    listed, _ = axes_of(op, variant, given)
    axes = axes if listed is None else listed
    result: dict[str, Any] = {}
    for name, attribute in known.items():
        value = given.get(name, attribute.default)
        # `size` of an adaptive pool takes the place of the window.
        if attribute.unless and given.get(attribute.unless) is not None:
            if given.get(name) is not None:
                raise FieldError(f"{name!r} and {attribute.unless!r} exclude each other")
            value = None
        elif value is Default.REQUIRED:
            raise FieldError(f"{op} needs the attribute {name!r}")
        elif value is Default.FROM_SLOTS:
            value = any(slot.startswith("bias") for slot in params)
        elif value is None and not attribute.nullable:
            raise FieldError(f"{name!r} may not be null")
        result[name] = None if value is None else normal(attribute.kind, name, value, axes)
        if attribute.choices and value is not None and value not in attribute.choices:
            raise FieldError(
                f"{name!r} is {value!r}",
                why="it is one of " + ", ".join(attribute.choices),
                did_you_mean=nearest(str(value), attribute.choices),
            )
    return result
