"""Encoding elsewhere: the same packs as on one machine, and one clear message where it fails."""

from __future__ import annotations

import importlib.util
import pickle
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dlv.archiving.cluster as cluster
import dlv.training.workers.ray_pool as ray_pool
from dlv.archiving.archive import archive
from dlv.archiving.proposal import Request
from dlv.errors import StorageError, UsageError
from dlv.repository.handle import Repository
from tests.archiving.test_archive import ANY, AUTHOR, Commit, content, files, line, silent

# Ray leaves sockets and files to the interpreter.
pytestmark = pytest.mark.filterwarnings("ignore")
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install 'dlv[ray]'"
)


class TaskError(Exception):
    def __init__(self, cause: Exception) -> None:
        super().__init__(f"task failed\n{cause}")
        self.cause = cause


class LostError(Exception):
    pass


class Tasks:
    """What `cluster` asks of Ray, in threads; jobs and outcomes cross as bytes."""

    exceptions = SimpleNamespace(RayTaskError=TaskError, RayError=LostError)

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(3)
        self.jobs = 0
        self.lost = False

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

    def remote(self, **_: Any) -> Any:
        def run(job: bytes) -> bytes:
            try:
                return pickle.dumps(cluster.encode(pickle.loads(job)))
            except Exception as error:
                raise TaskError(error) from error

        def submit(job: cluster.Job) -> Any:
            self.jobs += 1
            return self.pool.submit(run, pickle.dumps(job))

        return lambda _: SimpleNamespace(remote=submit)

    def get(self, task: Any) -> Any:
        if self.lost:
            raise LostError("the node is gone")
        return pickle.loads(task.result())


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tasks]:
    made = Tasks()

    @contextmanager
    def connected(_: str | None) -> Iterator[Any]:
        yield made

    monkeypatch.setattr(ray_pool, "connected", connected)
    yield made
    made.pool.shutdown()


@pytest.fixture
def twins(tmp_path: Path, commit_model: Commit) -> Iterator[list[Repository]]:
    """One repository, twice; archived once, so that later deltas are of chains."""
    made, _ = Repository.init(tmp_path / "one")
    models = line(6)
    commit_model(made, "net", {1: models[0]})
    commit_model(made, "net", {2: models[1], 3: models[2]})
    done(made)
    commit_model(made, "net", {4: models[3], 5: models[4], 6: models[5]})
    made.close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    both = [Repository.find(tmp_path / name) for name in ("one", "two")]
    yield both
    for each in both:
        each.close()


def done(repository: Repository, **given: Any) -> Any:
    request = replace(Request(author=AUTHOR, policy=ANY), **given)
    return archive(repository, request, progress=silent)


@pytest.mark.parametrize("effort", ["fast", "normal", "high"])
def test_the_packs_are_those_of_one_machine(
    twins: list[Repository], tasks: Tasks, effort: str
) -> None:
    here, there = twins
    done(here, effort=effort)
    done(there, effort=effort, place="ray")
    assert tasks.jobs > 0
    assert files(here) == files(there)
    assert content(here) == content(there)


def test_a_node_that_does_not_see_the_folder(
    twins: list[Repository], tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = twins[0]
    before = files(here)
    real = cluster.Job.of
    blind = Path("/nowhere/packs")
    monkeypatch.setattr(
        cluster.Job, "of", lambda *args, **more: replace(real(*args, **more), packs=blind)
    )
    with pytest.raises(UsageError, match="does not see /nowhere/packs"):
        done(here, place="ray")
    assert files(here) == before
    tasks.lost = True
    with pytest.raises(StorageError, match="was lost") as lost:
        done(here, place="ray")
    assert lost.value.why == "the node is gone"
    assert files(here) == before
    done(here)
    content(here)


@pytest.mark.parametrize(
    ("place", "address"),
    [("ray", None), ("ray:auto", "auto"), ("ray:h:1", "h:1"), ("ray://h:1", "ray://h:1")],
)
def test_addresses(place: str, address: str | None) -> None:
    assert cluster.address_of(place) == address


@pytest.mark.parametrize("place", ["", "rays", "ray:", "local", "h:1"])
def test_no_addresses(place: str) -> None:
    with pytest.raises(UsageError, match="no such place"):
        cluster.address_of(place)


@pytest.mark.slow
@needs_ray
def test_on_ray_itself(twins: list[Repository]) -> None:
    here, there = twins
    done(here)
    done(there, place="ray")
    assert files(here) == files(there)
    assert content(here) == content(there)
