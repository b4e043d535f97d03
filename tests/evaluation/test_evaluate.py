"""Evaluations of a trained network: full, progressive, calibrated, from the command and Python."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

import dlv.api as api
import dlv.cli as cli
import dlv.evaluation.evaluate as evaluate
from dlv.api import Repo
from dlv.errors import NotFound, UsageError
from dlv.evaluation.answers import Evaluation, Progress
from dlv.evaluation.evaluate import Request

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
Array = NDArray[Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits network with its checkpoints, archived, with bounds."""
    folder = tmp_path_factory.mktemp("digits")
    for path in (*(DIGITS / "base").iterdir(), DIGITS / "test.npz"):
        shutil.copy(path, folder)
    with api.open(folder, create=True):
        pass
    for line in ("add .", "commit -q -m digits --name lenet", "archive -q", "archive -q --bounds"):
        assert cli.run(["-C", str(folder), *line.split()]) == 0
    return folder


@pytest.fixture
def repo(made: Path) -> Iterator[Repo]:
    with api.open(made) as found:
        yield found


def data() -> dict[str, Array]:
    with np.load(DIGITS / "test.npz") as held:
        return dict(held)


def run(repo: Repo, *words: str, **said: Any) -> Evaluation:
    (found,) = evaluate.evaluate(repo.repository, Request(["lenet", *words], **said)).results
    return found


def test_as_torch_computes_it(repo: Repo) -> None:
    torch = pytest.importorskip("torch")
    rows = data()
    with torch.no_grad():
        scores = repo["lenet"].module().double()(torch.from_numpy(rows["x"]).double())
    found = run(repo)
    assert np.array_equal(found.labels, scores.argmax(1).numpy())
    loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(rows["y"]))
    assert found.metrics["loss"] == pytest.approx(float(loss), rel=1e-12)
    assert found.accuracy == float((scores.argmax(1).numpy() == rows["y"]).mean())


@pytest.mark.parametrize("said", [{}, {"strict": True}, {"top_k": 3}, {"tighten": True}])
def test_progressive_labels_are_those_of_all_the_weights(repo: Repo, said: dict[str, Any]) -> None:
    whole = run(repo, top_k=said.get("top_k"))
    found = run(repo, progressive="guaranteed", **said)
    assert found.fallback is None
    assert found.mode == "progressive"
    told = found.labels != -1
    assert np.array_equal(found.labels[told], whole.labels[told])
    if said.get("top_k"):  # a set may be determined where the first label is not
        if not told.all():
            low, high = found.between["accuracy"]
            assert low <= whole.metrics["accuracy"] <= high
        assert found.sets is not None
        assert whole.sets is not None
        assert np.array_equal(np.sort(found.sets), np.sort(whole.sets))
    else:
        assert told.all()
        assert found.accuracy == whole.accuracy
        assert found.levels[0].determined > found.rows // 2
    assert found.levels[0].bytes_read < whole.bytes_read
    assert found.levels[-1].open == 0
    counts = [(level.bytes_read, level.determined) for level in found.levels]
    assert counts == sorted(counts)
    assert found.levels[-1].bytes_read == found.bytes_read


@pytest.mark.parametrize("engine", ["torch", "onnxruntime"])
def test_engines(repo: Repo, engine: str) -> None:
    pytest.importorskip(engine)
    found = run(repo, engine=engine, precision="float32")
    assert (found.engine, found.reference) == (engine, "float32")
    whole = run(repo)
    assert found.metrics["loss"] == pytest.approx(whole.metrics["loss"], rel=1e-4)
    assert np.array_equal(found.labels, whole.labels)
    assert found.bytes_read == whole.bytes_read
    with pytest.raises(UsageError, match="cannot be combined"):
        run(repo, engine=engine, progressive="guaranteed")


def test_calibrated(repo: Repo) -> None:
    found = run(repo, progressive="calibrated")
    assert found.mode == "calibrated"
    assert found.confidence is not None
    assert np.array_equal(found.labels, run(repo).labels)


def test_reading_stops_at_a_limit(repo: Repo) -> None:
    first = run(repo, progressive="guaranteed").levels[0]
    found = run(repo, progressive="guaranteed", max_bytes=first.bytes_read)
    assert found.bytes_read == first.bytes_read
    assert found.open == first.open > 0
    assert found.accuracy is None
    low, high = found.between["accuracy"]
    assert low <= float(run(repo).metrics["accuracy"]) <= high
    assert high - low == pytest.approx(first.open / found.rows)
    nothing = run(repo, progressive="guaranteed", max_bytes=0)
    assert nothing.open == nothing.rows == 360


