"""Publish versions: send what the remote lacks, then make each visible with one small PUT."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import field
from pathlib import Path

import dlv.hub.signing as signing
import dlv.repository.revisions as revisions
from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.errors import Conflict, Damaged, RemoteError, UsageError
from dlv.hub.deletion import Lease, leased
from dlv.hub.history import published, successor
from dlv.hub.index import Pending
from dlv.hub.locator import Locator, LocatorBuilder, LocatorIndex
from dlv.hub.packing import Consignment, TransferPack
from dlv.hub.rebasing import Rebased, Rebaser
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

STREAMS = 4  # packs that are sent at once


@dataclass
class Request:
    """What to publish, by default HEAD; `name` is the name of the model on the remote."""

    references: Sequence[str]
    author: str
    name: str | None = None
    sign: Path | None = None  # the SSH key to sign with
    dry_run: bool = False
    progress: Callable[[int], None] = lambda _: None
    total: Callable[[int], None] = lambda _: None


@dataclass(frozen=True)
class Sent:
    """A published version, with its name and number on the remote."""

    version: Version
    name: str
    number: int


@dataclass
class Published:
    """What was published; `known` are versions that the remote already had."""

    sent: list[Sent] = field(default_factory=list)
    known: list[Version] = field(default_factory=list)
    bytes: int = 0  # of packs that were sent, or would be
    resumed: int = 0  # of packs that had arrived before


def publish(repository: Repository, remote: Remote, request: Request) -> Published:
    """Publish versions and their ancestors, oldest first."""
    outcome = Published()
    if not remote.store.writable:
        raise RemoteError(
            f"{remote.url} is read-only", hint="publish to the folder or bucket that it serves"
        )
    wanted = _wanted(repository, request.references)
    renamed = _models(repository, request)
    names = dict.fromkeys(renamed.get(version.name, version.name) for version in wanted)
    refs: dict[str, Ref] = {}
    for name in names:
        chain = remote.chain(repository, name)
        _check_seen(repository, remote, chain, name)
        refs |= published(chain)
    missing = [version for version in wanted if version.id not in refs]
    outcome.known = [version for version in wanted if version.id in refs]
    remote.note(repository, set(refs))
    if missing:
        flag = nullcontext() if request.dry_run else leased(remote.store)
        with repository.holding(), flag as lease:
            _send(repository, remote, request, missing, renamed, outcome, lease)
    if not request.dry_run and not remote.transient:
        pending = Pending(repository, remote)
        refs = {
            k: ref for name in names for k, ref in published(remote.history.known(name)).items()
        }
        pending.write(refs)
        with repository.change("publish", request.author) as change:
            before = len(change.facts)
            for name in names:
                remote.remember(change, name)
            change.summary = f"{len(outcome.sent)} to {remote.name}"
            if len(change.facts) == before:
                change.cancel()
    return outcome


def _wanted(repository: Repository, references: Sequence[str]) -> list[Version]:
    """Return the referenced versions and their ancestors, oldest first."""
    db = repository.database
    if not references and repository.head is None:
        if not versions.names(db):
            raise UsageError("nothing to publish: no versions yet", hint="dlv commit")
        raise UsageError("nothing to publish: no version is checked out", hint="dlv publish MODEL")
    wanted: dict[str, Version] = {}
    for text in references or ("HEAD",):
        version = revisions.version(db, text)
        lineage = versions.ancestors(db, version.key) if version.number is not None else []
        wanted |= {v.id: v for v in lineage if v.number is not None and v.state == "live"}
    return sorted(wanted.values(), key=lambda version: (version.created, version.key))


def _models(repository: Repository, request: Request) -> dict[str, str]:
    """Map models to their names on the remote, where `--name` changes them."""
    if request.name is None:
        return {}
    check_name(request.name)
    named = [
        revisions.version(repository.database, text) for text in request.references or ("HEAD",)
    ]
    return {version.name: request.name for version in named}


def _check_seen(repository: Repository, remote: Remote, chain: Sequence[Ref], name: str) -> None:
    """Refuse to publish after versions that this repository has not pulled."""
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
    lease: Lease | None,
) -> None:
    known = LocatorIndex()
    names = remote.history.names()
    for name in names:
        chain = remote.chain(repository, name)
        for locator in remote.history.locators(published(chain).values()):
            known.add(locator)
    store = MatrixStore.of(repository)
    with contextlib.closing(Rebaser(store, known, repository.tmp)) as rebaser:
        plans = [_Plan(repository, version, known, store, rebaser) for version in missing]
        _send_plans(repository, remote, request, plans, known, renamed, outcome, lease)
    if not request.dry_run:
        remote.history.note_names([*names, *(sent.name for sent in outcome.sent)])


def _send_plans(
    repository: Repository,
    remote: Remote,
    request: Request,
    plans: Sequence[_Plan],
    known: LocatorIndex,
    renamed: Mapping[str, str],
    outcome: Published,
    lease: Lease | None,
) -> None:
    # What two versions need is sent with the first of them.
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
        assert lease is not None
        outcome.sent.append(_commit(repository, remote, name, request, plan, locator, lease))
        remote.note(repository, {plan.version.id})


class _Plan:
    """The (kind, hash) pairs that one version needs, and those of them that must be sent."""

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
        """Yield what a tensor needs to be decoded on the remote; note what must be sent."""
        kind, name = need
        remote_encoding: EncodingRow | None = None
        if kind == "matrix":
            remote_encoding = self._known.encoding(name)
            encoding = remote_encoding or self._encoding(name)
            if encoding.delta is not None and encoding.delta.get("base"):
                yield "matrix", encoding.delta["base"]
            pieces: Sequence[Piece] = (self._known if remote_encoding else self.store).chunks(name)
            if remote_encoding is None and self._rebased(name) is not None:
                pieces = ()  # no table is needed
            yield from (("table", str(p.codec["table"])) for p in pieces if "table" in p.codec)
        if remote_encoding is None and not self._known.object_chunks(kind, name):
            self.send[need] = None

    def _encoding(self, name: str) -> Encoding:
        """Return the encoding on the remote: the stored one, or a smaller delta."""
        stored = self.store.encoding(name)
        if stored is None:
            raise Damaged(f"tensor {name[:12]} is missing", hint="dlv fsck")
        rebased = self._rebased(name)
        return stored if rebased is None else rebased.encoding

    def _rebased(self, name: str) -> Rebased | None:
        stored = self.store.encoding(name)
        assert stored is not None
        if stored.delta is not None and self._known.encoding(str(stored.delta.get("base"))):
            return None  # the stored delta can be sent, and `archive` searched longer for it
        return self._rebaser.rebased(stored, self._bases.get(name))

    def leave_out(self, taken: Iterable[tuple[str, str]]) -> None:
        for need in taken:
            self.send.pop(need, None)

    def consignment(self) -> Consignment:
        shipment = Consignment(self.store)
        for kind, name in self.send:
            if kind == "matrix":
                rebased = self._rebased(name)
                if rebased is None:
                    shipment.add_matrix(self._encoding(name))
                else:
                    shipment.add_rebased(rebased, self._rebaser.read)
            elif kind == "file":
                self._add_file(shipment, self._entries[name])
            else:
                shipment.add_object(kind, name)
        shipment.seal()
        return shipment

    def _add_file(self, shipment: Consignment, entry: FileEntry) -> None:
        files = FileStore(self.repository.files_git)
        shipment.add_content("file", entry.blake3, entry.bytes, lambda: files.read(entry))

    def locator(self, packs: Sequence[TransferPack]) -> Locator:
        """Return the locator, from the packs just sent and the locators of the remote."""
        builder = LocatorBuilder()
        for pack in packs:
            pack.add_to(builder)
        for kind, name in self.needs.keys() - self.send.keys():
            if kind == "matrix":
                builder.declare(self._known.encodings[name])
        for need in self.needs:
            if need not in self.send:
                for row in self._known.rows.get(need, ()):
                    builder.add(row)
        whole = (name for kind, name in self.needs if kind == "matrix")
        locator = builder.finish(self.version.id, whole)
        database = self.repository.database
        locator.facts = facts.standing(database, "evaluation", self.version.id)
        return locator


def _bases(repository: Repository, manifest: Manifest) -> dict[str, str]:
    """Map each matrix to the different one that the parent has for the same tensor."""
    parent = next((versions.by_id(repository.database, p.id) for p in manifest.parents), None)
    if parent is None:
        return {}
    before = _matrices_by_tensor(repository.manifest(parent.id))
    return {
        matrix: before[tensor]
        for tensor, matrix in _matrices_by_tensor(manifest).items()
        if before.get(tensor, matrix) != matrix
    }


def _matrices_by_tensor(manifest: Manifest) -> dict[str, str]:
    """Map tensors to matrices, for the default checkpoint."""
    if manifest.own is None:
        return {}
    hashes = manifest.snapshots[manifest.own].hashes
    return {entry.name: h for entry, h in zip(manifest.tensors, hashes, strict=True) if h}


def _needs(
    repository: Repository, manifest: Manifest, version: Version, store: MatrixStore
) -> Iterator[tuple[str, str]]:
    """Yield (kind, hash) of everything in a version. The bases of its deltas are not included."""
    db = repository.database
    # Removed checkpoints are not sent, and `pull` marks them as removed.
    present = [row.index for row in versions.snapshots(db, version.key) if not row.removed]
    hashes = dict.fromkeys(
        digest for index in present for digest in manifest.snapshots[index].hashes if digest
    )
    yield from (("matrix", digest) for digest in hashes)
    for index in present:
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
    """Send packs, a few at a time; skip those that an earlier try has sent."""

    def send(pack: TransferPack) -> tuple[int, int]:
        sent = min(remote.store.add(object_key("packs", pack.hash), pack.data), len(pack.data))
        return sent, len(pack.data) - sent

    waiting: set[Future[tuple[int, int]]] = set()

    def settle(done: Iterable[Future[tuple[int, int]]]) -> None:
        for future in done:
            sent, present = future.result()
            outcome.bytes += sent
            outcome.resumed += present
            progress(sent + present)

    with ThreadPoolExecutor(STREAMS) as pool:
        for pack in shipment.packs():
            if len(waiting) >= STREAMS:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                settle(done)
            waiting.add(pool.submit(send, pack))
            yield TransferPack(pack.hash, b"", pack.rows)
        settle(wait(waiting).done)


def _commit(
    repository: Repository,
    remote: Remote,
    name: str,
    request: Request,
    plan: _Plan,
    locator: Locator,
    lease: Lease,
) -> Sent:
    """Send manifest, facts and locator; then publish the version with its ref."""
    store = remote.store
    data = locator.encode()
    objects = {object_key("manifests", plan.version.id): plan.manifest.encode()}
    for digest in locator.facts:
        objects[object_key("facts", digest)] = read_object(repository.facts, digest, "fact")
    store.put_all({**objects, object_key("locators", hash_bytes(data)): data})
    # A hub checks them when it takes the ref.
    for pack in () if store.managed else locator.packs:
        if store.size(object_key("packs", pack)) is None:
            raise RemoteError(f"pack {pack[:12]} was deleted from {remote.url}", hint="dlv publish")
    while True:
        chain = remote.chain(repository, name)
        _check_seen(repository, remote, chain, name)
        if plan.version.id in (refs := published(chain)):
            return Sent(plan.version, name, refs[plan.version.id].number)
        numbers = [ref.number for ref in chain if ref.kind == "publish"]
        ref = successor(
            chain,
            "publish",
            name=name,
            number=max(numbers, default=0) + 1,
            manifest=plan.version.id,
            locator=hash_bytes(data),
            author=request.author,
        )
        if request.sign is not None:
            ref = signing.sign(ref, request.sign)
        lease.check()
        if not remote.transient:
            Pending(repository, remote).note([plan.version.id])
        if remote.history.append(ref):
            return Sent(plan.version, name, ref.number)
