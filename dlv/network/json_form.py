"""The plain network JSON that people write and `dlv desc --json` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dlv.canonical import HASH, dumps
from dlv.errors import NewerFormat, UsageError, nearest
from dlv.network.fields import FieldError, dtype, label, labels, shape, shown, whole
from dlv.network.graph import FORMAT, Input, Network, Node, Port
from dlv.network.inference import node_shapes
from dlv.network.sizes import Shape
from dlv.network.verify import infer
from dlv.network.vocabulary import OPS, RAW, axes_of, complete

# What `write` derives for readers; ignored when read.
_DERIVED = ("alias", "out_shape", "edges", "origin")
_NETWORK_KEYS = ("dlv_network", "inputs", "nodes", "outputs", "constants", "aliases", *_DERIVED)
_NODE_KEYS = ("name", "op", "variant", "attrs", "inputs", "params", "source", *_DERIVED)
_INPUT_KEYS = ("name", "shape", "dtype", *_DERIVED)


def read(data: Any) -> tuple[Network, list[str]]:
    """A network from its plain or canonical JSON, and warnings about operations not known."""
    if not isinstance(data, dict):
        raise UsageError("a network is a JSON object", hint='it begins {"dlv_network": 1, ..')
    if "dlv_network" not in data:
        raise UsageError("this is not a network: the key 'dlv_network' is missing")
    if data["dlv_network"] != FORMAT or not whole(data["dlv_network"]):
        raise NewerFormat(
            f"network format {shown(data['dlv_network'])} is unknown to this dlv version",
            why=f"it reads format {FORMAT}",
        )
    warnings: list[str] = []
    _known(data, _NETWORK_KEYS, "the network")
    with_constants = _labels(data, "constants", "the network")
    for name, value in with_constants.items():
        if not HASH.match(value):
            raise UsageError(f"constant {name!r} is {shown(value)}, not a tensor hash")
    inputs = tuple(_input(item, place) for place, item in enumerate(_list(data, "inputs", "")))
    items = _list(data, "nodes", "")
    names = [_name(item, f"node {place}") for place, item in enumerate(items)]
    known = {*names, *with_constants, *(item.name for item in inputs)}
    nodes, waiting = [], {}
    for place, (item, name) in enumerate(zip(items, names, strict=True)):
        node, open_attrs = _node(item, name, known, warnings)
        nodes.append(node)
        if open_attrs is not None:
            waiting[place] = open_attrs
    outputs = tuple(_port(item, known, "outputs") for item in _list(data, "outputs", ""))
    aliases = _labels(data, "aliases", "the network")
    network = Network(inputs, tuple(nodes), outputs, with_constants, aliases)
    if waiting:
        network = _fill_axes(network, waiting)
    return network, warnings


def write(network: Network) -> dict[str, Any]:
    """The canonical form, readable, with what follows from it: alias, out_shape, edges, origin."""
    form = network.canonical()
    inferred = infer(network)
    aliases = network.node_aliases()
    known = {node.name for node in network.nodes} | network.input_names | {*network.constants}
    for data, node in zip(form["nodes"], inferred.nodes, strict=True):
        data["alias"] = aliases.get(node.name)
        data["out_shape"] = None if node.out_shape is None else list(node.out_shape)
        data["inputs"] = [_port_text(port, known) for port in node.inputs]
    form["outputs"] = [_port_text(port, known) for port in network.outputs]
    form["edges"] = [
        {
            "src": edge.src,
            "src_port": edge.src_port,
            "dst": edge.dst,
            "dst_port": edge.dst_port,
            "direct": edge.direct,
        }
        for edge in network.logical_edges()
    ]
    form["origin"] = None if network.origin is None else dict(network.origin)
    return form


def _port_text(port: Port, known: set[str]) -> str | list[Any]:
    name, number = port
    text = name if not number else f"{name}:{number}"
    safe = name in known if not number else (":" not in name and text not in known)
    return text if safe else [name, number]


def _port(item: Any, known: set[str], where: str) -> Port:
    """A reference: a name, "name:1", or ["name", 1]."""
    if isinstance(item, str) and item:
        name, colon, digits = item.rpartition(":")
        if item in known or not colon or not name or not (digits.isdecimal() and digits.isascii()):
            return label(item, where), 0
        if len(digits) <= 9:
            return label(name, where), int(digits)
    elif isinstance(item, list) and len(item) == 2 and whole(item[1]) and item[1] >= 0:
        return label(item[0], where), item[1]
    raise UsageError(
        f"{where}: {shown(item)} is not a reference", hint='write "name", "name:1" or ["name", 1]'
    )


def _known(data: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    for key in data:
        if key not in keys:
            raise UsageError(f"{where}: unknown key {shown(key)}", did_you_mean=nearest(key, keys))


def _list(data: Mapping[str, Any], key: str, where: str, default: Any = None) -> list[Any]:
    value = data.get(key, default)
    if isinstance(value, list):
        return value
    where = where or "the network"
    if key not in data:
        raise UsageError(f"{where}: the key {key!r} is missing")
    raise UsageError(f"{where}: {key!r} is {shown(value)}, not a list")


def _labels(data: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    value = data.get(key)
    return {} if value is None else _at(where, labels, value, repr(key))


def _at(where: str, call: Any, *arguments: Any, **options: Any) -> Any:
    """Run a check; what it finds is told with the place."""
    try:
        return call(*arguments, **options)
    except FieldError as error:
        raise UsageError(
            f"{where}: {error.message}",
            why=error.why,
            hint=error.hint,
            did_you_mean=error.did_you_mean,
        ) from error


def _name(item: Any, where: str) -> str:
    if not isinstance(item, dict):
        raise UsageError(f"{where} is {shown(item)}, not an object")
    if "name" not in item:
        _known(item, _NODE_KEYS, where)
        raise UsageError(f"{where} has no name")
    name: str = _at(where, label, item["name"], "its name")
    return name


def _input(item: Any, place: int) -> Input:
    name = _name(item, f"input {place}")
    where = f"input {name!r}"
    _known(item, _INPUT_KEYS, where)
    if "shape" not in item:
        raise UsageError(f"{where}: the key 'shape' is missing")
    return Input(
        name,
        _at(where, shape, item["shape"], "shape"),
        _at(where, dtype, item.get("dtype", "float32"), "dtype"),
    )


def _node(
    item: dict[str, Any], name: str, known: set[str], warnings: list[str]
) -> tuple[Node, dict[str, Any] | None]:
    """A node, and its attributes as given if the number of axes is still to be found."""
    where = f"node {name!r}"
    _known(item, _NODE_KEYS, where)
    op, variant, given = item.get("op"), item.get("variant"), item.get("attrs")
    given = {} if given is None else given
    if not isinstance(op, str) or not op:
        raise UsageError(f"{where}: 'op' is {shown(op)}, not the name of an operation")
    if not isinstance(given, dict):
        raise UsageError(f"{where}: 'attrs' is {shown(given)}, not an object")
    source = item.get("source")
    if source is not None and not isinstance(source, dict):
        raise UsageError(f"{where}: 'source' is {shown(source)}, not an object")
    if op not in OPS:
        close = nearest(op, OPS)
        meant = f" (did you mean {close[0]}?)" if close else ""
        warnings.append(f"{where}: {op!r} is not in the vocabulary{meant}; stored as OP raw")
        full = op if variant is None else f"{op}{{{variant}}}"
        source = source or {"dialect": "json", "op": full, "args": [], "kwargs": given}
        op, variant, given = RAW, "raw", {}
    elif op == RAW and variant is None:
        variant = "raw"
    _check_variant(where, op, variant)
    if source is not None:
        try:
            dumps(source)
        except (ValueError, UnicodeEncodeError) as error:
            raise UsageError(f"{where}: 'source' cannot be stored", why=str(error)) from error
    params = _labels(item, "params", where)
    inputs = tuple(_port(port, known, where) for port in _list(item, "inputs", where, []))
    recorded = item.get("out_shape") if OPS[op].raw else None
    axes, scalars = _at(where, axes_of, op, variant, given)
    instead = {each.unless for each in OPS[op].attributes if each.unless}
    adaptive = any(given.get(name) is not None for name in instead)
    wait = axes is None and bool(scalars) and not adaptive
    attrs = _at(where, complete, op, variant, given, axes=2 if wait else axes, params=params)
    out_shape: Shape | None = None
    if recorded is not None:
        out_shape = _at(where, shape, recorded, "out_shape")
    node = Node(name, op, variant, attrs, inputs, params, source, out_shape)
    return node, given if wait else None


def _check_variant(where: str, op: str, variant: Any) -> None:
    variants = OPS[op].variants
    if not variants:
        if variant is not None:
            raise UsageError(f"{where}: {op} has no variants, but 'variant' is {shown(variant)}")
    elif variant not in variants:
        raise UsageError(
            f"{where}: 'variant' of {op} is {shown(variant)}",
            why="it is one of " + ", ".join(variants),
            did_you_mean=nearest(variant, variants) if isinstance(variant, str) else (),
        )


def _fill_axes(network: Network, waiting: Mapping[int, Mapping[str, Any]]) -> Network:
    """Scalars become one entry per axis; how many axes there are, the input's rank says."""
    places = {id(network.nodes[place]): place for place in waiting}
    nodes = list(network.nodes)

    def settle(node: Node, shapes: list[Shape | None]) -> Node:
        place = places.get(id(node))
        if place is None:
            return node
        first = shapes[0] if shapes else None
        axes = None if first is None or len(first) < 3 else len(first) - 2
        nodes[place] = replace(
            node,
            attrs=_at(
                f"node {node.name!r}",
                complete,
                node.op,
                node.variant,
                waiting[place],
                axes=axes,
                params=node.params,
            ),
        )
        return nodes[place]

    node_shapes(network, settle=settle)
    for place in waiting:
        if nodes[place] is network.nodes[place]:
            # On a cycle, or a second node of one name: no shape will ever reach it.
            settle(network.nodes[place], [])
    return replace(network, nodes=tuple(nodes))
