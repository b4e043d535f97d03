"""Networks made of others, by a query or by `copy`: changes, weights kept, drawings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import dlv.views.differences as differences
import dlv.weights.snapshots as snapshots
from dlv.metadata import versions
from dlv.network import json_form
from dlv.network.drawing import draw
from dlv.network.edits.reuse import COPY, DROPPED, INIT, OVERLAP, Plan, Reuse
from dlv.network.edits.wiring import Edit, own_edits
from dlv.network.inference import Tensors
from dlv.network.likeness import comparison
from dlv.repository.handle import Repository
from dlv.terminal.output import Block, Heading, Verbatim
from dlv.terminal.table import Cell, Column, Id, Items, Table, Text
from dlv.versions.diff import Against, Diff, Side
from dlv.versions.history import Relation
from dlv.views.values import Screen, columns_where, filled, percent, plural, shape
from dlv.weights.store import MatrixStore, stored_network

if TYPE_CHECKING:
    from dlv.dql.outcome import Model, Networks
    from dlv.versions.copying import Copied


_COUNTED = {"copied": COPY, "overlapping": OVERLAP, "new": INIT, "dropped": DROPPED}


def networks_document(networks: Networks) -> dict[str, Any]:
    return {
        "verb": networks.verb,
        "name": networks.name,
        "into": networks.into,
        "networks": [_network_record(model) for model in networks.models],
        "dropped": [{"source": each.origin, "reason": each.reason} for each in networks.dropped],
        "skipped": list(networks.skipped),
    }


def _network_record(model: Model) -> dict[str, Any]:
    plan = model.reuse
    return {
        "id": model.id,
        "sources": list(model.origins),
        "source_id": model.source_id,
        "version": model.committed,
        "changes": [asdict(edit) for edit in model.edits],
        "problems": [str(problem) for problem in model.problems],
        "reused": None if plan is None else plan.share,
        "tensors": None
        if plan is None
        else {word: plan.count(action) for word, action in _COUNTED.items()},
        "network": json_form.write(model.network),
    }


def networks_table(networks: Networks) -> Table:
    """A row for each network; columns in which nothing stands are left out."""
    rows = [_network_row(model) for model in networks.models]
    columns = [
        Column("version", fixed=True),
        Column("source", least=12),
        Column("id", fixed=True),
        Column("changes", least=16),
        Column("% kept", "reused"),
        Column("problems", least=16),
    ]
    return columns_where(
        Table(columns, rows),
        lambda column, cells: (
            column.title not in ("version", "problems") or any(map(filled, cells))
        ),
    )


def _network_row(model: Model) -> list[Cell]:
    share = None if model.reuse is None else percent(round(model.reuse.share * 10_000), 10_000)
    return [
        model.committed and Text(model.committed, "bold"),
        Items(list(model.origins)),
        Id(model.id),
        edit_lines(model.edits),
        share,
        Items([str(problem) for problem in model.problems]),
    ]


def edit_lines(edits: Sequence[Edit]) -> str:
    """What was done, in a line; of several things of a kind the nodes alone."""
    alike: dict[tuple[str, str], list[Edit]] = {}
    for edit in own_edits(edits):
        told = edit.text if edit.action == "set" else ""
        alike.setdefault((edit.action, told), []).append(edit)
    return "; ".join(_edits_line(*key, edits) for key, edits in alike.items())


def _edits_line(action: str, text: str, edits: Sequence[Edit]) -> str:
    if len(edits) == 1 and action in ("insert", "slice"):
        return f"{action} {edits[0].text}"
    nodes = _several([edit.node for edit in edits])
    return f"{action.replace('_', ' ')} {nodes} {text}".rstrip()


def _several(nodes: Sequence[str]) -> str:
    different = list(dict.fromkeys(nodes))
    if len(different) <= 3:
        return ", ".join(different)
    return f"{', '.join(different[:2])} and {len(different) - 2} more"


def networks_blocks(
    networks: Networks, repository: Repository, screen: Screen | None
) -> Iterator[Block]:
    """The table; of a single network for people also what it looks like, and what is different."""
    yield networks_table(networks)
    if screen is None or len(networks.models) != 1:
        return
    model = networks.models[0]
    store = MatrixStore.of(repository)
    held = _tensors(model)
    yield ""
    text = draw(model.network, tensors=held, width=screen.width, ascii_only=screen.ascii_only)
    yield Verbatim(text.rstrip("\n").split("\n"))
    difference = _against_source(networks, model, repository, store)
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
    networks: Networks, model: Model, repository: Repository, store: MatrixStore
) -> Diff | None:
    version = versions.by_id(repository.database, model.source_id)
    if version is None:
        return None
    manifest = repository.manifest(version.id)
    if manifest.network is None:
        return None
    network = stored_network(store, manifest.network.id)
    matrices = snapshots.matrices(manifest, None)
    old = Side(repository, version, manifest, None, network, matrices, version.label)
    label = model.committed or networks.name
    new = Side(repository, version, manifest, None, model.network, matrices, label)
    compared = comparison.compare(
        network, model.network, old.tensors, _tensors(model) or old.tensors
    )
    against = Against(new, Relation("none", ""), compared, [], 0)
    return Diff([old, new], [against], ("structure",))


def left_out(networks: Networks) -> Iterator[str]:
    """Networks that there are none of, one line each."""
    yield from (f"skipped {each.origin}: {each.reason}" for each in networks.dropped)


def skipped(networks: Networks) -> str | None:
    if not networks.skipped:
        return None
    shown = ", ".join(networks.skipped[:4]) + (", .." if len(networks.skipped) > 4 else "")
    return f"no match in {plural(len(networks.skipped), 'model')}: {shown}"


# Of `copy`: one network, and what became of each tensor


_WORDS = {COPY: "copied", OVERLAP: "in part", INIT: "new", DROPPED: "dropped"}
_STYLES = {OVERLAP: "yellow", INIT: "green", DROPPED: "red"}


def copy_record(copied: Copied) -> dict[str, Any]:
    """The `network` and `weights` of the document; nothing if nothing was edited."""
    if copied.network is None:
        return {}
    return {
        "network": {
            "id": copied.network.id,
            "layers": len(copied.network.nodes),
            "edits": [asdict(edit) for edit in copied.edits],
        },
        "weights": None if copied.plan is None else _weights_record(copied.plan, copied.seed),
    }


def _weights_record(plan: Plan, seed: int) -> dict[str, Any]:
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


def copy_blocks(copied: Copied, everything: bool) -> Iterator[Block]:
    """What was done to the network, and what became of each tensor."""
    if copied.network is None:
        return
    yield ""
    yield Heading(f"network: {plural(len(copied.edits), 'edit')}")
    rows: list[list[Cell]] = [[edit.action, edit.node, edit.text] for edit in copied.edits]
    yield Table([Column("what"), Column("layer", least=12), "how"], rows)
    if copied.plan is None:
        return
    yield ""
    yield Heading("weights: " + _tally(copied.plan))
    items = [*copied.plan.tensors, *copied.plan.dropped]
    shown = [item for item in items if everything or item.action != COPY]
    if shown:
        columns: list[Column | str] = ["what", Column("tensor", least=16), "was", "is"]
        yield Table(
            [*columns, Column("% kept", "reused"), "why"], [_reuse_row(item) for item in shown]
        )


def _tally(plan: Plan) -> str:
    counts = [(plan.count(action), word) for action, word in _WORDS.items()]
    text = ", ".join(f"{count} {word}" for count, word in counts if count)
    share = percent(round(plan.share * 10_000), 10_000)
    return text + (f"; {share.value:.3g}% of the elements are the old ones" if share else "")


def _reuse_row(item: Reuse) -> list[Cell]:
    kept = percent(round(item.share * 10_000), 10_000) if item.action == OVERLAP else None
    return [
        Text(_WORDS[item.action], _STYLES.get(item.action, "")),
        item.name,
        None if item.old_shape is None else shape(item.old_shape),
        None if item.shape is None else shape(item.shape),
        kept,
        (f"tied to {item.tied}" if item.tied else item.reason) or None,
    ]
