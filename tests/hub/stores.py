"""Backends for tests: a real S3 server in this process, a web server of files, stores that lie."""

from __future__ import annotations

import functools
import http.server
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dlv.errors import RemoteError
from dlv.hub.stores.interface import MissingObject, Store


class Files(MutableMapping[str, bytes]):
    """A folder, as keys and bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, key: str) -> bytes:
        try:
            return (self.folder / key).read_bytes()
        except FileNotFoundError:
            raise KeyError(key) from None

    def __setitem__(self, key: str, data: bytes) -> None:
        (self.folder / key).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / key).write_bytes(data)

    def __delitem__(self, key: str) -> None:
        (self.folder / key).unlink()

    def __iter__(self) -> Iterator[str]:
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                yield path.relative_to(self.folder).as_posix()

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Bucket(MutableMapping[str, bytes]):
    """A bucket, through a client that dlv does not use."""

    def __init__(self, client: Any, name: str, prefix: str) -> None:
        self._client, self.name, self.prefix = client, name, prefix

    def __getitem__(self, key: str) -> bytes:
        try:
            found = self._client.get_object(Bucket=self.name, Key=self.prefix + key)
        except self._client.exceptions.NoSuchKey:
            raise KeyError(key) from None
        data: bytes = found["Body"].read()
        return data

    def __setitem__(self, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=self.name, Key=self.prefix + key, Body=data)

    def __delitem__(self, key: str) -> None:
        self._client.delete_object(Bucket=self.name, Key=self.prefix + key)

    def __iter__(self) -> Iterator[str]:
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self.name, Prefix=self.prefix):
            for each in page.get("Contents", ()):
                yield each["Key"].removeprefix(self.prefix)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@contextmanager
def s3_server() -> Iterator[tuple[str, Any]]:
    """(address, client) of a moto server."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=address,
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    try:
        yield address, client
    finally:
        server.stop()


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Files, whole or in ranges, as any static web server gives them."""

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if wanted is None or not path.is_file():
            super().do_GET()
            return
        data = path.read_bytes()
        start, end = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
        if start >= len(data):
            self.send_error(416)
            return
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{end}/{len(data)}")
        self.send_header("Content-Length", str(end - start + 1))
        self.end_headers()
        self.wfile.write(data[start : end + 1])


@contextmanager
def web_server(folder: Path) -> Iterator[str]:
    """The address under which the files of a folder are served."""
    handler = functools.partial(_Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class MemoryStore(Store):
    """Objects in a dict. `fail` is asked before and after each request, and may raise."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        super().__init__()
        self.url = "memory"
        self.objects = {} if objects is None else objects
        self.times: dict[str, float] = {}
        self.clock: Callable[[], float] = time.time
        self.calls = 0
        self.fail_at: int | None = None
        self.lying = False
        self._lock = threading.Lock()

    def _step(self) -> None:
        with self._lock:
            self.calls += 1
            if self.calls == self.fail_at:
                raise RemoteError("the line was cut")

    def _get(self, key: str, most: int) -> bytes:  # noqa: ARG002
        self._step()
        if key not in self.objects:
            raise MissingObject(key)
        return self.objects[key]

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        return self._get(key, 0)[start : start + length]

    def _size(self, key: str) -> int | None:
        self._step()
        return len(self.objects[key]) if key in self.objects else None

    def _modified(self, key: str) -> float | None:
        self._step()
        return self.times.get(key, 0.0) if key in self.objects else None

    def _put(self, key: str, data: bytes) -> None:
        self._step()
        self.objects[key] = data
        self.times[key] = self.clock()
        self._step()

    def _create(self, key: str, data: bytes) -> bool:
        self._step()
        with self._lock:
            if key in self.objects and not self.lying:
                return False
            self.objects[key] = data
            self.times[key] = self.clock()
        self._step()  # it is written, and the answer is lost
        return True

    def _keys(self, prefix: str) -> list[str]:
        self._step()
        return [key for key in self.objects if key.startswith(prefix)]

    def _delete(self, key: str) -> None:
        self._step()
        self.objects.pop(key, None)
