"""`add`: record files for the next commit, or that tracked ones are to leave it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import dlv.disk.durable as durable
import dlv.disk.paths as paths
import dlv.versions.staging as staging
from dlv.adapters import exported
from dlv.canonical import hash_bytes
from dlv.errors import UsageError
from dlv.metadata import networks, staged, versions
from dlv.metadata.staged import StagedFile
from dlv.repository.handle import Repository
from dlv.versions.staging import Added, Request


def add(repository: Repository, here: Path, given: Sequence[str], request: Request) -> Added:
    """Look at the files and stage them, all or none of those that were named."""
    if request.input_shapes and request.network is None:
        raise UsageError("--input-shape belongs to --network", hint="--network train.py:make_model")
    db = repository.database
    known = replace(request, known=lambda net: networks.find(db, net) is not None)
    added = staging.add(repository.root, here, given, known)
    if request.network is not None:
        made, notes = _export(repository, here, request.network, request.input_shapes)
        added.files.append(made)
        added.warnings += notes
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
        staged.insert_staged(repository.database, marks)
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


def _export(
    repository: Repository, here: Path, code: str, shapes: Sequence[str]
) -> tuple[StagedFile, list[str]]:
    """The network of a model that FILE.py:FACTORY makes, and notes; this runs the user's code."""
    file, _, factory = code.rpartition(":")
    if not file or not factory:
        raise UsageError(
            f"`{code}` is not FILE.py:FACTORY",
            hint="as in train.py:make_model, a function that takes nothing and returns a module",
        )
    folder = repository.path / "runs" / "networks"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{staging.relative(repository.root, Path(here, file), here)}:{factory}"
    target = folder / f"{hash_bytes(name.encode())[:16]}{exported.SUFFIX}"
    lengths = [",".join(map(str, _shape(text))) for text in shapes]
    with durable.TemporaryFile(repository.tmp, suffix=exported.SUFFIX) as made:
        from dlv.adapters.aten import aside

        found = aside.network_of(f"{Path(here, file)}:{factory}", lengths, made.path)
        found.close()
        made.path.rename(target)
    digest, status = paths.hash_file(target)
    entry = StagedFile(
        *(name, str(target), "network", exported.FORMAT, None),
        *(status.st_size, status.st_mtime_ns, digest),
    )
    return entry, [f"{name}: {note}" for note in found.notes]


def _shape(text: str) -> tuple[int, ...]:
    """A shape as it is typed: `1,1,28,28` or `1x1x28x28`."""
    parts = [part.strip() for part in text.replace("x", ",").split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(
            f"`{text}` is no shape",
            why="lengths with commas between, the batch first",
            hint="1,1,28,28",
        )
    return tuple(int(part) for part in parts)


def _put(repository: Repository, files: Sequence[StagedFile]) -> None:
    with repository.writing(), repository.database.atomic():
        staged.insert_staged(repository.database, files)
