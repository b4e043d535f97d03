"""Fetch chunks of a remote in ranges, into files from which an interrupted fetch continues.

The cache has a file for each pack, with chunks at the same offsets as in the pack. Their hashes
tell which of them have arrived.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

import dlv.disk.durable as durable
from dlv.canonical import hash_bytes
from dlv.errors import UnsafeInput
from dlv.hub.records import object_key
from dlv.hub.stores.interface import MissingObject, Store
from dlv.kinds import Piece
from dlv.pas.chunks import SUFFIX

GAP = 64 << 10  # unneeded bytes between two chunks that are fetched to save a request
RANGE = 16 << 20  # longest range; an interruption loses the ranges in flight
STREAMS = 8


Job = TypeVar("Job")


def in_streams(work: Callable[[Job], object], jobs: Iterable[Job]) -> None:
    """Do several jobs at a time; after an error, start no others."""
    with ThreadPoolExecutor(STREAMS) as pool:
        futures = [pool.submit(work, job) for job in jobs]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Chunk(NamedTuple):
    offset: int
    length: int
    blake3: str


class Fetcher:
    """Fetches chunks of packs into the cache. The store is opened for the first of them."""

    def __init__(self, cache: Path, open_store: Callable[[], Store]) -> None:
        self.folder = cache / "packs"
        self._open_store = open_store
        self._present: set[tuple[str, int]] = set()  # pack and offset of verified chunks

    @cached_property
    def store(self) -> Store:
        return self._open_store()

    def path(self, pack: str) -> Path:
        return durable.path_of(self.folder, pack, SUFFIX)

    def missing(self, pieces: Iterable[Piece]) -> dict[str, list[_Chunk]]:
        """Return the chunks that are not in the cache, by pack and in order."""
        needed: dict[str, set[_Chunk]] = {}
        for piece in pieces:
            if (piece.pack, piece.offset) not in self._present:
                chunk = _Chunk(piece.offset, piece.length, piece.blake3)
                needed.setdefault(piece.pack, set()).add(chunk)
        missing = {pack: self._absent(pack, sorted(chunks)) for pack, chunks in needed.items()}
        return {pack: chunks for pack, chunks in missing.items() if chunks}

    def fetch(
        self,
        missing: dict[str, list[_Chunk]],
        progress: Callable[[int], None] = lambda _: None,
        *,
        gap: int = GAP,
    ) -> None:
        """Fetch chunks, several ranges at a time. Each chunk is verified before it is written."""
        if not missing:
            return
        ranges = [(pack, run) for pack, chunks in missing.items() for run in _runs(chunks, gap)]
        for pack in missing:
            durable.make_directory(self.path(pack).parent)

        def fetch_range(job: tuple[str, list[_Chunk]]) -> None:
            pack, run = job
            self._fetch(pack, run)
            progress(sum(chunk.length for chunk in run))

        in_streams(fetch_range, ranges)

    def forget(self, packs: Iterable[str]) -> None:
        gone = set(packs)
        self._present = {key for key in self._present if key[0] not in gone}
        for pack in gone:
            with contextlib.suppress(OSError):  # the next pull can use or delete it
                self.path(pack).unlink()

    def _absent(self, pack: str, chunks: Sequence[_Chunk]) -> list[_Chunk]:
        try:
            file = self.path(pack).open("rb")
        except FileNotFoundError:
            return list(chunks)
        with file:
            absent = [chunk for chunk in chunks if not _is_stored(file.fileno(), chunk)]
        self._note(pack, set(chunks).difference(absent))
        return absent

    def _note(self, pack: str, chunks: Iterable[_Chunk]) -> None:
        self._present.update((pack, chunk.offset) for chunk in chunks)

    def _fetch(self, pack: str, run: Sequence[_Chunk]) -> None:
        start = run[0].offset
        length = run[-1].offset + run[-1].length - start
        try:
            data = memoryview(self.store.get_range(object_key("packs", pack), start, length))
        except MissingObject as error:
            raise self.store.incomplete(error) from None
        descriptor = os.open(self.path(pack), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            for chunk in run:
                part = data[chunk.offset - start : chunk.offset - start + chunk.length]
                if hash_bytes(part) != chunk.blake3:
                    raise UnsafeInput(
                        f"a chunk of pack {pack[:12]} at {self.store.url} is corrupt",
                        why="content does not match its hash",
                    )
                _write(descriptor, part, chunk.offset)
            if not all(_is_stored(descriptor, chunk) for chunk in run):
                raise durable.misread(str(self.path(pack)))
        finally:
            os.close(descriptor)
        self._note(pack, run)


def _is_stored(descriptor: int, chunk: _Chunk) -> bool:
    return hash_bytes(os.pread(descriptor, chunk.length, chunk.offset)) == chunk.blake3


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        try:
            done += os.pwrite(descriptor, data[done:], offset + done)
        except OSError as error:
            raise durable.storage_error("write", "the cache of remotes", error) from error


def _runs(chunks: Sequence[_Chunk], gap: int) -> list[list[_Chunk]]:
    """Group chunks by the range that fetches them."""
    runs: list[list[_Chunk]] = []
    for chunk in chunks:
        if runs:
            first, last = runs[-1][0], runs[-1][-1]
            near = chunk.offset - last.offset - last.length <= gap
            if near and chunk.offset + chunk.length - first.offset <= RANGE:
                runs[-1].append(chunk)
                continue
        runs.append([chunk])
    return runs
