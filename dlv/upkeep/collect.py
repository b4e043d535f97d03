"""`gc`: what was removed long enough ago leaves the catalogue, then its bytes the repository.

Each phase works from what it finds, so that a gc that was killed is finished by the next one, and
every commit of the catalogue comes before the files that it makes superfluous move.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import dlv.disk.unfinished as unfinished
import dlv.recovery.compare as comparing
import dlv.recovery.superseded as superseded
import dlv.repository.ballast as ballast
import dlv.repository.quarantine as quarantine
import dlv.upkeep.collecting.mark as marking
import dlv.upkeep.collecting.policy as policies
import dlv.upkeep.collecting.rewrite as rewriting
import dlv.upkeep.collecting.roots as finding
import dlv.upkeep.collecting.trials as trials
import dlv.upkeep.restoring as restoring
from dlv.archiving.proposal import Progress
from dlv.canonical import moment_of, timestamp
from dlv.errors import StorageError
from dlv.metadata import collected, dump, usage
from dlv.metadata.facts import newest
from dlv.repository.handle import Repository
from dlv.repository.quarantine import Place
from dlv.upkeep.collecting.mark import Marked
from dlv.upkeep.collecting.policy import Choice, Policy
from dlv.upkeep.collecting.roots import Hidden, Roots
from dlv.upkeep.collecting.trials import Unneeded
from dlv.upkeep.restoring import Restored

GRACE = datetime.timedelta(days=14)


@dataclass(frozen=True)
class Request:
    """How long hidden things stay, and which versions are to be hidden first."""

    grace: datetime.timedelta = GRACE
    policy: Policy = field(default_factory=Policy)
    author: str = ""


@dataclass
class Collected:
    """The plan, and with `done` what came of it."""

    grace: datetime.timedelta
    choices: list[Choice] = field(default_factory=list)
    due: list[tuple[Hidden, int]] = field(default_factory=list)  # with bytes nobody else needs
    waiting: list[Hidden] = field(default_factory=list)
    moved: dict[str, tuple[int, int]] = field(default_factory=dict)  # kind -> objects, bytes
    deleted: list[Place] = field(default_factory=list)
    kept: list[Place] = field(default_factory=list)  # in quarantine afterwards
    rewritten: tuple[int, int, int] = (0, 0, 0)  # packs, their bytes before, needed of them
    unused: int = 0  # bytes of packs that stay, though nobody needs them
    after: int = 0
    trials: list[Unneeded] = field(default_factory=list)  # folders that no run needs
    parts: list[tuple[Path, int]] = field(default_factory=list)  # left by killed writers of files
    trials_stay: str | None = None  # why nobody knows which these are
    done: bool = False
    stuck: str | None = None  # why packs could not be written again
    interrupted: str | None = None  # the quarantine whose restore has to come to its end first
    restored: Restored | None = None  # what came back of it

    @property
    def freed(self) -> int:
        """Bytes of the disk that are free again."""
        folders = sum(each.bytes for each in self.trials) + sum(size for _, size in self.parts)
        return folders + sum(place.bytes for place in self.deleted)

    @property
    def anything(self) -> bool:
        hides = any(choice.why is None for choice in self.choices)
        gone = (
            self.due or self.moved or self.deleted or self.rewritten[0] or self.trials or self.parts
        )
        return bool(hides or gone)

    def count(self, marked: Marked) -> None:
        for kind, found in marked.files.items():
            many, size = self.moved.get(kind, (0, 0))
            self.moved[kind] = many + len(found), size + sum(size for _, size in found)


class _RehearsedError(Exception):
    pass


def plan(repository: Repository, request: Request) -> Collected:
    """What `collect` would do now; what it would hide is hidden in a transaction that fails."""
    outcome = Collected(request.grace)
    db = repository.database
    if (waiting := quarantine.restoring(repository)) is not None:
        outcome.interrupted = waiting.place
        outcome.kept, outcome.after = quarantine.places(repository), usage.size_of_packs(db)
        return outcome
    comparing.demand(repository, "gc")
    # Only what would be hidden needs a transaction that others have to wait for.
    moment = db.atomic() if request.policy else db.snapshot()
    with contextlib.suppress(_RehearsedError), repository.holding(), moment:
        _hide(repository, request, outcome, rehearsal=True)
        roots = finding.roots(db, repository.head, request.grace)
        marked = marking.mark(repository, roots)
        _tell(outcome, roots, marked)
        _count_rewriting(outcome, marked)
        outcome.count(marked)
        outcome.after = usage.size_of_packs(db)
        _sort_places(repository, outcome, request)
        outcome.trials, outcome.trials_stay = trials.unneeded(repository, request.grace)
        outcome.parts = _unfinished(repository)
        if not request.grace and outcome.moved:
            # What moves now is deleted at once.
            sizes = [size for _, size in outcome.moved.values()]
            fresh = Place(repository.path, timestamp(), "gc", (("", sum(sizes)),))
            outcome.deleted.append(fresh)
        raise _RehearsedError
    return outcome


def collect(repository: Repository, request: Request, *, progress: Progress) -> Collected:
    """Hide, take out of the catalogue, quarantine; delete what lay there for the whole grace."""
    outcome = Collected(request.grace, done=True)
    with superseded.alone(repository, "gc"):
        ballast.give_up(repository)
        if (waiting := quarantine.restoring(repository)) is not None:
            # Nothing else: without a grace all that comes back would be taken again at once.
            outcome.interrupted = waiting.place
            with superseded.removing(repository):
                outcome.restored = restoring.finish(repository, waiting)
            outcome.kept = quarantine.places(repository)
            outcome.after = usage.size_of_packs(repository.database)
            return outcome
        comparing.demand(repository, "gc")
        with repository.writing():
            _hide(repository, request, outcome)
        with superseded.removing(repository):
            marked = _sweep(repository, request, outcome)
            db = repository.database
            repository.marks.sweep(dump.committed_facts(db) | collected.numbered(db))
        _delete(repository, request, outcome)
        if rewriting.mostly_dead(marked):
            _count_rewriting(outcome, marked)
            _rewrite(repository, request, outcome, progress)
            _delete(repository, request, outcome)
        outcome.trials, outcome.trials_stay = trials.unneeded(repository, request.grace)
        trials.discard(repository, outcome.trials)
        outcome.parts = _unfinished(repository)
        unfinished.remove(path for path, _ in outcome.parts)
        outcome.after = usage.size_of_packs(repository.database)
        outcome.kept = quarantine.places(repository)
        ballast.keep(repository)
    return outcome


def _unfinished(repository: Repository) -> list[tuple[Path, int]]:
    """Files that a killed command has left beside their places, in the project and of runs."""
    places = (repository.root, repository.path / "runs")
    return unfinished.left(path for place in places for path in unfinished.below(place))


def _hide(
    repository: Repository, request: Request, outcome: Collected, *, rehearsal: bool = False
) -> None:
    """As facts, in one operation that `undo` takes back."""
    choices = policies.choose(repository.database, request.policy, repository.head)
    outcome.choices = choices
    hidden = [choice.version for choice in choices if choice.why is None]
    if not hidden:
        return
    with repository.change("rm", request.author, rehearsal=rehearsal) as change:
        for version in hidden:
            change.record("removal", version.id, {"steps": None})
        change.summary = ", ".join(version.label for version in hidden)


def _tell(outcome: Collected, roots: Roots, marked: Marked) -> None:
    outcome.due = [(hidden, marked.bytes[at]) for at, hidden in enumerate(roots.due)]
    outcome.waiting = roots.waiting
    outcome.unused = rewriting.unused(marked)


def _count_rewriting(outcome: Collected, marked: Marked) -> None:
    found = rewriting.mostly_dead(marked)
    sizes = sum(pack.size for pack in found), sum(pack.live for pack in found)
    outcome.rewritten = (len(found), *sizes)


def _sweep(repository: Repository, request: Request, outcome: Collected | None) -> Marked:
    """Mark, let go of the rows, move the files: the caller holds the exclusive lock."""
    db = repository.database
    superseded.finish(repository)  # what an archive or a gc that was killed has left
    roots = finding.roots(db, repository.head, request.grace)
    marked = marking.mark(repository, roots)
    if outcome is not None:
        _tell(outcome, roots, marked)
        outcome.count(marked)
    if not marked.paths and not roots.due:
        return marked
    place = quarantine.begin(repository, marked.paths, "gc", [_record(h) for h in roots.due])
    packs = [path for path, _ in marked.files.get("packs", [])]
    try:
        if packs:
            superseded.intend(repository, [path.stem for path in packs])
        _forget(repository, request, roots, marked)
    except BaseException:
        quarantine.drop(place)
        raise
    move(repository, place, marked)
    return marked


def move(repository: Repository, place: Place, marked: Marked) -> None:
    """Manifests before the packs that they name; the catalogue has let go of both."""
    for kind in ("manifests", "files", "facts"):
        paths = [path for path, _ in marked.files.get(kind, [])]
        if kind == "files" and paths:
            with repository.alone("files.lock"):
                quarantine.move_in(repository, place, paths)
        else:
            quarantine.move_in(repository, place, paths)
    superseded.finish(repository)
    if not place.objects:  # versions that had nothing of their own
        quarantine.drop(place)


def _forget(repository: Repository, request: Request, roots: Roots, marked: Marked) -> None:
    """The transaction from which on all this is gone; facts say so to a rebuild."""
    if not roots.due:
        with repository.database.atomic():
            _forget_rows(repository, [], marked)
        return
    with repository.change("gc", request.author) as change:
        for hidden in roots.due:
            data: dict[str, object] = {"steps": None, "collected": True}
            if hidden.snapshots is not None:
                before = newest(change.db, "removal", hidden.version.id)
                steps = [] if before is None else before[1]["steps"]
                data = {"steps": steps, "collected": hidden.steps}
            change.record("removal", hidden.version.id, data)
        _forget_rows(repository, roots.due, marked)
        change.summary = ", ".join(_name(hidden) for hidden in roots.due)


def _forget_rows(repository: Repository, due: Sequence[Hidden], marked: Marked) -> None:
    db = repository.database
    collected.forget_packs(db, marked.packs, sorted(marked.only))
    whole = [hidden.version.key for hidden in due if hidden.snapshots is None]
    if whole:
        collected.forget_versions(db, whole)
    collected.forget_matrices(db)


def _name(hidden: Hidden) -> str:
    if hidden.snapshots is None:
        return hidden.version.label
    return f"{hidden.version.label} steps {', '.join(str(step) for step in hidden.steps or ())}"


def _record(hidden: Hidden) -> dict[str, object]:
    return {"id": hidden.version.id, "version": hidden.version.label, "steps": hidden.steps}


def _rewrite(
    repository: Repository, request: Request, outcome: Collected, progress: Progress
) -> None:
    """Under the shared lock, since it may take long; a disk that is full stops only this."""
    try:
        with repository.writing():
            roots = finding.roots(repository.database, repository.head, request.grace)
            marked = marking.mark(repository, roots)
            packs = rewriting.mostly_dead(marked)
            with progress("rewrite", sum(pack.live for pack in packs)) as bar:
                for batch in rewriting.batches(packs):
                    rewriting.rewrite(repository, marked, batch, request.author, bar.advance)
    except StorageError as error:
        outcome.stuck = error.why or error.message
        outcome.rewritten = (0, 0, 0)
    with superseded.removing(repository):
        marked = _sweep(repository, request, None)
        outcome.count(marked)


def _sort_places(repository: Repository, outcome: Collected, request: Request) -> None:
    now = moment_of(timestamp())
    for place in quarantine.places(repository):
        over = not request.grace or moment_of(place.created) <= now - request.grace
        (outcome.deleted if over else outcome.kept).append(place)


def _delete(repository: Repository, request: Request, outcome: Collected) -> None:
    """Unlink what has lain in quarantine for the whole grace."""
    before, outcome.deleted, outcome.kept = outcome.deleted, [], []
    _sort_places(repository, outcome, request)
    for place in outcome.deleted:
        quarantine.discard(place)
    outcome.deleted = before + outcome.deleted
