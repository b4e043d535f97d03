"""Locators list where the chunks of a version are on a remote, so that no store has to be listed.

The rows of encodings and chunks are those of pack footers, plus the pack of each chunk. On a
remote, a plane can be divided between packs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple

from dlv.canonical import WRITER, dumps, is_hash, loads
from dlv.dataclass import dataclass
from dlv.errors import Damaged
from dlv.kinds import Piece
from dlv.objects.record import check_format
from dlv.pas.chunks import MATRIX_KINDS, OBJECT_KINDS
from dlv.pas.coders.zstd import ZstdCodec, decompress
from dlv.pas.footer import Chunk, Encoding, chunk_of_row, encoding_of_row, pieces_of_chunk

FORMAT = "dlv/locator/1"
MOST_BYTES = 64 << 20  # decoded
MOST_VALUES = 4_000_000  # each takes far more memory than its bytes
MOST_CHUNK = 256 << 20  # dlv writes chunks of at most 64 MiB


class Row(NamedTuple):
    """A chunk in a pack, and the encodings that its members name by index."""

    pack: str
    chunk: Chunk
    encodings: Sequence[Encoding]

    def owners(self) -> list[tuple[str, str]]:
        """(kind, hash) of each member; of planes and side data the kind is "matrix"."""
        return [
            (self.chunk.kind, owner)
            if isinstance(owner, str)
            else ("matrix", self.encodings[owner].matrix)
            for owner, *_ in self.chunk.members
        ]

    def pieces(self, name: str) -> Iterator[Piece]:
        """The parts of this matrix or object in the chunk."""
        pieces = pieces_of_chunk(self.chunk, self.encodings, self.pack)
        return (piece for piece in pieces if piece.object == name)


@dataclass
class Locator:
    """Encodings and chunks that a version needs; a chunk names its pack by index.

    All chunks of the first `whole` encodings are listed. The other encodings only share chunks with
    them.
    """

    version: str
    packs: list[str] = field(default_factory=list)
    encodings: list[Encoding] = field(default_factory=list)
    whole: int = 0
    chunks: list[tuple[int, Chunk]] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    writer: str = WRITER

    def encode(self) -> bytes:
        text = dumps(
            {
                "format": FORMAT,
                "writer": self.writer,
                "version": self.version,
                "packs": self.packs,
                "encodings": [encoding.as_json() for encoding in self.encodings],
                "whole": self.whole,
                "chunks": [{**chunk.as_json(), "pack": pack} for pack, chunk in self.chunks],
                "facts": self.facts,
            }
        )
        return ZstdCodec("text").encode(text)

    def rows(self) -> Iterator[Row]:
        """The chunks that this version of dlv understands."""
        for pack, chunk in self.chunks:
            if chunk.kind in MATRIX_KINDS + OBJECT_KINDS:
                yield Row(self.packs[pack], chunk, self.encodings)


class LocatorBuilder:
    """Collects the rows of a locator; a chunk that is added twice is listed once."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], Row] = {}
        self._encodings: dict[str, Encoding] = {}

    def add(self, row: Row) -> None:
        self._rows.setdefault((row.pack, row.chunk.offset), row)
        if row.chunk.kind in MATRIX_KINDS:
            for owner, *_ in row.chunk.members:
                assert isinstance(owner, int)
                self.declare(row.encodings[owner])

    def declare(self, encoding: Encoding) -> None:
        self._encodings.setdefault(encoding.matrix, encoding)

    def finish(self, version: str, whole: Iterable[str]) -> Locator:
        """Return the locator; all chunks of the `whole` matrices were added."""
        own = dict.fromkeys(whole)
        order = [*own, *(name for name in self._encodings if name not in own)]
        at = {name: index for index, name in enumerate(order)}
        packs = {name: i for i, name in enumerate(dict.fromkeys(pack for pack, _ in self._rows))}
        locator = Locator(version, list(packs), [self._encodings[name] for name in order], len(own))
        for row in self._rows.values():
            members = tuple(
                (owner if isinstance(owner, str) else at[row.encodings[owner].matrix], start, count)
                for owner, start, count in row.chunk.members
            )
            locator.chunks.append((packs[row.pack], replace(row.chunk, members=members)))
        return locator


