"""One flipped bit, then gc: no acknowledged version is hidden without a word, none is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.flips import KINDS, Flips


@pytest.fixture(scope="module")
def flips(lived_once: Path, fast: Path, commit_model: Callable[..., str]) -> Flips:
    home = fast / "flips"
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_CACHE_HOME", str(home))
        return Flips(lived_once, home, commit_model)


@pytest.mark.parametrize("kind", KINDS)
def test_some(flips: Flips, kind: str) -> None:
    wrong = list(flips.run(kind, {"log": 4, "database": 4}.get(kind, 1)))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many(flips: Flips, kind: str) -> None:
    wrong = list(flips.run(kind, {"log": 1500, "database": 1500}.get(kind, 250), seed=1))
    assert not wrong, "\n".join(wrong)
