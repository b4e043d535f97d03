"""Figure 6(d): rows that stay uncertain, against the part of the weights that was read.

The paper's intervals on whole planes, in its own layout and in fixed point, and what `dlv eval
--progressive` tells from level to level, on the same networks and rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.progressive import measure, nets, paper
from benchmarks.progressive.nets import Net
from benchmarks.storage.corpora import Corpus
from benchmarks.storage.models import Model

TOP = (1, 5)
LAYOUTS = {"paper, IEEE planes": "ieee", "paper, fixed point": "fixed"}


def corpus_of(seed: int, cache: Path, say: Callable[[str], None]) -> Corpus:
    return Corpus(f"digits{nets.VERSION}", seed, nets.lines, cache, say)


def measured(corpus: Corpus) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, net in nets.NETS.items():
        corpus.say(f"evaluating {net.title}")
        model = corpus.end(name)
        series = {} if name == "transformer" else by_paper(net, model, corpus.seed)
        with tempfile.TemporaryDirectory() as folder:
            committed = measure.commit(net, model, corpus.seed, Path(folder, "repository"))
            for k in TOP:
                test = committed.test()
                told = measure.told(
                    *(committed, test, committed.data.test_x, k), progressive="guaranteed"
                )
                if told.wrong:
                    raise SystemExit(f"{net.title}: {told.wrong} wrong labels")
                series[f"dlv, top-{k}"] = [
                    {"read": 0.0, "open": 1.0},
                    *({"read": p.share, "open": 1 - p.determined} for p in told.points),
                ]
        found[net.title] = series
    return {"figure": "6d", "rows": nets.TEST, "series": found}


def by_paper(net: Net, model: Model, seed: int) -> dict[str, list[dict[str, float]]]:
    tensors = {name: held.array() for name, held in model.items()}
    network, data = net.network(), nets.data_of(net, seed)
    found: dict[str, list[dict[str, float]]] = {}
    for way, layout in LAYOUTS.items():
        for planes in range(1, paper.PLANES + 1):
            low, high = paper.scores(network, tensors, layout, planes, data.test_x)  # type: ignore[arg-type]
            for k in TOP:
                certain = paper.determined(low, high, k).mean()
                point = {"read": planes / paper.PLANES, "open": 1 - float(certain)}
                found.setdefault(f"{way}, top-{k}", [{"read": 0.0, "open": 1.0}]).append(point)
    return found
