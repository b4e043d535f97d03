"""How fast the ledger is with four workers, and what it takes of the time of slices of a second."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dlv.training.workers.worker as worker
from benchmarks.dql.goals import Verdict, at_most
from dlv.metadata.trials import Trials
from dlv.network import json_form
from dlv.training.config import resolve, trial_id
from dlv.training.ledger.ledger import Budget, Claim, Ledger, NewTrial, Owner
from dlv.training.trainers.interface import Readers
from dlv.training.trial_files import Held, TrialFiles

ROOT = Path(__file__).resolve().parents[2]
WORKERS, SECONDS = 4, 4.0
LOGS = 5  # of a slice
REPEATS = 3
RULES = [
    {"rule": "asha", "metric": "loss", "direction": "min", "eta": 3, "first": LOGS, "sync": False}
]
WANTED = 200.0  # claims and logs a second
NETWORK, _ = json_form.read(
    {
        "dlv_network": 1,
        "inputs": [{"name": "x", "shape": ["B", 4], "dtype": "float32"}],
        "nodes": [
            {
                "name": "fc",
                "op": "FULL",
                "attrs": {"out": 64, "bias": False},
                "inputs": ["x"],
                "params": {"weight": "w"},
            }
        ],
        "outputs": ["fc"],
    }
)
# Computes for half a second before each log, and tells how long it took. By the processor's
# clock: where others take their share of it, they take it of the trainer's part, too.
TRAINER = """
import time
def train(net, config, steps, ckpt, log):
    weights = net.weights("w")
    for step in range(ckpt.step + 1, steps + 1):
        began, computed = time.perf_counter(), time.thread_time()
        while time.thread_time() - computed < 0.5:
            pass
        with open(config["told"], "a") as file:
            file.write(f"{time.perf_counter() - began}\\n")
        if log(step, {"loss": 1 / step}, {"weight/w": weights}):
            return
"""


def ledger_of(path: Path, count: int) -> None:
    config = json.dumps({"steps": 10**6, "log_every": 1, "trainer": "torch"})
    trials = [NewTrial(f"{n:064x}", n, "net", config, 0, "", {"lr": n}) for n in range(count)]
    with Trials(path) as store:
        Ledger(store).open_run("run", "q", {}, RULES, Budget(), trials, steps=10**6)


def spin(path: Path, seconds: float) -> None:
    """Claims and logs as fast as they go; prints how many, and the time of each in ms."""
    owner, ends, times = Owner.here("w"), time.time() + seconds, {"claim": [0.0], "log": [0.0]}
    with Trials(path) as store:
        ledger = Ledger(store)
        while time.time() < ends:
            began = time.perf_counter()
            claim = ledger.claim(owner)
            times["claim"].append(time.perf_counter() - began)
            if not isinstance(claim, Claim):
                continue
            for step in range(claim.step + 1, min(claim.target, claim.step + LOGS) + 1):
                began = time.perf_counter()
                loss = (int(claim.trial, 16) * 7 % 101) + 1 / step
                stop = ledger.log(claim, step, {"loss": loss, "accuracy": 0.5}, 0.0)
                times["log"].append(time.perf_counter() - began)
                if stop:
                    break
            ledger.finish(claim, "ready")
    print(json.dumps(times))


def crowd(count: int) -> dict[str, Any]:
    """Four processes at one ledger."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trials.db"
        ledger_of(path, count)
        command = [sys.executable, "-m", "benchmarks.trials.rate", str(path), str(SECONDS)]
        started = [
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            for _ in range(WORKERS)
        ]
        times = [json.loads(each.communicate()[0]) for each in started]
    found: dict[str, Any] = {}
    for kind in ("claim", "log"):
        all_of = sorted(t for each in times for t in each[kind][1:])
        found[f"{kind}s"] = len(all_of)
        found[f"{kind}, ms"] = 1000 * statistics.median(all_of)
        found[f"{kind}, ms of the slowest hundredth"] = 1000 * all_of[int(len(all_of) * 0.99)]
    found["claims and logs a second"] = (found["claims"] + found["logs"]) / SECONDS
    return found


def overhead(slices: int = 8) -> float:
    """Part of a worker's time that is not the trainer's, with slices of a second."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "busy.py").write_text(TRAINER)
        root, told = folder / "trials", folder / "told"
        base = {"trainer": "busy:train", "steps": 10**6, "log_every": 1, "told": str(told)}
        trials = []
        for n in range(slices):
            config = resolve({**base, "seed": n}, [], NETWORK)
            trial = trial_id(NETWORK.id, "start", config, {}, "1")
            start = {"w": Held("float32", (64, 4), bytes(4 * 64 * 4))}
            TrialFiles(root / trial).create(NETWORK, config, start, {"directory": name})
            text = json.dumps(config.document())
            trials.append(NewTrial(trial, n, NETWORK.id, text, n, "", {}))
        with Trials(folder / "trials.db") as store:
            rules = [{**RULES[0], "rule": "top", "k": 1, "step": 2}]
            Ledger(store).open_run("run", "", {}, rules, Budget(), trials, steps=10**6)
            done = 0

            def stop(_: float) -> bool:
                return bool(told.exists() and len(told.read_text().split()) >= 2 * slices)

            began = time.perf_counter()
            done = worker.work(
                store,
                root,
                Readers(rows=lambda *_: None, events=None),  # type: ignore[arg-type, return-value]
                owner=Owner.here("w"),
                runs=None,
                stop=stop,
            )
            whole = time.perf_counter() - began
        assert done >= slices
        return 1 - sum(map(float, told.read_text().split())) / whole


def measure() -> dict[str, Any]:
    found: dict[str, Any] = {f"{count} trials": crowd(count) for count in (20, 100, 1000)}
    found["overhead"] = [overhead() for _ in range(REPEATS)]
    found["fsync, ms"] = fsync()
    found["load"] = os.getloadavg()[0]
    return found


def fsync() -> float:
    """What the disk takes for a small file, in milliseconds: four of these stand in a slice."""
    times = []
    with tempfile.TemporaryFile() as file:
        for _ in range(50):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times)


def show(found: Mapping[str, Any]) -> None:
    for name, row in found.items():
        if not isinstance(row, dict):
            continue
        print(
            f"  {name}: {row['claims and logs a second']:.0f} claims and logs a second;"
            f" a claim {row['claim, ms']:.1f} ms, a log {row['log, ms']:.2f} ms"
        )
    of = found["overhead"]
    print(
        f"  slices of a second: {statistics.median(of):.2%} of a worker's time is not its"
        f" trainer's ({min(of):.2%} to {max(of):.2%}); an fsync takes {found['fsync, ms']:.2f} ms,"
        f" and the load is {found['load']:.1f}"
    )


def verdicts(found: Mapping[str, Any]) -> list[Verdict]:
    made = []
    for name, row in found.items():
        if isinstance(row, dict):
            rate = row["claims and logs a second"]
            text = f"{name}: claims and logs a second >= {WANTED:g}"
            made.append(Verdict(text, f"{rate:.0f}", rate >= WANTED))
    part = statistics.median(found["overhead"])
    made.append(at_most("overhead at slices of a second", part, 0.02))
    return made


if __name__ == "__main__":
    spin(Path(sys.argv[1]), float(sys.argv[2]))
