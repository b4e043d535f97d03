from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlv.pas.solve import main
from dlv.pas.storage_graph import StoragePlan, problem_of
from tests.pas.test_storage_graph import GOOD


def put(folder: Path, change: dict[str, Any] | None = None) -> str:
    path = folder / "graph.json"
    path.write_text(json.dumps({**GOOD, **(change or {})}))
    return str(path)


def test_as_a_program(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    command = [sys.executable, "-m", "dlv.pas.solve", put(tmp_path), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    graph = problem_of(GOOD).graph
    plan = StoragePlan.of(graph, json.loads(out.read_text())["edges"])
    assert plan.storage(graph) == 13 == json.loads(done.stdout)["storage"]


def test_infeasible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = put(tmp_path, {"budgets": [4, 2]})
    assert main([graph, "--algorithm", "mt"]) == 9
    told = capsys.readouterr().err
    assert "checkpoint 0: 4 µs asked, 5 µs is the fastest possible" in told
    assert "checkpoint 1: 2 µs asked, 5 µs is the fastest possible" in told
    assert "all budgets times 2.500 would do" in told
    assert main([graph, "--clamp"]) == 0
    assert json.loads(capsys.readouterr().out) == {"edges": [0, 2]}


def test_chains_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([put(tmp_path), "--max-depth", "1"]) == 0
    assert json.loads(capsys.readouterr().out) == {"edges": [0, 2]}
    assert main([put(tmp_path), "--max-depth", "0"]) == 2


def test_lost_vertices_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edges = [[0, 1, "", 1, 1], [2, 2, "", 1, 1]]
    assert main([put(tmp_path, {"edges": edges})]) == 6
    assert "vertices 2" in capsys.readouterr().err
    assert main([str(tmp_path / "none")]) == 4
