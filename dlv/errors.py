"""Errors a user can act on: what happened, why, what to type next, and the exit code."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import NamedTuple


class Spot(NamedTuple):
    """One thing wrong in a text that somebody typed: a line of it, and a mark under the place."""

    message: str
    line: str
    mark: str
    hint: str | None = None
    did_you_mean: Sequence[str] = ()


# Commands that hints name, and what does the same in Python.
_IN_PYTHON = (
    (r"dlv init\b", "dlv.open(PATH, create=True)"),
    (r"dlv list --names", "repo.names"),
    (r"dlv list (\S+)", r'[version for version in repo if version.name == "\1"]'),
    (r"dlv show (\S+)", r'repo["\1"].steps'),
    (r"dlv desc (\S+)", r'repo["\1"].tensors'),
    (r"dlv metrics (\S+)", r'repo["\1"].metrics'),
    (r"dlv eval (\S+) (\S+)", r'repo["\1"].evaluate("\2")'),
)


class DlvError(Exception):
    """Any failure that is shown to the user as text rather than as a traceback."""

    exit_code = 70
    kind = "internal"
    spots: Sequence[Spot] = ()  # shown instead of message, why and hint

    def __init__(
        self,
        message: str,
        *,
        why: str | None = None,
        hint: str | None = None,
        did_you_mean: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.why = why
        self.hint = hint
        self.did_you_mean = list(did_you_mean)
        self._added: list[str] = []

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        """What Python shows below the message of an error that nobody catches."""
        meant = f"did you mean {' or '.join(map(repr, self.did_you_mean))}?"
        hint = self.hint
        for command, call in _IN_PYTHON:
            hint = hint and re.sub(command, call, hint)
        told = (self.why, meant if self.did_you_mean else None, hint)
        return [each for each in told if each] + self._added

    def add_note(self, note: str) -> None:
        self._added.append(note)

    def as_json(self) -> dict[str, object]:
        return {
            "error": {
                "code": self.exit_code,
                "kind": self.kind,
                "message": self.message,
                "why": self.why,
                "hint": self.hint,
                "did_you_mean": self.did_you_mean,
            }
        }


class UsageError(DlvError):
    exit_code = 2
    kind = "usage"


class NotARepository(DlvError):
    exit_code = 3
    kind = "not a repository"


class NewerFormat(DlvError):
    """An object names a format, id or kind that this dlv does not know."""

    exit_code = 3
    kind = "newer format"


class NotFound(DlvError):
    exit_code = 4
    kind = "not found"


class Conflict(DlvError):
    exit_code = 5
    kind = "conflict"


class Damaged(DlvError):
    """Bytes that are not what their hash, header or format promises."""

    exit_code = 6
    kind = "damage"


class RemoteError(DlvError):
    exit_code = 7
    kind = "remote"


class StorageError(DlvError):
    """The file system refused: disk full, permissions, a read or write error."""

    exit_code = 8
    kind = "io"


class UnsafeInput(DlvError):
    exit_code = 9
    kind = "unsafe"


def denied(path: str | os.PathLike[str]) -> tuple[str, str] | None:
    """(why, hint) where a file may not be used by this user: whose it is, and who can change it."""
    place = os.path.abspath(path)
    while not os.path.lexists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    try:
        status = os.stat(place)
    except OSError:
        return None
    name = str(status.st_uid)
    with contextlib.suppress(ImportError, KeyError, AttributeError):
        name = importlib.import_module("pwd").getpwuid(status.st_uid).pw_name
    why = f"permission denied: {place} is owned by {name} with mode {status.st_mode & 0o777:03o}"
    if status.st_uid == os.getuid():
        return why, f"chmod u+rwX {place}"
    if ".dlv" in place.split(os.sep):
        root = place.split(f"{os.sep}.dlv")[0]
        return why, f"{name} can share the repository: dlv init --shared group {root}"
    return why, f"{name} can allow it: chmod go+rX {place}"


def nearest(word: str, candidates: Iterable[str], *, most: int = 3) -> list[str]:
    """The candidates a person who typed `word` probably meant, best first."""
    # difflib costs more to import than most commands take, and is needed only on errors.
    difflib = importlib.import_module("difflib")
    folded: dict[str, str] = {}
    for candidate in candidates:
        folded.setdefault(candidate.lower(), candidate)
    # In a short word, one wrong letter is a large share.
    cutoff = 0.7 if len(word) > 4 else 0.6
    close: list[str] = difflib.get_close_matches(word.lower(), list(folded), n=most, cutoff=cutoff)
    return [folded[name] for name in close]


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which pip line brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"this needs the package `{module.partition('.')[0]}`",
            why=str(error),
            hint=f"pip install 'dlv[{extra}]'",
        ) from error
