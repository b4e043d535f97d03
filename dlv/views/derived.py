"""Networks that a query has derived: where each comes from, what was done, what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dlv.views.differences as differences
import dlv.weights.catalogue as catalogue
import dlv.weights.inventory as inventory
from dlv.dql.outcome import Model, Networks
from dlv.metadata import versions
from dlv.network import json_form
from dlv.network.drawing import draw
from dlv.network.edits.reuse import COPY, DROPPED, INIT, OVERLAP
from dlv.network.edits.wiring import Edit
from dlv.network.inference import Tensors
from dlv.network.likeness import comparison
from dlv.repository.handle import Repository
from dlv.repository.lineage import Relation
from dlv.terminal.output import Block, Heading, Verbatim
from dlv.terminal.table import Cell, Column, Id, Items, Table, Text
from dlv.versions.diff import Against, Diff, Side
from dlv.views.values import Screen, percent, plural
from dlv.weights.store import MatrixStore

_FOLLOWING = ("follow", "prune", "rename")  # what other changes bring with them


def document(found: Networks) -> dict[str, Any]:
    return {
        "verb": found.verb,
        "name": found.name,
        "into": found.into,
        "networks": [_record(model) for model in found.models],
        "dropped": [{"source": each.origin, "reason": each.reason} for each in found.dropped],
        "skipped": list(found.skipped),
    }


def _record(model: Model) -> dict[str, Any]:
    plan = model.reuse
    return {
        "id": model.id,
        "sources": list(model.origins),
        "source_id": model.source_id,
        "version": model.committed,
        "changes": [
            {"action": e.action, "node": e.node, "text": e.text, "warning": e.warning}
            for e in model.edits
        ],
        "problems": [str(problem) for problem in model.problems],
        "reused": None if plan is None else plan.share,
        "tensors": None
        if plan is None
        else {
            word: plan.count(action)
            for word, action in (
                *(("copied", COPY), ("overlapping", OVERLAP)),
                *(("new", INIT), ("dropped", DROPPED)),
            )
        },
        "network": json_form.write(model.network),
    }


def table(found: Networks) -> Table:
    """A row for each network; columns in which nothing stands are left out."""
    rows = [_row(model) for model in found.models]
    columns = [
        Column("version", fixed=True),
        Column("source", least=12),
        Column("id", fixed=True),
        Column("changes", least=16),
        Column("% kept", "reused"),
        Column("problems", least=16),
    ]
    kept = [
        i
        for i, column in enumerate(columns)
        if column.title not in ("version", "problems") or any(_filled(row[i]) for row in rows)
    ]
    return Table([columns[i] for i in kept], [[row[i] for i in kept] for row in rows])


def _row(model: Model) -> list[Cell]:
    share = None if model.reuse is None else percent(round(model.reuse.share * 10_000), 10_000)
    return [
        model.committed and Text(model.committed, "bold"),
        Items(list(model.origins)),
        Id(model.id),
        changes(model),
        share,
        Items([str(problem) for problem in model.problems]),
    ]


def _filled(cell: Cell) -> bool:
    return bool(cell.values) if isinstance(cell, Items) else cell is not None


def changes(model: Model) -> str:
    """What was done, in a line; of several things of a kind the nodes alone."""
    return edit_lines(model.edits)


def edit_lines(edits: Sequence[Edit]) -> str:
    """The same of edits by themselves."""
    own = [edit for edit in edits if edit.action not in _FOLLOWING] or list(edits)
    alike: dict[tuple[str, str], list[Edit]] = {}
    for edit in own:
        told = edit.text if edit.action == "set" else ""
        alike.setdefault((edit.action, told), []).append(edit)
    return "; ".join(_told(*key, edits) for key, edits in alike.items())


def _told(action: str, text: str, edits: Sequence[Edit]) -> str:
    if len(edits) == 1 and action in ("insert", "slice"):
        return f"{action} {edits[0].text}"
    nodes = _several([edit.node for edit in edits])
    return f"{action.replace('_', ' ')} {nodes} {text}".rstrip()


def _several(nodes: Sequence[str]) -> str:
    different = list(dict.fromkeys(nodes))
    if len(different) <= 3:
        return ", ".join(different)
    return f"{', '.join(different[:2])} and {len(different) - 2} more"


def blocks(found: Networks, repository: Repository, screen: Screen | None) -> Iterator[Block]:
    """The table; of a single network for people also what it looks like, and what is different."""
    yield table(found)
    if screen is None or len(found.models) != 1:
        return
    model = found.models[0]
    store = MatrixStore.of(repository)
    held = _tensors(model)
    yield ""
    text = draw(model.network, tensors=held, width=screen.width, ascii_only=screen.ascii_only)
    yield Verbatim(text.rstrip("\n").split("\n"))
    difference = _against_source(found, model, repository, store)
    if difference is None:
        return
    for section in differences.sections(difference, False, True):
        yield from ("", Heading(section.title))
        if section.table is not None and section.table.rows:
            yield section.table
        if section.note:
            yield section.note.replace(" (--all)", "")


def _tensors(model: Model) -> Tensors | None:
    if model.reuse is None:
        return None
    return {t.name: (t.dtype, t.shape) for t in model.reuse.tensors if t.shape is not None}


def _against_source(
    found: Networks, model: Model, repository: Repository, store: MatrixStore
) -> Diff | None:
    version = versions.by_id(repository.database, model.source_id)
    if version is None:
        return None
    manifest = repository.manifest(version.id)
    if manifest.network is None:
        return None
    network = catalogue.network(store, manifest.network.id)
    matrices = inventory.matrices(manifest, None)
    old = Side(version, manifest, None, network, matrices, version.label)
    new = Side(version, manifest, None, model.network, matrices, model.committed or found.name)
    compared = comparison.compare(
        network, model.network, old.tensors, _tensors(model) or old.tensors
    )
    against = Against(new, Relation("none", ""), compared, [], 0)
    return Diff([old, new], [against], ("structure",))


def left_out(found: Networks) -> Iterator[str]:
    """Networks that there are none of, one line each."""
    yield from (f"{each.origin} is left out: {each.reason}" for each in found.dropped)


def skipped(found: Networks) -> str | None:
    if not found.skipped:
        return None
    shown = ", ".join(found.skipped[:4]) + (", .." if len(found.skipped) > 4 else "")
    return f"nothing matched in {plural(len(found.skipped), 'model')}: {shown}"
