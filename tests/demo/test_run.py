"""What `dlv demo` makes, and that its parts are what they seem."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import dlv.api as api
import dlv.demo.run as demos
import dlv.demo.training as demo_training
from dlv.demo.run import Demo
from dlv.errors import Conflict
from dlv.network.verify import verify


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return demos.demo(tmp_path_factory.mktemp("demo"), "Ada <ada@example.org>")


def test_versions_and_lineage(made: Demo) -> None:
    found = {version.label: version for version in made.versions}
    assert list(found) == ["lenet@1", "lenet-wide@1", "lenet@2", "lenet@3"]
    parents = {label: version.parents for label, version in found.items()}
    assert parents["lenet@1"] == ()
    assert parents["lenet-wide@1"] == ((found["lenet@1"].id, "copy"),)
    assert parents["lenet@2"] == ((found["lenet@1"].id, "commit"),)
    assert parents["lenet@3"] == ((found["lenet@2"].id, "commit"),)
    assert found["lenet@3"].tags == (demos.TAG,)
    assert all(version.author == "Ada <ada@example.org>" for version in made.versions)


def test_content(made: Demo) -> None:
    with api.open(made.path) as repo:
        assert repo.head is not None
        assert repo.head.id == made.versions[-1].id
        assert repo["lenet@1"].steps == [100, 200, 300]
        assert repo["lenet@2"].steps == [400, 500]
        for version in repo:
            network = version.network
            assert network is not None
            assert verify(network, version.tensors) == []
            assert version.hyperparameters["optimizer.name"] == "sgd"
            assert version.files == ["config.json", "log.csv", "network.json", "train.py"]
            accuracy = version.metrics["accuracy"].last
            assert accuracy is not None
            assert accuracy > 0.8
        before, after = repo["lenet@2"].manifest, repo["lenet@3"].manifest
        held = dict(zip([t.name for t in before.tensors], before.snapshots[-1].hashes, strict=True))
        changed = {
            tensor.name
            for tensor, digest in zip(after.tensors, after.snapshots[0].hashes, strict=True)
            if held[tensor.name] != digest
        }
        assert changed == {"fc2.weight", "fc2.bias"}


def test_the_last_checkpoint_waits_for_add(made: Demo) -> None:
    waiting = load_file(made.path / made.waiting)
    with api.open(made.path) as repo:
        stored = repo["lenet@3"].state_dict()
    assert waiting.keys() == stored.keys()
    assert not np.array_equal(waiting["fc2.weight"], stored["fc2.weight"])


def test_the_script_trains_what_was_committed(made: Demo, tmp_path: Path) -> None:
    """train.py alone, outside of dlv, makes the first version's weights again."""
    with api.open(made.path) as repo:
        first = repo["lenet@1"]
        for name in ("train.py", "config.json"):
            (tmp_path / name).write_bytes(first.file(name))
        subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, timeout=120)
        for step in first.steps:
            again = load_file(tmp_path / f"step-{step}.safetensors")
            assert step is not None
            stored = first.at(step).state_dict()
            assert all(np.array_equal(again[name], stored[name]) for name in stored)
        assert (tmp_path / "log.csv").read_bytes() == first.file("log.csv")


def test_only_into_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(Conflict, match="not empty"):
        demos.demo(tmp_path, "Ada")
    with pytest.raises(Conflict, match="is a file"):
        demos.demo(tmp_path / "mine", "Ada")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_gradients_are_those_of_the_loss() -> None:
    """Against finite differences, in float64."""
    rng = np.random.default_rng(5)
    weights = {
        name: array.astype(np.float64)
        for name, array in demo_training.new_weights(rng, 3, 5).items()
    }
    x, y = demo_training.images(rng, 6)
    x = x.astype(np.float64)
    _, slopes = demo_training.gradients(weights, x, y)
    for name, array in weights.items():
        for place in [(0,) * array.ndim, tuple(n - 1 for n in array.shape)]:
            ends = []
            for change in (1e-6, -1e-6):
                moved = array.copy()
                moved[place] += change
                ends.append(demo_training.gradients({**weights, name: moved}, x, y)[0])
            assert slopes[name][place] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-7)


def test_images_hold_one_bar_each() -> None:
    x, y = demo_training.images(np.random.default_rng(1), 2000)
    assert set(y.tolist()) == {0, 1, 2, 3}
    # The noise has mean 0: what is left of the sum are the eight pixels of the bar.
    assert x.sum((1, 2, 3)).mean() == pytest.approx(8, abs=0.5)
    flat = x[y == 0].mean(3)  # rows of the images with a flat bar
    assert flat.max(2).mean() > 0.8


def test_network_is_json() -> None:
    assert json.loads(json.dumps(demo_training.network(4, 8)))["outputs"] == ["fc2"]
