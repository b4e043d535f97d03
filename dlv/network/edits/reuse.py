"""The weights of a derived network: what is copied, what overlaps, what begins anew, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from dlv.dataclass import dataclass
from dlv.errors import UsageError
from dlv.network.edits.axes import Run, known_axes, merged, overlap
from dlv.network.graph import Network, Node
from dlv.network.inference import (
    Ports,
    Tensors,
    attribute_faults,
    enough,
    input_shapes,
    node_shapes,
)
from dlv.network.ops.axes import Axes, Axis, Marks, Part, axis_length
from dlv.network.ops.op import op_of
from dlv.network.sizes import Shape, ShapeError, text

Block = tuple[tuple[Run, ...], ...]  # the runs of each axis


def blocks_kept(old: Axes, new: Axes) -> list[Block] | int:
    """Blocks that both have, or the place of the first axis that has nothing in common."""
    grouped = [
        place
        for place, axes in enumerate(zip(old, new, strict=True))
        if any(axis and axis[0].groups > 1 for axis in axes)
    ]
    runs: list[tuple[Run, ...]] = []
    for place, (before, after) in enumerate(zip(old, new, strict=True)):
        found = () if place in grouped else overlap(before, after)
        if not found and place not in grouped:
            return place
        runs.append(found or ())
    if not grouped:
        return [tuple(runs)]
    place = grouped[0]
    # The other axis of channels stands right beside it.
    beside = place - 1 if place and old[place - 1][0].key[:2] in ("o.", "i.") else place + 1
    parts = _by_groups(runs[beside], (old[beside], new[beside]), (old[place], new[place]))
    made = []
    for outer, inner in parts:
        block = list(runs)
        block[beside], block[place] = outer, inner
        made.append(tuple(block))
    return made or place


def _by_groups(
    runs: Sequence[Run], shared: tuple[Axis, Axis], grouped: tuple[Axis, Axis]
) -> list[tuple[tuple[Run, ...], tuple[Run, ...]]]:
    """Runs of the axis that the groups share in equal stretches, with those of the other one.

    What an entry of the other one is goes by the axis of which it is a stretch for each group.
    """
    wholes = [axis[0].whole or axis for axis in grouped]
    counts = [axis[0].groups for axis in grouped]
    totals = [axis_length(axis) for axis in (*shared, *wholes)]
    inner = overlap(*wholes)
    sizes = [total for total in totals if isinstance(total, int) and total]
    if inner is None or len(sizes) < len(totals):
        return []
    outer_old, outer_new, inner_old, inner_new = (
        total // count for total, count in zip(sizes, counts * 2, strict=True)
    )
    found: dict[tuple[Run, ...], list[Run]] = {}
    for after in range(counts[1]):
        for before in range(counts[0]):
            mine = _within(runs, before * outer_old, outer_old, after * outer_new, outer_new)
            if not mine:
                continue
            theirs = _within(inner, before * inner_old, inner_old, after * inner_new, inner_new)
            local = tuple(
                Run(run.new - after * inner_new, run.old - before * inner_old, run.size)
                for run in theirs
            )
            if local:
                found.setdefault(local, []).extend(mine)
    return [(tuple(merged(mine)), local) for local, mine in found.items()]


def _within(runs: Sequence[Run], old: int, had: int, new: int, has: int) -> list[Run]:
    """The parts of runs that stay within a stretch before and one after."""
    found = []
    for run in runs:
        skip = max(0, new - run.new, old - run.old)
        end = min(run.size, new + has - run.new, old + had - run.old)
        if skip < end:
            found.append(Run(run.new + skip, run.old + skip, end - skip))
    return found


COPY, OVERLAP, INIT, DROPPED = "copy", "overlap", "init", "dropped"


@dataclass(frozen=True)
class Reuse:
    """What becomes of one tensor. `runs` has a list for each axis, of an overlap alone; where
    several blocks of a tensor are carried over, `further` has those of the others.

    `fill` is what stands where nothing is carried over: `uniform` within +-1/sqrt(fan_in)
    (Kaiming with a = sqrt(5)), `one` or `zero`. `share`: of the new elements, how many are old.
    """

    name: str
    action: str
    dtype: str
    old_shape: tuple[int, ...] | None
    shape: tuple[int, ...] | None  # None: dropped
    fill: str = "zero"
    fan_in: int = 0
    runs: tuple[tuple[Run, ...], ...] = ()
    reason: str = ""
    tied: str | None = None  # the tensor whose elements these are
    further: tuple[Block, ...] = ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.runs, *self.further) if self.action == OVERLAP else ()

    @property
    def share(self) -> float:
        if self.action == COPY:
            return 1.0
        size = prod(self.shape or ())
        if self.action != OVERLAP or not size:
            return 0.0
        held = (prod(sum(run.size for run in runs) for runs in block) for block in self.blocks)
        return sum(held) / size


@dataclass(frozen=True)
class Plan:
    """Every tensor of the derived network, in the order of the source, and those left behind."""

    tensors: tuple[Reuse, ...]
    dropped: tuple[Reuse, ...]

    @property
    def share(self) -> float:
        """Of all elements, how many are carried over; a tied tensor counts once."""
        own = [item for item in self.tensors if item.tied is None]
        sizes = [prod(item.shape or ()) for item in own]
        carried = sum(item.share * size for item, size in zip(own, sizes, strict=True))
        return carried / sum(sizes) if sum(sizes) else 0.0

    def count(self, action: str) -> int:
        return sum(item.action == action for item in (*self.tensors, *self.dropped))


class Side:
    """A network, and for each tensor the slots that it fills.

    `within`: the network that it was made of. An input that is a node there is what a slice cut
    off: it has the features of that node.
    """

    def __init__(self, network: Network, tensors: Tensors, within: Side | None = None) -> None:
        self.network = network
        self.shapes: dict[str, Ports] = node_shapes(network, tensors)
        self.cut = {} if within is None else dict(within.outside(network))
        known = known_axes(network, self.shapes, self.cut)
        self.axes, self.marks = known.axes, known.marks
        self.users: dict[str, list[tuple[Node, str]]] = {}
        kept = _kept_names(network, tensors)
        for node in network.nodes:
            for slot, name in node.params.items():
                self.users.setdefault(kept.get(name, name), []).append((node, slot))
        self._known: dict[str, tuple[dict[str, Axes], Mapping[str, Shape | None]]] = {}

    def outside(self, part: Network) -> Iterator[tuple[str, tuple[Axes, Marks]]]:
        """Of a network made of this one: inputs that are no inputs here, and what they are."""
        read = {port for node in self.network.nodes for port in node.inputs}
        further = {name for name, port in (*read, *self.network.outputs) if port}
        for item in part.inputs:
            if item.name in self.cut:
                yield item.name, self.cut[item.name]
            elif item.name in self.network and item.name not in further:
                axes = self.axes.get(item.name) or (None,)
                if axes[0] is not None:
                    yield item.name, (axes[0], self.marks[item.name])

    def _parameters(self, node: Node) -> tuple[dict[str, Axes], Mapping[str, Shape | None]]:
        if node.name not in self._known:
            ports = [self.axes.get(name, ()) for name, _ in node.inputs]
            inputs = [
                held[port] if port < len(held) else None
                for held, (_, port) in zip(ports, node.inputs, strict=True)
            ]
            axes = op_of(node).parameter_axes(node, inputs, self.axes.get(node.name, ()))
            shapes: Mapping[str, Shape | None] = {}
            if not attribute_faults(node) and enough(node):
                try:
                    given = input_shapes(node, self.shapes)
                    shapes = op_of(node).parameter_shapes(node, given)
                except ShapeError:
                    shapes = {}
            self._known[node.name] = axes, shapes
        return self._known[node.name]

    def shape(self, name: str) -> Shape | None:
        for node, slot in self.users.get(name, ()):
            shape = self._parameters(node)[1].get(slot)
            if shape is not None:
                return shape
        return None

    def tensor_axes(self, node: Node, slot: str, shape: Sequence[int]) -> Axes:
        """What its axes are; by their places alone where nothing more is known."""
        axes = self._parameters(node)[0].get(slot)
        if axes is not None and len(axes) == len(shape):
            lengths = [prod(p.length for p in a if isinstance(p.length, int)) for a in axes]
            if lengths == list(shape):
                return axes
        return tuple((Part(f"d{place}", size),) for place, size in enumerate(shape))


def plan(
    source: Network,
    derived: Network,
    tensors: Tensors,
    *,
    tied: Mapping[str, str] | None = None,
    dtypes: Mapping[str, str] | None = None,
    before: Side | None = None,
    within: Side | None = None,
) -> Plan:
    """What each tensor of the derived network is made of.

    `tensors` are those stored with the source (without an optimizer's), `tied` names among them
    whose elements are another's; `dtypes` what the derived ones are to be, where it is not the
    source's. `before`: what is known of the source, where several networks are made from it;
    `within`: of what the last step made this one from, if that was not the source itself.
    UsageError if the shape of a new tensor is not known.
    """
    before = before or Side(source, tensors)
    after = Side(derived, tensors, within or before)
    same = {**_kept_names(source, tensors), **_kept_names(derived, tensors), **(tied or {})}
    common = _common_dtype(tensors, before)
    found: dict[str, Reuse] = {}
    for name in _order(before, after, tensors, same):
        found[name] = _one(before, after, tensors, name, (dtypes or {}).get(name), common)
    for name, kept in same.items():
        if kept in found and name in tensors and name not in found and name != kept:
            item = found[kept]
            found[name] = Reuse(
                *(name, item.action, item.dtype, item.old_shape, item.shape, item.fill),
                *(item.fan_in, item.runs, item.reason, kept, item.further),
            )
    dropped = [
        Reuse(name, DROPPED, dtype, shape, None, reason="no layer uses it")
        for name, (dtype, shape) in tensors.items()
        if name not in found
    ]
    position = {name: place for place, name in enumerate(_placed(list(found), tensors))}
    ordered = sorted(found.values(), key=lambda item: position[item.name])
    return Plan(tuple(ordered), tuple(dropped))


def _kept_names(network: Network, tensors: Tensors) -> dict[str, str]:
    """Tied names -> the one under which the elements are stored, if only one of them is."""
    found: dict[str, str] = {}
    for kept in dict.fromkeys(network.aliases.values()):
        names = [kept, *(name for name, other in network.aliases.items() if other == kept)]
        stored = next((name for name in names if name in tensors), kept)
        found.update({name: stored for name in names if name != stored})
    return found


def _common_dtype(tensors: Tensors, side: Side) -> str:
    """What a new tensor holds: what most of the weights hold."""
    counts = Counter(
        dtype
        for name, (dtype, _) in tensors.items()
        if name in side.users and ("float" in dtype or "complex" in dtype)
    )
    return counts.most_common(1)[0][0] if counts else "float32"


def _order(before: Side, after: Side, tensors: Tensors, same: Mapping[str, str]) -> list[str]:
    """The tensors of the derived network, and those that no node of the source used either."""
    names = list(after.users)
    stems = {_stem(name) for name in before.users} - {_stem(name) for name in after.users}
    for name in tensors:
        # A counter beside the statistics of a layer goes with them.
        if same.get(name, name) not in before.users and _stem(name) not in stems:
            names.append(name)
    return list(
        dict.fromkeys(
            name
            for name in names
            if same.get(name, name) == name or after.shape(name) != after.shape(same[name])
        )
    )


def _stem(name: str) -> str:
    return name.rpartition(".")[0]


def _placed(names: Sequence[str], tensors: Tensors) -> list[str]:
    """The source's order, each new name behind the one that it follows in the network."""
    held = set(names)
    behind: dict[str | None, list[str]] = {}
    last: str | None = None
    for name in names:
        if name in tensors:
            last = name
        else:
            behind.setdefault(last, []).append(name)
    found = list(behind.get(None, ()))
    for name in tensors:
        if name in held:
            found += [name, *behind.get(name, ())]
    return found


def _one(
    before: Side, after: Side, tensors: Tensors, name: str, dtype: str | None, common: str
) -> Reuse:
    held = tensors.get(name)
    old_shape = None if held is None else held[1]
    wanted = after.shape(name)
    shape = _known(wanted, old_shape)
    if shape is None:
        node, slot = after.users[name][0]
        raise UsageError(
            f"the shape of the new tensor `{name}` is unknown",
            why=f"it is the {slot} of `{node.name}`, which follows an unsupported operation",
        )
    dtype = dtype or (common if held is None else held[0])
    fill, fan_in = _filling(after, name, shape)
    if held is None or old_shape is None:
        return Reuse(name, INIT, dtype, None, shape, fill, fan_in)
    made = (name, INIT, dtype, old_shape, shape, fill, fan_in)
    if held[0] != dtype:
        return Reuse(*made, reason=f"the dtype was {held[0]}")
    if name not in after.users or name not in before.users:
        if old_shape == shape:
            return Reuse(name, COPY, dtype, old_shape, shape, fill, fan_in)
        return Reuse(*made, reason=f"the shape was {text(old_shape)}")
    (old_node, old_slot), (node, slot) = _same_use(before.users[name], after.users[name])
    if (old_node.op, old_slot) != (node.op, slot):
        return Reuse(*made, reason=f"it was the {old_slot} of {_article(old_node.op)}")
    if len(old_shape) != len(shape):
        return Reuse(*made, reason=f"the shape was {text(old_shape)}")
    old_axes = before.tensor_axes(old_node, old_slot, old_shape)
    new_axes = after.tensor_axes(node, slot, shape)
    found = blocks_kept(old_axes, new_axes)
    if isinstance(found, int):
        return Reuse(*made, reason=_why(old_axes[found], new_axes[found]))
    whole = len(found) == 1 and all(
        runs == (Run(0, 0, size),) and size == old
        for runs, size, old in zip(found[0], shape, old_shape, strict=True)
    )
    if whole:
        return Reuse(name, COPY, dtype, old_shape, shape, fill, fan_in)
    reason = "" if old_shape != shape else "its entries moved"
    return Reuse(
        *(name, OVERLAP, dtype, old_shape, shape, fill, fan_in, found[0], reason),
        further=tuple(found[1:]),
    )


_Use = tuple[Node, str]


def _same_use(old: Sequence[_Use], new: Sequence[_Use]) -> tuple[_Use, _Use]:
    """Of a tensor with several users one that is there before and after."""
    pairs = [(before, after) for before in old for after in new]
    alike = [(a, b) for a, b in pairs if (a[0].op, a[1]) == (b[0].op, b[1])]
    same = [(a, b) for a, b in alike if a[0].name == b[0].name]
    return (same or alike or pairs)[0]


def _known(wanted: Shape | None, old: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The wanted shape; what is open in it is as it was."""
    if wanted is None:
        return old
    if old is not None and len(old) == len(wanted):
        wanted = tuple(b if not isinstance(a, int) else a for a, b in zip(wanted, old, strict=True))
    sizes = tuple(dim for dim in wanted if isinstance(dim, int))
    return sizes if len(sizes) == len(wanted) else None


def _article(op: str) -> str:
    return f"{'an' if op[0] in 'AEO' else 'a'} {op}"


def _why(old: Sequence[Part], new: Sequence[Part]) -> str:
    for a, b in zip(old, new, strict=False):
        if a.key == b.key and a.length != b.length and a.fixed:
            what = "the map's size" if a.key.removeprefix("i.")[:1] == "s" else "a size"
            return f"{what} was {text([p.length for p in old if p.key[-2:-1] == a.key[-2:-1]])}"
    return "its input has another layout"


def _filling(side: Side, name: str, shape: Sequence[int]) -> tuple[str, int]:
    """How a tensor begins: (uniform, one or zero; for uniform the number of inputs)."""
    if name not in side.users:
        return "zero", 0
    node, slot = side.users[name][0]
    return op_of(node).initial(node, slot, shape)
