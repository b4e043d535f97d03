"""`stats`: what versions take on disk, and what would be gained without them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import dlv.repository.revisions as revisions
from dlv.dataclass import dataclass
from dlv.dtypes import tensor_bytes
from dlv.metadata import matrices, usage, versions
from dlv.metadata.usage import Held, Part
from dlv.metadata.versions import Version
from dlv.repository.handle import Repository
from dlv.versions.reachable import Reach, Share, shares
from dlv.weights.store import MatrixStore

GROUPINGS = ("version", "tensor", "codec", "layout")


@dataclass
class Row:
    """One group. `raw`: bytes of its tensors, `stored`: of their matrices in packs, a difference
    without its base.

    Of a version also `needed`: all that it needs of the packs, bases included; `freed`: of that
    what no other version needs.
    """

    name: str
    id: str | None = None
    count: int = 0
    raw: int = 0
    stored: float = 0.0
    share: Share | None = None

    @property
    def ratio(self) -> float | None:
        return self.raw / self.stored if self.stored else None

    @property
    def freed(self) -> int | None:
        return None if self.share is None else self.share.freed


@dataclass(frozen=True)
class Totals:
    """The repository on disk. `raw`, `stored` and `share` are those of the versions in question
    together: what several of them hold is stored once, and freed by removing all of these."""

    versions: int
    raw: int
    stored: int
    packs: int
    files: int
    database: int
    other: int  # manifests, facts and what else lies in .dlv
    share: Share | None = None

    @property
    def ratio(self) -> float | None:
        return self.raw / self.stored if self.stored else None


@dataclass(frozen=True)
class Statistics:
    rows: list[Row]
    totals: Totals
    notes: tuple[str, ...]


def stats(repository: Repository, references: Sequence[str], by: str = "version") -> Statistics:
    """Bytes of the versions that are named, of all visible ones if none is."""
    db = repository.database
    with db.snapshot():
        found = [revisions.whole(db, text) for text in references]
        chosen = list({r.version.id: r.version for r in found}.values())
        visible = versions.all_versions(db)
        chosen = chosen if references else visible
        held = usage.held(db, [version.key for version in chosen])
        parts = usage.parts(db)
        together: Share | None = None
        if by == "version":
            rows, together = _by_version(repository, chosen, visible, held, parts)
        elif by == "tensor":
            rows = _by_matrix(held, parts)
        else:
            wanted = {item.matrix for item in held}
            used = [p for p in parts if not references or p.hash in wanted]
            rows = _by_codec(used) if by == "codec" else _by_layout(used)
        mine = {item.matrix for item in held}
        stored = sum(part.stored for part in parts if part.hash in mine)
        pack_bytes = sum(size for _, size in matrices.packs(db))
    files = _size(repository.files_git)
    database = sum(
        _size(path) for path in repository.path.glob(f"{repository.database_file.name}*")
    )
    totals = Totals(
        *(len(chosen), _raw(held), round(stored), pack_bytes, files, database),
        other=_size(repository.path) - files - database - _size(repository.packs),
        share=together,
    )
    notes = tuple(dict.fromkeys(note for reference in found for note in reference.notes))
    return Statistics(rows, totals, notes)


def _bytes(item: Held) -> int:
    return tensor_bytes(item.dtype, item.shape)


def _raw(held: Iterable[Held]) -> int:
    """What the tensors take: each matrix once per snapshot, as tied tensors share it."""
    return sum({(item.snapshot, item.matrix): _bytes(item) for item in held}.values())


def _stored(parts: Iterable[Part]) -> dict[str, float]:
    stored: dict[str, float] = {}
    for part in parts:
        stored[part.hash] = stored.get(part.hash, 0.0) + part.stored
    return stored


def _by_version(
    repository: Repository,
    chosen: Sequence[Version],
    visible: Sequence[Version],
    held: Sequence[Held],
    parts: Sequence[Part],
) -> tuple[list[Row], Share]:
    """A matrix that several versions hold counts as stored in each of them."""
    store = MatrixStore.of(repository)
    reach = Reach(
        repository.database,
        repository.manifest,
        lambda digest: bytes(store.object("series", digest)),
    )
    alone, together = shares(reach, visible, {version.key for version in chosen})
    store.close()
    stored = _stored(parts)
    mine: dict[int, list[Held]] = {}
    for item in held:
        mine.setdefault(item.owner, []).append(item)
    rows = [
        Row(
            *(version.label, version.id, len({item.snapshot for item in items}), _raw(items)),
            stored=sum(stored.get(digest, 0.0) for digest in {item.matrix for item in items}),
            share=alone.get(version.key),
        )
        for version in chosen
        for items in [mine.get(version.key, [])]
    ]
    return rows, together


def _by_matrix(held: Sequence[Held], parts: Sequence[Part]) -> list[Row]:
    """Tensors of one name are one row, whichever versions and snapshots hold them."""
    stored = _stored(parts)
    groups: dict[str, list[Held]] = {}
    for item in held:
        groups.setdefault(item.name, []).append(item)
    rows = []
    for name, items in groups.items():
        distinct = {item.matrix for item in items}
        total = sum(stored.get(digest, 0.0) for digest in distinct)
        rows.append(Row(name, None, len(distinct), _raw(items), total))
    return sorted(rows, key=lambda row: (-row.stored, row.name))


def _by_codec(parts: Iterable[Part]) -> list[Row]:
    return _grouped((part.codec, part) for part in parts)


def _by_layout(parts: Iterable[Part]) -> list[Row]:
    """How matrices are cut into planes, and whether they are deltas; objects by their kind."""
    return _grouped(
        (
            part.kind
            if part.layout is None
            else part.layout + (f", delta {part.delta}" if part.delta else ""),
            part,
        )
        for part in parts
    )


def _grouped(pairs: Iterable[tuple[str, Part]]) -> list[Row]:
    rows: dict[str, Row] = {}
    seen: dict[str, set[str]] = {}
    for name, part in pairs:
        row = rows.setdefault(name, Row(name))
        row.raw += part.raw
        row.stored += part.stored
        seen.setdefault(name, set()).add(part.hash)
        row.count = len(seen[name])
    return sorted(rows.values(), key=lambda row: (-row.stored, row.name))


def _size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; what vanishes meanwhile is nothing."""
    return sum(_sizes(path))


def _sizes(path: Path) -> Iterator[int]:
    if path.is_file():
        yield path.stat().st_size
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                yield os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
