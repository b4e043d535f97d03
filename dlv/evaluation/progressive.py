"""Progressive evaluation: labels from the high planes of the weights.

`progressive` gives labels that bounds prove to be those of the reference. `calibrated` works for
every operation, needs no stored bounds and proves nothing: it gives a label where the margin of
the centre is many times what random completions of the unread bits move it by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.errors import Damaged, DlvError
from dlv.evaluation.answers import Answers, NoBounds, Settings, Verdicts, first_sets
from dlv.evaluation.levels import Batches, Inputs, Levels, Rows, first_row
from dlv.evaluation.planes import Planes
from dlv.kinds import Array, Floats, Places
from dlv.network.bounds.adjoint import Adjoint
from dlv.network.bounds.ball import REFERENCES, STRICT, Norms, squares
from dlv.network.bounds.interval import Balls, certain
from dlv.network.forward import Forward
from dlv.network.graph import Network
from dlv.network.ops.op import NoRule, op_of
from dlv.network.program import Program
from dlv.network.suffix.radius import Read, SuffixBalls
from dlv.network.suffix.record import Suffix, misfits, suffix_from_json
from dlv.weights.bounds import KIND, NoRecord, Record
from dlv.weights.store import MatrixStore

Shapes = tuple[tuple[int, ...], ...]

# What stored norms are raised by, relatively, and more.
_DIGITS = 1e-4


class Model(Protocol):
    """What is evaluated."""

    @property
    def network(self) -> Network: ...
    @property
    def program(self) -> Program: ...
    @property
    def store(self) -> MatrixStore: ...
    @property
    def hashes(self) -> Mapping[str, str]: ...


def progressive(model: Model, rows: Rows, settings: Settings, record: Record | NoRecord) -> Answers:
    """Labels and sets as the reference has them, each from as few levels as prove it.

    NoBounds where that cannot be, before any weight is read.
    """
    if isinstance(record, NoRecord):
        raise NoBounds(record.why)
    planes = planes_of(model)
    try:
        suffix = suffix_of(record, model.program, planes)
    except DlvError as error:
        raise NoBounds(f"the stored bounds cannot be read: {error.why or error.message}") from None
    _check(model.program, planes, record, settings.reference)
    levels = Levels(model.program, planes, rows, settings)
    planes.chunks.count(model.store.object_chunks(KIND, record.hash))
    schedule = levels.worthwhile(depths_of(record, model.program, planes))
    if not schedule:
        raise NoBounds("its first planes take as many bytes as all of it")
    _probe(model.program, planes, record, settings, rows)

    def judge() -> BallJudge:
        def norms(shapes: Shapes) -> dict[str, Norms]:
            return norms_of(record, model.program, planes, shapes)

        def read(shapes: Shapes) -> Read | None:
            if suffix is None or tuple(map(tuple, shapes)) != record.input:
                return None
            return Read(suffix, depths_read(model.program, planes))

        return BallJudge(model.program, planes.tensor, norms, settings, read)

    def useful(name: str, depth: int) -> bool:
        return depth >= planes.planes(name) or _bounded(record, suffix, model.program, name, depth)

    return levels.run(schedule, judge, useful, proves=True)


def suffix_of(record: Record, program: Program, planes: Planes) -> Suffix | None:
    """The tables of the tighter bound, if there are any; Damaged where a size is not the network's.

    So are norms of rows, which are not handed on.
    """
    suffix = None if record.suffix is None else suffix_from_json(record.suffix)
    shapes = {name: planes.chain(name)[0].shape for name in planes.names}
    why = next(misfits(program, shapes, record.row_counts, suffix), None)
    if why is not None:
        raise Damaged("the bounds record is not of this network's sizes", why=why, hint="dlv fsck")
    return suffix


def planes_of(model: Model, *, intervals: bool = False) -> Planes:
    """The matrices that a model's program needs, none read so far."""
    known = {**model.network.constants, **model.hashes}
    missing = [name for name in model.program.tensors if name not in known]
    if missing:
        raise NoBounds(f"no tensor `{missing[0]}`")
    hashes = {name: known[name] for name in model.program.tensors}
    return Planes(model.store, hashes, model.network.aliases, intervals=intervals)


