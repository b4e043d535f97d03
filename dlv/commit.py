"""`commit`: what was staged becomes a version, whole or not at all."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dlv.catalogue as catalogue
import dlv.environment as environment
import dlv.manifest as manifests
import dlv.paths as paths
import dlv.revisions as revisions
import dlv.snapshots as snapshots
import dlv.staging as staging
from dlv.adapters import network_json
from dlv.canonical import dumps, timestamp
from dlv.errors import Conflict, UsageError
from dlv.events.series import Scalars, encode
from dlv.files import FileStore, Source
from dlv.manifest import FileEntry, Manifest, NetworkReference, Parent, SeriesReference
from dlv.metadata import matrices, staged, versions
from dlv.metadata.metrics import Summary
from dlv.metadata.staged import StagedFile
from dlv.metadata.versions import Version
from dlv.network.graph import Network
from dlv.network.verify import verify
from dlv.repository import Change, Repository
from dlv.snapshots import WeightFile, Weights
from dlv.weight_writer import PackRecord, WeightWriter
from dlv.weights import MatrixStore

WEIGHT_ROLES = ("weights", "snapshot")
FILE_ROLES = ("file", "config", "log", "data", "network")


@dataclass
class Request:
    """What the user asked `commit` for, beside what is staged."""

    message: str
    author: str
    name: str | None = None
    parents: Sequence[str] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    series: Sequence[Scalars] = ()
    logs: Sequence[tuple[Path, Mapping[str, Any]]] = ()  # as of `staging.read_log`
    metrics: Sequence[Path] = ()  # files of single values
    staged: Sequence[StagedFile] | None = None  # None: what `add` recorded
    allow_empty: bool = False
    recheck: str = "hash"
    jobs: int = 1
    progress: Callable[[int], None] = lambda _: None
    total: Callable[[int], None] = lambda _: None


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

    @property
    def reused(self) -> int:
        return self.matrices - self.new


@dataclass
class _Draft:
    """What is known of the version while it is put together."""

    base: Manifest | None
    staged: list[StagedFile]
    weights: Weights = field(default_factory=Weights)
    network: Network | None = None
    reference: NetworkReference | None = None
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    series: list[tuple[SeriesReference, Summary]] = field(default_factory=list)
    tree: str | None = None
    files: list[FileEntry] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def of_role(self, *roles: str) -> list[StagedFile]:
        return [file for file in self.staged if file.role in roles]

    @property
    def replaced(self) -> set[str]:
        """Paths of which nothing is carried on: what is staged may be of another role."""
        return {file.path for file in self.staged}


def commit(repository: Repository, request: Request) -> Committed:
    """Store, publish, then make it visible in one transaction."""
    started = time.monotonic()
    db = repository.database
    taken = list(staged.everything(db) if request.staged is None else request.staged)
    given = request.parameters or request.series or request.logs or request.metrics
    if not (taken or request.allow_empty or given):
        raise UsageError(
            "nothing to commit", why="nothing is staged", hint="dlv add PATH.., or --allow-empty"
        )
    parents, kind, base = _parents(repository, request)
    name = _name(repository, request, base)
    _check_text(request)
    for path, count in Counter(file.path for file in taken).items():
        if count > 1:
            raise Conflict(f"{path} is there twice", why="as a staged file and as a given one")
    for file in taken:
        if file.role != "removed" and (why := staging.changed(file)):
            raise Conflict(
                f"{file.path} has changed since it was added",
                why=why,
                hint=f"dlv add {file.path}, or dlv add --remove {file.path}",
            )
    draft = _Draft(None if base is None else repository.manifest(base.id), taken)
    with repository.writing():
        store = MatrixStore.of(repository)
        with WeightWriter(store, jobs=request.jobs, recheck=request.recheck) as writer:
            _weights(draft, writer, request)
            _network(draft, writer, store)
            _hyperparameters(draft, request)
            _series(draft, writer, request, store)
            packs = writer.finish()
        _files(repository, draft, name)
        made = _manifest(repository, draft, request, name, parents, kind)
        version_id = repository.write_manifest(made)
        if versions.by_id(db, version_id) is not None:
            raise Conflict("this very version exists already", why=version_id[:12])
        with repository.change("commit", request.author) as change:
            if request.staged is None:
                _still_staged(change, taken)
            number = _insert(change, draft, made, packs)
    held = {digest for s in made.snapshots for digest in s.hashes if digest is not None}
    fresh = {entry["matrix"] for pack in packs for entry in pack.footer["encodings"]}
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
        warnings=tuple(draft.warnings),
    )


def _check_text(request: Request) -> None:
    try:
        f"{request.message}{request.author}".encode()
    except UnicodeEncodeError as error:
        raise UsageError("the message or author is not valid Unicode", why=str(error)) from error


def _parents(repository: Repository, request: Request) -> tuple[list[Version], str, Version | None]:
    """The parents, how the first one is related, and the version whose parts are carried on."""
    db = repository.database
    pending = repository.next
    kind = pending[1] if pending else "commit"
    head = None if repository.head is None else versions.by_id(db, repository.head)
    if request.parents:
        named = [revisions.version(db, text) for text in request.parents]
        same = head is not None and named[0].id == head.id
        return list(dict.fromkeys(named)), kind if same else "commit", named[0]
    return ([head] if head else []), kind, head


def _name(repository: Repository, request: Request, base: Version | None) -> str:
    pending = repository.next
    name = request.name or (pending[0] if pending else None) or (base.name if base else None)
    if name is None:
        raise UsageError(
            "the first commit needs a name",
            why="versions are called NAME@1, NAME@2, ...",
            hint="dlv commit -m MESSAGE --name lenet",
        )
    manifests.check_name(name)
    if versions.by_tag(repository.database, name) is not None:
        raise Conflict(f"`{name}` is a tag already", hint="choose another name")
    return name


def _weights(draft: _Draft, writer: WeightWriter, request: Request) -> None:
    found = draft.of_role(*WEIGHT_ROLES)
    if not found:
        if draft.base is not None:
            draft.weights = snapshots.without(draft.base, draft.replaced)
        return
    request.total(sum(file.bytes for file in found))
    opened: list[WeightFile] = []
    try:
        for file in found:
            checkpoint = staging.open_weights(
                Path(file.source), file.format, str(file.options.get("optimizer", "keep"))
            )
            for key, value in checkpoint.hyperparameters.items():
                draft.hyperparameters.setdefault(key, value)
            opened.append(
                WeightFile(
                    *(file.path, file.format, file.bytes, file.hash, file.step),
                    own=file.role == "weights" and file.options.get("own") is True,
                    opened=checkpoint,
                )
            )
        draft.weights = snapshots.store(opened, writer, request.progress)
    finally:
        for weights in opened:
            weights.opened.close()
    _recheck(found, draft.weights)


def _recheck(found: Sequence[StagedFile], weights: Weights) -> None:
    """A container that came back byte for byte is what was added; the others are hashed again."""
    proven = {c.path for s in weights.snapshots for c in s.containers if c.blake3 is not None}
    for file in found:
        if file.path not in proven and paths.hash_file(Path(file.source))[0] != file.hash:
            raise Conflict(
                f"{file.path} has changed since it was added",
                why="its content is another one",
                hint=f"dlv add {file.path}",
            )


def _network(draft: _Draft, writer: WeightWriter, store: MatrixStore) -> None:
    found = draft.of_role("network")
    if len(found) > 1:
        raise Conflict(
            "more than one network is staged",
            why=", ".join(file.path for file in found),
            hint="dlv add --as file NETWORK keeps one as a plain file",
        )
    if found:
        draft.network, _ = network_json.open(found[0].source)
        problems = verify(draft.network, draft.weights.shapes() or None)
        draft.warnings += [f"network: {problem.message}" for problem in problems]
        origin = dict(draft.network.origin or {})
        writer.add_object("network", dumps(draft.network.canonical()))
        draft.reference = NetworkReference(draft.network.id, origin)
    elif draft.base is not None and draft.base.network is not None:
        files = {entry.path for entry in draft.base.files if entry.role == "network"}
        if not files & draft.replaced:
            _carry_network(draft, draft.base.network, store)


def _carry_network(draft: _Draft, reference: NetworkReference, store: MatrixStore) -> None:
    """The parent's network stays as long as it still describes the weights."""
    network = catalogue.network(store, reference.id)
    shapes = draft.weights.shapes()
    problems = verify(network, shapes) if shapes else []
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        draft.warnings.append(
            "the network of the parent does not fit these weights and is left out: "
            + errors[0].message
        )
        return
    draft.network, draft.reference = network, reference


