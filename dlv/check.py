"""`fsck`: objects against their hashes, the catalogue against them, and what a fault reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dlv.durable as durable
import dlv.files as files
import dlv.rebuild as rebuilding
import dlv.repository as repositories
import dlv.revisions as revisions
from dlv.canonical import hasher
from dlv.errors import DlvError, NewerFormat
from dlv.manifest import Manifest
from dlv.metadata import dump, versions
from dlv.metadata.database import Database
from dlv.pas.footer import pieces_of
from dlv.pas.packs import SUFFIX, Pack
from dlv.paths import open_regular
from dlv.rebuild import Filled
from dlv.repository import Repository
from dlv.weights import MatrixStore

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
        why = error if isinstance(error, str) else error.why or error.message
        fault = Fault(
            kind, name, why, tuple(versions), tuple(matrices), isinstance(error, NewerFormat)
        )
        if fault not in self.faults:
            self.faults.append(fault)


def check(
    repository: Repository,
    references: Sequence[str] = (),
    *,
    quick: bool = False,
    progress: Progress = lambda _: None,
) -> Report:
    """Look at everything, or at all that the named versions need; `quick` reads no weights."""
    report = Report()
    db = repository.database
    chosen = [revisions.version(db, text) for text in references]
    # Of one moment: what is committed meanwhile is no fault.
    with db.snapshot():
        _catalogue(repository, report)
        _packs(repository, report, quick=quick, progress=progress)
        rows = chosen or versions.all_versions(db, ("live", "removed", "recovered"))
        manifests = list(_manifests(repository, report, rows))
        _objects(repository, report, manifests)
        if not quick:
            _matrices(repository, report, manifests)
            _files(repository, report, manifests)
    return report


def rebuild(repository: Repository, *, progress: Progress = lambda _: None) -> Report:
    """Make the catalogue again, then look at everything."""
    filled = rebuilding.rebuild(repository)
    report = check(repository, progress=progress)
    report.rebuilt = filled.versions
    report.recovered = filled.recovered
    _filled(repository, report, filled)
    return report


def _filled(repository: Repository, report: Report, filled: Filled) -> None:
    for kind, name, why in filled.faults:
        report.add(kind, name, why, _touched(repository, kind, name))
    report.dangling = filled.dangling


def _touched(repository: Repository, kind: str, name: str) -> list[str]:
    """The versions that need an object."""
    found = []
    for row in versions.all_versions(repository.database, ("live", "removed", "recovered")):
        try:
            manifest = repository.manifest(row.id)
        except DlvError:
            if kind == "manifest" and row.id == name:
                found.append(row.label)
            continue
        needed = {row.id} | set(_needed(manifest))
        if name in needed:
            found.append(row.label)
    return found


def _needed(manifest: Manifest) -> Iterator[str]:
    if manifest.network is not None:
        yield manifest.network.id
    for reference in manifest.series:
        yield reference.hash
    for snapshot in manifest.snapshots:
        for container in snapshot.containers:
            if container.skeleton is not None:
                yield container.skeleton


def _catalogue(repository: Repository, report: Report) -> None:
    """SQLite's own checks, then row by row against a catalogue made afresh from the files."""
    for problem in dump.integrity(repository.database):
        report.add("catalogue", "dlv.db", problem)
    with TemporaryDirectory(prefix="dlv-fsck-") as folder:
        fresh = Database(Path(folder) / "fresh.db")
        try:
            filled = rebuilding.fill(repository, fresh, dump.facts(repository.database))
            for table, row, what in dump.differences(repository.database, fresh):
                # Objects that no committed version refers to are not the catalogue's business.
                if what == "missing" and table in ("pack", "fact", "encoding", "named_object"):
                    report.dangling.append((table, str(row[0])))
                    continue
                report.add("catalogue", f"{table} {_short(row)}", f"the row is {what}")
        finally:
            fresh.close()
    _filled(repository, report, filled)
    report.count("facts", sum(1 for _ in repositories.stored(repository.facts, ".json")))


def _short(row: Sequence[Any]) -> str:
    return " ".join(str(value)[:16] for value in row[:3])


