"""How an edited network and its weights were made, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlv.network.edits.reuse import COPY, DROPPED, INIT, OVERLAP, Plan, Reuse
from dlv.terminal.output import Block, Heading
from dlv.terminal.table import Cell, Column, Table, Text
from dlv.versions.copying import Copied
from dlv.views.values import percent, plural, shape

_WORDS = {COPY: "copied", OVERLAP: "in part", INIT: "new", DROPPED: "dropped"}
_STYLES = {OVERLAP: "yellow", INIT: "green", DROPPED: "red"}


def record(made: Copied) -> dict[str, Any]:
    """The `network` and `weights` of the document; nothing if nothing was edited."""
    if made.network is None:
        return {}
    return {
        "network": {
            "id": made.network.id,
            "nodes": len(made.network.nodes),
            "edits": [
                {
                    "action": edit.action,
                    "node": edit.node,
                    "text": edit.text,
                    "warning": edit.warning,
                }
                for edit in made.edits
            ],
        },
        "weights": None if made.plan is None else _weights(made.plan, made.seed),
    }


def _weights(plan: Plan, seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "reused": plan.share,
        "tensors": [
            {
                "name": item.name,
                "action": item.action,
                "dtype": item.dtype,
                "old": None if item.old_shape is None else list(item.old_shape),
                "new": None if item.shape is None else list(item.shape),
                "reused": item.share,
                "fill": None if item.action in (COPY, DROPPED) else item.fill,
                "tied": item.tied,
                "reason": item.reason or None,
            }
            for item in (*plan.tensors, *plan.dropped)
        ],
    }


def blocks(made: Copied, everything: bool) -> Iterator[Block]:
    """What was done to the network, and what became of each tensor."""
    if made.network is None:
        return
    yield ""
    yield Heading(f"network: {plural(len(made.edits), 'edit')}")
    rows: list[list[Cell]] = [[edit.action, edit.node, edit.text] for edit in made.edits]
    yield Table([Column("what"), Column("node", least=12), "how"], rows)
    if made.plan is None:
        return
    yield ""
    yield Heading("weights: " + _tally(made.plan))
    items = [*made.plan.tensors, *made.plan.dropped]
    shown = [item for item in items if everything or item.action != COPY]
    if shown:
        columns: list[Column | str] = ["what", Column("matrix", least=16), "was", "is"]
        yield Table([*columns, Column("% kept", "reused"), "why"], [_row(item) for item in shown])


def _tally(plan: Plan) -> str:
    counts = [(plan.count(action), word) for action, word in _WORDS.items()]
    text = ", ".join(f"{count} {word}" for count, word in counts if count)
    share = percent(round(plan.share * 10_000), 10_000)
    return text + (f"; {share.value:.3g} % of the elements are the old ones" if share else "")


def _row(item: Reuse) -> list[Cell]:
    kept = percent(round(item.share * 10_000), 10_000) if item.action == OVERLAP else None
    return [
        Text(_WORDS[item.action], _STYLES.get(item.action, "")),
        item.name,
        None if item.old_shape is None else shape(item.old_shape),
        None if item.shape is None else shape(item.shape),
        kept,
        (f"tied to {item.tied}" if item.tied else item.reason) or None,
    ]
