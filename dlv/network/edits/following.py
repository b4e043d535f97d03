"""What follows from an edit: sizes that were computed from others, dead nodes, and the check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlv.errors import UsageError, nearest
from dlv.network.drawing import operation_text
from dlv.network.edits.wiring import Wiring
from dlv.network.fields import FieldError
from dlv.network.graph import Network, Node
from dlv.network.inference import attribute_faults, enough, input_shapes, node_shapes
from dlv.network.ops.op import op_of
from dlv.network.order import reached
from dlv.network.patterns import Habits, Template, build
from dlv.network.sizes import Shape, ShapeError
from dlv.network.verify import Problem, verify
from dlv.network.vocabulary import OPS, attributes, complete, slots

_STORAGE = ("layout", "channels")
_WINDOW = ("kernel", "stride", "pad", "dilation")


def resize(wiring: Wiring, node: Node, changes: Mapping[str, Any]) -> Node:
    """The node with other attributes, its slots as they then must be; the source is dropped."""
    if op_of(node).raw:
        raise UsageError(
            f"`{node.name}` has no attributes", why="its operation is none that dlv knows"
        )
    known = attributes(node.op, node.variant, node.attrs)
    for name in _STORAGE:
        if name in changes and changes[name] != node.attrs.get(name):
            raise UsageError(
                f"`{name}` of `{node.name}` cannot be set",
                why="it determines how the weights are stored",
            )
    attrs: dict[str, Any] = {**node.attrs, **changes}
    if node.attrs.get("size") is None and changes.get("size") is not None:
        attrs.update(dict.fromkeys(_WINDOW))
    elif node.attrs.get("size") is not None and any(name in changes for name in _WINDOW):
        for name in ("size", *_WINDOW):
            if name not in changes:
                attrs.pop(name, None)
    shape = wiring.shape(node.inputs[0]) if node.inputs else None
    try:
        done = complete(
            node.op,
            node.variant,
            {k: v for k, v in attrs.items() if v is not None or k not in _WINDOW},
            axes=None if shape is None or len(shape) < 3 else len(shape) - 2,
            params=node.params,
        )
    except FieldError as error:
        raise UsageError(
            f"`{node.name}`: {error.message}",
            why=error.why or (f"{node.op} has " + ", ".join(known) if known else None),
            hint=error.hint,
            did_you_mean=error.did_you_mean,
        ) from error
    if done == dict(node.attrs):
        return node
    params = _slots(node, done)
    if op_of(node).recurrent:
        _start_states(wiring, replace(node, attrs=done, params=params))
    return replace(node, attrs=done, params=params, source=None)


def varied(
    wiring: Wiring, node: Node, variant: str, changes: Mapping[str, Any], habits: Habits
) -> Node:
    """The node as another variant: what both have in common stays, the rest is as in a new one."""
    known = () if op_of(node).raw else OPS[node.op].variants
    if not known:
        raise UsageError(f"`{node.name}` has no variants", why=f"{node.op} is of one kind")
    if variant not in known:
        raise UsageError(
            f"{node.op} has no variant {variant!r}",
            why="it is one of " + ", ".join(known),
            did_you_mean=nearest(str(variant), known),
        )
    if variant == node.variant:
        return node
    before, after = (attributes(node.op, each) for each in (node.variant, variant))
    kept = {
        name: value
        for name, value in node.attrs.items()
        if before[name] == after.get(name) and (value is not None or name not in _WINDOW)
    }
    shape = wiring.shape(node.inputs[0]) if node.inputs else None
    kept.update({name: value for name, value in changes.items() if name in after})
    template = Template(node.op, variant, node.name, kept)
    made = build(template, node.name, node.inputs, shape, habits)
    had = {slot.name for slot in slots(node.op, node.variant, node.attrs)}
    params = {}
    for slot in slots(node.op, variant, made.attrs):
        # Statistics are another thing to another variant: it has them where a new one has.
        own = slot.name in node.params and (not slot.buffer or slot.name in made.params)
        if own or (slot.name in made.params and slot.name not in had):
            params[slot.name] = node.params.get(slot.name) or made.params[slot.name]
    return replace(made, params=params)


def _slots(node: Node, attrs: Mapping[str, Any]) -> dict[str, str]:
    """Its tensors under the new attributes; new ones are called as the others are."""
    wanted = slots(node.op, node.variant, attrs)
    names = {slot.name for slot in wanted}
    stem = node.name
    for slot, name in node.params.items():
        if name.endswith(f".{slot}"):
            stem = name.removesuffix(f".{slot}")
            break
    params = {slot: name for slot, name in node.params.items() if slot in names}
    for item in wanted:
        if item.when == "bias" and not attrs["bias"]:
            params.pop(item.name, None)
        elif item.when == "always" or item.when == "bias":
            params.setdefault(item.name, f"{stem}.{item.name}")
    return params


def _start_states(wiring: Wiring, node: Node) -> None:
    """Zeros from which a recurrent layer starts get its new size."""
    shapes = [wiring.shape(node.inputs[0]), *[None] * (len(node.inputs) - 1)]
    states = op_of(node).shape(node, shapes)[1:]
    for (name, _), state in zip(node.inputs[1:], states, strict=False):
        fill = wiring.nodes.get(name)
        if fill is None or fill.attrs.get("kind") != "fill" or state is None:
            continue
        size = tuple(
            was if isinstance(new, str | None) else new
            for new, was in zip(state, fill.attrs["size"], strict=True)
        )
        if size != fill.attrs["size"]:
            wiring.put(replace(fill, attrs={**fill.attrs, "size": size}, source=None))
            wiring.touch(fill.name, ("size",))
            wiring.told("follow", fill.name, f"size {list(size)}, as {node.name} needs it")


def sharing(
    wiring: Wiring, first: Node, changes: Mapping[str, Any]
) -> Iterator[tuple[Node, dict[str, Any]]]:
    """The node, and those that hold a tensor together with it, with what each is to be given."""
    kept = wiring.source.aliases
    made = {first.name: dict(changes)}
    todo = [first]
    while todo:
        node = todo.pop()
        before = _parameters(wiring, node)
        after = _parameters(wiring, resize_quietly(node, made[node.name]))
        for slot, name in node.params.items():
            old, new = before.get(slot), after.get(slot)
            if old is None or new is None or old == new:
                continue
            for other in wiring.nodes.values():
                for place, theirs in other.params.items():
                    if other.name not in made and kept.get(theirs, theirs) == kept.get(name, name):
                        wanted = op_of(other).adopted(other, place, new)
                        made[other.name] = {
                            key: value
                            for key, value in wanted.items()
                            if value is not None and other.attrs.get(key) != value
                        }
                        todo.append(other)
    for name, attrs in made.items():
        if attrs or name == first.name:
            yield wiring.nodes[name], attrs


def resize_quietly(node: Node, changes: Mapping[str, Any]) -> Node:
    """For a look at parameter shapes: what cannot be set is left out."""
    try:
        attrs = complete(
            node.op, node.variant, {**node.attrs, **changes}, axes=None, params=node.params
        )
    except FieldError:
        return node
    return replace(node, attrs=attrs)


def _parameters(wiring: Wiring, node: Node) -> Mapping[str, Shape | None]:
    if attribute_faults(node) or not enough(node):
        return {}
    try:
        return op_of(node).parameter_shapes(node, [wiring.shape(p) for p in node.inputs])
    except ShapeError:
        return {}


# The end of an edit


def finish(wiring: Wiring) -> Network:
    """The network of a wiring: what nothing needs dropped, sizes followed, all of it checked."""
    _prune(wiring)
    before = node_shapes(wiring.source, wiring.tensors)
    was = {node.name: (node, input_shapes(node, before)) for node in wiring.source.nodes}
    settled: dict[str, Node] = {}

    def settle(node: Node, inputs: list[Shape | None]) -> Node:
        known = was.get(wiring.renamed.get(node.name, node.name))
        if known is None or known[0].op != node.op or known[1] == inputs:
            return node
        if op_of(node).raw:
            settled[node.name] = _unknown(wiring, node)
        else:
            settled[node.name] = _followed(wiring, node, known[1], inputs)
        return settled.get(node.name, node)

    network = wiring.network()
    if not network.cyclic:
        node_shapes(network, wiring.tensors, settle=settle)
    for node in settled.values():
        wiring.put(node)
    network = wiring.network()
    check_sound(wiring.source, network)
    return network


def _unknown(wiring: Wiring, node: Node) -> Node:
    """An operation that dlv does not know reads another shape: nobody knows what it makes of it."""
    if node.out_shape is not None:
        name = operation_text(node)
        wiring.told(
            *("follow", node.name, "reads another shape, its output's is no longer known"),
            f"`{node.name}` ({name}) reads another shape now: what is after it is not resized,"
            " nor checked",
        )
    return replace(node, out_shape=None)


def _prune(wiring: Wiring) -> None:
    """Drop what no output needs now, if one did before."""
    ends = [name for name, _ in wiring.source.outputs]
    before = _alive({node.name: node for node in wiring.source.nodes}, ends)
    alive = _alive(wiring.nodes, [name for name, _ in wiring.outputs])
    for name in list(wiring.order):
        if name not in alive and wiring.renamed.get(name, name) in before:
            node = wiring.nodes[name]
            wiring.drop(name, "it was unused")
            if not node.plumbing:
                wiring.told("prune", name, "no output needs it")


def _alive(nodes: Mapping[str, Node], ends: Sequence[str]) -> set[str]:
    def producers(name: str) -> list[str]:
        return [producer for producer, _ in nodes[name].inputs] if name in nodes else []

    always = (node.name for node in nodes.values() if op_of(node).always_needed)
    return reached([*ends, *always], producers)


def _followed(
    wiring: Wiring, node: Node, before: Sequence[Shape | None], now: Sequence[Shape | None]
) -> Node:
    """The node with the attributes that only say what its input's shape said."""
    if not before or before[0] is None or not now or now[0] is None:
        return node
    if op_of(node).source_has_lengths:
        node = replace(node, source=None)  # which may hold the lengths as they were
    touched = wiring.touched.get(node.name, set())
    attrs = {
        key: value
        for key, value in op_of(node).following(node, before[0], now[0]).items()
        if key not in touched and node.attrs[key] != value
    }
    if not attrs:
        return node
    text = ", ".join(f"{key} {_text(node.attrs[key])} -> {_text(attrs[key])}" for key in attrs)
    wiring.told("follow", node.name, f"{text}, like its input")
    return replace(node, attrs={**node.attrs, **attrs}, source=None)


def _text(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


def check_sound(source: Network, network: Network) -> None:
    """UsageError if the network is not sound, naming the node and what is wrong with it."""
    faults = [problem for problem in verify(network) if problem.severity == "error"]
    if not faults:
        return
    known = [(p.node, p.rule) for p in verify(source) if p.severity == "error"]
    fresh = [fault for fault in faults if (fault.node, fault.rule) not in known]
    first = (fresh or faults)[0]
    more = [str(fault) for fault in (fresh or faults)[1:4]]
    where = f"at `{first.node}`" if first.node else "as a whole"
    raise UsageError(
        f"the network would be invalid {where}: {_said(first)}"
        if fresh
        else f"the network is already invalid {where}: {_said(first)}",
        why="; ".join(more) or None,
    )


def _said(problem: Problem) -> str:
    detail = f" ({problem.seen}, expected {problem.wanted})" if problem.seen else ""
    return problem.message + detail
