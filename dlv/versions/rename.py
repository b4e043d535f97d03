"""`mv`: rename a model."""

from __future__ import annotations

from dlv.dataclass import dataclass
from dlv.errors import Conflict, NotFound, nearest
from dlv.metadata import versions
from dlv.metadata.versions import Version
from dlv.objects.manifest import check_name
from dlv.repository.handle import Repository

# An undone version keeps the name under which it was committed.
RENAMED = ("live", "removed")


@dataclass(frozen=True)
class Renamed:
    """The versions of a model that was renamed, oldest first, under their new name."""

    old: str
    new: str
    versions: list[Version]


def rename(repository: Repository, old: str, new: str, author: str) -> Renamed:
    """Give all versions of a model another name; numbers and ids stay."""
    check_name(new)
    db = repository.database
    with repository.change("mv", author) as change:
        found = [
            version
            for version in versions.all_versions(db, RENAMED)
            if version.name == old and version.number is not None
        ]
        if not found:
            raise NotFound(
                f"no model `{old}`",
                did_you_mean=nearest(old, versions.names(db)),
                hint="to list models: dlv list --names",
            )
        if versions.is_name(db, new):
            raise Conflict(f"model `{new}` already exists", hint="choose another name")
        if versions.by_tag(db, new) is not None:
            raise Conflict(f"`{new}` is already a tag", hint="choose another name")
        for version in found:
            change.record("number", version.id, {"name": new, "number": version.number})
        change.summary = f"{old} -> {new}"
        renamed = [versions.by_id(db, version.id) for version in reversed(found)]
    return Renamed(old, new, [version for version in renamed if version is not None])
