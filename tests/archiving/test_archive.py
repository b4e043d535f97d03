"""`archive`: smaller, bit for bit the same, within budgets; and what a crash leaves."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlv.archiving.settling as settling
import dlv.disk.durable as durable
import dlv.recovery.superseded as superseded
import dlv.upkeep.check as check
from dlv.archiving.archive import Archived, archive
from dlv.archiving.budgets import Policy
from dlv.archiving.proposal import Bar, Request, explain
from dlv.canonical import matrix_hash
from dlv.errors import Damaged, DlvError, NotFound
from dlv.metadata import matrices, usage, versions
from dlv.metadata.matrices import PackIndex
from dlv.pas.chunks import SUFFIX
from dlv.pas.footer import Encoding
from dlv.pas.packs import Pack
from dlv.pas.plan import make_plan
from dlv.pas.storage_graph import StorageGraph, StoragePlan, read_problem
from dlv.repository.handle import Repository
from dlv.versions.remove import remove
from dlv.versions.stats import stats
from dlv.weights.store import MatrixStore

AUTHOR = "Ada <ada@example.org>"
Commit = Callable[..., str]
ANY = Policy(math.inf, math.inf, math.inf)
Weights = dict[str, NDArray[np.float32]]


class Silent:
    def advance(self, count: int) -> None: ...


@contextlib.contextmanager
def silent(what: str, total: int) -> Iterator[Bar]:
    yield Silent()


def line(steps: int, seed: int = 0, size: int = 40_000, drift: float = 1e-5) -> list[Weights]:
    """A model that moves a little at each step."""
    rng = np.random.default_rng(seed)
    held = {"a.weight": rng.normal(0, 0.05, (size // 200, 200)), "a.bias": rng.normal(0, 1, 30)}
    found = []
    for _ in range(steps):
        found.append({name: w.astype(np.float32) for name, w in held.items()})
        held = {name: w + rng.normal(0, drift, w.shape) for name, w in held.items()}
    return found


@pytest.fixture
def repository(tmp_path: Path, commit_model: Commit) -> Iterator[Repository]:
    """net@1 .. net@4, each near the one before, net@3 with two checkpoints more."""
    made, _ = Repository.init(tmp_path)
    models = line(6)
    commit_model(made, "net", {1: models[0]})
    commit_model(made, "net", {2: models[1]})
    commit_model(made, "net", {3: models[2], 4: models[3], 5: models[4]})
    commit_model(made, "net", {6: models[5]})
    yield made
    made.close()


def run(repo: Repository, *references: str, dry_run: bool = False, **given: object) -> Archived:
    given.setdefault("policy", ANY)
    request = Request(references, author=AUTHOR, **given)  # type: ignore[arg-type]
    return archive(repo, request, dry_run=dry_run, progress=silent)


def content(repository: Repository) -> dict[str, bytes]:
    """Every matrix, read and held against its name by an own hash."""
    store = MatrixStore.of(repository)
    found = {}
    for matrix in usage.stored_matrices(repository.database):
        raw = bytes(store.matrix(matrix.hash))
        assert matrix_hash(matrix.dtype, matrix.shape, raw) == matrix.hash
        found[matrix.hash] = raw
    store.close()
    return found


def files(repository: Repository) -> dict[str, int]:
    return {p.stem: p.stat().st_size for p in sorted(repository.packs.glob(f"??/*{SUFFIX}"))}


def sound(repository: Repository) -> None:
    report = check.check(repository)
    assert not report.faults
    assert not report.dangling


def deltas(repository: Repository) -> int:
    return sum(m.delta is not None for m in usage.stored_matrices(repository.database))


def test_raw_is_what_stats_calls_raw(tmp_path: Path, commit_model: Commit) -> None:
    """A frozen matrix is stored once, and part of every snapshot that it is restored with."""
    made, _ = Repository.init(tmp_path)
    frozen, models = np.ones((50, 10), np.float32), line(3)
    commit_model(made, "net", {s: {**m, "frozen": frozen} for s, m in enumerate(models)})
    commit_model(made, "net", {9: {"frozen": frozen}})
    (one, two) = run(made, dry_run=True).rows
    assert [one.raw, two.raw] == [row.raw for row in stats(made, []).rows[::-1]]
    assert one.raw == 3 * 4 * (40_000 + 30 + 500)
    assert two.raw == 4 * 500
    made.close()


@pytest.mark.parametrize("effort", ["fast", "normal", "high"])
def test_everything_comes_back_and_takes_less(repository: Repository, effort: str) -> None:
    before, size = content(repository), sum(files(repository).values())
    outcome = run(repository, effort=effort)
    assert content(repository) == before
    assert outcome.before == size
    assert outcome.after == sum(files(repository).values()) < 0.75 * size
    assert deltas(repository) == 10  # of 12, all but two roots
    assert outcome.changed >= 10
    sound(repository)
    assert run(repository, effort=effort).changed == 0, "what is archived already stays"


@pytest.mark.parametrize("effort", ["fast", "normal", "high"])
def test_a_later_archive_moves_only_new_tensors(
    tmp_path: Path, commit_model: Commit, monkeypatch: pytest.MonkeyPatch, effort: str
) -> None:
    """Where chains are as long as they may be, each new version would shift all of their cuts."""
    for module in ("proposal", "settling"):
        monkeypatch.setattr(f"dlv.archiving.{module}.MAX_DEPTH", 4)
    made, _ = Repository.init(tmp_path)
    models = line(16)
    for step, model in enumerate(models[:14]):
        commit_model(made, "net", {step: model})
    run(made, effort=effort)
    matrices_before = {m.hash: m.delta for m in usage.stored_matrices(made.database)}
    for step, model in enumerate(models[14:], 14):
        commit_model(made, "net", {step: model})
    outcome = run(made, effort=effort)
    later = {m.hash: m.delta for m in usage.stored_matrices(made.database)}
    shifted = [name for name, delta in matrices_before.items() if later[name] != delta]
    assert len(shifted) <= 2, "the last version was not part of any delta"
    assert 2 <= outcome.changed <= 4 + len(shifted)
    assert run(made, effort=effort).changed == 0
    sound(made)
    made.close()


def test_all_is_planned_again_when_a_tenth_more_is_stored(
    repository: Repository, commit_model: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[int] = []

    def watched(graph: StorageGraph, *given: Any, **options: Any) -> Any:
        planned.append(graph.edges)
        return make_plan(graph, *given, **options)

    def plans(**given: Any) -> int:
        """How many plans were made, besides that for the fastest of all."""
        planned.clear()
        assert not check.check(repository).faults
        run(repository, **given)
        return len(planned) - 1

    monkeypatch.setattr("dlv.archiving.proposal.make_plan", watched)
    later = line(9)[6:]
    assert plans() == 1
    assert plans() == 0
    commit_model(repository, "net", {7: {"a.bias": later[0]["a.bias"]}})
    assert plans() == 0, "one matrix more than twelve"
    commit_model(repository, "net", {8: later[1]})
    assert plans() == 1
    assert plans(effort="high") == 1, "other terms"
    assert plans(effort="high", policy=Policy()) == 1
    assert plans(effort="high", policy=Policy()) == 0
    (repository.cache / settling.LAST_PLAN).write_text("[]")
    assert plans(effort="high", policy=Policy()) == 1


def test_more_effort_takes_less(repository: Repository) -> None:
    sizes = [run(repository, effort=effort).after for effort in ("fast", "normal", "high")]
    assert sizes[0] > sizes[1] >= sizes[2]


def test_an_encoding_that_takes_more_than_was_estimated_is_not_written(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, size = content(repository), sum(files(repository).values())
    monkeypatch.setattr("dlv.archiving.planning.IN_CONTEXT", 0.01)
    monkeypatch.setattr("dlv.archiving.reencode.Packing.stored_now", lambda *_: 1)
    outcome = run(repository)
    assert outcome.changed < outcome.matrices  # the small ones alone
    assert sum(files(repository).values()) < 1.02 * size
    assert content(repository) == before
    sound(repository)


def test_time_is_kept_and_what_saves_most_comes_first(repository: Repository) -> None:
    before = content(repository)
    assert run(repository, deadline=time.monotonic()).left > 0
    assert deltas(repository) == 0
    sound(repository)
    outcome = run(repository, deadline=time.monotonic() + 60)
    assert outcome.left == 0
    assert deltas(repository) == 10
    assert content(repository) == before
    sound(repository)


def test_small_matrices_are_not_stored_anew_again_and_again(
    tmp_path: Path, commit_model: Commit
) -> None:
    """They share chunks, so that their share of one is no measure of what they take."""
    made, _ = Repository.init(tmp_path)
    rng = np.random.default_rng(1)
    held = {f"w{i}": rng.normal(0, 10.0**-i, 40 * i + 40) for i in range(8)}
    for step in range(4):
        commit_model(made, "net", {step: {k: w.astype(np.float32) for k, w in held.items()}})
        held = {k: w * (1 + rng.normal(0, 1e-4, w.shape)) for k, w in held.items()}
    assert run(made).changed > 0
    assert run(made).changed == 0
    made.close()


def test_a_rehearsal_changes_nothing_and_says_what_would_be(repository: Repository) -> None:
    size = files(repository)
    planned = run(repository, dry_run=True)
    assert files(repository) == size
    assert deltas(repository) == 0
    done = run(repository)
    assert abs(planned.after - done.after) < 0.1 * done.after
    assert [row.version for row in planned.rows] == [row.version for row in done.rows]


def test_budgets_are_kept(repository: Repository) -> None:
    tight = run(repository, dry_run=True, policy=Policy(alpha=1.0))
    assert all(t.microseconds <= t.fastest for t in tight.snapshots)
    loose = run(repository, dry_run=True, policy=Policy(alpha=8.0))
    assert all(t.microseconds <= t.fastest * 8 for t in loose.snapshots)
    assert loose.after < tight.after
    free = run(repository, dry_run=True)
    assert free.after <= loose.after
    hot = run(repository, dry_run=True, policy=Policy(0.1, math.inf, math.inf))
    latest = next(t for t in hot.snapshots if t.label == "net@4")
    assert latest.microseconds <= 1.1 * latest.fastest
    assert hot.after < tight.after


def test_a_budget_that_no_plan_keeps_is_refused_by_name(repository: Repository) -> None:
    asked = Policy(math.inf, math.inf, math.inf, overrides=(("net@2", 5),))
    with pytest.raises(DlvError) as caught:
        run(repository, policy=asked)
    assert caught.value.exit_code == 9
    assert "net@2: 5 µs asked" in str(caught.value.why)
    assert deltas(repository) == 0
    clamped = run(repository, policy=asked, clamp=True)
    at = next(t for t in clamped.snapshots if t.label == "net@2")
    assert at.microseconds == at.fastest == at.budget


def test_only_what_is_named_is_stored_anew(repository: Repository) -> None:
    outcome = run(repository, "net@2")
    assert [row.version for row in outcome.rows] == ["net@2"]
    assert deltas(repository) == 2
    sound(repository)


def test_what_is_removed_still_comes_back(repository: Repository) -> None:
    before = content(repository)
    remove(repository, ["net@1"], AUTHOR)
    run(repository)
    assert content(repository) == before
    sound(repository)


@pytest.mark.parametrize("algorithm", ["best", "mt", "pt", "last", "mst", "spt"])
@pytest.mark.parametrize("scheme", ["independent", "parallel"])
def test_every_solver(repository: Repository, algorithm: str, scheme: str) -> None:
    before = content(repository)
    policy = Policy(alpha=6.0) if algorithm != "mst" else ANY
    outcome = run(repository, algorithm=algorithm, scheme=scheme, policy=policy)
    assert content(repository) == before
    for timing in outcome.snapshots:
        assert timing.budget is None or timing.microseconds <= timing.budget


def test_graph_and_plan_for_other_programs(repository: Repository, tmp_path: Path) -> None:
    graph, plan = tmp_path / "graph.json", tmp_path / "plan.json"
    outcome = run(repository, dry_run=True, export_graph=graph, export_plan=plan)
    problem = read_problem(graph)
    chosen = StoragePlan.of(problem.graph, json.loads(plan.read_bytes())["edges"])
    assert problem.graph.vertices == outcome.matrices + 1
    assert len(problem.graph.snapshots) == len(outcome.snapshots)
    costs = chosen.snapshot_costs(problem.graph, "independent")
    assert costs == [timing.microseconds for timing in outcome.snapshots]


def test_explain(repository: Repository) -> None:
    request = Request(("net@4",), policy=ANY, effort="high")
    (found,) = explain(repository, request, "a.weight", progress=silent)
    assert found.shape == (200, 200)
    assert sum(way.chosen for way in found.ways) == 1
    kinds = {way.kind for way in found.ways}
    assert {"as it is now", "materialise", "context", "sub"} <= kinds
    assert found.chain[0].startswith("net@4 a.weight")
    with pytest.raises(NotFound) as caught:
        explain(repository, request, "a.wieght", progress=silent)
    assert "a.weight" in caught.value.did_you_mean


def test_a_lost_catalogue_comes_back_with_the_new_encodings(repository: Repository) -> None:
    run(repository)
    before, held = content(repository), PackIndex(repository.database).encoding
    encodings = {name: held(name) for name in before}
    check.rebuild(repository)
    assert content(repository) == before
    held = PackIndex(repository.database).encoding
    assert {name: held(name) for name in before} == encodings
    sound(repository)


def test_old_packs_wait_for_who_reads(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(superseded, "PATIENCE", 0.1)
    other = Repository.find(repository.root)
    before = content(repository)
    with other.writing():
        outcome = run(repository)
        assert outcome.waiting > 0
        assert content(repository) == before
    sound(repository)
    again = run(repository)
    assert again.waiting == 0
    assert again.after < outcome.after
    assert content(repository) == before
    sound(repository)


def test_packs_of_a_killed_archive_are_believed_by_no_rebuild(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after its packs were published: the differences in them must not count."""
    before = content(repository)

    class KilledError(Exception):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr("dlv.archiving.reencode.switch", killed)
    with pytest.raises(KilledError):
        run(repository)
    monkeypatch.undo()
    assert len(files(repository)) > len(matrices.packs(repository.database))
    check.rebuild(repository)
    assert deltas(repository) == 0
    assert content(repository) == before
    outcome = run(repository)
    assert outcome.resumed
    assert content(repository) == before
    assert len(files(repository)) == len(matrices.packs(repository.database))
    sound(repository)


