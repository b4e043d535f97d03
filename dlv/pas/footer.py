"""What a pack's footer says: descriptors of encodings and chunks, checked before use."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from dlv.canonical import HASH, dumps, loads
from dlv.dataclass import dataclass
from dlv.dtypes import tensor_bytes
from dlv.errors import Damaged, NewerFormat
from dlv.kinds import EncodingRow, Piece
from dlv.pas.chunks import MATRIX_KINDS, OBJECT_KINDS, Config, covered
from dlv.pas.coders.contexts import Scales
from dlv.pas.deltas.difference import delta_of
from dlv.pas.deltas.predictors import side_length
from dlv.pas.layouts.registry import layout_of
from dlv.pas.layouts.segments import OPAQUE, Layout, matrix_bytes, word_shape, words_of

FORMAT = "dlv/pack/1"
MAX_FOOTER = 64 << 20
MAX_NUMBER = 1 << 62
MAX_RANK = 64
MAX_PLANES = 64

Member = tuple[int | str, int, int]


class Encoding(EncodingRow):
    """How one matrix is stored, with what follows from its dtype and shape."""

    @property
    def nbytes(self) -> int | None:
        """Length of the matrix; None where only its bytes tell."""
        return matrix_bytes(self.dtype, self.shape)

    @property
    def size(self) -> int:
        """Length of the matrix, also of quantized blocks; 0 if the dtype is unknown."""
        return tensor_bytes(self.dtype, self.shape)

    @property
    def empty(self) -> bool:
        """No element, so no chunk either."""
        return not self.dtype.startswith(OPAQUE) and math.prod(self.shape) == 0

    def as_json(self) -> dict[str, Any]:
        return {
            "matrix": self.matrix,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "layout": dict(self.layout),
            "delta": None if self.delta is None else dict(self.delta),
            "planes": self.planes,
        }


@dataclass(frozen=True)
class Chunk:
    """One stored piece of a pack; `members` says whose bytes it decodes to."""

    kind: str
    plane: int | None
    offset: int
    length: int
    raw: int
    blake3: str
    codec: Config
    members: tuple[Member, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "plane": self.plane,
            "offset": self.offset,
            "length": self.length,
            "raw": self.raw,
            "blake3": self.blake3,
            "codec": dict(self.codec),
            "members": [list(member) for member in self.members],
        }


@dataclass(frozen=True)
class Footer:
    """All rows of one pack."""

    writer: str
    encodings: tuple[Encoding, ...]
    chunks: tuple[Chunk, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "writer": self.writer,
            "encodings": [encoding.as_json() for encoding in self.encodings],
            "chunks": [chunk.as_json() for chunk in self.chunks],
        }

    def dumps(self) -> bytes:
        return dumps(self.as_json())


def pieces_of(footer: Footer, pack: str) -> Iterator[Piece]:
    """A piece per member of each chunk that this version of dlv understands."""
    for chunk in footer.chunks:
        if chunk.kind in MATRIX_KINDS + OBJECT_KINDS:
            yield from pieces_of_chunk(chunk, footer.encodings, pack)


def pieces_of_chunk(chunk: Chunk, encodings: Sequence[Encoding], pack: str) -> Iterator[Piece]:
    """A piece per member; a matrix is an index into `encodings`."""
    at = 0
    for owner, start, count in chunk.members:
        name = owner if isinstance(owner, str) else encodings[owner].matrix
        yield Piece(
            name,
            pack,
            chunk.kind,
            chunk.plane,
            chunk.offset,
            chunk.length,
            chunk.raw,
            chunk.blake3,
            chunk.codec,
            at,
            start,
            count,
        )
        at += count


class _Reader:
    """Takes fields out of one row, naming pack and row in every complaint."""

    def __init__(self, row: Any, keys: Sequence[str], what: str) -> None:
        self.what = what
        if not isinstance(row, dict):
            raise self.bad("it is not an object")
        if missing := [key for key in keys if key not in row]:
            raise self.bad(f"it has no {missing[0]!r}")
        if more := [key for key in row if key not in keys]:
            raise NewerFormat(
                f"{what}: unknown key {more[0]!r}", hint="install the version of dlv that wrote it"
            )
        self.row: dict[str, Any] = row

    def bad(self, why: str) -> Damaged:
        return Damaged(f"{self.what} is not valid", why=why)

    def text(self, key: str) -> str:
        value = self.row[key]
        if not isinstance(value, str):
            raise self.bad(f"{key!r} is not text")
        return value

    def hash(self, key: str) -> str:
        value = self.text(key)
        if not HASH.match(value):
            raise self.bad(f"{key!r} is not a hash")
        return value

    def number(self, key: str, most: int = MAX_NUMBER) -> int:
        return self.natural(self.row[key], key, most)

    def natural(self, value: Any, key: str, most: int = MAX_NUMBER) -> int:
        # bool is an int to isinstance, and `true` no number here.
        if type(value) is not int or not 0 <= value <= most:
            raise self.bad(f"{key!r} is not a number within 0 .. {most}")
        return value

    def list(self, key: str) -> list[Any]:
        value = self.row[key]
        if not isinstance(value, list):
            raise self.bad(f"{key!r} is not a list")
        return value

    def config(self, key: str) -> dict[str, Any]:
        value = self.row[key]
        if not isinstance(value, dict) or not isinstance(value.get("id"), str):
            raise self.bad(f"{key!r} is not a config with an id")
        return value


def parse(data: bytes, end: int, pack: str) -> Footer:
    """The footer of a pack whose chunks fill the bytes 8 .. `end`."""
    top = _Reader(
        loads(data, pack, limit=MAX_FOOTER), ("format", "writer", "encodings", "chunks"), pack
    )
    if top.text("format") != FORMAT:
        raise NewerFormat(
            f"{pack} has the format {top.text('format')!r}",
            why=f"it was written by {top.text('writer')!r}; this dlv reads {FORMAT!r}",
        )
    encodings = tuple(
        encoding_of_row(row, f"{pack}, encoding {index}")
        for index, row in enumerate(top.list("encodings"))
    )
    if len({encoding.matrix for encoding in encodings}) != len(encodings):
        raise top.bad("it lists a tensor twice")
    chunks = []
    offset = 8
    for index, row in enumerate(top.list("chunks")):
        chunk = chunk_of_row(row, len(encodings), f"{pack}, chunk {index}")
        if chunk.offset != offset:
            raise top.bad(f"chunk {index} begins at {chunk.offset}, not at {offset}")
        offset += chunk.length
        chunks.append(chunk)
    if offset != end:
        raise top.bad(f"its chunks end at {offset}, not at {end}")
    footer = Footer(top.text("writer"), encodings, tuple(chunks))
    _check_cover(footer, pack)
    return footer


def encoding_of_row(row: Any, label: str) -> Encoding:
    reader = _Reader(row, ("matrix", "dtype", "shape", "layout", "delta", "planes"), label)
    shape = reader.list("shape")
    if len(shape) > MAX_RANK:
        raise reader.bad(f"its rank is {len(shape)}, not <= {MAX_RANK}")
    dims = tuple(reader.natural(size, "shape") for size in shape)
    encoding = Encoding(
        reader.hash("matrix"),
        reader.text("dtype"),
        dims,
        reader.config("layout"),
        None if reader.row["delta"] is None else reader.config("delta"),
        reader.number("planes", MAX_PLANES),
    )
    if math.prod(dims) > MAX_NUMBER:
        raise reader.bad(f"its shape {list(dims)} is too large")
    layout = _known_layout(encoding)
    if layout is not None and layout.planes(encoding.dtype) != encoding.planes:
        raise reader.bad(f"{encoding.planes} planes are not what {encoding.dtype} has")
    return encoding


def _known_layout(encoding: Encoding) -> Layout | None:
    """None for what a newer dlv wrote: reading that matrix fails by name, the rest is fine."""
    try:
        words_of(encoding.dtype)
        return layout_of(encoding.layout)
    except NewerFormat:
        return None


def chunk_of_row(row: Any, encodings: int, label: str) -> Chunk:
    keys = ("kind", "plane", "offset", "length", "raw", "blake3", "codec", "members")
    reader = _Reader(row, keys, label)
    kind = reader.text("kind")
    raw = reader.number("raw")
    members: list[Member] = []
    for member in reader.list("members"):
        if not isinstance(member, list) or len(member) != 3:
            raise reader.bad("a member is not [object, start, length]")
        name, start, count = member
        if kind in MATRIX_KINDS:
            reader.natural(name, "object", encodings - 1)
        elif kind in OBJECT_KINDS and not (isinstance(name, str) and HASH.match(name)):
            raise reader.bad("a member's object is not a hash")
        members.append((name, reader.natural(start, "start"), reader.natural(count, "length")))
    if sum(count for _, _, count in members) != raw:
        raise reader.bad("its members do not add up to its decoded length")
    if kind in MATRIX_KINDS + OBJECT_KINDS and not members:
        raise reader.bad("it has no members")
    if kind == "plane":
        plane: int | None = reader.number("plane", MAX_PLANES - 1)
    else:
        plane = reader.row["plane"]
        if kind in ("side", *OBJECT_KINDS) and plane is not None:
            raise reader.bad(f"a {kind} has no plane")
    codec = reader.config("codec")
    if str(codec["id"]).startswith("context-") and len(members) > 1:
        raise reader.bad("it needs contexts and has several members")
    if reader.number("length") == 0:
        raise reader.bad("it is empty")
    return Chunk(
        kind,
        plane,
        reader.number("offset"),
        reader.number("length"),
        raw,
        reader.hash("blake3"),
        codec,
        tuple(members),
    )


def _check_cover(footer: Footer, pack: str) -> None:
    """Each plane or object that the pack holds is there from 0 to its end, once."""
    parts: dict[tuple[str, int | str, int | None], list[tuple[int, int]]] = {}
    for chunk in footer.chunks:
        if chunk.kind in MATRIX_KINDS + OBJECT_KINDS:
            for name, start, count in chunk.members:
                parts.setdefault((chunk.kind, name, chunk.plane), []).append((start, count))
    for (kind, name, plane), pieces in parts.items():
        end = covered(pieces)
        label = f"{pack}: {kind} {'' if plane is None else plane} of {name}"
        if end is None:
            raise Damaged(f"{label} has gaps or overlaps")
        if kind not in MATRIX_KINDS:
            continue
        assert isinstance(name, int)
        encoding = footer.encodings[name]
        layout = _known_layout(encoding)
        if layout is None:
            continue
        if plane is not None and plane >= encoding.planes:
            raise Damaged(f"{label} does not exist", why=f"it has {encoding.planes} planes")
        if encoding.empty:
            raise Damaged(f"{label} has {end} bytes", why="by its shape it has none")
        if plane is None:
            known = _side_lengths(layout, encoding)
        else:
            size = layout.plane_bytes(plane, encoding.dtype, encoding.shape)
            known = None if size is None else [size]
        if known is not None and end not in known:
            raise Damaged(f"{label} has {end} bytes", why=f"by its shape it has {known[0]}")


def _side_lengths(layout: Layout, encoding: Encoding) -> list[int] | None:
    """How long side data may be: whether contexts are used may stand in another pack."""
    try:
        delta = delta_of(encoding.delta)
        plain = side_length(layout, delta, encoding.dtype, encoding.shape)
    except NewerFormat:
        return None
    if delta is None:
        return [plain]
    if encoding.nbytes is None:
        return None
    return [plain, plain + Scales.nbytes(word_shape(encoding.shape, words_of(encoding.dtype)[1]))]
