"""What was aimed at, and whether a run reached it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.dql.queries import QUERY1, TIMED, UNFILTERED

FIRST_ROW = 0.35  # seconds
PARSE = 2.0  # ms
ONE_HOP = 500.0  # ms, at 100k
WORST_PLAN = 3.0  # times the best of the four


@dataclass(frozen=True)
class Verdict:
    goal: str
    found: str
    met: bool

    def as_json(self) -> dict[str, Any]:
        return vars(self)


def at_most(goal: str, found: float, limit: float, unit: str = "") -> Verdict:
    return Verdict(f"{goal} <= {limit:g}{unit}", f"{found:.3g}{unit}", found <= limit)


def at_least(goal: str, found: float, limit: float) -> Verdict:
    return Verdict(f"{goal} >= {limit:g}x", f"{found:.3g}x", found >= limit)


def verdicts(document: dict[str, Any]) -> list[Verdict]:
    found = [at_most("dlv query, first row", document["start"]["first row"], FIRST_ROW, " s")]
    for name, catalogue in document["catalogues"].items():
        rows = catalogue["queries"]
        large = catalogue["held"]["versions"] >= 100_000
        query1 = rows[QUERY1]
        found.append(at_most(f"{name}: parse of Query 1", query1["parse"], PARSE, " ms"))
        warm = 250.0 if large else 25.0
        found.append(at_most(f"{name}: Query 1, warm", query1["warm"], warm, " ms"))
        if large:
            found.append(at_most(f"{name}: Query 1, first", query1["first"], 1500.0, " ms"))
            worst = max(rows[each.title]["warm"] for each in TIMED if each.hop)
            found.append(at_most(f"{name}: slowest pattern of one hop", worst, ONE_HOP, " ms"))
        for title, least in ((QUERY1, 3.0), (UNFILTERED, 10.0)):
            if "paper" in rows[title]:
                ratio = rows[title]["paper"] / rows[title]["warm"]
                found.append(at_least(f"{name}: {title}, against plain tables", ratio, least))
        if "networkx" in query1:
            ratio = query1["networkx"] / query1["warm"]
            found.append(at_least(f"{name}: Query 1, against networkx", ratio, 100.0))
        ratios = [row["plans"]["ratio"] for row in rows.values() if row.get("plans")]
        if ratios:
            found.append(at_most(f"{name}: chosen plan / best", max(ratios), WORST_PLAN))
        size, limit = catalogue["held"]["bytes per version"], 2.0 if "%" in name else 15.0
        found.append(at_most(f"{name}: index per version", size / 1000, limit, " kB"))
    return found
