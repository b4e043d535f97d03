"""Two small networks in the shape of AlexNet, with random weights: python make.py

They are there to be asked for: `origin` has MAX pooling right behind its convolutions, `avgv1` has
AVG pooling there and lacks the RELU between them.
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
CHANNELS = (4, 8, 8, 8, 4)
HIDDEN, LABELS, SIDE = 16, 10, 32
POOLED = (1, 2, 5)


def network(kind):
    nodes, last, shapes = [], "data", {}

    def layer(name, op, attrs=None, variant=None, weights=None):
        nonlocal last
        node = {"name": name, "op": op, "attrs": attrs or {}, "inputs": [last]}
        if variant:
            node["variant"] = variant
        if weights:
            node["params"] = {"weight": f"{name}.weight", "bias": f"{name}.bias"}
            shapes[f"{name}.weight"], shapes[f"{name}.bias"] = weights, weights[:1]
        nodes.append(node)
        last = name

    pool = "MAX" if kind == "origin" else "AVG"
    before, side = 3, SIDE
    for i, channels in enumerate(CHANNELS, 1):
        attrs = {"out": channels, "kernel": [3, 3], "pad": 1}
        layer(f"conv{i}", "CONV", attrs, weights=(channels, before, 3, 3))
        if i in POOLED:
            layer(f"pool{i}", "POOL", {"kernel": [2, 2], "stride": 2}, pool)
            side //= 2
        if i not in POOLED or kind == "origin":
            layer(f"relu{i}", "RELU")
        before = channels
    layer("flatten", "RESHAPE", {"kind": "flatten"})
    wide = before * side * side
    for i, out in ((6, HIDDEN), (7, HIDDEN), (8, LABELS)):
        layer(f"fc{i}", "FULL", {"out": out}, weights=(out, wide))
        if i < 8:
            layer(f"relu{i}", "RELU")
        wide = out
    layer("prob", "SOFTMAX")
    inputs = [{"name": "data", "shape": ["B", 3, SIDE, SIDE], "dtype": "float32"}]
    return {"dlv_network": 1, "inputs": inputs, "nodes": nodes, "outputs": [last]}, shapes


def main():
    for seed, kind in enumerate(("origin", "avgv1")):
        folder = HERE / kind
        folder.mkdir(exist_ok=True)
        made, shapes = network(kind)
        (folder / "network.json").write_text(json.dumps(made, indent=1) + "\n")
        rng = np.random.default_rng(seed)
        weights = {n: rng.normal(0, 0.1, s).astype(np.float32) for n, s in shapes.items()}
        np.savez(folder / "weights.npz", **weights)


if __name__ == "__main__":
    main()
