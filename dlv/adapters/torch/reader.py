"""torch.save's zip files, read without torch and without running anything that is in them.

Which tensors are the model's, and what they are called, follows from the state dicts in the pickle.
Skeleton: splice form. Every storage that one contiguous (or wholly transposed) tensor covers
is a reference to it; views, padding, the pickle and the directory are literals.
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO

from dlv.adapters import splice
from dlv.adapters.archive import STORED, Entry, read_directory
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.source import Source, opened
from dlv.adapters.torch.pickles import MOST_BYTES, Call, Global, Mapping, is_module, load, state_of
from dlv.adapters.torch.tensors import DTYPES, STORAGES, Storages, View, add_skeleton, is_tensor
from dlv.canonical import dumps, number
from dlv.dataclass import dataclass
from dlv.errors import Damaged, UnsafeInput, UsageError
from dlv.kinds import Raw
from dlv.objects.parameters import BUFFER_NAMES

MOST_DEPTH = 64
MOST_VISITS = 2_000_000
MOST_TENSORS = 200_000
MOST_NAME = 4096
MOST_LETTERS = 32 << 20  # of all names together: a key that many share is in the file once
MOST_HYPERPARAMETERS = 10_000
_MOST_TEXT = 4096
_MOST_LIST = 100
_MOST_VISITED = 100_000

MODEL_KEYS = (
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "net",
    "network",
    "module",
    "weights",
)
OPTIMIZER_KEYS = (
    "optimizer",
    "optimizer_state_dict",
    "optimizer_state",
    "optimizer_states",
    "optim",
    "optim_state_dict",
)
EXTRA_WORDS = ("ema", "rng", "scheduler", "scaler", "callback", "loop", "loss", "metric", "amp")
STEP_KEYS = ("global_step", "step", "iteration", "epoch")
HYPERPARAMETER_KEYS = (
    *("hyper_parameters", "hyperparameters", "hparams", "train_args", "args", "config", "cfg"),
)

_NUMPY_FORMATS = {
    "b1": "?",
    "i1": "b",
    "i2": "h",
    "i4": "i",
    "i8": "q",
    "u1": "B",
    "u2": "H",
    "u4": "I",
    "u8": "Q",
    "f2": "e",
    "f4": "f",
    "f8": "d",
}


@dataclass(frozen=True)
class Leaf:
    """A tensor's place in the saved object; `value` still describes it as the file does."""

    path: tuple[str, ...]
    value: Any


@dataclass(frozen=True)
class Named:
    name: str
    role: str
    value: Any


def leaves(root: Any, where: str) -> list[Leaf]:
    """All tensors of nested dicts and lists, in order; cycles are left, repeats are bounded."""
    root = state_of(root)
    if is_tensor(root):
        return [Leaf((), root)]
    found: list[Leaf] = []
    barren: set[int] = set()  # containers without a tensor
    visits = letters = 0
    stack: list[tuple[Any, tuple[str, ...], Iterator[tuple[Any, Any]], int]] = []
    open_ids: set[int] = set()
    states: dict[int, Any] = {}  # of modules, so that each is one and the same table

    def opened(child: Any) -> Any:
        if not is_module(child):
            return child
        return states.setdefault(id(child), state_of(child))

    def enter(value: Any, path: tuple[str, ...]) -> None:
        if len(stack) >= MOST_DEPTH:
            raise UnsafeInput(f"{where} is nested too deeply", why=f"{MOST_DEPTH} levels")
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        open_ids.add(id(value))
        stack.append((value, path, iter(items), len(found)))

    if isinstance(root, Mapping | list | tuple):
        enter(root, ())
    while stack:
        value, path, items, before = stack[-1]
        for key, child in items:
            child = opened(child)
            visits += 1
            if visits > MOST_VISITS or len(found) >= MOST_TENSORS:
                raise UnsafeInput(
                    f"{where} is too large, or the same again and again",
                    why=f"the limits are {MOST_TENSORS} tensors and {MOST_VISITS} values",
                )
            if is_tensor(child):
                found.append(Leaf((*path, _segment(key, visits, where)), child))
                length = sum(map(len, found[-1].path))
                letters += length
                if length > MOST_NAME:
                    raise UnsafeInput(f"{where} contains a name of over {MOST_NAME} letters")
                if letters > MOST_LETTERS:
                    raise UnsafeInput(f"{where} contains names of over {MOST_LETTERS} letters")
            elif (
                isinstance(child, Mapping | list | tuple)
                and len(child)
                and id(child) not in open_ids
                and id(child) not in barren
            ):
                enter(child, (*path, _segment(key, visits, where)))
                break
        else:
            stack.pop()
            open_ids.discard(id(value))
            if len(found) == before:
                barren.add(id(value))
    return found


