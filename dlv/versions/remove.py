"""`rm`: hide versions or snapshots. Until gc takes their bytes it can be undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import dlv.repository.ballast as ballast
import dlv.repository.revisions as revisions
from dlv.dataclass import dataclass
from dlv.errors import Conflict, NotFound, UsageError
from dlv.metadata import facts, usage, versions
from dlv.metadata.versions import SnapshotRow, Version
from dlv.repository.handle import Repository
from dlv.versions.reachable import Reach, freed_together
from dlv.weights.store import MatrixStore


@dataclass(frozen=True)
class Removal:
    """What is hidden: a whole version, or some of its snapshots."""

    version: Version
    snapshots: tuple[SnapshotRow, ...] | None


@dataclass
class Removed:
    """`reclaimable`: bytes that gc can free then, if nothing is undone."""

    removals: list[Removal]
    reclaimable: int
    tags: list[str] = field(default_factory=list)  # deleted with their versions
    head: bool = False
    kept: list[str] = field(default_factory=list)  # visible versions that come from removed ones


def remove(
    repository: Repository,
    references: Sequence[str],
    author: str,
    *,
    steps: str | None = None,
    all_versions: bool = False,
    force: bool = False,
    dry_run: bool = False,
) -> Removed:
    """Hide whole versions, or with `steps` some of their snapshots.

    A model name that stands for several versions needs `all_versions`: on its own it would mean
    only the latest one.
    """
    db = repository.database
    wanted = None if steps is None else parse_steps(steps)
    if not dry_run:
        ballast.give_up(repository, least=ballast.SMALL)
    with repository.change("rm", author) as change:
        found = {
            version.id: version
            for text in references
            for version in _chosen(repository, text, all_versions=all_versions)
        }
        if wanted is None:
            removals = [Removal(version, None) for version in found.values()]
        else:
            removals = [
                Removal(version, _rows(repository, version, wanted)) for version in found.values()
            ]
        result = Removed(removals, _reclaimable(repository, removals))
        result.head = wanted is None and repository.head in found
        if wanted is None:
            result.tags = [tag for version in found.values() for tag in version.tags]
            if result.tags and not force:
                tagged = next(version for version in found.values() if version.tags)
                raise Conflict(
                    f"{tagged.label} has the tag `{tagged.tags[0]}`",
                    why="tagged versions are protected",
                    hint=f"dlv tag --delete {tagged.tags[0]}, or dlv rm -f deletes it too",
                )
            if not force:
                _check_bases(repository, found)
            result.kept = [
                child.label
                for version in found.values()
                for child in versions.children(db, version.key)
                if child.id not in found and child.state in ("live", "recovered")
            ]
        if dry_run:
            change.cancel()
            return result
        for tag in result.tags:
            change.record("tag", tag, {"version": None})
        for removal in removals:
            change.record("removal", removal.version.id, {"steps": _steps(repository, removal)})
        change.summary = ", ".join(_name(removal) for removal in removals)
    return result


def _check_bases(repository: Repository, removed: Mapping[str, Version]) -> None:
    """Tagged versions whose deltas need what is to go would keep nearly all of it."""
    for tag, tagged in versions.tags(repository.database):
        for version in removed.values():
            if tagged.id not in removed and usage.rests_on(
                repository.database, tagged.key, version.key
            ):
                raise Conflict(
                    f"{tagged.label}, tagged `{tag}`, is stored as a delta to {version.label}",
                    why="the bytes would stay as long as that tag does",
                    hint="dlv rm -f hides it nevertheless",
                )


def _chosen(repository: Repository, text: str, *, all_versions: bool) -> list[Version]:
    line = versions.of_name(repository.database, text)
    if len(line) > 1 and not all_versions:
        raise UsageError(
            f"`{text}` has {len(line)} versions",
            hint=f"dlv rm {line[-1].label} removes one, dlv rm {text} --all-versions all of them",
        )
    if line:
        return line
    version = revisions.version(repository.database, text)
    if version.state in ("removed", "undone"):
        raise Conflict(
            f"{version.label} is already {version.state}", hint="to restore it: dlv undo --list"
        )
    return [version]


def parse_steps(text: str) -> list[tuple[int, int]]:
    """`100,300-500`: single steps and ranges, both ends included."""
    found = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            low = int(first)
            high = int(last) if dash else low
        except ValueError:
            low, high = 1, 0
        if low > high:
            raise UsageError(
                f"`{text}` does not name steps",
                why=f"`{part.strip()}` is not a step or a range of steps",
                hint="dlv rm REF --checkpoints 100,300-500",
            )
        found.append((low, high))
    return found


def _rows(
    repository: Repository, version: Version, wanted: Sequence[tuple[int, int]]
) -> tuple[SnapshotRow, ...]:
    """The snapshots at these steps; a single step that is not there is an error."""
    rows = [r for r in versions.snapshots(repository.database, version.key) if not r.removed]
    known = {row.step for row in rows}
    chosen = []
    for low, high in wanted:
        here = [row for row in rows if row.step is not None and low <= row.step <= high]
        if not here:
            steps = ", ".join(str(row.step) for row in rows if row.step is not None)
            raise NotFound(
                f"{version.label} has no checkpoint at step {low}"
                + (f" to {high}" if high != low else ""),
                why=f"it has {steps}" if known - {None} else "its checkpoints have no steps",
                hint=f"dlv show {version.label}",
            )
        chosen += here
    own = [row for row in chosen if row.own]
    if own:
        raise Conflict(
            f"step {own[0].step} is {version.label}'s own weights",
            why="they stay as long as the version does",
            hint=f"dlv rm {version.label} removes the whole version",
        )
    return tuple(dict.fromkeys(chosen))


def _steps(repository: Repository, removal: Removal) -> list[int] | None:
    """For the fact, of which the newest counts alone: earlier removals are said again."""
    if removal.snapshots is None:
        return None
    found = facts.newest(repository.database, "removal", removal.version.id)
    before = [] if found is None else found[1]["steps"] or []
    return sorted({*before, *(row.step for row in removal.snapshots if row.step is not None)})


def _reclaimable(repository: Repository, removals: Sequence[Removal]) -> int:
    db = repository.database
    store = MatrixStore.of(repository)
    reach = Reach(db, repository.manifest, lambda digest: bytes(store.object("series", digest)))
    gone = {removal.version.key: removal.snapshots for removal in removals}
    try:
        return freed_together(reach, versions.all_versions(db), gone)
    finally:
        store.close()


def _name(removal: Removal) -> str:
    if removal.snapshots is None:
        return removal.version.label
    return f"{removal.version.label} steps {', '.join(str(r.step) for r in removal.snapshots)}"
