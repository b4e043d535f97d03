"""HDF5 files written in one pass: groups, texts as attributes, tensors in one piece each.

The newer, plainer forms (of HDF5 1.8): one header for each object, checksums, no trees. The
same tensors always give the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import BinaryIO

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.hdf5.objects import (
    ATTRIBUTE,
    DATASPACE,
    DATATYPE,
    LAYOUT,
    LINK,
    LINK_INFO,
    SIGNATURE,
    UNDEFINED,
    checksum,
)
from dlv.dataclass import dataclass
from dlv.dtypes import DTYPES
from dlv.errors import UsageError

_FILL, _GROUP_INFO = 5, 10
_MOST_MESSAGE = 65_000
_MOST_TEXTS = 50_000
_ALIGN = 8
Attributes = Mapping[str, str]


@dataclass
class Group:
    """A group to be written; children in the order in which they are to be found."""

    groups: dict[str, Group] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)

    def below(self, parts: Sequence[str]) -> Group:
        group = self
        for part in parts:
            if part in group.tensors:
                raise UsageError(f"HDF5 cannot hold a tensor and a group called {part!r}")
            group = group.groups.setdefault(part, Group())
        return group


def write(out: BinaryIO, tensors: Sequence[tuple[str, Tensor]], attributes: Attributes) -> None:
    """Tensors at their paths, and texts at the root."""
    root = Group(attributes=dict(sorted(attributes.items())))
    for path, tensor in tensors:
        *parts, last = path.split("/")
        if "" in (*parts, last) or {".", ".."} & {*parts, last} or "\0" in path:
            raise UsageError(f"HDF5 cannot hold the name {path!r}")
        group = root.below(parts)
        if last in group.tensors or last in group.groups:
            raise UsageError(f"HDF5 cannot hold two tensors named {path}")
        group.tensors[last] = tensor
    write_tree(out, root)


def write_tree(out: BinaryIO, root: Group) -> None:
    """Everything is laid out first: the beginning says how long the file is."""
    layout = _Layout()
    layout.place(root)
    beginning = struct.pack(
        "<8sBBBBQQQQ", SIGNATURE, 2, 8, 8, 0, 0, UNDEFINED, layout.end, layout.root
    )
    out.write(beginning + struct.pack("<I", checksum(beginning)))
    position = 48
    for address, piece in layout.pieces:
        out.write(bytes(address - position))
        if isinstance(piece, bytes):
            out.write(piece)
            position = address + len(piece)
        else:
            piece.copy_to(out)
            position = address + piece.nbytes


class _Layout:
    """Where everything lies: tensors as they come, then headers, a group behind its children."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, bytes | Tensor]] = []
        self.end = 48
        self.root = 0
        self.texts: dict[str, bytes] = {"": bytes(16)}

    def append(self, piece: bytes | Tensor, size: int) -> int:
        address = self.end + -self.end % _ALIGN
        self.pieces.append((address, piece))
        self.end = address + size
        return address

    def place(self, root: Group) -> None:
        order: list[Group] = []
        waiting = [root]
        while waiting:
            group = waiting.pop()
            order.append(group)
            waiting += reversed(list(group.groups.values()))
        self._gather(order)
        addresses: dict[int, int] = {}
        tensors: dict[tuple[int, str], int] = {}
        for group in order:
            for name, tensor in group.tensors.items():
                tensors[id(group), name] = self._tensor(name, tensor)
        for group in reversed(order):
            links = [_link(name, tensors[id(group), name]) for name in group.tensors]
            links += [_link(name, addresses[id(each)]) for name, each in group.groups.items()]
            header = _group(links, [self._attribute(*pair) for pair in group.attributes.items()])
            addresses[id(group)] = self.append(header, len(header))
        self.root = addresses[id(root)]

    def _gather(self, groups: Sequence[Group]) -> None:
        """All texts, in collections in front of everything else."""
        wanted = dict.fromkeys(text for group in groups for text in group.attributes.values())
        if any(t.dtype == "bfloat16" for group in groups for t in group.tensors.values()):
            wanted["bfloat16"] = None
        for raw, held in _collections([text.encode("utf-8") for text in wanted if text]):
            address = self.append(raw, len(raw))
            for number, text in enumerate(held, 1):
                reference = struct.pack("<IQI", len(text), address, number)
                self.texts[text.decode("utf-8")] = reference

    def _attribute(self, name: str, text: str) -> bytes:
        return _attribute(name, self.texts[text])

    def _tensor(self, name: str, tensor: Tensor) -> int:
        kind = _datatype(name, tensor)
        messages = [(DATASPACE, _dataspace(tensor.shape)), (DATATYPE, kind)]
        address = self.append(tensor, tensor.nbytes) if tensor.nbytes else UNDEFINED
        messages.append((_FILL, bytes([3, 0x0A])))
        messages.append((LAYOUT, struct.pack("<BBQQ", 3, 1, address, tensor.nbytes)))
        if tensor.dtype == "bfloat16":
            messages.append((ATTRIBUTE, self._attribute("dtype", "bfloat16")))
        header = _header(messages)
        return self.append(header, len(header))


