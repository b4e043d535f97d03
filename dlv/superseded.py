"""Packs on their way in or out: a file beside them names them while an archive is at work.

What a crash leaves is cleared by the next archive, and believed by no rebuild.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import dlv.durable as durable
from dlv.canonical import dumps, is_hash
from dlv.errors import Conflict
from dlv.metadata import matrices
from dlv.pas.packs import SUFFIX
from dlv.repository import Repository

INTENT = "archive.json"
PATIENCE = 2.0  # seconds to wait for readers and writers before old packs go


def settle(repository: Repository) -> list[str]:
    """Clear what an archive that was killed left half in or half out; returns the packs."""
    with repository.alone("gc.lock"):
        return _settle(repository)


def _settle(repository: Repository) -> list[str]:
    named = intended(repository)
    if not named:
        return []
    known = {name for name, _ in matrices.packs(repository.database)}
    gone = []
    for name in named:
        path = durable.path_of(repository.packs, name, SUFFIX)
        if name not in known and path.exists():
            durable.remove(path)
            gone.append(name)
    durable.remove(repository.path / INTENT)
    return gone


def intended(repository: Repository) -> list[str]:
    """Packs that are on their way in or out; none where no archive was interrupted."""
    try:
        packs = json.loads((repository.path / INTENT).read_bytes())["packs"]
        return [name for name in packs if is_hash(name)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def intend(repository: Repository, names: Iterable[str]) -> None:
    data = dumps({"packs": sorted(names)})
    durable.replace(repository.path / INTENT, data, tmp_dir=repository.tmp)


def clear(repository: Repository) -> tuple[int, int, int]:
    """Remove packs that nothing uses any more: (how many, bytes, how many must wait)."""
    db = repository.database
    unused = matrices.unused_packs(db)
    before = repository.patience
    repository.patience = PATIENCE
    try:
        with repository.alone("gc.lock"):
            unused = matrices.unused_packs(db)
            intend(repository, [*intended(repository), *(name for name, _ in unused)])
            with db.atomic():
                matrices.forget_packs(db, [name for name, _ in unused])
            _settle(repository)
    except Conflict:
        return 0, 0, len(unused)
    finally:
        repository.patience = before
    return len(unused), sum(size for _, size in unused), 0
