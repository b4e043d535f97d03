"""Pull: versions of a remote, fetched, verified to the last byte, and only then visible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import field

import dlv.archiving.reencode as reencode
import dlv.disk.paths as paths
import dlv.objects.manifest as manifest_format
from dlv.archiving.reencode import Overlay, Packing
from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.errors import Damaged, NotFound, UnsafeInput, UsageError, nearest
from dlv.hub.fetching import FetchedStore, Fetcher
from dlv.hub.history import published
from dlv.hub.locator import Locator, LocatorIndex
from dlv.hub.names import note_published
from dlv.hub.records import Ref
from dlv.hub.remotes import Remote
from dlv.kinds import Piece
from dlv.metadata import facts, versions
from dlv.metadata.matrices import PackIndex
from dlv.metadata.versions import Version
from dlv.objects.fact import Fact, decode_fact
from dlv.objects.manifest import FileEntry, Manifest
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository
from dlv.versions import reachable
from dlv.versions.commit import NewVersion
from dlv.versions.commit import publish as make_visible
from dlv.weights.store import MatrixStore, stored_network, stored_summary
from dlv.weights.writer import PackRecord


@dataclass
class Request:
    """`names`: lenet or lenet@3, none = what is new of models that were pulled before.

    `name`: what the model is called here. `everything`: all models of the remote.
    """

    names: Sequence[str]
    author: str
    name: str | None = None
    everything: bool = False
    dry_run: bool = False
    progress: Callable[[int], None] = lambda _: None
    total: Callable[[int], None] = lambda _: None


@dataclass
class Pulled:
    """`versions`: what is new here; `known`: how many were here already."""

    versions: list[Version] = field(default_factory=list)
    origins: dict[str, Ref] = field(default_factory=dict)  # version id -> its ref there
    known: int = 0
    hidden: list[Version] = field(default_factory=list)  # of these: removed or undone here
    names: list[str] = field(default_factory=list)  # what was looked at there
    bytes: int = 0  # of chunks that came, or would come


def pull(repository: Repository, remote: Remote, request: Request) -> Pulled:
    """Fetch what is missing of the chosen versions; they become visible together."""
    outcome = Pulled()
    outcome.names, chosen = _chosen(repository, remote, request)
    here = versions.by_ids(repository.database, [ref.manifest for ref in chosen])
    fresh = [ref for ref in chosen if ref.manifest not in here]
    outcome.known = len(here)
    outcome.hidden = [each for each in here.values() if each.state in ("removed", "undone")]
    outcome.origins = {ref.manifest: ref for ref in fresh}
    arrivals = [_Arrival(repository, remote, ref) for ref in fresh]
    index = LocatorIndex(arrival.locator for arrival in arrivals)
    fetcher = Fetcher(remote.store, remote.history.cache)
    pieces = [piece for arrival in arrivals for piece in arrival.pieces(index)]
    missing = fetcher.missing(pieces)
    outcome.bytes = sum(chunk.length for chunks in missing.values() for chunk in chunks)
    request.total(outcome.bytes)
    if request.dry_run:
        return outcome
    fetcher.fetch(missing, request.progress)
    store = FetchedStore(fetcher, index, repository.packs, repository.tmp)
    with closing(store), repository.writing():
        _store(repository, remote, request, store, arrivals, outcome)
    fetcher.forget(dict.fromkeys(piece.pack for piece in pieces))
    return outcome


def _chosen(
    repository: Repository, remote: Remote, request: Request
) -> tuple[list[str], list[Ref]]:
    names = list(request.names)
    if request.everything:
        names = remote.history.names()
    elif not names:
        names = _followed(repository, remote)
        if not names:
            raise UsageError(
                "which model?", why="none was pulled before", hint=f"dlv pull {remote.name}:NAME"
            )
    found: list[Ref] = []
    for text in names:
        name, _, number = text.partition("@")
        manifest_format.check_name(name)
        chain = remote.history.chain(name, remote.remembered(repository, name))
        there = published(chain)
        note_published(repository, remote.name, set(there))
        refs = [ref for ref in there.values() if number in ("", str(ref.number))]
        if number == "latest":
            refs = list(there.values())[-1:]
        if not refs:
            known = remote.history.names()
            labels = [f"{ref.name}@{ref.number}" for ref in there.values()]
            raise NotFound(
                f"{remote.name} has no version {text}",
                why=f"it has {', '.join(labels[-5:])}" if labels else None,
                did_you_mean=[] if labels else nearest(name, known),
                hint=f"dlv pull {remote.name}:{name}" if labels else "to pull all: dlv pull --all",
            )
        found += refs
    looked = dict.fromkeys(text.partition("@")[0] for text in names)
    return list(looked), list({ref.manifest: ref for ref in found}.values())


def _followed(repository: Repository, remote: Remote) -> list[str]:
    """Names of which this repository has seen refs of the remote."""
    prefix = f"{remote.file.uuid}/"
    subjects = facts.subjects(repository.database, "remote-head")
    return [name.removeprefix(prefix) for name in subjects if name.startswith(prefix)]


class _Arrival:
    """One version on its way: its manifest, and where its chunks are."""

    def __init__(self, repository: Repository, remote: Remote, ref: Ref) -> None:
        self.repository, self.ref = repository, ref
        self.label = f"{ref.name}@{ref.number}"
        data = remote.history.object("manifests", ref.manifest)
        self.manifest: Manifest = manifest_format.decode(data, f"manifest of {self.label}")
        containers = [c.path for s in self.manifest.snapshots for c in s.containers]
        for path in (*(entry.path for entry in self.manifest.files), *containers):
            paths.check(path)
        self.locator: Locator = remote.history.locator(ref)
        self._whole = {each.matrix for each in self.locator.encodings[: self.locator.whole]}
        self.facts = [self._fact(remote, digest) for digest in self.locator.facts]
        # Whoever published it had removed the other checkpoints.
        self.kept = [
            index
            for index, snapshot in enumerate(self.manifest.snapshots)
            if self._whole.issuperset(digest for digest in snapshot.hashes if digest)
        ]
        self.matrices: dict[str, None] = {}
        self.objects: dict[tuple[str, str], None] = {}

    @property
    def removed(self) -> list[int | None]:
        """Steps of the checkpoints that are on the remote no more."""
        snapshots = enumerate(self.manifest.snapshots)
        return [snapshot.step for index, snapshot in snapshots if index not in self.kept]

    def _fact(self, remote: Remote, digest: str) -> Fact:
        fact = decode_fact(remote.history.object("facts", digest), f"fact of {self.label}")
        if (fact.kind, fact.subject) != ("evaluation", self.ref.manifest):
            raise UnsafeInput(f"{self.label} brings a fact about something else", why=fact.kind)
        return fact

    def pieces(self, index: LocatorIndex) -> Iterator[Piece]:
        """All that must come; collects which tensors and objects these are."""
        own = LocatorIndex([self.locator])
        known = PackIndex(self.repository.database)
        manifest = self.manifest
        pending = [d for index in self.kept for d in manifest.snapshots[index].hashes if d]
        if manifest.network is not None:
            pending += [each["hash"] for each in manifest.network.constants]
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

    def missing_files(self) -> list[FileEntry]:
        files = FileStore(self.repository.files_git)
        return [entry for entry, _ in files.check(self.manifest.files)]

    def _named(self, own: LocatorIndex) -> Iterator[tuple[str, str]]:
        """Networks, curves, skeletons and bounds; the manifest may know more than the locator."""
        yield from (key for key in own.rows if key[0] not in ("matrix", "table", "file"))
        if self.manifest.network is not None:
            yield "network", self.manifest.network.id
        yield from (("series", each.hash) for each in self.manifest.series)
        for position in self.kept:
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
    store: FetchedStore,
    arrivals: Sequence[_Arrival],
    outcome: Pulled,
) -> None:
    """Packs, files and manifests are written and read back; then one transaction shows them."""
    for arrival in arrivals:
        _store_files(repository, store, arrival)
    packs: list[PackRecord] = []
    matrices = dict.fromkeys(name for arrival in arrivals for name in arrival.matrices)
    objects = dict.fromkeys(key for arrival in arrivals for key in arrival.objects)
    if matrices or any(kind != "file" for kind, _ in objects):
        with Packing(store) as packing:
            for name in matrices:
                encoding = store.encoding(name)
                assert encoding is not None
                packing.carry(encoding)
            for kind, name in objects:
                if kind != "file":
                    packing.carry_object(kind, name)
            packs = packing.finish(lambda _: None)
        reencode.verify(repository, MatrixStore.of(repository), packs, lambda _: None)
    overlay = Overlay(PackIndex(repository.database), packs)
    view = MatrixStore(repository.packs, repository.tmp, overlay)  # type: ignore[arg-type]
    with closing(view):
        ready = [_new_version(view, arrival, request.name) for arrival in arrivals]
    for arrival in arrivals:
        repository.write_manifest(arrival.manifest)
    # With nothing new there is nothing for `undo` to take back.
    with repository.change("pull" if arrivals else "fetch", request.author) as change:
        for arrival in arrivals:  # what gc took of it here is about to be back
            for fact in facts.standing(change.db, "removal", arrival.ref.manifest):
                change.record("undo", fact, {})
        outcome.versions = make_visible(change, packs, ready, skip_known=True)
        shown = {version.id for version in outcome.versions}
        for arrival in arrivals:
            for evaluation in arrival.facts:
                change.adopt(evaluation)
            if arrival.ref.manifest in shown and arrival.removed:
                gone: dict[str, object] = {"steps": arrival.removed, "collected": arrival.removed}
                change.record("removal", arrival.ref.manifest, gone)
        summary = change.summary
        for name in outcome.names:
            remote.remember(change, name)
        change.summary = summary or "nothing new"
        if not change.facts:
            change.cancel()


def _store_files(repository: Repository, store: FetchedStore, arrival: _Arrival) -> None:
    manifest = arrival.manifest
    if manifest.tree is None:
        return
    contents = {}
    for entry in arrival.missing_files():
        data = bytes(store.object("file", entry.blake3))
        if hash_bytes(data) != entry.blake3 or len(data) != entry.bytes:
            raise UnsafeInput(f"the file {entry.path} of {arrival.label} has another content")
        contents[entry.git] = data
    files = FileStore(repository.files_git)
    with repository.alone("files.lock"):
        tree = files.store_contents(manifest.files, contents, arrival.label)
    if tree != manifest.tree:
        raise UnsafeInput(
            f"the files of {arrival.label} are not those of its manifest", why=f"tree {tree}"
        )


def _new_version(view: MatrixStore, arrival: _Arrival, name: str | None) -> NewVersion:
    manifest = arrival.manifest
    network = None
    if manifest.network is not None:
        network = stored_network(view, manifest.network.id)
    summaries = [stored_summary(view, reference.hash) for reference in manifest.series]
    return NewVersion(manifest, network, [s for s in summaries if s is not None], name)
