"""`fsck`: objects against their hashes, the catalogue against them, and what a fault reaches."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import dlv.disk.durable as durable
import dlv.metadata.matrices as matrix_rows
import dlv.recovery.compare as comparing
import dlv.recovery.rebuild as rebuilding
import dlv.repository.git_files as git_files
import dlv.repository.handle as repositories
import dlv.repository.revisions as revisions
import dlv.upkeep.small_files as small_files
import dlv.versions.reachable as reachable
from dlv.canonical import hash_bytes, hasher
from dlv.dataclass import dataclass
from dlv.disk.paths import open_regular
from dlv.errors import Damaged, DlvError, NewerFormat
from dlv.metadata import dump, facts, versions
from dlv.metadata.database import Database
from dlv.metadata.matrices import PackIndex
from dlv.metadata.versions import Version
from dlv.objects.manifest import Manifest
from dlv.pas.chunks import SUFFIX, open_pack, read_exactly
from dlv.recovery.catalogue_log import Log
from dlv.recovery.rebuild import Filled
from dlv.repository.change_marks import Standing
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Fault:
    """Something that is not what it should be, and which versions it reaches."""

    kind: str
    object: str
    why: str
    versions: tuple[str, ...] = ()
    matrices: tuple[str, ...] = ()
    newer: bool = False  # not damage: written by a newer dlv


@dataclass
class Report:
    """What was looked at and what was found."""

    checked: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    dangling: list[tuple[str, str]] = field(default_factory=list)
    rebuilt: int | None = None
    recovered: list[str] = field(default_factory=list)
    head_moved: tuple[str | None, str | None] | None = None  # labels, before and after
    _known: dict[tuple[str, str, str], int] = field(default_factory=dict, repr=False)

    @property
    def damaged(self) -> bool:
        return any(not fault.newer for fault in self.faults)

    def count(self, kind: str, more: int = 1) -> None:
        self.checked[kind] = self.checked.get(kind, 0) + more

    def add(
        self,
        kind: str,
        name: str,
        error: DlvError | str,
        versions: Sequence[str] = (),
        matrices: Sequence[str] = (),
    ) -> None:
        """A fault that is known already only reaches more versions."""
        why = error if isinstance(error, str) else error.why or error.message
        newer = isinstance(error, NewerFormat)
        index = self._known.setdefault((kind, name, why), len(self.faults))
        if index == len(self.faults):
            self.faults.append(Fault(kind, name, why, tuple(versions), tuple(matrices), newer))
            return
        known = self.faults[index]
        reached = tuple(dict.fromkeys([*known.versions, *versions]))
        self.faults[index] = replace(known, versions=reached)


def check(
    repository: Repository,
    references: Sequence[str] = (),
    *,
    quick: bool = False,
    progress: Progress = lambda _: None,
) -> Report:
    """Look at everything, or at all that the named versions need; `quick` reads no weights."""
    report = Report()
    for kind, name, why in small_files.faults(repository):
        report.add(kind, name, why)
    log = comparing.log_of(repository)  # before SQLite makes of it what it can
    db = repository.database
    chosen = [revisions.version(db, text).id for text in references]
    standing = repository.marks.read()
    # Of one moment: what is committed meanwhile is no fault.
    with repository.holding(), db.snapshot(), comparing.fresh_catalogue(repository) as fresh:
        sound, torn = _catalogue(repository, fresh, standing, log, report)
        # Where the catalogue cannot be believed, the one from the files says what there is.
        objects = _Objects(repository, db if sound else fresh, report, progress)
        if not objects.packs(fresh, torn, quick=quick):
            objects.believe(fresh)
        objects.check(chosen, quick=quick)
        for problem in dump.ledger_problems(repository.trials_path):
            report.add("trials", "trials.db", problem)
    return report


def rebuild(repository: Repository, *, progress: Progress = lambda _: None) -> Report:
    """Make the catalogue again, then look at everything."""
    filled = rebuilding.rebuild(repository)
    report = check(repository, progress=progress)
    report.head_moved = filled.head_moved
    report.rebuilt = filled.versions
    report.recovered = filled.recovered
    return report


def _catalogue(
    repository: Repository, fresh: Database, standing: Standing, log: Log | None, report: Report
) -> tuple[bool, set[str]]:
    """SQLite's own checks, then row by row against a catalogue made afresh from the files."""
    compared = comparing.compare(repository, fresh, standing)
    for name, why, labels in compared.faults:
        report.add("database", name, why, labels)
    sound = not compared.faults
    torn = {name for kind, name, _ in compared.filled.faults if kind == "pack"}
    if log is not None and log.lost:
        report.add("database", log.path.name, log.why)
    elif log is not None and log.behind:
        compared.filled.dangling.append(("log", f"{log.path.name}, frame {log.broken}"))
    _filled(repository.database if sound else fresh, report, compared.filled)
    report.count("facts", len(standing.facts))
    return sound, torn


