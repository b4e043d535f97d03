"""What `commit` prints."""

from __future__ import annotations

from typing import Any

from dlv.terminal.output import Line
from dlv.terminal.table import Bytes, Id, Text, human_bytes
from dlv.versions.commit import Committed


def committed(
    made: Committed, saved: int | None, bounds: str | None = None, *, terminal: bool
) -> tuple[dict[str, Any], Line]:
    """JSON and the one line; `saved` are bytes of packs that storing it anew has freed,
    `bounds` names the record made for it.
    """
    document = {
        "id": made.id,
        "name": made.name,
        "number": made.number,
        "parents": list(made.parents),
        "raw": made.raw,
        "stored": made.stored,
        "new": made.new,
        "reused": made.reused,
        "snapshots": made.snapshots,
        "seconds": made.seconds,
        "scheme": made.scheme,
        "rounded": made.rounded,
        "saved": saved,
        "bounds": bounds,
    }
    label = Text(f"{made.name}@{made.number}", "bold")
    if not terminal:
        line = Line(
            label, Id(made.id), made.matrices, made.new, Bytes(made.raw), Bytes(made.stored)
        )
    else:
        noun = "matrix" if made.matrices == 1 else "matrices"
        held = f"{made.matrices} {noun} ({made.new} new)" if made.matrices else "no weights"
        sizes = f"{human_bytes(made.raw)} -> {human_bytes(made.stored)}"
        line = Line(label, Id(made.id), held, sizes if made.raw else "weights as before")
        if not made.matrices:
            line = Line(label, Id(made.id), held)
        if saved:
            return document, Line(*line.cells, f"{human_bytes(saved)} saved")
    return document, line
