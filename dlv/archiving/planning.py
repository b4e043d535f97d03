"""The storage graph of a repository: ways to store each matrix, what they cost, who must be fast.

Sizes are measured, not guessed: of the bases that lineage offers, sketches name the nearest, and
with these the matrix is really encoded.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from dlv.archiving.estimates import IN_CONTEXT, Effort, alone_share, difference_share, estimated
from dlv.archiving.speeds import Speeds
from dlv.archiving.tryouts import Choice, Near, Tried, Tryouts
from dlv.dataclass import dataclass
from dlv.dtypes import tensor_bytes
from dlv.kinds import Raw
from dlv.metadata import usage, versions
from dlv.metadata.database import Database
from dlv.metadata.usage import HeldSnapshot, StoredMatrix
from dlv.metadata.versions import Version
from dlv.pas.deltas.sketch import difference_bits, sketch
from dlv.pas.encode import SMALL
from dlv.pas.floats import Words, format_of
from dlv.pas.footer import Encoding
from dlv.pas.storage_graph import StorageGraph

LAGS = (1, 2)  # how far apart two snapshots or versions of one line may stand
SIBLINGS = 2  # with how many earlier children of its parent a version is compared


def candidates(
    versions: Sequence[Version],
    snapshots: Sequence[HeldSnapshot],
    stored: Mapping[str, StoredMatrix],
) -> dict[str, list[str]]:
    """Matrix -> bases to look at, the nearest of kin first. Oldest version first, please."""
    found: dict[str, dict[str, None]] = {}
    for one, other in _kin(versions, snapshots):
        for left, right in _matched(one, other, stored):
            found.setdefault(left, {})[right] = None
            found.setdefault(right, {})[left] = None
    return {target: list(bases) for target, bases in found.items()}


def _kin(
    versions: Sequence[Version], snapshots: Sequence[HeldSnapshot]
) -> Iterator[tuple[HeldSnapshot, HeldSnapshot]]:
    """Pairs of snapshots that are likely to be close, each pair once."""
    of: dict[int, list[HeldSnapshot]] = {}
    for snapshot in snapshots:
        of.setdefault(snapshot.version, []).append(snapshot)
    latest = {key: _own(held) for key, held in of.items()}
    ends = {key: {held[0].key: held[0], latest[key].key: latest[key]} for key, held in of.items()}
    seen: set[tuple[int, int]] = set()

    def pairs(
        ones: Iterable[HeldSnapshot], others: Iterable[HeldSnapshot]
    ) -> Iterator[tuple[HeldSnapshot, HeldSnapshot]]:
        for one in ones:
            for other in others:
                pair = (min(one.key, other.key), max(one.key, other.key))
                if one.key != other.key and pair not in seen:
                    seen.add(pair)
                    yield one, other

    for held in of.values():
        for lag in LAGS:
            for one, other in zip(held[lag:], held, strict=False):
                yield from pairs([one], [other])
    by_id = {version.id: version for version in versions}
    names: dict[str, list[Version]] = {}
    children: dict[str, list[Version]] = {}
    for version in versions:
        names.setdefault(version.name, []).append(version)
        for parent, _ in version.parents:
            children.setdefault(parent, []).append(version)
        if version.key not in of:
            continue
        for ancestor in _ancestors(version, by_id):
            if ancestor.key in of:
                yield from pairs(ends[version.key].values(), [latest[ancestor.key]])
    lines = [(line, LAGS[-1]) for line in names.values()]
    lines += [(line, SIBLINGS) for line in children.values()]
    for line, reach in lines:
        kept = [version for version in line if version.key in of]
        for lag in range(1, reach + 1):
            for late, early in zip(kept[lag:], kept, strict=False):
                yield from pairs([latest[late.key]], [latest[early.key]])


def _own(held: Sequence[HeldSnapshot]) -> HeldSnapshot:
    return next((snapshot for snapshot in held if snapshot.own), held[-1])


def _ancestors(version: Version, by_id: Mapping[str, Version]) -> Iterator[Version]:
    """Parents, and their first parents up to the farthest lag."""
    for parent, _ in version.parents:
        found = by_id.get(parent)
        for _ in LAGS:
            if found is None:
                break
            yield found
            found = by_id.get(found.parents[0][0]) if found.parents else None


def _matched(
    one: HeldSnapshot, other: HeldSnapshot, stored: Mapping[str, StoredMatrix]
) -> Iterator[tuple[str, str]]:
    """Matrices of the same tensor; where names differ, of the same shape and role in order."""
    named = {name: digest for name, _, digest in other.tensors}
    taken = set()
    rest: list[tuple[str, str]] = []
    for name, role, digest in one.tensors:
        if name in named:
            taken.add(name)
            if _fits(stored.get(digest), stored.get(named[name])):
                yield digest, named[name]
        else:
            rest.append((role, digest))
    waiting: dict[tuple[str, str, tuple[int, ...]], list[str]] = {}
    for name, role, digest in other.tensors:
        matrix = stored.get(digest)
        if name not in taken and matrix is not None:
            waiting.setdefault((role, matrix.dtype, matrix.shape), []).append(digest)
    for role, digest in rest:
        matrix = stored.get(digest)
        if matrix is None:
            continue
        alike = waiting.get((role, matrix.dtype, matrix.shape))
        if alike:
            base = alike.pop(0)
            if base != digest:
                yield digest, base


def _fits(base: StoredMatrix | None, other: StoredMatrix | None) -> bool:
    """A delta never leaves dtype and shape."""
    return (
        base is not None
        and other is not None
        and base.hash != other.hash
        and base.dtype == other.dtype
        and base.shape == other.shape
        and min(base.shape, default=1) > 0
    )


Advance = Callable[[int], None]

BASES = 2  # of the candidates, so many are tried
FAR = 0.92  # a base whose difference takes more than this part of the bits is not tried
AT_ONCE = 64 << 20  # bytes of the matrices that several threads encode
DOUBT = 1.03  # estimates are this much above the usual size
STEADY = 0.9  # a new delta must be estimated below this share of the current one
KEEP = "keep"  # kind of the edge that leaves a matrix as it is stored now
EVERY_STATE = ("live", "recovered", "removed", "undone")


@dataclass(frozen=True)
class Held:
    """A snapshot that can be asked for, as a group of the graph."""

    version: Version
    snapshot: HeldSnapshot
    latest: bool  # of its name
    matrices: tuple[str, ...]


def raw_bytes(matrix: StoredMatrix) -> int:
    """Bytes of a matrix as it was added; if its dtype is unknown, what it takes now."""
    return tensor_bytes(matrix.dtype, matrix.shape) or round(matrix.stored)


@dataclass
class Layout:
    """The graph and what its numbers stand for."""

    graph: StorageGraph
    matrices: list[StoredMatrix]  # of vertex 1, 2, ...
    choices: list[Choice | None]  # of each edge; None: as it is stored now
    tried: dict[Choice, Tried]
    groups: list[Held]
    names: dict[str, str] = field(default_factory=dict)  # matrix -> a tensor that it is

    def movable(self, scope: set[str]) -> NDArray[np.int64]:
        """The vertices of matrices in scope."""
        numbers = [number for number, m in enumerate(self.matrices, 1) if m.hash in scope]
        return np.array(numbers, np.int64)

    def raw(self, vertex: int) -> int:
        """Bytes of the matrix of a vertex as it was added."""
        return raw_bytes(self.matrices[vertex - 1])

    def current(self) -> NDArray[np.bool_]:
        """For each edge, whether its head is stored that way now."""
        return np.array([choice is None for choice in self.choices], np.bool_)

    def fresh(self) -> NDArray[np.int64]:
        """Vertices of matrices that are neither deltas nor bases, as after a commit."""
        current = np.flatnonzero(self.current())
        deltas = current[self.graph.tails[current] > 0]
        old = np.union1d(self.graph.tails[deltas], self.graph.heads[deltas])
        return np.setdiff1d(np.arange(1, self.graph.vertices), old)

    def placed(self, scope: set[str]) -> NDArray[np.int64]:
        """The edge by which each vertex is stored now; -1 of those in scope that none rests on."""
        current = np.flatnonzero(self.current())
        edges = np.full(self.graph.vertices, -1, np.int64)
        edges[self.graph.heads[current]] = current
        bases = set(self.graph.tails[current].tolist())
        for number, matrix in enumerate(self.matrices, 1):
            if matrix.hash in scope and number not in bases:
                edges[number] = -1
        return edges


def groups_of(db: Database) -> tuple[list[Version], list[HeldSnapshot], list[Held]]:
    """Versions (oldest first) and snapshots, all of them; and those that can be asked for."""
    known = versions.all_versions(db, EVERY_STATE)[::-1]
    snapshots = usage.held_snapshots(db, [version.key for version in known])
    live = {version.key: version for version in known if version.state in ("live", "recovered")}
    newest: dict[str, int] = {}
    for version in live.values():
        newest[version.name] = version.key
    held = [
        Held(
            live[snapshot.version],
            snapshot,
            snapshot.own and newest[live[snapshot.version].name] == snapshot.version,
            tuple(dict.fromkeys(digest for _, _, digest in snapshot.tensors)),
        )
        for snapshot in snapshots
        if snapshot.version in live and not snapshot.removed
    ]
    return known, snapshots, held


class Planner:
    """Tries encodings of the matrices in question and puts the graph together."""

    def __init__(
        self,
        db: Database,
        tryouts: Tryouts,
        together: Callable[[Iterable[str]], Iterator[tuple[str, Raw]]],
        speeds: Speeds,
        *,
        jobs: int = 1,
        effort: Effort = "high",
        pinned: Set[str] = frozenset(),
    ) -> None:
        self.db = db
        self.pinned = pinned  # matrices that must stay encoded as they are
        self.tryouts = tryouts
        self.together = together
        self.speeds = speeds
        self.jobs = jobs
        self.effort = effort
        self.known, self.snapshots, self.groups = groups_of(db)
        self.stored = {matrix.hash: matrix for matrix in usage.stored_matrices(db)}
        self.raw = {digest: raw_bytes(matrix) for digest, matrix in self.stored.items()}
        self._sketches: dict[str, Words] = {}
        self._usual = IN_CONTEXT

    def scope(self, chosen: Iterable[int] | None) -> list[str]:
        """The matrices of these versions (keys), or of all, that anything can be gained on."""
        wanted = None if chosen is None else set(chosen)
        found = {
            digest: None
            for snapshot in self.snapshots
            if wanted is None or snapshot.version in wanted
            for _, _, digest in snapshot.tensors
        }
        return [digest for digest in found if digest in self.stored and self._plannable(digest)]

    def layout(self, scope: Sequence[str], advance: Advance) -> Layout:
        """Measure what is in scope; the rest may only stay as it is."""
        # The bar follows the slow part: encoding if everything is tried, otherwise reading.
        trying = self.effort == "high"
        near = self._bases(scope, _unheard if trying else advance)
        self._learn(near)
        tried = self._try(scope, near, advance if trying else _unheard)
        numbers = {digest: number for number, digest in enumerate(self.stored, 1)}
        edges: list[tuple[int, int, str, int, int]] = []
        choices: list[Choice | None] = []
        for digest, matrix in self.stored.items():
            base = None if matrix.delta is None else matrix.delta["base"]
            tail = 0 if base is None else numbers[base]
            same = self._same(matrix, tried)
            size, cost = round(matrix.stored), self._now(matrix)
            if same is not None:
                size, cost = tried[same].bytes, self._cost(same, tried.pop(same))
            edges.append((tail, numbers[digest], KEEP, size, cost))
            choices.append(None)
        for choice, outcome in tried.items():
            base_number = 0 if choice.base is None else numbers[choice.base]
            number = numbers[choice.matrix]
            cost = self._cost(choice, outcome)
            edges.append((base_number, number, choice.kind, outcome.bytes, cost))
            choices.append(choice)
        graph = StorageGraph.build(
            1 + len(numbers),
            edges,
            [
                [numbers[digest] for digest in group.matrices if digest in numbers]
                for group in self.groups
            ],
        )
        names = {
            digest: name for snapshot in self.snapshots for name, _, digest in snapshot.tensors
        }
        return Layout(graph, list(self.stored.values()), choices, tried, self.groups, names)

    def _same(self, matrix: StoredMatrix, tried: Mapping[Choice, Tried]) -> Choice | None:
        """What was tried that a small matrix is stored as already.

        Its share of chunks says little of what it takes, so it is measured as its other ways are.
        """
        base = None if matrix.delta is None else matrix.delta["base"]
        choice = Choice(matrix.hash, base, "materialise" if base is None else "sub")
        found = tried.get(choice)
        if found is None or found.parts or found.encoding.delta != matrix.delta:
            return None
        return choice if found.encoding.layout == matrix.layout else None

    def _cost(self, choice: Choice, outcome: Tried) -> int:
        manner = _manner(choice.kind, outcome.encoding)
        raw = self.raw[choice.matrix]
        return self.speeds.microseconds(manner, raw, outcome.stored, outcome.parts)

    def _plannable(self, digest: str) -> bool:
        matrix = self.stored[digest]
        if digest in self.pinned:
            return False
        return tensor_bytes(matrix.dtype, matrix.shape) > 0

    def encoding(self, digest: str) -> Encoding:
        """How a matrix is stored now."""
        matrix = self.stored[digest]
        return Encoding(
            *(matrix.hash, matrix.dtype, matrix.shape, matrix.layout, matrix.delta, matrix.planes)
        )

    def _now(self, matrix: StoredMatrix) -> int:
        manner = "zstd" if matrix.stored < 0.98 * self.raw[matrix.hash] else "raw"
        if matrix.delta is not None:
            manner = "context" if matrix.contexts else str(matrix.delta["id"])
        elif matrix.layout["id"] in ("fixed", "halved"):
            manner = "fixed"
        # As of what is tried: a small matrix has no chunks of its own.
        chunks = 0 if self.raw[matrix.hash] <= SMALL else matrix.planes
        return self.speeds.microseconds(manner, self.raw[matrix.hash], matrix.stored, chunks)

    def _bases(self, scope: Sequence[str], advance: Advance) -> dict[str, Near]:
        """For each matrix its nearest candidates, and how large these deltas would be."""
        found = candidates(self.known, self.snapshots, self.stored)
        near: dict[str, Near] = {}
        new = []
        for digest in scope:
            known = self.tryouts.near(digest, found.get(digest, ()))
            if known is None:
                new.append(digest)
            else:
                near[digest] = known
        wanted = {name for digest in new for name in (digest, *found.get(digest, ()))}
        wanted = {digest for digest in wanted if len(found.get(digest, ())) > 0}
        for digest, raw in self.together(wanted):
            self._sketches[digest] = sketch(raw, self.stored[digest].dtype)
            advance(len(raw))
        for digest in new:
            dtype = self.stored[digest].dtype
            bits = format_of(dtype).bits
            ranked = sorted(
                (difference_bits(self._sketches[digest], self._sketches[base], dtype), order)
                for order, base in enumerate(found.get(digest, ()))
            )
            close = [order for size, order in ranked[:BASES] if size < FAR * bits]
            near[digest] = Near()
            if (words := self._sketches.get(digest)) is not None:
                bases = [found[digest][order] for order in close]
                shares = [difference_share(words, self._sketches[base], dtype) for base in bases]
                alone = alone_share(words, dtype)
                near[digest] = Near(list(zip(bases, shares, strict=True)), alone)
            self.tryouts.note_near(digest, found.get(digest, ()), near[digest])
        return near

    def _choices(self, digest: str, near: Near) -> Iterator[tuple[Choice, float | None]]:
        """Ways to store a matrix, each with the estimated share of its bytes; None: encode to see.

        With `fast` and `normal` effort only the chosen way is encoded, once.
        """
        small = self.raw[digest] <= SMALL
        matrix = self.stored[digest]
        guessed: list[tuple[Choice, float]] = []
        for base, share in near.bases:
            plain = Choice(digest, base, "sub")
            in_context = Choice(digest, base, "context")
            if small:
                guessed.append((plain, share))
                continue
            # As it is stored already, it need not be encoded again.
            stored = matrix.delta is not None and matrix.delta["base"] == base
            # The likely smallest comes first, since only the best so far keeps its bytes.
            if self.effort != "fast" and not (stored and matrix.contexts):
                guessed.append((in_context, self._in_context(digest, base, share)))
            if not stored or matrix.layout["id"] != "units":
                guessed.append((plain, share))
        if matrix.delta is not None or small or self.effort == "high":
            guessed.append((Choice(digest, None, "materialise"), near.alone))
        if matrix.delta is not None and matrix.layout["id"] == "units" and not small:
            # An estimate must promise a clear gain before it undoes an earlier archive.
            least = STEADY * matrix.stored / max(1, self.raw[digest])
            guessed = [row for row in guessed if row[1] < least or row[0].kind != "context"]
        for choice, share in guessed:
            really = small or self.effort == "high" or self.tryouts.known(choice) is not None
            yield choice, None if really else share

    def _in_context(self, digest: str, base: str, share: float) -> float:
        """The part of its bytes that a matrix takes in context, given that of a plain difference.

        The reverse delta takes nearly as much; otherwise other matrices of this repository tell.
        """
        turned = self.tryouts.known(Choice(base, digest, "context"))
        if turned is not None:
            return turned.stored / max(1, self.raw[digest])
        return share * self._usual

    def _learn(self, near: Mapping[str, Near]) -> None:
        """Learn how much contexts saved on matrices that are archived already."""
        ratios = [
            tried.stored / (self.raw[digest] * share)
            for digest, found in near.items()
            for base, share in found.bases
            if share > 0
            and (tried := self.tryouts.known(Choice(digest, base, "context"))) is not None
        ]
        # An encoding that exists is not replaced by one that may only be as good.
        self._usual = DOUBT * float(np.median(ratios)) if ratios else IN_CONTEXT

    def _try(
        self, scope: Sequence[str], near: Mapping[str, Near], advance: Advance
    ) -> dict[Choice, Tried]:
        """Encode, a matrix per thread; the outcome does not depend on which was first."""

        def work(digest: str) -> list[tuple[Choice, Tried]]:
            made = []
            encoding = self.encoding(digest)
            for choice, share in self._choices(digest, near[digest]):
                if stopped.is_set():
                    return []
                if share is None:
                    tried = self.tryouts.tried(choice, encoding)
                else:
                    tried = estimated(choice, encoding, share)
                made.append((choice, tried))
            advance(self.raw[digest])
            return made

        def weighed(digest: str) -> list[tuple[Choice, Tried]]:
            with room.of(self.raw[digest]):
                return work(digest)

        room, stopped = Room(AT_ONCE), threading.Event()

        # Tensor by tensor, so that target and base are both decoded still.
        names = {digest: name for held in self.snapshots for name, _, digest in held.tensors}
        scope = sorted(scope, key=lambda digest: names[digest])
        if self.jobs < 2:
            outcomes = list(map(work, scope))
        else:
            with ThreadPoolExecutor(self.jobs) as pool:
                try:
                    outcomes = list(pool.map(weighed, scope))
                except BaseException:  # Ctrl-C too: the other threads need not come to their end
                    stopped.set()
                    raise
        return {choice: tried for made in outcomes for choice, tried in made}


def _unheard(_: int) -> None:
    """Progress that is not shown."""


class Room:
    """Lets threads work on so many bytes at once, or on one matrix that is larger."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def of(self, size: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._taken or self._taken + size <= self._limit)
            self._taken += size
        try:
            yield
        finally:
            with self._changed:
                self._taken -= size
                self._changed.notify_all()


def _manner(kind: str, encoding: Encoding) -> str:
    if kind == "materialise":
        return "fixed" if encoding.layout["id"] == "fixed" else "zstd"
    return kind
