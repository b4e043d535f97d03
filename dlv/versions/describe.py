"""`desc`: everything that is known of one version, put together for reading."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import dlv.repository.revisions as revisions
import dlv.weights.snapshots as inventory
from dlv.dataclass import dataclass
from dlv.errors import Damaged, DlvError, UsageError
from dlv.events.formats import series as frozen_series
from dlv.metadata import evaluations, matrices, metrics, usage, versions
from dlv.metadata.database import Database
from dlv.metadata.evaluations import Saved
from dlv.metadata.metrics import Summary as Metric
from dlv.metadata.versions import SnapshotRow, Version
from dlv.network import summary
from dlv.network.graph import Network
from dlv.network.summary import Summary
from dlv.objects.manifest import Manifest, Snapshot
from dlv.objects.parameters import count_parameters, parameters_of
from dlv.repository.handle import Repository
from dlv.versions.card import OwnText, own_text
from dlv.versions.history import Parent, parents_of
from dlv.weights.reading.approximation import Bounds, NoBounds, Reading
from dlv.weights.snapshots import Matrix
from dlv.weights.store import MOST_POINTS, MatrixStore, stored_network, stored_series

if TYPE_CHECKING:
    from dlv.weights.reading.interval_statistics import StatisticsBounds
    from dlv.weights.statistics import Statistics

    _Figures = tuple[Statistics | None, StatisticsBounds | None, Reading | None]


@dataclass(frozen=True)
class SnapshotLine:
    step: int | None
    own: bool
    removed: bool
    matrices: int
    raw: int
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Storage:
    """Of the snapshots that are not removed. `raw`: bytes of their tensors; `stored`: what their
    matrices take in packs, each once; `bases`: what others take that they are differences to."""

    raw: int
    stored: int
    bases: int
    matrices: int

    @property
    def ratio(self) -> float | None:
        return self.raw / self.stored if self.stored else None


@dataclass(frozen=True)
class Logged:
    """A series without figures: images, texts, histograms; `points` None: it cannot be read."""

    name: str
    plugin: str
    points: int | None


@dataclass(frozen=True)
class Component:
    """A part of a pipeline. `kind`: library and class, as its index names them."""

    name: str
    kind: str | None
    tensors: int
    parameters: int
    bytes: int


@dataclass
class Description:
    """A version in parts; of evaluations when they were saved, newest first.

    Statistics are there for the matrices that were asked for.

    If only some planes were to be read, `readings` has how each of them was, and `bounds` takes
    the place of statistics unless they are exact all the same.
    """

    version: Version
    manifest: Manifest
    snapshot: Snapshot | None
    parents: tuple[Parent, ...]
    network: Network | None
    summary: Summary | None
    matrices: list[Matrix]
    stored: dict[str, float]
    metrics: list[Metric]
    snapshots: list[SnapshotLine]
    storage: Storage
    notes: tuple[str, ...]
    evaluations: list[Saved] = field(default_factory=list)
    logged: list[Logged] = field(default_factory=list)
    own: OwnText = field(default_factory=OwnText)
    curves: dict[str, Sequence[float]] = field(default_factory=dict)
    statistics: dict[str, Statistics | None] = field(default_factory=dict)
    bounds: dict[str, StatisticsBounds] = field(default_factory=dict)
    readings: dict[str, Reading] = field(default_factory=dict)

    @property
    def parameters(self) -> int | None:
        """How many the network has or, where that is not known, the weights."""
        known = None if self.summary is None else self.summary.parameters
        return count_parameters(self.matrices) if known is None and self.matrices else known

    @property
    def components(self) -> list[Component]:
        """The parts of a model that is several, such as a pipeline, those without weights last."""
        if self.snapshot is None:
            return []
        files: dict[str, set[str]] = {}
        for container in self.snapshot.containers:
            prefix = inventory.part_prefix(self.manifest, self.snapshot, container)
            if prefix == f"{PurePosixPath(container.path).parent.name}.":
                names = {self.manifest.tensors[index].name for index in container.tensors}
                files.setdefault(prefix.removesuffix("."), set()).update(names)
        if not files:
            return []
        for name, kind in self.manifest.hyperparameters.items():
            if _component_kind(kind) and name.isidentifier():
                files.setdefault(name, set())
        counts = parameters_of(self.matrices)
        parts = [
            Component(
                name,
                _component_kind(self.manifest.hyperparameters.get(name)),
                len(tensors),
                sum(counts.get(tensor, 0) for tensor in tensors),
                sum(m.nbytes or 0 for m in self.matrices if m.name in tensors and not m.tied),
            )
            for name, tensors in files.items()
        ]
        return sorted(parts, key=lambda part: (not part.tensors, part.name))

    @property
    def tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {matrix.name: (matrix.dtype, matrix.shape) for matrix in self.matrices}

    @property
    def label(self) -> str:
        """`lenet@2`, or `lenet@2/100` where that is not the version's own snapshot."""
        own, chosen = self.manifest.own, self.snapshot
        if chosen is None or (own is not None and chosen is self.manifest.snapshots[own]):
            return self.version.label
        return f"{self.version.label}/{chosen.step}"

    def stored_bytes(self, matrix: Matrix) -> int | None:
        """What a matrix takes in packs."""
        size = self.stored.get(matrix.hash)
        return None if size is None else round(size)

    @property
    def git(self) -> dict[str, Any] | None:
        found = self.manifest.environment.get("git")
        return found if isinstance(found, dict) else None

    @property
    def mlflow(self) -> dict[str, Any] | None:
        """The run that it was imported from."""
        found = self.manifest.environment.get("mlflow")
        return found if isinstance(found, dict) else None