def decode_locator(data: bytes, noun: str) -> Locator:
    """Read a locator strictly: from a remote it may be anything."""
    text = decompress(data, MOST_BYTES, noun)
    if sum(map(text.count, (b"[", b"{", b","))) > MOST_VALUES:
        raise _bad(noun, "it has too many values")
    value = loads(text, noun, limit=MOST_BYTES)
    check_format(value, FORMAT, noun)
    keys = {"format", "writer", "version", "packs", "encodings", "whole", "chunks", "facts"}
    if value.keys() != keys:
        raise _bad(noun, f"its keys are {', '.join(sorted(value))}")
    packs, facts = (_hashes(value[key], key, noun) for key in ("packs", "facts"))
    (version,) = _hashes([value["version"]], "version", noun)
    rows = _list(value["encodings"], "encodings", noun)
    encodings = [encoding_of_row(row, f"{noun}, encoding {i}") for i, row in enumerate(rows)]
    if len({encoding.matrix for encoding in encodings}) != len(encodings):
        raise _bad(noun, "it lists a tensor twice")
    chunks = []
    for i, row in enumerate(_list(value["chunks"], "chunks", noun)):
        pack = row.pop("pack", None) if isinstance(row, dict) else None
        if type(pack) is not int or not 0 <= pack < len(packs):
            raise _bad(noun, f"chunk {i} names no pack")
        chunk = chunk_of_row(row, len(encodings), f"{noun}, chunk {i}")
        if max(chunk.length, chunk.raw) > MOST_CHUNK:
            raise _bad(noun, f"chunk {i} has more than {MOST_CHUNK} bytes")
        chunks.append((pack, chunk))
    whole = value["whole"]
    if type(whole) is not int or not 0 <= whole <= len(encodings):
        raise _bad(noun, "`whole` is not a number of encodings")
    return Locator(version, packs, encodings, whole, chunks, facts, str(value["writer"]))


def _list(value: Any, key: str, noun: str) -> list[Any]:
    if not isinstance(value, list):
        raise _bad(noun, f"`{key}` is not a list")
    return value


def _hashes(value: Any, key: str, noun: str) -> list[str]:
    hashes = _list(value, key, noun)
    if not all(is_hash(each) for each in hashes):
        raise _bad(noun, f"`{key}` has something other than hashes")
    return hashes


def _bad(noun: str, why: str) -> Damaged:
    return Damaged(f"{noun} is not valid", why=why)


class LocatorIndex:
    """The index of a weight store over locators; of a tensor in several, the first one counts."""

    def __init__(self, locators: Iterable[Locator] = ()) -> None:
        self.encodings: dict[str, Encoding] = {}
        self.rows: dict[tuple[str, str], list[Row]] = {}
        for locator in locators:
            self.add(locator)

    def add(self, locator: Locator) -> None:
        fresh = {
            encoding.matrix: encoding
            for encoding in locator.encodings[: locator.whole]
            if encoding.matrix not in self.encodings
        }
        self.encodings.update(fresh)
        taken: dict[tuple[str, str], list[Row]] = {}
        for row in locator.rows():
            for kind, name in dict.fromkeys(row.owners()):
                if (name in fresh) if kind == "matrix" else ((kind, name) not in self.rows):
                    taken.setdefault((kind, name), []).append(row)
        self.rows.update(taken)

    def encoding(self, matrix: str) -> Encoding | None:
        return self.encodings.get(matrix)

    def chunks(self, matrix: str) -> list[Piece]:
        return self.object_chunks("matrix", matrix)

    def object_chunks(self, kind: str, name: str) -> list[Piece]:
        rows = self.rows.get((kind, name), ())
        return [piece for row in rows for piece in row.pieces(name)]
