"""What `dlv tensorboard` shows: versions as runs, a folder of logs, and all that is new."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.curves.board as boards
import dlv.curves.frozen as frozen_curves
import dlv.curves.ingest as ingest
import dlv.versions.commit as committing
import dlv.versions.remove as remove
from dlv.curves.board import Board, DirectoryBoard, VersionsBoard
from dlv.curves.store import LIVE
from dlv.errors import NotFound
from dlv.events.formats.pbtxt import GraphNode, graph_def
from dlv.repository.handle import Repository
from dlv.versions.commit import Request
from tests import event_bytes
from tests.events import foreign_logs

Commit = Callable[..., str]
NODES: list[dict[str, Any]] = [
    {"name": "flat", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["x"]},
    {"name": "fc", "op": "FULL", "attrs": {"out": 10}, "inputs": ["flat"]},
]
NODES[1]["params"] = {"weight": "fc.weight", "bias": "fc.bias"}


def weights(seed: int) -> dict[str, Any]:
    made = np.random.default_rng(seed).normal(size=(10, 64)).astype("f4")
    return {"fc.weight": made, "fc.bias": np.zeros(10, "f4")}


@pytest.fixture
def repository(tmp_path: Path, commit_model: Commit) -> Iterator[Repository]:
    folder = tmp_path / "models"
    folder.mkdir()
    with Repository.init(folder)[0] as made:
        for number in (1, 2):
            text = "step,loss\n" + "".join(f"{step},{number / step}\n" for step in range(1, 6))
            files, parameters = {"log.csv": text}, {"lr": number / 10}
            commit_model(made, "net", weights(number), NODES, files=files, parameters=parameters)
        yield made


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def begun() -> Iterator[Callable[[Board], Board]]:
    """begun(board): its first look is over."""
    made: list[Board] = []

    def begin(board: Board) -> Board:
        made.append(board)
        board.start()
        until(lambda: board._seen.is_set())
        return board

    yield begin
    for board in made:
        board.release()
        board.close()
        assert not board.scratch.exists()


def until(holds: Callable[[], bool]) -> None:
    """However long it takes; a machine may be busy."""
    ends = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_versions_are_runs(repository: Repository, told: list[str], begun: Any) -> None:
    board = begun(VersionsBoard(repository, [], tell=told.append))
    provider = board.ask()
    assert [run.name for run in provider.runs()] == ["net@1", "net@2"]
    assert provider.read_last_scalars()["net@2"]["loss"].value == pytest.approx(2 / 5)
    groups = provider.read_hyperparameters()
    assert [(group.runs, group.values["lr"]) for group in groups] == [
        (("net@1",), 0.1),
        (("net@2",), 0.2),
    ]
    assert provider.plugins() == ["graphs", "scalars"]
    (graph,) = provider.read_blob_sequences("graphs", runs=["net@1"])["net@1"]["__run_graph__"]
    assert b"FULL" in provider.read_blob(graph.blobs[0].key)
    until(lambda: (board.directory / "net@1" / "projector_config.pbtxt").exists())
    assert told == []


@pytest.mark.parametrize("taken", [False, True])
def test_the_network_beside_a_graph_that_was_logged(
    repository: Repository, tmp_path: Path, told: list[str], begun: Any, taken: bool
) -> None:
    """It has a tag then, and is what TensorBoard reads under a tag."""
    config_pb2 = pytest.importorskip("tensorboard.compat.proto.config_pb2")
    logged = graph_def([GraphNode("mine", "Relu")])
    data = event_bytes.version() + event_bytes.event(1.0, 0, event_bytes.part(4, logged))
    data += event_bytes.scalars("network", [1]) if taken else b""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "events.out.tfevents.1.x").write_bytes(data)
    with closing(ingest.event_logs_of_folder(repository.path, tmp_path / "runs")) as events:
        request = Request("with a graph", "Ada <ada@example.org>", "net", events=[events])
        committing.commit(repository, request)
    for _ in range(2):  # all is in place the second time
        board = begun(VersionsBoard(repository, ["net@3"], tell=told.append))
        provider = board.ask()
        (own,) = provider.read_blob_sequences("graphs")["net@3"]["__run_graph__"]
        assert provider.read_blob(own.blobs[0].key) == logged
        found = provider.series("graph_run_metadata_graph")["net@3"]
        ((tag, row),) = found.items()
        assert (tag, row.content) == ("network (dlv)" if taken else "network", b"1")
        (point,) = provider.read_blob_sequences("graph_run_metadata_graph")["net@3"][tag]
        blob = provider.read_blob(point.blobs[0].key)
        functions = config_pb2.RunMetadata.FromString(blob).function_graphs
        assert [node.op for node in functions[0].pre_optimization_graph.node][-1] == "FULL"
        board.release()
    assert told == []


def test_only_what_was_named(repository: Repository, told: list[str], begun: Any) -> None:
    board = begun(VersionsBoard(repository, ["net@1"], tell=told.append))
    assert [run.name for run in board.ask().runs()] == ["net@1"]
    assert list(board.ask().list_scalars(runs=["net@2"])) == []
    both = begun(VersionsBoard(repository, ["net@2", "net~1"], tell=told.append))
    assert [run.name for run in both.ask().runs()] == ["net@1", "net@2"]


def test_a_second_board_finds_all_in_place(
    repository: Repository, told: list[str], begun: Any
) -> None:
    for _ in range(2):
        board = begun(VersionsBoard(repository, [], tell=told.append))
        found = board.ask().read_blob_sequences("graphs")["net@1"]["__run_graph__"]
        assert len(found) == 1
        board.release()


def test_a_new_version_appears_a_removed_one_goes(
    repository: Repository,
    told: list[str],
    begun: Any,
    commit_model: Commit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(boards, "RELOAD", 0.02)
    board = begun(VersionsBoard(repository, [], tell=told.append))
    with Repository.find(repository.root) as other:
        commit_model(other, "net", weights(3), NODES)
        until(lambda: len(board.ask().runs()) == 3)
        remove.remove(other, ["net@1"], "Ada", force=True)
        until(lambda: [run.name for run in board.ask().runs()] == ["net@2", "net@3"])
    assert told == []


def test_a_training_that_goes_on(
    tmp_path: Path, told: list[str], begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "RELOAD", 0.02)
    path = foreign_logs.written(tmp_path / "runs" / "a", [foreign_logs.simple(0, loss=1.0)])
    board = begun(DirectoryBoard(tmp_path / "runs", None, tell=told.append))
    where = {"experiment": board.experiment}

    def steps(run: str) -> list[int]:
        found = board.ask().read_scalars(**where).get(run, {})
        return found["loss"].steps.tolist() if "loss" in found else []

    assert steps("a") == [0]
    whole = path.read_bytes()
    more = foreign_logs.written(
        tmp_path / "more", [foreign_logs.simple(1, loss=0.5)], version=False
    ).read_bytes()
    path.write_bytes(whole + more[:-3])  # caught in the middle of a write
    foreign_logs.written(tmp_path / "runs" / "b", [foreign_logs.simple(7, loss=2.0)])
    until(lambda: steps("b") == [7])
    assert steps("a") == [0]
    path.write_bytes(whole + more)
    until(lambda: steps("a") == [0, 1])
    assert told == []


def test_a_training_that_writes_text(
    tmp_path: Path, told: list[str], begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is there at first, which is said; then lines come, one of them half."""
    monkeypatch.setattr(boards, "RELOAD", 0.02)
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "data.csv").write_text("age,height\n1,2\n")
    board = begun(DirectoryBoard(folder, None, tell=told.append))
    until(lambda: len(told) == 1)
    assert told[0].startswith(f"no logs below {folder} yet: event files")
    told.clear()
    where = {"experiment": board.experiment}

    def steps(run: str) -> list[int]:
        board.release()
        found = board.ask().read_scalars(**where).get(run, {})
        return found["loss"].steps.tolist() if "loss" in found else []

    with (folder / "a.jsonl").open("w") as file:
        file.write('{"step": 1, "loss": 0.5}\n{"step": 2, "lo')
        file.flush()
        until(lambda: steps("a") == [1])
        (folder / "b").mkdir()
        (folder / "b" / "metrics.csv").write_text("step,loss\n3,0.5\n")
        until(lambda: steps("b") == [3])
        assert steps("a") == [1]
        file.write('ss": 0.25}\n')
        file.flush()
        until(lambda: steps("a") == [1, 2])
    assert told == []


