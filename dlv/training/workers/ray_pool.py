"""A run of trials on a Ray cluster: one task per slice; the ledger stays with the driver's machine.

Tasks never open the ledger. They ask an actor on the node of the driver, where the file is, and
its clock alone counts. The driver renews the leases: a task that Ray has lost is given back.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any

import dlv.disk.children as children
import dlv.training.checkpoints as checkpoints
from dlv.dataclass import dataclass
from dlv.errors import DlvError, StorageError, UsageError, require
from dlv.metadata.trials import Trials
from dlv.processors import VARIABLES
from dlv.training.checkpoints import SUFFIX
from dlv.training.ledger.ledger import RENEW, Claim, LeaseLost, Ledger
from dlv.training.ledger.progress import News, Progress, Watch
from dlv.training.ledger.results import RunView
from dlv.training.trainers.interface import Readers
from dlv.training.trial_files import START, TRIAL
from dlv.training.workers.owners import Owner
from dlv.training.workers.pool import (
    FAULTS,
    LEAVING,
    Interrupted,
    no_storage,
    settle,
    worker_environment,
)
from dlv.training.workers.slices import Slice, one_line
from dlv.training.workers.worker import OUTPUT, patience_of, printing_to, silence_text

MOST_CARRIED = 64 << 20  # bytes of a trial that go through the actor, without a shared disk
MOST_PRINTED = 1 << 20  # of what a slice printed

Get = Callable[[Any], Any]


class Keeper:
    """The ledger for tasks of other machines. What it gives back is plain: no exceptions."""

    def __init__(self, reopen: Callable[[], Trials], root: Path) -> None:
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

    def log(
        self, claim: Claim, step: int, metrics: Mapping[str, float], wall: float, repeated: int = 0
    ) -> str:
        self.begin(claim)
        try:
            stop = self._ledger.log(claim, step, metrics, wall, repeated)
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
                hint="put the repository on a shared file system",
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

    def log(
        self, claim: Claim, step: int, metrics: Mapping[str, float], wall: float, repeated: int = 0
    ) -> bool:
        for path in [] if self._carried is None else _checkpoints(self._carried):
            if path.name not in self._sent:  # before the row that tells of it
                self._send(claim, f"checkpoint/{path.name}", path.read_bytes())
                self._sent.add(path.name)
        said = self._get(self._keeper.log.remote(claim, step, dict(metrics), wall, repeated))
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


KNOCK = 10.0  # seconds for a cluster to answer
LOOK = 0.5  # seconds between two looks at the run
GRACE = 10.0  # seconds for tasks to end when nobody wants what they do any more


def train(
    store: Trials,
    root: Path,
    run: str,
    *,
    reopen: Callable[[], Trials],
    readers: Readers,
    address: str | None = None,
    cpus: float = 1,
    gpus: float = 0,
    workers: int | None = None,
    progress: Callable[[Progress], None],
    more: Callable[[], None] | None = None,
    shared: bool = True,
) -> None:
    """Train the trials of a run until it is over, as `pool.train` does on one machine.

    `address`: of a cluster, or `auto`; without one, a cluster of this machine alone is started.
    `reopen` gives the actor its own store. `shared`: whether every node may see `root`; where one
    does not, trials and checkpoints of up to 64 MB go through the actor. `workers`: slices at
    once at most.
    """
    held = ExitStack()
    ray = held.enter_context(connected(address))
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    keeper = ray.remote(num_cpus=0, scheduling_strategy=here)(Keeper).remote(reopen, root)
    # What is lost is claimed again, as the ledger counts how often that happens.
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(slice_task)
    driver = _Driver(
        *(ray, store, run, progress, keeper),
        submit=lambda claim: task.remote(ray.get, keeper, claim, root, readers, shared),
        slots=lambda: _slots(ray, cpus, gpus, workers),
    )
    try:
        driver.drive(more)
    except KeyboardInterrupt:
        driver.leave()
        raise Interrupted(run) from None
    finally:
        driver.close()
        held.close()


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray, with a cluster behind it: that at the address, or one of this machine alone."""
    ray = require("ray", "ray")
    with ExitStack() as held:
        if not address and not ray.is_initialized():
            # Ray's agents outlive a driver that was killed; those of a cluster are not ours.
            held.enter_context(children.ended_with_this())
        if _connect(ray, address):
            held.callback(ray.shutdown)
        yield ray


def _connect(ray: Any, address: str | None) -> bool:
    """Whether this call has connected; a program of the user's own may have before."""
    if ray.is_initialized():
        return False
    _knock(address)
    # One thread each, as on one machine: sums in another order are other bits.
    variables = dict.fromkeys(VARIABLES, "1")
    variables |= {k: v for k, v in worker_environment().items() if k == "PYTHONPATH"}
    how: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address:
        how |= {"address": address, "runtime_env": {"env_vars": variables}}
    else:  # its processes inherit what is set here, which is sooner done
        how |= {"address": "local", "include_dashboard": False}
    before = dict(os.environ)
    try:
        os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", **({} if address else variables)})
        ray.init(**how)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _no_cluster(address, error) from error
    finally:
        for name in ("RAY_USAGE_STATS_ENABLED", *variables):
            os.environ.pop(name, None)
            os.environ |= {name: before[name]} if name in before else {}
    return True


