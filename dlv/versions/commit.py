"""`commit`: what was staged becomes a version, whole or not at all."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import dlv.objects.manifest as manifest_format
import dlv.repository.ballast as ballast
import dlv.repository.environment as environment
import dlv.repository.revisions as revisions
import dlv.versions.add as adding
from dlv.canonical import timestamp
from dlv.dataclass import dataclass
from dlv.errors import Conflict, Damaged, NotFound, UnsafeInput, UsageError
from dlv.metadata import facts, matrices, versions
from dlv.metadata.facts import StagedFile
from dlv.metadata.metrics import Summary
from dlv.metadata.versions import Version
from dlv.objects.manifest import Manifest, Parent
from dlv.repository.handle import Change, Repository
from dlv.versions.draft import Draft, Request, prove, store_draft, store_files, without_collected
from dlv.versions.status import status
from dlv.versions.working import CHANGED, MISSING, tracked
from dlv.weights.snapshots import MODEL_ROLES
from dlv.weights.store import MatrixStore, insert_version
from dlv.weights.writer import PackRecord, WeightWriter

if TYPE_CHECKING:
    from dlv.adapters.checkpoint import Checkpoint
    from dlv.network.graph import Network
    from dlv.weights.writer import PackRecord


__all__ = ["Committed", "Request", "commit"]


class FileChanges(NamedTuple):
    """Number of files that a version adds, changes and removes, compared with its parent."""

    added: int = 0
    changed: int = 0
    removed: int = 0

    def __str__(self) -> str:
        return f"+{self.added} ~{self.changed} -{self.removed} files"


@dataclass(frozen=True)
class Committed:
    """The acknowledged version, and what storing it took."""

    id: str
    name: str
    number: int
    parents: tuple[str, ...]
    raw: int
    stored: int
    matrices: int
    new: int
    snapshots: int
    seconds: float
    base: str | None
    warnings: tuple[str, ...]
    scheme: str | None = None  # the lossy one by which `rounded` of the matrices are not exact
    rounded: int = 0
    files: FileChanges = FileChanges()
    head: str | None = None  # the version in the working directory, if no parent was named

    @property
    def parentage(self) -> str:
        """What the version comes from and, if the rule chose it for a new name, the alternative."""
        if self.base is None:
            other = f"; to set one: dlv commit --parent {self.head}" if self.head else ""
            return f"no parent (a new model){other}"
        own = self.head is None or self.base.rpartition("@")[0] == self.name
        return f"parent {self.base}" + ("" if own else "; to start without one: --orphan")

    @property
    def reused(self) -> int:
        return self.matrices - self.new


def commit(repository: Repository, request: Request) -> Committed:
    """Store, publish, then make it visible in one transaction."""
    started = time.monotonic()
    db = repository.database
    taken = list(facts.staged_files(db) if request.staged is None else request.staged)
    given = (request.parameters, request.series, request.logs, request.events, request.metrics)
    if not (taken or request.allow_empty or any(given) or request.network):
        raise UsageError(
            "nothing staged", hint="to stage everything: dlv add .; to commit anyway: --allow-empty"
        )
    _check_text(request)
    head = None if repository.head is None else versions.by_id(db, repository.head)
    with _blaming(taken if request.staged is None else ()):
        parents, kind, base = _parents(repository, request, taken)
    name = _name(repository, request, base)
    for path, count in Counter(file.path for file in taken).items():
        if count > 1:
            raise Conflict(f"{path} is given twice", why="it is staged and given as a log")
    for file in taken:
        if file.role != "removed" and (why := adding.changed(file)):
            raise Conflict(
                f"{file.path} changed after it was staged",
                why=why,
                hint=f"{adding.again(file)}; to unstage it: dlv reset {file.path}",
            )
    with repository.writing():
        before = None if base is None else _carried(repository, base)
        draft = Draft(before, taken)
        store = MatrixStore.of(repository)
        with (
            closing(draft),
            WeightWriter(store, jobs=request.jobs, recheck=request.recheck) as writer,
        ):
            with _blaming(taken if request.staged is None else ()):
                store_draft(draft, writer, store, request)
            packs = writer.finish(lambda: prove(draft))
        store_files(repository, draft, name)
        made = _manifest(repository, draft, request, name, parents, kind)
        if not (taken or request.allow_empty) and (same := _already(repository, made)):
            return same
        version_id = repository.write_manifest(made)
        with repository.change("commit", request.author) as change:
            if request.staged is None:
                _still_staged(change, taken)
            number = _insert(change, draft, made, packs)
        ballast.keep(repository)
    held = {digest for s in made.snapshots for digest in s.hashes if digest is not None}
    fresh = {encoding.matrix for pack in packs for encoding in pack.rows.encodings}
    return Committed(
        id=version_id,
        name=name,
        number=number,
        parents=tuple(parent.id for parent in made.parents),
        raw=draft.weights.raw,
        stored=sum(pack.bytes for pack in packs),
        matrices=len(held),
        new=len(held & fresh),
        snapshots=len(made.snapshots),
        seconds=time.monotonic() - started,
        base=None if base is None else base.label,
        warnings=(*draft.warnings, *_lost(before, base, made)),
        scheme=made.lossy,
        rounded=draft.rounded,
        files=_file_changes(before, made),
        head=None if head is None or request.orphan or request.parents else head.label,
    )


def _file_changes(before: Manifest | None, made: Manifest) -> FileChanges:
    old = {} if before is None else tracked(before)
    new = tracked(made)
    changed = sum(path in old and old[path].mark != item.mark for path, item in new.items())
    return FileChanges(len(new.keys() - old.keys()), changed, len(old.keys() - new.keys()))


def _lost(before: Manifest | None, base: Version | None, made: Manifest) -> Iterator[str]:
    """Yield warnings about weights or a network that the parent has and this version lacks."""
    if before is None or base is None:
        return
    if before.snapshots and not made.snapshots:
        yield f"this version has no weights, unlike {base.label}; to take it back: dlv undo"
    if before.network is not None and made.network is None:
        yield f"this version has no network, unlike {base.label}; to take it back: dlv undo"


def check_staged(
    repository: Repository,
    opened: Callable[[str, Path], Checkpoint],
    is_data_set: Callable[[str], bool],
) -> None:
    """Refuse a commit of nothing, and say what could be staged."""
    if facts.staged_files(repository.database):
        return
    found = status(repository, opened, is_data_set)
    changed = [each.item.path for each in found.modified]
    untracked = [each.path for each in found.untracked]
    listed = ", ".join([*changed, *untracked][:5]) + (
        " ..." if len(changed + untracked) > 5 else ""
    )
    if changed:
        raise UsageError(
            f"nothing staged; changed: {listed}", hint="to commit all changes: dlv commit -a"
        )
    if untracked:
        raise UsageError(f"nothing staged; untracked: {listed}", hint="to stage all: dlv add .")
    raise UsageError(
        "nothing to commit, working directory clean", hint="to commit anyway: --allow-empty"
    )


def stage_tracked(
    repository: Repository,
    opened: Callable[[str, Path], Checkpoint],
    is_data_set: Callable[[str], bool],
    *,
    optimizer: str,
) -> None:
    """Stage HEAD's changed files and mark missing ones as removed, like `git commit -a`."""
    head = repository.head
    if head is None:
        return
    found = status(repository, opened, is_data_set).modified
    changed = {entry.item.path: entry.item.role for entry in found if entry.why == CHANGED}
    missing = [entry.item.path for entry in found if entry.why == MISSING]
    if "weights" in changed.values():
        # New weights take the place of all old ones: those that are still there come along.
        for path, item in tracked(repository.manifest(head)).items():
            if item.role == "weights" and (repository.root / path).is_file():
                changed[path] = item.role
    for role in sorted(set(changed.values())):
        paths = [str(repository.root / path) for path, other in changed.items() if other == role]
        request = adding.Request(role=None if role == "weights" else role, optimizer=optimizer)
        adding.add(repository, repository.root, paths, request)
    if missing:
        adding.remove(repository, repository.root, missing)


