"""`dlv tensorboard`: the address it prints, what answers there, how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.commands.conftest import SCHEMAS
from tests.events import foreign_logs

Dlv = Callable[..., Any]


class Running:
    """A server in a process of its own."""

    def __init__(self, *words: str) -> None:
        environ = dict(os.environ, PYTHONPATH=str(SCHEMAS.parent.parent))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dlv", "tensorboard", "--port", "0", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            text=True,
        )
        assert self.process.stdout is not None
        self.lines = [self.process.stdout.readline().strip()]

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def get(self, path: str, base: str | None = None, **headers: str) -> tuple[int, bytes]:
        address, _, token = (base or self.lines[0]).partition("?token=")
        host = "/".join(address.split("/")[:3])
        request = urllib.request.Request(f"{host}{path}")
        for name, value in ({"Authorization": f"Bearer {token}"} | headers).items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def json(self, path: str, base: str | None = None) -> Any:
        status, body = self.get(path, base)
        assert status == 200, body
        return json.loads(body)

    def until(self, runs: list[str], base: str | None = None) -> None:
        """What is not read at once, on a busy machine, is read soon."""
        ends = time.monotonic() + 120
        while sorted(self.json("/data/runs", base)) != runs:
            assert time.monotonic() < ends
            time.sleep(0.1)

    def end(self, number: int = signal.SIGINT) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err


@pytest.fixture
def running(workspace: Path) -> Iterator[Callable[..., Running]]:
    made: list[Running] = []

    def start(*words: str) -> Running:
        made.append(Running(*words))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


def test_versions_from_the_address_to_the_end(
    running: Callable[..., Running], filled: Path
) -> None:
    server = running("lenet", "lenet@1")
    assert server.lines[0].startswith("http://127.0.0.1:")
    server.until(["lenet@1", "lenet@2"])
    assert server.get("/data/runs", Authorization="Bearer x")[0] == 403
    assert server.get("/data/runs", Host="evil.example")[0] == 403
    assert "loss" in server.json("/legacy/data/runs")["lenet@2"]["scalars"]
    listing = server.json("/data/plugins_listing")
    active = [name for name, told in listing.items() if told["enabled"]]
    assert {"scalars", "timeseries", "graphs", "hparams"} <= set(active)
    code, out, err = server.end()
    assert (code, out) == (0, "")
    assert "Serving lenet lenet@1; press Ctrl-C to stop\n" in err
    assert "Traceback" not in err


def test_a_folder_outside_of_any_repository(
    running: Callable[..., Running], workspace: Path
) -> None:
    foreign_logs.written(workspace / "runs" / "a", [foreign_logs.simple(3, loss=0.5)])
    before = sorted(workspace.rglob("*"))
    server = running("runs", "--legacy-api", "0", "--samples", "scalars=0", "--json")
    document = server.lines[0]
    while not document.endswith("}\n"):
        document += server.line()
    told = json.loads(document)
    schema = json.loads((SCHEMAS / "tensorboard.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(told)
    older = told["legacy_url"]
    server.until(["a"], older)
    assert server.json("/data/runs", older)["a"]["scalars"] == ["loss"]
    assert server.json("/data/scalars?run=a&tag=loss", older) == [
        [foreign_logs.START + 3 / 8, 3, 0.5]
    ]
    assert server.get("/data/plugins_listing", older)[0] == 404
    found = server.json("/data/plugin/scalars/scalars?run=a&tag=loss", told["url"])
    assert found == [[foreign_logs.START + 3 / 8, 3, 0.5]]
    assert server.end(signal.SIGTERM)[0] == 0
    assert sorted(workspace.rglob("*")) == before


def test_a_restarted_run(running: Callable[..., Running], workspace: Path) -> None:
    """Steps 0 to 9, then 5 to 11, and no mark: what was given up is hidden where that is asked."""
    made = [foreign_logs.simple(step, loss=step) for step in (*range(10), *range(5, 12))]
    foreign_logs.written(workspace / "runs", made)
    for words, count in ((["--restarts", "preempt"], 12), ([], 17)):
        server = running("runs", *words)
        server.until(["."])
        found = server.json("/data/plugin/scalars/scalars?run=.&tag=loss")
        assert len(found) == count
        _, _, err = server.end()
        assert ("go back to 5 without a mark of a restart" in err) == (not words)


def test_a_port_that_is_taken(dlv: Dlv, filled: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        result = dlv("tensorboard", "--port", port)
    assert (result.code, result.stdout) == (5, "")
    assert result.stderr == (
        f"error: port {port} is taken\n"
        f"note:  another program listens on 127.0.0.1:{port}\n"
        "hint:  --port 0 takes a free one\n"
    )


def test_without_the_extra(dlv: Dlv, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.default", None)
    result = dlv("tensorboard", "--port", 0)
    assert result.code == 2
    assert "this needs the package `tensorboard`" in result.stderr
    assert "pip install 'dlv[tensorboard]'" in result.stderr


REFUSED: dict[str, tuple[list[str], int]] = {
    "no such version": (["lenet@7"], 4),
    "a version and a folder": (["lenet@1", "src"], 2),
    "no kind of series": (["--samples", "loss=5"], 2),
    "no number of points": (["--samples", "scalars=many"], 2),
    "an address of another machine": (["--host", "203.0.113.7", "--port", "0"], 2),
    "no port": (["--port", "70000"], 2),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(dlv: Dlv, snapshot: Dlv, filled: Path, case: str) -> None:
    words, code = REFUSED[case]
    (filled / "src").mkdir(exist_ok=True)
    result = dlv("tensorboard", *words)
    assert result.code == code
    snapshot(result)


def test_outside_of_any_repository_there_are_no_versions(dlv: Dlv, workspace: Path) -> None:
    assert dlv("tensorboard", "--port", 0).code == 3
