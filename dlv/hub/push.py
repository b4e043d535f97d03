"""Publish: what a remote lacks of some versions is sent, then one small PUT makes each visible."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import field

import dlv.repository.revisions as revisions
from dlv.canonical import hash_bytes, timestamp
from dlv.dataclass import dataclass
from dlv.errors import Conflict, Damaged, RemoteError, UsageError
from dlv.hub.history import published
from dlv.hub.locator import Locator, LocatorBuilder, LocatorIndex
from dlv.hub.names import note_published
from dlv.hub.packing import Consignment, TransferPack
from dlv.hub.rebasing import Rebased, Rebaser, counterparts
from dlv.hub.records import Ref, object_key
from dlv.hub.remotes import Remote
from dlv.kinds import EncodingRow, Piece
from dlv.metadata import facts, matrices, versions
from dlv.metadata.database import Database
from dlv.metadata.versions import Version
from dlv.objects.manifest import FileEntry, Manifest, check_name
from dlv.pas.footer import Encoding
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository, read_object
from dlv.versions import reachable
from dlv.weights.store import MatrixStore

STREAMS = 4  # packs on their way at one time


@dataclass
class Request:
    """Which versions to publish, none = HEAD; `name`: under which name there."""

    references: Sequence[str]
    author: str
    name: str | None = None
    dry_run: bool = False
    progress: Callable[[int], None] = lambda _: None
    total: Callable[[int], None] = lambda _: None


@dataclass(frozen=True)
class Sent:
    """A version that the remote has now, and its number there."""

    version: Version
    name: str
    number: int


@dataclass
class Published:
    """What came of it; `known`: versions that the remote had already."""

    sent: list[Sent] = field(default_factory=list)
    known: list[Version] = field(default_factory=list)
    bytes: int = 0  # of packs that were sent, or would be
    resumed: int = 0  # of packs that had arrived before


def publish(repository: Repository, remote: Remote, request: Request) -> Published:
    """Send versions and the ancestors that the remote lacks, the oldest first."""
    outcome = Published()
    if not remote.store.writable:
        raise RemoteError(f"{remote.url} is read-only", hint="publish where it is served from")
    wanted = _wanted(repository, request.references)
    renamed = _models(repository, request)
    names = dict.fromkeys(renamed.get(version.name, version.name) for version in wanted)
    there: dict[str, Ref] = {}
    for name in names:
        chain = remote.history.chain(name, remote.remembered(repository, name))
        _check_seen(repository, remote, chain, name)
        there |= published(chain)
    missing = [version for version in wanted if version.id not in there]
    outcome.known = [version for version in wanted if version.id in there]
    note_published(repository, remote.name, set(there))
    if missing:
        with repository.holding():
            _send(repository, remote, request, missing, renamed, outcome)
    if not request.dry_run:
        with repository.change("publish", request.author) as change:
            before = len(change.facts)
            for name in names:
                remote.remember(change, name)
            change.summary = f"{len(outcome.sent)} to {remote.name}"
            if len(change.facts) == before:
                change.cancel()
    return outcome


def _wanted(repository: Repository, references: Sequence[str]) -> list[Version]:
    """The versions and their ancestors, oldest first."""
    db = repository.database
    if not references and repository.head is None:
        raise UsageError("nothing to publish: no version yet", hint="dlv commit")
    found: dict[str, Version] = {}
    for text in references or ("HEAD",):
        version = revisions.version(db, text)
        lineage = versions.ancestors(db, version.key)
        for each in lineage if version.number is not None else ():
            if each.number is not None and each.state == "live":
                found[each.id] = each
    return sorted(found.values(), key=lambda version: (version.created, version.key))


def _models(repository: Repository, request: Request) -> dict[str, str]:
    """The name on the remote of each model that is published under another one."""
    if request.name is None:
        return {}
    check_name(request.name)
    named = [
        revisions.version(repository.database, text) for text in request.references or ("HEAD",)
    ]
    return {version.name: request.name for version in named}


def _check_seen(repository: Repository, remote: Remote, chain: Sequence[Ref], name: str) -> None:
    """Nothing is published on top of what nobody here has looked at."""
    unseen = [
        ref
        for ref in published(chain).values()
        if versions.by_id(repository.database, ref.manifest) is None
    ]
    if unseen:
        labels = ", ".join(f"{ref.name}@{ref.number}" for ref in unseen[-3:])
        raise Conflict(
            f"{remote.name} has versions of {name} that are not here",
            why=labels,
            hint=f"dlv pull {remote.name}:{name}",
        )


def _send(
    repository: Repository,
    remote: Remote,
    request: Request,
    missing: Sequence[Version],
    renamed: Mapping[str, str],
    outcome: Published,
) -> None:
    known = LocatorIndex()
    there = remote.history.names()
    for name in there:
        chain = remote.history.chain(name, remote.remembered(repository, name))
        for locator in remote.history.locators(published(chain).values()):
            known.add(locator)
    store = MatrixStore.of(repository)
    with contextlib.closing(Rebaser(store, known, repository.tmp)) as rebaser:
        plans = [_Plan(repository, version, known, store, rebaser) for version in missing]
        _send_plans(repository, remote, request, plans, known, renamed, outcome)
    if not request.dry_run:
        remote.history.note_names([*there, *(sent.name for sent in outcome.sent)])


def _send_plans(
    repository: Repository,
    remote: Remote,
    request: Request,
    plans: Sequence[_Plan],
    known: LocatorIndex,
    renamed: Mapping[str, str],
    outcome: Published,
) -> None:
    # What two of them need is sent with the first.
    taken: set[tuple[str, str]] = set()
    for plan in plans:
        plan.leave_out(taken)
        taken |= plan.send.keys()
    shipments = [plan.consignment() for plan in plans]
    request.total(sum(shipment.bytes for shipment in shipments))
    for plan, shipment in zip(plans, shipments, strict=True):
        name = renamed.get(plan.version.name, plan.version.name)
        if request.dry_run:
            outcome.bytes += shipment.bytes
            outcome.sent.append(Sent(plan.version, name, 0))
            continue
        packs = list(_upload(remote, shipment, request.progress, outcome))
        locator = plan.locator(packs)
        known.add(locator)
        outcome.sent.append(_commit(repository, remote, name, request.author, plan, locator))
        note_published(repository, remote.name, {plan.version.id})


class _Plan:
    """What one version needs: what the remote has of it, and what must be sent."""

    def __init__(
        self,
        repository: Repository,
        version: Version,
        known: LocatorIndex,
        store: MatrixStore,
        rebaser: Rebaser,
    ) -> None:
        self.repository, self.version, self._known = repository, version, known
        self.store, self._rebaser = store, rebaser
        self.manifest = repository.manifest(version.id)
        self._bases = _bases(repository, self.manifest)
        self._entries = {entry.blake3: entry for entry in self.manifest.files}
        self.needs: dict[tuple[str, str], None] = {}
        self.send: dict[tuple[str, str], None] = {}
        pending = list(_needs(repository, self.manifest, version, self.store))[::-1]
        while pending:
            need = pending.pop()
            if need not in self.needs:
                self.needs[need] = None
                pending += self._behind(need)

    def _behind(self, need: tuple[str, str]) -> Iterator[tuple[str, str]]:
        """What is needed to read it, in the encoding that will count there."""
        kind, name = need
        there: EncodingRow | None = None
        if kind == "matrix":
            there = self._known.encoding(name)
            here = there or self._encoding(name)
            if here.delta is not None and here.delta.get("base"):
                yield "matrix", here.delta["base"]
            pieces: Sequence[Piece] = (self._known if there else self.store).chunks(name)
            if there is None and self._rebased(name) is not None:
                pieces = ()  # no table is needed
            yield from (("table", str(p.codec["table"])) for p in pieces if "table" in p.codec)
        if there is None and not self._known.object_chunks(kind, name):
            self.send[need] = None

    def _encoding(self, name: str) -> Encoding:
        """How it will be sent: against what the remote has of the parent, if that is smaller."""
        here = self.store.encoding(name)
        if here is None:
            raise Damaged(f"tensor {name[:12]} is missing", hint="dlv fsck")
        made = self._rebased(name)
        return here if made is None else made.encoding

    def _rebased(self, name: str) -> Rebased | None:
        here = self.store.encoding(name)
        assert here is not None
        if here.delta is not None and self._known.encoding(str(here.delta.get("base"))):
            return None  # a delta against something that is there, found with more patience
        return self._rebaser.rebased(here, self._bases.get(name))

    def leave_out(self, taken: Iterable[tuple[str, str]]) -> None:
        for need in taken:
            self.send.pop(need, None)

    def consignment(self) -> Consignment:
        found = Consignment(self.store)
        for kind, name in self.send:
            if kind == "matrix":
                made = self._rebased(name)
                if made is None:
                    found.add_matrix(self._encoding(name))
                else:
                    found.add_rebased(made, self._rebaser.read)
            elif kind == "file":
                self._add_file(found, self._entries[name])
            else:
                found.add_object(kind, name)
        found.seal()
        return found

    def _add_file(self, found: Consignment, entry: FileEntry) -> None:
        files = FileStore(self.repository.files_git)
        found.add_content("file", entry.blake3, entry.bytes, lambda: files.read(entry))

    def locator(self, packs: Sequence[TransferPack]) -> Locator:
        """The packs just sent, and from the remote's own locators what was there before."""
        made = LocatorBuilder()
        for pack in packs:
            pack.add_to(made)
        for need in self.needs.keys() - self.send.keys():
            if need[0] == "matrix":
                made.declare(self._known.encodings[need[1]])
        for need in self.needs:
            if need not in self.send:
                for row in self._known.rows.get(need, ()):
                    made.add(row)
        whole = (name for kind, name in self.needs if kind == "matrix")
        locator = made.finish(self.version.id, whole)
        locator.facts = self.facts()
        return locator

    def facts(self) -> list[str]:
        """What travels with a version beside its content: its evaluations."""
        return facts.standing(self.repository.database, "evaluation", self.version.id)


