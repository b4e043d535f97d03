"""What is needed of everything that lies in the repository, and what is not.

Only right under the exclusive lock: a commit has packs on disk that nothing names yet. Where
something that tells what is needed cannot be read, nothing is taken at all.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path

import dlv.disk.durable as durable
import dlv.repository.git_files as git_files
import dlv.repository.handle as repositories
from dlv.canonical import moment_of, timestamp
from dlv.config import DURATION
from dlv.dataclass import dataclass
from dlv.errors import DlvError, UsageError
from dlv.metadata import collected, dump, facts, matrices, usage, versions
from dlv.metadata.database import Database
from dlv.metadata.usage import Holding, Need
from dlv.metadata.versions import SnapshotRow, Version
from dlv.pas.chunks import SUFFIX
from dlv.pas.packs import Pack
from dlv.repository.handle import Repository
from dlv.versions.reachable import needs, skeletons
from dlv.weights.store import MatrixStore

EVERY = ("live", "removed", "undone", "recovered")
HIDDEN = ("removed", "undone")

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def duration(text: str) -> datetime.timedelta:
    """`14d`, `12h`, `90m`, `0`."""
    match = re.fullmatch(DURATION, text)
    if match is None:
        raise UsageError(f"`{text}` is not a duration", hint="14d, 12h, 90m, 2w or 0")
    seconds = float(match[1]) * _SECONDS[match[2]] if match[2] else 0
    return datetime.timedelta(seconds=min(seconds, 3.15e9))


@dataclass(frozen=True)
class Hidden:
    """A hidden version, or with `snapshots` some of a version that stays."""

    version: Version
    snapshots: tuple[SnapshotRow, ...] | None
    since: str

    @property
    def steps(self) -> list[int | None] | None:
        return None if self.snapshots is None else [row.step for row in self.snapshots]


@dataclass(frozen=True)
class Roots:
    """Every version, and what of it is hidden: for long enough (`due`), or not yet."""

    every: list[Version]
    due: list[Hidden]
    waiting: list[Hidden]

    @property
    def kept(self) -> list[Version]:
        gone = {hidden.version.key for hidden in self.due if hidden.snapshots is None}
        return [version for version in self.every if version.key not in gone]


def roots(db: Database, head: str | None, grace: datetime.timedelta) -> Roots:
    """HEAD is a root whatever its state: the working directory comes from it."""
    every = versions.all_versions(db, EVERY)
    due: list[Hidden] = []
    waiting: list[Hidden] = []
    taken = facts.collected(db)
    for version in every:
        for hidden in _hidden(db, version, head, taken.get(version.id) or set()):
            (due if _over(hidden.since, grace) else waiting).append(hidden)
    return Roots(every, due, waiting)


def _hidden(
    db: Database, version: Version, head: str | None, steps: set[int | None]
) -> Iterable[Hidden]:
    if version.state in HIDDEN and version.id != head:
        yield Hidden(version, None, collected.hidden_since(db, version.id) or version.created)
        return
    since = collected.steps_since(db, version.id)
    by_time: dict[str, list[SnapshotRow]] = {}
    for row in versions.snapshots(db, version.key):
        if row.removed and row.step not in steps and row.step in since:
            by_time.setdefault(since[row.step], []).append(row)
    for moment, rows in sorted(by_time.items()):
        yield Hidden(version, tuple(rows), moment)


def _over(since: str, grace: datetime.timedelta) -> bool:
    if not grace:
        return True  # also where a clock was set back meanwhile
    return since <= timestamp(moment_of(timestamp()) - grace)


def until(since: str, grace: datetime.timedelta) -> str:
    """When the grace ends."""
    return timestamp(moment_of(since) + grace)


KEPT = 0  # the owner of all that stays; hidden things have numbers from 1 on


@dataclass
class Sparse:
    """A pack of which only a part is needed."""

    name: str
    size: int
    live: int


@dataclass
class Marked:
    """Files that nothing needs, by kind, and what the rest of the packs hold."""

    files: dict[str, list[tuple[Path, int]]] = field(default_factory=dict)
    packs: list[str] = field(default_factory=list)  # those of them that the catalogue knows
    only: set[str] = field(default_factory=set)  # matrices that no other pack lists
    sparse: list[Sparse] = field(default_factory=list)
    bytes: dict[int, int] = field(default_factory=dict)  # index of what is due -> bytes of chunks
    chunks: set[int] = field(default_factory=set)  # needed
    matrices: set[str] = field(default_factory=set)  # needed

    def add(self, kind: str, paths: Iterable[Path]) -> None:
        found = [(path, path.stat().st_size) for path in paths]
        if found:
            self.files.setdefault(kind, []).extend(found)

    @property
    def paths(self) -> list[Path]:
        return [path for found in self.files.values() for path, _ in found]


def mark(repository: Repository, roots: Roots) -> Marked:
    """Walk from the roots through manifests, deltas and tables; all else may go."""
    db = repository.database
    holdings, needed = _wanted(repository, roots)
    owners: dict[int, set[int]] = {}
    for owner, chunk in usage.chunks_needed(db, holdings, needed):
        owners.setdefault(owner, set()).add(chunk)
    marked = Marked(chunks=owners.get(KEPT, set()))
    marked.matrices = collected.matrices_needed(
        db,
        (snapshot for owner, snapshot in holdings if owner == KEPT),
        (name for owner, kind, name in needed if (owner, kind) == (KEPT, "matrix")),
    )
    rows = collected.chunks(db)
    lengths = {row.key: row.length for row in rows}
    seen = set(marked.chunks)
    for owner in range(1, len(roots.due) + 1):
        alone = owners.get(owner, set()) - seen
        marked.bytes[owner - 1] = sum(lengths[key] for key in alone)
        seen |= alone
    live: dict[str, int] = {}
    for row in rows:
        if row.key in marked.chunks:
            live[row.pack] = live.get(row.pack, 0) + row.length
    _packs(repository, marked, live)
    gone = {hidden.version.id for hidden in roots.due if hidden.snapshots is None}
    numbered = collected.numbered(db) - gone - _taken(db)
    of_manifests = repositories.stored(repository.manifests, ".json")
    marked.add("manifests", [path for name, path in of_manifests if name not in numbered])
    store = git_files.FileStore(repository.files_git)
    trees = {repository.manifest(version.id).tree for version in roots.kept}
    marked.add("files", store.unneeded(tree for tree in trees if tree is not None))
    committed = dump.committed_facts(db)
    of_facts = repositories.stored(repository.facts, ".json")
    marked.add("facts", [path for name, path in of_facts if name not in committed])
    return marked


def _taken(db: Database) -> set[str]:
    return {name for name, steps in facts.collected(db).items() if steps is None}


def _wanted(repository: Repository, roots: Roots) -> tuple[list[Holding], list[Need]]:
    """What every owner holds and needs: all that stays, and each thing that is due."""
    db = repository.database
    store = MatrixStore.of(repository)
    holdings: list[Holding] = []
    needed: list[Need] = []
    held: set[str] = set()
    networks: set[str] = set()
    taken = facts.collected(db)
    whole, parts = _owners(roots)
    try:
        for version in roots.every:
            owner = whole.get(version.key, KEPT)
            manifest = repository.manifest(version.id)
            rest = list(needs(manifest, lambda name: bytes(store.object("series", name))))
            needed += [(owner, *need) for need in rest]
            without = taken.get(version.id) or set()
            for row in versions.snapshots(db, version.key):
                if row.removed and row.step in without:
                    continue
                of = parts.get(row.key, owner)
                holdings.append((of, row.key))
                needed += [(of, *need) for need in skeletons(manifest, row.index)]
                if of == KEPT:
                    held.update(h for h in manifest.snapshots[row.index].hashes if h is not None)
            if owner == KEPT and manifest.network is not None:
                networks.add(manifest.network.id)
                held.update(name for kind, name in rest if kind == "matrix")
    finally:
        store.close()
    needed += [
        (KEPT, "bounds", name)
        for name, network, about in collected.bounds_records(db)
        if network in networks and about <= held
    ]
    return holdings, needed


def _owners(roots: Roots) -> tuple[dict[int, int], dict[int, int]]:
    """Key of a version, and of a snapshot -> its number among what is due."""
    whole: dict[int, int] = {}
    parts: dict[int, int] = {}
    for at, hidden in enumerate(roots.due, 1):
        if hidden.snapshots is None:
            whole[hidden.version.key] = at
        else:
            parts |= {row.key: at for row in hidden.snapshots}
    return whole, parts


def _packs(repository: Repository, marked: Marked, live: dict[str, int]) -> None:
    """Whole packs that nothing needs, and those that hold much besides what is needed.

    One that cannot be read in full, a newer dlv's perhaps, stays as it is.
    """
    known = dict(matrices.packs(repository.database))
    empty: set[str] = set()
    listed: dict[str, set[str]] = {}
    for name, path in repositories.stored(repository.packs, SUFFIX):
        if name in known and live.get(name, 0):
            marked.sparse.append(Sparse(name, known[name], live[name]))
            continue
        try:
            with Pack(path) as pack:
                rows = list(pack.encodings)
        except DlvError:
            continue
        hollow = {row.matrix for row in rows if row.empty}
        if name in known and hollow & marked.matrices:
            continue  # a matrix without elements has no chunk that would be needed
        empty |= hollow
        listed[name] = {row.matrix for row in rows}
        marked.add("packs", [path])
    marked.packs = [name for name in listed if name in known]
    marked.only = {matrix for name in marked.packs for matrix in listed[name]}
    if empty & marked.only:
        marked.only -= _listed_elsewhere(repository, set(known) - set(listed), empty)


def _listed_elsewhere(repository: Repository, packs: Iterable[str], names: set[str]) -> set[str]:
    found: set[str] = set()
    for pack_name in packs:
        with Pack(durable.path_of(repository.packs, pack_name, SUFFIX)) as pack:
            found |= {row.matrix for row in pack.encodings if row.matrix in names}
    return found
