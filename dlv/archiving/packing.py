"""Packs made of what is encoded already: parts of matrices, small planes pooled, objects copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dlv.canonical import hash_bytes
from dlv.kinds import Raw
from dlv.pas.encode import Encoded, Part, encode_elements, encode_object
from dlv.pas.footer import Encoding
from dlv.pas.layouts.registry import default_layout
from dlv.pas.packs import MAX_OBJECT_CHUNK
from dlv.pas.spool import BUFFER, Owner, Pending, lane_of
from dlv.weights.pack_files import PackFiles, PackRecord
from dlv.weights.store import MatrixStore

_BYTES = default_layout()  # one plane of bytes is its own layout
POOL = 256 << 10  # decoded length at which a shared chunk is full


@dataclass
class _Pool:
    """Planes of small matrices, or small objects, on their way into one chunk."""

    members: list[tuple[Owner, int, int]] = field(default_factory=list)
    parts: list[Raw] = field(default_factory=list)
    size: int = 0


class Packing(PackFiles):
    """Collects parts and objects; `finish` makes them durable as packs.

    Nothing is in the index yet then: that is for the caller, in a transaction.
    """

    def __init__(self, store: MatrixStore, *, buffer: int = BUFFER) -> None:
        super().__init__(store, buffer)
        self._store = store
        self._pools: dict[tuple[str, int | None, str], _Pool] = {}
        self.stored = 0  # bytes of chunks handed over so far, those in pools not yet

    def put(self, encoding: Encoding, part: Part) -> None:
        """One encoded piece of a matrix, as a chunk of its own."""
        member = (encoding, part.start, part.count)
        self._put(part.kind, part.plane, (member,), part.encoded, small=False)

    def pool(self, encoding: Encoding, plane: int | None, data: Raw) -> None:
        """A whole decoded plane of a small matrix, or its side data, to share a chunk."""
        kind = "side" if plane is None else "plane"
        self._share((kind, plane, _alike(encoding)), encoding, 0, data)

    def seal(self) -> None:
        """What comes next shares no chunk with what came so far."""
        for key in sorted(self._pools, key=repr):
            self._seal(key, self._pools[key])
        self._pools.clear()

    def declare(self, encoding: Encoding) -> None:
        """A matrix without elements has a row and no chunk."""
        self._empty.append(encoding)

    def carry(self, encoding: Encoding) -> None:
        """A matrix just as it is stored now."""
        if encoding.empty:
            self.declare(encoding)
            return
        for piece in self._store.chunks(encoding.matrix):
            if piece.count == piece.raw:
                stored = self._store.stored(piece)
                encoded = Encoded(dict(piece.codec), stored, piece.raw, piece.blake3)
                self.put(encoding, Part(piece.kind, piece.plane, piece.start, piece.count, encoded))
            else:
                data = memoryview(self._store.read(piece))[piece.at : piece.at + piece.count]
                key = (piece.kind, piece.plane, _alike(encoding))
                self._share(key, encoding, piece.start, bytes(data))

    def carry_object(self, kind: str, name: str) -> None:
        """A named object just as it is stored now."""
        pieces = sorted(self._store.object_chunks(kind, name), key=lambda piece: piece.start)
        for piece in pieces:
            if piece.count == piece.raw:
                stored = self._store.stored(piece)
                encoded = Encoded(dict(piece.codec), stored, piece.raw, piece.blake3)
                self._put(kind, None, ((name, piece.start, piece.count),), encoded, small=False)
            else:
                data = memoryview(self._store.read(piece))[piece.at : piece.at + piece.count]
                self._share((kind, None, ""), name, piece.start, bytes(data))

    def add_object(self, kind: str, data: bytes) -> str:
        """A new named object."""
        name = hash_bytes(data)
        for start in range(0, max(1, len(data)), MAX_OBJECT_CHUNK):
            part = data[start : start + MAX_OBJECT_CHUNK]
            for encoded in encode_object(part):
                self._put(kind, None, ((name, start, len(part)),), encoded, small=False)
        return name

    def finish(self, announce: Callable[[list[str]], None]) -> list[PackRecord]:
        """Write, sync and name the packs; `announce` hears the names before they are there."""
        try:
            self.seal()
            packs = self._spool.finish(self._empty)
            names = [file.hexdigest() for file, _ in packs]
            announce(names)
            return self._publish(packs, names)
        except BaseException:
            self.abort()
            raise

    def _share(self, key: tuple[str, int | None, str], owner: Owner, start: int, data: Raw) -> None:
        pool = self._pools.setdefault(key, _Pool())
        pool.members.append((owner, start, len(data)))
        pool.parts.append(data)
        pool.size += len(data)
        if pool.size >= POOL:
            self._seal(key, self._pools.pop(key))

    def _seal(self, key: tuple[str, int | None, str], pool: _Pool) -> None:
        kind, plane, _ = key
        data = b"".join(pool.parts)
        encoded = (
            encode_object(data)[0] if plane is None else encode_elements(_BYTES, "uint8", data)[0]
        )
        self._put(kind, plane, tuple(pool.members), encoded, small=True)

    def _put(
        self,
        kind: str,
        plane: int | None,
        members: Sequence[tuple[Owner, int, int]],
        encoded: Encoded,
        *,
        small: bool,
    ) -> None:
        self.stored += len(encoded.data)
        lane = lane_of(kind, plane, small=small)
        self._spool.put(lane, Pending(kind, plane, tuple(members), encoded))


def _alike(encoding: Encoding) -> str:
    """Planes of what is so stored compress well together."""
    delta = encoding.delta or {}
    return f"{encoding.dtype} {encoding.layout['id']} {delta.get('id')}"
