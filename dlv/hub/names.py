"""Names of remotes, and what is known of them without asking: few imports, as `status` uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import dlv.disk.durable as durable
from dlv.config import Config
from dlv.errors import NotFound, UsageError, nearest
from dlv.metadata import versions
from dlv.metadata.versions import Version
from dlv.repository.handle import Repository

DEFAULT = "origin"
PREFIX = "remote."


def check_remote_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", name):
        raise UsageError(
            f"`{name}` cannot be the name of a remote", why="letters, digits and - are allowed"
        )


def configured(config: Config) -> dict[str, str]:
    """Name -> address of every remote."""
    found = [each for each in config.values() if each.key.startswith(PREFIX)]
    return {each.key.removeprefix(PREFIX): str(each.value) for each in found}


def default_name(config: Config) -> str | None:
    """The remote that is meant where none is named."""
    known = configured(config)
    if DEFAULT in known:
        return DEFAULT
    return next(iter(known)) if len(known) == 1 else None


def address(config: Config, name: str | None) -> tuple[str, str]:
    """(name, address) of the remote of that name, or of the one that is meant without a name."""
    known = configured(config)
    name = name or default_name(config)
    if name is None:
        if known:
            raise UsageError(
                "which remote?",
                why=f"configured: {', '.join(known)}",
                hint=f"name one: --remote {next(iter(known))}",
            )
        raise NotFound("no remote yet", hint="dlv remote add origin URL")
    if name not in known:
        raise NotFound(
            f"no remote `{name}`",
            hint="dlv remote list" if known else f"dlv remote add {name} URL",
            did_you_mean=nearest(name, known),
        )
    return name, known[name]


def split(
    config: Config, name: str | None, references: Sequence[str]
) -> tuple[str, str, list[str]]:
    """(remote, its address, references without it) of references such as origin:lenet@3."""
    wanted = []
    for text in references:
        before, colon, rest = text.partition(":")
        if colon:
            address(config, before)
            if name not in (None, before):
                raise UsageError("one remote at a time", why=f"{name} and {before} are named")
            name = before
        wanted.append(rest if colon else text)
    return (*address(config, name), wanted)


def note_published(repository: Repository, remote: str, ids: set[str]) -> None:
    """Keep which versions a remote has, for commands that do not ask it."""
    path = _note(repository, remote)
    known = noted(repository, remote)
    if known is None or not ids <= known:
        durable.make_directory(path.parent)
        data = json.dumps({"versions": sorted(ids.union(known or ()))}).encode()
        durable.replace(path, data, tmp_dir=repository.tmp)


def noted(repository: Repository, remote: str) -> set[str] | None:
    """Ids of versions that a remote had when it was asked last; None: it never was."""
    try:
        return set(json.loads(_note(repository, remote).read_bytes())["versions"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget(repository: Repository, remote: str) -> None:
    """The remote of this name is another one now."""
    _note(repository, remote).unlink(missing_ok=True)


def _note(repository: Repository, name: str) -> Path:
    return repository.cache / "remotes" / f"{name}.json"


def unpublished(repository: Repository, config: Config) -> tuple[str, list[Version]] | None:
    """(remote, HEAD and those of its ancestors that it lacks); None: nobody has asked it."""
    name = default_name(config)
    known = None if name is None else noted(repository, name)
    head = repository.head
    version = None if head is None else versions.by_id(repository.database, head)
    if name is None or known is None or version is None:
        return None
    line = versions.ancestors(repository.database, version.key)
    return name, [each for each in line if each.state == "live" and each.id not in known]
