"""NaN and infinities in queries, from a commit to what is printed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import dlv.api as api
import dlv.cli as cli

NAN, INF = math.nan, math.inf
LOSSES: dict[str, list[float] | None] = {
    "f": None,  # first: it has no parent to take a series from
    "a": [0.5],
    "b": [0.25, 0.75],
    "c": [0.125, NAN],
    "d": [NAN, NAN],
    "e": [INF],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("nan")
    with api.open(made, create=True) as repo:
        for name, losses in LOSSES.items():
            series = {} if losses is None else {"loss": list(enumerate(losses))}
            family = "x" if name in "acf" else "y"
            repo.commit(name, name=name, metrics=series, parameters={"family": family})
    return made


def names(folder: Path, text: str) -> str:
    with api.open(folder) as repo:
        return "".join(row[0].name for row in repo.query(text))


BEST = (
    "not exists (select n where n.family = m.family and n != m and"
    ' (n["loss"] < m["loss"] or n["loss"] is not null and m["loss"] is null))'
)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ('m["loss"] is nan', "cd"),
        ('m["loss"] is null', "f"),
        ('m["loss"] is not null', "abcde"),
        ('m["loss"] is not nan', "abef"),
        ('m["loss"] < 1', "ab"),
        ('not m["loss"] < 1', "cde"),
        ('m["loss"] > 0.1', "abe"),
        ('m["loss"] = m["loss"]', "abe"),
        ('m["loss"] != m["loss"]', "cd"),
        ('m["loss"] between 0 and 1', "ab"),
        ('m["loss"] not in [0.5]', "bcde"),
        ('m["loss"].min is nan', "d"),
        ('m["loss"].max > 1e300', "e"),
        ('m["loss"].min.step is null', "df"),
        ('m["loss"].at(1) is nan', "cd"),
        ('m["loss"] - m["loss"] is nan', "cde"),
        ('m["loss"] in (select n["loss"] where n["loss"] is nan)', ""),
        (f'{BEST} and m["loss"] is not nan', "ab"),
    ],
)
def test_conditions(folder: Path, condition: str, found: str) -> None:
    assert names(folder, f"select m from m where {condition} order by m.name") == found


def test_order(folder: Path) -> None:
    assert names(folder, 'select m order by m["loss"], m.name') == "abecdf"
    assert names(folder, 'select m order by m["loss"] desc, m.name') == "ebacdf"
    assert names(folder, 'select m order by m["loss"] desc nulls first, m.name') == "febacd"


def test_groups(folder: Path) -> None:
    with api.open(folder) as repo:
        text = 'count(m["loss"]), min(m["loss"]), max(m["loss"]), sum(m["loss"])'
        (row,) = repo.query(f"select {text} from m")
        assert repr(list(row)) == "[5, 0.5, inf, nan]"
        rows = repo.query('select m["loss"], count(*) from m group by m["loss"]')
        assert repr([list(each) for each in rows]) == (
            "[[0.5, 1], [0.75, 1], [inf, 1], [nan, 2], [None, 1]]"
        )


def test_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'select m.name, m["loss"] as loss from m where m.name in ("d", "e", "f") order by m.name'
    said = {}
    for how in ("table", "csv", "json", "jsonl"):
        assert cli.run(["-C", str(folder), "query", text, "--format", how]) == 0
        said[how] = capsys.readouterr().out
    assert said["csv"].split()[1:] == ["d,NaN", "e,Infinity", "f,"]
    assert '"NaN"' in said["jsonl"]
    assert '"Infinity"' in said["jsonl"]
    assert "NaN" in said["table"]
    assert '"NaN"' in json.dumps(json.loads(said["json"]))


def test_best_and_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for where, found in (("loss=nan", "dc"), ("loss!=nan", "eba"), ("loss<1", "ba")):
        assert cli.run(["-C", str(folder), "list", "--where", where, "-q"]) == 0
        assert len(capsys.readouterr().out.split()) == len(found), where
    assert cli.run(["-C", str(folder), "show", "d@best:loss"]) == 4
    assert "NaN" in capsys.readouterr().err
