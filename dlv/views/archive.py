"""What `archive` prints: the plan or its outcome, and why a matrix is stored as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlv.archiving.archive import Archived
from dlv.archiving.budgets import seconds
from dlv.archiving.proposal import Explained, Timing
from dlv.terminal.output import Block, Fields, Heading
from dlv.terminal.table import Bytes, Cell, Column, Id, Number, Table, Text


def archived(outcome: Archived) -> tuple[dict[str, Any], list[Block]]:
    """A table of versions and the figures of the whole repository."""
    table = Table(
        [
            Column("version", fixed=True),
            "id",
            "raw",
            "before",
            "after",
            Column("part", key="ratio"),
            "depth",
        ],
        [
            [
                *(Text(row.version, "bold"), Id(row.id), Bytes(row.raw)),
                *(Bytes(round(row.before)), Bytes(round(row.after))),
                Number(round(row.after / row.raw, 4), 3) if row.raw else None,
                row.depth,
            ]
            for row in outcome.rows
        ],
    )
    slowest = outcome.slowest
    fields: dict[str, Cell] = {
        "packs before": Bytes(outcome.before),
        "packs planned" if outcome.dry_run else "packs after": Bytes(outcome.after),
        "stored anew": f"{outcome.changed} of {outcome.matrices} matrices",
    }
    if slowest is not None:
        fields["slowest"] = f"{slowest.label}: {seconds(slowest.microseconds)}"
    document = {
        "dry_run": outcome.dry_run,
        "algorithm": outcome.algorithm,
        "retrieval": outcome.scheme,
        "before": outcome.before,
        "after": outcome.after,
        "changed": outcome.changed,
        "matrices": outcome.matrices,
        "written": outcome.written,
        "freed": outcome.freed,
        "resumed": outcome.resumed,
        "seconds": round(outcome.seconds, 3),
        "versions": table.records(),
        "snapshots": [_timing(timing) for timing in outcome.snapshots],
    }
    blocks: list[Block] = [table, ""] if outcome.rows else []
    return document, [*blocks, Fields(fields)]


def _timing(timing: Timing) -> dict[str, Any]:
    return {
        "snapshot": timing.label,
        "seconds": timing.microseconds / 1e6,
        "budget": None if timing.budget is None else timing.budget / 1e6,
        "fastest": timing.fastest / 1e6,
    }


def explained(found: Sequence[Explained]) -> tuple[dict[str, Any], list[Block]]:
    """Each matrix with all ways that were tried, and its chain."""
    blocks: list[Block] = []
    for item in found:
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
    return {"explained": [_explained(item) for item in found]}, blocks[:-1]


def _explained(item: Explained) -> dict[str, Any]:
    return {
        "matrix": item.matrix,
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
        "snapshots": [_timing(timing) for timing in item.snapshots],
    }
