"""What a version needs of the packs, and which bytes nothing else needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

from dlv.dataclass import dataclass
from dlv.events.formats.series import block_hashes
from dlv.metadata import usage, versions
from dlv.metadata.database import Database
from dlv.metadata.usage import Holding, Need
from dlv.metadata.versions import SnapshotRow, Version
from dlv.objects.manifest import Manifest


def needs(manifest: Manifest, head: Callable[[str], bytes | None]) -> Iterator[tuple[str, str]]:
    """(kind, hash) of what a version needs beside its snapshots.

    `head` reads that of a series; None: it cannot be read, so its blocks are not known.
    """
    if manifest.network is not None:
        yield "network", manifest.network.id
        for constant in manifest.network.constants:
            yield "matrix", constant["hash"]
    for reference in manifest.series:
        yield "series", reference.hash
        found = head(reference.hash)
        for points in () if found is None else block_hashes(found):
            yield "points", points


def skeletons(manifest: Manifest, index: int) -> Iterator[tuple[str, str]]:
    """The same of one snapshot, beside its matrices."""
    for container in manifest.snapshots[index].containers:
        if container.skeleton is not None:
            yield "skeleton", container.skeleton


class Reach:
    """Collects who needs what; each owner is a number of the caller's choice."""

    def __init__(
        self, db: Database, manifest: Callable[[str], Manifest], head: Callable[[str], bytes]
    ) -> None:
        self.db = db
        self._manifest = manifest
        self._read_head = head
        self._heads: dict[str, bytes] = {}
        self._holdings: list[Holding] = []
        self._needs: list[Need] = []

    def _head(self, digest: str) -> bytes:
        if digest not in self._heads:
            self._heads[digest] = self._read_head(digest)
        return self._heads[digest]

    def snapshots(self, owner: int, version: Version, rows: Iterable[SnapshotRow]) -> None:
        manifest = self._manifest(version.id)
        for row in rows:
            self._holdings.append((owner, row.key))
            self._needs += [(owner, *need) for need in skeletons(manifest, row.index)]

    def rest(self, owner: int, version: Version) -> None:
        """Network and curves."""
        manifest = self._manifest(version.id)
        self._needs += [(owner, *need) for need in needs(manifest, self._head)]

    def whole(self, owner: int, version: Version) -> None:
        """All but the snapshots that are removed already."""
        rows = versions.snapshots(self.db, version.key)
        self.snapshots(owner, version, [row for row in rows if not row.removed])
        self.rest(owner, version)

    def chunks(self) -> list[tuple[int, int]]:
        """(owner, chunk), delta bases included."""
        return usage.chunks_needed(self.db, self._holdings, self._needs)


@dataclass(frozen=True)
class Share:
    """Bytes of chunks that are `needed`, and of these the ones that nothing else needs."""

    needed: int
    freed: int


def shares(
    reach: Reach, visible: Sequence[Version], chosen: Set[int]
) -> tuple[dict[int, Share], Share]:
    """That of each visible version (its key), and that of the chosen ones together."""
    for version in visible:
        reach.whole(version.key, version)
    users: dict[int, list[int]] = {}
    for owner, chunk in reach.chunks():
        users.setdefault(chunk, []).append(owner)
    lengths = usage.chunk_lengths(reach.db)
    needed, freed = ({version.key: 0 for version in visible} for _ in range(2))
    all_needed = all_freed = 0
    for chunk, owners in users.items():
        size = lengths[chunk]
        for owner in owners:
            needed[owner] += size
        if len(owners) == 1:
            freed[owners[0]] += size
        if not chosen.isdisjoint(owners):
            all_needed += size
            all_freed += size if all(owner in chosen for owner in owners) else 0
    return {key: Share(needed[key], freed[key]) for key in needed}, Share(all_needed, all_freed)


def freed_together(
    reach: Reach, visible: Sequence[Version], gone: Mapping[int, Sequence[SnapshotRow] | None]
) -> int:
    """Bytes that nothing needs without `gone`: version key -> its snapshots, None = all of it."""
    kept, dropped = 0, 1
    for version in visible:
        if version.key not in gone:
            reach.whole(kept, version)
            continue
        rows = gone[version.key]
        if rows is None:
            reach.whole(dropped, version)
            continue
        out = {row.key for row in rows}
        stay = [row for row in versions.snapshots(reach.db, version.key) if not row.removed]
        reach.snapshots(dropped, version, rows)
        reach.snapshots(kept, version, [row for row in stay if row.key not in out])
        reach.rest(kept, version)
    found: tuple[set[int], set[int]] = (set(), set())
    for owner, chunk in reach.chunks():
        found[owner].add(chunk)
    lengths = usage.chunk_lengths(reach.db)
    return sum(lengths[chunk] for chunk in found[dropped] - found[kept])
