from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from dlv.errors import Damaged, DlvError, NotFound
from dlv.pas.storage_graph import StorageGraph, problem_of, read_problem
from tests.conformance.solver import graphs

GOOD: dict[str, Any] = {
    "vertices": 3,
    "snapshots": [[1, 2], [2]],
    "edges": [[0, 1, "materialise", 10, 5], [1, 2, "xor", 3, 4], [0, 2, "materialise", 9, 5]],
    "budgets": [12.7, None],
    "scheme": "parallel",
}


@settings(max_examples=50)
@given(graphs())
def test_json_round_trip(graph: StorageGraph) -> None:
    budgets = [None] * len(graph.snapshots)
    document = json.loads(json.dumps(graph.as_json(budgets, "parallel")))
    again = problem_of(document)
    assert again.scheme == "parallel"
    assert again.graph.as_json(again.budgets, again.scheme) == document


def test_a_good_file(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(GOOD))
    problem = read_problem(path)
    assert problem.budgets == [12, None]
    assert problem.graph.kinds == ["materialise", "xor", "materialise"]
    with pytest.raises(NotFound):
        read_problem(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vertices": 0}, "vertices"),
        ({"vertices": True}, "vertices"),
        ({"vertices": 10**9}, "too few edges"),
        ({"vertices": 10**30}, "vertices"),
        ({"vertices": None}, "vertices"),
        ({"edges": {}}, "not a storage graph"),
        ({"edges": [[0, 1]] * 3}, "edge 0"),
        ({"edges": [[0, 1, 7, 1, 1]] * 3}, "edge 0"),
        ({"edges": [[0, 1, "a", -1, 1]] * 3}, "negative storage"),
        ({"edges": [[0, 1, "a", 1, -1]] * 3}, "negative recreation"),
        ({"edges": [[0, 9, "a", 1, 1]] * 3}, "enters vertex 9"),
        ({"edges": [[-1, 1, "a", 1, 1]] * 3}, "leaves vertex -1"),
        ({"edges": [[0, 1, "a", 1.5, 1]] * 3}, "1.5 is not a whole number"),
        ({"edges": [[0, 1, "a", "1", 1]] * 3}, "'1' is not a whole number"),
        ({"edges": [[0, 1, "a", 2**70, 1]] * 3}, "64 bits"),
        ({"edges": [[0, 1, "a", 2**61, 1]] * 3}, "too large"),
        ({"edges": [[0, 1, "a", float("inf"), 1]] * 3}, "whole number"),
        ({"snapshots": [[1, 1], []]}, "twice"),
        ({"snapshots": [[3], []]}, "does not exist"),
        ({"snapshots": [1, 2]}, "snapshots"),
        ({"budgets": [1]}, "one budget per snapshot"),
        ({"budgets": [-1, None]}, "budget 0"),
        ({"budgets": ["1", None]}, "budget 0"),
        ({"scheme": "reusable"}, "scheme"),
        ({"extra": 1}, "unknown key 'extra'"),
    ],
)
def test_bad_graphs(change: dict[str, Any], words: str) -> None:
    with pytest.raises(Damaged) as refused:
        problem_of({**GOOD, **change})
    assert words in f"{refused.value.message} {refused.value.why}"


@pytest.mark.parametrize("text", ["", "[]", "NaN", '{"vertices": NaN}', "[" * 100_000, "\xff"])
def test_bad_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "graph.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DlvError) as refused:
        read_problem(path)
    assert refused.value.exit_code == 6
