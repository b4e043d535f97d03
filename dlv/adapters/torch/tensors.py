"""Tensors of a torch file: what a rebuild call describes, checked against its storage."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping as ReadMapping
from functools import partial
from typing import Any

from dlv.adapters.archive import Entry, stream
from dlv.adapters.checkpoint import Checkpoint, Part, Tensor
from dlv.adapters.source import Source
from dlv.adapters.splice import Piece, cut, extent, gather, is_contiguous, swap
from dlv.adapters.torch.pickles import Call, Global, Mapping, Persistent
from dlv.dataclass import dataclass
from dlv.dtypes import TORCH_DTYPES
from dlv.errors import Damaged, UnsafeInput, UsageError
from dlv.kinds import Raw

# torch's name of a dtype: name here, bytes per element, bytes that swap together
DTYPES: dict[str, tuple[str, int, int]] = {
    **{name: (dtype.name, dtype.bytes, dtype.word) for name, dtype in TORCH_DTYPES.items()},
    "complex32": ("raw:complex32", 4, 2),
    "float4_e2m1fn_x2": ("raw:float4_e2m1fn_x2", 1, 1),
    **{
        f"{sign}int{bits}": (f"raw:{sign}int{bits}", 1, 1)
        for sign in ("", "u")
        for bits in range(1, 8)
    },
}
STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "ComplexHalfStorage": "complex32",
    "UInt16Storage": "uint16",
    "UInt32Storage": "uint32",
    "UInt64Storage": "uint64",
    "UntypedStorage": "uint8",
}
_UNREADABLE = {
    "_rebuild_qtensor": ("quantised", "save `tensor.int_repr()` and its scales instead"),
    "_rebuild_sparse_tensor": ("sparse", "save `tensor.to_dense()`"),
    "_rebuild_sparse_csr_tensor": ("sparse", "save `tensor.to_dense()`"),
    "_rebuild_nested_tensor": ("nested", "save the tensors it is made of"),
    "_rebuild_meta_tensor_no_storage": ("a meta tensor: it has no elements", None),
    "_rebuild_wrapper_subclass": ("of a tensor subclass", None),
    "_rebuild_device_tensor_from_numpy": ("a numpy array in disguise", "save `tensor.cpu()`"),
    "_rebuild_xla_tensor": ("a numpy array in disguise", "save `tensor.cpu()`"),
}
_REBUILDS = {"_rebuild_tensor": 4, "_rebuild_tensor_v2": 6, "_rebuild_tensor_v3": 7}
_WRAPPERS = (
    "_rebuild_parameter",
    "_rebuild_parameter_with_state",
    "_rebuild_device_tensor_from_cpu_tensor",
)
_PLAIN_CLASSES = ("torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")
_MOST_WRAPPERS = 8
_MOST_AXES = 64
_MOST_REPEATS = 16  # bytes read by all tensors together, in file sizes
_FREE_BYTES = 64 << 20
_LIMIT = 1 << 62


@dataclass(frozen=True)
class View:
    """A tensor as a window on a storage: offset and strides in elements."""

    dtype: str
    item: int
    swap: int
    entry: Entry
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.item * math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        return is_contiguous(self.shape, self.strides)

    @property
    def start(self) -> int:
        """Offset in the file of the first element."""
        return self.entry.offset + self.offset * self.item

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for tensors that share their elements: storage, offset, shape and strides."""
        steps = tuple(s for n, s in zip(self.shape, self.strides, strict=True) if n > 1)
        return self.entry.name, self.dtype, self.offset, self.shape, steps


def is_tensor(value: Any) -> bool:
    if isinstance(value, Persistent):
        return True
    if not isinstance(value, Call):
        return False
    module, name = value.function.module, value.function.name
    return module in ("torch._utils", "torch._tensor") and name.startswith("_rebuild_")


