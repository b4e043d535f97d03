"""How versions are related: parents, and what two have in common."""

from __future__ import annotations

from dataclasses import dataclass

from dlv.metadata import versions
from dlv.metadata.database import Database
from dlv.metadata.versions import Version


@dataclass(frozen=True)
class Parent:
    """`label` is None where the parent is not in this repository."""

    id: str
    kind: str
    label: str | None


@dataclass(frozen=True)
class Relation:
    """`kind`: same, descendant, ancestor (the second of the first), siblings or none.

    `common` is the newest version that both come from, `steps` how many commits lie between
    two of one line.
    """

    kind: str
    text: str
    common: Version | None = None
    steps: int | None = None


def parents(db: Database, version: Version) -> tuple[Parent, ...]:
    """The first one is that whose parts were carried on."""
    found = [(versions.by_id(db, base), base, kind) for base, kind in version.parents]
    return tuple(
        Parent(base, kind, None if row is None else row.label) for row, base, kind in found
    )


def lossy(db: Database, version: Version) -> str | None:
    """What to know before the weights of a version are used as if they were exact."""
    if version.scheme is None:
        return None
    text = f"{version.label} is lossy: its weights were rounded by {version.scheme}"
    found = [parent for parent in parents(db, version) if parent.kind == "scheme"]
    if found:
        return f"{text}; {found[0].label or found[0].id[:12]} has the exact ones"
    return f"{text}, and the exact ones were not kept in it"


def relation(db: Database, first: Version, second: Version) -> Relation:
    """What the second version is to the first one."""
    a, b = first.label, second.label
    if first.id == second.id:
        return Relation("same", f"both are {a}", first, 0)
    below, above = versions.ancestors(db, second.key), versions.ancestors(db, first.key)
    steps = _steps(below, second, first)
    if steps is not None:
        return Relation("descendant", _line(b, a, steps), first, steps)
    steps = _steps(above, first, second)
    if steps is not None:
        return Relation("ancestor", _line(a, b, steps), second, steps)
    known = {version.id for version in above}
    for version in below:
        if version.id in known:
            return Relation("siblings", f"{a} and {b} both come from {version.label}", version)
    return Relation("none", f"{a} and {b} have no common ancestor here")


def _line(child: str, parent: str, steps: int) -> str:
    if steps == 1:
        return f"{child} is a child of {parent}"
    return f"{child} is {steps} commits after {parent}"


def _steps(line: list[Version], start: Version, target: Version) -> int | None:
    """The fewest parents to go through from `start` to `target`."""
    parents = {version.id: [parent for parent, _ in version.parents] for version in line}
    level, seen, steps = [start.id], {start.id}, 0
    while level:
        if target.id in level:
            return steps
        following = dict.fromkeys(p for digest in level for p in parents.get(digest, ()))
        level = [digest for digest in following if digest not in seen]
        seen.update(level)
        steps += 1
    return None
