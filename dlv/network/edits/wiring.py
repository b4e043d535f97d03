"""A network taken apart for an edit: nodes by name, who reads whom, and put together again."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import Conflict, NotFound, UsageError, nearest
from dlv.network.graph import Network, Node, Port
from dlv.network.inference import Ports, Tensors, node_shapes
from dlv.network.sizes import Shape


@dataclass(frozen=True)
class Edit:
    """One thing that was done. `node` is what it was done to; `warning`: what may surprise."""

    action: str  # slice insert replace delete delete_edge set rename follow prune
    node: str
    text: str
    warning: str | None = None

    @property
    def statement(self) -> str:
        """The edit as a query states it: `fc1.out = 32`, `insert relu1 (RELU) after conv1`."""
        if self.action == "set":
            return _SET.sub(lambda found: f"{self.node}.{found[1]} = {found[2]}", self.text)
        if self.action in ("insert", "slice"):
            return f"{self.action} {self.text}"
        if self.action == "rename":
            return f"rename {self.node} to {self.text}"
        if self.action == "delete_edge":
            return f"{self.node} {self.text}"
        return f"{self.action} {self.node}: {self.text}"


# `out 64 -> 32, kernel [3, 3] -> 5`: attributes with the value before and the one now.
_SET = re.compile(r"(\w+) .+? -> (.+?)(?=, \w+ .+? -> |\Z)")
_FOLLOWING = ("follow", "prune", "rename")


def own_edits(edits: Sequence[Edit]) -> list[Edit]:
    """The edits that were asked for, without those that other edits bring with them."""
    return [edit for edit in edits if edit.action not in _FOLLOWING] or list(edits)


class Wiring:
    """The nodes of a network while it is edited. Names and aliases are those of the source."""

    def __init__(self, source: Network, tensors: Tensors | None = None) -> None:
        self.source = source
        self.nodes: dict[str, Node] = {node.name: node for node in source.nodes}
        if len(self.nodes) != len(source.nodes) or set(self.nodes) & source.input_names:
            raise UsageError("a name is taken twice in this network", hint="dlv desc REF")
        self.order = [node.name for node in source.nodes]
        self.outputs = list(source.outputs)
        self.inputs = list(source.inputs)
        self.tensors = tensors
        self.edits: list[Edit] = []
        self.gone: dict[str, str] = {}  # name -> what became of it
        self.touched: dict[str, set[str]] = {}  # node -> the attributes that were set
        self.renamed: dict[str, str] = {}  # new name -> name in the source
        self.aliases = {alias: name for name, alias in source.node_aliases().items()}
        self._shapes: dict[str, Ports] | None = None
        self._users: dict[str, dict[str, None]] = {}
        for node in source.nodes:
            self._use(node)

    def told(self, action: str, node: str, text: str, warning: str | None = None) -> None:
        self.edits.append(Edit(action, node, text, warning))

    # Looking

    def find(self, text: str) -> Node:
        """The node of that name, or alias in the source network."""
        name = text if text in self.nodes else self.aliases.get(text, text)
        if name in self.nodes:
            return self.nodes[name]
        if name in self.gone:
            raise UsageError(f"`{text}` can no longer be changed", why=self.gone[name])
        if name in self.input_names():
            raise UsageError(f"`{text}` is an input of the network, not a layer")
        raise NotFound(
            f"no layer `{text}`",
            why="not a name or alias",
            did_you_mean=nearest(text, {**self.nodes, **self.aliases}),
        )

    def input_names(self) -> set[str]:
        return {item.name for item in self.inputs}

    def readers(self, port: Port) -> list[Node]:
        """The nodes that read this very port."""
        found = [self.nodes[name] for name in self._users.get(port[0], ())]
        return [node for node in found if port in node.inputs]

    def users(self, name: str) -> list[Node]:
        return [self.nodes[user] for user in self._users.get(name, ())]

    def outlets(self, name: str) -> dict[int, list[Port]]:
        """Each output that is used -> the ports at which it can be had, past getitem nodes."""
        found: dict[int, dict[Port, None]] = {}
        for user in self.users(name):
            for producer, port in user.inputs:
                if producer == name:
                    if user.picks:
                        found.setdefault(user.attrs["index"], {})[user.name, 0] = None
                    else:
                        found.setdefault(port, {})[name, port] = None
        for producer, port in self.outputs:
            if producer == name:
                found.setdefault(port, {})[name, port] = None
        return {port: list(places) for port, places in sorted(found.items())}

    def carries(self, port: Port) -> bool:
        """Whether data, not numbers about shapes, stand at the port."""
        return self.data(port) is not None

    def data(self, port: Port) -> Port | None:
        """The layer's port whose data this is, past plumbing."""
        seen: set[str] = set()
        while (node := self.nodes.get(port[0])) is not None and node.plumbing:
            if node.sizes_only or not node.inputs or node.name in seen:
                return None
            seen.add(node.name)
            port = node.inputs[0]
        return port

    def data_ports(self, node: Node) -> list[Port]:
        """What a node reads as data: of plumbing the first input alone."""
        ports = node.inputs[:1] if node.plumbing else node.inputs
        return list(dict.fromkeys(port for port in ports if self.carries(port)))

    def consumers(self, node: Node) -> set[str]:
        """The layers that get a plumbing node's data; "" stands for the network's output."""
        found: set[str] = set()
        todo, seen = [node], {node.name}
        while todo:
            here = todo.pop()
            if any(name == here.name for name, _ in self.outputs):
                found.add("")
            for user in self.users(here.name):
                if not user.plumbing:
                    found.add(user.name)
                elif user.name not in seen and not user.sizes_only:
                    seen.add(user.name)
                    todo.append(user)
        return found

    def shape(self, port: Port) -> Shape | None:
        """The shape in the source network, or of a node made since."""
        if self._shapes is None:
            self._shapes = node_shapes(self.source, self.tensors)
        ports = self._shapes.get(port[0], ())
        return ports[port[1]] if port[1] < len(ports) else None

    def know(self, name: str, shapes: Ports) -> None:
        self.shape(("", 0))
        assert self._shapes is not None
        self._shapes[name] = shapes

    # Changing

    def _use(self, node: Node) -> None:
        for producer, _ in node.inputs:
            self._users.setdefault(producer, {})[node.name] = None

    def put(self, node: Node) -> None:
        """Set a node that is there already."""
        for producer, _ in self.nodes[node.name].inputs:
            self._users.get(producer, {}).pop(node.name, None)
        self.nodes[node.name] = node
        self._use(node)

    def add(self, node: Node, behind: str | None) -> None:
        """A new node, stored right behind another one."""
        if self.taken(node.name):
            raise Conflict(f"the name `{node.name}` is taken", hint="give the layer another name")
        self.nodes[node.name] = node
        place = self.order.index(behind) + 1 if behind in self.nodes and behind else 0
        self.order.insert(place, node.name)
        self._use(node)

    def touch(self, name: str, attrs: Iterable[str]) -> None:
        self.touched.setdefault(name, set()).update(attrs)

    def drop(self, name: str, why: str) -> None:
        node = self.nodes.pop(name)
        self.order.remove(name)
        for producer, _ in node.inputs:
            self._users.get(producer, {}).pop(name, None)
        self.gone[name] = why

    def taken(self, name: str) -> bool:
        return name in self.nodes or name in self.input_names() or name in self.source.constants

    def free(self, word: str) -> str:
        """The word with the first number that is neither a name nor an alias."""
        number = 1
        while self.taken(f"{word}{number}") or f"{word}{number}" in self.aliases:
            number += 1
        return f"{word}{number}"

    def reroute(self, old: Port, new: Port, but: Collection[str] = ()) -> list[str]:
        """Let all that read one port read another one; who that was."""
        found = []
        for node in self.readers(old):
            if node.name not in but:
                inputs = tuple(new if port == old else port for port in node.inputs)
                self.put(replace(node, inputs=inputs))
                found.append(node.name)
        if old in self.outputs:
            self.outputs = [new if port == old else port for port in self.outputs]
            found.append("the output")
        return found

    def rewire(self, name: str, old: Port, new: Port) -> None:
        """Let one node read another port."""
        node = self.nodes[name]
        self.put(replace(node, inputs=tuple(new if p == old else p for p in node.inputs)))

    def network(self) -> Network:
        """What is there now, as it stands."""
        nodes = tuple(self.nodes[name] for name in self.order)
        used = {name for node in nodes for name, _ in node.inputs} | {n for n, _ in self.outputs}
        tensors = {name for node in nodes for name in node.params.values()}
        kept = {self.source.aliases.get(name, name) for name in tensors}
        return replace(
            self.source,
            inputs=tuple(self.inputs),
            nodes=nodes,
            outputs=tuple(self.outputs),
            constants={k: v for k, v in self.source.constants.items() if k in used},
            aliases={k: v for k, v in self.source.aliases.items() if k in tensors or v in kept},
        )


def without_input(source: Mapping[str, Any] | None, place: int) -> dict[str, Any] | None:
    """The recorded call less the node's input at `place`; None where it cannot do without.

    `{"n": i}` is a position among the node's inputs: those behind move up. An element of a list
    can go, an argument by itself cannot.
    """
    if source is None:
        return None
    found: dict[str, Any] = dict(source)
    try:
        found["args"] = [_lessened(item, place) for item in source.get("args", [])]
        kwargs = source.get("kwargs", {})
        found["kwargs"] = {name: _lessened(item, place) for name, item in kwargs.items()}
    except LookupError:
        return None
    return found


def _lessened(item: Any, place: int) -> Any:
    if not isinstance(item, Mapping):
        return item
    if "l" in item:
        kept = [each for each in item["l"] if not _is_input(each, place)]
        return {**item, "l": [_lessened(each, place) for each in kept]}
    if "n" in item:
        if item["n"] == place:
            raise LookupError
        return {**item, "n": item["n"] - (item["n"] > place)}
    return dict(item)


def _is_input(item: Any, place: int) -> bool:
    return isinstance(item, Mapping) and item.get("n") == place
