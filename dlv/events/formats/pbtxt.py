"""Messages of TensorBoard's Graphs page: GraphDef bytes of named operations, and their text.

Stored graphs and run metadata are shown in protobuf's text format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import Damaged
from dlv.events.formats.summaries import (
    BYTES,
    DEPTH,
    FIXED32,
    FIXED64,
    VARINT,
    Malformed,
    double,
    fields,
    signed,
    signed32,
    single,
)
from dlv.events.formats.summaries import varint as varint_at

MESSAGES = """\
AllocationDescription: 1 requested_bytes int64, 2 allocated_bytes int64, 3 allocator_name
  string, 4 allocation_id int64, 5 has_single_reference bool, 6 ptr uint64
AllocationRecord: 1 alloc_micros int64, 2 alloc_bytes int64
AllocatorMemoryUsed: 1 allocator_name string, 2 total_bytes int64, 3 peak_bytes int64, 4
  live_bytes int64, 5 allocator_bytes_in_use int64, 6 allocation_records* AllocationRecord
AttrValue: 1 list? AttrValue.ListValue, 2 s? bytes, 3 i? int64, 4 f? float, 5 b? bool, 6 type?
  @DataType, 7 shape? TensorShapeProto, 8 tensor? TensorProto, 9 placeholder? string, 10 func?
  NameAttrList
AttrValue.ListValue: 2 s* bytes, 3 i* int64, 4 f* float, 5 b* bool, 6 type* @DataType, 7 shape*
  TensorShapeProto, 8 tensor* TensorProto, 9 func* NameAttrList
CostGraphDef: 1 node* CostGraphDef.Node, 2 cost* CostGraphDef.AggregatedCost
CostGraphDef.AggregatedCost: 1 cost float, 2 dimension string
CostGraphDef.Node: 1 name string, 2 device string, 3 id int32, 4 input_info*
  CostGraphDef.Node.InputInfo, 5 output_info* CostGraphDef.Node.OutputInfo, 6
  temporary_memory_size int64, 7 is_final bool, 8 control_input* int32, 9 compute_cost int64, 10
  host_temp_memory_size int64, 11 device_temp_memory_size int64, 12 persistent_memory_size
  int64, 14 compute_time int64, 15 memory_time int64, 16 device_persistent_memory_size int64, 17
  inaccurate bool
CostGraphDef.Node.InputInfo: 1 preceding_node int32, 2 preceding_port int32
CostGraphDef.Node.OutputInfo: 1 size int64, 2 alias_input_port int64, 3 shape TensorShapeProto,
  4 dtype @DataType
DeviceStepStats: 1 device string, 2 node_stats* NodeExecStats, 3 thread_names% uint32:string
FullTypeDef: 1 type_id @FullTypeId, 2 args* FullTypeDef, 3 s? string, 4 i? int64
FunctionDef: 1 signature OpDef, 3 node_def* NodeDef, 4 ret% string:string, 5 attr%
  string:AttrValue, 6 control_ret% string:string, 7 arg_attr% uint32:FunctionDef.ArgAttrs, 8
  resource_arg_unique_id% uint32:uint32
FunctionDef.ArgAttrs: 1 attr% string:AttrValue
FunctionDefLibrary: 1 function* FunctionDef, 2 gradient* GradientDef, 3 registered_gradients*
  RegisteredGradient
GradientDef: 1 function_name string, 2 gradient_func string
GraphDebugInfo: 1 files* string, 2 traces% string:GraphDebugInfo.StackTrace, 4 frames_by_id%
  fixed64:GraphDebugInfo.FileLineCol, 5 name_to_trace_id% string:fixed64, 6 traces_by_id%
  fixed64:GraphDebugInfo.StackTrace
GraphDebugInfo.FileLineCol: 1 file_index= int32, 2 line= int32, 3 col= int32, 4 func= string, 5
  code= string
GraphDebugInfo.StackTrace: 1 file_line_cols* GraphDebugInfo.FileLineCol, 2 frame_id* fixed64
GraphDef: 1 node* NodeDef, 2 library FunctionDefLibrary, 3 version int32, 4 versions VersionDef,
  5 debug_info GraphDebugInfo
MemoryStats: 1 temp_memory_size int64, 2 device_temp_memory_size int64, 3 persistent_memory_size
  int64, 4 device_persistent_memory_size int64, 5 persistent_tensor_alloc_ids* int64, 6
  device_persistent_tensor_alloc_ids* int64
NameAttrList: 1 name string, 2 attr% string:AttrValue
NodeDef: 1 name string, 2 op string, 3 input* string, 4 device string, 5 attr% string:AttrValue,
  6 experimental_debug_info NodeDef.ExperimentalDebugInfo, 7 experimental_type FullTypeDef
