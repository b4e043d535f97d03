"""What a statement would do, step by step: `explain`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from dlv.dql.bind.bound import (
    Bound,
    Change,
    Chosen,
    Cut,
    Delete,
    Derivation,
    Insert,
    Making,
    Replace,
)
from dlv.dql.outcome import Explained, Networks
from dlv.metadata.database import Database
from dlv.metadata.select import statement as select
from dlv.metadata.select import wording
from dlv.metadata.select.relations import AnyNode, Query

Placed = Callable[[Query], Query]


def explain(
    db: Database,
    bound: Bound,
    rules: Sequence[str],
    placed: Placed,
    derive: Callable[[Derivation], Networks | None],
    *,
    analyze: bool,
    at: select.At,
) -> Explained:
    """The plans of all queries in the order in which they are asked, and what is derived.

    `derive` puts the networks where the queries after it look for them: none, unless `analyze`.
    """
    lines = [f"Rewritten  {', '.join(rules)}"] if rules else []
    steps: list[dict[str, Any]] = []
    for work in bound.derivations:
        plan = select.explain(db, placed(work.source), analyze=analyze, at=at)
        began = time.perf_counter()
        made = derive(work)
        document: dict[str, Any] = {"step": work.verb, "name": work.name, "source": plan.document()}
        title = f"{work.verb.capitalize()} {work.name} of {work.variable}"
        if made is not None:
            spent = (time.perf_counter() - began) * 1e3
            document |= {"networks": len(made.models), "ms": round(spent, 3)}
            title += f"  {len(made.models)} networks  {spent:.1f} ms"
        changes = _changes(work)
        document["changes"] = changes
        if work.into is not None:
            document["into"] = work.into
            changes = [*changes, f'into "{work.into}"']
        lines += [title, *(f"  {change}" for change in changes)]
        lines += [f"  {line}" for line in plan.lines()]
        steps.append(document)
    if bound.query is not None:
        plan = select.explain(db, placed(bound.query), analyze=analyze, at=at)
        lines += plan.lines()
        steps.append({"step": "select", "source": plan.document()})
    return Explained(
        lines, {"analyzed": analyze, "rules": list(rules), "steps": steps}, bound.warnings
    )


def _changes(work: Derivation) -> list[str]:
    if isinstance(work.work, Cut):
        ends = (
            ", ".join(map(wording.nodes, each)) for each in (work.work.inputs, work.work.outputs)
        )
        return ["from {} to {}".format(*ends)]
    each = "each " if work.each else ""
    return [each + _change(change, work.chosen) for change in work.work]


def _change(change: Change, chosen: Sequence[Chosen]) -> str:
    only = [
        wording.condition(AnyNode(one.nodes, one.test))
        for one in chosen
        if one.nodes.start == change.nodes.start
        and one.nodes.steps[: len(change.nodes.steps)] == change.nodes.steps
    ]
    found = wording.nodes(change.nodes) + (f" where {' and '.join(only)}" if only else "")
    if isinstance(change, Insert):
        place = "before" if change.before else "behind"
        edge = change.source if change.before else change.to
        on = "" if edge is None else f", on the edge {'from' if change.before else 'to'} "
        on += "" if edge is None else wording.nodes(edge)
        return f"insert {_makings(change.makings)} {place} {found}{on}"
    if isinstance(change, Replace):
        return f"replace {found} by {_makings(change.makings)}"
    if isinstance(change, Delete):
        to = "" if change.to is None else f"the edge to {wording.nodes(change.to)} of "
        return f"delete {to}{found}"
    values = ", ".join(map(str, change.values))
    return f"set {found}.{change.attribute} = {values}"


def _makings(makings: tuple[Making, ...]) -> str:
    return ", ".join(making.op if making.name is None else making.name for making in makings)
