"""`archive --explain`: how a matrix would be stored, what else was tried, and why not that."""

from __future__ import annotations

from dataclasses import dataclass

import dlv.archiving.budgets as limits
from dlv.archiving.proposal import (
    Progress,
    Proposal,
    Request,
    Timing,
    Trials,
    groups_asked,
    propose,
    timings,
)
from dlv.errors import NotFound, nearest
from dlv.repository.handle import Repository


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
            f"there is no matrix `{matrix}`",
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
            where.setdefault(other, limits.label(group))

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
