"""`dlv query 'evaluate ..'`: what would be, what came of it, what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dlv.training.workers import pool
from tests.commands.conftest import SCHEMAS
from tests.dql import trying

Dlv = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]
MODES = ["pipe", "tty", "json"]
TEXT = (
    'evaluate m from m where m = "lenet@2" with config = "base.toml"'
    " vary config.base_lr in [0.1, 0.3] and config.seed in 0..1"
)


def how(mode: str) -> dict[str, bool]:
    return {"tty": mode == "tty", "json": mode == "json"}


@pytest.fixture
def tried(filled: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The filled repository, with a trainer that needs no process of its own."""
    (filled / "own_trainer.py").write_text(trying.TRAINER)
    (filled / "base.toml").write_text(trying.CONFIG)
    monkeypatch.setattr(pool, "train", trying.in_process)
    return filled


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("mode", MODES)
class TestBefore:
    def test_explained(self, dlv: Dlv, snapshot: Dlv, mode: str) -> None:
        words = f'explain {TEXT} keep top(1, m["loss"], 5) budget(hours = 2) into "tuned"'
        snapshot(dlv("query", words, **how(mode)))

    def test_tried_only(self, dlv: Dlv, mode: str) -> None:
        result = dlv("query", TEXT, "--dry-run", **how(mode))
        assert result.code == 0
        assert "1 network x 4 configurations" not in result.stdout
        assert "nothing" in result.stderr or mode == "json"
        if mode == "json":
            assert result.document["planned"] is True
            assert result.document["state"] is None
            plan = {"finished": 0, "to_train": 4, "waiting": 0, "steps": 80}
            assert result.document["plan"] == plan
            assert [t["state"] for t in result.document["trials"]] == ["ready"] * 4
            assert [t["begin"] for t in result.document["trials"]] == [0] * 4
        else:
            assert result.stdout.count("to train") == 4

    def test_tried_only_when_it_is_finished(self, dlv: Dlv, mode: str) -> None:
        words = f'{TEXT} keep top(1, m["loss"], 5) into "tuned"'
        assert dlv("query", words).code == 0
        result = dlv("query", words, "--dry-run", **how(mode))
        assert result.code == 0
        if mode == "json":
            document = result.document
            assert document["state"] == "over"
            plan = {"finished": 4, "to_train": 0, "waiting": 0, "steps": 0}
            assert (document["plan"], document["planned"]) == (plan, True)
            assert [t["state"] for t in document["trials"]] == ["done"] + ["stopped"] * 3
            assert document["trials"][0]["version"] == "tuned@1"
            assert {t["begin"] for t in document["trials"]} == {None}
            return
        assert "to train" not in result.stdout
        assert (result.stdout.count("done"), result.stdout.count("stopped")) == (1, 3)
        assert "nothing was trained (--dry-run)" in result.stderr
        assert "the query would train nothing: all 4 trials are finished" in result.stderr


REFUSED = {
    "no file": (TEXT.replace("base.toml", "bass.toml"), 4),
    "no budget": (f"{TEXT} and config.x in 1..500", 9),
    "no such data": (TEXT.replace('"base.toml"', '"base.toml", config.input_data = "x.npz"'), 4),
    "all fail": (TEXT.replace('"base.toml"', '"base.toml", config.fault = "raise"'), 4),
}


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("name", REFUSED)
def test_refused(dlv: Dlv, name: str) -> None:
    words, code = REFUSED[name]
    for mode in ("pipe", "json"):
        result = dlv("query", words, **how(mode))
        assert result.code == code, result.stderr
        assert result.stdout == ""