NodeDef.ExperimentalDebugInfo: 1 original_node_names* string, 2 original_func_names* string
NodeExecStats: 1 node_name string, 2 all_start_micros int64, 3 op_start_rel_micros int64, 4
  op_end_rel_micros int64, 5 all_end_rel_micros int64, 6 memory* AllocatorMemoryUsed, 7 output*
  NodeOutput, 8 timeline_label string, 9 scheduled_micros int64, 10 thread_id uint32, 11
  referenced_tensor* AllocationDescription, 12 memory_stats MemoryStats, 13 all_start_nanos
  int64, 14 op_start_rel_nanos int64, 15 op_end_rel_nanos int64, 16 all_end_rel_nanos int64, 17
  scheduled_nanos int64
NodeOutput: 1 slot int32, 3 tensor_description TensorDescription
OpDef: 1 name string, 2 input_arg* OpDef.ArgDef, 3 output_arg* OpDef.ArgDef, 4 attr*
  OpDef.AttrDef, 5 summary string, 6 description string, 8 deprecation OpDeprecation, 16
  is_aggregate bool, 17 is_stateful bool, 18 is_commutative bool, 19 allows_uninitialized_input
  bool, 20 control_output* string, 21 is_distributed_communication bool
OpDef.ArgDef: 1 name string, 2 description string, 3 type @DataType, 4 type_attr string, 5
  number_attr string, 6 type_list_attr string, 7 handle_data* ResourceHandleProto.DtypeAndShape,
  16 is_ref bool, 17 experimental_full_type FullTypeDef
OpDef.AttrDef: 1 name string, 2 type string, 3 default_value AttrValue, 4 description string, 5
  has_minimum bool, 6 minimum int64, 7 allowed_values AttrValue
OpDeprecation: 1 version int32, 2 explanation string
RegisteredGradient: 1 gradient_func string, 2 registered_op_type string
ResourceHandleProto: 1 device string, 2 container string, 3 name string, 4 hash_code uint64, 5
  maybe_type_name string, 6 dtypes_and_shapes* ResourceHandleProto.DtypeAndShape
ResourceHandleProto.DtypeAndShape: 1 dtype @DataType, 2 shape TensorShapeProto
RunMetadata: 1 step_stats StepStats, 2 cost_graph CostGraphDef, 3 partition_graphs* GraphDef, 4
  function_graphs* RunMetadata.FunctionGraphs, 5 session_metadata SessionMetadata
RunMetadata.FunctionGraphs: 1 partition_graphs* GraphDef, 2 pre_optimization_graph GraphDef, 3
  post_optimization_graph GraphDef
SessionMetadata: 1 name string, 2 version int64
StepStats: 1 dev_stats* DeviceStepStats
TensorDescription: 1 dtype @DataType, 2 shape TensorShapeProto, 4 allocation_description
  AllocationDescription
TensorProto: 1 dtype @DataType, 2 tensor_shape TensorShapeProto, 3 version_number int32, 4
  tensor_content bytes, 5 float_val* float, 6 double_val* double, 7 int_val* int32, 8
  string_val* bytes, 9 scomplex_val* float, 10 int64_val* int64, 11 bool_val* bool, 12
  dcomplex_val* double, 13 half_val* int32, 14 resource_handle_val* ResourceHandleProto, 15
  variant_val* VariantTensorDataProto, 16 uint32_val* uint32, 17 uint64_val* uint64, 18
  float8_val bytes
