"""Figures 6(a) to 6(d) of the ModelHub paper, from models trained here: data and plots.

6(a): compression of lossy schemes against what they cost in accuracy. 6(b): whether a delta pays,
for retrained and fine-tuned models and for neighbouring checkpoints. 6(c): storage against
recreation, a point per algorithm and limit, on the graph that `dlv archive` exports for a real
repository of these models. 6(d): which part of the weights must be read until labels are certain,
by the paper's intervals and by dlv.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.paper import deltas, plans, plots, progressive, schemes
from benchmarks.storage import lenet
from benchmarks.storage.corpora import Corpus, default_cache
from dlv.pas.storage_graph import read_problem

FIGURES = ("6a", "6b", "6c", "6d")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.paper", description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--out", type=Path, default=Path("paper"))
    parser.add_argument("--figure", action="append", choices=FIGURES, help="only this one")
    parser.add_argument("--graph", type=Path, help="a graph of another repository for 6(c)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    corpus = Corpus("lenet", given.seed, lenet.lines, given.cache, say)
    digits = progressive.corpus_of(given.seed, given.cache, say)

    def graph() -> Any:
        if given.graph is not None:
            return read_problem(given.graph).graph
        return plans.exported(corpus, given.out / "figure-6c-graph.json")

    makers: dict[str, tuple[Callable[[], Any], Callable[[Any, Path], None]]] = {
        "6a": (lambda: schemes.measure(corpus), plots.schemes),
        "6b": (lambda: deltas.measure(corpus), plots.deltas),
        "6c": (lambda: plans.measure(graph()), plots.plans),
        "6d": (lambda: progressive.measured(digits), plots.progressive),
    }
    for name in given.figure or FIGURES:
        begun = time.perf_counter()
        measure, plot = makers[name]
        data = measure() | {"seed": given.seed}
        stem = given.out / f"figure-{name}"
        stem.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
        plot(data, stem)
        say(f"{stem}.json .svg .png ({time.perf_counter() - begun:.0f} s)")


if __name__ == "__main__":
    main()
