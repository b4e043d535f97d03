"""Lossy versions as seen from outside: each command says what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dlv.canonical as canonical
import dlv.versions.quantize as lossy
from dlv.repository.handle import Repository

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]
# What is stored depends on the compressor's version.
STORED = {
    r'(?<="stored": )[0-9.]+': "<stored>",
    r'(?<="ratio": )[0-9.]+': "<ratio>",
    r"(?<=kB -> )[0-9.]+ k?B": "<stored>",
    r"(?<=\t5960\t)[0-9]+": "<stored>",
    r"(?m)^(stored[ :\t]+).*$": r"\1<stored>",
    r"[0-9.]+ k?B stored.*": "<stored>",
}


def how(mode: str) -> dict[str, bool]:
    return {"tty": mode == "tty", "json": mode == "json"}


@pytest.fixture
def rounded(filled: Path) -> Path:
    """lenet@3, a lossy child of lenet@2."""
    canonical.stop_clock("2026-06-15T10:00:00Z")
    with Repository.find(filled) as repository:
        lossy.quantize(
            repository, "lenet@2", "uniform:4", author="Ada <ada@example.org>", name="lenet"
        )
    return filled


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("graph", [False, True])
def test_log(dlv: Dlv, snapshot: Dlv, rounded: Path, mode: str, graph: bool) -> None:
    more = ["--graph"] if graph else ["-n", "1"]
    snapshot(dlv("log", "lenet@3", *more, **how(mode)))


@pytest.mark.parametrize("mode", MODES)
def test_show(dlv: Dlv, snapshot: Dlv, rounded: Path, mode: str) -> None:
    snapshot(dlv("show", "lenet@3", **how(mode)), replace=STORED)


@pytest.mark.parametrize("mode", MODES)
def test_desc(dlv: Dlv, snapshot: Dlv, rounded: Path, mode: str) -> None:
    result = dlv("desc", "lenet@3", **how(mode))
    if mode == "json":
        assert result.document["version"]["quantized"] == "uniform:4"
    else:
        lines = result.stdout.splitlines()
        assert sum("uniform:4" in line and "quantized" in line for line in lines) == 1


def test_a_matrix(dlv: Dlv, rounded: Path) -> None:
    shown = dlv("show", "lenet@3", "--tensor", "fc.weight", json=True).document["tensor"]
    assert shown["layout"] == "table"


@pytest.mark.parametrize("mode", MODES)
def test_list(dlv: Dlv, snapshot: Dlv, rounded: Path, mode: str) -> None:
    snapshot(dlv("list", "--columns", "scheme,message", **how(mode)))


@pytest.mark.parametrize("mode", MODES)
def test_checkout(dlv: Dlv, snapshot: Dlv, rounded: Path, mode: str) -> None:
    snapshot(dlv("checkout", "lenet@3", "ckpt-200.safetensors", "--to", "out", **how(mode)))


def test_export(dlv: Dlv, snapshot: Dlv, rounded: Path) -> None:
    snapshot(dlv("export", "lenet@3", "w.npz", tty=True))


@pytest.mark.parametrize("mode", ["pipe", "tty"])
def test_diff(dlv: Dlv, snapshot: Dlv, rounded: Path, mode: str) -> None:
    snapshot(dlv("diff", "lenet@2", "lenet@3", "--tensors", **how(mode)))


@pytest.mark.parametrize("mode", MODES)
def test_fsck(dlv: Dlv, rounded: Path, mode: str) -> None:
    assert dlv("fsck", **how(mode)).code == 0


@pytest.mark.usefixtures("project")
class TestCommit:
    @pytest.fixture
    def project(self, dlv: Dlv, workspace: Path, filled_once: Path) -> Path:
        for name in ("ckpt-200.safetensors", "train.py"):
            (workspace / name).write_bytes((filled_once / name).read_bytes())
        dlv("init")
        assert dlv("add", ".").code == 0
        return workspace

    @pytest.mark.parametrize("mode", MODES)
    def test_scheme(self, dlv: Dlv, snapshot: Dlv, mode: str) -> None:
        result = dlv("commit", "-m", "A", "--name", "m", "--quantize", "uniform:4", **how(mode))
        snapshot(result, "commit", STORED)
        snapshot(dlv("log", "--graph", **how(mode)), "log")
        snapshot(dlv("status", **how(mode)), "status")
        snapshot(dlv("checkout", "HEAD", **how(mode)), "checkout")

    def test_from_the_configuration(self, dlv: Dlv) -> None:
        dlv("config", "commit.quantize", "fp16")
        made = dlv("commit", "-m", "A", "--name", "m", json=True).document
        assert (made["quantized"], made["rounded"]) == ("fp16", 2)

    @pytest.mark.parametrize("text", ["unifrm:8", "uniform:9", "fp16:2"])
    @pytest.mark.parametrize("mode", ["pipe", "json"])
    def test_no_such_scheme(self, dlv: Dlv, snapshot: Dlv, text: str, mode: str) -> None:
        result = dlv("commit", "-m", "A", "--name", "m", "--quantize", text, **how(mode))
        assert result.code == 2
        snapshot(result)

    def test_no_new_weights(self, dlv: Dlv, snapshot: Dlv) -> None:
        dlv("commit", "-m", "A", "--name", "m")
        result = dlv("commit", "-m", "B", "--allow-empty", "--quantize", "uniform:8")
        assert result.code == 2
        snapshot(result)