def _filled(db: Database, report: Report, filled: Filled) -> None:
    """Facts and manifests that did not go into the fresh catalogue; the rest is looked at later."""
    labels = dump.labels(db)
    for kind, name, why in filled.faults:
        about = dump.about(db, name) if kind == "fact" else (kind, name)
        if kind in ("fact", "manifest"):
            label = labels.get(about[1]) if about is not None else None
            report.add(kind, name, why, [label] if label is not None else [])
    report.dangling = list(dict.fromkeys(filled.dangling))


class _Objects:
    """Everything that versions need, as a catalogue lists it."""

    def __init__(
        self, repository: Repository, db: Database, report: Report, progress: Progress
    ) -> None:
        self.repository = repository
        self.report = report
        self.progress = progress
        self.held: list[tuple[Version, Manifest]] = []
        self._reach: dict[str, list[str]] | None = None
        self.believe(db)

    def believe(self, db: Database) -> None:
        """Take this catalogue for the right one."""
        self.db = db
        self._taken = facts.collected(db)
        self.store = MatrixStore(self.repository.packs, self.repository.tmp, PackIndex(db))

    def check(self, chosen: Sequence[str], *, quick: bool) -> None:
        rows = versions.all_versions(self.db, dump.STATES)
        try:
            self._manifests([row for row in rows if not chosen or row.id in chosen])
            self._objects()
            self._bounds(quick=quick)
            if not quick:
                self._matrices()
                self._files()
        finally:
            self.store.close()

    def _manifests(self, rows: Sequence[Version]) -> None:
        for row in rows:
            self.report.count("manifests")
            try:
                self.held.append((row, self.repository.manifest(row.id)))
            except DlvError as error:
                self.report.add("manifest", row.id, error, [row.label])

    def _wanted(self, manifest: Manifest) -> Iterator[tuple[str, str]]:
        """(kind, hash) of what the version needs beside the matrices of its snapshots."""
        yield from reachable.needs(manifest, self._head)
        for index in self._there(manifest):
            yield from reachable.skeletons(manifest, index)

    def _there(self, manifest: Manifest) -> list[int]:
        """The snapshots but those that gc has taken."""
        taken = self._taken.get(manifest.id) or set()
        every = enumerate(manifest.snapshots)
        return [at for at, held in every if at == manifest.own or held.step not in taken]

    def _head(self, digest: str) -> bytes | None:
        try:
            return bytes(self.store.object("series", digest))
        except DlvError:
            return None  # it is among what is wanted, and reported there

    def _versions_of(self, name: str) -> list[str]:
        """Labels of the versions that need a matrix or a named object."""
        if self._reach is None:
            self._reach = {}
            for row in versions.all_versions(self.db, dump.STATES):
                try:
                    manifest = self.repository.manifest(row.id)
                except DlvError:
                    continue
                for _, digest in self._wanted(manifest):
                    labels = self._reach.setdefault(digest, [])
                    if row.label not in labels:
                        labels.append(row.label)
        return self._reach.get(name, []) + dump.versions_of_matrix(self.db, name)

    def packs(self, fresh: Database, torn: Set[str], *, quick: bool) -> bool:
        """Check that each pack is whole, and that its rows in the catalogue are right.

        Return whether all rows were. `torn` are packs that the rebuilt catalogue could not read.
        """
        right = True
        doubtful = comparing.unbacked(self.db, fresh)
        rows = comparing.chunks_of_packs(self.db)
        packs = self.repository.packs
        present = {name for name, _ in repositories.stored(packs, SUFFIX)}
        for name in sorted(present | set(rows) | dump.packs(self.db)):
            self.report.count("packs")
            path = durable.path_of(packs, name, SUFFIX)
            try:
                suspects = rows.get(name, []) if name in torn else doubtful.get(name, [])
                right &= self._pack(path, name, suspects, torn=name in torn, quick=quick)
            except DlvError as error:
                lost = self._lost(path, rows.get(name, []))
                lost |= dict.fromkeys(_coded_with(lost, rows), "plane")
                hit = {label for owner in lost for label in self._versions_of(owner)}
                matrices = sorted(owner for owner, kind in lost.items() if kind == "plane")
                self.report.add("pack", name, error, sorted(hit), matrices)
        return right

    def _pack(
        self, path: Path, name: str, rows: list[tuple[Any, ...]], *, torn: bool, quick: bool
    ) -> bool:
        if not path.exists():
            raise Damaged("file is missing")
        wrong = comparing.wrong_chunks(path, name, rows) if rows or torn else []
        if not quick and hash_file(path, self.progress) != name:
            raise Damaged("content does not match its hash")
        for where in wrong:
            self.report.add("database", where, "not in the pack")
        return not wrong

    def _lost(self, path: Path, rows: list[tuple[Any, ...]]) -> dict[str, str]:
        """Owner -> kind of all that lies in chunks whose bytes are not what they were."""
        whole: dict[int, bool] = {}
        try:
            descriptor = open_pack(path, "the pack")
        except (OSError, DlvError):
            return {row[6]: row[0] for row in rows}
        try:
            for _, _, offset, length, _, blake3, *_ in rows:
                if offset not in whole:
                    whole[offset] = _intact(descriptor, offset, length, blake3)
        finally:
            os.close(descriptor)
        return {row[6]: row[0] for row in rows if not whole[row[2]]}

    def _objects(self) -> None:
        """Networks, series, their points, and skeletons: read whole, hash compared."""
        done: set[str] = set()
        for _, manifest in self.held:
            for kind, name in self._wanted(manifest):
                if name in done or kind == "matrix":
                    continue
                done.add(name)
                self.report.count("objects")
                try:
                    self.store.object(kind, name)
                except DlvError as error:
                    self.report.add(kind, name, error, self._versions_of(name))

    def _bounds(self, *, quick: bool) -> None:
        """Records of bounds: readable, and no norm below what it is of."""
        if not matrix_rows.stored_bounds(self.db):
            return
        import dlv.archiving.bounding.checking as checking

        held = [(row.label, manifest) for row, manifest in self.held]
        for found in checking.check(self.db, self.store, held, quick=quick):
            self.report.count("bounds")
            if found is not None:
                self.report.add("bounds", found.record, found.why, found.versions)

    def _matrices(self) -> None:
        """Every matrix decoded, along its deltas, and its content hash compared."""
        wanted = {
            digest
            for _, manifest in self.held
            for at in self._there(manifest)
            for digest in manifest.snapshots[at].hashes
            if digest is not None
        }
        for _, manifest in self.held:
            wanted |= {name for kind, name in self._wanted(manifest) if kind == "matrix"}
        promised = self._promised()
        for matrix in sorted(wanted):
            if matrix in promised and self.store.encoding(matrix) is None:
                self.report.count("promised")
                continue
            self.report.count("tensors")
            try:
                self.store.matrix(matrix)
            except DlvError as error:
                self.report.add("tensor", matrix, error, self._versions_of(matrix), [matrix])

    def _promised(self) -> set[str]:
        """Return the tensors that a remote has, if they are not here."""
        promised: set[str] = set()
        for version in facts.promises(self.db):
            try:
                manifest = self.repository.manifest(version)
            except DlvError:
                continue  # reported before
            promised |= {h for snapshot in manifest.snapshots for h in snapshot.hashes if h}
            if manifest.network is not None:
                promised |= {each["hash"] for each in manifest.network.constants}
        return promised

    def _files(self) -> None:
        store = git_files.FileStore(self.repository.files_git)
        for row, manifest in self.held:
            self.report.count("files", len(manifest.files))
            for entry, why in store.check(manifest.files):
                self.report.add("file", f"{entry.path} ({entry.git[:12]})", why, [row.label])
            for name, why in store.check_tree(manifest.tree):
                self.report.add("tree", name, why, [row.label])
        for name, why in store.check_references():
            self.report.add("files.git", name, why)


def _coded_with(lost: Mapping[str, str], rows: Mapping[str, Sequence[tuple[Any, ...]]]) -> set[str]:
    """The matrices that cannot be decoded without tables that are lost."""
    tables = {owner for owner, kind in lost.items() if kind == "table"}
    if not tables:
        return set()
    return {
        row[6]
        for found in rows.values()
        for row in found
        if json.loads(row[10]).get("table") in tables
    }


def _intact(descriptor: int, offset: int, length: int, blake3: str) -> bool:
    try:
        return hash_bytes(read_exactly(descriptor, length, offset, "a chunk")) == blake3
    except DlvError:
        return False


def hash_file(path: Path, progress: Progress) -> str:
    running = hasher()
    with open_regular(path) as file:
        while piece := file.read(1 << 20):
            running.update(piece)
            progress(len(piece))
    return running.hexdigest()
