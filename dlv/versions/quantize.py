"""`quantize`: make a model with rounded weights from a version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import dlv.repository.revisions as revisions
import dlv.weights.rounding as rounding
import dlv.weights.snapshots as snapshots
from dlv.adapters.checkpoint import Tensor
from dlv.canonical import timestamp
from dlv.dataclass import dataclass
from dlv.errors import Conflict, UsageError
from dlv.kinds import Raw
from dlv.metadata import matrices, versions
from dlv.metadata.versions import Version
from dlv.objects.manifest import Container, Manifest, Parent, Snapshot, check_name
from dlv.pas.layouts.schemes import Fit, Scheme, parse
from dlv.repository.handle import Repository
from dlv.versions.commit import NewVersion, publish
from dlv.weights.snapshots import Weights
from dlv.weights.store import MatrixStore, stored_network
from dlv.weights.writer import PackRecord, WeightWriter

KIND = "scheme"


@dataclass(frozen=True)
class Quantized:
    """The quantized version and what it saves. `made` is False if it existed before.

    `before`, `after`: what the weights of the source and of the child take in packs; `raw`: in
    memory. `rounded` of `matrices` matrices are no longer what they were.
    """

    version: Version
    source: Version
    scheme: str
    made: bool
    raw: int
    before: int
    after: int
    matrices: int
    rounded: int
    notes: tuple[str, ...] = ()


def quantize(
    repository: Repository,
    reference: str,
    scheme_text: str,
    *,
    author: str,
    name: str | None = None,
    message: str | None = None,
    jobs: int = 1,
    recheck: str = "hash",
    progress: Callable[[int], None] = lambda _: None,
    total: Callable[[int], None] = lambda _: None,
) -> Quantized:
    """Make a version with the weights of another one, rounded by a scheme.

    The new model is named after the source and the scheme, as in `lenet-fp16`, so that it is not
    mistaken for the exact one; `name` overrides this. Network, files, settings and environment are
    copied. Metrics are not, because they were measured with the exact weights. HEAD and the source
    do not change. If the same version exists, it is returned.
    """
    scheme = parse(scheme_text)
    source = _source(repository, reference)
    name = name or f"{source.name}-{scheme.id}{scheme.bits or ''}"
    check_name(name)
    if versions.by_tag(repository.database, name) is not None:
        raise Conflict(
            f"`{name}` is a tag", hint=f"choose another name: dlv quantize {reference} --name NAME"
        )
    manifest = repository.manifest(source.id)
    with repository.writing():
        existing = _existing(repository, source, scheme, name)
        if existing is not None:
            return _result(repository, existing, source, scheme, made=False)
        store = MatrixStore.of(repository)
        try:
            with WeightWriter(store, jobs=jobs, recheck=recheck) as writer:
                work = _Conversion(manifest, scheme, store, writer, progress)
                kept = _present(repository, source, manifest)
                total(work.size(kept))
                weights = work.weights(kept)
                packs = writer.finish()
        finally:
            store.close()
        if not rounding.changed(weights):
            raise UsageError(
                f"quantizing to {scheme} changes nothing in {source.label}",
                why="; ".join(work.tally.notes)
                or "it has no tensor of numbers that it would round",
                hint=f"dlv desc {source.label} --layers",
            )
        made = replace(
            manifest,
            name=name,
            message=message or f"{source.label} as {scheme}",
            author=author,
            created=timestamp(),
            parents=(Parent(source.id, KIND),),
            snapshots=weights.snapshots,
            own=weights.own,
            scheme=scheme.get_config(),
            series=(),
            writer=Manifest.writer,
        )
        repository.write_manifest(made)
        child = _insert(repository, made, packs, author, f"{source.label} as {scheme}")
    return _result(repository, child, source, scheme, made=True, notes=work.tally.notes)


def _source(repository: Repository, reference: str) -> Version:
    found = revisions.resolve(repository.database, reference)
    if found.file is not None or found.snapshot is not None:
        raise UsageError(
            f"`{reference}` names a part of a version",
            why="a scheme is for all of a version's weights",
            hint=f"dlv quantize {found.version.label} --to fp16",
        )
    if not repository.manifest(found.version.id).snapshots:
        raise UsageError(f"{found.version.label} has no weights", why="nothing to quantize")
    return found.version


def _existing(repository: Repository, source: Version, scheme: Scheme, name: str) -> Version | None:
    """A child of the source that is just this, so that nothing is done twice."""
    for child in versions.children(repository.database, source.key):
        same = (child.state, child.scheme, child.name) == ("live", str(scheme), name)
        if same and (source.id, KIND) in child.parents:
            return child
    return None


def _present(repository: Repository, source: Version, manifest: Manifest) -> list[int]:
    """Positions of the snapshots that were not removed."""
    rows = versions.snapshots(repository.database, source.key)
    removed = {row.index for row in rows if row.removed}
    return [index for index in range(len(manifest.snapshots)) if index not in removed]


class _Conversion:
    """The snapshots of one version, matrix by matrix, each distinct one once."""

    def __init__(
        self,
        manifest: Manifest,
        scheme: Scheme,
        store: MatrixStore,
        writer: WeightWriter,
        progress: Callable[[int], None],
    ) -> None:
        self._manifest = manifest
        self._scheme = scheme
        self._store = store
        self._writer = writer
        self._progress = progress
        self._fits: dict[str, Fit | None] = {}
        self._made: dict[str, str] = {}
        self.tally = rounding.Tally()

    def size(self, indexes: Sequence[int]) -> int:
        """Bytes that will be read."""
        distinct = {
            m.hash: m.nbytes or 0 for i in indexes for m in snapshots.matrices(self._manifest, i)
        }
        return sum(distinct.values())

    def weights(self, indexes: Sequence[int]) -> Weights:
        manifest = self._manifest
        found = tuple(self._snapshot(manifest.snapshots[index]) for index in indexes)
        own = indexes.index(manifest.own) if manifest.own in indexes else len(indexes) - 1
        return Weights(manifest.tensors, found, own if indexes else None)

    def _snapshot(self, snapshot: Snapshot) -> Snapshot:
        hashes = []
        for index, digest in enumerate(snapshot.hashes):
            if digest is not None and digest not in self._made:
                self._made[digest] = self._matrix(snapshot, index)
            hashes.append(None if digest is None else self._made[digest])
        containers = tuple(self._container(snapshot, part) for part in snapshot.containers)
        return replace(
            snapshot, hashes=tuple(hashes), sources=snapshot.hashes, containers=containers
        )

    def _matrix(self, snapshot: Snapshot, index: int) -> str:
        """Round one matrix and store it: the hash of what it has become."""
        entry, digest = self._manifest.tensors[index], snapshot.hashes[index]
        assert digest is not None
        (tensor,) = snapshots.tensors_of(self._manifest, snapshot, [index], self._store.matrix)
        made: Fit | None = None
        if rounding.suits(self._scheme, tensor):
            raw = memoryview(self._store.matrix(digest)).cast("B")
            tensor = replace(tensor, read=lambda: raw, part=partial(_slice, raw))
            made = rounding.fits(self._scheme, tensor)
        self._fits[digest] = made
        self._progress(tensor.nbytes)
        if made is None:
            return digest
        self.tally.note(entry.name, made)
        if made.rounding is None:
            return digest
        part = rounding.rounded(tensor, made.rounding).part
        assert part is not None
        return self._writer.add_parts(tensor.dtype, tensor.shape, tensor.nbytes, part)

    def _container(self, snapshot: Snapshot, container: Container) -> Container:
        """The file's entry: its skeleton anew if checksums of the old numbers stand in it."""
        wanted = [snapshot.hashes[index] for index in container.tensors]
        if all(digest is None or self._made[digest] == digest for digest in wanted):
            return container
        tensors = snapshots.tensors_of(
            self._manifest, snapshot, container.tensors, self._store.matrix
        )
        digests = [digest for digest in wanted if digest is not None]
        tensors = [self._changed(t, digest) for t, digest in zip(tensors, digests, strict=True)]
        frame = None
        if container.skeleton is not None:
            old = bytes(self._store.object("skeleton", container.skeleton))
            new = rounding.skeleton(container.format, old, tensors, self._store.tmp_dir)
            if new is None:
                self.tally.notes.append(
                    f"{container.path} cannot be built again: checkout will write a fresh file"
                )
            frame = None if new is None else self._writer.add_object("skeleton", new)
        return replace(container, blake3=None, skeleton=frame)

    def _changed(self, tensor: Tensor, digest: str) -> Tensor:
        made = self._fits.get(digest)
        if made is None or made.rounding is None:
            return tensor
        return rounding.rounded(tensor, made.rounding)


