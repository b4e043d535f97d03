"""`gc`: what was removed long enough ago leaves the catalogue, then its bytes the repository.

Each phase works from what it finds, so that a gc that was killed is finished by the next one, and
every commit of the catalogue comes before the files that it makes superfluous move.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import field
from pathlib import Path

import dlv.archiving.reencode as reencode
import dlv.disk.durable as durable
import dlv.disk.user_files as user_files
import dlv.recovery.compare as comparing
import dlv.recovery.superseded as superseded
import dlv.repository.ballast as ballast
import dlv.repository.quarantine as quarantine
import dlv.training.trial_files as trial_files
import dlv.upkeep.mark as mark
import dlv.upkeep.restoring as restoring
import dlv.upkeep.retention as retention
from dlv.archiving.proposal import Progress
from dlv.archiving.reencode import Packing
from dlv.canonical import is_hash, moment_of, timestamp
from dlv.dataclass import dataclass
from dlv.errors import DlvError, StorageError
from dlv.metadata import collected, dump, usage
from dlv.metadata.facts import newest
from dlv.pas.chunks import SUFFIX
from dlv.pas.packs import Pack
from dlv.repository.handle import Repository
from dlv.repository.quarantine import Place
from dlv.upkeep.mark import Hidden, Marked, Roots, Sparse
from dlv.upkeep.restoring import Restored
from dlv.upkeep.retention import Choice, Policy
from dlv.weights.store import MatrixStore

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


def plan(repository: Repository, request: Request, *, compared: bool = True) -> Collected:
    """What `collect` would do now; what it would hide is hidden in a transaction that fails.

    With `compared` the catalogue is first compared with the files, as `collect` does itself.
    """
    outcome = Collected(request.grace)
    db = repository.database
    if (waiting := quarantine.restoring(repository)) is not None:
        outcome.interrupted = waiting.place
        outcome.kept, outcome.after = quarantine.places(repository), usage.size_of_packs(db)
        return outcome
    if compared:
        comparing.demand(repository, "gc")
    # Only what would be hidden needs a transaction that others have to wait for.
    moment = db.atomic() if request.policy else db.snapshot()
    with contextlib.suppress(_RehearsedError), repository.holding(), moment:
        _hide(repository, request, outcome, rehearsal=True)
        roots = mark.roots(db, repository.head, request.grace)
        marked = mark.mark(repository, roots)
        _tell(outcome, roots, marked)
        _count_rewriting(outcome, marked)
        outcome.count(marked)
        outcome.after = usage.size_of_packs(db)
        _sort_places(repository, outcome, request)
        outcome.trials, outcome.trials_stay = unneeded_trials(repository, request.grace)
        outcome.parts = _unfinished(repository)
        if not request.grace and outcome.moved:
            # What moves now is deleted at once.
            sizes = [size for _, size in outcome.moved.values()]
            fresh = Place(repository.path, timestamp(), "gc", (("", sum(sizes)),))
            outcome.deleted.append(fresh)
        raise _RehearsedError
    return outcome


def collect(
    repository: Repository, request: Request, *, progress: Progress, idle: bool = False
) -> Collected:
    """Hide, take out of the catalogue, quarantine; delete what lay there for the whole grace.

    `idle` says that a plan found nothing to delete, so the long comparison is skipped.
    """
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
        comparing.demand(repository, "gc", rows=not idle)
        with repository.writing():
            _hide(repository, request, outcome)
        with superseded.removing(repository):
            marked = _sweep(repository, request, outcome)
            db = repository.database
            repository.marks.sweep(dump.committed_facts(db) | collected.numbered(db))
        _delete(repository, request, outcome)
        if mostly_dead(marked):
            _count_rewriting(outcome, marked)
            _rewrite(repository, request, outcome, progress)
            _delete(repository, request, outcome)
        outcome.trials, outcome.trials_stay = unneeded_trials(repository, request.grace)
        discard_trials(repository, outcome.trials)
        outcome.parts = _unfinished(repository)
        user_files.remove(path for path, _ in outcome.parts)
        outcome.after = usage.size_of_packs(repository.database)
        outcome.kept = quarantine.places(repository)
        ballast.keep(repository)
    return outcome


def _unfinished(repository: Repository) -> list[tuple[Path, int]]:
    """Files that a killed command has left beside their places, in the project and of runs."""
    places = (repository.root, repository.path / "runs")
    return user_files.left(path for place in places for path in user_files.below(place))


def _hide(
    repository: Repository, request: Request, outcome: Collected, *, rehearsal: bool = False
) -> None:
    """As facts, in one operation that `undo` takes back."""
    choices = retention.choose(repository.database, request.policy, repository.head)
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
    outcome.unused = unused(marked)


def _count_rewriting(outcome: Collected, marked: Marked) -> None:
    found = mostly_dead(marked)
    sizes = sum(pack.size for pack in found), sum(pack.live for pack in found)
    outcome.rewritten = (len(found), *sizes)


def _sweep(repository: Repository, request: Request, outcome: Collected | None) -> Marked:
    """Mark, let go of the rows, move the files: the caller holds the exclusive lock."""
    db = repository.database
    superseded.finish(repository)  # what an archive or a gc that was killed has left
    roots = mark.roots(db, repository.head, request.grace)
    marked = mark.mark(repository, roots)
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
            roots = mark.roots(repository.database, repository.head, request.grace)
            marked = mark.mark(repository, roots)
            packs = mostly_dead(marked)
            with progress("Rewriting packs", sum(pack.live for pack in packs)) as bar:
                for batch in batches(packs):
                    rewrite(repository, marked, batch, request.author, bar.advance)
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


TRIAL = "trial.json"
# A query writes the folders first, and then enters its trials into the ledger.
SHORTEST_GRACE = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Unneeded:
    """A folder, or a file of data, that may go, with what it takes."""

    path: Path
    bytes: int


def unneeded_trials(
    repository: Repository, grace: datetime.timedelta
) -> tuple[list[Unneeded], str | None]:
    """What nobody has touched for the time of grace, of no run or stopped in all of them.

    Where that cannot be known nothing may go, and the second tells why.
    """
    folder = repository.trials_folder
    if not folder.is_dir():
        return [], None
    needed: set[str] = set()
    if repository.trials_path.exists():
        try:
            with trial_files.open_store(repository) as store:
                needed = store.needed()
        except DlvError as error:
            return [], ": ".join(filter(None, (error.message, error.why)))
    latest = (moment_of(timestamp()) - max(grace, SHORTEST_GRACE)).timestamp()
    found = []
    for path in sorted(folder.iterdir()):
        if (
            path.is_dir()
            and not path.is_symlink()
            and path.name not in (*needed, trial_files.EXTRACTED)
        ):
            found += _untouched(path, latest)
    gone = {each.path.name for each in found}
    staying = [path for path in folder.iterdir() if is_hash(path.name) and path.name not in gone]
    return found + _unread(folder / trial_files.EXTRACTED, staying, latest), None


def _unread(data: Path, staying: Sequence[Path], latest: float) -> list[Unneeded]:
    """Files taken out of versions that none of these trials is trained on."""
    files = [path for path in sorted(data.iterdir()) if path.is_file()] if data.is_dir() else []
    try:
        read = {name for path in staying for name in _read_by(path)} if files else set()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []  # of a trial that cannot be read nobody knows what it reads
    return [each for path in files if path.name not in read for each in _untouched(path, latest)]


def _read_by(trial: Path) -> list[str]:
    """Names of the files that a trial finds its data in."""
    if not (trial / TRIAL).exists():
        return []
    record = json.loads((trial / TRIAL).read_bytes())["record"]
    return [Path(path).name for path in record.get("paths", {}).values()]


def _untouched(path: Path, latest: float) -> list[Unneeded]:
    with suppress(FileNotFoundError):  # whoever made it has just given it its name
        touched, size = _extent(path)
        return [Unneeded(path, size)] if touched < latest else []
    return []


def _extent(place: Path) -> tuple[float, int]:
    """When a file, or anything in a folder, was written last; and the bytes."""
    status = place.lstat()
    touched, size = status.st_mtime, 0 if place.is_dir() else status.st_size
    for path in place.rglob("*"):
        with suppress(FileNotFoundError):  # of a trial that somebody is training
            status = path.lstat()
            touched, size = max(touched, status.st_mtime), size + status.st_size
    return touched, size


def discard_trials(repository: Repository, unneeded: Sequence[Unneeded]) -> None:
    """Out of sight first: half a folder would be taken for a trial."""
    for each in unneeded:
        aside = repository.tmp / f"trial-{os.urandom(8).hex()}"
        durable.move_all([(each.path, aside)])
        if aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)


DEAD = 0.5  # a pack of which a larger part is not needed is written again
LEAST = 4096  # bytes that must become free, or it is not worth a new pack


def mostly_dead(marked: Marked) -> list[Sparse]:
    return [pack for pack in marked.sparse if pack.size - pack.live > max(LEAST, DEAD * pack.size)]


def unused(marked: Marked) -> int:
    """Bytes that nobody needs in packs that stay as they are."""
    gone = {pack.name for pack in mostly_dead(marked)}
    found = (pack.size - pack.live for pack in marked.sparse if pack.name not in gone)
    return sum(size for size in found if size > LEAST)  # footers take something, too


def batches(packs: Sequence[Sparse]) -> list[list[Sparse]]:
    """So many at a time as make one or a few new packs."""
    found: list[list[Sparse]] = []
    size = 0
    for pack in packs:
        if not found or size + pack.live > reencode.BATCH:
            found.append([])
            size = 0
        found[-1].append(pack)
        size += pack.live
    return found


def rewrite(
    repository: Repository,
    marked: Marked,
    packs: Sequence[Sparse],
    author: str,
    advance: Callable[[int], None],
) -> int:
    """Write, read back, switch the index: bytes of new packs. The caller holds `writing()`."""
    db = repository.database
    needed = collected.objects_in(db, marked.chunks)
    matrices: dict[str, None] = {}
    objects: dict[tuple[str, str], None] = {}
    for sparse in packs:
        with Pack(durable.path_of(repository.packs, sparse.name, SUFFIX)) as pack:
            empty = [row.matrix for row in pack.encodings if row.empty]
        held, others = usage.used_in(db, sparse.name)
        matrices |= dict.fromkeys(m for m in [*held, *empty] if m in marked.matrices)
        objects |= dict.fromkeys(other for other in others if other in needed)
    with closing(MatrixStore.of(repository)) as store:
        with Packing(store) as packing:
            for name in matrices:
                encoding = store.encoding(name)
                if encoding is not None:
                    packing.carry(encoding)
            for kind, name in objects:
                packing.carry_object(kind, name)
            made = packing.finish(lambda names: superseded.intend(repository, names))
        reencode.verify(repository, store, made, advance)
        what = f"{len(packs)} pack{'s' if len(packs) > 1 else ''} without what gc takes"
        reencode.switch(repository, store, made, author, what)
    return sum(pack.bytes for pack in made)