def _hyperparameters(draft: _Draft, request: Request) -> None:
    """From the weights' own files, then configs in the order of paths, then the command line."""
    configs = draft.of_role("config")
    carried = dict(draft.base.hyperparameters) if draft.base is not None else {}
    if not configs and not draft.hyperparameters:
        draft.hyperparameters = carried
    for file in configs:
        draft.hyperparameters.update(staging.read_config(Path(file.source), file.format))
    draft.hyperparameters.update(staging.parameters(request.parameters))


def _series(draft: _Draft, writer: WeightWriter, request: Request, store: MatrixStore) -> None:
    found = _given_series(draft, request)
    if draft.base is not None and not draft.of_role(*WEIGHT_ROLES):
        # The curves belong to the weights: they stay as long as those do, but for newer ones.
        newer = {(scalars.run, scalars.tag) for scalars in found}
        for reference in draft.base.series:
            if (reference.run, reference.tag) not in newer:
                scalars = catalogue.series(store, reference.hash)
                draft.series.append((reference, catalogue.summary_of(scalars, reference.hash)))
    names: set[tuple[str, str]] = set()
    for scalars in found:
        if (scalars.run, scalars.tag) in names:
            raise Conflict(
                f"the series `{scalars.tag}` comes from two logs",
                why=f"both are called `{scalars.run}`" if scalars.run else None,
                hint="give one log another name, or dlv add --as file LOG keeps it as a plain file",
            )
        names.add((scalars.run, scalars.tag))
        digest = encode(scalars, writer.add_object)
        reference = SeriesReference(scalars.run, scalars.tag, digest)
        draft.series.append((reference, catalogue.summary_of(scalars, digest)))


