"""How `import` lays out what it made, and what it passed over."""

from __future__ import annotations

from typing import Any

from dlv.intake.checkpoints import Imported
from dlv.intake.imported_runs import Imported as Runs
from dlv.terminal.output import Line, Output
from dlv.terminal.table import Bytes, Column, Id, Table, Text, human_bytes

_MOST_SKIPPED, _MOST_LABELS = 10, 3


def remarks(
    output: Output, skipped: list[tuple[str, str]], warnings: list[str], *, everything: bool
) -> None:
    shown = len(skipped) if everything else _MOST_SKIPPED
    for path, why in skipped[:shown]:
        output.message(f"passed over {path}: {why}")
    if len(skipped) > shown:
        output.message(f"and {len(skipped) - shown} more; -v names them all")
    for warning in warnings:
        output.warn(warning)


def checkpoints(output: Output, made: Imported) -> None:
    """The one version."""
    if not made.new:
        output.message(f"nothing new: {made.label} has this very content")
    version = {
        "id": made.id,
        "name": made.name,
        "number": made.number,
        "new": made.new,
        "steps": made.steps,
        "raw": made.raw,
        "stored": made.stored,
        "seconds": made.seconds,
    }
    label, count = Text(made.label, "bold"), len(made.steps)
    if output.terminal:
        held = f"{count} snapshot{'' if count == 1 else 's'}"
        sizes = f"{human_bytes(made.raw)} -> {human_bytes(made.stored)}"
        line = Line(label, Id(made.id), held, *([sizes] if made.new else []))
    else:
        line = Line(label, Id(made.id), count, Bytes(made.raw), Bytes(made.stored))
    document = {"versions": [version], "series": [], "skipped": _skipped(made.skipped)}
    output.emit("import", document, line, ids=[made.id])


def _skipped(skipped: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"path": path, "why": why} for path, why in skipped]


def runs(output: Output, found: Runs) -> None:
    """A row for each new version; the document has those of earlier imports, too."""
    new = [made for made in found.versions if made.new]
    if len(new) < len(found.versions):
        count = len(found.versions) - len(new)
        before = dict.fromkeys(made.label for made in found.versions if not made.new)
        shown = ", ".join(list(before)[:_MOST_LABELS]) + (", .." if count > _MOST_LABELS else "")
        were = " was" if count == 1 else "s were"
        output.message(f"{count} run{were} imported before: {shown}")
    elif not new:
        output.message("the store has no runs to import")
    table = Table(
        [Column("version", fixed=True), "id", "run", "snapshots", "series", "raw"],
        [
            [Text(m.label, "bold"), Id(m.id), m.title, len(m.steps), len(m.series), Bytes(m.raw)]
            for m in new
        ],
    )
    versions: list[dict[str, Any]] = [
        {
            "id": made.id,
            "name": made.name,
            "number": made.number,
            "new": made.new,
            "steps": made.steps,
            "raw": made.raw,
            "run": made.run,
            "title": made.title,
        }
        for made in found.versions
    ]
    document = {
        "versions": versions,
        "series": [
            {"version": made.id, "tag": tag, "points": points}
            for made in found.versions
            for tag, points in made.series
        ],
        "skipped": _skipped(found.skipped),
        "stored": found.stored,
        "seconds": found.seconds,
    }
    output.emit("import", document, table, ids=[made.id for made in new])