def test_the_table(dlv: Dlv, tried: Path) -> None:
    words = f'{TEXT} keep top(2, m["loss"], 5) into "tuned"'
    table = dlv("query", words, tty=True)
    heads = re.sub(r"\x1b\[[0-9;]*m", "", table.stdout).splitlines()[0].split()
    assert heads[:5] == ["rank", "#", "version", "model", "base_lr"]
    assert "4 trials, <= 80 steps" in table.stderr
    assert "2 versions of tuned committed" in table.stderr
    document = dlv("query", words, json=True).document
    assert (document["kind"], document["metric"], document["direction"]) == (
        "trials",
        "loss",
        "min",
    )
    assert [trial["version"] for trial in document["trials"]] == ["tuned@1", "tuned@2", None, None]
    assert [trial["verdict"] for trial in document["trials"]] == ["kept"] * 2 + ["stopped"] * 2
    ids = dlv("query", words, "-q").stdout.split()
    assert ids[2:] == [trial["id"] for trial in document["trials"][2:]]
    assert ids[0] == dlv("desc", "tuned@1", json=True).document["version"]["id"]
    lines = dlv("query", words, "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [t["id"] for t in document["trials"]]
    assert dlv("query", words, "--format", "csv").stdout.startswith(
        "rank,#,version,model,base_lr,seed,"
    )


def test_some_fail(dlv: Dlv, tried: Path) -> None:
    words = f'{TEXT} and config.fault in ["none", "raise"]'
    result = dlv("query", words)
    assert result.code == 0
    assert re.search(r"4 trials failed; for the reasons: dlv trials [0-9a-f]{7}", result.stderr)
    assert result.stdout.count("failed") == 4


def test_fresh_asks(dlv: Dlv, tried: Path) -> None:
    assert dlv("query", TEXT).code == 0
    refused = dlv("query", TEXT, "--fresh")
    assert refused.code == 9
    assert "-y" in refused.stderr
    assert dlv("query", TEXT, "--fresh", "-y").code == 0
    assert len((tried / "steps.txt").read_text().splitlines()) == 160


def test_code_out_of_a_version_needs_trust(dlv: Dlv, tried: Path) -> None:
    dlv("add", "--as", "file", "base.toml")
    dlv("commit", "-m", "with a configuration", "--name", "coded", "--allow-empty")
    words = TEXT.replace('"base.toml"', '"coded@1:base.toml"')
    refused = dlv("query", words)
    assert refused.code == 9, refused.stderr
    assert "--trust" in refused.stderr
    assert dlv("query", words, "--trust").code == 0


def test_from_python(tried: Path) -> None:
    code = """
        import dlv, dlv.training.workers.pool as pool, tests.dql.trying as trying
        pool.train = trying.in_process
        with dlv.open(".") as repo:
            found = repo.query(text + ' keep top(1, m["loss"]) into "tuned"')
            assert found.columns[:4] == ["rank", "network", "base_lr", "seed"]
            assert [trial.kept for trial in found.trials] == [True, False, False, False]
            assert found.trials[0].version.manifest.hyperparameters["base_lr"] == 0.3
            assert found[0][-1].row.label == "tuned@1"
            assert found[0][2] == 0.3 and found.trials[0].metrics["accuracy"] > 0.5
    """
    text = "\n".join(line[8:] for line in code.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", f"text = {TEXT!r}\n{text}"],
        cwd=tried,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tried)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_events_go_to_stderr_and_stdout_holds_the_one_result(filled: Path) -> None:
    """With workers that are processes."""
    (filled / "own_trainer.py").write_text(trying.TRAINER)
    (filled / "base.toml").write_text(trying.CONFIG)
    words = f'{TEXT} keep top(1, m["loss"], 5) on local(workers = 1)'
    done = subprocess.run(
        [sys.executable, "-m", "dlv", "query", "--json", words],
        cwd=filled,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(filled)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    events, last = list(map(json.loads, done.stderr.splitlines())), json.loads(done.stdout)
    assert {event["event"] for event in events} >= {"trial"}
    jsonschema.validate(last, json.loads((SCHEMAS / "query.json").read_text()))
    assert [trial["step"] for trial in last["trials"]] == [20, 5, 5, 5]