def test_damaged_logs_are_told_of_once_and_harm_no_other(
    tmp_path: Path, told: list[str], begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "RELOAD", 0.02)
    folder = tmp_path / "runs"
    foreign_logs.written(folder / "good", [foreign_logs.simple(0, loss=1.0)])
    path = foreign_logs.written(
        folder / "bad", [foreign_logs.simple(step, loss=1.0) for step in range(50)]
    )
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    (folder / "none").mkdir()
    (folder / "none" / "events.out.tfevents.1").write_bytes(os.urandom(3000))
    (folder / "none" / "events.out.tfevents.2").write_bytes(b"")
    board = begun(DirectoryBoard(folder, None, tell=told.append))
    found = board.ask().read_scalars(experiment=board.experiment)
    assert found["good"]["loss"].steps.tolist() == [0]
    assert 10 < len(found["bad"]["loss"]) < 40
    (folder / "late").mkdir()
    (folder / "late" / "events.out.tfevents.3").write_bytes(b"\xff" * 100)
    until(lambda: any("tfevents.3" in text for text in told))
    assert len(told) == len(set(told)) >= 2
    assert any("bad" in text for text in told)


def test_a_store_that_is_no_good_is_made_anew(
    repository: Repository, told: list[str], begun: Any
) -> None:
    (repository.path / LIVE).write_bytes(os.urandom(10_000))
    board = begun(VersionsBoard(repository, [], tell=told.append))
    assert len(board.ask().runs()) == 2


