"""`show`: one version in short, or one of its parts as it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dlv.repository.revisions as revisions
import dlv.weights.snapshots as inventory
from dlv.dataclass import dataclass
from dlv.errors import NotFound, UsageError, nearest
from dlv.metadata import evaluations, matrices, networks, versions
from dlv.metadata.metrics import Summary
from dlv.metadata.versions import SnapshotRow, Version
from dlv.objects.manifest import FileEntry, Manifest
from dlv.objects.parameters import count_parameters
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository, read_object
from dlv.repository.revisions import Reference
from dlv.versions.history import Parent, parents_of
from dlv.weights.snapshots import Matrix
from dlv.weights.store import MatrixStore

if TYPE_CHECKING:
    from dlv.pas.footer import Encoding

SHOWN_VALUES = 6  # of each axis, in the excerpt of a matrix


@dataclass
class Shown:
    """What `show` says of a version; nothing of it is read from packs."""

    version: Version
    manifest: Manifest
    parents: list[Parent]
    head: bool
    snapshots: list[SnapshotRow]
    snapshot: SnapshotRow | None  # the one that was asked for
    metrics: list[Summary]
    network: dict[str, Any] | None
    parameters: int  # trained ones of the version's own weights, shared ones once
    raw: int
    stored: int


def find(repository: Repository, reference: str) -> Reference:
    """What the reference names: a version, a snapshot or a file."""
    return revisions.resolve(repository.database, reference)


def show(repository: Repository, reference: Reference) -> Shown:
    """The summary of a version."""
    db = repository.database
    version = reference.version
    with db.snapshot():
        rows = versions.snapshots(db, version.key)
        figures = None if version.network is None else networks.find(db, version.network)
        network = None if figures is None else networks.figures(db, figures)
        summaries = evaluations.metrics_of(db, version)
        parents = list(parents_of(db, version))
        head = repository.head == version.id
    manifest = repository.manifest(version.id)
    index = manifest.own if reference.snapshot is None else reference.snapshot.index
    kept = [manifest.snapshots[row.index] for row in rows if not row.removed]
    distinct = {digest for s in kept for digest in s.hashes if digest is not None}
    return Shown(
        *(version, manifest, parents, head, rows, reference.snapshot, summaries, network),
        parameters=count_parameters(inventory.matrices(manifest, index)),
        raw=sum(_raw(manifest, row.index) for row in rows if not row.removed),
        stored=round(sum(matrices.stored_of(db, distinct).values())),
    )


def _raw(manifest: Manifest, index: int) -> int:
    held = inventory.matrices(manifest, index)
    return sum(matrix.nbytes or 0 for matrix in held if matrix.tied is None)


@dataclass(frozen=True)
class ShownFile:
    entry: FileEntry
    data: bytes


def file(repository: Repository, reference: Reference) -> ShownFile:
    """One associated file of a version, its bytes checked against the manifest."""
    version, manifest = reference.version, repository.manifest(reference.version.id)
    for entry in manifest.files:
        if entry.path == reference.file:
            return ShownFile(entry, FileStore(repository.files_git).read(entry))
    paths = [entry.path for entry in manifest.files]
    if any(c.path == reference.file for s in manifest.snapshots for c in s.containers):
        raise UsageError(
            f"{reference.file} is a weight file",
            hint=f"dlv checkout {version.label} {reference.file} --to DIR",
        )
    raise NotFound(
        f"{version.label} has no file `{reference.file}`",
        why=f"it has {_count(len(paths), 'file')}",
        did_you_mean=[f"{version.label}:{near}" for near in nearest(str(reference.file), paths)],
        hint=f"dlv show {version.label}",
    )


def _count(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def manifest_bytes(repository: Repository, reference: Reference) -> bytes:
    """The canonical manifest, whose hash is the version's id."""
    return read_object(repository.manifests, reference.version.id, "manifest")


@dataclass(frozen=True)
class ShownMatrix:
    """`chain`: how the matrix is stored, then its delta's base and so on."""

    matrix: Matrix
    chain: Sequence[Encoding]
    stored: int
    excerpt: str | None  # None of a dtype whose numbers are not known


def matrix(repository: Repository, reference: Reference, name: str) -> ShownMatrix:
    """One matrix: where its bytes are, and some of its numbers."""
    import numpy as np

    from dlv.pas.deltas.links import chain
    from dlv.weights.arrays import to_array

    db = repository.database
    version, manifest = reference.version, repository.manifest(reference.version.id)
    index = manifest.own if reference.snapshot is None else reference.snapshot.index
    held = inventory.find(inventory.matrices(manifest, index), name, version.label, {})
    store = MatrixStore.of(repository)
    try:
        raw = store.matrix(held.hash)
        links = chain(held.hash, store.encoding)
    finally:
        store.close()
    excerpt = None
    if held.nbytes is not None:
        with np.printoptions(threshold=SHOWN_VALUES, edgeitems=SHOWN_VALUES // 2, precision=6):
            excerpt = str(to_array(held.dtype, held.shape, raw))
    stored = matrices.stored_of(db, [held.hash]).get(held.hash, 0.0)
    return ShownMatrix(held, links, round(stored), excerpt)
