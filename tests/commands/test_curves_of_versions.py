"""What every other command does to the curves of a version: scalars, tensors and blobs alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import dlv.api as api
from dlv.errors import Damaged
from dlv.events.formats import series as series_format
from tests import event_bytes

Dlv = Callable[..., Any]
RUN = event_bytes.version() + event_bytes.start(1.0, 0) + event_bytes.scalars("loss", range(5000))
RUN += (
    event_bytes.image("img", 2, b"\x89PNG")
    + event_bytes.start(2.0, 4000)
    + event_bytes.text("note", 3, "three")
)
RUN += event_bytes.scalars("loss", range(4000, 4500))
NODES: list[dict[str, Any]] = [
    {"name": "flat", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["x"]},
    {"name": "fc", "op": "FULL", "attrs": {"out": 3}, "inputs": ["flat"]},
    {"name": "act", "op": "RELU", "inputs": ["fc"]},
]
NODES[1]["params"] = {"weight": "fc.weight"}
NETWORK = {
    "dlv_network": 1,
    "inputs": [{"name": "x", "shape": ["B", 1, 2, 2], "dtype": "float32"}],
    "nodes": NODES,
    "outputs": ["act"],
}


def put(folder: Path, seed: int) -> None:
    made = np.random.default_rng(seed).normal(size=(3, 4)).astype("f4")
    save_file({"fc.weight": made}, folder / "model.safetensors")


@pytest.fixture
def logged(dlv: Dlv, workspace: Path) -> Path:
    """`net@1`: weights, a network, and a run with all classes of data and a restart."""
    (workspace / "runs" / "sub").mkdir(parents=True)
    (workspace / "runs" / "events.out.tfevents.1.x").write_bytes(RUN)
    (workspace / "runs" / "sub" / "events.out.tfevents.1.x").write_bytes(
        event_bytes.scalar("acc", 1, 0.5)
    )
    put(workspace, 1)
    (workspace / "network.json").write_text(json.dumps(NETWORK))
    dlv("init")
    dlv("add", "model.safetensors", "network.json")
    assert dlv("commit", "-m", "first", "--name", "net", "--tb", "runs").code == 0
    return workspace


def everything(folder: Path, reference: str) -> dict[tuple[str, str], Any]:
    """All points that a version has, hidden ones too, read from packs alone."""
    for path in (folder / ".dlv").glob("live.db*"):
        path.unlink()
    found: dict[tuple[str, str], Any] = {}
    with api.open(folder) as repo, repo.curves(reference, restarts="keep") as curves:
        assert curves.remarks == []

        def keep(run: str, tag: str, points: Any) -> None:
            found[run.removeprefix(reference), tag] = points

        for run, by_tag in curves.scalars().items():
            for tag, points in by_tag.items():
                columns = (points.steps, points.walls, points.values)
                keep(run, tag, [column.tolist() for column in columns])
        for run, tensors in curves.tensors(plugin="text").items():
            for tag, texts in tensors.items():
                keep(run, tag, [(text.step, text.wall, text.array.tolist()) for text in texts])
        for run, images in curves.blobs().items():
            for tag, sequences in images.items():
                keep(run, tag, [(each.step, each.wall, list(each)) for each in sequences])
    return found


def test_all_of_it_is_there(logged: Path) -> None:
    found = everything(logged, "net@1")
    assert set(found) == {("", "loss"), ("", "note"), ("", "img"), ("/sub", "acc")}
    assert len(found["", "loss"][0]) == 5500


def test_a_description_names_what_has_no_figures(
    dlv: Dlv, logged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = dlv("desc", "net@1", json=True).document
    assert found["logged"] == [
        {"name": "img", "kind": "images", "points": 1},
        {"name": "note", "kind": "text", "points": 1},
    ]
    assert {each["name"] for each in found["metrics"]} == {"loss", "sub/acc"}
    assert "also logged" in dlv("desc", "net@1", tty=True).stdout
    assert dlv("desc", "net@1").stdout.count("images\t1\n") == 1

    real = series_format.decode_head

    def damaged(data: bytes) -> series_format.Head:
        head = real(data)
        if head.plugin != "scalars":
            raise Damaged("it is corrupt")
        return head

    monkeypatch.setattr(series_format, "decode_head", damaged)
    found = dlv("desc", "net@1", json=True).document
    assert [each["points"] for each in found["logged"]] == [None, None]
    assert dlv("desc", "net@1", tty=True).stdout.count("unreadable") == 2


@pytest.mark.parametrize("verb", ["metrics", "plots"])
def test_what_is_no_number(dlv: Dlv, logged: Path, verb: str) -> None:
    done = dlv(verb, "net@1", "--metric", "img")
    assert (done.code, done.stdout) == (2, "")
    assert "`img` of net@1 has no numbers" in done.stderr
    assert "dlv tensorboard net@1" in done.stderr
    assert dlv(verb, "net@1", "--metric", "imgs").code == 4


def test_what_leaves_it_as_it_is(dlv: Dlv, logged: Path) -> None:
    before, figures = everything(logged, "net@1"), dlv("metrics", "net@1").stdout
    put(logged, 2)
    dlv("add", "model.safetensors")
    (logged / "log.csv").write_text("step,loss\n1,2\n")
    assert dlv("commit", "-m", "second", "--log", "log.csv").code == 0
    for line in (
        *("archive", "rm net@2", "gc --grace 0 --yes", "fsck", "fsck --rebuild"),
        *("checkout net@1 --force", "tag good net@1", "undo"),
    ):
        words = line.split()
        done = dlv(*words)
        assert done.code == 0, (words, done.stderr)
        assert everything(logged, "net@1") == before, words
        assert dlv("metrics", "net@1").stdout == figures


def test_a_copy_has_the_curves_as_long_as_it_has_the_weights(dlv: Dlv, logged: Path) -> None:
    before = everything(logged, "net@1")
    dlv("copy", "net@1", "other", "--force")
    dlv("commit", "-m", "as it was", "--allow-empty")
    assert everything(logged, "other@1") == before
    assert dlv("metrics", "other@1").stdout == dlv("metrics", "net@1").stdout.replace(
        "net", "other"
    )
    put(logged, 3)
    dlv("add", "model.safetensors")
    told = dlv("commit", "-m", "trained anew")
    assert (told.code, told.stderr) == (0, "+0 ~1 -0 files; parent other@1\n")
    assert everything(logged, "other@2") == {}
    assert everything(logged, "other@1") == before


def test_a_network_that_is_derived_begins_without_curves(dlv: Dlv, logged: Path) -> None:
    assert dlv("copy", "net@1", "short", "--delete", "act", "--force").code == 0
    dlv("add", "network.json", "short.safetensors")
    assert dlv("commit", "-m", "without its end").code == 0
    assert everything(logged, "short@1") == {}


def test_removed_and_brought_back(dlv: Dlv, logged: Path) -> None:
    before = everything(logged, "net@1")
    put(logged, 2)
    dlv("add", "model.safetensors")
    dlv("commit", "-m", "second")
    assert dlv("rm", "net@1").code == 0
    assert "net@1 is removed" in dlv("metrics", "net@1").stderr  # it can be read till gc takes it
    with api.open(logged) as repo, repo.curves() as curves:
        assert curves.runs == ["net@2"]
    assert dlv("undo").code == 0
    assert everything(logged, "net@1") == before


@pytest.mark.parametrize("name", ["w.safetensors", "w.npz", "w.pt", "net.json"])
def test_an_export_holds_no_curves(dlv: Dlv, logged: Path, name: str) -> None:
    """It is of weights or a network, and a small file."""
    assert dlv("export", "net@1", name).code == 0
    assert (logged / name).stat().st_size < 5000
