"""Encodings tried for a plan: what each would take, and its bytes if it was the best so far.

They are made once and noted in `.dlv/cache`, so that an archive that was interrupted goes on
where it stopped. What is read back is checked; what does not fit is made again.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from dlv.canonical import dumps, hash_bytes
from dlv.errors import StorageError
from dlv.pas import small
from dlv.pas.codecs import choose
from dlv.pas.encode import (
    SMALL,
    Encoded,
    Part,
    Put,
    encode_materialised,
    encode_sub_fast,
    encode_xor,
)
from dlv.pas.fixed import Fixed
from dlv.pas.floats import differences, format_of, words_in
from dlv.pas.footer import Encoding
from dlv.pas.layouts import default_layout
from dlv.pas.segments import Layout

Raw = bytes | bytearray | memoryview
Kind = Literal["materialise", "xor", "sub", "context"]

JOURNAL, BYTES = "tryouts.jsonl", "tryouts.bin"
FORMAT = 1  # of the notes; raised when an encoder gives other bytes than before
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

    @property
    def bytes(self) -> int:
        return self.stored + (ROW * self.parts or MEMBER * self.encoding.planes)


@dataclass(frozen=True)
class _Note:
    tried: Tried
    kept: list[list[Any]] | None  # parts as they lie in the file of bytes


class Matrices:
    """Decoded matrices, the last few kept."""

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
        raw = self._read(matrix)
        with self._lock:
            if matrix not in self._held:
                self._held[matrix] = raw
                self._bytes += len(raw)
                while self._bytes > self._limit and len(self._held) > 1:
                    self._bytes -= len(self._held.popitem(last=False)[1])
        return raw


def forget(folder: Path) -> None:
    """Remove the notes: the plan is carried out."""
    try:
        for name in (JOURNAL, BYTES):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"cannot clear {folder}", why=error.strerror) from error


class Tryouts:
    """Encodes on request and remembers; one process at a time."""

    def __init__(
        self,
        folder: Path,
        matrices: Callable[[str], Raw],
        *,
        slow: bool = False,
        fast_coder: bool = False,
    ) -> None:
        self._matrices = matrices
        self._slow = slow
        self._fast_coder = fast_coder
        self._manner = f"{FORMAT}{'s' if slow else ''}{'f' if fast_coder else ''}"
        self._lock = threading.Lock()
        self._notes: dict[Choice, _Note] = {}
        self._best: dict[str, int] = {}
        folder.mkdir(exist_ok=True)
        try:
            self._journal = open(folder / JOURNAL, "a+b")  # noqa: SIM115
            self._bytes = open(folder / BYTES, "a+b")  # noqa: SIM115
        except OSError as error:
            raise StorageError(f"cannot write in {folder}", why=error.strerror) from error
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
                self._notes[choice] = _Note(tried, None)
            return tried
        parts: list[Part] = []
        made = self._encode(choice, encoding, parts.append)
        tried = Tried(made, sum(len(part.encoded.data) for part in parts), len(parts))
        with self._lock:
            self._keep(choice, tried, parts)
        return tried

    def parts(self, choice: Choice, encoding: Encoding, put: Put) -> Encoding:
        """The parts of a choice, from the notes where they are whole, else made again."""
        with self._lock:
            note = self._notes.get(choice)
            parts = None if note is None or note.kept is None else self._replay(note.kept)
        if note is None or parts is None:
            return self._encode(choice, encoding, put)
        for part in parts:
            put(part)
        return note.tried.encoding

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
        planes, _ = layout.split(raw, encoding.dtype, encoding.shape)
        made = replace(encoding, layout=layout.get_config(), delta=delta, planes=len(planes))
        return made, planes

    def close(self) -> None:
        self._journal.close()
        self._bytes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _encode(self, choice: Choice, encoding: Encoding, put: Put) -> Encoding:
        target = self._matrices(choice.matrix)
        dtype, shape = encoding.dtype, encoding.shape
        if choice.base is None:
            return _materialised(target, encoding, put)
        base = self._matrices(choice.base)
        given = (target, base, dtype, shape, choice.matrix, choice.base, put)
        if choice.kind == "xor":
            return encode_xor(*given, layout=default_layout())
        if choice.kind == "sub":
            return encode_sub_fast(*given, layout=default_layout())
        return small.encode_small(
            *given,
            scale=(choice.base, None),
            slow=self._slow,
            fast_coder=self._fast_coder,
        )

    def _keep(self, choice: Choice, tried: Tried, parts: list[Part]) -> None:
        """Note the size; and the bytes, if no smaller encoding of the matrix is known."""
        kept = None
        if tried.bytes < self._best.get(choice.matrix, tried.bytes + 1):
            self._best[choice.matrix] = tried.bytes
            kept = [self._write(part) for part in parts]
            self._bytes.flush()
        self._notes[choice] = _Note(tried, kept)
        row = {
            "manner": self._manner,
            "choice": [choice.matrix, choice.base, choice.kind],
            "encoding": tried.encoding.as_json(),
            "stored": tried.stored,
            "parts": tried.parts,
            "kept": kept,
        }
        line = dumps(row)
        self._journal.write(line + b" " + hash_bytes(line)[:16].encode() + b"\n")
        self._journal.flush()

    def _write(self, part: Part) -> list[Any]:
        offset = self._bytes.seek(0, os.SEEK_END)
        self._bytes.write(part.encoded.data)
        encoded = part.encoded
        return [
            *(part.kind, part.plane, part.start, part.count),
            *(encoded.codec, encoded.raw, encoded.blake3, offset, len(encoded.data)),
        ]

    def _replay(self, kept: list[list[Any]]) -> list[Part] | None:
        parts = []
        for kind, plane, start, count, codec, raw, blake3, offset, length in kept:
            data = os.pread(self._bytes.fileno(), length, offset)
            if len(data) != length or hash_bytes(data) != blake3:
                return None
            parts.append(Part(kind, plane, start, count, Encoded(codec, data, raw, blake3)))
        return parts

    def _recall(self) -> None:
        """Notes of an archive before; a line that was cut off ends them."""
        self._journal.seek(0)
        for line in self._journal:
            text, _, check = line.rstrip(b"\n").rpartition(b" ")
            if hash_bytes(text)[:16].encode() != check:
                break
            row = json.loads(text)
            if row["manner"] != self._manner:
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
        self._journal.seek(0, os.SEEK_END)


def _materialised(target: Raw, encoding: Encoding, put: Put) -> Encoding:
    """A matrix on its own: in fixed point where it can be, if that is smaller."""
    given = (target, encoding.dtype, encoding.shape, encoding.matrix)
    layouts: list[Layout] = [default_layout()]
    with contextlib.suppress(ValueError):
        layouts.append(Fixed.of([target], encoding.dtype, encoding.shape))
    outcomes: list[tuple[int, Encoding, list[Part]]] = []
    for layout in layouts:
        parts: list[Part] = []
        made = encode_materialised(*given, parts.append, layout=layout, effort="small")
        outcomes.append((sum(len(part.encoded.data) + ROW for part in parts), made, parts))
    _, made, parts = min(outcomes, key=lambda outcome: outcome[0])
    for part in parts:
        put(part)
    return made
