"""What an ONNX file says, as plain records: model, graph, operators. Nothing is interpreted.

`Form` is what an operator takes and gives in a version, from operators.json, which
tools/onnx_operators.py writes from the schemas of the onnx package.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from dlv.adapters.onnx.tensors import MOST_DIMENSIONS, External, Stored, dtype_of, read_tensor
from dlv.adapters.protobuf import Schema, Span, message
from dlv.adapters.source import Source
from dlv.dataclass import dataclass
from dlv.errors import Damaged, NewerFormat, UnsafeInput
from dlv.network.fields import LARGEST
from dlv.network.sizes import Dim, Shape

# Operators of later opsets have not been reviewed.
NEWEST_OPSET = 28
_NEWEST = {"": NEWEST_OPSET}
# How runtimes of 2017 shared memory; it changes no number.
_IDLE = frozenset(("consumed_inputs",))


@dataclass(frozen=True)
class Form:
    """An operator since a version. `attributes`: kind and, where there is one, default.

    `results`: of each output what tells its dtype, in this order: `@name` an attribute, `=0` an
    input, or a dtype; `?` where nothing does.
    """

    since: int
    least: int
    most: int
    outputs: int
    attributes: Mapping[str, list[Any]]
    results: list[str]


@cache
def _table() -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = json.loads(
        Path(__file__).with_name("operators.json").read_bytes()
    )
    return found


@lru_cache(4096)  # kinds and domains are any text that a file holds
def form(domain: str, kind: str, version: int) -> Form | None:
    """The operator in that version of its domain; None: it is not known in it."""
    if version > _NEWEST.get(domain, version):
        return None
    name = f"{domain}::{kind}" if domain else kind
    rows = [row for row in _table().get(name, ()) if row[0] <= version]
    return Form(*rows[-1]) if rows and len(rows[-1]) > 1 else None


def unknown(
    known_form: Form | None, attrs: Mapping[str, Any], read: Collection[str] = ()
) -> str | None:
    """Return the first attribute that is not at its default and that no rule has read."""
    for name, value in attrs.items():
        told = None if known_form is None else known_form.attributes.get(name)
        if told is None:
            return name
        if name not in read and name not in _IDLE and told[1:] != [value]:
            return name
    return None


def misfit(kind: str, version: int, attrs: Mapping[str, Any], inputs: int) -> str | None:
    """Why an operator of ONNX's own cannot stand in a file of that version; None: it can."""
    found = form("", kind, version)
    if kind == "Initializer":
        return "strings and sparse tensors stay in the file that the version came from"
    if found is None:
        # Of what was never known, nobody can tell.
        return "it does not exist, or not yet" if kind in _table() else None
    if not found.least <= inputs <= found.most:
        return f"it has {inputs} inputs"
    name = next((name for name in attrs if name not in found.attributes), None)
    return None if name is None else f"it has no attribute {name}"


MOST_OPERATORS = 50_000
_MOST_STRING = 1 << 20
_WITH_OPSETS = 3  # the IR version from which on files say which operators they mean

_MODEL = Schema(
    "ModelProto",
    {
        1: "ir_version int",
        2: "producer_name text",
        3: "producer_version text",
        7: "graph message",
        8: "opset_import message*",
        14: "metadata_props message*",
        20: "training_info message*",
        25: "functions message*",
    },
)
_OPSET = Schema("OperatorSetIdProto", {1: "domain text", 2: "version int"})
_ENTRY = Schema("StringStringEntryProto", {1: "key text", 2: "value text"})
_FUNCTION = Schema("FunctionProto", {1: "name text", 10: "domain text"})
GRAPH = Schema(
    "GraphProto",
    {
        1: "node message*",
        2: "name text",
        5: "initializer message*",
        11: "input message*",
        12: "output message*",
        13: "value_info message*",
        15: "sparse_initializer message*",
    },
)
NODE = Schema(
    "NodeProto",
    {
        1: "input text*",
        2: "output text*",
        3: "name text",
        4: "op_type text",
        5: "attribute message*",
        7: "domain text",
    },
)
_ATTRIBUTE = Schema(
    "AttributeProto",
    {
        1: "name text",
        2: "f float",
        3: "i int",
        4: "s message",
        5: "t message",
        6: "g message",
        7: "floats float*",
        8: "ints int*",
        9: "strings message*",
        10: "tensors message*",
        11: "graphs message*",
        14: "tp message",
        15: "type_protos message*",
        20: "type int32",
        21: "ref_attr_name text",
        22: "sparse_tensor message",
        23: "sparse_tensors message*",
    },
)
# AttributeProto.AttributeType, by number.
_KINDS = (
    *(None, "f", "i", "s", "t", "g", "floats", "ints", "strings", "tensors", "graphs"),
    *("sparse_tensor", "sparse_tensors", "tp", "type_protos"),
)
_SPARSE = Schema("SparseTensorProto", {1: "values message"})
_NAMED = Schema("TensorProto", {8: "name text"})


