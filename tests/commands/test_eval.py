"""`dlv eval`: what it prints, saves and refuses."""

# ruff: noqa: ARG002 (fixtures that only prepare the working directory)

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import dlv.api as api

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


@pytest.fixture
def data(filled: Path) -> Path:
    """24 images and labels that fit the network; a few of the labels are right."""
    rng = np.random.default_rng(7)
    path = filled / "test.npz"
    x = rng.normal(size=(24, 1, 8, 8)).astype(np.float32)
    np.savez(path, x=x, y=rng.integers(0, 10, 24))
    return path


def loaded(path: Path) -> dict[str, Any]:
    with np.load(path) as held:
        return dict(held)


def scores(version: Any, x: Any) -> Any:
    """The network of the repository by hand, straight from its definition."""
    w = {name: np.asarray(version.tensor(name), np.float64) for name in version.tensors}
    windows = np.lib.stride_tricks.sliding_window_view(x[:, 0].astype(np.float64), (3, 3), (1, 2))
    maps = np.einsum("nijkl,okl->noij", windows, w["conv1.weight"][:, 0])
    hidden = np.maximum(maps + w["conv1.bias"][:, None, None], 0).reshape(len(x), -1)
    return hidden @ w["fc.weight"].T[: hidden.shape[1]] + w["fc.bias"]


# Sums may be rounded in another way elsewhere.
ROUNDED = {r"(\d\.\d{6})\d+": r"\1"}


class TestOutput:
    @pytest.mark.parametrize("mode", MODES)
    def test_one_version(self, dlv: Dlv, snapshot: Dlv, data: Path, mode: str) -> None:
        result = dlv("eval", "lenet", "test.npz", tty=mode == "tty", json=mode == "json")
        assert result.code == 0
        snapshot(result, replace=ROUNDED)

    @pytest.mark.parametrize("mode", MODES)
    def test_several(self, dlv: Dlv, snapshot: Dlv, data: Path, mode: str) -> None:
        words = ["eval", "lenet@1", "lenet@1/100", "lenet-wide", "test.npz", "--top-k", "3"]
        result = dlv(*words, tty=mode == "tty", json=mode == "json")
        assert result.code == 0
        snapshot(result, replace=ROUNDED)

    @pytest.mark.parametrize("mode", MODES)
    def test_confusion(self, dlv: Dlv, snapshot: Dlv, data: Path, mode: str) -> None:
        words = ["eval", "lenet", "test.npz", "--confusion", "--no-save"]
        result = dlv(*words, tty=mode == "tty", json=mode == "json")
        snapshot(result, replace=ROUNDED)

    def test_quiet(self, dlv: Dlv, data: Path) -> None:
        result = dlv("eval", "-q", "lenet@1", "test.npz")
        assert result.stdout.strip() == api.open(data.parent)["lenet@1"].id
        assert result.stderr == ""

    def test_a_terminal_that_is_one(self, dlv_pty: Dlv, data: Path) -> None:
        result = dlv_pty("eval", "lenet", "test.npz")
        assert result.code == 0
        assert "accuracy" in result.stdout


