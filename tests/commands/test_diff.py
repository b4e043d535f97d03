"""`dlv diff` as it is typed and read."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.canonical as canonical
from dlv.repository.handle import Repository

Dlv = Callable[..., Any]
Json = dict[str, Any]
MODES = ["pipe", "tty", "json"]


def _conv(name: str, out: int, source: str) -> Json:
    params = {"weight": f"{name}.weight", "bias": f"{name}.bias"}
    attrs = {"out": out, "kernel": [3, 3]}
    return {"name": name, "op": "CONV", "attrs": attrs, "inputs": [source], "params": params}


def _full(name: str, out: int, source: str) -> Json:
    params = {"weight": f"{name}.weight", "bias": f"{name}.bias"}
    return {"name": name, "op": "FULL", "attrs": {"out": out}, "inputs": [source], "params": params}


def _layer(name: str, op: str, source: str, **attrs: Any) -> Json:
    node = {"name": name, "op": op, "inputs": [source], "attrs": attrs}
    if "variant" in attrs:
        node["variant"] = attrs.pop("variant")
    return node


def _nodes(out: int = 4, names: str = "conv1 relu1 pool1 flatten fc1 prob") -> list[Json]:
    conv, relu, pool, flatten, full, prob = names.split()
    return [
        _conv(conv, out, "x"),
        _layer(relu, "RELU", conv),
        _layer(pool, "POOL", relu, variant="MAX", kernel=[2, 2], stride=[2, 2]),
        _layer(flatten, "RESHAPE", pool, kind="flatten"),
        _full(full, 10, flatten),
        _layer(prob, "SOFTMAX", full),
    ]


def _weights(seed: int, out: int = 4, conv: str = "conv1", full: str = "fc1") -> Json:
    start, moved = np.random.default_rng(0), np.random.default_rng(seed)
    shapes = {f"{conv}.weight": (out, 1, 3, 3), f"{conv}.bias": (out,)}
    shapes |= {f"{full}.weight": (10, out * 9), f"{full}.bias": (10,)}
    found = {k: start.normal(0, 0.1, s).astype(np.float32) for k, s in shapes.items()}
    if seed:
        name = f"{full}.weight"
        found[name][:5] += moved.normal(0, 1e-3, found[name][:5].shape).astype(np.float32)
    return found


@pytest.fixture
def variants(workspace: Path, commit_model: Callable[..., str]) -> Path:
    """net@1 and what can become of it.

    net@2 was trained further; deep@1 has a dropout in between; named@1 is net@1 under other
    names; wide@1 has more channels; plain@1 has no network; steps@1 has two snapshots and a
    matrix with NaN.
    """
    repository, _ = Repository.init(workspace)
    now = datetime.datetime(2026, 6, 14, 12, tzinfo=datetime.UTC)

    def make(name: str, tensors: Any, nodes: Any = None, **rest: Any) -> None:
        nonlocal now
        now += datetime.timedelta(hours=1)
        canonical.fix_clock(now)
        commit_model(repository, name, tensors, nodes, **rest)

    log = "step,loss,accuracy\n1,2.0,0.1\n2,1.0,0.5\n"
    files = {"config.json": '{"lr": 0.1, "opt": {"name": "sgd"}}', "train.py": "one\ntwo\nthree\n"}
    make("net", _weights(0), _nodes(), files={**files, "log.csv": log}, message="First training")
    files = {"config.json": '{"lr": 0.01, "opt": {"name": "sgd"}, "warm": true}'}
    files |= {"train.py": "one\n2\nthree\nfour\n", "notes.md": "better\n"}
    log += "3,0.5,0.75\n"
    make("net", _weights(7), files={**files, "log.csv": log}, message="Smaller learning rate")
    deep = _nodes()
    deep.insert(2, _layer("drop1", "DROPOUT", "relu1", p=0.3))
    deep[3]["inputs"] = ["drop1"]
    make("deep", _weights(7), deep, message="Dropout against overfitting")
    renamed = _nodes(names="features.0 features.1 features.2 flat classifier softmax")
    held = {
        name.replace("conv1", "features.0").replace("fc1", "classifier"): value
        for name, value in _weights(0).items()
    }
    make("named", held, renamed, message="Other names", root=True)
    make("wide", _weights(0, 6), _nodes(6), message="Six channels", root=True)
    make("plain", _weights(0), message="Weights alone", root=True)
    first, second = _weights(0), _weights(7)
    second["fc1.bias"][0] = np.nan
    make("steps", {100: first, 200: second}, message="Two snapshots", root=True)
    repository.close()
    canonical.fix_clock(datetime.datetime(2026, 6, 15, 12, tzinfo=datetime.UTC))
    return workspace


@pytest.mark.parametrize("mode", MODES)
def test_trained_further(dlv: Dlv, snapshot: Dlv, variants: Path, mode: str) -> None:
    result = dlv("diff", "net@1", "net@2", tty=mode == "tty", json=mode == "json")
    assert result.code == 0
    snapshot(result)


@pytest.mark.parametrize("mode", MODES)
def test_inserted_layer(dlv: Dlv, snapshot: Dlv, variants: Path, mode: str) -> None:
    arguments = ("diff", "net@2", "deep", "--network")
    snapshot(dlv(*arguments, tty=mode == "tty", json=mode == "json"))


@pytest.mark.parametrize("mode", MODES)
def test_renamed_layers(dlv: Dlv, snapshot: Dlv, variants: Path, mode: str) -> None:
    arguments = ("diff", "net@1", "named", "--network", "--tensors")
    snapshot(dlv(*arguments, tty=mode == "tty", json=mode == "json"))


@pytest.mark.parametrize("mode", MODES)
def test_other_shapes(dlv: Dlv, snapshot: Dlv, variants: Path, mode: str) -> None:
    arguments = ("diff", "net@1", "wide", "--network", "--tensors")
    snapshot(dlv(*arguments, tty=mode == "tty", json=mode == "json"))


@pytest.fixture
def frameworks(workspace: Path, commit_model: Callable[..., str]) -> Path:
    """One network with the same weights, as torch keeps it and as keras does."""
    repository, _ = Repository.init(workspace)
    canonical.fix_clock(datetime.datetime(2026, 6, 14, 12, tzinfo=datetime.UTC))
    old = _weights(0)
    commit_model(repository, "torch", old, _nodes())
    canonical.fix_clock(datetime.datetime(2026, 6, 14, 13, tzinfo=datetime.UTC))
    nodes = _nodes(names="conv2d re_lu max_pooling2d flat dense softmax")[:-1]
    nodes[0]["attrs"] |= {"layout": "kernel_first", "channels": "last"}
    nodes[2]["attrs"] |= {"channels": "last"}
    nodes[3]["attrs"] = {"kind": "view", "size": ["B", -1]}
    nodes[4]["attrs"] |= {"layout": "in_out"}
    full = old["fc1.weight"].reshape(10, 4, 3, 3).transpose(2, 3, 1, 0).reshape(36, 10)
    new = {
        "conv2d.weight": np.ascontiguousarray(old["conv1.weight"].transpose(2, 3, 1, 0)),
        "conv2d.bias": old["conv1.bias"],
        "dense.weight": np.ascontiguousarray(full),
        "dense.bias": old["fc1.bias"] + np.float32(0.5),
    }
    commit_model(repository, "keras", new, nodes, root=True, shape=[8, 8, 1])
    repository.close()
    canonical.fix_clock(datetime.datetime(2026, 6, 15, 12, tzinfo=datetime.UTC))
    return workspace


@pytest.mark.parametrize("mode", MODES)
def test_another_framework(dlv: Dlv, snapshot: Dlv, frameworks: Path, mode: str) -> None:
    arguments = ("diff", "torch", "keras", "--network", "--tensors")
    snapshot(dlv(*arguments, tty=mode == "tty", json=mode == "json"))


@pytest.mark.parametrize("form", ["md", "csv", "all"])
def test_another_framework_in_other_forms(
    dlv: Dlv, snapshot: Dlv, frameworks: Path, form: str
) -> None:
    snapshot(dlv("diff", "torch", "keras", "--network", "--tensors", f"--{form}", tty=True))


def test_another_framework_beside_another_version(
    dlv: Dlv, snapshot: Dlv, frameworks: Path
) -> None:
    arguments = ("diff", "torch", "torch", "keras", "--network", "--tensors")
    snapshot(dlv(*arguments, tty=True))


@pytest.mark.parametrize("mode", MODES)
def test_three_versions(dlv: Dlv, snapshot: Dlv, variants: Path, mode: str) -> None:
    snapshot(dlv("diff", "net@1", "deep", "wide", tty=mode == "tty", json=mode == "json"))


@pytest.mark.parametrize("form", ["md", "csv"])
@pytest.mark.parametrize("others", [["net@2"], ["deep", "wide"]], ids=["two", "three"])
def test_other_forms(dlv: Dlv, snapshot: Dlv, variants: Path, form: str, others: list[str]) -> None:
    snapshot(dlv("diff", "net@1", *others, f"--{form}", tty=True))


@pytest.mark.parametrize("mode", MODES)
def test_without_a_network(dlv: Dlv, snapshot: Dlv, variants: Path, mode: str) -> None:
    snapshot(dlv("diff", "net@1", "plain", tty=mode == "tty", json=mode == "json"))


@pytest.mark.parametrize("mode", [*MODES, "md", "csv"])
def test_from_some_planes(dlv: Dlv, snapshot: Dlv, variants: Path, mode: str) -> None:
    arguments = ["diff", "steps/100", "steps/200", "--tensors", "--planes", "2"]
    if mode in ("md", "csv"):
        arguments.append(f"--{mode}")
    snapshot(dlv(*arguments, tty=mode == "tty", json=mode == "json"))


def test_three_versions_from_some_planes(dlv: Dlv, snapshot: Dlv, variants: Path) -> None:
    snapshot(dlv("diff", "net@1", "net@2", "wide", "--tensors", "--planes", "3", tty=True))


def test_what_was_turned_is_read_whole(dlv: Dlv, frameworks: Path) -> None:
    arguments = ("diff", "torch", "keras", "--tensors")
    exact = dlv(*arguments, json=True).document["tensors"]
    found = dlv(*arguments, "--planes", "1", json=True).document["tensors"]
    turned = [row for row in found if row["turned"]]
    assert turned
    assert all(row in exact for row in turned)


def test_bounds_of_differences_hold_the_exact_ones(dlv: Dlv, variants: Path) -> None:
    for versions in (("net@1", "net@2"), ("steps/100", "steps/200")):
        exact = dlv("diff", *versions, json=True).document["tensors"]
        for planes in (1, 2, 3, 4):
            found = dlv("diff", *versions, "--planes", planes, json=True).document["tensors"]
            for row, known in zip(found, exact, strict=True):
                told = row.pop("approximation")
                if told["exact"]:
                    assert row == known
                    continue
                assert planes < 4
                assert row["l2"] is row["changed"] is row["max_abs"] is None
                assert row["status"] == known["status"]
                for name in ("changed", "l2", "relative_l2", "max_abs"):
                    low, high = told["bounds"][name] or (0, float("inf"))
                    assert low <= known[name] <= high
                assert told["bounds"]["changed"][0] >= 1  # the hashes are others
                assert 0 < told["bytes_read"] < told["bytes_whole"]


def test_a_wrong_number_of_planes(dlv: Dlv, variants: Path) -> None:
    assert dlv("diff", "net@1", "net@2", "--planes", "0").code == 2


def test_snapshots_with_nan(dlv: Dlv, snapshot: Dlv, variants: Path) -> None:
    snapshot(dlv("diff", "steps/100", "steps/200", tty=True))


def test_everything(dlv: Dlv, snapshot: Dlv, variants: Path) -> None:
    snapshot(dlv("diff", "net@2", "deep", "--all", tty=True))


def test_one_layer(dlv: Dlv, snapshot: Dlv, variants: Path) -> None:
    snapshot(dlv("diff", "net@1", "wide", "--layer", "conv*", tty=True))


@pytest.mark.parametrize("pattern", ["fc2", "con1"])
def test_unknown_layer(dlv: Dlv, snapshot: Dlv, variants: Path, pattern: str) -> None:
    result = dlv("diff", "net@1", "net@2", "--layer", pattern)
    assert result.code == 4
    snapshot(result)


def test_nothing_differs(dlv: Dlv, snapshot: Dlv, variants: Path) -> None:
    result = dlv("diff", "net@1", "net@1", "--exit-code", tty=True)
    assert result.code == 0
    snapshot(result)


def test_exit_codes(dlv: Dlv, variants: Path) -> None:
    assert dlv("diff", "net@1", "net@2").code == 0
    assert dlv("diff", "net@1", "net@2", "--exit-code").code == 1
    assert dlv("diff", "net@1", "net@2", "--exit-code", "--network").code == 0
    assert dlv("diff", "net@1", "net@2", "--exit-code", "--params", json=True).code == 1
    assert dlv("diff", "net@1", "net@2", "--format", "md", "--json").code == 2
    assert dlv("diff", "net@1", "nett").code == 4
    assert dlv("diff", "steps/100", "steps/300").code == 4


def test_csv_has_one_width(dlv: Dlv, variants: Path) -> None:
    rows = list(
        csv.reader(io.StringIO(dlv("diff", "net@1", "deep", "wide", "--format", "csv").stdout))
    )
    assert {len(row) for row in rows} == {6}
    assert rows[0] == ["section", "name", "what", "net@1", "deep@1", "wide@1"]
    assert ["network", "drop1", "layer", "", "DROPOUT p 0.3 after relu1", ""] in rows


def test_quiet_prints_nothing(dlv: Dlv, variants: Path) -> None:
    result = dlv("diff", "net@1", "net@2", "-q", "--exit-code")
    assert (result.code, result.stdout, result.stderr) == (1, "", "")
