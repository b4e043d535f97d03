"""How `archive --scheme` lays out the lossy versions that it made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlv.terminal.output import Block
from dlv.terminal.table import Bytes, Column, Id, Table, Text
from dlv.versions.lossy import SchemeChild


def children(found: Sequence[SchemeChild]) -> tuple[dict[str, Any], list[Block]]:
    """JSON and table, a row for each version; `before` and `after` are bytes in packs."""
    table = Table(
        [
            Column("version", fixed=True),
            *("id", "of", "scheme"),
            *("rounded", "matrices", "raw", "before", "after", "made"),
        ],
        [
            [
                Text(child.version.label, "bold"),
                *(Id(child.version.id), child.source.label, child.scheme),
                *(child.rounded, child.matrices),
                *(Bytes(child.raw), Bytes(child.before), Bytes(child.after)),
                child.made,
            ]
            for child in found
        ],
    )
    document = {
        "before": sum(child.before for child in found),
        "after": sum(child.after for child in found),
        "lossy": table.records(),
    }
    return document, [table]
