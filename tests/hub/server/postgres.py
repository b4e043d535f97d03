"""A PostgreSQL server for one run of the tests, and databases in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.hub.real_stores import free_port

# Nothing is kept when the tests end, so that nothing needs to be durable.
_FAST = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "shared_buffers=64MB",
    "max_connections=300",
    "unix_socket_directories=",
    "listen_addresses=127.0.0.1",
)
_ACCOUNT = "postgres"  # PostgreSQL refuses to run as root


def _folder_of_programs() -> Path | None:
    named = shutil.which("postgres")
    if named is not None and shutil.which("initdb") is not None:
        return Path(named).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return versions[-1].parent if versions else None


PROGRAMS = _folder_of_programs()


def _words(*words: str) -> list[str]:
    """Return the command with which a program runs as a plain account, and ends with this one."""
    setpriv = shutil.which("setpriv")
    if os.getuid() == 0:
        assert setpriv is not None
        account = (f"--reuid={_ACCOUNT}", f"--regid={_ACCOUNT}", "--init-groups")
        return [setpriv, *account, "--pdeathsig=INT", *words]
    return [*([setpriv, "--pdeathsig=INT"] if setpriv else []), *words]


class Postgres:
    """A running server."""

    def __init__(self, port: int) -> None:
        self.port = port

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{_ACCOUNT}@127.0.0.1:{self.port}/{database}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """Make an empty database until the block ends; its address."""
        name = f"hub_{uuid.uuid4().hex}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield self.url(name)
        finally:
            with psycopg.connect(self.url(), autocommit=True) as connection:
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """Start a server over an empty folder."""
    assert PROGRAMS is not None
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
    try:
        if os.getuid() == 0:
            shutil.chown(folder, _ACCOUNT, _ACCOUNT)
        data, port = folder / "data", free_port()
        settings = ("--auth=trust", f"--username={_ACCOUNT}", "--encoding=UTF8", "--locale=C")
        made = subprocess.run(
            _words(str(PROGRAMS / "initdb"), "--no-sync", *settings, str(data)),
            capture_output=True, text=True, check=False, cwd=folder,
        )  # fmt: skip
        if made.returncode:
            raise RuntimeError(made.stderr)
        options = [word for setting in _FAST for word in ("-c", setting)]
        log = folder / "log"
        with log.open("wb") as out:
            words = _words(str(PROGRAMS / "postgres"), "-D", str(data), "-p", str(port), *options)
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder
            )
        try:
            server = Postgres(port)
            _wait_for(server, process, log)
            yield server
        finally:
            process.send_signal(signal.SIGQUIT)  # at once, without a last checkpoint
            process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(server: Postgres, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(server.url()).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > end:
                text = log.read_text(errors="replace")
                raise RuntimeError(f"PostgreSQL did not start: {text[-2000:]}") from None
        time.sleep(0.05)
