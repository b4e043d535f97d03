"""Which in-place operations are as good as functions, and which change what others still read."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlv.adapters.aten.record import CONSTANT, STATE, Call, Graph, Ref, refs

_VIEWS = frozenset(
    {
        "view", "reshape", "flatten", "unflatten", "transpose", "t", "permute", "squeeze",
        "unsqueeze", "select", "slice", "expand", "split", "split_with_sizes", "chunk",
        "unbind", "narrow", "detach", "alias", "contiguous", "to", "diagonal", "as_strided",
        "view_as", "expand_as", "movedim", "moveaxis", "swapaxes", "numpy_T", "mT", "unfold",
        "real", "imag", "tensor_split",
    }
)  # fmt: skip
# They widen to the wider dtype; in place, the first operand keeps its own.
_PROMOTING = frozenset(
    {
        "add", "sub", "mul", "div", "pow", "addcmul", "addcdiv", "lerp", "atan2", "fmod",
        "remainder", "floor_divide",
    }
)  # fmt: skip
# In place only: no function of that name gives the same.
_NO_FUNCTION = frozenset({"normal_", "set_", "resize_", "random_", "requires_grad_"})


@dataclass
class Mutations:
    """What became of every call, by its place.

    `functions` are in-place calls that may be read as functions. `fixed` ones must stay as
    they are, in their order: they write, or look at, what is written elsewhere. `counters`
    only count batches. `written` are the tensors of the module that a fixed call changes.
    """

    functions: set[int] = field(default_factory=set)
    fixed: set[int] = field(default_factory=set)
    counters: set[int] = field(default_factory=set)
    written: list[str] = field(default_factory=list)


class _Memory:
    """Values that may share memory; of each group, its two latest reads."""

    def __init__(self, last_read: dict[str, int]) -> None:
        self._last_read = last_read
        self._parent: dict[str, str] = {}
        self._latest: dict[str, list[tuple[int, str]]] = {}

    def root(self, name: str) -> str:
        path = []
        while self._parent.setdefault(name, name) != name:
            path.append(name)
            name = self._parent[name]
        for step in path:
            self._parent[step] = name
        return name

    def join(self, name: str, other: str) -> None:
        """`name`, a value that has just come to be, lies in the memory of `other`."""
        root, latest = self.root(other), self.latest(other)
        self._parent[name] = root
        self._latest[root] = sorted([*latest, (self._last_read.get(name, -1), name)], reverse=True)[
            :2
        ]

    def latest(self, name: str) -> list[tuple[int, str]]:
        root = self.root(name)
        return self._latest.setdefault(root, [(self._last_read.get(root, -1), root)])


def analyse(graph: Graph) -> Mutations:
    """Every in-place call judged."""
    found = Mutations()
    last_read = _last_reads(graph)
    memory = _Memory(last_read)
    module = {p.name: p for p in graph.placeholders if p.kind in (*STATE, CONSTANT)}
    unsafe: set[str] = set()  # values whose memory somebody changes under a reader
    for place, call in enumerate(graph.calls):
        target = call.arguments[0].value if call.arguments else None
        if not isinstance(target, Ref):
            continue
        if not in_place(call):
            if call.base in _VIEWS or (call.base == "dropout" and call.get("train") is False):
                for name in filter(None, call.outputs):
                    memory.join(name, target.name)
            continue
        owner = module.get(memory.root(target.name))
        if owner is not None:
            if owner.target.endswith("num_batches_tracked") and call.base == "add_":
                found.counters.add(place)
            else:
                found.fixed.add(place)
                found.written.append(owner.target)
                unsafe.add(target.name)
        elif any(read > place for read, _ in memory.latest(target.name)):
            found.fixed.add(place)
            unsafe.add(target.name)
        elif call.base in _NO_FUNCTION or not _keeps_dtype(graph, call, target):
            found.fixed.add(place)
        else:
            found.functions.add(place)
        for name in filter(None, call.outputs):
            memory.join(name, target.name)
    _fix_readers(graph, memory, {memory.root(name) for name in unsafe}, found)
    return found


def in_place(call: Call) -> bool:
    return call.base.endswith("_") and not call.base.endswith("__") and call.aten


def _last_reads(graph: Graph) -> dict[str, int]:
    last = {ref.name: place for place, call in enumerate(graph.calls) for ref in call.refs()}
    last.update({ref.name: len(graph.calls) for ref in refs(graph.outputs)})
    return last


def _keeps_dtype(graph: Graph, call: Call, target: Ref) -> bool:
    if call.base.rstrip("_") not in _PROMOTING:
        return True
    own = graph.values.get(target.name)
    for ref in call.refs():
        value = graph.values.get(ref.name)
        if own is None or value is None or (value.shape and value.dtype != own.dtype):
            return False
    return True


def _fix_readers(graph: Graph, memory: _Memory, groups: set[str], found: Mutations) -> None:
    """Views of, and copies from, memory that changes stay as they are."""
    if not groups:
        return
    for place, call in enumerate(graph.calls):
        if place in found.functions or place in found.counters:
            continue
        if call.base in _VIEWS or call.base in ("clone", "lift_fresh_copy"):
            touched = [*call.refs(), *(Ref(name) for name in call.outputs if name)]
            if any(memory.root(ref.name) in groups for ref in touched):
                found.fixed.add(place)
