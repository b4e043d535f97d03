"""A program of the user's own as a trainer: started in the trial's folder, watched, stopped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from dlv.canonical import hash_bytes
from dlv.errors import NotFound
from dlv.training.checkpoints import Checkpoint, file_digest
from dlv.training.interface import Log, Readers, TrainFunction
from dlv.training.trial_files import Trial


def trainer(words: Sequence[str], readers: Readers, directory: Path) -> TrainFunction:
    """What runs the program for a slice."""

    def train(trial: Trial, steps: int, checkpoint: Checkpoint, log: Log) -> None:
        raise NotImplementedError(words, readers, directory)

    return train


def check(words: Sequence[str], directory: Path) -> None:
    """NotFound unless the program is there, and the file that it is given if that is a script."""
    command(words, directory)
    for word in words[1:2]:
        script = word.endswith((".py", ".sh", ".jl", ".R", ".js"))
        if script and not (directory / word).is_file():
            raise NotFound(
                f"there is no file {word}, which config.trainer names",
                why=f"looked for in {directory.absolute()}",
            )


def version(words: Sequence[str], directory: Path) -> str:
    """The hash of the files that the command names."""
    digests = [file_digest(directory / word) for word in words[1:] if (directory / word).is_file()]
    return hash_bytes(*(digest.encode() for digest in digests))


def command(words: Sequence[str], directory: Path) -> list[str]:
    """The words with absolute paths, as the program is not started where they were written."""
    program = words[0]
    found = shutil.which(str(directory / program) if os.sep in program else program)
    if found is None:
        raise NotFound(f"there is no program {program}, which config.trainer names")
    rest = [str((directory / w).absolute()) if (directory / w).is_file() else w for w in words[1:]]
    return [found, *rest]
