"""A storage plan carried out: new packs written and read back, then the index switched to them.

At every moment either the old or the new packs serve, and all that the index names is there.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field
from typing import Self

import dlv.disk.durable as durable
import dlv.recovery.superseded as superseded
from dlv.archiving.planning import AT_ONCE, Room
from dlv.archiving.tryouts import Choice, Together, Tryouts
from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.errors import Damaged, DlvError
from dlv.kinds import Piece, Raw
from dlv.metadata import matrices, usage
from dlv.metadata.database import Database
from dlv.metadata.matrices import PackIndex
from dlv.pas.chunks import SUFFIX
from dlv.pas.encode import SMALL, Encoded, Part, encode_elements, encode_object
from dlv.pas.footer import Encoding, pieces_of
from dlv.pas.layouts.registry import default_layout
from dlv.pas.packs import MAX_OBJECT_CHUNK, Pack
from dlv.pas.read import families
from dlv.pas.spool import BUFFER, Owner, Pending, lane_of
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore, gone
from dlv.weights.writer import PackFiles, PackRecord

_BYTES = default_layout()  # one plane of bytes is its own layout
THREADS = 4  # that read tensors back, each one of them
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

    def stored_now(self, encoding: Encoding) -> int:
        """Bytes that a matrix takes in its current packs, with its share of shared chunks."""
        pieces = self._store.chunks(encoding.matrix)
        return sum(piece.length * piece.count // max(1, piece.raw) for piece in pieces)

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
        self._spool.add(lane, Pending(kind, plane, tuple(members), encoded))


def _alike(encoding: Encoding) -> str:
    """Planes of what is so stored compress well together."""
    delta = encoding.delta or {}
    return f"{encoding.dtype} {encoding.layout['id']} {delta.get('id')}"


Advance = Callable[[int], None]

DEAD = 0.05  # the part of unused bytes from which on the rest of a pack is written again
FETCHED = 32 << 20  # bytes of matrices that are read together before they are encoded
FAR = 1 << 29  # bytes of matrices that other machines encode at once
BATCH = 1 << 29  # bytes of new packs after which the index is switched
# Measured shares of the time that a matrix takes: encoding it, and reading it back.
ENCODING, VERIFYING = 4, 1


@dataclass
class Work:
    """What to encode anew, in an order in which no base comes after what rests on it."""

    choices: Sequence[tuple[Choice, Encoding]]
    carried: list[Encoding] = field(default_factory=list)
    objects: list[tuple[str, str]] = field(default_factory=list)


class Overlay:
    """The index as it will be once these packs count."""

    def __init__(self, index: PackIndex, packs: Iterable[PackRecord]) -> None:
        self._index = index
        self._encodings: dict[str, Encoding] = {}
        self._pieces: dict[tuple[str, str], list[Piece]] = {}
        for pack in packs:
            self._encodings.update({row.matrix: row for row in pack.rows.encodings})
            for piece in pieces_of(pack.rows, pack.hash):
                kind = "matrix" if piece.kind in ("plane", "side") else piece.kind
                self._pieces.setdefault((kind, piece.object), []).append(piece)

    def fresh(self) -> Iterable[tuple[tuple[str, str], Sequence[Piece]]]:
        """What is new: (kind, hash) with all its pieces."""
        return self._pieces.items()

    def encoding(self, matrix: str) -> object:
        return self._encodings.get(matrix) or self._index.encoding(matrix)

    def chunks(self, matrix: str) -> Sequence[object]:
        if matrix in self._encodings:
            return self._pieces.get(("matrix", matrix), [])
        return self._index.chunks(matrix)

    def object_chunks(self, kind: str, name: str) -> Sequence[object]:
        return self._pieces.get((kind, name)) or self._index.object_chunks(kind, name)


def work(repository: Repository, choices: Sequence[tuple[Choice, Encoding]]) -> Work:
    """What else to write: the rest of packs with much unused space.

    The planes of a matrix are in several packs, and it moves out of all of them, so the unused
    space is compared with the bytes of all these planes.
    """
    db = repository.database
    found = Work(choices)
    changed = {choice.matrix for choice, _ in choices}
    dead, used = usage.packs_of(db, changed), usage.used_bytes(db)
    tables = usage.tables_named(db, changed)
    stored = {matrix.hash: matrix.stored for matrix in usage.stored_matrices(db)}
    index = PackIndex(db)
    seen: set[str] = set(changed)
    objects: dict[tuple[str, str], None] = {}
    for name, size in matrices.packs(db):
        lost, live = dead.get(name, 0.0), used.get(name, 0.0)
        if not live or size - live + lost <= DEAD * size:
            continue
        try:
            with Pack(durable.path_of(repository.packs, name, SUFFIX)) as pack:
                empty = [row.matrix for row in pack.encodings if row.empty]
                unused = sum(chunk.length for chunk in pack.footer.chunks) - live + lost
        except FileNotFoundError as error:
            raise gone(name) from error
        held, others = usage.used_in(db, name)
        moving = [digest for digest in held if digest not in seen]
        written = max(live - lost, sum(stored[digest] for digest in moving))
        if unused <= DEAD * (unused + written):
            continue
        for digest in [*moving, *empty]:
            row = index.encoding(digest)
            if digest not in seen and row is not None:
                seen.add(digest)
                found.carried.append(Encoding(**vars(row)))
        objects |= {(kind, o): None for kind, o in others if kind != "table" or o in tables}
    found.objects = list(objects)
    return found


def carry_out(
    repository: Repository,
    plan: Work,
    tryouts: Tryouts,
    author: str,
    summary: str,
    advance: Advance = lambda _: None,
    *,
    jobs: int = 1,
    deadline: float | None = None,
) -> Written:
    """Write, verify, switch. The caller holds `repository.writing()`.

    No matrix is started after the deadline (of `time.monotonic`); the rest keep their encoding.
    """
    store = MatrixStore.of(repository)
    todo = deque(plan.choices)
    written = Written()
    clock = _Clock(deadline)
    # Before a deadline every second counts; other machines read the packs themselves.
    reads_ahead = deadline is None and tryouts.elsewhere is None
    together = store.together if reads_ahead else None
    while todo or plan.carried or plan.objects:
        with Packing(store) as packing:
            clock.begin()
            before = len(todo)
            with _Encoder(tryouts, jobs, together) as encoder:
                for choice, encoding in encoder.taken(todo, lambda: clock.room(packing.stored)):
                    if _encode(packing, tryouts, choice, encoding):
                        written.matrices += 1
                    advance(encoding.size * ENCODING)
            late = clock.late()
            if late and len(todo) == before:
                break
            if not todo and not late:  # carrying other matrices along only frees space
                for encoding in plan.carried:
                    packing.carry(encoding)
                for kind, name in plan.objects:
                    packing.carry_object(kind, name)
                plan.carried, plan.objects = [], []
            made = packing.finish(lambda names: superseded.intend(repository, names))
        tryouts.pause()
        clock.encoded()
        verify(repository, store, made, lambda count: advance(count * VERIFYING))
        switch(repository, store, made, author, summary)
        clock.verified()
        tryouts.forget_bytes()
        written.bytes += sum(pack.bytes for pack in made)
        if late:
            break
    written.left = len(todo)
    store.close()
    return written


@dataclass
class Written:
    """The result: bytes of the new packs, matrices encoded, and matrices left for the next run."""

    bytes: int = 0
    matrices: int = 0
    left: int = 0


class _Clock:
    """Decides what may still start before the deadline, with time left to verify it."""

    def __init__(self, deadline: float | None) -> None:
        self._deadline = deadline
        self._began = self._ended = 0.0
        self._after = 0.5  # seconds to verify what one second encoded, as measured so far

    def begin(self) -> None:
        self._began = time.monotonic()

    def room(self, stored: int) -> bool:
        """Whether one more matrix may go into these packs."""
        return stored <= BATCH and not self.late()

    def late(self) -> bool:
        if self._deadline is None:
            return False
        now = time.monotonic()
        return now + (now - self._began) * self._after >= self._deadline

    def encoded(self) -> None:
        self._ended = time.monotonic()

    def verified(self) -> None:
        spent = max(1e-3, self._ended - self._began)
        self._after = min(2.0, (time.monotonic() - self._ended) / spent)


class _Encoder:
    """Encodes in threads ahead of the writer, and yields in the order of the plan.

    `together` reads the matrices of many choices at once, because versions of a tensor share a
    chain of deltas; without it each is read on its own.
    """

    def __init__(self, tryouts: Tryouts, jobs: int, together: Together | None) -> None:
        self._tryouts = tryouts
        self._together = together
        self._jobs = jobs
        # For matrices encoded on other machines, only the encoded bytes are in memory here.
        self._room = Room(AT_ONCE if tryouts.elsewhere is None else FAR)
        self._pool = ThreadPoolExecutor(max(1, jobs))
        self._fetched = 0  # the next so many choices have their matrices in memory

    def taken(
        self, todo: deque[tuple[Choice, Encoding]], more: Callable[[], bool]
    ) -> Iterator[tuple[Choice, Encoding]]:
        """Yield each choice once it is encoded; start new ones while `more` returns true."""
        ahead: deque[tuple[tuple[Choice, Encoding], Future[None]]] = deque()
        while True:
            while todo and len(ahead) < 2 * self._jobs and more():
                if not self._fetched:
                    self._fetch(todo)
                self._fetched -= 1
                item = todo.popleft()
                ahead.append((item, self._pool.submit(self._encode, item)))
            if not ahead:
                return
            item, future = ahead.popleft()
            future.result()
            yield item

    def _fetch(self, todo: Iterable[tuple[Choice, Encoding]]) -> None:
        """Read the matrices of the next choices into memory, up to `FETCHED` bytes."""
        size = 0
        names: dict[str, None] = {}
        for choice, encoding in todo:
            needed = [name for name in (choice.matrix, choice.base) if name and name not in names]
            size += len(needed) * encoding.size
            if self._fetched and size > FETCHED:
                break
            names |= dict.fromkeys(needed)
            self._fetched += 1
        if self._together is not None and self._fetched > 1:
            self._tryouts.fetch(names, self._together)

    def _encode(self, item: tuple[Choice, Encoding]) -> None:
        choice, encoding = item
        if encoding.size > SMALL:
            with self._room.of(encoding.size), self._tryouts.made(choice, encoding):
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)


def _encode(packing: Packing, tryouts: Tryouts, choice: Choice, encoding: Encoding) -> bool:
    """Own chunks for a large matrix; a small one's planes share theirs.

    Return whether the new encoding was used; a matrix keeps its old one if that is as small.
    """
    pooled = tryouts.pooled(choice, encoding)
    if pooled is not None:
        made, planes = pooled
        for plane, data in enumerate(planes):
            packing.pool(made, plane, data)
        return True
    with tryouts.made(choice, encoding) as (tried, parts):
        # A matrix that is a delta now may be a base of its own new base, so it cannot stay one.
        if encoding.delta is None and tried.stored >= packing.stored_now(encoding):
            packing.carry(encoding)
            return False
        for part in parts:
            packing.put(tried.encoding, part)
    return True


def verify(
    repository: Repository, store: MatrixStore, packs: Sequence[PackRecord], advance: Advance
) -> None:
    """Read every matrix and object of the new packs as readers will, by its name."""
    overlay = Overlay(PackIndex(repository.database), packs)
    view = MatrixStore(store.packs_dir, store.tmp_dir, overlay)  # type: ignore[arg-type]
    try:
        fresh = {row.matrix: row for pack in packs for row in pack.rows.encodings}
        room = Room(AT_ONCE)

        def read(family: list[str]) -> None:
            largest = max(fresh[name].size for name in family)
            with room.of(2 * largest):  # the matrix, and a copy where a chain forks
                for _, raw in view.together(family):
                    advance(len(raw))

        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
            list(pool.map(read, families(fresh, view.encoding)))
        for kind, name in dict.fromkeys(
            (chunk.kind, owner)
            for pack in packs
            for chunk in pack.rows.chunks
            for owner, _, _ in chunk.members
            if isinstance(owner, str)
        ):
            view.object(kind, name)
    except DlvError:
        known = {name for name, _ in matrices.packs(repository.database)}
        for pack in packs:
            if pack.hash not in known:
                durable.remove(pack.path)
        raise
    finally:
        view.close()


def switch(
    repository: Repository,
    store: MatrixStore,
    packs: Sequence[PackRecord],
    author: str,
    summary: str,
    also: Callable[[Database], None] = lambda _: None,
) -> None:
    """From the end of this transaction on the new packs count; `also` is done with it."""
    with repository.change("archive", author) as change:
        matrices.supersede(change.db, [(pack.hash, pack.bytes, pack.footer) for pack in packs])
        also(change.db)
        _see(store, Overlay(PackIndex(change.db), packs))
        change.record("archive", None, {"packs": [pack.hash for pack in packs]})
        change.summary = summary


def _see(store: MatrixStore, meant: Overlay) -> None:
    """The index must now find just what was verified: it decides which packs may go."""
    for (kind, name), pieces in meant.fresh():
        found = store.chunks(name) if kind == "matrix" else store.object_chunks(kind, name)
        if _places(found) != _places(pieces):
            raise Damaged(
                f"the index does not find {kind} {name} where it was written",
                why="nothing changed; the old packs are still used",
                hint="please report this bug",
            )


def _places(pieces: Sequence[Piece]) -> list[tuple[object, ...]]:
    return sorted(
        (piece.kind, piece.plane or 0, piece.start, piece.count, piece.pack, piece.offset, piece.at)
        for piece in pieces
    )
