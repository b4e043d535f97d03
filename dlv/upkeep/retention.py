"""`--keep-last` and `--keep-best`: which versions are hidden first, as `rm` would hide them.

Per name, as retention policies of backup programs go by host and path: what one model keeps must
not depend on how often another one is committed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import dlv.repository.revisions as revisions
from dlv.dataclass import dataclass
from dlv.errors import NotFound, UsageError
from dlv.metadata import evaluations, usage, versions
from dlv.metadata.database import Database
from dlv.metadata.versions import Version


@dataclass(frozen=True)
class Best:
    """The `count` best by a metric."""

    metric: str
    count: int
    direction: str | None = None


@dataclass(frozen=True)
class Policy:
    """A version stays if any of the two says so; without either of them all do."""

    last: int | None = None
    best: tuple[Best, ...] = ()

    def __bool__(self) -> bool:
        return self.last is not None or bool(self.best)


@dataclass(frozen=True)
class Choice:
    """What a policy leads to: hidden, or (`why`) spared."""

    version: Version
    why: str | None = None


def best(text: str) -> Best:
    """`METRIC:N`, or `METRIC:min:N` and `METRIC:max:N` where the name does not say which."""
    rest, colon, number = text.rpartition(":")
    direction = None
    if rest.endswith((":min", ":max")):
        rest, _, direction = rest.rpartition(":")
    if not colon or not rest or not number.isdigit() or not int(number):
        raise UsageError(
            f"`{text}` is not METRIC:N",
            why="METRIC:N keeps the N best versions of each model",
            hint="dlv gc --keep-best accuracy:3",
        )
    direction = direction or revisions.direction_of(rest)
    if direction is None:
        raise revisions.cannot_rank(
            rest, f"--keep-best {rest}:max:{number}", f"--keep-best {rest}:min:{number}"
        )
    return Best(rest, int(number), direction)


def choose(db: Database, policy: Policy, head: str | None) -> list[Choice]:
    """What the policy would hide, oldest first, and what of that stays nevertheless."""
    if not policy:
        return []
    everything = versions.all_versions(db)
    values = evaluations.last_values(db, everything) if policy.best else {}
    known = {name for found in values.values() for name in found}
    policy = replace(policy, best=tuple(_with_metric(wanted, known) for wanted in policy.best))
    outside: list[Version] = []
    for name in versions.names(db):
        of_name = [version for version in versions.of_name(db, name) if version.state == "live"]
        kept = _kept(values, of_name, policy)
        outside += [] if kept is None else [v for v in of_name if v.key not in kept]
    return _spare(db, outside, head)


def _with_metric(wanted: Best, known: set[str]) -> Best:
    """Take the metric's full name; one that nothing has was mistyped and must not hide all."""
    try:
        return replace(wanted, metric=evaluations.metric_named(wanted.metric, known))
    except NotFound as error:
        raise NotFound(
            f"no version has the metric `{wanted.metric}`, so nothing would be kept",
            did_you_mean=error.did_you_mean,
            hint="to list the metrics: dlv metrics",
        ) from None


def _kept(
    values: Mapping[int, Mapping[str, float]], of_name: list[Version], policy: Policy
) -> set[int] | None:
    """None: no version of the name has the metric, so that it says nothing of them."""
    kept = set()
    if policy.last is not None:
        kept |= {version.key for version in of_name[-policy.last :]}
    silent = bool(policy.best) and policy.last is None
    for wanted in policy.best:
        ranked = []
        for version in of_name:
            value = values[version.key].get(wanted.metric, math.nan)
            if not math.isnan(value):
                ranked.append((-value if wanted.direction == "max" else value, -version.key))
        silent &= not ranked
        kept |= {-key for _, key in sorted(ranked)[: wanted.count]}
    return None if silent else kept


def _spare(db: Database, outside: list[Version], head: str | None) -> list[Choice]:
    """Never HEAD, nor what is tagged, nor that whose weights are the bases of what stays."""
    spared: dict[int, str] = {}
    for version in outside:
        if version.id == head:
            spared[version.key] = "HEAD"
        elif version.tags:
            spared[version.key] = f"tagged {version.tags[0]}"
    keys = {version.key for version in outside}
    staying = [v for v in versions.all_versions(db) if v.key not in keys or v.key in spared]
    while staying:
        known = {version.key for version in staying}
        fresh = list(_bases(db, staying, [v for v in outside if v.key not in spared]))
        spared |= {version.key: f"base of {label}" for version, label in fresh}
        staying = [version for version, _ in fresh if version.key not in known]
    return [Choice(version, spared.get(version.key)) for version in outside]


def _bases(
    db: Database, staying: list[Version], others: Iterable[Version]
) -> Iterable[tuple[Version, str]]:
    for other in others:
        for version in staying:
            if usage.rests_on(db, version.key, other.key):
                yield other, version.label
                break