def _bases(repository: Repository, manifest: Manifest) -> dict[str, str]:
    """Matrix -> that of the same tensor in the parent, where both have it."""
    parent = next((versions.by_id(repository.database, p.id) for p in manifest.parents), None)
    if parent is None:
        return {}
    below = _tensors(repository.manifest(parent.id))
    return counterparts(_tensors(manifest), below)


def _tensors(manifest: Manifest) -> dict[str, str]:
    """Tensor -> matrix, of the checkpoint that counts."""
    if manifest.own is None:
        return {}
    hashes = manifest.snapshots[manifest.own].hashes
    return {entry.name: h for entry, h in zip(manifest.tensors, hashes, strict=True) if h}


def _needs(
    repository: Repository, manifest: Manifest, version: Version, store: MatrixStore
) -> Iterator[tuple[str, str]]:
    """(kind, hash) of all that a version needs but for what its deltas rest on."""
    db = repository.database
    # Checkpoints that were removed here are not sent; who pulls finds them removed.
    kept = [row.index for row in versions.snapshots(db, version.key) if not row.removed]
    hashes = dict.fromkeys(
        digest for index in kept for digest in manifest.snapshots[index].hashes if digest
    )
    yield from (("matrix", digest) for digest in hashes)
    for index in kept:
        yield from reachable.skeletons(manifest, index)
    yield from reachable.needs(manifest, lambda name: bytes(store.object("series", name)))
    yield from (("bounds", name) for name in _bounds(db, manifest, hashes))
    yield from (("file", entry.blake3) for entry in manifest.files)