def depths_of(record: Record, program: Program, planes: Planes) -> list[dict[str, int]]:
    """The partial levels of a record's schedule: a depth for every tensor.

    Whole is all that no norms speak of: biases, statistics, constants, and weights that are
    used for something else as well.
    """
    users = _users(program)
    found = []
    for level in record.schedule:
        depths = {name: planes.planes(name) for name in planes.names}
        for name, nodes in users.items():
            depth = max(level.get(name, depths[name]), 1)
            while depth < depths[name] and any(record.norms(n, depth) is None for n in nodes):
                depth += 1
            depths[name] = min(depth, depths[name])
        found.append(depths)
    return found


class BallJudge:
    """Tells rows by balls around what the planes read so far make of them."""

    def __init__(
        self,
        program: Program,
        tensor: Callable[[str], Array],
        norms: Callable[[Shapes], Mapping[str, Norms]],
        settings: Settings,
        read: Callable[[Shapes], Read | None] = lambda shapes: None,  # noqa: ARG005
        *,
        trial: bool = False,
    ) -> None:
        self._program = program
        self._read = read
        self._trial = trial  # with zeros for weights
        self._tensor = tensor
        self._norms = norms
        self._settings = settings
        self._reference = REFERENCES[settings.reference]
        self._balls: dict[Shapes, tuple[Balls, Adjoint]] = {}

    def __call__(self, batches: Batches) -> Iterator[tuple[Places, Verdicts]]:
        for at, inputs in batches:
            yield at, self.verdicts(inputs)

    def verdicts(self, inputs: Inputs) -> Verdicts:
        """Labels and sets of a batch, and which of them hold for any unread bits."""
        balls, adjoint = self._balls_for(inputs)
        known, top_k = balls.balls(inputs), self._settings.top_k
        labels, sure = certain(balls, known)
        verdicts = Verdicts(labels.astype(np.int64), sure)
        if top_k > 1:
            sets = first_sets(known[self._program.scores].centre, top_k)
            verdicts = replace(verdicts, sets=sets, sure_sets=certain(balls, known, top_k)[1])
        if self._settings.tighten:
            self._tighten(adjoint, inputs, verdicts)
        return verdicts

    def _tighten(self, adjoint: Adjoint, inputs: Inputs, verdicts: Verdicts) -> None:
        """Bound the rows that are still open once more, backwards from the scores."""
        decided = verdicts.sure if verdicts.sure_sets is None else verdicts.sure_sets
        left = np.flatnonzero(~decided)
        if not len(left):
            return
        rows = {name: value[left] for name, value in inputs.items()}
        order, sure = adjoint.told(rows, self._settings.top_k)
        if verdicts.sets is None or verdicts.sure_sets is None:
            verdicts.labels[left], verdicts.sure[left] = order[:, 0], sure
        else:
            verdicts.sets[left], verdicts.sure_sets[left] = order, sure

    def _balls_for(self, inputs: Inputs) -> tuple[Balls, Adjoint]:
        """The network in balls, with norms that hold for inputs of these shapes."""
        shapes = tuple(inputs[name].shape[1:] for name in self._program.input_names)
        if shapes not in self._balls:
            norms = self._norms(shapes)
            program, tensor, reference = self._program, self._tensor, self._reference
            read = self._read(shapes)
            balls = Balls(program, tensor, norms, reference)
            if read is not None:
                balls = SuffixBalls(program, tensor, norms, read, reference)
            if not self._trial:
                _check_sizes(balls)
            self._balls[shapes] = balls, Adjoint(program, tensor, norms, reference)
        return self._balls[shapes]


def _check_sizes(balls: Balls) -> None:
    """NoRule if norms are of another weight: as one that normalisation was not folded into."""
    for step in balls.program.linear:
        norms = balls.norms.get(step.node.name)
        if norms is None:
            continue
        with np.errstate(all="ignore"):
            size = float(np.sqrt(squares(balls.params(step)["weight"]).sum()))
        least, most = norms.fro - norms.dfro, norms.fro + norms.dfro
        if not least - _DIGITS * most <= size <= most * (1 + _DIGITS):
            raise NoRule(step.node, "the stored norms are not those of its weight")


def norms_of(record: Record, program: Program, planes: Planes, shapes: Shapes) -> dict[str, Norms]:
    """Of each linear node, for the planes of its weight that were read."""
    found = {}
    for step in program.linear:
        name = _stored(program, step.node.params["weight"])
        depth = None if planes.whole(name) else planes.depths[name]
        norms = record.norms(step.node.name, depth, shapes)
        if norms is not None:
            found[step.node.name] = norms
        elif depth is not None:
            raise NoRule(step.node, f"it has no bounds after {depth} byte planes")
    return found


