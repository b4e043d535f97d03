"""Fetch chunks of a remote in ranges, into files from which an interrupted fetch continues.

The cache has a file for each pack, with chunks at the same offsets as in the pack. Their hashes
tell which of them have arrived.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import dlv.disk.durable as durable
from dlv.canonical import hash_bytes
from dlv.errors import UnsafeInput
from dlv.hub.locator import LocatorIndex
from dlv.hub.records import object_key
from dlv.hub.stores.interface import MissingObject, Store
from dlv.kinds import Piece
from dlv.pas.chunks import SUFFIX
from dlv.weights.store import MatrixStore

GAP = 64 << 10  # unneeded bytes between two chunks that are fetched to save a request
RANGE = 16 << 20  # longest range; an interruption loses the ranges in flight
STREAMS = 8


class _Chunk(NamedTuple):
    offset: int
    length: int
    blake3: str


class Fetcher:
    """Fetches chunks of packs into the cache."""

    def __init__(self, store: Store, cache: Path) -> None:
        self.store, self.folder = store, cache / "packs"

    def path(self, pack: str) -> Path:
        return durable.path_of(self.folder, pack, SUFFIX)

    def missing(self, pieces: Iterable[Piece]) -> dict[str, list[_Chunk]]:
        """Return the chunks that are not in the cache, by pack and in order."""
        needed: dict[str, set[_Chunk]] = {}
        for piece in pieces:
            chunk = _Chunk(piece.offset, piece.length, piece.blake3)
            needed.setdefault(piece.pack, set()).add(chunk)
        missing = {pack: self._absent(pack, sorted(chunks)) for pack, chunks in needed.items()}
        return {pack: chunks for pack, chunks in missing.items() if chunks}

    def fetch(
        self, missing: dict[str, list[_Chunk]], progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Fetch chunks, several ranges at a time. Each chunk is verified before it is written."""
        ranges = [(pack, run) for pack, chunks in missing.items() for run in _runs(chunks)]
        for pack in missing:
            durable.make_directory(self.path(pack).parent)

        def one(job: tuple[str, list[_Chunk]]) -> None:
            pack, run = job
            self._fetch(pack, run)
            progress(sum(chunk.length for chunk in run))

        with ThreadPoolExecutor(STREAMS) as pool:
            jobs = [pool.submit(one, job) for job in ranges]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def forget(self, packs: Iterable[str]) -> None:
        for pack in packs:
            with contextlib.suppress(OSError):  # the next pull can use or delete it
                self.path(pack).unlink()

    def _absent(self, pack: str, chunks: Sequence[_Chunk]) -> list[_Chunk]:
        try:
            file = self.path(pack).open("rb")
        except FileNotFoundError:
            return list(chunks)
        with file:
            return [chunk for chunk in chunks if not _is_stored(file.fileno(), chunk)]

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


def _is_stored(descriptor: int, chunk: _Chunk) -> bool:
    return hash_bytes(os.pread(descriptor, chunk.length, chunk.offset)) == chunk.blake3


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        try:
            done += os.pwrite(descriptor, data[done:], offset + done)
        except OSError as error:
            raise durable.storage_error("write", "the cache of remotes", error) from error


def _runs(chunks: Sequence[_Chunk]) -> list[list[_Chunk]]:
    """Group chunks by the range that fetches them."""
    runs: list[list[_Chunk]] = []
    for chunk in chunks:
        if runs:
            first, last = runs[-1][0], runs[-1][-1]
            near = chunk.offset - last.offset - last.length <= GAP
            if near and chunk.offset + chunk.length - first.offset <= RANGE:
                runs[-1].append(chunk)
                continue
        runs.append([chunk])
    return runs


class FetchedStore(MatrixStore):
    """Reads weights from the cache; writers that use it put new packs into the repository."""

    def __init__(self, fetcher: Fetcher, index: LocatorIndex, packs: Path, tmp: Path) -> None:
        super().__init__(packs, tmp, index)
        self._fetcher = fetcher

    def path(self, pack: str) -> Path:
        return self._fetcher.path(pack)
