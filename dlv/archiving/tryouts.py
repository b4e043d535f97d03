"""Encodings tried for a plan: what each would take, and its bytes if it was the best so far.

They are made once and noted in `.dlv/cache`, so that an archive that was interrupted goes on
where it stopped, and the next one need not measure again. What is read back is checked; what does
not fit is made again.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, Self

from dlv.canonical import WRITER, dumps, hash_bytes
from dlv.dataclass import dataclass
from dlv.disk.durable import storage_error
from dlv.errors import StorageError
from dlv.kinds import Raw
from dlv.memory import give_back
from dlv.pas.coders import small
from dlv.pas.coders.codecs import choose
from dlv.pas.encode import SMALL, Encoded, Part, encode_materialised
from dlv.pas.floats import differences, format_of, words_in
from dlv.pas.footer import Encoding
from dlv.pas.layouts.fixed import Fixed
from dlv.pas.layouts.registry import default_layout
from dlv.pas.layouts.segments import Layout, split_matrix

IN_MEMORY = 8 << 20  # of chunks; more goes to the disk
BLOCK = 1 << 20
LARGE = 32 << 20  # bytes of a matrix before whose encoding freed memory is given back


@dataclass(frozen=True)
class Place:
    """A part of an encoding, and where its bytes are."""

    kind: str
    plane: int | None
    start: int
    count: int
    codec: Any
    raw: int
    blake3: str
    offset: int
    length: int

    def row(self, moved: int) -> list[Any]:
        """As notes list it, `moved` bytes further on."""
        return [
            *(self.kind, self.plane, self.start, self.count),
            *(self.codec, self.raw, self.blake3, self.offset + moved, self.length),
        ]

    def part(self, data: bytes) -> Part | None:
        """With its bytes; None if these are not they."""
        if len(data) != self.length or hash_bytes(data) != self.blake3:
            return None
        encoded = Encoded(self.codec, data, self.raw, self.blake3)
        return Part(self.kind, self.plane, self.start, self.count, encoded)


class Attempt:
    """Takes the parts of an encoding as they are made, and gives them back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places: list[Place] = []
        self.encoding: Encoding | None = None
        self.stored = 0
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(  # noqa: SIM115
            IN_MEMORY, dir=str(folder)
        )

    @classmethod
    def of(cls, folder: Path, encode: Callable[[Attempt], Encoding]) -> Self:
        """Encode into a new attempt, which the caller closes."""
        attempt = cls(folder)
        try:
            attempt.encoding = encode(attempt)
        except BaseException:
            attempt.close()
            raise
        return attempt

    def put(self, part: Part) -> None:
        encoded = part.encoded
        self.places.append(
            Place(
                *(part.kind, part.plane, part.start, part.count, encoded.codec, encoded.raw),
                *(encoded.blake3, self.stored, len(encoded.data)),
            )
        )
        try:
            self._file.write(encoded.data)
        except OSError as error:
            raise storage_error("write in", self.folder, error) from error
        self.stored += len(encoded.data)

    def parts(self) -> Iterator[Part]:
        """All of them again, one at a time."""
        for place in self.places:
            part = self.read(place)
            if part is None:
                raise StorageError(
                    f"what was written in {self.folder} does not read back",
                    why="the disk or the memory of this machine may be faulty",
                )
            yield part

    def read(self, place: Place) -> Part | None:
        """One of the parts with its bytes; None if they do not read back."""
        try:
            self._file.seek(place.offset)
            return place.part(self._file.read(place.length))
        except OSError as error:
            raise storage_error("read in", self.folder, error) from error

    def copy(self, descriptor: int) -> None:
        """All bytes to the end of another file."""
        self._file.seek(0)
        while block := self._file.read(BLOCK):
            view = memoryview(block)
            while len(view):
                view = view[os.write(descriptor, view) :]

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Kind = Literal["materialise", "sub", "context"]

