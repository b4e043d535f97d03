"""What the rules of `keep` save: parts of the grid's epochs, and what becomes of its best."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.dql.goals import Verdict, at_most
from benchmarks.trials.digits import EPOCHS, GRID, Curve, grid
from dlv.metadata.trials import Trials
from dlv.training.ledger.ledger import OVER, Budget, Claim, Ledger, NewTrial, Owner, Rule

LOSS: Rule = {"metric": "loss", "direction": "min"}
HALVING: Rule = {**LOSS, "rule": "asha", "eta": 3, "first": 3}
RULES: Mapping[str, Sequence[Rule]] = {
    "asha, sync": [{**HALVING, "sync": True}],
    "asha": [HALVING],
    "asha, first 1": [{**HALVING, "first": 1, "sync": True}],
    "top 5 at 3": [{**LOSS, "rule": "top", "k": 5, "step": 3}],
    "top 5 at 9": [{**LOSS, "rule": "top", "k": 5, "step": 9}],
    "median": [{**LOSS, "rule": "median", "warmup": 2}],
    "patience 3": [{**LOSS, "rule": "patience", "n": 3, "min_delta": 0.0}],
}
WORKERS = 4


def search(curves: Sequence[Curve], rules: Sequence[Rule]) -> tuple[int, list[int]]:
    """(epochs trained, trials as they are ranked), by workers that take turns at an epoch each."""
    config = json.dumps({"steps": EPOCHS, "log_every": 1, "trainer": "torch"})
    trials = [NewTrial(str(n), n, "mlp", config, 0, "", {}) for n in range(len(curves))]
    trained = 0
    with Trials(Path(":memory:")) as store:
        ledger = Ledger(store)
        ledger.open_run("run", "", {}, rules, Budget(), trials, steps=EPOCHS)
        at: list[tuple[Claim, int] | None] = [None] * WORKERS
        while True:
            for place in range(WORKERS):
                held = at[place]
                if held is None:
                    claim = ledger.claim(Owner(place, 0.0, "turns", str(place)))
                    if isinstance(claim, Claim):
                        at[place] = claim, claim.step
                    elif claim is OVER and not any(at):
                        return trained, [int(r.trial) for r in ledger.result("run")]
                    continue
                claim, step = held[0], held[1] + 1
                trained += 1
                loss = curves[int(claim.trial)].losses[step - 1]
                if ledger.log(claim, step, {"loss": loss}, 0.0):
                    ledger.finish(claim, "ready")
                    at[place] = None
                else:
                    at[place] = claim, step


def measure(seeds: int) -> dict[str, Any]:
    found: dict[str, Any] = {name: [] for name in RULES}
    for seed in range(seeds):
        curves = grid(seed)
        by_end = sorted(range(len(curves)), key=lambda n: curves[n].losses[-1])
        for name, rules in RULES.items():
            trained, ranked = search(curves, rules)
            found[name].append(
                {
                    "share": trained / (EPOCHS * len(GRID)),
                    "place of the grid's best": ranked.index(by_end[0]) + 1,
                    "place in the grid of what was found": by_end.index(ranked[0]) + 1,
                    "regret": curves[ranked[0]].losses[-1] / curves[by_end[0]].losses[-1] - 1,
                }
            )
    return found


def show(found: Mapping[str, Any]) -> None:
    print(f"{len(GRID)} trials of {EPOCHS} epochs; over the seeds: median, worst")
    for name, rows in found.items():
        share = [row["share"] for row in rows]
        place = [row["place of the grid's best"] for row in rows]
        regret = [row["regret"] for row in rows]
        print(
            f"  {name:14} epochs {statistics.median(share):.0%} {max(share):.0%},"
            f" the grid's best is ranked {statistics.median(place):g} {max(place)},"
            f" loss above the grid's {statistics.median(regret):.1%} {max(regret):.1%}"
        )


def verdicts(found: Mapping[str, Any]) -> list[Verdict]:
    made = []
    for name in ("asha, sync", "asha"):
        rows = found[name]
        made.append(at_most(f"{name}: part of the epochs", max(r["share"] for r in rows), 0.35))
        worst = max(row["place of the grid's best"] for row in rows)
        made.append(at_most(f"{name}: place of the grid's best", worst, 5))
    return made
