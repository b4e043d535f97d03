"""dlv.adapters.settings: three formats, one meaning; bombs and nonsense with their line."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.adapters.settings import flatten, read
from dlv.errors import Damaged, DlvError, UnsafeInput, UsageError


def load(folder: Path, name: str, content: str | bytes) -> dict[str, Any]:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read(str(path))


JSON = '{"name": "lenet", "train": {"lr": 1e-3, "epochs": 5, "ok": true, "steps": [1, 2]}}'
TOML = 'name = "lenet"\n[train]\nlr = 1e-3\nepochs = 5\nok = true\nsteps = [1, 2]\n'
YAML = "name: lenet\ntrain:\n  lr: 1.0e-3\n  epochs: 5\n  ok: true\n  steps: [1, 2]\n"
SAME = {"name": "lenet", "train": {"lr": 1e-3, "epochs": 5, "ok": True, "steps": [1, 2]}}


@pytest.mark.parametrize(("name", "text"), [("a.json", JSON), ("a.toml", TOML), ("a.yaml", YAML)])
def test_three_formats_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    assert load(tmp_path, name, text) == SAME
    assert load(tmp_path, name, b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()) == SAME


# What YAML 1.1 writes bare, since it is text there, and YAML 1.2 reads as a number.
_BARE = re.compile(r"[-+]?[0-9.]+[eE][-+]?[0-9]+")
TEXTS = st.text(max_size=9).filter(lambda text: not _BARE.fullmatch(text))
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)
TABLES = st.dictionaries(TEXTS, TREES, max_size=4)


@settings(max_examples=80, deadline=None)
@given(TABLES)
def test_json_round_trip(tmp_path_factory: pytest.TempPathFactory, table: dict[str, Any]) -> None:
    found = load(tmp_path_factory.mktemp("s"), "a.json", json.dumps(table))
    assert json.dumps(found) == json.dumps(table)


@settings(max_examples=80, deadline=None)
@given(TABLES)
def test_yaml_as_the_library_reads_it(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, Any]
) -> None:
    text = yaml.safe_dump(table, sort_keys=False)
    found = load(tmp_path_factory.mktemp("s"), "a.yaml", text)
    assert json.dumps(found) == json.dumps(table)


def test_dates_and_odd_keys_become_text(tmp_path: Path) -> None:
    assert load(tmp_path, "a.yaml", "d: 2024-01-31\nt: 2024-01-31 10:00:00\n2: a\ntrue: b\n") == {
        "d": "2024-01-31",
        "t": "2024-01-31T10:00:00",
        "2": "a",
        "true": "b",
    }
    assert load(tmp_path, "a.toml", "d = 2024-01-31\nt = 10:00:00\n") == {
        "d": "2024-01-31",
        "t": "10:00:00",
    }


def test_aliases_and_merges(tmp_path: Path) -> None:
    text = "base: &b {lr: 1, bs: 2}\nrun: {<<: *b, lr: 3}\nlist: [*b, *b]\n"
    found = load(tmp_path, "a.yaml", text)
    assert found["run"] == {"lr": 3, "bs": 2}
    assert found["list"] == [{"lr": 1, "bs": 2}] * 2


def test_dots_that_make_no_depth(tmp_path: Path) -> None:
    dots = ".".join("abcdefghijklmnopqrstuvwxyz")
    found = load(tmp_path, "a.toml", f'"{dots}" = "{dots}"\n[a.b]\nx."{dots}" = "{dots} = 1"\n')
    assert found == {dots: dots, "a": {"b": {"x": {dots: f"{dots} = 1"}}}}


def test_numbers_of_yaml_1_2(tmp_path: Path) -> None:
    text = (
        "a: 1e-3\nb: 5E4\nc: -2.e+1\nd: .5e1\ne: [3e-4, '3e-4', 3e-4x, 1e, e5, 0x1e5, 123e4567]\n"
    )
    assert load(tmp_path, "a.yaml", text) == {
        "a": 0.001,
        "b": 50000.0,
        "c": -20.0,
        "d": 5.0,
        "e": [0.0003, "3e-4", "3e-4x", "1e", "e5", 0x1E5, "123e4567"],
    }
    assert yaml.safe_load("a: 1e-3") == {"a": "1e-3"}  # the library itself stays as it is


def test_empty_yaml(tmp_path: Path) -> None:
    assert load(tmp_path, "a.yaml", "# nothing\n") == {}


def test_flatten() -> None:
    assert flatten(
        {
            "a": {"b": {"c": 1}, "d": [1, "x", float("nan"), {"k": float("inf")}]},
            "e": float("-inf"),
            "f": float("nan"),
            "g": {},
            "h": None,
            "i": True,
            "j": 0.5,
            "k": [],
        }
    ) == {
        "a.b.c": 1,
        "a.d": '[1,"x","NaN",{"k":"Infinity"}]',
        "e": "-Infinity",
        "f": "NaN",
        "g": "{}",
        "h": None,
        "i": True,
        "j": 0.5,
        "k": "[]",
    }
    with pytest.raises(UsageError, match=r"a\.b"):
        flatten({"a.b": 1, "a": {"b": 2}})


@given(TABLES)
def test_flatten_keeps_every_leaf(table: dict[str, Any]) -> None:
    def leaves(value: Any) -> int:
        if isinstance(value, dict) and value:
            return sum(leaves(item) for item in value.values())
        return 1

    try:
        flat = flatten(table)
    except UsageError:
        return
    assert len(flat) == (leaves(table) if table else 0)
    assert all(value is None or isinstance(value, (str, int, float)) for value in flat.values())
    json.dumps(flat, allow_nan=False)


LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
WRONG: dict[str, tuple[str, str | bytes, type[DlvError], str]] = {
    "toml syntax": ("a.toml", "a = 1\nb = = 2\n", Damaged, "a.toml, line 2"),
    "toml cut": ("a.toml", "a = [1,\n2", Damaged, "a.toml, line 2"),
    "toml twice": ("a.toml", "a = 1\na = 2\n", Damaged, "a.toml, line 2"),
    "toml deep": ("a.toml", "a = " + "[" * 5000 + "]" * 5000, UnsafeInput, "deep"),
    "toml deep key": ("a.toml", ".".join("a" * 5000) + " = 1", UnsafeInput, "deep"),
    "toml large": ("a.toml", "a = 1\n" * (1 << 20), UnsafeInput, "too large"),
    "toml digits": ("a.toml", "a = " + "9" * 9999, Damaged, "a.toml"),
    "toml range": ("a.toml", "a = 99999999999999999999", Damaged, "out of range"),
    "json syntax": ("a.json", '{"a": 1,\n "b": }', Damaged, "a.json, line 2"),
    "json cut": ("a.json", '{"a": "x', Damaged, "a.json, line 1"),
    "json twice": ("a.json", '{"a": {"b": 1, "b": 2}}', Damaged, "'b' twice"),
    "json deep": ("a.json", '{"a":\n' + "[" * 99999, UnsafeInput, "line 2, is nested"),
    "json wide": ("a.json", '{"a": [' + "[]," * 300_000 + "1]}", UnsafeInput, "too large"),
    "json large": ("a.json", '{"a": "' + "x" * (16 << 20) + '"}', UnsafeInput, "too large"),
    "json digits": ("a.json", '{"a": ' + "9" * 9999 + "}", Damaged, "a.json"),
    "json range": ("a.json", '{"a": {"b": 99999999999999999999}}', Damaged, r"at a\.b"),
    "json surrogate": ("a.json", '{"a": "\\ud800"}', Damaged, "half a character"),
    "json list": ("a.json", "[1]", Damaged, "table"),
    "not utf-8": ("a.json", b'{"a":\n "\xff"}', Damaged, "a.json, line 2"),
    "yaml syntax": ("a.yaml", "a: 1\nb: [1\nc: 2\n", Damaged, "a.yaml, line 3"),
    "yaml laughs": ("a.yaml", LAUGHS, UnsafeInput, "a.yaml, line [0-9]+, is too large"),
    "yaml cycle": ("a.yaml", "a: &a [*a]\n", UnsafeInput, "line 1: a contains itself"),
    "yaml deep": ("a.yaml", "a: " + "[" * 900 + "]" * 900, UnsafeInput, "nested too deeply"),
    "yaml object": (
        "a.yaml",
        "a: 1\nb: !!python/object/apply:os.system [id]\n",
        UnsafeInput,
        "line 2",
    ),
    "yaml tag": ("a.yaml", "a: !custom x\n", UnsafeInput, "line 1"),
    "yaml twice": ("a.yaml", "a: 1\nb: 2\na: 3\n", Damaged, "line 3"),
    "yaml equal keys": ("a.yaml", "1: 1\ntrue: 2\n", Damaged, "line 2"),
    "yaml date": ("a.yaml", "a: 1\nb: 2024-99-99\n", Damaged, "line 2"),
    "yaml int": ("a.yaml", "a: !!int hello\n", Damaged, "line 1"),
    "yaml binary": ("a.yaml", "a: !!binary aGk=\n", Damaged, "at a: a value of an unusual type"),
    "yaml two documents": ("a.yaml", "a: 1\n---\nb: 2\n", Damaged, "a.yaml, line"),
    "yaml hex": ("a.yaml", "a: 0x" + "f" * 9999, Damaged, "out of range"),
    "yaml key list": ("a.yaml", "? [a, b]\n: 1\n", DlvError, "a.yaml"),
    "yaml alias unknown": ("a.yaml", "a: *b\n", Damaged, "line 1"),
    "yaml list": ("a.yaml", "- 1\n", Damaged, "table"),
    "yaml NUL": ("a.yml", "a: \0\n", DlvError, "a.yml"),
    "yaml control": ("a.yml", "b: 2\na: \x7f\n", Damaged, "a.yml, line"),
    "csv": ("a.csv", "a,b\n1,2\n", UsageError, "not a settings file"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refuses(tmp_path: Path, case: str) -> None:
    name, content, kind, words = WRONG[case]
    begin = time.monotonic()
    with pytest.raises(kind, match=words):
        load(tmp_path, name, content)
    assert time.monotonic() - begin < 15


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("ab:-[]{}&*!|>'\"#%@?,<=. \n\t01~\\"), max_size=40), st.data())
def test_any_text(tmp_path_factory: pytest.TempPathFactory, text: str, data: st.DataObject) -> None:
    suffix = data.draw(st.sampled_from(["yaml", "toml", "json"]))
    try:
        found = load(tmp_path_factory.mktemp("s"), f"a.{suffix}", text)
    except DlvError as error:
        assert "a." in error.message  # noqa: PT017 (an error is one of two good ends)
    else:
        json.dumps(found)


SOLVER = """
# The train/test net
net: "lenet_train_test.prototxt"
test_iter: 100
base_lr: 0.01
momentum: 0.9  # of SGD
weight_decay: 0.0005
lr_policy: "multistep"
stepvalue: 5000
stepvalue: 7000
snapshot_prefix: "lenet" "_x"
solver_mode: GPU
test_initialization: false
train_state { stage: "a" level: 2 }
net_param { layer { name: "x" type: "ReLU" bottom: "a" top: "b" } }
"""


def test_solvers_of_caffe(tmp_path: Path) -> None:
    path = tmp_path / "solver.prototxt"
    path.write_text(SOLVER, encoding="utf-8")
    assert flatten(read(str(path))) == {
        "net": "lenet_train_test.prototxt",
        "test_iter": 100,
        "base_lr": 0.01,
        "momentum": 0.9,
        "weight_decay": 0.0005,
        "lr_policy": "multistep",
        "stepvalue": "[5000,7000]",
        "snapshot_prefix": "lenet_x",
        "solver_mode": "GPU",
        "test_initialization": False,
        "train_state.stage": "a",
        "train_state.level": 2,
    }


@pytest.mark.parametrize("text", ["base_lr: ", "base_lr: 0.1 }", "a {" * 40, "a: 'x"])
def test_broken_solvers(tmp_path: Path, text: str) -> None:
    path = tmp_path / "solver"
    path.write_text(text, encoding="utf-8")
    with pytest.raises((Damaged, UnsafeInput), match="solver"):
        read(str(path), "caffe_solver")
