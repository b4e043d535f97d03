"""A commit that is repeated after a kill finds the version that was made before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import event_bytes

Dlv = Callable[..., Any]


def logs(folder: Path, points: int = 3) -> None:
    folder.mkdir(exist_ok=True)
    data = event_bytes.version()
    for step in range(points):
        data += event_bytes.scalar("loss", step, 1 / (1 + step))
    (folder / "events.out.tfevents.1.x").write_bytes(data)


GIVEN = {
    "--tb": ["--tb", "logs"],
    "--param": ["--param", "lr=0.1", "--param", "sizes=[1,2]"],
    "--log": ["--log", "log.csv"],
    "--metrics": ["--metrics-file", "final.json"],
    "all": ["--tb", "logs", "--param", "lr=0.1", "--log", "log.csv"],
}


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("parent", [[], ["--parent", "lenet@1"], ["--orphan"]])
def test_the_same_again(dlv: Dlv, filled: Path, kind: str, first: bool, parent: list[str]) -> None:
    """Whether something was staged with it, which is not any more, or not."""
    logs(filled / "logs")
    (filled / "log.csv").write_text("step,acc\n1,0.5\n2,0.75\n")
    (filled / "final.json").write_text('{"accuracy": 0.5}')
    if first:
        (filled / "notes.txt").write_text("new")
        assert dlv("add", "notes.txt").code == 0
    words = ["commit", "-m", "with curves", "--name", "fresh", *parent, *GIVEN[kind]]
    one = dlv(*words, json=True)
    assert one.code == 0, one.stderr
    again = dlv(*words, json=True)
    assert again.code == 0, again.stderr
    assert again.document["id"] == one.document["id"]
    assert "nothing committed" in again.stderr
    assert dlv("list").stdout.count("fresh@") == 1
    assert dlv("fsck").code == 0
    if first:  # it is asked for
        assert dlv(*words, "--allow-empty", json=True).document["id"] != one.document["id"]


def test_what_has_changed_is_another_version(dlv: Dlv, filled: Path) -> None:
    logs(filled / "logs")
    words = ["commit", "-m", "with curves", "--tb", "logs"]
    one = dlv(*words, json=True).document
    logs(filled / "logs", 4)
    two = dlv(*words, json=True).document
    assert two["number"] == one["number"] + 1
    three = dlv("commit", "-m", "other words", "--tb", "logs", json=True).document
    assert three["number"] == two["number"] + 1
    four = dlv(*words, "--param", "lr=0.1", json=True).document
    assert four["number"] == three["number"] + 1
