"""Query 4 of the paper from its text to committed winners; only its paths are made real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.dql.execute as execute
import dlv.dql.saved as saved
from dlv.dql.outcome import QueryOptions, Trials
from dlv.metadata import versions
from dlv.repository.handle import Repository
from dlv.versions.version import Version

LINES = (Path(__file__).parent / "valid.txt").read_text(encoding="utf-8").splitlines()
QUERY3, QUERY4 = (line.replace("\\n", "\n") for line in LINES[2:4])
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "test.npz"
REAL = {'"path to config"': '"base.toml"', '"path1"': '"first.npz"', '"path2"': '"second.npz"'}
CONFIG = """
trainer = "torch"
steps = 120
log_every = 50
batch_size = 8
"""
NODES: list[dict[str, Any]] = [
    {
        "name": "conv1",
        "op": "CONV",
        "attrs": {"out": 4, "kernel": 3},
        "inputs": ["x"],
        "params": {"weight": "conv1.weight", "bias": "conv1.bias"},
    },
    {
        "name": "pool1",
        "op": "POOL",
        "variant": "AVG",
        "attrs": {"kernel": 2, "stride": 2},
        "inputs": ["conv1"],
    },
    {"name": "flatten", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["pool1"]},
    {
        "name": "fc1",
        "op": "FULL",
        "attrs": {"out": 10},
        "inputs": ["flatten"],
        "params": {"weight": "fc1.weight", "bias": "fc1.bias"},
    },
]
SHAPES: dict[str, Any] = {
    "conv1.weight": (4, 1, 3, 3),
    "conv1.bias": 4,
    "fc1.weight": (10, 36),
    "fc1.bias": 10,
}


def prepare(folder: Path, commit_model: Callable[..., str]) -> Repository:
    repository = Repository.init(folder)[0]
    made = np.random.default_rng(0)
    tensors = {name: made.normal(0, 0.2, shape).astype("f4") for name, shape in SHAPES.items()}
    commit_model(repository, "alexnet-avgv1", tensors, NODES)
    (folder / "base.toml").write_text(CONFIG)
    with np.load(DIGITS) as rows:
        for name, part in (("first", slice(0, 180)), ("second", slice(180, 360))):
            np.savez(folder / f"{name}.npz", x=rows["x"][part], y=rows["y"][part])
    saved.save_query(repository, "query3", QUERY3)
    return repository


def evaluate(repository: Repository, more: str = "", **asked: Any) -> Trials:
    text = QUERY4
    for written, real in REAL.items():
        assert written in text
        text = text.replace(written, real)
    (found,) = execute.run(
        repository, text + more, QueryOptions(directory=repository.root, **asked)
    )
    assert isinstance(found, Trials)
    return found


def weights(repository: Repository, name: str) -> list[dict[str, bytes]]:
    rows = sorted(versions.of_name(repository.database, name), key=lambda row: row.number or 0)
    found = (Version(repository, row) for row in rows)
    return [
        {tensor: each.tensor(tensor).tobytes() for tensor in ("conv1.weight", "fc1.weight")}
        for each in found
    ]


def test_query_4(tmp_path: Path, commit_model: Callable[..., str]) -> None:
    pytest.importorskip("torch")
    told: list[str] = []
    with prepare(tmp_path, commit_model) as repository:
        found = evaluate(repository, ' on local(workers = 1) into "tuned"', say=told.append)
        assert told[0] == "query3: 1 network x 18 configurations = 18 trials, <= 2,160 steps"
        assert len(found.trials) == 18
        kept = [each for each in found.trials if each.kept]
        assert [each.committed for each in kept] == [f"tuned@{number}" for number in range(1, 6)]
        at_cut = sorted(each.view.cut["loss"] for each in found.trials if each.view)
        assert sorted(each.view.cut["loss"] for each in kept if each.view) == at_cut[:5]
        assert [each.view.step for each in found.trials if each.view] == [120] * 5 + [100] * 13
        # What query3 made: a RELU behind the convolution, and the weights that were there.
        assert {node.name for node in kept[0].network.nodes} >= {"conv1", "relu1", "pool1"}
        first = weights(repository, "tuned")
        assert len({each["fc1.weight"] for each in first}) == 5
        again = evaluate(repository, ' on local(workers = 1) into "tuned"')
        assert again.done >= 5
        assert weights(repository, "tuned") == first


@pytest.mark.slow
def test_the_number_of_workers_changes_no_bit(
    tmp_path: Path, commit_model: Callable[..., str]
) -> None:
    pytest.importorskip("torch")
    found, bits = [], []
    for workers in (1, 2, 4):
        folder = tmp_path / str(workers)
        folder.mkdir()
        with prepare(folder, commit_model) as repository:
            made = evaluate(repository, f' on local(workers = {workers}) into "tuned"')
            found.append(
                [(e.id, e.rank, e.view and (e.view.step, e.view.last)) for e in made.trials]
            )
            bits.append(weights(repository, "tuned"))
    assert found[0] == found[1] == found[2]
    assert bits[0] == bits[1] == bits[2]