def test_what_does_not_read_back_is_not_switched_to(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, held = content(repository), files(repository)
    real = durable.publish_all

    def spoil(files: list[durable.TemporaryFile], *rest: object) -> list[Path]:
        paths = real(files, *rest)  # type: ignore[arg-type]
        with paths[0].open("r+b") as file:
            file.seek(5000)
            file.write(b"\xff\x00\xff\x00")
        return paths

    monkeypatch.setattr("dlv.weights.writer.publish_all", spoil)
    with pytest.raises(Damaged):
        run(repository)
    monkeypatch.undo()
    assert files(repository) == held
    assert content(repository) == before
    sound(repository)


def test_work_done_before_an_interruption_is_not_done_again(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr("dlv.archiving.reencode.verify", killed)
    with pytest.raises(KilledError):
        run(repository)
    monkeypatch.undo()

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("encoded again")

    monkeypatch.setattr("dlv.archiving.tryouts.small.encode_small", fail)
    run(repository)
    sound(repository)


def test_notes_that_were_cut_off_are_not_believed(repository: Repository) -> None:
    before = content(repository)
    run(repository, dry_run=True, effort="high")
    notes, data = repository.cache / "tryouts.jsonl", repository.cache / "tryouts.bin"
    notes.write_bytes(notes.read_bytes()[:-10])
    damaged = bytearray(data.read_bytes())
    damaged[100:200] = bytes(100)
    data.write_bytes(damaged)
    run(repository)
    assert content(repository) == before
    sound(repository)


def test_a_pack_that_comes_out_as_one_that_is_there(repository: Repository) -> None:
    """A lane written again unchanged has the bytes, so the name, of the pack it is in."""
    run(repository)
    before, db = content(repository), repository.database
    again = []
    for name in files(repository):
        with Pack(durable.path_of(repository.packs, name, SUFFIX)) as pack:
            again.append((name, pack.size, pack.footer.as_json()))
    with db.atomic():
        matrices.supersede(db, again)
    assert matrices.unused_packs(db) == []
    assert content(repository) == before
    sound(repository)


def test_an_index_that_finds_less_is_not_switched_to(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(repository)
    real = matrices.supersede

    def forgetful(db: Any, packs: Any) -> None:
        real(db, packs)
        db.execute("DELETE FROM member WHERE chunk_id = (SELECT max(id) FROM chunk)")

    monkeypatch.setattr("dlv.metadata.matrices.supersede", forgetful)
    with pytest.raises(Damaged, match="does not find"):
        run(repository)
    monkeypatch.undo()
    assert content(repository) == before
    run(repository)
    assert content(repository) == before
    sound(repository)


def test_a_switch_between_two_questions_to_the_index(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that has asked how a matrix is stored, and not yet where."""
    before = content(repository)
    store = MatrixStore.of(repository)
    real, switched = store.encoding, list[str]()

    def encoding(matrix: str) -> Encoding | None:
        found = real(matrix)
        if not switched:
            switched.append(matrix)
            run(repository)
        return found

    monkeypatch.setattr(store, "encoding", encoding)
    name = next(name for name, raw in before.items() if len(raw) > 100_000)
    assert bytes(store.matrix(name)) == before[name]
    assert switched
    switched.clear()
    assert {n: bytes(raw) for n, raw in store.together([name])} == {name: before[name]}
    store.close()


def test_nothing_to_archive(tmp_path: Path) -> None:
    made, _ = Repository.init(tmp_path)
    outcome = run(made)
    assert (outcome.changed, outcome.matrices, outcome.rows) == (0, 0, [])
    made.close()


def test_packs_keep_networks_and_curves(lived: Repository) -> None:
    """A repository with everything in it: all objects move along."""
    before = content(lived)
    ids = [version.id for version in versions.all_versions(lived.database)]
    run(lived)
    assert content(lived) == before
    assert [version.id for version in versions.all_versions(lived.database)] == ids
    sound(lived)
