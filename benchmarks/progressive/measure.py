"""Trained networks in real repositories, and what evaluating them there reads and tells."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.progressive.nets import Data, Net, data_of, module_of
from benchmarks.storage import models
from benchmarks.storage.models import Model
from benchmarks.storage.stores import DLV, run
from dlv.adapters import network_json
from dlv.evaluation.answers import Evaluation
from dlv.evaluation.evaluate import Request, evaluate
from dlv.pas import chunks
from dlv.repository.handle import Repository

Array = NDArray[Any]
T = TypeVar("T")


@dataclass
class Committed:
    """A network in a repository of its own, and the rows that it is tested on."""

    net: Net
    model: Model
    data: Data
    folder: Path
    seconds: float = 0.0  # of the commit, bounds included
    _files: dict[str, str] = field(default_factory=dict)

    @property
    def normalised(self) -> bool:
        return any(name.endswith("running_mean") for name in self.model)

    def file(self, name: str, x: Array, y: Array | None = None) -> str:
        """Rows as a file beside the repository."""
        if name not in self._files:
            path = self.folder / f"{name}.npz"
            columns: dict[str, Any] = {"x": x} if y is None else {"x": x, "y": y}
            np.savez(path, **columns)
            self._files[name] = path.name
        return self._files[name]

    def test(self) -> str:
        return self.file("test", self.data.test_x, self.data.test_y)

    def calibration(self) -> str:
        return self.file("calibration", self.data.calibration)

    def evaluate(self, rows: str, **asked: Any) -> Evaluation:
        """What `dlv eval` does, without saving it."""
        with Repository.find(self.folder) as repository:
            request = Request([self.net.name, rows], directory=self.folder, **asked)
            return evaluate(repository, request).results[0]

    def truth(self, x: Array, dtype: Any = torch.float64) -> Array:
        """Scores by torch, from the weights that were committed."""
        module = module_of(self.net, self.model).to(dtype)
        with torch.no_grad():
            found: Array = module(torch.from_numpy(x).to(dtype)).double().numpy()
        return found

    def share(self, bits: Any) -> float:
        """Of the bits of the weight matrices, those read; biases and norms are no part of it."""
        large = {name: held for name, held in self.model.items() if is_weight(name, held.shape)}
        sizes = {name: int(np.prod(held.shape)) for name, held in large.items()}
        read = sum(sizes[name] * int(bits[name]) for name in large)
        return read / (32 * sum(sizes.values()))


def is_weight(name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) > 1 and name.endswith(".weight")


def commit(net: Net, model: Model, seed: int, folder: Path) -> Committed:
    """A fresh repository with the network, its bounds made from rows of the training set."""
    made = added(net, model, seed, folder)
    begun = time.perf_counter()
    run(folder, *DLV, "commit", "-m", net.title, "--name", net.name)
    given = ("--bounds", net.name, "--calibration", made.calibration())
    run(folder, *DLV, "archive", *given)
    made.seconds = time.perf_counter() - begun
    return made


def added(net: Net, model: Model, seed: int, folder: Path) -> Committed:
    """A fresh repository with the network added, not committed."""
    data = data_of(net, seed)
    folder.mkdir(parents=True)
    models.save(folder / "weights.safetensors", model)
    network_json.save(net.network(), str(folder / "network.json"))
    made = Committed(net, model, data, folder)
    run(folder, *DLV, "init")
    run(folder, *DLV, "add", "weights.safetensors", "network.json")
    return made


@dataclass
class Reader:
    """Bytes that the pack reader took from files: each chunk once, and in all."""

    chunks: dict[tuple[str, int], int] = field(default_factory=dict)
    bytes: int = 0

    @property
    def once(self) -> int:
        return sum(self.chunks.values())


@contextmanager
def counted() -> Iterator[Reader]:
    """Counts below everything that dlv itself counts with."""
    reader, real = Reader(), chunks.read_exactly

    def read(descriptor: int, length: int, offset: int, what: str) -> bytes:
        found = real(descriptor, length, offset, what)
        # The label is the same for each reading of a chunk: its pack, kind and place.
        reader.chunks[what, offset] = length
        reader.bytes += length
        return found

    with mock.patch.object(chunks, "read_exactly", read):
        yield reader


@dataclass(frozen=True)
class Point:
    """After a level: what was read, and which part of the rows is told."""

    share: float  # of the bits of the weight matrices
    raw: float  # decoded bytes, of those of all tensors
    encoded: float  # fetched bytes, of those of all chunks
    determined: float


@dataclass
class Verdicts:
    """An evaluation held against the whole weights: its levels, and labels that are wrong."""

    points: list[Point]
    wrong: int
    rows: int
    fallback: str | None
    seconds: float
    bytes_read: int = 0  # as dlv says
    reader: Reader = field(default_factory=Reader)

    def at(self, share: float) -> float:
        """The part of the rows that is told from at most this share of the bits."""
        reached = [point.determined for point in self.points if point.share <= share]
        return max(reached, default=0.0)


def told(committed: Committed, rows: str, x: Array, top_k: int = 1, **asked: Any) -> Verdicts:
    """A progressive evaluation, its labels held against torch's from the whole weights."""
    begun = time.perf_counter()
    with counted() as reader:
        found = committed.evaluate(rows, top_k=top_k, **asked)
    seconds = time.perf_counter() - begun
    count = len(x)
    points = [
        Point(
            committed.share(level.bits),
            level.raw_read / found.raw_whole,
            level.bytes_read / found.bytes_whole,
            level.determined / count,
        )
        for level in found.levels
    ]
    wrong = wrong_labels(committed, found, x, strict=bool(asked.get("strict")))
    return Verdicts(
        *(points, wrong, count, found.fallback, seconds, found.bytes_read), reader=reader
    )


def wrong_labels(committed: Committed, found: Evaluation, x: Array, *, strict: bool) -> int:
    """Rows told otherwise than torch has them; what rounding alone decides is nobody's fault."""
    truth = committed.truth(x)
    wrong = np.zeros(len(x), bool)
    for scores in [truth, *([committed.truth(x, torch.float32)] if strict else [])]:
        near = 1e-9 if scores is truth else 0.0
        if found.sets is not None:
            inside = np.take_along_axis(scores, found.sets.clip(0), 1).min(1)
            others = scores.copy()
            np.put_along_axis(others, found.sets.clip(0), -np.inf, 1)
            wrong |= (found.sets[:, 0] >= 0) & (inside < others.max(1) - near)
        chosen = np.take_along_axis(scores, found.labels[:, None].clip(0), 1)[:, 0]
        wrong |= (found.labels >= 0) & (chosen < scores.max(1) - near)
    return int(wrong.sum())


def ratio(
    ours: Callable[[T], object], theirs: Callable[[T], object], given: Sequence[T]
) -> tuple[float, float]:
    """How long one takes beside the other: median of the ratios, seconds of theirs.

    They go first in turns: whoever does finds caches and memory as something else left them.
    """
    found, seconds = [], []
    for turn, each in enumerate(given):
        taken = {}
        for way in (ours, theirs) if turn % 2 else (theirs, ours):
            gc.collect()
            begun = time.perf_counter()
            way(each)
            taken[way] = time.perf_counter() - begun
        found.append(taken[ours] / taken[theirs])
        seconds.append(taken[theirs])
    return statistics.median(found), statistics.median(seconds)