def _segment(key: Any, count: int, where: str) -> str:
    if isinstance(key, str):
        if len(key) > MOST_NAME:
            raise UnsafeInput(f"{where} contains a name of over {MOST_NAME} letters")
        return key.encode("utf-8", "backslashreplace").decode()  # no lone surrogates
    if key is None or isinstance(key, bool | float):
        return str(key)
    if isinstance(key, int) and key.bit_length() <= 64:
        return str(key)
    return f"key{count}"


def assign(root: Any, leaves: list[Leaf]) -> list[Named]:
    """Names and roles: the model's tensors get theirs first, and no name is given twice."""
    model = _model_key(root, leaves)
    only_optimizer = (
        isinstance(root, Mapping)
        and isinstance(root.get("state"), Mapping)
        and isinstance(root.get("param_groups"), list)
    )
    wanted = []
    for leaf in leaves:
        path = leaf.path
        if only_optimizer:
            wanted.append(("optimizer", ("optimizer", *path)))
        elif model is not None and path[0] == model:
            wanted.append((_weight_or_buffer(path), path[1:]))
        elif len(path) > 1 and path[0] in OPTIMIZER_KEYS:
            wanted.append(("optimizer", ("optimizer", *path[1:])))
        elif len(path) > 1 and path[0].startswith("optim"):
            wanted.append(("optimizer", path))
        elif model is not None or (len(path) > 1 and _is_extra(path[0])):
            wanted.append(("extra", path))
        else:
            wanted.append((_weight_or_buffer(path), path))
    names: dict[int, str] = {}
    taken: set[str] = set()
    again: dict[str, int] = {}
    order = sorted(range(len(leaves)), key=lambda i: wanted[i][0] not in ("weight", "buffer"))
    for index in order:
        name = ".".join(wanted[index][1]) or "tensor"
        if name in taken:
            name = ".".join(leaves[index].path)
        base = name
        while name in taken:
            again[base] = again.get(base, 1) + 1
            name = f"{base}#{again[base]}"
        taken.add(name)
        names[index] = name
    return [Named(names[i], wanted[i][0], leaf.value) for i, leaf in enumerate(leaves)]


def _model_key(root: Any, leaves: list[Leaf]) -> str | None:
    """The key under which the model's own state dict lies, if it is wrapped."""
    if not isinstance(root, Mapping):
        return None
    wrapped = {leaf.path[0] for leaf in leaves if len(leaf.path) > 1}
    return next(
        (
            key
            for key in MODEL_KEYS
            if key in wrapped and (is_module(root.get(key)) or isinstance(root.get(key), Mapping))
        ),
        None,
    )


def _weight_or_buffer(path: tuple[str, ...]) -> str:
    last = path[-1].rpartition(".")[2] if path else ""
    return "buffer" if last in BUFFER_NAMES else "weight"


def _is_extra(key: str) -> bool:
    return any(word in key.lower().split("_") for word in EXTRA_WORDS) or key == "callbacks"


def step_of(root: Any) -> int | None:
    """The training step, or the epoch where no step is told."""
    if not isinstance(root, Mapping):
        return None
    for key in STEP_KEYS:
        value = scalar(root.get(key))
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is int and 0 <= value < 1 << 63:
            return value
    return None


