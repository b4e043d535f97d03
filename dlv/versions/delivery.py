"""Files on their way to a folder: which ones, and writing them, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import field, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import dlv.disk.paths as paths
import dlv.disk.user_files as user_files
import dlv.metadata.facts as facts
import dlv.weights.reading.retrieval as retrieval
import dlv.weights.snapshots as snapshots
from dlv.adapters import registry
from dlv.adapters.checkpoint import Checkpoint
from dlv.dataclass import dataclass
from dlv.disk.paths import Folder
from dlv.disk.user_files import Batch
from dlv.errors import Conflict, Damaged, StorageError, UsageError
from dlv.metadata import versions
from dlv.metadata.facts import StagedFile
from dlv.metadata.versions import Version
from dlv.objects.manifest import Container, FileEntry, Manifest, Snapshot
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Change, Repository
from dlv.versions.working import (
    CHANGED,
    IN_THE_WAY,
    MISSING,
    SAME,
    WEIGHT_SUFFIXES,
    Tracked,
    Working,
    content_mark,
    tell,
    tracked,
    weight_file,
)
from dlv.weights.reading.approximation import Reading
from dlv.weights.reading.retrieval import Task
from dlv.weights.store import MatrixStore


@dataclass
class Request:
    """What the user asked `checkout` or `copy` for."""

    reference: str
    author: str
    here: Path
    opened: Callable[[str, Path], Checkpoint]
    paths: Sequence[str] = ()
    to: Path | None = None
    format: str | None = None
    weights: bool = True
    planes: int | None = None  # approximate weights, from the first ones of each matrix
    force: bool = False
    jobs: int = 1
    name: str = ""  # of the copy
    progress: Callable[[int], None] = lambda _: None
    total: Callable[[int], None] = lambda _: None


@dataclass(frozen=True)
class Written:
    path: str
    bytes: int
    hash: str


@dataclass
class CheckedOut:
    """`unchanged` files were up to date. `head`: the working folder is now this version.

    `removed` and `kept` files are those of the previous HEAD that this version does not have.
    """

    version: Version
    folder: Path
    written: list[Written] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    head: bool = False
    notes: list[str] = field(default_factory=list)
    reading: Reading | None = None  # of approximate weights


@dataclass(frozen=True)
class Target:
    """One file to be there: what it must be, and from what it is made."""

    item: Tracked
    entry: FileEntry | None = None
    snapshot: Snapshot | None = None
    container: Container | None = None
    make: Callable[[BinaryIO], tuple[int, str]] | None = None  # writes it: (bytes, hash)

    @property
    def path(self) -> str:
        return self.item.path


# Which files


def targets(
    repository: Repository, manifest: Manifest, version: Version, request: Request, only: int | None
) -> tuple[list[Target], list[str]]:
    found = associated(manifest) if only is None else []
    notes: list[str] = []
    if not request.weights:
        return found, notes
    rows = versions.snapshots(repository.database, version.key)
    removed = {row.index for row in rows if row.removed}
    for index, snapshot in enumerate(manifest.snapshots):
        if index in removed and only is None:
            notes.append(f"skipped the removed checkpoint at step {snapshot.step}")
        elif only is None or index == only:
            found += _weights(manifest, snapshot, request.format)
    return _apart(found), notes


def associated(manifest: Manifest) -> list[Target]:
    """The files of a version that are no weights."""
    files = tracked(manifest)
    return [Target(files[entry.path], entry=entry) for entry in manifest.files]


def _weights(manifest: Manifest, snapshot: Snapshot, format_: str | None) -> Iterator[Target]:
    containers = snapshot.containers or (_made_up(manifest, snapshot, format_),)
    for container in containers:
        item = weight_file(snapshot, container)
        if format_ is None or container.format == format_:
            yield Target(item, snapshot=snapshot, container=container)
            continue
        path = _with_suffix(container.path, registry.adapter(format_).SUFFIX)
        mark = content_mark(snapshot, container)
        item = Tracked(path, "weights", format_, container.bytes, mark, snapshot.step)
        yield Target(item, snapshot=snapshot, container=container)


def _made_up(manifest: Manifest, snapshot: Snapshot, format_: str | None) -> Container:
    """Weights that dlv made itself have no file yet."""
    step = "" if snapshot.step is None else f"-{snapshot.step}"
    held = [index for index, digest in enumerate(snapshot.hashes) if digest is not None]
    kind = format_ or "safetensors"
    path = f"{manifest.name}{step}{registry.adapter(kind).SUFFIX}"
    return Container(path, kind, 0, None, None, tuple(held))


def _with_suffix(path: str, suffix: str) -> str:
    old = PurePosixPath(path).suffix
    stem = path.removesuffix(old) if old.lower() in WEIGHT_SUFFIXES else path
    return stem + suffix


def _apart(targets: Sequence[Target]) -> list[Target]:
    """One file a path: of two snapshots that were kept in one file, the later one's is meant."""
    return list({target.path: target for target in targets}.values())


