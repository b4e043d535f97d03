"""A program from its scores back to its first weights, as moves of one quadratic form.

The form M tells of errors d in the tensors alive at a cut: the part of the network behind it
changes no difference of two scores by more than s * sqrt(d^H M d). Each step of the program,
backwards, puts what it was given in the place of its result. Between two changes of the grid,
a stage, M has one block per frequency of a torus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.network.graph import Node, Port
from dlv.network.ops.op import NoRule, op_of
from dlv.network.program import Program, Step
from dlv.network.sizes import axis_of
from dlv.network.suffix.torus import Sides, Torus, Window

Index = NDArray[np.intp]


@dataclass(frozen=True)
class Masked:
    """u = D z, any D between 0 and 1: z takes the place of u. `key` names its parameters."""

    key: str
    start: int
    width: int


@dataclass(frozen=True)
class Through:
    """z = W x: x takes the place of z. `window` is None for a full layer, `scale` for BATCH."""

    step: Step
    stage: int
    start: int
    width: int
    window: Window | None


@dataclass(frozen=True)
class Told:
    """Here the block of a step's result is what its own errors are measured with."""

    step: Step
    stage: int
    start: int
    width: int
    window: Window | None


@dataclass(frozen=True)
class Copied:
    """A sum: each of its terms takes its place; rows `index` of M, or none of them."""

    index: tuple[int, ...]


@dataclass(frozen=True)
class Merged:
    """One tensor that is alive twice: its rows are added up."""

    index: tuple[int, ...]
    width: int


@dataclass(frozen=True)
class Relaxed:
    """A diagonal, one entry per channel, takes the place of M; the next stage begins."""

    key: str
    before: tuple[int, ...]  # channel of each row of M
    after: tuple[int, ...]
    factor: float
    stage: int


@dataclass(frozen=True)
class Spread:
    """A mean over `count` positions: what held of it holds of each position, shared out."""

    count: int
    stage: int


Move = Masked | Through | Told | Copied | Merged | Relaxed | Spread


@dataclass(frozen=True)
class Plan:
    """`sizes`: how many channels the parameters of each key have."""

    program: Program
    last: Step
    moves: tuple[Move, ...]
    tori: tuple[Torus, ...]
    sizes: Mapping[str, int]
    shapes: Mapping[Port, tuple[int, ...]]


@dataclass
class _Slot:
    """One live tensor. `free`: the form holds also of what a border would cut off."""

    width: int
    free: bool
    aliases: int = 1


def shapes_of(program: Program, given: Mapping[str, Sequence[int]]) -> dict[Port, tuple[int, ...]]:
    """The shape of every value, of a batch of one; `given`: of the inputs, without the batch."""
    shapes: dict[Port, tuple[int, ...]] = {
        (name, 0): (1, *given[name]) for name in program.input_names if name in given
    }
    for step in program.steps:
        made = op_of(step.node).shape(step.node, [shapes.get(port) for port in step.inputs])
        for port, shape in enumerate(made):
            if shape is None or not all(isinstance(length, int) for length in shape):
                raise NoRule(step.node, "the shape of its result is unknown")
            shapes[step.result, port] = tuple(int(length) for length in shape if length is not None)
    return shapes


def plan(program: Program, given: Mapping[str, Sequence[int]]) -> Plan:
    """The moves for inputs of that size; NoRule where a step has none."""
    last = program.steps[-1] if program.steps else None
    last = next((s for s in program.steps if (s.result, 0) == program.scores), last)
    if last is None or last.node.op != "FULL":
        node = Node("scores", "OP") if last is None else last.node
        raise NoRule(node, "the scores are not made by a full layer")
    shapes = shapes_of(program, given)
    planner = _Planner(program, shapes)
    planner.begin(last)
    for step in reversed(program.steps[: program.steps.index(last)]):
        planner.step(step)
    tori = tuple(Torus(sides) for sides in planner.sides)
    return Plan(program, last, tuple(planner.moves), tori, planner.sizes, shapes)


def channel_axis(program: Program, port: Port) -> int | None:
    """Which axis of a feature map holds its channels, as far as the steps before tell."""
    steps = {step.result: step for step in program.steps}
    while port[0] in steps:
        node = steps[port[0]].node
        if node.op in ("CONV", "DECONV") or node.variant in ("MAX", "AVG"):
            return 1 if node.attrs["channels"] == "first" else -1
        port = steps[port[0]].inputs[0]
    return None


def window_of(node: Node) -> Window:
    attrs = node.attrs
    return Window(attrs["kernel"], attrs["stride"], attrs["pad"], attrs["dilation"])


