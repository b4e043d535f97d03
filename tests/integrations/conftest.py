"""A repository to record into, and the ways in which recording can fail."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dlv.api as api
from dlv.repository.handle import Repository
from dlv.runs import Spool


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a repository."""
    for name in ("RANK", "DLV_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Repository.init(tmp_path)[0].close()
    return tmp_path


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The warnings so far."""
    caplog.set_level(logging.INFO, "dlv")
    return lambda: [
        r.getMessage() for r in caplog.records if r.name == "dlv" and r.levelno >= logging.WARNING
    ]


def _full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


FAILURES = ("no repository", "full disk", "locked", "damaged", "everything")


@pytest.fixture(params=FAILURES)
def failing(
    request: pytest.FixtureRequest, project: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Nothing can be recorded, or what was recorded cannot be committed: the word to expect."""
    monkeypatch.setattr(api, "SECONDS", 0.1)
    if request.param == "no repository":
        (project / "elsewhere").mkdir()
        monkeypatch.chdir(project / "elsewhere")
        (project / ".dlv").rename(project / "moved")
        yield "not a dlv repository"
    elif request.param == "full disk":
        monkeypatch.setattr(Spool, "save", _full)
        monkeypatch.setattr(Spool, "note", _full)
        yield "No space left"
    elif request.param == "locked":
        descriptor = os.open(project / ".dlv" / "gc.lock", os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield "another dlv process"
        os.close(descriptor)
    elif request.param == "damaged":
        (project / ".dlv" / "dlv.db").write_bytes(b"no database" * 100)
        yield "dlv.db"
    else:
        monkeypatch.setattr(api, "open", _full)
        yield "No space left"
