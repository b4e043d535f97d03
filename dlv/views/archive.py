"""What `archive` prints: plans and outcomes, bounds, quantized versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dlv.archiving.budgets import seconds
from dlv.terminal.output import Block, Fields, Heading
from dlv.terminal.table import Bytes, Cell, Column, Id, Number, Table, Text

if TYPE_CHECKING:
    from dlv.archiving.archive import Archived
    from dlv.archiving.bounding.run import Bounded, Outcome
    from dlv.archiving.proposal import Explained, Timing
    from dlv.versions.quantize import Quantized


def archived(outcome: Archived) -> tuple[dict[str, Any], list[Block]]:
    """A table of versions and the figures of the whole repository."""
    table = Table(
        [Column("version", fixed=True), "id", "raw", "before", "after", "ratio", "depth"],
        [
            [
                *(Text(row.version, "bold"), Id(row.id), Bytes(row.raw)),
                *(Bytes(round(row.before)), Bytes(round(row.after))),
                Number(round(row.raw / row.after, 3), 3, "x") if row.after else None,
                row.depth,
            ]
            for row in outcome.rows
        ],
    )
    slowest = outcome.slowest
    fields: dict[str, Cell] = {
        "packs before": Bytes(outcome.before),
        "packs planned" if outcome.dry_run else "packs after": Bytes(outcome.after),
        "stored again": f"{outcome.changed} of {outcome.matrices} tensors",
    }
    if outcome.left:
        fields["left"] = f"{outcome.left} tensors, as the time is up; to continue: dlv archive"
    if outcome.left_seconds is not None and outcome.left_seconds >= 2:
        fields["time"] = f"about {_duration(outcome.left_seconds)}"
    if slowest is not None:
        fields["slowest"] = f"{slowest.label}: {seconds(slowest.microseconds)}"
    document = {
        "dry_run": outcome.dry_run,
        "algorithm": outcome.algorithm,
        "retrieval": outcome.scheme,
        "before": outcome.before,
        "after": outcome.after,
        "changed": outcome.changed,
        "tensors": outcome.matrices,
        "written": outcome.written,
        "freed": outcome.freed,
        "resumed": outcome.resumed,
        "seconds": round(outcome.seconds, 3),
        "left": outcome.left,
        "left_seconds": None if outcome.left_seconds is None else round(outcome.left_seconds, 3),
        "versions": table.records(),
        "checkpoints": [_timing(timing) for timing in outcome.snapshots],
    }
    blocks: list[Block] = [table, ""] if outcome.rows else []
    return document, [*blocks, Fields(fields)]


def _duration(length: float) -> str:
    """A duration rounded to whole units."""
    if length < 90:
        return f"{length:.0f} s"
    minutes = round(length / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _timing(timing: Timing) -> dict[str, Any]:
    return {
        "checkpoint": timing.label,
        "seconds": timing.microseconds / 1e6,
        "budget": None if timing.budget is None else timing.budget / 1e6,
        "fastest": timing.fastest / 1e6,
    }


def explained(plans: Sequence[Explained]) -> tuple[dict[str, Any], list[Block]]:
    """Each matrix with all ways that were tried, and its chain."""
    blocks: list[Block] = []
    for item in plans:
        blocks += [
            Heading(f"{item.label} {item.dtype} {list(item.shape)}"),
            Table(
                [Column("how"), Column("base"), "bytes", "time", "chosen"],
                [
                    [
                        *(way.kind, way.base, Bytes(way.bytes), seconds(way.microseconds)),
                        Text("yes", "green") if way.chosen else None,
                    ]
                    for way in item.ways
                ],
            ),
            *(f"  {step}" for step in item.chain),
            "",
        ]
    return {"explained": [_explained(item) for item in plans]}, blocks[:-1]


def _explained(item: Explained) -> dict[str, Any]:
    return {
        "tensor": item.matrix,
        "name": item.name,
        "dtype": item.dtype,
        "shape": list(item.shape),
        "ways": [
            {
                "kind": way.kind,
                "base": way.base,
                "bytes": way.bytes,
                "seconds": way.microseconds / 1e6,
                "chosen": way.chosen,
            }
            for way in item.ways
        ],
        "chain": item.chain,
        "checkpoints": [_timing(timing) for timing in item.snapshots],
    }


# `archive --bounds`


def bounded(outcome: Outcome) -> tuple[dict[str, Any], list[Block]]:
    """A row per version; nothing is promised of other rows than those of the calibration."""
    table = Table(
        [Column("version", fixed=True), "id", "changed", "before", "after", "decided", "rows of"],
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
        "bounded": [_bounded_record(row) for row in outcome.versions],
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


def _bounded_record(row: Bounded) -> dict[str, Any]:
    return {
        "version": row.version,
        "id": row.id,
        "record": row.record,
        "made": row.made,
        "changed": row.changed,
        "tensors": row.matrices,
        "before": round(row.before),
        "after": round(row.after),
        "calibration": row.calibration,
        "levels": [
            {
                "planes": dict(level.planes),
                "bytes": level.bytes,
                "share": round(level.share, 4),
                "decided": None if level.determined is None else round(level.determined, 4),
            }
            for level in row.levels
        ],
        "helps": dict(row.helps),
        "why": row.why,
    }


# `quantize`


def quantized(children: Sequence[Quantized]) -> tuple[dict[str, Any], list[Block]]:
    """JSON and table, a row for each version; `before` and `after` are bytes in packs."""
    table = Table(
        [
            Column("version", fixed=True),
            *("id", "of", "quantized"),
            *("rounded", "tensors", "raw", "before", "after", "made"),
        ],
        [
            [
                Text(child.version.label, "bold"),
                *(Id(child.version.id), child.source.label, child.scheme),
                *(child.rounded, child.matrices),
                *(Bytes(child.raw), Bytes(child.before), Bytes(child.after)),
                child.made,
            ]
            for child in children
        ],
    )
    document = {
        "before": sum(child.before for child in children),
        "after": sum(child.after for child in children),
        "quantized": table.records(),
    }
    return document, [table]
