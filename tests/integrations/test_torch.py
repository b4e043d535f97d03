"""Plain torch loops: what is recorded, and that training does not notice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv
import dlv.api as api
import dlv.repository.revisions as revisions
from dlv.repository.handle import Repository
from dlv.runs import Spool

torch = pytest.importorskip("torch", reason="torch is not installed")

import dlv.integrations.torch as hooks  # noqa: E402
from dlv.integrations.recorder import Recorder  # noqa: E402

HOME = str(Path(dlv.__file__).parent.parent)
Said = Callable[[], list[str]]


def small() -> Any:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    parts = (torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5))
    return torch.nn.Sequential(*parts, torch.nn.Linear(8, 2))


def train(
    model: Any, steps: int = 10, log: Callable[..., object] = lambda **_: None
) -> list[float]:
    """A loop with dropout and batch statistics: any disturbance shows in the numbers."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        x = torch.randn(16, 4)
        loss = model(x).square().mean() + random.random() * 0 + float(np.random.rand()) * 0
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log(loss=loss)
        losses.append(loss.item())
    return losses


def state_of(model: Any) -> list[bytes]:
    return [value.numpy().tobytes() for value in model.state_dict().values()]


def numbers() -> tuple[Any, ...]:
    """The states of all generators."""
    return (torch.random.get_rng_state().tolist(), random.getstate(), str(np.random.get_state()))


def test_a_training(project: Path) -> None:
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hooks.track(
        model, "lenet", every=4, optimizer=optimizer, parameters={"seed": 0, "path": project}
    ) as run:
        losses = train(model, log=run.log)
    with api.open() as repo:
        version = repo["lenet@1"]
        assert version.id == run.version.id
        assert list(version.metric("loss").values) == losses
        assert list(version.metric("loss").steps) == list(range(10))
        assert version.steps == [4, 8, 9]
        assert version.step == 9
        for name, value in model.state_dict().items():
            assert version.tensor(name).tobytes() == value.numpy().tobytes()
        assert version.hyperparameters["optimizer.name"] == "SGD"
        assert version.hyperparameters["optimizer.lr"] == 0.1
        assert version.hyperparameters["seed"] == 0
        assert version.hyperparameters["path"] == str(project)
    assert not list((project / ".dlv" / "runs").iterdir())