@dataclass(frozen=True)
class Body:
    """A graph within an attribute, as of If or Loop: not taken apart."""

    span: Span


@dataclass(frozen=True)
class Opaque:
    """An attribute that is kept in the file and not read: long bytes, sparse tensors, types."""

    kind: str
    size: int


@dataclass(eq=False, slots=True)
class Operator:
    """One node. Attributes are numbers, texts, bytes, lists of them, Stored, Body or Opaque."""

    name: str
    kind: str
    domain: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any]

    @property
    def full_kind(self) -> str:
        return f"{self.domain}::{self.kind}" if self.domain else self.kind


@dataclass
class Graph:
    name: str
    operators: list[Operator] = field(default_factory=list)
    stored: dict[str, Stored] = field(default_factory=dict)  # initializers
    odd: set[str] = field(default_factory=set)  # initializers of texts, or sparse ones
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)


@dataclass
class Model:
    graph: Graph
    span: Span  # of the graph
    opsets: dict[str, int]
    producer: str
    metadata: dict[str, str]
    functions: set[tuple[str, str]]
    external: External
    trains: bool


def read_model(file: Source, external: External) -> Model:
    """The whole model but for the elements of its tensors."""
    given = _MODEL.read(message(file))
    if given["graph"] is None:
        raise Damaged(f"{file.name} has no ONNX graph")
    opsets: dict[str, int] = {}
    for span in given["opset_import"]:
        opset = _OPSET.read(span)
        domain = "" if opset["domain"] in (None, "ai.onnx") else opset["domain"]
        if opsets.setdefault(domain, opset["version"] or 0) != (opset["version"] or 0):
            raise UnsafeInput(f"{file.name} names two versions of {domain or 'ai.onnx'}")
    if not opsets and (given["ir_version"] or 0) >= _WITH_OPSETS:
        raise Damaged(f"{file.name} does not say which version of ONNX it is of")
    functions = [_FUNCTION.read(span) for span in given["functions"]]
    words = (given["producer_name"], given["producer_version"])
    return Model(
        _graph(given["graph"], external),
        given["graph"],
        opsets,
        " ".join(word for word in words if word),
        {
            entry["key"] or "": entry["value"] or ""
            for entry in map(_ENTRY.read, given["metadata_props"])
        },
        {(each["domain"] or "", each["name"] or "") for each in functions},
        external,
        bool(given["training_info"]),
    )


def _graph(span: Span, external: External) -> Graph:
    given = GRAPH.read(span)
    graph, what = Graph(given["name"] or ""), span.file.name
    if len(given["node"]) > MOST_OPERATORS:
        raise UnsafeInput(
            f"the graph of {what} is too large",
            why=f"{len(given['node'])} operators, the limit is {MOST_OPERATORS}",
        )
    for part in given["initializer"]:
        stored = read_tensor(part, external)
        name = stored.name if stored else _NAMED.read(part)["name"] or ""
        _add_initializer(graph, name, stored, what)
    for part in given["sparse_initializer"]:
        values = _SPARSE.read(part)["values"]
        _add_initializer(graph, _NAMED.read(values)["name"] or "" if values else "", None, what)
    for key, names in (("input", graph.inputs), ("output", graph.outputs), ("value_info", None)):
        for part in given[key]:
            name, value = read_value(part)
            if names is not None:
                if not name:
                    raise Damaged(f"{what} has an {key} without a name")
                names.append(name)
            if value is not None:
                graph.values.setdefault(name, value)
    for names in (graph.inputs, graph.outputs):
        if len(set(names)) != len(names):
            raise Damaged(f"{what} has two inputs or outputs of one name")
    graph.operators = [_operator(part, external) for part in given["node"]]
    return graph


