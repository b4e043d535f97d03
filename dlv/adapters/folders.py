"""Folders that hold a model in parts, or the whole state of a training: what each file is.

accelerate's `save_state` is known by its random states, a pipeline of diffusers by its index, the
output of a transformers Trainer by its state. Only names count here; nothing is opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

from dlv.dataclass import dataclass

PIPELINE = "model_index.json"  # diffusers
RANDOM_STATES = "random_states_0.pkl"  # accelerate, of its first process
_CONFIG = "config.json"
_OF_TRAINER = ("trainer_state.json", _CONFIG, "adapter_config.json")  # one is beside its state

_TRAINER = re.compile(r"training_args\.bin|scheduler\.pt|scaler\.pt|rng_state(?:_[0-9]+)?\.pth")
_ACCELERATE = re.compile(
    r"random_states_[0-9]+\.pkl|(?:scheduler|sampler|dl_state_dict)(?:_[0-9]+)?\.bin|scaler\.pt"
)
# What accelerate writes for the second model and so on, and for objects of the user.
_NUMBERED = re.compile(r"(?:model|pytorch_model|optimizer)_[0-9]+\.(?:safetensors|bin)")
_CUSTOM = re.compile(r"custom_checkpoint_[0-9]+\.pkl")


@dataclass(frozen=True)
class Place:
    """A file in such a folder; `root` is the folder's path, empty for the project's own."""

    root: str
    state: bool = False  # state of a training without weights: schedulers, random numbers
    custom: bool = False  # an object of the user; its tensors are not the model's
    prefix: str = ""  # before the names of its tensors, which other files there may use, too


def place_of(path: str, is_there: Callable[[str], bool]) -> Place | None:
    """Return what a file is in its folder; `is_there` tells which paths beside it exist."""
    here = PurePosixPath(path)
    name, folder = here.name, here.parent

    def has(root: PurePosixPath, marker: str) -> bool:
        return is_there((root / marker).as_posix())

    if folder.name and (
        has(folder.parent, PIPELINE) or (has(folder.parent, RANDOM_STATES) and has(folder, _CONFIG))
    ):
        return Place(_text(folder.parent), prefix=f"{folder.name}.")
    if has(folder, RANDOM_STATES):
        custom = _CUSTOM.fullmatch(name) is not None
        numbered = custom or _NUMBERED.fullmatch(name) is not None
        return Place(
            _text(folder),
            state=_ACCELERATE.fullmatch(name) is not None,
            custom=custom,
            prefix=f"{here.stem}." if numbered else "",
        )
    if _TRAINER.fullmatch(name) and any(has(folder, marker) for marker in _OF_TRAINER):
        return Place(_text(folder), state=True)
    return None


def _text(folder: PurePosixPath) -> str:
    return "" if folder == PurePosixPath() else folder.as_posix()
