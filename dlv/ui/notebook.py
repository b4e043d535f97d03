"""Objects of the Python API as HTML in notebooks: the components of pages and reports."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import dlv.curves.logged as logged
import dlv.dql.answers as answers
import dlv.report.network_picture as network_picture
import dlv.ui.comparison as comparison
import dlv.ui.evaluation as evaluation_sections
import dlv.ui.models as models_page
import dlv.ui.version as version_sections
import dlv.versions.describe as describe
import dlv.views.evaluated as evaluated_view
from dlv.errors import DlvError
from dlv.evaluation.answers import Evaluation
from dlv.network.graph import Network
from dlv.report.courses import Chart, course
from dlv.report.curves_picture import figure_grid
from dlv.report.markup import Html, text
from dlv.report.page import Section, style
from dlv.repository.handle import Repository
from dlv.terminal.table import Cell, Table
from dlv.ui.frame import Frame, now
from dlv.versions.diff import Diff
from dlv.versions.version import Version

ROWS, TAGS, POINTS, NETWORKS = 20, 12, 2000, 4


def html(value: Any) -> str | None:
    """Return an object as HTML; None if it cannot be drawn, so that its repr is shown."""
    try:
        for kind, draw in _KINDS.items():
            if isinstance(value, kind):
                return _framed(draw(value, Frame(now())))
    except DlvError:
        return None
    return None


def repository_html(repository: Repository) -> str | None:
    """The newest versions."""
    try:
        return _framed(_repository(repository, Frame(now())))
    except DlvError:
        return None


@functools.cache
def _scoped() -> str:
    """The style of the pages, for this part of a notebook alone."""
    return f".dlv-shown {{ {style().replace(':root', '&')} }}"


def _framed(body: str) -> str:
    looks = "padding: .4rem .8rem; background: var(--page); color: var(--ink); font-size: 14px"
    return f'<div class="dlv-shown" style="{looks}"><style>{_scoped()}</style>{body}</div>'


def _sections(sections: list[Section]) -> str:
    return "".join(section.html() for section in sections)


def _repository(repository: Repository, frame: Frame) -> str:
    found = models_page.models(repository, models_page.Asked())
    table = models_page.plain_table(found, ROWS)
    more = found.count - len(table.rows)
    rest = f"<p>and {more:,} more</p>" if more > 0 else ""
    head = f"<h3>{text(repository.root)}: {found.count:,} versions</h3>"
    return head + (frame.table(table, caption="versions") + rest)


def _version(version: Version, frame: Frame) -> str:
    reference = version.id if version.index is None else f"{version.id}/{version.step}"
    described = describe.describe(version.repository, reference)
    network = _folded("network", version_sections.network(described, frame))
    tensors = _folded("tensors", version_sections.tensors(described, frame))
    metrics = version_sections.metrics(described, frame)
    body = version_sections.summary(described, frame)
    return f"<h3>{text(described.label)}</h3>{body}{metrics}{network}{tensors}"


def _folded(title: str, sections: list[Section]) -> str:
    body = "".join(section.body for section in sections)
    return f"<details><summary>{title}</summary>{body}</details>" if body else ""


def _diff(diff: Diff, frame: Frame) -> str:
    repository = diff.sides[0].repository
    return _sections(comparison.sections(repository, diff, frame, charts=[]))


def _network(network: Network, _: Frame) -> str:
    return network_picture.picture(network, None, f"network {network.id[:12]}")


def _derived(derived: answers.DerivedNetwork, frame: Frame) -> str:
    about = f"<p>{text(derived.id[:12])} from {text(', '.join(derived.origins[:6]))}</p>"
    return about + _network(derived.network, frame)


def _answer(answer: answers.Answer, frame: Frame) -> str:
    parts = [f"<pre>{text(chr(10).join(answer.plan))}</pre>"] if answer.plan else []
    if answer.columns:
        rows: list[list[Cell]] = [[_cell(value) for value in row] for row in answer.rows]
        parts.append(frame.table(Table(answer.columns, rows), caption="rows"))
    parts += [_derived(each, frame) for each in answer.networks[:NETWORKS]]
    if len(answer.networks) > NETWORKS:
        parts.append(f"<p>and {len(answer.networks) - NETWORKS} more networks</p>")
    parts += [f"<p>{text(warning)}</p>" for warning in answer.warnings]
    return "".join(parts) or "<p>nothing matches</p>"


def _cell(value: Any) -> Cell:
    if isinstance(value, Version):
        return value.label
    if isinstance(value, answers.DerivedNetwork):
        return value.id[:12]
    return value if isinstance(value, (str, bool, int, float)) or value is None else str(value)


def _evaluation(evaluation: Evaluation, frame: Frame) -> str:
    record = evaluated_view.record(evaluation)
    names = [*record["metrics"]]
    columns = ["version", "examples", *names, "mode", "bytes read"]
    row: list[Cell] = [evaluation.version, evaluation.rows]
    row += [record["metrics"][name] for name in names]
    table = Table(columns, [[*row, evaluation.mode, evaluation.bytes_read]])
    sections = evaluation_sections.details(record, frame, several=False)
    return frame.table(table, caption="evaluation") + _sections(sections)


def _curves(curves: logged.Curves, _: Frame) -> str:
    by_run = curves.scalars(points=POINTS, sampling="envelope")
    tags: dict[str, list[tuple[str, Any]]] = {}
    for run, found in by_run.items():
        for tag, points in found.items():
            if len(points):
                tags.setdefault(tag, []).append((run, points))
    charts = [
        Chart(tag, tuple(course(run, p.steps.tolist(), p.values.tolist()) for run, p in lines))
        for tag, lines in sorted(tags.items())[:TAGS]
    ]
    rest = f"<p>and {len(tags) - TAGS} more metrics</p>" if len(tags) > TAGS else ""
    return (figure_grid(charts) or Html("<p>no scalars</p>")) + rest


_KINDS: dict[type, Callable[[Any, Frame], str]] = {
    Version: _version,
    Diff: _diff,
    Network: _network,
    answers.DerivedNetwork: _derived,
    answers.Answer: _answer,
    Evaluation: _evaluation,
    logged.Curves: _curves,
}
