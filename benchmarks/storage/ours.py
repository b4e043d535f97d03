"""What dlv makes of a model, with and without a base: real packs, in memory, read back."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest import mock

from benchmarks.storage.models import Matrix, Model
from dlv.canonical import matrix_hash
from dlv.kinds import Piece
from dlv.pas import encode as coding
from dlv.pas.coders import small
from dlv.pas.coders.codecs import codec_of
from dlv.pas.deltas.difference import WordDelta
from dlv.pas.deltas.search import find_predictors
from dlv.pas.encode import Encoded, Part, encode_elements, encode_materialised
from dlv.pas.floats import differences, format_of, words_in
from dlv.pas.footer import Encoding, pieces_of
from dlv.pas.layouts.fixed import Fixed
from dlv.pas.layouts.registry import default_layout
from dlv.pas.layouts.segments import Ieee, split_matrix
from dlv.pas.layouts.table import Finder
from dlv.pas.packs import PackWriter
from dlv.pas.read import read_matrix
from dlv.pas.spool import PLANES, Pending, Spool, lane_of

Tier = Literal["fast", "normal", "high"]  # efforts of `dlv archive`
Raw = bytes | bytearray | memoryview
# Matrices up to this share their chunks, as in an archive.
POOLED = 16 << 10
# What a matrix may take beyond the least of the fast tier and of its materialised form.
ALLOWED = 16


class Memory:
    """Packs in memory, as a source of chunks."""

    def __init__(self) -> None:
        self.encodings: dict[str, Encoding] = {}
        self.bytes = 0  # of packs, with their footers
        self.chunk_bytes = 0
        self._rows: dict[str, list[Piece]] = {}
        self._packs: dict[str, memoryview] = {}

    def add(self, name: str, pack: bytes, footer: Any) -> None:
        self._packs[name] = memoryview(pack)
        self.bytes += len(pack)
        self.chunk_bytes += sum(chunk.length for chunk in footer.chunks)
        self.encodings |= {row.matrix: row for row in footer.encodings}
        for row in pieces_of(footer, name):
            self._rows.setdefault(row.object, []).append(row)

    def chunks(self, matrix: str) -> list[Piece]:
        return self._rows.get(matrix, [])

    def stored(self, piece: Any) -> Raw:
        return self._packs[piece.pack][piece.offset : piece.offset + piece.length]

    def read(self, piece: Any) -> Raw:
        return codec_of(piece.codec).decode(self.stored(piece), piece.raw)

    def object(self, kind: str, name: str) -> Raw:
        return b"".join(self.read(row) for row in self._rows[name] if row.kind == kind)


@dataclass
class Stored:
    """A model in packs: what it takes, how long that took (seconds of processor time)."""

    memory: Memory
    names: dict[str, str]  # by tensor
    encode: float = 0.0
    search: float = 0.0  # for predictors, out of `encode`
    check: float = 0.0  # reading back, out of `encode`
    decode: float = 0.0
    above: int = 0  # matrices larger than the least of fast and materialised, plus ALLOWED
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def per_matrix(self) -> int:
        """Chunks and 16 bytes per matrix: what a footer takes in a large model, about."""
        return self.memory.chunk_bytes + 16 * len(self.names)


@dataclass
class _Way:
    kind: str
    encoding: Encoding
    parts: list[Part]
    seconds: float
    search: float
    check: float = 0.0

    @property
    def size(self) -> int:
        return sum(len(part.encoded.data) for part in self.parts)


def _name(held: Matrix) -> str:
    return matrix_hash(held.dtype, held.shape, held.raw)


class _Stopwatch:
    """Seconds of processor time in a function, called through it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seconds = 0.0

    def __call__(self, *given: Any, **named: Any) -> Any:
        begun = time.process_time()
        try:
            return self.function(*given, **named)
        finally:
            self.seconds += time.process_time() - begun


