"""`archive`: every matrix stored as small as it can be under limits on how long reading takes."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence

import dlv.archiving.reencode as reencode
import dlv.archiving.rehearsal as rehearsal
import dlv.archiving.settling as settling
import dlv.archiving.tryouts as tryouts
import dlv.recovery.compare as comparing
import dlv.recovery.superseded as superseded
from dlv.archiving.planning import Planner, raw_bytes
from dlv.archiving.proposal import (
    Progress,
    Proposal,
    Request,
    Timing,
    Trials,
    export,
    groups_asked,
    propose,
    timings,
)
from dlv.archiving.tryouts import Choice, Tryouts
from dlv.dataclass import dataclass
from dlv.errors import StorageError
from dlv.metadata import matrices, usage
from dlv.pas.footer import Encoding
from dlv.pas.plan import make_plan
from dlv.pas.storage_graph import MAX_DEPTH, Scheme, StoragePlan, budgets_of
from dlv.repository.handle import Repository


@dataclass(frozen=True)
class Row:
    """A version: bytes of its tensors (of a matrix in each snapshot that holds it); of its
    matrices in the packs before and after, each once, a difference without its base; longest
    chain."""

    version: str
    id: str
    raw: int
    before: float
    after: float
    depth: int


@dataclass(frozen=True)
class Point:
    """What all weights take under a limit, and how long the slowest checkpoint takes to read."""

    alpha: float | None
    bytes: int
    microseconds: int


@dataclass
class Archived:
    """The plan, and its result unless this was a dry run.

    `tradeoff` has what other limits would cost, if that was asked for; `today` and `planned` are
    the same of what is stored now and of this plan.
    """

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
    left: int = 0  # matrices that the deadline left for the next run
    left_seconds: float | None = None  # predicted for a dry run
    resumed: bool = False
    tradeoff: Sequence[Point] = ()
    today: Point | None = None
    planned: Point | None = None

    @property
    def slowest(self) -> Timing | None:
        return max(self.snapshots, key=lambda timing: timing.microseconds, default=None)

    @property
    def depth(self) -> int:
        return max((row.depth for row in self.rows), default=0)


def archive(
    repository: Repository, request: Request, *, dry_run: bool = False, progress: Progress
) -> Archived:
    """Plan, and unless it is a rehearsal write new packs and switch to them."""
    started = time.monotonic()
    with superseded.alone(repository):
        with repository.writing():  # where this cannot be, nothing may be cleared either
            pass
        # Comparing all rows takes long, so it waits until it is certain that packs are deleted.
        leftovers = superseded.left(repository)
        if not dry_run:
            comparing.demand(repository, "archive", rows=leftovers and not request.local)
        resumed = superseded.settle(repository)
        with repository.writing(), Trials(repository, request) as (planner, tried):
            plan = propose(repository, planner, request, progress)
            export(plan, request)
            outcome = _outcome(repository, plan, request)
            outcome.dry_run, outcome.resumed = dry_run, resumed
            if request.explore:
                _explore(plan, outcome)
            chosen = _chosen(plan, planner, hurried=request.deadline is not None)
            if dry_run:
                _rehearse(plan, chosen, tried, request, outcome)
            else:
                outcome.changed = len(chosen)
                if chosen:
                    if not leftovers and not request.local:
                        comparing.demand(repository, "archive")
                    _carry_out(repository, chosen, tried, request, outcome, progress, planner.jobs)
        if not dry_run:
            _clean(repository, outcome, idle=not (chosen or resumed or tried.noted))
            if plan.whole and not outcome.left:
                settling.remember_plan(repository.cache, request.terms, plan.layout)
            outcome.after = usage.size_of_packs(repository.database)
            _measure(repository, outcome, plan)
    outcome.seconds = time.monotonic() - started
    return outcome


def _rehearse(
    plan: Proposal,
    chosen: Sequence[tuple[Choice, Encoding]],
    tried: Tryouts,
    request: Request,
    outcome: Archived,
) -> None:
    """Put the predicted time into the outcome, and correct its size by the sample."""
    forecast = rehearsal.rehearse(
        chosen,
        plan.layout.tried.__getitem__,
        tried.matrix,
        request.speeds,
        thorough=request.effort == "high",
        jobs=request.jobs,
    )
    outcome.left_seconds = forecast.seconds
    outcome.after += forecast.more


ALPHAS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)  # times the fastest possible reading


def _explore(plan: Proposal, outcome: Archived) -> None:
    """Plan for several limits, to show how storage grows as reading gets faster."""
    graph, scheme = plan.graph, plan.scheme

    def point(alpha: float | None, chosen: StoragePlan) -> Point:
        slowest = max(chosen.snapshot_costs(graph, scheme), default=0)
        return Point(alpha, chosen.storage(graph), slowest)

    found = []
    for alpha in (*ALPHAS, None):
        limits = budgets_of(plan.planned.minima, [alpha] * len(plan.planned.minima))
        made = make_plan(graph, limits, scheme, "best", max_depth=MAX_DEPTH)
        found.append(point(alpha, made.plan))
    outcome.tradeoff = found
    outcome.today = point(None, StoragePlan(plan.layout.placed(set())))
    outcome.planned = point(None, plan.plan)


def _clean(repository: Repository, outcome: Archived, *, idle: bool) -> None:
    """The new packs count already: what cannot be removed now is left to the next archive."""
    stored = None if idle else usage.matrix_names(repository.database)
    try:
        tryouts.settle(repository.cache, stored)
        outcome.freed, outcome.waiting = superseded.clear(repository)
    except StorageError:
        outcome.waiting = len(matrices.unused_packs(repository.database))


def _outcome(repository: Repository, plan: Proposal, request: Request) -> Archived:
    graph, chosen = plan.graph, plan.plan.edges
    numbers = {matrix.hash: at for at, matrix in enumerate(plan.layout.matrices, 1)}
    depths = plan.plan.depths(graph)
    asked = {group.version.key for group in groups_asked(repository, request, plan)}
    rows: dict[int, Row] = {}
    of: dict[int, dict[str, None]] = {}
    raw: dict[int, int] = {}
    sizes = {matrix.hash: raw_bytes(matrix) for matrix in plan.layout.matrices}
    for group in plan.layout.groups:
        key = group.version.key
        of.setdefault(key, {}).update(dict.fromkeys(group.matrices))
        raw[key] = raw.get(key, 0) + sum(sizes.get(digest, 0) for digest in group.matrices)
    for group in plan.layout.groups:
        key = group.version.key
        if key in rows or key not in asked:
            continue
        vertices = [numbers[digest] for digest in of[key] if digest in numbers]
        held = [plan.layout.matrices[v - 1] for v in vertices]
        rows[key] = Row(
            group.version.label,
            group.version.id,
            raw[key],
            sum(matrix.stored for matrix in held),
            sum(int(graph.storage[chosen[v]]) for v in vertices),
            max((int(depths[v]) for v in vertices), default=0),
        )
    before = usage.size_of_packs(repository.database)
    gained = sum(
        matrix.stored - int(graph.storage[chosen[at]])
        for at, matrix in enumerate(plan.layout.matrices, 1)
    )
    return Archived(
        rows=list(rows.values()),
        snapshots=timings(plan),
        before=before,
        after=max(0, round(before - gained)),
        changed=sum(plan.layout.choices[edge] is not None for edge in chosen[1:]),
        matrices=graph.vertices - 1,
        algorithm=request.algorithm,
        scheme=plan.scheme,
        dry_run=True,
    )


def _chosen(plan: Proposal, planner: Planner, *, hurried: bool) -> list[tuple[Choice, Encoding]]:
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
    if hurried:
        found = _most_saved_first(plan, found)
    elif total <= reencode.BATCH:  # they are switched together
        found.sort(key=lambda row: row[1:2])
    else:
        found.sort(key=lambda row: row[:2])
    return [(choice, planner.encoding(choice.matrix)) for _, _, choice in found]


def _most_saved_first(
    plan: Proposal, rows: Sequence[tuple[int, int, Choice]]
) -> list[tuple[int, int, Choice]]:
    """Sort by the share of bytes saved, but never a delta before its new base."""
    matrices_by_hash = {matrix.hash: matrix for matrix in plan.layout.matrices}
    waiting: dict[str, list[tuple[int, int, Choice]]] = {}
    pending = {choice.matrix for _, _, choice in rows}
    ready: list[tuple[float, int, tuple[int, int, Choice]]] = []

    def push(row: tuple[int, int, Choice]) -> None:
        matrix = matrices_by_hash[row[2].matrix]
        saved = matrix.stored - plan.layout.tried[row[2]].bytes
        heapq.heappush(ready, (-saved / max(1, raw_bytes(matrix)), row[1], row))

    for row in rows:
        base = row[2].base
        if base is not None and base in pending:
            waiting.setdefault(base, []).append(row)
        else:
            push(row)
    ordered = []
    while ready:
        ordered.append(heapq.heappop(ready)[2])
        for row in waiting.pop(ordered[-1][2].matrix, ()):
            push(row)
    return ordered


def _carry_out(
    repository: Repository,
    chosen: Sequence[tuple[Choice, Encoding]],
    tried: Tryouts,
    request: Request,
    outcome: Archived,
    progress: Progress,
    jobs: int,
) -> None:
    work = reencode.work(repository, chosen)
    total = sum(e.size for _, e in chosen) * reencode.ENCODING
    total += sum(e.size for e in (*(e for _, e in chosen), *work.carried))
    summary = f"{len(chosen)} tensors stored again"
    with progress("Encoding", total) as bar:
        written = reencode.carry_out(
            repository,
            work,
            tried,
            request.author,
            summary,
            bar.advance,
            jobs=jobs,
            deadline=request.deadline,
        )
    outcome.written, outcome.changed, outcome.left = written.bytes, written.matrices, written.left


def _measure(repository: Repository, outcome: Archived, plan: Proposal) -> None:
    """What versions really take now, instead of what was planned."""
    matrices = plan.layout.matrices
    if outcome.written:
        matrices = usage.stored_matrices(repository.database)
    now = {matrix.hash: matrix.stored for matrix in matrices}
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
