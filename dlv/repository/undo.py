"""`undo`: take operations back by new facts, so that nothing is ever lost by it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import field

import dlv.metadata.facts as facts
from dlv.dataclass import dataclass
from dlv.errors import Conflict, NotFound, UnsafeInput
from dlv.metadata import versions
from dlv.metadata.facts import Operation, StagedFile
from dlv.repository.handle import HEAD, Change, Repository

# What these write cannot come back, or is seen by others already.
FINAL = {
    "gc": "what gc deleted can only be restored from quarantine",
    "publish": "others may already have it",
}
# Plain `undo` skips these: they change how things are stored, or only add results.
SKIPPED = ("archive", "eval", "fetch")
UNDOABLE_FACTS = ("number", "tag", "removal", "undo", "evaluation", "query")


@dataclass
class Undone:
    """One operation that was taken back, and what else that meant."""

    operation: Operation
    origin: Operation  # what it took back, through all undoing and doing again
    again: bool  # whether that stands again now
    head: str | None  # the version that HEAD is now
    moved: bool  # whether HEAD was moved
    staged: list[str] = field(default_factory=list)  # put back for the next commit
    gone: list[str] = field(default_factory=list)  # would have been, but the file is not there
    unstaged: list[str] = field(default_factory=list)  # are in a version again


def operations(repository: Repository) -> list[Operation]:
    """The operation log, newest first."""
    return facts.operations(repository.database)


def label(repository: Repository, version_id: str) -> str:
    """How the version is called."""
    version = versions.by_id(repository.database, version_id)
    return version_id[:12] if version is None else version.label


def undo(
    repository: Repository,
    author: str,
    *,
    count: int = 1,
    operation: int | None = None,
    dry_run: bool = False,
) -> list[Undone]:
    """Take back the newest operations, or the one of that number; an undo is done again.

    Without a number, archives and evaluations are skipped.
    """
    db = repository.database
    with db.atomic():
        log = facts.operations(db)
        chosen = _newest(log, count) if operation is None else [_numbered(log, operation)]
        undone: list[Undone] = []
        # All or none: facts that were written to disk could not be taken back.
        with contextlib.suppress(_RehearsedError), db.atomic():
            undone = _undo_all(repository, author, chosen, log, rehearsal=True)
            raise _RehearsedError
        return undone if dry_run else _undo_all(repository, author, chosen, log)


class _RehearsedError(Exception):
    pass


def _undo_all(
    repository: Repository,
    author: str,
    chosen: Sequence[Operation],
    log: Sequence[Operation],
    *,
    rehearsal: bool = False,
) -> list[Undone]:
    """One after the other, so that each finds the state that it left."""
    known = {entry.id: entry for entry in log}
    undone = []
    for target in chosen:
        with repository.change("undo", author, rehearsal=rehearsal) as change:
            undone.append(_undo(change, target, known))
    return undone


def _newest(log: Sequence[Operation], count: int) -> list[Operation]:
    found = [entry for entry in open_operations(log) if entry.verb not in SKIPPED]
    if len(found) < count and (found or count > 1):
        left = "only 1 is" if len(found) == 1 else f"{len(found)} are"
        raise NotFound(f"cannot undo {count} operations: {left} left", hint="dlv undo --list")
    return found[:count]


def open_operations(log: Sequence[Operation]) -> list[Operation]:
    """Return the operations that can be undone, newest first: no undos, nothing undone."""
    return [entry for entry in log if entry.undoes is None and not entry.undone]


def skipped_evaluations(repository: Repository, before: int) -> list[Operation]:
    """Return evaluations newer than an operation, which plain `undo` skipped."""
    log = open_operations(operations(repository))
    return [entry for entry in log if entry.verb == "eval" and entry.id > before]


def _numbered(log: Sequence[Operation], number: int) -> Operation:
    for entry in log:
        if entry.id == number:
            if entry.undone:
                undoing = next(e.id for e in log if e.undoes == number and not e.undone)
                raise Conflict(
                    f"operation {number} is already undone",
                    hint=f"to redo it: dlv undo --op {undoing}",
                )
            return entry
    raise NotFound(
        f"no operation {number}",
        why=f"operations are {log[-1].id} to {log[0].id}" if log else "there are none",
        hint="dlv undo --list",
    )


def _undo(change: Change, target: Operation, log: Mapping[int, Operation]) -> Undone:
    db = change.db
    _check(change, target, log)
    dangling = _dangling_tags(change)
    for digest in target.facts:
        if target.verb != "pull" or not facts.is_irreversible(db, digest):
            change.record("undo", digest, {})
    _check_tags(change, target, dangling)
    head_before = facts.state(db, HEAD)
    for key, value in target.after.items():
        # Only what is still as the operation left it goes back.
        if facts.state(db, key) == value:
            before = target.before.get(key)
            if key == HEAD and before is not None and versions.by_id(db, before) is None:
                raise _final(target, f"gc deleted {before[:12]}, the previous HEAD")
            facts.set_state(db, key, before)
    head = _standing(change, facts.state(db, HEAD))
    change.set_head(head)
    origin, again = _origin(target, log)
    result = Undone(target, origin, again, head, head != head_before)
    change.undoes = target.id
    what = f"{target.id}: {origin.verb} {origin.summary}".rstrip()
    change.summary = f"{what} again" if again else what
    if result.moved:
        _restage(change, result)
    return result


def _origin(target: Operation, log: Mapping[int, Operation]) -> tuple[Operation, bool]:
    """What an undo, or an undo of an undo, is about; and whether it will stand again."""
    origin, again = target, False
    while origin.undoes is not None and origin.undoes in log:
        origin, again = log[origin.undoes], not again
    return origin, again


def _standing(change: Change, head: str | None) -> str | None:
    """HEAD, or if its commit is undone the next older version that stands."""
    while head is not None:
        version = versions.by_id(change.db, head)
        if version is None:  # gc has taken it
            return None
        if version.state != "undone":
            break
        head = version.parents[0][0] if version.parents else None
    return head


def _check(change: Change, target: Operation, log: Mapping[int, Operation]) -> None:
    """Refuse what has no way back."""
    why = FINAL.get(target.verb)
    for digest in _origin(target, log)[0].facts:
        fact = facts.fact(change.db, digest)
        if fact is None:
            why = "its facts are missing"
            continue
        kind, subject = fact
        if target.verb == "pull" and facts.is_irreversible(change.db, digest):
            continue
        if kind not in UNDOABLE_FACTS:
            why = why or f"dlv {target.verb} cannot be undone"
        elif kind == "number" and _renamed_since(change, str(subject), digest):
            raise Conflict(
                f"operation {target.id} ({target.verb} {target.summary}) cannot be undone now",
                why="the model was renamed since",
                hint="undo the renaming first: dlv undo --list",
            )
        elif kind in ("number", "removal") and versions.by_id(change.db, str(subject)) is None:
            why = why or f"gc deleted {str(subject)[:12]}"
        elif kind == "removal" and _taken_since(change, str(subject), digest):
            why = why or f"gc deleted checkpoints of {str(subject)[:12]}"
    if why is not None:
        raise _final(target, why)


def _renamed_since(change: Change, version: str, digest: str) -> bool:
    """Return whether another fact gives the version its name by now."""
    found = facts.newest(change.db, "number", version)
    return found is not None and found[0] != digest and not facts.is_undone(change.db, digest)


def _final(target: Operation, why: str) -> UnsafeInput:
    return UnsafeInput(
        f"operation {target.id} ({target.verb} {target.summary}) cannot be undone",
        why=why,
        hint="to restore what gc deleted: dlv gc --restore ID"
        if "gc" in (target.verb, why[:2])
        else "to undo another operation: dlv undo --list",
    )


def _taken_since(change: Change, version: str, removal: str) -> bool:
    """Whether snapshots that this removal names are gone for good."""
    taken = facts.collected(change.db).get(version)
    return taken is not None and not taken.isdisjoint(facts.steps_of(change.db, removal))


def _dangling_tags(change: Change) -> set[str]:
    """Tags that name hidden versions, or are called like a model."""
    return {
        tag
        for tag, version in versions.tags(change.db)
        if version.state in ("removed", "undone") or versions.is_name(change.db, tag)
    }


def _check_tags(change: Change, target: Operation, before: set[str]) -> None:
    wrong = sorted(_dangling_tags(change) - before)
    if not wrong:
        return
    tag = wrong[0]
    named = versions.by_tag(change.db, tag)
    label = named.label if named is not None else "a version"
    why = f"tag `{tag}` points to {label}, which would be hidden"
    if versions.is_name(change.db, tag):
        why = f"`{tag}` is now the name of a model"
    raise Conflict(
        f"operation {target.id} ({target.verb} {target.summary}) cannot be undone now",
        why=why,
        hint=f"dlv tag --delete {tag}"
        if not versions.is_name(change.db, tag)
        else "to undo another operation: dlv undo --list",
    )


def _restage(change: Change, result: Undone) -> None:
    """Put back what a commit had consumed; what is committed again is staged no more."""
    files = facts.staged_from_json(result.origin.consumed)
    waiting = {file.path: file for file in facts.staged_files(change.db)}
    if not result.again:
        free = [file for file in files if file.path not in waiting]
        there = [file for file in free if _there(file)]
        result.gone = [file.path for file in free if file not in there]
        facts.insert_staged(change.db, there)
        result.staged = [file.path for file in there]
    else:
        same = [
            file.path
            for file in files
            if file.path in waiting and waiting[file.path].hash == file.hash
        ]
        facts.drop_staged(change.db, same)
        result.unstaged = same


def _there(file: StagedFile) -> bool:
    return file.role == "removed" or os.path.exists(file.source)
