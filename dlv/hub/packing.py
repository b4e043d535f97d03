"""Transfer packs: what a remote lacks, in packs that are small enough to be sent twice.

Chunks are sent as they are stored. Only a shared chunk that also holds other tensors is encoded
again, with the part that is sent. The same input gives the same packs, so a retry can skip those
that have arrived. A plane can be divided between packs, which is why there are locators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from functools import partial

from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.hub.locator import LocatorBuilder, Row
from dlv.hub.rebasing import Rebased, SpooledPart
from dlv.kinds import Piece, Raw
from dlv.pas.encode import Encoded, encode_elements, encode_object
from dlv.pas.footer import Encoding, Footer
from dlv.pas.layouts.segments import default_layout
from dlv.pas.packs import MAX_OBJECT_CHUNK, PackWriter
from dlv.pas.spool import lane_of
from dlv.weights.store import MatrixStore

HUGE = 32 << 20  # bytes of a plane
PACK = 16 << 20  # size at which a pack is sent; an interruption loses the packs in flight

_BYTES = default_layout()  # one plane of bytes is its own layout
Owner = Encoding | str


@dataclass
class Parcel:
    """A chunk to send: its members, and a function that reads or encodes it when it is needed."""

    kind: str
    plane: int | None
    members: list[tuple[Owner, int, int]]
    length: int  # of the encoded bytes, roughly
    encoded: Callable[[], Encoded]
    small: bool = False

    @property
    def huge(self) -> bool:
        """Whether it belongs to a tensor with planes that are too large for one pack."""
        owner = self.members[0][0]
        return isinstance(owner, Encoding) and (owner.nbytes or 0) > HUGE * owner.planes

    def continues(self, before: Parcel) -> bool:
        """Whether it is the next part of the same plane or object."""
        (owner, start, _), (other, *_) = self.members[0], before.members[0]
        names = [each.matrix if isinstance(each, Encoding) else each for each in (owner, other)]
        same = (self.kind, self.plane) == (before.kind, before.plane) and names[0] == names[1]
        return same and start > 0


@dataclass(frozen=True)
class TransferPack:
    """A pack in memory."""

    hash: str
    data: bytes
    rows: Footer

    def add_to(self, locator: LocatorBuilder) -> None:
        for chunk in self.rows.chunks:
            locator.add(Row(self.hash, chunk, self.rows.encodings))
        for encoding in self.rows.encodings:
            locator.declare(encoding)


@dataclass
class Consignment:
    """Collects the chunks to send for one version, and cuts them into packs."""

    store: MatrixStore
    parcels: list[Parcel] = field(default_factory=list)
    empty: list[Encoding] = field(default_factory=list)
    _shared: dict[tuple[str, int], list[tuple[Owner, Piece]]] = field(default_factory=dict)

    def add_matrix(self, encoding: Encoding) -> None:
        if encoding.empty:
            self.empty.append(encoding)
        self._add(encoding, self.store.chunks(encoding.matrix))

    def add_rebased(self, rebased: Rebased, read: Callable[[SpooledPart], Encoded]) -> None:
        """Add a matrix that was encoded for the remote."""
        for spooled in rebased.parts:
            part = spooled.part
            members: list[tuple[Owner, int, int]] = [(rebased.encoding, part.start, part.count)]
            self.parcels.append(
                Parcel(part.kind, part.plane, members, spooled.length, partial(read, spooled))
            )

    def add_object(self, kind: str, name: str) -> None:
        self._add(name, self.store.object_chunks(kind, name))

    def add_content(self, kind: str, name: str, size: int, read: Callable[[], bytes]) -> None:
        """Add a file, which is in no local pack."""
        for start in range(0, max(1, size), MAX_OBJECT_CHUNK):
            count = min(size - start, MAX_OBJECT_CHUNK)

            def encoded(start: int = start, count: int = count) -> Encoded:
                return encode_object(read()[start : start + count])[0]

            self.parcels.append(Parcel(kind, None, [(name, start, count)], count, encoded))

    def _add(self, owner: Owner, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            if piece.count == piece.raw:
                self.parcels.append(self._stored([(owner, piece)], piece))
            else:
                self._shared.setdefault((piece.pack, piece.offset), []).append((owner, piece))

    def _stored(self, owners: list[tuple[Owner, Piece]], piece: Piece) -> Parcel:
        def encoded() -> Encoded:
            data = self.store.stored(piece)
            return Encoded(dict(piece.codec), data, piece.raw, piece.blake3)

        owners.sort(key=lambda each: each[1].at)
        members = [(owner, each.start, each.count) for owner, each in owners]
        return Parcel(
            *(piece.kind, piece.plane, members, piece.length, encoded), small=len(owners) > 1
        )

    def _cut_out(self, owners: list[tuple[Owner, Piece]]) -> Parcel:
        """Return the sent part of a shared chunk as a chunk of its own."""
        owners.sort(key=lambda each: each[1].at)
        first = owners[0][1]

        def encoded() -> Encoded:
            decoded = memoryview(self.store.read(first))
            data: Raw = b"".join(decoded[p.at : p.at + p.count] for _, p in owners)
            if first.kind == "plane":
                return encode_elements(_BYTES, "uint8", data)[0]
            return encode_object(data)[0]

        members = [(owner, piece.start, piece.count) for owner, piece in owners]
        count = sum(piece.count for _, piece in owners)
        size = first.length * count // max(first.raw, 1)
        return Parcel(first.kind, first.plane, members, size, encoded, small=True)

    def seal(self) -> None:
        """Decide which shared chunks are sent whole, and sort; nothing can be added after it."""
        for owners in self._shared.values():
            piece = owners[0][1]
            whole = sum(each.count for _, each in owners) == piece.raw
            self.parcels.append(self._stored(owners, piece) if whole else self._cut_out(owners))
        self._shared.clear()
        # Tables, bounds and first planes come first, for readers that need only these.
        lanes = [
            (p.kind == "file", p.huge, lane_of(p.kind, p.plane, small=p.small))
            for p in self.parcels
        ]
        order = sorted(range(len(lanes)), key=lambda i: (lanes[i], i))
        self.parcels = [self.parcels[i] for i in order]

    @property
    def bytes(self) -> int:
        return sum(parcel.length for parcel in self.parcels)

    def _ends(self, before: Parcel, parcel: Parcel, size: int) -> bool:
        """Return whether a pack of this size ends before a parcel.

        Planes are divided only if they are huge. These and files have packs of their own, so that
        the others can be kept as they are by those who pull.
        """
        if (before.kind == "file") != (parcel.kind == "file") or before.huge != parcel.huge:
            return True
        return size >= PACK and (parcel.huge or not parcel.continues(before))

    def packs(self) -> Iterator[TransferPack]:
        """Yield the packs one at a time, so that only those in flight are in memory."""
        current = _PackInMemory()
        for encoding in self.empty:
            current.writer.add_encoding(encoding)
        before: Parcel | None = None
        for parcel in self.parcels:
            if before is not None and self._ends(before, parcel, current.size):
                yield current.finish()
                current = _PackInMemory()
            current.add(parcel)
            before = parcel
        if current.size or self.empty:
            yield current.finish()


class _PackInMemory:
    """A pack that is being written; PackWriter sees it as a file."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._written = 0
        self.writer = PackWriter(self)
        self.size = 0

    def write(self, data: Raw, /) -> int:
        self._parts.append(bytes(data))
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def add(self, parcel: Parcel) -> None:
        encoded = parcel.encoded()
        members = [
            (
                self.writer.add_encoding(owner) if isinstance(owner, Encoding) else owner,
                start,
                count,
            )
            for owner, start, count in parcel.members
        ]
        self.writer.add_chunk(
            parcel.kind,
            parcel.plane,
            members,
            encoded.raw,
            encoded.codec,
            encoded.data,
            blake3=encoded.blake3,
        )
        self.size += len(encoded.data)

    def finish(self) -> TransferPack:
        rows = self.writer.finish()
        data = b"".join(self._parts)
        return TransferPack(hash_bytes(data), data, rows)
