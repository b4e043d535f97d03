"""`dlv archive --bounds` and `dlv commit --bounds`: what they print, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.archiving.bounding.nets import MLP, digits, trained

Dlv = Callable[..., Any]


@pytest.fixture
def staged(dlv: Dlv, workspace: Path) -> Path:
    """A trained network that is staged, and rows like those that it was trained on."""
    dlv("init")
    save_file(trained("mlp")[0], workspace / "mlp.safetensors")
    image = {"name": "x", "shape": ["B", 1, 8, 8], "dtype": "float32"}
    network = {"dlv_network": 1, "inputs": [image], "nodes": MLP, "outputs": ["fc2"]}
    (workspace / "network.json").write_text(json.dumps(network))
    np.savez(workspace / "rows.npz", x=digits()[0][1200:1400])
    assert dlv("add", "mlp.safetensors", "network.json").code == 0
    return workspace


@pytest.fixture
def committed(dlv: Dlv, staged: Path) -> Path:
    assert dlv("commit", "-m", "first", "--name", "mlp").code == 0
    return staged


def test_json(dlv: Dlv, committed: Path) -> None:
    found = dlv("archive", "--bounds", "mlp", "--calibration", "rows.npz", json=True)
    assert found.code == 0
    (row,) = found.document["bounded"]
    assert (row["version"], row["made"], row["calibration"]) == ("mlp@1", True, "rows.npz")
    # The small ones lay in one chunk with the first weight.
    assert (row["changed"], row["tensors"], row["why"]) == (4, 4, None)
    assert row["helps"] == {"f64": True, "strict": True}
    shares = [level["share"] for level in row["levels"]]
    assert shares == sorted(shares)
    assert (shares[-1], row["levels"][-1]["decided"]) == (1.0, 1.0)
    assert row["levels"][-1]["planes"] == dict.fromkeys(row["levels"][0]["planes"], 4)
    assert found.document["skipped"] == []
    again = dlv("archive", "--bounds", json=True).document["bounded"]
    assert [(each["made"], each["record"]) for each in again] == [(False, row["record"])]
    assert dlv("fsck").code == 0


def test_text(dlv: Dlv, committed: Path) -> None:
    rows = dlv("archive", "--bounds", "--calibration", "rows.npz").stdout.splitlines()
    cells = rows[0].split("\t")
    assert cells[0] == "mlp@1"
    assert cells[2] == "4 of 4"
    assert "% -> " in cells[5]
    assert cells[6] == "rows.npz"
    screen = dlv("archive", "--bounds", tty=True).stdout
    assert "as before" in screen
    assert "decided" in screen
    assert len(dlv("archive", "--bounds", "-q").stdout.split()[0]) == 64


def test_versions_without_a_network(dlv: Dlv, committed: Path) -> None:
    save_file({"w": np.ones((40, 40), "f4")}, committed / "bare.safetensors")
    dlv("add", "bare.safetensors")
    assert dlv("commit", "-m", "bare", "--name", "bare", "--orphan").code == 0
    said = dlv("archive", "--bounds").stdout
    assert "bare@1: no bounds, it has no network" in said
    assert "mlp@1" in said
    refused = dlv("archive", "--bounds", "bare@1")
    assert refused.code == 2
    assert "it has no network" in refused.stderr
    assert dlv("archive", "--bounds", "nowhere@1").code == 4


@pytest.mark.parametrize(
    "others",
    [["--dry-run"], ["--budget", "mlp@1=1s"], ["--explain", "fc1.weight"], ["--algorithm", "mst"]],
)
def test_what_does_not_go_with_it(dlv: Dlv, committed: Path, others: list[str]) -> None:
    refused = dlv("archive", "--bounds", *others)
    assert refused.code == 2
    assert "cannot be combined" in refused.stderr


@pytest.mark.parametrize(
    "words", [("--calibration", "rows.npz"), ("--config", "data.toml"), ("--set", "data.rows=5")]
)
def test_settings_of_rows_alone(dlv: Dlv, committed: Path, words: tuple[str, str]) -> None:
    refused = dlv("archive", *words)
    assert refused.code == 2
    assert "require --bounds" in refused.stderr


def test_rows_are_read_as_an_evaluation_reads_them(dlv: Dlv, committed: Path) -> None:
    """Settings of a file and of the command line; a data set that the file names."""
    pixels = digits()[0][1200:1400].astype("f4") * 255
    np.savez(committed / "raw.npz", pixels=pixels, others=pixels)
    bounds = ("archive", "--bounds", "mlp@1")
    refused = dlv(*bounds, "--calibration", "raw.npz")
    assert refused.code == 2
    (committed / "data.toml").write_text(
        'input_data = "raw.npz"\n[data]\ninputs = "pixels"\nscale = 0.5\n'
    )
    said = ("--config", "data.toml", "--set", "data.scale=1/255")
    (row,) = dlv(*bounds, *said, json=True).document["bounded"]
    assert (row["made"], row["calibration"]) == (True, "raw.npz")
    (plain,) = dlv(*bounds, "--calibration", "rows.npz", json=True).document["bounded"]
    assert [level["decided"] for level in plain["levels"]] == [
        level["decided"] for level in row["levels"]
    ]
    assert [level["planes"] for level in plain["levels"]] == [
        level["planes"] for level in row["levels"]
    ]
    assert dlv(*bounds, "--config", "data.toml", "--set", "data.scale=1e300").code == 0
    assert dlv(*bounds, "--set", "data.nothing=1").code == 2


def test_at_commit(dlv: Dlv, staged: Path) -> None:
    made = dlv("commit", "-m", "first", "--name", "mlp", "--bounds", json=True).document
    assert made["bounds"] is not None
    row = dlv("archive", "--bounds", json=True).document["bounded"][0]
    assert (row["made"], row["record"]) == (False, made["bounds"])
    (staged / "note.txt").write_text("no weights are new")
    dlv("config", "commit.bounds", "true", "--repo")
    dlv("add", "note.txt")
    more = dlv("commit", "-m", "a note", json=True).document
    assert more["bounds"] == made["bounds"]  # the same network and matrices
    dlv("add", "--remove", "note.txt")
    assert dlv("commit", "-m", "none", "--no-bounds", json=True).document["bounds"] is None


def test_a_commit_stands_where_bounds_cannot_be(dlv: Dlv, workspace: Path) -> None:
    dlv("init")
    save_file({"w": np.ones((40, 40), "f4")}, workspace / "bare.safetensors")
    dlv("add", "bare.safetensors")
    made = dlv("commit", "-m", "bare", "--name", "bare", "--bounds")
    assert made.code == 0
    assert "committed, but without bounds: bare@1 has no bounds (it has no network)" in made.stderr
    assert dlv("list", json=True).document["versions"][0]["version"] == "bare@1"
    dlv("config", "commit.bounds", "true", "--repo")
    more = dlv("commit", "-m", "again", "--allow-empty")
    assert (more.code, more.stderr) == (0, "parent bare@1\n")  # a habit is no reason to complain


def test_a_lowered_norm_is_found(
    dlv: Dlv, committed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a writer with a fault would store."""
    with monkeypatch.context() as faulty:
        faulty.setattr("dlv.network.bounds.norms.RAISED", 0.999)
        faulty.setattr("dlv.archiving.bounding.make._suffix", lambda *_: (None, None))
        assert dlv("archive", "--bounds", "--calibration", "rows.npz").code == 0
    found = dlv("fsck")
    assert found.code == 6
    assert "mlp@1" in found.stdout
    assert "layer `fc1`: opn is" in found.stdout
