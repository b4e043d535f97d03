"""Bound derivations written by hand, and networks to derive from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlv.dql.bind.bound import Change, Chosen, Cut, Derivation, Insert, Making
from dlv.dql.deriving import Origin
from dlv.metadata.select.relations import (
    Fitting,
    Hop,
    Item,
    Named,
    Nodal,
    Nodes,
    Query,
    Select,
    Source,
    Step,
    Whole,
)
from dlv.network.graph import Network
from dlv.network.inference import Tensors, input_shapes, node_shapes
from dlv.network.json_form import read
from dlv.network.ops.op import op_of
from dlv.network.patterns import Pattern
from dlv.network.selector import selector

NEXT, PREV = Hop(forward=True), Hop(forward=False)
NEXT_RAW, PREV_RAW = Hop(forward=True, raw=True), Hop(forward=False, raw=True)
ANY = Query(Select((Item("m", Whole("m")),), (Source("m"),)))


def named(text: str) -> Named:
    return Named(selector(text))


def fitting(op: str, variant: str | None = None) -> Fitting:
    return Fitting((Pattern(op, variant),))


def nodes(start: str | Nodal, *steps: Step | str) -> Nodes:
    """`m["start"]`, then hops and further selectors."""
    return Nodes(
        "m",
        named(start) if isinstance(start, str) else start,
        tuple(named(step) if isinstance(step, str) else step for step in steps),
    )


def making(op: str, *words: str, **attrs: Any) -> Making:
    """As a template reads: the variant first, where there are some, then the name."""
    variant = words[0] if op in ("POOL", "NORM", "ACT", "RNN") else None
    rest = words[1:] if variant is not None else words
    return Making(op, variant, rest[0] if rest else None, tuple(attrs.items()))


def insert(start: str | Nodes, *makings: Making, **rest: Any) -> Insert:
    where = nodes(start) if isinstance(start, str) else start
    return Insert(where, makings, **rest)


def construct(
    *changes: Change, each: bool = False, chosen: Sequence[Chosen] = (), into: str | None = None
) -> Derivation:
    return Derivation(
        "construct", "d", "m", ANY, changes, one_per_match=each, chosen=tuple(chosen), into=into
    )


def sliced(
    inputs: str | Sequence[str], outputs: str | Sequence[str], support: str = "keep", **rest: Any
) -> Derivation:
    one, other = (
        tuple(nodes(each) for each in ([side] if isinstance(side, str) else side))
        for side in (inputs, outputs)
    )
    return Derivation("slice", "s", "m", ANY, Cut(one, other, support), **rest)


# Networks


def node(name: str, op: str, inputs: Sequence[str], **attrs: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "op": op, "inputs": list(inputs), "attrs": attrs}
    if "variant" in attrs:
        made["variant"] = attrs.pop("variant")
    if op in ("CONV", "FULL"):
        made["params"] = {slot: f"{name}.{slot}" for slot in ("weight", "bias")}
    return made


def chain(*made: dict[str, Any], shape: Sequence[int] = (3, 32, 32)) -> Network:
    """A network on maps, from input `data` to the last node."""
    network, warnings = read(
        {
            "dlv_network": 1,
            "inputs": [{"name": "data", "shape": ["B", *shape]}],
            "nodes": list(made),
            "outputs": [made[-1]["name"]],
        }
    )
    assert warnings == []
    return network


def alexnet(pool: str = "AVG") -> Network:
    """As the paper's: pools behind conv1, conv2 and conv5, of one kind."""
    return chain(
        node("conv1", "CONV", ["data"], out=8, kernel=3, pad=1),
        node("pool1", "POOL", ["conv1"], variant=pool, kernel=2, stride=2),
        node("conv2", "CONV", ["pool1"], out=8, kernel=3, pad=1),
        node("pool2", "POOL", ["conv2"], variant=pool, kernel=2, stride=2),
        node("conv3", "CONV", ["pool2"], out=8, kernel=3, pad=1),
        node("conv4", "CONV", ["conv3"], out=8, kernel=3, pad=1),
        node("conv5", "CONV", ["conv4"], out=8, kernel=3, pad=1),
        node("pool5", "POOL", ["conv5"], variant=pool, kernel=2, stride=2),
        node("flat", "RESHAPE", ["pool5"], kind="flatten"),
        node("fc6", "FULL", ["flat"], out=32),
        node("drop6", "DROPOUT", ["fc6"]),
        node("fc7", "FULL", ["drop6"], out=32),
        node("fc8", "FULL", ["fc7"], out=10),
    )


def forked() -> Network:
    """A skip connection beside two convolutions."""
    return chain(
        node("stem", "CONV", ["data"], out=8, kernel=3, pad=1),
        node("a", "CONV", ["stem"], out=8, kernel=3, pad=1),
        node("relu", "RELU", ["a"]),
        node("b", "CONV", ["relu"], out=8, kernel=3, pad=1),
        node("add", "ADD", ["b", "stem"]),
        node("pool", "POOL", ["add"], variant="MAX", kernel=2, stride=2),
        node("flat", "RESHAPE", ["pool"], kind="flatten"),
        node("fc", "FULL", ["flat"], out=10),
    )


def tensors(network: Network) -> Tensors:
    """What would be stored with it."""
    shapes = node_shapes(network)
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for each in network.nodes:
        wanted = op_of(each).parameter_shapes(each, input_shapes(each, shapes))
        for slot, name in each.params.items():
            shape = wanted[slot]
            assert shape is not None
            found[name] = ("float32", tuple(dim for dim in shape if isinstance(dim, int)))
    return found


def origin(network: Network, label: str = "net@1", version: str = "1" * 64) -> Origin:
    return Origin(label, version, network, tensors(network))