@pytest.mark.parametrize("end", ["", "raise KeyError"])
def test_three_lines(project: Path, end: str) -> None:
    """Import, track, log: a loop that does not say where it ends is committed at the end."""
    code = """
        import torch, dlv.integrations.torch
        model = torch.nn.Linear(512, 512)
        run = dlv.integrations.torch.track(model)
        for step in range(5):
            run.log(loss=1 / (step + 1))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code) + end],
        env={**os.environ, "PYTHONPATH": HOME, "DLV_CORE_JOBS": "4"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == bool(end)
    assert ("dlv: training was stopped by KeyError" in done.stderr) is bool(end)
    with api.open() as repo:
        version = repo["Linear@1"]
        assert (len(version.metric("loss")), version.steps) == (5, [4])
        stopped = " (stopped by KeyError)" if end else ""
        assert version.message == f"training of Linear{stopped}"


def test_training_is_the_same_without_it(project: Path) -> None:
    plain = small()
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    losses = train(plain)
    after = numbers()
    model = small()
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    with hooks.track(model, "x", every=1, example=torch.zeros(2, 4), monitor="loss") as run:
        assert train(model, log=run.log) == losses
        assert numbers() == after
    assert run.version is not None
    assert state_of(model) == state_of(plain)
    assert numbers() == after
    assert model.training
    assert all(p.grad is not None for p in model.parameters())


def test_evaluation_mode_stays(project: Path) -> None:
    model = small().eval()
    with hooks.track(model, "x", example=torch.zeros(2, 4)) as run:
        run.log(a=1)
        assert not model.training
    assert not any(module.training for module in model.modules())


def test_a_network(project: Path) -> None:
    with hooks.track(small(), "net", every=1, example=torch.zeros(2, 4)) as run:
        for _ in range(3):
            run.log(loss=1)
    with api.open() as repo:
        network = repo["net@1"].network
        assert network is not None
        assert [node.op for node in network.nodes] == ["FULL", "NORM", "DROPOUT", "FULL"]
        assert repo["net@1"].steps == [1, 2]


def test_the_best_is_kept(project: Path) -> None:
    model = torch.nn.Linear(1, 1)
    with hooks.track(model, "x", monitor="acc", mode="max") as run:
        for step, value in enumerate([float("nan"), 0.3, 0.2, 0.3, 0.9, 0.8, 0.7]):
            with torch.no_grad():
                model.bias.fill_(step)
            run.log(acc=value)
    with api.open() as repo:
        version = repo["x@1"]
        assert version.steps == [4, 6]  # what was the best before is gone
        assert version.at(4).tensor("bias") == [4.0]
        assert version.hyperparameters["best.acc"] == 0.9
        assert version.hyperparameters["best.step"] == 4


def test_the_best_of_a_step_that_is_kept_anyway(project: Path) -> None:
    with hooks.track(torch.nn.Linear(1, 1), "x", every=2, monitor="loss") as run:
        for value in (9, 8, 7, 6, 5, 6, 7):
            run.log(loss=value)
    with api.open() as repo:
        assert repo["x@1"].steps == [2, 4, 6]


def stop(run: Any, error: type[BaseException]) -> None:
    with run:
        run.log(loss=1.0)
        raise error


def test_the_best_of_a_step_that_is_asked_for(project: Path) -> None:
    with hooks.track(torch.nn.Linear(1, 1), "x", monitor="acc", mode="max") as run:
        run.log(acc=0.1)
        run.checkpoint()
        run.log(acc=0.2)
        run.log(acc=0.3)
    assert run.version.steps == [0, 2]


def test_a_full_disk_is_not_tried_for_ever(
    project: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        tries.append(1)
        raise OSError("full")

    tries: list[int] = []
    monkeypatch.setattr(Spool, "save", full)
    with hooks.track(small(), "x", every=1) as run:
        train(small(), log=run.log)
    assert (len(tries), len(said())) == (3, 1)


def test_what_did_not_end_is_marked_by_who_comes_next(project: Path, said: Said) -> None:
    """A recorder that serves one run after the other: of the first nobody said that it is over."""
    recorder = Recorder("x")
    recorder.log({"loss": 0.5}, 1)
    recorder.snapshot(lambda run, step: run.checkpoint({"w": np.ones(3)}, step), 1)
    recorder.begin_again()
    assert recorder.version.message == "training of x (stopped before its end)"
    assert any("training was stopped before its end" in text for text in said())
    recorder.log({"loss": 0.25}, 1)
    recorder.finish()
    assert recorder.version.message == "training of x"


def test_without_weights_there_is_no_version_and_that_is_said(project: Path, said: Said) -> None:
    recorder = Recorder("x")
    recorder.log({"loss": 0.5}, 1)
    recorder.finish(KeyboardInterrupt())
    assert recorder.version is None
    assert any("stopped by KeyboardInterrupt without weights" in text for text in said())


def test_a_training_that_is_stopped(project: Path) -> None:
    for error in (KeyError, KeyboardInterrupt):
        run = hooks.track(small(), "x")
        with pytest.raises(error):
            stop(run, error)
        assert run.version.message == f"training of x (stopped by {error.__name__})"
        assert run.version.steps == [0]


def test_once_more_goes_on_in_the_line(project: Path) -> None:
    for _ in range(2):
        with hooks.track(small(), "a b") as run:
            run.log(loss=1)
    with hooks.track(small(), "other") as run:
        run.log(loss=1)
    with hooks.track(small(), "a b") as run:
        run.log(loss=1, step=500)
    with api.open() as repo:
        second, third = repo["a-b@2"], repo["a-b@3"]
        assert second.parents == [repo["a-b@1"].id]
        assert third.parents == [second.id]  # not what HEAD was
        assert third.steps == [500]


def test_a_name_that_a_tag_has(project: Path) -> None:
    with hooks.track(small(), "first") as run:
        run.log(loss=1)
    with Repository.find(project) as repository:
        revisions.set_tag(repository, "best", "first@1", "Ada")
    with hooks.track(small(), "best") as run:
        run.log(loss=1)
    assert run.version.name == "best-run"


@pytest.mark.parametrize("name", ["", "...", "HEAD", "latest", "/", "名"])
def test_names_that_cannot_be(project: Path, name: str, said: Said) -> None:
    with hooks.track(small(), name) as run:
        run.log(loss=1)
    assert run.version is not None
    assert said() == []


def test_nothing_was_recorded(project: Path) -> None:
    with hooks.track(small(), "x") as run:
        pass
    run.finish()
    with api.open() as repo:
        assert len(repo) == 0


def test_a_failure_does_not_stop_it(failing: str, said: Said) -> None:
    plain = small()
    expected = train(plain)
    model = small()
    with hooks.track(model, "x", every=2, monitor="loss") as run:
        assert train(model, log=run.log) == expected
    assert state_of(model) == state_of(plain)
    # Where only the spool is full the metrics come through.
    assert run.version is None or (run.version.steps, failing) == ([], "No space left")
    # What happens while it runs is said once, a commit that fails too.
    assert 1 <= len(said()) <= 2
    assert any(failing in text for text in said())
    assert all("training is not affected" in text for text in said())


def test_what_cannot_be_committed_is_kept(
    project: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hooks.track(small(), "x", every=2) as run:
        train(small(), log=run.log)
        (project / ".dlv" / "packs").rename(project / "packs")
        (project / ".dlv" / "packs").write_text("")
    assert len(said()) == 1
    (folder,) = (project / ".dlv" / "runs").iterdir()
    assert folder.name in said()[0]
    assert len(list(folder.rglob("step-*"))) == 5
    (project / ".dlv" / "packs").unlink()
    (project / "packs").rename(project / ".dlv" / "packs")
    with api.open() as repo:
        repo.add(folder)
        version = repo.commit("saved", name="x")
        assert len(version.metric("loss")) == 10


def test_an_exception_while_nothing_can_be_committed(failing: str) -> None:
    run = hooks.track(small(), "x", every=2)
    with pytest.raises(KeyError):
        stop(run, KeyError)
    assert run.version is None


class Strange:
    def __float__(self) -> float:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("neither")


def test_bad_values(project: Path, said: Said) -> None:
    values: dict[str, Any] = {"text": "abc", "many": torch.zeros(3), "strange": Strange()}
    values |= {
        "good": 1,
        "nan": float("nan"),
        "one": torch.ones(1, requires_grad=True),
        "none": None,
    }
    values |= {"self": 2, "a b/c": np.float32(3)}
    with hooks.track(small(), "x", parameters={"x": Strange(), "big": 2**70, "\ud800": 1}) as run:
        run.recorder.log(values)
        run.log(step="abc", loss=1)  # type: ignore[arg-type]
        run.log(step=2**70, loss=1)
    assert len(said()) in (1, 2)
    assert run.version is not None or len(said()) == 2
    with hooks.track(small(), "y") as run:
        run.recorder.log(values)
    assert set(run.version.metrics) == {"good", "nan", "one", "self_", "a b/c"}


def test_settings_that_clash(project: Path) -> None:
    parameters = {"a": {"b": 1}, "a.b": 2, "list": [1, "x"], "deep": [{"a": 1}], "none": None}
    with hooks.track(small(), "x", parameters=parameters) as run:
        run.log(loss=1)
    found = run.version.hyperparameters
    assert found == {"a.b": 2, "list": '[1,"x"]', "deep": "[{'a': 1}]", "none": None}


def test_other_processes_record_nothing(
    project: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    with hooks.track(small(), "x", every=1) as run:
        train(small(), log=run.log)
    assert (run.version, said()) == (None, [])
    with api.open() as repo:
        assert len(repo) == 0


def test_wrapped_models(project: Path) -> None:
    model = small()
    for name, wrapped in (
        ("a", torch.nn.DataParallel(model)),
        ("b", torch.compile(model, backend="eager")),
    ):
        with hooks.track(wrapped, name) as run:
            run.log(loss=1)
        assert set(run.version.tensors) == set(model.state_dict())
    assert hooks.track(torch.compile(model, backend="eager")).recorder.name == "Sequential"


def test_weights_that_lie_elsewhere(project: Path, said: Said) -> None:
    model = small()
    model[0].weight.ds_id = 1  # as DeepSpeed marks what it has spread
    with hooks.track(model, "x", every=1) as run:
        train(model, log=run.log)
    assert len(said()) == 1
    assert "sharded over processes;" in said()[0]
    assert (run.version.steps, len(run.version.metric("loss"))) == ([], 10)


@pytest.mark.slow
def test_two_processes(project: Path) -> None:
    code = """
        import os, torch, torch.distributed as dist, dlv.integrations.torch as hooks

        def work(rank):
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29577")
            torch.set_num_threads(1)
            model = torch.nn.Linear(2, 2)
            run = hooks.track(model, "ddp", every=2)
            dist.init_process_group("gloo", rank=rank, world_size=2)
            wrapped = torch.nn.parallel.DistributedDataParallel(model)
            run.model = wrapped
            for step in range(4):
                loss = wrapped(torch.randn(3, 2)).sum()
                loss.backward()
                run.log(loss=loss)
            run.finish()
            dist.destroy_process_group()

        if __name__ == "__main__":
            torch.multiprocessing.spawn(work, nprocs=2)
    """
    (project / "run.py").write_text(textwrap.dedent(code))
    subprocess.run(
        [sys.executable, "run.py"], env={**os.environ, "PYTHONPATH": HOME}, check=True, timeout=120
    )
    with api.open() as repo:
        assert len(repo) == 1
        assert set(repo["ddp@1"].tensors) == {"weight", "bias"}
        assert repo["ddp@1"].steps == [2, 3]


def test_modes_and_patience(project: Path) -> None:
    with pytest.raises(ValueError, match="min"):
        hooks.track(small(), mode="best")
