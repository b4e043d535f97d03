"""What a query gave: its tables, and the networks that it derived as drawings."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import dlv.report.network_picture as network_picture
import dlv.ui.sweep as sweep
import dlv.views.queried as view
from dlv.dataclass import dataclass
from dlv.dql.outcome import Networks, Outcome, Table, Trials
from dlv.report.page import Section
from dlv.repository.handle import Repository
from dlv.ui.frame import Frame

DRAWN = 12  # networks


@dataclass(frozen=True)
class Told:
    """Sections, the document of --json, ids of what was found and how much that is."""

    sections: list[Section]
    document: dict[str, Any]
    ids: list[str]
    count: int


def sections(
    repository: Repository,
    outcome: Outcome,
    frame: Frame,
    *,
    most: int | None = None,
    counted: bool = True,
) -> Told:
    """The outcome of one statement; of rows the first ones, up to `most`.

    The others are read and counted, unless not `counted`.
    """
    more = 0
    if isinstance(outcome, Table):  # rows come as they are read, and are told of twice
        read = outcome.rows if counted or most is None else islice(outcome.rows, most + 1)
        rows = list(read)
        more = 0 if most is None else max(0, len(rows) - most)
        kept = rows if most is None else rows[:most]
        outcome = replace(outcome, rows=kept)  # type: ignore[arg-type]
    shown = view.shown(outcome, repository, None, verbose=True)
    document, ids = shown.document(), [*shown.ids()]
    shown = view.shown(outcome, repository, None, verbose=True)
    blocks = [*shown.blocks()]
    found = frame.sections(blocks)
    if isinstance(outcome, Networks):
        for model in outcome.models[:DRAWN]:
            title = f"network {model.id[:12]} from {', '.join(model.origins[:4])}"
            found.append(Section(title, network_picture.picture(model.network, None, title)))
    if isinstance(outcome, Trials):
        found += sweep.pictures(
            [
                sweep.Line(
                    f"#{trial.ordinal}", trial.varied, {} if trial.view is None else trial.view.last
                )
                for trial in outcome.trials
            ],
            outcome.metric,
            smaller=outcome.direction != "max",
        )
    messages = [*shown.warnings, *shown.messages()]
    if more:
        rest = f"{more:,} more rows" if counted else "more rows"
        messages.append(f"and {rest}; the terminal prints all of them")
    if messages:
        found.append(Section("", frame.html(*messages)))
    return Told(found, document, ids, shown.count)
