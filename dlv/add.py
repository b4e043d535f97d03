"""`add`: record files for the next commit, or that tracked ones are to leave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dlv.staging as staging
from dlv.metadata import staged, versions
from dlv.metadata.staged import StagedFile
from dlv.repository import Repository
from dlv.staging import Added, Request


def add(repository: Repository, here: Path, given: Sequence[str], request: Request) -> Added:
    """Look at the files and stage them, all or none of those that were named."""
    added = staging.add(repository.root, here, given, request)
    _put(repository, added.files)
    return added


@dataclass(frozen=True)
class Removed:
    """Tracked files that leave the next version, and staged ones that do not get into it."""

    marks: list[StagedFile]
    back: list[str]


def remove(repository: Repository, here: Path, given: Sequence[str]) -> Removed:
    """Mark tracked files as removed; what was only staged is taken back."""
    names = [staging.relative(repository.root, Path(here, name), here) for name in given]
    waiting = [file.path for file in staged.everything(repository.database)]
    tracked = tracked_paths(repository)
    marks = []
    back = [path for path in waiting for name in names if _below(path, name)]
    for name in names:
        if any(_below(path, name) for path in tracked):
            marks += list(staging.removals(tracked, [name]))
        elif not any(_below(path, name) for path in waiting):
            list(staging.removals([*tracked, *waiting], [name]))  # says what was meant
    with repository.writing(), repository.database.atomic():
        staged.drop(repository.database, back)
        staged.put(repository.database, marks)
    left = {mark.path for mark in marks}
    return Removed(marks, [path for path in dict.fromkeys(back) if path not in left])


def _below(path: str, name: str) -> bool:
    return path == name or path.startswith(name.rstrip("/") + "/") or name in ("", ".")


def tracked_paths(repository: Repository) -> list[str]:
    """Files and weight containers of HEAD."""
    head = repository.head
    if head is None or versions.by_id(repository.database, head) is None:
        return []
    manifest = repository.manifest(head)
    containers = {c.path for s in manifest.snapshots for c in s.containers}
    return sorted({entry.path for entry in manifest.files} | containers)


def _put(repository: Repository, files: Sequence[StagedFile]) -> None:
    with repository.writing(), repository.database.atomic():
        staged.put(repository.database, files)
