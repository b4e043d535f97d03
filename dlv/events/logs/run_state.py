"""What is known of a run between two windows, two readings, or two of its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlv.canonical import float_of, number

_RESTARTS_ARE_MARKED = 2  # from this version on a file says where a restart is


@dataclass(slots=True, eq=False)
class Series:
    """How the values of a tag are taken: as its first metadata says."""

    tag: str
    plugin: str
    data_class: int
    given: bool  # the writer named the class itself, nothing is converted
    # No point that is not hidden has a greater step.
    latest: int | None = None


class RunState:
    """JSON in, JSON out; nothing in it depends on where the files were cut into windows."""

    def __init__(self, state: Mapping[str, Any] | None) -> None:
        state = state or {}
        self.wall = None if state.get("wall") is None else float_of(state["wall"])
        self.version: float = float_of(state.get("version", 0.0))
        self.started = bool(state.get("started", False))
        self.step = int(state.get("step", -1))  # of the latest summary
        self.series: dict[str, Series] = {
            tag: Series(tag, *row) for tag, row in state.get("series", {}).items()
        }
        self.told: set[tuple[str, str]] = {(tag, kind) for tag, kind in state.get("told", ())}

    @property
    def marks_restarts(self) -> bool:
        return bool(self.version >= _RESTARTS_ARE_MARKED)

    def as_json(self) -> dict[str, Any]:
        return {
            "wall": None if self.wall is None else number(self.wall),
            "version": number(self.version),
            "started": self.started,
            "step": self.step,
            "series": {
                tag: [each.plugin, each.data_class, each.given, each.latest]
                for tag, each in self.series.items()
            },
            "told": sorted([tag, kind] for tag, kind in self.told),
        }
