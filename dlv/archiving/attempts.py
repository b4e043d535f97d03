"""One encoding of a matrix on trial: its chunks lie in a file until it is clear what they take."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from dlv.canonical import hash_bytes
from dlv.disk.durable import storage_error
from dlv.errors import StorageError
from dlv.pas.encode import Encoded, Part
from dlv.pas.footer import Encoding

IN_MEMORY = 8 << 20  # of chunks; more goes to the disk
BLOCK = 1 << 20


class File(Protocol):
    """Where chunks lie, read at any place."""

    def seek(self, offset: int, whence: int = 0, /) -> int: ...

    def read(self, size: int = -1, /) -> bytes: ...


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

    def part(self, file: File) -> Part | None:
        """With its bytes; None if they are not there."""
        file.seek(self.offset)
        data = file.read(self.length)
        while len(data) < self.length and (more := file.read(self.length - len(data))):
            data += more  # a file system may give only part of it
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

    def make(self, encode: Callable[[Attempt], Encoding]) -> Self:
        self.encoding = encode(self)
        return self

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

    def anew(self) -> None:
        """Forget what was put so far."""
        self.places.clear()
        self.stored = 0
        try:
            self._file.seek(0)
            self._file.truncate()
        except OSError as error:
            raise storage_error("write in", self.folder, error) from error

    def parts(self) -> Iterator[Part]:
        """All of them again, one at a time."""
        for place in self.places:
            part = self.read(place)
            if part is None:
                raise StorageError(
                    f"what was written in {self.folder} does not read back",
                    why="the disk or the memory of this machine is at fault",
                )
            yield part

    def read(self, place: Place) -> Part | None:
        """One of the parts with its bytes; None if they do not read back."""
        try:
            return place.part(self._file)
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
