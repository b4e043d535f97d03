"""Pickles read without making anything: a checked walk over the opcodes, then descriptors.

No class is imported and no function called. Lists and tuples become lists and tuples, sets
lists, dicts `Mapping`; a name is a `Global`, what it would have made is a `Call`.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from enum import Enum
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import Damaged, UnsafeInput

MOST_OPCODES = MOST_COPIED = 2_000_000
MOST_STACK = 10_000  # batches of a dict push 2,000
MOST_MARKS = 100
_MOST_NAME = 512

_NUMBERS = {
    "u1": struct.Struct("<B"),
    "u2": struct.Struct("<H"),
    "u4": struct.Struct("<I"),
    "i4": struct.Struct("<i"),
    "u8": struct.Struct("<Q"),
    "f8": struct.Struct(">d"),
}

# opcode: name, argument, values taken, values left; "*" in the argument: also down to a MARK
_OPCODES: dict[int, tuple[str, str, int, int]] = {
    0x80: ("PROTO", "u1", 0, 0),
    0x95: ("FRAME", "u8", 0, 0),
    ord("."): ("STOP", "", 1, 0),
    ord("("): ("MARK", "", 0, 0),
    ord("0"): ("POP", "", 1, 0),
    ord("1"): ("POP_MARK", "*", 0, 0),
    ord("2"): ("DUP", "", 1, 2),
    ord("N"): ("NONE", "", 0, 1),
    0x88: ("NEWTRUE", "", 0, 1),
    0x89: ("NEWFALSE", "", 0, 1),
    ord("J"): ("PUSH", "i4", 0, 1),
    ord("K"): ("PUSH", "u1", 0, 1),
    ord("M"): ("PUSH", "u2", 0, 1),
    ord("G"): ("PUSH", "f8", 0, 1),
    0x8A: ("PUSH", "long u1", 0, 1),
    0x8B: ("PUSH", "long i4", 0, 1),
    ord("U"): ("PUSH", "string u1", 0, 1),
    ord("T"): ("PUSH", "string i4", 0, 1),
    ord("C"): ("PUSH", "bytes u1", 0, 1),
    ord("B"): ("PUSH", "bytes u4", 0, 1),
    0x8E: ("PUSH", "bytes u8", 0, 1),
    0x96: ("PUSH", "bytes u8", 0, 1),
    0x8C: ("PUSH", "text u1", 0, 1),
    ord("X"): ("PUSH", "text u4", 0, 1),
    0x8D: ("PUSH", "text u8", 0, 1),
    ord("]"): ("EMPTY_LIST", "", 0, 1),
    0x8F: ("EMPTY_LIST", "", 0, 1),  # a set
    ord("}"): ("EMPTY_DICT", "", 0, 1),
    ord(")"): ("EMPTY_TUPLE", "", 0, 1),
    ord("a"): ("APPEND", "", 2, 1),
    ord("e"): ("APPENDS", "*", 1, 1),
    0x90: ("APPENDS", "*", 1, 1),  # to a set
    ord("s"): ("SETITEM", "", 3, 1),
    ord("u"): ("SETITEMS", "*", 1, 1),
    ord("t"): ("TUPLE", "*", 0, 1),
    0x91: ("TUPLE", "*", 0, 1),  # a frozenset
    ord("l"): ("LIST", "*", 0, 1),
    ord("d"): ("DICT", "*", 0, 1),
    0x85: ("TUPLE1", "", 1, 1),
    0x86: ("TUPLE2", "", 2, 1),
    0x87: ("TUPLE3", "", 3, 1),
    ord("c"): ("GLOBAL", "name", 0, 1),
    0x93: ("STACK_GLOBAL", "", 2, 1),
    ord("R"): ("REDUCE", "", 2, 1),
    0x81: ("NEWOBJ", "", 2, 1),  # a class instead of a function
    0x92: ("NEWOBJ_EX", "", 3, 1),
    ord("b"): ("BUILD", "", 2, 1),
    ord("Q"): ("BINPERSID", "", 1, 1),
    0x94: ("MEMOIZE", "", 1, 1),
    ord("q"): ("PUT", "u1", 1, 1),
    ord("r"): ("PUT", "u4", 1, 1),
    ord("h"): ("GET", "u1", 0, 1),
    ord("j"): ("GET", "u4", 0, 1),
}

_REFUSED = {
    ord("i"): "INST, which calls a name",
    ord("o"): "OBJ, which calls a name",
    0x82: "EXT1, a name from a registry",
    0x83: "EXT2, a name from a registry",
    0x84: "EXT4, a name from a registry",
    ord("P"): "PERSID, a reference in text",
    0x97: "NEXT_BUFFER, data outside of the file",
    0x98: "READONLY_BUFFER, data outside of the file",
}


def instructions(data: bytes, where: str) -> Iterator[tuple[int, str, Any]]:
    """Position, name and argument of every opcode; no argument reaches beyond the data."""
    at = 0
    while at < len(data):
        position, code = at, data[at]
        at += 1
        if code in _REFUSED:
            raise UnsafeInput(
                f"{where} uses {_REFUSED[code]}",
                why=f"at byte {position}; torch.save never writes this",
            )
        if code not in _OPCODES:
            raise Damaged(
                f"{where} is corrupt", why=f"{code:#04x} at byte {position} is not an opcode in use"
            )
        name, form, _, _ = _OPCODES[code]
        argument: Any = None
        if form == "name":
            found = []
            for _ in range(2):
                end = data.find(b"\n", at, at + _MOST_NAME)
                if end < 0:
                    raise Damaged(f"{where} is corrupt", why=f"no name at byte {position}")
                found.append(_text(data[at:end], where))
                at = end + 1
            argument = tuple(found)
        elif form not in ("", "*"):
            kind, _, width = form.rpartition(" ")
            number = _NUMBERS[width]
            if at + number.size > len(data):
                raise _short(where, position)
            (argument,) = number.unpack_from(data, at)
            at += number.size
            if kind:
                if argument < 0 or argument > len(data) - at:
                    raise _short(where, position)
                piece = data[at : at + argument]
                at += argument
                argument = _value(kind, piece, where)
        yield position, name, argument
        if name == "STOP":
            break
    else:
        raise _short(where, at)
    if at != len(data):
        raise Damaged(f"{where} is corrupt", why=f"{len(data) - at} bytes after its end")


def _short(where: str, position: int) -> Damaged:
    return Damaged(f"{where} is truncated", why=f"in the opcode at byte {position}")


def _value(kind: str, piece: bytes, where: str) -> Any:
    if kind == "text":
        return _text(piece, where)
    if kind == "string":  # Python 2: text or bytes, nothing says which
        return piece.decode() if piece.isascii() else piece
    if kind == "long":
        return int.from_bytes(piece, "little", signed=True)
    return piece


def _text(piece: bytes, where: str) -> str:
    try:
        return piece.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Damaged(f"{where} is corrupt", why=f"text that is not UTF-8: {error}") from error


def check_opcodes(data: bytes, where: str) -> None:
    """Every limit, before the first object exists."""
    count = total = depth = 0  # total: values on the stack; depth: those above the last MARK
    frames: list[int] = []
    shapes = {name: (form == "*", take, leave) for name, form, take, leave in _OPCODES.values()}
    for position, name, argument in instructions(data, where):
        count += 1
        if count > MOST_OPCODES:
            raise UnsafeInput(f"{where} is too long", why=f"more than {MOST_OPCODES} opcodes")
        if (name == "PROTO") != (count == 1) or (count == 1 and not 2 <= argument <= 5):
            raise Damaged(
                f"{where} is not a pickle of protocol 2 to 5", why=f"{name} at byte {position}"
            )
        if name == "FRAME" and argument > len(data) - position - 9:
            raise _short(where, position)
        if name in ("PUT", "GET") and argument > count:
            raise UnsafeInput(
                f"{where} uses memo index {argument} after {count} opcodes",
                why="reading it would allocate memory for all indices below",
            )
        if name == "MARK":
            frames.append(depth)
            depth = 0
            if len(frames) > MOST_MARKS:
                raise UnsafeInput(f"{where} is nested too deeply", why=f"{MOST_MARKS} open marks")
            continue
        marked, take, leave = shapes[name]
        if marked:
            if not frames:
                raise Damaged(f"{where} is corrupt", why=f"{name} without MARK at byte {position}")
            total -= depth
            depth = frames.pop()
        if depth < take:
            raise Damaged(f"{where} is corrupt", why=f"{name} lacks values at byte {position}")
        depth += leave - take
        total += leave - take
        if total > MOST_STACK:
            raise UnsafeInput(f"{where} fills the stack", why=f"more than {MOST_STACK} values")
    if total or frames:
        raise Damaged(f"{where} is corrupt", why="values are left at its end")


class Kind(Enum):
    MAPPING = "a dict, or a class that behaves as one"
    SEQUENCE = "a list, tuple or set, or a class that behaves as one"
    NAMESPACE = "an object whose attributes are a dict"
    VALUE = "kept as a call with its arguments, never made"
    NAME = "may be named but not called"
    OBJECT = "of a class that dlv does not know; taken where a module is made of such objects"


_MAPPINGS = """
    collections.OrderedDict collections.defaultdict collections.Counter builtins.dict
    __builtin__.dict
    lightning_fabric.utilities.data.AttributeDict lightning.fabric.utilities.data.AttributeDict
    pytorch_lightning.utilities.parsing.AttributeDict
    lightning.pytorch.utilities.parsing.AttributeDict
