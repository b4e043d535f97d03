"""16 writers publish 100 versions each through two servers: nothing is lost, nothing is forked."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.hub.processes import BUCKET, Places, Process, watched
from dlv.hub.server.hub import Hub
from dlv.hub.server.settings import Settings
from dlv.hub.server.upkeep.checking import check

PROCESSES = 4  # of writers
MODELS = 4  # that all write to


def publish(
    servers: list[Process],
    repository: str,
    tokens: list[str],
    *,
    writers: int,
    pushes: int,
    pack: int,
) -> tuple[list[dict[str, Any]], float]:
    """Run the writers; return what was acknowledged, and the seconds that it took."""
    processes = []
    begun = time.monotonic()
    for number in range(PROCESSES):
        share = writers // PROCESSES
        job = {
            "urls": [f"{server.address}/{repository}" for server in servers],
            "first": number * share,
            "writers": share,
            "pushes": pushes,
            "models": MODELS,
            "tokens": tokens,
            "pack": pack,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.hub.writers"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(json.dumps(job))
        process.stdin.close()
        processes.append(process)
    acknowledged = []
    for process in processes:
        assert process.stdout is not None
        acknowledged += [json.loads(line) for line in process.stdout]
        if process.wait():
            raise SystemExit("a writer failed")
    return acknowledged, time.monotonic() - begun


def verify(where: Places, acknowledged: list[dict[str, Any]], folder: Path) -> dict[str, int]:
    """Return how many versions were lost, how many refs have two successors, and other faults."""
    settings = Settings(
        database=where.database, store=f"s3://{BUCKET}", data=folder, url="http://localhost"
    )
    hub = Hub(settings, where.environ)
    try:
        report = check(hub, full=True)
        import sqlalchemy as sa

        from dlv.hub.server import tables

        with hub.database.reading() as connection:
            rows = connection.execute(sa.select(tables.ref)).mappings().all()
    finally:
        hub.close()
    known = {(row["name"], row["seq"], row["hash"]) for row in rows}
    lost = [a for a in acknowledged if (a["model"], a["seq"], a["hash"]) not in known]
    prevs = Counter(
        (row["name"], json.loads(bytes(row["record"]))["prev"], row["repository_id"])
        for row in rows
    )
    return {
        "versions": len(known),
        "lost": len(lost),
        "forked": sum(count > 1 for count in prevs.values()),
        "faults": len(report.faults),
    }


def measure(
    where: Places,
    servers: list[Process],
    repository: str,
    tokens: list[str],
    folder: Path,
    *,
    writers: int,
    pushes: int,
    pack: int,
) -> dict[str, Any]:
    """Publish once to warm up, then measure."""
    publish(servers, repository, tokens, writers=writers, pushes=max(1, pushes // 10), pack=pack)
    with watched(servers):
        acknowledged, seconds = publish(
            servers, repository, tokens, writers=writers, pushes=pushes, pack=pack
        )
    memory = []
    for server in servers:
        third = max(1, len(server.memory) // 3)
        first = statistics.median(server.memory[:third])
        last = statistics.median(server.memory[-third:])
        memory.append({"first_MB": first / 1024, "last_MB": last / 1024, "growth": last / first})
    times = sorted(each["seconds"] for each in acknowledged)
    return {
        "writers": writers,
        "pushes": pushes,
        "acknowledged": len(acknowledged),
        "seconds": seconds,
        "per_second": len(acknowledged) / seconds,
        "p50_ms": 1000 * times[len(times) // 2],
        "p99_ms": 1000 * times[int(len(times) * 0.99)],
        "memory": memory,
        **verify(where, acknowledged, folder),
    }