def _knock(address: str | None) -> None:
    """Whether anybody is there: Ray itself would try for minutes."""
    host, colon, port = (address or "").rpartition("://")[2].rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK).close()
    except (OSError, ValueError) as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str | None, error: Exception) -> UsageError:
    return UsageError(
        f"no Ray cluster answers at `{address}`" if address else "Ray does not start",
        why=str(error).strip().partition("\n")[0],
        hint="start the cluster first, or name no address",
    )


def _slots(ray: Any, cpus: float, gpus: float, most: int | None) -> int:
    """How many slices the cluster has room for, as it is now."""
    total = ray.cluster_resources()
    room = [total.get("CPU", 0) / cpus] if cpus else []
    room += [total.get("GPU", 0) / gpus] if gpus else []
    count = int(min(room, default=1))
    return count if most is None else min(count, most)


@dataclass
class _Driver:
    ray: Any
    store: Trials
    run: str
    progress: Callable[[Progress], None]
    keeper: Any
    submit: Callable[[Claim], Any]
    slots: Callable[[], int]
    claims: dict[Any, Claim] = field(default_factory=dict)  # by what stands for the task's end

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.store)
        self.owner = Owner.here("ray")
        self.watch = Watch(self.ledger, self.run)
        self.renewed = time.monotonic()
        self.faults = 0

    def drive(self, more: Callable[[], None] | None) -> None:
        self.show(self.ledger.run(self.run))
        settle(self.ledger, self.run)
        while (view := self.ledger.run(self.run)).state == "running":
            if more is not None and view.growing and view.idle:
                more()
                settle(self.ledger, self.run)
                continue
            self.fill()
            self.give_up()
            self.show(view, self.collect(LOOK))
        self.ray.get(self.keeper.stop.remote())
        self.wait(time.monotonic() + GRACE)
        self.show(self.ledger.run(self.run))

    def fill(self) -> None:
        while len(self.claims) < self.slots():
            claim = self.ledger.claim(self.owner, [self.run])
            if not isinstance(claim, Claim):
                return
            self.claims[self.submit(claim)] = claim

    def collect(self, patience: float) -> list[News]:
        """Tasks that have ended; what a lost one had is given back. Leases are renewed."""
        if time.monotonic() - self.renewed >= RENEW:
            self.renewed = time.monotonic()
            for claim in self.claims.values():
                self.ledger.renew(claim)
        if not self.claims:
            time.sleep(patience)
            return []
        ended, _ = self.ray.wait(list(self.claims), num_returns=1, timeout=patience)
        return [news for each in ended for news in self.ended(each, self.claims.pop(each))]

    def ended(self, task: Any, claim: Claim) -> list[News]:
        try:
            self.ray.get(task)
        except self.ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, ImportError):
                raise UsageError(
                    "a node of the Ray cluster lacks a package",
                    why=str(cause),
                    hint="pip install 'dlv[ray]' on every node, in the same versions",
                ) from error
            if isinstance(cause, StorageError):
                raise no_storage(one_line(cause)) from error
            self.back(
                claim, "failed", one_line(cause) if isinstance(cause, DlvError) else str(error)
            )
        except self.ray.exceptions.RayError as error:
            self.faults += 1
            if self.faults > FAULTS:
                why = str(error).strip().partition("\n")[0]
                raise DlvError(f"{FAULTS} tasks were lost one after the other", why=why) from error
            self.back(claim, "ready")
            kind = type(error).__name__
            text = f"the task of trial {claim.trial[:7]} was lost ({kind}); it begins again"
            return [News("worker", text, {"trial": claim.trial, "error": kind})]
        self.faults = 0
        return []

    def back(self, claim: Claim, state: str, error: str | None = None) -> None:
        with suppress(LeaseLost):
            self.ledger.finish(claim, state, error)

    def give_up(self) -> None:
        """Trials that have said nothing for as long as the budget lets a trial take."""
        limits = {task: patience_of(self.store, claim) for task, claim in self.claims.items()}
        if not any(limits.values()):
            return
        silences = self.ray.get(self.keeper.silences.remote())
        for task, claim in list(self.claims.items()):
            limit, silence = limits[task], silences.get(claim.token, 0.0)
            if limit is not None and silence > limit:
                self.back(claim, "failed", silence_text(silence, limit))
                self.ray.cancel(task, force=True)
                del self.claims[task]

    def show(self, view: RunView, notes: Sequence[News] = ()) -> None:
        workers = len(self.claims)
        self.progress(self.watch.look(view, time.monotonic(), workers=workers, notes=notes))

    def leave(self) -> None:
        """Let the tasks come to their next log; at once, if they are interrupted again."""
        try:
            self.ray.get(self.keeper.stop.remote())
            self.show(self.ledger.run(self.run), [News("note", LEAVING, {})])
            self.wait(None)
        except KeyboardInterrupt:
            self.close()

    def wait(self, ends: float | None) -> None:
        while self.claims and (ends is None or time.monotonic() < ends):
            self.collect(LOOK)

    def close(self) -> None:
        """End what is still there; its trials are free at once."""
        for task, claim in self.claims.items():
            with suppress(self.ray.exceptions.RayError):
                self.ray.cancel(task, force=True)
            self.back(claim, "released")
        self.claims.clear()
        with suppress(self.ray.exceptions.RayError):
            self.ray.kill(self.keeper)
