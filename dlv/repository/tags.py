"""`tag`: names for versions that do not change by themselves."""

from __future__ import annotations

import dlv.objects.manifest as manifest_format
import dlv.repository.revisions as revisions
from dlv.canonical import is_hash
from dlv.dataclass import dataclass
from dlv.errors import Conflict, NotFound, UsageError, nearest
from dlv.metadata import versions
from dlv.metadata.versions import Version
from dlv.repository.handle import Change, Repository


@dataclass(frozen=True)
class Tagged:
    """`version` is None if the tag was deleted, `before` what it named until now."""

    name: str
    version: Version | None
    before: Version | None

    @property
    def changed(self) -> bool:
        return (self.version and self.version.id) != (self.before and self.before.id)


def tags(repository: Repository) -> list[tuple[str, Version]]:
    """All tags in the order of the alphabet."""
    return versions.tags(repository.database)


def set_tag(
    repository: Repository, name: str, reference: str, author: str, *, move: bool = False
) -> Tagged:
    """Let a tag name a version; one that names another is only moved on request."""
    check_name(name)
    db = repository.database
    with repository.change("tag", author) as change:
        version = revisions.version(db, reference)
        before = versions.by_tag(db, name)
        if before is not None and before.id == version.id:
            change.cancel()
            return Tagged(name, version, before)
        if before is not None and not move:
            raise Conflict(
                f"the tag `{name}` exists already",
                why=f"it names {before.label}",
                hint=f"dlv tag {name} {reference} --move",
            )
        if versions.is_name(db, name):
            raise Conflict(
                f"`{name}` is the name of a model",
                why="a tag and a name could not be told apart",
                hint="choose another tag",
            )
        if version.state in ("removed", "undone"):
            raise Conflict(
                f"{version.label} was {version.state}",
                why="a tag would keep a version that is to go",
                hint="dlv undo --list shows how to get it back",
            )
        _record(change, name, version)
        moved = f", was {before.label}" if before is not None else ""
        change.summary = f"{name} -> {version.label}{moved}"
    return Tagged(name, version, before)


def delete_tag(repository: Repository, name: str, author: str) -> Tagged:
    """Forget a tag; the version stays."""
    db = repository.database
    with repository.change("tag", author) as change:
        before = versions.by_tag(db, name)
        if before is None:
            known = [tag for tag, _ in versions.tags(db)]
            raise NotFound(
                f"there is no tag `{name}`",
                why=f"there are {', '.join(known[:8])}" if known else "there are no tags",
                did_you_mean=nearest(name, known),
                hint="dlv tag --list",
            )
        _record(change, name, None)
        change.summary = f"{name} deleted, was {before.label}"
    return Tagged(name, None, before)


def _record(change: Change, name: str, version: Version | None) -> None:
    change.record("tag", name, {"version": None if version is None else version.id})


def check_name(name: str) -> None:
    """Refuse what a version reference would read as something else."""
    if not manifest_format.NAME.match(name) or name in ("HEAD", "latest") or is_hash(name):
        raise UsageError(
            f"`{name}` cannot be a tag",
            why="letters, digits and . _ + - are allowed, the first a letter or digit",
            hint="dlv tag best-so-far lenet@3",
        )
