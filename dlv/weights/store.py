"""Matrices and named objects in and out: planes and packs joined to the disk and the index.

Named objects are networks and series. Arrays of numpy and torch become the bytes of matrices here,
and back.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from dlv.canonical import WRITER, hash_bytes, loads
from dlv.disk.durable import path_of
from dlv.errors import Damaged, DlvError
from dlv.kinds import Index, Piece, Promised, Raw
from dlv.metadata import networks, versions
from dlv.metadata.database import Database
from dlv.metadata.matrices import PackIndex
from dlv.metadata.metrics import Summary, summarise
from dlv.objects.manifest import Manifest
from dlv.pas.chunks import SUFFIX, ChunkSource, join_pieces, open_pack, read_chunk, read_stored

if TYPE_CHECKING:
    from dlv.events.formats.series import Scalars
    from dlv.network.graph import Network
    from dlv.pas.footer import Encoding
    from dlv.pas.level import Level, Unusable

T = TypeVar("T")

OPEN_PACKS = 64
TURNS = 3  # so often something is read before it counts as damaged
# Chunks that several objects share are kept decoded, the last few of them.
KEPT_CHUNKS = 16
KEPT_BYTES = 1 << 20


class Located(Protocol):
    """A repository, as far as weights are concerned."""

    @property
    def packs(self) -> Path: ...
    @property
    def tmp(self) -> Path: ...
    @property
    def database(self) -> Database: ...
    @property
    def promised(self) -> Promised | None: ...


class _OpenPack:
    """A descriptor that lives as long as anyone, in any thread, still reads through it."""

    def __init__(self, path: Path, what: str) -> None:
        self.descriptor = open_pack(path, what)
        self.size = os.fstat(self.descriptor).st_size

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class MatrixStore:
    """Reads what the index knows out of the packs; safe for several threads.

    What the index does not know may be `promised`. Writers ask the index alone: what they leave
    out because it is stored must be stored here.
    """

    def __init__(
        self,
        packs_dir: str | os.PathLike[str],
        tmp_dir: str | os.PathLike[str],
        index: Index,
        *,
        writer: str = WRITER,
        promised: Promised | None = None,
    ) -> None:
        _keep_freed_memory()
        self.promised = promised
        self.packs_dir = Path(packs_dir)
        self.tmp_dir = Path(tmp_dir)
        self.index = index
        self.writer = writer
        self._open: OrderedDict[str, _OpenPack] = OrderedDict()
        self._kept: OrderedDict[tuple[str, int], Raw] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    def of(cls, repository: Located) -> Self:
        """The store of a repository."""
        index = PackIndex(repository.database)
        return cls(repository.packs, repository.tmp, index, promised=repository.promised)

    def encoding(self, matrix: str) -> Encoding | None:
        """How a matrix is stored; None if it is not."""
        from dlv.pas.footer import Encoding

        row = self.index.encoding(matrix)
        if row is None and self.promised is not None:
            row = self.promised.encoding(matrix)
        if row is None:
            return None
        return Encoding(**vars(row))

    def object_chunks(self, kind: str, name: str) -> Sequence[Piece]:
        pieces = self.index.object_chunks(kind, name)
        if not pieces and self.promised is not None:
            pieces = self.promised.object_chunks(kind, name)
        return pieces

    def chunks(self, matrix: str) -> Sequence[Piece]:
        if self.promised is not None and self.index.encoding(matrix) is None:
            return self.promised.chunks(matrix)
        return self.index.chunks(matrix)

    def matrix(self, matrix: str) -> Raw:
        """The bytes of a matrix, checked against its name."""
        from dlv.pas.read import read_matrix

        return self._again(lambda: read_matrix(matrix, self.encoding, self))

    def slice(self, matrix: str, start: int, count: int) -> Raw:
        """The bytes of `count` elements from `start`; only what holds them is read."""
        from dlv.pas.read import read_slice

        return self._again(lambda: read_slice(matrix, start, count, self.encoding, self))

    def together(self, wanted: Iterable[str]) -> Iterator[tuple[str, Raw]]:
        """Several matrices, what their deltas share decoded once; each holds until the next."""
        from dlv.pas.read import read_together

        rest = dict.fromkeys(wanted)
        left = TURNS
        while True:
            try:
                for name, raw in read_together(list(rest), self.encoding, self):
                    del rest[name]
                    yield name, raw
            except (FileNotFoundError, Damaged) as error:  # as in `_again`
                left -= 1
                if not left:
                    raise _named(error) from None
            else:
                return

    def level(
        self,
        matrix: str,
        planes: int,
        source: ChunkSource | None = None,
        span: tuple[int, int] | None = None,
    ) -> Level | Unusable:
        """Bounds of a matrix's numbers from the first planes of it and of its bases."""
        from dlv.pas.level import level

        return self._again(lambda: level(matrix, planes, self.encoding, source or self, span))

    def object(self, kind: str, name: str) -> Raw:
        """A named object (network, series, points, skeleton, ...), checked against its name."""
        what = f"{kind} {name}"

        def read() -> Raw:
            return join_pieces(self.object_chunks(kind, name), None, self, what)

        data = self._again(read)
        if hash_bytes(data) != name:
            raise Damaged(f"{what} is corrupt", hint="dlv fsck")
        return data

    def read(self, piece: Piece) -> Raw:
        """The decoded chunk that a piece is part of."""
        key = (piece.pack, piece.offset)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        pack = self._pack(piece)
        decoded = read_chunk(pack.descriptor, pack.size, piece, f"pack {piece.pack}")
        if piece.count < piece.raw <= KEPT_BYTES:
            with self._lock:
                self._kept[key] = decoded
                while len(self._kept) > KEPT_CHUNKS:
                    self._kept.popitem(last=False)
        return decoded

    def stored(self, piece: Piece) -> bytes:
        """A chunk as it lies in its pack, its checksum verified."""
        pack = self._pack(piece)
        return read_stored(pack.descriptor, pack.size, piece, f"pack {piece.pack}")

    def pieces_behind(self, matrix: str) -> list[Piece]:
        """All pieces needed to read a matrix, those of its delta bases and of tables too."""
        from dlv.pas.deltas.links import chain

        links = chain(matrix, self.encoding)
        pieces = [piece for link in links for piece in self.chunks(link.matrix)]
        tables = dict.fromkeys(str(p.codec["table"]) for p in pieces if "table" in p.codec)
        return pieces + [p for name in tables for p in self.object_chunks("table", name)]

    def verify(self, piece: Piece, *, content: bool) -> None:
        """Damaged unless the stored chunk is still there, and with `content` still whole."""
        what = f"pack {piece.pack}"
        try:
            # The name, not a descriptor from before: the pack must still be in its place.
            pack = _OpenPack(path_of(self.packs_dir, piece.pack, SUFFIX), what)
        except FileNotFoundError as error:
            raise gone(piece.pack) from error
        if piece.offset + piece.length > pack.size:
            raise Damaged(f"{what} is shorter than it was", hint="dlv fsck")
        if content:
            read_stored(pack.descriptor, pack.size, piece, what)

    def close(self) -> None:
        with self._lock:
            self._open.clear()
            self._kept.clear()

    def prefetch(self, pieces: Iterable[Piece]) -> None:
        """Fetch what is promised of these together, because it will be read."""
        if self.promised is not None:
            self.promised.fetch(pieces)

    def _pack(self, piece: Piece) -> _OpenPack:
        name = piece.pack
        with self._lock:
            pack = self._open.get(name)
        if pack is None:
            path = path_of(self.packs_dir, name, SUFFIX)
            if self.promised is not None and not path.exists() and self.promised.has(name):
                self.promised.fetch([piece])
                # A later fetch can make the file longer, so this descriptor is not kept.
                return _OpenPack(self.promised.path(name), f"pack {name}")
            pack = _OpenPack(path, f"pack {name}")
        with self._lock:
            self._open[name] = pack
            self._open.move_to_end(name)
            while len(self._open) > OPEN_PACKS:
                self._open.popitem(last=False)
            return pack

    def _again(self, read: Callable[[], T]) -> T:
        """Read; if that fails, ask the index once more where things are now.

        An archive may have switched it between two questions, or removed an old pack.
        """
        for left in range(TURNS - 1, -1, -1):
            try:
                return read()
            except (FileNotFoundError, Damaged) as error:
                if not left:
                    raise _named(error) from None
        raise AssertionError