def _given_series(draft: _Draft, request: Request) -> list[Scalars]:
    """From logs, then single values, each under its file's name only where it would clash."""
    logs = [
        (Path(log.source), log.path, {**log.options, "format": log.format})
        for log in draft.of_role("log")
    ]
    logs += [(path, path.name, dict(options)) for path, options in request.logs]
    found = list(request.series)
    for source, path, options in logs:
        run = "" if len(logs) == 1 and not found else Path(path).name.split(".")[0]
        found += staging.read_log(source, run, options)
    for file in request.metrics:
        scalars, skipped = staging.read_metrics(file)
        draft.warnings += [f"{file.name}: `{key}` is no number and left out" for key in skipped]
        taken = {(known.run, known.tag) for known in found}
        for one in scalars:
            clash = (one.run, one.tag) in taken
            found.append(replace(one, run=file.name.split(".")[0]) if clash else one)
    return found


def _files(repository: Repository, draft: _Draft, name: str) -> None:
    found = draft.of_role(*FILE_ROLES)
    new = {file.path for file in found}
    base = draft.base.files if draft.base is not None else ()
    kept = [entry for entry in base if entry.path not in draft.replaced]
    if not found and len(kept) == len(base):
        draft.files, draft.tree = list(base), draft.base.tree if draft.base else None
        return
    containers = {c.path for s in draft.weights.snapshots for c in s.containers}
    paths.check_together([*new, *(entry.path for entry in kept), *containers])
    if not found and not kept:
        return
    sources = [Source(file.path, Path(file.source), file.role, file.hash) for file in found]
    with repository.alone("files.lock"):
        store = FileStore(repository.files_git)
        draft.tree, draft.files = store.store(sources, kept, name)


def _manifest(
    repository: Repository,
    draft: _Draft,
    request: Request,
    name: str,
    parents: Sequence[Version],
    kind: str,
) -> Manifest:
    return Manifest(
        name=name,
        message=request.message,
        author=request.author,
        created=timestamp(),
        parents=tuple(
            Parent(parent.id, kind if index == 0 else "commit")
            for index, parent in enumerate(parents)
        ),
        network=draft.reference,
        tensors=draft.weights.tensors,
        snapshots=draft.weights.snapshots,
        own=draft.weights.own,
        hyperparameters=draft.hyperparameters,
        series=tuple(reference for reference, _ in draft.series),
        tree=draft.tree,
        files=tuple(draft.files),
        environment=environment.describe(repository.root),
    )


def _still_staged(change: Change, taken: Sequence[StagedFile]) -> None:
    """Of two commits at once the first has it; the other would be the same version again."""
    left = {file.path for file in staged.everything(change.db)}
    gone = [file.path for file in taken if file.path not in left]
    if gone:
        raise Conflict(
            f"{gone[0]} is no longer staged",
            why="another dlv committed it, or took it back, meanwhile",
            hint="dlv status",
        )


def _insert(change: Change, draft: _Draft, made: Manifest, packs: Sequence[PackRecord]) -> int:
    """All rows; the commit of this transaction is the moment from which the version exists."""
    db = change.db
    number = versions.next_number(db, made.name)
    matrices.insert_packs(db, [(pack.hash, pack.bytes, pack.footer) for pack in packs])
    catalogue.insert(db, made, draft.network, [item for _, item in draft.series], number=number)
    change.record("number", made.id, {"name": made.name, "number": number})
    staged.take(db, draft.staged)
    staged.see(
        db,
        [
            (file.path, file.bytes, file.mtime_ns, file.hash)
            for file in draft.staged
            if file.role != "removed"
        ],
    )
    change.consumed = draft.staged
    change.set_head(made.id)
    change.set_next(None)
    change.summary = f"{made.name}@{number}"
    return number