def test_a_limit_holds_without_bounds_too(repo: Repo) -> None:
    (found,) = evaluate.evaluate(
        repo.repository, Request(["lenet/100"], progressive="guaranteed", max_bytes=100)
    ).results
    assert found.fallback is not None
    assert (found.open, found.bytes_read) == (360, 0)


def test_without_bounds_all_is_read(repo: Repo) -> None:
    (found,) = evaluate.evaluate(
        repo.repository, Request(["lenet/100"], progressive="guaranteed", strict=True)
    ).results
    assert (found.mode, found.reference) == ("full", "strict")
    assert found.fallback is not None
    assert "bounds" in found.fallback
    assert found.open == 0


def test_what_is_computed_is_watched(repo: Repo) -> None:
    told: list[Progress] = []
    run(repo, watch=told.append, batch=100)
    assert [each.done for each in told if each.done] == [100, 200, 300, 360]
    assert told[-1].bytes_read == run(repo).bytes_read
    told.clear()
    run(repo, progressive="guaranteed", watch=told.append)
    assert told[-1].done == told[-1].rows == 360


def test_the_command_shows_levels(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-C", str(made), "eval", "lenet", "--progressive", "--no-save"]
    assert cli.run(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "lenet@1, level by level"
    assert cli.run([*words, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["results"]
    assert len(found["levels"]) == len(lines) - 3
    assert found["levels"][0]["bits"]["fc1.weight"] == 8


class TestPython:
    @pytest.mark.parametrize("form", ["path", "pair", "dict", "stored"])
    def test_forms_of_data(self, repo: Repo, form: str) -> None:
        rows = data()
        given = {
            "path": DIGITS / "test.npz",
            "pair": (rows["x"], rows["y"]),
            "dict": rows,
            "stored": None,
        }[form]
        found = repo["lenet"].evaluate(given, save=False)
        assert found.accuracy == run(repo).accuracy
        assert found.labels.shape == (360,)

    def test_options(self, repo: Repo) -> None:
        rows = data()
        found = repo["lenet"].evaluate(
            (rows["x"].reshape(360, 64) * 10, rows["y"]),
            progressive=True,
            top_k=2,
            confusion=True,
            settings={"shape": [1, 8, 8], "scale": 0.1},
            save=False,
        )
        assert found.mode == "progressive"
        assert found.confusion is not None
        assert found.confusion.counts.sum() + found.confusion.open.sum() == 360
        with pytest.raises(UsageError, match="do not fit"):
            repo["lenet"].evaluate(rows["x"].reshape(360, 64), save=False)
        with pytest.raises(NotFound):
            repo["lenet"].evaluate("nowhere", save=False)

    def test_results_are_kept(self, repo: Repo) -> None:
        before = repo["lenet"].at(200).evaluate()
        assert before.step == 200
        assert cli.run(["-C", str(repo.repository.root), "undo", "-q"]) == 0


def test_networks_with_a_fixed_length_of_batch(tmp_path: Path) -> None:
    node = {"name": "fc", "op": "FULL", "attrs": {"out": 3, "bias": False}, "inputs": ["x"]}
    node["params"] = {"weight": "w"}
    inputs = [{"name": "x", "shape": [2, 4], "dtype": "float32"}]
    network = {"dlv_network": 1, "inputs": inputs, "nodes": [node], "outputs": ["fc"]}
    (tmp_path / "network.json").write_text(json.dumps(network))
    w = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    save_file({"w": w}, tmp_path / "w.safetensors")
    with api.open(tmp_path, create=True) as repo:
        for line in ("add .", "commit -q -m fixed --name fixed"):
            assert cli.run(["-C", str(tmp_path), *line.split()]) == 0
        x = np.random.default_rng(1).normal(size=(6, 4))
        found = repo["fixed"].evaluate(x, save=False, batch=5)
        rounded = x.astype(np.float32).astype(np.float64)
        assert found.labels.tolist() == (rounded @ w.T.astype(np.float64)).argmax(1).tolist()
        with pytest.raises(UsageError, match="2 rows at a time") as error:
            repo["fixed"].evaluate(x[:5], save=False)
        assert error.value.hint == "--set data.rows=4"
