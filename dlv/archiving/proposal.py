"""A storage plan for a repository: the graph measured, the user's budgets, a solver's answer.

`archive --explain` shows it for a matrix: how it would be stored, and what else was tried.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import Protocol

import dlv.archiving.budgets as budgets
import dlv.archiving.settling as settling
import dlv.disk.user_files as user_files
import dlv.repository.revisions as revisions
from dlv.archiving.budgets import Policy
from dlv.archiving.estimates import Effort
from dlv.archiving.planning import Held, Layout, Planner
from dlv.archiving.speeds import ORDINARY, Speeds
from dlv.archiving.tryouts import Elsewhere, Matrices, Tryouts
from dlv.canonical import dumps
from dlv.dataclass import dataclass
from dlv.errors import NotFound, nearest
from dlv.pas.plan import Planned, make_plan, replan
from dlv.pas.storage_graph import (
    MAX_DEPTH,
    Infeasible,
    Scheme,
    StorageGraph,
    StoragePlan,
    raised,
    shortfalls,
)
from dlv.repository.handle import Repository
from dlv.weights.bounds import pinned
from dlv.weights.store import MatrixStore

MEMORY = 64 << 20  # of decoded matrices kept while encodings are tried


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
    local: bool = False  # a place for new matrices and for those in question, at once
    effort: Effort = "normal"
    deadline: float | None = None  # of time.monotonic, past which nothing is begun
    jobs: int = 1
    place: str | None = None  # a Ray cluster to encode on: `ray`, `ray:ADDRESS`; None: here
    author: str = ""
    export_graph: Path | None = None
    export_plan: Path | None = None
    explore: bool = False  # plan for other limits, too
    speeds: Speeds = ORDINARY

    @property
    def terms(self) -> str:
        """All that determines the plan, besides the tensors."""
        return repr((self.references, self.scheme, self.policy, self.clamp, self.effort))


@dataclass(frozen=True)
class Timing:
    """How long a snapshot takes to come back, by the plan; its budget, and the fastest possible."""

    label: str
    microseconds: int
    budget: int | None
    fastest: int


@dataclass(frozen=True)
class Proposal:
    layout: Layout
    planned: Planned
    scheme: Scheme
    whole: bool = False  # all tensors were planned, not only new ones

    @property
    def graph(self) -> StorageGraph:
        return self.layout.graph

    @property
    def plan(self) -> StoragePlan:
        return self.planned.plan


class Trials:
    """Planner and tryouts over one store, closed together."""

    def __init__(self, repository: Repository, request: Request) -> None:
        self._open = contextlib.ExitStack()
        self.store = MatrixStore.of(repository)
        self._open.callback(self.store.close)
        jobs = request.jobs
        elsewhere: Elsewhere | None = None
        if request.place is not None:
            import dlv.archiving.cluster as cluster

            nodes = self._open.enter_context(cluster.connected(self.store, request.place))
            elsewhere, jobs = nodes.encoded, nodes.slots
        matrices = Matrices(self.store.matrix, MEMORY)
        thorough = request.effort == "high"
        self.tryouts = Tryouts(repository.cache, matrices, thorough=thorough, elsewhere=elsewhere)
        self._open.callback(self.tryouts.close)
        self.planner = Planner(
            repository.database,
            self.tryouts,
            self.store.together,
            request.speeds,
            jobs=jobs,
            effort=request.effort,
            pinned=pinned(repository.database, self.store),
        )

    def __enter__(self) -> tuple[Planner, Tryouts]:
        return self.planner, self.tryouts

    def __exit__(self, *_: object) -> None:
        self._open.close()


def propose(
    repository: Repository, planner: Planner, request: Request, progress: Progress
) -> Proposal:
    db = repository.database
    chosen = [revisions.version(db, text).key for text in request.references]
    scope = planner.scope(chosen if request.references else None)
    with progress(
        "Measuring deltas", sum(planner.encoding(digest).size for digest in scope)
    ) as bar:
        layout = planner.layout(scope, bar.advance)
    minima = make_plan(layout.graph, [None] * len(layout.groups), request.scheme, "spt").minima
    asked = budgets.budgets(db, request.policy, layout.groups, minima)
    if request.local:
        placed, movable = layout.placed(set(scope)), layout.movable(set(scope))
        plan = replan(layout.graph, placed, asked, request.scheme, movable=movable)
        return Proposal(layout, Planned(plan, asked, minima), request.scheme)
    short = shortfalls(asked, minima)
    settled = None
    if request.algorithm == "best" and (request.clamp or not short):
        current = StoragePlan(layout.placed(set()))
        limits = Planned(current, raised(asked, short), minima)
        settled = settling.settled_plan(layout, limits, request.scheme)
        if settled and settling.is_recent(repository.cache, request.terms, layout):
            return Proposal(layout, settled, request.scheme)
    try:
        planned = make_plan(
            layout.graph,
            asked,
            request.scheme,
            request.algorithm,
            clamp=request.clamp,
            max_depth=MAX_DEPTH,
        )
    except Infeasible as error:
        raise budgets.explain(error, layout.groups) from error
    worthwhile = settling.worthwhile_plan(layout, planned, settled)
    return Proposal(layout, worthwhile, request.scheme, whole=True)


def export(plan: Proposal, request: Request) -> None:
    documents = (
        (request.export_graph, plan.graph.as_json(plan.planned.budgets, plan.scheme)),
        (request.export_plan, plan.plan.as_json()),
    )
    for path, document in documents:
        if path is None:
            continue
        user_files.write(path, dumps(document) + b"\n")


def groups_asked(repository: Repository, request: Request, plan: Proposal) -> list[Held]:
    """The snapshots that were asked about."""
    if not request.references:
        return plan.layout.groups
    keys = {revisions.version(repository.database, t).key for t in request.references}
    return [group for group in plan.layout.groups if group.version.key in keys]


def timings(plan: Proposal) -> list[Timing]:
    costs = plan.plan.snapshot_costs(plan.graph, plan.scheme)
    return [
        Timing(budgets.label(group), cost, budget, fastest)
        for group, cost, budget, fastest in zip(
            plan.layout.groups, costs, plan.planned.budgets, plan.planned.minima, strict=True
        )
    ]


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
    label: str  # name and the first snapshot that has it: others may have the name, too
    shape: tuple[int, ...]
    dtype: str
    ways: list[Way]
    chain: list[str]  # from the matrix to what is materialised
    snapshots: list[Timing]


def explain(
    repository: Repository, request: Request, matrix: str, *, progress: Progress
) -> list[Explained]:
    """How a matrix would be stored, and what else was tried: by tensor name, or by hash."""
    with (
        repository.alone("archive.lock"),
        repository.writing(),
        Trials(repository, request) as (planner, _),
    ):
        plan = propose(repository, planner, request, progress)
    names = plan.layout.names
    held = {
        digest: None
        for group in groups_asked(repository, request, plan)
        for digest in group.matrices
    }
    found = [digest for digest in held if matrix in (names.get(digest), digest)]
    if not found:
        found = [digest for digest in held if len(matrix) >= 6 and digest.startswith(matrix)]
    if not found:
        raise NotFound(
            f"no tensor `{matrix}`",
            did_you_mean=nearest(matrix, sorted({names[digest] for digest in held})),
            hint="dlv desc REF lists them; of one version: dlv archive REF --explain NAME",
        )
    return [_explained(plan, digest) for digest in found]


def _explained(plan: Proposal, digest: str) -> Explained:
    graph, chosen = plan.graph, plan.plan.edges
    matrices = plan.layout.matrices
    number = next(at for at, matrix in enumerate(matrices, 1) if matrix.hash == digest)
    matrix = matrices[number - 1]
    where: dict[str, str] = {}
    for group in plan.layout.groups:
        for other in group.matrices:
            where.setdefault(other, budgets.label(group))

    def called(vertex: int) -> str:
        other = matrices[vertex - 1].hash
        return f"{where.get(other, 'removed')} {plan.layout.names.get(other, other[:12])}"

    ways = [
        Way(
            _how(plan, edge),
            called(int(graph.tails[edge])) if graph.tails[edge] else None,
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
        chain.append(f"{called(vertex)}: {_how(plan, int(chosen[vertex]))}")
        vertex = int(graph.tails[chosen[vertex]])
    times = timings(plan)
    return Explained(
        *(digest, plan.layout.names.get(digest, digest[:12]), called(number)),
        *(matrix.shape, matrix.dtype),
        sorted(ways, key=lambda way: (way.bytes, way.kind)),
        chain,
        [
            timing
            for timing, group in zip(times, plan.layout.groups, strict=True)
            if digest in group.matrices
        ],
    )


def _how(plan: Proposal, edge: int) -> str:
    return plan.graph.kinds[edge] if plan.layout.choices[edge] else "as it is now"
