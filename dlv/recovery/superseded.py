"""Packs on their way in or out: a file beside them names them while an archive is at work.

What a crash leaves is cleared by the next archive, and believed by no rebuild.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator

import dlv.disk.durable as durable
import dlv.repository.quarantine as quarantine
from dlv.canonical import dumps, is_hash
from dlv.errors import Conflict
from dlv.metadata import matrices
from dlv.pas.chunks import SUFFIX
from dlv.repository.handle import Repository

INTENT = "archive.json"
PATIENCE = 2.0  # seconds to wait for others where it can be left to the next archive


def left(repository: Repository) -> bool:
    """Whether old or half-written packs wait to be deleted."""
    return bool(intended(repository) or matrices.unused_packs(repository.database))


def settle(repository: Repository) -> bool:
    """Clear what an archive that was killed left half in or half out; whether there was such a one.

    While others read or write it stays: they may take long, and it does no harm.
    """
    db = repository.database
    used = set(matrices.packs(db)).difference(matrices.unused_packs(db))
    if {name for name, _ in used}.issuperset(intended(repository)):
        return False
    with contextlib.suppress(Conflict), removing(repository, PATIENCE):
        finish(repository)
    return True


@contextlib.contextmanager
def _patient(repository: Repository, seconds: float | None) -> Iterator[None]:
    before = repository.patience
    if seconds is not None:
        repository.patience = before.at_most(seconds)
    try:
        yield
    finally:
        repository.patience = before


@contextlib.contextmanager
def alone(repository: Repository, command: str = "archive") -> Iterator[None]:
    """One archive or gc at a time."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(repository.alone("archive.lock"))
        except Conflict as error:
            raise Conflict(
                "another dlv archive is at work on the repository"
                if command == "archive"
                else "a dlv archive or another gc is at work on the repository",
                why=error.why,
                hint=error.hint,
            ) from error
        yield


@contextlib.contextmanager
def removing(repository: Repository, most: float | None = None) -> Iterator[None]:
    """Hold the exclusive lock, so that packs may be removed; wait at most `most` seconds for it."""
    with contextlib.ExitStack() as held:
        with _patient(repository, most):
            held.enter_context(repository.alone("gc.lock"))
        repository.check_current()  # a rebuild may have put all packs that it found into a new one
        yield


def finish(repository: Repository) -> None:
    """Packs that were named and that the catalogue does not know go: those that gc was about to
    move when it was killed into the quarantine, others for good."""
    named = intended(repository)
    waiting = quarantine.waiting(repository) if named else {}
    known = {name for name, _ in matrices.packs(repository.database)}
    for name in named:
        path = durable.path_of(repository.packs, name, SUFFIX)
        if name not in known and path.exists():
            if path in waiting:
                durable.move_all([(path, waiting[path])])
            else:
                durable.remove(path)
    if (repository.path / INTENT).exists():
        durable.remove(repository.path / INTENT)


def intended(repository: Repository) -> list[str]:
    """Packs that are on their way in or out; none where no archive was interrupted."""
    path = repository.path / INTENT
    try:
        packs = json.loads(path.read_bytes())["packs"]
        return [name for name in packs if is_hash(name)]
    except (FileNotFoundError, IsADirectoryError):  # fsck names the latter
        return []
    except OSError as error:  # or the packs that it names would stay for ever
        raise durable.storage_error("read", path, error) from error
    except (ValueError, KeyError, TypeError):
        return []


def intend(repository: Repository, names: Iterable[str]) -> None:
    """Name packs beside those that are named already."""
    data = dumps({"packs": sorted({*intended(repository), *names})})
    durable.replace(repository.path / INTENT, data, tmp_dir=repository.tmp)


def clear(repository: Repository) -> tuple[int, int]:
    """Remove packs that nothing uses any more: (bytes that went, packs that must wait)."""
    db = repository.database
    try:
        with removing(repository, PATIENCE):
            unused = matrices.unused_packs(db)
            if unused:
                intend(repository, [name for name, _ in unused])
                with db.atomic():
                    matrices.forget_packs(db, [name for name, _ in unused])
            finish(repository)
    except Conflict:
        return 0, len(matrices.unused_packs(db))
    return sum(size for _, size in unused), 0