def test_a_store_that_is_deleted_is_made_anew(
    repository: Repository, told: list[str], begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "RELOAD", 0.02)
    board = begun(VersionsBoard(repository, [], tell=told.append))
    assert len(board.ask().runs()) == 2
    board.release()
    for path in repository.path.glob(f"{LIVE}*"):
        path.unlink()
    until(lambda: (repository.path / LIVE).exists())

    def shown() -> bool:
        board.release()
        plugins: list[str] = board.ask().plugins()
        return plugins == ["graphs", "scalars"]

    until(shown)
    assert (repository.path / LIVE).stat().st_size > 0


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


def test_what_is_shown_stays_when_a_look_fails(
    repository: Repository, told: list[str], begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "RELOAD", 0.02)
    board = begun(VersionsBoard(repository, [], tell=told.append))
    errors = [OSError("disk gone"), RuntimeError("a bug"), NotFound("no pack", hint="look")]
    for error in errors:
        wanted = str(error)
        with monkeypatch.context() as patch:
            patch.setattr(frozen_curves, "fill", failing(error))
            until(lambda wanted=wanted: any(wanted in text for text in told))  # type: ignore[misc]
        assert len(board.ask().runs()) == 2
        board.release()
    assert [text.partition(":")[0] for text in told] == [
        "nothing new is read",
        "nothing new is read",
        "no pack",
    ]


def test_many_threads_ask_at_once(repository: Repository, told: list[str], begun: Any) -> None:
    board = begun(VersionsBoard(repository, [], tell=told.append))
    found: list[Any] = []

    def ask() -> None:
        for _ in range(5):
            found.append(board.ask().read_last_scalars()["net@1"]["loss"].step)
            board.release()

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [5] * 80
    assert len(board._idle) <= 8


def test_keys_of_blobs_hold_for_all_threads(
    repository: Repository, told: list[str], begun: Any
) -> None:
    board = begun(VersionsBoard(repository, [], tell=told.append))
    (point,) = board.ask().read_blob_sequences("graphs")["net@1"]["__run_graph__"]
    found: list[bytes] = []

    def ask() -> None:
        found.append(board.ask().read_blob(point.blobs[0].key))
        board.release()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert b"FULL" in found[0]


def test_a_repository_that_cannot_be_written_to(
    repository: Repository, told: list[str], begun: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "curves_of", lambda _: None)
    board = begun(VersionsBoard(repository, [], tell=told.append))
    assert len(board.ask().runs()) == 2
    assert board.path.parent == board.scratch
    assert not (repository.path / LIVE).exists()


def test_restarts_of_versions(
    tmp_path: Path, repository: Repository, told: list[str], begun: Any, commit_model: Commit
) -> None:
    """Steps that go back in `net@3`: told once, and only if it is on the board."""
    text = "step,loss\n" + "".join(f"{step},{step}\n" for step in (1, 2, 3, 2, 3, 4))
    commit_model(repository, "net", weights(3), NODES, files={"log.csv": text})
    for references, restarts, count in (
        (["net@3"], None, 6),
        (["net@3"], "preempt", 4),
        (["net@3"], "marked", 6),
        (["net@1"], None, 5),
    ):
        told.clear()
        made = VersionsBoard(repository, references, restarts=restarts, tell=told.append)
        board = begun(made)
        found = board.ask().list_scalars()[references[0]]["loss"]
        assert (found.n, found.max_step) == (count, 4 if references == ["net@3"] else 5)
        expected = ["steps of `net@3` go back to 2"] if count == 6 and restarts is None else []
        ends = len(expected)
        until(lambda ends=ends: len(told) == ends)  # type: ignore[misc]
        assert [text.split(" without")[0] for text in told] == expected