def depths_read(program: Program, planes: Planes) -> dict[str, int | None]:
    """By the result of each linear node, the planes read of its weight; None: all."""
    found: dict[str, int | None] = {}
    for step in program.linear:
        name = _stored(program, step.node.params["weight"])
        found[step.result] = None if planes.whole(name) else planes.depths[name]
    return found


def _bounded(
    record: Record, suffix: Suffix | None, program: Program, name: str, depth: int
) -> bool:
    """Whether every bound of a weight that there is at all goes so deep."""
    for step in program.linear:
        if _stored(program, step.node.params["weight"]) != name:
            continue
        if record.norms(step.node.name, depth) is None:
            return False
        node = None if suffix is None else suffix.nodes.get(step.result)
        if node is not None and node.levels and node.level(depth) is None:
            return False
    return True


def _stored(program: Program, name: str) -> str:
    return program.network.aliases.get(name, name)


def _users(program: Program) -> dict[str, list[str]]:
    """Tensors that are nothing but weights of linear nodes: the names of these nodes."""
    found: dict[str, list[str]] = {name: [] for name in program.matrices}
    other = set(program.constants)
    for step in program.steps:
        for slot, tensor in step.node.params.items():
            name = _stored(program, tensor)
            if slot == "weight" and name in found and step in program.linear:
                found[name].append(step.node.name)
            else:
                other.add(name)
        if step.fold is not None:
            other.update(_stored(program, tensor) for tensor in step.fold.params.values())
    return {name: nodes for name, nodes in found.items() if name not in other}


def _check(program: Program, planes: Planes, record: Record, reference: str) -> None:
    """NoBounds with the reason where this can come to nothing."""
    if not record.finite:
        raise NoBounds("some of its weights are not finite")
    if not record.helps.get(reference, False):
        raise NoBounds(f"its schedule does not help for the reference {reference}")
    for name in program.matrices:
        if "float" not in planes.dtype(name):
            raise NoBounds(f"`{name}` is {planes.dtype(name)}, which has no bounds")
    if REFERENCES[reference] is not STRICT:
        return
    for step in program.steps:
        norm = step.fold or step.node
        if op_of(norm).batch_statistics(norm):
            why = "strict bounds know no batch normalization"
            raise NoBounds(f"`{norm.name}`: {why}")
    for name in planes.names:
        if planes.dtype(name) == "float64":
            raise NoBounds(f"`{name}` is float64, which --strict does not support")


def _probe(
    program: Program, planes: Planes, record: Record, settings: Settings, rows: Rows
) -> None:
    """NoBounds if an operation has no rule: found with zeros for weights, none of them read."""

    def norms(shapes: Shapes) -> dict[str, Norms]:
        nodes = [step.node.name for step in program.linear]
        found = {node: record.norms(node, None, shapes) for node in nodes}
        return {node: each for node, each in found.items() if each is not None}

    inputs = first_row(program.network, rows, settings)
    if inputs is None:
        return
    try:
        asked = replace(settings, tighten=False)
        BallJudge(program, planes.zeros, norms, asked, trial=True).verdicts(inputs)
    except NoRule as error:
        raise NoBounds(str(error)) from None


Flags = NDArray[np.bool_]

COMPLETIONS = 8
LEAST = 6.0  # standard deviations between a label and the next
SMALL = 0.002  # of the bytes: so much of the smallest tensors is read whole from the start
# Rows that one set of completions is made for, and numbers of their inputs at most.
ROWS = 4096
NUMBERS = 1 << 24


def calibrated(model: Model, rows: Rows, settings: Settings) -> Answers:
    """Labels that random completions of the unread bits do not sway.

    NoBounds where no first planes say anything.
    """
    planes = planes_of(model, intervals=True)
    levels = Levels(model.program, planes, rows, settings)
    schedule = levels.worthwhile(_calibrated_depths(model.program, planes))
    if not schedule:
        raise NoBounds("its first planes take as many bytes as all of it")
    inputs = first_row(model.network, rows, settings)
    if inputs is not None and Forward(model.program, planes.zeros)(inputs).ndim != 2:
        raise NoBounds("its scores are not [batch, classes]")
    found = levels.run(schedule, lambda: Completions(model.program, planes, settings))
    found.mode = "calibrated"
    found.confidence = {"completions": COMPLETIONS, "z": LEAST, "seed": settings.seed}
    return found


