"""`dlv commit` as seen from outside."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlv.metadata import metrics, versions
from dlv.metadata.metrics import Summary
from dlv.objects.manifest import Manifest
from dlv.repository.handle import Repository
from tests import event_bytes

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


# What a commit takes on disk depends on the compressor's version.
STORED = {
    r"(?<=\t5960\t)[0-9]+": "<stored>",
    r'(?<="stored": )[1-9][0-9]*': "<stored>",
    r"(?<=6.0 kB -> )[0-9.]+ kB": "<stored>",
}


def how(mode: str) -> dict[str, bool]:
    return {"tty": mode == "tty", "json": mode == "json"}


@pytest.fixture
def project(dlv: Dlv, workspace: Path, filled_once: Path) -> Path:
    """A repository without a version, with a model's files staged."""
    for name in ("ckpt-200.safetensors", "config.json", "train.py", "network.json", "log.csv"):
        (workspace / name).write_bytes((filled_once / name).read_bytes())
    dlv("init")
    assert dlv("add", ".").code == 0
    return workspace


@pytest.mark.parametrize("mode", MODES)
def test_first_and_second(dlv: Dlv, snapshot: Dlv, project: Path, mode: str) -> None:
    snapshot(dlv("commit", "-m", "First", "--name", "lenet", **how(mode)), "first", STORED)
    (project / "config.json").write_text('{"lr": 0.5}')
    dlv("add", "config.json")
    snapshot(dlv("commit", "-m", "Second", **how(mode)), "second")
    snapshot(dlv("commit", "-m", "Third", "--allow-empty", **how(mode)), "third")


def test_quiet(dlv: Dlv, project: Path) -> None:
    result = dlv("commit", "-q", "-m", "First", "--name", "lenet")
    assert len(result.stdout) == 65


def test_spellings_of_the_paper(dlv: Dlv, project: Path) -> None:
    result = dlv("commit", "--commit_msg", "First", "--model_name", "lenet", json=True)
    assert result.document["name"] == "lenet"


def head(workspace: Path) -> tuple[Manifest, dict[str, Summary]]:
    """The manifest of HEAD and its metrics by name."""
    with Repository.find(workspace) as repository:
        found = versions.by_id(repository.database, repository.head or "")
        assert found is not None
        summaries = metrics.of_version(repository.database, found.key)
        return repository.manifest(found.id), {s.name: s for s in summaries}


class TestMetrics:
    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("final.json", '{"accuracy": 0.97, "test": {"f1": 0.5}, "loss": NaN}'),
            ("final.toml", "accuracy = 0.97\nloss = nan\n[test]\nf1 = 0.5\n"),
            ("final.yaml", "accuracy: 0.97\nloss: .nan\ntest:\n  f1: 0.5\n"),
        ],
    )
    def test_single_values(self, dlv: Dlv, project: Path, name: str, text: str) -> None:
        dlv("add", "--remove", "log.csv")
        (project / name).write_text(text)
        result = dlv("commit", "-m", "First", "--name", "lenet", "--metrics-file", name)
        assert result.code == 0, result.stderr
        _, found = head(project)
        assert sorted(found) == ["accuracy", "loss", "test.f1"]
        assert (found["accuracy"].last, found["accuracy"].n) == (0.97, 1)
        assert (str(found["loss"].last), found["loss"].nonfinite) == ("nan", 1)

    def test_a_clash_with_the_log(self, dlv: Dlv, project: Path) -> None:
        (project / "final.json").write_text('{"accuracy": 0.97, "f1": 0.5}')
        dlv("commit", "-m", "First", "--name", "lenet", "--metrics-file", "final.json")
        _, found = head(project)
        assert sorted(found) == ["accuracy", "f1", "final/accuracy", "loss"]
        assert (found["accuracy"].n, found["final/accuracy"].n) == (40, 1)

    def test_a_log_that_is_not_staged(self, dlv: Dlv, project: Path) -> None:
        (project / "eval.csv").write_text("batch,f1\n10,0.1\n20,0.2\n")
        given = ["--log", "eval.csv", "--log-step", "batch"]
        dlv("commit", "-m", "First", "--name", "lenet", *given)
        manifest, found = head(project)
        assert sorted(found) == ["eval/f1", "log/accuracy", "log/loss"]
        assert found["eval/f1"].last_step == 20
        assert "eval.csv" not in [entry.path for entry in manifest.files]

    def test_more_metrics_keep_the_curves(self, dlv: Dlv, project: Path) -> None:
        dlv("commit", "-m", "First", "--name", "lenet")
        (project / "final.json").write_text('{"f1": 0.5}')
        assert dlv("commit", "-m", "Evaluated", "--metrics-file", "final.json").code == 0
        assert sorted(head(project)[1]) == ["accuracy", "f1", "loss"]

    def test_texts_are_left_out(self, dlv: Dlv, snapshot: Dlv, project: Path) -> None:
        (project / "final.json").write_text('{"f1": 0.5, "data": "digits", "ok": true}')
        snapshot(
            dlv("commit", "-m", "First", "--name", "lenet", "--metrics-file", "final.json"),
            "",
            STORED,
        )


