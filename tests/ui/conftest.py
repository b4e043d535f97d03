"""`dlv ui` in a process of its own, over repositories with ordinary and with hostile names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv
from dlv.metadata.trials import Trials
from dlv.repository.handle import Repository
from dlv.training.ledger.ledger import Claim, Ledger, NewTrial
from dlv.training.ledger.settling import Budget
from dlv.training.workers.owners import Owner

ROOT = Path(__file__).parents[2]
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e&\"'"


class Running:
    """A server; `get` asks it with the token."""

    def __init__(self, folder: Path, *words: str) -> None:
        environ = dict(os.environ, PYTHONPATH=str(ROOT))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dlv", "ui", "--port", "0", "--no-open", *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            raise AssertionError(self.process.communicate()[1])
        self.base, _, self.token = self.address.partition("?token=")
        self.root = "/".join(self.base.split("/")[:3])

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, Any]:
        given = {"Authorization": f"Bearer {self.token}"} | headers
        request = urllib.request.Request(f"{self.root}{path}", method=method)
        for name, value in given.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), error.headers

    def stop(self) -> tuple[int, str]:
        self.process.terminate()
        try:
            _, told = self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, told


SWEEP = "ab" * 32


def add_sweep(folder: Path, varied: str, metric: str) -> None:
    """A sweep of four trials in the ledger; a rule stops one of them on its way."""
    rule = {"rule": "top", "k": 3, "metric": metric, "direction": "min", "step": 20}
    config = '{"log_every":10,"steps":40,"trainer":"bowl:train"}'
    trials = [
        NewTrial(
            f"{n:x}" * 64, n, "e" * 64, config, 0, varied, {"base_lr": 0.1 / n, varied: varied}
        )
        for n in range(1, 5)
    ]
    with Trials(folder / ".dlv" / "trials.db") as store:
        ledger = Ledger(store)
        ledger.open_run(SWEEP, f"evaluate {varied}", {}, [rule], Budget(), trials, steps=40)
        while isinstance(claim := ledger.claim(Owner(1, -1.0, "nowhere", "w0")), Claim):
            for step in range(claim.step + 10, claim.target + 1, 10):
                ledger.log(claim, step, {metric: 1 / step + int(claim.trial[0]) / 10}, 1.0)
            ledger.finish(claim, "done" if claim.target == 40 else "ready")


@pytest.fixture(scope="session")
def demo_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `dlv demo` makes: three trained versions with network, metrics and test data."""
    folder = tmp_path_factory.mktemp("ui") / "demo"
    environ = dict(os.environ, PYTHONPATH=str(ROOT))
    words = [sys.executable, "-m", "dlv", "demo", str(folder), "-q"]
    subprocess.run(words, check=True, capture_output=True, env=environ)
    add_sweep(folder, "momentum", "loss")
    return folder


@pytest.fixture(scope="session")
def hostile_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names of tensors, metrics, settings, tags, files and messages that attack a page."""
    folder = tmp_path_factory.mktemp("hostile") / "repo"
    folder.mkdir()
    (folder / "notes.py").write_text(f"# {HOSTILE}\nprint('<b>')\n")
    (folder / "<b>x.txt").write_text(HOSTILE)
    (folder / "CARD.md").write_text(f"---\ntags: [x]\n---\n{HOSTILE}\n")
    before = os.getcwd()
    os.chdir(folder)
    try:
        with dlv.open(folder, create=True) as repo:
            for number in range(3):
                repo.add("notes.py", "<b>x.txt", "CARD.md")
                repo.commit(
                    f"{HOSTILE}\nsecond line",
                    name="evil",
                    weights={HOSTILE: np.full((3, 4), number, np.float32)},
                    parameters={HOSTILE: HOSTILE, "lr": 0.1 / (number + 1)},
                    metrics={HOSTILE: [(i, i * number) for i in range(5)]},
                )
    finally:
        os.chdir(before)
    add_sweep(folder, HOSTILE, HOSTILE)
    return folder


@pytest.fixture(scope="module")
def demo(demo_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy for one module."""
    folder = tmp_path_factory.mktemp("copy") / "demo"
    shutil.copytree(demo_once, folder, symlinks=True)
    return folder


@pytest.fixture(scope="module")
def server(demo: Path) -> Iterator[Running]:
    running = Running(demo)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def hostile(hostile_once: Path) -> Iterator[Running]:
    running = Running(hostile_once)
    yield running
    running.stop()


def versions(folder: Path) -> list[str]:
    with dlv.open(folder) as repo:
        return [version.label for version in repo]


def pages(folder: Path) -> list[str]:
    """An address of every kind of page."""
    from urllib.parse import quote, urlencode

    repository = Repository.find(folder)
    labels = versions(folder)
    first, last = labels[-1], labels[0]
    paths = [entry.path for entry in repository.manifest(_id(folder, first)).files]
    repository.close()
    return [
        "/", "/?sort=version", "/?where=" + quote("lr > 0"), "/?where=nonsense", "/rows?from=0",
        f"/v/{first}", f"/v/{last}", f"/statistics/{first}",
        f"/compare?v={first}&v={last}", f"/compare?v={first}&v={last}&all=1",
        "/compare", "/query", f"/query?{urlencode({'q': 'select m'})}",
        f"/query?{urlencode({'q': 'select m where'})}",
        f"/query?{urlencode({'q': 'select m', 'explain': '1'})}",
        "/sweeps", f"/sweeps/{SWEEP}", "/evaluate", "/storage", "/live", "/v/nothing", "/nowhere",
        *(f"/file/{first}?{urlencode({'path': path})}" for path in paths),
    ]  # fmt: skip


def _id(folder: Path, label: str) -> str:
    with dlv.open(folder) as repo:
        return repo[label].id