@contextmanager
def _checking(found: list[float]) -> Iterator[None]:
    """Adds up what is spent on reading back what has just been written."""
    places: list[tuple[Any, str]] = [(coding, "decode_plane"), (coding, "compare")]
    places += [(small, "_check"), (small.ContextNumbers, "decode")]
    places += [(cutter, "paste") for cutter in (WordDelta, type(Ieee().cutter(b"", "int8", ())))]
    with ExitStack() as stack:
        for where, name in places:
            stack.enter_context(
                mock.patch.object(where, name, _summed(getattr(where, name), found))
            )
        yield


def _summed(function: Callable[..., Any], found: list[float]) -> Callable[..., Any]:
    """A function, not an object, so that a method is still told whose it is."""

    def call(*given: Any) -> Any:
        begun = time.process_time()
        result = function(*given)
        found.append(time.process_time() - begun)
        return result

    return call


def _tried(kind: str, encode: Callable[[Callable[[Part], None]], Encoding]) -> _Way:
    parts: list[Part] = []
    whole = _Stopwatch(encode)
    search = _Stopwatch(find_predictors)
    check: list[float] = []
    with mock.patch.object(small, "find_predictors", search), _checking(check):
        encoding = whole(parts.append)
    return _Way(kind, encoding, parts, whole.seconds, search.seconds, sum(check))


def alone(held: Matrix, tier: Tier) -> _Way:
    """The smallest layout."""

    def tried(layout: Any) -> _Way:
        given = held.raw, held.dtype, held.shape, _name(held)
        effort: Any = "fast" if tier == "fast" else "small"
        kind = str(layout.get_config()["id"])
        return _tried(
            kind, lambda put: encode_materialised(*given, put, layout=layout, effort=effort)
        )

    ways = [tried(default_layout())]
    if tier != "fast":
        # A dtype or values that it does not take: ValueError.
        with suppress(ValueError):
            ways.append(tried(Fixed.of([held.raw], held.dtype, held.shape)))
        finder = Finder(held.dtype)
        finder.add(held.raw)
        coding = finder.coding()
        if coding is not None:
            ways.append(tried(coding.layout))
    return min(ways, key=lambda way: way.size)


def against(held: Matrix, base: Matrix, tier: Tier) -> _Way:
    """The fast or the small delta."""
    given = held.raw, base.raw, held.dtype, held.shape, _name(held), _name(base)
    if tier == "fast":
        return _tried("sub", lambda put: small.encode_plain(*given, put))

    def encode(put: Callable[[Part], None]) -> Encoding:
        return small.encode_small(*given, put, thorough=tier == "high")

    return _tried("context", encode)


def store(model: Model, base: Model | None, tier: Tier, *, check: bool = False) -> Stored:
    """A model in packs of its own, given a base that is stored elsewhere; read back equal."""
    spool: Spool[io.BytesIO] = Spool(io.BytesIO, buffer=1 << 62)
    pool: dict[tuple[int, str], list[tuple[Encoding, bytes]]] = {}
    based = base or {}
    known = {_name(held) for held in based.values()}
    memory = Memory()
    stored = Stored(memory, {})
    pooling = _Stopwatch(lambda held, below: _pool(pool, held, below))
    if base is not None:
        _keep_base(memory, base)
    for tensor, held in model.items():
        name = stored.names[tensor] = _name(held)
        if name in known:
            continue
        known.add(name)
        below = based.get(tensor)
        if below is not None and (below.dtype, below.shape) != (held.dtype, held.shape):
            below = None
        if len(held.raw) <= POOLED:
            kind = pooling(held, below)
        else:
            ways = [alone(held, tier)]
            if below is not None:
                ways.append(against(held, below, tier))
            best = min(ways, key=lambda way: way.size)
            kind = best.kind
            stored.encode += best.seconds
            stored.search += best.search
            stored.check += best.check
            for part in best.parts:
                _put(spool, best.encoding, part)
        stored.kinds[kind] = stored.kinds.get(kind, 0) + len(held.raw)
        if check and len(held.raw) > POOLED:
            limits = [alone(held, "fast"), *ways]
            if below is not None:
                limits.append(against(held, below, "fast"))
            least = min(way.size for way in limits if way.kind != "context")
            stored.above += best.size > least + ALLOWED
    sealing = _Stopwatch(_seal)
    for (plane, _), members in sorted(pool.items(), key=lambda pair: pair[0]):
        sealing(spool, plane, members)
    stored.encode += pooling.seconds + sealing.seconds
    for sink, footer in spool.finish():
        memory.add(f"pack{len(memory.encodings)}", sink.getvalue(), footer)
    _read_back(stored, model, base)
    return stored