def test_parameters(dlv: Dlv, project: Path) -> None:
    given = ["lr=0.5", "name=plain text", "on=true", "none=null", "empty=", "eq=a=b", "a.b=1"]
    given += ["list=[1, 2]", 'deep={"x": {"y": 1}}', "big=99999999999999999999", "nan=NaN"]
    words = [word for item in given for word in ("--param", item)]
    result = dlv("commit", "-m", "First", "--name", "lenet", *words)
    assert result.code == 0, result.stderr
    found = head(project)[0].hyperparameters
    expected = {"lr": 0.5, "name": "plain text", "on": True, "none": None, "empty": "", "a.b": 1}
    expected |= {"eq": "a=b", "list": "[1,2]", "deep.x.y": 1, "big": "99999999999999999999"}
    assert expected | {"nan": "NaN"} == {k: v for k, v in found.items() if k != "optimizer.name"}


def test_parents(dlv: Dlv, filled: Path) -> None:
    dlv("add", "train.py")
    given = ["--parent", "lenet@1", "--parent", "lenet-wide"]
    document = dlv("commit", "-m", "Merged", *given, json=True).document
    assert (document["name"], document["number"]) == ("lenet", 3)
    with Repository.find(filled) as repository:
        known = [versions.by_number(repository.database, n, 1) for n in ("lenet", "lenet-wide")]
        assert document["parents"] == [v.id for v in known if v is not None]


