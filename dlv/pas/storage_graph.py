"""The storage graph: how matrices can be stored and at which cost; plans, and what limits them.

Vertex 0 is the empty matrix. An edge (u, v, kind, cs, cr) is one way to store v once u is there:
`kind` names it (materialise, xor, sub, context, with a store's name where there are several) and
means nothing to solvers, cs is bytes, cr microseconds. Edges are directed and may be parallel.
Edges from a matrix to itself or into vertex 0 are allowed and never used.

**Plane groups.** A matrix whose high planes are wanted sooner is two vertices: H for its high
planes, L for the others. Planes are chunks of their own, so H and L are read apart and every
cost is exact without a rule that ties them together:

- edges into H: `materialise:high` from 0 and `xor:high`, `sub:high`, ... from another matrix's H;
- edges into L: `materialise:low` from 0 and `xor:low`, `sub:low`, ... from the same other
  matrices' L. Where the codec's contexts are the digits above, cr of the low edge includes
  decoding the high planes' digits once more; what a plan promises is then never too low;
- a snapshot lists H and L of each matrix: the sum of both is the time of the whole matrix, and
  with parallel retrieval the later of the two is;
- a second snapshot lists the H alone and has the tighter budget (snapshots may overlap).

Where the low planes cannot be had without the high ones of the same matrix at all, an edge
H -> L of kind `after-high` says so: the distance of L then is that of the whole matrix, and the
snapshot lists the L alone. Solvers see vertices, edges and groups, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import read_json
from dlv.dataclass import dataclass
from dlv.errors import Damaged, DlvError, NotFound, StorageError, UsageError
from dlv.kinds import Longs

Scheme = Literal["independent", "parallel"]
Budgets = Sequence[int | None]  # microseconds in the order of snapshots; None: unlimited
Edge = tuple[int, int, str, int, int]

SCHEMES: tuple[Scheme, ...] = ("independent", "parallel")
UNLIMITED = 1 << 61  # also what no sum of costs may reach, so that int64 never overflows
MAX_FILE = 1 << 30
KEYS = {"vertices", "snapshots", "edges", "budgets", "scheme"}


@dataclass(frozen=True, eq=False)
class StorageGraph:
    vertices: int
    tails: Longs
    heads: Longs
    kinds: Sequence[str]
    storage: Longs
    recreation: Longs
    snapshots: Sequence[Longs]

    def __post_init__(self) -> None:
        if self.vertices < 1:
            raise Damaged("a storage graph has at least the empty tensor", why="0 vertices")
        self._check_edges()
        for number, members in enumerate(self.snapshots):
            where = f"checkpoint {number}"
            if len(members) and (members.min() < 0 or members.max() >= self.vertices):
                raise Damaged(f"{where} lists a vertex that does not exist", why=self._range())
            if len(np.unique(members)) != len(members):
                raise Damaged(f"{where} lists a vertex twice")

    def _check_edges(self) -> None:
        for name, ends in (("leaves", self.tails), ("enters", self.heads)):
            wrong = np.flatnonzero((ends < 0) | (ends >= self.vertices))
            if len(wrong):
                text = f"edge {wrong[0]} {name} vertex {ends[wrong[0]]}, which does not exist"
                raise Damaged(text, why=self._range())
        for name, costs in (("storage", self.storage), ("recreation", self.recreation)):
            wrong = np.flatnonzero(costs < 0)
            if len(wrong):
                raise Damaged(f"edge {wrong[0]} has a negative {name} cost")
        # No path is longer than the worst edges of all vertices together.
        worst = np.zeros(self.vertices)
        np.maximum.at(worst, self.heads, self.recreation)
        most = max((len(members) for members in self.snapshots), default=1)
        largest = np.zeros(self.vertices)
        np.maximum.at(largest, self.heads, self.storage)
        if max(float(worst.sum()) * max(most, 1), float(largest.sum())) * 2 > UNLIMITED:
            raise Damaged("costs are too large", why="their sums do not fit in 61 bits")

    def _range(self) -> str:
        return f"vertices are 0 to {self.vertices - 1}"

    @classmethod
    def build(
        cls, vertices: int, edges: Iterable[Edge], snapshots: Iterable[Iterable[int]]
    ) -> StorageGraph:
        """From rows as they stand in a graph file."""
        rows = list(edges)
        numbers = [whole([row[at] for row in rows], f"{name} of the edges") for at, name in COLUMNS]
        return cls(
            vertices,
            numbers[0],
            numbers[1],
            [row[2] for row in rows],
            numbers[2],
            numbers[3],
            [whole(list(s), f"members of checkpoint {at}") for at, s in enumerate(snapshots)],
        )

    @property
    def edges(self) -> int:
        return len(self.tails)

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """Edges that a plan could use: none into the empty matrix or from a matrix to itself."""
        usable: NDArray[np.bool_] = (self.heads != 0) & (self.heads != self.tails)
        return usable

    def as_json(self, budgets: Budgets, scheme: Scheme) -> dict[str, Any]:
        columns = (self.tails, self.heads, self.storage, self.recreation)
        tails, heads, storage, recreation = (column.tolist() for column in columns)
        return {
            "vertices": self.vertices,
            "snapshots": [members.tolist() for members in self.snapshots],
            "edges": [
                list(row) for row in zip(tails, heads, self.kinds, storage, recreation, strict=True)
            ],
            "budgets": list(budgets),
            "scheme": scheme,
        }


COLUMNS = ((0, "tails"), (1, "heads"), (3, "storage costs"), (4, "recreation costs"))


@dataclass(frozen=True, eq=False)
class Problem:
    """What a graph file holds."""

    graph: StorageGraph
    budgets: list[int | None]
    scheme: Scheme


def whole(values: Sequence[Any], label: str) -> Longs:
    """Whole numbers out of JSON; 5.0 passes, 5.5, true and text do not."""
    kinds = set(map(type, values))
    if not kinds <= {int, float}:
        odd = next(value for value in values if type(value) not in (int, float))
        raise Damaged(f"{label}: {_short(odd)} is not a whole number")
    if float in kinds:
        odd = next((v for v in values if type(v) is float and not v.is_integer()), None)
        if odd is not None:
            why = "costs are bytes and microseconds"
            raise Damaged(f"{label}: {_short(odd)} is not a whole number", why=why)
        values = [int(value) for value in values]
    try:
        return np.array(values, np.int64)
    except OverflowError as error:
        raise Damaged(f"{label}: a number does not fit in 64 bits") from error


def problem_of(document: Any, label: str = "graph") -> Problem:
    """A storage graph with its budgets, out of the JSON of a graph file."""
    if not isinstance(document, dict) or not isinstance(document.get("edges"), list):
        raise Damaged(f"{label} is not a storage graph", why=f"an object with {sorted(KEYS)}")
    if not set(document) <= KEYS:
        odd = sorted(set(document) - KEYS)[0]
        raise Damaged(f"{label} is not a storage graph", why=f"unknown key {_short(odd)}")
    vertices, snapshots = document.get("vertices"), document.get("snapshots")
    if type(vertices) is not int or not 1 <= vertices <= MAX_FILE:
        raise Damaged(f"{label}: `vertices` is not a number of vertices", why=_short(vertices))
    if not isinstance(snapshots, list) or not all(isinstance(s, list) for s in snapshots):
        raise Damaged(f"{label}: `snapshots` is not a list of lists of vertices")
    for number, row in enumerate(document["edges"]):
        if not isinstance(row, list) or len(row) != 5 or not isinstance(row[2], str):
            why = f"{_short(row)} is not [u, v, kind, cs, cr]"
            raise Damaged(f"{label}: edge {number} is not an edge", why=why)
    if len(document["edges"]) < vertices - 1:  # before arrays of that size are made
        why = f"{len(document['edges'])} edges for {vertices} vertices"
        raise Damaged(f"{label} has no plan: too few edges", why=why)
    graph = StorageGraph.build(vertices, document["edges"], snapshots)
    scheme = document.get("scheme", "independent")
    if scheme not in SCHEMES:
        raise Damaged(f"{label}: unknown scheme {_short(scheme)}", why=f"one of {list(SCHEMES)}")
    budgets = document.get("budgets", [None] * len(snapshots))
    if not isinstance(budgets, list) or len(budgets) != len(snapshots):
        raise Damaged(f"{label}: `budgets` is not a list with one budget per checkpoint")
    return Problem(
        graph, [_budget(b, f"{label}: budget {i}") for i, b in enumerate(budgets)], scheme
    )


def read_problem(path: Path) -> Problem:
    """A graph file."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_FILE else None
    except FileNotFoundError as error:
        raise NotFound(f"no such file: {path}") from error
    except OSError as error:
        raise StorageError(f"cannot read {path}", why=error.strerror) from error
    if data is None:
        raise Damaged(f"{path} is too large", why=f"the limit is {MAX_FILE} bytes")
    return problem_of(read_json(data, str(path), limit=MAX_FILE, depth=4), str(path))


