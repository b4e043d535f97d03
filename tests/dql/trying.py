"""Trials of small networks without processes: a trainer of a few lines, that can misbehave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dlv.adapters.data.sets import open_parts
from dlv.dql import execute
from dlv.dql.outcome import QueryOptions, Trials
from dlv.metadata.trials import Trials as Store
from dlv.repository.handle import Repository
from dlv.training.ledger.ledger import Claim, Ledger
from dlv.training.trainers.interface import Readers
from dlv.training.workers.owners import Owner
from dlv.training.workers.slices import Slice

# Every weight goes to 1; the loss says how far away they are. One file counts the steps.
TRAINER = """
import numpy as np

def train(net, config, steps, ckpt, log):
    weights = {name: ckpt.state.get(f"weight/{name}", net.weights(name)) for name in net.names}
    rate = config["base_lr"]
    rates = {name: config["net"].get(name.split(".")[0], {}).get("lr", rate) for name in weights}
    for step in range(ckpt.step + 1, steps + 1):
        with open(net.directory / "steps.txt", "a") as out:
            print(net.id, step, file=out)
        if config.get("fault") == "raise" and step > 5:
            raise RuntimeError("this trial was\\nnot meant to be")
        for name in weights:
            weights[name] = weights[name] + np.float32(rates[name]) * (1 - weights[name])
        if step % config.log_every == 0 or step == steps:
            far = float(np.mean([np.mean((1.0 - each) ** 2) for each in weights.values()]))
            far = float("nan") if config.get("fault") == "nan" else far
            metrics = {"loss": far, "accuracy": 1 / (1 + far), "zeal": rate}
            if log(step, metrics, {f"weight/{name}": weights[name] for name in weights}):
                return
"""
READERS = Readers(rows=open_parts)
CONFIG = 'trainer = "own_trainer:train"\nsteps = 20\nlog_every = 5\nbase_lr = 0.1\n'
NODES: list[dict[str, Any]] = [
    {
        "name": "conv1",
        "op": "CONV",
        "attrs": {"out": 2, "kernel": 3, "pad": 1},
        "inputs": ["x"],
        "params": {"weight": "conv1.weight", "bias": "conv1.bias"},
    },
    {"name": "relu1", "op": "RELU", "inputs": ["conv1"]},
    {"name": "flatten", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["relu1"]},
    {
        "name": "fc1",
        "op": "FULL",
        "attrs": {"out": 3},
        "inputs": ["flatten"],
        "params": {"weight": "fc1.weight", "bias": "fc1.bias"},
    },
]


def tensors(seed: int = 0) -> dict[str, Any]:
    made = np.random.default_rng(seed)
    shapes = {"conv1.weight": (2, 1, 3, 3), "conv1.bias": (2,), "fc1.weight": (3, 128)}
    return {
        name: made.normal(0, 0.1, shape).astype("f4")
        for name, shape in {**shapes, "fc1.bias": (3,)}.items()
    }


def repository(folder: Path, commit_model: Callable[..., str]) -> Repository:
    """With `net@1`, `net@2` of other weights, and `bare@1` without a network."""
    made = Repository.init(folder)[0]
    for seed in (0, 1):
        commit_model(made, "net", tensors(seed), NODES, root=True)
    commit_model(made, "bare", tensors(2), root=True)
    (folder / "own_trainer.py").write_text(TRAINER)
    (folder / "base.toml").write_text(CONFIG)
    return made


def in_process(store: Store, run: str, *, more: Callable[[], None] | None = None, **_: Any) -> None:
    """What `pool.train` does, by this process alone."""
    ledger, owner = Ledger(store), Owner.here("test")
    folder = store.path.parent / "trials"
    while ledger.run(run).state == "running":
        claim = ledger.claim(owner, [run])
        if isinstance(claim, Claim):
            Slice(claim, ledger, READERS, lambda: False).run(folder / claim.trial)
        elif more is not None and ledger.run(run).growing:
            more()


def ask(repository: Repository, text: str, **asked: Any) -> Trials:
    (found,) = execute.run(repository, text, QueryOptions(directory=repository.root, **asked))
    assert isinstance(found, Trials)
    return found


def steps(repository: Repository) -> int:
    """How many have been trained in this repository, all trials together."""
    path = repository.root / "steps.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def summary(found: Trials) -> list[tuple[Any, ...]]:
    """What a run came to, without what time tells."""
    return [
        (each.rank, each.id, dict(each.varied), each.view.step, each.view.verdict, each.view.last)
        for each in found.trials
        if each.view is not None
    ]


def varied(found: Trials) -> Sequence[dict[str, Any]]:
    return [dict(each.varied) for each in found.trials]
