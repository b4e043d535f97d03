"""Processes that commit into one repository at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import dlv.archiving.archive as archiving
import dlv.recovery.superseded as superseded
import dlv.upkeep.check as check
import tests.crash.crowd as crowding
from dlv.archiving import proposal
from dlv.archiving.budgets import Policy
from dlv.metadata import dump, facts, matrices, usage, versions
from dlv.repository.handle import Repository
from tests.crash.conftest import ROOT, environment

STATES = ("live", "removed", "undone", "recovered")


def crowd(
    folder: Path, home: Path, many: int, turns: int, *rest: str, patience: float = 300
) -> list[dict[str, Any]]:
    Repository.init(folder)
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.crowd", str(folder), str(many), str(turns), *rest],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=patience,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["error"] for line in lines if "error" in line] == []
    assert done.returncode == 0, done.stderr
    return lines


def whole(folder: Path, made: list[dict[str, Any]], *, gc: bool = False) -> None:
    """All that was acknowledged is there, numbers have no gap, and a rebuild gives the same.

    With `gc` versions that were removed may be gone.
    """
    with Repository.find(folder) as repository:
        assert check.check(repository).faults == []
        numbers: defaultdict[str, set[int]] = defaultdict(set)
        there = {row.id: row for row in versions.all_versions(repository.database, STATES)}
        taken = facts.collected(repository.database) if gc else {}
        for line in made:
            assert line["number"] not in numbers[line["name"]]
            numbers[line["name"]].add(line["number"])
            if line["id"] in taken and line["id"] not in there:
                continue
            assert (there[line["id"]].name, there[line["id"]].number) == (
                line["name"],
                line["number"],
            )
        assert gc or len(there) == len(made)
        for name, used in numbers.items():
            assert used == set(range(1, len(used) + 1)), name
        assert list(repository.tmp.iterdir()) == []
        before = dump.content(repository.database)
        for path in folder.glob(".dlv/dlv.db*"):
            path.unlink()
        repository.close()
        assert check.rebuild(repository).faults == []
        after = dump.content(repository.database)
        assert [name for name in before if before[name] != after[name]] == []


def test_commits(fast: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = fast / "crowd"
    made = crowd(folder, tmp_path_factory.mktemp("home"), 8, 5)
    assert len(made) == 40
    whole(folder, made)


def archived(folder: Path) -> None:
    """The packs are those that the catalogue knows, and differences are among them."""
    with Repository.find(folder) as repository:
        archiving.archive(
            repository, proposal.Request(policy=Policy(alpha=50.0)), progress=crowding.silent
        )
        known = {name for name, _ in matrices.packs(repository.database)}
        assert {path.stem for path in repository.packs.glob("*/*.pack")} == known
        assert not (repository.path / superseded.INTENT).exists()
        stored = usage.stored_matrices(repository.database)
        assert any(matrix.delta is not None for matrix in stored)
        assert check.check(repository).faults == []


@pytest.mark.slow
def test_commits_reading_and_archives(fast: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = fast / "archiving"
    made = crowd(folder, tmp_path_factory.mktemp("home"), 4, 6, "archiving")
    assert len(made) == 12
    whole(folder, made)
    archived(folder)


@pytest.mark.parametrize(("many", "turns"), [(4, 6), pytest.param(12, 16, marks=pytest.mark.slow)])
def test_gc_among_all_others(
    fast: Path, tmp_path_factory: pytest.TempPathFactory, many: int, turns: int
) -> None:
    folder = fast / f"collecting{many}"
    made = crowd(folder, tmp_path_factory.mktemp("home"), many, turns, "collecting")
    assert len(made) == many * turns // 2
    whole(folder, made, gc=True)


@pytest.mark.slow
@pytest.mark.parametrize("many", [6, 12])
def test_much_reading_and_many_archives(
    fast: Path, tmp_path_factory: pytest.TempPathFactory, many: int
) -> None:
    folder = fast / f"archiving{many}"
    made = crowd(folder, tmp_path_factory.mktemp("home"), many, 12, "archiving")
    assert len(made) == many * 6
    whole(folder, made)
    archived(folder)


@pytest.mark.slow
@pytest.mark.parametrize("many", [4, 16])
def test_commits_tags_removals_and_undo(
    fast: Path, tmp_path_factory: pytest.TempPathFactory, many: int
) -> None:
    folder = fast / f"mixed{many}"
    made = crowd(folder, tmp_path_factory.mktemp("home"), many, 16, "mixed")
    assert len(made) == many * 8
    whole(folder, made)
