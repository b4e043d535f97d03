"""How fast snapshots must come back: what a user says, as numbers for the solvers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import dlv.repository.revisions as revisions
from dlv.archiving.planning import Held
from dlv.dataclass import dataclass
from dlv.errors import DlvError, UsageError
from dlv.metadata.database import Database
from dlv.pas.storage_graph import Infeasible, budgets_of

_TIME = re.compile(r"^\s*(\d+(?:\.\d*)?|\.\d+)\s*(us|µs|ms|s|m|min|h)\s*$")
_UNITS = {"us": 1, "µs": 1, "ms": 1e3, "s": 1e6, "m": 6e7, "min": 6e7, "h": 3.6e9}


@dataclass(frozen=True)
class Policy:
    """Slack over the fastest possible: 0.1 is ten per cent more time; inf is no limit.

    Hot: the latest version of each name and the tagged ones. Cold: checkpoints on the way.
    Normal: the rest. What comes back within `enough` seconds is always fast enough, unless it
    is hot.
    """

    hot: float = 0.1
    normal: float = 1.0
    cold: float = math.inf
    enough: float = 2.0
    alpha: float | None = None  # one factor for all, instead
    overrides: tuple[tuple[str, int], ...] = ()  # (reference, microseconds)


def microseconds(text: str) -> int | None:
    """`200ms`, `1.5s`, `2m`; None for `none`: no limit."""
    if text.strip().lower() in ("none", "unlimited", "inf"):
        return None
    match = _TIME.match(text)
    if match is None:
        raise UsageError(f"`{text}` is not a time", hint="200ms, 1.5s, 2m or none")
    return round(float(match[1]) * _UNITS[match[2]])


def override(text: str) -> tuple[str, int]:
    """`REF=TIME`."""
    reference, equals, time = text.rpartition("=")
    if not equals or not reference:
        raise UsageError(f"`{text}` is not REF=TIME", hint="--budget lenet@latest=200ms")
    limit = microseconds(time)
    return reference, -1 if limit is None else limit


def factor(alpha: float | None) -> float | None:
    """What `--alpha` says: at least 1, since nothing is faster than the fastest."""
    if alpha is not None and not alpha >= 1:
        raise UsageError(f"--alpha is {alpha:g}", why="1 is already the fastest possible")
    return alpha


def budgets(
    db: Database, policy: Policy, groups: Sequence[Held], minima: Sequence[int]
) -> list[int | None]:
    """A budget in microseconds for each snapshot; None: unlimited."""
    if policy.alpha is not None:
        limits = budgets_of(minima, [policy.alpha] * len(minima))
    else:
        slacks = [1 + _slack(policy, group) for group in groups]
        limits = budgets_of(minima, slacks)
        enough = round(policy.enough * 1e6)
        for at, (group, limit) in enumerate(zip(groups, limits, strict=True)):
            if limit is not None and not hot(group):
                limits[at] = max(limit, enough)
    for text, limit in policy.overrides:
        found = revisions.resolve(db, text)
        of_it = [at for at, group in enumerate(groups) if group.version.key == found.version.key]
        if found.snapshot is not None:
            of_it = [at for at in of_it if groups[at].snapshot.key == found.snapshot.key]
        if not of_it:
            raise UsageError(f"{text} has no weights", why="nothing to read")
        for at in of_it:
            limits[at] = None if limit < 0 else limit
    return limits


def hot(group: Held) -> bool:
    return group.latest or (group.snapshot.own and bool(group.version.tags))


def _slack(policy: Policy, group: Held) -> float:
    if hot(group):
        return policy.hot
    return policy.normal if group.snapshot.own else policy.cold


def label(group: Held) -> str:
    """`lenet@3`, or `lenet@3/1000` for a checkpoint on the way."""
    if group.snapshot.own or group.snapshot.step is None:
        return group.version.label
    return f"{group.version.label}/{group.snapshot.step}"


def explain(error: Infeasible, groups: Sequence[Held]) -> DlvError:
    """The same refusal in the user's words."""
    lines = [
        f"{label(groups[fault.snapshot])}: {seconds(fault.budget)} asked,"
        f" {seconds(fault.minimum)} is the fastest possible"
        for fault in error.shortfalls
    ]
    more = len(lines) - 4
    shown = lines[:4] + ([f"and {more} more"] if more > 0 else [])
    need = "" if error.alpha is None else f"; {error.alpha:.3g} times the budgets would do"
    return _OutOfReach(
        f"no plan meets {len(lines)} budget{'s' if len(lines) > 1 else ''}{need}",
        why="\n".join(shown),
        hint="raise the budgets, or let dlv raise them: dlv archive --clamp",
    )


class _OutOfReach(DlvError):
    exit_code = 9
    kind = "infeasible"


def seconds(microseconds: int) -> str:
    """A time as people read it."""
    value, unit = float(microseconds), "µs"
    for bound, larger in ((1e3, "ms"), (1e6, "s")):
        if microseconds >= bound:
            value, unit = microseconds / bound, larger
    return f"{value:.3g} {unit}"
