"""`list` and `log`: which versions there are, how each came about, and how two are related."""

from __future__ import annotations

import datetime
import fnmatch
import heapq
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import dlv.repository.revisions as revisions
import dlv.versions.conditions as conditions
from dlv.canonical import timestamp
from dlv.dataclass import dataclass
from dlv.errors import NotFound, UsageError, nearest
from dlv.metadata import evaluations, metrics, versions
from dlv.metadata.database import Database
from dlv.metadata.metrics import Summary
from dlv.metadata.versions import Version
from dlv.repository.handle import Repository
from dlv.versions.conditions import Key

HIDDEN = ("removed", "undone")
SHOWN = ("live", "recovered")
# What `list` can show or sort by beside metrics and hyperparameters.
FIELDS = (
    *("version", "id", "name", "number", "created", "author", "parents", "metrics", "tags"),
    *("framework", "network", "scheme", "state", "message"),
)
_CALLED = {"age": "created"}  # as the column is titled on a terminal
_SORTED = (
    "version",
    "name",
    "number",
    "created",
    "author",
    "framework",
    "scheme",
    "state",
    "message",
)
_AGO = re.compile(r"([0-9]{1,6})([hdwy])\Z")
_HOURS = {"h": 1, "d": 24, "w": 24 * 7, "y": 24 * 365}


@dataclass(frozen=True)
class Entry:
    """A version with what a listing says of it."""

    version: Version
    parents: tuple[Parent, ...]
    head: bool
    metrics: Mapping[str, Summary] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def value(self, key: Key) -> Any:
        return key.of(self.metrics, self.parameters)


@dataclass
class Filter:
    """What `list` was asked for; everything that is said must hold."""

    patterns: Sequence[str] = ()
    name: str | None = None
    message: str | None = None
    where: Sequence[str] = ()
    since: str | None = None
    tag: str | None = None
    sort: str | None = None
    last: int | None = None
    removed: bool = False
    columns: str | None = None


@dataclass(frozen=True)
class Listing:
    entries: list[Entry]
    columns: list[tuple[str, Key | None]]  # (name, what it shows if it is no field); may be empty
    usual: list[str]  # the metrics that tell these versions apart best, most telling first
    total: int  # versions that are visible, whatever was asked for
    hidden: int = 0  # removed and undone ones, if they were not asked for


def list_versions(repository: Repository, wanted: Filter) -> Listing:
    """The versions that fulfil the filter, newest first unless it sorts them."""
    db = repository.database
    since = None if wanted.since is None else moment(wanted.since)
    with db.snapshot():
        everything = versions.all_versions(db, (*SHOWN, *HIDDEN))
        head = repository.head
        figures, parameters = metrics.all_of(db), metrics.hyperparameters(db)
        results = evaluations.results(db)
    labels = {version.id: version.label for version in everything}
    entries = [
        Entry(
            version,
            _parents(version, labels),
            version.id == head,
            _with_results(figures.get(version.key, ()), results.get(version.id, {})),
            parameters.get(version.key, {}),
        )
        for version in everything
    ]
    shown = [entry for entry in entries if wanted.removed or entry.version.state in SHOWN]
    _check_names(wanted, [entry.version for entry in entries])
    _check_tag(wanted.tag, [entry.version for entry in entries])
    known = _known(shown)
    terms = [term for text in wanted.where for term in conditions.parse(text, *known)]
    columns = _columns(wanted.columns, *known)
    order = None if wanted.sort is None else _order(wanted.sort, *known)
    found = [
        entry
        for entry in shown
        if _fits(entry.version, wanted)
        and (since is None or entry.version.created >= since)
        and all(term.holds(entry.metrics, entry.parameters) for term in terms)
    ]
    if order is not None:
        found.sort(key=order)
    if wanted.last is not None:
        found = found[: wanted.last]
    return Listing(found, columns, _usual(found), len(shown), len(entries) - len(shown))


def _with_results(summaries: Iterable[Summary], results: Mapping[str, float]) -> dict[str, Summary]:
    """Return metrics by name: logged ones, and those of evaluations as DATA/METRIC."""
    every = [*summaries, *evaluations.as_summaries(results)]
    return {summary.name: summary for summary in every}


def shown_kind(kind: str) -> str:
    return "quantize" if kind == "scheme" else kind


def _parents(version: Version, labels: Mapping[str, str]) -> tuple[Parent, ...]:
    return tuple(Parent(base, shown_kind(kind), labels.get(base)) for base, kind in version.parents)


