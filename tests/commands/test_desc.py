"""`dlv desc` as it is typed and read."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.canonical as canonical
from dlv.network import json_form
from dlv.repository.handle import Repository

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


@pytest.mark.parametrize("mode", MODES)
def test_version(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    result = dlv("desc", "lenet@1", tty=mode == "tty", json=mode == "json")
    assert result.code == 0
    snapshot(result)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("option", ["--network", "--layers", "--stats"])
def test_parts(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str, option: str) -> None:
    if mode == "json" and option != "--stats":
        result = dlv("desc", "lenet", option, json=True)
        assert result.document == dlv("desc", "lenet", json=True).document
    else:
        snapshot(dlv("desc", "lenet", option, tty=mode == "tty", json=mode == "json"))


@pytest.mark.parametrize("mode", MODES)
def test_matrix(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    arguments = ("desc", "lenet@2/100", "--tensor", "fc.weight")
    snapshot(dlv(*arguments, tty=mode == "tty", json=mode == "json"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("planes", ["2", "9"])
def test_matrix_from_some_planes(
    dlv: Dlv, snapshot: Dlv, filled: Path, mode: str, planes: str
) -> None:
    arguments = ("desc", "lenet@2/100", "--tensor", "fc.weight", "--planes", planes)
    snapshot(dlv(*arguments, tty=mode == "tty", json=mode == "json"))


@pytest.mark.parametrize("mode", MODES)
def test_all_figures_from_some_planes(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    arguments = ("desc", "lenet@2/100", "--stats", "--planes", "2")
    snapshot(dlv(*arguments, tty=mode == "tty", json=mode == "json"))


def test_figures_from_some_planes_hold_the_exact_ones(dlv: Dlv, filled: Path) -> None:
    exact = dlv("desc", "lenet", "--stats", json=True).document["tensors"]
    for planes in (1, 2, 3, 4):
        rows = dlv("desc", "lenet", "--stats", "--planes", planes, json=True).document["tensors"]
        for row, known in zip(rows, exact, strict=True):
            told = row["approximation"]
            assert told["exact"] == ("statistics" in row) == (told["bounds"] is None)
            if told["exact"]:
                assert row["statistics"] == known["statistics"]
                continue
            assert planes < 4
            for name in ("min", "max", "mean", "std", "l2", "zeros"):
                low, high = told["bounds"][name]
                assert low <= known["statistics"][name] <= high


@pytest.mark.parametrize("name", ["fc.wieght", "fc", "bias", "nothing-like-it"])
def test_unknown_matrix(dlv: Dlv, snapshot: Dlv, filled: Path, name: str) -> None:
    result = dlv("desc", "lenet", "--tensor", name)
    assert result.code == 4
    snapshot(result)


def test_a_poor_terminal(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    snapshot(dlv("desc", "lenet", "--tensor", "fc.weight", tty=True, encoding="ascii"), "matrix")
    snapshot(dlv("desc", "lenet", "--network", tty=True, encoding="ascii"), "network")
    arguments = ("desc", "lenet", "--tensor", "fc.weight", "--planes", "1")
    snapshot(dlv(*arguments, tty=True, encoding="ascii"), "planes")


def test_refused(dlv: Dlv, filled: Path) -> None:
    assert dlv("desc", "lenet", "--layers", "--stats").code == 2
    assert dlv("desc", "lenet", "--planes", "2").code == 2
    assert dlv("desc", "lenet", "--stats", "--planes", "0").code == 2
    assert dlv("desc", "lenet", "--stats", "--planes", "2", "--exact").code == 2
    assert dlv("desc", "lenett").code == 4
    assert dlv("desc", "lenet/150").code == 4


def test_matrices_of_the_optimizer_are_counted_or_listed(dlv: Dlv, workspace: Path) -> None:
    source = Path(__file__).parents[1] / "fixtures" / "torch" / "checkpoint.pt"
    (workspace / "checkpoint.pt").write_bytes(source.read_bytes())
    for words in (["init"], ["add", "checkpoint.pt"], ["commit", "-m", "x", "--name", "net"]):
        assert dlv(*words).code == 0
    rows = dlv("desc", "net", json=True).document["tensors"]
    hidden = [row["name"] for row in rows if row["role"] == "optimizer"]
    short, full = dlv("desc", "net").stdout, dlv("desc", "net", "--all").stdout
    assert hidden
    assert f"and {len(hidden)} of the optimizer (--all)" in short
    assert "of the optimizer" not in full
    for name in hidden:
        assert f"\n{name}\t" in full
        assert name not in short


def test_without_a_reference_it_is_head(dlv: Dlv, filled: Path) -> None:
    assert dlv("desc").stdout == dlv("desc", "HEAD").stdout


def test_quiet_gives_the_id(dlv: Dlv, filled: Path) -> None:
    whole = dlv("desc", "lenet", json=True).document["version"]["id"]
    assert dlv("desc", "lenet", "-q").stdout == f"{whole}\n"
    assert dlv("describe", "lenet", "-q", "--tensor", "fc.bias").stdout == f"{whole}\n"


def test_the_network_is_read_back(dlv: Dlv, filled: Path) -> None:
    document = dlv("desc", "lenet", json=True).document
    network, warnings = json_form.read(document["network"])
    assert not warnings
    stored = json_form.read(json.loads((filled / "network.json").read_text()))[0]
    assert network.id == stored.id
    assert [node["alias"] for node in document["network"]["nodes"]][:2] == ["conv1", "relu1"]


def _weights() -> dict[str, Any]:
    return {
        "fc.weight": np.array([[np.nan, 0.0], [np.inf, -2.0]], np.float32),
        "steps": np.array(7, np.int64),
        "empty": np.zeros((0, 3), np.float16),
    }


@pytest.fixture
def bare(workspace: Path, commit_model: Callable[..., str]) -> Path:
    """bare@1: no network, odd matrices, a message of several lines; empty@1: files alone."""
    repository, _ = Repository.init(workspace)
    canonical.fix_clock(datetime.datetime(2026, 6, 14, 12, tzinfo=datetime.UTC))
    parameters = {"lr": 0.1, "layers": [1, 2], "note": "a\x1b[31mb", "off": None, "on": True}
    message = "Odd weights\n\nNaN among them."
    commit_model(repository, "bare", _weights(), parameters=parameters, message=message)
    commit_model(repository, "empty", {}, files={"readme.txt": "x\n"}, root=True)
    commit_model(repository, "files", {}, files={"a.txt": "x\n"}, root=True)
    repository.close()
    canonical.fix_clock(None)
    return workspace


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["bare", "files"])
def test_without_a_network(dlv: Dlv, snapshot: Dlv, bare: Path, name: str, mode: str) -> None:
    result = dlv("desc", name, tty=mode == "tty", json=mode == "json")
    assert result.code == 0
    snapshot(result)


@pytest.mark.parametrize("name", ["fc.weight", "steps", "empty"])
def test_odd_matrices(dlv: Dlv, snapshot: Dlv, bare: Path, name: str) -> None:
    dlv("desc", "bare", "--tensor", name, json=True)  # fits the schema
    snapshot(dlv("desc", "bare", "--tensor", name, tty=True))


def test_layers_without_a_network(dlv: Dlv, bare: Path) -> None:
    assert dlv("desc", "bare", "--layers").stdout == "bare@1 has no network\n"
