"""Networks edited: nodes put in, taken out, resized. The source is never changed.

Each function gives a new network, checked by `verify`, and what was done; `edit` does several
things before it checks, for what holds only together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as altered
from typing import Any, NamedTuple

from dlv.errors import Conflict, UsageError
from dlv.network.drawing import operation_text
from dlv.network.edits.following import finish, resize, sharing, varied
from dlv.network.edits.wiring import Edit, Wiring, without_input
from dlv.network.fields import FieldError
from dlv.network.graph import Network, Node, Port
from dlv.network.inference import Tensors, attribute_faults, enough
from dlv.network.ops.op import op_of
from dlv.network.patterns import Habits, Template, build
from dlv.network.sizes import ShapeError
from dlv.network.vocabulary import OPS

Templates = Template | Sequence[Template]
_NOBODY = "\0"  # no node can be called so


class Derived(NamedTuple):
    """A network made from another one, and how."""

    network: Network
    edits: tuple[Edit, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(edit.warning for edit in self.edits if edit.warning)


class Editor:
    """Edits one after the other; nodes are meant by their name or alias in the source."""

    def __init__(self, source: Network, tensors: Tensors | None = None) -> None:
        self.wiring = Wiring(source, tensors)
        self._habits = Habits.of(source)

    def insert(
        self, after: str, templates: Templates, *, to: str | None = None, port: int | None = None
    ) -> list[str]:
        """Put nodes right behind a node or network input; the names of the new ones.

        The last one takes over all that read it before, or with `to` only the edge to that
        node. `port` is needed where several outputs are used.
        """
        wiring = self.wiring
        name = after if after in wiring.input_names() else wiring.find(after).name
        start, places = self._outlet(name, port)
        if to is not None:
            target = wiring.find(to).name
            start, readers = self._edge(name, places, target)
            made = self._chain(templates, (start,), name)
            for reader in readers:
                wiring.rewire(reader, start, (made[-1], 0))
            wiring.told("insert", made[0], f"{self._texts(made)} between {name} and {target}")
            return made
        made = self._chain(templates, (start,), name)
        taken: list[str] = []
        for place in places:
            taken += wiring.reroute(place, (made[-1], 0), but=made)
        taken = [each for each in taken if not self._sizes_only(each)]
        warning = None
        if len(taken) > 1:
            warning = f"{made[-1]} is now read instead of {name} by {_listed(taken)}"
        wiring.told("insert", made[0], f"{self._texts(made)} after {name}", warning)
        return made

    def insert_before(
        self, node: str, templates: Templates, *, source: str | None = None
    ) -> list[str]:
        """Put nodes right before a node; `source` says which of several inputs is meant."""
        wiring = self.wiring
        target = wiring.find(node)
        ports = wiring.data_ports(target)
        if source is not None:
            wanted = self._producer(source)
            direct = [p for p in ports if p[0] == wanted]
            ports = direct or [p for p in ports if self._from(p) == wanted]
            if not ports:
                raise UsageError(f"`{target.name}` does not read `{source}`")
        if not ports:
            raise UsageError(f"`{target.name}` reads no data", hint="insert after another layer")
        if len(ports) > 1:
            raise UsageError(
                f"`{target.name}` has several inputs",
                why="it reads " + _listed([name for name, _ in ports]),
                hint="give from=NAME",
            )
        made = self._chain(templates, (ports[0],), ports[0][0])
        wiring.rewire(target.name, ports[0], (made[-1], 0))
        wiring.told("insert", made[0], f"{self._texts(made)} before {target.name}")
        return made

    def replace(self, node: str, templates: Templates) -> list[str]:
        """Put nodes in the place of one: the first reads its inputs, the last takes its readers."""
        wiring = self.wiring
        old = wiring.find(node)
        place = wiring.order.index(old.name)
        behind = wiring.order[place - 1] if place else None
        ports = sorted({port for _, port in self._ports(old)})
        for port in ports:  # a new node may have the old one's name
            wiring.reroute((old.name, port), (_NOBODY, port))
        wiring.drop(old.name, "it was replaced before")
        made = self._chain(templates, old.inputs, behind)
        for port in ports:
            wiring.reroute((_NOBODY, port), (made[-1], port))
        wiring.told("replace", old.name, f"{operation_text(old)} by {self._texts(made)}")
        return made

    def delete(self, node: str) -> None:
        """Take out a node; what read it reads what it read."""
        wiring = self.wiring
        old = wiring.find(node)
        outlets = wiring.outlets(old.name)
        sources = [] if old.sizes_only else wiring.data_ports(old)
        if len(sources) > 1:
            raise UsageError(
                f"`{old.name}` has several inputs and cannot be deleted",
                why="it joins " + _listed([name for name, _ in sources]),
                hint="delete one of these edges instead, or replace the layer",
            )
        if outlets and not sources:
            raise UsageError(
                f"`{old.name}` cannot be deleted",
                why="it reads no data that its readers could have instead",
            )
        if any(port for port in outlets):
            raise UsageError(
                f"`{old.name}` cannot be deleted", why="more than its first output is used"
            )
        for places in outlets.values():
            for place in places:
                wiring.reroute(place, sources[0])
                if place[0] != old.name:  # a getitem that has nothing to take from any more
                    wiring.drop(place[0], f"it took an output of {old.name}, which was deleted")
        wiring.drop(old.name, "it was deleted before")
        wiring.told("delete", old.name, operation_text(old))

    def delete_edge(self, source: str, node: str) -> None:
        """Take away an input of a node that has several; a sum of one thing is that thing."""
        wiring = self.wiring
        target, wanted = wiring.find(node), self._producer(source)
        places = [
            i
            for i, port in enumerate(target.inputs)
            if port[0] == wanted or (wiring.carries(port) and self._from(port) == wanted)
        ]
        if not places:
            raise UsageError(f"no edge leads from `{source}` to `{target.name}`")
        if len(places) == len(target.inputs):
            raise UsageError(
                f"this is the only input of `{target.name}`", hint="delete the layer instead"
            )
        shorter = target
        for place in reversed(places):
            recorded = without_input(shorter.source, place)
            if op_of(target).raw and recorded is None:
                raise UsageError(
                    f"`{target.name}` cannot do without this input",
                    why=f"it is an argument of {operation_text(target)}",
                )
            inputs = (*shorter.inputs[:place], *shorter.inputs[place + 1 :])
            shorter = altered(shorter, inputs=inputs, source=recorded)
        wiring.put(shorter)
        wiring.told("delete_edge", target.name, f"no longer reads {wanted}")
        if op_of(target).commutes and not enough(shorter):
            wiring.reroute((target.name, 0), shorter.inputs[0])
            wiring.drop(target.name, "it was deleted before")
            wiring.told("delete", target.name, f"{target.op} of one input")

    def set_attributes(self, node: str, /, **attrs: Any) -> list[str]:
        """Give attributes, or `variant`, other values; nodes that share a tensor follow."""
        wiring = self.wiring
        first = wiring.find(node)
        if not attrs:
            raise UsageError(f"nothing to set for `{first.name}`")
        changed = []
        if "variant" in attrs:
            other = varied(wiring, first, attrs.pop("variant"), attrs, self._habits)
            if other is not first:
                wiring.put(other)
                wiring.told("set", first.name, f"variant {first.variant} -> {other.variant}")
                changed.append(first.name)
            first = other
        for each, given in list(sharing(wiring, first, attrs)) if attrs else ():
            made = resize(wiring, each, given)
            for rule, message in attribute_faults(made):
                raise UsageError(f"`{each.name}`: {message}", why=f"rule: {rule}")
            if made == each:
                continue
            wiring.put(made)
            wiring.touch(made.name, given)
            what = ", ".join(
                f"{key} {_short(each.attrs.get(key))} -> {_short(made.attrs.get(key))}"
                for key in dict.fromkeys([*each.attrs, *made.attrs])
                if each.attrs.get(key) != made.attrs.get(key)
            )
            wiring.told("set", made.name, what)
            changed.append(made.name)
        return changed

    def rename(self, node: str, name: str) -> None:
        """Give a node another name; its tensors keep theirs."""
        wiring = self.wiring
        old = wiring.find(node)
        if name == old.name:
            return
        if not name or wiring.taken(name):
            raise Conflict(f"model `{name}` already exists", hint="choose another name")
        wiring.add(altered(old, name=name), old.name)
        for port in {port for _, port in self._ports(old)}:
            wiring.reroute((old.name, port), (name, port))
        wiring.drop(old.name, f"its name is now {name}")
        wiring.touch(name, wiring.touched.get(old.name, ()))
        wiring.renamed[name] = wiring.renamed.get(old.name, old.name)
        wiring.told("rename", old.name, name)

    def finish(self) -> Derived:
        """Let sizes follow, drop what nothing needs any more, and check all of it."""
        network = finish(self.wiring)
        return Derived(network, tuple(self.wiring.edits))

    # Parts

    def _producer(self, text: str) -> str:
        wiring = self.wiring
        if text in wiring.input_names() or text in wiring.source.constants:
            return text
        return wiring.find(text).name

    def _from(self, port: Port) -> str | None:
        """The layer whose data stand at a port."""
        found = self.wiring.data(port)
        return None if found is None else found[0]

    def _sizes_only(self, name: str) -> bool:
        return name in self.wiring.nodes and self.wiring.nodes[name].sizes_only

    def _ports(self, node: Node) -> set[Port]:
        found = {p for user in self.wiring.users(node.name) for p in user.inputs}
        return {p for p in (*found, *self.wiring.outputs) if p[0] == node.name}

    def _outlet(self, name: str, port: int | None) -> tuple[Port, list[Port]]:
        """Where to attach behind a node: the port, and all ports at which its value is had."""
        outlets = self.wiring.outlets(name)
        node = self.wiring.nodes.get(name)
        if node is not None and op_of(node).gives_number(node):
            raise UsageError(
                f"`{name}` gives a number, no tensor",
                why=f"{operation_text(node)} is arithmetic",
                hint="insert after a layer",
            )
        if port is None:
            if len(outlets) > 1 and node is not None and (node.plumbing or op_of(node).raw):
                raise UsageError(
                    f"`{name}` has several outputs",
                    why="used are " + ", ".join(map(str, outlets)),
                    hint="give port=N",
                )
            port = next(iter(outlets)) if len(outlets) == 1 else 0
        places = outlets.get(port) or [(name, port)]
        return places[0], places

    def _edge(self, name: str, places: Sequence[Port], target: str) -> tuple[Port, list[str]]:
        """Where the edge to `target` can be split, as near to the start as it is only its own."""
        wiring = self.wiring
        found: dict[Port, list[str]] = {}
        todo = list(places)
        while todo:
            port = todo.pop(0)
            for reader in wiring.readers(port):
                if reader.name == target:
                    found.setdefault(port, []).append(reader.name)
                elif reader.plumbing and not reader.sizes_only:
                    ends = wiring.consumers(reader)
                    if ends == {target}:
                        found.setdefault(port, []).append(reader.name)
                    elif target in ends:
                        todo.append((reader.name, 0))
        if not found:
            raise UsageError(f"no edge leads from `{name}` to `{target}`")
        if len(found) > 1:
            raise UsageError(
                f"`{name}` reaches `{target}` in several ways",
                why="through " + _listed([reader for each in found.values() for reader in each]),
                hint="insert after or before one of these",
            )
        return next(iter(found.items()))

    def _chain(
        self, templates: Templates, inputs: tuple[Port, ...], behind: str | None
    ) -> list[str]:
        """New nodes, each reading the one before."""
        wiring = self.wiring
        made: list[str] = []
        for each in [templates] if isinstance(templates, Template) else list(templates):
            name = each.name or wiring.free(OPS[each.op].word)
            further = tuple((self._producer(also), 0) for also in each.also)
            known = wiring.shape(inputs[0]) if inputs else None
            node = build(each, name, (*inputs, *further), known, self._habits)
            wiring.add(node, behind)
            shapes = [wiring.shape(port) for port in node.inputs]
            try:
                sound = not attribute_faults(node) and enough(node)
                wiring.know(name, op_of(node).shape(node, shapes) if sound else (None,))
            except (ShapeError, FieldError):
                wiring.know(name, (None,))
            inputs, behind = ((name, 0),), name
            made.append(name)
        if not made:
            raise UsageError("no template was given")
        return made

    def _texts(self, names: Sequence[str]) -> str:
        nodes = self.wiring.nodes
        return ", ".join(f"{name} ({operation_text(nodes[name])})" for name in names)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_short, value)) + "]"
    return "none" if value is None else str(value)


Action = Callable[[Editor], object]


def edit(network: Network, actions: Iterable[Action], *, tensors: Tensors | None = None) -> Derived:
    """Several actions, in order, on one network; it is checked when all are done."""
    editor = Editor(network, tensors)
    for action in actions:
        action(editor)
    return editor.finish()


def insert(
    network: Network,
    after: str,
    templates: Templates,
    *,
    to: str | None = None,
    port: int | None = None,
) -> Derived:
    """One node or a chain right behind `after`; with `to` on that edge only."""
    return edit(network, [lambda e: e.insert(after, templates, to=to, port=port)])


def insert_before(
    network: Network, node: str, templates: Templates, *, source: str | None = None
) -> Derived:
    return edit(network, [lambda e: e.insert_before(node, templates, source=source)])


def replace(network: Network, node: str, templates: Templates) -> Derived:
    return edit(network, [lambda e: e.replace(node, templates)])


def delete(network: Network, node: str) -> Derived:
    return edit(network, [lambda e: e.delete(node)])


def delete_edge(network: Network, source: str, node: str) -> Derived:
    return edit(network, [lambda e: e.delete_edge(source, node)])


def set_attributes(network: Network, node: str, /, **attrs: Any) -> Derived:
    return edit(network, [lambda e: e.set_attributes(node, **attrs)])


def rename(network: Network, names: Mapping[str, str]) -> Derived:
    """Other names for nodes: old -> new."""

    def all_of(editor: Editor) -> None:
        for old, new in names.items():
            editor.rename(old, new)

    return edit(network, [all_of])
