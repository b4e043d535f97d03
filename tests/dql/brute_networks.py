"""Networks for made-up repositories: some like known ones, some with edges drawn by lot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from dlv.network.graph import Network
from dlv.network.json_form import read

Nodes = list[dict[str, Any]]

_IMAGE = {"name": "x", "shape": ["B", 4, 8, 8], "dtype": "float32"}


def network(nodes: Nodes, outputs: Sequence[str] | None = None) -> Network:
    form = {"dlv_network": 1, "inputs": [_IMAGE], "nodes": nodes}
    return read({**form, "outputs": list(outputs or [nodes[-1]["name"]])})[0]


def node(name: str, op: str, *inputs: str, variant: str | None = None, **attrs: Any) -> Any:
    source = {"dialect": "aten", "op": attrs.pop("raw")} if "raw" in attrs else None
    if isinstance(attrs.get("kernel"), int):
        attrs["kernel"] = [attrs["kernel"]] * 2
    made: dict[str, Any] = {"name": name, "op": op, "inputs": list(inputs), "attrs": attrs}
    if variant is not None:
        made["variant"] = variant
    if source is not None:
        made["source"] = source
    if op in ("CONV", "FULL"):
        made["params"] = {"weight": f"{name}.weight"}
        if attrs.get("bias", True):
            made["params"]["bias"] = f"{name}.bias"
    return made


def alexnet(pool: str, relu: bool) -> Nodes:
    """conv1 to conv5, of which 1, 3 and 5 are pooled."""
    nodes, below = [], "x"
    for number in range(1, 6):
        nodes.append(node(f"conv{number}", "CONV", below, out=4 * number, kernel=3, pad=1))
        below = f"conv{number}"
        if relu:
            nodes.append(node(f"relu{number}", "RELU", below))
            below = f"relu{number}"
        if number % 2:
            nodes.append(
                node(f"pool{number}", "POOL", below, variant=pool, kernel=2, stride=1, pad=1)
            )
            below = f"pool{number}"
    nodes.append(node("flat", "RESHAPE", below, kind="flatten"))
    nodes += [node("fc6", "FULL", "flat", out=32), node("relu6", "RELU", "fc6")]
    nodes += [node("drop6", "DROPOUT", "relu6", p=0.5), node("fc7", "FULL", "drop6", out=10)]
    return [*nodes, node("prob", "SOFTMAX", "fc7")]


def torch_like() -> Nodes:
    """Names that are places in a module, so that paper-like selectors go by alias."""
    return [
        node("features.0", "CONV", "x", out=8, kernel=[3, 3], pad=1, bias=False),
        node("features.1", "NORM", "features.0", variant="BATCH"),
        node("features.2", "RELU", "features.1"),
        node("features.3", "POOL", "features.2", variant="MAX", kernel=2, stride=2),
        node("features.4", "CONV", "features.3", out=16, kernel=[3, 5], pad=1),
        node("features.5", "POOL", "features.4", variant="MAX", kernel=2, stride=2),
        node("flatten", "RESHAPE", "features.5", kind="flatten"),
        node("classifier.0", "FULL", "flatten", out=10),
    ]


def crossed() -> Nodes:
    """Stored out of order, with branches, and with names that are other nodes' aliases."""
    return [
        node("sum", "ADD", "conv1", "shortcut"),
        node("conv2", "CONV", "x", out=4, kernel=3, pad=1),
        node("conv1", "CONV", "conv2", out=4, kernel=1),
        node("shortcut", "RESHAPE", "conv2", kind="contiguous"),
        node("pool2", "POOL", "sum", variant="AVG", kernel=3, stride=1, pad=1),
        node("both", "CONCAT", "pool2", "shortcut", "conv1"),
        node("out", "RELU", "both"),
    ]


def attending() -> Nodes:
    """Heads behind plumbing, sizes, an operation that is not known, and its getitem nodes."""
    nodes = [node(name, "FULL", "x", out=8) for name in ("q", "k", "v")]
    nodes += [node(f"{name}.view", "RESHAPE", name, kind="contiguous") for name in ("q", "k", "v")]
    nodes += [
        node("attention1", "ATTENTION", "q.view", "k.view", "v.view", heads=2),
        node("size", "RESHAPE", "attention1", kind="size", axis=0),
        node("roll", "OP", "attention1", "size", variant="raw", raw="aten.roll.default"),
        node("first", "RESHAPE", "roll", kind="getitem", index=0),
        node("second", "RESHAPE", "roll", kind="getitem", index=1),
        node("mix", "MUL", "first", "second"),
        node("act", "ACT", "mix", variant="GELU"),
        node("norm", "NORM", "act", variant="LAYER"),
        node("plus", "ADD", "norm", "x"),
    ]
    return nodes


_NAMES = (
    "conv{}",
    "conv{}",
    "fc{}",
    "pool{}",
    "relu{}",
    "layer{}.0",
    "block.{}",
    "Conv{}",
    "n[{}]",
)


def drawn(lot: Random) -> Nodes:
    """Operations and edges by lot."""
    nodes: Nodes = []
    known = ["x"]
    for number in range(1, lot.randint(1, 14) + 1):
        name = lot.choice(_NAMES).format(number)
        below, other = known[-1] if lot.random() < 0.6 else lot.choice(known), lot.choice(known)
        made = [
            node(name, "CONV", below, out=lot.choice((4, 8, 64)), kernel=lot.choice((1, 3)), pad=1),
            node(name, "CONV", below, out=4, kernel=[3, 5], pad=1, bias=lot.random() < 0.5),
            node(name, "POOL", below, variant=lot.choice(("MAX", "AVG")), kernel=2, stride=1),
            node(name, "RELU", below, slope=lot.choice((0.0, 0.25))),
            node(name, "NORM", below, variant=lot.choice(("BATCH", "LAYER"))),
            node(name, "ADD", below, other),
            node(name, "CONCAT", below, other, lot.choice(known)),
            node(name, "FULL", below, out=lot.choice((10, 32))),
            node(name, "DROPOUT", below, p=lot.choice((0.25, 0.5))),
            node(name, "ACT", below, variant=lot.choice(("GELU", "TANH"))),
            node(name, "RESHAPE", below, kind=lot.choice(("contiguous", "flatten"))),
            node(name, "RESHAPE", below, kind="size", axis=0),
            node(
                name, "OP", below, other, variant="raw", raw=lot.choice(("aten.fft", "aten.roll"))
            ),
        ]
        nodes.append(lot.choice(made))
        known.append(name)
    if lot.random() < 0.3:
        lot.shuffle(nodes)
    return nodes


def networks(lot: Random) -> list[Network]:
    """About ten; two are one architecture under different sources."""
    found = [
        network(alexnet("MAX", relu=False)),
        network(alexnet("AVG", relu=False)),
        network(alexnet("MAX", relu=True)),
        network(torch_like()),
        network(crossed()),
        network(attending()),
        *(network(drawn(lot)) for _ in range(5)),
    ]
    first = found[0]
    again = replace(first.nodes[0], source={"dialect": "aten", "op": "conv2d"})
    return [*found, replace(first, nodes=(again, *first.nodes[1:]))]
