"""What `archive --bounds` prints: for each version, how many bytes tell how many labels."""

from __future__ import annotations

from typing import Any

from dlv.archiving.bounding.run import Bounded, Outcome
from dlv.terminal.output import Block
from dlv.terminal.table import Bytes, Cell, Column, Id, Table, Text


def bounded(outcome: Outcome) -> tuple[dict[str, Any], list[Block]]:
    """A row per version; nothing is promised of other rows than those of the calibration."""
    table = Table(
        [
            Column("version", fixed=True),
            "id",
            "changed",
            "before",
            "after",
            "determined",
            "rows of",
        ],
        [
            [
                *(Text(row.version, "bold"), Id(row.id), f"{row.changed} of {row.matrices}"),
                *(Bytes(round(row.before)), Bytes(round(row.after)), _levels(row)),
                row.calibration,
            ]
            for row in outcome.versions
        ],
    )
    document = {
        "bounded": [_record(row) for row in outcome.versions],
        "skipped": [{"version": version, "why": why} for version, why in outcome.skipped],
        "written": outcome.written,
        "freed": outcome.freed,
        "seconds": round(outcome.seconds, 3),
    }
    blocks: list[Block] = [table] if outcome.versions else []
    blocks += [f"{version}: no bounds, {why}" for version, why in outcome.skipped]
    blocks += [
        f"{row.version}: labels need all planes: {row.why}"
        for row in outcome.versions
        if row.why is not None
    ]
    return document, blocks


def _levels(row: Bounded) -> Cell:
    """Part of the bytes -> part of the rows, level by level until no row is left."""
    if not row.made:
        return "as before"
    if not row.helps.get("f64"):
        return "nothing early"
    told = [level for level in row.levels[:-1] if level.determined is not None]
    whole = [at for at, level in enumerate(told) if level.determined == 1]
    told = told[: whole[0] + 1] if whole else told
    return ", ".join(f"{level.share:.0%} -> {level.determined:.1%}" for level in told)


def _record(row: Bounded) -> dict[str, Any]:
    return {
        "version": row.version,
        "id": row.id,
        "record": row.record,
        "made": row.made,
        "changed": row.changed,
        "matrices": row.matrices,
        "before": round(row.before),
        "after": round(row.after),
        "calibration": row.calibration,
        "levels": [
            {
                "planes": dict(level.planes),
                "bytes": level.bytes,
                "share": round(level.share, 4),
                "determined": None if level.determined is None else round(level.determined, 4),
            }
            for level in row.levels
        ],
        "helps": dict(row.helps),
        "why": row.why,
    }
