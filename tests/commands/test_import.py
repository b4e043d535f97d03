"""`dlv import` as seen from outside."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import event_bytes

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]
FIXTURES = Path(__file__).parents[1] / "fixtures" / "mlflow"
# Which formats are known is no matter of this command.
FORMATS = {r"known: [a-z0-9_, ]+": "known: <formats>"}


def how(mode: str) -> dict[str, bool]:
    return {"tty": mode == "tty", "json": mode == "json"}


@pytest.fixture
def runs(dlv: Dlv, filled: Path) -> Path:
    """runs/ with the two checkpoints of lenet@1 and a text."""
    dlv("checkout", "lenet@1", "ckpt-100.safetensors", "ckpt-200.safetensors", "--to", "runs")
    (filled / "runs" / "notes.txt").write_text("notes\n")
    return filled


@pytest.mark.parametrize("mode", MODES)
def test_twice(dlv: Dlv, snapshot: Dlv, runs: Path, mode: str) -> None:
    given = ["import", "checkpoints", "runs", "--name", "old"]
    snapshot(dlv(*given, **how(mode)), "first", FORMATS)
    snapshot(dlv(*given, **how(mode)), "again", FORMATS)


def test_quiet_and_spellings_of_the_paper(dlv: Dlv, runs: Path) -> None:
    given = ["--model_name", "old", "--commit_msg", "Old runs", "-q"]
    result = dlv("import", "checkpoints", "runs/ckpt-100.safetensors", *given)
    assert len(result.stdout) == 65
    assert dlv("status", json=True).document["head"]["name"] == "lenet-wide"


@pytest.mark.parametrize("mode", ["pipe", "json"])
@pytest.mark.parametrize(
    ("name", "code", "args"),
    [
        ("no_source", 2, []),
        ("unknown_source", 2, ["checkpoint", "runs", "--name", "old"]),
        ("no_name", 2, ["checkpoints", "runs"]),
        ("no_files", 2, ["checkpoints", "--name", "old"]),
        ("no_weights", 2, ["checkpoints", "train.py", "--name", "old"]),
        ("bad_name", 2, ["checkpoints", "runs", "--name", "a@b"]),
        ("not_there", 4, ["checkpoints", "rusn", "--name", "old"]),
        ("a_file_at_once", 2, ["a.safetensors"]),
        ("a_store_at_once", 2, ["mlruns"]),
        ("two_stores", 2, ["mlflow", "mlruns", "runs"]),
        ("a_message", 2, ["mlflow", "mlruns", "-m", "text"]),
        ("no_store", 2, ["mlflow", "runs"]),
        ("runs_of_checkpoints", 2, ["checkpoints", "runs", "--name", "old", "--run", "x"]),
        ("no_experiment", 4, ["mlflow", "mlruns", "--experiment", "digit"]),
        ("no_steps", 5, ["checkpoints", "a.safetensors", "b.safetensors", "--name", "old"]),
        ("damaged", 6, ["checkpoints", "broken.safetensors", "--name", "old"]),
        ("a_pickle", 9, ["checkpoints", "evil.pt", "--name", "old"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors(
    dlv: Dlv, snapshot: Dlv, runs: Path, mode: str, name: str, code: int, args: list[str]
) -> None:
    for step, stem in ((100, "a"), (200, "b")):
        data = (runs / "runs" / f"ckpt-{step}.safetensors").read_bytes()
        (runs / f"{stem}.safetensors").write_bytes(data)
        (runs / "broken.safetensors").write_bytes(data[:-1])
    (runs / "evil.pt").write_bytes(b"\x80\x02.")
    shutil.copytree(FIXTURES / "files" / "mlruns", runs / "mlruns")
    result = dlv("import", *args, **how(mode))
    assert result.code == code
    snapshot(result, replace=FORMATS)


@pytest.mark.parametrize("mode", MODES)
def test_mlflow(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    given = ["import", "mlflow", FIXTURES / "database"]
    shown = {re.escape(str(FIXTURES)): "<fixtures>"}
    snapshot(dlv(*given, **how(mode)), "first", shown)
    snapshot(dlv(*given, **how(mode)), "again", shown)
    snapshot(dlv("list", "--name", "lenet", tty=mode == "tty"), "list")
    snapshot(dlv("desc", "Digits-CNN@1", **how(mode)), "desc")


def test_mlflow_quiet_and_chosen(dlv: Dlv, filled: Path) -> None:
    store = FIXTURES / "files" / "mlruns"
    given = ["--experiment", "Digits CNN", "--run", "baseline", "--name", "old"]
    assert len(dlv("import", "mlflow", store, *given, "-q").stdout) == 65
    assert dlv("import", "mlflow", store, *given, "-q").stdout == ""
    assert dlv("list", "--name", "old", json=True).document["versions"][0]["number"] == 1


def test_outside_a_repository(dlv: Dlv) -> None:
    assert dlv("import", "checkpoints", "a", "--name", "a").code == 3


@pytest.fixture
def logs(filled: Path) -> Path:
    """logs/ with a run, one inside it, and one in which nothing is."""
    for run, data in (
        ("a", event_bytes.version() + event_bytes.scalars("loss", range(4))),
        ("a/inner", event_bytes.scalars("loss", range(2)) + event_bytes.image("img", 1, b"x")),
        ("nothing", b""),
    ):
        (filled / "logs" / run).mkdir(parents=True)
        (filled / "logs" / run / "events.out.tfevents.1.host").write_bytes(data)
    return filled


@pytest.mark.parametrize("mode", MODES)
def test_tensorboard(dlv: Dlv, snapshot: Dlv, logs: Path, mode: str) -> None:
    given = ["import", "tensorboard", "logs"]
    stored = {r'(?<="stored": )[1-9][0-9]*': "<stored>"}
    snapshot(dlv(*given, **how(mode)), "first", stored)
    snapshot(dlv(*given, **how(mode)), "again")


@pytest.mark.parametrize(
    ("name", "code", "args"),
    [
        ("no_logs", 2, ["tensorboard", "runs"]),
        ("no_folder", 4, ["tensorboard", "lgos"]),
        ("of_mlflow", 2, ["tensorboard", "logs", "--run", "a"]),
        ("two_folders", 2, ["tensorboard", "logs", "runs"]),
        ("logs_at_once", 2, ["logs"]),
    ],
)
def test_errors_of_tensorboard(
    dlv: Dlv, snapshot: Dlv, logs: Path, name: str, code: int, args: list[str]
) -> None:
    (logs / "runs").mkdir()
    result = dlv("import", *args)
    assert result.code == code
    snapshot(result, name)
