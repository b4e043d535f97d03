"""Trials: how fast their ledger is, and what the rules of `keep` save.

    python -m benchmarks.trials [--seeds N] [--only PART..]

`rate`: claims and logs from four processes, and the ledger's part of a worker's time. `halving`: a
search on the digits, 27 trials of 27 epochs, for several seeds. Prints the figures, each goal with
whether it was met, and, as its last line, a JSON document. Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import json

from benchmarks.dql.goals import Verdict
from benchmarks.trials import halving, rate


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trials")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=["rate", "halving"])
    given = parser.parse_args()
    parts = given.only or ["rate", "halving"]
    document = {}
    goals: list[Verdict] = []
    if "rate" in parts:
        print("== rate")
        document["rate"] = rate.measure()
        rate.show(document["rate"])
        goals += rate.verdicts(document["rate"])
    if "halving" in parts:
        print("== halving")
        document["halving"] = halving.measure(given.seeds)
        halving.show(document["halving"])
        goals += halving.verdicts(document["halving"])
    for each in goals:
        print(f"{'met   ' if each.met else 'MISSED'} {each.goal}: {each.found}")
    print(json.dumps({**document, "goals": [each.as_json() for each in goals]}))


if __name__ == "__main__":
    main()
