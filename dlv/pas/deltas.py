"""Deltas: a matrix against a base matrix. Only null, the matrix itself, is written yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from dlv.errors import NewerFormat

Raw = bytes | bytearray | memoryview
Config = Mapping[str, Any]


class Delta(Protocol):
    """Turns planes of differences against a base back into planes of the matrix."""

    base: str  # hash of the base matrix

    def get_config(self) -> dict[str, Any]: ...

    def undo(self, planes: Sequence[Raw], base: Sequence[Raw]) -> list[Raw]: ...


# id -> delta made from a config. `null` is no entry: such an encoding has no delta.
DELTAS: dict[str, Callable[[Config], Delta]] = {}


def delta_of(config: Config | None) -> Delta | None:
    """The delta that a config names; None where the matrix is stored as it is."""
    if config is None:
        return None
    made = DELTAS.get(str(config.get("id")))
    if made is None:
        raise NewerFormat(
            f"unknown delta {dict(config)!r}", hint="install the version of dlv that wrote it"
        )
    return made(config)


def base_of(config: Config | None) -> str | None:
    """The base matrix that a delta config names, whether or not its id is known."""
    base = None if config is None else config.get("base")
    return base if isinstance(base, str) else None
