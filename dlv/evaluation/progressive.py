"""Progressive evaluation: labels from the high planes, surely those of the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from dlv.errors import Damaged, DlvError
from dlv.evaluation.answers import Answers, NoBounds, Settings, Told, first_sets
from dlv.evaluation.levels import Batches, Inputs, Levels, Rows, first_row
from dlv.evaluation.planes import Planes
from dlv.kinds import Array, Places
from dlv.network.bounds.adjoint import Adjoint
from dlv.network.bounds.ball import REFERENCES, STRICT, Norms, squares
from dlv.network.bounds.interval import Balls, certain
from dlv.network.graph import Network
from dlv.network.ops.op import NoRule, op_of
from dlv.network.program import Program
from dlv.network.suffix.fits import misfits
from dlv.network.suffix.radius import Read, SuffixBalls
from dlv.network.suffix.record import Suffix, suffix_from_json
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
        raise NoBounds(f"there is no tensor `{missing[0]}`")
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

    def __call__(self, batches: Batches) -> Iterator[tuple[Places, Told]]:
        for at, inputs in batches:
            yield at, self.told(inputs)

    def told(self, inputs: Inputs) -> Told:
        balls, adjoint = self._of(inputs)
        known, top_k = balls.balls(inputs), self._settings.top_k
        labels, sure = certain(balls, known)
        found = Told(labels.astype(np.int64), sure)
        if top_k > 1:
            sets = first_sets(known[self._program.scores].centre, top_k)
            found = replace(found, sets=sets, sure_sets=certain(balls, known, top_k)[1])
        return self._tightened(adjoint, inputs, found) if self._settings.tighten else found

    def _tightened(self, adjoint: Adjoint, inputs: Inputs, told: Told) -> Told:
        """The same, the rows that are open looked at more closely."""
        left = np.flatnonzero(~(told.sure if told.sure_sets is None else told.sure_sets))
        if not len(left):
            return told
        rest = {name: value[left] for name, value in inputs.items()}
        order, sure = adjoint.told(rest, self._settings.top_k)
        if told.sets is None or told.sure_sets is None:
            told.labels[left], told.sure[left] = order[:, 0], sure
        else:
            told.sets[left], told.sure_sets[left] = order, sure
        return told

    def _of(self, inputs: Inputs) -> tuple[Balls, Adjoint]:
        """The network in balls, with norms that hold for inputs of these shapes."""
        shapes = tuple(inputs[name].shape[1:] for name in self._program.given)
        if shapes not in self._balls:
            norms = self._norms(shapes)
            given = self._program, self._tensor, norms, self._reference
            read = self._read(shapes)
            balls = Balls(*given)
            if read is not None:
                balls = SuffixBalls(*given[:3], read, self._reference)
            if not self._trial:
                _check_sizes(balls)
            self._balls[shapes] = balls, Adjoint(*given)
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
            raise NoRule(step.node, f"nothing bounds it after {depth} planes")
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
            raise NoBounds(f"`{name}` holds {planes.dtype(name)}, which has no bounds")
    if REFERENCES[reference] is not STRICT:
        return
    for step in program.steps:
        norm = step.fold or step.node
        if op_of(norm).batch_statistics(norm):
            why = "strict bounds know no batch normalisation"
            raise NoBounds(f"`{norm.name}`: {why}")
    for name in planes.names:
        if planes.dtype(name) == "float64":
            raise NoBounds(f"`{name}` holds float64, which strict evaluations do not")


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
        BallJudge(program, planes.zeros, norms, asked, trial=True).told(inputs)
    except NoRule as error:
        raise NoBounds(str(error)) from None
