"""`status`: staged files, changes since HEAD, and weights in no version."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path

import dlv.disk.user_files as user_files
import dlv.metadata.facts as facts
from dlv.adapters.checkpoint import Checkpoint
from dlv.dataclass import dataclass
from dlv.disk.ignore import walk
from dlv.metadata import versions
from dlv.metadata.facts import StagedFile
from dlv.metadata.versions import Version
from dlv.objects.manifest import Manifest
from dlv.repository.handle import Repository
from dlv.versions.working import MISSING, SAME, WEIGHT_SUFFIXES, Tracked, Working, tracked

UNREADABLE = "unreadable"
_ZIP, _ARRAY = b"PK\x03\x04", b"\x93NUMPY"


@dataclass(frozen=True)
class StagedChange:
    """A staged file, and why it can no longer be committed as it was added."""

    file: StagedFile
    problem: str | None


@dataclass(frozen=True)
class Modified:
    """A tracked file that differs from HEAD: changed, missing, in the way, unreadable."""

    item: Tracked
    why: str


@dataclass(frozen=True)
class Untracked:
    path: str
    bytes: int


@dataclass
class Status:
    """`head` is None before the first commit; `next` is what `copy` set for the next one."""

    head: Version | None
    next: tuple[str, str] | None
    staged: list[StagedChange] = field(default_factory=list)
    modified: list[Modified] = field(default_factory=list)
    untracked: list[Untracked] = field(default_factory=list)
    parts: list[Untracked] = field(default_factory=list)  # of files, left by killed commands
    unreadable: list[str] = field(default_factory=list)  # folders that could not be searched

    @property
    def clean(self) -> bool:
        return not (self.staged or self.modified or self.untracked)


def status(
    repository: Repository,
    opened: Callable[[str, Path], Checkpoint],
    is_data_set: Callable[[str], bool],
) -> Status:
    """Look at the working folder.

    `opened` opens weights where only their content can tell, `is_data_set` looks into an npz:
    both are handed in because they take longer to load than most calls of this take.
    """
    db = repository.database
    with db.snapshot():
        head = None if repository.head is None else versions.by_id(db, repository.head)
        result = Status(head, repository.next)
        waiting = facts.staged_files(db)
        working = Working(repository.root, db, opened)
        gone = [] if head is None else _removed_snapshots(repository, head)
    result.staged = [StagedChange(file, _problem(file)) for file in waiting]
    manifest = None if head is None else repository.manifest(head.id)
    items = {} if manifest is None else tracked(manifest, gone)
    named = {file.path for file in waiting}
    replaced = any(file.role in ("weights", "snapshot") for file in waiting)
    for path, item in sorted(items.items()):
        why = SAME if path in named else _compare(working, item)
        # New weights take the place of all old ones: nobody misses those.
        missed = not (why == MISSING and replaced and item.role == "weights")
        if why != SAME and missed:
            result.modified.append(Modified(item, why))
    held = _Held(repository, head)
    parts: list[Path] = []

    def unreadable(folder: Path) -> None:
        result.unreadable.append(folder.relative_to(repository.root).as_posix())

    for found in walk(repository.root, repository.root, parts.append, unreadable):
        name = found.relative_to(repository.root).as_posix()
        if name not in named and name not in items and _looks_like_weights(found):
            # What no command has ever seen is in no version: most files need no search.
            if found.suffix.lower() == ".npz" and is_data_set(str(found)):
                continue
            known = held.find(name) if working.has_seen(name) else None
            if known is None or working.compare(known) != SAME:
                result.untracked.append(Untracked(name, found.stat().st_size))
    for part, size in user_files.left(parts):
        result.parts.append(Untracked(part.relative_to(repository.root).as_posix(), size))
    working.remember()
    return result


def _compare(working: Working, item: Tracked) -> str:
    """Compare a file with HEAD; one that cannot be read must not end the whole status."""
    try:
        return working.compare(item)
    except OSError:
        return UNREADABLE


def _removed_snapshots(repository: Repository, head: Version) -> list[int]:
    rows = versions.snapshots(repository.database, head.key)
    return [row.index for row in rows if row.removed]


def _problem(file: StagedFile) -> str | None:
    if file.role == "removed":
        return None
    for path, look in file.looks.items():
        what = "" if path == file.source else f"{Path(path).name} "
        try:
            status = os.stat(path)
        except OSError:
            return f"{what}missing since it was staged"
        if (status.st_size, status.st_mtime_ns) != look:
            return f"{what}changed since it was staged"
    return None


class _Held:
    """Weight files of the versions before HEAD: a checkpoint stays known when the next comes."""

    def __init__(self, repository: Repository, head: Version | None) -> None:
        self._found: dict[str, Tracked] = {}
        self._rest = iter(_ancestors(repository, head))

    def find(self, path: str) -> Tracked | None:
        while path not in self._found:
            manifest = next(self._rest, None)
            if manifest is None:
                return None
            for name, item in tracked(manifest).items():
                if item.role == "weights":
                    self._found.setdefault(name, item)
        return self._found[path]


def _ancestors(repository: Repository, head: Version | None) -> Iterator[Manifest]:
    """Newest first, each read only when it is asked for."""
    if head is not None:
        for version in versions.ancestors(repository.database, head.key):
            yield repository.manifest(version.id)


def _looks_like_weights(path: Path) -> bool:
    """By its name, and where that says little by its first bytes."""
    suffix = path.suffix.lower()
    if suffix not in WEIGHT_SUFFIXES:
        return False
    if suffix == ".safetensors":
        return True
    try:
        with path.open("rb") as file:
            head = file.read(6)
    except OSError:
        return False
    return head.startswith(_ZIP) or head == _ARRAY
