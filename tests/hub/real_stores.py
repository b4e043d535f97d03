"""Object stores of others, as programs: Ceph's gateway, and s3rver, which ignores conditions."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

CEPH = ("radosgw", "ceph-mon", "ceph-osd", "monmaptool", "ceph", "radosgw-admin")
_INSTALLED = (
    Path(__file__).parents[2] / ".venv/s3rver/node_modules/.bin/s3rver"
)  # by make test-slow
S3RVER = os.environ.get("DLV_S3RVER") or shutil.which("s3rver") or shutil.which(_INSTALLED)
SECONDS = 120


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when something answers at the port."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.2)
    raise RuntimeError(f"no answer: {log.read_text(errors='replace')[-2000:]}")


@contextlib.contextmanager
def started(words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends."""
    with log.open("ab") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def ceph_gateway(folder: Path) -> Iterator[str]:
    """The address of a Ceph object gateway over one store in memory."""
    ports = [free_port() for _ in range(3)]
    fsid, conf, log = str(uuid.uuid4()), folder / "ceph.conf", folder / "ceph.log"
    monitors = f"[v2:127.0.0.1:{ports[0]},v1:127.0.0.1:{ports[1]}]"
    conf.write_text(
        f"""[global]
fsid = {fsid}
mon host = {monitors}
run dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
keyring = {folder}/keyring
mon data = {folder}/mon
mon allow pool size one = true
mon data avail crit = 1
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 4294967296
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd class load list = *
osd class default list = *
"""
    )
    osd = str(uuid.uuid4())

    def run(*words: str) -> None:
        done = subprocess.run(
            [words[0], "-c", str(conf), *words[1:]],
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{words}: {done.stderr.decode()[-2000:]}")

    keyring = str(folder / "keyring")
    for number, name in enumerate(("mon.", "client.admin", "client.rgw", "osd.0")):
        words = ["ceph-authtool", keyring, "--gen-key", "-n", name]
        for kind in ("mon", "osd", "mgr"):
            words += ["--cap", kind, "allow *"]
        words += [] if number else ["--create-keyring"]
        subprocess.run(words, check=True, capture_output=True)
    monmap = str(folder / "monmap")
    create = ["monmaptool", "--create", "--fsid", fsid, "--addv", "a", monitors, monmap]
    subprocess.run(create, check=True, capture_output=True)
    run("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap, "--keyring", keyring)
    with contextlib.ExitStack() as stack:
        monitor = stack.enter_context(started(["ceph-mon", "-i", "a", "-f", "-c", str(conf)], log))
        wait_for(ports[0], monitor, log)
        run("ceph", "osd", "new", osd)
        (folder / "osd").mkdir()
        run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        stack.enter_context(started(["ceph-osd", "-i", "0", "-f", "-c", str(conf)], log))
        front = f"beast endpoint=127.0.0.1:{ports[2]}"
        words = ["radosgw", "-n", "client.rgw", "-f", "-c", str(conf), "--rgw-frontends", front]
        gateway = stack.enter_context(started(words, log))
        wait_for(ports[2], gateway, log)
        user = ["user", "create", "--uid", "dlv", "--display-name", "dlv"]
        run("radosgw-admin", *user, "--access-key", "key", "--secret-key", "secret")
        yield f"http://127.0.0.1:{ports[2]}"


@contextlib.contextmanager
def s3rver(folder: Path) -> Iterator[str]:
    """The address of s3rver, in which conditions of a PUT have no effect."""
    assert S3RVER is not None
    port, log = free_port(), folder / "s3rver.log"
    words = [S3RVER, "-d", str(folder / "data"), "-a", "127.0.0.1", "-p", str(port)]
    (folder / "data").mkdir()
    with started([*words, "--configure-bucket", "test"], log) as process:
        wait_for(port, process, log)
        yield f"http://127.0.0.1:{port}"
