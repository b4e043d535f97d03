"""What a network costs: 1,000 layers imported, verified and committed; 500 beside their weights.

The weights are tiny, so that the network is what is measured. Each figure is the median of
several fresh repositories. Prints a table and, as its last line, a JSON document.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dlv.versions.add as adding
import dlv.versions.commit as committing
from dlv.adapters import network_json, safetensors
from dlv.adapters.checkpoint import Tensor
from dlv.network.verify import verify
from dlv.repository.handle import Repository

WIDTH = 4


def chain(layers: int) -> dict[str, Any]:
    """Alternating FULL and RELU layers, every tenth with a skip connection."""
    nodes: list[dict[str, Any]] = []
    below = "x"
    for number in range(layers):
        name = f"block{number // 10}.layer{number}"
        if number % 10 == 9:
            earlier = nodes[-4]["name"]
            node = {"name": name, "op": "ADD", "inputs": [below, earlier]}
        elif number % 2:
            node = {"name": name, "op": "RELU", "inputs": [below]}
        else:
            slots = {"weight": f"{name}.weight", "bias": f"{name}.bias"}
            node = {
                "name": name,
                "op": "FULL",
                "attrs": {"out": WIDTH},
                "inputs": [below],
                "params": slots,
            }
        nodes.append(node)
        below = name
    inputs = [{"name": "x", "shape": ["B", WIDTH], "dtype": "float32"}]
    return {"dlv_network": 1, "inputs": inputs, "nodes": nodes, "outputs": [below]}


def write_weights(path: Path, network: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensors = []
    for node in network["nodes"]:
        for slot, name in node.get("params", {}).items():
            shape = (WIDTH, WIDTH) if slot == "weight" else (WIDTH,)
            raw = rng.normal(size=shape).astype("f4").tobytes()
            tensors.append(Tensor(name, "float32", shape, len(raw), lambda raw=raw: raw))
    with path.open("wb") as out:
        safetensors.save(out, tensors, {})


def seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def committed(layers: int, *, with_network: bool, add: bool = True) -> float:
    """Seconds of commit, and of `add` before it, in a fresh repository."""
    network = chain(layers)
    with tempfile.TemporaryDirectory() as folder:
        repository, _ = Repository.init(Path(folder))
        write_weights(Path(folder, "w.safetensors"), network, layers)
        Path(folder, "network.json").write_text(json.dumps(network))
        files = ["w.safetensors", *(["network.json"] if with_network else [])]

        adding_took = seconds(lambda: adding.add(repository, Path(folder), files, adding.Request()))
        taken = seconds(
            lambda: committing.commit(repository, committing.Request("m", "someone", "net"))
        )
        if add:
            taken += adding_took
        repository.close()
    return taken


def imported(layers: int) -> float:
    """Seconds to read and verify alone."""
    data = json.dumps(chain(layers)).encode()

    def run() -> None:
        network, _ = network_json.parse(data)
        assert not [p for p in verify(network) if p.severity == "error"]

    return seconds(run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    figures: dict[str, float] = {}

    def measure(name: str, action: Callable[[], float]) -> None:
        figures[name] = statistics.median(action() for _ in range(rounds))

    measure("1,000 layers: read and verify", lambda: imported(1000))
    measure(
        "1,000 layers: add and commit, with weights", lambda: committed(1000, with_network=True)
    )
    measure(
        "500 layers: commit, with network", lambda: committed(500, with_network=True, add=False)
    )
    measure(
        "500 layers: commit, the weights only",
        lambda: committed(500, with_network=False, add=False),
    )
    beyond = (
        figures["500 layers: commit, with network"]
        - figures["500 layers: commit, the weights only"]
    )
    figures["500 layers: the network beyond its weights"] = beyond
    for name, value in figures.items():
        print(f"{name:<46}{value * 1000:>10.1f} ms")
    goals = {"1,000 layers <= 3 s": 3.0, "500 nodes <= 50 ms beyond the weights": 0.05}
    seen = (figures["1,000 layers: add and commit, with weights"], beyond)
    for (goal, limit), value in zip(goals.items(), seen, strict=True):
        print(f"{goal:<46}{'met' if value <= limit else 'MISSED':>13}")
    print(json.dumps({"benchmark": "networks", "rounds": rounds, "seconds": figures}))


if __name__ == "__main__":
    main()