def hyperparameters_of(root: Any) -> dict[str, Any]:
    """Scalars of the dicts that people keep them in, nested keys joined by dots; lists as JSON."""
    result: dict[str, Any] = {}
    if not isinstance(root, Mapping):
        return result
    for key in HYPERPARAMETER_KEYS:
        stack: list[tuple[str, Any, int]] = [("", root.get(key), 0)]
        visits = 0  # a list that contains itself has no end
        while stack and len(result) < MOST_HYPERPARAMETERS and visits < _MOST_VISITED:
            name, value, depth = stack.pop()
            visits += 1
            value = _mapping_of(value)
            if isinstance(value, Mapping):
                children = list(value.items())
            elif isinstance(value, list | tuple) and name and len(value) <= _MOST_LIST:
                items = [scalar(item) for item in value]
                if not any(a is None and b is not None for a, b in zip(items, value, strict=True)):
                    # As settings in a file say it, so that the two are one hyperparameter.
                    text = dumps(items).decode("utf-8")
                    if len(text) <= _MOST_TEXT:
                        result.setdefault(name, text)
                        continue
                children = list(enumerate(value))
            else:
                plain = scalar(value)
                if name and (plain is not None or value is None):
                    result.setdefault(name, plain)
                continue
            if depth < 16 and len(stack) + len(children) <= MOST_HYPERPARAMETERS:
                prefix = f"{name}." if name else ""
                stack += [
                    (f"{prefix}{child}", inner, depth + 1)
                    for child, inner in reversed(children)
                    if isinstance(child, str | int) and len(prefix) + _size(child) <= _MOST_TEXT
                ]
    return result


def _size(key: str | int) -> int:
    return len(key) if isinstance(key, str) else key.bit_length()


def _mapping_of(value: Any) -> Any:
    """What an OmegaConf node holds."""
    if isinstance(value, Call) and value.function.module.startswith("omegaconf."):
        state = value.state
        if isinstance(state, Mapping):
            content = state.get("_content")
            return state.get("_val") if content is None else content
    return value


def scalar(value: Any) -> str | int | float | bool | None:
    """A value as it may stand among hyperparameters; None for anything else."""
    if isinstance(value, Call):
        value = _called(value)
    if isinstance(value, Global):
        return str(value)
    if isinstance(value, str):
        text = value.encode("utf-8", "backslashreplace").decode()
        return text if len(text) <= _MOST_TEXT else None
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else None
    return number(value) if isinstance(value, float) else None


def _called(call: Call) -> Any:
    function, arguments = call.function, call.arguments
    if function.name == "scalar" and len(arguments) == 2:
        return _numpy_scalar(*arguments)
    if function.module.startswith("pathlib") and len(arguments) <= _MOST_LIST:
        if arguments and all(isinstance(part, str) for part in arguments):
            head, *rest = arguments
            return "/".join([head.rstrip("/"), *rest]) if rest else head
    elif str(function) == "torch.device":
        return ":".join(str(part) for part in arguments if isinstance(part, str | int))
    return None


def _numpy_scalar(dtype: Any, raw: Any) -> int | float | bool | None:
    if isinstance(raw, Call) and str(raw.function) == "_codecs.encode":
        # Protocol 2 has no bytes: they are written as the call that makes them of latin-1 text.
        text = raw.arguments[0] if raw.arguments else None
        if not isinstance(text, str) or len(text) > 16 or max(map(ord, text), default=0) > 255:
            return None
        raw = text.encode("latin-1")
    if not isinstance(dtype, Call) or not dtype.arguments or not isinstance(raw, bytes):
        return None
    name = dtype.arguments[0]
    state = dtype.state
    order = state[1] if isinstance(state, tuple) and len(state) > 1 else "<"
    form = _NUMPY_FORMATS.get(name) if isinstance(name, str) else None
    if form is None or struct.calcsize(f"<{form}") != len(raw):
        return None
    (value,) = struct.unpack(f"{'>' if order == '>' else '<'}{form}", raw)
    return None if isinstance(value, float) and math.isnan(value) else value