def _component_kind(value: Any) -> str | None:
    """`diffusers.UNet2DConditionModel`, where a hyperparameter names a library and a class."""
    try:
        names = json.loads(value) if isinstance(value, str) and value.startswith("[") else None
    except ValueError:
        return None
    if not isinstance(names, list) or len(names) != 2:
        return None
    return ".".join(names) if all(isinstance(name, str) for name in names) else None


def describe(
    repository: Repository,
    reference: str,
    *,
    curves: bool = False,
    matrix: str | None = None,
    statistics: bool = False,
    planes: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Description:
    """What is known of a version; figures of one matrix, or `statistics` of all, on request.

    `planes`: only so many of each matrix are read for them, the first.
    """
    db = repository.database
    found = revisions.resolve(db, reference)
    if found.file is not None:
        raise UsageError(
            f"`{reference}` is a file",
            why="a version or checkpoint is required here",
            hint=f"dlv show {reference}",
        )
    version, manifest = found.version, repository.manifest(found.version.id)
    index = manifest.own if found.snapshot is None else found.snapshot.index
    store = MatrixStore.of(repository)
    held = inventory.matrices(manifest, index)
    network = None if manifest.network is None else stored_network(store, manifest.network.id)
    distinct = {digest for s in manifest.snapshots for digest in s.hashes if digest is not None}
    stored = matrices.stored_of(db, distinct)
    rows = versions.snapshots(db, version.key)
    lines = _snapshots(rows, manifest)
    result = Description(
        version=version,
        manifest=manifest,
        snapshot=None if index is None else manifest.snapshots[index],
        parents=parents_of(db, version),
        network=network,
        summary=_summary(network, held),
        matrices=held,
        stored=stored,
        metrics=metrics.of_version(db, version.key),
        snapshots=lines,
        storage=_storage(db, rows, lines, manifest, stored),
        notes=found.notes,
        evaluations=evaluations.saved_evaluations(db, version.id)[::-1],
        own=own_text(repository, manifest),
    )
    result.logged = _logged(store, manifest, {(m.run, m.tag) for m in result.metrics})
    if curves:
        result.curves, lost = _curves(store, result.metrics)
        result.notes += lost
    wanted = held if statistics else []
    if matrix is not None:
        layers = {} if network is None else layer_tensors(network)
        wanted = [inventory.find(held, matrix, result.label, layers)]
    known: dict[str, _Figures] = {}
    for asked in wanted:
        if asked.hash not in known:
            known[asked.hash] = _figures(store, asked, planes)
            progress(asked.nbytes or 0)
        exact, bounds, reading = known[asked.hash]
        if reading is not None:
            result.readings[asked.name] = reading
        if bounds is not None:
            result.bounds[asked.name] = bounds
        else:
            result.statistics[asked.name] = exact
    return result


def _curves(
    store: MatrixStore, listed: Sequence[Metric]
) -> tuple[dict[str, Sequence[float]], tuple[str, ...]]:
    """To be drawn beside what else is told, which damage of one of them does not take away."""
    found: dict[str, Sequence[float]] = {}
    lost = []
    for item in listed:
        if item.n > MOST_POINTS:
            continue
        try:
            found[item.name] = stored_series(store, item.hash).values
        except Damaged as error:
            lost.append(f"the curve of {item.name} is not shown: {error.message} (dlv fsck)")
    return found, tuple(lost)


def _figures(store: MatrixStore, matrix: Matrix, planes: int | None) -> _Figures:
    """Exact figures, or bounds from the first planes where these are not all there is."""
    import dlv.weights.reading.interval_statistics as interval_statistics
    import dlv.weights.statistics as weight_statistics

    reading = None
    if planes is not None and weight_statistics.understood(matrix.dtype) and matrix.elements:
        found = Bounds(store, matrix.hash, planes)
        try:
            if not found.exact:
                return None, interval_statistics.statistics(found), found.reading
        except NoBounds as error:
            found = found.exactly(error.why)
        reading = found.reading
    raw = store.matrix(matrix.hash)
    return weight_statistics.statistics(matrix.dtype, raw), None, reading


def layer_tensors(network: Network) -> dict[str, list[str]]:
    """The tensors of each layer, by its name and by its alias."""
    aliases = network.node_aliases()
    found = {node.name: list(node.params.values()) for node in network.nodes}
    for name, alias in aliases.items():
        found.setdefault(alias, found[name])
    return found


def _summary(network: Network | None, held: Sequence[Matrix]) -> Summary | None:
    """None also of a network with a cycle: it was committed with a warning."""
    if network is None or network.cyclic:
        return None
    return summary.summary(network, {m.name: (m.dtype, m.shape) for m in held})


def _logged(
    store: MatrixStore, manifest: Manifest, known: Collection[tuple[str, str]]
) -> list[Logged]:
    """The series that have no figures; what is in them says their head."""
    found = []
    for reference in manifest.series:
        if (reference.run, reference.tag) in known:
            continue
        name = f"{reference.run}/{reference.tag}" if reference.run else reference.tag
        try:
            head = frozen_series.decode_head(bytes(store.object("series", reference.hash)))
        except DlvError:
            found.append(Logged(name, "", None))
        else:
            if head.plugin != frozen_series.HPARAMS:  # hyperparameters are told of as such
                found.append(Logged(name, head.plugin, sum(count for _, count in head.points)))
    return found


def _storage(
    db: Database,
    rows: Sequence[SnapshotRow],
    lines: Sequence[SnapshotLine],
    manifest: Manifest,
    stored: Mapping[str, float],
) -> Storage:
    there = [manifest.snapshots[row.index] for row in rows if not row.removed]
    own = {digest for s in there for digest in s.hashes if digest is not None}
    bases = matrices.stored_of(db, usage.bases(db, own))
    return Storage(
        raw=sum(line.raw for line in lines if not line.removed),
        stored=round(sum(stored.get(digest, 0.0) for digest in own)),
        bases=round(sum(bases.values())),
        matrices=len(own),
    )


def _snapshots(rows: Sequence[SnapshotRow], manifest: Manifest) -> list[SnapshotLine]:
    lines = []
    for row in rows:
        held = inventory.matrices(manifest, row.index)
        once = {(m.tied or m.name, m.hash): m.nbytes or 0 for m in held}
        containers = manifest.snapshots[row.index].containers
        lines.append(
            SnapshotLine(
                *(row.step, row.own, row.removed, len(held), sum(once.values())),
                tuple(container.path for container in containers),
            )
        )
    return lines
