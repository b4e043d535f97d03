"""A hub in a process of its own, to attack by sockets, to measure and to stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_PROGRAM = """
import json, sys
from pathlib import Path
import dlv.hub.server.application as application
import dlv.hub.server.protocol as protocol
import dlv.hub.server.serving as serving
from dlv.hub.server.hub import Hub
from dlv.hub.server.settings import Limits, Settings
from dlv.ui.serving import bound

folder, url, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
options = json.loads(sys.argv[4])
application.BODY_SECONDS = options.pop("body_seconds", 60.0)
protocol.HEADERS = options.pop("header_seconds", 30.0)
limits = Limits(requests=10**9, anonymous=10**9, logins=10**9, **options)
hub = Hub(Settings(url, str(folder / "objects"), folder, "http://127.0.0.1", limits))
with bound("127.0.0.1", port) as listening:
    print("ready", flush=True)
    serving.serve(hub, listening)
"""


class Served:
    """A running hub."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log

    def memory(self) -> tuple[int, int]:
        """Return the bytes that the process has in memory, and the most that it had."""
        values = {}
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            key, _, rest = line.partition(":")
            if key in ("VmRSS", "VmHWM"):
                values[key] = int(rest.split()[0]) << 10
        return values["VmRSS"], values["VmHWM"]

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def send(self, data: bytes) -> bytes:
        """Send bytes on a new connection, and return all that comes back until it is closed."""
        with self.connect() as line:
            try:
                line.sendall(data)
                return read_all(line)
            except (BrokenPipeError, ConnectionResetError):
                return b""

    def request(
        self, method: str, path: str, token: str | None = None, body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:  # fmt: skip
        """Send one request, and return the status and the body of the answer."""
        lines = [f"{method} {path} HTTP/1.1", "Host: hub", "Connection: close"]
        lines += [f"Content-Length: {len(body)}"]
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        lines += [f"{key}: {value}" for key, value in (headers or {}).items()]
        return parsed(self.send("\r\n".join([*lines, "", ""]).encode() + body))

    def errors(self) -> list[str]:
        """Return lines of the log about errors, but that it was busy, and lines of others."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                record = json.loads(line)
                if record["level"] == "error" and record.get("status") != 503:
                    found.append(line)
            except (ValueError, KeyError, TypeError):
                found.append(line)
        return found


def read_all(line: socket.socket) -> bytes:
    data = bytearray()
    while True:
        try:
            piece = line.recv(1 << 16)
        except ConnectionResetError:
            piece = b""
        if not piece:
            return bytes(data)
        data += piece


def parsed(answer: bytes) -> tuple[int, bytes]:
    """Return the status and the body of an answer; status 0 if none came."""
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    return (int(words[1]) if len(words) > 1 else 0), body


@contextmanager
def served(folder: Path, url: str, **options: float) -> Iterator[Served]:
    """Start a hub over a database that has its accounts; stop it at the end."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = folder / "server.log"
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    words = [sys.executable, "-c", _PROGRAM, str(folder), url, str(port), json.dumps(options)]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=errors, env=environ, stdin=subprocess.DEVNULL
        )
    assert process.stdout is not None
    try:
        ready = process.stdout.readline()
        assert ready == b"ready\n", log.read_text()
        hub = Served(process, port, log)
        _wait_for(hub)
        yield hub
    finally:
        process.stdout.close()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(hub: Served) -> None:
    end = time.monotonic() + 60
    while hub.request("GET", "/v1/health")[0] != 200:
        assert time.monotonic() < end
        time.sleep(0.05)
