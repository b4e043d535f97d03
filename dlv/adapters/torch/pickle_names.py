"""The classes and functions a pickle may name: each only says how a descriptor is built."""

from __future__ import annotations

from enum import Enum

from dlv.errors import UnsafeInput


class Kind(Enum):
    MAPPING = "a dict, or a class that behaves as one"
    SEQUENCE = "a list, tuple or set, or a class that behaves as one"
    NAMESPACE = "an object whose attributes are a dict"
    VALUE = "kept as a call with its arguments, never made"
    NAME = "may be named but not called"


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


def kind_of(module: str, name: str, where: str) -> Kind:
    """How to treat a name; one that is not on the list is refused and explained."""
    kind = ALLOWED.get((module, name))
    if kind is not None:
        return kind
    full = shown(f"{module}.{name}")
    if module.startswith(("torch.nn.modules.", "torch.nn.parallel.")):
        raise UnsafeInput(
            f"{where} is a saved module, not a state dict",
            why=f"it names `{full}`: loading it would run the code of that class",
            hint="save `model.state_dict()` instead, or keep the file unread with --as file",
        )
    raise UnsafeInput(
        f"{where} names `{full}`",
        why="reading it as torch.load does would import and call that; dlv runs nothing from files",
        hint="save tensors and plain values only (torch.load with weights_only=True must accept "
        "the file); or keep the file unread with --as file",
    )


def shown(text: str) -> str:
    """A name from the file as it may stand in a message."""
    safe = text[:120].encode("ascii", "backslashreplace").decode()
    safe = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in safe)
    return safe + ("…" if len(text) > 120 else "")