TensorShapeProto: 2 dim* TensorShapeProto.Dim, 3 unknown_rank bool
TensorShapeProto.Dim: 1 size int64, 2 name string
VariantTensorDataProto: 1 type_name string, 2 metadata bytes, 3 tensors* TensorProto
VersionDef: 1 producer int32, 2 min_consumer int32, 3 bad_consumers* int32
"""

ENUMERATIONS = """\
DataType: 0=DT_INVALID 1=DT_FLOAT 2=DT_DOUBLE 3=DT_INT32 4=DT_UINT8 5=DT_INT16 6=DT_INT8
  7=DT_STRING 8=DT_COMPLEX64 9=DT_INT64 10=DT_BOOL 11=DT_QINT8 12=DT_QUINT8 13=DT_QINT32
  14=DT_BFLOAT16 15=DT_QINT16 16=DT_QUINT16 17=DT_UINT16 18=DT_COMPLEX128 19=DT_HALF
  20=DT_RESOURCE 21=DT_VARIANT 22=DT_UINT32 23=DT_UINT64 24=DT_FLOAT8_E5M2 25=DT_FLOAT8_E4M3FN
  26=DT_FLOAT8_E4M3FNUZ 27=DT_FLOAT8_E4M3B11FNUZ 28=DT_FLOAT8_E5M2FNUZ 29=DT_INT4 30=DT_UINT4
  31=DT_INT2 32=DT_UINT2 33=DT_FLOAT4_E2M1FN 101=DT_FLOAT_REF 102=DT_DOUBLE_REF 103=DT_INT32_REF
  104=DT_UINT8_REF 105=DT_INT16_REF 106=DT_INT8_REF 107=DT_STRING_REF 108=DT_COMPLEX64_REF
  109=DT_INT64_REF 110=DT_BOOL_REF 111=DT_QINT8_REF 112=DT_QUINT8_REF 113=DT_QINT32_REF
  114=DT_BFLOAT16_REF 115=DT_QINT16_REF 116=DT_QUINT16_REF 117=DT_UINT16_REF
  118=DT_COMPLEX128_REF 119=DT_HALF_REF 120=DT_RESOURCE_REF 121=DT_VARIANT_REF 122=DT_UINT32_REF
  123=DT_UINT64_REF 124=DT_FLOAT8_E5M2_REF 125=DT_FLOAT8_E4M3FN_REF 126=DT_FLOAT8_E4M3FNUZ_REF
  127=DT_FLOAT8_E4M3B11FNUZ_REF 128=DT_FLOAT8_E5M2FNUZ_REF 129=DT_INT4_REF 130=DT_UINT4_REF
  131=DT_INT2_REF 132=DT_UINT2_REF 133=DT_FLOAT4_E2M1FN_REF
FullTypeId: 0=TFT_UNSET 1=TFT_VAR 2=TFT_ANY 3=TFT_PRODUCT 4=TFT_NAMED 20=TFT_FOR_EACH
  100=TFT_CALLABLE 200=TFT_BOOL 201=TFT_UINT8 202=TFT_UINT16 203=TFT_UINT32 204=TFT_UINT64
  205=TFT_INT8 206=TFT_INT16 207=TFT_INT32 208=TFT_INT64 209=TFT_HALF 210=TFT_FLOAT
  211=TFT_DOUBLE 212=TFT_COMPLEX64 213=TFT_COMPLEX128 214=TFT_STRING 215=TFT_BFLOAT16
  1000=TFT_TENSOR 1001=TFT_ARRAY 1002=TFT_OPTIONAL 1003=TFT_LITERAL 1004=TFT_ENCODED
  1005=TFT_SHAPE_TENSOR 10102=TFT_DATASET 10103=TFT_RAGGED 10104=TFT_ITERATOR
  10202=TFT_MUTEX_LOCK 10203=TFT_LEGACY_VARIANT
"""


_WIRE = {"string": BYTES, "bytes": BYTES, "double": FIXED64, "fixed64": FIXED64}
_WIRE |= {"float": FIXED32}
_SHORT = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}
_ESCAPED = [
    _SHORT.get(byte, chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in range(256)
]


@dataclass(frozen=True)
class Field:
    name: str
    mark: str  # "", or as in MESSAGES
    kind: str  # a scalar type, "@Enumeration" or a message

    @property
    def scalar(self) -> bool:
        return self.kind[0] == "@" or self.kind.islower()

    @property
    def wire(self) -> int:
        """The wire type that it has, but for numbers that are packed together."""
        return _WIRE.get(self.kind, VARINT) if self.scalar and self.mark != "%" else BYTES


@cache
def _messages() -> Mapping[str, Mapping[int, Field]]:
    found: dict[str, dict[int, Field]] = {}
    for name, rest in _paragraphs(MESSAGES):
        fields = found.setdefault(name, {})
        for item in rest.split(","):
            number, field, kind = item.split()
            mark = field[-1] if field[-1] in "*?=%" else ""
            fields[int(number)] = Field(field.removesuffix(mark), mark, kind)
    return found


@cache
def _enumerations() -> Mapping[str, Mapping[int, str]]:
    return {
        f"@{name}": {
            int(number): word for number, _, word in (each.partition("=") for each in rest.split())
        }
        for name, rest in _paragraphs(ENUMERATIONS)
    }


def _paragraphs(text: str) -> Iterator[tuple[str, str]]:
    for paragraph in text.replace("\n  ", " ").splitlines():
        name, _, rest = paragraph.partition(": ")
        yield name, rest


def text(message: str, data: bytes) -> Iterator[str]:
    """The lines of a stored message; fields that are not known are left out."""
    return _lines(message, data, "")


def limited_graph(data: bytes, limit: int, large_attrs_key: str) -> bytes:
    """A GraphDef without the attributes of nodes that take more than `limit` bytes.

    Each node that lost some has their names in a list under `large_attrs_key`.
    """
    graph = bytearray()
    for number, kind, value in _parts(data):
        if number == 1 and kind == BYTES:
            node = _limited_node(value, limit, large_attrs_key.encode("utf-8", "replace"))
            graph += tagged(1, node)
        else:
            graph += _again(number, kind, value)
    return bytes(graph)


def _limited_node(data: bytes, limit: int, key: bytes) -> bytes:
    kept, large = bytearray(), []
    for number, kind, value in _parts(data):
        if number == 5 and kind == BYTES:
            entry = {n: v for n, k, v in _parts(value) if k == BYTES}
            if len(entry.get(2, b"")) > limit:
                large.append(entry.get(1, b""))
                continue
        kept += _again(number, kind, value)
    if large:
        names = b"".join(tagged(2, name) for name in sorted(large))
        kept += tagged(5, tagged(1, key) + tagged(2, tagged(1, names)))
    return bytes(kept)


def tagged(number: int, data: bytes) -> bytes:
    """A field of bytes, text or a message as it is stored."""
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _parts(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value (a whole number, or bytes) of each field."""
    try:
        for number, kind, value, end in fields(data):
            yield number, kind, data[value:end] if kind == BYTES else value
    except Malformed as error:
        raise _damaged(str(error)) from error


