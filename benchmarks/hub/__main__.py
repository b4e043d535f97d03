"""A hub of two processes on PostgreSQL and S3: writers who race, many readers, search.

16 writers publish 100 versions each to four models: no version may be lost, no history may fork,
and the memory of the servers must stay flat. 500 clients read refs and cards, beside a bare
Starlette route that reads the same rows from the same database in the same run; both are asked in
turns. The object store is Ceph's gateway, or moto where Ceph is not installed. Search over many
cards is measured by benchmarks.hub.search. Prints a table and, as the last line, JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

import dlv.hub.server.accounts as accounts
import dlv.hub.server.repositories as repositories
import dlv.hub.server.tokens as tokens
from benchmarks.hub import publishing, reading
from benchmarks.hub.processes import BUCKET, Places, bare_servers, hub_servers, places
from dlv.hub.server import tables
from dlv.hub.server.access import Caller
from dlv.hub.server.hub import Hub
from dlv.hub.server.settings import Settings

MOST_GROWTH = 1.1  # of memory, from the first third of the run to the last
MOST_RATIO = 3.0  # of the 99th percentile, to that of the bare route
READ = 50  # rows that are read in turns


def set_up(where: Places, folder: Path, count: int) -> tuple[list[str], int]:
    """Make a user, tokens and a repository; return the tokens, and the key of the repository."""
    hub = _open(where, folder)
    try:
        with hub.database.writing() as connection:
            user = accounts.add_user(connection, Caller(), "ada")
            made = [
                tokens.create_token(connection, Caller(), user, name=f"client {i}", days=1)[1]
                for i in range(count)
            ]
        caller = Caller(user_id=user, name="ada")
        repositories.create(hub, caller, user, "ada/models", "private", "")
        with hub.database.reading() as connection:
            return made, connection.execute(sa.select(tables.repository.c.id)).scalar_one()
    finally:
        hub.close()


def _open(where: Places, folder: Path) -> Hub:
    settings = Settings(
        database=where.database, store=f"s3://{BUCKET}", data=folder, url="http://localhost"
    )
    return Hub(settings, where.environ)


def wait_for_cards(where: Places, folder: Path) -> None:
    """Return when the servers have made a card of each version."""
    hub = _open(where, folder)
    end = time.monotonic() + 600
    try:
        while time.monotonic() < end:
            with hub.database.reading() as connection:
                count = [
                    connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
                    for table in (tables.ref, tables.card)
                ]
            if count[0] == count[1]:
                return
            time.sleep(0.2)
        raise SystemExit(f"{count[0]} versions have {count[1]} cards")
    finally:
        hub.close()


def measure(given: argparse.Namespace) -> dict[str, Any]:
    document: dict[str, Any] = {"benchmark": "hub"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with places(folder) as where, hub_servers(where, folder) as servers:
            document["store"] = where.store
            secrets, number = set_up(where, folder, given.readers)
            document["publishing"] = publishing.measure(
                where, servers, "ada/models", secrets, folder,
                writers=given.writers, pushes=given.pushes, pack=given.pack << 10,
            )  # fmt: skip
            wait_for_cards(where, folder)
            rows = range(1, min(READ, given.writers * given.pushes // publishing.MODELS) + 1)
            paths = {
                "refs": (
                    [f"/v1/ada/models/refs/net0/{i}" for i in rows],
                    [f"/refs/{number}/net0/{i}" for i in rows],
                ),
                "cards": (
                    [f"/v1/ada/models/cards?model=net0&number={i}" for i in rows],
                    [f"/cards/{number}/net0/{i}" for i in rows],
                ),
            }
            with bare_servers(where.database, folder) as bare:
                document["reading"] = reading.measure(
                    servers, bare, paths, secrets, clients=given.readers, seconds=given.seconds
                )
    return document


def goals(document: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Return each goal, what was measured, and whether it was met."""
    wrote = document["publishing"]
    growth = max(server["growth"] for server in wrote["memory"])
    result = [
        ("versions lost", str(wrote["lost"]), wrote["lost"] == 0),
        ("histories forked", str(wrote["forked"]), wrote["forked"] == 0),
        ("faults in a full check", str(wrote["faults"]), wrote["faults"] == 0),
        (f"memory, last third / first <= {MOST_GROWTH}", f"{growth:.2f}", growth <= MOST_GROWTH),
    ]
    for name, row in document["reading"].items():
        result.append((f"errors of readers of {name}", str(row["errors"]), row["errors"] == 0))
        ratio = row["p99_ratio"]
        words = f"p99 of {name} / bare route <= {MOST_RATIO:g}"
        result.append((words, f"{ratio:.2f}", ratio <= MOST_RATIO))
    return result


def show(document: dict[str, Any]) -> None:
    wrote = document["publishing"]
    print(
        f"{wrote['writers']} writers x {wrote['pushes']} versions, 2 processes, PostgreSQL and"
        f" {document['store']}"
    )
    print(
        f"  {wrote['per_second']:.1f} versions/s   p50 {wrote['p50_ms']:.0f} ms"
        f"   p99 {wrote['p99_ms']:.0f} ms"
    )
    for server in wrote["memory"]:
        print(f"  memory of a server {server['first_MB']:.0f} -> {server['last_MB']:.0f} MB")
    for name, row in document["reading"].items():
        print(f"{row['hub']['clients']} readers of {name}")
        for label in ("bare", "hub"):
            one = row[label]
            print(
                f"  {label:<6}{one['per_second']:8.0f}/s   p50 {one['p50_ms']:7.1f} ms"
                f"   p99 {one['p99_ms']:7.1f} ms   errors {one['errors']}"
            )
    print("goals")
    for words, value, met in goals(document):
        print(f"  {words:<40}{value:>10}   {'met' if met else 'MISSED'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--pushes", type=int, default=100)
    parser.add_argument("--pack", type=int, default=64, metavar="KIB", help="of each version")
    parser.add_argument("--readers", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=10, help="of each round of readers")
    parser.add_argument("--no-search", action="store_true")
    given = parser.parse_args()
    document = measure(given)
    show(document)
    if not given.no_search:
        words = [sys.executable, "-m", "benchmarks.hub.search"]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        print("search")
        *table, last = done.stdout.strip().splitlines()
        print("\n".join(f"  {line}" for line in table))
        document["search"] = json.loads(last)
    print(json.dumps(document))


if __name__ == "__main__":
    main()