def _budget(value: Any, label: str) -> int | None:
    """Recreation costs are whole, so that a fraction in a budget buys nothing."""
    if value is None:
        return None
    if type(value) not in (int, float) or value < 0:
        raise Damaged(f"{label} is not a number of microseconds or null", why=_short(value))
    return int(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def refuse_unreachable(graph: StorageGraph) -> None:
    """Damaged, naming vertices, where no plan exists."""
    lost = unreachable(graph)
    if len(lost):
        named = ", ".join(map(str, lost[:10].tolist())) + (", ..." if len(lost) > 10 else "")
        count = f"{len(lost)} vertices" if len(lost) > 1 else "a vertex"
        raise Damaged(
            f"{count} of the storage graph cannot be reached from the empty tensor",
            why=f"vertices {named}",
            hint="every tensor needs an edge from 0 or from a tensor that has one",
        )


def unreachable(graph: StorageGraph) -> Longs:
    """Vertices that no path from the empty matrix leads to."""
    seen = np.zeros(graph.vertices, np.bool_)
    seen[0] = True
    order = np.argsort(graph.tails, kind="stable")
    starts = np.searchsorted(graph.tails[order], np.arange(graph.vertices + 1))
    new = np.array([0])
    while len(new):
        lengths = starts[new + 1] - starts[new]
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        targets = graph.heads[order[np.repeat(starts[new], lengths) + within]]
        new = np.unique(targets[~seen[targets]])
        seen[new] = True
    return np.flatnonzero(~seen)


MAX_DEPTH = 32  # deltas are read one after the other; a longer chain is cut


@dataclass(frozen=True, eq=False)
class StoragePlan:
    """`edges[v]` is the index of the edge by which vertex v is stored; -1 for vertex 0."""

    edges: Longs

    @classmethod
    def of(cls, graph: StorageGraph, chosen: Sequence[int] | Longs) -> StoragePlan:
        """From edge indices in any order, checked."""
        chosen = np.asarray(chosen, np.int64)
        wrong = np.flatnonzero((chosen < 0) | (chosen >= graph.edges))
        if len(wrong):
            raise Damaged(f"the plan names edge {chosen[wrong[0]]}, which does not exist")
        edges = np.full(graph.vertices, -1, np.int64)
        edges[graph.heads[chosen]] = chosen
        counts = np.bincount(graph.heads[chosen], minlength=graph.vertices)
        counts[0] += 1
        wrong = np.flatnonzero(counts != 1)
        if len(wrong):
            vertex = int(wrong[0])
            if vertex == 0:
                raise Damaged("the plan has an edge into the empty tensor")
            raise Damaged(f"the plan has {counts[vertex]} edges into vertex {vertex}, not one")
        plan = cls(edges)
        plan.check(graph)
        return plan

    def as_json(self) -> dict[str, Any]:
        return {"edges": self.edges[1:].tolist()}

    def parents(self, graph: StorageGraph) -> Longs:
        """The base of every vertex; 0 for what is materialised, and for vertex 0."""
        parents = np.zeros(graph.vertices, np.int64)
        parents[1:] = graph.tails[self.edges[1:]]
        return parents

    def check(self, graph: StorageGraph) -> None:
        """One edge into every vertex but 0, and no cycle; Damaged otherwise."""
        if len(self.edges) != graph.vertices or np.any(self.edges[1:] < 0):
            raise Damaged("the plan does not store every tensor")
        if not np.array_equal(graph.heads[self.edges[1:]], np.arange(1, graph.vertices)):
            raise Damaged("the plan stores a tensor by another one's edge")
        up, steps = self.parents(graph), 1
        while steps < graph.vertices and np.any(up):
            up = up[up]
            steps *= 2
        if np.any(up):
            vertex = int(np.flatnonzero(up)[0])
            raise Damaged("the plan has a cycle", why=f"vertex {vertex} is never reached from 0")

    def storage(self, graph: StorageGraph) -> int:
        """Bytes."""
        return int(graph.storage[self.edges[1:]].sum())

    def recreation(self, graph: StorageGraph) -> Longs:
        """Microseconds from nothing to each vertex."""
        return self._along(graph, graph.recreation)

    def depths(self, graph: StorageGraph) -> Longs:
        """Edges from the empty matrix to each vertex: 1 for what is materialised."""
        return self._along(graph, np.ones(graph.edges, np.int64))

    def _along(self, graph: StorageGraph, costs: Longs) -> Longs:
        """Sums along the path to each vertex, all paths halved at once."""
        total = np.zeros(graph.vertices, np.int64)
        total[1:] = costs[self.edges[1:]]
        up, steps = self.parents(graph), 1
        while steps < graph.vertices and np.any(up):
            total = total + total[up]
            up = up[up]
            steps *= 2
        return total

    def snapshot_costs(self, graph: StorageGraph, scheme: Scheme) -> list[int]:
        """The recreation cost of each snapshot."""
        return of_snapshots(graph, self.recreation(graph), scheme)

    def keeps(self, graph: StorageGraph, budgets: Budgets, scheme: Scheme) -> bool:
        costs = self.snapshot_costs(graph, scheme)
        return all(b is None or c <= b for c, b in zip(costs, budgets, strict=True))


@dataclass(frozen=True)
class Shortfall:
    """A snapshot whose budget no plan can keep."""

    snapshot: int
    budget: int
    minimum: int


class Infeasible(DlvError):
    """Budgets that no plan keeps; `alpha` times each of them, all could be kept (None: never)."""

    exit_code = 9
    kind = "infeasible"

    def __init__(self, shortfalls: Sequence[Shortfall], hint: str | None = None) -> None:
        self.shortfalls = list(shortfalls)
        zero = any(s.budget == 0 for s in shortfalls)
        self.alpha = None if zero else max(s.minimum / s.budget for s in shortfalls)
        lines = [
            f"checkpoint {s.snapshot}: {s.budget} µs asked, {s.minimum} µs is the fastest possible"
            for s in self.shortfalls
        ]
        need = "" if self.alpha is None else f"\nall budgets times {_up(self.alpha)} would do"
        count = f"{len(lines)} budget{'s' if len(lines) > 1 else ''}"
        super().__init__(
            f"no plan meets {count}", why="\n".join(lines) + need, hint=hint or "raise the budgets"
        )

    def as_json(self) -> dict[str, object]:
        document = super().as_json()
        document["alpha"] = self.alpha
        document["snapshots"] = [
            {"snapshot": s.snapshot, "budget": s.budget, "minimum": s.minimum}
            for s in self.shortfalls
        ]
        return document


def _up(alpha: float) -> str:
    """With three decimals, never rounded down below what works."""
    return f"{-(-alpha * 1000 // 1) / 1000:.3f}"


def of_snapshots(graph: StorageGraph, recreation: Longs, scheme: Scheme) -> list[int]:
    """Costs of snapshots from those of vertices: their sum, or the largest."""
    if scheme == "parallel":
        return [int(recreation[m].max()) if len(m) else 0 for m in graph.snapshots]
    return [int(recreation[m].sum()) for m in graph.snapshots]


def shortfalls(budgets: Budgets, minima: Sequence[int]) -> list[Shortfall]:
    if len(budgets) != len(minima):
        raise UsageError(f"{len(budgets)} budgets were given for {len(minima)} checkpoints")
    return [
        Shortfall(number, budget, minimum)
        for number, (budget, minimum) in enumerate(zip(budgets, minima, strict=True))
        if budget is not None and budget < minimum
    ]


def raised(budgets: Budgets, faults: Iterable[Shortfall]) -> list[int | None]:
    """The budgets, with those that no plan keeps raised to the fastest possible time."""
    limits = list(budgets)
    for fault in faults:
        limits[fault.snapshot] = fault.minimum
    return limits


def budgets_of(minima: Sequence[int], alphas: Sequence[float | None]) -> list[int | None]:
    """theta = alpha x the fastest possible; None: unlimited."""
    if len(alphas) != len(minima):
        raise UsageError(f"{len(alphas)} slacks were given for {len(minima)} checkpoints")
    budgets: list[int | None] = []
    for minimum, alpha in zip(minima, alphas, strict=True):
        if alpha is None or alpha == float("inf"):
            budgets.append(None)
        elif not alpha >= 0:
            raise UsageError(f"{alpha} is not a factor of the fastest possible time")
        else:
            budgets.append(int(alpha * minimum))
    return budgets
