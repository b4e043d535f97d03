"""A disk that stores another bit than it was given, once: noticed before anything relies on it.

The command ends with exit 8 and nothing has changed; or what was written did not matter.
SQLite's own files are left out: what it wrote it has in its own memory, and `dlv fsck --rebuild`
makes them again.
"""

from __future__ import annotations

import pytest

from tests.crash.conftest import Drive, Prepare, bad
from tests.crash.shim import SPOIL
from tests.crash.verbs import VERBS

pytestmark = pytest.mark.crash

WRONG = [(SPOIL, 0)]


@pytest.mark.parametrize(("name", "most"), [("commit", 12), ("archive", 8), ("export", 6)])
def test_some(prepare: Prepare, drive: Drive, name: str, most: int) -> None:
    verb = VERBS[name]
    template = prepare(name, *verb.before)
    results = drive(template, verb.command, WRONG, settings=verb.settings, most=most)
    assert not bad(results)
    spoiled = [result for result in results if result["failed"]]
    # What an archive tries out is looked at when it is used, and only left if it is wrong.
    assert sum(result["code"] == 8 for result in spoiled) >= 0.3 * len(spoiled) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_every_verb(prepare: Prepare, drive: Drive, name: str) -> None:
    verb = VERBS[name]
    template = prepare(name, *verb.before, release=verb.release)
    assert not bad(drive(template, verb.command, WRONG, settings=verb.settings, most=400))