@contextmanager
def _blaming(files: Sequence[StagedFile]) -> Iterator[None]:
    """A staged file that cannot be read must not stop all commits to come: say how to go on."""
    try:
        yield
    except (Damaged, NotFound, UnsafeInput, UsageError) as error:
        there = [file for file in files if file.role not in ("removed", "file", "data")]
        named = [file for file in there if file.path in error.message]
        named += [file for file in there if Path(file.path).name in error.message]
        for file in named[:1]:
            way = f"when it is complete: {adding.again(file)}; to unstage it: dlv reset {file.path}"
            error.hint = f"{error.hint}; {way}" if error.hint else way
        raise


def _carried(repository: Repository, base: Version) -> Manifest:
    """What of the base can be carried on, now that gc is held off."""
    if versions.by_id(repository.database, base.id) is None:
        raise Conflict(
            f"parent {base.label} was deleted by a concurrent dlv gc",
            why=None,
            hint="choose another parent: dlv commit --parent REF",
        )
    taken = facts.collected(repository.database).get(base.id) or set()
    return without_collected(repository.manifest(base.id), taken)


def _check_text(request: Request) -> None:
    try:
        f"{request.message}{request.author}".encode()
    except UnicodeEncodeError as error:
        raise UsageError("message and author must be valid Unicode", why=str(error)) from error