def _packs(repository: Repository, report: Report, *, quick: bool, progress: Progress) -> None:
    """Each pack's name, footer and, row by row, what the catalogue says lies in it."""
    rows: dict[str, list[tuple[object, ...]]] = {}
    for name, row in dump.chunk_rows(repository.database):
        rows.setdefault(name, []).append(row)
    present = {name for name, _ in repositories.stored(repository.packs, SUFFIX)}
    for name in sorted(present | set(rows)):
        report.count("packs")
        path = durable.path_of(repository.packs, name, SUFFIX)
        try:
            if name not in present:
                raise DlvError("the file is missing")
            with Pack(path) as pack:
                known = {
                    (
                        p.kind,
                        p.plane,
                        p.offset,
                        p.length,
                        p.raw,
                        p.blake3,
                        p.object,
                        p.at,
                        p.start,
                        p.count,
                    )
                    for p in pieces_of(pack.footer, name)
                }
            if not quick and _hash(path, progress) != name:
                raise DlvError("its content has another hash than its name")
            for row in rows.get(name, []):
                if row not in known:
                    report.add(
                        "catalogue", f"chunk {row[2]} of pack {name[:12]}", "not in the pack"
                    )
        except DlvError as error:
            lost = sorted(
                {str(row[6]) for row in rows.get(name, []) if row[0] in ("plane", "side")}
            )
            hit = {
                label
                for matrix in lost
                for label in dump.versions_of_matrix(repository.database, matrix)
            }
            others = {str(row[6]) for row in rows.get(name, [])} - set(lost)
            for other in others:
                hit |= set(_touched(repository, "object", other))
            report.add("pack", name, error, sorted(hit), lost)


def _hash(path: Path, progress: Progress) -> str:
    running = hasher()
    with open_regular(path) as file:
        while piece := file.read(1 << 20):
            running.update(piece)
            progress(len(piece))
    return running.hexdigest()


def _manifests(
    repository: Repository, report: Report, rows: Sequence[versions.Version]
) -> Iterator[tuple[versions.Version, Manifest]]:
    for row in rows:
        report.count("manifests")
        try:
            yield row, repository.manifest(row.id)
        except DlvError as error:
            report.add("manifest", row.id, error, [row.label])


def _objects(
    repository: Repository,
    report: Report,
    manifests: Sequence[tuple[versions.Version, Manifest]],
) -> None:
    """Networks, series and skeletons: read whole, hash compared."""
    store = MatrixStore.of(repository)
    done: set[str] = set()
    for row, manifest in manifests:
        network = manifest.network
        wanted = [("network", network.id)] if network is not None else []
        wanted += [("series", reference.hash) for reference in manifest.series]
        wanted += [
            ("skeleton", container.skeleton)
            for snapshot in manifest.snapshots
            for container in snapshot.containers
            if container.skeleton is not None
        ]
        for kind, name in wanted:
            if name in done:
                continue
            done.add(name)
            report.count("objects")
            try:
                store.object(kind, name)
            except DlvError as error:
                hit = _touched(repository, kind, name)
                report.add(kind, name, error, hit or [row.label])
    store.close()


def _matrices(
    repository: Repository,
    report: Report,
    manifests: Sequence[tuple[versions.Version, Manifest]],
) -> None:
    """Every matrix decoded, along its deltas, and its content hash compared."""
    store = MatrixStore.of(repository)
    wanted = {
        digest
        for _, manifest in manifests
        for snapshot in manifest.snapshots
        for digest in snapshot.hashes
        if digest is not None
    }
    for matrix in sorted(wanted):
        report.count("matrices")
        try:
            store.matrix(matrix)
        except DlvError as error:
            hit = dump.versions_of_matrix(repository.database, matrix)
            report.add("matrix", matrix, error, hit, [matrix])
    store.close()


def _files(
    repository: Repository,
    report: Report,
    manifests: Sequence[tuple[versions.Version, Manifest]],
) -> None:
    store = files.FileStore(repository.files_git)
    for row, manifest in manifests:
        report.count("files", len(manifest.files))
        for entry, why in store.check(manifest.files):
            report.add("file", f"{entry.path} ({entry.git[:12]})", why, [row.label])
