"""Pushes to a hub and pulls from it that are cut: nothing is lost, and little is sent again."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

import dlv.hub.pull as pulling
import dlv.hub.push as pushing
import dlv.hub.stores.web as web
import dlv.upkeep.check as check
from dlv.errors import DlvError
from dlv.hub.history import published
from dlv.hub.remotes import open_remote
from dlv.hub.stores.web import Cut, Reply, WebClient
from dlv.metadata import versions
from dlv.repository.handle import Repository
from tests.hub.running import RunningHub, running_hub
from tests.hub.test_push_pull import contents, other, repository

__all__ = ["other", "repository"]
BLOCK = 64 << 10


class CuttingProxy:
    """Passes bytes on between clients and a hub, and cuts all connections when told to."""

    def __init__(self, target: str) -> None:
        address = urlsplit(target)
        self._target = (address.hostname, address.port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.left = float("inf")  # bytes until all connections are cut
        self.again: list[float] = []  # bytes until the cuts after that
        self.up = self.down = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._closed = True
        self._listening.close()
        self._cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:  # the hub has stopped
                client.close()
                return
            with self._lock:
                self._open |= {client, server}
            for way, source, target in (("up", client, server), ("down", server, client)):
                threading.Thread(
                    target=self._pass_on, args=(way, source, target), daemon=True
                ).start()

    def _pass_on(self, way: str, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(BLOCK):
                with self._lock:
                    self.left -= len(data)
                    cut = self.left <= 0
                    if cut:
                        self.left = self.again.pop(0) if self.again else float("inf")
                    setattr(self, way, getattr(self, way) + len(data))
                if cut:
                    self._cut()
                    return
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        with self._lock:
            self._open -= {source, target}

    def _cut(self) -> None:
        with self._lock:
            connections, self._open = self._open, set()
        for each in connections:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def cutting_proxy(hub: RunningHub) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(hub.url)
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    (tmp_path / "hub").mkdir()
    with running_hub(tmp_path / "hub") as running:
        yield running


def send(own: Repository, url: str, token: str, *refs: str) -> pushing.Published:
    opened = open_remote(own, "origin", url, {"DLV_TOKEN": token}, create=True)
    return pushing.publish(own, opened, pushing.Request(references=refs, author="Ada"))


def fetch(own: Repository, url: str, token: str) -> pulling.Pulled:
    opened = open_remote(own, "origin", url, {"DLV_TOKEN": token})
    request = pulling.Request(names=(), author="Bob", everything=True)
    return pulling.pull(own, opened, request)


@pytest.mark.parametrize(
    ("size", "cuts"), [(60, 4), pytest.param(1000, 20, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("way", ["up", "down"])
def test_cuts_at_random_places(
    repository: Repository,
    other: Repository,
    commit_model: Callable[..., str],
    hub: RunningHub,
    size: int,
    cuts: int,
    way: str,
) -> None:
    """One transfer of `size` MB is cut many times: of a large one at most 5% go twice (A2)."""
    rng = np.random.default_rng(1)
    tensors = {f"l{i}": rng.standard_normal((1024, 1024)).astype("f4") for i in range(size // 4)}
    commit_model(repository, "net", tensors)
    del tensors
    with cutting_proxy(hub) as proxy:
        url = f"{proxy.url}/ada/models"
        if way == "down":
            send(repository, url, hub.token)
        total = size * 850_000  # somewhat less than what is sent
        places = sorted(random.Random(2).sample(range(total), cuts))
        proxy.up = proxy.down = 0
        proxy.left = places[0]
        proxy.again = [float(b - a) for a, b in itertools.pairwise(places)]
        tries = 1
        while True:
            try:
                send(repository, url, hub.token) if way == "up" else fetch(other, url, hub.token)
                break
            except DlvError:
                tries += 1
                assert tries <= cuts + 1
        assert proxy.again == []
        assert proxy.left == float("inf")
        moved = proxy.up if way == "up" else proxy.down
        if way == "up":
            fetch(other, url, hub.token)
        (version,) = versions.all_versions(other.database)
        assert contents(other, version.id) == contents(repository, version.id)
        packs = sum(len(hub.behind()[key]) for key in hub.behind().keys("packs/"))
        share = 100 * (moved / packs - 1)
        print(f"{way}: {cuts} cuts in {packs:,} bytes, {tries} tries, {share:.2f}% again")
        assert share <= (5 if size == 1000 else 60)


class _Fault:
    """Fails at one request, before it is sent or after its answer has come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, self.at, self.after, self.kill = 0, 0, False, False
        self._lock = threading.Lock()
        once = WebClient.once
        fault = self

        def faulty(client: WebClient, *args: object, **options: object) -> Reply:
            with fault._lock:
                fault.calls += 1
                hit = fault.calls == fault.at or (fault.kill and 0 < fault.at < fault.calls)
            if hit and not fault.after:
                raise fault.error()
            reply = once(client, *args, **options)  # type: ignore[arg-type]
            if hit:
                raise fault.error()
            return reply

        monkeypatch.setattr(WebClient, "once", faulty)

    def error(self) -> Exception:
        return _Killed() if self.kill else Cut("the line was cut")