# Writing: everything is looked at, then everything written beside, then everything renamed


def write(
    repository: Repository,
    manifest: Manifest,
    targets: Sequence[Target],
    request: Request,
    result: CheckedOut,
    *,
    here: bool,
    operation: Callable[[], AbstractContextManager[object]] = nullcontext,
    previous: Version | None = None,
) -> None:
    """Give all files their names within `operation`, or none: if that fails, all is as it was.

    Files of the `previous` version that this one does not have are removed, as git does.
    """
    paths.check_together([target.path for target in targets])
    if result.folder.resolve().is_relative_to(repository.path.resolve()):
        raise UsageError(f"{result.folder} is used by dlv", hint="choose another folder")
    working = Working(result.folder, repository.database if here else None, request.opened)
    todo = _needed(repository, targets, working, request, result)
    _check_stored(repository, todo)
    request.total(sum(target.item.bytes for target in todo))
    if result.folder.exists() and not result.folder.is_dir():
        raise Conflict(f"{result.folder} is a file", why="a directory is required")
    with user_files.Batch(Folder(result.folder), create=True) as batch:
        batch.clear(target.path for target in targets)
        made = {t.path: _small(repository, t, batch) for t in todo if t.container is None}
        request.progress(sum(t.item.bytes for t in todo if t.container is None))
        weights = [target for target in todo if target.container is not None]
        tasks = [_task(manifest, target, batch) for target in weights]
        store = MatrixStore.of(repository)
        for written in retrieval.write_all(store, tasks, request.jobs, request.progress):
            made[written.path] = written
        todo = _told(repository, todo, working, request, result, made, batch)
        if previous is not None:
            _remove_previous(repository, previous, targets, working, batch, result)
        batch.sync()
        with operation():
            batch.put()
            if here:
                _see(repository, todo, made)
    result.written += [made[target.path] for target in todo]
    working.remember()


def previous_version(repository: Repository, new: Version) -> Version | None:
    """Return HEAD's version, or None if it is the new one or there is no HEAD."""
    head = repository.head
    return None if head in (None, new.id) else versions.by_id(repository.database, head or "")


def check_staged(repository: Repository, new: Version, *, force: bool) -> list[StagedFile]:
    """Return the files staged on top of another version; raise Conflict unless `force`."""
    waiting = facts.staged_files(repository.database) if repository.head != new.id else []
    if waiting and not force:
        number = "1 staged file" if len(waiting) == 1 else f"{len(waiting)} staged files"
        raise Conflict(
            f"{number} would become part of a version made from {new.label}:"
            f" {_listed([file.path for file in waiting])}",
            hint="to commit them: dlv commit; to unstage them: dlv reset",
        )
    return waiting


def unstage(change: Change, waiting: Sequence[StagedFile]) -> None:
    """Unstage files as part of a change; undoing the change stages them again."""
    if waiting:
        facts.drop_staged(change.db, [file.path for file in waiting])
        change.consumed = waiting


def _remove_previous(
    repository: Repository,
    previous: Version,
    targets: Sequence[Target],
    working: Working,
    batch: Batch,
    result: CheckedOut,
) -> None:
    """Remove files of the previous version that the new one does not have.

    Files that were changed are stored nowhere else, so they are kept. If the previous version is
    itself removed, all its files are kept: gc may delete their bytes soon.
    """
    rows = versions.snapshots(repository.database, previous.key)
    gone = [row.index for row in rows if row.removed]
    stays = {target.path for target in targets}
    for path, item in tracked(repository.manifest(previous.id), gone).items():
        if path in stays or (state := working.compare(item)) == MISSING:
            continue
        if state == SAME and previous.state in ("live", "recovered"):
            batch.remove(path)
            result.removed.append(path)
        else:
            result.kept.append(path)


def _see(repository: Repository, todo: Sequence[Target], written: Mapping[str, Written]) -> None:
    """Record sizes and times of the files, so that they need not be read again."""
    items = [
        target.item
        if target.make is None
        else replace(target.item, bytes=written[target.path].bytes, mark=written[target.path].hash)
        for target in todo
    ]
    rows = [tell(repository.root, item) for item in items]
    with suppress(StorageError), repository.database.atomic():
        facts.record_looks(repository.database, [row for row in rows if row is not None])