def _parents(
    repository: Repository, request: Request, taken: Sequence[StagedFile]
) -> tuple[list[Version], str, Version | None]:
    """The parents, how the first one is related, and the version whose parts are carried on.

    Unless they are named: HEAD for its own model, the newest version for another one that has
    some; for a new model HEAD if that is what it was made from, by its weights or network.
    """
    db = repository.database
    pending = repository.next
    kind = pending[1] if pending else "commit"
    head = None if repository.head is None else versions.by_id(db, repository.head)
    if request.orphan:
        if request.parents:
            raise UsageError("--orphan and --parent cannot be combined")
        return [], "commit", None
    if request.parents:
        named = [revisions.version(db, text) for text in request.parents]
        same = head is not None and named[0].id == head.id
        return list(dict.fromkeys(named)), kind if same else "commit", named[0]
    own_names = (None, pending[0] if pending else None, head.name if head else None)
    if request.name not in own_names:
        kind = "commit"
        of_name = versions.of_name(db, request.name) if request.name else []
        whole = [version for version in of_name if version.scheme is None]
        if of_name:
            head = (whole or of_name)[-1]
        elif head is not None and not _derived(repository.manifest(head.id), request, taken):
            head = None
    return ([head] if head else []), kind, head


def _derived(base: Manifest, request: Request, taken: Sequence[StagedFile]) -> bool:
    """Whether what is committed shares a tensor's name and shape, or the network, with a version.

    A commit that has neither weights nor a network carries on those of the version, but not one of
    a training of its own.
    """
    staged = [file for file in taken if file.role in (*adding.WEIGHT_ROLES, "network")]
    if not staged and request.network is None:
        return not request.fresh
    tensors = {(t.name, t.shape) for t in base.tensors if t.role in MODEL_ROLES}
    network = None if base.network is None else base.network.id

    def shares(opened: Checkpoint) -> bool:
        if opened.network is not None and opened.network.id == network:
            return True
        return any((tensor.name, tensor.shape) in tensors for tensor in opened.tensors)

    if request.network is not None and shares(request.network):
        return True
    for file in staged:
        weights = file.role in adding.WEIGHT_ROLES
        path = Path(file.source)
        opened = adding.opened(file) if weights else adding.open_network(path, file.format)
        with closing(opened):
            if shares(opened):
                return True
    return False


def _name(repository: Repository, request: Request, base: Version | None) -> str:
    pending = repository.next
    pending_name = pending[0] if pending and not request.orphan else None
    name = request.name or pending_name or (base.name if base else None)
    if name is None:
        raise UsageError(
            "the first commit requires --name",
            why="versions are named NAME@1, NAME@2, ...",
            hint="dlv commit -m MESSAGE --name lenet",
        )
    manifest_format.check_name(name)
    if versions.by_tag(repository.database, name) is not None:
        raise Conflict(f"`{name}` is already a tag", hint="choose another name")
    return name


