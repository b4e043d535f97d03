"""What the words of `tensorboard` name: versions, or one folder of logs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

import dlv.repository.revisions as revisions
from dlv.curves.board import Board, DirectoryBoard, Tell, VersionsBoard
from dlv.errors import DlvError, NotARepository, NotFound, UsageError, nearest
from dlv.events.provider.provider import CAP
from dlv.repository.handle import Repository


def board_of(
    words: Sequence[str],
    directory: Path,
    find: Callable[[], Repository],
    *,
    cap: int = CAP,
    restarts: str | None = None,
    tell: Tell,
) -> Board:
    """What `words` name: references of versions, or one folder; none: all versions."""
    try:
        repository: Repository | None = find()
        missing: DlvError | None = None
    except DlvError as error:
        repository, missing = None, error
    folders = [word for word in words if _is_folder(repository, directory, word)]
    if folders:
        if len(words) > 1:
            raise UsageError(
                "a folder of logs is shown alone",
                why=f"`{folders[0]}` is a folder, and {len(words) - 1} more were named",
                hint="logs of several runs lie in folders below the one that is named",
            )
        return DirectoryBoard(
            directory / folders[0], repository, cap=cap, restarts=restarts, tell=tell
        )
    if repository is None:
        assert missing is not None
        if words and isinstance(missing, NotARepository):
            missing = _no_folder(directory, words[0])
            missing.why = "outside of a repository only folders of logs can be shown"
        raise missing
    for word in words:
        try:
            revisions.whole(repository.database, word)
        except (NotFound, UsageError) as error:
            if "/" in word and Path(directory, word).parent.is_dir():
                raise _no_folder(directory, word) from error
            meant = _meant(directory, word)
            error.hint = meant["hint"] or error.hint
            error.did_you_mean = [*error.did_you_mean, *meant["did_you_mean"]]
            raise
    return VersionsBoard(repository, words, cap=cap, restarts=restarts, tell=tell)


class _Meant(TypedDict):
    hint: str | None
    did_you_mean: list[str]


def _no_folder(directory: Path, word: str) -> NotFound:
    return NotFound(f"there is no folder `{word}`", **_meant(directory, word))


def _meant(directory: Path, word: str) -> _Meant:
    """The folder that somebody may have thought of."""
    path = Path(directory, word)
    if path.is_file():
        folder = os.path.relpath(path.parent, directory)
        hint = f"the folder of the logs is named: dlv tensorboard {folder}"
        return {"hint": hint, "did_you_mean": []}
    try:
        folders = [entry.name for entry in os.scandir(path.parent) if entry.is_dir()]
    except OSError:
        folders = []
    return {"hint": None, "did_you_mean": nearest(path.name, folders)}


def _is_folder(repository: Repository | None, directory: Path, word: str) -> bool:
    """What is both, a version and a folder, is the version; `./lenet` is always a folder."""
    if not (directory / word).is_dir():
        return False
    if repository is None or word.startswith((".", "/", "~")) or word.endswith("/"):
        return True
    try:
        revisions.whole(repository.database, word)
    except DlvError:
        return True
    return False