FORMAT = "pt"
SUFFIX = ".pt"

_TRUST = "load it where you trust its author, and save it again with torch.save of 1.6 or newer"


def open(path: str, optimizer: str = "keep") -> Checkpoint:  # noqa: A001 (the Adapter protocol)
    """The tensors of a torch file; `optimizer="drop"` leaves those of optimizers out."""
    if optimizer not in ("keep", "drop"):
        raise UsageError(f"optimizer is keep or drop, not {optimizer!r}")
    return opened(path, partial(_open, drop=optimizer == "drop"))


def _open(file: Source, *, drop: bool) -> Checkpoint:
    _check_magic(file)
    entries = _content(file)
    data = bytes(file.read(entries["data.pkl"].offset, entries["data.pkl"].size))
    verify = _has_checksums(file, entries, data)
    order = _small(file, entries, "byteorder") or b"little"
    if order not in (b"little", b"big"):
        raise Damaged(f"{file.name} has an unknown byte order", why=repr(order[:20]))
    where = f"the pickle in {file.name}"
    root = load(data, where)
    keyed = {
        name.removeprefix("data/"): entry
        for name, entry in entries.items()
        if name.startswith("data/")
    }
    storages = Storages(file, keyed, big=order == b"big", verify=verify)
    found = leaves(root, where)
    checkpoint = Checkpoint(
        FORMAT, [], step=step_of(root), hyperparameters=hyperparameters_of(root), close=file.close
    )
    views: list[View] = []
    dropped = 0
    for named in assign(root, found):
        if drop and named.role == "optimizer":
            dropped += 1
            continue
        view = storages.view(named.value, named.name)
        storages.check_filled(view, named.name)
        tied = storages.tied(view, named.name)
        views.append(view)
        checkpoint.tensors.append(storages.tensor(view, named.name, named.role, tied))
    if not verify:
        checkpoint.notes.append("saved without checksums: damage in the file would not be seen")
    if dropped:
        checkpoint.notes.append(f"{dropped} optimizer tensors skipped")
    else:
        add_skeleton(checkpoint, file, views, big=storages.big)
    return checkpoint


def _check_magic(file: Source) -> None:
    head = bytes(file.read(0, min(file.size, 512)))
    if head[:2] == b"PK":
        return
    if head[:1] == b"\x80" or head[257:262] == b"ustar":
        kind = "a plain pickle" if head[:1] == b"\x80" else "a tar archive"
        raise UnsafeInput(
            f"{file.name} is {kind}, as torch.save wrote before version 1.6",
            why="reading it means running what it contains",
            hint=_TRUST,
        )
    raise Damaged(f"{file.name} is not a torch file", why="it is not a zip archive")


def _content(file: Source) -> dict[str, Entry]:
    """Entries by name, without the folder that torch.save puts around all of them."""
    entries: dict[str, Entry] = {}
    folders = set()
    for entry in read_directory(file):
        folder, _, name = entry.name.partition("/")
        folders.add(folder)
        if name.startswith("code/") and "__torch__" in name:
            raise UsageError(
                f"{file.name} is a TorchScript program, not weights",
                why="torch.jit.save wrote it",
                hint="torch.save(model.state_dict(), ...), or torch.export.save with the network",
            )
        if entry.method != STORED:
            raise UnsafeInput(
                f"{entry.name} in {file.name} is compressed", why="torch.save stores plain bytes"
            )
        entries[name] = entry
    if len(folders) > 1:
        raise UnsafeInput(
            f"{file.name} contains more than one folder", why=", ".join(sorted(folders)[:4])
        )
    if "constants.pkl" in entries or any(name.startswith("code/") for name in entries):
        raise UsageError(
            f"{file.name} is a TorchScript module",
            why="it contains code besides tensors",
            hint="save `module.state_dict()` with torch.save",
        )
    if "archive_format" in entries:
        raise UsageError(f"{file.name} is an exported program (.pt2), not a checkpoint")
    if "data.pkl" not in entries:
        raise Damaged(f"{file.name} is not a torch file", why="no data.pkl in the archive")
    if entries["data.pkl"].size > MOST_BYTES:
        raise UnsafeInput(
            f"the pickle in {file.name} is too large",
            why=f"{entries['data.pkl'].size} bytes, the limit is {MOST_BYTES}",
        )
    return entries


