"""Pages and reports in headless Chromium, with MLflow's page of the same runs beside.

    python -m benchmarks.pages [--versions N] [--mlflow PYTHON] [--keep FOLDER] [--size MB]

MLFLOW is the Python of an environment with MLflow; without it that row is left out. `--keep` uses
the repositories of an earlier run again. Needs Chromium and the extra `ui`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from playwright.sync_api import Browser, Page, sync_playwright

import dlv
from dlv.network.graph import Input, Network, Node

DLV = [sys.executable, "-m", "dlv"]
RUNS = 5
GOALS = {
    "models, time to MLflow's": 1 / 3,
    "models, bytes to MLflow's": 1 / 10,
    "heat map of two versions [s]": 3.0,
    "report of 1,000 layers [s]": 2.0,
    "network page of 1,000 layers [s]": 2.0,
    "layout of 1,000 layers [ms]": 300.0,
    "report of 100 runs x 10,000 points [s]": 1.0,
    "report without data [kB]": 300.0,
    "live curve after a write [s]": 2.0,
    "idle, of a core [%]": 2.0,
}


def records(count: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(0)
    for number in range(count):
        lr, batch = rng.choice([0.1, 0.03, 0.01, 0.001]), rng.choice([32, 64, 128])
        yield {
            "message": f"run {number} of a search",
            "parameters": {"lr": lr, "batch": batch, "seed": number, "optimizer": "adam"},
            "metrics": {"loss": rng.random(), "accuracy": rng.random(), "val_loss": rng.random()},
        }


def many_versions(folder: Path, count: int) -> None:
    with dlv.open(folder, create=True) as repo:
        for record in records(count):
            repo.commit(
                record["message"],
                name="lenet",
                parameters=record["parameters"],
                metrics=record["metrics"],
                allow_empty=True,
            )


def mlflow_store(database: Path, count: int, python: str) -> None:
    script = Path(__file__).with_name("mlflow_runs.py")
    with subprocess.Popen(
        [python, str(script), str(database), str(count)], stdin=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        for record in records(count):
            process.stdin.write(json.dumps(record) + "\n")
        process.stdin.close()
    if process.returncode:
        raise SystemExit("MLflow could not be filled")


@contextlib.contextmanager
def dlv_served(folder: Path, *words: str) -> Iterator[tuple[str, int]]:
    command = [*DLV, "ui", "--port", "0", "--no-open", *words]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def mlflow_served(database: Path, python: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "mlflow", "ui", "--backend-store-uri", f"sqlite:///{database}"]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--workers", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(240):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.5)
        time.sleep(8)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


class Wire:
    """A page with an empty cache that counts what comes over the wire."""

    def __init__(self, browser: Browser, **settings: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **settings)
        self.page: Page = self.context.new_page()
        self.bytes = 0.0
        session = self.context.new_cdp_session(self.page)
        session.send("Network.enable")
        session.on("Network.loadingFinished", self._add)

    def _add(self, event: dict[str, Any]) -> None:
        self.bytes += event["encodedDataLength"]


def paint(browser: Browser, enter: str | None, address: str, ready: str) -> tuple[float, float]:
    """Median seconds until `ready` can be seen, and the bytes of the last load."""
    times, size = [], 0.0
    for _ in range(RUNS):
        wire = Wire(browser)
        if enter is not None:
            wire.page.goto(enter)
            wire.page.locator("nav").first.wait_for()
            wire.context.new_cdp_session(wire.page).send("Network.clearBrowserCache")
            wire.bytes = 0.0
        began = time.perf_counter()
        wire.page.goto(address, wait_until="commit")
        wire.page.locator(ready).first.wait_for(state="visible", timeout=240_000)
        times.append(time.perf_counter() - began)
        wire.page.wait_for_timeout(500)
        size = wire.bytes
        wire.context.close()
    return statistics.median(times), size


def models(browser: Browser, base: Path, told: argparse.Namespace) -> dict[str, Any]:
    folder, database = base / "many", base / "mlflow.db"
    if not folder.exists():
        many_versions(folder, told.versions)
    with dlv_served(folder) as (address, _):
        root = address.split("/?")[0]
        seconds, size = paint(browser, address, f"{root}/", f'a[href="/v/lenet@{told.versions}"]')
    found: dict[str, Any] = {
        "versions": told.versions,
        "models [s]": seconds,
        "models, bytes": size,
    }
    if told.mlflow is None:
        return found
    if not database.exists():
        mlflow_store(database, told.versions, told.mlflow)
    with mlflow_served(database, told.mlflow) as root:
        address = f"{root}/#/experiments/1/runs"
        row = f"text=lenet@{told.versions}"
        other, other_size = paint(browser, None, address, row)
    return found | {
        "MLflow [s]": other,
        "MLflow, bytes": other_size,
        "models, time to MLflow's": seconds / other,
        "models, bytes to MLflow's": size / other_size,
    }


def large_pair(folder: Path, size: int) -> None:
    rng = np.random.default_rng(0)
    count = max(1, size // 64)
    with dlv.open(folder, create=True) as repo:
        weights = {
            f"layers.{i}.weight": rng.standard_normal((4096, 4096), np.float32) * np.float32(0.02)
            for i in range(count)
        }
        repo.commit("base", name="big", weights=weights)
        for i, held in enumerate(weights.values()):
            held += rng.standard_normal(held.shape, np.float32) * np.float32(2e-5 * 4 ** (i % 6))
        repo.commit("tuned", name="big", weights=weights)


def heat_map(browser: Browser, base: Path, told: argparse.Namespace) -> dict[str, Any]:
    folder = base / "pair"
    if not folder.exists():
        large_pair(folder, told.size)
    with dlv_served(folder) as (address, _):
        root = address.split("/?")[0]
        seconds, size = paint(browser, address, f"{root}/compare?v=big@1&v=big@2", "table.heat")
    return {"heat map of two versions [s]": seconds, "heat map, bytes": size, "MB": told.size}


def layers(count: int) -> Network:
    """Blocks of four layers that all differ, so that nothing is folded."""
    nodes: list[Node] = []
    last = "x"
    for i in range(count // 4):
        full = {"out": 16 + i}
        nodes += [
            Node(f"part{i}.up", "FULL", attrs=full, inputs=((last, 0),)),
            Node(f"part{i}.act", "RELU", attrs={"slope": 0.0}, inputs=((f"part{i}.up", 0),)),
            Node(f"part{i}.down", "FULL", attrs={"out": 16},
                 inputs=((f"part{i}.act", 0),)),
            Node(f"part{i}.add", "ADD", inputs=((last, 0), (f"part{i}.down", 0))),
        ]  # fmt: skip
        last = f"part{i}.add"
    return Network((Input("x", ("B", 16)),), tuple(nodes), ((last, 0),))


def network(browser: Browser, base: Path, _: argparse.Namespace) -> dict[str, Any]:
    import dlv.network.json_form as json_form
    import dlv.report.network_picture as network_picture

    folder = base / "deep"
    made = layers(1000)
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / "network.json").write_text(json.dumps(json_form.write(made)))
        for words in (
            ["init"],
            ["add", "network.json"],
            ["commit", "-m", "deep", "--name", "deep"],
        ):
            subprocess.run([*DLV, *words], cwd=folder, check=True, capture_output=True)
    times = []
    for _ in range(RUNS):
        sketch = network_picture.sketch(made)
        began = time.perf_counter()
        network_picture.places_of(sketch)
        times.append(1000 * (time.perf_counter() - began))
    report = folder / "deep.html"
    command = [*DLV, "desc", "deep", "--network", "-o", str(report)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    shown, _ = paint(browser, None, report.as_uri(), '[data-layer="part249.add"] rect')
    with dlv_served(folder) as (address, _):
        root = address.split("/?")[0]
        page, _ = paint(
            browser, address, f"{root}/network/deep@1", '[data-layer="part249.add"] rect'
        )
    return {
        "layout of 1,000 layers [ms]": statistics.median(times),
        "report of 1,000 layers [s]": shown,
        "network page of 1,000 layers [s]": page,
    }


def reports(browser: Browser, base: Path, _: argparse.Namespace) -> dict[str, Any]:
    folder = base / "curves"
    if not folder.exists():
        rng = np.random.default_rng(0)
        with dlv.open(folder, create=True) as repo:
            for _ in range(100):
                values = np.cumsum(rng.standard_normal(10_000)).tolist()
                repo.commit(
                    "", name="run", metrics={"loss": list(enumerate(values))}, allow_empty=True
                )
    report = folder / "curves.html"
    labels = [f"run@{number + 1}" for number in range(100)]
    command = [*DLV, "plots", *labels, "-o", str(report)]
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    made = time.perf_counter() - began
    shown, _ = paint(browser, None, report.as_uri(), "svg.curves")
    empty = folder / "empty.html"
    subprocess.run([*DLV, "stats", "-o", str(empty)], cwd=folder, check=True, capture_output=True)
    return {
        "report of 100 runs x 10,000 points [s]": shown,
        "the same, made in [s]": made,
        "the same, size [kB]": report.stat().st_size / 1000,
        "report without data [kB]": empty.stat().st_size / 1000,
    }


def live(browser: Browser, base: Path, _: argparse.Namespace) -> dict[str, Any]:
    from tensorboardX import SummaryWriter

    folder = base / "live"
    shutil.rmtree(folder, ignore_errors=True)
    with dlv.open(folder, create=True):
        pass
    writer = SummaryWriter(str(folder / "runs" / "one"), flush_secs=1)
    writer.add_scalar("loss", 1.0, 0)
    writer.flush()
    delays = []
    with dlv_served(folder) as (address, pid):
        page = Wire(browser).page
        page.goto(address)
        page.locator("nav").first.wait_for()
        page.goto(address.split("/?")[0] + "/live")
        status = page.locator("[data-status]")
        status.filter(has_text="1 points").wait_for(timeout=30_000)
        for step in range(1, 11):
            time.sleep(random.Random(step).random())
            writer.add_scalar("loss", 1 / step, step)
            writer.flush()
            began = time.perf_counter()
            status.filter(has_text=f"{step + 1} points").wait_for(timeout=30_000)
            delays.append(time.perf_counter() - began)
        process = psutil.Process(pid)
        watched = _busy(process)
        page.close()
        time.sleep(2)
        idle = _busy(process)
    writer.close()
    return {
        "live curve after a write [s]": max(delays),
        "live curve, median [s]": statistics.median(delays),
        "watched while nothing comes, of a core [%]": watched,
        "idle, of a core [%]": idle,
    }


def _busy(process: psutil.Process, seconds: float = 30) -> float:
    """The share of a core that a process takes, in percent."""
    before = process.cpu_times()
    time.sleep(seconds)
    after = process.cpu_times()
    return 100 * (after.user + after.system - before.user - before.system) / seconds


PARTS: dict[str, Callable[[Browser, Path, argparse.Namespace], dict[str, Any]]] = {
    "models": models,
    "heat map": heat_map,
    "network": network,
    "reports": reports,
    "live": live,
}


def chromium() -> str:
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit("no Chromium found: apt-get install chromium, or set CHROMIUM")
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--versions", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=960, help="MB of each version of the heat map")
    parser.add_argument("--mlflow", help="a Python with MLflow")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", choices=PARTS)
    told = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        base = told.keep or Path(place)
        base.mkdir(parents=True, exist_ok=True)
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for name, part in PARTS.items():
            if told.only in (None, name):
                found |= part(browser, base, told)
        browser.close()
    for name, value in found.items():
        goal = GOALS.get(name)
        verdict = "" if goal is None else f"goal {goal:.3g}: {'met' if value <= goal else 'MISSED'}"
        print(f"{name:42}{value:14.4g}   {verdict}")
    print(json.dumps({"benchmark": "pages", **found}))


if __name__ == "__main__":
    main()