def _calibrated_depths(program: Program, planes: Planes) -> list[dict[str, int]]:
    """A depth for every tensor, one plane more each time; small ones whole from the start."""
    whole = {name: planes.planes(name) for name in planes.names}
    costs = {name: planes.cost({name: most}) for name, most in whole.items()}
    room = SMALL * sum(costs.values())
    large = []
    for name in sorted(costs, key=lambda name: costs[name]):
        room -= costs[name]
        if room < 0 and name in program.matrices and "float" in planes.dtype(name):
            large.append(name)
    deepest = max((whole[name] for name in large), default=1)
    return [
        {**whole, **{name: min(depth, whole[name]) for name in large}}
        for depth in range(1, deepest)
    ]


class Completions:
    """Tells rows by the centre and by seeded random completions of what is not read."""

    def __init__(self, program: Program, planes: Planes, settings: Settings) -> None:
        self._program = program
        self._planes = planes
        self._settings = settings

    def __call__(self, batches: Batches) -> Iterator[tuple[Places, Verdicts]]:
        for block in _blocks(batches):
            yield from self._block_verdicts(block)

    def _block_verdicts(
        self, block: Sequence[tuple[Places, Inputs]]
    ) -> Iterator[tuple[Places, Verdicts]]:
        """Completion by completion, so that one of them is held at a time."""
        centre = Forward(self._program, self._planes.tensor)
        judged = [_Judged.of(centre(inputs), self._settings.top_k) for _, inputs in block]
        for number in range(COMPLETIONS):
            forward = Forward(self._program, self._completion(number))
            for (_, inputs), each in zip(block, judged, strict=True):
                each.add(forward(inputs))
        for (at, _), each in zip(block, judged, strict=True):
            yield at, each.verdicts(COMPLETIONS, self._settings.top_k)

    def _completion(self, number: int) -> Callable[[str], Array]:
        """Every unread bit drawn; the same ones for each block of rows."""
        made: dict[str, Array] = {}
        planes, seed = self._planes, self._settings.seed

        def tensor(name: str) -> Array:
            between = planes.between(name)
            if between is None:
                return planes.tensor(name)
            if name not in made:
                low, high = between
                which = int(hash_bytes(name.encode())[:8], 16)
                rng = np.random.default_rng([seed, number, which])
                made[name] = low + rng.random(low.shape) * (high - low)
            return made[name]

        return tensor


@dataclass
class _Judged:
    """A batch: the centre's scores, and how far completions were from their differences.

    `tops`: the first classes; `apart`, `moved`: (rows, tops, classes).
    """

    scores: Floats
    tops: NDArray[np.int64]
    apart: Floats
    moved: Floats

    @classmethod
    def of(cls, scores: Array, top_k: int) -> _Judged:
        tops = first_sets(scores, top_k)
        with np.errstate(all="ignore"):
            apart = _apart(scores, tops)
        return cls(scores, tops, apart, np.zeros(apart.shape))

    def add(self, scores: Array) -> None:
        with np.errstate(all="ignore"):
            self.moved += (_apart(scores, self.tops) - self.apart) ** 2

    def verdicts(self, completions: int, top_k: int) -> Verdicts:
        with np.errstate(all="ignore"):
            far: Flags = self.apart > LEAST * np.sqrt(self.moved / completions)
        inside = np.zeros(self.scores.shape, bool)
        np.put_along_axis(inside, self.tops[:, :1], True, axis=1)
        finite = np.isfinite(self.scores).all(axis=1) & np.isfinite(self.moved).all(axis=(1, 2))
        sure: Flags = np.all(far[:, 0] | inside, axis=1) & finite
        labels = self.tops[:, 0]
        if top_k == 1:
            return Verdicts(labels, sure)
        np.put_along_axis(inside, self.tops, True, axis=1)
        sets: Flags = np.all(far | inside[:, None], axis=(1, 2)) & finite
        return Verdicts(labels, sure, self.tops, sets)


def _apart(scores: Array, tops: NDArray[np.int64]) -> Floats:
    found: Floats = np.take_along_axis(scores, tops, 1)[:, :, None] - scores[:, None, :]
    return found


def _blocks(batches: Batches) -> Iterator[list[tuple[Places, Inputs]]]:
    """Neighbouring batches that share their completions."""
    block: list[tuple[Places, Inputs]] = []
    rows = numbers = 0
    for at, inputs in batches:
        block.append((at, inputs))
        rows += len(at)
        numbers += sum(value.size for value in inputs.values())
        if rows >= ROWS or numbers >= NUMBERS:
            yield block
            block, rows, numbers = [], 0, 0
    if block:
        yield block
