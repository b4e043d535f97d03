"""`archive`: every matrix stored as small as it can be under limits on how long reading takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import dlv.budgets as limits
import dlv.reencode as reencode
import dlv.revisions as revisions
import dlv.superseded as superseded
from dlv.budgets import Policy
from dlv.canonical import dumps
from dlv.errors import NotFound, StorageError, nearest
from dlv.metadata import storage
from dlv.pas.footer import Encoding
from dlv.pas.plan import Planned, make_plan
from dlv.pas.storage_graph import Scheme, StorageGraph
from dlv.pas.storage_plan import Infeasible, StoragePlan
from dlv.planning import Held, Layout, Planner
from dlv.repository import Repository
from dlv.speeds import ORDINARY, Speeds
from dlv.tryouts import Choice, Matrices, Tryouts
from dlv.weights import MatrixStore

MEMORY = 256 << 20  # of decoded matrices kept while encodings are tried


class Bar(Protocol):
    """Progress over bytes."""

    def advance(self, count: int) -> None: ...


# Begins a bar: what is done, and how many bytes of it there are.
Progress = Callable[[str, int], AbstractContextManager[Bar]]


@dataclass(frozen=True)
class Request:
    references: tuple[str, ...] = ()
    algorithm: str = "best"
    scheme: Scheme = "independent"
    policy: Policy = field(default_factory=Policy)
    clamp: bool = False
    slow: bool = False
    jobs: int = 1
    author: str = ""
    export_graph: Path | None = None
    export_plan: Path | None = None
    speeds: Speeds = ORDINARY


@dataclass(frozen=True)
class Row:
    """A version: bytes of its matrices raw, in the packs before and after, longest chain."""

    version: str
    id: str
    raw: int
    before: float
    after: float
    depth: int


@dataclass(frozen=True)
class Timing:
    """How long a snapshot takes to come back, by the plan; its budget, and the fastest possible."""

    label: str
    microseconds: int
    budget: int | None
    fastest: int


@dataclass(frozen=True)
class Way:
    """One way to store a matrix that was tried."""

    kind: str
    base: str | None  # a label
    bytes: int
    microseconds: int
    chosen: bool


@dataclass(frozen=True)
class Explained:
    matrix: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    ways: list[Way]
    chain: list[str]  # from the matrix to what is materialised
    snapshots: list[Timing]


@dataclass
class Archived:
    """The plan, and what came of it unless it was a rehearsal."""

    rows: list[Row]
    snapshots: list[Timing]
    before: int  # bytes of all packs
    after: int
    changed: int  # matrices encoded anew
    matrices: int
    algorithm: str
    scheme: Scheme
    dry_run: bool
    seconds: float = 0.0
    written: int = 0
    freed: int = 0
    waiting: int = 0
    resumed: bool = False

    @property
    def slowest(self) -> Timing | None:
        return max(self.snapshots, key=lambda timing: timing.microseconds, default=None)

    @property
    def depth(self) -> int:
        return max((row.depth for row in self.rows), default=0)


@dataclass(frozen=True)
class _Plan:
    layout: Layout
    planned: Planned
    scheme: Scheme

    @property
    def graph(self) -> StorageGraph:
        return self.layout.graph

    @property
    def plan(self) -> StoragePlan:
        return self.planned.plan


def archive(
    repository: Repository,
    request: Request,
    *,
    dry_run: bool = False,
    progress: Progress,
) -> Archived:
    """Plan, and unless it is a rehearsal write new packs and switch to them."""
    started = time.monotonic()
    with repository.alone("archive.lock"), repository.writing():
        resumed = bool(superseded.intended(repository))
    if resumed:
        superseded.settle(repository)
    with repository.alone("archive.lock"):
        with repository.writing(), _tryouts(repository, request) as (planner, tryouts):
            plan = _plan(repository, planner, request, progress)
            _export(plan, request)
            outcome = _outcome(repository, plan, request)
            outcome.dry_run, outcome.resumed = dry_run, resumed
            if not dry_run:
                chosen = _chosen(plan, planner)
                outcome.changed = len(chosen)
                if chosen:
                    _carry_out(repository, chosen, tryouts, request, outcome, progress)
                tryouts.clear()
        if not dry_run:
            _, outcome.freed, outcome.waiting = superseded.clear(repository)
            outcome.after = storage.size_of_packs(repository.database)
            _measure(repository, outcome, plan)
    outcome.seconds = time.monotonic() - started
    return outcome


def explain(
    repository: Repository,
    request: Request,
    matrix: str,
    *,
    progress: Progress,
) -> list[Explained]:
    """How a matrix would be stored, and what else was tried: by tensor name, or by hash."""
    with (
        repository.alone("archive.lock"),
        repository.writing(),
        _tryouts(repository, request) as (planner, _),
    ):
        plan = _plan(repository, planner, request, progress)
    names = plan.layout.names
    held = {
        digest: None for group in _groups(repository, request, plan) for digest in group.matrices
    }
    found = [digest for digest in held if matrix in (names.get(digest), digest)]
    if not found:
        found = [digest for digest in held if len(matrix) >= 6 and digest.startswith(matrix)]
    if not found:
        raise NotFound(
            f"there is no matrix `{matrix}`",
            did_you_mean=nearest(matrix, sorted({names[digest] for digest in held})),
            hint="dlv desc REF lists them",
        )
    return [_explained(plan, digest) for digest in found]


class _tryouts:  # noqa: N801 - a context manager that reads like a function
    """Planner and tryouts over one store, closed together."""

    def __init__(self, repository: Repository, request: Request) -> None:
        self.store = MatrixStore.of(repository)
        matrices = Matrices(self.store.matrix, MEMORY)
        self.tryouts = Tryouts(repository.cache, matrices, slow=request.slow)
        self.planner = Planner(
            repository.database, self.tryouts, matrices, request.speeds, jobs=request.jobs
        )

    def __enter__(self) -> tuple[Planner, Tryouts]:
        return self.planner, self.tryouts

    def __exit__(self, *_: object) -> None:
        self.tryouts.close()
        self.store.close()


def _plan(
    repository: Repository,
    planner: Planner,
    request: Request,
    progress: Progress,
) -> _Plan:
    db = repository.database
    chosen = [revisions.version(db, text).key for text in request.references]
    scope = planner.scope(chosen if request.references else None)
    with progress("measure", sum(planner.encoding(digest).nbytes or 0 for digest in scope)) as bar:
        layout = planner.layout(scope, bar.advance)
    minima = make_plan(layout.graph, [None] * len(layout.groups), request.scheme, "spt").minima
    asked = limits.budgets(db, request.policy, layout.groups, minima)
    try:
        planned = make_plan(
            layout.graph, asked, request.scheme, request.algorithm, clamp=request.clamp
        )
    except Infeasible as error:
        raise limits.explain(error, layout.groups) from error
    return _Plan(layout, planned, request.scheme)


def _export(plan: _Plan, request: Request) -> None:
    documents = (
        (request.export_graph, plan.graph.as_json(plan.planned.budgets, plan.scheme)),
        (request.export_plan, plan.plan.as_json()),
    )
    for path, document in documents:
        if path is None:
            continue
        try:
            path.write_bytes(dumps(document) + b"\n")
        except OSError as error:
            raise StorageError(f"cannot write {path}", why=error.strerror) from error


def _groups(repository: Repository, request: Request, plan: _Plan) -> list[Held]:
    """The snapshots that were asked about."""
    if not request.references:
        return plan.layout.groups
    keys = {revisions.version(repository.database, t).key for t in request.references}
    return [group for group in plan.layout.groups if group.version.key in keys]


def _outcome(repository: Repository, plan: _Plan, request: Request) -> Archived:
    graph, chosen = plan.graph, plan.plan.edges
    numbers = {matrix.hash: at for at, matrix in enumerate(plan.layout.matrices, 1)}
    depths = plan.plan.depths(graph)
    asked = {group.version.key for group in _groups(repository, request, plan)}
    rows: dict[int, Row] = {}
    of: dict[int, dict[str, None]] = {}
    for group in plan.layout.groups:
        of.setdefault(group.version.key, {}).update(dict.fromkeys(group.matrices))
    for group in plan.layout.groups:
        key = group.version.key
        if key in rows or key not in asked:
            continue
        vertices = [numbers[digest] for digest in of[key] if digest in numbers]
        held = [plan.layout.matrices[v - 1] for v in vertices]
        rows[key] = Row(
            group.version.label,
            group.version.id,
            sum(_raw(matrix) for matrix in held),
            sum(matrix.stored for matrix in held),
            sum(int(graph.storage[chosen[v]]) for v in vertices),
            max((int(depths[v]) for v in vertices), default=0),
        )
    before = storage.size_of_packs(repository.database)
    gained = sum(
        matrix.stored - int(graph.storage[chosen[at]])
        for at, matrix in enumerate(plan.layout.matrices, 1)
    )
    return Archived(
        rows=list(rows.values()),
        snapshots=_timings(plan),
        before=before,
        after=max(0, round(before - gained)),
        changed=sum(plan.layout.choices[edge] is not None for edge in chosen[1:]),
        matrices=graph.vertices - 1,
        algorithm=request.algorithm,
        scheme=plan.scheme,
        dry_run=True,
    )


def _raw(matrix: storage.StoredMatrix) -> int:
    size = Encoding(
        *(matrix.hash, matrix.dtype, matrix.shape, matrix.layout, matrix.delta, matrix.planes)
    ).nbytes
    return round(matrix.stored) if size is None else size


def _timings(plan: _Plan) -> list[Timing]:
    costs = plan.plan.snapshot_costs(plan.graph, plan.scheme)
    return [
        Timing(limits.label(group), cost, budget, fastest)
        for group, cost, budget, fastest in zip(
            plan.layout.groups, costs, plan.planned.budgets, plan.planned.minima, strict=True
        )
    ]


def _chosen(plan: _Plan, planner: Planner) -> list[tuple[Choice, Encoding]]:
    """What to encode anew: bases before what rests on them, else in the order of snapshots."""
    depths = plan.plan.depths(plan.graph)
    place: dict[str, int] = {}
    for group in plan.layout.groups:
        for digest in group.matrices:
            place.setdefault(digest, len(place))
    found = []
    for vertex, edge in enumerate(plan.plan.edges[1:], 1):
        choice = plan.layout.choices[edge]
        if choice is not None:
            found.append((int(depths[vertex]), place.get(choice.matrix, len(place)), choice))
    total = sum(plan.layout.tried[choice].bytes for _, _, choice in found)
    if total <= reencode.BATCH:  # they are switched together
        found.sort(key=lambda row: row[1:2])
    else:
        found.sort(key=lambda row: row[:2])
    return [(choice, planner.encoding(choice.matrix)) for _, _, choice in found]


def _carry_out(
    repository: Repository,
    chosen: Sequence[tuple[Choice, Encoding]],
    tryouts: Tryouts,
    request: Request,
    outcome: Archived,
    progress: Progress,
) -> None:
    work = reencode.work(repository, chosen)
    total = sum(e.nbytes or 0 for _, e in chosen) + sum(e.nbytes or 0 for e in work.carried)
    summary = f"{len(chosen)} matrices stored anew"
    with progress("write", total) as bar:
        done = reencode.carry_out(repository, work, tryouts, request.author, summary, bar.advance)
    outcome.written = done.written


def _measure(repository: Repository, outcome: Archived, plan: _Plan) -> None:
    """What versions really take now, instead of what was planned."""
    now = {matrix.hash: matrix.stored for matrix in storage.stored_matrices(repository.database)}
    of: dict[str, dict[str, None]] = {}
    for group in plan.layout.groups:
        of.setdefault(group.version.id, {}).update(dict.fromkeys(group.matrices))
    outcome.rows = [
        Row(
            *(row.version, row.id, row.raw, row.before),
            sum(now.get(digest, 0.0) for digest in of[row.id]),
            row.depth,
        )
        for row in outcome.rows
    ]


def _explained(plan: _Plan, digest: str) -> Explained:
    graph, chosen = plan.graph, plan.plan.edges
    matrices = plan.layout.matrices
    number = next(at for at, matrix in enumerate(matrices, 1) if matrix.hash == digest)
    matrix = matrices[number - 1]
    where: dict[str, str] = {}
    for group in plan.layout.groups:
        for other in group.matrices:
            where.setdefault(other, limits.label(group))

    def called(vertex: int) -> str | None:
        if vertex == 0:
            return None
        other = matrices[vertex - 1].hash
        return f"{where.get(other, 'removed')} {plan.layout.names.get(other, other[:12])}"

    ways = [
        Way(
            "as it is now" if plan.layout.choices[edge] is None else graph.kinds[edge],
            called(int(graph.tails[edge])),
            int(graph.storage[edge]),
            int(graph.recreation[edge]),
            bool(chosen[number] == edge),
        )
        for edge in range(graph.edges)
        if graph.heads[edge] == number
    ]
    chain = []
    vertex = number
    while vertex:
        chain.append(f"{called(vertex)}: {graph.kinds[chosen[vertex]]}")
        vertex = int(graph.tails[chosen[vertex]])
    timings = _timings(plan)
    return Explained(
        *(digest, plan.layout.names.get(digest, digest[:12]), matrix.shape, matrix.dtype),
        sorted(ways, key=lambda way: (way.bytes, way.kind)),
        chain,
        [
            timing
            for timing, group in zip(timings, plan.layout.groups, strict=True)
            if digest in group.matrices
        ],
    )
