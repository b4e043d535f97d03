"""Ties, what is no number, rows of zeros, huge and tiny weights: from the commit to the label."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dlv.adapters import network_json
from tests.evaluation.progressive.random_nets import RandomNet
from tests.evaluation.progressive.test_repositories import Count, Stored

WIDE, CLASSES, ROWS = 96, 5, 40


def network(seed: int = 0) -> RandomNet:
    rng = np.random.default_rng(seed)
    shapes = {"a": (WIDE, 24), "b": (WIDE, WIDE), "c": (CLASSES, WIDE)}
    nodes: list[dict[str, Any]] = []
    tensors = {}
    below = "x"
    for name, (out, wide) in shapes.items():
        params = {"weight": f"{name}.weight", "bias": f"{name}.bias"}
        tensors[params["weight"]] = rng.normal(size=(out, wide)) * (2 / wide) ** 0.5
        tensors[params["bias"]] = 0.1 * rng.normal(size=out)
        full = {"name": name, "op": "FULL", "attrs": {"out": out}}
        nodes.append({**full, "inputs": [below], "params": params})
        below = name
        if name != "c":
            nodes.append({"name": f"relu_{name}", "op": "RELU", "inputs": [below]})
            below = f"relu_{name}"
    given = {"name": "x", "shape": ["B", 24], "dtype": "float32"}
    data = {"dlv_network": 1, "inputs": [given], "nodes": nodes, "outputs": ["c"]}
    made, _ = network_json.parse(json.dumps(data).encode())
    held = {name: each.astype(np.float32) for name, each in tensors.items()}
    x = rng.normal(size=(ROWS, 24)).astype(np.float32)
    return RandomNet(made, held, x, [name for name in held if name.endswith("weight")], "c")


def stored(net: RandomNet, folder: Path) -> Stored:
    made = Stored(net, folder / "repository")
    made.commit({})
    return made


@pytest.mark.parametrize("strict", [False, True])
def test_ties_wait_for_the_end_and_get_the_first_index(tmp_path: Path, strict: bool) -> None:
    net = network()
    for name in ("c.weight", "c.bias"):
        net.tensors[name][3] = net.tensors[name][1]
    made = stored(net, tmp_path)
    scores = made.scores()
    tied = np.isin(scores.argmax(1), [1, 3])
    assert 0 < tied.sum() < ROWS
    found = made.evaluate(strict=strict)
    assert (found.labels == scores.argmax(1)).all()
    assert not (found.labels == 3).any()
    partial = [level for level in found.levels if level.share < 1]
    assert partial[-1].determined == ROWS - tied.sum()
    early = made.evaluate(strict=strict, max_bytes=partial[-1].bytes_read)
    assert ((early.labels < 0) == tied).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["a.weight", "c.weight", "b.bias"])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_weights_that_are_no_numbers(tmp_path: Path, value: float, name: str) -> None:
    net = network()
    net.tensors[name][(2, 0)[: net.tensors[name].ndim]] = value
    made = stored(net, tmp_path)
    found = made.evaluate()
    scores = made.scores()
    known = ~np.isnan(scores).any(1)
    assert (found.labels[known] == scores.argmax(1)[known]).all()
    # Where a score is no number there is no label to be sure of.
    for level in found.levels:
        assert level.share == 1 or level.determined <= known.sum()


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38, 1e-42])
def test_inputs_of_all_kinds(tmp_path: Path, value: float) -> None:
    net = network()
    net.x[::3, 5] = value
    made = stored(network(), tmp_path)
    np.savez(made.folder / "rows.npz", x=net.x)
    made.net.x = net.x
    with np.errstate(all="ignore"):
        scores = made.scores()
    known = np.isfinite(scores).all(1)
    found = made.evaluate()
    assert (found.labels[known] == scores.argmax(1)[known]).all()
    partial = [level for level in found.levels if level.share < 1]
    assert all(level.determined <= known.sum() for level in partial)
    assert partial[0].determined > 0


def scaled(factor: float) -> Callable[[RandomNet], None]:
    """One layer's weights times a factor, the next one's as much smaller where that can be."""

    def change(net: RandomNet) -> None:
        net.tensors["a.weight"] *= np.float32(factor)
        net.tensors["a.bias"] *= np.float32(factor)
        net.tensors["b.weight"] /= np.float32(factor)

    return change


def zero_rows(net: RandomNet) -> None:
    net.tensors["a.weight"][::7] = 0
    net.tensors["b.weight"][::5] = -0.0
    net.tensors["c.weight"][2] = 0


def zero_matrix(net: RandomNet) -> None:
    net.tensors["b.weight"][:] = 0


def denormal_rows(net: RandomNet) -> None:
    net.tensors["a.weight"][::4] *= np.float32(1e-40)
    net.tensors["b.weight"][1::4] *= np.float32(1e-43)
    net.tensors["c.weight"][2] *= np.float32(1e-44)


def one_huge(net: RandomNet) -> None:
    net.tensors["a.weight"][3, 4] = 3e38
    net.tensors["b.weight"][:, 3] = 0


def mixed_rows(net: RandomNet) -> None:
    """Within each row numbers from very large to denormal."""
    rng = np.random.default_rng(5)
    held = net.tensors["b.weight"]
    held *= (10.0 ** rng.integers(-44, 3, held.shape)).astype(np.float32)


@pytest.mark.parametrize(
    "change",
    [*(scaled(1e18), scaled(1e-18), zero_rows, zero_matrix, denormal_rows, one_huge), mixed_rows],
    ids=["large", "small", "zero rows", "zero matrix", "denormal", "one huge", "mixed"],
)
@pytest.mark.parametrize("asked", [{}, {"strict": True}, {"top_k": 2}], ids=str)
def test_weights_of_all_sizes(
    tmp_path: Path, change: Callable[[RandomNet], None], asked: dict[str, Any]
) -> None:
    net = network()
    with np.errstate(under="ignore"):
        change(net)
    made = stored(net, tmp_path)
    count = Count()
    with np.errstate(all="ignore"):
        made.check(count, **asked)
    flushed = torch.set_flush_denormal(True)
    try:
        # A float32 evaluation may also take denormal numbers for zeros.
        if flushed and "strict" in asked:
            with np.errstate(all="ignore"):
                made.check(count, **asked)
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("top_k", [1, 2, 3, CLASSES])
def test_sets(tmp_path: Path, top_k: int) -> None:
    made = stored(network(1), tmp_path)
    count = Count()
    found = made.check(count, top_k=top_k)
    assert found.levels[0].determined > 0 or top_k == CLASSES
