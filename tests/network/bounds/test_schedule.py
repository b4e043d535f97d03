"""Schedules of planes: nested levels that determine as many rows as they say, in few bytes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlv.network.bounds import schedule as schedules
from dlv.network.bounds.ball import F64, Norms
from dlv.network.bounds.interval import Balls, certain
from dlv.network.bounds.norms import level_norms, norms_of
from dlv.network.bounds.schedule import Schedule, Stored, Weights, blind, schedule
from dlv.network.graph import Input, Network, Node
from dlv.network.program import Program, program

Array = NDArray[Any]
WIDE = (40, 64, 48, 10)
PLANES = 4


def layers(*, normalised: bool = False, odd: bool = False) -> Network:
    """Full layers with RELU between them; or with an operation that no bound is known for."""
    nodes, last = [], "x"
    for at, (_, out) in enumerate(itertools.pairwise(WIDE), 1):
        nodes.append(
            Node(
                f"fc{at}",
                "FULL",
                attrs={"out": out, "layout": "out_in", "bias": True},
                inputs=((last, 0),),
                params={"weight": f"w{at}", "bias": f"b{at}"},
            )
        )
        last = f"fc{at}"
        if at < len(WIDE) - 1:
            nodes.append(Node(f"relu{at}", "RELU", attrs={"slope": 0.0}, inputs=((last, 0),)))
            last = f"relu{at}"
    if normalised:
        slots = ("weight", "bias", "running_mean", "running_var")
        attrs = {"eps": 1e-5, "axis": 1, "momentum": 0.1}
        params = {slot: f"norm.{slot}" for slot in slots}
        nodes.append(Node("norm", "NORM", "BATCH", attrs, ((last, 0),), params))
        last = "norm"
    if odd:
        nodes.append(Node("odd", "OP", "raw", {}, ((last, 0),)))
        last = "odd"
    return Network(inputs=(Input("x", ("B", WIDE[0])),), nodes=tuple(nodes), outputs=((last, 0),))


class Rounded(Weights):
    """Weights of which each plane tells a byte more."""

    def __init__(self, program: Program, seed: int = 0) -> None:
        self.program = program
        rng = np.random.default_rng(seed)
        self.exact: dict[str, Array] = {}
        for at, (deep, out) in enumerate(itertools.pairwise(WIDE), 1):
            self.exact[f"w{at}"] = rng.normal(0, 1 / np.sqrt(deep), (out, deep))
            self.exact[f"b{at}"] = rng.normal(0, 0.1, out)
        for slot in ("weight", "bias", "running_mean", "running_var"):
            self.exact[f"norm.{slot}"] = rng.uniform(0.5, 1.5, WIDE[-1])
        self.nodes = {step.node.name: step.node for step in program.linear}

    def tensor(self, name: str, planes: int | None) -> Array:
        found = self.exact[name]
        if planes is None:
            return found
        unit = 2.0 ** (1 - 8 * planes)
        rounded: Array = np.round(found / unit) * unit
        return rounded

    def norms(self, node: str, planes: int | None) -> Norms | None:
        linear = self.nodes[node]
        weight = self.exact[linear.params["weight"]]
        if linear.name == "fc3" and "norm" in self.program.scores:
            scale = self.exact["norm.weight"] / np.sqrt(self.exact["norm.running_var"] + 1e-5)
            weight = weight * scale[:, None]
        whole = norms_of(linear, weight, None)
        if planes is None:
            return Norms(whole.opn, whole.fro, whole.absmax, 0.0, 0.0)
        near = self.tensor(linear.params["weight"], planes)
        if linear.name == "fc3" and "norm" in self.program.scores:
            near = near * scale[:, None]
        level = level_norms(linear, weight, near, None)
        return Norms(whole.opn, whole.fro, whole.absmax, level.dn, level.dfro, None, level.drows)

    def stored(self) -> dict[str, Stored]:
        linear = {node.params["weight"] for node in self.nodes.values()}
        names = set(self.program.tensors)
        return {
            name: Stored(
                PLANES,
                {
                    depth: float(self.exact[name].size * depth)
                    for depth in range(1 if name in linear else PLANES, PLANES + 1)
                },
            )
            for name in names
        }


def made(seed: int = 0, **more: bool) -> tuple[Rounded, Mapping[str, Array], Schedule]:
    weights = Rounded(program(layers(**more)), seed)
    rows = {"x": np.random.default_rng([seed, 1]).normal(0, 1, (64, WIDE[0]))}
    return weights, rows, schedule(weights.program, weights.stored(), weights, rows)


def determined(weights: Rounded, rows: Mapping[str, Array], level: Mapping[str, int]) -> float:
    """Worked out here again."""
    whole = {name: None if planes == PLANES else planes for name, planes in level.items()}
    norms = {}
    for node in weights.nodes.values():
        found = weights.norms(node.name, whole[node.params["weight"]])
        assert found is not None
        norms[node.name] = found
    balls = Balls(weights.program, lambda name: weights.tensor(name, whole[name]), norms, F64)
    return float(certain(balls, balls.balls(rows))[1].mean())


@pytest.mark.parametrize("seed", range(3))
def test_levels(seed: int) -> None:
    weights, rows, found = made(seed)
    assert 2 <= len(found.levels) <= len(schedules.SHARES) + 1
    assert found.levels[-1] == dict.fromkeys(weights.program.tensors, PLANES)
    for before, after in zip(found.levels, found.levels[1:], strict=False):
        assert before != after
        assert all(before[name] <= after[name] for name in before)
    assert found.helps == {"f64": True, "strict": True}
    assert found.why is None
    for level, share in zip(found.levels, found.shares, strict=True):
        assert determined(weights, rows, level) == pytest.approx(share)
    assert list(found.shares) == sorted(found.shares)
    assert found.shares[-1] == 1.0


def test_the_first_level_that_tells_so_many() -> None:
    """No earlier step of the path determines as many as a level that was kept for it."""
    weights, rows, found = made()
    first = found.levels[0]
    assert determined(weights, rows, first) >= schedules.SHARES[0]
    total = sum(each.bytes[PLANES] for each in weights.stored().values())
    spent = sum(weights.stored()[name].bytes[depth] for name, depth in first.items())
    assert spent < 0.7 * total


def test_biases_and_the_smallest_are_whole_from_the_start() -> None:
    weights, _, found = made()
    stored = weights.stored()
    assert all(level[f"b{at}"] == PLANES for level in found.levels for at in (1, 2, 3))
    small = {**stored, "w3": Stored(PLANES, {PLANES: 10.0, 1: 2.0})}
    start = blind(small, ["w1", "w2", "w3"], None).levels[0]
    assert (start["w1"], start["w2"], start["w3"]) == (1, 1, PLANES)


def test_batch_norm_has_no_strict_bounds() -> None:
    _, _, found = made(normalised=True)
    assert found.helps == {"f64": True, "strict": False}


def test_an_operation_without_bounds() -> None:
    """There is a schedule still, for labels that are only likely."""
    weights = Rounded(program(layers()))
    network = layers(odd=True)
    owner = program(network)
    rows = {"x": np.zeros((4, WIDE[0]))}
    found = schedule(owner, weights.stored(), weights, rows)
    assert found.helps == {"f64": False, "strict": False}
    assert found.why is not None
    assert "odd" in found.why
    assert [level["w1"] for level in found.levels] == [1, 2, PLANES]


def test_a_tensor_that_is_used_otherwise_too_is_whole() -> None:
    """What another operation makes of a centre nothing bounds."""
    network = layers()
    gain = Node("gain", "NORM", "LAYER", {"axis": -1, "eps": 1e-5}, (("fc3", 0),), {"weight": "b3"})
    twice = Node(
        *("more", "FULL", None, {"out": 1, "layout": "out_in", "bias": False}),
        (("gain", 0),),
        {"weight": "b3"},
    )
    shared = replace(network, nodes=(*network.nodes, gain, twice), outputs=(("more", 0),))
    weights = Rounded(program(shared))
    found = schedule(weights.program, weights.stored(), weights, {"x": np.zeros((4, WIDE[0]))})
    assert all(level["b3"] == PLANES for level in found.levels)
