"""Run a hub on this machine as an organization would: python examples/hub/run.py

It starts PostgreSQL, Ceph's object gateway, two servers, and nginx with TLS, from the packages of
the distribution (apt install postgresql nginx-light openssl radosgw ceph-mon ceph-osd). Everything
is in a temporary folder and is deleted at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))

from tests.hub.real_stores import CEPH, ceph_gateway, free_port  # noqa: E402
from tests.hub.server.postgres import PROGRAMS, postgres_server  # noqa: E402

BUCKET = "hub"
NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
SECONDS = 180


def missing() -> list[str]:
    """Return the programs that are not installed."""
    names = [name for name in (*CEPH, "openssl") if shutil.which(name) is None]
    return names + ["nginx"] * (NGINX is None) + ["postgresql"] * (PROGRAMS is None)


@dataclass
class Server:
    """One `dlv hub serve`; it may be killed and started again."""

    port: int
    words: list[str]
    environ: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [*self.words, "--port", str(self.port)],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def wait(self) -> None:
        """Return when the server answers."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"{self.address}/v1/health", timeout=5),
            ):
                return
            if self.process is None or self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"a server did not start: {self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        """End the server as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Let the server answer what it has begun."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(90)


@dataclass
class Deployment:
    """A running hub."""

    url: str
    authority: Path  # the certificate that clients must trust
    database: str
    store: str
    data: Path
    environ: dict[str, str]  # of the servers
    servers: list[Server] = field(default_factory=list)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `dlv hub ..` on the database, as an operator does in a shell."""
        place = ("--database", self.database)
        return subprocess.run(
            [sys.executable, "-m", "dlv", "--json", "hub", *words, *place],
            env={**self.environ, "DLV_HUB_STORE": self.store, "DLV_HUB_DATA": str(self.data)},
            capture_output=True,
            text=True,
            check=False,
        )

    def new_token(self, user: str, *, operator: bool = False) -> str:
        """Add a user and return a token of theirs."""
        options = ("--operator",) if operator else ()
        for words in (("user", "add", user, *options), ("token", "create", user)):
            done = self.command(*words)
            if done.returncode:
                raise RuntimeError(done.stderr)
        return str(json.loads(done.stdout)["token"])

    def of_client(self, home: Path, token: str) -> dict[str, str]:
        """Return the environment of somebody who uses the hub."""
        kept = ("DLV_", "AWS_", "SSL_")
        environ = {key: value for key, value in os.environ.items() if not key.startswith(kept)}
        return environ | {
            "HOME": str(home),
            "PYTHONPATH": str(ROOT),
            "SSL_CERT_FILE": str(self.authority),
            "DLV_TOKEN": token,
            "DLV_TOKEN_URL": self.url,
        }

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority))


def _certificate(folder: Path) -> Path:
    """Make an authority and a certificate for localhost; return the one of the authority."""
    authority, key = folder / "authority.crt", folder / "authority.key"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")

    def openssl(*words: str | Path) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True)

    openssl(
        "req", "-x509", *curve, "-keyout", key, "-out", authority, "-days", "30", "-subj",
        "/CN=dlv trial", "-addext", "keyUsage=critical,keyCertSign",
    )  # fmt: skip
    request, extensions = folder / "hub.csr", folder / "hub.ext"
    openssl("req", *curve, "-keyout", folder / "hub.key", "-out", request, "-subj", "/CN=localhost")
    extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl(
        "x509", "-req", "-in", request, "-CA", authority, "-CAkey", key, "-days", "30",
        "-out", folder / "hub.crt", "-extfile", extensions, "-CAcreateserial",
    )  # fmt: skip
    return authority


def _nginx_conf(folder: Path, port: int, servers: list[Server]) -> Path:
    """Write nginx.conf with the addresses and folders of this machine."""
    text = (HERE / "nginx.conf").read_text()
    changes = {
        "hub1:8000": f"127.0.0.1:{servers[0].port}",
        "hub2:8000": f"127.0.0.1:{servers[1].port}",
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "hub.example.org": "localhost",
        "/etc/dlv/tls": str(folder),
        "/var/log/nginx": str(folder),
        "http {\n": "http {\n" + "".join(
            f"    {kind}_temp_path {folder}/{kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        ),
    }  # fmt: skip
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    head = f"daemon off;\npid {folder}/nginx.pid;\n"
    if os.getuid() == 0:
        head += "user root;\n"  # the folder is not for the user of the distribution's package
    path = folder / "nginx.conf"
    path.write_text(head + text)
    return path


@contextlib.contextmanager
def _running(words: list[str], log: Path) -> Iterator[None]:
    with log.open("ab") as out:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _new_bucket(environ: Mapping[str, str]) -> None:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=environ["AWS_ENDPOINT_URL"],
        aws_access_key_id=environ["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environ["AWS_SECRET_ACCESS_KEY"],
        region_name=environ["AWS_REGION"],
    )
    client.create_bucket(Bucket=BUCKET)


def environment(endpoint: str) -> dict[str, str]:
    """Return the environment of servers that keep objects at an S3 endpoint."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DLV_", "AWS_"))}
    return kept | {
        "PYTHONPATH": str(ROOT),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }


@contextlib.contextmanager
def deployment(folder: Path, *, options: tuple[str, ...] = ()) -> Iterator[Deployment]:
    """Run a hub until the block ends. `options` are more options of `dlv hub serve`."""
    (folder / "ceph").mkdir()
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(ceph_gateway(folder / "ceph"))
        postgres = stack.enter_context(postgres_server())
        database = stack.enter_context(postgres.database())
        yield stack.enter_context(serving(folder, database, endpoint, options=options))


@contextlib.contextmanager
def serving(
    folder: Path, database: str, endpoint: str, *, options: tuple[str, ...] = ()
) -> Iterator[Deployment]:
    """Run two servers and the proxy over a database and an object store."""
    environ = environment(endpoint)
    _new_bucket(environ)
    port, authority = free_port(), _certificate(folder)
    url, store = f"https://localhost:{port}", f"s3://{BUCKET}"
    hub = Deployment(url, authority, database, store, folder / "data", environ)
    with contextlib.ExitStack() as stack:
        for number in (1, 2):
            place = ("--database", database, "--store", store)
            words = [sys.executable, "-m", "dlv", "hub", "serve", *place, "--url", url, *options]
            words += ["--data", str(folder / f"data{number}")]
            server = Server(free_port(), words, environ, folder / f"server{number}.log")
            server.start()
            stack.callback(server.stop)
            hub.servers.append(server)
        for server in hub.servers:
            server.wait()
        conf = _nginx_conf(folder, port, hub.servers)
        assert NGINX is not None
        stack.enter_context(_running([NGINX, "-c", str(conf)], folder / "nginx.log"))
        _wait_for_proxy(hub)
        yield hub


def _wait_for_proxy(hub: Deployment) -> None:
    end = time.monotonic() + SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{hub.url}/v1/health", timeout=5, context=hub.context())
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def main() -> None:
    absent = missing()
    if absent:
        raise SystemExit(f"not installed: {', '.join(absent)}")
    with tempfile.TemporaryDirectory() as name, deployment(Path(name)) as hub:
        token = hub.new_token("ada", operator=True)
        print(f"The hub answers at {hub.url}. In another shell:\n")
        print(f"  export SSL_CERT_FILE={hub.authority}")
        print(f"  export DLV_TOKEN={token} DLV_TOKEN_URL={hub.url}")
        print(f"  dlv demo tour && cd tour && dlv remote add origin {hub.url}/ada/models")
        print("  dlv publish\n")
        print("Ctrl-C ends it, and deletes everything.", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