def _add_initializer(graph: Graph, name: str, stored: Stored | None, file_name: str) -> None:
    if not name:
        raise Damaged(f"{file_name} contains a tensor without a name")
    if name in graph.stored or name in graph.odd:
        raise UnsafeInput(f"{file_name} contains two tensors named {name!r}")
    if stored is None:
        graph.odd.add(name)
    else:
        graph.stored[name] = stored


def _operator(span: Span, external: External) -> Operator:
    given = NODE.read(span)
    what = f"the node {given['name'] or (given['output'] or ['?'])[0]!r} of {span.file.name}"
    if not given["op_type"]:
        raise Damaged(f"{what} has no operation")
    domain = given["domain"] or ""
    made = Operator(
        given["name"] or "",
        given["op_type"],
        "" if domain == "ai.onnx" else domain,
        given["input"],
        given["output"],
        {},
    )
    for part in given["attribute"]:
        name, value = _attribute(part, external, what)
        if name in made.attrs:
            raise UnsafeInput(f"{what} has two attributes {name!r}")
        made.attrs[name] = value
    return made


def _attribute(span: Span, external: External, label: str) -> tuple[str, Any]:
    given = _ATTRIBUTE.read(span)
    name = given["name"] or ""
    there = [kind for kind in _KINDS if kind and (given[kind] is not None and given[kind] != [])]
    number = given["type"]
    if given["ref_attr_name"]:
        return name, Opaque("reference", span.size)
    if number is None or number == 0:
        # Files of 2017 have no types.
        if len(there) != 1:
            raise Damaged(f"{label}: the attribute {name!r} has no type")
        kind = there[0]
    elif not 0 < number < len(_KINDS):
        raise NewerFormat(f"{label}: the attribute {name!r} has an unknown type", why=f"{number}")
    else:
        kind = str(_KINDS[number])
    if any(other != kind for other in there):
        raise Damaged(f"{label}: the attribute {name!r} is {kind} and {there[0]}")
    return name, _attribute_value(kind, given[kind], external, f"{label}: the attribute {name!r}")


def _attribute_value(kind: str, value: Any, external: External, label: str) -> Any:
    if kind in ("floats", "ints"):
        return value
    if kind == "strings":
        return [_string(part) for part in value]
    if kind in ("f", "i"):
        return value if value is not None else (0.0 if kind == "f" else 0)
    if kind == "s":
        return "" if value is None else _string(value)
    if value is None:
        raise Damaged(f"{label} is empty")
    if kind == "t":
        stored = read_tensor(value, external)
        return Opaque("strings", value.size) if stored is None else stored
    if kind == "g":
        return Body(value.detached())
    if kind == "graphs":
        return [Body(part.detached()) for part in value]
    return Opaque(kind, value.size if isinstance(value, Span) else sum(p.size for p in value))


def _string(span: Span) -> str | bytes | Opaque:
    if span.size > _MOST_STRING:
        return Opaque("bytes", span.size)
    raw = bytes(span.bytes())
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


