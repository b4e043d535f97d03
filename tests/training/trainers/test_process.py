from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.training.trainers.contract as contract
import dlv.training.trainers.process as process
from dlv.errors import DlvError, NotFound, UsageError
from dlv.training.checkpoints import Checkpoint
from dlv.training.config import Config
from dlv.training.trainers.interface import Event, Readers, State
from dlv.training.trainers.process import Report
from dlv.training.trial_files import TrialFiles
from tests.conformance.trainer import Run, TrainerSuite
from tests.training import small

OWN = Path(__file__).parents[1] / "own_program.py"
PATIENCE = 30.0  # seconds until a test says that something does not happen


class TestProgram(TrainerSuite):
    def created(self, folder: Path, **config: Any) -> TrialFiles:
        data = small.saved(folder / "blobs.npz", *small.blobs())
        given = {
            "trainer": [sys.executable, str(OWN)],
            "input_data": data,
            "base_lr": 0.05,
            **config,
        }
        return small.created(folder, small.mlp(), small.mlp_weights(), given)


def program(folder: Path, text: str, readers: Readers | None = None, **config: Any) -> Run:
    """A trial whose trainer is this code."""
    folder.mkdir(exist_ok=True)
    (folder / "own.py").write_text(
        "import json, os, sys, time\ntrial = json.load(open('trial.json'))\n"
        "def log(step, **more):\n"
        "    with open('log.jsonl', 'a') as file:\n"
        "        row = {'step': step, 'metrics': {'loss': 1 / step}, **more}\n"
        "        file.write(json.dumps(row) + '\\n')\n" + text
    )
    given = {"trainer": ["python", "own.py"], "steps": 12, "log_every": 4, **config}
    files = small.created(folder, small.mlp(), small.mlp_weights(), given)
    return Run(files.folder, readers or Readers(), 4)


def waited(what: Callable[[], Any]) -> Any:
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        found = what()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("it does not happen")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_what_the_program_finds(tmp_path: Path) -> None:
    run = program(
        tmp_path,
        "json.dump([sorted(os.listdir('.')), trial['step'], trial['steps'], trial['checkpoint'],\n"
        "  trial['log_every'], trial['seed'], trial['config']['my'], os.environ['MY'],\n"
        "  os.environ['OMP_NUM_THREADS'], os.environ['DLV_TRIAL'] == os.getcwd(),\n"
        "  trial['input_data'], [n['name'] for n in trial['network']['nodes']],\n"
        "  [t['name'] for t in trial['tensors']], trial['directory']], open('../seen.json', 'w'))\n"
        "log(trial['steps'])",
        my={"own": [1, 2]},
        env={"MY": "7"},
        input_data="some/blobs.npz",
        seed=5,
    ).to(4)
    seen = small.lines(run.folder / "seen.json")[0]
    assert seen == [
        ["checkpoint", "events", "start.npz", "trial.json"],
        *(0, 4, None, 4, 5, {"own": [1, 2]}, "7", "1", True),
        str(tmp_path / "some/blobs.npz"),
        ["fc1", "relu1", "fc2"],
        ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"],
        str(tmp_path),
    ]


def test_without_checkpoints_it_begins_anew(tmp_path: Path) -> None:
    run = program(
        tmp_path,
        "open('../begun', 'a').write(f\"{trial['step']}\\n\")\n"
        "for step in range(4, trial['steps'] + 1, 4): log(step)",
    )
    run.to(4, 12)
    assert run.order == [4, 4, 8, 12]
    assert (run.folder / "begun").read_text() == "0\n0\n"
    assert run.rows == {4: {"loss": 0.25}, 8: {"loss": 0.125}, 12: {"loss": 1 / 12}}


def test_a_folder_as_a_checkpoint(tmp_path: Path) -> None:
    run = program(
        tmp_path,
        "if trial['checkpoint']:\n"
        "    at = int(open(trial['checkpoint'] + '/deep/step').read())\n"
        "    assert at == trial['step'], at\n"
        "for step in range(trial['step'] + 4, trial['steps'] + 1, 4):\n"
        "    os.makedirs(f'checkpoint/{step}/deep')\n"
        "    open(f'checkpoint/{step}/deep/step', 'w').write(str(step))\n"
        "    log(step, checkpoint=f'checkpoint/{step}')",
    )
    run.to(4, 8, 12)
    assert run.order == [4, 8, 12]
    assert list(run.newest.files) == ["run-3/checkpoint/12"]


def test_a_checkpoint_that_was_changed_is_not_used(tmp_path: Path) -> None:
    whole = TestProgram().run(tmp_path / "whole").to(16)
    run = TestProgram().run(tmp_path / "run").to(12)
    (name,) = run.newest.files
    (run.folder / name).write_bytes(b"something else")
    assert run.newest.step == 8
    run.to(16)
    assert run.bits() == whole.bits()


