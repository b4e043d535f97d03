"""Old packs beside new ones, and no catalogue: every matrix comes back by one whole encoding."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.archiving.reencode as reencode
import dlv.recovery.superseded as superseded
import dlv.upkeep.check as check
from dlv.archiving.proposal import Request, Trials
from dlv.archiving.tryouts import Choice
from dlv.metadata import storage
from dlv.pas.chunks import SUFFIX
from dlv.pas.footer import Chunk, Encoding, Footer
from dlv.recovery.generations import Found, left_out
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore


@pytest.fixture
def repository(tmp_path: Path, commit_model: Callable[..., str]) -> Iterator[Repository]:
    made, _ = Repository.init(tmp_path / "work")
    rng = np.random.default_rng(0)
    weights = rng.normal(0, 0.05, (150, 200))
    for _ in range(3):
        commit_model(made, "net", {"a": weights.astype(np.float32)})
        weights += rng.normal(0, 1e-5, weights.shape)
    yield made
    made.close()


def again(repository: Repository, *choices: tuple[str, str | None, str]) -> None:
    """Store these matrices anew, and clear what nothing needs."""
    with (
        repository.alone("archive.lock"),
        repository.writing(),
        Trials(repository, Request()) as (planner, tryouts),
    ):
        given = [(Choice(*c), planner.encoding(c[0])) for c in choices]  # type: ignore[arg-type]
        reencode.carry_out(repository, reencode.work(repository, given), tryouts, "Ada", "")
    superseded.clear(repository)


def keep(repository: Repository, attic: Path) -> None:
    """A copy of all packs as they are."""
    shutil.copytree(repository.packs, attic, dirs_exist_ok=True)


def names(repository: Repository) -> list[str]:
    return [matrix.hash for matrix in storage.stored_matrices(repository.database)]


def whole(repository: Repository, expected: dict[str, bytes]) -> None:
    report = check.rebuild(repository)
    assert report.faults == []
    store = MatrixStore.of(repository)
    assert {name: bytes(store.matrix(name)) for name in expected} == expected
    store.close()


def content(repository: Repository) -> dict[str, bytes]:
    store = MatrixStore.of(repository)
    found = {name: bytes(store.matrix(name)) for name in names(repository)}
    store.close()
    return found


def test_side_data_of_an_older_encoding_of_the_same_configuration(
    repository: Repository, tmp_path: Path
) -> None:
    """Coded by context once, then without: what is told of either is the same, not what it has."""
    before = content(repository)
    first, second, third = names(repository)
    again(repository, (second, first, "context"), (third, first, "context"))
    keep(repository, tmp_path / "attic")
    again(repository, (second, first, "sub"), (third, first, "sub"))
    shutil.copytree(tmp_path / "attic", repository.packs, dirs_exist_ok=True)
    whole(repository, before)
    again(repository, (second, first, "context"))
    whole(repository, before)


def test_an_older_encoding_where_a_pack_of_the_newer_is_damaged(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planes in packs of their own, one of them lost: the rest of them is no use."""
    monkeypatch.setattr("dlv.archiving.packing.Packing.__init__.__kwdefaults__", {"buffer": 4000})
    before = content(repository)
    first, second, third = names(repository)
    again(repository, (third, second, "sub"), (second, first, "sub"))
    keep(repository, tmp_path / "attic")
    kept = {path.name for path in (tmp_path / "attic").glob(f"??/*{SUFFIX}")}
    again(repository, (first, second, "context"), (second, None, "materialise"))
    fresh = [p for p in repository.packs.glob(f"??/*{SUFFIX}") if p.name not in kept]
    assert len(fresh) > 2
    for path in fresh:
        data = path.read_bytes()
        shutil.copytree(tmp_path / "attic", repository.packs, dirs_exist_ok=True)
        path.write_bytes(data[:-40])
        report = check.rebuild(repository)
        assert {fault.kind for fault in report.faults} <= {"pack"}
        assert content(repository) == before
        path.write_bytes(data)
    whole(repository, before)


def _pack(name: str, *deltas: tuple[str, str | None]) -> Found:
    layout, shape = {"id": "ieee"}, (4,)
    encodings = tuple(
        Encoding(
            *(matrix, "uint8", shape, layout),
            *(None if base is None else {"id": "xor", "base": base, "overlap": None}, 1),
        )
        for matrix, base in deltas
    )
    chunks = tuple(
        Chunk("plane", 0, 4 * at, 4, 4, "0" * 64, {"id": "raw"}, ((at, 0, 4),))
        for at in range(len(deltas))
    )
    return Found(name, 100, Footer("dlv", encodings, chunks))


@pytest.mark.parametrize(
    ("generations", "expected"),
    [
        ([[("a", None)], [("a", None)]], [set(), {"a"}]),
        ([[("a", "b")], [("b", "a")], [("b", None)]], [set(), {"b"}, set()]),
        ([[("a", "b")], [("b", "a"), ("a", None)]], [{"a"}, set()]),
        ([[("a", "b"), ("b", "c")], [("c", "a")], [("b", None)]], [{"b"}, set(), set()]),
        ([[("a", "gone")], [("a", None)]], [{"a"}, set()]),
        ([[("a", "gone")]], [set()]),
        ([[("a", "b")], [("b", "a")]], [set(), set()]),
    ],
)
def test_no_circle_where_there_is_a_way_out(generations: Any, expected: list[set[str]]) -> None:
    found = [[_pack(str(age), *deltas)] for age, deltas in enumerate(generations)]
    assert left_out(found) == expected


def test_an_encoding_that_is_not_whole_does_not_count() -> None:
    torn = _pack("0", ("a", None))
    torn = Found("0", 100, Footer("dlv", torn.footer.encodings, ()))
    assert left_out([[torn], [_pack("1", ("a", None))]]) == [{"a"}, set()]
    assert left_out([[torn]]) == [set()]
