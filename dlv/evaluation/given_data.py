"""Which data an evaluation is about: a file here, one stored with a version, or code."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import dlv.repository.revisions as revisions
from dlv.adapters.data.sets import Data, Wanted, of_arrays, open_data
from dlv.adapters.data.settings import Settings
from dlv.errors import DlvError, NotFound, UsageError, nearest
from dlv.objects.manifest import FileEntry, Manifest
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository

CODE = "python:"
SUFFIXES = (".npz", ".npy", ".csv", ".tsv")
ROLE = "data"


@dataclass(frozen=True)
class DataSource:
    """`where` as it is opened; `entry`, `arrays`: a stored file or the data itself instead."""

    where: str
    entry: FileEntry | None = None
    arrays: Any = None


def split_words(
    repository: Repository, words: Sequence[str], directory: Path
) -> tuple[list[str], str | None]:
    """The references and DATA: the last word, if it is a file, a folder, `REF:FILE` or code."""
    *references, last = words
    if not references:
        return list(words), None
    if last.startswith(CODE) or (directory / last).exists():
        return references, last
    if ":" in last and _file(repository, last) is not None:
        return references, last
    if PurePosixPath(last).suffix.lower() in SUFFIXES:
        beside = directory / PurePosixPath(last).parent
        names = [p.name for p in beside.iterdir()] if beside.is_dir() else []
        raise NotFound(
            f"no file {last}",
            why="the last word names the data, and no version is called so either",
            did_you_mean=nearest(PurePosixPath(last).name, names),
        )
    return list(words), None


def find_data(
    repository: Repository, named: str | None, references: Sequence[str], directory: Path
) -> DataSource:
    """What was named, or else the one data set that was added with the versions."""
    if named is not None:
        if not named.startswith(CODE) and not (directory / named).exists() and ":" in named:
            entry = _file(repository, named)
            if entry is not None:
                return DataSource(named, entry)
        return DataSource(named)
    stored: dict[str, tuple[str, FileEntry]] = {}
    for reference in references:
        version = revisions.resolve(repository.database, reference).version
        for entry in repository.manifest(version.id).files:
            if entry.role == ROLE:
                stored.setdefault(entry.blake3, (f"{version.label}:{entry.path}", entry))
    if len(stored) == 1:
        return DataSource(*next(iter(stored.values())))
    names = [name for name, _ in stored.values()]
    example = f"dlv eval {references[0]} {names[0] if names else 'test.npz'}"
    raise UsageError(
        "which data? " + ("there are several" if names else "none is stored with the version"),
        why=", ".join(names[:4])
        or "it reads .npz, .npy, .csv, a folder of images, python:module:function",
        hint=example,
    )


def open_source(
    repository: Repository,
    data: DataSource,
    settings: Settings,
    wanted: Sequence[Wanted],
    directory: Path,
) -> Data:
    """The rows; those of a stored file are taken out of the repository for as long as it takes."""
    if data.arrays is not None:
        return of_arrays(data.where, data.arrays, settings, wanted)
    if data.entry is None:
        return open_data(data.where, settings, wanted, directory)
    content = FileStore(repository.files_git).read(data.entry)
    with tempfile.TemporaryDirectory(prefix="dlv-") as folder:
        # Only the ending counts; once it is open, the file may go.
        path = Path(folder, f"data{PurePosixPath(data.entry.path).suffix}")
        path.write_bytes(content)
        del content
        found = open_data(str(path), settings, wanted)
    found.name = data.where
    return found


def _file(repository: Repository, text: str) -> FileEntry | None:
    """The stored file of `REF:FILE`; None where the text is no such reference."""
    try:
        found = revisions.resolve(repository.database, text)
    except DlvError:
        return None
    if found.file is None:
        return None
    manifest: Manifest = repository.manifest(found.version.id)
    for entry in manifest.files:
        if entry.path == found.file:
            return entry
    label = found.version.label
    raise NotFound(
        f"{label} has no file `{found.file}`",
        did_you_mean=[
            f"{label}:{n}" for n in nearest(found.file, [e.path for e in manifest.files])
        ],
        hint=f"dlv show {label}",
    )
