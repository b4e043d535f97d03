"""`doctor` finds what was really put wrong."""

from __future__ import annotations

from pathlib import Path

from dlv.commands.import_ import run
from dlv.doctor import Check, examine
from dlv.fact import Fact
from dlv.metadata import facts
from dlv.repository import Repository


def by_name(found: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in found}


def test_a_healthy_repository_has_no_fault(tmp_path: Path) -> None:
    Repository.init(tmp_path)[0].close()
    found = examine(tmp_path, None, {"OMP_NUM_THREADS": "3"})
    assert [check for check in found if check.ok is False] == []
    assert "OMP_NUM_THREADS=3" in by_name(found)["threads"].detail


def test_outside_a_repository_it_says_so_without_calling_it_a_fault(tmp_path: Path) -> None:
    found = by_name(examine(tmp_path, None, {}))
    assert found["repository"].ok is None
    assert found["repository"].hint == "dlv init"
    assert "catalogue" not in found


def test_a_lost_catalogue_is_a_fault_with_the_way_back(tmp_path: Path) -> None:
    repository, _ = Repository.init(tmp_path)
    repository.close()
    repository.database_file.unlink()
    found = by_name(examine(tmp_path, None, {}))["catalogue"]
    assert found.ok is False
    assert "--rebuild" in (found.hint or "")


def test_a_clock_behind_the_newest_entry_is_a_fault(tmp_path: Path) -> None:
    repository, _ = Repository.init(tmp_path)
    late = Fact("tag", "t", "", "2999-01-01T00:00:00.000000Z", {"version": None})
    facts.load(repository.database, [late])
    repository.close()
    assert by_name(examine(tmp_path, None, {}))["clock"].ok is False


def test_checkpoints_of_a_killed_run_are_found(tmp_path: Path) -> None:
    repository, _ = Repository.init(tmp_path)
    repository.close()
    (repository.path / "runs" / "20260101-000000-abcdef").mkdir(parents=True)
    found = by_name(examine(tmp_path, None, {}))["unfinished runs"]
    assert found.ok is False
    assert "20260101-000000-abcdef" in (found.hint or "")
    command = (found.hint or "").partition(",")[0].split()[1:]
    context = run.make_context("import", command[1:], resilient_parsing=False)
    assert context.params["files"] == (str(repository.path / "runs" / "20260101-000000-abcdef"),)


def test_a_missing_folder_shows_under_permissions(tmp_path: Path) -> None:
    repository, _ = Repository.init(tmp_path)
    repository.close()
    (repository.path / "tmp").rmdir()
    found = by_name(examine(tmp_path, None, {}))["permissions"]
    assert found.ok is False
    assert "tmp" in found.detail