class Storages:
    """The storages of one file, found by key and read by view."""

    def __init__(
        self, file: Source, entries: ReadMapping[str, Entry], *, big: bool, verify: bool
    ) -> None:
        self._file = file
        self._entries = entries
        self.big = big
        self._verify = verify
        self._verified: set[str] = set()
        self._first: dict[tuple[object, ...], str] = {}  # by identity: the tensor that has it
        self._total = 0

    def view(self, value: Any, name: str) -> View:
        """The checked window that `value` (for which `is_tensor` holds) describes."""
        wrappers = 0
        while isinstance(value, Call) and value.function.name not in _REBUILDS:
            value = self._unwrap(value, name)
            wrappers += 1
            if wrappers > _MOST_WRAPPERS:
                raise _unsafe(name, f"more than {_MOST_WRAPPERS} calls around it")
        if isinstance(value, Persistent):  # a bare storage
            dtype, entry, elements = self._storage(value, name)
            return View(*DTYPES[dtype], entry, 0, (elements,), (1,))
        if not isinstance(value, Call) or len(value.arguments) < _REBUILDS[value.function.name]:
            raise _unsafe(name, "its description is incomplete")
        return self._rebuilt(value, name)

    def _unwrap(self, value: Call, name: str) -> Any:
        function, arguments = value.function, value.arguments
        if function.name in _UNREADABLE:
            label, hint = _UNREADABLE[function.name]
            raise UsageError(
                f"tensor {name!r} is {label}", why="dlv stores dense tensors", hint=hint
            )
        if function.name in _WRAPPERS and arguments:
            return arguments[0]
        if function.name == "_rebuild_from_type_v2" and len(arguments) == 4:
            inner, kind, inner_arguments, _ = arguments
            if str(kind) not in _PLAIN_CLASSES:
                raise UsageError(f"tensor {name!r} is of the class {kind}", why="it is not plain")
            if isinstance(inner, Global) and isinstance(inner_arguments, tuple):
                return Call(inner, inner_arguments)
        raise _unsafe(name, f"`{function}` does not make a tensor of its arguments")

    def _rebuilt(self, value: Call, name: str) -> View:
        arguments = value.arguments
        storage, offset, shape, strides = arguments[:4]
        dtype, entry, _ = self._storage(storage, name)
        metadata = arguments[6:7]
        if value.function.name == "_rebuild_tensor_v3":
            dtype = arguments[6].name if isinstance(arguments[6], Global) else ""
            metadata = arguments[7:8]
        if dtype not in DTYPES:
            raise UsageError(f"tensor {name!r} has the dtype {dtype or 'of nothing'}")
        ours, item, swap = DTYPES[dtype]
        elements = entry.size // item
        for known in metadata:
            if isinstance(known, Mapping) and (known.get("conj") or known.get("neg")):
                raise UsageError(
                    f"tensor {name!r} is a lazy conjugate or negative",
                    hint="save `tensor.resolve_conj().resolve_neg()`",
                )
        _check_numbers(name, offset, shape, strides)
        if math.prod(shape) * item >= _LIMIT:
            raise _unsafe(name, f"its shape is {shape}")
        needed = extent(shape, strides)
        if needed and offset + needed > elements:
            raise _unsafe(
                name, f"it reaches element {offset + needed} of a storage of {elements} elements"
            )
        return View(ours, item, swap, entry, offset, shape, strides)

    def _storage(self, value: Any, name: str) -> tuple[str, Entry, int]:
        identity = value.identity if isinstance(value, Persistent) else None
        if not isinstance(identity, tuple) or len(identity) != 5 or identity[0] != "storage":
            raise _unsafe(name, "its storage is not described as torch.save does")
        _, kind, key, _, elements = identity
        if not isinstance(kind, Global) or not isinstance(key, str) or type(elements) is not int:
            raise _unsafe(name, "its storage is not described as torch.save does")
        if kind.name not in STORAGES:
            if not kind.name.endswith("Storage"):
                raise _unsafe(name, f"its storage is a `{kind}`")
            raise UsageError(f"tensor {name!r} is in a `{kind}`", why="dlv stores dense tensors")
        dtype = STORAGES[kind.name]
        entry = self._entries.get(key)
        if entry is None:
            raise Damaged(
                f"the storage of tensor {name!r} is missing", why=f"no data/{key[:80]} in the file"
            )
        if elements * DTYPES[dtype][1] != entry.size:
            raise Damaged(
                f"the storage of tensor {name!r} has the wrong size",
                why=f"{elements} elements of {dtype} in {entry.size} bytes",
            )
        return dtype, entry, elements

    def tied(self, view: View, name: str) -> str | None:
        """The name of the earlier tensor whose elements these are; others are counted."""
        first = self._first.setdefault(view.identity, name) if view.nbytes else name
        if first != name:
            return first
        self.count(view, name)
        return None

    def count(self, view: View, name: str) -> None:
        """Refuse views that are far larger together than the file."""
        self._total += view.nbytes
        if self._total > _MOST_REPEATS * self._file.size + _FREE_BYTES:
            raise UnsafeInput(
                f"the tensors of {self._file.name} are far larger than the file",
                why=f"{self._total} bytes up to {name!r}, {self._file.size} in the file",
            )

    def tensor(self, view: View, name: str, role: str, tied: str | None = None) -> Tensor:
        read, part = partial(self.read, view), self.part(view)
        return Tensor(name, view.dtype, view.shape, view.nbytes, read, role, tied, part)

    def read(self, view: View) -> Raw:
        """The view's elements in C order, little-endian."""
        entry = view.entry
        size = extent(view.shape, view.strides) * view.item
        if not size:
            return b""
        data = self._file.read(view.start, size)
        self._check_sum(entry, data)
        if not view.contiguous:
            data = gather(data, view.item, view.shape, view.strides)
        return swap(data, view.swap) if self.big else data

    def check_filled(self, view: View, name: str) -> None:
        """That it was written at all: where it was not, no checksum is noted.

        Bytes whose checksum is none are rare enough to be read here.
        """
        entry = view.entry
        if not self._verify or entry.crc or not entry.size or entry.name in self._verified:
            return
        try:
            self._check_sum(entry, b"")
        except Damaged as error:
            raise Damaged(
                f"{self._file.name} has no data for the tensor {name!r}",
                why="without a checksum: it was saved under skip_data(), or its writer broke off",
                hint="save it again with torch.save",
            ) from error

    def part(self, view: View) -> Part | None:
        """How to read a piece of a tensor that lies in the file as it is."""
        if not view.contiguous or (self.big and view.swap > 1):
            return None

        def read(start: int, size: int) -> Raw:
            self._check_sum(view.entry, b"")
            return self._file.read(view.start + start, size)

        return read

    def _check_sum(self, entry: Entry, data: Raw) -> None:
        """A checksum covers a whole storage: read it once where a view covers less."""
        if not self._verify or entry.name in self._verified:
            return
        if len(data) < entry.size:
            for _ in stream(self._file, entry, entry.size):
                pass
        elif zlib.crc32(data) != entry.crc:
            raise Damaged(f"{entry.name} in {self._file.name} is corrupt", why="wrong checksum")
        self._verified.add(entry.name)


