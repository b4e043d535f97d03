"""Tables of frequencies, which chunks name in their codecs, are kept for as long as those are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.archiving.reencode as reencode
import dlv.disk.durable as durable
import dlv.recovery.rebuild as rebuild
import dlv.recovery.superseded as superseded
import dlv.upkeep.check as check
from dlv.archiving.reencode import Packing, Work, carry_out, work
from dlv.archiving.tryouts import Choice, Tryouts
from dlv.canonical import matrix_hash
from dlv.metadata import matrices, usage
from dlv.metadata.matrices import PackIndex
from dlv.pas.chunks import SUFFIX
from dlv.pas.footer import Encoding
from dlv.repository.handle import Repository
from dlv.versions.remove import remove
from dlv.weights.store import MatrixStore
from tests.format.reader import Packs
from tests.pas.unwritten import encode_in_contexts

AUTHOR = "Ada <ada@example.org>"
Commit = Callable[..., str]
SHAPE = (600, 250)


def models() -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    found = [{name: rng.normal(0, 0.05, SHAPE).astype("f4") for name in "ab"}]
    found.append({n: (w + rng.normal(0, 1e-4, SHAPE)).astype("f4") for n, w in found[0].items()})
    return found


def name_of(weights: Any) -> str:
    return matrix_hash("float32", SHAPE, weights.tobytes())


@pytest.fixture
def repository(tmp_path: Path, commit_model: Commit) -> Iterator[Repository]:
    """net@1 and net@2, whose matrices are deltas that the range coder has written."""
    made, _ = Repository.init(tmp_path)
    first, second = models()
    commit_model(made, "net", first)
    commit_model(made, "net", second)
    with made.writing():
        store = MatrixStore.of(made)
        with Packing(store) as packing:
            for name, target in second.items():
                base = first[name]
                given = (target.tobytes(), base.tobytes(), "float32", SHAPE)
                encoding, parts, tables = encode_in_contexts(
                    *given, (name_of(target), name_of(base)), codec="context-rans"
                )
                for table in tables:
                    packing.add_object("table", table)
                for part in parts:
                    packing.put(encoding, part)
            packs = packing.finish(lambda _: None)
        with made.change("archive", AUTHOR) as change:
            rows = [(pack.hash, pack.bytes, pack.footer) for pack in packs]
            matrices.supersede(change.db, rows)
            change.record("archive", None, {"packs": [pack.hash for pack in packs]})
            change.summary = "by the range coder"
        store.close()
    superseded.clear(made)
    yield made
    made.close()


def tables_of(repository: Repository) -> dict[str, list[int]]:
    """Table -> its chunks, as the index has them."""
    found: dict[str, list[int]] = {}
    for name, chunk in repository.database.rows(
        "SELECT hash, chunk_id FROM named_object JOIN member ON object_id = named_object.id"
        " WHERE kind = 'table'"
    ):
        found.setdefault(name, []).append(chunk)
    return found


def whole(repository: Repository) -> None:
    """Everything reads, fsck finds no fault, and so does a reader that knows nothing of dlv."""
    report = check.check(repository)
    assert not report.faults
    store = MatrixStore.of(repository)
    packs = Packs.of(repository.root)
    for weights in models():
        for array in weights.values():
            assert bytes(store.matrix(name_of(array))) == array.tobytes()
            assert packs.matrix(name_of(array)) == array.tobytes()
    store.close()


def test_tables_count_as_needed(repository: Repository) -> None:
    whole(repository)
    first, second = models()
    db = repository.database
    tables = {chunk for chunks in tables_of(repository).values() for chunk in chunks}
    assert tables
    needed = usage.chunks_needed(
        db, [], [(1, "matrix", name_of(first["a"])), (2, "matrix", name_of(second["a"]))]
    )
    mine = {chunk for owner, chunk in needed if owner == 2}
    named = {
        str(row.codec["table"])
        for row in PackIndex(db).chunks(name_of(second["a"]))
        if "table" in row.codec
    }
    assert mine & tables == {chunk for table in named for chunk in tables_of(repository)[table]}
    assert not {chunk for owner, chunk in needed if owner == 1} & tables
    store = MatrixStore.of(repository)
    pieces = store.pieces_behind(name_of(second["a"]))
    assert sum(piece.kind == "table" for piece in pieces) == len(named) > 0
    assert {piece.kind for piece in pieces} == {"plane", "side", "table"}
    store.close()


def store_alone(repository: Repository, *names: str) -> Work:
    """Store matrices on their own; what else had to move."""
    held = {row.matrix: row for row in _encodings(repository)}
    store = MatrixStore.of(repository)
    with repository.writing(), Tryouts(repository.cache, store.matrix) as tried:
        plan = work(repository, [(Choice(name, None, "materialise"), held[name]) for name in names])
        moved = Work(plan.choices, list(plan.carried), list(plan.objects))
        carry_out(repository, plan, tried, AUTHOR, "stored by themselves")
    store.close()
    superseded.clear(repository)
    return moved


def named_by(repository: Repository, name: str) -> set[str]:
    """The tables that chunks of a matrix name."""
    chunks = PackIndex(repository.database).chunks(name)
    return {str(chunk.codec["table"]) for chunk in chunks if "table" in chunk.codec}


def packs_there(repository: Repository) -> set[str]:
    return {path.stem for path in repository.packs.glob(f"*/*{SUFFIX}")}


def test_tables_move_along_with_those_that_name_them(repository: Repository) -> None:
    """Another matrix of their pack is stored anew, the pack is written again and goes."""
    second = models()[1]
    names = [name_of(second["a"]), name_of(second["b"])]
    before, tables = packs_there(repository), set(tables_of(repository))
    needed = named_by(repository, names[1])
    assert needed < tables == named_by(repository, names[0]) | needed
    moved = store_alone(repository, names[0])
    assert {name for kind, name in moved.objects if kind == "table"} == needed
    assert set(tables_of(repository)) == needed
    assert len(before & packs_there(repository)) == len(before) - 1
    whole(repository)
    moved = store_alone(repository, names[1])
    assert not [name for kind, name in moved.objects if kind == "table"]
    assert not tables_of(repository)
    assert packs_there(repository) == {name for name, _ in matrices.packs(repository.database)}
    whole(repository)
    assert not check.rebuild(repository).faults
    whole(repository)


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_what_is_dead_already_counts(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """A large pack is written again when much of it is dead, however little each archive left."""
    first, second = models()
    names = [name_of(first["a"]), name_of(second["a"]), name_of(second["b"])]
    monkeypatch.setattr(reencode, "DEAD", 1.1)
    assert not store_alone(repository, names[1]).carried
    before = packs_there(repository)
    whole(repository)
    monkeypatch.setattr(reencode, "DEAD", share)
    # Nothing of the pack that was left half dead is touched now.
    moved = store_alone(repository, names[0])
    gone = before - packs_there(repository)
    assert (names[2] in {encoding.matrix for encoding in moved.carried}) == (share < 0.5)
    assert len(gone) == (2 if share < 0.5 else 0)
    whole(repository)
    assert not check.rebuild(repository).faults


def test_tables_survive_a_removal_and_a_rebuild(repository: Repository) -> None:
    remove(repository, ["net@1"], AUTHOR, force=True)
    whole(repository)
    report = check.rebuild(repository)
    assert not report.faults
    assert tables_of(repository)
    whole(repository)


def test_a_lost_table_reaches_the_versions_coded_with_it(repository: Repository) -> None:
    second = models()[1]
    index = PackIndex(repository.database)
    table = next(
        row.codec["table"] for row in index.chunks(name_of(second["a"])) if "table" in row.codec
    )
    (piece,) = index.object_chunks("table", table)
    path = durable.path_of(repository.packs, piece.pack, SUFFIX)
    data = bytearray(path.read_bytes())
    data[piece.offset + piece.length // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    report = check.check(repository)
    (fault,) = [fault for fault in report.faults if fault.kind == "pack"]
    assert fault.versions == ("net@2",)
    assert name_of(second["a"]) in fault.matrices
    assert name_of(models()[0]["a"]) not in fault.matrices


def _encodings(repository: Repository) -> list[Encoding]:
    return [
        Encoding(row.hash, row.dtype, row.shape, row.layout, row.delta, row.planes)
        for row in usage.stored_matrices(repository.database)
    ]


def test_after_a_rebuild_no_pack_goes(repository: Repository) -> None:
    """The old catalogue may not name what the new one, made by another process, does."""
    with Repository.find(repository.root) as archiving:
        known = {name for name, _ in matrices.packs(archiving.database)}
        assert known
        with archiving.database.atomic():
            archiving.database.execute("DELETE FROM member")
            archiving.database.execute("DELETE FROM chunk")
        with Repository.find(repository.root) as other:
            rebuild.rebuild(other)
        superseded.clear(archiving)
    with Repository.find(repository.root) as after:
        assert {name for name, _ in matrices.packs(after.database)} == known
        assert check.check(after).faults == []
