"""FILE.py:FACTORY in a process of its own: nothing that it does gets out of there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dlv.adapters.aten import factory
from dlv.errors import DlvError, NotFound, UsageError
from dlv.network.graph import Network

FACTORIES = """
import os, signal, sys, threading, time
import torch

HERE = os.path.dirname(os.path.abspath(__file__))

def model():
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())

def leaves(): os._exit(0)
def leaves_with_three(): os._exit(3)
def exits(): sys.exit("no more")
def dies(): os.kill(os.getpid(), signal.SIGKILL)
def interrupted(): os.kill(os.getpid(), signal.SIGINT)
def deep(): return deep()

def forks():
    os.fork()
    open(os.path.join(HERE, "processes"), "a").write(f"{os.getpid()} ")
    return model()

def closes():
    os.closerange(0, 21)
    return model()

def patched():
    import builtins
    made = model()
    builtins.open = os._exit = None
    return made

def prints():
    for _ in range(300):
        print("x" * 10000)
        print("y" * 10000, file=sys.stderr)
    return model()

def threads():
    threading.Thread(target=time.sleep, args=(3600,)).start()
    return model()

def arguments():
    assert sys.argv == [os.path.abspath(__file__)], sys.argv
    return model()

class State(torch.nn.Linear):
    def state_dict(self, *args, **kwargs):
        raise RuntimeError("no state today")
def state(): return State(3, 2)

class Modules(torch.nn.Linear):
    def modules(self): raise KeyError("nothing inside")
def modules(): return Modules(3, 2)

class Attribute(torch.nn.Linear):
    def __getattr__(self, name): raise ValueError("ask nobody")
def attribute(): return Attribute.__new__(Attribute)

def result(): return sys._getframe(2), os.listdir(os.environ["RESULTS"])
def swapped():
    [name] = os.listdir(os.environ["RESULTS"])
    path = os.path.join(os.environ["RESULTS"], name)
    os.unlink(path)
    os.symlink("/dev/zero", path)
    os._exit(0)
def garbage():
    [name] = os.listdir(os.environ["RESULTS"])
    open(os.path.join(os.environ["RESULTS"], name), "wb").write(b"\\x07" * 5000)
    os._exit(0)
def lies():
    [name] = os.listdir(os.environ["RESULTS"])
    text = b'{"error":{"kind":"internal","message":7,"why":[],"hint":null,"did_you_mean":3}}'
    open(os.path.join(os.environ["RESULTS"], name), "wb").write(text)
    os._exit(1)
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("torch", reason="the models are torch modules: dlv[torch]")
    (tmp_path / "code").mkdir()
    (tmp_path / "results").mkdir()
    monkeypatch.setenv("RESULTS", str(tmp_path / "results"))
    (tmp_path / "code" / "model.py").write_text(FACTORIES)
    return tmp_path / "code" / "model.py"


def run(code: Path, name: str) -> Network:
    result = code.parent.parent / "results" / "a.network"
    result.touch()
    found = factory.network_of(f"{code}:{name}", ["1,3"], result)
    found.close()
    assert found.network is not None
    return found.network


@pytest.mark.quick("model", "closes", "prints", "arguments")
@pytest.mark.parametrize(
    "name", ["model", "forks", "closes", "patched", "prints", "threads", "arguments"]
)
def test_what_a_factory_may_do(code: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert [node.name for node in run(code, name).nodes] == ["0", "1"]
    said = capfd.readouterr()
    assert said.out == ""
    if name == "prints":
        assert (said.err.count("x"), said.err.count("y")) == (3_000_000, 3_000_000)
    if name == "forks":
        for number in (code.parent / "processes").read_text().split():
            assert _ends(int(number))


def _ends(process: int) -> bool:
    """Within a few seconds."""
    for _ in range(100):
        try:
            os.kill(process, 0)
            if " Z " in Path(f"/proc/{process}/stat").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


WRONG = [
    ("leaves", UsageError, "exit status 0"),
    ("leaves_with_three", UsageError, "exit status 3"),
    ("exits", UsageError, "SystemExit: no more"),
    ("dies", UsageError, "SIGKILL"),
    ("deep", UsageError, "RecursionError"),
    ("state", UsageError, "no state today"),
    ("modules", UsageError, "nothing inside"),
    ("attribute", UsageError, "ask nobody"),
    ("swapped", UsageError, "exit status 0"),
    ("garbage", DlvError, "a.network"),
    ("lies", UsageError, "exit status 1"),
    ("modle", NotFound, "has no modle"),
]


@pytest.mark.quick(
    *("leaves-*", "exits-*", "dies-*", "state-*", "swapped-*", "garbage-*", "lies-*", "modle-*")
)
@pytest.mark.parametrize(("name", "kind", "text"), WRONG)
def test_what_goes_wrong_is_one_error(
    code: Path, name: str, kind: type[DlvError], text: str
) -> None:
    with pytest.raises(kind) as caught:
        run(code, name)
    error = caught.value
    assert text in " ".join(map(str, (error.message, error.why, error.hint)))
    if name in ("state", "modules"):
        line = FACTORIES[: FACTORIES.index(text)].count("\n") + 1
        assert f"see line {line} of {code}" == error.hint
    if name == "modle":
        assert "model" in error.did_you_mean


def test_a_file_that_is_not_there_starts_no_process(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere")
    with pytest.raises(NotFound, match="no such file"):
        run(code.with_name("other.py"), "model")
    with pytest.raises(UsageError, match=r"not FILE\.py:FACTORY"):
        factory.network_of(str(code), [], code)
    with pytest.raises(DlvError, match="cannot start Python"):
        run(code, "model")


def test_an_interrupt_in_there_is_one_here(code: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(code, "interrupted")


def test_ctrl_c_ends_both(code: Path, tmp_path: Path) -> None:
    """Even a factory that does not want to end."""
    code.write_text(
        "import os, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"open({str(tmp_path / 'started')!r}, 'w').write(str(os.getpid()))\ntime.sleep(3600)\n"
    )
    program = (
        "import pathlib; from dlv.adapters.aten import factory\n"
        f"factory.network_of({f'{code}:model'!r}, [], pathlib.Path({str(tmp_path / 'r')!r}))"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=environ,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    ) as process:
        started = tmp_path / "started"
        ends = threading.Timer(60, process.kill)
        ends.start()
        while not (started.exists() and started.read_text()) and process.poll() is None:
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait() in (-signal.SIGINT, 1)
        ends.cancel()
    assert _ends(int(started.read_text()))
