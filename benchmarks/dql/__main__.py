"""How fast `dlv query` is on many versions, beside the paper's tables and networkx, in one run.

Synthetic catalogues of 10,000 and 100,000 versions are made (kept in a cache folder), one in which
nine of ten networks are shared and one in which none is. Every way to answer gets the same
queries and must give as many rows. Milliseconds are of processor time, but for the first answer.
Prints a table of latencies, what a query costs from the start of the process, the size of the
index, each goal with whether it was met, and, as its last line, a JSON document.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.dql import catalogues, ours, plans, queries, rivals
from benchmarks.dql.catalogues import Recipe
from benchmarks.dql.goals import Verdict, verdicts
from benchmarks.storage.corpora import default_cache

DESCENDANTS = 0.04  # of all versions, for the query on lineage


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    given = parse()
    document: dict[str, Any] = {"benchmark": "dql", "catalogues": {}}
    for versions in given.versions:
        for shared in {"shared": (True,), "unshared": (False,)}.get(given.only, (True, False)):
            recipe = Recipe(versions, shared, given.seed)
            say(f"making {recipe.name}")
            path = catalogues.build(recipe, given.cache)
            say(f"asking {recipe.name}")
            document["catalogues"][recipe.name] = one(recipe, path, given)
    say("starting processes")
    with tempfile.TemporaryDirectory() as folder:
        path = catalogues.build(Recipe(10_000, True, given.seed), given.cache)
        text = next(each.text for each in queries.TIMED if each.title == queries.QUERY1)
        first, click = ours.started(path, Path(folder), text, given.rounds)
    document["start"] = {"first row": first, "import click": click}
    print(
        f"\nfrom start to the first row of Query 1 at 10k: {first:.3f} s (click alone {click:.3f})"
    )
    found = verdicts(document)
    document["goals"] = [verdict.as_json() for verdict in found]
    print("\ngoals")
    show(found)
    text = json.dumps(document)
    if given.json is not None:
        given.json.write_text(text + "\n")
    print(text)


def one(recipe: Recipe, path: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Everything on one catalogue: prints its table."""
    held = catalogues.figures(path)
    with sqlite3.connect(path) as db:
        root = queries.root(db, int(recipe.versions * DESCENDANTS))
    found: dict[str, Any] = {"held": held, "queries": {}}
    beside = recipe.versions <= given.paper
    with tempfile.TemporaryDirectory(dir=given.cache) as folder:
        plain = rivals.paper(path, Path(folder, "paper.sqlite")) if beside else None
        print(f"\n{recipe.name}: " + ", ".join(f"{value} {name}" for name, value in held.items()))
        print(
            f"  {'ms':<40}{'rows':>8}{'first':>10}{'warm':>10}"
            f"{'paper':>10}{'networkx':>10}  plan: ms (best of the four)"
        )
        for timed in queries.TIMED:
            row = answered(timed, path, db, plain, root, given)
            found["queries"][timed.title] = row
            print(line(timed.title, row), flush=True)
        if plain is not None:
            plain.close()
    db.close()
    return found


def answered(
    timed: queries.Timed,
    path: Path,
    db: sqlite3.Connection,
    plain: sqlite3.Connection | None,
    root: str,
    given: argparse.Namespace,
) -> dict[str, Any]:
    text = timed.text.replace("{root}", root)
    taken = ours.timed(path, text, given.rounds)
    row: dict[str, Any] = {**vars(taken)}
    if plain is not None and timed.hop:
        row["paper"] = ours.fastest(lambda: same(rivals.ask_paper(plain, timed), taken.hits), 2)
    if timed.title in rivals.HOPS and plain is not None and taken.hits < given.most_graphs:
        row["networkx"] = ours.fastest(
            lambda: same(rivals.ask_networkx(db, timed.title), taken.hits), 1
        )
    if timed.hop:
        row["plans"] = plans.each(path, text, given.rounds)
    return row


def same(found: int, wanted: int) -> None:
    if found != wanted:
        raise SystemExit(f"{found} rows, but dlv found {wanted}")


def line(title: str, row: dict[str, Any]) -> str:
    rest = "".join(
        f"{row[key]:>10.1f}" if key in row else " " * 10 for key in ("paper", "networkx")
    )
    told = plans.told(row["plans"]) if row.get("plans") else ""
    return f"  {title:<40}{row['hits']:>8}{row['first']:>10.1f}{row['warm']:>10.1f}{rest}  {told}"


def show(found: list[Verdict]) -> None:
    for verdict in found:
        print(f"  {verdict.goal:<66}{verdict.found:>14}  {'met' if verdict.met else 'MISSED'}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.dql", description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--versions", type=int, action="append", help="10000 and 100000")
    parser.add_argument("--only", choices=("shared", "unshared"), help="one kind of catalogue")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--paper", type=int, default=10_000, help="most versions for its tables")
    parser.add_argument("--most-graphs", type=int, default=1 << 30, help="most hits for networkx")
    parser.add_argument("--json", type=Path, help="write the document here, too")
    given = parser.parse_args()
    given.versions = given.versions or [10_000, 100_000]
    return given


if __name__ == "__main__":
    main()
