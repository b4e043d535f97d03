"""`desc --activations`: exact figures of nodes, and radii that hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlv.api as api
import dlv.cli as cli

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
Array = NDArray[Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last checkpoint of the digits network, with bounds."""
    folder = tmp_path_factory.mktemp("digits")
    for name in ("base/network.json", "base/step-600.safetensors", "test.npz"):
        shutil.copy(DIGITS / name, folder)
    with api.open(folder, create=True):
        pass
    for line in ("add .", "commit -q -m digits --name lenet", "archive -q --bounds"):
        assert cli.run(["-C", str(folder), *line.split()]) == 0
    return folder


def call(folder: Path, *words: str) -> int:
    nodes = ["--activations", "conv1", "--activations", "full2"]
    return cli.run(["-C", str(folder), "desc", "lenet", *nodes, *words])


def values(folder: Path, *words: str) -> dict[str, Array]:
    """What `-o` holds."""
    path = folder / "values.npz"
    path.unlink(missing_ok=True)
    assert call(folder, "-o", "values.npz", *words) == 0
    with np.load(path) as held:
        return dict(held)


def test_exact_values(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = values(made)
    assert set(held) == {"conv1", "fc2"}
    capsys.readouterr()
    assert call(made, "--json") == 0
    found = json.loads(capsys.readouterr().out)["activations"]
    for node in found["layers"]:
        array = held[node["layer"]]
        assert node["shape"] == list(array.shape[1:])
        assert node["elements"] == array.size
        assert (node["min"], node["max"]) == (array.min(), array.max())
        assert node["mean"] == pytest.approx(array.mean(), rel=1e-12)
        assert node["std"] == pytest.approx(array.std(), rel=1e-9)
        assert node["radius"] is None
    with np.load(DIGITS / "test.npz") as rows:
        labels = held["fc2"].argmax(1)
        assert (labels == rows["y"]).mean() == api.open(made)["lenet"].evaluate(save=False).accuracy


@pytest.mark.parametrize("planes", ["1", "2", "3"])
def test_radii_hold(made: Path, planes: str, capsys: pytest.CaptureFixture[str]) -> None:
    exact, near = values(made), values(made, "--planes", planes)
    for name in ("conv1", "fc2"):
        apart = (exact[name] - near[name]).reshape(360, -1)
        assert (np.linalg.norm(apart, axis=1) <= near[f"{name}.radius"]).all()
    assert near["fc2.radius"].max() < 20 / 100 ** (int(planes) - 1)
    capsys.readouterr()
    assert call(made, "--planes", planes, "--json") == 0
    found = json.loads(capsys.readouterr().out)["activations"]
    radius = {node["layer"]: node["radius"] for node in found["layers"]}["fc2"]
    assert radius["most"] == near["fc2.radius"].max()
    assert radius["mean"] == pytest.approx(near["fc2.radius"].mean())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--activations", "cnv1", "--data", "test.npz"], 4, "no layer `cnv1`"),
        (["--data", "test.npz"], 2, "require --activations"),
        (["--activations", "conv1", "--stats"], 2, "cannot be combined"),
        (["--activations", "conv1", "-o", "test.csv"], 2, "end with .npz"),
        (["--activations", "conv1", "-o", "test.npz"], 5, "already exists"),
        (["--activations", "conv1", "--set", "data.shape=64"], 2, "do not fit"),
    ],
)
def test_refused(
    made: Path, words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["-C", str(made), "desc", "lenet", *words]) == code
    assert message in capsys.readouterr().err


def test_without_bounds(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("base/network.json", "base/step-600.safetensors", "test.npz"):
        shutil.copy(DIGITS / name, tmp_path)
    with api.open(tmp_path, create=True):
        pass
    for line in ("add .", "commit -q -m digits --name lenet"):
        assert cli.run(["-C", str(tmp_path), *line.split()]) == 0
    assert call(tmp_path, "--planes", "2") == 2
    told = capsys.readouterr().err
    assert "the activations of lenet@1" in told
    assert "dlv archive --bounds lenet@1" in told


def test_a_node_that_is_folded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def node(name: str, op: str, before: str, **said: Any) -> dict[str, Any]:
        return {"name": name, "op": op, "inputs": [before], **said}

    norm = {slot: f"bn.{slot}" for slot in ("weight", "bias", "running_mean", "running_var")}
    nodes = [
        node("fc", "FULL", "x", attrs={"out": 64, "bias": False}, params={"weight": "fc.w"}),
        node("bn", "NORM", "fc", variant="BATCH", attrs={}, params=norm),
        node("last", "FULL", "bn", attrs={"out": 3, "bias": False}, params={"weight": "last.w"}),
    ]
    inputs = [{"name": "x", "shape": ["B", 64], "dtype": "float32"}]
    network = {"dlv_network": 1, "inputs": inputs, "nodes": nodes, "outputs": ["last"]}
    (tmp_path / "network.json").write_text(json.dumps(network))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 64)).astype(np.float32)
    np.savez(tmp_path / "test.npz", x=x)
    with api.open(tmp_path, create=True) as repo:
        weights = {name: rng.normal(size=64).astype(np.float32) for name in norm.values()}
        weights["bn.running_var"] = weights["bn.running_var"] ** 2 + 1
        weights["fc.w"] = rng.normal(size=(64, 64)).astype(np.float32)
        weights["last.w"] = rng.normal(size=(3, 64)).astype(np.float32)
        assert cli.run(["-C", str(tmp_path), "add", "."]) == 0
        repo.commit("normed", name="normed", weights=weights)
    assert cli.run(["-C", str(tmp_path), "archive", "-q", "--bounds"]) == 0
    words = ["-C", str(tmp_path), "desc", "normed", "--activations"]
    capsys.readouterr()
    assert cli.run([*words, "fc", "--planes", "2"]) == 2
    assert "with the following normalization, `bn`" in capsys.readouterr().err
    assert cli.run([*words, "fc"]) == 0
    assert cli.run([*words, "bn", "--planes", "2"]) == 0