def _again(number: int, kind: int, value: Any) -> bytes:
    """A field as it was stored."""
    if kind == BYTES:
        return tagged(number, value)
    key = varint(number << 3 | kind)
    if kind == VARINT:
        return key + varint(value)
    return key + int(value).to_bytes(8 if kind == FIXED64 else 4, "little")


def _damaged(why: str) -> Damaged:
    return Damaged("a stored graph is corrupt", why=why, hint="dlv fsck")


def _lines(message: str, data: bytes, indent: str) -> Iterator[str]:
    if len(indent) > 2 * DEPTH:
        raise _damaged(f"it is nested more than {DEPTH} deep")
    known = _messages()[message]
    found: dict[int, list[Any]] = {}
    chosen = 0  # of fields that exclude each other, the last one wins
    for number, kind, value in _parts(data):
        field = known.get(number)
        if field is None:
            continue
        if kind == field.wire:
            if field.mark == "?" and number != chosen:
                found.pop(chosen, None)
                chosen = number
            found.setdefault(number, []).append(value)
        elif kind == BYTES and field.mark == "*":
            found.setdefault(number, []).extend(_unpacked(value, field.wire))
    for number in sorted(found):
        yield from _field(known[number], found[number], indent)


def _unpacked(data: bytes, kind: int) -> Iterator[int]:
    """The numbers of a repeated field that stand together."""
    at, size = 0, {FIXED64: 8, FIXED32: 4}.get(kind)
    while at < len(data):
        if size is None:
            try:
                value, at = varint_at(data, at, len(data))
            except Malformed as error:
                raise _damaged(str(error)) from error
            yield value
        else:
            if at + size > len(data):
                raise _damaged("a list ends within a number")
            yield int.from_bytes(data[at : at + size], "little")
            at += size


def _field(field: Field, values: Sequence[Any], indent: str) -> Iterator[str]:
    name = field.name
    if field.mark == "%":
        yield from _entries(field, values, indent)
    elif not field.scalar:
        # Two halves of one message are merged by reading them as one.
        for value in values if field.mark == "*" else [b"".join(values)]:
            yield f"{indent}{name} {{"
            yield from _lines(field.kind, value, f"{indent}  ")
            yield f"{indent}}}"
    elif field.mark == "*":
        for value in values:
            yield f"{indent}{name}: {_shown(field.kind, value)}"
    else:
        shown = _shown(field.kind, values[-1])
        if field.mark or shown != _absent(field.kind):
            yield f"{indent}{name}: {shown}"


def _entries(field: Field, values: Sequence[bytes], indent: str) -> Iterator[str]:
    """A map, sorted; of two entries with one key the later one counts."""
    key_kind, _, kind = field.kind.partition(":")
    key_field, value_field = Field("key", "=", key_kind), Field("value", "=", kind)
    latest: dict[Any, list[Any]] = {}
    for entry in values:
        key: Any = _nothing(key_field)
        held: list[Any] = []
        for number, wire, part in _parts(entry):
            if number == 1 and wire == key_field.wire:
                key = part
            elif number == 2 and wire == value_field.wire:
                held.append(part)
        latest[key] = held or [_nothing(value_field)]
    for key in sorted(latest):
        yield f"{indent}{field.name} {{"
        yield from _field(key_field, [key], f"{indent}  ")
        yield from _field(value_field, latest[key], f"{indent}  ")
        yield f"{indent}}}"


