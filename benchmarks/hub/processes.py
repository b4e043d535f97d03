"""The programs that are measured: servers of a hub, a bare Starlette route, stores, clients."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.hub.real_stores import CEPH, ceph_gateway, free_port
from tests.hub.server.postgres import PROGRAMS, postgres_server

ROOT = Path(__file__).resolve().parents[2]
BUCKET = "hub"
MOTO = """
import sys, logging
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=int(sys.argv[1]), verbose=False)
server.start()
sys.stdin.read()
"""


@dataclass
class Process:
    """A server, and how much memory it had over time."""

    process: subprocess.Popen[bytes]
    address: str
    memory: list[int] = field(default_factory=list)

    def watch(self, stop: threading.Event) -> None:
        """Note the resident memory four times a second, in KiB."""
        while not stop.wait(0.25):
            with contextlib.suppress(OSError, StopIteration):
                lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
                line = next(line for line in lines if line.startswith("VmRSS:"))
                self.memory.append(int(line.split()[1]))


@contextlib.contextmanager
def running(
    words: Sequence[str], environ: Mapping[str, str], log: Path, address: str, health: str
) -> Iterator[Process]:
    """Run a server until the block ends, and wait for its first answer."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            words, env=dict(environ), stdin=subprocess.PIPE, stdout=out, stderr=out
        )
    try:
        end = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(address + health, timeout=5).close()
                break
            except urllib.error.HTTPError:
                break  # it answers
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(log.read_text()[-3000:]) from None
                time.sleep(0.05)
        yield Process(process, address)
    finally:
        process.terminate()
        process.wait(90)


@dataclass(frozen=True)
class Places:
    """A database and a bucket. `store` says which program has the bucket."""

    database: str
    store: str
    environ: dict[str, str]


@contextlib.contextmanager
def places(folder: Path) -> Iterator[Places]:
    """PostgreSQL and Ceph; moto where Ceph is not installed."""
    if PROGRAMS is None:
        raise SystemExit("PostgreSQL is not installed")
    with contextlib.ExitStack() as stack:
        if all(map(shutil.which, CEPH)):
            (folder / "ceph").mkdir()
            endpoint, store = stack.enter_context(ceph_gateway(folder / "ceph")), "Ceph"
        else:
            port = free_port()
            endpoint, store = f"http://127.0.0.1:{port}", "moto"
            words = [sys.executable, "-c", MOTO, str(port)]
            stack.enter_context(running(words, os.environ, folder / "moto.log", endpoint, "/"))
        environ = _environ(endpoint)
        _make_bucket(environ)
        server = stack.enter_context(postgres_server())
        yield Places(stack.enter_context(server.database()), store, environ)


def _environ(endpoint: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DLV_", "AWS_"))}
    return kept | {
        "PYTHONPATH": str(ROOT),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }


def _make_bucket(environ: Mapping[str, str]) -> None:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=environ["AWS_ENDPOINT_URL"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)


@contextlib.contextmanager
def hub_servers(where: Places, folder: Path, count: int = 2) -> Iterator[list[Process]]:
    """Servers of one hub."""
    with contextlib.ExitStack() as stack:
        servers = []
        for number in range(count):
            port = free_port()
            words = [
                sys.executable, "-m", "dlv", "hub", "serve", "--database", where.database,
                "--store", f"s3://{BUCKET}", "--data", str(folder / f"data{number}"),
                "--port", str(port),
            ]  # fmt: skip
            address, log = f"http://127.0.0.1:{port}", folder / f"server{number}.log"
            servers.append(
                stack.enter_context(running(words, where.environ, log, address, "/v1/health"))
            )
        yield servers


@contextlib.contextmanager
def bare_servers(database: str, folder: Path, count: int = 2) -> Iterator[list[Process]]:
    """Servers of one Starlette route that reads a row."""
    with contextlib.ExitStack() as stack:
        servers = []
        for number in range(count):
            port = free_port()
            words = [sys.executable, "-m", "benchmarks.hub.bare", database, str(port)]
            environ = {**os.environ, "PYTHONPATH": str(ROOT)}
            address, log = f"http://127.0.0.1:{port}", folder / f"bare{number}.log"
            servers.append(stack.enter_context(running(words, environ, log, address, "/")))
        yield servers


@contextlib.contextmanager
def watched(servers: Sequence[Process]) -> Iterator[None]:
    """Note the memory of servers until the block ends."""
    stop = threading.Event()
    threads = [threading.Thread(target=server.watch, args=(stop,)) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
