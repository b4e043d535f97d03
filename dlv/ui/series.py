"""Points of curves for the charts of pages: of versions, and of a training that goes on."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dlv.curves.board as boards
import dlv.curves.figures as figures
from dlv.errors import NotFound, UsageError
from dlv.events.provider.downsample import extremes
from dlv.events.provider.sampling import Choice
from dlv.repository.handle import Repository
from dlv.ui.curves import settings_of

POINTS = 1600  # of a line; minimum and maximum of each part are among them
LIVE_POINTS = 1000
RELOAD = 0.4  # seconds between two reads of logs that are shown
USUAL = ("runs", "logs", "lightning_logs", "tb_logs")


def of_versions(
    repository: Repository,
    references: Sequence[str],
    metrics: Sequence[str] = (),
    steps: str | None = None,
) -> dict[str, Any]:
    """Metric -> lines, each with label, settings and points that keep every spike."""
    if not references:
        raise UsageError("no versions are named")
    curves = figures.curves(repository, references, series=metrics, steps=steps, whole=True)
    about = settings_of(repository, curves)
    lines: dict[str, list[dict[str, Any]]] = {}
    for curve in curves.curves:
        points = curve.points
        if points is None or not points.steps:
            continue
        order = sorted(range(len(points.steps)), key=lambda at: points.steps[at])
        kept = [order[at] for at in extremes([points.values[at] for at in order], POINTS)]
        walls = points.walls if any(points.walls) else points.steps
        lines.setdefault(curve.summary.name, []).append(
            {
                "label": curve.version.label,
                "about": about.get(curve.version.label, ""),
                "steps": [points.steps[at] for at in kept],
                "walls": [walls[at] for at in kept],
                "values": [_number(points.values[at]) for at in kept],
                "thinned": len(kept) < len(order),
                "whole": steps is None,
            }
        )
    return {"metrics": dict(sorted(lines.items()))}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


class Live:
    """Folders of logs, each read by a board of its own from when it is first asked for."""

    def __init__(self, repository: Repository | None, folders: Sequence[Path]) -> None:
        self._repository = repository
        self.folders = list(folders)
        self._boards: dict[int, boards.DirectoryBoard] = {}
        self._lock = threading.Lock()

    def board(self, number: int) -> boards.DirectoryBoard:
        with self._lock:
            if not 0 <= number < len(self.folders):
                raise NotFound("no such log folder")
            if number not in self._boards:
                board = boards.DirectoryBoard(
                    self.folders[number],
                    self._repository,
                    restarts=None,
                    tell=lambda _: None,
                    reload=RELOAD,
                )
                board.start()
                self._boards[number] = board
            return self._boards[number]

    def scalars(self, number: int, seen: str) -> dict[str, Any] | None:
        """All curves of a folder; None while nothing is new since `seen`."""
        board = self.board(number)
        board.watched = time.monotonic()
        try:
            provider = board.ask()
            listed = provider.list_scalars(experiment=board.experiment)
            mark = _mark(listed)
            if mark == seen:
                return None
            choice = Choice(points=LIVE_POINTS, sampling="envelope")
            found = provider.read_scalars(choice=choice, experiment=board.experiment)
        finally:
            board.release()
        lines: dict[str, list[dict[str, Any]]] = {}
        count = 0
        for run, tags in sorted(found.items()):
            for tag, points in sorted(tags.items()):
                count += len(points.steps)
                lines.setdefault(tag, []).append(
                    {
                        "label": run,
                        "about": "",
                        "steps": points.steps.tolist(),
                        "walls": points.walls.tolist(),
                        "values": [_number(value) for value in points.values.tolist()],
                    }
                )
        return {"seen": mark, "points": count, "metrics": lines}

    def close(self) -> None:
        for board in self._boards.values():
            board.close()


def _mark(listed: Mapping[str, Mapping[str, Any]]) -> str:
    """A string that changes whenever a point arrives."""
    ends = [
        (run, tag, info.n, info.max_step, info.max_wall)
        for run, tags in sorted(listed.items())
        for tag, info in sorted(tags.items())
    ]
    return f"{hash(tuple(ends)) & 0xFFFFFFFFFFFF:x}"
