"""`fsck --repair`: damaged objects mended from elsewhere, bit for bit; what is lost is named."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.repository.git_files as git_files
import dlv.repository.quarantine as quarantine
import dlv.upkeep.check as check
import dlv.upkeep.repair as repairing
from dlv.errors import UsageError
from dlv.metadata import dump, matrices, usage, versions
from dlv.repository.handle import Repository
from dlv.upkeep.repair import Repaired
from dlv.weights.store import MatrixStore

KINDS = {
    "pack": "packs/*/*.pack",
    "manifest": "manifests/*/*.json",
    "fact": "facts/*/*.json",
    "file": "files.git/objects/??/*",
    "reference": "files.git/refs/versions/*",
    "database": "dlv.db",
}


def silent(_: int) -> None: ...


def contents(repository: Repository) -> dict[str, bytes]:
    """All that can be had of the versions: matrices, objects, files."""
    store = MatrixStore.of(repository)
    found = {}
    for matrix in usage.stored_matrices(repository.database):
        found[matrix.hash] = bytes(store.matrix(matrix.hash))
    for version in versions.all_versions(repository.database, dump.STATES):
        for entry in repository.manifest(version.id).files:
            found[f"{version.id} {entry.path}"] = git_files.FileStore(repository.files_git).read(
                entry
            )
    store.close()
    return found


def spoil(path: Path, rng: random.Random, times: int = 1) -> None:
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    for _ in range(times):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def repair(folder: Path, source: Path | None = None) -> Repaired:
    with Repository.find(folder) as repository:
        return repairing.repair(repository, source, "Ada", progress=silent)


@pytest.fixture
def pair(lived: Repository, tmp_path: Path) -> tuple[Path, Path]:
    """A repository and an intact copy of it."""
    lived.database.checkpoint()
    root = lived.root
    lived.close()
    shutil.copytree(root, tmp_path / "intact")
    return root, tmp_path / "intact"


@pytest.mark.parametrize("kind", KINDS)
def test_from_an_intact_copy(pair: tuple[Path, Path], kind: str) -> None:
    """One file after the other of each kind; in the end every byte is what it was."""
    folder, intact = pair
    rng = random.Random(kind)
    with Repository.find(intact) as repository:
        expected = contents(repository)
    paths = sorted((folder / ".dlv").glob(KINDS[kind]))
    for path in rng.sample(paths, min(4, len(paths))):
        spoil(path, rng, times=1 if kind != "database" else 40)
    outcome = repair(folder, intact)
    assert outcome.report.faults == []
    with Repository.find(folder) as repository:
        assert check.check(repository).faults == []
        assert contents(repository) == expected
    if kind != "database":
        for path in paths:
            twin = intact / path.relative_to(folder)
            assert path.read_bytes() == twin.read_bytes()


def test_everything_at_once(pair: tuple[Path, Path]) -> None:
    folder, intact = pair
    rng = random.Random(0)
    with Repository.find(intact) as repository:
        expected = contents(repository)
    for pattern in KINDS.values():
        for path in (folder / ".dlv").glob(pattern):
            spoil(path, rng)
    outcome = repair(folder, intact)
    assert outcome.report.faults == []
    with Repository.find(folder) as repository:
        assert contents(repository) == expected


def test_files_that_are_gone(pair: tuple[Path, Path]) -> None:
    folder, intact = pair
    for pattern in ("packs/*/*.pack", "manifests/*/*.json", "files.git/objects/??/*"):
        for path in (folder / ".dlv").glob(pattern):
            path.unlink()
    assert repair(folder, intact).report.faults == []


def test_a_copy_that_is_stored_otherwise(
    tmp_path: Path, commit_model: Callable[..., str], archived: Callable[..., Any]
) -> None:
    """Two of three packs it has no more; each matrix is there, as a difference to another one."""
    folder, other = tmp_path / "one", tmp_path / "other"
    common = np.random.default_rng(0).normal(0, 0.05, (300, 100))
    with Repository.init(folder)[0] as repository:
        for seed in range(3):
            own = np.random.default_rng(seed).normal(0, 1e-5, common.shape)
            commit_model(repository, "net", {"w": (common + own).astype("f4")})
        repository.database.checkpoint()
    shutil.copytree(folder, other)
    with Repository.find(other) as repository:
        expected = contents(repository)
        archived(repository)
        known = {name for name, _ in matrices.packs(repository.database)}
    for path in (folder / ".dlv").glob("packs/*/*.pack"):
        if path.stem not in known:
            spoil(path, random.Random(1), times=5)
    outcome = repair(folder, other)
    assert outcome.report.faults == []
    assert str(other) in {where for _, where in outcome.mended}
    with Repository.find(folder) as repository:
        assert contents(repository) == expected


def test_without_any_copy(pair: tuple[Path, Path]) -> None:
    """What is whole in a damaged pack is kept; the rest is named, and nothing is deleted."""
    folder, _ = pair
    with Repository.find(folder) as repository:
        expected = contents(repository)
    packs = list((folder / ".dlv").glob("packs/*/*.pack"))
    largest = max(packs, key=lambda path: path.stat().st_size)
    before = largest.read_bytes()
    spoil(largest, random.Random(3))
    spoiled = largest.read_bytes()
    assert spoiled != before
    outcome = repair(folder)
    assert outcome.report.damaged
    assert outcome.layers
    with Repository.find(folder) as repository:
        aside = quarantine.find(repository, largest.relative_to(folder / ".dlv").as_posix())
        assert [path.read_bytes() for path in aside] == [spoiled]
        store = MatrixStore.of(repository)
        bad = {name for fault in outcome.report.faults for name in fault.matrices}
        for name, data in expected.items():
            if " " not in name and name not in bad:
                assert bytes(store.matrix(name)) == data
        store.close()
        assert len(bad) < len(usage.stored_matrices(repository.database))
    assert all(outcome.layers.values())


def test_what_is_in_quarantine_comes_back(pair: tuple[Path, Path]) -> None:
    folder, _ = pair
    with Repository.find(folder) as repository:
        path = min(repository.packs.glob("*/*.pack"))
        place = quarantine.begin(repository, [path], "test")
        data = path.read_bytes()
        quarantine.move_in(repository, place, [path])
    outcome = repair(folder)
    assert outcome.report.faults == []
    assert (path.stem, "quarantine") in outcome.mended
    assert path.read_bytes() == data


def test_nothing_to_do(pair: tuple[Path, Path]) -> None:
    folder, intact = pair
    outcome = repair(folder, intact)
    assert (outcome.before, outcome.mended, outcome.report.faults) == (0, [], [])


def test_itself_is_no_copy(pair: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError):
        repair(pair[0], pair[0])


def test_a_damaged_copy_is_not_believed(pair: tuple[Path, Path]) -> None:
    """Damaged in another place: what is whole in either comes back; bad bytes never do."""
    folder, other = pair
    for root in pair:
        path = min((root / ".dlv").glob("manifests/*/*.json"))
        spoil(path, random.Random(str(root)))
    outcome = repair(folder, other)
    assert [fault.kind for fault in outcome.report.faults] == ["manifest"]
    assert outcome.mended == []
