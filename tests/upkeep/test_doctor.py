"""`doctor` finds what was really put wrong."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from dlv.commands.import_ import run
from dlv.metadata import facts
from dlv.objects.fact import Fact
from dlv.repository.handle import Repository
from dlv.upkeep.doctor import EXTRAS, Check, examine


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
    assert found["repository"].hint == "to create one: dlv init"
    assert "database" not in found


def test_a_lost_catalogue_is_a_fault_with_the_way_back(tmp_path: Path) -> None:
    repository, _ = Repository.init(tmp_path)
    repository.close()
    repository.database_file.unlink()
    found = by_name(examine(tmp_path, None, {}))["database"]
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


def test_what_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Derived things do not matter. Who runs the tests may read everything: hence the stand-in."""
    repository, _ = Repository.init(tmp_path)
    repository.close()
    pack, derived = repository.packs / "ab" / "abc.pack", repository.path / "live.db"
    for path in (pack, derived):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
        path.chmod(0)
    access = os.access

    def by_mode(path: Path, mode: int) -> bool:
        return access(path, mode) and bool(Path(path).stat().st_mode & 0o400)

    monkeypatch.setattr(os, "access", by_mode)
    found = by_name(examine(tmp_path, None, {}))["readable"]
    assert (found.ok, found.detail) == (False, "not readable: packs/ab/abc.pack")
    pack.chmod(0o600)
    assert "readable" not in by_name(examine(tmp_path, None, {}))
    pack.parent.chmod(0o300)
    found = by_name(examine(tmp_path, None, {}))["readable"]
    assert found.detail.startswith("not readable: packs/ab")


def test_every_extra_is_looked_for() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    of_users = project["project"]["optional-dependencies"].keys() - {"all", "dev", "bench"}
    assert EXTRAS.keys() == of_users
