"""What configurations and `--set` say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dlv.errors import UnsafeInput, UsageError
from dlv.evaluation.asked import read_settings, value


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("1,8,8", [1, 8, 8]),
        ("[1, 8]", [1, 8]),
        ("false", False),
        ("1/255", "1/255"),
        ("a,b", ["a", "b"]),
        ("x", "x"),
        ('"3"', "3"),
        ("", ""),
    ],
)
def test_values(text: str, meant: Any) -> None:
    assert value(text) == meant


@pytest.mark.parametrize("form", ["toml", "json"])
def test_a_file_and_what_changes_it(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"c.{form}"
    if form == "toml":
        path.write_text('lr = 1\nbatch_size = 5\n[data]\nscale = 2.0\nlabels = "t"\n')
    else:
        path.write_text('{"lr": 1, "batch_size": 5, "data": {"scale": 2.0, "labels": "t"}}')
    found = read_settings(str(path), ["data.scale=3", "data.inputs.ids=k", "top_k=2"])
    assert (found.batch, found.top_k, found.data.scale) == (5, 2, 3.0)
    assert (found.data.labels, found.data.inputs) == ("t", {"ids": "k"})
    assert found.precision is found.engine is found.input_data is None


@pytest.mark.parametrize(
    "settings",
    [
        ["lr=3"],
        ["data.nothing=3"],
        ["top_k"],
        ["=3"],
        ["batch_size=0"],
        ["batch_size=x"],
        ["precision=float16"],
        ["engine=jax"],
        ["input_data=3"],
        ["data.scale.x=3"],
    ],
)
def test_refused(settings: list[str]) -> None:
    with pytest.raises(UsageError):
        read_settings(None, settings)


def test_files_name_no_code(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('input_data = "python:os:getcwd"\n')
    with pytest.raises(UnsafeInput):
        read_settings(str(path), [])
    path.write_text("data = 3\n")
    with pytest.raises(UsageError, match="no table"):
        read_settings(str(path), [])
    assert read_settings(None, ["input_data=python:os:getcwd"]).input_data == "python:os:getcwd"