def _header(messages: Sequence[tuple[int, bytes]]) -> bytes:
    body = b"".join(struct.pack("<BHB", kind, len(data), 0) + data for kind, data in messages)
    raw = b"OHDR" + struct.pack("<BBI", 2, 2, len(body)) + body
    return raw + struct.pack("<I", checksum(raw))


def _group(links: Sequence[bytes], attributes: Sequence[bytes]) -> bytes:
    messages = [
        (LINK_INFO, struct.pack("<BBQQ", 0, 0, UNDEFINED, UNDEFINED)),
        # However many names there are, they stay in the header.
        (_GROUP_INFO, struct.pack("<BBHH", 0, 1, 65535, 65535)),
    ]
    messages += [(LINK, link) for link in links]
    messages += [(ATTRIBUTE, attribute) for attribute in attributes]
    return _header(messages)


def _link(name: str, address: int) -> bytes:
    raw = name.encode("utf-8")
    if len(raw) > _MOST_MESSAGE:
        raise UsageError(f"HDF5 cannot hold the name {name[:40]!r}…", why="it is too long")
    width = 0 if len(raw) < 256 else 1
    return (
        struct.pack("<BBB", 1, 0x10 | width, 1) + len(raw).to_bytes(1 << width, "little") + raw
    ) + struct.pack("<Q", address)


def _attribute(name: str, reference: bytes) -> bytes:
    """A text, which lies in a collection: what Keras takes for text is of variable length."""
    raw = name.encode("utf-8") + b"\0"
    if len(raw) > _MOST_MESSAGE:
        raise UsageError(f"HDF5 cannot hold the name {name[:40]!r}…", why="it is too long")
    kind = struct.pack("<BBBBI", 0x19, 1, 1, 0, 16) + struct.pack(
        "<BBBBIHH", 0x10, 0, 0, 0, 1, 0, 8
    )
    space = struct.pack("<BBBB", 2, 0, 0, 0)
    sizes = struct.pack("<BBHHHB", 3, 0, len(raw), len(kind), len(space), 1)
    return sizes + raw + kind + space + reference


def _collections(texts: Sequence[bytes]) -> list[tuple[bytes, list[bytes]]]:
    """Collections of texts, each with what it holds in the order of their numbers from one."""
    found: list[tuple[bytes, list[bytes]]] = []
    for start in range(0, len(texts), _MOST_TEXTS):
        held = list(texts[start : start + _MOST_TEXTS])
        body = b"".join(
            struct.pack("<HHIQ", number, 1, 0, len(text)) + text + bytes(-len(text) % 8)
            for number, text in enumerate(held, 1)
        )
        size = max(4096, 16 + len(body) + 16)
        rest = size - 16 - len(body)
        raw = struct.pack("<4sB3xQ", b"GCOL", 1, size) + body + struct.pack("<HHIQ", 0, 0, 0, rest)
        found.append((raw + bytes(size - len(raw)), held))
    return found


def _dataspace(shape: Sequence[int]) -> bytes:
    if len(shape) > 32:
        raise UsageError("HDF5 cannot hold a tensor of more than 32 axes")
    return struct.pack("<BBBB", 2, len(shape), 0, 1 if shape else 0) + b"".join(
        struct.pack("<Q", side) for side in shape
    )


def _datatype(name: str, tensor: Tensor) -> bytes:
    dtype = tensor.dtype
    if dtype in ("float16", "float32", "float64"):
        d = DTYPES[dtype]
        head = struct.pack("<BBBBIHH", 0x11, 0x20, 8 * d.bytes - 1, 0, d.bytes, 0, 8 * d.bytes)
        return head + struct.pack("<BBBBI", d.mantissa, d.exponent, 0, d.mantissa, d.bias)
    if dtype.startswith(("int", "uint")):
        size = DTYPES[dtype].bytes
        return struct.pack("<BBBBIHH", 0x10, 8 if dtype[0] == "i" else 0, 0, 0, size, 0, 8 * size)
    if dtype == "bool":
        base = struct.pack("<BBBBIHH", 0x10, 8, 0, 0, 1, 0, 8)
        return struct.pack("<BBBBI", 0x38, 2, 0, 0, 1) + base + b"FALSE\0TRUE\0\0\1"
    if dtype in ("complex64", "complex128"):
        part = Tensor("", "float32" if dtype == "complex64" else "float64", (), 0, bytes)
        base, size = _datatype(name, part), 8 if dtype == "complex64" else 16
        members = b"r\0\0" + base + b"i\0" + bytes([size // 2]) + base
        return struct.pack("<BBBBI", 0x36, 2, 0, 0, size) + members
    if dtype == "bfloat16":  # as Keras writes it: two bytes, and an attribute that says so
        return struct.pack("<BBBBI", 0x15, 0, 0, 0, 2)
    raise UsageError(
        f"HDF5 cannot hold {dtype}",
        why=f"the tensor {tensor.name or name} has this type",
        hint="leave it out, or export to safetensors",
    )