"""
_SEQUENCES = """
    builtins.list builtins.tuple builtins.set builtins.frozenset collections.deque torch.Size
    __builtin__.list __builtin__.tuple __builtin__.set __builtin__.frozenset
"""
_NAMESPACES = "argparse.Namespace types.SimpleNamespace"
_VALUES = """
    torch._utils._rebuild_tensor torch._utils._rebuild_tensor_v2 torch._utils._rebuild_tensor_v3
    torch._utils._rebuild_parameter torch._utils._rebuild_parameter_with_state
    torch._utils._rebuild_qtensor torch._utils._rebuild_sparse_tensor
    torch._utils._rebuild_sparse_csr_tensor torch._utils._rebuild_nested_tensor
    torch._utils._rebuild_meta_tensor_no_storage torch._utils._rebuild_wrapper_subclass
    torch._utils._rebuild_device_tensor_from_numpy torch._utils._rebuild_xla_tensor
    torch._utils._rebuild_device_tensor_from_cpu_tensor
    torch._tensor._rebuild_from_type_v2 torch.serialization._get_layout torch.device
    builtins.complex builtins.bytes builtins.bytearray builtins.slice builtins.range
    __builtin__.complex __builtin__.bytes __builtin__.bytearray __builtin__.slice
    __builtin__.xrange _codecs.encode
    pathlib.PosixPath pathlib.WindowsPath pathlib.PurePosixPath pathlib.PureWindowsPath
    pathlib.Path pathlib._local.PosixPath pathlib._local.WindowsPath
    datetime.datetime datetime.date datetime.time datetime.timedelta datetime.timezone
    decimal.Decimal fractions.Fraction uuid.UUID
    numpy.dtype numpy.ndarray numpy.core.multiarray.scalar numpy._core.multiarray.scalar
    numpy.core.multiarray._reconstruct numpy._core.multiarray._reconstruct
    numpy.core.numeric._frombuffer numpy._core.numeric._frombuffer
    omegaconf.dictconfig.DictConfig omegaconf.listconfig.ListConfig
    omegaconf.base.ContainerMetadata omegaconf.base.Metadata
    omegaconf.nodes.AnyNode omegaconf.nodes.IntegerNode omegaconf.nodes.FloatNode
    omegaconf.nodes.StringNode omegaconf.nodes.BooleanNode omegaconf.nodes.PathNode
