"""A worker that is there to be killed: python -m tests.training.mortal DATABASE [PAUSE].

Tells each claim, each log and what else happens on stdout. With PAUSE it waits after each log until
a line comes in. Values are functions of trial and step, so that every run of a trial is the same.
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

import dlv.training.ledger.ledger as ledgers
from dlv.metadata.trials import Trials
from dlv.training.ledger.ledger import OVER, Claim, LeaseLost, Ledger
from dlv.training.workers.owners import Owner


def value(trial: str, step: int) -> float:
    """Goes down, with noise."""
    digest = hashlib.sha256(f"{trial} {step}".encode()).digest()
    return int(trial[1:]) * 13 % 17 + 20 / step + digest[0] / 256


def say(*words: object) -> None:
    print(*words, flush=True)


def work(ledger: Ledger, pause: bool) -> None:
    owner = Owner.here("mortal")
    while (claim := ledger.claim(owner)) is not OVER:
        if not isinstance(claim, Claim):
            time.sleep(0.01)
            continue
        say("claim", claim.trial, claim.step, claim.target)
        try:
            for step in range(claim.step + 1, claim.target + 1):
                stop = ledger.log(claim, step, {"loss": value(claim.trial, step)}, 0.1)
                say("log", claim.trial, step)
                if pause:
                    sys.stdin.readline()
                if stop:
                    break
            ledger.finish(claim, "ready")
        except LeaseLost:
            say("lost", claim.trial)
    say("over")


if __name__ == "__main__":
    # Killed so often that a trial could seem to be one that cannot be trained.
    ledgers.ATTEMPTS = 10_000
    with Trials(Path(sys.argv[1])) as store:
        work(Ledger(store), len(sys.argv) > 2)