@pytest.mark.parametrize("mode", ["pipe", "json"])
@pytest.mark.parametrize(
    ("name", "code", "args"),
    [
        ("no_message", 2, []),
        ("empty_message", 2, ["-m", " "]),
        ("no_name", 2, ["-m", "First"]),
        ("bad_name", 2, ["-m", "First", "--name", "a/b"]),
        ("bad_param", 2, ["-m", "First", "--name", "a", "--param", "lr"]),
        ("unknown_parent", 4, ["-m", "First", "--name", "a", "--parent", "lenet"]),
        ("no_metrics_file", 4, ["-m", "First", "--name", "a", "--metrics-file", "final.json"]),
        ("no_metrics", 2, ["-m", "First", "--name", "a", "--metrics-file", "texts.json"]),
        ("no_log", 2, ["-m", "First", "--name", "a", "--log", "train.py"]),
        ("changed", 5, ["-m", "First", "--name", "a"]),
        ("gone", 5, ["-m", "First", "--name", "a"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors(
    dlv: Dlv, snapshot: Dlv, project: Path, mode: str, name: str, code: int, args: list[str]
) -> None:
    (project / "texts.json").write_text('{"name": "x"}')
    if name == "changed":
        (project / "config.json").write_text("{}")
    if name == "gone":
        (project / "config.json").unlink()
    result = dlv("commit", *args, **how(mode))
    assert result.code == code
    snapshot(result)
    assert dlv("status", json=True).document["head"] is None


def test_nothing_staged(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    result = dlv("commit", "-m", "Nothing")
    assert result.code == 2
    snapshot(result)


@pytest.mark.parametrize(("first", "second"), [("weights", "file"), ("file", "weights")])
def test_a_path_may_change_its_role(dlv: Dlv, filled: Path, first: str, second: str) -> None:
    for role in (first, second):
        dlv("add", "--as", role, "ckpt-200.safetensors")
        assert dlv("commit", "-m", role).code == 0
        manifest, _ = head(filled)
        containers = [c.path for s in manifest.snapshots for c in s.containers]
        files = [entry.path for entry in manifest.files]
        assert ("ckpt-200.safetensors" in containers) is (role == "weights")
        assert ("ckpt-200.safetensors" in files) is (role == "file")


def test_a_name_that_is_a_tag(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    with Repository.find(filled) as repository, repository.change("tag") as change:
        change.record("tag", "final", {"version": repository.head})
    dlv("add", "train.py")
    result = dlv("commit", "-m", "Again", "--name", "final")
    assert result.code == 5
    snapshot(result)


def test_outside_a_repository(dlv: Dlv) -> None:
    assert dlv("commit", "-m", "First").code == 3


def test_a_matrix_damaged_since(dlv: Dlv, filled: Path) -> None:
    """What a commit relies on is looked at again; damage there is not built upon."""
    for pack in (filled / ".dlv" / "packs").rglob("*.pack"):
        data = bytearray(pack.read_bytes())
        data[8:40] = bytes(32)
        pack.write_bytes(data)
    dlv("add", "ckpt-200.safetensors")
    assert dlv("commit", "-m", "Again").code == 6


def test_curves_of_tensorboard(dlv: Dlv, project: Path) -> None:
    for run in ("", "val"):
        (project / "tb" / run).mkdir(exist_ok=True, parents=True)
        log = project / "tb" / run / "events.out.tfevents.1.host"
        log.write_bytes(event_bytes.version() + event_bytes.scalars("bce", range(4)))
    result = dlv("commit", "-m", "First", "--name", "lenet", "--tb", "tb")
    assert result.code == 0, result.stderr
    manifest, found = head(project)
    assert {name: found[name].last for name in ("bce", "val/bce")} == {"bce": 1.5, "val/bce": 1.5}
    assert {(s.run, s.tag) for s in manifest.series} >= {("", "bce"), ("val", "bce")}
    missing = dlv("commit", "-m", "Second", "--tb", "nowhere")
    assert (missing.code, "no such directory:" in missing.stderr) == (4, True)


@pytest.mark.parametrize(
    "text", ["Smaller rate\n\nBecause it jumped.\n# not this\n", "# nothing\n"]
)
def test_a_message_from_the_editor(
    dlv: Dlv, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    editor = tmp_path / "editor.sh"
    editor.write_text(f'#!/bin/sh\nprintf {shlex.quote(text)} > "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    (filled / "notes.txt").write_text("notes\n")
    dlv("add", "notes.txt")
    result = dlv("commit", tty=True)
    if text.startswith("#"):
        assert (result.code, "commit message required" in result.stderr) == (2, True)
    else:
        message = dlv("show", "HEAD", json=True).document["version"]["message"]
        assert message == "Smaller rate\n\nBecause it jumped."


def test_the_editor_stays_closed_without_a_repository(
    dlv: Dlv, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", f"touch {workspace / 'ran'};")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert dlv("commit", tty=True).code == 3
    assert not (workspace / "ran").exists()


def test_all_that_is_tracked(dlv: Dlv, filled: Path) -> None:
    (filled / "train.py").write_text("print('other')\n")
    (filled / "untracked.txt").write_text("no\n")
    result = dlv("commit", "-a", "-m", "Other script")
    assert result.code == 0, result.stderr
    assert result.stderr == "+0 ~1 -0 files; parent lenet-wide@1\n"
