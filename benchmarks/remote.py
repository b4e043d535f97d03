"""Publish to S3 and clone from it, compared with the store's own clients and with DVC.

All of them use one moto server, in a process of its own. `dvc push` is measured if a dvc program
with S3 support is named with --dvc or found on the PATH. git-lfs sends whole files, so the size of
the file is its figure. Prints a table and, as the last line, JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import obstore.store
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parent.parent
DLV = [sys.executable, "-m", "dlv"]
SERVER = """
import sys, logging
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
GOALS = {"publish": 0.8, "clone": 0.8}


def environment(port: int, home: Path) -> dict[str, str]:
    kept = ("DLV_", "GIT_", "PYTHON", "AWS_")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(kept)}
    return environ | {
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "DVC_NO_ANALYTICS": "1",
    }


class Bench:
    def __init__(self, port: int, base: Path) -> None:
        import boto3

        self.base = base
        self.environ = environment(port, base)
        self.client = boto3.client(
            "s3",
            endpoint_url=self.environ["AWS_ENDPOINT_URL"],
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        )
        self.client.create_bucket(Bucket="models")

    def dlv(self, folder: Path, *words: str) -> tuple[Any, float]:
        begun = time.perf_counter()
        ran = subprocess.run(
            [*DLV, "--json", *words],
            cwd=folder,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        taken = time.perf_counter() - begun
        if ran.returncode:
            raise SystemExit(f"dlv {words} failed:\n{ran.stderr}")
        return json.loads(ran.stdout) if ran.stdout else None, taken

    def commit(self, folder: Path, weights: dict[str, Any], message: str) -> None:
        save_file(weights, folder / "model.safetensors")
        self.dlv(folder, "add", "model.safetensors")
        self.dlv(folder, "commit", "-m", message, "--name", "net")

    def client_times(self, size: int) -> tuple[float, float]:
        """Seconds of an upload and a download of that many bytes, by boto3 or by obstore.

        Both send in parts, side by side; the faster of the two counts.
        """
        path, back = self.base / "bytes", self.base / "back"
        path.write_bytes(os.urandom(size))
        store = self._obstore()

        def boto_up() -> None:
            self.client.upload_file(str(path), "models", "client/bytes")

        def boto_down() -> None:
            self.client.download_file("models", "client/bytes", str(back))

        def obstore_up() -> None:
            with path.open("rb") as file:
                obstore.put(store, "client/bytes", file)

        def obstore_down() -> None:
            with back.open("wb") as file:
                for part in obstore.get(store, "client/bytes"):
                    file.write(part)

        up = min(_seconds(boto_up), _seconds(obstore_up))
        down = min(_seconds(boto_down), _seconds(obstore_down))
        back.unlink()
        path.unlink()
        return up, down

    def _obstore(self) -> Any:
        return obstore.store.S3Store(
            "models",
            endpoint=self.environ["AWS_ENDPOINT_URL"],
            access_key_id="key",
            secret_access_key="secret",
            region="us-east-1",
            client_options={"allow_http": True, "timeout": "5m"},
        )


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def new_bytes(bench: Bench, megabytes: int) -> dict[str, Any]:
    """One version of new weights: published, published again, cloned."""
    folder = bench.base / "large"
    folder.mkdir()
    rng = np.random.default_rng(1)
    count = max(1, megabytes // 16)
    weights = {f"layer{i}": rng.normal(size=(2048, 2048)).astype("f4") for i in range(count)}
    bench.dlv(folder, "init")
    bench.commit(folder, weights, "first")
    bench.dlv(folder, "remote", "add", "origin", "s3://models/large")
    sent, push = bench.dlv(folder, "publish")
    again, again_time = bench.dlv(folder, "publish")
    fetched, pull = bench.dlv(bench.base, "clone", "s3://models/large", "clone")
    size = sent["pack_bytes"]
    up, down = bench.client_times(size)
    shutil.rmtree(bench.base / "clone")
    shutil.rmtree(folder)
    return {
        "bytes": size,
        "publish": {"seconds": push, "client_seconds": up, "ratio": up / push},
        "clone": {"seconds": pull, "client_seconds": down, "ratio": down / pull},
        "fetched": fetched["bytes_received"],
        "again": {
            "bytes": again["bytes_sent"],
            "requests": again["requests"],
            "seconds": again_time,
        },
    }


def fine_tune(bench: Bench, dvc: str | None) -> dict[str, Any]:
    """A second version of all layers moved a little: what each tool sends of it."""
    folder = bench.base / "tuned"
    folder.mkdir()
    rng = np.random.default_rng(2)
    weights = {f"layer{i}": rng.normal(0, 0.05, (1024, 1024)).astype("f4") for i in range(16)}
    tuned = {
        name: values + rng.normal(0, 2e-5, values.shape).astype("f4")
        for name, values in weights.items()
    }
    sizes: dict[str, Any] = {}
    bench.dlv(folder, "init")
    bench.dlv(folder, "remote", "add", "origin", "s3://models/tuned")
    bench.commit(folder, weights, "base")
    bench.dlv(folder, "publish")
    bench.commit(folder, tuned, "fine-tune")
    whole = (folder / "model.safetensors").stat().st_size
    sizes["file"] = whole
    sizes["planned"] = bench.dlv(folder, "publish", "--dry-run")[0]["pack_bytes"]
    before = _packs(folder)
    bench.dlv(folder, "archive")
    sizes["archive saves"] = before - _packs(folder)
    sizes["stored delta"] = _packs(folder) - before // 2
    sizes["sent"] = bench.dlv(folder, "publish")[0]["bytes_sent"]
    if dvc is not None:
        sizes["dvc push"] = _dvc(bench, dvc, weights, tuned)
    return sizes


def _packs(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / ".dlv" / "packs").rglob("*.pack"))


def _dvc(bench: Bench, dvc: str, *models: dict[str, Any]) -> int:
    """Bytes in the bucket after the second push that were not there before it."""
    folder = bench.base / "dvc"
    folder.mkdir()

    def run(*words: str) -> None:
        subprocess.run([dvc, *words], cwd=folder, env=bench.environ, check=True, stdout=-3)

    def stored() -> int:
        pages = bench.client.get_paginator("list_objects_v2")
        found = pages.paginate(Bucket="models", Prefix="dvc/")
        return sum(each["Size"] for page in found for each in page.get("Contents", ()))

    run("init", "--no-scm")
    run("remote", "add", "-d", "origin", "s3://models/dvc")
    run("remote", "modify", "origin", "endpointurl", bench.environ["AWS_ENDPOINT_URL"])
    sizes = []
    for model in models:
        save_file(model, folder / "model.safetensors")
        run("add", "model.safetensors")
        run("push")
        sizes.append(stored())
    return sizes[-1] - sizes[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024, metavar="MB")
    parser.add_argument("--dvc", default=shutil.which("dvc"), help="a dvc program")
    options = parser.parse_args()
    pipe = subprocess.PIPE
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=pipe, stdout=pipe, text=True)
    assert server.stdout is not None
    try:
        with tempfile.TemporaryDirectory() as base:
            bench = Bench(int(server.stdout.readline()), Path(base))
            large = new_bytes(bench, options.size)
            tuned = fine_tune(bench, options.dvc)
    finally:
        server.kill()
        server.wait()
    print(f"{large['bytes'] / 1e6:.0f} MB of new packs to a moto server, and back")
    for way in ("publish", "clone"):
        row = large[way]
        met = "met" if row["ratio"] >= GOALS[way] else "MISSED"
        print(
            f"  {way:<8}{row['seconds']:8.1f} s   client {row['client_seconds']:6.1f} s"
            f"   ratio {row['ratio']:.2f}   goal {GOALS[way]}: {met}"
        )
    print(
        f"  publish again: {large['again']['bytes']} bytes in {large['again']['requests']} requests"
    )
    print("a fine-tune of 16 layers of 4 MB, bytes")
    for way, size in tuned.items():
        print(f"  {way:<16}{size:>12}")
    print(json.dumps({"benchmark": "remote", "large": large, "fine-tune": tuned}))


if __name__ == "__main__":
    main()
