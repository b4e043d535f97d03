"""`demo`: a small repository to try things in, trained on the spot with numpy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dlv.demo.training as demo_training
import dlv.disk.user_files as user_files
import dlv.versions.add as adding
import dlv.versions.commit as committing
from dlv.dataclass import dataclass
from dlv.demo.training import Weights
from dlv.errors import Conflict
from dlv.metadata import versions
from dlv.metadata.versions import Version
from dlv.repository.handle import Repository
from dlv.versions.add import Request as AddRequest
from dlv.versions.commit import Committed

TAG = "candidate"
NEXT_STEP = 700
TEST_DATA = "test.npz"  # what the accuracy of the log is about

_BASE: dict[str, Any] = {
    "seed": 1,
    "filters": 8,
    "hidden": 64,
    "first": 0,
    "last": 300,
    "batch": 32,
    "checkpoint": 100,
    "train": ["conv1", "fc1", "fc2"],
    "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
}
_SLOWER = {"seed": 2, "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9}}


@dataclass(frozen=True)
class Demo:
    """What was made: versions oldest first, and a checkpoint that is not in any of them."""

    path: Path
    versions: tuple[Version, ...]
    waiting: str


class _Maker:
    """Trains in the folder of a repository and commits what comes out."""

    def __init__(self, repository: Repository, author: str) -> None:
        self.repository = repository
        self.folder = repository.root
        self.author = author
        self.made: list[Committed] = []

    def version(
        self,
        name: str,
        message: str,
        config: dict[str, Any],
        weights: Weights | None = None,
        parents: Sequence[str] = (),
    ) -> Weights:
        for old in self.folder.glob("step-*.safetensors"):
            old.unlink()
        text = json.dumps(config, indent=1)
        (self.folder / "config.json").write_text(text + "\n", encoding="utf-8")
        trained = demo_training.run(self.folder, config, weights)
        adding.add(self.repository, self.folder, ["."], AddRequest())
        request = committing.Request(message, self.author, name, parents)
        self.made.append(committing.commit(self.repository, request))
        return trained

    def copy(self, name: str) -> None:
        with self.repository.change("copy", self.author) as change:
            change.set_next(name, "copy")
            change.summary = f"{name} from {self.made[-1].name}@{self.made[-1].number}"

    def tag(self, name: str, version: Committed) -> None:
        with self.repository.change("tag", self.author) as change:
            change.record("tag", name, {"version": version.id})
            change.summary = f"{name} -> {version.name}@{version.number}"


def demo(directory: Path, author: str) -> Demo:
    """lenet@1, a wider copy of it, lenet@2, lenet@3; and a checkpoint that waits for `add`."""
    if directory.exists() and not directory.is_dir():
        raise Conflict(f"{directory} is a file", hint="dlv demo NEW_FOLDER")
    if directory.exists() and any(directory.iterdir()):
        raise Conflict(f"{directory} is not empty", hint="dlv demo NEW_FOLDER")
    directory.mkdir(parents=True, exist_ok=True)
    repository, _ = Repository.init(directory)
    try:
        script = Path(demo_training.__file__).read_bytes()
        (directory / "train.py").write_bytes(script)
        make = _Maker(repository, author)
        trained = make.version("lenet", "Bars in four directions", _BASE)
        first = make.made[0]
        make.copy("lenet-wide")
        make.version("lenet-wide", "Twice as many filters", {**_BASE, "filters": 16})
        config = {**_BASE, **_SLOWER, "first": 300, "last": 500}
        trained = make.version("lenet", "Smaller learning rate", config, trained, [first.id])
        config = {**config, "seed": 3, "first": 500, "last": 600, "train": ["fc2"]}
        trained = make.version("lenet", "Only the last layer trained on", config, trained)
        make.tag(TAG, make.made[-1])
        waiting = f"step-{NEXT_STEP}.safetensors"
        config = {**config, "seed": 4, "first": 600, "last": NEXT_STEP}
        *_, (_, weights) = demo_training.train(config, trained)
        demo_training.save(directory / waiting, weights)
        x, y = demo_training.images(np.random.default_rng(0), 500)
        np.savez(directory / TEST_DATA, x=x, y=y)
        user_files.settle(directory)
        found = [versions.by_id(repository.database, made.id) for made in make.made]
        return Demo(directory, tuple(filter(None, found)), waiting)
    finally:
        repository.close()
