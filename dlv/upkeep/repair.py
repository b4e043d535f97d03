"""`fsck --repair`: every damaged object replaced by the same bytes from elsewhere, or set aside.

In order: a copy in quarantine or in another repository, the same content by another way, a
catalogue made again. What cannot be had is named with the versions and layers that it reaches.
A copy counts for nothing until its hash was computed; the bad object is moved to quarantine before
the good one takes its name, and nothing is ever deleted.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import field
from pathlib import Path

import dlv.archiving.reencode as reencode
import dlv.disk.durable as durable
import dlv.metadata.matrices as matrices
import dlv.recovery.catalogue_log as catalogue_log
import dlv.recovery.compare as comparing
import dlv.recovery.rebuild as rebuild
import dlv.recovery.superseded as superseded
import dlv.repository.handle as repositories
import dlv.repository.quarantine as quarantine
import dlv.upkeep.check as check
from dlv.archiving.reencode import Overlay
from dlv.canonical import hasher
from dlv.dataclass import dataclass
from dlv.disk.paths import open_regular
from dlv.errors import Damaged, DlvError, UsageError
from dlv.kinds import EncodingRow, Piece, Raw
from dlv.metadata import collected, dump, usage, versions
from dlv.metadata.matrices import PackIndex
from dlv.objects.manifest import Manifest
from dlv.pas.chunks import SUFFIX
from dlv.pas.packs import Pack
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository
from dlv.repository.quarantine import Place
from dlv.upkeep.check import Progress, Report
from dlv.weights.store import MatrixStore
from dlv.weights.writer import PackRecord, WeightWriter

PIECE = 1 << 20
MOST = 1 << 31  # bytes of a file in files.git


@dataclass
class Copies:
    """Where to look, and what was found there: (object, where it came from)."""

    repository: Repository
    other: Path | None  # the `.dlv` of another repository
    found: list[tuple[str, str]] = field(default_factory=list)
    _place: Place | None = None

    def candidates(self, origin: str) -> Iterator[tuple[str, Path]]:
        for path in quarantine.find(self.repository, origin):
            yield "quarantine", path
        if self.other is not None and (self.other / origin).is_file():
            yield str(self.other.parent), self.other / origin

    def set_aside(self, origins: Iterable[str]) -> None:
        """Out of the way, but not lost: a list of its own for each call."""
        paths = [self.repository.path / origin for origin in origins]
        there = [path for path in paths if path.exists()]
        if there:
            place = quarantine.begin(self.repository, there, "repair")
            quarantine.move_in(self.repository, place, there)

    def hashed(self, root: Path, digest: str, suffix: str) -> bool:
        """A pack, manifest or fact, which is called like its hash."""
        target = durable.path_of(root, digest, suffix)
        origin = quarantine.origin_of(self.repository, target)
        for where, path in self.candidates(origin):
            if _hash(path) != digest:
                continue
            with durable.TemporaryFile(self.repository.tmp, suffix=suffix) as file:
                with open_regular(path) as source:
                    while piece := source.read(PIECE):
                        file.write(piece)
                if file.hexdigest() != digest:
                    continue
                self.set_aside([origin])
                durable.publish(file, root, digest, suffix)
            self.found.append((digest, where))
            return True
        return False

    def git(self, git_id: str) -> bool:
        """A loose object of files.git, as its content's hash says."""
        origin = f"files.git/objects/{git_id[:2]}/{git_id[2:]}"
        for where, path in self.candidates(origin):
            with open_regular(path) as source:
                data = source.read(MOST)
            if _git_hash(data) != git_id:
                continue
            self.set_aside([origin])
            target = self.repository.path / origin
            durable.make_directory(target.parent)
            durable.replace(target, data, tmp_dir=self.repository.tmp)
            self.found.append((git_id, where))
            return True
        return False

    def reference(self, commit: str) -> bool:
        """It holds nothing but the name of its commit."""
        origin = f"files.git/refs/versions/{commit}"
        self.set_aside([origin])
        durable.replace(
            self.repository.path / origin, commit.encode() + b"\n", tmp_dir=self.repository.tmp
        )
        self.found.append((origin, "its name"))
        return True


def _hash(path: Path) -> str | None:
    running = hasher()
    try:
        with open_regular(path) as file:
            while piece := file.read(PIECE):
                running.update(piece)
    except (OSError, DlvError):
        return None
    return running.hexdigest()


def _git_hash(data: bytes) -> str | None:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, MOST)
    except zlib.error:
        return None
    if not stream.eof or stream.unused_data:
        return None
    return hashlib.sha1(plain, usedforsecurity=False).hexdigest()