@dataclass
class _Planner:
    program: Program
    shapes: Mapping[Port, tuple[int, ...]]
    moves: list[Move] = field(default_factory=list)
    sides: list[Sides] = field(default_factory=lambda: [()])
    sizes: dict[str, int] = field(default_factory=dict)
    live: dict[Port, _Slot] = field(default_factory=dict)

    def begin(self, last: Step) -> None:
        shape = self.shapes[last.inputs[0]]
        if len(shape) != 2:
            raise NoRule(last.node, "it is given more than one vector of each row")
        self._replace({}, last.inputs[0], _Slot(shape[1], True))

    def step(self, step: Step) -> None:
        port = (step.result, 0)
        if port not in self.live:
            if any(name == step.result for name, _ in self.live):
                raise NoRule(step.node, "more than its first output is used")
            return
        node, op = step.node, step.node.op
        same = op == "DROPOUT" or (op == "RESHAPE" and node.attrs["kind"] == "contiguous")
        if op in ("CONV", "FULL") or (op == "NORM" and "running_var" in node.params):
            self._linear(step, port)
        elif (
            op == "RELU" and not node.params and 0 <= node.attrs["slope"] <= 1
        ) or node.variant == "RELU6":
            self._mask(step.result, port)
            self.live[port].free = True
            self._sum(port, step.inputs)
        elif op == "ADD":
            if len({self.shapes[each] for each in (port, *step.inputs)}) > 1:
                raise NoRule(node, "its terms differ in shape")
            self._tell(step, port, None)
            self._sum(port, step.inputs)
        elif same:
            self._sum(port, step.inputs)
        elif op == "POOL":
            self._pool(step, port)
        elif op == "RESHAPE" and len(self.shapes[port]) == 2:
            self._flatten(step, port)
        else:
            raise NoRule(node)

    def _linear(self, step: Step, port: Port) -> None:
        node, source = step.node, step.inputs[0]
        slot = self.live[port]
        if node.op == "NORM":
            axis = axis_of(node.attrs["axis"], len(self.shapes[port]), "axis")
            if self.shapes[port][axis] != slot.width or axis == 0:
                raise NoRule(node, "it is not over channels")
        if slot.aliases > 1:
            raise NoRule(node, "a finer and a coarser grid meet")
        window = None
        if node.op == "CONV":
            window = window_of(node)
            if not (slot.free or window.alone):
                self._mask(step.result, port)
                slot.free = True
            axis = 1 if node.attrs["channels"] == "first" else -1
            given = np.delete(self.shapes[source], [0, axis]).tolist()
            made = np.delete(self.shapes[port], [0, axis]).tolist()
            least = window.least(given, made)
            known = self.sides[-1] or least
            self.sides[-1] = tuple(map(max, known, least))
            width = self.shapes[source][axis] * window.aliases
        elif node.op == "FULL" and len(self.shapes[source]) != 2:
            raise NoRule(node, "it is given more than one vector of each row")
        elif node.op == "FULL" and node.attrs["layout"] not in ("out_in", "in_out"):
            raise NoRule(node, "its weight is stored head by head")
        else:
            width = self.shapes[source][-1] if node.op == "FULL" else slot.width
        self._tell(step, port, window)
        start = self._start(port)
        made_slot = _Slot(width, slot.free and (window is None or window.alone))
        if window is not None:
            made_slot.aliases = window.aliases
        if source[0] in self.program.input_names:
            self._sum(port, ())
            return
        self.moves.append(Through(step, len(self.sides) - 1, start, slot.width, window))
        self._rename(port, source, made_slot)
        if made_slot.aliases > 1 and all(s.aliases > 1 for s in self.live.values()):
            self._finer(step, source)

    def _finer(self, step: Step, port: Port) -> None:
        if len(self.live) > 1:
            raise NoRule(step.node, "two tensors pass to a finer grid")
        depth = self.live[port].width // self.live[port].aliases
        index = tuple(np.tile(np.arange(depth), self.live[port].aliases).tolist())
        self._relax(step, port, index, tuple(range(depth)), 1.0)

    def _pool(self, step: Step, port: Port) -> None:
        node, source = step.node, step.inputs[0]
        width = self.live[port].width
        if len(self.live) > 1:
            raise NoRule(node, "another tensor passes next to it")
        if node.variant == "MEAN":
            axis = channel_axis(self.program, source)
            rank = len(self.shapes[source])
            over = node.attrs["axis"] or ()
            gone = {axis_of(each, rank, "axis") for each in over}
            if axis is None or gone != set(range(1, rank)) - {axis % rank}:
                raise NoRule(node, "it is not over the positions of a feature map")
            count = prod(self.shapes[source][each] for each in gone)
            self._tell(step, port, None)
            self.sides.append(())
            self.moves.append(Spread(count, len(self.sides) - 1))
            self._rename(port, source, _Slot(width, True))
            return
        if node.attrs["size"] is not None:
            raise NoRule(node, "its windows differ in size")
        window = window_of(node)
        factor = float(window.overlap())
        if node.variant == "AVG":
            if any(map(any, window.pad)) or node.attrs["ceil"]:
                raise NoRule(node, "its windows pass the border")
            self._tell(step, port, None)
            factor /= prod(window.kernel)
        index = tuple(range(width))
        self._relax(step, port, index, index, factor)
        self._rename(port, source, _Slot(width, True))

    def _flatten(self, step: Step, port: Port) -> None:
        source = step.inputs[0]
        shape, wide = self.shapes[source], self.live[port].width
        axis = channel_axis(self.program, source)
        if len(shape) == 2 or (axis is not None and shape[axis] == wide):
            self._sum(port, step.inputs)
            return
        if axis is None or len(self.live) > 1:
            raise NoRule(step.node)
        places = np.moveaxis(np.zeros(shape[1:], int), axis if axis < 0 else 0, -1)
        places[...] = np.arange(shape[axis])
        channels = np.moveaxis(places, -1, axis if axis < 0 else 0).ravel()
        depth = shape[axis]
        self._relax(step, port, tuple(channels.tolist()), tuple(range(depth)), 1.0)
        self._rename(port, source, _Slot(depth, True))

    def _relax(
        self, step: Step, port: Port, before: tuple[int, ...], after: tuple[int, ...], factor: float
    ) -> None:
        self.sides.append(())
        if self.moves and isinstance(self.moves[-1], Relaxed) and before == after:
            # A diagonal already: it stays what it is.
            held = self.moves.pop()
            assert isinstance(held, Relaxed)
            factor *= held.factor
            self.moves.append(replace(held, factor=factor, stage=len(self.sides) - 1))
            self.live = {port: _Slot(len(after), True)}
            return
        key = f"{step.result}/in"
        self.moves.append(Relaxed(key, before, after, factor, len(self.sides) - 1))
        self.sizes[key] = len(after)
        self.live = {port: _Slot(len(after), True)}

    def _mask(self, key: str, port: Port) -> None:
        slot = self.live[port]
        if slot.aliases > 1:
            raise NoRule(Node(key, "RELU"), "a finer and a coarser grid meet")
        self.moves.append(Masked(key, self._start(port), slot.width))
        self.sizes[key] = slot.width

    def _tell(self, step: Step, port: Port, window: Window | None) -> None:
        at = self._start(port), self.live[port].width
        self.moves.append(Told(step, len(self.sides) - 1, *at, window))

    def _start(self, port: Port) -> int:
        start = 0
        for each, slot in self.live.items():
            if each == port:
                break
            start += slot.width
        return start

    def _rename(self, port: Port, source: Port, slot: _Slot) -> None:
        """`slot` stands where `port` did; what is alive twice becomes one."""
        live = {p: (slot if p == port else s) for p, s in self.live.items()}
        if source in self.live and source != port:
            self._merge(live, port, source)
        else:
            self.live = {(source if p == port else p): s for p, s in live.items()}

    def _merge(self, live: dict[Port, _Slot], port: Port, source: Port) -> None:
        if (live[port].width, live[port].aliases) != (live[source].width, live[source].aliases):
            raise NoRule(Node(source[0], "OP"), "a finer and a coarser grid meet")
        kept = {p: s for p, s in live.items() if p != port}
        kept[source].free = live[source].free and live[port].free
        starts = dict(zip(kept, np.cumsum([0, *(s.width for s in kept.values())]), strict=False))
        index: list[int] = []
        for p, s in live.items():
            start = int(starts[source if p == port else p])
            index += range(start, start + s.width)
        self.moves.append(Merged(tuple(index), sum(s.width for s in kept.values())))
        self.live = kept

    def _sum(self, port: Port, inputs: Sequence[Port]) -> None:
        """Each of the inputs, but for those without errors, takes the place of `port`."""
        slot = self.live[port]
        wanted = [
            p for p in inputs if p[0] not in self.program.input_names + self.program.constants
        ]
        if len(wanted) == 1:
            self._rename(port, wanted[0], slot)
            return
        index: list[int] = []
        live: dict[Port, _Slot] = {}
        for each, held in self.live.items():
            rows = range(self._start(each), self._start(each) + held.width)
            if each != port:
                live[each] = held
                index += rows
                continue
            for place in range(len(wanted)):
                live["\0", place] = _Slot(slot.width, slot.free, slot.aliases)
                index += rows
        self.moves.append(Copied(tuple(index)))
        self.live = live
        for place, source in enumerate(wanted):
            self._rename(("\0", place), source, self.live["\0", place])

    def _replace(self, live: dict[Port, _Slot], port: Port, slot: _Slot) -> None:
        self.live = {**live, port: slot}
