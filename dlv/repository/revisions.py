"""Version references: `lenet@3`, id prefix, tag, HEAD, `~1`, `@best:metric`, `/step`, `:file`.

Tags are set and deleted here as well.
"""

from __future__ import annotations

import math
import re
from dataclasses import field

import dlv.metadata.evaluations as evaluations
import dlv.objects.manifest as manifest_format
from dlv.canonical import is_hash
from dlv.dataclass import dataclass
from dlv.errors import Conflict, NotFound, UsageError, nearest
from dlv.metadata import facts, versions
from dlv.metadata.database import Database
from dlv.metadata.versions import SnapshotRow, Version
from dlv.repository.handle import Change, Repository

_FORM = re.compile(
    r"(?P<base>[^@~^/:]+)"
    r"(?:@(?:(?P<latest>latest)|(?P<number>[0-9]+)"
    r"|best:(?P<metric>[^~^:]+?)(?::(?P<direction>min|max))?))?"
    r"(?P<walk>(?:[~^][0-9]*)*)"
    r"(?:/(?P<step>-?[0-9]+))?"
    r"(?::(?P<file>.+))?\Z",
    re.DOTALL,
)
_PREFIX = re.compile(r"[0-9a-f]{4,64}\Z")
_WORDS = re.compile(r"[a-z]+|[0-9]+")
_MINIMISED = {
    "loss",
    "error",
    "err",
    "perplexity",
    "ppl",
    "mse",
    "mae",
    "rmse",
    "nll",
    "wer",
    "fid",
}
_MAXIMISED = {
    *("accuracy", "acc", "auc", "f", "f1", "precision", "recall", "map", "bleu", "rouge", "psnr"),
    *("ssim", "iou", "dice", "r", "score", "reward", "top"),
}


@dataclass(frozen=True)
class Reference:
    """What a reference names: a version, and where it says so one snapshot or file of it."""

    version: Version
    snapshot: SnapshotRow | None = None
    file: str | None = None
    notes: tuple[str, ...] = field(default=())


def resolve(db: Database, text: str) -> Reference:
    """The version, snapshot or file that `text` names; NotFound with what was probably meant."""
    match = _FORM.match(text)
    if match is None:
        raise UsageError(
            f"`{text}` is not a version reference",
            why="forms: lenet, lenet@3, lenet@best:accuracy, 3f2a9c, a tag, HEAD, REF~1, REF/1000",
        )
    with db.snapshot():
        version = _base(db, match)
        for sign, count in re.findall(r"([~^])([0-9]*)", match["walk"]):
            version = _walk(db, text, version, sign, _integer(count) if count else 1)
        snapshot = None if match["step"] is None else _step(db, version, _integer(match["step"]))
        notes = []
        if version.state == "removed":
            notes.append(f"{version.label} is removed; to restore it: dlv undo --list")
        elif version.state == "undone":
            notes.append(f"the commit of {version.label} was undone")
        return Reference(version, snapshot, match["file"], tuple(notes))


def version(db: Database, text: str) -> Version:
    """A version and nothing more; a step or a file in the reference is refused."""
    return whole(db, text).version


def whole(db: Database, text: str) -> Reference:
    """The same, with the notes."""
    found = resolve(db, text)
    if found.snapshot is not None or found.file is not None:
        raise UsageError(
            f"`{text}` names a part of a version",
            why="a version is required here, not a checkpoint or file",
        )
    return found


def _integer(digits: str) -> int:
    """The number, or one that is as surely not there: SQLite has 64 bits, `int` 4300 digits."""
    return int(digits) if len(digits) <= 18 else 2**63 - 1


def _base(db: Database, match: re.Match[str]) -> Version:
    base, text = match["base"], match.string
    if match["number"] is not None:
        _known_name(db, base, text)
        found = versions.by_number(db, base, _integer(match["number"]))
        if found is None:
            numbers = [str(v.label) for v in versions.of_name(db, base)]
            raise NotFound(
                f"no version matches `{text}`",
                why=f"`{base}` has the versions {', '.join(numbers[-5:]) or 'none'}",
                did_you_mean=numbers[-1:],
                hint=f"dlv list {base}",
            )
        return found
    if match["metric"] is not None:
        _known_name(db, base, text)
        return _best(db, base, match["metric"], match["direction"])
    if match["latest"] is not None:
        _known_name(db, base, text)
    return _bare(db, base, text, names_only=match["latest"] is not None)