JOURNAL, BYTES = "tryouts.jsonl", "tryouts.bin"
ROOM = 1 << 30  # for the bytes of encodings; what finds none is made again
FORMAT = 4  # of the notes; raised when an encoder gives other bytes than before
SHARES = 1 << 20  # parts of the whole in which a share is noted
ROW = 70  # about what a chunk takes in a pack's footer,
MEMBER = 10  # and what a small plane's share of one does


@dataclass(frozen=True)
class Choice:
    """One way to store a matrix: on its own, or as a delta against a base."""

    matrix: str
    base: str | None
    kind: Kind


@dataclass(frozen=True)
class Tried:
    """What came out: `stored` bytes of chunks, and rows about them in the footer."""

    encoding: Encoding
    stored: int
    parts: int  # chunks of its own; 0 where it shares them
    exact: bool = True  # False: estimated

    @property
    def bytes(self) -> int:
        return self.stored + (ROW * self.parts or MEMBER * self.encoding.planes)


@dataclass(frozen=True)
class Near:
    """Estimates from sketches: the nearest bases with the share of the matrix's bytes that each
    plain difference takes, and the share that the matrix takes by itself."""

    bases: Sequence[tuple[str, float]] = ()
    alone: float = 1.0


@dataclass(frozen=True)
class _Note:
    tried: Tried
    kept: list[list[Any]] | None  # parts as they lie in the file of bytes


# Encodes a choice on another machine; the last argument says whether to search thoroughly.
Elsewhere = Callable[[Choice, Encoding, bool], tuple[Encoding, Sequence[Part]]]
# Reads several matrices by name; the bytes of one are valid until the next is read.
Together = Callable[[Iterable[str]], Iterable[tuple[str, Raw]]]