def _keep_freed_memory() -> None:
    """Let glibc hand out freed megabytes again instead of returning them to the system.

    It does so for all sizes up to that of the largest block it has seen freed (32 MiB at
    most). Without this half of the time goes into pages that are faulted in again and again.
    """
    bytes((32 << 20) - (64 << 10))  # of zeros, so it costs no memory


def _named(error: FileNotFoundError | Damaged) -> Damaged:
    return error if isinstance(error, Damaged) else gone(Path(str(error.filename)).stem)


def gone(pack: str) -> Damaged:
    """What is wrong where a pack that the index names is not there."""
    return Damaged(
        f"pack {pack} is missing",
        why="it is in the index, but the file is missing",
        hint="dlv fsck",
    )


MOST_POINTS = 1_000_000  # of a series that is read for its curve alone


class Objects(Protocol):
    """Where named objects are read; a MatrixStore."""

    def object(self, kind: str, name: str) -> Raw: ...

    def encoding(self, matrix: str) -> Encoding | None: ...


def stored_network(store: Objects, digest: str) -> Network:
    """A stored network, which must be what its name says."""
    import dlv.network.graph as graph

    found = graph.Network.from_canonical(loads(bytes(store.object("network", digest)), "network"))
    if found.id != digest:
        raise Damaged(f"the network {digest[:12]} is corrupt", hint="dlv fsck")
    return with_constants(store, found)


