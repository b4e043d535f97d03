"""Training runs: what is kept when all goes well, when it does not, and when the process dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv
import dlv.api as api
from dlv.errors import Conflict, UsageError
from dlv.events.formats.series import Scalars
from dlv.metadata.facts import StagedFile
from dlv.runs import Run, Spool

HOME = str(Path(dlv.__file__).parent.parent)


class Finished:
    """Stands for the commit: remembers what it was given."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[tuple[str, list[StagedFile], list[Scalars]]] = []
        self.error = error

    def __call__(self, message: str, files: Sequence[StagedFile], series: Sequence[Scalars]) -> str:
        self.calls.append((message, list(files), list(series)))
        assert all(Path(file.source).stat().st_size == file.bytes for file in files)
        if self.error is not None:
            raise self.error
        return "the version"


def weights(value: float = 0.0) -> dict[str, Any]:
    return {"w": np.full((2, 2), value, "f4")}


def fail(run: Run[str], *, snapshot: bool = True) -> None:
    with run:
        run.log(loss=1.0)
        if snapshot:
            run.checkpoint(weights())
        raise KeyError


def test_a_run(tmp_path: Path) -> None:
    finish = Finished()
    with Run(tmp_path, "message", {}, finish) as run:
        run.log(loss=2.0, acc=0.5)
        run.log(loss=1.0)
        run.log(step=10, loss=float("nan"))
        run.checkpoint(weights(1))
        run.log(acc=np.float32(0.75))
        run.checkpoint(weights(2), step=50)
    [(message, files, series)] = finish.calls
    assert message == "message"
    assert run.version == "the version"
    assert [(f.path, f.role, f.step) for f in files] == [
        ("checkpoints/step-10.safetensors", "snapshot", 10),
        ("checkpoints/step-50.safetensors", "snapshot", 50),
    ]
    columns = {s.tag: (list(s.steps), list(s.values)) for s in series}
    assert columns["acc"] == ([0, 11], [0.5, 0.75])
    assert columns["loss"][0] == [0, 1, 10]
    assert list(tmp_path.glob("runs/*")) == []


def test_a_checkpoint_of_one_step_replaces_the_earlier(tmp_path: Path) -> None:
    finish = Finished()
    with Run(tmp_path, "", {}, finish) as run:
        run.checkpoint(weights(1), step=5)
        run.checkpoint(weights(2), step=5)
    assert len(finish.calls[0][1]) == 1


def test_checkpoints_without_steps_or_metrics_are_counted(tmp_path: Path) -> None:
    finish = Finished()
    with Run(tmp_path, "", {}, finish) as run:
        run.checkpoint(weights(1))
        run.checkpoint(weights(2))
        run.checkpoint(weights(3), step=10)
        run.checkpoint(weights(4))
    assert [file.step for file in finish.calls[0][1]] == [0, 1, 10, 11]


def test_a_metric_that_is_no_number_changes_nothing(tmp_path: Path) -> None:
    finish = Finished()
    with Run(tmp_path, "", {}, finish) as run:
        with pytest.raises(UsageError, match="at step None") as found:
            run.log(loss=1.0, acc="high")  # type: ignore[arg-type]
        assert "could not convert" in (found.value.why or "")
        with pytest.raises(UsageError, match="at step None"):
            run.log("1", loss=1.0)
        run.log(loss=2.0)
    assert [list(s.values) for s in finish.calls[0][2]] == [[2.0]]


def test_an_exception_in_the_block_goes_on(tmp_path: Path) -> None:
    finish = Finished()
    with pytest.raises(KeyError):
        fail(Run(tmp_path, "m", {}, finish))
    assert finish.calls[0][0] == "m (stopped by KeyError)"
    assert list(tmp_path.glob("runs/*")) == []


def test_without_a_checkpoint_an_exception_leaves_nothing(tmp_path: Path) -> None:
    finish = Finished()
    with pytest.raises(KeyError):
        fail(Run(tmp_path, "m", {}, finish), snapshot=False)
    assert finish.calls == []
    assert list(tmp_path.glob("runs/*")) == []


def test_a_run_that_cannot_be_committed_is_kept(tmp_path: Path) -> None:
    finish = Finished(Conflict("busy", hint="wait"))
    with pytest.raises(Conflict) as found, Run(tmp_path, "m", {}, finish) as run:
        run.checkpoint(weights())
    [folder] = tmp_path.glob("runs/*")
    assert found.value.hint == f"wait; checkpoints and metrics are saved in {folder}"
    assert (folder / "checkpoints/step-0.safetensors").exists()


def test_the_first_exception_is_the_one_that_goes_on(tmp_path: Path) -> None:
    finish = Finished(Conflict("busy"))
    with pytest.raises(KeyError) as found:
        fail(Run(tmp_path, "m", {}, finish))
    [folder] = tmp_path.glob("runs/*")
    assert found.value.__notes__ == [
        f"the run was not committed: busy; checkpoints and metrics are saved in {folder}"
    ]


def test_weights_that_cannot_be_stored(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    with pytest.raises(UsageError):
        spool.save({"x": object()}, 1)
    assert spool.files == []
    spool.discard()
    assert list(tmp_path.glob("runs/*")) == []


KILLED = """
import os, signal, sys
import numpy as np
import dlv
with dlv.open(sys.argv[1]) as repo:
    with repo.run("net", parameters={"lr": 0.1}) as run:
        for step in range(1, 6):
            run.log(step=step, loss=1 / step)
            if step % 2 == 0:
                run.checkpoint({"w": np.full((3, 3), step, "f4")})
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_leaves_can_be_added(tmp_path: Path) -> None:
    with api.open(tmp_path, create=True) as repo:
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path)],
            env=dict(os.environ, PYTHONPATH=HOME),
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL
        assert len(repo) == 0
        [folder] = (tmp_path / ".dlv/runs").iterdir()
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [line["loss"] for line in lines] == [1 / step for step in range(1, 6)]
        assert repo.add(folder) == [
            "metrics.jsonl",
            "checkpoints/step-2.safetensors",
            "checkpoints/step-4.safetensors",
        ]
        version = repo.commit("rescued", name="net")
        assert version.steps == [2, 4]
        assert version.tensor("w")[0, 0] == 4
        assert list(version.metric("loss").steps) == [1, 2, 3, 4, 5]
        assert version.metrics["loss"].last == 0.2


def test_a_checkpoint_is_dropped(tmp_path: Path) -> None:
    finish = Finished()
    with Run(tmp_path, "message", {}, finish) as run:
        run.checkpoint(weights(1), 5)
        run.checkpoint(weights(2), 6)
        run.forget(5)
        run.forget(7)
        assert [p.name for p in tmp_path.rglob("step-*")] == ["step-6.safetensors"]
    assert [file.step for file in finish.calls[0][1]] == [6]


def test_what_was_only_half_written_goes(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    with pytest.raises(UsageError):
        spool.save({"w": np.array(["text"])}, 1)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert spool.files == []
