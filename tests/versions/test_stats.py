"""`stats`: bytes that add up to what is on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import dlv.versions.remove as remove
from dlv.repository.handle import Repository
from dlv.versions.stats import GROUPINGS, Row, Statistics, stats
from tests.differences import chain

Commit = Callable[..., str]
LOG = "step,loss\n" + "".join(f"{step},{1 / step}\n" for step in range(1, 50))


@pytest.fixture
def repository(tmp_path: Path, commit_model: Commit) -> Iterator[Repository]:
    """net@2 shares `frozen` with net@1; other@1 shares nothing."""
    made, _ = Repository.init(tmp_path)
    rng = np.random.default_rng(0)
    frozen = rng.normal(0, 1, (300, 10)).astype(np.float32)

    def fresh() -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        return rng.normal(0, 1, (200, 10)).astype(np.float32)

    commit_model(made, "net", {"frozen": frozen, "head": fresh()}, files={"log.csv": LOG})
    commit_model(made, "net", {"frozen": frozen, "head": fresh()})
    commit_model(made, "other", {"whole": fresh()}, root=True)
    yield made
    made.close()


def by_name(found: Statistics) -> dict[str, Row]:
    return {row.name: row for row in found.rows}


def needed(made: Repository) -> list[int]:
    return [row.share.needed for row in stats(made, []).rows if row.share is not None]


def test_by_version(repository: Repository) -> None:
    found = stats(repository, [])
    rows = by_name(found)
    assert [row.name for row in found.rows] == ["other@1", "net@2", "net@1"]
    assert rows["net@1"].raw == rows["net@2"].raw == 4 * (3000 + 2000)
    assert rows["other@1"].raw == 4 * 2000
    assert found.totals.raw == sum(row.raw for row in found.rows)
    # The shared matrix is stored once.
    assert found.totals.stored < sum(row.stored for row in found.rows)
    assert rows["net@1"].ratio == rows["net@1"].raw / rows["net@1"].stored


def test_freed_is_what_rm_says(repository: Repository) -> None:
    for row in stats(repository, []).rows:
        gone = remove.remove(repository, [row.name], "Ada", dry_run=True)
        assert row.freed == gone.reclaimable, row.name


def test_together_all_counts_once(repository: Repository) -> None:
    """net@1 and net@2 share a matrix: each alone frees less than half of what both do."""
    for names in (["net@1"], ["net@1", "net@2"], ["net@1", "net@2", "other@1"]):
        found = stats(repository, names)
        gone = remove.remove(repository, names, "Ada", dry_run=True)
        assert found.totals.share is not None
        assert found.totals.share.freed == gone.reclaimable
        alone = [row.share for row in found.rows]
        assert all(share is not None and share.freed <= share.needed for share in alone)
        lines = [share for share in alone if share is not None]
        if len(names) == 1:
            assert found.totals.share == lines[0]
        else:
            assert sum(share.freed for share in lines) < found.totals.share.freed
            assert sum(share.needed for share in lines) > found.totals.share.needed
    share = stats(repository, []).totals.share
    assert share is not None
    chunks = repository.database.value("SELECT sum(length) FROM chunk")
    assert share.freed == share.needed == chunks
    assert stats(repository, [], "tensor").totals.share is None


def test_a_removed_version_holds_nothing_back(repository: Repository) -> None:
    before = by_name(stats(repository, []))["net@1"].freed
    remove.remove(repository, ["net@2"], "Ada")
    rows = by_name(stats(repository, []))
    assert set(rows) == {"net@1", "other@1"}
    after = rows["net@1"].freed
    assert before is not None
    assert after is not None
    assert after > before + 4 * 2500, "the frozen matrix is its own now"


def test_a_base_is_needed_by_what_is_stored_as_its_delta(
    tmp_path: Path, commit_model: Commit
) -> None:
    made, _ = Repository.init(tmp_path)
    rng = np.random.default_rng(0)
    for _ in range(3):
        commit_model(made, "net", {"w": rng.normal(0, 1, 70_000).astype(np.float32)})
    before = {name: row.freed for name, row in by_name(stats(made, [])).items()}
    stored = [round(row.stored) for row in stats(made, []).rows]
    db = made.database
    chunks = db.value("SELECT sum(length) FROM chunk")
    own = [row.freed or 0 for row in stats(made, []).rows]
    common = chunks - sum(own)  # the skeleton is the same in all
    assert needed(made) == [size + common for size in own]
    assert len(chain(db)) == 3
    after = {name: row.freed for name, row in by_name(stats(made, [])).items()}
    assert (before["net@1"] or 0) > 200_000
    assert (after["net@1"], after["net@2"], after["net@3"]) == (0, 0, before["net@3"])
    # net@3 is read with net@2 and net@1, net@2 with net@1. What is stored is each one's own.
    assert needed(made) == [chunks, chunks - own[0], chunks - own[0] - own[1]]
    assert [round(row.stored) for row in stats(made, []).rows] == stored
    # Without the first two, only net@3 needs their matrices.
    remove.remove(made, ["net@1", "net@2"], "Ada")
    assert by_name(stats(made, []))["net@3"].freed == db.value("SELECT sum(length) FROM chunk")


def test_all_together_free_everything(repository: Repository) -> None:
    gone = remove.remove(repository, ["net@1", "net@2", "other@1"], "Ada", dry_run=True)
    assert gone.reclaimable == repository.database.value("SELECT sum(length) FROM chunk")


def test_removed_snapshots_do_not_count(tmp_path: Path, commit_model: Commit) -> None:
    made, _ = Repository.init(tmp_path)
    held = {step: {"w": np.full(100, step, np.float32)} for step in (1, 2)}
    commit_model(made, "net", held)
    assert stats(made, []).totals.raw == 800
    remove.remove(made, ["net"], "Ada", steps="1")
    (row,) = stats(made, []).rows
    assert (row.raw, row.count) == (400, 1)


def test_some_versions(repository: Repository) -> None:
    found = stats(repository, ["net@1", "net@1", "net"])
    assert [row.name for row in found.rows] == ["net@1", "net@2"]
    assert found.totals.versions == 2
    assert found.rows[0].freed == by_name(stats(repository, []))["net@1"].freed


def test_by_matrix(repository: Repository) -> None:
    rows = by_name(stats(repository, [], "tensor"))
    assert {name: row.count for name, row in rows.items()} == {"frozen": 1, "head": 2, "whole": 1}
    assert rows["frozen"].raw == 2 * 4 * 3000
    assert rows["frozen"].stored < 4 * 3000 + 200
    assert set(by_name(stats(repository, ["other"], "tensor"))) == {"whole"}


@pytest.mark.parametrize("by", ["codec", "layout"])
def test_every_byte_of_a_chunk_is_counted_once(repository: Repository, by: str) -> None:
    chunks = repository.database.row("SELECT sum(length), sum(raw) FROM chunk")
    found = stats(repository, [], by)
    assert chunks is not None
    assert sum(row.raw for row in found.rows) == chunks[1]
    assert round(sum(row.stored for row in found.rows)) == chunks[0]


def test_layouts_name_deltas_and_kinds(repository: Repository) -> None:
    assert set(by_name(stats(repository, [], "layout"))) == {"ieee", "series", "points", "skeleton"}
    repository.database.execute('UPDATE encoding SET delta = \'{"id":"xor"}\' WHERE id = 1')
    assert "ieee, delta xor" in by_name(stats(repository, ["net@1"], "layout"))


def test_totals_are_those_of_the_disk(repository: Repository) -> None:
    totals = stats(repository, []).totals
    files = [path for path in repository.path.rglob("*") if path.is_file()]
    assert totals.packs == sum(p.stat().st_size for p in files if p.suffix == ".pack")
    whole = totals.packs + totals.files + totals.database + totals.other
    assert whole == sum(path.stat().st_size for path in files)
    assert totals.files > 0


def test_an_empty_repository(tmp_path: Path) -> None:
    made, _ = Repository.init(tmp_path)
    for by in GROUPINGS:
        found = stats(made, [], by)
        assert (found.rows, found.totals.raw, found.totals.ratio) == ([], 0, None)
