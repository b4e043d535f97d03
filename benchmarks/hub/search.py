"""Search over the cards of a hub: time by kind of search, and whether all databases agree.

python -m benchmarks.hub.search [--cards N] [--seeds N] [--searches N] [--oracle N]

Wall time depends on what else the machine does; time of processors (of this process, and of the
process of PostgreSQL that answers) depends on it less. Each search goes to both databases, `oracle`
of them also to a loop over all cards in Python. Then searches without a login go to `dlv hub serve`
on each database, and must find the same.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.hub.processes import ROOT, running
from benchmarks.hub.sample_cards import Sample, some_caller, some_search
from dlv.errors import NotFound
from dlv.hub.server import tables
from dlv.hub.server.access import Caller
from dlv.hub.server.database import HubDatabase, open_database
from dlv.hub.server.search import COUNTED, Wanted, parse, search
from tests.hub.real_stores import free_port
from tests.hub.server.postgres import postgres_server

GOAL = 50.0  # ms, p99


def kind_of(text: str, sort: str | None) -> str:
    """Return the kind of a search for the table."""
    figures = any(sign in text for sign in "<>=")
    fields = ":" in text
    words = any(":" not in term and not set(term) & set("<>=") for term in text.split())
    parts = [("words", words), ("fields", fields), ("figures", figures), ("sorted", sort)]
    return " + ".join(name for name, present in parts if present) or "newest"


def processor_seconds(database: HubDatabase) -> float:
    """Return how long processors have worked for this process and for its connection."""
    seconds = time.process_time()
    if database.is_postgres:
        with database.reading() as connection:
            pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        seconds += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return seconds


def timed(
    database: HubDatabase, caller: Caller, wanted: Wanted, place: int | None
) -> tuple[float, float, tuple[list[str], int]]:
    """Return (wall ms, processor ms, (ids, count))."""
    before = processor_seconds(database)
    begin = time.perf_counter()
    try:
        found = search(database, caller, wanted, repository_id=place)
        result = [hit.record["id"] for hit in found.hits], found.count
    except NotFound:  # no version that may be read has this figure
        result = [], 0
    wall = time.perf_counter() - begin
    used = processor_seconds(database) - before
    return wall * 1000, used * 1000, result


def need_cards(database: HubDatabase) -> None:
    """Note that versions need what the cards are of, or a server would delete the cards."""
    card, need = tables.card.c, tables.need
    rows = sa.select(
        card.repository_id, card.manifest, card.name, sa.literal("manifests"), card.manifest
    )
    names = ["repository_id", "manifest", "name", "kind", "hash"]
    with database.writing() as connection:
        connection.execute(sa.insert(need).from_select(names, rows))


def through_server(
    words: Sequence[str], folder: Path, searches: Sequence[tuple[str, str | None]]
) -> tuple[list[float], list[list[str]]]:
    """Send searches to a server without a login; return (wall ms, ids) of them."""
    port = free_port()
    command = [sys.executable, "-m", "dlv", "hub", "serve", *words, "--port", str(port)]
    command += ["--anonymous-requests", "1000000"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    times: list[float] = []
    results: list[list[str]] = []
    with running(command, environ, folder / "log.txt", f"http://127.0.0.1:{port}", "/v1/health"):
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        for text, sort in [("", None), *searches]:  # the first one waits for the cards
            body = json.dumps({"text": text, "sort": sort})
            begin = time.perf_counter()
            line.request("POST", "/v1/search", body, {"Content-Type": "application/json"})
            answer = json.load(line.getresponse())
            times.append((time.perf_counter() - begin) * 1000)
            results.append([each["id"] for each in answer.get("results", ())])
        line.close()
    return times[1:], results[1:]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[max(0, int(len(values) * share) - 1)]


def measure(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Fill both databases and search them."""
    times: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    differ = wrong = 0
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        postgres_server() as server,
        server.database() as url,
    ):
        databases = [open_database(f"sqlite:///{folder}/hub.db"), open_database(url)]
        sample = Sample(seed, options.cards)
        sample.fill(*databases)
        rng = random.Random(seed)
        for number in range(options.searches):
            text, sort = some_search(rng, options.cards)
            caller = some_caller(rng, sample.users)
            place = rng.choice([None, None, None, rng.choice(sample.places)["id"]])
            wanted = parse(text, sort)
            results = []
            for database in databases:
                wall, used, result = timed(database, caller, wanted, place)
                key = (database.engine.dialect.name, kind_of(text, sort))
                times[key].append((wall, used))
                results.append(result)
            differ += results[0] != results[1]
            if number < options.oracle:
                known = sample.expected(caller, wanted, place)
                ids, count = results[0]
                wrong += ids != [each.record["id"] for each in known[:20]]
                wrong += count != len(known) and not COUNTED <= count <= len(known)
        searches = [some_search(rng, options.cards) for _ in range(options.searches)]
        known_ids = [
            timed(databases[0], Caller(), parse(text, sort), None)[2][0] for text, sort in searches
        ]
        for database in databases:
            need_cards(database)
            database.close()
        for name, words in (
            ("sqlite", ["--data", folder]),
            ("postgresql", ["--database", url, "--store", f"{folder}/objects", "--data", folder]),
        ):
            walls, ids_of = through_server(words, Path(folder), searches)
            times[name, "by HTTP, without a login"] += [(wall, 0.0) for wall in walls]
            differ += sum(one != other for one, other in zip(ids_of, known_ids, strict=True))
    return {"seed": seed, "times": times, "differ": differ, "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cards", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--searches", type=int, default=300)
    parser.add_argument("--oracle", type=int, default=70)
    parser.add_argument("--folder", help="where the database of SQLite is")
    options = parser.parse_args()
    runs = [measure(seed, options) for seed in range(1, options.seeds + 1)]
    whole: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for run in runs:
        for (database, kind), values in run["times"].items():
            whole[database, kind] += values
            if "HTTP" not in kind:
                whole[database, "all"] += values
    report: list[dict[str, Any]] = []
    print(f"{'database':12}{'kind':34}{'n':>6}{'p50':>9}{'p99':>9}{'p50 cpu':>9}{'p99 cpu':>9}  ms")
    for (database, kind), values in sorted(whole.items()):
        wall, used = ([pair[i] for pair in values] for i in (0, 1))
        row = {
            "database": database,
            "kind": kind,
            "searches": len(values),
            "p50": statistics.median(wall),
            "p99": percentile(wall, 0.99),
            "p50_cpu": statistics.median(used),
            "p99_cpu": percentile(used, 0.99),
        }
        report.append(row)
        figures = "".join(f"{row[key]:9.1f}" for key in ("p50", "p99", "p50_cpu", "p99_cpu"))
        print(f"{database:12}{kind:34}{len(values):6}{figures}")
    checks = {
        "cards": options.cards,
        "seeds": options.seeds,
        "searches that the databases answer differently": sum(run["differ"] for run in runs),
        "searches compared with a loop": options.seeds * min(options.oracle, options.searches),
        "of them answered differently": sum(run["wrong"] for run in runs),
        "goal, p99 [ms]": GOAL,
    }
    for key, value in checks.items():
        print(f"{key:48}{value}")
    print(json.dumps({**checks, "rows": report}))


if __name__ == "__main__":
    main()