def _small(file: Source, entries: dict[str, Entry], name: str) -> bytes:
    entry = entries.get(name)
    return bytes(file.read(entry.offset, min(entry.size, 64))) if entry else b""


def _has_checksums(file: Source, entries: dict[str, Entry], data: bytes) -> bool:
    """False where torch was told to write none; one that is wrong among right ones is damage."""
    right = zlib.crc32(data) == entries["data.pkl"].crc
    version = entries.get("version")
    if right or version is None:
        known = right
    else:
        known = zlib.crc32(_small(file, entries, "version")) == version.crc
    if known and not right:
        raise Damaged(f"the pickle in {file.name} is corrupt", why="wrong checksum")
    return right


restore = splice.restore


_PREFIX = "archive"
_ALIGNMENT = 64
_BATCH = 1000  # as the pickle module does: it bounds the reader's stack
_FLAGS = 0x0800  # names are UTF-8
_DOS_DATE = (1 << 5) | 1  # 1980-01-01, the first day that zip knows
_FULL32 = 0xFFFFFFFF

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_END = struct.Struct("<4s4H2LH")

_THERE = {here: there for there, (here, _, _) in DTYPES.items()}
# uint16 and the 8-bit floats have no storage class of their own that torch still writes.
_CLASSES = {
    dtype: name for name, dtype in STORAGES.items() if not name.startswith(("U", "ComplexHalf"))
}