def _slice(raw: memoryview, start: int, size: int) -> Raw:
    return raw[start : start + size]


def _insert(
    repository: Repository,
    manifest: Manifest,
    packs: Sequence[PackRecord],
    author: str,
    summary: str,
) -> Version:
    store = MatrixStore.of(repository)
    network = None if manifest.network is None else stored_network(store, manifest.network.id)
    store.close()
    with repository.change("quantize", author) as change:
        (child,) = publish(change, packs, [NewVersion(manifest, network)])
        change.summary = f"{child.label}: {summary}"
    return child


def _result(
    repository: Repository,
    child: Version,
    source: Version,
    scheme: Scheme,
    *,
    made: bool,
    notes: Sequence[str] = (),
) -> Quantized:
    manifest = repository.manifest(child.id)
    pairs = {
        (old, new)
        for snapshot in manifest.snapshots
        for old, new in zip(snapshot.sources or (), snapshot.hashes, strict=True)
        if old is not None and new is not None
    }
    db = repository.database
    before = matrices.stored_of(db, {old for old, _ in pairs})
    after = matrices.stored_of(db, {new for _, new in pairs})
    raw = sum(
        matrix.nbytes or 0
        for index in range(len(manifest.snapshots))
        for matrix in snapshots.matrices(manifest, index)
        if matrix.tied is None
    )
    return Quantized(
        *(child, source, str(scheme), made, raw),
        before=round(sum(before.values())),
        after=round(sum(after.values())),
        matrices=len(pairs),
        rounded=sum(old != new for old, new in pairs),
        notes=tuple(notes),
    )