def _check_numbers(name: str, offset: Any, shape: Any, strides: Any) -> None:
    if not isinstance(shape, tuple) or not isinstance(strides, tuple):
        raise _unsafe(name, "its shape or its strides are not tuples")
    if len(shape) != len(strides) or len(shape) > _MOST_AXES:
        raise _unsafe(name, f"{len(shape)} axes, {len(strides)} strides")
    for number in (offset, *shape, *strides):
        if type(number) is not int or not 0 <= number < _LIMIT:
            raise _unsafe(name, "its offset, shape or strides are negative, huge or not integers")


def _unsafe(name: str, why: str) -> UnsafeInput:
    return UnsafeInput(f"tensor {name!r} does not fit its storage", why=why)


_MOST_OTHER_BYTES = 32 << 20


def add_skeleton(checkpoint: Checkpoint, file: Source, views: list[View], *, big: bool) -> None:
    """Give the checkpoint what is left of the file without its tensors."""
    places = []
    for index, view in enumerate(views):
        unit = view.swap if big else 1
        if not view.nbytes:
            continue
        if view.contiguous:
            places.append((view.start, Piece(index, 0, view.nbytes, "C", unit)))
        elif is_contiguous(view.shape[::-1], view.strides[::-1]):
            places.append((view.start, Piece(index, 0, view.nbytes, "F", unit)))
    places.sort(key=lambda place: (place[0], -place[1].size))
    end = 0
    kept = []
    for start, piece in places:
        if start >= end:
            kept.append((start, piece))
            end = start + piece.size
    left = file.size - sum(piece.size for _, piece in kept)
    if left > _MOST_OTHER_BYTES:
        checkpoint.notes.append(
            f"checkout writes a fresh file: {left} bytes of this one are not plain tensors"
        )
        return
    checkpoint.skeleton = cut(file, kept)
    checkpoint.exact = True