def _bounds(db: Database, manifest: Manifest, hashes: Iterable[str]) -> list[str]:
    if manifest.network is None:
        return []
    constants = [each["hash"] for each in manifest.network.constants]
    return matrices.bounds_candidates(db, manifest.network.id, [*hashes, *constants])[:1]


def _upload(
    remote: Remote, shipment: Consignment, progress: Callable[[int], None], outcome: Published
) -> Iterator[TransferPack]:
    """Send packs, a few at a time; what has arrived in an earlier try is left alone."""

    def send(pack: TransferPack) -> tuple[int, int]:
        key = object_key("packs", pack.hash)
        if remote.store.size(key) == len(pack.data):
            return 0, len(pack.data)
        remote.store.put(key, pack.data)
        return len(pack.data), 0

    waiting: set[Future[tuple[int, int]]] = set()

    def settle(done: Iterable[Future[tuple[int, int]]]) -> None:
        for future in done:
            sent, there = future.result()
            outcome.bytes += sent
            outcome.resumed += there
            progress(sent + there)

    with ThreadPoolExecutor(STREAMS) as pool:
        for pack in shipment.packs():
            if len(waiting) >= STREAMS:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                settle(done)
            waiting.add(pool.submit(send, pack))
            yield TransferPack(pack.hash, b"", pack.rows)
        settle(wait(waiting).done)


def _commit(
    repository: Repository, remote: Remote, name: str, author: str, plan: _Plan, locator: Locator
) -> Sent:
    """Manifest and locator, and then the ref: from there on the version is published."""
    store = remote.store
    data = locator.encode()
    store.put(object_key("manifests", plan.version.id), plan.manifest.encode())
    for digest in locator.facts:
        fact = read_object(repository.facts, digest, "fact")
        store.put(object_key("facts", digest), fact)
    store.put(object_key("locators", hash_bytes(data)), data)
    for pack in locator.packs:
        if store.size(object_key("packs", pack)) is None:
            raise RemoteError(
                f"pack {pack[:12]} is no longer at {remote.url}", hint="run dlv publish again"
            )
    while True:
        chain = remote.history.chain(name, remote.remembered(repository, name))
        _check_seen(repository, remote, chain, name)
        if plan.version.id in (there := published(chain)):
            return Sent(plan.version, name, there[plan.version.id].number)
        numbers = [ref.number for ref in chain if ref.kind == "publish"]
        ref = Ref(
            seq=len(chain) + 1,
            kind="publish",
            name=name,
            number=max(numbers, default=0) + 1,
            manifest=plan.version.id,
            locator=hash_bytes(data),
            prev=chain[-1].hash if chain else None,
            author=author,
            time=timestamp(),
            nonce=os.urandom(16).hex(),
        )
        if remote.history.append(ref):
            return Sent(plan.version, name, ref.number)