VALUE = Schema("ValueInfoProto", {1: "name text", 2: "type message"})
_TYPE = Schema(
    "TypeProto",
    {
        1: "tensor message",
        4: "sequence message",
        5: "map message",
        7: "opaque message",
        8: "sparse message",
        9: "optional message",
    },
)
_TENSOR = Schema("TypeProto.Tensor", {1: "elem_type int32", 2: "shape message"})
_HOLDER = Schema("TypeProto.Sequence", {1: "elem_type message"})
_SHAPE = Schema("TensorShapeProto", {1: "dim message*"})
_DIM = Schema("Dimension", {1: "value int", 2: "param text"})
_HOLDERS = {"sequence": "seq", "optional": "optional"}
_MOST_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Value:
    """What the file says of a value; shape None: nothing about its rank.

    The dtype of a sequence of float32 is `raw:seq(float32)`; `raw:map` stays what it is.
    """

    dtype: str
    shape: Shape | None


def read_value(span: Span) -> tuple[str, Value | None]:
    given = VALUE.read(span)
    name = given["name"] or ""
    if given["type"] is None:
        return name, None
    return name, read_type(given["type"], f"{name!r} of {span.file.name}")


def read_type(span: Span, label: str, depth: int = 0) -> Value:
    kinds = _TYPE.read(span)
    if kinds["tensor"] is None:
        kind = next((key for key, value in kinds.items() if value is not None), "unknown")
        if kind in _HOLDERS and depth < _MOST_DEPTH:
            held = _HOLDER.read(kinds[kind])["elem_type"]
            if held is not None:
                inner = read_type(held, label, depth + 1).dtype
                return Value(f"raw:{_HOLDERS[kind]}({inner.removeprefix('raw:')})", None)
        return Value(f"raw:{kind}", None)
    typed = _TENSOR.read(kinds["tensor"])
    dtype = dtype_of(typed["elem_type"] or 0, label)
    if typed["shape"] is None:
        return Value(dtype, None)
    dims = _SHAPE.read(typed["shape"])["dim"]
    if len(dims) > MOST_DIMENSIONS:
        raise UnsafeInput(f"{label} has {len(dims)} dimensions")
    return Value(dtype, tuple(_dim(dim) for dim in dims))


def _dim(span: Span) -> Dim:
    given = _DIM.read(span)
    if given["value"] is not None:
        return given["value"] if 0 <= given["value"] <= LARGEST else None
    return given["param"] or None


def bodies_in(value: Any) -> list[Body]:
    """The graphs that an attribute holds."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, Body)]


_BODY = Schema(
    "GraphProto",
    {
        1: "node message*",
        5: "initializer message*",
        11: "input message*",
        12: "output message*",
        15: "sparse_initializer message*",
    },
)
_BODY_NODE = Schema("NodeProto", {1: "input text*", 2: "output text*", 5: "attribute message*"})
_BODY_ATTRIBUTE = Schema("AttributeProto", {6: "g message", 11: "graphs message*"})


def captured(bodies: list[Body]) -> list[str]:
    """The values of the surrounding graph that bodies use."""
    # (used, made, place of the body around); a body comes before those within it.
    found: list[tuple[dict[str, None], set[str], int]] = []
    todo = [(body.span, -1) for body in bodies]
    while todo:
        span, around = todo.pop()
        given = _BODY.read(span)
        used: dict[str, None] = {}
        made = {_NAMED.read(part)["name"] for part in given["initializer"]}
        made |= {VALUE.read(part)["name"] for part in given["input"]}
        for part in given["sparse_initializer"]:
            values = _SPARSE.read(part)["values"]
            made |= {_NAMED.read(values)["name"]} if values else set()
        place = len(found)
        for part in given["node"]:
            node = _BODY_NODE.read(part)
            used.update(dict.fromkeys(node["input"]))
            made.update(node["output"])
            for inner in _inner(node["attribute"]):
                todo.append((inner, place))
        used.update((VALUE.read(part)["name"], None) for part in given["output"])
        found.append((used, made, around))
    result: dict[str, None] = {}
    for used, made, around in reversed(found):
        free = {name: None for name in used if name and name not in made}
        (result if around < 0 else found[around][0]).update(free)
    return list(result)


def _inner(attributes: list[Span]) -> Iterator[Span]:
    for part in attributes:
        given = _BODY_ATTRIBUTE.read(part)
        if given["g"] is not None:
            yield given["g"]
        yield from given["graphs"]
