"""What `gc` prints: versions with the bytes that only they hold, then objects by kind."""

from __future__ import annotations

from typing import Any

import dlv.upkeep.mark as mark
from dlv.repository.quarantine import Place
from dlv.terminal.output import Block, Fields, Line
from dlv.terminal.table import Bytes, Cell, Column, Id, Items, Table, Text, Time
from dlv.upkeep.collect import Collected
from dlv.upkeep.mark import Hidden
from dlv.upkeep.restoring import Restored


def collected(outcome: Collected) -> tuple[dict[str, Any], list[Block]]:
    """The same words for the plan and for what was done."""
    done = outcome.done
    rows: list[list[Cell]] = []
    removed: list[dict[str, Any]] = []
    spared: list[dict[str, Any]] = []
    for choice in outcome.choices:
        version = choice.version
        record = {"version": version.label, "id": version.id}
        if choice.why is None:
            removed.append(record)
            said: Cell = Text("removed now" if done else "to be removed", "yellow")
        else:
            spared.append(record | {"why": choice.why})
            said = f"kept: {choice.why}"
        rows.append([Text(version.label, "bold"), Id(version.id), None, said, None])
    for hidden, size in outcome.due:
        said = Text("moved to quarantine" if done else "to be moved to quarantine", "red")
        rows.append([*_what(hidden), said, Bytes(size)])
    for hidden in outcome.waiting:
        end = mark.until(hidden.since, outcome.grace)
        rows.append([*_what(hidden), f"kept until {end[:10]}", None])
    fields: dict[str, Cell] = {
        kind: Items([many, Bytes(size)]) for kind, (many, size) in outcome.moved.items()
    }
    packs, before, live = outcome.rewritten
    if packs:
        fields["packs rewritten"] = Items([packs, Bytes(before), Bytes(live)])
    if outcome.unused:
        fields["unused in kept packs"] = Bytes(outcome.unused)
    if outcome.trials:
        size = sum(each.bytes for each in outcome.trials)
        fields["unneeded trials"] = Items([len(outcome.trials), Bytes(size)])
    parts = sum(size for _, size in outcome.parts)
    if outcome.parts:
        fields["temporary files"] = Items([len(outcome.parts), Bytes(parts)])
    fields |= {
        "quarantine": Items([len(outcome.kept), Bytes(sum(p.bytes for p in outcome.kept))]),
        "freed" if done else "to be freed": Bytes(outcome.freed),
    }
    document = {
        "dry_run": not done,
        "grace": outcome.grace.total_seconds(),
        "removed": removed,
        "spared": spared,
        "collected": [_record(h) | {"bytes": size} for h, size in outcome.due],
        "waiting": [
            _record(h) | {"until": mark.until(h.since, outcome.grace)} for h in outcome.waiting
        ],
        "moved": {
            kind: {"objects": many, "bytes": size} for kind, (many, size) in outcome.moved.items()
        },
        "rewritten": {"packs": packs, "bytes": before, "needed": live},
        "quarantined": [_place(place) for place in outcome.kept],
        "unused": outcome.unused,
        "trials": {
            "folders": len(outcome.trials),
            "bytes": sum(each.bytes for each in outcome.trials),
        },
        "parts": {"files": len(outcome.parts), "bytes": parts},
        "freed": outcome.freed,
        "kept": outcome.after,
    }
    if outcome.restored is not None:
        document |= restored(outcome.restored)[0]
    columns: list[Column | str] = [Column("version", fixed=True), "id", "steps", "action", "size"]
    blocks: list[Block] = [Table(columns, rows), ""] if rows else []
    if outcome.restored is not None:
        blocks += restored(outcome.restored)[1]
    elif outcome.interrupted is not None:
        blocks.append(f"the restore of {outcome.interrupted} was interrupted")
    blocks.append(Fields(fields))
    if outcome.kept:
        table = Table(
            [Column("quarantine", fixed=True), "since", "versions", "size"],
            [
                [
                    Text(place.id, "yellow"),
                    Time(place.created),
                    Items([str(row["version"]) for row in place.versions]),
                    Bytes(place.bytes),
                ]
                for place in outcome.kept
            ],
        )
        blocks += ["", table]
    return document, blocks


def restored(restored: Restored) -> tuple[dict[str, Any], list[Block]]:
    """Of one folder of quarantine."""
    names = ", ".join(restored.versions)
    document = {
        "restored": {
            "id": restored.id,
            "objects": restored.objects,
            "versions": list(restored.versions),
        }
    }
    if restored.before:
        return document, [Line(f"{restored.id} was already restored")]
    return document, [Line(f"restored {restored.objects} objects", *([names] if names else []))]


def _what(hidden: Hidden) -> list[Cell]:
    steps = None if hidden.steps is None else Items(list(hidden.steps))
    return [Text(hidden.version.label, "bold"), Id(hidden.version.id), steps]


def _record(hidden: Hidden) -> dict[str, Any]:
    return {
        "version": hidden.version.label,
        "id": hidden.version.id,
        "steps": hidden.steps,
        "since": hidden.since,
    }


def _place(place: Place) -> dict[str, Any]:
    return {
        "id": place.id,
        "created": place.created,
        "bytes": place.bytes,
        "objects": len(place.objects),
        "versions": [str(row["version"]) for row in place.versions],
    }
