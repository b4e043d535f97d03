"""Slow work for pages, done in threads; pages poll for the result."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field

from dlv.dataclass import dataclass
from dlv.errors import Conflict, DlvError
from dlv.report.page import Section

KEPT = 32  # jobs whose results can still be asked for
WAITING = 16  # jobs that have not ended


@dataclass
class Job:
    """`told`: progress in words; `progress`: (bytes read, examples decided, examples in total) over
    time; `sections`: the result."""

    key: tuple[object, ...]
    name: str
    told: str = "Working …"
    progress: list[tuple[float, float, float]] = field(default_factory=list)
    sections: Sequence[Section] | None = None
    error: DlvError | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def over(self) -> bool:
        return self.ended.is_set()


Work = Callable[[Job], Sequence[Section]]


class Jobs:
    """Run two jobs at a time; a request for a job that is already running returns that job."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="dlv-job")
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, key: tuple[object, ...], work: Work, *, again: bool = True) -> Job:
        """Return the job of this key; `again`: one that has ended is done once more."""
        with self._lock:
            for job in self._jobs.values():
                if job.key == key and not (again and job.over):
                    return job
            if sum(not job.over for job in self._jobs.values()) >= WAITING:
                raise Conflict("too much is being computed", hint="load the page again later")
            job = Job(key, secrets.token_urlsafe(9))
            self._jobs[job.name] = job
            ended = [name for name, other in self._jobs.items() if other.over]
            for name in ended[: max(0, len(self._jobs) - KEPT)]:
                del self._jobs[name]
        self._pool.submit(self._do, job, work)
        return job

    def _do(self, job: Job, work: Work) -> None:
        try:
            job.sections = work(job)
        except DlvError as error:
            job.error = error
        except Exception as error:  # the page says so, and the server goes on
            job.error = DlvError(f"internal: {type(error).__name__}: {error}")
        finally:
            job.ended.set()

    def get(self, name: str) -> Job | None:
        return self._jobs.get(name)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
