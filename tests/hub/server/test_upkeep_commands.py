"""`dlv hub check`, `backup` and `restore` in a shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import dlv.cli as cli
from dlv.hub.records import object_key
from dlv.hub.server.hub import Hub
from dlv.hub.server.settings import Settings
from tests.hub.server.filling import Publisher

SCHEMAS = Path(cli.__file__).parent / "schemas"
Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command on the hub in `hub`; its exit code, and its document."""

    def command(*words: str, data: str = "hub") -> tuple[int, Any]:
        place = ["--data", data] if data else []
        code = cli.run(["-C", str(tmp_path), "--json", "hub", *words, *place])
        out = capsys.readouterr().out
        document = json.loads(out) if out else None
        if document is not None:
            name = document["schema"].split("/")[1]
            jsonschema.validate(document, json.loads((SCHEMAS / f"{name}.json").read_text()))
        return code, document

    return command


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Publish two versions; the file of one pack."""
    folder = tmp_path / "hub"
    folder.mkdir()
    settings = Settings(
        database=f"sqlite:///{folder / 'hub.db'}",
        store=str(folder / "objects"),
        data=folder,
        url="http://localhost",
    )
    hub = Hub(settings)
    publisher = Publisher(hub)
    publisher.publish("net")
    ref = publisher.publish("net")
    hub.close()
    return folder / "objects" / publisher.place.uuid / object_key("locators", ref.locator)


def test_a_backup_is_restored(run: Run, pack: Path) -> None:
    code, made = run("backup", "copies")
    assert code == 0
    assert made["copied"] == 6
    code, listed = run("backup", "copies", "--list", data="")
    assert [each["name"] for each in listed["backups"]] == [made["backups"][0]["name"]]
    code, done = run("restore", "copies", data="restored")
    assert code == 0
    assert (done["copied"], done["rows"]["ref"]) == (6, 2)
    code, report = run("check", "--full", data="restored")
    assert code == 0
    assert report["checked"]["versions"] == 2
    assert run("restore", "copies", data="restored")[0] == 5
    assert run("restore", "nothing", data="other")[0] == 4


def test_a_fault_is_exit_6(run: Run, pack: Path) -> None:
    pack.unlink()
    code, report = run("check")
    assert code == 6
    assert [fault["kind"] for fault in report["faults"]] == ["object"]
    code, made = run("backup", "copies")
    assert code == 6
    assert len(made["backups"][0]["damaged"]) == 1
    assert run("restore", "copies", data="restored")[0] == 6


def test_a_hub_that_does_not_exist(run: Run) -> None:
    assert run("check", data="nowhere")[0] == 4
    assert run("backup", "copies", data="nowhere")[0] == 4