class TestFigures:
    def test_they_are_those_of_the_definition(self, dlv: Dlv, data: Path) -> None:
        held = loaded(data)
        result = dlv("eval", "lenet@2", "test.npz", "--top-k", "3", "--confusion", json=True)
        (found,) = result.document["results"]
        expected = scores(api.open(data.parent)["lenet@2"], held["x"])
        order = np.argsort(-expected, axis=1, kind="stable")
        assert found["accuracy"] == np.mean(order[:, 0] == held["y"])
        top = np.mean((order[:, :3] == held["y"][:, None]).any(axis=1))
        assert found["metrics"]["top3_accuracy"] == top
        log = expected - np.log(np.exp(expected).sum(axis=1, keepdims=True))
        loss = -np.mean(log[np.arange(24), held["y"]])
        assert found["metrics"]["loss"] == pytest.approx(loss, rel=1e-12)
        counts = np.zeros((10, 10), int)
        np.add.at(counts, (held["y"], order[:, 0]), 1)
        assert found["confusion"]["counts"] == counts.tolist()
        assert found["bytes_read"] == found["bytes_whole"] > 0
        assert (found["raw_read"], found["raw_whole"]) == (5960, 5960)

    @pytest.mark.parametrize("batch", ["1", "7", "1000"])
    def test_batches_change_nothing(self, dlv: Dlv, data: Path, batch: str) -> None:
        whole = dlv("eval", "lenet", "test.npz", json=True).document["results"][0]
        parts = dlv("eval", "lenet", "test.npz", "--batch", batch, json=True)
        found = parts.document["results"][0]
        assert found["accuracy"] == whole["accuracy"]
        assert found["metrics"]["loss"] == pytest.approx(whole["metrics"]["loss"], rel=1e-12)

    def test_precision(self, dlv: Dlv, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        told = dlv("eval", "lenet", "test.npz", "--precision", "float32", json=True)
        (found,) = told.document["results"]
        assert found["precision"] == "float32"
        exact = dlv("eval", "lenet", "test.npz", json=True).document["results"][0]
        assert found["metrics"]["loss"] != exact["metrics"]["loss"]
        assert found["metrics"]["loss"] == pytest.approx(exact["metrics"]["loss"], rel=1e-5)
        monkeypatch.setenv("DLV_EVAL_PRECISION", "float32")
        usual = dlv("eval", "lenet", "test.npz", json=True).document["results"][0]
        assert usual["metrics"]["loss"] == found["metrics"]["loss"]

    def test_labels_are_written(self, dlv: Dlv, data: Path) -> None:
        held = loaded(data)
        expected = scores(api.open(data.parent)["lenet@1"], held["x"]).argmax(axis=1)
        assert dlv("eval", "lenet@1", "test.npz", "--predictions-out", "a.csv").code == 0
        rows = list(csv.DictReader((data.parent / "a.csv").read_text().splitlines()))
        assert [int(row["row"]) for row in rows] == list(range(24))
        assert [int(row["label"]) for row in rows] == expected.tolist()
        assert [int(row["true"]) for row in rows] == held["y"].tolist()
        words = ["lenet@1", "lenet@2", "test.npz"]
        assert dlv("eval", *words, "--predictions-out", "a.npz").code == 0
        made = loaded(data.parent / "a.npz")
        assert made["labels"].shape == (24, 2)
        assert made["labels"][:, 0].tolist() == expected.tolist()
        assert made["true"].tolist() == held["y"].tolist()

    def test_activations_are_written(self, dlv: Dlv, data: Path) -> None:
        words = ["--activations", "conv1", "--activations", "full1", "-o", "a.npz"]
        assert dlv("eval", "lenet@1", "test.npz", *words).code == 0
        made = loaded(data.parent / "a.npz")
        assert sorted(made) == ["conv1", "fc"]
        assert made["conv1"].shape == (24, 4, 6, 6)
        expected = scores(api.open(data.parent)["lenet@1"], loaded(data)["x"])
        assert np.allclose(made["fc"], expected, rtol=1e-12, atol=1e-12)

    def test_values_instead_of_classes(self, dlv: Dlv, data: Path) -> None:
        held = loaded(data)
        truth = np.random.default_rng(0).normal(size=(24, 10))
        np.savez(data, x=held["x"], y=truth)
        (found,) = dlv("eval", "lenet@1", "test.npz", json=True).document["results"]
        expected = scores(api.open(data.parent)["lenet@1"], held["x"])
        assert found["accuracy"] is None
        assert found["metrics"] == {"mse": pytest.approx(np.mean((expected - truth) ** 2))}


class TestData:
    def test_without_labels(self, dlv: Dlv, snapshot: Dlv, data: Path) -> None:
        np.savez(data, x=loaded(data)["x"])
        snapshot(dlv("eval", "lenet", "test.npz", tty=True))
        (found,) = dlv("eval", "lenet", "test.npz", json=True).document["results"]
        assert (found["accuracy"], found["metrics"]) == (None, {})
        assert "saved" not in dlv("eval", "lenet", "test.npz").stderr

    def test_data_that_was_added_with_the_version(self, dlv: Dlv, data: Path) -> None:
        dlv("add", "test.npz")
        dlv("commit", "-m", "with its data")
        named = dlv("eval", "lenet-wide", "lenet@1", "test.npz", json=True).document
        data.unlink()
        stored = dlv("eval", "lenet-wide", json=True).document
        assert stored["data"]["name"] == "lenet-wide@2:test.npz"
        assert stored["data"]["fingerprint"] == named["data"]["fingerprint"]
        assert stored["results"][0]["metrics"] == named["results"][0]["metrics"]
        other = dlv("eval", "lenet@1", "lenet-wide@2:test.npz", json=True).document
        assert other["results"][0]["metrics"] == named["results"][1]["metrics"]

    def test_a_configuration(self, dlv: Dlv, data: Path) -> None:
        held = loaded(data)
        np.savez(data, pixels=(held["x"] * 100).reshape(24, 64), truth=held["y"])
        text = 'input_data = "test.npz"\ntop_k = 2\nlr = 0.1\n[data]\ninputs = "pixels"\n'
        text += 'labels = "truth"\nshape = [1, 8, 8]\nscale = 0.01\n'
        (data.parent / "eval.toml").write_text(text)
        (found,) = dlv("eval", "lenet", "--config", "eval.toml", json=True).document["results"]
        assert set(found["metrics"]) == {"accuracy", "top2_accuracy", "loss"}
        np.savez(data, x=held["x"], y=held["y"])
        (plain,) = dlv("eval", "lenet", "test.npz", json=True).document["results"]
        assert found["accuracy"] == plain["accuracy"]
        less = dlv("eval", "lenet", "test.npz", "--set", "data.rows=5", json=True)
        assert less.document["results"][0]["examples"] == 5

    def test_code_that_is_named(self, dlv: Dlv, data: Path) -> None:
        text = "import numpy\ndef held_out():\n    with numpy.load('test.npz') as held:\n"
        text += "        return held['x'], held['y']\n"
        (data.parent / "rows_of_eval_test.py").write_text(text)
        plain = dlv("eval", "lenet", "test.npz", json=True).document
        found = dlv("eval", "lenet", "python:rows_of_eval_test:held_out", json=True).document
        assert found["results"][0]["metrics"] == plain["results"][0]["metrics"]
        assert found["data"]["fingerprint"] is None

    def test_csv(self, dlv: Dlv, data: Path) -> None:
        held = loaded(data)
        titles = ",".join(f"p{i}" for i in range(64))
        lines = [
            ",".join([*map(repr, row.reshape(-1).tolist()), str(label)])
            for row, label in zip(held["x"], held["y"].tolist(), strict=True)
        ]
        (data.parent / "test.csv").write_text("\n".join([f"{titles},label", *lines]) + "\n")
        refused = dlv("eval", "lenet", "test.csv")
        assert "--set data.shape=1,8,8" in refused.stderr
        words = ["eval", "lenet", "test.csv", "--set", "data.shape=1,8,8"]
        plain = dlv("eval", "lenet", "test.npz", json=True).document["results"][0]
        assert dlv(*words, json=True).document["results"][0]["metrics"] == plain["metrics"]


class TestSaved:
    def test_results_are_facts(self, dlv: Dlv, data: Path) -> None:
        result = dlv("eval", "lenet@1", "lenet@2", "test.npz")
        assert "saved results of lenet@1, lenet@2" in result.stderr
        facts = [
            json.loads(path.read_bytes())
            for path in (data.parent / ".dlv" / "facts").rglob("*.json")
        ]
        (kept,) = [
            fact
            for fact in facts
            if fact["kind"] == "evaluation"
            and fact["subject"] == api.open(data.parent)["lenet@2"].id
        ]
        (found,) = dlv("eval", "lenet@2", "test.npz", json=True).document["results"]
        assert kept["data"]["metrics"] == found["metrics"]
        assert kept["data"]["step"] == 200
        assert kept["data"]["data"]["name"] == "test.npz"
        assert kept["data"]["rows"] == 24

    def test_the_best_by_evaluation(self, dlv: Dlv, data: Path) -> None:
        dlv("eval", "lenet@1", "lenet@2", "test.npz")
        results = dlv("eval", "lenet@1", "lenet@2", "test.npz", json=True).document["results"]
        best = min(results, key=lambda each: each["metrics"]["loss"])
        assert dlv("show", "lenet@best:test/loss", "-q").stdout.strip() == best["id"]

    def test_undo(self, dlv: Dlv, data: Path) -> None:
        dlv("eval", "lenet@1", "test.npz")
        before = dlv("desc", "lenet@1", json=True).document["evaluations"]
        assert len(before) == 1
        log = dlv("undo", "--list", json=True).document["operations"]
        assert [entry["verb"] for entry in log[:2]] == ["eval", "commit"]
        taken = dlv("undo")  # the commit: results of a test are not what people mean by undo
        assert "commit" in taken.stdout
        assert f"to undo it too: dlv undo --op {log[0]['id']}" in taken.stderr
        assert dlv("desc", "lenet@1", json=True).document["evaluations"] == before
        assert dlv("undo", "--op", str(log[0]["id"])).code == 0
        assert dlv("desc", "lenet@1", json=True).document["evaluations"] == []

    def test_not_saved(self, dlv: Dlv, data: Path) -> None:
        assert dlv("eval", "lenet@1", "test.npz", "--no-save").stderr == ""
        assert dlv("desc", "lenet@1", json=True).document["evaluations"] == []

    @pytest.mark.parametrize("mode", MODES)
    def test_elsewhere(self, dlv: Dlv, snapshot: Dlv, data: Path, mode: str) -> None:
        dlv("eval", "lenet@1", "lenet@1/100", "test.npz")
        how = {"tty": mode == "tty", "json": mode == "json"}
        snapshot(dlv("metrics", "lenet@1", **how), "metrics", replace=ROUNDED)
        snapshot(dlv("list", "lenet", **how), "list", replace=ROUNDED)
        if mode == "tty":
            snapshot(dlv("desc", "lenet@1", **how), "desc", replace=ROUNDED)


class TestRefused:
    @pytest.mark.parametrize(
        "words",
        [
            ["lenet", "tst.npz"],
            ["lnet", "test.npz"],
            ["lenet"],
            ["lenet", "test.npz", "--progresive"],
            ["lenet", "test.npz", "--progressive=fast"],
            ["lenet", "test.npz", "--strict"],
            ["lenet", "test.npz", "--progressive", "--precision", "float32"],
            ["lenet", "test.npz", "--set", "data.sclae=2"],
            ["lenet", "test.npz", "--set", "batchsize=2"],
            ["lenet", "test.npz", "--activations", "conv1"],
            ["lenet", "test.npz", "--activations", "cnv1", "-o", "a.npz"],
            ["lenet", "test.npz", "--predictions-out", "a.txt"],
            ["lenet", "test.npz", "--predictions-out", "config.json"],
            ["lenet", "test.npz", "--top-k", "11"],
            ["lenet@2:train.py", "test.npz"],
            ["lenet", "lenet@2:trian.py"],
            ["lenet", "python:nothing"],
        ],
    )
    def test_words(self, dlv: Dlv, snapshot: Dlv, data: Path, words: list[str]) -> None:
        result = dlv("eval", *words)
        assert result.code in (2, 4, 5)
        assert result.stdout == ""
        snapshot(result)

    @pytest.mark.parametrize(
        ("shape", "name"),
        [((24, 8, 8, 1), "last"), ((24, 64), "flat"), ((24, 1, 9, 9), "size"), ((24, 8, 8), "no")],
    )
    def test_shapes(
        self, dlv: Dlv, snapshot: Dlv, data: Path, shape: tuple[int, ...], name: str
    ) -> None:
        np.savez(data, x=np.zeros(shape, np.float32), y=np.zeros(24, int))
        result = dlv("eval", "lenet", "test.npz")
        assert result.code == 2
        snapshot(result, name)

    @pytest.mark.parametrize(
        ("labels", "name"),
        [
            (np.arange(24), "large"),
            (np.arange(24) - 3, "negative"),
            (np.arange(24) / 7, "fractions"),
            (np.array(["ant", "bee"] * 12), "texts"),
            (np.zeros((24, 3), int), "shape"),
        ],
    )
    def test_labels(self, dlv: Dlv, snapshot: Dlv, data: Path, labels: Any, name: str) -> None:
        np.savez(data, x=loaded(data)["x"], y=labels)
        result = dlv("eval", "lenet", "test.npz")
        assert result.code == 2
        snapshot(result, name)

    def test_which_of_several(self, dlv: Dlv, data: Path) -> None:
        np.savez(data, x=np.zeros((24, 9, 9)), y=np.zeros(24, int))
        result = dlv("eval", "lenet@1", "lenet-wide", "test.npz")
        assert "note:  lenet@1: they are 9×9" in result.stderr

    def test_without_network(self, dlv: Dlv, snapshot: Dlv, workspace: Path) -> None:
        dlv("init")
        save_file({"w": np.ones((3, 3), np.float32)}, workspace / "w.safetensors")
        np.savez(workspace / "test.npz", x=np.ones((2, 3)))
        dlv("add", "w.safetensors")
        dlv("commit", "-m", "weights only", "--name", "bare")
        snapshot(dlv("eval", "bare", "test.npz"))
        snapshot(dlv("eval", "bare", "test.npz", json=True), "json")

    def test_without_weights(self, dlv: Dlv, snapshot: Dlv, data: Path) -> None:
        network = (data.parent / "network.json").read_bytes()
        bare = data.parent / "bare"
        bare.mkdir()
        (bare / "network.json").write_bytes(network)
        dlv("init", bare)
        dlv("-C", bare, "add", "network.json")
        dlv("-C", bare, "commit", "-m", "network alone", "--name", "empty")
        result = dlv("-C", bare, "eval", "empty", "../test.npz")
        assert result.code == 4
        snapshot(result)

    def test_a_matrix_that_is_missing(self, dlv: Dlv, snapshot: Dlv, data: Path) -> None:
        weights = {"fc.weight": np.ones((10, 144), np.float32), "fc.bias": np.ones(10, np.float32)}
        save_file(weights, data.parent / "ckpt-200.safetensors")
        dlv("add", "ckpt-200.safetensors", "network.json")
        dlv("commit", "-m", "half of it")
        result = dlv("eval", "HEAD", "test.npz")
        assert result.code == 4
        snapshot(result)

    def test_code_named_by_a_file(self, dlv: Dlv, snapshot: Dlv, data: Path) -> None:
        (data.parent / "c.toml").write_text('input_data = "python:train:f"\n')
        result = dlv("eval", "lenet", "--config", "c.toml")
        assert result.code == 9
        snapshot(result)

    def test_outside_a_repository(self, dlv: Dlv, workspace: Path) -> None:
        assert dlv("eval", "lenet", "test.npz").code == 3


def test_weights_that_are_no_numbers(dlv: Dlv, snapshot: Dlv, data: Path) -> None:
    weights = {
        "conv1.weight": np.full((4, 1, 3, 3), np.nan, np.float32),
        "conv1.bias": np.ones(4, np.float32),
        "fc.weight": np.ones((10, 144), np.float32),
        "fc.bias": np.ones(10, np.float32),
    }
    save_file(weights, data.parent / "ckpt-200.safetensors")
    dlv("add", "ckpt-200.safetensors")
    dlv("commit", "-m", "diverged")
    result = dlv("eval", "HEAD", "test.npz", tty=True)
    assert result.code == 0
    snapshot(result)
    (found,) = dlv("eval", "HEAD", "test.npz", json=True).document["results"]
    assert found["not_finite"] == 24
    assert (found["accuracy"], found["metrics"]["loss"]) == (0.0, "NaN")


def test_what_is_there_is_not_written_over(dlv: Dlv, data: Path) -> None:
    (data.parent / "a.csv").write_text("mine")
    words = ["eval", "lenet", "test.npz", "--predictions-out", "a.csv"]
    assert dlv(*words).code == 5
    assert (data.parent / "a.csv").read_text() == "mine"
    assert dlv(*words, "--force").code == 0
    assert (data.parent / "a.csv").read_text() != "mine"


def test_the_value_of_progressive_stands_after_the_equals_sign(dlv: Dlv, data: Path) -> None:
    for words in (
        ["--progressive", "lenet", "test.npz"],
        ["lenet", "--progressive", "test.npz"],
        ["lenet", "test.npz", "--progressive"],
    ):
        (found,) = dlv("eval", *words, json=True).document["results"]
        assert found["mode"] == "full"
        assert "no bounds" in found["fallback"]
