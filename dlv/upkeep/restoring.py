"""`gc --restore`: all that lies in a folder of quarantine comes back, whole or not at all.

A mark is durable before the first file moves. Until the catalogue that knows of it is in its place,
all that has come back belongs to nobody, and what was taken is still taken; then it is done. A
restore that was killed, or stopped by an error, is finished by the next `gc`, which takes nothing
meanwhile, or by the same command.
"""

from __future__ import annotations

import dlv.disk.durable as durable
import dlv.recovery.rebuild as rebuild
import dlv.recovery.superseded as superseded
import dlv.repository.quarantine as quarantine
from dlv.dataclass import dataclass
from dlv.errors import NotFound, StorageError
from dlv.metadata import dump, facts
from dlv.metadata.database import Database
from dlv.objects.fact import Fact
from dlv.repository.handle import Repository
from dlv.repository.quarantine import Place, Restoring

VERB = "gc"


@dataclass(frozen=True)
class Restored:
    """What came back out of quarantine: versions are hidden as before gc. `before`: by an earlier
    command already."""

    id: str
    objects: int
    versions: tuple[str, ...]
    before: bool = False


def restore(repository: Repository, wanted: str, author: str) -> Restored:
    """Move everything back, take back that gc took it, and make the catalogue again."""
    with superseded.alone(repository, "gc"), superseded.removing(repository):
        durable.clear_dead(repository.tmp)
        waiting = quarantine.restoring(repository)
        if waiting is not None:
            done = finish(repository, waiting)
            if done.id == wanted:
                return done
        try:
            place = quarantine.named(repository, wanted)
        except NotFound:
            if _said(wanted) in {row.summary for row in facts.operations(repository.database)}:
                return Restored(wanted, 0, (), before=True)
            raise
        superseded.finish(repository)  # what a gc that was killed had still to move there
        taken = _taking(repository, place)
        undoing = [_undo(repository.database, digest, author) for digest in taken]
        return finish(repository, quarantine.mark(repository, place, undoing))


def finish(repository: Repository, waiting: Restoring) -> Restored:
    """Bring what the mark names to its end. The caller holds both locks."""
    try:
        return _finish(repository, waiting)
    except StorageError as error:
        how = f"to continue: dlv gc --restore {waiting.place}"
        error.hint = f"{error.hint}; {how}" if error.hint else how
        raise


def _finish(repository: Repository, waiting: Restoring) -> Restored:
    known = [place for place in quarantine.places(repository) if place.id == waiting.place]
    done = Restored(waiting.place, 0, ())
    for place in known:
        count = sum(not place.target(name).exists() for name, _ in place.objects)
        done = Restored(
            place.id,
            count + len(quarantine.move_out(repository, place)),
            tuple(str(row["version"]) for row in place.versions),
        )
        _remake(repository, waiting)
        quarantine.discard(place)
    quarantine.unmark(repository)
    return done


def _remake(repository: Repository, waiting: Restoring) -> None:
    """The catalogue in which all of it counts; its rename is the moment from which it does."""
    committed = dump.committed_facts(repository.database)
    names = {fact.hash for fact in waiting.facts}
    for fact in waiting.facts:
        repository.write_fact(fact)

    def enter(db: Database) -> None:
        state = {key: facts.state(db, key) for key in ("HEAD", "next")}
        said = _said(waiting.place)
        if said not in {row.summary for row in facts.operations(db)}:
            facts.log_operation(db, VERB, said, [f.hash for f in waiting.facts], state, state)

    repository.database.checkpoint()  # the journals of the old one go first
    rebuild.remake(repository, committed | names, enter)


def _said(place: str) -> str:
    return f"{place} restored"


def _taking(repository: Repository, place: Place) -> list[str]:
    """Return the facts by which gc removed these objects, written right after its list."""
    ids = {str(row["id"]) for row in place.versions}
    later = [other.created for other in quarantine.places(repository)]
    end = min((created for created in later if created > place.created), default=None)
    return [
        digest
        for digest, created in facts.collecting(repository.database, ids)
        if created >= place.created and (end is None or created < end)
    ]


def _undo(db: Database, digest: str, author: str) -> Fact:
    known = facts.newest(db, "undo", digest)
    created = facts.moment_after(db, "undo", digest)
    return Fact("undo", digest, author, created, {}, None if known is None else known[0])
