"""`python -m dlv.pas.solve GRAPH.json --out PLAN.json`: a plan for a storage graph in a file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlv.canonical import dumps
from dlv.errors import DlvError, StorageError
from dlv.pas.plan import SOLVERS, Planned, make_plan
from dlv.pas.storage_graph import Problem, read_problem


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m dlv.pas.solve", description="Plan how a storage graph is stored."
    )
    parser.add_argument("graph", metavar="GRAPH.json", type=Path)
    parser.add_argument("--algorithm", default="best", choices=list(SOLVERS))
    parser.add_argument("--clamp", action="store_true", help="raise budgets that cannot be met")
    parser.add_argument("--max-depth", type=int, help="the most edges from the empty tensor")
    parser.add_argument("--out", metavar="PLAN.json", type=Path, help="standard output otherwise")
    given = parser.parse_args(arguments)
    try:
        problem = read_problem(given.graph)
        planned = make_plan(
            problem.graph,
            problem.budgets,
            problem.scheme,
            given.algorithm,
            clamp=given.clamp,
            max_depth=given.max_depth,
        )
        write(given.out, dumps(planned.plan.as_json()) + b"\n")
    except DlvError as error:
        print(error_text(error), file=sys.stderr)
        return error.exit_code
    if given.out is not None:
        print(json.dumps(summary(problem, planned), sort_keys=True))
    return 0


def write(path: Path | None, data: bytes) -> None:
    if path is None:
        sys.stdout.write(data.decode())
        return
    try:
        path.write_bytes(data)
    except OSError as error:
        raise StorageError(f"cannot write {path}", why=error.strerror) from error


def summary(problem: Problem, planned: Planned) -> dict[str, Any]:
    plan, graph = planned.plan, problem.graph
    return {
        "storage": plan.storage(graph),
        "depth": int(plan.depths(graph).max()),
        "snapshots": [
            {"recreation": cost, "minimum": minimum, "budget": budget}
            for cost, minimum, budget in zip(
                plan.snapshot_costs(graph, problem.scheme),
                planned.minima,
                planned.budgets,
                strict=True,
            )
        ],
    }


def error_text(error: DlvError) -> str:
    parts = [f"error: {error.message}"]
    parts += [f"  {line}" for line in (error.why or "").splitlines()]
    if error.hint:
        parts.append(f"hint: {error.hint}")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