class _Killed(Exception):
    """The process ends here: nothing of it goes on."""


@pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.slow, id="all"), pytest.param(4, id="some")]
)
@pytest.mark.parametrize(
    ("kill", "after"),
    [
        pytest.param(False, False, marks=pytest.mark.slow, id="cut-before"),
        pytest.param(False, True, id="cut-after"),
        pytest.param(True, False, id="kill-before"),
        pytest.param(True, True, marks=pytest.mark.slow, id="kill-after"),
    ],
)
def test_a_fault_at_every_request(
    lived: Repository,
    tmp_path: Path,
    hub: RunningHub,
    monkeypatch: pytest.MonkeyPatch,
    after: bool,
    kill: bool,
    step: int,
) -> None:
    """A cut is survived at once, and after a kill the next try finishes (A11)."""
    monkeypatch.setattr(web, "FIRST_WAIT", 0.001)
    fault = _Fault(monkeypatch)
    fault.after, fault.kill = after, kill
    repositories, place = 0, 1 - step
    while True:
        repositories, place = repositories + 1, place + step
        shutil.rmtree(lived.cache, ignore_errors=True)
        url = f"{hub.url}/ada/models{repositories}"
        fault.calls, fault.at = 0, place
        with contextlib.suppress(_Killed, DlvError):
            send(lived, url, hub.token, "lenet@2")
        done, fault.at = fault.calls < place, 0
        send(lived, url, hub.token, "lenet@2")
        opened = open_remote(lived, "origin", url, {"DLV_TOKEN": hub.token})
        chain = opened.history.chain("lenet", None)
        assert [ref.number for ref in chain] == [1, 2]
        assert len(published(chain)) == 2
        if done:
            break
    print(f"push: {place} requests")
    place = 1 - step
    while True:
        place += step
        with Repository.init(tmp_path / f"other{place}")[0] as own:
            fault.calls, fault.at = 0, place
            with contextlib.suppress(_Killed, DlvError):
                fetch(own, url, hub.token)
            done, fault.at = fault.calls < place, 0
            fetch(own, url, hub.token)
            assert len(versions.all_versions(own.database)) == 2
            if place % 7 == 1:  # some of them, as it takes longer than the rest
                assert check.check(own).faults == []
        shutil.rmtree(tmp_path / f"other{place}")
        if done:
            break
    print(f"pull: {place} requests")


def test_a_fine_tuned_version_costs_its_delta(
    repository: Repository, commit_model: Callable[..., str], hub: RunningHub
) -> None:
    """Only what changed is sent, and hardly more than it takes (A1)."""
    rng = np.random.default_rng(1)
    tensors = {f"l{i}": rng.standard_normal((512, 512)).astype("f4") for i in range(12)}
    commit_model(repository, "net", tensors)
    url = f"{hub.url}/ada/models"
    send(repository, url, hub.token)
    tensors["l3"] = tensors["l3"] + rng.standard_normal((512, 512)).astype("f4") * 1e-4
    commit_model(repository, "net", tensors, root=False)
    opened = open_remote(repository, "origin", url, {"DLV_TOKEN": hub.token})
    request = pushing.Request(references=(), author="Ada")
    done = pushing.publish(repository, opened, request)
    sent = opened.store.traffic.sent
    print(
        f"{done.bytes:,} bytes of packs, {sent:,} in all, {opened.store.traffic.requests} requests"
    )
    assert 0 < done.bytes < 512 * 512 * 4
    assert sent <= done.bytes * 1.02 + 8_000  # manifest and locator are small, and sent whole