def test_only_the_last_files_of_a_program_are_kept(tmp_path: Path) -> None:
    run = TestProgram().run(tmp_path).to(16)
    files = sorted(path.name for path in run.folder.glob("run-*/checkpoint/*"))
    assert "4.npz" not in files
    assert "16.npz" in files
    run = TestProgram().run(tmp_path / "slices").to(4, 8, 12)
    folders = sorted(path.name for path in run.folder.glob("run-*"))
    assert folders == ["run-2", "run-3"]


FAULTS: Mapping[str, tuple[str, str]] = {
    "raises": ("raise ValueError('the moon is full')", "ended with 1"),
    "is killed": ("os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
    "does nothing": ("", "ended at step 0 of 12"),
    "ends early": ("log(4)", "ended at step 4 of 12"),
    "torn line": ("open('log.jsonl', 'w').write('{\"step\": 12, \"metrics\": {}}')", "at step 0"),
    "no JSON": (
        "print('step 4', file=open('log.jsonl', 'w'), flush=True); time.sleep(600)",
        "log.jsonl, line 1, is not JSON: step 4",
    ),
    "wrong step": ("log(5)", "logged step 5"),
    "no checkpoint": ("log(4, checkpoint='checkpoint/4')", "checkpoint/4 of step 4 cannot be read"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_programs_that_go_wrong(tmp_path: Path, fault: str) -> None:
    text, said = FAULTS[fault]
    with pytest.raises(DlvError, match=said) as caught:
        program(tmp_path, text).to(12)
    if fault == "raises":
        assert "ValueError: the moon is full" in str(caught.value.why)


def test_what_is_not_finite_is_logged_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "ASKED", 0.05)
    run = program(
        tmp_path,
        "log(4, metrics={'loss': float('nan')})\nlog(8, metrics={'loss': '-Infinity'})\nlog(12)",
        allow_nan=True,
    ).to(12)
    assert np.isnan(run.rows[4]["loss"])
    assert run.rows[8]["loss"] == float("-inf")
    strict = program(tmp_path / "strict", "log(4, metrics={'loss': float('nan')})\ntime.sleep(600)")
    strict.to(12)  # it is stopped
    assert strict.order == [4]


def checkpoint_of(folder: Path, said: str) -> dict[str, str]:
    return process.files_of(Report(4, {}, said), folder)


def test_checkpoints_lie_in_the_trial(tmp_path: Path) -> None:
    folder = tmp_path / "run-1"
    (folder / "checkpoint").mkdir(parents=True)
    (tmp_path / "other").write_text("mine")
    (folder / "checkpoint" / "4").write_text("state")
    (folder / "checkpoint" / "link").symlink_to("4")
    (folder / "checkpoint" / "out").symlink_to(tmp_path / "other")
    found = checkpoint_of(folder, "checkpoint/4")
    assert list(found) == ["run-1/checkpoint/4"]
    assert list(checkpoint_of(folder, "checkpoint/link").values()) == list(found.values())
    for said in ("../other", "/etc/passwd", "checkpoint/out", ".", "", "checkpoint/..", "../run-1"):
        with pytest.raises(UsageError, match="is outside"):
            checkpoint_of(folder, said)
    os.mkfifo(folder / "checkpoint" / "pipe")
    for said in ("checkpoint/nothing", "checkpoint/4/deeper", "checkpoint/pipe"):
        with pytest.raises(UsageError, match="of step 4 cannot be read"):
            checkpoint_of(folder, said)


def test_it_is_asked_to_stop_by_a_file(tmp_path: Path) -> None:
    run = program(
        tmp_path,
        "log(4)\nwhile not os.path.exists('stop'): time.sleep(0.01)\n"
        "open('../asked', 'w').write('yes')",
    )
    run.stop_at = 4
    run.to(12)
    assert (run.folder / "asked").read_text() == "yes"


def test_then_told_by_a_signal_and_then_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "ASKED", 0.05)
    told = program(
        tmp_path / "told",
        "import signal\n"
        "def end(*_): open('../told', 'w').write('yes'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "log(4)\ntime.sleep(600)",
    )
    told.stop_at = 4
    told.to(12)
    assert (told.folder / "told").read_text() == "yes"
    monkeypatch.setattr(process, "TOLD", 0.05)
    deaf = program(
        tmp_path / "deaf",
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('../pid', 'w').write(str(os.getpid()))\nlog(4)\ntime.sleep(600)",
    )
    deaf.stop_at = 4
    deaf.to(12)
    assert not alive(int((deaf.folder / "pid").read_text()))


def test_it_is_stopped_though_it_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "ASKED", 0.05)
    run = program(tmp_path, "open('../pid', 'w').write(str(os.getpid()))\ntime.sleep(600)")
    trial = run.trial()

    class Log:
        """Never called; says that it is enough once the program runs."""

        def idle(self) -> bool:
            return (run.folder / "pid").exists()

        def __call__(
            self, step: int, metrics: Mapping[str, float], state: State | None = None
        ) -> bool:
            raise AssertionError((step, metrics, state))

    contract.run(trial, 12, Checkpoint(), Log(), Readers())
    pid = waited((run.folder / "pid").read_text)
    assert not alive(int(pid))