def _known(entries: Sequence[Entry]) -> tuple[set[str], set[str]]:
    """Names of the metrics and of the hyperparameters that any of them has."""
    return (
        {name for entry in entries for name in entry.metrics},
        {name for entry in entries for name in entry.parameters},
    )


def _check_names(wanted: Filter, everything: Sequence[Version]) -> None:
    """A name without wildcards that nothing has is a slip; a pattern may find nothing."""
    known = sorted({version.name for version in everything})
    for name in filter(None, [*wanted.patterns, wanted.name]):
        if not re.search(r"[*?\[]", name) and name not in known:
            base, at, _ = name.partition("@")
            if at and base in known:
                raise UsageError(
                    f"`{name}` is a version; `list` takes names", hint=f"dlv list {base}"
                )
            raise NotFound(
                f"no model `{name}`", did_you_mean=nearest(name, known), hint="dlv list --names"
            )


def _check_tag(wanted: str | None, everything: Sequence[Version]) -> None:
    known = sorted({tag for version in everything for tag in version.tags})
    if wanted is not None and not re.search(r"[*?\[]", wanted) and wanted not in known:
        raise NotFound(
            f"no version has the tag `{wanted}`",
            why=f"{'1 tag' if len(known) == 1 else f'{len(known)} tags'} here",
            did_you_mean=nearest(wanted, known),
            hint="dlv tag",
        )


def _fits(version: Version, wanted: Filter) -> bool:
    if wanted.patterns and not any(fnmatch.fnmatchcase(version.name, p) for p in wanted.patterns):
        return False
    if wanted.name is not None and not fnmatch.fnmatchcase(version.name, wanted.name):
        return False
    if wanted.message is not None and wanted.message.lower() not in version.message.lower():
        return False
    return wanted.tag is None or any(fnmatch.fnmatchcase(tag, wanted.tag) for tag in version.tags)


def moment(text: str) -> str:
    """A date, a time, or how long ago, as `created` is written."""
    ago = _AGO.match(text)
    try:
        if ago:
            then = datetime.datetime.fromisoformat(timestamp())
            then -= datetime.timedelta(hours=int(ago[1]) * _HOURS[ago[2]])
        else:
            then = datetime.datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"`{text}` is not a time",
            why="a date such as 2026-06-01, a time such as 2026-06-01T12:00, or 12h, 3d, 2w, 1y",
            hint="dlv list --since 2w",
        ) from error
    if then.tzinfo is None:
        then = then.replace(tzinfo=datetime.UTC)
    return timestamp(then)


def _columns(
    text: str | None, known_metrics: set[str], known_parameters: set[str]
) -> list[tuple[str, Key | None]]:
    given = [name.strip() for name in (text or "").split(",")]
    names = [_CALLED.get(name, name) for name in given]
    return [
        (name, None if name in FIELDS else _key(name, FIELDS, known_metrics, known_parameters))
        for name in names
        if name
    ]


def _key(name: str, fields: Sequence[str], in_metrics: set[str], in_parameters: set[str]) -> Key:
    try:
        return conditions.find(name, in_metrics, in_parameters)
    except NotFound as error:
        known = [*fields, *sorted(in_metrics | in_parameters)]
        error.did_you_mean = error.did_you_mean or nearest(name, known)
        error.hint = f"always there: {', '.join(fields)}"
        raise


def _order(name: str, in_metrics: set[str], in_parameters: set[str]) -> Callable[[Entry], Any]:
    """Newest or best first where there is such a thing, else ascending; without a value last."""
    name = _CALLED.get(name, name)
    if name == "created":
        return lambda _: 0  # as they come
    if name == "version":
        return lambda entry: (entry.version.name, entry.version.number or 0)
    if name in _SORTED:
        return lambda entry: (getattr(entry.version, name) is None, getattr(entry.version, name))
    key = _key(name, _SORTED, in_metrics, in_parameters)
    largest_first = key.figure is not None and revisions.direction_of(key.name) != "min"

    def rank(entry: Entry) -> tuple[int, float, str]:
        value = entry.value(key)
        if isinstance(value, (int, float)) and not math.isnan(value):
            return 0, -value if largest_first else value, ""
        return (2, 0.0, "") if value is None else (1, 0.0, str(value))

    return rank


