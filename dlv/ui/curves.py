"""Curves of versions: a chart for each metric, with settings told while hovering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dlv.curves.figures as figures
import dlv.report.curve_charts as curve_charts
from dlv.report.courses import Chart, course
from dlv.report.curves_picture import figure_grid
from dlv.report.page import Section
from dlv.repository.handle import Repository
from dlv.terminal.table import full
from dlv.views.values import setting

MOST_SETTINGS = 6  # that are told while hovering


def settings_of(repository: Repository, found: figures.Curves) -> dict[str, str]:
    """By label: hyperparameters in which these versions differ; of one alone, its first ones."""
    held: dict[str, Mapping[str, Any]] = {}
    for curve in found.curves:
        if curve.version.label not in held:
            manifest = repository.manifest(curve.version.id)
            held[curve.version.label] = manifest.hyperparameters
    keys = list(dict.fromkeys(key for values in held.values() for key in values))
    apart = [key for key in keys if len({repr(v.get(key)) for v in held.values()}) > 1]
    chosen = (apart if len(held) > 1 else keys)[:MOST_SETTINGS]
    return {
        label: ", ".join(f"{key} {full(setting(values[key]))}" for key in chosen if key in values)
        for label, values in held.items()
    }


def charts_of(
    repository: Repository,
    references: Sequence[str],
    *,
    metrics: Sequence[str] = (),
    smooth: float = 0.0,
    log: bool = False,
) -> list[Chart]:
    found = figures.curves(repository, references, series=metrics, whole=True)
    about = settings_of(repository, found)
    return curve_charts.charts(found.curves, smooth=smooth, log=log, about=about)


def sections(charts: Sequence[Chart], title: str = "curves") -> list[Section]:
    return [Section(title, figure_grid(charts))] if charts else []


def charts_of_points(
    courses: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]],
    about: Mapping[str, str] | None = None,
) -> list[Chart]:
    """Charts of metric -> line -> points, as a ledger of trials has them."""
    about = about or {}
    return [
        Chart(
            metric,
            tuple(
                course(
                    label,
                    [step for step, _ in points],
                    [value for _, value in points],
                    about=about.get(label, ""),
                )
                for label, points in lines.items()
            ),
        )
        for metric, lines in courses.items()
    ]
