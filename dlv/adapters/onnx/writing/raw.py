"""Operations outside the vocabulary: aten calls, and ONNX operators written back as they were."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dlv.adapters.protobuf.reader as protobuf
from dlv.adapters.onnx.graph import NARROW, Graph, Item, Value
from dlv.adapters.onnx.messages import Array, Encoded, Plain
from dlv.adapters.onnx.operators import form, misfit
from dlv.adapters.onnx.results import body_types, result_types
from dlv.adapters.onnx.writing.aten import aten
from dlv.adapters.onnx.writing.source import argument, dialect
from dlv.canonical import NON_FINITE, float_of
from dlv.dtypes import ITEM_BYTES
from dlv.errors import UsageError
from dlv.network.fields import shape as checked_shape
from dlv.network.graph import Node
from dlv.network.sizes import MAX_RANK, Shape, axis_of

OPSET = 21
IR_VERSION = 10
# Newer versions of the format, for operators of theirs: opset -> IR version.
_NEWER = {22: 10, 23: 11, 24: 12, 25: 13, 26: 13, 27: 13, 28: 14}
# The last opset before OPSET in which an operator came to be written in another way.
_CHANGED = {
    **dict.fromkeys(("PRelu",), 7),
    **dict.fromkeys(("BatchNormalization", "Scan"), 9),
    **dict.fromkeys(("Slice", "TopK", "Upsample"), 10),
    **dict.fromkeys(("Clip", "Pad", "Resize", "Scatter"), 11),
    **dict.fromkeys(("Dropout",), 12),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "ReduceSum", "Softmax", "Squeeze", "Unsqueeze"), 13),
    **dict.fromkeys(("RoiAlign",), 16),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"), 18),
    **dict.fromkeys(("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare", "Split"), 18),
    **dict.fromkeys(("DFT", "GridSample"), 20),
    **dict.fromkeys(("GroupNormalization",), 21),
}
_MOST_OUTPUTS = 4096
_CONVERT = "convert the original model: onnx.version_converter, then dlv add it again"
_BODY = protobuf.Schema("GraphProto", {1: "node message*"})
_INNER = protobuf.Schema(
    "NodeProto", {4: "op_type text", 5: "attribute message*", 7: "domain text"}
)
_BODIES = protobuf.Schema("AttributeProto", {6: "g message", 11: "graphs message*"})


def raw(g: Graph, node: Node, inputs: Sequence[Item]) -> Item | Sequence[Item]:
    found, what = dialect(node), (node.source or {}).get("op", "an operation")
    try:
        if found == "aten":
            return aten(g, node, inputs)
        if found == "onnx":
            return _verbatim(g, node, inputs)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Whoever recorded this, it was none of dlv's importers.
        raise UsageError(f"{what} has arguments of wrong kinds", why=str(error)) from error
    raise UsageError(
        f"{what} of {found or 'an unknown dialect'} cannot be written as ONNX",
        hint="replace the node by one of the vocabulary",
    )


def ir_version(opset: int) -> int:
    return _NEWER.get(opset, IR_VERSION)


def _verbatim(g: Graph, node: Node, inputs: Sequence[Item]) -> list[Value]:
    """The operator as its file had it, under this file's version of the format."""
    source = node.source or {}
    domain, _, kind = str(source.get("op")).rpartition("::")
    args, kwargs, count = source.get("args", []), source.get("kwargs", {}), source.get("outputs", 1)
    if not isinstance(args, list) or not isinstance(kwargs, Mapping):
        raise UsageError("its source is no operator")
    if type(count) is not int or not 0 < count <= _MOST_OUTPUTS:
        raise UsageError(f"it has {count!r} outputs")
    version = _settle_version(g, domain, kind, source.get("opset"))
    given = [argument(g, node, inputs, item) for item in args]
    # An operator that is written back takes what it took.
    values = [None if item is None else _plain(g, g.value(item)) for item in given]
    attrs = {name: _attribute(name, item) for name, item in kwargs.items()}
    fault = None if domain else misfit(kind, version, attrs, len(values))
    if fault is not None:
        raise UsageError(
            f"{kind} of opset {source.get('opset')} has no form in opset {version}",
            why=fault,
            hint=_CONVERT,
        )
    for body in _bodies(attrs):
        _check_body(body, int(source.get("opset") or OPSET))
    outer = source.get("captured") or {}
    needs = [_captured(g, name, argument(g, node, inputs, item)) for name, item in outer.items()]
    dtypes = _types(source, domain, kind, attrs, values, count)
    shapes = _shapes(kind if not domain else "", attrs, values, count)
    for place, (_, rank) in enumerate(_results(source, count)):
        if shapes[place] is None and rank is not None and 0 <= rank <= MAX_RANK:
            shapes[place] = (None,) * rank
    made = g.ops(kind, values, list(zip(dtypes, shapes, strict=True)), attrs, domain)
    g.steps[-1].needs = needs
    # Only the runtime knows for sure: nothing is claimed where nothing has to be.
    sure = [dtype for dtype, _ in _results(source, count)]
    g.unsure.update(value.id for value, dtype in zip(made, sure, strict=True) if dtype is None)
    return [g.computed(value) if value.dtype in NARROW else value for value in made]


def _plain(g: Graph, value: Value) -> Value:
    return g.plain.get(value.id, value)


