"""The deployment of examples/hub: its servers are killed while clients publish through nginx."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from dlv.canonical import hash_bytes, timestamp
from dlv.errors import DlvError
from dlv.hub.deletion import leased
from dlv.hub.history import History, published, successor
from dlv.hub.locator import Locator
from dlv.hub.records import Ref, object_key
from dlv.hub.stores.server import HubStore
from dlv.hub.stores.web import WebClient
from dlv.objects.manifest import Manifest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "hub"
RAW, COMMANDS = 12, 4  # clients that use the library, and those that are `dlv publish`
PUSHES = 24


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dlv_hub_deployment", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


run = _load()


class _Killer:
    """Kills one server after the other, and starts it again."""

    def __init__(self, hub: Any) -> None:
        self.hub, self.kills = hub, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._random = random.Random(1)
        self.errors: list[BaseException] = []

    def _run(self) -> None:
        try:
            self._kill()
        except BaseException as error:
            self.errors.append(error)

    def _kill(self) -> None:
        while not self._stop.wait(self._random.uniform(0.5, 3)):
            server = self._random.choice(self.hub.servers)
            server.kill()
            self.kills += 1
            self._stop.wait(self._random.uniform(0, 0.5))
            server.start()
            server.wait()

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()


def _patiently(work: Any) -> Any:
    """Repeat what failed, as people repeat a command."""
    end = time.monotonic() + 120
    while True:
        try:
            return work()
        except DlvError:
            if time.monotonic() > end:
                raise
            time.sleep(random.uniform(0.1, 0.5))


def _write(url: str, token: str, number: int, folder: Path) -> list[Ref]:
    """Publish small versions to a model that others publish to; return what was acknowledged."""
    store = HubStore(url, WebClient(url, token))
    (folder / "tmp").mkdir(parents=True)
    model = f"net{number % 3}"
    history = History(store, folder / "cache", folder / "tmp")
    acknowledged = []
    for turn in range(PUSHES):
        author, pack = f"writer {number}", os.urandom(20_000)
        manifest = Manifest(model, f"version {turn} of {author}", author, timestamp()).encode()
        locator = Locator(hash_bytes(manifest), [hash_bytes(pack)]).encode()
        objects = {"packs": pack, "manifests": manifest, "locators": locator}

        def push(objects: dict[str, bytes] = objects, author: str = author) -> Ref:
            manifest = hash_bytes(objects["manifests"])
            with leased(store):
                for kind, data in objects.items():
                    store.put(object_key(kind, hash_bytes(data)), data)
                while True:
                    chain = history.chain(model, None)
                    known = published(chain).get(manifest)
                    if known is not None:
                        return known  # the answer of an earlier attempt was lost
                    ref = successor(
                        chain,
                        "publish",
                        name=model,
                        number=len(chain) + 1,
                        manifest=manifest,
                        locator=hash_bytes(objects["locators"]),
                        author=author,
                    )
                    if history.append(ref):
                        return ref

        acknowledged.append(_patiently(push))
    store.close()
    return acknowledged


class _Person:
    """Somebody who works with a repository of their own, and `dlv` in a shell."""

    def __init__(self, hub: Any, token: str, home: Path, number: int) -> None:
        home.mkdir()
        self.home, self.url = home, f"{hub.url}/ada/person{number}"
        self.environ = hub.of_client(home, token)

    def dlv(self, *words: str, folder: str = "tour", patient: bool = False) -> str:
        end = time.monotonic() + 120
        while True:
            done = subprocess.run(
                [sys.executable, "-m", "dlv", *words],
                cwd=self.home / folder,
                env=self.environ,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0:
                return done.stdout
            if not patient or done.returncode != 7 or time.monotonic() > end:
                raise AssertionError(f"dlv {words}: {done.returncode} {done.stderr}")

    def work(self) -> int:
        """Publish versions one by one; return how many were acknowledged."""
        self.dlv("demo", "tour", folder=".")
        self.dlv("remote", "add", "origin", self.url, patient=True)
        self.dlv("publish", "lenet@1", patient=True)
        self.dlv("publish", "lenet@2", patient=True)
        self.dlv("publish", patient=True)
        return 3

    def clone(self) -> str:
        self.dlv("clone", self.url, "copy", folder=".")
        return self.dlv("fsck", folder="copy")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(run.missing()), reason=f"not installed: {', '.join(run.missing())}")
def test_nothing_is_lost_while_servers_are_killed(tmp_path: Path) -> None:
    with run.deployment(tmp_path) as hub:
        token = hub.new_token("ada")
        os.environ["SSL_CERT_FILE"] = str(hub.authority)
        try:
            _test(hub, token, tmp_path)
        finally:
            del os.environ["SSL_CERT_FILE"]


def _test(hub: Any, token: str, folder: Path) -> None:
    url = f"{hub.url}/ada/models"
    HubStore(url, WebClient(url, token)).create_remote()
    people = [_Person(hub, token, folder / f"home{i}", i) for i in range(COMMANDS)]
    killer = _Killer(hub)
    with killer.running(), ThreadPoolExecutor(RAW + COMMANDS) as pool:
        work = [pool.submit(person.work) for person in people]
        writes = [pool.submit(_write, url, token, i, folder / f"w{i}") for i in range(RAW)]
        acknowledged = [ref for write in writes for ref in write.result()]
        counts = [each.result() for each in work]
    assert killer.errors == []
    assert killer.kills > 5
    assert len(acknowledged) == RAW * PUSHES

    # Nothing is lost, and each history is one chain.
    store = HubStore(url, WebClient(url, token))
    (folder / "tmp").mkdir()
    history = History(store, folder / "cache", folder / "tmp")
    chains = {name: history.chain(name, None) for name in history.names()}
    for ref in acknowledged:
        assert chains[ref.name][ref.seq - 1] == ref
    everything = [ref.manifest for chain in chains.values() for ref in chain]
    assert len(everything) == len(set(everything)) == RAW * PUSHES
    checked = hub.command("check", "--full")
    report = json.loads(checked.stdout)
    assert report["faults"] == []
    assert checked.returncode == 0
    assert report["checked"]["versions"] == RAW * PUSHES + sum(counts)
    assert hub.command("audit", "verify").returncode == 0
    for person in people:
        assert person.clone().startswith("ok")


def test_the_compose_file_names_what_is_there() -> None:
    document = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    services = document["services"]
    assert services.keys() == {"database", "hub1", "hub2", "proxy"}
    conf = (FOLDER / "nginx.conf").read_text()
    for name in ("hub1", "hub2"):
        assert f"server {name}:8000" in conf
        assert services[name]["depends_on"].keys() <= services.keys()
        words = services[name]["command"]
        assert words[:2] == ["hub", "serve"]
        import dlv.commands.of_hub.serve as serve

        known = {name for parameter in serve.run.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known
    context = FOLDER / services["hub1"]["build"]["context"]
    assert (context / services["hub1"]["build"]["dockerfile"]).is_file()
    for volume in services["proxy"]["volumes"]:
        source = volume.partition(":")[0]
        assert (FOLDER / source).exists() or source == "./tls"
