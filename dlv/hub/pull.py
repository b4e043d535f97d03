"""Pull versions: fetch them, verify every byte, and only then make them visible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import field
from fnmatch import fnmatchcase

import dlv.archiving.reencode as reencode
import dlv.disk.paths as paths
import dlv.hub.adopting as adopting
import dlv.hub.service as service
import dlv.hub.signing as signing
import dlv.objects.manifest as manifest_format
import dlv.weights.bounds as bounds
from dlv.archiving.reencode import Overlay, Packing
from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.errors import Damaged, DlvError, NotFound, UnsafeInput, UsageError, nearest
from dlv.hub.adopting import Adopter, is_inside
from dlv.hub.fetching import Fetcher
from dlv.hub.history import published
from dlv.hub.locator import Locator, LocatorIndex
from dlv.hub.promised import PromisedIndex
from dlv.hub.records import Ref
from dlv.hub.remotes import Remote
from dlv.kinds import Piece
from dlv.metadata import facts, matrices, versions
from dlv.metadata.matrices import PackIndex
from dlv.metadata.versions import Version
from dlv.objects.fact import Fact, decode_fact
from dlv.objects.manifest import FileEntry, Manifest
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Change, Repository
from dlv.versions import reachable
from dlv.versions.commit import NewVersion
from dlv.versions.commit import publish as make_visible
from dlv.weights.store import MatrixStore, stored_network, stored_summary
from dlv.weights.writer import PackRecord


@dataclass
class Request:
    """`names` are models or versions (lenet, lenet@3), by default all models pulled before.

    `everything`: all models of the remote. `name`: the name of the model in this repository.
    `metadata_only`: leave the weights on the remote, from which they are fetched when they are
    read, but for tensors that match a pattern in `tensors`, and the first `planes` of all.
    `numbered`: versions keep the numbers of the remote.
    """

    names: Sequence[str]
    author: str
    name: str | None = None
    everything: bool = False
    metadata_only: bool = False
    tensors: Sequence[str] = ()
    planes: int | None = None
    numbered: bool = False
    dry_run: bool = False
    progress: Callable[[int], None] = lambda _: None
    total: Callable[[int], None] = lambda _: None

    @property
    def partial(self) -> bool:
        return self.metadata_only or bool(self.tensors) or self.planes is not None


@dataclass
class Pulled:
    """`versions` are new in this repository; it already had `known` others.

    `completed` were here without all of their weights.
    """

    versions: list[Version] = field(default_factory=list)
    completed: list[Version] = field(default_factory=list)
    origins: dict[str, Ref] = field(default_factory=dict)  # refs by version id
    known: int = 0
    hidden: list[Version] = field(default_factory=list)  # of the known ones: removed or undone
    names: list[str] = field(default_factory=list)  # of the models whose history was read
    bytes: int = 0  # of chunks that were fetched, or would be


def pull(repository: Repository, remote: Remote, request: Request) -> Pulled:
    """Fetch the chosen versions; they become visible together."""
    outcome = Pulled()
    outcome.names, chosen = _chosen(repository, remote, request)
    # gc must not delete what is stored already and therefore not fetched.
    with nullcontext() if request.dry_run else repository.writing():
        _fetch(repository, remote, request, chosen, outcome)
    return outcome


def _fetch(
    repository: Repository, remote: Remote, request: Request, chosen: Sequence[Ref], outcome: Pulled
) -> None:
    known = versions.by_ids(repository.database, [ref.manifest for ref in chosen])
    promises = facts.promises(repository.database)
    more = bool(request.tensors) or not request.partial
    wanted = [ref for ref in chosen if ref.manifest not in known]
    completed = [ref for ref in chosen if ref.manifest in known and ref.manifest in promises]
    outcome.known = len(known)
    outcome.hidden = [v for v in known.values() if v.state in ("removed", "undone")]
    outcome.origins = {ref.manifest: ref for ref in wanted}
    wanted += completed if more else []
    arrivals = [_Arrival(repository, remote, ref, request) for ref in wanted]
    fetcher = Fetcher(remote.history.cache, lambda: remote.store)
    promised = PromisedIndex()
    for arrival in arrivals:
        promised.promise(fetcher, arrival.locator)
    pieces = [piece for arrival in arrivals for piece in arrival.pieces(promised.locators)]
    if request.planes is not None:
        pieces += _first_planes(remote, chosen, promised, fetcher, request.planes)
    adopter = Adopter(remote.store, repository.packs, repository.tmp, remote.history.cache)
    locators = [arrival.locator for arrival in arrivals]
    whole = {} if request.partial else adopting.whole_packs(locators, pieces)
    missing = fetcher.missing(piece for piece in pieces if piece.pack not in whole)
    missing_packs = {pack: whole[pack] for pack in adopter.missing(whole)}
    outcome.bytes = sum(chunk.length for chunks in missing.values() for chunk in chunks)
    outcome.bytes += sum(missing_packs.values())
    request.total(outcome.bytes)
    if request.dry_run:
        return
    adopter.fetch(missing_packs, request.progress)
    fetcher.fetch(missing, request.progress)
    store = MatrixStore(
        repository.packs, repository.tmp, PackIndex(repository.database), promised=promised
    )
    with closing(store):
        adopted = adopter.records(whole)
        _store(repository, remote, request, store, arrivals, adopted, outcome)
    repository.look_for_promised()
    if not request.partial:
        outcome.completed = [known[ref.manifest] for ref in completed]
        fetcher.forget(dict.fromkeys(piece.pack for piece in pieces))


def _first_planes(
    remote: Remote, chosen: Sequence[Ref], promised: PromisedIndex, fetcher: Fetcher, planes: int
) -> list[Piece]:
    """Return what bounds of the tensors are made of, if so many planes of them are read."""
    pieces: list[Piece] = []
    for ref in chosen:
        locator = remote.history.locator(ref)
        promised.promise(fetcher, locator)
        for encoding in locator.encodings[: locator.whole]:
            pieces += [
                piece
                for piece in promised.chunks(encoding.matrix)
                if piece.plane is None or piece.plane < planes
            ]
    tables = dict.fromkeys(str(p.codec["table"]) for p in pieces if "table" in p.codec)
    return pieces + [p for table in tables for p in promised.object_chunks("table", table)]


def _chosen(
    repository: Repository, remote: Remote, request: Request
) -> tuple[list[str], list[Ref]]:
    """Return the names of the models, and the refs of the versions to pull."""
    names = service.resolved(remote, request.names)
    if request.everything:
        names = remote.history.names()
    elif not names:
        names = _followed(repository, remote)
        if not names:
            raise UsageError(
                "a model must be named",
                why=f"none was pulled from {remote.name} before",
                hint=f"dlv pull {remote.name}:NAME",
            )
    chosen: dict[str, Ref] = {}
    for text in names:
        name, _, number = text.partition("@")
        manifest_format.check_name(name)
        available = published(remote.chain(repository, name))
        remote.note(repository, set(available))
        refs = [ref for ref in available.values() if number in ("", str(ref.number))]
        if number == "latest":
            refs = list(available.values())[-1:]
        if not refs and not request.names:
            continue  # all versions of the model were retired
        if not refs:
            labels = [f"{ref.name}@{ref.number}" for ref in available.values()]
            raise NotFound(
                f"{remote.name} has no version {text}",
                why=f"it has {', '.join(labels[-5:])}" if labels else None,
                did_you_mean=[] if labels else nearest(name, remote.history.names()),
                hint=f"dlv pull {remote.name}:{name}" if labels else "to pull all: dlv pull --all",
            )
        chosen |= {ref.manifest: ref for ref in refs}
    if remote.signed:
        signing.check(list(chosen.values()), remote.signers)
    models = dict.fromkeys(text.partition("@")[0] for text in names)
    return list(models), list(chosen.values())


def _followed(repository: Repository, remote: Remote) -> list[str]:
    """Return the models that were pulled from the remote or published to it."""
    prefix = f"{remote.file.uuid}/"
    subjects = facts.subjects(repository.database, "remote-head")
    return [name.removeprefix(prefix) for name in subjects if name.startswith(prefix)]


class _Arrival:
    """A version to pull: its manifest and locator, and later what of it must be fetched."""

    def __init__(self, repository: Repository, remote: Remote, ref: Ref, request: Request) -> None:
        self.repository, self.ref = repository, ref
        self._request = request
        self.label = f"{ref.name}@{ref.number}"
        data = remote.history.object("manifests", ref.manifest)
        self.manifest: Manifest = manifest_format.decode(data, f"manifest of {self.label}")
        containers = [c.path for s in self.manifest.snapshots for c in s.containers]
        for path in (*(entry.path for entry in self.manifest.files), *containers):
            paths.check(path)
        self.locator: Locator = remote.history.locator(ref)
        self._whole = {each.matrix for each in self.locator.encodings[: self.locator.whole]}
        self.facts = [self._fact(remote, digest) for digest in self.locator.facts]
        # The other checkpoints had been removed before the version was published.
        self.checkpoints = [
            index
            for index, snapshot in enumerate(self.manifest.snapshots)
            if self._whole.issuperset(digest for digest in snapshot.hashes if digest)
        ]
        self.matrices: dict[str, None] = {}
        self.objects: dict[tuple[str, str], None] = {}

    @property
    def removed(self) -> list[int | None]:
        """Steps of the checkpoints that the remote does not have."""
        snapshots = enumerate(self.manifest.snapshots)
        return [snapshot.step for index, snapshot in snapshots if index not in self.checkpoints]

    def _fact(self, remote: Remote, digest: str) -> Fact:
        fact = decode_fact(remote.history.object("facts", digest), f"fact of {self.label}")
        if (fact.kind, fact.subject) != ("evaluation", self.ref.manifest):
            raise UnsafeInput(f"{self.label} has a fact about something else", why=fact.kind)
        return fact

    def pieces(self, index: LocatorIndex) -> Iterator[Piece]:
        """Yield what must be fetched; note its tensors and objects."""
        own = LocatorIndex([self.locator])
        known = PackIndex(self.repository.database)
        pending = list(self._tensors())
        pending.reverse()
        seen: set[str] = set()
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            if known.encoding(name) is not None:
                continue
            encoding = index.encoding(name)
            if encoding is None or own.encoding(name) is None:
                raise self._incomplete(f"tensor {name[:12]}")
            self.matrices[name] = None
            pieces = index.chunks(name)
            if not pieces and not encoding.empty:
                raise self._incomplete(f"tensor {name[:12]}")
            for piece in pieces:
                yield piece
                if "table" in piece.codec:
                    yield from self._object(index, "table", str(piece.codec["table"]))
            if encoding.delta is not None and encoding.delta.get("base"):
                pending.append(encoding.delta["base"])
        for kind, name in self._named(own):
            if not known.object_chunks(kind, name):
                yield from self._object(index, kind, name)
        for entry in self.missing_files():
            yield from self._object(index, "file", entry.blake3)

    def _tensors(self) -> Iterator[str]:
        """Yield the hashes of the tensors to fetch."""
        manifest, patterns = self.manifest, self._request.tensors
        for index in self.checkpoints:
            hashes = manifest.snapshots[index].hashes
            for tensor, digest in zip(manifest.tensors, hashes, strict=True):
                if digest and (
                    not self._request.partial
                    or any(fnmatchcase(tensor.name, pattern) for pattern in patterns)
                ):
                    yield digest
        if manifest.network is not None and not self._request.partial:
            yield from (each["hash"] for each in manifest.network.constants)

    def missing_files(self) -> list[FileEntry]:
        files = FileStore(self.repository.files_git)
        return [entry for entry, _ in files.check(self.manifest.files)]

    def _named(self, own: LocatorIndex) -> Iterator[tuple[str, str]]:
        """Yield networks, curves, skeletons and bounds, from the locator and from the manifest."""
        yield from (key for key in own.rows if key[0] not in ("matrix", "table", "file"))
        if self.manifest.network is not None:
            yield "network", self.manifest.network.id
        yield from (("series", each.hash) for each in self.manifest.series)
        for position in self.checkpoints:
            yield from reachable.skeletons(self.manifest, position)

    def _object(self, index: LocatorIndex, kind: str, name: str) -> Iterator[Piece]:
        if (kind, name) in self.objects:
            return
        pieces = index.object_chunks(kind, name)
        if not pieces:
            raise self._incomplete(f"{kind} {name[:12]}")
        self.objects[kind, name] = None
        yield from pieces

    def _incomplete(self, what: str) -> Damaged:
        return Damaged(
            f"{self.label} is incomplete on the remote",
            why=f"its locator lacks {what}",
            hint="ask its author to publish it again",
        )


def _store(
    repository: Repository,
    remote: Remote,
    request: Request,
    store: MatrixStore,
    arrivals: Sequence[_Arrival],
    adopted: Sequence[PackRecord],
    outcome: Pulled,
) -> None:
    """Write files, packs and manifests and read them back; then make the versions visible."""
    for arrival in arrivals:
        _store_files(repository, store, arrival)
    here = {pack.hash for pack in adopted}
    packs = list(adopted)
    tensors = dict.fromkeys(name for arrival in arrivals for name in arrival.matrices)
    objects = dict.fromkeys(key for arrival in arrivals for key in arrival.objects)
    carried = [name for name in tensors if not is_inside(store.chunks(name), here)]
    carried_objects = [
        (kind, name)
        for kind, name in objects
        if kind != "file" and not is_inside(store.object_chunks(kind, name), here)
    ]
    if carried or carried_objects:
        with Packing(store) as packing:
            for name in carried:
                encoding = store.encoding(name)
                assert encoding is not None
                packing.carry(encoding)
            for kind, name in carried_objects:
                packing.carry_object(kind, name)
            packs += packing.finish(lambda _: None)
    if packs:
        reencode.verify(repository, MatrixStore.of(repository), packs, lambda _: None)
    overlay = Overlay(PackIndex(repository.database), packs)
    view = MatrixStore(repository.packs, repository.tmp, overlay)  # type: ignore[arg-type]
    with closing(view):
        ready = [_new_version(view, arrival, request) for arrival in arrivals]
    for arrival in arrivals:
        repository.write_manifest(arrival.manifest)
    # Without a new version there is nothing to undo, and `undo` skips fetches.
    with repository.change("pull" if arrivals else "fetch", request.author) as change:
        for arrival in arrivals:  # a version that gc deleted comes back
            for removal in facts.standing(change.db, "removal", arrival.ref.manifest):
                change.record("undo", removal, {})
        outcome.versions = make_visible(change, packs, ready, skip_known=True)
        shown = {version.id for version in outcome.versions}
        for arrival in arrivals:
            for evaluation in arrival.facts:
                change.adopt(evaluation)
            if arrival.ref.manifest in shown and arrival.removed:
                gone: dict[str, object] = {"steps": arrival.removed, "collected": arrival.removed}
                change.record("removal", arrival.ref.manifest, gone)
            _promise(change, remote, arrival, request)
            _index_bounds(change, store, arrival)
        summary = change.summary
        for name in outcome.names:
            remote.remember(change, name)
        change.summary = summary or "nothing new"
        if not change.facts:
            change.cancel()


def _promise(change: Change, remote: Remote, arrival: _Arrival, request: Request) -> None:
    """Record where weights are that were not fetched, or that there are none left."""
    standing = facts.standing(change.db, "promise", arrival.ref.manifest)
    if not request.partial:
        for promise in standing:
            change.record("undo", promise, {})
    elif not standing:
        where: dict[str, object] = {
            "remote": remote.name,
            "uuid": remote.file.uuid,
            "locator": arrival.ref.locator,
        }
        change.record("promise", arrival.ref.manifest, where)


def _index_bounds(change: Change, store: MatrixStore, arrival: _Arrival) -> None:
    """Let evaluations find the bounds that came with a version, if they can be read."""
    manifest = arrival.manifest
    hashes = {digest for snapshot in manifest.snapshots for digest in snapshot.hashes if digest}
    if manifest.network is not None:
        hashes |= {each["hash"] for each in manifest.network.constants}
    for kind, name in arrival.objects:
        if kind == bounds.KIND:
            with suppress(DlvError):
                record = bounds.decode(bytes(store.object(kind, name)))
                tensors = record.hashes(hashes, store.encoding)
                matrices.insert_bounds(change.db, name, record.network, tensors.values())


def _store_files(repository: Repository, store: MatrixStore, arrival: _Arrival) -> None:
    manifest = arrival.manifest
    if manifest.tree is None:
        return
    contents = {}
    for entry in arrival.missing_files():
        data = bytes(store.object("file", entry.blake3))
        if hash_bytes(data) != entry.blake3 or len(data) != entry.bytes:
            raise UnsafeInput(
                f"the file {entry.path} of {arrival.label} does not match its manifest"
            )
        contents[entry.git] = data
    files = FileStore(repository.files_git)
    with repository.alone("files.lock"):
        tree = files.store_contents(manifest.files, contents, arrival.label)
    if tree != manifest.tree:
        raise UnsafeInput(
            f"the files of {arrival.label} do not match its manifest", why=f"tree {tree}"
        )


def _new_version(view: MatrixStore, arrival: _Arrival, request: Request) -> NewVersion:
    manifest = arrival.manifest
    network = None
    if manifest.network is not None:
        network = stored_network(view, manifest.network.id)
    summaries = [stored_summary(view, reference.hash) for reference in manifest.series]
    return NewVersion(
        manifest,
        network,
        [summary for summary in summaries if summary is not None],
        request.name,
        arrival.ref.number if request.numbered else None,
    )
