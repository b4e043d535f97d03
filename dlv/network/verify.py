"""A network checked: everything that can be wrong with it found and named."""

from __future__ import annotations

from dataclasses import replace

from dlv.dataclass import dataclass
from dlv.network.graph import Network, Node
from dlv.network.inference import (
    Ports,
    Tensors,
    attribute_faults,
    enough,
    input_shapes,
    node_shapes,
)
from dlv.network.ops.op import op_of
from dlv.network.sizes import Shape, ShapeError, fits, text


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, or that could not be checked; `node` None: the network itself."""

    node: str | None
    alias: str | None
    rule: str
    message: str
    severity: str = "error"
    seen: str = ""
    wanted: str = ""

    def __str__(self) -> str:
        where = self.node or "network"
        if self.alias and self.alias != self.node:
            where += f" ({self.alias})"
        detail = f": {self.seen}, expected {self.wanted}" if self.seen and self.wanted else ""
        return f"{where}: {self.message}{detail}"


def infer(
    network: Network, tensors: Tensors | None = None, *, source: Network | None = None
) -> Network:
    """The network with `out_shape` of every node filled in, as far as it can be known.

    Of an edited network, `source` is what it was made from: the recorded shape of an OP
    counts only while its inputs have the shapes they had there.
    """
    recorded = None
    if source is not None:
        before = node_shapes(source, tensors)
        recorded = {
            node.name: input_shapes(node, before) for node in source.nodes if op_of(node).raw
        }
    shapes = node_shapes(network, tensors, recorded=recorded)
    nodes = tuple(replace(node, out_shape=shapes[node.name][0]) for node in network.nodes)
    return replace(network, nodes=nodes)


def verify(network: Network, tensors: Tensors | None = None) -> list[Problem]:
    """All problems, errors and warnings, rule by rule.

    `tensors` are those stored with the network; without them only the network is looked at.
    """
    check = _Check(network, tensors)
    check.names()
    check.attributes()
    check.arity()
    check.references()
    check.dead()
    check.shapes()
    check.parameters()
    return check.problems


class _Check:
    """One run of `verify`."""

    def __init__(self, network: Network, tensors: Tensors | None) -> None:
        self.network = network
        self.tensors = tensors
        self.problems: list[Problem] = []
        self.node_aliases = network.node_aliases()
        self.faults = {id(node): attribute_faults(node) for node in network.nodes}
        self.mismatches: dict[str, ShapeError] = {}
        self.node_shapes: dict[str, Ports] = node_shapes(
            network, tensors, faults=self.faults, report=self._mismatch
        )

    def _mismatch(self, node: Node, error: ShapeError) -> None:
        self.mismatches.setdefault(node.name, error)

    def add(
        self,
        rule: str,
        node: str | None,
        message: str,
        *,
        seen: str = "",
        wanted: str = "",
        severity: str = "error",
    ) -> None:
        alias = None if node is None else self.node_aliases.get(node)
        self.problems.append(Problem(node, alias, rule, message, severity, seen, wanted))

    def sound(self, node: Node) -> bool:
        return not self.faults[id(node)]

    def names(self) -> None:
        network = self.network
        taken: set[str] = set()
        inputs = (item.name for item in network.inputs)
        for name in (*inputs, *network.constants, *(node.name for node in network.nodes)):
            if name in taken:
                self.add("unique", name, f"the name {name!r} is taken twice")
            taken.add(name)

    def attributes(self) -> None:
        for node in self.network.nodes:
            for rule, message in self.faults[id(node)]:
                self.add(rule, node.name, message)

    def arity(self) -> None:
        for node in self.network.nodes:
            if not self.sound(node) or enough(node):
                continue
            least, most = op_of(node).arity(node)
            wanted = f"{least} or more" if most is None else f"{least} to {most}"
            self.add(
                "arity",
                node.name,
                f"{node.op} has the wrong number of inputs",
                seen=str(len(node.inputs)),
                wanted=str(least) if least == most else wanted,
            )

    def references(self) -> None:
        network = self.network
        ports: dict[str, int | None] = dict.fromkeys(network.constants, 1)
        ports.update(dict.fromkeys(network.input_names, 1))
        for node in network.nodes:
            ports.setdefault(node.name, op_of(node).ports(node) if self.sound(node) else None)
        if not network.outputs:
            self.add("output", None, "the network has no outputs")
        for node in network.nodes:
            for name, port in node.inputs:
                self._reference("producer", node.name, name, port, ports)
        for name, port in network.outputs:
            self._reference("output", None, name, port, ports)
        for node in network.cyclic:
            self.add("cycle", node.name, "the layer is on a cycle, or between two")

    def _reference(
        self, rule: str, reader: str | None, name: str, port: int, ports: dict[str, int | None]
    ) -> None:
        if name not in ports:
            what = "input" if reader else "output"
            self.add(rule, reader, f"the {what} {name!r} is not produced by anything")
            return
        count = ports[name]
        if count is not None and not 0 <= port < count:
            self.add(
                "port",
                reader,
                f"{name!r} has no such output",
                seen=str(port),
                wanted=f"0 to {count - 1}",
            )

    def dead(self) -> None:
        alive = self.network.needed(
            [
                *(name for name, _ in self.network.outputs),
                *(node.name for node in self.network.nodes if op_of(node).always_needed),
            ]
        )
        for node in self.network.nodes:
            if node.name not in alive:
                self.add("dead", node.name, "no output needs this layer", severity="warning")

    def shapes(self) -> None:
        for name, error in self.mismatches.items():
            self.add("shape", name, error.message, seen=error.seen, wanted=error.wanted)
        behind = 0
        for node in self.network.sorted_part:
            if self.node_shapes[node.name][0] is not None:
                continue
            if any(shape is None for shape in input_shapes(node, self.node_shapes)):
                behind += 1
            elif node.name not in self.mismatches and self.sound(node):
                self.add("unchecked", node.name, "its output shape is unknown", severity="warning")
        if behind:
            message = f"{behind} layers after unknown shapes were not checked"
            self.add("unchecked", None, message, severity="warning")

    def parameters(self) -> None:
        first: dict[str, tuple[str, Shape]] = {}
        for node in filter(self.sound, self.network.nodes):
            op = op_of(node)
            slots = op.node_slots(node)
            for slot in sorted(op.required(node) - node.params.keys()):
                self.add("slot", node.name, f"no tensor is named for the slot {slot!r}")
            if slots is not None:
                for slot in sorted(node.params.keys() - {item.name for item in slots}):
                    self.add("slot", node.name, f"{node.op} has no slot {slot!r}")
            wanted = self._wanted(node)
            for slot, name in node.params.items():
                shape = wanted.get(slot)
                if shape is not None:
                    kept = self.network.aliases.get(name, name)
                    other, known = first.setdefault(kept, (node.name, shape))
                    if not fits(known, shape):
                        self.add(
                            "shared",
                            node.name,
                            f"the tensor {name!r} has another shape in {other!r}",
                            seen=text(known),
                            wanted=text(shape),
                        )
                self._tensor(node, slot, name, shape)
            if op.one_dtype and slots is not None:
                self._one_dtype(node)
        self._extra()

    def _wanted(self, node: Node) -> dict[str, Shape | None]:
        if not enough(node):
            return {}
        try:
            inputs = input_shapes(node, self.node_shapes)
            return dict(op_of(node).parameter_shapes(node, inputs))
        except ShapeError:
            return {}  # told already, for the shape of the node itself

    def _stored(self, name: str) -> tuple[str, tuple[int, ...]] | None:
        tensors = self.tensors or {}
        return tensors.get(name) or tensors.get(self.network.aliases.get(name, name))

    def _tensor(self, node: Node, slot: str, name: str, wanted: Shape | None) -> None:
        if self.tensors is None:
            return
        stored = self._stored(name)
        if stored is None:
            self.add("tensor", node.name, f"the tensor {name!r} of {slot!r} is not stored")
            return
        dtype, shape = stored
        if not fits(shape, wanted):
            self.add(
                "tensor-shape",
                node.name,
                f"the tensor {name!r} of {slot!r} has another shape",
                seen=text(shape),
                wanted=text(wanted),
            )
        if (dtype == "bool" or dtype.startswith(("int", "uint"))) and not op_of(node).raw:
            self.add(
                "tensor-dtype",
                node.name,
                f"the tensor {name!r} of {slot!r} has no fractions",
                seen=dtype,
                wanted="a floating dtype",
            )

    def _one_dtype(self, node: Node) -> None:
        stored = [self._stored(name) for name in node.params.values()]
        dtypes = sorted({each[0] for each in stored if each})
        if len(dtypes) > 1:
            self.add(
                "tensor-dtype",
                node.name,
                "its tensors have several dtypes",
                seen=" and ".join(dtypes),
                wanted="one dtype",
            )

    def _extra(self) -> None:
        network = self.network
        used = {name for node in network.nodes for name in node.params.values()}
        used |= {network.aliases.get(name, name) for name in used} | set(network.constants)
        used |= {name for name, kept in network.aliases.items() if kept in used}
        for name in self.tensors or ():
            if name not in used:
                message = f"no layer uses the tensor {name!r}"
                self.add("extra", None, message, seen=name, severity="warning")
