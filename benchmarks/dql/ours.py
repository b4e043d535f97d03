"""Queries by dlv: from the text to the last row, and a whole `dlv query` as a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import dlv.dql.bind.queries as queries
import dlv.dql.bind.rewrite as rewriting
import dlv.dql.words.parser as parser
from dlv.dql.words import ast
from dlv.metadata.database import Database
from dlv.metadata.select import statement as select
from dlv.metadata.select.relations import Query
from dlv.metadata.usage import KnownNames
from dlv.repository.handle import Repository

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Taken:
    """Milliseconds of the first time, with nothing in SQLite's memory, and afterwards.

    Afterwards it is processor time, which what else the machine does changes little.
    """

    hits: int
    first: float
    warm: float
    parse: float


def bound(db: Database, text: str) -> Query:
    (statement,) = parser.parse(text)
    assert isinstance(statement, ast.Query)
    found, _ = rewriting.rewrite(queries.resolve(text, statement, KnownNames(db), {}))
    assert found.query is not None
    return found.query


def ask(db: Database, text: str) -> int:
    return sum(1 for _ in select.run(db, bound(db, text))[1])


def timed(path: Path, text: str, rounds: int) -> Taken:
    parser.parse("select m")  # its tables are loaded once per process
    db = Database(path, wal=False)
    try:
        begun = time.perf_counter()
        hits = ask(db, text)
        first = 1000 * (time.perf_counter() - begun)
        warm = fastest(lambda: ask(db, text), rounds)
        parse = fastest(lambda: parser.parse(text), 20)
    finally:
        db.close()
    return Taken(hits, first, warm, parse)


def fastest(action: Callable[[], object], rounds: int, enough: float = 3000.0) -> float:
    """Milliseconds of processor time; slow ones are not repeated for long."""
    taken: list[float] = []
    while len(taken) < rounds and sum(taken) < enough:
        begun = time.process_time()
        action()
        taken.append(1000 * (time.process_time() - begun))
    return min(taken)


def started(catalogue: Path, folder: Path, text: str, rounds: int) -> tuple[float, float]:
    """Seconds to the first row of `dlv query`, and of Python with click, as the fastest of each."""
    repository, _ = Repository.init(folder)
    place = repository.database_file
    repository.close()
    for leftover in place.parent.glob(f"{place.name}*"):
        leftover.unlink()
    shutil.copy(catalogue, place)
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("DLV_", "PYTHON"))}
    environ |= {"PYTHONPATH": str(ROOT), "HOME": str(folder)}
    best = [float("inf")] * 2
    programs = (["-m", "dlv", "query", "--format", "jsonl", text], ["-c", "import click; print()"])
    for turn in range(rounds + 1):
        for which, arguments in enumerate(programs):
            begun = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, *arguments], cwd=folder, env=environ, stdout=subprocess.PIPE
            )
            assert process.stdout is not None
            line = process.stdout.readline()
            taken = time.perf_counter() - begun
            process.stdout.close()
            process.wait()
            if not line:
                raise SystemExit(f"`dlv query` gave no row: {text}")
            if turn:
                best[which] = min(best[which], taken)
    return best[0], best[1]