def _usual(entries: Sequence[Entry]) -> list[str]:
    """Metrics by how many versions have them; those with a known direction first."""
    count: dict[str, int] = {}
    for entry in entries:
        for name in entry.metrics:
            count[name] = count.get(name, 0) + 1
    rank = {"max": 0, "min": 1, None: 2}
    return sorted(count, key=lambda name: (-count[name], rank[revisions.direction_of(name)], name))


@dataclass(frozen=True)
class Name:
    """A model's name, and the last of its listed versions."""

    name: str
    versions: int
    latest: Version


def names(listing: Listing) -> list[Name]:
    """The names of the listed versions, in the order of the alphabet."""
    found: dict[str, list[Version]] = {}
    for entry in listing.entries:
        found.setdefault(entry.version.name, []).append(entry.version)
    return [
        Name(name, len(rows), max(rows, key=lambda version: version.number or 0))
        for name, rows in sorted(found.items())
    ]


def log(
    repository: Repository, reference: str | None, *, everything: bool = False
) -> tuple[list[Entry], tuple[str, ...]]:
    """A version and all that it comes from, children before parents; and notes on the way."""
    db = repository.database
    with db.snapshot():
        notes: tuple[str, ...] = ()
        if everything:
            tips = versions.all_versions(db)
        else:
            if reference is None and repository.head is None:
                raise NotFound(
                    "no commits yet",
                    why="no commits or checkouts here",
                    hint="to show all versions: dlv log --all",
                )
            start = revisions.whole(db, reference or "HEAD")
            tips, notes = versions.ancestors(db, start.version.key), start.notes
        found = {version.id: version for version in tips}
        # Hidden versions that visible ones come from belong to the line, too.
        if everything:
            found = _with_ancestors(repository, found)
        head = repository.head
        labels = {v.id: v.label for v in versions.all_versions(db, (*SHOWN, *HIDDEN))}
    return [
        Entry(version, _parents(version, labels), version.id == head)
        for version in children_first(found)
    ], notes


def _with_ancestors(repository: Repository, tips: Mapping[str, Version]) -> dict[str, Version]:
    known = {v.id: v for v in versions.all_versions(repository.database, (*SHOWN, *HIDDEN))}
    found = dict(tips)
    pending = [base for version in tips.values() for base, _ in version.parents]
    while pending:
        version = known.get(pending.pop())
        if version is not None and version.id not in found:
            found[version.id] = version
            pending += [base for base, _ in version.parents]
    return found


def children_first(by_id: Mapping[str, Version]) -> list[Version]:
    """Newest first, but never a parent before its child, whatever clocks said."""
    waiting = dict.fromkeys(by_id, 0)
    for version in by_id.values():
        for base in {base for base, _ in version.parents} & by_id.keys():
            waiting[base] += 1
    age = {
        version.id: place
        for place, version in enumerate(
            sorted(by_id.values(), key=lambda version: (version.created, version.key), reverse=True)
        )
    }
    ready = [(age[digest], digest) for digest, children in waiting.items() if not children]
    heapq.heapify(ready)
    ordered = []
    while ready:
        version = by_id[heapq.heappop(ready)[1]]
        ordered.append(version)
        for base in {base for base, _ in version.parents} & by_id.keys():
            waiting[base] -= 1
            if not waiting[base]:
                heapq.heappush(ready, (age[base], base))
    return ordered


@dataclass(frozen=True)
class Parent:
    """A parent as it is shown; `label` is None if it is not in this repository.

    Manifests call the kind of a quantized version's parent "scheme".
    """

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


def parents_of(db: Database, version: Version) -> tuple[Parent, ...]:
    """The first one is that whose parts were carried on."""
    found = [(versions.by_id(db, base), base, kind) for base, kind in version.parents]
    return tuple(
        Parent(base, shown_kind(kind), None if row is None else row.label)
        for row, base, kind in found
    )


def lossy_note(db: Database, version: Version) -> str | None:
    """What to know before the weights of a version are used as if they were exact."""
    if version.scheme is None:
        return None
    text = f"{version.label} is quantized to {version.scheme}"
    found = [parent for parent in parents_of(db, version) if parent.kind == "quantize"]
    if found:
        return f"{text}; the exact weights are in {found[0].label or found[0].id[:12]}"
    return f"{text}; the exact weights are not stored"


def relation(db: Database, first: Version, second_db: Database, second: Version) -> Relation:
    """What the second version is to the first one."""
    a, b = first.label, second.label
    if first.id == second.id:
        return Relation("same", f"both are {a}", first, 0)
    below, above = versions.ancestors(second_db, second.key), versions.ancestors(db, first.key)
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
