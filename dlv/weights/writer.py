"""What one commit adds to the store: each matrix once, checked, in as few packs as possible."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from dlv.canonical import hash_bytes, matrix_hash, matrix_hasher
from dlv.dataclass import dataclass
from dlv.disk.durable import READ_SIZE, TemporaryFile, publish_all
from dlv.errors import Conflict, DlvError
from dlv.kinds import Index, Piece, Raw
from dlv.pas.chunks import SUFFIX
from dlv.pas.encode import Encoded, encode_elements, encode_object
from dlv.pas.footer import Encoding, Footer
from dlv.pas.layouts.segments import default_layout, element_bytes, matrix_bytes
from dlv.pas.layouts.table import Coding, Finder
from dlv.pas.packs import MAX_OBJECT_CHUNK
from dlv.pas.spool import BUFFER, Owner, Pending, Spool, lane_of


class Place(Protocol):
    """Where packs go, and what they say of who wrote them."""

    packs_dir: Path
    tmp_dir: Path
    writer: str


@dataclass(frozen=True)
class PackRecord:
    """A published pack."""

    hash: str
    path: Path
    bytes: int
    rows: Footer

    @property
    def footer(self) -> dict[str, Any]:
        return self.rows.as_json()


class PackFiles:
    """What writers of packs share: their files, gone when it ends unless they are published."""

    def __init__(self, place: Place, buffer: int) -> None:
        self._place = place
        self._files: list[TemporaryFile] = []
        self._spool = Spool(self._new_file, writer=place.writer, buffer=buffer)
        self._empty: list[Encoding] = []

    def abort(self) -> None:
        """Remove what was written so far."""
        for file in self._files:
            file.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abort()

    def _new_file(self) -> TemporaryFile:
        file = TemporaryFile(self._place.tmp_dir, suffix=SUFFIX)
        self._files.append(file)
        return file

    def _publish(
        self, packs: Sequence[tuple[TemporaryFile, Footer]], names: list[str]
    ) -> list[PackRecord]:
        paths = publish_all([file for file, _ in packs], self._place.packs_dir, names, SUFFIX)
        return [
            PackRecord(name, path, file.tell(), footer)
            for name, path, (file, footer) in zip(names, paths, packs, strict=True)
        ]


SMALL = 64 << 10  # up to this a matrix or object shares chunks with others
GROUP = 256 << 10  # decoded length at which a shared chunk is full
WHOLE = 4 << 20  # up to this a matrix is read once, above it in parts where that can be
SLICE = 4 << 20  # a larger matrix is encoded piece by piece
_CODES = "uint8"  # as what the codes of a table are encoded
WINDOW = 12 << 20  # what may wait for the encoding threads, or else two pieces


class Known(Place, Protocol):
    """What is stored already, and where more goes; `dlv.weights.store.MatrixStore` is one."""

    @property
    def index(self) -> Index: ...

    def pieces_behind(self, matrix: str) -> Sequence[Piece]: ...

    def verify(self, piece: Piece, *, content: bool) -> None: ...


@dataclass
class _Job:
    """Bytes to encode as one chunk per plane, and whose they are."""

    kind: str
    dtype: str | None  # None: a named object
    members: list[tuple[Owner, int, int]] = field(default_factory=list)
    parts: list[Raw] = field(default_factory=list)
    size: int = 0
    small: bool = False

    def add(self, owner: Owner, start: int, raw: Raw) -> None:
        self.members.append((owner, start, len(raw)))
        self.parts.append(raw)
        self.size += len(raw)


class WeightWriter(PackFiles):
    """Adds matrices and named objects; `finish` makes them durable.

    `jobs` > 1 encodes in that many threads; the packs are the same for any number. `recheck`
    says how what was stored before is looked at again at the end: "hash" or "stat".
    """

    def __init__(
        self, store: Known, *, jobs: int = 1, recheck: str = "hash", buffer: int = BUFFER
    ) -> None:
        super().__init__(store, buffer)
        self._store = store
        self._content = {"hash": True, "stat": False}[recheck]
        self._layout = default_layout()
        # While the interpreter ends, a run's last commit among the rest, no thread can be had.
        threads = jobs > 1 and threading.main_thread().is_alive()
        self._pool = ThreadPoolExecutor(jobs) if threads else None
        self._queue: deque[tuple[_Job, Future[list[Encoded]]]] = deque()
        self._queued = 0
        self._groups: dict[tuple[str, str | None], _Job] = {}
        self._seen: set[str] = set()
        self._objects: set[tuple[str, str]] = set()
        self._reused: list[Callable[[], Sequence[Piece]]] = []

    def add(self, dtype: str, shape: Sequence[int], raw: Raw) -> str:
        """Store a matrix unless it is stored already; returns its hash.

        The buffer is the writer's from now on: nobody may write to it.
        """
        raw = _flat(raw)
        dims = tuple(shape)
        expected = matrix_bytes(dtype, dims)
        if expected is not None and len(raw) != expected:
            raise DlvError(f"{len(raw)} bytes for {dtype} {list(dims)}, which has {expected}")
        if len(raw) <= SMALL and not isinstance(raw, bytes):
            raw = bytes(raw)
        name = matrix_hash(dtype, dims, raw)
        if self._known(name):
            return name
        finder = Finder(dtype)
        finder.add(raw)
        coding = finder.coding()
        encoding = self._encoding(name, dtype, dims, coding)
        if not len(raw):
            self._empty.append(encoding)
        elif coding is not None:
            step, view = _step(dtype), memoryview(raw)
            for start in range(0, len(raw), step):
                self._code(coding, encoding, start, view[start : start + step])
        elif len(raw) <= SMALL:
            self._share("plane", dtype, encoding, raw)
        else:
            self._cut("plane", dtype, encoding, raw, _step(dtype))
        return name

    def add_parts(
        self, dtype: str, shape: Sequence[int], nbytes: int, read: Callable[[int, int], Raw]
    ) -> str:
        """`add` for a matrix too large to hold: `read(start, size)` gives its parts, twice.

        Once for its name, as it may be stored already, and once to encode it.
        """
        dims = tuple(shape)
        expected = matrix_bytes(dtype, dims)
        if nbytes <= WHOLE or (expected is not None and nbytes != expected):
            return self.add(dtype, dims, read(0, nbytes))
        named, finder = matrix_hasher(dtype, dims), Finder(dtype)
        step = _step(dtype, READ_SIZE)
        for start in range(0, nbytes, step):
            raw = read(start, min(step, nbytes - start))
            named.update(raw)
            finder.add(raw)
        name, coding = named.hexdigest(), finder.coding()
        if self._known(name):
            return name
        encoding = self._encoding(name, dtype, dims, coding)
        again = matrix_hasher(dtype, dims)
        step = _step(dtype)
        for start in range(0, nbytes, step):
            raw = read(start, min(step, nbytes - start))
            again.update(raw)
            if coding is not None:
                self._code(coding, encoding, start, raw)
                continue
            job = _Job("plane", dtype)
            job.add(encoding, start, raw)
            self._submit(job)
        if again.hexdigest() != name:
            raise Conflict(
                "weights changed while they were stored",
                why=f"{dtype} {list(dims)} was {name} at first",
                hint="run the command again when the file is complete",
            )
        return name

    def _known(self, name: str) -> bool:
        """Whether a matrix is stored already, or on its way."""
        if name in self._seen:
            return True
        self._seen.add(name)
        if self._store.index.encoding(name) is None:
            return False
        self._reused.append(lambda: self._store.pieces_behind(name))
        return True

    def _encoding(
        self, name: str, dtype: str, dims: tuple[int, ...], coding: Coding | None
    ) -> Encoding:
        """How a new matrix will be stored."""
        layout = self._layout if coding is None else coding.layout
        return Encoding(name, dtype, dims, layout.get_config(), None, layout.planes(dtype))

    def add_object(self, kind: str, data: Raw) -> str:
        """Store a named object unless it is stored already; returns its hash."""
        data = data if isinstance(data, bytes) else bytes(_flat(data))
        name = hash_bytes(data)
        if (kind, name) in self._objects:
            return name
        self._objects.add((kind, name))
        if self._store.index.object_chunks(kind, name):
            self._reused.append(lambda: self._store.index.object_chunks(kind, name))
        elif len(data) <= SMALL:
            self._share(kind, None, name, data)
        else:
            self._cut(kind, None, name, data, MAX_OBJECT_CHUNK)
        return name

    def finish(self, meanwhile: Callable[[], None] = lambda: None) -> list[PackRecord]:
        """Publish the packs, then see that everything reused is still whole on disk.

        `meanwhile` runs while the last of them are encoded and the disk is busy with the others;
        if it fails, none is published.
        """
        try:
            for job in self._groups.values():
                self._submit(job)
            self._groups.clear()
            waiting = [self._pool.submit(meanwhile)] if self._pool else []
            self._drain()
            packs = self._spool.finish(self._empty) if self._anything() else []
            files = [file for file, _ in packs]
            names = [file.hexdigest() for file in files]
            if self._pool:
                # The disk takes less time for all of them at once; the name comes afterwards.
                waiting += [self._pool.submit(file.sync) for file in files]
                for future in waiting:
                    future.result()
            else:
                meanwhile()
            published = self._publish(packs, names)
            self._recheck()
        except BaseException:
            self.abort()
            raise
        self._stop()
        return published

    def abort(self) -> None:
        """Remove what was written so far."""
        for _, future in self._queue:
            future.cancel()
        self._queue.clear()
        self._stop()
        super().abort()

    def _anything(self) -> bool:
        return bool(self._files or self._empty or self._spool.waiting)

    def _code(self, coding: Coding, encoding: Encoding, start: int, raw: Raw) -> None:
        """Some of a matrix of few words: codes, and with the first of them the words."""
        if not start:
            self._share("side", _CODES, encoding, coding.side)
        codes = coding.codes(raw, encoding.dtype)
        if len(raw) <= SMALL and not start:
            self._share("plane", _CODES, encoding, codes)
            return
        job = _Job("plane", _CODES)
        job.add(encoding, start // (len(raw) // len(codes)), codes)
        self._submit(job)

    def _share(self, kind: str, dtype: str | None, owner: Owner, raw: Raw) -> None:
        """Put a small matrix or object into a chunk with others of its sort."""
        key = (kind, dtype)
        job = self._groups.setdefault(key, _Job(kind, dtype, small=True))
        job.add(owner, 0, raw)
        if job.size >= GROUP:
            del self._groups[key]
            self._submit(job)

    def _cut(self, kind: str, dtype: str | None, owner: Owner, raw: Raw, step: int) -> None:
        view = memoryview(raw)
        for start in range(0, len(raw), step):
            job = _Job(kind, dtype)
            job.add(owner, start, raw if len(raw) <= step else view[start : start + step])
            self._submit(job)

    def _submit(self, job: _Job) -> None:
        if self._pool is None:
            self._put(job, self._encode(job))
            return
        while len(self._queue) > 1 and self._queued + job.size > WINDOW:
            self._take()
        self._queue.append((job, self._pool.submit(self._encode, job)))
        self._queued += job.size

    def _encode(self, job: _Job) -> list[Encoded]:
        raw = job.parts[0] if len(job.parts) == 1 else b"".join(job.parts)
        if job.dtype is None:
            return encode_object(raw)
        return encode_elements(self._layout, job.dtype, raw)

    def _take(self) -> None:
        """The oldest result, so that packs do not depend on which thread was faster."""
        job, future = self._queue.popleft()
        self._queued -= job.size
        self._put(job, future.result())

    def _drain(self) -> None:
        while self._queue:
            self._take()

    def _put(self, job: _Job, encoded: list[Encoded]) -> None:
        for index, part in enumerate(encoded):
            plane = index if job.kind == "plane" else None
            # Each plane has its share of a member's bytes.
            members = tuple(
                (owner, start // len(encoded), count // len(encoded))
                for owner, start, count in job.members
            )
            lane = lane_of(job.kind, plane, small=job.small)
            self._spool.add(lane, Pending(job.kind, plane, members, part))

    def _recheck(self) -> None:
        pieces = {}
        for find in self._reused:
            for piece in find():
                pieces[piece.pack, piece.offset] = piece

        def check(piece: Piece) -> None:
            self._store.verify(piece, content=self._content)

        ordered = [pieces[key] for key in sorted(pieces)]
        deque(self._pool.map(check, ordered) if self._pool else map(check, ordered), maxlen=0)

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _step(dtype: str, size: int | None = None) -> int:
    """About `SLICE` or `size` bytes, but whole elements."""
    item = element_bytes(dtype)
    return max(item, (SLICE if size is None else size) // item * item)


def _flat(raw: Raw) -> Raw:
    """A view whose length is its bytes."""
    if isinstance(raw, memoryview) and (raw.format != "B" or raw.ndim != 1):
        return raw.cast("B") if raw.nbytes else b""
    return raw