def _keep_base(memory: Memory, base: Model) -> None:
    """The base as raw planes, so that reading it takes as little as possible."""
    file = io.BytesIO()
    writer = PackWriter(file)
    for held in base.values():
        layout = default_layout()
        planes, _ = split_matrix(layout, held.raw, held.dtype, held.shape)
        row = Encoding(_name(held), held.dtype, held.shape, layout.get_config(), None, len(planes))
        owner = writer.add_encoding(row)
        for plane, data in enumerate(planes):
            member = (owner, 0, len(data))
            writer.add_chunk("plane", plane, [member], len(data), {"id": "raw"}, bytes(data))
    memory.add("base", file.getvalue(), writer.finish())
    memory.bytes = memory.chunk_bytes = 0


def _pool(
    pool: dict[tuple[int, str], list[tuple[Encoding, bytes]]], held: Matrix, base: Matrix | None
) -> str:
    """Planes of a small matrix, to share chunks with those of others."""
    layout = default_layout()
    raw = held.raw
    delta: dict[str, Any] | None = None
    if base is not None:
        words = words_in(held.raw, held.dtype), words_in(base.raw, base.dtype)
        raw = differences(*words, format_of(held.dtype)).tobytes()
        delta = {"id": "sub", "base": _name(base), "overlap": None, "predictor": []}
    planes, _ = split_matrix(layout, raw, held.dtype, held.shape)
    encoding = Encoding(
        _name(held), held.dtype, held.shape, layout.get_config(), delta, len(planes)
    )
    for plane, data in enumerate(planes):
        alike = f"{held.dtype} {delta is not None}"
        pool.setdefault((plane, alike), []).append((encoding, bytes(data)))
    return "pooled"


def _seal(spool: Spool[io.BytesIO], plane: int, members: list[tuple[Encoding, bytes]]) -> None:
    data = b"".join(part for _, part in members)
    encoded = encode_elements(default_layout(), "uint8", data)[0]
    rows = tuple((encoding, 0, len(part)) for encoding, part in members)
    spool.add(lane_of("plane", plane, small=True), Pending("plane", plane, rows, encoded))


def _put(spool: Spool[io.BytesIO], encoding: Encoding, part: Part) -> None:
    encoded: Encoded = part.encoded
    lane = lane_of(part.kind, part.plane) if part.plane is not None else PLANES
    member = (encoding, part.start, part.count)
    spool.add(lane, Pending(part.kind, part.plane, (member,), encoded))


def _read_back(stored: Stored, model: Model, base: Model | None) -> None:
    """Every matrix read through its chain; the time is that beyond reading the base."""
    lookup = stored.memory.encodings.get
    for tensor, held in model.items():
        begun = time.process_time()
        raw = read_matrix(stored.names[tensor], lookup, stored.memory)
        stored.decode += time.process_time() - begun
        if bytes(raw) != held.raw:
            raise SystemExit(f"dlv gave back wrong bits for {tensor}")
    for tensor, held in (base or {}).items():
        name = stored.names.get(tensor)
        encoding = None if name is None else lookup(name)
        if encoding is not None and encoding.delta is not None:
            begun = time.process_time()
            read_matrix(_name(held), lookup, stored.memory)
            stored.decode -= time.process_time() - begun
