"""The ways to look for a pattern of nodes, each made to answer the same query."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.dql.ours import bound, fastest
from dlv.metadata.database import Database
from dlv.metadata.select import statement as select
from dlv.metadata.select.relations import Query

NAMES = ("pair seek", "scan", "probe", "net_pair")


def each(path: Path, text: str, rounds: int) -> dict[str, Any]:
    """Milliseconds by plan, which was chosen, and how many times the best one's it took."""
    db = Database(path, wal=False)
    try:
        query = bound(db, text)
        steps = [step for step in select.explain(db, query).steps if step.plan is not None]
        assert steps[0].plan is not None
        chosen, others = steps[0].plan.name, {plan.name for plan in steps[0].rejected}
        found: dict[str, float] = {}
        for name in (chosen, *(other for other in NAMES if other in others)):
            found[name] = fastest(partial(_all, db, query, name), rounds)
    finally:
        db.close()
    return {"chosen": chosen, "ms": found, "ratio": found[chosen] / min(found.values())}


def _all(db: Database, query: Query, plan: str) -> int:
    return sum(1 for _ in select.run(db, query, plan=plan)[1])


def told(plans: dict[str, Any]) -> str:
    rest = ", ".join(
        f"{name} {ms:.1f}" for name, ms in plans["ms"].items() if name != plans["chosen"]
    )
    return f"{plans['chosen']} {plans['ratio']:.2f}x   {rest}"
