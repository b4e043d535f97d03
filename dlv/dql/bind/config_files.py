"""Configuration files that a query names: here, or among the files of a version."""

from __future__ import annotations

import tempfile
from pathlib import Path, PurePosixPath

import dlv.repository.revisions as revisions
from dlv.adapters import settings
from dlv.dql.bind.bound import ConfigFile
from dlv.errors import DlvError, NotFound, nearest
from dlv.objects.manifest import FileEntry
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository


def read(repository: Repository, directory: Path, where: str) -> ConfigFile:
    """`where` is a path from the directory, or REF:FILE."""
    path = directory / where
    if path.is_file():
        return ConfigFile(where, settings.read(str(path)), path.resolve().parent)
    if ":" in where:
        found = _stored(repository, where)
        if found is not None:
            return ConfigFile(where, found, stored=True)
    beside = path.parent
    names = [each.name for each in beside.iterdir()] if beside.is_dir() else []
    shown = where[: len(where) - len(PurePosixPath(where).name)]
    raise NotFound(
        f"there is no configuration file {where}",
        did_you_mean=[shown + name for name in nearest(PurePosixPath(where).name, names)],
        hint="a file of a version is called lenet@3:base.toml" if not names else None,
    )


def _stored(repository: Repository, where: str) -> dict[str, object] | None:
    try:
        reference = revisions.resolve(repository.database, where)
    except DlvError:
        return None
    if reference.file is None:
        return None
    entries = {entry.path: entry for entry in repository.manifest(reference.version.id).files}
    entry: FileEntry | None = entries.get(reference.file)
    if entry is None:
        label = reference.version.label
        raise NotFound(
            f"{label} has no file `{reference.file}`",
            did_you_mean=[f"{label}:{name}" for name in nearest(reference.file, entries)],
            hint=f"dlv show {label}",
        )
    content = FileStore(repository.files_git).read(entry)
    with tempfile.TemporaryDirectory(prefix="dlv-") as folder:
        # Its ending says what it is.
        copy = Path(folder, PurePosixPath(entry.path).name)
        copy.write_bytes(content)
        return settings.read(str(copy))