def save(out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:
    """Write `tensors`; tied ones share a storage, as they did when they were read."""
    by_name = {tensor.name: index for index, tensor in enumerate(tensors)}
    if len(by_name) != len(tensors):
        raise UsageError("two tensors have the same name")
    owners = []
    for index, tensor in enumerate(tensors):
        if tensor.dtype not in _THERE:
            raise UsageError(
                f"a torch file cannot hold tensor {tensor.name!r}",
                why=f"torch has no dtype {tensor.dtype}",
            )
        if tensor.nbytes != math.prod(tensor.shape) * DTYPES[_THERE[tensor.dtype]][1]:
            raise UsageError(f"tensor {tensor.name!r} has a size that is not its shape's")
        owners.append(_owner(tensors, by_name, index))
    kept = sorted(set(owners))
    keys = {owner: str(number) for number, owner in enumerate(kept)}
    archive = _Archive(out)
    archive.add("data.pkl", _pickle(tensors, [keys[owner] for owner in owners], metadata))
    archive.add(".format_version", b"1")
    archive.add(".storage_alignment", str(_ALIGNMENT).encode())
    archive.add("byteorder", b"little")
    for owner in kept:
        tensor = tensors[owner]
        data = tensor.read()
        if len(memoryview(data).cast("B")) != tensor.nbytes:
            raise Damaged(f"the tensor {tensor.name} has a wrong length")
        archive.add(f"data/{keys[owner]}", data)
        del data  # before the next one is read
    archive.add("version", b"3\n")
    archive.finish()


def _owner(tensors: Sequence[Tensor], by_name: dict[str, int], index: int) -> int:
    """The tensor whose storage this one uses: itself, or the earlier equal one it is tied to."""
    tensor = tensors[index]
    other = by_name.get(tensor.tied or "", index)
    first = tensors[other]
    alike = (first.dtype, first.shape) == (tensor.dtype, tensor.shape)
    return other if alike and first.tied is None else index


def _pickle(tensors: Sequence[Tensor], keys: Sequence[str], metadata: dict[str, str]) -> bytes:
    """Protocol 2, without a memo: what repeats is short."""
    out = bytearray(b"\x80\x02" + _name("collections", "OrderedDict") + b")R")
    for start in range(0, len(tensors), _BATCH):
        out += b"("
        for tensor, key in zip(
            tensors[start : start + _BATCH], keys[start : start + _BATCH], strict=True
        ):
            out += _text(tensor.name) + _tensor(tensor, key)
        out += b"u"
    if metadata:
        # An attribute, where torch keeps `_metadata`: no key that load_state_dict would see.
        out += b"}" + _text("dlv_metadata") + b"}("
        for name, value in sorted(metadata.items()):
            out += _text(name) + _text(value)
        out += b"usb"
    return bytes(out) + b"."


def _tensor(tensor: Tensor, key: str) -> bytes:
    there = _THERE[tensor.dtype]
    typed = _CLASSES.get(there)
    elements = math.prod(tensor.shape)
    strides = [math.prod(tensor.shape[axis + 1 :]) for axis in range(len(tensor.shape))]
    out = _name("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
    out += b"((" + _text("storage")
    out += _name("torch", typed) if typed else _name("torch.storage", "UntypedStorage")
    out += _text(key) + _text("cpu") + _integer(elements if typed else tensor.nbytes) + b"tQ"
    out += _integer(0) + _tuple(tensor.shape) + _tuple(strides) + b"\x89"
    out += _name("collections", "OrderedDict") + b")R"
    if not typed:
        out += _name("torch", there)
    return out + b"tR"


def _name(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def _integer(value: int) -> bytes:
    if value < 256:
        return bytes((ord("K"), value))
    if value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little")
    return bytes((0x8A, len(data))) + data


def _tuple(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(map(_integer, values)) + b"t"


class _Archive:
    """Stored zip entries whose data begin at multiples of 64, so that torch can map them."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._position = 0
        self._rows: list[bytes] = []
        self._sums = hashlib.sha256()

    def _write(self, data: Raw) -> None:
        self._out.write(data)
        self._position += len(memoryview(data).cast("B"))

    def add(self, name: str, data: Raw) -> None:
        raw = f"{_PREFIX}/{name}".encode()
        size = len(memoryview(data).cast("B"))
        crc = zlib.crc32(data)
        header = self._position
        narrow = min(size, _FULL32)
        local_extra = struct.pack("<2H2Q", 1, 16, size, size) if narrow == _FULL32 else b""
        begin = header + _LOCAL.size + len(raw) + len(local_extra) + 4
        padding = -begin % _ALIGNMENT
        local_extra += b"FB" + struct.pack("<H", padding) + b"Z" * padding
        common = (_FLAGS, 0, 0, _DOS_DATE, crc, narrow, narrow, len(raw))
        self._write(
            _LOCAL.pack(b"PK\x03\x04", 45 if size >= _FULL32 else 20, *common, len(local_extra))
        )
        self._write(raw + local_extra)
        self._write(data)
        wide = [value for value in (size, size, header) if value >= _FULL32]
        extra = struct.pack(f"<2H{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        version = 45 if wide else 20
        row = _CENTRAL.pack(
            b"PK\x01\x02", version, version, *common, len(extra), 0, 0, 0, 0, min(header, _FULL32)
        )
        self._rows.append(row + raw + extra)
        self._sums.update(raw + struct.pack("<LQ", crc, size))

    def finish(self) -> None:
        """The id that torch wants says what was saved; then the directory."""
        number = int.from_bytes(self._sums.digest()[:16], "big") % 10**40
        self.add(".data/serialization_id", f"{number:040d}".encode())
        start, rows = self._position, b"".join(self._rows)
        count = len(self._rows)
        self._write(rows)
        where = self._position
        if start + len(rows) >= _FULL32 or count >= 0xFFFF:
            self._write(
                _END64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(rows), start)
            )
            self._write(_LOCATOR.pack(b"PK\x06\x07", 0, where, 1))
        few, narrow = min(count, 0xFFFF), min(start, _FULL32)
        self._write(_END.pack(b"PK\x05\x06", 0, 0, few, few, min(len(rows), _FULL32), narrow, 0))
