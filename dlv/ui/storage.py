"""Disk usage and plans: what versions take, and how long they take to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import dlv.archiving.budgets as budgets
import dlv.archiving.planning as planning
import dlv.report.delta_graph as delta_graph
import dlv.report.plots as plots
from dlv.archiving.budgets import seconds
from dlv.metadata import usage
from dlv.report.markup import Html
from dlv.report.page import Section
from dlv.report.plots import Axis, Dot
from dlv.repository.handle import Repository
from dlv.terminal.output import Block
from dlv.terminal.table import Table, human_bytes
from dlv.ui.frame import Frame
from dlv.versions.stats import Statistics

if TYPE_CHECKING:
    from dlv.archiving.archive import Archived

BARS = 24
MOST_ROWS = 1000
MOST_BOXES = 60


def disk_usage(found: Statistics, by: str, blocks: Sequence[Block], frame: Frame) -> list[Section]:
    """`stats`: the totals beside the largest groups, and its table."""
    ordered = sorted(found.rows, key=lambda row: -row.stored)[:BARS]
    rows = [(row.name, row.stored, human_bytes(round(row.stored))) for row in ordered if row.stored]
    drawn = plots.bars(f"stored bytes by {by}", rows, width=520.0)
    tables = [block for block in blocks if isinstance(block, Table)]
    totals = frame.html(*(block for block in blocks if not isinstance(block, Table)))
    beside = Section("totals", totals).html() + Section("largest in packs", drawn).html()
    found_sections = [Section("", Html(f'<div class="side">{beside}</div>'))]
    for table in tables:
        rest = len(table.rows) - MOST_ROWS
        note = frame.html(f"and {rest:,} more: dlv stats --by {by}") if rest > 0 else Html("")
        shown = Table(table.columns, table.rows[:MOST_ROWS])
        found_sections.append(Section(f"by {by}", Html(frame.table(shown, fold=20) + note)))
    return found_sections


def plan(archived: Archived, blocks: Sequence[Block], frame: Frame) -> list[Section]:
    """`archive`: the plan, its times, and what other limits would cost."""
    totals = [block for block in blocks if not isinstance(block, Table)]
    parts = [Section("plan" if archived.dry_run else "result", frame.html(*totals))]
    times = sorted(archived.snapshots, key=lambda timing: -timing.microseconds)[:BARS]
    rows = [(t.label, float(t.microseconds), seconds(t.microseconds)) for t in times]
    if archived.tradeoff:
        parts.insert(0, Section("storage against reading time", tradeoff(archived)))
    if len(rows) > 1:
        parts.append(Section("slowest checkpoints to read", plots.bars("reading time", rows)))
    for block in blocks:
        if isinstance(block, Table):
            parts.append(Section("by version", frame.table(block, fold=20)))
    return parts


def tradeoff(archived: Archived) -> Html:
    """Bytes of all weights against the slowest checkpoint, for each limit; the plan as a point."""
    dots = []
    for p in archived.tradeoff:
        limit = "no limit" if p.alpha is None else f"--alpha {p.alpha:g}"
        told = f"{limit}: {human_bytes(p.bytes)}, {seconds(p.microseconds)}"
        dots.append(Dot(p.microseconds / 1000, float(p.bytes), told, size=3))
    points: list[tuple[float, float]] = []
    for dot in sorted(dots, key=lambda dot: (dot.x, dot.y)):  # the least bytes for each time
        if not points or dot.y < points[-1][1]:
            points.append((dot.x, dot.y))
    today, planned = archived.today, archived.planned
    marks = (
        [(planned, "this plan", 1)]
        if today == planned
        else [(today, "today", 7), (planned, "this plan", 1)]
    )
    for point, label, kind in marks:
        if point is not None:
            told = f"{label}: {human_bytes(point.bytes)}, {seconds(point.microseconds)}"
            label = "today, and this plan" if today == planned else label
            dots.append(Dot(point.microseconds / 1000, float(point.bytes), told, kind, 5, label))
    return plots.scatter(
        "storage against reading time",
        dots,
        Axis("slowest checkpoint [ms]"),
        Axis("bytes of weights", "bytes"),
        [points] if len(points) > 1 else [],
    )


def graph(repository: Repository) -> Html:
    """What is stored as deltas against what: boxes of checkpoints, of versions or of models, as
    many as there is room for; lines as wide as the deltas are large."""
    _, _, groups = planning.groups_of(repository.database)
    held = usage.stored_matrices(repository.database)
    for name in (budgets.label, _version, _model):
        own, lines = _flows(groups, held, name)
        if len({box for edge in lines for box in edge}) <= MOST_BOXES:
            break
    if not lines:
        return Html("<p>No tensor is stored as a delta yet: <code>dlv archive</code> does it.</p>")
    return delta_graph.svg(own, lines)


def _flows(
    groups: Sequence[planning.Held],
    held: Sequence[usage.StoredMatrix],
    name: Callable[[planning.Held], str],
) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
    """Bytes of each box, and of those what is stored against tensors of another box."""
    owner: dict[str, str] = {}
    for group in groups:
        for matrix in group.matrices:
            owner.setdefault(matrix, name(group))
    own = dict.fromkeys(map(name, groups), 0.0)
    lines: dict[tuple[str, str], float] = {}
    for stored in held:
        box = owner.get(stored.hash)
        if box is None:
            continue
        own[box] += stored.stored
        base = owner.get(str((stored.delta or {}).get("base", "")))
        if base is not None and base != box:
            lines[base, box] = lines.get((base, box), 0.0) + stored.stored
    return own, lines


def _version(group: planning.Held) -> str:
    return group.version.label


def _model(group: planning.Held) -> str:
    return group.version.name