def _known_name(db: Database, name: str, text: str) -> None:
    if not versions.is_name(db, name):
        known = versions.names(db)
        likely = [f"{near}{text[len(name) :]}" for near in nearest(name, known)]
        raise NotFound(
            f"no version matches `{text}`",
            why=f"no model `{name}` here ({_count(len(known), 'name')})",
            did_you_mean=likely,
            hint="dlv list --names",
        )


def _count(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _bare(db: Database, base: str, text: str, *, names_only: bool) -> Version:
    """HEAD, a name, a tag, an id prefix: tried in this order."""
    if base == "HEAD" and not names_only:
        head = facts.state(db, "HEAD")
        found = None if head is None else versions.by_id(db, head)
        if found is None:
            raise NotFound(
                "no commits yet",
                why="no commits or checkouts here",
                hint="dlv commit -m MESSAGE --name NAME",
            )
        return found
    if len(base) == 64 and _PREFIX.match(base):
        found = versions.by_id(db, base)
        if found is not None:
            return found
    else:
        found = versions.latest(db, base)
        if found is None and not names_only:
            found = versions.by_tag(db, base)
        if found is not None:
            return found
        if _PREFIX.match(base) and not names_only:
            return _prefix(db, base)
    raise _nothing(db, base, text)


def _prefix(db: Database, base: str) -> Version:
    found = versions.by_prefix(db, base)
    visible = [v for v in found if v.state != "undone"] or found
    if len(visible) == 1:
        return visible[0]
    if not visible:
        raise _nothing(db, base, base)
    raise NotFound(
        f"the id prefix `{base}` is ambiguous",
        why="it fits " + ", ".join(f"{v.id[:12]} ({v.label})" for v in visible[:5]),
        hint="give more digits",
    )


def _nothing(db: Database, base: str, text: str) -> NotFound:
    known = versions.names(db)
    tags = [name for name, _ in versions.tags(db)]
    rest = text[len(base) :]
    removed = versions.is_name(db, base)
    why = "not a model, tag or id in this repository"
    if removed:
        why = f"all versions of `{base}` were removed or undone"
    return NotFound(
        f"no version matches `{text}`",
        why=why,
        did_you_mean=[f"{near}{rest}" for near in nearest(base, [*known, *tags])],
        hint="dlv list --removed" if removed else "dlv list --names",
    )


def direction_of(metric: str) -> str | None:
    """min or max, where the name of a metric says what is better."""
    words = set(_WORDS.findall(metric.lower().replace("_", " ")))
    if words & _MINIMISED or metric.lower().endswith("loss"):
        return "min"
    return "max" if words & _MAXIMISED else None


def _best(db: Database, name: str, given_metric: str, given: str | None) -> Version:
    line = versions.of_name(db, name)
    line = [version for version in line if not versions.is_quantized(version)] or line
    values = evaluations.last_values(db, line)
    try:
        metric = evaluations.metric_named(
            given_metric, {m for found in values.values() for m in found}
        )
    except NotFound as error:
        raise NotFound(
            f"no version of `{name}` has the metric `{given_metric}`",
            did_you_mean=[f"{name}@best:{near}" for near in error.did_you_mean],
            hint=f"dlv metrics {name}",
        ) from None
    direction = given or direction_of(metric)
    if direction is None:
        raise cannot_rank(metric, f"{name}@best:{metric}:max", f"{name}@best:{metric}:min")
    best: tuple[float, Version] | None = None
    for candidate in line:
        number = values[candidate.key].get(metric, math.nan)
        value = -number if direction == "max" else number
        # Oldest first, so that of equal ones the older stays.
        if not math.isnan(value) and (best is None or value < best[0]):
            best = value, candidate
    if best is None:
        raise NotFound(f"`{metric}` is NaN in all versions of `{name}`", hint=f"dlv metrics {name}")
    return best[1]


def cannot_rank(metric: str, for_max: str, for_min: str) -> UsageError:
    return UsageError(
        f"cannot rank by `{metric}`: is higher or lower better?", hint=f"use {for_max} or {for_min}"
    )


def _walk(db: Database, text: str, start: Version, sign: str, count: int) -> Version:
    """`~n`: n times the first parent; `^n`: the n-th parent."""
    here = start
    for _ in range(count if sign == "~" else min(count, 1)):
        position = 0 if sign == "~" else count - 1
        if position >= len(here.parents):
            raise NotFound(
                f"no version matches `{text}`",
                why=f"{here.label} has {_count(len(here.parents), 'parent')}",
                hint=f"dlv log {start.label}",
            )
        base = here.parents[position][0]
        found = versions.by_id(db, base)
        if found is None:
            raise NotFound(f"the parent {base[:12]} of {here.label} is not in this repository")
        here = found
    return here


def _step(db: Database, version: Version, step: int) -> SnapshotRow:
    rows = [row for row in versions.snapshots(db, version.key) if not row.removed]
    for row in rows:
        if row.step == step:
            return row
    known = sorted(
        (row.step for row in rows if row.step is not None), key=lambda s: (abs(s - step), s)
    )
    why = "its checkpoints have no steps" if rows else "it has no checkpoints"
    raise NotFound(
        f"{version.label} has no checkpoint at step {step}",
        why=f"the nearest are {' and '.join(map(str, sorted(known[:2])))}" if known else why,
        did_you_mean=[f"{version.label}/{near}" for near in known[:2]],
        hint=f"dlv show {version.label}",
    )


@dataclass(frozen=True)
class Tagged:
    """`version` is None if the tag was deleted, `before` what it named until now."""

    name: str
    version: Version | None
    before: Version | None

    @property
    def changed(self) -> bool:
        return (self.version and self.version.id) != (self.before and self.before.id)


def tags(repository: Repository) -> list[tuple[str, Version]]:
    """All tags in the order of the alphabet."""
    return versions.tags(repository.database)


def set_tag(
    repository: Repository, name: str, reference: str, author: str, *, move: bool = False
) -> Tagged:
    """Let a tag name a version; one that names another is only moved on request."""
    check_name(name)
    db = repository.database
    with repository.change("tag", author) as change:
        target = version(db, reference)
        before = versions.by_tag(db, name)
        if before is not None and before.id == target.id:
            change.cancel()
            return Tagged(name, target, before)
        if before is not None and not move:
            raise Conflict(
                f"tag `{name}` already exists",
                why=f"it names {before.label}",
                hint=f"dlv tag {name} {reference} --move",
            )
        if versions.is_name(db, name):
            raise Conflict(
                f"`{name}` is the name of a model",
                why="tags and models share one namespace",
                hint="choose another tag",
            )
        if target.state in ("removed", "undone"):
            raise Conflict(
                f"{target.label} was {target.state}",
                why="a removed version cannot be tagged",
                hint="to restore it: dlv undo --list",
            )
        _record(change, name, target)
        moved = f", was {before.label}" if before is not None else ""
        change.summary = f"{name} -> {target.label}{moved}"
    return Tagged(name, target, before)


def delete_tag(repository: Repository, name: str, author: str) -> Tagged:
    """Forget a tag; the version stays."""
    db = repository.database
    with repository.change("tag", author) as change:
        before = versions.by_tag(db, name)
        if before is None:
            known = [tag for tag, _ in versions.tags(db)]
            raise NotFound(
                f"no tag `{name}`",
                why=f"tags: {', '.join(known[:8])}" if known else "no tags",
                did_you_mean=nearest(name, known),
                hint="dlv tag --list",
            )
        _record(change, name, None)
        change.summary = f"{name} deleted, was {before.label}"
    return Tagged(name, None, before)


def _record(change: Change, name: str, version: Version | None) -> None:
    change.record("tag", name, {"version": None if version is None else version.id})


def check_name(name: str) -> None:
    """Refuse what a version reference would read as something else."""
    if not manifest_format.NAME.match(name) or name in ("HEAD", "latest") or is_hash(name):
        raise UsageError(
            f"`{name}` cannot be a tag",
            why="letters, digits and . _ + - are allowed, the first a letter or digit",
            hint="dlv tag best-so-far lenet@3",
        )
