"""A trainer as a function of Python, with numpy: logistic regression on the first layer."""

from __future__ import annotations

from typing import Any

import numpy as np


def train(net: Any, config: Any, steps: int, ckpt: Any, log: Any) -> None:
    """Weights of fc2 behind the fixed first layer."""
    names = net.names
    weights = {name: ckpt.state.get(f"weight/{name}", net.weights(name)) for name in names}
    best = ckpt.state.get("best", float("inf"))
    rows = net.data.train
    x, y = rows.inputs["x"], rows.labels
    for step in range(ckpt.step + 1, steps + 1):
        draw = np.random.default_rng([config.seed, step])
        some = draw.integers(0, len(x), 16)
        hidden = np.maximum(x[some] @ weights["fc1.weight"].T + weights["fc1.bias"], 0)
        scores = hidden @ weights["fc2.weight"].T + weights["fc2.bias"]
        odds = np.exp(scores - scores.max(1, keepdims=True))
        odds /= odds.sum(1, keepdims=True)
        loss = -float(np.log(odds[np.arange(16), y[some]]).mean())
        out = (odds - np.eye(3)[y[some]]) / 16
        rate = np.float32(config["base_lr"])
        weights["fc2.weight"] = weights["fc2.weight"] - rate * (out.T @ hidden).astype("f4")
        weights["fc2.bias"] = weights["fc2.bias"] - rate * out.sum(0).astype("f4")
        best = min(best, loss)
        if step % config.log_every == 0 or step == steps:
            state = {f"weight/{name}": weights[name] for name in names}
            if log(step, {"loss": loss, "best": best}, {**state, "best": best}):
                return