def _manifest(
    repository: Repository,
    draft: Draft,
    request: Request,
    name: str,
    parents: Sequence[Version],
    kind: str,
) -> Manifest:
    return draft.manifest(
        name=name,
        message=request.message,
        author=request.author,
        created=timestamp(),
        parents=tuple(
            Parent(parent.id, kind if index == 0 else "commit")
            for index, parent in enumerate(parents)
        ),
        environment=environment.describe(repository.root),
    )


def _already(repository: Repository, manifest: Manifest) -> Committed | None:
    """HEAD, if it has all that is given now: the command that made it was killed before it could
    say so, and is repeated."""
    head = None if repository.head is None else versions.by_id(repository.database, repository.head)
    if head is None or head.number is None:
        return None
    there = repository.manifest(head.id)
    told = (manifest.name, manifest.message, manifest.author)
    if told != (there.name, there.message, there.author):
        return None
    if manifest.parents != there.parents and not (
        manifest.parents and manifest.parents[0].id == head.id
    ):
        return None
    if not set(manifest.series) <= set(there.series):
        return None
    if not manifest.hyperparameters.items() <= there.hyperparameters.items():
        return None
    return Committed(
        id=head.id,
        name=there.name,
        number=head.number,
        parents=tuple(parent.id for parent in there.parents),
        raw=0,
        stored=0,
        matrices=len({d for s in there.snapshots for d in s.hashes if d is not None}),
        new=0,
        snapshots=len(there.snapshots),
        seconds=0.0,
        base=None,
        warnings=(f"identical to {head.label}; nothing committed",),
    )


def _still_staged(change: Change, files: Sequence[StagedFile]) -> None:
    """Of two commits at once the first has it; the other would be the same version again."""
    left = {file.path for file in facts.staged_files(change.db)}
    gone = [file.path for file in files if file.path not in left]
    if gone:
        raise Conflict(
            f"{gone[0]} is no longer staged",
            why="another dlv process committed or unstaged it",
            hint="dlv status",
        )


def _insert(change: Change, draft: Draft, manifest: Manifest, packs: Sequence[PackRecord]) -> int:
    """The version, and what is staged no more and where HEAD stands with it."""
    db = change.db
    (version,) = publish(change, packs, [NewVersion(manifest, draft.network, draft.summaries)])
    assert version.number is not None
    facts.remove_staged(db, draft.staged)
    facts.record_looks(
        db,
        [
            (file.path, file.bytes, file.mtime_ns, file.hash)
            for file in draft.staged
            if file.role != "removed"
        ],
    )
    change.consumed = draft.staged
    change.set_head(manifest.id)
    change.set_next(None)
    return version.number


@dataclass(frozen=True)
class NewVersion:
    """A version whose manifest is written and which no catalogue knows yet."""

    manifest: Manifest
    network: Network | None = None
    summaries: Sequence[Summary] = ()
    name: str | None = None  # of the model here, if not the manifest's
    number: int | None = None  # here, if it is not the next one


def publish(
    change: Change,
    packs: Iterable[PackRecord],
    ready: Iterable[NewVersion],
    *,
    skip_known: bool = False,
) -> list[Version]:
    """Insert all rows: the commit of the change is the moment from which the versions exist.

    Return the versions that are new, numbered in this order. One that another process made
    meanwhile is a conflict, or passed over with `skip_known`. The summary of the change names
    the first and the last.
    """
    db = change.db
    matrices.insert_packs(db, [(pack.hash, pack.bytes, pack.footer) for pack in packs])
    published: list[Version] = []
    for new in ready:
        manifest = new.manifest
        if versions.by_id(db, manifest.id) is not None:
            if skip_known:
                continue
            raise Conflict("an identical version already exists", why=manifest.id[:12])
        name = new.name or manifest.name
        number = new.number or versions.next_number(db, name)
        insert_version(db, manifest, new.network, new.summaries, number=number, name=name)
        change.record("number", manifest.id, {"name": name, "number": number})
        version = versions.by_id(db, manifest.id)
        assert version is not None
        published.append(version)
    labels = [version.label for version in published]
    change.summary = " to ".join(dict.fromkeys([*labels[:1], *labels[-1:]]))
    return published