def mend_files(copies: Copies, manifests: Iterable[Manifest]) -> None:
    """Objects, trees and references of files.git; a tree that is back may lead to others."""
    store = FileStore(copies.repository.files_git)
    held = list(manifests)
    tried: set[str] = set()
    while True:
        wanted: dict[str, None] = {}
        references: dict[str, None] = {}
        for manifest in held:
            wanted |= {entry.git: None for entry, _ in store.check(manifest.files)}
            wanted |= {name: None for name, _ in store.check_tree(manifest.tree)}
        for name, _ in store.check_references():
            (references if "/" in name else wanted)[name.rpartition("/")[2]] = None
        fresh = [name for name in wanted if name not in tried]
        again = [name for name in references if f"ref {name}" not in tried]
        tried |= {*fresh, *(f"ref {name}" for name in again)}
        mended = [copies.git(name) for name in fresh] + [copies.reference(name) for name in again]
        if not any(mended):
            return


@dataclass
class Repaired:
    """What was mended and from where; the report is of what is left."""

    report: Report
    before: int  # faults found at first
    mended: list[tuple[str, str]] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    layers: dict[str, list[str]] = field(default_factory=dict)  # version -> what it has lost


def repair(
    repository: Repository, source: Path | None, author: str, *, progress: Progress
) -> Repaired:
    """The other repository is only read; nothing in it is believed without its hash."""
    other = None if source is None else _other(repository, source)
    copies = Copies(repository, None if other is None else other.path)
    log = _log(repository)
    first = _check(repository, progress)
    if first is not None and not first.damaged:
        return Repaired(first, len(log), log)
    with superseded.removing(repository):
        _whole(repository, copies, first)
        _ledger(copies, first)
    mended = log + list(copies.found)
    if first is None or any(f.kind == "database" for f in first.faults) or mended:
        rebuild.rebuild(repository)
    outcome = Repaired(check.check(repository), len(first.faults) if first else 1, mended)
    with superseded.removing(repository):
        _contents(repository, other, author, outcome)
        copies.found.clear()
        mend_files(copies, _manifests(repository))
        outcome.mended += copies.found
    if outcome.report.damaged:
        outcome.report = check.check(repository)
    _name_layers(repository, outcome)
    if other is not None:
        other.close()
    return outcome


def _other(repository: Repository, source: Path) -> Repository:
    found = Repository.find(source)
    if found.path == repository.path:
        raise UsageError("--from names this very repository", hint="give the path of a copy")
    return found


def _log(repository: Repository) -> list[tuple[str, str]]:
    """A byte of the catalogue's log that is wrong is put right before anybody reads it."""
    log = comparing.log_of(repository)
    if log is None or not log.changes:
        return []
    with superseded.removing(repository):
        log = comparing.log_of(repository)
        if log is not None and catalogue_log.mend(log):
            many = f"{log.behind} commit{'' if log.behind == 1 else 's'}"
            return [(log.path.name, f"its checksums: {many} can be read again")]
    return []


def _check(repository: Repository, progress: Progress) -> Report | None:
    """None: the catalogue cannot even be opened."""
    try:
        return check.check(repository, progress=progress)
    except Damaged:
        repository.close()
        return None


def _whole(repository: Repository, copies: Copies, report: Report | None) -> None:
    """Facts, manifests and packs, each the same file from elsewhere."""
    kinds = {
        "fact": (repository.facts, ".json"),
        "manifest": (repository.manifests, ".json"),
        "pack": (repository.packs, SUFFIX),
    }
    for kind, (root, suffix) in kinds.items():
        if report is not None:
            bad = {fault.object for fault in report.faults if fault.kind == kind}
        else:
            bad = {name for name, path in repositories.stored(root, suffix) if _wrong(name, path)}
        for name in sorted(bad):
            copies.hashed(root, name, suffix)


def _ledger(copies: Copies, report: Report | None) -> None:
    """Trials that were not over start again; their results are in versions."""
    if report is not None and any(fault.kind == "trials" for fault in report.faults):
        copies.set_aside([f"trials.db{end}" for end in ("", "-wal", "-shm")])
        copies.found.append(("trials.db", "set aside, a new one is made with the next trials"))


def _wrong(name: str, path: Path) -> bool:
    try:
        return check.hash_file(path, lambda _: None) != name
    except (OSError, DlvError):
        return True


def _contents(
    repository: Repository, other: Repository | None, author: str, outcome: Repaired
) -> None:
    """Packs of which there is no copy: what was in them goes into new ones."""
    faults = outcome.report.faults
    packs = [fault.object for fault in faults if fault.kind == "pack" and not fault.newer]
    broken = [name for fault in faults for name in fault.matrices]
    if packs or broken:
        wanted = lost(repository, packs, broken)
        outcome.mended += store_anew(repository, wanted, other, author)
        forget(repository, packs)
    paths = [repository.packs / name[:2] / (name + SUFFIX) for name in packs]
    there = [path for path in paths if path.exists()]
    if there:
        place = quarantine.begin(repository, there, "repair")
        quarantine.move_in(repository, place, there)
        outcome.set_aside += [path.stem for path in there]
    superseded.finish(repository)


def _manifests(repository: Repository) -> Iterable[Manifest]:
    for version in versions.all_versions(repository.database, dump.STATES):
        try:
            yield repository.manifest(version.id)
        except DlvError:
            continue


