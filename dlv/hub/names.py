"""Names of remotes, and what is known about them offline; `status` needs both, so few imports."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

import dlv.disk.durable as durable
from dlv.config import REMOTE_PREFIX, Config, is_key
from dlv.errors import NotFound, UsageError, nearest
from dlv.metadata import versions
from dlv.metadata.versions import Version
from dlv.repository.handle import Repository

DEFAULT = "origin"


def check_remote_name(name: str) -> None:
    """Refuse a name that cannot be a key of the configuration."""
    if not is_key(REMOTE_PREFIX + name):
        raise UsageError(
            f"`{name}` cannot be the name of a remote", why="letters, digits and - are allowed"
        )


def default_name(config: Config) -> str | None:
    """Return the remote to use if none is named: origin, or the only one."""
    known = config.remotes()
    if DEFAULT in known:
        return DEFAULT
    return next(iter(known)) if len(known) == 1 else None


def address(config: Config, name: str | None) -> tuple[str, str]:
    """Return (name, address) of a remote, by default of the one in `default_name`."""
    known = config.remotes()
    name = name or default_name(config)
    if name is None:
        if known:
            raise UsageError(
                "a remote must be named",
                why=f"configured are {', '.join(known)}",
                hint=f"add --remote {next(iter(known))}",
            )
        raise NotFound("no remote yet", hint="dlv remote add origin URL")
    if name not in known:
        raise NotFound(
            f"no remote `{name}`", hint=_hint(name, known), did_you_mean=nearest(name, known)
        )
    return name, known[name]


def _hint(name: str, known: Collection[str]) -> str:
    if "://" in name:
        return f"use the name of a remote: dlv remote add NAME {name}"
    return "dlv remote list" if known else f"dlv remote add {name} URL"


def remote_in(config: Config, text: str) -> str | None:
    """Return the remote that a reference such as origin:lenet@3 names, None if there is none."""
    name, colon, _ = text.partition(":")
    return name if colon and name in config.remotes() else None


def split(
    config: Config, name: str | None, references: Sequence[str]
) -> tuple[str, str, list[str]]:
    """Return (remote, address, references without the remote) of texts such as origin:lenet@3."""
    plain = []
    for text in references:
        remote, colon, reference = text.partition(":")
        if colon:
            address(config, remote)
            if name not in (None, remote):
                raise UsageError(
                    "only one remote can be used at a time", why=f"{name} and {remote} are named"
                )
            name = remote
        plain.append(reference if colon else text)
    return (*address(config, name), plain)


def note_published(repository: Repository, remote: str, ids: set[str]) -> None:
    """Remember that a remote has these versions, for commands that do not contact it."""
    path = _note(repository, remote)
    known = noted(repository, remote)
    if known is None or not ids <= known:
        durable.make_directory(path.parent)
        data = json.dumps({"versions": sorted(ids.union(known or ()))}).encode()
        durable.replace(path, data, tmp_dir=repository.tmp)


def noted(repository: Repository, remote: str) -> set[str] | None:
    """Return ids of versions that the remote had at the last contact; None if there was none."""
    try:
        return set(json.loads(_note(repository, remote).read_bytes())["versions"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget(repository: Repository, remote: str) -> None:
    """Forget what a remote has, because its name now leads elsewhere."""
    _note(repository, remote).unlink(missing_ok=True)


def _note(repository: Repository, name: str) -> Path:
    return repository.cache / "remotes" / f"{name}.json"


def unpublished(repository: Repository, config: Config) -> tuple[str, list[Version]] | None:
    """Return the remote, and HEAD and those of its ancestors that the remote lacks.

    Return None without a HEAD, or if the remote was never contacted.
    """
    name = default_name(config)
    known = None if name is None else noted(repository, name)
    head = repository.head
    version = None if head is None else versions.by_id(repository.database, head)
    if name is None or known is None or version is None:
        return None
    lineage = versions.ancestors(repository.database, version.key)
    return name, [v for v in lineage if v.state == "live" and v.id not in known]
