"""What passes between the ledger and those who use it: trials to be, claims, and their absence."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LEASE = 60.0  # seconds
RENEW = 10.0  # how often a worker should renew its lease
ATTEMPTS = 3  # claims without a new step, after which a trial is failed
LOGS_BEFORE_CERTAIN = 10  # an own program may log some of its metrics seldom
MOST_ERROR = 100_000  # characters of a traceback


class Nothing(enum.Enum):
    """Why there is no trial to train."""

    WAIT = "others are at work, or more trials may come"
    OVER = "all runs are over"


WAIT, OVER = Nothing.WAIT, Nothing.OVER


class LeaseLost(Exception):
    """Another worker has the trial now, or nobody wants it: drop it, and write nothing."""


@dataclass(frozen=True)
class NewTrial:
    """`config`: the resolved configuration as JSON; `steps` and `log_every` are read from it."""

    id: str
    ordinal: int
    network: str
    config: str
    seed: int
    label: str
    varied: Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """Train `trial` from `step` (as far as the ledger knows) to `target`."""

    trial: str
    token: int
    step: int
    target: int
    log_every: int
    runs: tuple[str, ...]


@dataclass(frozen=True)
class RunState:
    """What `open_run` found: `done` trials need no training any more, `begun` some."""

    id: str
    new: bool
    trials: int
    begun: int
    done: int
