"""The network of a version: inputs, nodes, outputs, and the edges that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from dlv.canonical import HASH, dumps, hash_bytes, hash_of, number
from dlv.dataclass import dataclass
from dlv.errors import Damaged, NewerFormat, NotFound, UsageError, nearest
from dlv.network.fields import FieldError, dtype, label, labels, shape, whole
from dlv.network.ops.op import Node as Node
from dlv.network.ops.op import Port as Port
from dlv.network.ops.op import op_of
from dlv.network.order import reached, topological
from dlv.network.sizes import Shape
from dlv.network.vocabulary import OPS, attributes, complete
from dlv.shown import Shown

FORMAT = 1

_NETWORK_KEYS = {"dlv_network", "inputs", "nodes", "outputs", "constants", "aliases"}
_NODE_KEYS = {"name", "op", "variant", "attrs", "inputs", "params", "source", "out_shape"}
_INPUT_KEYS = {"name", "shape", "dtype"}


@dataclass(frozen=True)
class Input:
    """A tensor that the user hands in; entries of `shape` may be symbols such as "B"."""

    name: str
    shape: Shape
    dtype: str = "float32"


@dataclass(frozen=True)
class Edge:
    """From an output port to an input port; `direct` if data flows with no plumbing between."""

    src: str
    src_port: int
    dst: str
    dst_port: int
    direct: bool = True


@dataclass(frozen=True)
class Network(Shown):
    """A DAG of layers. Immutable: an edit makes a new one."""

    inputs: tuple[Input, ...] = ()
    nodes: tuple[Node, ...] = ()
    outputs: tuple[Port, ...] = ()
    constants: Mapping[str, str] = field(default_factory=dict)  # name -> matrix hash
    aliases: Mapping[str, str] = field(default_factory=dict)  # tied name -> kept name
    origin: Mapping[str, Any] | None = None
    # Known beside the form that is hashed: a matrix hash tells no shape.
    constant_shapes: Mapping[str, Shape] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        shapes = (f"{item.name} {'×'.join(map(str, item.shape))}" for item in self.inputs)
        return f"<dlv network of {', '.join(shapes)}: {len(self.nodes)} layers>"

    @cached_property
    def _by_name(self) -> dict[str, Node]:
        # Of nodes with one name, a fault that `verify` reports, the first one counts.
        return {node.name: node for node in reversed(self.nodes)}

    @cached_property
    def input_names(self) -> frozenset[str]:
        return frozenset(item.name for item in self.inputs)

    def node(self, name: str) -> Node:
        """The node of that name; NotFound with the nearest names."""
        try:
            return self._by_name[name]
        except KeyError:
            raise NotFound(
                f"no layer is called {name!r}", did_you_mean=nearest(name, self._by_name)
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    @cached_property
    def _order(self) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        """Nodes in topological order, ties by stored order; and those on or behind a cycle."""
        place = {node.name: position for position, node in reversed([*enumerate(self.nodes)])}
        order = topological(
            [[place[name] for name, _ in node.inputs if name in place] for node in self.nodes]
        )
        done = set(order)
        rest = tuple(node for position, node in enumerate(self.nodes) if position not in done)
        return tuple(self.nodes[position] for position in order), rest

    @property
    def sorted_part(self) -> tuple[Node, ...]:
        """`topological`, but of a network with a cycle only what does not wait for it."""
        return self._order[0]

    @property
    def cyclic(self) -> tuple[Node, ...]:
        """The nodes on cycles, or between two."""
        rest = {node.name: node for node in self._order[1]}
        readers = dict.fromkeys(rest, 0)
        for node in rest.values():
            for producer in {name for name, _ in node.inputs if name in rest}:
                readers[producer] += 1
        # What nothing in the rest reads only waits behind a cycle.
        todo = [name for name, count in readers.items() if not count]
        while todo:
            node = rest.pop(todo.pop())
            for producer in {name for name, _ in node.inputs if name in rest}:
                readers[producer] -= 1
                if not readers[producer]:
                    todo.append(producer)
        return tuple(rest.values())

    def topological(self) -> tuple[Node, ...]:
        """All nodes, producers before users, otherwise in stored order."""
        order, rest = self._order
        if rest:
            raise UsageError(
                "the network has a cycle",
                why="these layers wait for each other: "
                + ", ".join(node.name for node in self.cyclic[:5])
                + (", …" if len(self.cyclic) > 5 else ""),
            )
        return order

    def needed(self, ends: Iterable[str]) -> set[str]:
        """The names of all that these ends need, themselves included."""

        def producers(name: str) -> Iterable[str]:
            node = self._by_name.get(name)
            return () if node is None else (producer for producer, _ in node.inputs)

        return reached(ends, producers)

    def part(self, ports: Sequence[Port]) -> Network:
        """The part of the network that leads to these ports, which are its outputs."""
        needed = self.needed(name for name, _ in ports)
        return replace(
            self,
            nodes=tuple(node for node in self.nodes if node.name in needed),
            inputs=tuple(item for item in self.inputs if item.name in needed),
            constants={name: h for name, h in self.constants.items() if name in needed},
            outputs=tuple(ports),
        )

    @cached_property
    def _sources(self) -> dict[str, Port | None]:
        """For each plumbing node, whose data it passes on; None for numbers about shapes."""
        found: dict[str, Port | None] = {}
        for node in self._order[0]:
            if not node.plumbing or node.name in found:
                continue
            if node.sizes_only or not node.inputs:
                found[node.name] = None
                continue
            name, port = node.inputs[0]
            if self._plumbing(name):
                found[node.name] = found.get(name)
            elif node.picks:
                found[node.name] = (name, node.attrs["index"])
            else:
                found[node.name] = (name, port)
        return found

    def data_of(self, port: Port) -> Port | None:
        """Whose data stands at a port: behind plumbing the layer before it; None if no one's."""
        return self._sources.get(port[0]) if self._plumbing(port[0]) else port

    def edges(self) -> tuple[Edge, ...]:
        """Every edge as it stands, from network inputs and constants too."""
        return tuple(
            Edge(name, port, node.name, position, not node.plumbing and not self._plumbing(name))
            for node in self.nodes
            for position, (name, port) in enumerate(node.inputs)
        )

    def _plumbing(self, name: str) -> bool:
        return name in self._by_name and self._by_name[name].plumbing

    @cached_property
    def _logical(self) -> tuple[Edge, ...]:
        result = []
        for node in self.nodes:
            if node.plumbing:
                continue
            for position, port in enumerate(node.inputs):
                source = self.data_of(port)
                if source is not None:
                    direct = not self._plumbing(port[0])
                    result.append(Edge(source[0], source[1], node.name, position, direct))
        return tuple(result)

    def logical_edges(self) -> tuple[Edge, ...]:
        """Edges between layers, past plumbing, without what only passes on shapes.

        `src` may be a network input or a constant. `direct`: no plumbing was skipped.
        """
        return self._logical

    def node_aliases(self) -> dict[str, str]:
        """Name -> canonical name: op word and ordinal, over the nodes that are no plumbing."""
        count: dict[str, int] = {}
        result: dict[str, str] = {}
        order, rest = self._order
        for node in (*order, *rest):
            if not node.plumbing:
                word = node.op.lower()
                count[word] = count.get(word, 0) + 1
                result.setdefault(node.name, f"{word}{count[word]}")
        return result

    def depth(self) -> int:
        """Layers on the longest path over logical edges."""
        before: dict[str, list[str]] = {}
        for edge in self._logical:
            before.setdefault(edge.dst, []).append(edge.src)
        level: dict[str, int] = {}
        for node in self.topological():
            if not node.plumbing:
                below = (level.get(name, 0) for name in before.get(node.name, ()))
                level[node.name] = 1 + max(below, default=0)
        return max(level.values(), default=0)

    def tensor_names(self) -> frozenset[str]:
        """The tensors that nodes refer to, by the names under which they are kept."""
        used = {name for node in self.nodes for name in node.params.values()}
        return frozenset(self.aliases.get(name, name) for name in used)

    def canonical(self) -> dict[str, Any]:
        """The form that is hashed and stored."""
        return {
            "dlv_network": FORMAT,
            "inputs": [
                {"name": item.name, "shape": list(item.shape), "dtype": item.dtype}
                for item in self.inputs
            ],
            "nodes": [_node_json(node) for node in self.nodes],
            "outputs": [list(port) for port in self.outputs],
            "constants": dict(self.constants),
            "aliases": dict(self.aliases),
        }

    @cached_property
    def encoded(self) -> bytes:
        """The canonical form as it is stored."""
        return dumps(self.canonical())

    @cached_property
    def id(self) -> str:
        """Hash of the canonical form."""
        return hash_bytes(self.encoded)

    @cached_property
    def structure(self) -> str:
        """The same without `source`: equal for one architecture under another torch version."""
        form = self.canonical()
        for node in form["nodes"]:
            del node["source"]
        return hash_of(form)

    @staticmethod
    def from_canonical(data: Any) -> Network:
        """Read the stored form: every key there, everything checked."""
        if isinstance(data, dict) and data.get("dlv_network", FORMAT) != FORMAT:
            raise NewerFormat(
                f"network format {data['dlv_network']!r} is unknown to this dlv version"
            )
        try:
            _keys(data, _NETWORK_KEYS, "network")
            constants = labels(data["constants"], "constants")
            for name, value in constants.items():
                if not HASH.match(value):
                    raise FieldError(f"constant {name!r} has no tensor hash")
            return Network(
                inputs=tuple(_read_input(item) for item in _list(data["inputs"], "inputs")),
                nodes=tuple(_read_node(item) for item in _list(data["nodes"], "nodes")),
                outputs=_ports(data["outputs"], "outputs"),
                constants=constants,
                aliases=labels(data["aliases"], "aliases"),
            )
        except FieldError as error:
            raise Damaged(
                f"the stored network is corrupt: {error.message}", why=error.why
            ) from error


