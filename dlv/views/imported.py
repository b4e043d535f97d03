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
        output.message(f"skipped {path}: {why}")
    if len(skipped) > shown:
        output.message(f"and {len(skipped) - shown} more; -v names them all")
    for warning in warnings:
        output.warn(warning)


def checkpoints(output: Output, imported: Imported) -> None:
    """The one version."""
    if not imported.new:
        output.message(f"nothing new: identical to {imported.label}")
    version = {
        "id": imported.id,
        "name": imported.name,
        "number": imported.number,
        "new": imported.new,
        "steps": imported.steps,
        "raw": imported.raw,
        "stored": imported.stored,
        "seconds": imported.seconds,
        "default": imported.default,
    }
    label, count = Text(imported.label, "bold"), len(imported.steps)
    if output.terminal:
        held = f"{count} checkpoint{'' if count == 1 else 's'}"
        sizes = f"{human_bytes(imported.raw)} -> {human_bytes(imported.stored)}"
        line = Line(label, Id(imported.id), held, *([sizes] if imported.new else []))
    else:
        line = Line(label, Id(imported.id), count, Bytes(imported.raw), Bytes(imported.stored))
    document = {"versions": [version], "metrics": [], "skipped": _skipped(imported.skipped)}
    output.emit("import", document, line, ids=[imported.id])
    if count > 1:
        step = (
            "the checkpoint without a step"
            if imported.default is None
            else f"step {imported.default}"
        )
        output.message(f"default checkpoint: {step}")


def _skipped(skipped: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"path": path, "why": why} for path, why in skipped]


def runs(output: Output, runs: Runs) -> None:
    """A row for each new version; the document has those of earlier imports, too."""
    new = [made for made in runs.versions if made.new]
    if len(new) < len(runs.versions):
        count = len(runs.versions) - len(new)
        before = dict.fromkeys(made.label for made in runs.versions if not made.new)
        shown = ", ".join(list(before)[:_MOST_LABELS]) + (", .." if count > _MOST_LABELS else "")
        were = " was" if count == 1 else "s were"
        output.message(f"{count} run{were} imported before: {shown}")
    elif not new:
        output.message("the store has no runs to import")
    table = Table(
        [Column("version", fixed=True), "id", "run", "checkpoints", "metrics", "raw"],
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
        for made in runs.versions
    ]
    document = {
        "versions": versions,
        "metrics": [
            {"version": made.id, "tag": tag, "points": points}
            for made in runs.versions
            for tag, points in made.series
        ],
        "skipped": _skipped(runs.skipped),
        "stored": runs.stored,
        "seconds": runs.seconds,
    }
    output.emit("import", document, table, ids=[made.id for made in new])
