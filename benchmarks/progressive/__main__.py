"""Progressive evaluation: what is told from how much of the weights, and that it is right.

Six networks, and encoders by six recipes that nothing was tuned on, are trained (once per seed,
kept in a cache folder), committed with bounds into repositories of their own, and evaluated on
rows that were used for nothing else: by `dlv eval --progressive`, by the paper's own intervals, and
from all of the weights. Labels are held against torch's. Prints what each level read and told,
times beside loading everything, trials with other completions of the unread bits, each goal with
whether it was met, and, as its last line, a JSON document.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.progressive import goals, measure, nets, one_net, trials
from benchmarks.progressive.goals import Verdict
from benchmarks.storage.corpora import Corpus, default_cache


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    given = parse()
    torch.set_num_threads(1)
    corpus = Corpus(f"digits{nets.VERSION}", given.seed, nets.lines, given.cache, say)
    document: dict[str, Any] = {"benchmark": "progressive", "seed": given.seed, "nets": {}}
    verdicts: list[Verdict] = []
    tried, wrong = trials.Tried(), 0
    with tempfile.TemporaryDirectory() as folder:
        for name in given.net or nets.ALL:
            net = nets.ALL[name]
            model = corpus.end(name)
            say(f"committing {net.title}")
            committed = measure.commit(net, model, given.seed, Path(folder, name))
            say(f"evaluating {net.title}")
            found = one_net.measured(committed, verdicts, timed=not given.no_times)
            wrong += found["wrong"]
            if given.completions:
                say(f"trying completions of {net.title}")
                each = trials.tried(committed, given.completions, given.seed)
                found["trials"] = vars(each)
                tried.add(each)
            document["nets"][name] = found
    verdicts.append(Verdict("all", "wrong labels = 0", str(wrong), wrong == 0))
    if given.completions:
        print(f"\n{tried.text}")
        verdicts.append(Verdict("all", "wrong in trials = 0", str(tried.wrong), tried.wrong == 0))
        verdicts.append(goals.least("all", "trials", tried.trials, goals.TRIALS))
    print("\ngoals")
    for verdict in verdicts:
        line = f"  {verdict.net:<12}{verdict.goal:<58}{verdict.found:>10}"
        print(f"{line}  {'met' if verdict.met else 'MISSED'}")
    document |= {"goals": [verdict.as_json() for verdict in verdicts]}
    text = json.dumps(document)
    if given.json is not None:
        given.json.write_text(text + "\n")
    print(text)


def parse() -> Any:
    parser = argparse.ArgumentParser(prog="benchmarks.progressive", description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--net", action="append", choices=list(nets.ALL), help="only this one")
    parser.add_argument("--completions", type=int, default=4, help="of each level, in trials")
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--json", type=Path, help="write the document here, too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
