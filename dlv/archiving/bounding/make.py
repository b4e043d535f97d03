"""The bounds record of a snapshot made, or the norms of one made again to compare them."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from dlv.archiving.bounding.view import View
from dlv.dataclass import dataclass
from dlv.errors import NotFound, UsageError
from dlv.kinds import Array
from dlv.network.bounds.ball import Norms, short
from dlv.network.bounds.norms import level_norms, norms_of
from dlv.network.bounds.schedule import Schedule, Stored, Weights, blind, schedule
from dlv.network.graph import Network, Node
from dlv.network.inference import node_shapes
from dlv.network.ops.op import NoRule, op_of
from dlv.network.program import Program, Step, params_of
from dlv.network.program import program as program_of
from dlv.network.sizes import Shape
from dlv.network.suffix.metric import needed, suffix_of
from dlv.network.suffix.record import Suffix
from dlv.network.suffix.tuning import Tuning
from dlv.objects.manifest import Manifest
from dlv.pas.layouts.registry import bits_after
from dlv.pas.level import Level
from dlv.weights.bounds import LevelNorms, NodeNorms, Record, named

MOST_ROWS = 1 << 17  # norms of more rows would make a record as large as what it spares


@dataclass(frozen=True)
class Figures:
    """`shape`: of the node's input. `rows`: whether norms of rows are wanted too.

    `raised`: against rounding, as a record stores them; else as they come out.
    """

    shape: Shape | None
    rows: bool
    raised: bool = True

    def cut(self, value: float, digits: int) -> float:
        """To few digits, upwards: a record is read before anything else."""
        return short(value, digits) if self.raised else value


def figures(
    node: Node, weight: Array, centres: Iterable[tuple[int, Array]], wanted: Figures
) -> NodeNorms:
    """Of a weight, and of what each (planes, centre) leaves open of it."""
    whole = norms_of(node, weight, wanted.shape, raised=wanted.raised)
    if not whole.finite:
        infinite = (math.inf, math.inf, math.inf, math.inf)
        return NodeNorms(node.name, *infinite, False)
    levels = []
    for planes, centre in centres:
        found = level_norms(node, weight, centre, wanted.shape, raised=wanted.raised)
        dn, dfro = wanted.cut(found.dn, 4), wanted.cut(found.dfro, 4)
        dopn = None
        if math.isfinite(found.dopn) and not op_of(node).dense:
            dopn = wanted.cut(found.dopn, 4)
        levels.append(LevelNorms(planes, dn, dfro, _rows(found.drows, wanted), dopn))
    rows = _rows(whole.rows, wanted)
    opn, opn_any = wanted.cut(whole.opn, 5), wanted.cut(whole.opn_any, 5)
    return NodeNorms(
        *(node.name, opn, opn_any, wanted.cut(whole.fro, 8), wanted.cut(whole.absmax, 5)),
        finite=True,
        rows=rows,
        levels=tuple(level for level in levels if math.isfinite(level.dn)),
    )


def _rows(norms: Array | None, wanted: Figures) -> tuple[float, ...] | None:
    """To few digits, upwards: there are many, and they are looked at one by one."""
    if norms is None or not wanted.rows or len(norms) > MOST_ROWS:
        return None
    values: list[float] = np.asarray(norms, np.float64).tolist()
    return tuple(map(short, values)) if wanted.raised else tuple(values)


KEPT = 256 << 20  # bytes of centres that are held while a schedule is looked for


@dataclass(frozen=True)
class Model:
    """A network with the matrices of one snapshot."""

    program: Program
    hashes: Mapping[str, str]  # of its tensors and constants
    tensors: Mapping[str, tuple[str, tuple[int, ...]]]

    @classmethod
    def of(cls, manifest: Manifest, network: Network, hashes: Mapping[str, str]) -> Model:
        tensors = {tensor.name: (tensor.dtype, tensor.shape) for tensor in manifest.tensors}
        made = program_of(network, tensors)
        if missing := [name for name in made.tensors if name not in hashes]:
            raise NotFound(
                f"the checkpoint has no tensor `{missing[0]}`", why="its network needs that"
            )
        return cls(made, hashes, tensors)

    def named(self, name: str) -> str:
        return self.program.network.aliases.get(name, name)

    def hash(self, name: str) -> str:
        return self.hashes[self.named(name)]


class Centres(Weights):
    """The weights of a model at any depth, as a reader sees them; the last few are kept."""

    def __init__(self, model: Model, view: View) -> None:
        self._model = model
        self._view = view
        self._held: OrderedDict[tuple[str, int | None], Array] = OrderedDict()
        self._bytes = 0
        self.record: Record | None = None

    def tensor(self, name: str, planes: int | None) -> Array:
        key = (self._model.named(name), planes)
        if key in self._held:
            self._held.move_to_end(key)
            return self._held[key]
        found = self._found(*key)
        self._held[key] = found
        self._bytes += found.nbytes
        while self._bytes > KEPT and len(self._held) > 1:
            self._bytes -= self._held.popitem(last=False)[1].nbytes
        return found

    def _found(self, name: str, planes: int | None) -> Array:
        matrix = self._model.hash(name)
        if planes is None:
            return self._view.array(matrix)
        found = self._view.level(matrix, planes)
        assert isinstance(found, Level)  # only usable depths are asked for
        return found.centre

    def norms(self, node: str, planes: int | None) -> Norms | None:
        assert self.record is not None
        return self.record.norms(node, planes)


@dataclass(frozen=True)
class Made:
    record: Record
    schedule: Schedule
    stored: Mapping[str, Stored]
    tuning: Tuning | None  # of the tighter bound, where there is one


def make_record(
    model: Model,
    view: View,
    rows: Mapping[str, Array],
    *,
    strict: bool = False,
    tuning: Tuning | None = None,
) -> Made:
    """The record for matrices as the view has them; `rows` of the inputs, for the schedule.

    `strict`: rows that do not fit are an error; else there is only no schedule by them.
    `tuning`: found before, for planes of which the first was the same.
    """
    shapes = {name: tuple(rows[name].shape[1:]) for name in model.program.input_names}
    depths = {name: usable(view, model.hash(name)) for name in model.program.matrices}
    centres = Centres(model, view)
    nodes = list(node_norms_of(model, centres, depths, shapes))
    stored = {
        name: _stored(view, model.hash(name), depths.get(name, ()))
        for name in model.program.tensors
    }
    hashes = {name: model.hash(name) for name in model.program.tensors}
    matrices, weights = named(hashes, view.encoding)
    record = Record(
        network=model.program.network.id,
        input=tuple(shapes[name] for name in model.program.input_names),
        matrices=matrices,
        nodes=tuple(nodes),
        schedule=({name: each.planes for name, each in stored.items()},),
        helps={"f64": False, "strict": False},
        weights=weights,
    )
    centres.record = record
    centres.suffix, tuning = _suffix(model, centres, depths, rows, tuning)
    try:
        found = schedule(model.program, stored, centres, rows)
    except UsageError as error:
        if strict:
            raise
        found = blind(stored, model.program.matrices, error.message)
    record = replace(record, schedule=tuple(map(dict, found.levels)), helps=dict(found.helps))
    if centres.suffix is not None and any(found.helps.values()):
        kept = needed(model.program, centres.suffix, found.levels[: found.sought])
        record = replace(record, suffix=kept.to_json())
    return Made(record, found, stored, tuning)


def _suffix(
    model: Model,
    centres: Centres,
    depths: Mapping[str, Sequence[int]],
    rows: Mapping[str, Array],
    tuning: Tuning | None,
) -> tuple[Suffix | None, Tuning | None]:
    """The tables of the tighter bound; None for networks that it has no rules for."""
    try:
        found, tuning = suffix_of(model.program, centres, depths, rows, tuning=tuning)
    except (NoRule, UsageError):
        return None, None
    return found if found.nodes else None, tuning  # of a single layer it tells nothing


def usable(view: View, matrix: str) -> tuple[int, ...]:
    """The depths below all planes that bound every number and leave some open."""
    encoding = view.encoding(matrix)
    found: list[int] = []
    if encoding is None or not encoding.dtype.startswith(("float", "bfloat")):
        return ()
    for planes in range(1, encoding.planes):
        level = view.level(matrix, planes)
        if isinstance(level, Level) and not level.exact:
            found.append(planes)
    return tuple(found)


def node_norms_of(
    model: Model,
    centres: Centres,
    depths: Mapping[str, Sequence[int]],
    shapes: Mapping[str, Shape],
    *,
    raised: bool = True,
) -> Iterator[NodeNorms]:
    """Of every linear node at these depths; not `raised`: without what allows for rounding."""
    seen = _seen(model, shapes)
    for step in model.program.linear:
        name = model.named(step.node.params["weight"])
        last = (step.result, 0) == model.program.scores or op_of(step.node).lookup
        whole = params_of(step, partial(centres.tensor, planes=None))["weight"]
        shape = seen.get(step.inputs[0]) if step.inputs else None
        yield figures(
            step.node,
            whole,
            ((planes, _centre(step, centres, name, planes)) for planes in depths[name]),
            Figures(shape, rows=last, raised=raised),
        )


def _centre(step: Step, centres: Centres, name: str, planes: int) -> Array:
    def tensor(other: str) -> Array:
        own = other == step.node.params["weight"]
        return centres.tensor(name, planes) if own else centres.tensor(other, None)

    return params_of(step, tensor)["weight"]


def _seen(model: Model, shapes: Mapping[str, Shape]) -> dict[tuple[str, int], Shape]:
    """Shape of every value for inputs of these shapes."""
    network = model.program.network
    inputs = tuple(
        replace(item, shape=(*item.shape[:1], *shapes[item.name])) if item.name in shapes else item
        for item in network.inputs
    )
    found = node_shapes(replace(network, inputs=inputs), model.tensors)
    return {
        (name, port): shape
        for name, ports in found.items()
        for port, shape in enumerate(ports)
        if shape
    }


def _stored(view: View, matrix: str, depths: Sequence[int]) -> Stored:
    encoding = view.encoding(matrix)
    assert encoding is not None
    sizes = {depth: view.bytes(matrix, depth) for depth in depths}
    bits = {depth: bits_after(encoding.layout, depth) for depth in depths}
    return Stored(encoding.planes, {**sizes, encoding.planes: view.bytes(matrix)}, bits)
