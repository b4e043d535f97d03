"""`dlv query`: rows, networks, saved queries, plans; on a terminal, in a pipe, as JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]
SEVERAL = (
    'select m.name, m.lr, m["loss"].min as best, m["loss"].min.step, m.creation_time, m["*"],'
    " m.tag, m.message, m.parents, m.id order by best"
)
WORSE = 'select a, b, b["loss"] - a["loss"] as gain where b child_of a'


def how(mode: str) -> dict[str, bool]:
    return {"tty": mode == "tty", "json": mode == "json"}


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("mode", MODES)
class TestRows:
    def test_versions(self, dlv: Dlv, snapshot: Dlv, mode: str) -> None:
        snapshot(dlv("query", "select m", **how(mode)))

    def test_values(self, dlv: Dlv, snapshot: Dlv, mode: str) -> None:
        dlv("tag", "good", "lenet@2")
        snapshot(dlv("query", SEVERAL, **how(mode)))

    def test_two_versions(self, dlv: Dlv, snapshot: Dlv, mode: str) -> None:
        snapshot(dlv("query", WORSE, **how(mode)))

    def test_nothing(self, dlv: Dlv, snapshot: Dlv, mode: str) -> None:
        words = 'select m where m.name = "lenet" and m.lr > 1 and m["conv1"].next has RELU'
        snapshot(dlv("query", words, **how(mode)))

    def test_several_statements(self, dlv: Dlv, snapshot: Dlv, mode: str) -> None:
        words = 'define good as select m where m.lr < $most; select m.id from m in "good"'
        snapshot(dlv("query", words, "-P", "most=0.05", **how(mode)))


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("mode", MODES)
class TestNetworks:
    def test_slice(self, dlv: Dlv, snapshot: Dlv, mode: str) -> None:
        words = (
            'slice s from m where m.name = "lenet-wide"'
            ' mutate s.input = m["conv1"] and s.output = m["fc"]'
        )
        result = dlv("query", words, **how(mode))
        assert result.code == 0, result.stderr
        snapshot(result)

    def test_construct(self, dlv: Dlv, snapshot: Dlv, mode: str) -> None:
        words = (
            'construct d from m where m.name like "lenet%" and m["conv*($1)"].next has RELU'
            ' mutate m["conv*($1)"].out in [4, 8] and m["conv*($1)"].insert = NORM("BATCH", "bn$1")'
        )
        snapshot(dlv("query", words, **how(mode)))

    def test_into(self, dlv: Dlv, snapshot: Dlv, mode: str) -> None:
        words = 'construct d from m where m = "lenet@2" mutate m["conv1"].out = 8 into "lenet-8"'
        snapshot(dlv("query", words, "--dry-run", **how(mode)), "dry run")
        assert "lenet-8" not in dlv("list", "--names").stdout
        snapshot(dlv("query", words, **how(mode)), "done")
        assert dlv("desc", "lenet-8@1", json=True).document["version"]["parents"][0]["label"]


@pytest.mark.parametrize("mode", MODES)
def test_saved_queries(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    dlv("query", 'define "two words" as select m\n  where m.lr < 0.05')
    dlv("query", "define good as select m where m.lr < $most")
    snapshot(dlv("query", "--list", **how(mode)), "list")
    snapshot(dlv("query", "--show", "two words", **how(mode)), "show")
    snapshot(dlv("query", "--forget", "two words", **how(mode)), "forget")
    snapshot(dlv("undo", "--list", **how(mode)), "undo")
    dlv("undo")
    assert dlv("query", "--show", "two words").stdout == "select m\n  where m.lr < 0.05\n"
    dlv("fsck", "--rebuild")
    assert dlv("query", "--list", "-q").stdout == "good\ntwo words\n"


def test_a_saved_query_by_its_name(dlv: Dlv, filled: Path) -> None:
    dlv("query", "define good as select m.id where m.lr < $most")
    first = dlv("query", "good", "-P", "most=0.05", "-q").stdout
    assert first == dlv("query", "select m.id where m.lr < 0.05", "-q").stdout
    assert len(first.split()) == 2


@pytest.mark.usefixtures("filled")
class TestForms:
    def test_ids(self, dlv: Dlv) -> None:
        ids = [v["id"] for v in dlv("list", json=True).document["versions"]]
        assert dlv("query", "select m", "-q").stdout.split() == ids
        assert dlv("query", "select m", "--format", "ids").stdout.split() == ids
        found = dlv("query", "select m.name, m", "-q").stdout.split()
        assert found == ids
        assert dlv("query", "select distinct m.name", "-q").stdout.split() == [
            "lenet",
            "lenet-wide",
        ]

    def test_csv(self, dlv: Dlv) -> None:
        text = dlv("query", 'select m, m.lr, m["*"], m.message', "--format", "csv").stdout
        rows = list(csv.reader(io.StringIO(text)))
        assert rows[0] == ["m", "m.lr", 'm["*"]', "m.message"]
        assert rows[1][0] == "lenet-wide@1"
        assert rows[1][2] == "conv1,relu1,flatten,fc,prob"
        assert len(rows) == 4
        assert text == dlv("query", 'select m, m.lr, m["*"], m.message', "--format", "csv").stdout
        head = dlv("query", "select m", "--format", "csv").stdout.splitlines()[0]
        assert head == "version,id,age,parents,message"

    def test_jsonl(self, dlv: Dlv) -> None:
        lines = dlv("query", "select m, m.lr", "--format", "jsonl").stdout.splitlines()
        whole = dlv("query", "select m, m.lr", "--format", "json").document
        assert [json.loads(line) for line in lines] == whole["rows"]
        assert whole == dlv("query", "select m, m.lr", json=True).document

    def test_columns_that_are_called_alike(self, dlv: Dlv) -> None:
        document = dlv("query", "select m.lr, m.lr limit 1", json=True).document
        assert [column["name"] for column in document["columns"]] == ["m.lr", "m.lr_2"]
        assert list(document["rows"][0]) == ["m.lr", "m.lr_2"]

    def test_many_rows(self, dlv: Dlv) -> None:
        words = "select a, b, c, d, e, f from a, b, c, d, e, f"
        assert len(dlv("query", words, "--format", "jsonl").stdout.splitlines()) == 3**6

    def test_from_a_file_and_from_stdin(self, dlv: Dlv) -> None:
        text = "\ufeff# all\nselect m\n"
        Path("q.dql").write_text(text, encoding="utf-8")
        whole = dlv("query", "select m").stdout
        assert dlv("query", "--file", "q.dql").stdout == whole
        assert dlv("query", "-", stdin="select m").stdout == whole
        assert dlv("query", "--file", "-", stdin="select m").stdout == whole

    def test_exit_code(self, dlv: Dlv) -> None:
        assert dlv("query", "select m", "--exit-code").code == 0
        result = dlv("query", "select m where m.lr > 1", "--exit-code")
        assert (result.code, result.stdout) == (1, "")
        assert dlv("query", "select m where m.lr > 1").code == 0
        assert dlv("query", "select m where m.lr > 1", "--exit-code", json=True).code == 1


@pytest.mark.parametrize("mode", ["pipe", "tty", "json"])
def test_explain(dlv: Dlv, filled: Path, mode: str) -> None:
    words = 'select m where m.name like "len%" and m["conv1"].next has RELU'
    plain = dlv("query", f"explain {words}", **how(mode))
    assert plain.code == 0, plain.stderr
    asked = dlv("query", words, "--explain", **how(mode))
    # Tables that are made for one answer have numbers of their own.
    assert re.sub("[0-9]+", "N", plain.stdout) == re.sub("[0-9]+", "N", asked.stdout)
    if mode == "json":
        assert plain.document["kind"] == "plan"
    else:
        assert "len" in plain.stdout


REFUSED: dict[str, tuple[list[str], int]] = {
    "keyword misspelt": (['select m where m["conv1"].next hsa POOL("MAX")'], 2),
    "two lines": (["select m\nwhere m.lr > 1 andd m.lr < 2"], 2),
    "stops early": (["select m where"], 2),
    "nothing changed in it": ([" # nothing\n"], 2),
    "unknown names": (['select m where m.lrr > 1 and m["los"].min < 1 or m = "lenet@1"'], 2),
    "unknown version": (['select m where m derived_from "lent@1"'], 4),
    "unknown saved query": (['select m from m in "god"'], 4),
    "parameter without value": (["select m where m.lr < $most"], 2),
    "not a parameter": (["select m", "-P", "most"], 2),
    "without quotes": (["select", "m"], 2),
    "no text": ([], 2),
    "no such file": (["--file", "nowhere.dql"], 4),
    "text and file": (["select m", "--file", "x"], 2),
    "two formats": (["select m", "-q", "--format", "jsonl"], 2),
    "no such format": (["select m", "--format", "yaml"], 2),
    "list and text": (["--list", "select m"], 2),
    "show what is not there": (["--show", "god"], 4),
    "defined already": (["define good as select m where m.lr > 1"], 5),
    "contains itself": (['define good as select m from m in "good"', "--force"], 2),
    "nothing matches": (['construct d from m mutate m["cnv1"].delete'], 4),
    "trials": (['evaluate m from m where m.name = "lenet" keep top(1, m["loss"])'], 2),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mode", ["pipe", "json"])
def test_refused(dlv: Dlv, snapshot: Dlv, filled: Path, name: str, mode: str) -> None:
    dlv("query", "define good as select m")
    words, code = REFUSED[name]
    result = dlv("query", *words, json=mode == "json")
    assert (result.code, result.stdout) == (code, "")
    snapshot(result)


def test_places_of_faults_in_json(dlv: Dlv, filled: Path) -> None:
    text = "select m\nwhere m.lr > 1 andd m.lr < 2"
    error = json.loads(dlv("query", text, json=True).stderr)["error"]
    assert (error["line"], error["column"], error["length"]) == (2, 16, 4)
    assert "and" in error["expected"]
    assert error["did_you_mean"] == ["and"]


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_a_long_query_is_cut_around_its_fault(
    dlv: Dlv, filled: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    words = "select m where " + " and ".join(["m.lr < 0.1"] * 20) + " adn m.lr > 1"
    message, line, mark, hint = dlv("query", words, tty=True).stderr.splitlines()
    assert max(map(len, (line, re.sub("\x1b.*?m", "", mark)))) <= int(columns)
    shown = re.sub("\x1b.*?m", "", mark)
    assert line[shown.index("^") :][:3] == "adn"
    assert "did you mean `and`?" in hint
    assert message


def test_outside_a_repository(dlv: Dlv, workspace: Path) -> None:
    assert dlv("query", "select m").code == 3
    assert dlv("query", "--list").code == 3


def test_names_cannot_act_on_the_terminal(dlv: Dlv, filled: Path) -> None:
    dlv("commit", "-m", "\x1b[2Jgone", "--allow-empty", "--param", 'k="\x1b[1m"')
    result = dlv("query", "select m.message, m.k limit 1", tty=True)
    assert "\x1b[2J" not in result.stdout
    assert "\\x1b[2Jgone" in result.stdout
    assert "\x1b[1mx" not in dlv("query", 'select m where m.name = "\x1b[1mx', tty=True).stderr


def test_in_an_empty_repository(dlv: Dlv, workspace: Path) -> None:
    dlv("init")
    result = dlv("query", "select m")
    assert (result.code, result.stdout, result.stderr) == (0, "", "no versions yet\n")


@pytest.mark.usefixtures("filled")
class TestPrompt:
    def test_typed_at_a_terminal(self, dlv_pty: Dlv) -> None:
        pytest.importorskip("prompt_toolkit")
        keys = "select m.name where\rm.lr < 0.05;\rselect m wher\r\rexit\r"
        result = dlv_pty("query", stdin=keys)
        assert result.code == 0
        assert "lenet-wide" in result.stdout
        assert "did you mean `where`?" in result.stdout
        history = Path("../home/.local/state/dlv/query-history")
        assert "m.lr < 0.05" in history.read_text()

    def test_not_without_a_terminal(self, dlv: Dlv) -> None:
        result = dlv("query", stdin="select m")
        assert result.code == 2
        assert "no query" in result.stderr
