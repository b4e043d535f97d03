"""The power is cut behind any call: what the disk may hold then is a repository that works.

After each image the same must hold as after kill -9: fsck is clean, what was acknowledged is
there, the same command works at once, and a lost catalogue is rebuilt to the same versions.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash.conftest import Drive, Prepare, bad
from tests.crash.verbs import VERBS

pytestmark = pytest.mark.crash

COMMANDS = (
    *("commit", "archive", "archive again", "gc", "derive", "bounds", "import"),
    *("tag", "rm", "undo", "rebuild", "older", "restore", "restore, then gc"),
    *("checkout", "checkout elsewhere", "copy", "copy edited", "export", "eval to files", "plots"),
    *("plan", "config"),
)
# Which command shows what only a power cut can.
FAULTS = [
    ("commit", "files_not_synced"),
    ("commit", "folders_not_synced"),
    ("commit", "new_folders_not_synced"),
    ("commit", "git_not_synced"),
    ("tag", "catalogue_not_synced"),
    ("checkout elsewhere", "files_not_synced"),
    ("checkout elsewhere", "folders_not_synced"),
]


def _run(prepare: Prepare, drive: Drive, name: str, images: int, **more: Any) -> list[Any]:
    verb = VERBS[name]
    template = prepare(name, *verb.before, release=verb.release)
    return drive(template, verb.command, [], settings=verb.settings, images=images, **more)


@pytest.mark.parametrize(
    ("name", "images"), [("commit", 8), ("archive", 6), ("gc", 6), ("checkout", 4)]
)
def test_some_images(prepare: Prepare, drive: Drive, name: str, images: int) -> None:
    results = _run(prepare, drive, name, images)
    assert not bad(results)
    assert {result.get("model") for result in results[1:]} == {"journal", "posix"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("name", COMMANDS)
def test_many_images(prepare: Prepare, drive: Drive, name: str, seed: int) -> None:
    results = _run(prepare, drive, name, 125, part=seed)
    assert not bad(results)
    assert len(results) == 126


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        pytest.param(*each, marks=[pytest.mark.slow] * (place > 0))
        for place, each in enumerate(FAULTS)
    ],
)
def test_sees(prepare: Prepare, drive: Drive, name: str, fault: str) -> None:
    results = _run(prepare, drive, name, 400, bug=fault)
    assert bad(results), f"{len(results)} images, and no one shows {fault}"
