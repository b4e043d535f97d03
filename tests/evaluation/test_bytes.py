"""Bytes of whole commands, counted where packs are read: rows told early cost less."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.evaluation.evaluate as evaluate
import dlv.pas.chunks as chunks
from dlv.archiving.bounding.run import Asked, bound
from dlv.archiving.bounding.run import Request as BoundRequest
from dlv.evaluation.answers import Evaluation
from dlv.evaluation.evaluate import Request
from dlv.repository.handle import Repository
from tests.archiving.bounding.nets import CONV, MLP, digits, trained

NODES = {"mlp": MLP, "conv": CONV}


class Silent:
    def advance(self, count: int) -> None: ...


@contextlib.contextmanager
def silent(what: str, total: int) -> Iterator[Silent]:
    yield Silent()


@pytest.fixture(scope="module", params=["mlp", pytest.param("conv", marks=pytest.mark.slow)])
def folder(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    commit_model: Callable[..., str],
) -> Path:
    """A network with bounds, made with digits that are tested nowhere."""
    made = tmp_path_factory.mktemp("repository")
    rows = made.parent / f"{request.param}.npz"
    np.savez(rows, x=digits()[0][1200:1300], y=digits()[1][1200:1300])
    with Repository.init(made)[0] as repository:
        commit_model(repository, "net", trained(request.param)[0], NODES[request.param], root=True)
        bound(repository, BoundRequest(("net",), Asked(str(rows)), "Ada"), progress=silent)
    return made


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    original = chunks.read_exactly

    def counted(descriptor: int, length: int, offset: int, what: str) -> bytes:
        found.append(length)
        return original(descriptor, length, offset, what)

    monkeypatch.setattr(chunks, "read_exactly", counted)
    return found


def run(folder: Path, rows: slice, **asked: Any) -> Evaluation:
    arrays = {"x": digits()[0][rows], "y": digits()[1][rows]}
    with Repository.find(folder) as repository:
        found = evaluate.evaluate(repository, Request(["net"], arrays=arrays, **asked))
    return found.results[0]


@pytest.mark.parametrize("asked", [{}, {"tighten": True}, {"top_k": 2}], ids=str)
def test_rows_that_are_told_early_cost_less(
    folder: Path, reads: list[int], asked: dict[str, Any]
) -> None:
    early = 0
    for row in range(1300, 1330):
        one = slice(row, row + 1)
        reads.clear()
        whole = run(folder, one, top_k=asked.get("top_k"))
        plainly = sum(reads)
        reads.clear()
        found = run(folder, one, progressive="guaranteed", **asked)
        if found.sets is None:
            assert (found.labels == whole.labels).all()
        else:
            assert whole.sets is not None
            assert (np.sort(found.sets) == np.sort(whole.sets)).all()
        # Both read the network as well, which no evaluation counts.
        assert sum(reads) - found.bytes_read == plainly - whole.bytes_read
        if found.levels[-1].share < 1:
            assert sum(reads) < plainly
            assert found.bytes_read < found.bytes_whole
            early += 1
    assert early > 15


def test_no_more_than_the_most_bytes_is_read(folder: Path, reads: list[int]) -> None:
    rows = slice(1300, 1400)
    whole = run(folder, rows)
    reads.clear()
    first = run(folder, rows, progressive="guaranteed").levels[0]
    reads.clear()
    found = run(folder, rows, progressive="guaranteed", max_bytes=first.bytes_read)
    assert found.bytes_read == first.bytes_read
    told = found.labels >= 0
    assert told.sum() == first.determined > 0
    assert (found.labels[told] == whole.labels[told]).all()