def _name_layers(repository: Repository, outcome: Repaired) -> None:
    for fault in outcome.report.faults:
        for matrix in fault.matrices:
            for label, name in dump.layers_of_matrix(repository.database, matrix):
                found = outcome.layers.setdefault(label, [])
                if name not in found:
                    found.append(name)


@dataclass
class Lost:
    """What is asked for: matrices, and objects by kind."""

    packs: list[str]
    matrices: dict[str, None] = field(default_factory=dict)
    objects: dict[tuple[str, str], None] = field(default_factory=dict)


class _Nothing:
    """An index that knows nothing yet, so that everything is written again."""

    def encoding(self, matrix: str) -> EncodingRow | None:  # noqa: ARG002
        return None

    def chunks(self, matrix: str) -> Sequence[Piece]:  # noqa: ARG002
        return ()

    def object_chunks(self, kind: str, name: str) -> Sequence[Piece]:  # noqa: ARG002
        return ()


def lost(repository: Repository, packs: Iterable[str], matrices_: Iterable[str]) -> Lost:
    """All that the catalogue finds in damaged packs, and matrices that cannot be decoded."""
    found = Lost(list(packs), dict.fromkeys(matrices_))
    for pack in found.packs:
        held, others = usage.used_in(repository.database, pack)
        found.matrices |= dict.fromkeys(held)
        found.objects |= dict.fromkeys(others)
    return found


def store_anew(
    repository: Repository, wanted: Lost, other: Repository | None, author: str
) -> list[tuple[str, str]]:
    """(object, where its content was) of all that came back; the index finds them anew."""
    db = repository.database
    back: list[tuple[str, str]] = []
    with ExitStack() as held:
        store = held.enter_context(closing(MatrixStore.of(repository)))
        stores = [("intact parts of its pack", store), *_others(repository, wanted, held)]
        if other is not None:
            theirs = held.enter_context(closing(MatrixStore.of(other)))
            stores.append((str(other.root), theirs))
        with WeightWriter(MatrixStore(store.packs_dir, store.tmp_dir, _Nothing())) as writer:
            for name in wanted.matrices:
                row = PackIndex(db).encoding(name)
                for where, source in stores if row is not None else ():
                    raw = _matrix(source, name)
                    if raw is not None and row is not None:
                        writer.add(row.dtype, row.shape, raw)
                        back.append((name, where))
                        break
            for kind, name in wanted.objects:
                if kind in ("table", "bounds"):
                    continue  # of a coding that is given up; bounds hold for it alone
                for where, source in stores:
                    data = _object(source, kind, name)
                    if data is not None:
                        writer.add_object(kind, data)
                        back.append((name, where))
                        break
            made = writer.finish()
        if made:
            _switch(repository, store, made, author)
    return back


def _matrix(source: MatrixStore, name: str) -> Raw | None:
    try:
        return bytes(source.matrix(name)) if source.encoding(name) is not None else None
    except (DlvError, OSError):
        return None


def _object(source: MatrixStore, kind: str, name: str) -> bytes | None:
    try:
        return bytes(source.object(kind, name)) if source.object_chunks(kind, name) else None
    except (DlvError, OSError):
        return None


def _others(
    repository: Repository, wanted: Lost, held: ExitStack
) -> Iterator[tuple[str, MatrixStore]]:
    """Every pack with an encoding of its own of something lost: the index knows but one."""
    for name, path in repositories.stored(repository.packs, SUFFIX):
        if name in wanted.packs:
            continue
        try:
            with Pack(path) as pack:
                footer, size = pack.footer, pack.size
        except DlvError:
            continue
        if any(row.matrix in wanted.matrices for row in footer.encodings):
            index = Overlay(PackIndex(repository.database), [PackRecord(name, path, size, footer)])
            view = MatrixStore(repository.packs, repository.tmp, index)  # type: ignore[arg-type]
            yield f"pack {name[:12]}", held.enter_context(closing(view))


def _switch(
    repository: Repository, store: MatrixStore, packs: Sequence[PackRecord], author: str
) -> None:
    """Read back by name, then the index finds all of it in the new packs."""
    superseded.intend(repository, [pack.hash for pack in packs])
    reencode.verify(repository, store, packs, lambda _: None)
    what = f"{sum(len(pack.rows.encodings) for pack in packs)} tensors repaired"
    reencode.switch(repository, store, packs, author, what)


def forget(repository: Repository, packs: Sequence[str]) -> list[Path]:
    """Damaged packs that hold nothing any more but derived things: their rows go."""
    db = repository.database
    gone = []
    for name in packs:
        held, others = usage.used_in(db, name)
        records = [other for kind, other in others if kind == "bounds"]
        tables = {other for kind, other in others if kind == "table"}
        needed = tables & usage.tables_named(db)
        if held or needed or any(kind not in ("bounds", "table") for kind, _ in others):
            continue
        with db.atomic():
            matrices.forget_bounds(db, records)
            if name in dict(matrices.packs(db)):
                collected.forget_packs(db, [name], [])
        gone.append(repository.packs / name[:2] / (name + SUFFIX))
    return gone
