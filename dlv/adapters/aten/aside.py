"""FILE.py:FACTORY in a process of its own: whatever the user's code does, it does it there."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dlv.disk.children as children
from dlv.adapters import exported
from dlv.adapters.aten import factory
from dlv.adapters.checkpoint import Checkpoint
from dlv.canonical import read_json
from dlv.errors import DlvError, NotFound, StorageError, UnsafeInput, UsageError

_INTERRUPTED = 130
_MOST_ERROR = 64 << 10
_MOST_TEXT = 2000
_KINDS = {kind.kind: kind for kind in (UsageError, NotFound, StorageError, UnsafeInput)}


def network_of(file_and_name: str, shapes: Sequence[str], result: Path) -> Checkpoint:
    """The network of the model that the factory makes, which its process leaves in `result`.

    What the process says goes to stderr. Its result is read as any file from outside, and how
    it ends is told in one error. The caller closes what comes back.
    """
    path, name = factory.place(file_and_name)
    arguments = (str(result.absolute()), f"{path}:{name}", *shapes)
    command = children.python("dlv.adapters.aten.child", *arguments)
    try:
        # Ctrl-C reaches both processes; should this one be first, it ends the other.
        done = children.run(command, stdout=_stderr())
    except OSError as error:
        raise StorageError("cannot start Python", why=error.strerror) from error
    if done.returncode in (_INTERRUPTED, -signal.SIGINT):
        raise KeyboardInterrupt
    size = _size(result)
    if done.returncode or not size:
        raise _reported_error(result) or UsageError(
            f"{name} in {path.name} ended its process {_ending(done.returncode)}",
            why="the model was to be handed back, not the process ended",
            hint="what it said is above; dlv looks at the model that is returned",
        )
    return exported.open(str(result))


def _stderr() -> int:
    """Where the process prints, as stdout is for dlv's own results."""
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2


def _size(result: Path) -> int:
    """Bytes of what the process left, if that is a file."""
    try:
        found = result.lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _reported_error(result: Path) -> DlvError | None:
    """The error that the process left instead of a network."""
    if not 0 < _size(result) <= _MOST_ERROR:
        return None
    try:
        found = read_json(result.read_bytes(), "result")
        said: dict[str, Any] = found["error"]
        why, hint, close = said["why"], said["hint"], said["did_you_mean"]
        return _KINDS.get(said["kind"], UsageError)(
            str(said["message"])[:_MOST_TEXT],
            why=None if why is None else str(why)[:_MOST_TEXT],
            hint=None if hint is None else str(hint)[:_MOST_TEXT],
            did_you_mean=[str(each)[:_MOST_TEXT] for each in close[:3]],
        )
    except (DlvError, OSError, LookupError, TypeError):
        return None


def _ending(code: int) -> str:
    if code >= 0:
        return f"with exit status {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
