"""Slow work for pages, done in threads; pages poll for the result."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field

from dlv.dataclass import dataclass
from dlv.errors import DlvError
from dlv.report.page import Section

KEPT = 32  # jobs whose results can still be asked for


@dataclass
class Job:
    """`told`: progress in words; `progress`: (bytes read, examples decided, examples in total) over
    time; `sections`: the result."""

    key: tuple[object, ...]
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

    def begin(self, key: tuple[object, ...], work: Work) -> str:
        with self._lock:
            for name, job in self._jobs.items():
                if job.key == key and not job.over:
                    return name
            name = secrets.token_urlsafe(9)
            job = self._jobs[name] = Job(key)
            while len(self._jobs) > KEPT:
                self._jobs.popitem(last=False)
        self._pool.submit(self._do, job, work)
        return name

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
