"""From the commit to the label: random networks in real repositories, their bounds made by dlv.

The versions of a repository are completions of the first one's unread bits: what their first
planes say is the same, and each must get its own labels. What `dlv eval --progressive` tells is
held against torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import dlv.archiving.bounding.run as bounding
import dlv.versions.add as adding
import dlv.versions.commit as committing
from benchmarks.progressive.completions import Cells, Layout
from dlv.adapters import network_json, safetensors
from dlv.adapters.checkpoint import Tensor
from dlv.archiving.bounding.run import Asked
from dlv.canonical import matrix_hash
from dlv.evaluation.answers import Evaluation
from dlv.evaluation.evaluate import Request, evaluate
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore
from tests.evaluation.progressive.random_nets import RandomNet, random_net

Array = NDArray[Any]
TIMES = 12  # as wide as other random networks


class _Bar:
    def advance(self, count: int) -> None:
        pass


@contextmanager
def quiet(what: str, total: int) -> Iterator[_Bar]:
    yield _Bar()


@dataclass
class Count:
    versions: int = 0
    trials: int = 0  # rows and levels
    early: int = 0  # labels told before everything was read


class Stored:
    """A network in a repository, version by version."""

    def __init__(self, net: RandomNet, folder: Path) -> None:
        self.net = net
        self.folder = folder
        folder.mkdir()
        self.repository, _ = Repository.init(folder)
        network_json.save(net.network, str(folder / "network.json"))
        np.savez(folder / "rows.npz", x=net.x)
        self.tensors = dict(net.tensors)

    def commit(self, changed: dict[str, Array]) -> None:
        """The next version, with these weights instead, and its bounds."""
        self.tensors = {**self.net.tensors, **changed}
        held = [
            Tensor(name, "float32", each.shape, each.nbytes, lambda each=each: each.tobytes())  # type: ignore[misc]
            for name, each in self.tensors.items()
        ]
        with (self.folder / "w.safetensors").open("wb") as out:
            safetensors.save(out, held, {})
        files = ["w.safetensors", "network.json"]
        adding.add(self.repository, self.folder, files, adding.Request())
        committing.commit(self.repository, committing.Request("m", "someone", "net"))
        rows = str(self.folder / "rows.npz")
        asked = bounding.Request(("net",), calibration=Asked(rows), author="someone")
        bounding.bound(self.repository, asked, progress=quiet)

    def layout(self, name: str) -> Layout:
        """How the first version's weight is stored."""
        with closing(MatrixStore.of(self.repository)) as store:
            held = self.net.tensors[name]
            digest = matrix_hash("float32", held.shape, held.tobytes())
            encoding = store.encoding(digest)
            assert encoding is not None
            return "fixed" if encoding.layout["id"] == "fixed" else "ieee"

    def evaluate(self, **asked: Any) -> Evaluation:
        request = Request(
            ["net", "rows.npz"], directory=self.folder, progressive="guaranteed", **asked
        )
        return evaluate(self.repository, request).results[0]

    def scores(self, dtype: Any = torch.float64) -> Array:
        held = {name: self.tensors[name] for name in self.net.matrices}
        return self.net.scores(held, dtype)

    def check(self, count: Count, **asked: Any) -> Evaluation:
        """Labels and sets against torch."""
        found = self.evaluate(**asked)
        count.versions += 1
        count.trials += found.rows * max(len(found.levels), 1)
        strict = bool(asked.get("strict"))
        scores = self.scores(torch.float32 if strict else torch.float64)
        told = found.labels if found.sets is None else found.sets[:, 0]
        # Where the reference itself overflows there may be no label.
        assert (told[np.isfinite(scores).all(1)] >= 0).all()
        # At the very end rounding may choose between equal ones.
        assert not wrong(found, scores, 1e-4 if strict else 1e-9).any()
        partial = [level for level in found.levels if level.share < 1]
        if partial and partial[-1].determined:
            self._check_early(partial[-1].bytes_read, count, **asked)
        return found

    def _check_early(self, most: int, count: Count, **asked: Any) -> None:
        """Labels told before all was read are those of every evaluation."""
        found = self.evaluate(max_bytes=most, **asked)
        count.early += found.rows - found.open if found.sets is None else 0
        kinds = [torch.float64, torch.float32] if asked.get("strict") else [torch.float64]
        for kind in kinds:
            assert not wrong(found, self.scores(kind), 0.0).any()


def wrong(found: Evaluation, scores: Array, near: float) -> Array:
    """Rows whose label or set is not that of the scores, which may be off by a little."""
    allowed = near * (1 + np.abs(scores).max(1)) if near else np.zeros(len(scores))
    chosen = np.take_along_axis(scores, found.labels[:, None].clip(0), 1)[:, 0]
    bad = (found.labels >= 0) & (chosen < scores.max(1) - allowed)
    if found.sets is not None:
        inside = np.take_along_axis(scores, found.sets.clip(0), 1).min(1)
        others = scores.copy()
        np.put_along_axis(others, found.sets.clip(0), -np.inf, 1)
        bad |= (found.sets[:, 0] >= 0) & (inside < others.max(1) - allowed)
    return np.asarray(bad)


def completions(
    stored: Stored, found: Evaluation, rng: np.random.Generator, number: int
) -> dict[str, Array]:
    """Other weights with the planes that were read at some level of an evaluation."""
    net = stored.net
    if not found.levels:
        return {}
    bits = found.levels[int(rng.integers(len(found.levels)))].bits
    cells = {}
    for name, read in bits.items():
        if name in net.matrices and read < 32:
            layout = stored.layout(name)
            cells[name] = Cells(net.tensors[name], layout, read // 8)
    if number % 3 == 0:
        return {name: each.random(rng) for name, each in cells.items()}
    centre = {name: (each.near.astype("f8") + each.far) / 2 for name, each in cells.items()}
    order = np.argsort(-net.scores(centre), axis=1)
    row = int(rng.integers(len(order)))
    slope = net.gradients(row, order[row, 0], order[row, 1])
    return {name: each.against(slope[name]) for name, each in cells.items()}


def run(seed: int, versions: int, folder: Path, count: Count) -> None:
    rng = np.random.default_rng([seed, 2])
    net = random_net(seed, TIMES)
    stored = Stored(net, folder)
    stored.commit({})
    found = stored.check(count)
    ways: list[dict[str, Any]] = [{}, {"top_k": 2}, {"tighten": True}]
    if not net.normalised:
        ways.append({"strict": True})
    for way in ways[1:]:
        stored.check(count, **way)
    for number in range(versions):
        stored.commit(completions(stored, found, rng, number))
        stored.check(count, **ways[number % len(ways)])
    stored.repository.close()


def test_random_networks(tmp_path: Path) -> None:
    count = Count()
    for seed in (0, 7, 8, 12):
        run(seed, 2, tmp_path / str(seed), count)
    assert count.early > 0


@pytest.mark.slow
def test_many_random_networks(tmp_path: Path) -> None:
    count = Count()
    for seed in range(100, 140):
        run(seed, 6, tmp_path / str(seed), count)
    assert count.early > count.trials / 20