def with_constants(store: Objects, network: Network) -> Network:
    """The network with the shapes of its constants, as far as these are stored."""
    known = {name: store.encoding(digest) for name, digest in network.constants.items()}
    shapes = {name: encoding.shape for name, encoding in known.items() if encoding is not None}
    return replace(network, constant_shapes=shapes) if shapes else network


def stored_series(store: Objects, digest: str, restarts: str = "marked") -> Scalars:
    """A stored metric series with all points that this policy of restarts does not hide."""
    import dlv.events.formats.series as series_format

    return series_format.decode_scalars(
        bytes(store.object("series", digest)),
        lambda kind, name: bytes(store.object(kind, name)),
        restarts,
    )


def stored_summary(store: Objects, digest: str) -> Summary | None:
    """A stored series in figures; None of one that holds no numbers."""
    import dlv.events.formats.series as series_format

    head = bytes(store.object("series", digest))
    if series_format.decode_head(head).data_class != series_format.SCALARS:
        return None
    return summary_of(
        series_format.decode_scalars(head, lambda *name: bytes(store.object(*name))), digest
    )


def summary_of(scalars: Scalars, digest: str) -> Summary:
    return summarise(scalars.run, scalars.tag, digest, scalars.steps, scalars.values)


def insert_version(
    db: Database,
    manifest: Manifest,
    network: Network | None,
    summaries: Sequence[Summary],
    *,
    number: int | None,
    name: str | None = None,
) -> int:
    """The rows of one version and of its network; commit and rebuild both write them here."""
    net_id = None if network is None else networks.insert(db, network, node_figures(network))
    return versions.insert(
        db, manifest, number=number, net_id=net_id, summaries=summaries, name=name
    )


def node_figures(network: Network) -> dict[str, networks.NodeFigures]:
    """Shapes and parameters of each node, as far as the network alone tells them."""
    if network.cyclic:
        return {}
    try:
        import dlv.network.summary as summary

        rows = summary.outlines(network)
    except DlvError:
        return {}
    return {name: networks.NodeFigures(*row) for name, row in rows.items()}