def test_it_does_not_outlive_its_worker(tmp_path: Path) -> None:
    run = program(
        tmp_path,
        "import subprocess\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('../pids.new', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.rename('../pids.new', '../pids')\nlog(4)\ntime.sleep(600)",
    )
    code = (
        "import sys; from pathlib import Path\n"
        "from dlv.training.trainers.interface import Readers\n"
        "from tests.conformance.trainer import Run\n"
        "Run(Path(sys.argv[1]), Readers(), 4).to(12)\n"
    )
    root = Path(__file__).parents[3]
    worker = subprocess.Popen([sys.executable, "-c", code, str(run.folder)], cwd=root)
    try:
        pids = [
            int(word)
            for word in waited((run.folder / "pids").exists)
            and (run.folder / "pids").read_text().split()
        ]
        assert all(alive(pid) for pid in pids)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    waited(lambda: not any(alive(pid) for pid in pids))


def test_a_second_slice_is_in_a_folder_of_its_own(tmp_path: Path) -> None:
    """A program whose worker has lost the trial writes where nobody reads."""
    run = TestProgram().run(tmp_path / "run").to(4)
    late = run.folder / "run-1" / "log.jsonl"
    run.to(8)
    late.parent.mkdir(exist_ok=True)
    late.write_text('{"step": 12, "metrics": {"loss": 0}}\n')
    run.to(12, 16)
    assert run.bits() == TestProgram().run(tmp_path / "whole").to(16).bits()


def test_programs_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no program nonsense-of-mine"):
        contract.check(Config({"trainer": ["nonsense-of-mine"]}), tmp_path)
    with pytest.raises(NotFound, match="no such file: train"):
        contract.check(Config({"trainer": ["python", "train.py"]}), tmp_path)
    (tmp_path / "train.py").write_text("")
    contract.check(Config({"trainer": ["python", "train.py", "--fast"]}), tmp_path)
    contract.check(Config({"trainer": ["python", "-m", "train.py"]}), tmp_path)
    with pytest.raises(NotFound, match=r"no program \./train"):
        contract.check(Config({"trainer": ["./train"]}), tmp_path)


def test_a_changed_script_is_another_trainer(tmp_path: Path) -> None:
    config = Config({"trainer": ["python", "train.py"]})
    (tmp_path / "train.py").write_text("one")
    first = contract.version(config, tmp_path)
    (tmp_path / "train.py").write_text("two")
    assert contract.version(config, tmp_path) != first


def test_metrics_out_of_event_files(tmp_path: Path) -> None:
    points: list[list[Event]] = [[(3, "loss", 2.0)], [(5, "loss", 1.5)], [(11, "loss", 0.5)]]

    def reader(folder: Path) -> Callable[[], Iterator[Event]]:
        assert folder.name == "events"

        def more() -> Iterator[Event]:
            if not points:
                (folder.parent / "told").touch()
            return iter(points.pop(0) if points else [])

        return more

    run = program(
        tmp_path,
        "open('events/events.out.tfevents.1', 'w').close()\n"
        "open('checkpoint/step-8.npz', 'w').write('8')\n"
        "while not os.path.exists('told'): time.sleep(0.01)",
        Readers(events=reader),
    ).to(12)
    assert run.rows == {4: {"loss": 2.0}, 8: {"loss": 1.5}, 12: {"loss": 0.5}}
    assert list(run.newest.files) == ["run-1/checkpoint/step-8.npz"]
    assert run.newest.step == 8


def test_the_output_is_kept(tmp_path: Path) -> None:
    run = program(tmp_path, "print('hello'); print('there', file=sys.stderr)\nlog(trial['steps'])")
    run.to(4, 8)
    assert (run.folder / "output.txt").read_text().split().count("hello") == 2
    assert os.stat(run.folder / "output.txt").st_size > 20


def test_the_program_of_the_documentation(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "trainers.md").read_text()
    (code,) = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "train.py").write_text(code)
    data = small.saved(tmp_path / "blobs.npz", *small.blobs())
    given = {"trainer": [sys.executable, "train.py"], "input_data": data, "base_lr": 0.5}
    bits = []
    for seed, steps in ((0, (40,)), (0, (10, 25, 40)), (1, (40,))):
        config = {**given, "steps": 40, "log_every": 10, "seed": seed, "mine": len(steps)}
        made = small.created(tmp_path, small.mlp(), small.mlp_weights(), config)
        run = Run(made.folder, Readers(), 10).to(*steps)
        assert run.rows[40]["loss"] < run.rows[10]["loss"]
        bits.append(run.bits())
    assert bits[0] == bits[1] != bits[2]