"""
_NAMES = """
    torch.Tensor torch.nn.parameter.Parameter torch.nn.parameter.Buffer torch.storage.TypedStorage
    torch.storage.UntypedStorage typing.Any builtins.int builtins.float builtins.str builtins.bool
    builtins.object __builtin__.int __builtin__.float __builtin__.unicode __builtin__.str
    __builtin__.bool __builtin__.long __builtin__.object
    torch.per_tensor_affine torch.per_tensor_symmetric torch.per_channel_affine
    torch.per_channel_symmetric torch.per_channel_affine_float_qparams
"""
_STORAGES = """
    Double Float Half Long Int Short Char Byte Bool BFloat16 ComplexDouble ComplexFloat ComplexHalf
    QUInt8 QInt8 QInt32 QUInt4x2 QUInt2x4 UInt16 UInt32 UInt64
"""
_DTYPES = """
    float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz
    float8_e8m0fnu float4_e2m1fn_x2 complex32 complex64 complex128 bool
    int8 int16 int32 int64 uint8 uint16 uint32 uint64
    int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7
    qint8 quint8 qint32 quint4x2 quint2x4 bits8 bits16 bits1x8 bits2x4 bits4x2
"""


def _table() -> dict[tuple[str, str], Kind]:
    dotted = [
        (_MAPPINGS, Kind.MAPPING),
        (_SEQUENCES, Kind.SEQUENCE),
        (_NAMESPACES, Kind.NAMESPACE),
        (_VALUES, Kind.VALUE),
        (_NAMES, Kind.NAME),
    ]
    table: dict[tuple[str, str], Kind] = {}
    for names, kind in dotted:
        for full in names.split():
            module, _, name = full.rpartition(".")
            table[module, name] = kind
    for name in _STORAGES.split():
        table["torch", f"{name}Storage"] = Kind.NAME
        table["torch.cuda", f"{name}Storage"] = Kind.NAME
    for name in _DTYPES.split():
        table["torch", name] = Kind.NAME
    return table


ALLOWED = _table()


# Of the standard library and the like, what modules name beside their classes.
_OF_MODULES = frozenset({("functools", "partial"), ("builtins", "type"), ("__builtin__", "type")})
# Modules made by these are classes of a notebook or script, whose code stands in the file.
_BY_VALUE = "cloudpickle"


def may_be_object(module: str, name: str) -> bool:
    """Whether a saved module may name this: classes and functions of libraries and of the user.

    Nothing of the standard library is, so that a file that would start a program is refused
    though dlv does not load it: its user might.
    """
    root = module.partition(".")[0]
    return (module, name) in _OF_MODULES or (
        root not in sys.stdlib_module_names and root not in ("__builtin__", "builtins", "posix")
    )


def kind_of_name(module: str, name: str, where: str) -> Kind:
    """How to treat a name; one that is not on the list is refused and explained."""
    kind = ALLOWED.get((module, name))
    if kind is not None:
        return kind
    full = printable(f"{module}.{name}")
    if module.startswith(("torch.nn.modules.", "torch.nn.parallel.")):
        raise UnsafeInput(
            f"{where} has a saved object of `{full}`, and no module with weights",
            why="loading it would run the code of that class",
            hint="save `model.state_dict()` instead, or keep the file unread with --as file",
        )
    raise UnsafeInput(
        f"{where} names `{full}`",
        why="reading it as torch.load does would import and call that; dlv runs nothing from files",
        hint="save tensors and plain values only (torch.load with weights_only=True must accept "
        "the file); or keep the file unread with --as file",
    )


def printable(text: str) -> str:
    """A name from the file as it may stand in a message."""
    safe = text[:120].encode("ascii", "backslashreplace").decode()
    safe = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in safe)
    return safe + ("…" if len(text) > 120 else "")


MOST_BYTES = 64 << 20
_MOST_KEY = 4096


@dataclass(slots=True, eq=False)
class Global:
    """The name of a class, function or dtype; nothing was looked up."""

    module: str
    name: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class Call:
    """A call that was not made, and the state that its result would have got."""

    function: Global
    arguments: tuple[Any, ...]
    state: Any = None


@dataclass(slots=True, eq=False)
class Persistent:
    """A reference to something outside of the pickle."""

    identity: Any


class Mapping:
    """A dict. Its keys are looked up as text or bytes only, whose hashes no file can aim at."""

    __slots__ = ("_entries", "namespace", "state")

    def __init__(self, *, namespace: bool = False) -> None:
        self._entries: dict[str | bytes, tuple[Any, Any]] | None = None
        self.namespace = namespace  # an object whose attributes are the entries
        self.state: Any = None

    def __len__(self) -> int:
        return len(self._entries or ())

    def set(self, key: Any, value: Any) -> None:
        if self._entries is None:
            self._entries = {}
        self._entries[self._slot(key)] = (key, value)

    def get(self, key: str) -> Any:
        return (self._entries or {}).get(key, (None, None))[1]

    def items(self) -> Iterator[tuple[Any, Any]]:
        yield from (self._entries or {}).values()

    def _slot(self, key: Any) -> str | bytes:
        if isinstance(key, str) and len(key) <= _MOST_KEY:
            return key
        if key is None or isinstance(key, bool | float):
            return repr(key).encode()
        if isinstance(key, int) and key.bit_length() <= 64:
            return str(key).encode()
        # Anything else is never compared: comparing could cost more than the file is long.
        return b"#%d" % len(self)


def load(data: bytes | bytearray, where: str) -> Any:
    """The object of a pickle as descriptors; `where` names the pickle in messages."""
    if len(data) > MOST_BYTES:
        raise UnsafeInput(
            f"{where} is too large", why=f"{len(data)} bytes, the limit is {MOST_BYTES}"
        )
    raw = bytes(data)
    check_opcodes(raw, where)
    machine = _Machine(where)
    found = machine.run(raw)
    if machine.unknown is not None and not any(map(is_module, machine.objects)):
        raise machine.unknown
    return found


_TABLES = ("_parameters", "_buffers", "_modules")


def is_module(value: Any) -> bool:
    """Whether it is what a torch module leaves in a pickle: an object with these three tables."""
    return (
        isinstance(value, Call)
        and isinstance(value.state, Mapping)
        and all(isinstance(value.state.get(name), Mapping) for name in _TABLES)
    )


def state_of(value: Any) -> Any:
    """A module as its state dict, a table within a table; anything else as it is."""
    if not is_module(value):
        return value
    parameters, buffers, modules = (value.state.get(name) for name in _TABLES)
    passing = value.state.get("_non_persistent_buffers_set")
    left_out = set(filter(_is_text, passing if isinstance(passing, list) else ()))
    found = Mapping()
    for table in (parameters, buffers, modules):
        for key, child in table.items():
            if child is not None and not (table is buffers and _is_text(key) and key in left_out):
                found.set(key, child)
    return found


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


class _Machine:
    """Runs opcodes that `check` has passed: the stack never runs empty."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.names: dict[tuple[str, str], Global] = {}
        self.unknown: UnsafeInput | None = None  # why the first unknown name would be refused
        self.objects: list[Call] = []
        self.copied = 0

    def run(self, data: bytes) -> Any:
        stack = self.stack
        memo = self.memo
        for _, name, argument in instructions(data, self.where):
            if name == "PUSH":
                stack.append(argument)
            elif name == "PUT":
                memo[argument] = stack[-1]
            elif name == "MEMOIZE":
                memo[len(memo)] = stack[-1]
            elif name == "GET":
                if argument not in memo:
                    raise Damaged(f"{self.where} is corrupt", why=f"memo {argument} is not set")
                stack.append(memo[argument])
            elif name == "MARK":
                self.marks.append(len(stack))
            elif name == "STOP":
                return stack.pop()
            elif name == "POP":
                stack.pop()
            elif name == "POP_MARK":
                self.to_mark()
            elif name not in ("PROTO", "FRAME"):
                stack.append(self.step(name, argument))
        raise Damaged(f"{self.where} is truncated")

    def step(self, name: str, argument: Any) -> Any:
        """What the opcode leaves on top of the stack."""
        stack = self.stack
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name == "EMPTY_LIST":
            return []
        if name == "EMPTY_DICT":
            return Mapping()
        if name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            return tuple(self.take(int(name[-1])))
        if name == "TUPLE":
            return tuple(self.to_mark())
        if name == "LIST":
            return self.to_mark()
        if name in ("APPEND", "APPENDS"):
            items = self.to_mark() if name == "APPENDS" else [stack.pop()]
            return self.extend(stack.pop(), items)
        if name in ("SETITEM", "SETITEMS", "DICT"):
            items = self.take(2) if name == "SETITEM" else self.to_mark()
            return self.set_items(Mapping() if name == "DICT" else stack.pop(), items)
        if name == "GLOBAL":
            return self.named(*argument)
        if name == "STACK_GLOBAL":
            return self.named(*self.take(2))
        if name in ("REDUCE", "NEWOBJ"):
            function, arguments = self.take(2)
            return self.call(function, arguments, new=name == "NEWOBJ")
        if name == "NEWOBJ_EX":
            function, arguments, keywords = self.take(3)
            if not isinstance(keywords, Mapping) or len(keywords):
                raise self.unsafe("makes an object with keyword arguments")
            return self.call(function, arguments, new=True)
        if name == "BUILD":
            target, state = self.take(2)
            return self.build(target, state)
        if name == "BINPERSID":
            return Persistent(stack.pop())
        return stack[-1]  # DUP

    def take(self, count: int) -> list[Any]:
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def to_mark(self) -> list[Any]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def unsafe(self, label: str) -> UnsafeInput:
        return UnsafeInput(f"{self.where} {label}", why="no file written by torch.save does this")

    def spend(self, items: int) -> None:
        """Copies are not paid for by the file's length, so they have a limit of their own."""
        self.copied += items
        if self.copied > MOST_COPIED:
            raise self.unsafe("repeats its own content too often")

    def named(self, module: Any, name: Any) -> Global:
        if not isinstance(module, str) or not isinstance(name, str):
            raise self.unsafe("uses something else than text as a name")
        known = self.names.get((module, name))
        if known is None:
            try:
                kind = kind_of_name(module, name, self.where)
            except UnsafeInput as error:
                if not may_be_object(module, name):
                    raise
                kind, self.unknown = Kind.OBJECT, self.unknown or error
            known = Global(module, name, kind)
            self.names[module, name] = known
        return known

    def extend(self, target: Any, items: list[Any]) -> Any:
        if _is_object(target):
            return target
        if not isinstance(target, list):
            raise self.unsafe(f"appends to {_type(target)}")
        target.extend(items)
        return target

    def set_items(self, target: Any, items: list[Any]) -> Any:
        if _is_object(target):
            return target
        if not isinstance(target, Mapping):
            raise self.unsafe(f"sets items of {_type(target)}")
        if len(items) % 2:
            raise Damaged(f"{self.where} is corrupt", why="a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target.set(key, value)
        return target

    def call(self, function: Any, arguments: Any, *, new: bool) -> Any:
        """`new`: an object of a class, as opposed to what a function gives."""
        if _is_object(function):
            function = function.function  # a class that stands in the file itself
        if not isinstance(function, Global) or not isinstance(arguments, tuple):
            raise self.unsafe(f"calls {_type(function)}")
        if function.kind is Kind.NAME:
            raise self.unsafe(f"calls `{function}`")
        if function.kind is Kind.VALUE:
            return Call(function, arguments)
        if function.kind is Kind.OBJECT:
            made = new or function.name[:1].isupper() or function.name == "partial"
            if not made and function.module.partition(".")[0] != _BY_VALUE:
                raise self.unsafe(f"calls `{printable(str(function))}`")
            self.objects.append(Call(function, arguments))
            return self.objects[-1]
        if function.kind is Kind.SEQUENCE:
            return self.sequence(function, arguments)
        result = Mapping(namespace=function.kind is Kind.NAMESPACE)
        for source in arguments:
            if isinstance(source, Mapping):
                self.merge(result, source)
            elif isinstance(source, list):
                for pair in source:
                    if not isinstance(pair, list | tuple) or len(pair) != 2:
                        raise self.unsafe(f"calls `{function}` with something else than pairs")
                    self.spend(1)
                    result.set(*pair)
            elif source is not None and source != () and not isinstance(source, Global):
                raise self.unsafe(f"calls `{function}` with {_type(source)}")
        return result

    def sequence(self, function: Global, arguments: tuple[Any, ...]) -> Any:
        items: Any = arguments[0] if arguments else ()
        if not isinstance(items, list | tuple):
            raise self.unsafe(f"calls `{function}` with {_type(items)}")
        fixed = function.name in ("tuple", "frozenset", "Size")
        if fixed and isinstance(items, tuple):
            return items
        self.spend(len(items))
        return tuple(items) if fixed else list(items)

    def build(self, target: Any, state: Any) -> Any:
        if not isinstance(target, Mapping | Call):
            raise self.unsafe(f"sets the state of {_type(target)}")
        if target.state is not None:
            raise self.unsafe("sets the state of an object twice")
        target.state = state
        if isinstance(target, Mapping) and target.namespace:
            for part in state if isinstance(state, tuple) else (state,):
                if isinstance(part, Mapping):
                    self.merge(target, part)
        return target

    def merge(self, target: Mapping, source: Mapping) -> None:
        self.spend(len(source))
        for key, value in list(source.items()):
            target.set(key, value)


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


def _is_object(value: Any) -> bool:
    return isinstance(value, Call) and value.function.kind is Kind.OBJECT


def _type(value: Any) -> str:
    """The kind of a value, in a message."""
    if isinstance(value, Global | Call):
        return f"`{printable(str(value.function if isinstance(value, Call) else value))}`"
    return "a dict" if isinstance(value, Mapping) else f"a {type(value).__name__}"