def _nothing(field: Field) -> bytes | int:
    return b"" if field.wire == BYTES else 0


def _absent(kind: str) -> str:
    if kind in ("string", "bytes"):
        return '""'
    if kind[0] == "@":
        return _enumerations()[kind].get(0, "0")
    return {"bool": "false", "double": "0.0", "float": "0.0"}.get(kind, "0")


def _shown(kind: str, value: Any) -> str:
    if kind in ("string", "bytes"):
        return quoted(value)
    if kind == "double":
        return str(double(value))
    if kind == "float":
        return _shortest(single(value))
    if kind == "bool":
        return "true" if value else "false"
    if kind[0] == "@":
        return _enumerations()[kind].get(signed32(value), str(signed32(value)))
    if kind in ("int32", "int64"):
        return str(signed32(value) if kind == "int32" else signed(value))
    return str(value & 0xFFFFFFFF if kind == "uint32" else value)


def _shortest(value: float) -> str:
    """The fewest digits that give the same single-precision number."""
    if value - value != 0:  # not finite
        return str(value)
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        try:
            if struct.unpack("<f", struct.pack("<f", short))[0] == value:
                return str(short)
        except OverflowError:  # rounded beyond the largest one
            continue
    return str(float(f"{value:.9g}"))


def quoted(data: bytes) -> str:
    """Bytes or UTF-8 as they stand in protobuf's text format."""
    return '"' + "".join(_ESCAPED[byte] for byte in data) + '"'


RUN_GRAPH = "__run_graph__"  # the tag under which a run keeps its graph
PLUGIN = "graphs"
TAGGED = "graph_run_metadata_graph"  # the plugin of graphs that have a tag, and their content
TAGGED_CONTENT = b"1"
_PRODUCER = 22  # a version of the format that every reader knows


@dataclass(frozen=True)
class GraphNode:
    """`inputs` are names of nodes, `name:1` for another than the first output of one.

    `shapes`: of what each output gives; None is a size that is not known.
    """

    name: str
    op: str
    inputs: Sequence[str] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    shapes: Sequence[Sequence[int | None]] = ()


def graph_def(nodes: Iterable[GraphNode]) -> bytes:
    """The stored form: every node in the order given."""
    versions = varint(1 << 3) + varint(_PRODUCER)
    return b"".join(tagged(1, _node(node)) for node in nodes) + tagged(4, versions)


def as_run_metadata(graph: bytes) -> bytes:
    """A graph that has a tag is the first of a RunMetadata: of its functions, before optimizing."""
    return tagged(4, tagged(2, graph))


def _node(node: GraphNode) -> bytes:
    found = tagged(1, _utf8(node.name)) + tagged(2, _utf8(node.op))
    found += b"".join(tagged(3, _utf8(name)) for name in node.inputs)
    held = {name: _value(value) for name, value in node.attributes.items()}
    if node.shapes:
        held["_output_shapes"] = tagged(
            1, b"".join(tagged(7, _shape(shape)) for shape in node.shapes)
        )
    for name in sorted(held):
        found += tagged(5, tagged(1, _utf8(name)) + tagged(2, held[name]))
    return found


def _value(value: Any) -> bytes:
    """An AttrValue: a number, a truth, a text, or a list of one of these; the rest as text."""
    if isinstance(value, bool):
        return varint(5 << 3) + varint(value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return varint(3 << 3) + varint(value)
    if isinstance(value, float):
        return varint(4 << 3 | 5) + _single(value)
    if isinstance(value, (list, tuple)):
        return tagged(1, _list(value))
    return tagged(2, _utf8(value if isinstance(value, str) else str(value)))


def _list(values: Sequence[Any]) -> bytes:
    """A list has one kind of items; a mixed one is text."""
    if values and all(type(value) is bool for value in values):
        return tagged(5, b"".join(varint(value) for value in values))
    if values and all(type(value) is int and -(2**63) <= value < 2**63 for value in values):
        return tagged(3, b"".join(varint(value) for value in values))
    if values and all(type(value) is float for value in values):
        return tagged(4, b"".join(_single(value) for value in values))
    return b"".join(tagged(2, _utf8(str(value))) for value in values)


def _shape(shape: Sequence[int | None]) -> bytes:
    sizes = (-1 if size is None else size for size in shape)
    return b"".join(tagged(2, varint(1 << 3) + varint(size)) for size in sizes)


def _single(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")
