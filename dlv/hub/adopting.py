"""Adopt packs of a remote: store them as they are, instead of chunk by chunk.

A transfer pack has the format of a local pack. If all of it is needed and all chunks of its tensors
are in packs of the same kind, it is fetched whole and verified by its name. A retry finds it here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import dlv.disk.durable as durable
from dlv.canonical import hash_bytes
from dlv.errors import DlvError, UnsafeInput
from dlv.hub.fetching import in_streams
from dlv.hub.locator import Locator
from dlv.hub.records import object_key
from dlv.hub.stores.interface import MissingObject, Store
from dlv.kinds import Piece
from dlv.pas.chunks import SUFFIX
from dlv.pas.packs import Pack
from dlv.weights.writer import PackRecord

LEAST = 8 << 20  # bytes of packs that belong together; smaller ones are merged with others
MOST_FOOTER = 64 << 20
SLICE = 4 << 20  # bytes of a request; an interruption loses the requests in flight


def whole_packs(locators: Iterable[Locator], needed: Iterable[Piece]) -> dict[str, int]:
    """Return the packs to adopt, and where the chunks of each end.

    Packs that share a tensor are adopted together or not at all.
    """
    chunks: dict[str, dict[int, int]] = {}
    owners: dict[str, set[str]] = {}
    planes: dict[tuple[str, int | None, str], str] = {}
    foreign: set[str] = set()
    for locator in locators:
        for row in locator.rows():
            chunk = row.chunk
            chunks.setdefault(row.pack, {})[chunk.offset] = chunk.length
            names = {name for _, name in row.owners()}
            owners.setdefault(row.pack, set()).update(names)
            places = {planes.setdefault((chunk.kind, chunk.plane, n), row.pack) for n in names}
            if chunk.kind == "file" or places != {row.pack}:  # a plane is divided
                foreign.add(row.pack)
    wanted: dict[str, set[int]] = {}
    for piece in needed:
        wanted.setdefault(piece.pack, set()).add(piece.offset)
    adopted: dict[str, int] = {}
    for group in _connected(owners):
        whole = all(wanted.get(pack, set()) >= chunks[pack].keys() for pack in group)
        size = sum(sum(chunks[pack].values()) for pack in group)
        if whole and size >= LEAST and foreign.isdisjoint(group):
            adopted |= {
                pack: max(offset + length for offset, length in chunks[pack].items())
                for pack in group
            }
    return adopted


def _connected(owners: dict[str, set[str]]) -> list[list[str]]:
    """Group packs that have a tensor or object in common, directly or through others."""
    top: dict[str, str] = {pack: pack for pack in owners}

    def find(pack: str) -> str:
        while top[pack] != pack:
            top[pack] = top[top[pack]]
            pack = top[pack]
        return pack

    first: dict[str, str] = {}
    for pack, names in owners.items():
        for name in names:
            top[find(pack)] = find(first.setdefault(name, pack))
    groups: dict[str, list[str]] = {}
    for pack in owners:
        groups.setdefault(find(pack), []).append(pack)
    return list(groups.values())


class Adopter:
    """Fetches packs whole into the folder of packs."""

    def __init__(self, store: Store, packs: Path, tmp: Path, cache: Path) -> None:
        self._store, self._packs, self._tmp, self._cache = store, packs, tmp, cache / "parts"

    def path(self, pack: str) -> Path:
        return durable.path_of(self._packs, pack, SUFFIX)

    def missing(self, packs: Collection[str]) -> list[str]:
        """Return those that are not here; one that is damaged is fetched again."""
        return [pack for pack in packs if not self._is_here(pack)]

    def _is_here(self, pack: str) -> bool:
        try:
            return hash_bytes(self.path(pack).read_bytes()) == pack
        except OSError:
            return False

    def fetch(self, packs: dict[str, int], progress: Callable[[int], None]) -> None:
        """Fetch packs, several at a time; `packs` says where the chunks of each end."""

        in_streams(lambda item: self._fetch(*item, progress), packs.items())

    def _fetch(self, pack: str, end: int, progress: Callable[[int], None]) -> None:
        part = self._cache / f"{pack}.part"
        data = self._arrive(pack, end, part, progress)
        if hash_bytes(data) != pack and part.exists():  # the kept beginning can be corrupt
            part.unlink()
            data = self._arrive(pack, end, part, progress)
        part.unlink(missing_ok=True)
        if hash_bytes(data) != pack:
            raise UnsafeInput(
                f"pack {pack[:12]} at {self._store.url} is corrupt",
                why="content does not match its hash",
            )
        with durable.TemporaryFile(self._tmp, suffix=SUFFIX) as file:
            file.write(data)
            durable.publish(file, self._packs, pack, SUFFIX)

    def _arrive(
        self, pack: str, end: int, part: Path, progress: Callable[[int], None]
    ) -> bytearray:
        """Return a pack, continued from a kept beginning; after an error, keep what has arrived."""
        key = object_key("packs", pack)
        size = self._store.size(key)
        if size is None:
            raise self._store.incomplete(MissingObject(key))
        if not end <= size <= end + MOST_FOOTER:
            raise UnsafeInput(f"pack {pack[:12]} at {self._store.url} has {size} bytes")
        data = bytearray(part.read_bytes() if part.exists() else b"")[:size]
        progress(len(data))
        try:
            while len(data) < size:
                length = min(SLICE, size - len(data))
                data += self._store.get_range(key, len(data), length)
                progress(length)
        except MissingObject as error:
            raise self._store.incomplete(error) from None
        except BaseException:
            with contextlib.suppress(OSError):
                durable.make_directory(part.parent)
                part.write_bytes(data)
            raise
        return data

    def records(self, packs: Iterable[str]) -> list[PackRecord]:
        """Return what the index must know of packs that are here."""
        records = []
        for name in packs:
            path = self.path(name)
            try:
                with Pack(path) as pack:
                    records.append(PackRecord(name, path, pack.size, pack.footer))
            except DlvError as error:
                raise UnsafeInput(f"pack {name[:12]} is not valid", why=error.message) from None
        return records


def is_inside(pieces: Sequence[Piece], packs: Collection[str]) -> bool:
    """Return whether all parts of a tensor or object are in these packs."""
    return bool(pieces) and all(piece.pack in packs for piece in pieces)