def plain(value: Any) -> Any:
    """An attribute as JSON: lists for tuples, texts for what is not finite."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


def _node_json(node: Node) -> dict[str, Any]:
    recorded = node.out_shape if op_of(node).raw else None
    return {
        "name": node.name,
        "op": node.op,
        "variant": node.variant,
        "attrs": _stored_attrs(node),
        "inputs": [list(port) for port in node.inputs],
        "params": dict(node.params),
        "source": None if node.source is None else dict(node.source),
        "out_shape": None if recorded is None else list(recorded),
    }


def _stored_attrs(node: Node) -> dict[str, Any]:
    """The attributes as they are stored: silent ones only where they are not the default."""
    silent = {each.name: each.default for each in op_of(node).attributes if each.silent}
    return {
        name: plain(value)
        for name, value in node.attrs.items()
        if name not in silent or value != silent[name]
    }


def _keys(data: Any, wanted: set[str], label: str, optional: frozenset[str] = frozenset()) -> None:
    if not isinstance(data, dict):
        raise FieldError(f"{label} is not an object")
    extra = sorted(data.keys() - wanted)
    if extra:
        raise NewerFormat(f"the key {extra[0]!r} of a {label} is unknown to this dlv version")
    missing = sorted(wanted - data.keys() - optional)
    if missing:
        raise FieldError(f"a {label} has no {missing[0]!r}")


def _list(value: Any, label: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise FieldError(f"{label} is not a list")
    return value


def _ports(value: Any, where: str) -> tuple[Port, ...]:
    result = []
    for item in _list(value, where):
        if not isinstance(item, list) or len(item) != 2 or not whole(item[1]) or item[1] < 0:
            raise FieldError(f"{where} holds {item!r}", why="it takes [name, port]")
        result.append((label(item[0], where), item[1]))
    return tuple(result)


def _read_input(data: Any) -> Input:
    _keys(data, _INPUT_KEYS, "input")
    name = label(data["name"], "the name of an input")
    return Input(name, shape(data["shape"], "shape"), dtype(data["dtype"], "dtype"))


def _read_node(data: Any) -> Node:
    _keys(data, _NODE_KEYS, "node")
    name, op, variant = label(data["name"], "the name of a layer"), data["op"], data["variant"]
    if not isinstance(op, str) or op not in OPS:
        raise NewerFormat(f"layer {name!r}: the operation {op!r} is unknown to this dlv version")
    if (variant not in OPS[op].variants) if OPS[op].variants else variant is not None:
        raise NewerFormat(f"layer {name!r}: {op} {variant!r} is unknown to this dlv version")
    given = data["attrs"]
    if not isinstance(given, dict):
        raise FieldError(f"the attrs of layer {name!r} are not an object")
    kind, kinds = given.get("kind"), OPS[op].kinds
    if kinds and not (isinstance(kind, str) and kind in kinds):
        raise NewerFormat(f"layer {name!r}: {op} {kind!r} is unknown to this dlv version")
    allowed = attributes(op, variant, given)
    silent = frozenset(name for name, attribute in allowed.items() if attribute.silent)
    _keys(given, set(allowed), f"{op} layer", silent)
    params = labels(data["params"], f"the params of layer {name!r}")
    source = data["source"]
    if source is not None:
        if not isinstance(source, dict):
            raise FieldError(f"the source of layer {name!r} is not an object")
        try:
            dumps(source)
        except (ValueError, UnicodeEncodeError) as error:
            raise FieldError(f"the source of layer {name!r}", why=str(error)) from error
    recorded = data["out_shape"]
    if recorded is not None and not OPS[op].raw:
        raise FieldError(f"layer {name!r} has an out_shape and is not an OP")
    return Node(
        name=name,
        op=op,
        variant=variant,
        attrs=complete(op, variant, given, params=params),
        inputs=_ports(data["inputs"], f"the inputs of layer {name!r}"),
        params=params,
        source=source,
        out_shape=None if recorded is None else shape(recorded, "out_shape"),
    )