def _settle_version(g: Graph, domain: str, kind: str, given: Any) -> int:
    """Let the file speak the operator's version, or one in which it is still the same."""
    version: int = given if type(given) is int else OPSET if not domain else 1
    found = form(domain, kind, version)
    if not domain and found is not None and version > OPSET:
        version = max(OPSET, found.since)  # since then it is the same
    if domain:
        if g.opsets.setdefault(domain, version) != version:
            raise UsageError(
                f"operators of {domain} in two versions do not go into one file",
                why=f"{g.opsets[domain]} and {version}",
            )
        g.notes[f"{domain} {version} is needed to run {kind}: a runtime must know it"] = None
    elif version > OPSET:
        if version not in _NEWER:
            raise UsageError(
                f"{kind} is of opset {version}, which this dlv does not know",
                why=f"it knows the opsets up to {max(_NEWER)}",
            )
        g.opsets[""] = max(g.opsets.get("", OPSET), version)
    else:
        _check_age(kind, version)
    return version if domain else max(version, OPSET)


def _check_age(kind: str, version: int) -> None:
    if version < _CHANGED.get(kind, 0):
        raise UsageError(
            f"{kind} is of opset {version} and was written in another way"
            f" since opset {_CHANGED[kind]}",
            why=f"the file is of opset {OPSET}",
            hint=_CONVERT,
        )


def _attribute(name: str, item: Any) -> Any:
    if isinstance(item, Mapping):
        if "l" in item and isinstance(item["l"], list):
            return [_attribute(name, each) for each in item["l"]]
        if "c" in item and item["c"] is not None:
            value = item["c"]
            return float_of(value) if isinstance(value, str) and value in NON_FINITE else value
        if isinstance(item.get("graph"), str):
            return Encoded(_decoded(item["graph"]))
        if isinstance(item.get("tensor"), Mapping) and "elements" in item["tensor"]:
            return _tensor(item["tensor"])
        if isinstance(item.get("bytes"), str):
            return _decoded(item["bytes"])
    raise UsageError(
        f"its attribute {name!r} was too large, or of a kind, to be kept in the network",
        hint="export the version's own ONNX file, which has it",
    )


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise UsageError("its source holds bytes that are not written as such") from error


def _tensor(given: Mapping[str, Any]) -> Array:
    data, dtype = _decoded(given["elements"]), str(given.get("dtype"))
    dims = checked_shape(given.get("shape"), "the shape of an attribute")
    shape = tuple(dim for dim in dims if isinstance(dim, int))
    size = ITEM_BYTES.get(dtype, 0)
    for dim in shape:
        size *= dim
    if len(shape) != len(dims) or size != len(data):
        raise UsageError("a tensor in its source is not of its shape's size")
    return Array("", dtype, shape, Plain(data))


def _bodies(attrs: Mapping[str, Any]) -> Iterator[Encoded]:
    for value in attrs.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Encoded):
                yield item


def _check_body(body: Encoded, version: int) -> None:
    """The operators in a graph of its own come under the file's version, too."""
    if version >= OPSET:
        return
    todo = [_message(body)]
    while todo:
        for part in _BODY.read(todo.pop())["node"]:
            inner = _INNER.read(part)
            if not inner["domain"]:
                _check_age(inner["op_type"] or "", version)
            for attribute in inner["attribute"]:
                held = _BODIES.read(attribute)
                todo += [*([held["g"]] if held["g"] is not None else []), *held["graphs"]]


def _captured(g: Graph, name: str, item: Any) -> int:
    """A value of the surrounding graph that its own graphs use by name."""
    value = _plain(g, g.value(item))
    if g.stored.get(g.kept(name)) != value and g.inputs.get(name) != value:
        value = g.op("Identity", [value])
        g.fixed[value.id] = name
    return value.id


def _types(
    source: Mapping[str, Any],
    domain: str,
    kind: str,
    attrs: Mapping[str, Any],
    inputs: Sequence[Value | None],
    count: int,
) -> list[str]:
    """By the operator's schema, else as its file said, else like what goes in."""
    found = form(domain, kind, int(source.get("opset") or OPSET))
    given = [None if value is None else value.dtype for value in inputs]
    body = next(_bodies(attrs), None)
    inner = [] if body is None else body_types(kind, _message(body))
    made = result_types(kind, found, attrs, given, count, inner)
    told = [item[0] for item in _results(source, count)]
    first = next((dtype for dtype in given if dtype), "float32")
    return [type_ or said or first for type_, said in zip(made, told, strict=True)]


def _results(source: Mapping[str, Any], count: int) -> list[tuple[str | None, int | None]]:
    """Dtype and rank of each output, as far as the file said them."""
    listed = source.get("results")
    rows = listed if isinstance(listed, list) and len(listed) == count else [[None, None]] * count
    return [
        (dtype if isinstance(dtype, str) else None, rank if type(rank) is int else None)
        for dtype, rank in rows
    ]


def _message(body: Encoded) -> protobuf.Span:
    return protobuf.message(protobuf.Memory(body.data, "a graph in the network"))


def _shapes(
    kind: str, attrs: Mapping[str, Any], inputs: Sequence[Value | None], count: int
) -> list[Shape | None]:
    """The shapes of several outputs, which a network does not record."""
    shape = inputs[0].shape if inputs and inputs[0] is not None else None
    if shape is None or count == 1:
        return [None] * count
    if kind in ("LSTM", "GRU", "RNN") and len(shape) == 3 and not attrs.get("layout"):
        ways = 2 if attrs.get("direction") == "bidirectional" else 1
        state: Shape = (ways, shape[1], attrs.get("hidden_size"))
        return [(shape[0], *state), *[state] * (count - 1)]
    if kind == "Unique":
        first: Shape = (None,) * (len(shape) if "axis" in attrs else 1)
        return [first, *[(None,)] * (count - 1)]
    axis = attrs.get("axis", 0 if kind == "Split" else -1)
    if kind in ("Split", "TopK") and type(axis) is int:
        place = axis_of(axis, len(shape), "axis")
        return [(*shape[:place], None, *shape[place + 1 :])] * count
    return [None] * count
