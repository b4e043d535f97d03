"""Figure 6(c): storage against recreation, plan by plan, on the graph of a real repository."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.storage.corpora import Corpus
from benchmarks.storage.stores import DLV, run
from dlv.pas.plan import make_plan
from dlv.pas.storage_graph import StorageGraph, StoragePlan, read_problem

ALGORITHMS = {"LAST": "last", "PAS-MT": "mt", "PAS-PT": "pt", "best": "best"}
# Limits on every snapshot's recreation, as multiples of the fastest possible.
ALPHAS = (1.02, 1.1, 1.3, 1.5, 1.75, 2, 2.25, 2.5, 3, 3.5, 4, 5, 6, 8, 10, 13, 17, 22, 30)
# Name of the version, what its snapshots are, what it came from.
VERSIONS = (
    ("lenet-sgd", "sgd", None),
    ("lenet-adam", "adam", None),
    ("lenet-sgd-2", "retrained-sgd", "lenet-sgd@1"),
    ("lenet-adam-2", "retrained-adam", "lenet-adam@1"),
    ("lenet-labels", "labels", "lenet-sgd@1"),
    ("lenet-parity", "parity", "lenet-sgd@1"),
    ("lenet-last", "last", "lenet-sgd@1"),
)


def build(corpus: Corpus, folder: Path) -> None:
    """A repository of models, as a modeller would leave it."""
    run(folder, *DLV, "init")
    for name, line, parent in VERSIONS:
        given = ["--orphan"] if parent is None else ["--parent", parent]
        for old in folder.glob("*.safetensors"):
            old.unlink()
        for number, file in enumerate(corpus.files(line), 1):
            shutil.copy(file, folder / f"step-{number:04}.safetensors")
        run(folder, *DLV, "add", *[path.name for path in sorted(folder.glob("*.safetensors"))])
        run(folder, *DLV, "commit", "-m", line, "--name", name, *given)


def exported(corpus: Corpus, out: Path) -> StorageGraph:
    """The graph as `dlv archive` sees it."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "repository"
        folder.mkdir()
        build(corpus, folder)
        graph = folder / "graph.json"
        run(folder, *DLV, "archive", "--dry-run", "--export-graph", str(graph))
        shutil.copy(graph, out)
    return read_problem(out).graph


def measure(graph: StorageGraph) -> dict[str, Any]:
    """A point per algorithm and limit: bytes of the plan, mean microseconds per snapshot."""

    def point(plan: StoragePlan) -> dict[str, float]:
        costs = plan.snapshot_costs(graph, "independent")
        return {"storage": plan.storage(graph), "recreation": statistics.fmean(costs)}

    free: Sequence[None] = [None] * len(graph.snapshots)
    ends = {name: point(make_plan(graph, free, algorithm=name).plan) for name in ("mst", "spt")}
    minima = make_plan(graph, free, algorithm="spt").minima
    series: dict[str, list[dict[str, float]]] = {}
    for name, algorithm in ALGORITHMS.items():
        series[name] = []
        for alpha in ALPHAS:
            budgets = [round(alpha * least) for least in minima]
            plan = make_plan(graph, budgets, algorithm=algorithm).plan
            series[name].append({"alpha": alpha, **point(plan)})
    return {
        "figure": "6c",
        "matrices": graph.vertices - 1,
        "edges": graph.edges,
        "snapshots": len(graph.snapshots),
        "mst": ends["mst"],
        "spt": ends["spt"],
        "series": series,
    }
