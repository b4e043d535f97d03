"""`--format`, `--json`, `-q` and `--header` mean the same in every command that prints a table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]
TABLES = {
    "list": ["list"],
    "tag": ["tag"],
    "metrics": ["metrics", "lenet@1"],
    "stats": ["stats"],
    "undo": ["undo", "--list"],
    "config": ["config"],
    "rm": ["rm", "lenet-wide", "--dry-run"],
}


@pytest.fixture(autouse=True)
def tagged(dlv: Dlv, filled: Path) -> None:
    dlv("tag", "good", "lenet@1")
    dlv("tag", "fine", "lenet@2")


@pytest.mark.parametrize("name", TABLES)
def test_the_same_rows_in_every_format(dlv: Dlv, name: str) -> None:
    words = TABLES[name]
    plain = dlv(*words, "--header")
    assert plain.code == 0, plain.stderr
    titles, *rows = [line.split("\t") for line in plain.stdout.splitlines()]
    printed = list(csv.reader(io.StringIO(dlv(*words, "--format", "csv").stdout)))
    assert printed[0] == titles
    same = [row for row in rows if len(row) == len(titles)]
    assert [len(row) for row in printed[1:]] == [len(titles)] * (len(printed) - 1)
    assert len(printed) - 1 <= len(same) + 1
    marked = dlv(*words, "--format", "md").stdout.splitlines()
    assert marked[0].startswith("| ")
    assert set(marked[1]) <= set("|-: ")
    assert len(marked[0].split(" | ")) == len(titles)


@pytest.mark.parametrize("name", TABLES)
def test_json_and_quiet_are_short_for_formats(dlv: Dlv, name: str) -> None:
    words = TABLES[name]
    assert dlv(*words, "--json").stdout == dlv(*words, "--format", "json").stdout
    assert dlv(*words, "-q").stdout == dlv(*words, "--format", "ids").stdout
    lines = dlv(*words, "--format", "jsonl").stdout.splitlines()
    assert lines
    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_two_formats_are_refused(dlv: Dlv) -> None:
    result = dlv("list", "--json", "--format", "csv")
    assert result.code == 2
    assert "cannot be combined" in result.stderr
