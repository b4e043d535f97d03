"""`dlv archive`: plans shown and carried out, refusals, and why a matrix is stored as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from safetensors.numpy import save_file

from tests.format.reader import Packs

LEVELS = [GGMLQuantizationType[name] for name in ("Q8_0", "Q5_1", "Q4_0")]
Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]
# What codecs make of the bytes depends on their version.
VARIES = {
    r"[0-9.]+ (k?B|MB)\b": "<size>",
    r"[0-9.]+ (µs|ms|s)\b": "<time>",
    r'("(?:before|after|written|freed|seconds|left_seconds|fastest|budget)": )[0-9.]+': r"\1<n>",
    r'("(?:ratio|bytes|stored)": )[0-9.]+': r"\1<n>",
    r"(?<=\t)[0-9]{4,}(?=\t)": "<size>",
    r"(?<=\t)[0-9]+\.[0-9]+(?=\t)": "<ratio>",
    r"(packs (?:before|after|planned)\t)[0-9]+": r"\1<size>",
    r"  +[0-9.]+x  +": "  <ratio>  ",
    r"(?<=\S)  +(?=\S)": "  ",
}


def quiet(result: Any) -> Any:
    """Without the progress bar, which a slow machine has time to show."""
    return replace(result, stderr="")


@pytest.fixture
def line(dlv: Dlv, workspace: Path) -> Path:
    """net@1 .. net@3, each a little further."""
    dlv("init")
    rng = np.random.default_rng(0)
    held = rng.normal(0, 0.05, (200, 150))
    for number in range(1, 4):
        save_file({"w": held.astype(np.float32)}, workspace / "net.safetensors")
        dlv("add", "net.safetensors")
        assert dlv("commit", "-m", f"number {number}", "--name", "net").code == 0
        held = held + rng.normal(0, 1e-5, held.shape)
    return workspace


@pytest.mark.parametrize("mode", MODES)
def test_rehearsed_and_done(dlv: Dlv, snapshot: Dlv, line: Path, mode: str) -> None:
    given = {"tty": mode == "tty", "json": mode == "json"}
    snapshot(quiet(dlv("archive", "--dry-run", **given)), replace=VARIES, name="rehearsed")
    snapshot(quiet(dlv("archive", **given)), replace=VARIES, name="done")
    snapshot(quiet(dlv("archive", **given)), replace=VARIES, name="again")
    assert dlv("fsck").code == 0


@pytest.mark.parametrize("effort", ["fast", "normal", "high"])
def test_quantized_blocks_become_deltas(dlv: Dlv, workspace: Path, effort: str) -> None:
    """Blocks of a GGUF file are bytes to dlv; those of two fine-tunes are still alike."""
    dlv("init")
    rng = np.random.default_rng(0)
    files = []
    weights = [rng.normal(0, 0.02, shape) for shape in ((256, 1024), (3, 64), (40, 512))]
    for number in (1, 2):
        writer = GGUFWriter(workspace / "net.gguf", "llama")
        for place, (held, level) in enumerate(zip(weights, LEVELS, strict=True)):
            blocks = quantize(held.astype(np.float32), level)
            writer.add_tensor(f"blk.{place}.weight", blocks, raw_dtype=level)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        files.append((workspace / "net.gguf").read_bytes())
        dlv("add", "net.gguf")
        assert dlv("commit", "-m", str(number), "--name", "net").code == 0
        weights = [held + rng.normal(0, 2e-5, held.shape) for held in weights]
    whole = len(files[0])

    def packs() -> int:
        return sum(path.stat().st_size for path in workspace.glob(".dlv/packs/*/*.pack"))

    assert packs() > 1.9 * whole
    assert dlv("archive", "--effort", effort, "--alpha", "inf").code == 0
    assert packs() < 1.15 * whole
    assert dlv("fsck").code == 0
    stored = Packs(sorted(workspace.glob(".dlv/packs/*/*.pack")))
    for matrix in stored.encodings:
        stored.matrix(matrix)  # raises unless a reader of docs/format.md finds what it names
    for number, data in enumerate(files, 1):
        assert dlv("checkout", f"net@{number}", "--to", f"back{number}").code == 0
        assert (workspace / f"back{number}" / "net.gguf").read_bytes() == data
    storage = json.loads(dlv("desc", "net@2", json=True).stdout)["storage"]
    assert whole - 4096 < storage["raw"] < whole  # but for the header
    again = dlv("archive", "--effort", effort, "--alpha", "inf", json=True)
    assert json.loads(again.stdout)["changed"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_explain(dlv: Dlv, snapshot: Dlv, line: Path, mode: str) -> None:
    result = dlv("archive", "net@3", "--explain", "w", tty=mode == "tty", json=mode == "json")
    assert result.code == 0
    snapshot(quiet(result), replace=VARIES)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_there(dlv: Dlv, snapshot: Dlv, workspace: Path, mode: str) -> None:
    dlv("init")
    snapshot(dlv("archive", tty=mode == "tty", json=mode == "json"), replace=VARIES)


REFUSED: dict[str, tuple[list[str], int]] = {
    "no such version": (["net@7"], 4),
    "no such algorithm": (["--algorithm", "bset"], 2),
    "not a time": (["--budget", "net@1=soon"], 2),
    "not a budget": (["--budget", "200ms"], 2),
    "out of reach": (["--budget", "net@1=1us"], 9),
    "faster than the fastest": (["--alpha", "0.5"], 2),
    "no such matrix": (["net@3", "--explain", "x"], 4),
    "nowhere to write": (["--export-plan", "no/such/folder", "--dry-run"], 8),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(dlv: Dlv, snapshot: Dlv, line: Path, name: str) -> None:
    arguments, code = REFUSED[name]
    result = dlv("archive", *arguments)
    assert result.code == code
    snapshot(result, replace=VARIES)


def test_graph_and_plan_are_written(dlv: Dlv, line: Path) -> None:
    files = ["--export-graph", "graph.json", "--export-plan", "plan.json"]
    assert dlv("archive", "--dry-run", *files).code == 0
    graph = json.loads((line / "graph.json").read_text())
    plan = json.loads((line / "plan.json").read_text())
    assert graph["vertices"] == 4
    assert [graph["edges"][edge][1] for edge in plan["edges"]] == [1, 2, 3]


def test_undo_passes_it_by(dlv: Dlv, line: Path) -> None:
    dlv("archive")
    result = dlv("undo")
    assert result.code == 0
    assert "net@3" in result.stdout


@pytest.mark.parametrize("mode", MODES)
def test_at_each_commit(dlv: Dlv, snapshot: Dlv, line: Path, mode: str) -> None:
    """The parent becomes the difference to the new version, which stays fast."""
    held = np.random.default_rng(0).normal(0, 0.05, (200, 150)) + 2e-5
    save_file({"w": held.astype(np.float32)}, line / "net.safetensors")
    dlv("add", "net.safetensors")
    given = {"tty": mode == "tty", "json": mode == "json"}
    result = dlv("commit", "-m", "number 4", "--archive", **given)
    assert result.code == 0
    size = {r"[0-9.]+ (k?B)( saved)": r"<size>\2", r'("saved": )[0-9]+': r"\1<n>"}
    snapshot(quiet(result), replace=VARIES | size)
    rows = dlv("stats", json=True).document["rows"]
    parts = {row["name"]: row["stored"] / row["raw"] for row in rows}
    assert parts["net@3"] < 0.6 < parts["net@4"]