class Matrices:
    """Decoded matrices, the last few kept: a target and its base however large they are."""

    def __init__(self, read: Callable[[str], Raw], limit: int) -> None:
        self._read = read
        self._limit = limit
        self._held: OrderedDict[str, Raw] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __call__(self, matrix: str) -> Raw:
        with self._lock:
            if matrix in self._held:
                self._held.move_to_end(matrix)
                return self._held[matrix]
            self._shrink(self._limit // 2, 1)  # reading takes room, too
        raw = self._read(matrix)
        with self._lock:
            if matrix not in self._held:
                self._held[matrix] = raw
                self._bytes += len(raw)
                self._shrink(self._limit, 2)
        return raw

    def fetch(self, matrices: Iterable[str], read: Together) -> None:
        """Read several matrices in one pass and keep them; they must fit the limit."""
        with self._lock:
            wanted = [matrix for matrix in dict.fromkeys(matrices) if matrix not in self._held]
            self._shrink(self._limit // 2, 0)
        for matrix, raw in read(wanted) if wanted else ():
            copy = bytes(raw)  # the next matrix overwrites these bytes
            with self._lock:
                self._held[matrix] = copy
                self._bytes += len(copy)

    def _shrink(self, limit: int, least: int) -> None:
        while self._bytes > limit and len(self._held) > least:
            self._bytes -= len(self._held.popitem(last=False)[1])

    def clear(self) -> None:
        with self._lock:
            self._held.clear()
            self._bytes = 0


def settle(folder: Path, stored: Set[str] | None) -> None:
    """The plan is carried out: what was measured is kept, of what is still stored; no bytes.

    `stored` is None if no note was written since the last call.
    """
    path = folder / JOURNAL
    rows: dict[tuple[object, ...], bytes] = {}  # lines: there may be many
    try:
        (folder / BYTES).unlink(missing_ok=True)
        if stored is None:
            return
        with path.open("rb") as journal:
            for line, row in _rows(journal):
                about = row["choice"] if "choice" in row else row["near"]
                there = all(name is None or name in stored for name in about[:2])
                if there and row["manner"].endswith(WRITER):
                    clear = row.get("kept") is None
                    rows[row["manner"], *about] = line if clear else _line(row | {"kept": None})
        fresh = path.with_suffix(".new")
        fresh.write_bytes(b"".join(rows.values()))
        fresh.replace(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error("clear", folder, error) from error


def _line(row: Mapping[str, Any]) -> bytes:
    line = dumps(row)
    return line + b" " + hash_bytes(line)[:16].encode() + b"\n"


def _rows(journal: Iterable[bytes]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Lines and what they say, up to one that was cut off or damaged."""
    for line in journal:
        text, _, check = line.rstrip(b"\n").rpartition(b" ")
        if hash_bytes(text)[:16].encode() != check:
            return
        yield line, json.loads(text)


class Tryouts:
    """Encodes on request and remembers; one process at a time."""

    def __init__(
        self,
        folder: Path,
        matrices: Callable[[str], Raw],
        *,
        thorough: bool = False,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.noted = False  # whether this process has written a note
        self.elsewhere = elsewhere  # encodes matrices on other machines; None: here
        self._matrices = matrices
        self._thorough = thorough
        self._manner = f"{FORMAT}{'t' if thorough else ''} {WRITER}"
        self._lock = threading.Lock()
        self._notes: dict[Choice, _Note] = {}
        self._best: dict[str, int] = {}
        self._nearest: dict[tuple[str, str], Near] = {}
        self._folder = folder
        try:
            folder.mkdir(exist_ok=True)
            self._journal = open(folder / JOURNAL, "a+b", buffering=0)  # noqa: SIM115
            self._bytes = open(folder / BYTES, "a+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise storage_error("write in", folder, error) from error
        self._recall()

    def tried(self, choice: Choice, encoding: Encoding) -> Tried:
        """What this choice takes; `encoding` tells dtype and shape of the matrix."""
        with self._lock:
            note = self._notes.get(choice)
        if note is not None:
            return note.tried
        shared = self.pooled(choice, encoding)
        if shared is not None:
            made, planes = shared
            tried = Tried(made, sum(len(choose(plane)[1]) for plane in planes), 0)
            with self._lock:
                self._note(choice, tried, None)
            return tried
        with self._encode(choice, encoding) as attempt:
            assert attempt.encoding is not None
            tried = Tried(attempt.encoding, attempt.stored, len(attempt.places))
            with self._lock:
                self._keep(choice, tried, attempt)
        return tried

    @contextlib.contextmanager
    def made(self, choice: Choice, encoding: Encoding) -> Iterator[tuple[Tried, Iterator[Part]]]:
        """Yield the outcome and parts of a choice, from the notes or encoded now."""
        with self._lock:
            note = self._notes.get(choice)
            places = None if note is None or note.kept is None else self._replay(note.kept)
        if note is not None and places is not None:
            yield note.tried, self._replayed(places)
            return
        with self._encode(choice, encoding) as attempt:
            assert attempt.encoding is not None
            tried = Tried(attempt.encoding, attempt.stored, len(attempt.places))
            with self._lock:
                # The plan chose this one, so its bytes are kept whatever was smaller.
                self._best.pop(choice.matrix, None)
                self._keep(choice, tried, attempt)
            yield tried, attempt.parts()

    def _replayed(self, places: Iterable[Place]) -> Iterator[Part]:
        for place in places:
            part = self._read(place)
            if part is None:
                raise StorageError(f"{self._folder / BYTES} changed during the operation")
            yield part

    def forget_bytes(self) -> None:
        """Delete the kept bytes, which are in packs now, to make room for the next batch."""
        with self._lock:
            try:
                self._bytes.truncate(0)
            except OSError as error:
                raise storage_error("write in", self._folder, error) from error
            self._notes = {choice: _Note(note.tried, None) for choice, note in self._notes.items()}
            self._best.clear()

    def known(self, choice: Choice) -> Tried | None:
        """The outcome of a choice, if it was tried before.

        Outcomes whose bytes are not in a pack yet do not count, so that an interrupted archive
        makes the same plan again.
        """
        note = self._notes.get(choice)
        return None if note is None or note.kept is not None else note.tried

    def near(self, matrix: str, candidates: Sequence[str]) -> Near | None:
        """Which of these bases were found to be nearest; None if that is not known."""
        return self._nearest.get((matrix, hash_bytes(dumps(list(candidates)))[:16]))

    def note_near(self, matrix: str, candidates: Sequence[str], near: Near) -> None:
        key = hash_bytes(dumps(list(candidates)))[:16]
        self._nearest[matrix, key] = near
        bases = [[base, round(share * SHARES)] for base, share in near.bases]
        row = {"manner": self._manner, "near": [matrix, None, key], "bases": bases}
        self._write(row | {"alone": round(near.alone * SHARES)})

    def pooled(self, choice: Choice, encoding: Encoding) -> tuple[Encoding, list[Raw]] | None:
        """The decoded planes of a small matrix, which go into chunks with others."""
        if encoding.nbytes is None or encoding.nbytes > SMALL:
            return None
        raw = self._matrices(choice.matrix)
        delta: dict[str, Any] | None = None
        if choice.base is not None:
            form = format_of(encoding.dtype)
            base = words_in(self._matrices(choice.base), encoding.dtype)
            raw = differences(words_in(raw, encoding.dtype), base, form).tobytes()
            delta = {"id": "sub", "base": choice.base, "overlap": None, "predictor": []}
        layout = default_layout()
        planes, _ = split_matrix(layout, raw, encoding.dtype, encoding.shape)
        made = replace(encoding, layout=layout.get_config(), delta=delta, planes=len(planes))
        return made, planes

    def matrix(self, name: str) -> Raw:
        """The bytes of a matrix; the last few stay in memory."""
        return self._matrices(name)

    def fetch(self, matrices: Iterable[str], read: Together) -> None:
        """Read matrices into memory that will be needed next."""
        if isinstance(self._matrices, Matrices):
            self._matrices.fetch(matrices, read)

    def pause(self) -> None:
        """Hold no decoded matrix: for a while none is asked for."""
        if isinstance(self._matrices, Matrices):
            self._matrices.clear()

    def close(self) -> None:
        self._journal.close()
        self._bytes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _encode(self, choice: Choice, encoding: Encoding) -> Attempt:
        """Encode here or elsewhere; the caller closes the attempt."""
        if self.elsewhere is None:
            return encoded(choice, encoding, self._matrices, self._folder, thorough=self._thorough)
        new_encoding, parts = self.elsewhere(choice, encoding, self._thorough)

        def received(attempt: Attempt) -> Encoding:
            for part in parts:
                attempt.put(part)
            return new_encoding

        return Attempt.of(self._folder, received)

    def _keep(self, choice: Choice, tried: Tried, attempt: Attempt) -> None:
        """Note the size; and the bytes, if no smaller encoding of the matrix is known."""
        kept = None
        if tried.bytes < self._best.get(choice.matrix, tried.bytes + 1):
            self._best[choice.matrix] = tried.bytes
            try:
                end = self._bytes.seek(0, os.SEEK_END)
                if end + attempt.stored <= ROOM:
                    attempt.copy(self._bytes.fileno())
                    kept = [place.row(end) for place in attempt.places]
            except OSError as error:
                # They can be made again: the room is worth more to whoever has none.
                with contextlib.suppress(OSError):
                    self._bytes.truncate(0)
                raise storage_error("write in", self._folder, error) from error
        self._note(choice, tried, kept)

    def _note(self, choice: Choice, tried: Tried, parts: list[list[Any]] | None) -> None:
        self._notes[choice] = _Note(tried, parts)
        self._write(
            {
                "manner": self._manner,
                "choice": [choice.matrix, choice.base, choice.kind],
                "encoding": tried.encoding.as_json(),
                "stored": tried.stored,
                "parts": tried.parts,
                "kept": parts,
            }
        )

    def _write(self, row: Mapping[str, Any]) -> None:
        self.noted = True
        try:
            view = memoryview(_line(row))
            while len(view):
                view = view[os.write(self._journal.fileno(), view) :]
        except OSError as error:
            raise storage_error("write in", self._folder, error) from error

    def _replay(self, parts: list[list[Any]]) -> list[Place] | None:
        """Where the parts lie, if all are whole."""
        places = [Place(*row) for row in parts]
        return places if all(self._read(place) is not None for place in places) else None

    def _read(self, place: Place) -> Part | None:
        """A kept part; several threads read at once, so from no place in the file but its own."""
        parts: list[bytes] = []
        done = 0
        while done < place.length and (
            more := os.pread(self._bytes.fileno(), place.length - done, place.offset + done)
        ):
            parts.append(more)  # a file system may give only part of it
            done += len(more)
        return place.part(b"".join(parts))

    def _recall(self) -> None:
        """Notes of an archive before; a line that was cut off ends them."""
        self._journal.seek(0)
        whole = 0
        for _, row in _rows(self._lines()):
            whole = self._read_to
            if row["manner"] != self._manner:
                continue
            if "near" in row:
                matrix, _, key = row["near"]
                bases = [(base, share / SHARES) for base, share in row["bases"]]
                self._nearest[matrix, key] = Near(bases, row["alone"] / SHARES)
                continue
            given = row["encoding"]
            encoding = Encoding(
                *(given["matrix"], given["dtype"], tuple(given["shape"]), given["layout"]),
                *(given["delta"], given["planes"]),
            )
            tried = Tried(encoding, row["stored"], row["parts"])
            matrix, base, kind = row["choice"]
            self._notes[Choice(matrix, base, kind)] = _Note(tried, row["kept"])
            if row["kept"] is not None:
                self._best[matrix] = tried.bytes
        if whole < self._read_to:  # or nothing that is noted from now on would be found again
            self._journal.truncate(whole)

    def _lines(self) -> Iterator[bytes]:
        self._read_to = 0
        with open(self._journal.fileno(), "rb", closefd=False) as lines:
            for line in lines:
                self._read_to += len(line)
                yield line


def encoded(
    choice: Choice, encoding: Encoding, read: Callable[[str], Raw], folder: Path, *, thorough: bool
) -> Attempt:
    """Encode a matrix as chosen; the caller closes the attempt."""
    target = read(choice.matrix)
    if choice.base is None:
        return _materialised(target, encoding, folder)
    given = (target, read(choice.base), encoding.dtype, encoding.shape, choice.matrix, choice.base)

    if len(target) >= LARGE:
        give_back()  # reading both matrices took more than they do

    # `reencode.verify` reads every matrix back from its pack, so nothing is decoded here.
    def encode(attempt: Attempt) -> Encoding:
        if choice.kind == "sub":
            return small.encode_plain(*given, attempt.put, check=False)
        return small.encode_small(*given, attempt.put, thorough=thorough, check=False)

    return Attempt.of(folder, encode)


def _materialised(target: Raw, encoding: Encoding, folder: Path) -> Attempt:
    """A matrix on its own: in fixed point where it can be, if that is smaller."""
    given = (target, encoding.dtype, encoding.shape, encoding.matrix)
    layouts: list[Layout] = [default_layout()]
    with contextlib.suppress(ValueError):
        layouts.append(Fixed.of([target], encoding.dtype, encoding.shape))
    best: Attempt | None = None
    for layout in layouts:
        encode = partial(encode_materialised, *given, layout=layout, effort="small")
        try:
            made = Attempt.of(folder, lambda to, encode=encode: encode(emit=to.put))  # type: ignore[misc]
        except BaseException:
            if best is not None:
                best.close()
            raise
        worse = made
        if best is None or _cost(made) < _cost(best):
            worse, best = (best or made), made
        if worse is not best:
            worse.close()
    assert best is not None
    return best


def _cost(attempt: Attempt) -> int:
    return attempt.stored + ROW * len(attempt.places)