def _told(
    repository: Repository,
    todo: Sequence[Target],
    working: Working,
    request: Request,
    result: CheckedOut,
    written: Mapping[str, Written],
    batch: Batch,
) -> list[Target]:
    """The same less what was made only to find it there already, as when a copy is repeated."""
    left = []
    lost = []
    safe = _Safe(repository, working)
    for target in todo:
        if target.make is None or working.compare(target.item) != CHANGED:
            left.append(target)
            continue
        now = written[target.path]
        if working.compare(replace(target.item, bytes=now.bytes, mark=now.hash)) == SAME:
            batch.drop(target.path)
            result.unchanged.append(target.path)
            continue
        left.append(target)
        if not request.force and not safe.holds(target.item):
            lost.append(target.path)
    if lost:
        raise _overwritten(lost)
    return left


def _overwritten(lost: Sequence[str]) -> Conflict:
    return Conflict(
        f"would overwrite uncommitted changes in {_listed(lost)}",
        why=f"{'its content is' if len(lost) == 1 else 'their content is'} in no version",
        hint="commit or move first, or -f to lose the content",
    )


def _needed(
    repository: Repository,
    targets: Sequence[Target],
    working: Working,
    request: Request,
    result: CheckedOut,
) -> list[Target]:
    """What is not there yet; Conflict if that would cost the user something kept nowhere else."""
    safe = _Safe(repository, working)
    todo: list[Target] = []
    lost: list[str] = []
    blocked: list[str] = []
    for target in targets:
        state = working.compare(target.item)
        if state == SAME:
            result.unchanged.append(target.path)
            continue
        if state == IN_THE_WAY:
            blocked.append(target.path)
        elif state == CHANGED and not request.force and target.make is None:
            lost += [] if safe.holds(target.item) else [target.path]
        todo.append(target)
    if blocked:
        raise Conflict(
            f"cannot write {_listed(blocked)}",
            why="a directory or broken link is in the way",
            hint="move it away",
        )
    if lost:
        raise _overwritten(lost)
    return todo


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


class _Safe:
    """Whether what lies at a path is kept in some version, so that it can be had back."""

    def __init__(self, repository: Repository, working: Working) -> None:
        self._repository = repository
        self._working = working
        self._marks: dict[str, list[Tracked]] = {}
        self._rest = self._manifests()

    def holds(self, item: Tracked) -> bool:
        checked = 0
        while True:
            known = self._marks.get(item.path, [])
            if any(self._working.compare(one) == SAME for one in known[checked:]):
                return True
            checked = len(known)
            manifest = next(self._rest, None)
            if manifest is None:
                return False
            for path, one in tracked(manifest).items():
                if one not in (kept := self._marks.setdefault(path, [])):
                    kept.append(one)

    def _manifests(self) -> Iterator[Manifest]:
        """HEAD's first, for it is what most files are from."""
        head = self._repository.head
        db = self._repository.database
        if head is not None and versions.by_id(db, head) is not None:
            yield self._repository.manifest(head)
        for version in versions.all_versions(db):
            if version.id != head:
                yield self._repository.manifest(version.id)


def _check_stored(repository: Repository, targets: Sequence[Target]) -> None:
    """Before anything is written: every matrix is in the index."""
    store = MatrixStore.of(repository)
    for target in targets:
        if target.container is not None and target.snapshot is not None:
            for index in target.container.tensors:
                digest = target.snapshot.hashes[index]
                if digest is not None and store.encoding(digest) is None:
                    raise Damaged(
                        f"a tensor of {target.path} is missing", why=digest, hint="dlv fsck"
                    )


def _small(repository: Repository, target: Target, batch: Batch) -> Written:
    """Anything but weights, beside its place."""
    place = batch.folder.root / target.path
    if target.entry is not None:
        data = FileStore(repository.files_git).read(target.entry)
        mode = 0o755 if target.entry.mode == "100755" else 0o644
        with batch.new(target.path, mode=mode) as out:
            out.write(data)
            size, digest = len(data), target.entry.blake3
            paths.read_back(out, digest, place)
    else:
        assert target.make is not None
        with batch.new(target.path) as out:
            size, digest = target.make(out)
            paths.read_back(out, digest, place)
    return Written(target.path, size, digest)


def _task(manifest: Manifest, target: Target, batch: Batch) -> Task[Written]:
    """A file of weights, beside its place, with what it takes of the store."""
    snapshot, container = target.snapshot, target.container
    assert container is not None
    assert snapshot is not None
    digests = [snapshot.hashes[index] for index in container.tensors]

    def write(source: retrieval.Source) -> Written:
        made = (manifest, snapshot, container, source)
        with batch.new(target.path) as out:
            if target.item.format == container.format:
                size, digest = snapshots.rebuild(out, *made)
            else:
                tensors = snapshots.renamed(*made)
                size, digest = snapshots.save(out, target.item.format, tensors, {})
            paths.read_back(out, digest, batch.folder.root / target.path)
        return Written(target.path, size, digest)

    return Task([digest for digest in digests if digest is not None], write)
