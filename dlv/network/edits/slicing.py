"""A part of a network cut out: from starts to ends, with all that the ends need besides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dlv.errors import UsageError
from dlv.network.edits.edit import Derived
from dlv.network.edits.following import check_sound
from dlv.network.edits.wiring import Edit, Wiring
from dlv.network.graph import Input, Network, Node, Port
from dlv.network.inference import Ports, Tensors, node_shapes
from dlv.network.ops.op import op_of
from dlv.network.order import FreeNames, reached
from dlv.network.program import refuse_writes
from dlv.network.sizes import text

SUPPORT = ("keep", "inputs")


def slice(  # noqa: A001  (the name that the query language and the design use)
    network: Network,
    starts: str | Sequence[str],
    ends: str | Sequence[str],
    *,
    support: str = "keep",
    tensors: Tensors | None = None,
) -> Derived:
    """The nodes on paths from a start to an end, both included, and those that these need.

    What a start reads becomes an input of the new network, called as its producer was, and
    whoever read the same reads that input. Inputs of the source that are still needed stay.
    `support="inputs"`: what comes from beside the paths becomes an input too, rather than
    being computed by nodes that are kept for it.
    """
    if support not in SUPPORT:
        raise UsageError(f"support is {support!r}", why="use `keep` or `inputs`")
    refuse_writes(network)
    wiring = Wiring(network, tensors)
    first = _names(wiring, starts, "start", inputs=True)
    last = _names(wiring, ends, "end", inputs=False)
    path = _path(network, first, last)
    cut = _Cut(wiring, path, first, support)
    kept = cut.kept(last)
    nodes = tuple(cut.node(node) for node in network.nodes if node.name in kept)
    outputs = tuple(port for node in network.topological() for port in _ends(node, last))
    read = {name for node in nodes for name, _ in node.inputs}
    inputs = [item for item in network.inputs if item.name in read]
    tensor_names = {name for node in nodes for name in node.params.values()}
    resolved = {network.aliases.get(name, name) for name in tensor_names}
    made = replace(
        network,
        inputs=(*inputs, *cut.inputs.values()),
        nodes=nodes,
        outputs=outputs,
        constants={k: v for k, v in network.constants.items() if k in read},
        aliases={k: v for k, v in network.aliases.items() if k in tensor_names or v in resolved},
    )
    check_sound(network, made)
    return Derived(made, tuple(_told(network, made, first, last, path, cut)))


def _names(wiring: Wiring, given: str | Sequence[str], label: str, *, inputs: bool) -> list[str]:
    texts = [given] if isinstance(given, str) else list(given)
    if not texts:
        raise UsageError(f"a slice needs at least one {label}")
    names = [
        text if inputs and text in wiring.input_names() else wiring.find(text).name
        for text in texts
    ]
    return list(dict.fromkeys(names))


def _path(network: Network, starts: Sequence[str], ends: Sequence[str]) -> set[str]:
    """Names on paths from a start to an end; every start must reach one, every end be reached."""
    users: dict[str, list[str]] = {}
    producers: dict[str, list[str]] = {}
    for node in network.topological():
        producers[node.name] = [name for name, _ in node.inputs]
        for name, _ in node.inputs:
            users.setdefault(name, []).append(node.name)
    below = reached(starts, lambda name: users.get(name, ()))
    above = reached(ends, lambda name: producers.get(name, ()))
    for name in ends:
        if name not in below:
            raise _no_path(starts, [name])
    for name in starts:
        if name not in above:
            raise _no_path([name], ends)
    return below & above


def _no_path(starts: Sequence[str], ends: Sequence[str]) -> UsageError:
    a, b = (" or ".join(f"`{name}`" for name in names[:3]) for names in (starts, ends))
    return UsageError(f"no path leads from {a} to {b}", hint="dlv desc REF shows the edges")


def _ends(node: Node, ends: Sequence[str]) -> list[Port]:
    if node.name not in ends:
        return []
    count = len(node.attrs["sizes"]) if node.attrs.get("kind") == "split" else 1
    return [(node.name, port) for port in range(count)]


class _Cut:
    """Where the network is cut through: ports that become inputs."""

    def __init__(self, wiring: Wiring, path: set[str], starts: Sequence[str], support: str) -> None:
        self.wiring = wiring
        self.network = wiring.source
        self.path = path
        self.shapes: dict[str, Ports] = node_shapes(self.network, wiring.tensors)
        self.given = self.network.input_names | set(self.network.constants)
        self.inputs: dict[Port, Input] = {}
        self.sizes: dict[str, Node] = {}  # size nodes that ask another tensor for the same length
        ports: dict[Port, None] = {}
        for node in self.network.topological():
            if node.name in starts or (support == "inputs" and node.name in path):
                for port in node.inputs:
                    outside = port[0] not in path and port[0] not in self.given
                    if outside and wiring.carries(port):
                        ports[port] = None
        self.ports = list(ports)

    def kept(self, ends: Sequence[str]) -> set[str]:
        """Walk back from the ends to what is cut or given."""
        found: set[str] = set()
        todo = list(ends)
        while todo:
            name = todo.pop()
            if name in found or name not in self.wiring.nodes:
                continue
            found.add(name)
            node = self._asked(self.wiring.nodes[name])
            todo.extend(port[0] for port in node.inputs if port not in self.ports)
        for port in self.ports:
            self.inputs[port] = self._input(port, found)
        return found

    def _asked(self, node: Node) -> Node:
        """A size node that asks a tensor which is at hand anyway, if the length has a symbol."""
        if node.attrs.get("kind") != "size" or not node.plumbing:
            return node
        if node.inputs[0][0] in self.path or node.inputs[0] in self.ports:
            return node
        shape = self._shape(node.inputs[0])
        axis = node.attrs["axis"]
        symbol = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
        for port in self.ports:
            ours = self._shape(port) or ()
            if isinstance(symbol, str) and symbol in ours:
                attrs = {**node.attrs, "axis": ours.index(symbol)}
                node = replace(node, inputs=(port,), attrs=attrs, source=None)
                self.sizes[node.name] = node
                break
        return node

    def _shape(self, port: Port) -> tuple[int | str | None, ...] | None:
        ports = self.shapes.get(port[0], ())
        return ports[port[1]] if port[1] < len(ports) else None

    def _input(self, port: Port, names: set[str]) -> Input:
        self._check_cut(port)
        shape = self._shape(port)
        if shape is None:
            raise UsageError(
                f"the slice would need `{port[0]}` as an input, and its shape is unknown",
                hint="begin the slice at another layer",
            )
        used = names | self.given | {item.name for item in self.inputs.values()}
        return Input(FreeNames(used, first=2).take(port[0]), shape, self._dtype(port))

    def _check_cut(self, port: Port) -> None:
        """An input is one tensor."""
        node = self.wiring.nodes.get(port[0])
        if node is not None and op_of(node).gives_number(node):
            raise UsageError(
                f"the slice would need `{port[0]}` as an input, which is a number, no tensor",
                hint="begin the slice at another layer",
            )
        for reader in self.wiring.readers(port):
            if reader.picks and reader.name in self.path:
                raise UsageError(
                    f"a slice cannot begin at `{reader.name}`",
                    why=f"it takes one of the outputs of `{port[0]}`",
                    hint=f"begin at `{port[0]}`, or at what reads `{reader.name}`",
                )

    def _dtype(self, port: Port) -> str:
        """Only plumbing hands on the dtype of an input that is no floating one."""
        source = port
        while (node := self.wiring.nodes.get(source[0])) is not None and node.plumbing:
            if node.attrs.get("dtype"):
                return str(node.attrs["dtype"])
            if not node.inputs:
                break
            source = node.inputs[0]
        dtypes = {item.name: item.dtype for item in self.network.inputs}
        if source[0] in dtypes:
            return dtypes[source[0]]
        floating = [dtype for dtype in dtypes.values() if "float" in dtype]
        stored = [dtype for dtype, _ in (self.wiring.tensors or {}).values() if "float" in dtype]
        return (floating or stored or ["float32"])[0]

    def node(self, node: Node) -> Node:
        """The node, reading inputs where it was cut off."""
        node = self.sizes.get(node.name, node)
        inputs = tuple(
            (self.inputs[port].name, 0) if port in self.inputs else port for port in node.inputs
        )
        return node if inputs == node.inputs else replace(node, inputs=inputs)


def _told(
    network: Network,
    sliced: Network,
    starts: Sequence[str],
    ends: Sequence[str],
    path: set[str],
    cut: _Cut,
) -> Iterable[Edit]:
    count = f"{len(sliced.nodes)} of {len(network.nodes)} layers"
    yield Edit("slice", starts[0], f"{', '.join(starts)} to {', '.join(ends)}: {count}")
    for item in cut.inputs.values():
        yield Edit("slice", item.name, f"is an input now, {text(item.shape)} {item.dtype}")
    beside = [node.name for node in sliced.nodes if node.name not in path and not node.plumbing]
    if beside:
        names = ", ".join(beside[:5]) + (", …" if len(beside) > 5 else "")
        what = f"{len(beside)} more layers are kept because the ends need them: {names}"
        yield Edit("slice", beside[0], what)
