"""What runs in Ray's processes: the actor that keeps the ledger, and the tasks that ask it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dlv.training.checkpoints as checkpoints
from dlv.errors import DlvError
from dlv.training.checkpoints import SUFFIX
from dlv.training.ledger.claims import Claim, LeaseLost
from dlv.training.ledger.ledger import Ledger
from dlv.training.ledger.trial_store import TrialStore
from dlv.training.trainers.interface import Readers
from dlv.training.trial_files import START, TRIAL
from dlv.training.workers.slices import Slice
from dlv.training.workers.worker import OUTPUT, printing_to

MOST_CARRIED = 64 << 20  # bytes of a trial that go through the actor, without a shared disk
MOST_PRINTED = 1 << 20  # of what a slice printed

Get = Callable[[Any], Any]


class Keeper:
    """The ledger for tasks of other machines. What it gives back is plain: no exceptions."""

    def __init__(self, reopen: Callable[[], TrialStore], root: Path) -> None:
        self._ledger = Ledger(reopen())
        self._root = root
        self._stopping = False
        self._heard: dict[int, float] = {}  # by token: when it was begun or last logged

    def begin(self, claim: Claim) -> None:
        """A task may have waited long for its process."""
        self._heard[claim.token] = time.monotonic()

    def silences(self) -> dict[int, float]:
        """For how many seconds each claim at which a task works has said nothing."""
        return {token: time.monotonic() - heard for token, heard in self._heard.items()}

    def log(self, claim: Claim, step: int, metrics: Mapping[str, float], wall: float) -> str:
        self.begin(claim)
        try:
            stop = self._ledger.log(claim, step, metrics, wall)
        except LeaseLost:
            return "lost"
        return "stop" if stop or self._stopping else "go"

    def finish(self, claim: Claim, state: str, error: str | None) -> str:
        self._heard.pop(claim.token, None)
        try:
            self._ledger.finish(claim, state, error)
        except LeaseLost:
            return "lost"
        return "done"

    def stop(self) -> None:
        self._stopping = True

    def files(self, trial: str) -> dict[str, bytes]:
        """What a machine without the disk needs to go on with a trial."""
        folder = self._root / trial
        last = checkpoints.listed(folder / "checkpoint")[: checkpoints.KEPT]
        names = [TRIAL, START, *(f"checkpoint/{path.name}" for path in last)]
        found = {name: (folder / name).read_bytes() for name in names}
        size = sum(map(len, found.values()))
        if size > MOST_CARRIED:
            raise DlvError(
                f"trial {trial[:7]} is too large for machines without a shared disk",
                why=f"{size:,} bytes; up to {MOST_CARRIED:,} are sent",
                hint="put the repository where all nodes see it",
            )
        return found

    def keep(self, claim: Claim, name: str, data: bytes) -> bool:
        """A checkpoint or what was printed, from such a machine; only of who has the trial."""
        if self._ledger.store.held(claim.trial, claim.token) is None:
            return False
        target = self._root / claim.trial / name
        target.parent.mkdir(exist_ok=True)
        if name == OUTPUT:
            with target.open("ab") as file:
                file.write(data)
            return True
        made = target.with_name(f".{target.name}.{claim.token}.tmp")
        with made.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        made.rename(target)
        checkpoints.prune(target.parent)
        return True


def _checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoint").glob(f"*{SUFFIX}"))


class Far:
    """The ledger as a task sees it. `carried`: the folder is this machine's own copy."""

    def __init__(self, get: Get, keeper: Any, carried: Path | None = None) -> None:
        self._get = get
        self._keeper = keeper
        self._carried = carried
        self._sent = set() if carried is None else {p.name for p in _checkpoints(carried)}

    def log(self, claim: Claim, step: int, metrics: Mapping[str, float], wall: float) -> bool:
        for path in [] if self._carried is None else _checkpoints(self._carried):
            if path.name not in self._sent:  # before the row that tells of it
                self._send(claim, f"checkpoint/{path.name}", path.read_bytes())
                self._sent.add(path.name)
        said = self._get(self._keeper.log.remote(claim, step, dict(metrics), wall))
        if said == "lost":
            raise LeaseLost
        return bool(said == "stop")

    def finish(self, claim: Claim, state: str, error: str | None = None) -> None:
        if self._carried is not None:
            printed = (self._carried / OUTPUT).read_bytes()
            self._send(claim, OUTPUT, printed[-MOST_PRINTED:])
        if self._get(self._keeper.finish.remote(claim, state, error)) == "lost":
            raise LeaseLost

    def _send(self, claim: Claim, name: str, data: bytes) -> None:
        if not self._get(self._keeper.keep.remote(claim, name, data)):
            raise LeaseLost


def slice_task(
    get: Get, keeper: Any, claim: Claim, root: Path, readers: Readers, shared: bool
) -> None:
    """One slice, on whatever node Ray has chosen; `get` is Ray's."""

    def run(folder: Path, far: Far) -> None:
        get(keeper.begin.remote(claim))
        with printing_to(folder / OUTPUT):
            Slice(claim, far, readers, lambda: False).run(folder)

    if shared and (root / claim.trial / TRIAL).exists():
        run(root / claim.trial, Far(get, keeper))
        return
    with tempfile.TemporaryDirectory(prefix="dlv-trial-") as name:
        folder = Path(name) / claim.trial
        for part, data in get(keeper.files.remote(claim.trial)).items():
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            (folder / part).write_bytes(data)
        run(folder, Far(get, keeper, folder))
