"""`rm`: what is hidden, what is refused, and the bytes that gc could free."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import dlv.repository.revisions as revisions
from dlv.canonical import dumps
from dlv.errors import Conflict, NotFound, UsageError
from dlv.metadata import versions
from dlv.repository.handle import Repository
from dlv.versions.remove import Removed, parse_steps, remove

AUTHOR = "Ada <ada@example.org>"
Commit = Callable[..., str]


@pytest.fixture
def repository(tmp_path: Path, commit_model: Commit) -> Iterator[Repository]:
    """net@1 with steps 1 2 3, net@2 with the same step 3 and an own 4."""
    made, _ = Repository.init(tmp_path)
    rng = np.random.default_rng(0)
    held = {step: {"w": rng.normal(0, 1, 70_000).astype(np.float32)} for step in (1, 2, 3, 4)}
    commit_model(made, "net", {step: held[step] for step in (1, 2, 3)})
    commit_model(made, "net", {step: held[step] for step in (3, 4)})
    yield made
    made.close()


def states(repository: Repository) -> dict[str, str]:
    every = versions.all_versions(repository.database, ("live", "removed", "undone"))
    return {version.label: version.state for version in every}


def gone(repository: Repository, label: str) -> list[int | None]:
    found = versions.by_number(repository.database, *_split(label))
    assert found is not None
    rows = versions.snapshots(repository.database, found.key)
    return [row.step for row in rows if row.removed]


def _split(label: str) -> tuple[str, int]:
    name, _, number = label.partition("@")
    return name, int(number)


def chunks(repository: Repository, *steps: tuple[str, int]) -> int:
    """Bytes in packs of the planes of these snapshots, straight from the tables."""
    total = 0
    for label, step in steps:
        total += repository.database.value(
            "SELECT sum(length) FROM (SELECT DISTINCT chunk.id, chunk.length FROM chunk"
            " JOIN member ON chunk_id = chunk.id JOIN encoding ON encoding.id = encoding_id"
            " JOIN snapshot_matrix USING (matrix_id) JOIN snapshot ON snapshot.id = snapshot_id"
            " JOIN version ON version.id = version_id WHERE name || '@' || number = ?"
            " AND step = ?)",
            (label, step),
        )
    return total


def test_a_version_is_hidden(repository: Repository) -> None:
    done = remove(repository, ["net@1"], AUTHOR)
    assert states(repository) == {"net@1": "removed", "net@2": "live"}
    assert (done.head, done.kept, done.tags) == (False, ["net@2"], [])
    assert remove(repository, ["HEAD"], AUTHOR).head


def test_only_what_no_other_version_needs_is_freed(repository: Repository) -> None:
    """Step 3 is shared; the skeleton of all files is one object, which net@2 needs, too."""
    own = chunks(repository, ("net@1", 1), ("net@1", 2))
    assert remove(repository, ["net@1"], AUTHOR, dry_run=True).reclaimable == own
    both = remove(repository, ["net@1", "net@2"], AUTHOR, dry_run=True).reclaimable
    packs = repository.database.value("SELECT sum(length) FROM chunk")
    assert both == packs
    assert states(repository) == {"net@1": "live", "net@2": "live"}


def test_a_base_of_deltas_is_needed(repository: Repository) -> None:
    """As archive writes it: step 4 stored as a delta against step 1."""
    own = chunks(repository, ("net@1", 1), ("net@1", 2))
    first, last = _hashes(repository)
    repository.database.execute(
        "UPDATE encoding SET base_hash = ?, delta = ?"
        " WHERE matrix_id = (SELECT id FROM matrix WHERE hash = ?)",
        (first, dumps({"id": "xor", "base": first}).decode(), last),
    )
    freed = remove(repository, ["net@1"], AUTHOR, dry_run=True).reclaimable
    assert freed == own - chunks(repository, ("net@1", 1)) > 0
    remove(repository, ["net@2"], AUTHOR, dry_run=True)
    revisions.set_tag(repository, "good", "net@2", AUTHOR)
    with pytest.raises(Conflict, match="net@2, tagged `good`, is stored as a delta to net@1"):
        remove(repository, ["net@1"], AUTHOR)
    remove(repository, ["net@1"], AUTHOR, force=True)
    assert states(repository)["net@1"] == "removed"
    assert [name for name, _ in revisions.tags(repository)] == ["good"]


def _hashes(repository: Repository) -> tuple[str, str]:
    """The matrices of net@1/1 and net@2/4."""
    found = repository.database.rows(
        "SELECT matrix.hash FROM matrix JOIN snapshot_matrix ON matrix_id = matrix.id"
        " JOIN snapshot ON snapshot.id = snapshot_id WHERE step IN (1, 4) ORDER BY step"
    )
    return found[0][0], found[1][0]


def test_snapshots(repository: Repository) -> None:
    done = remove(repository, ["net@1"], AUTHOR, steps="1")
    assert done.reclaimable == chunks(repository, ("net@1", 1))
    assert gone(repository, "net@1") == [1]
    remove(repository, ["net@1"], AUTHOR, steps="2-2")
    assert gone(repository, "net@1") == [1, 2]
    assert states(repository)["net@1"] == "live"
    # What is left needs nothing of the removed ones.
    assert remove(repository, ["net@1"], AUTHOR, dry_run=True).reclaimable == 0


def test_what_only_a_removed_snapshot_shares_is_freed(tmp_path: Path, commit_model: Commit) -> None:
    made, _ = Repository.init(tmp_path)
    rng = np.random.default_rng(0)
    same, own = ({"w": rng.normal(0, 1, 70_000).astype(np.float32)} for _ in range(2))
    commit_model(made, "net", {1: same, 2: same, 3: own})
    assert remove(made, ["net"], AUTHOR, steps="1").reclaimable == 0
    assert remove(made, ["net"], AUTHOR, steps="2").reclaimable == chunks(made, ("net@1", 2))


def test_several_versions_at_once(repository: Repository) -> None:
    with pytest.raises(NotFound):
        remove(repository, ["net@1", "net@2"], AUTHOR, steps="1")
    assert gone(repository, "net@1") == []
    assert len(remove(repository, ["net@1", "net@1"], AUTHOR).removals) == 1


def test_what_is_tagged_stays(repository: Repository) -> None:
    revisions.set_tag(repository, "good", "net@1", AUTHOR)
    with pytest.raises(Conflict, match="has the tag `good`"):
        remove(repository, ["net@1"], AUTHOR)
    done: Removed = remove(repository, ["net@1"], AUTHOR, force=True)
    assert done.tags == ["good"]
    assert revisions.tags(repository) == []
    assert states(repository)["net@1"] == "removed"


def test_snapshots_of_a_tagged_version_may_go(repository: Repository) -> None:
    revisions.set_tag(repository, "good", "net@1", AUTHOR)
    remove(repository, ["good"], AUTHOR, steps="1")
    assert gone(repository, "net@1") == [1]


def test_what_cannot_go(repository: Repository) -> None:
    with pytest.raises(Conflict, match="own weights"):
        remove(repository, ["net@1"], AUTHOR, steps="1-3")
    with pytest.raises(NotFound, match="no checkpoint at step 7"):
        remove(repository, ["net@1"], AUTHOR, steps="7")
    with pytest.raises(NotFound, match="at step 7 to 9"):
        remove(repository, ["net@1"], AUTHOR, steps="1,7-9")
    remove(repository, ["net@1"], AUTHOR)
    with pytest.raises(Conflict, match="is already"):
        remove(repository, ["net@1"], AUTHOR)


def test_steps_in_words() -> None:
    assert parse_steps("1") == [(1, 1)]
    assert parse_steps("1, 5-9,12") == [(1, 1), (5, 9), (12, 12)]
    for text in ("", "a", "1,", "9-5", "1--2", "1-x"):
        with pytest.raises(UsageError):
            parse_steps(text)


def test_a_dry_run_leaves_nothing(repository: Repository) -> None:
    before = sorted(repository.facts.glob("*/*"))
    remove(repository, ["net@1"], AUTHOR, dry_run=True)
    assert sorted(repository.facts.glob("*/*")) == before
    assert states(repository)["net@1"] == "live"
