"""Mirrors: repositories in the cache with the versions of a remote, to be read like local ones.

The weights stay on the remote. Chunks of them are fetched when they are read.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import dlv.hub.pull as pulling
import dlv.hub.service as service
from dlv.config import Config
from dlv.errors import Damaged, NewerFormat, NotFound, UsageError, nearest
from dlv.hub.history import published
from dlv.hub.names import remote_in
from dlv.hub.promised import find_promised
from dlv.hub.remotes import Remote, open_remote
from dlv.metadata import versions
from dlv.objects.manifest import NAME
from dlv.repository.handle import Repository

AUTHOR = "mirror"
_BASE = re.compile("[@~^/:]")
_ID = re.compile("[0-9a-f]{4,64}")


def mirror_of(
    remote: Remote,
    names: Sequence[str] | None,
    environ: Mapping[str, str],
    local: Repository | None = None,
) -> Repository:
    """Return the mirror of a remote, with the newest versions of these models, or of all.

    `local`: the repository whose memory of the remote's history counts, too.
    """
    if names is None:
        names = remote.history.names()
    folder = remote.history.cache / "mirror"
    try:
        return _refreshed(folder, remote, names, environ, local)
    except (Damaged, NewerFormat, OutdatedMirrorError):
        shutil.rmtree(folder)
        return _refreshed(folder, remote, names, environ, local)


class OutdatedMirrorError(Exception):
    """The mirror has versions that the remote has retired or renumbered."""


def _refreshed(
    folder: Path,
    remote: Remote,
    names: Sequence[str],
    environ: Mapping[str, str],
    local: Repository | None,
) -> Repository:
    mirror = open_mirror(folder, remote, environ, local)
    try:
        for name in names:
            update(mirror, remote, name, local)
    except OutdatedMirrorError:
        mirror.close()
        raise
    return mirror


def open_mirror(
    folder: Path, remote: Remote, environ: Mapping[str, str], local: Repository | None = None
) -> Repository:
    """Return the mirror in a folder as it is; it is created if there is none."""
    mirror, _ = Repository.init(folder)
    mirror.frozen = True
    mirror.find_promised = lambda mirrored: find_promised(mirrored, environ, remote, local)
    return mirror


def update(mirror: Repository, remote: Remote, name: str, local: Repository | None = None) -> None:
    """Pull what the mirror lacks of a model; OutdatedMirrorError if it has too much."""
    chain = remote.chain(mirror if local is None else local, name)
    numbers = {ref.manifest: ref.number for ref in published(chain).values()}
    mirrored = {v.id: v.number for v in versions.of_name(mirror.database, name)}
    if not mirrored.items() <= numbers.items():
        raise OutdatedMirrorError
    if len(mirrored) < len(numbers):
        request = pulling.Request([name], AUTHOR, metadata_only=True, numbered=True)
        pulling.pull(mirror, remote, request)


def look(
    local: Repository, config: Config, environ: Mapping[str, str], references: Sequence[str]
) -> tuple[Repository, list[str], Remote]:
    """Return (mirror, references in it, remote) of references to versions of one remote."""
    named = {remote_in(config, text) for text in references}
    if len(named) > 1:
        raise UsageError(
            "versions of different repositories cannot be combined here",
            why=", ".join(references),
            hint=f"dlv pull --metadata-only {next(t for t in references if remote_in(config, t))}",
        )
    (name,) = named
    assert name is not None
    plain = [text.partition(":")[2] for text in references]
    remote = open_remote(local, name, config.remotes()[name], environ)
    if remote.store.managed:
        plain = service.resolved(remote, plain)
    return mirror_of(remote, models_of(remote, plain), environ, local), plain, remote


def models_of(remote: Remote, references: Sequence[str]) -> list[str] | None:
    """Return the models that references name, None for all if there is an id or a pattern."""
    bases = dict.fromkeys(_BASE.split(text, maxsplit=1)[0] for text in references)
    if not all(NAME.match(base) for base in bases):
        return None
    known = remote.history.names()
    for base in bases:
        if base not in known:
            if _ID.match(base):
                return None
            raise NotFound(
                f"{remote.name} has no model `{base}`",
                did_you_mean=[f"{remote.name}:{near}" for near in nearest(base, known)],
                hint=f"dlv list {remote.name}:",
            )
    return list(bases)
