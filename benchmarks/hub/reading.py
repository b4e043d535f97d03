"""500 readers of refs and cards, beside a bare route that reads the same rows in the same run."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.hub.processes import Process

ROUNDS = 3


def read(
    servers: list[Process], paths: list[str], tokens: list[str], *, clients: int, seconds: float
) -> dict[str, Any]:
    job = {
        "addresses": [server.address for server in servers],
        "paths": paths,
        "tokens": tokens,
        "clients": clients,
        "seconds": seconds,
    }
    words = [sys.executable, "-m", "benchmarks.hub.readers"]
    done = subprocess.run(
        words, input=json.dumps(job), stdout=subprocess.PIPE, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure(
    hub: list[Process],
    bare: list[Process],
    paths: dict[str, tuple[list[str], list[str]]],
    tokens: list[str],
    *,
    clients: int,
    seconds: float,
) -> dict[str, Any]:
    """Measure both in turns, and take the round with the median of the ratios.

    `paths`: what is read, and where at the hub and at the bare route.
    """
    result: dict[str, Any] = {}
    for name, (ours, theirs) in paths.items():
        read(hub, ours, tokens, clients=clients, seconds=1)  # connections and caches are warm
        read(bare, theirs, [], clients=clients, seconds=1)
        rounds = []
        for _ in range(ROUNDS):
            one = read(bare, theirs, [], clients=clients, seconds=seconds)
            two = read(hub, ours, tokens, clients=clients, seconds=seconds)
            ratios = {f"{key}_ratio": two[f"{key}_ms"] / one[f"{key}_ms"] for key in ("p50", "p99")}
            rounds.append({"bare": one, "hub": two, **ratios})
        rounds.sort(key=lambda each: each["p99_ratio"])
        result[name] = rounds[len(rounds) // 2]
        result[name]["errors"] = sum(each["hub"]["errors"] for each in rounds)
    return result
