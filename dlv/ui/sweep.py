"""Sweeps: trials by rank, settings against the metric, the curves of all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dlv.report.plots as plots
import dlv.repository.revisions as revisions
import dlv.ui.curves as curves
import dlv.views.trials as view
from dlv.dataclass import dataclass
from dlv.report.markup import Html
from dlv.report.page import Section
from dlv.report.plots import Axis, Dot
from dlv.training.ledger.results import RunView, TrialView
from dlv.ui.frame import Frame

Curves = Callable[[str], Mapping[str, Sequence[tuple[int, float]]]]
MOST_CURVES = 48  # trials, the best ones
MOST_SCATTERS = 4


@dataclass(frozen=True)
class Line:
    """A trial as the plots need it."""

    name: str
    varied: Mapping[str, Any]
    last: Mapping[str, float]


def sections(
    run: RunView, results: Sequence[TrialView], read: Curves, frame: Frame
) -> list[Section]:
    """A sweep: its trials, what was varied against the metric, and all courses."""
    document, blocks = view.one_run(run, results, read, None)
    metric = document["metric"]
    smaller = direction(run, metric) != "max"
    found = [Section("", _standing(run, results, metric, frame))]
    lines = [Line(f"#{each.ordinal}", each.varied, each.last) for each in results]
    found += pictures(lines, metric, smaller=smaller)
    found += trial_curves(results, read)
    return found + frame.sections(blocks, "trials")


def _standing(run: RunView, results: Sequence[TrialView], metric: str | None, frame: Frame) -> Html:
    best = next((each for each in results if metric and metric in each.last), None)
    words = [f"{view.counted(view.groups_of(run))}; state: {run.condition}"]
    if run.why:
        words.append(run.why)
    if best is not None and metric is not None:
        settings = view.assignments(best.varied)
        words.append(f"best so far: #{best.ordinal}, {metric} {best.last[metric]:.5g} ({settings})")
    return frame.html(*words)


def direction(run: RunView, metric: str | None) -> str | None:
    """`min` or `max`: which values of the metric are better."""
    told = next((rule.get("direction") for rule in run.rules if rule.get("metric") == metric), None)
    if told in ("min", "max"):
        return str(told)
    return None if metric is None else revisions.direction_of(metric)


def pictures(lines: Sequence[Line], metric: str | None, *, smaller: bool) -> list[Section]:
    """Parallel coordinates, and the metric against each setting of numbers."""
    if metric is None:
        return []
    keys = list(dict.fromkeys(key for line in lines for key in line.varied))
    known = [line for line in lines if math.isfinite(line.last.get(metric, math.nan))]
    rows = [(line.name, line.varied, line.last[metric]) for line in known]
    found = []
    drawn = plots.parallel(f"settings and {metric}", rows, keys, metric, smaller=smaller)
    if drawn:
        found.append(Section(f"settings and {metric}", drawn))
    scatters = []
    for key in keys[:MOST_SCATTERS]:
        dots = [
            Dot(
                float(line.varied[key]), line.last[metric], f"{line.name}: {key} {line.varied[key]}"
            )
            for line in known
            if isinstance(line.varied.get(key), (int, float))
        ]
        if len({dot.x for dot in dots}) > 1:
            logarithmic = min(dot.x for dot in dots) > 0 and max(d.x for d in dots) >= 100 * min(
                dot.x for dot in dots
            )
            if logarithmic:
                dots = [Dot(math.log10(dot.x), dot.y, dot.about) for dot in dots]
            across = Axis(f"log10 of {key}" if logarithmic else key)
            scatters.append(plots.scatter(f"{metric} by {key}", dots, across, Axis(metric)))
    if scatters:
        body = "".join(f"<div>{each}</div>" for each in scatters)
        found.append(Section(f"{metric} by setting", Html(f'<div class="charts">{body}</div>')))
    return found


def trial_curves(results: Sequence[TrialView], read: Curves) -> list[Section]:
    """Courses of the best trials, one chart for each metric."""
    by_metric: dict[str, dict[str, Sequence[tuple[int, float]]]] = {}
    about = {}
    for each in results[:MOST_CURVES]:
        label = f"#{each.ordinal}"
        about[label] = view.assignments(each.varied)
        for metric, points in read(each.trial).items():
            by_metric.setdefault(metric, {})[label] = points
    charts = curves.charts_of_points(dict(sorted(by_metric.items())), about)
    title = "curves" if len(results) <= MOST_CURVES else f"curves of the best {MOST_CURVES}"
    return curves.sections(charts, title)
