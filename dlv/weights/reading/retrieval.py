"""Matrices for files that are written at the same time: each is decoded once, in few threads.

Writers (one per file) ask for matrices; walkers (`jobs` of them) go along one family of delta
chains each and offer what they pass, until every writer that needs it has taken it and asks
for the next. So files of many snapshots come out of one pass over each chain, and memory holds
what `jobs` walkers work on, however many files there are.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field
from typing import Any, Generic, Protocol, Self, TypeVar

from dlv.dataclass import dataclass
from dlv.kinds import Raw
from dlv.weights.store import MatrixStore

T = TypeVar("T")

# Files that are open at one time.
WRITERS = 16


class Source(Protocol):
    """Where a writer gets matrices and named objects from; a MatrixStore is one."""

    def matrix(self, matrix: str) -> Raw: ...

    def object(self, kind: str, name: str) -> Raw: ...


@dataclass
class Task(Generic[T]):
    """A file to write: the matrices it will ask for, roughly in that order, and the writing."""

    needs: Sequence[str]
    write: Callable[[Source], T]


def matrices(store: MatrixStore, wanted: Sequence[str], jobs: int = 1) -> dict[str, Raw]:
    """All of these at once, read by several threads; each once."""
    distinct = list(dict.fromkeys(wanted))
    if jobs <= 1 or len(distinct) < 2:
        return {name: store.matrix(name) for name in distinct}
    with ThreadPoolExecutor(min(jobs, len(distinct))) as pool:
        return dict(zip(distinct, pool.map(store.matrix, distinct), strict=True))


def related(store: MatrixStore, wanted: Sequence[str]) -> dict[str, bytes]:
    """Matrices of the same kind, as of one name at many steps: common bases decoded once."""
    return {name: bytes(raw) for name, raw in store.together(wanted)}


def write_all(
    store: MatrixStore,
    tasks: Sequence[Task[T]],
    jobs: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> list[T]:
    """Carry out the tasks; `progress` is told of bytes. The first error ends all of them.

    What a source gives holds until the same writer asks for the next.
    """
    results: list[T] = []
    for start in range(0, len(tasks), WRITERS):
        batch = tasks[start : start + WRITERS]
        if jobs <= 1 and len(batch) == 1:
            results.append(batch[0].write(Ahead(store, (), 1, progress)))
        else:
            results += _Round(store, batch, jobs, progress).run()
    return results


class Ahead:
    """A store for one reader: while it works on a matrix, threads decode the next ones.

    `needs` tells what will be asked for. At most `jobs` matrices wait; each belongs to whoever
    asked for it.
    """

    def __init__(
        self,
        store: MatrixStore,
        needs: Sequence[str],
        jobs: int = 1,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._rest = deque(dict.fromkeys(needs) if jobs > 1 else ())
        self._jobs = jobs
        self._progress = progress
        self._pool = ThreadPoolExecutor(jobs) if jobs > 1 else None
        self._coming: dict[str, Future[Raw]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def matrix(self, matrix: str) -> Raw:
        found = self._coming.pop(matrix, None)
        if matrix in self._rest:  # not in the order that was told
            self._rest.remove(matrix)
        while self._pool is not None and self._rest and len(self._coming) < self._jobs:
            name = self._rest.popleft()
            self._coming[name] = self._pool.submit(self._store.matrix, name)
        raw = self._store.matrix(matrix) if found is None else found.result()
        self._progress(len(raw))
        return raw

    def object(self, kind: str, name: str) -> Raw:
        return self._store.object(kind, name)


class _Cancelled(Exception):
    """Another thread has failed already."""


@dataclass
class _Writer:
    """One file's side of the exchange, the source that its adapter reads from."""

    round: _Round[Any]
    open: set[str]  # what it needs and has not asked for yet
    wants: str | None = None  # what it waits for
    holds: str | None = None  # what it has taken and still reads

    def matrix(self, matrix: str) -> Raw:
        return self.round.take(self, matrix)

    def object(self, kind: str, name: str) -> Raw:
        return self.round.store.object(kind, name)


@dataclass
class _Round(Generic[T]):
    """Some tasks and the threads that carry them out. One lock guards all that changes."""

    store: MatrixStore
    tasks: Sequence[Task[T]]
    jobs: int
    progress: Callable[[int], None]
    writers: list[_Writer] = field(default_factory=list)
    takers: Counter[str] = field(default_factory=Counter)  # writers yet to be done with each
    offered: dict[str, Raw] = field(default_factory=dict)
    coming: set[str] = field(default_factory=set)  # not offered yet
    todo: list[list[str]] = field(default_factory=list)  # families that nobody walks yet
    walking: int = 0  # walkers that decode
    writing: int = 0  # writers that do not wait
    error: BaseException | None = None

    def __post_init__(self) -> None:
        from dlv.pas.read import families

        self.changed = threading.Condition()
        self.writers = [_Writer(self, set(task.needs)) for task in self.tasks]
        for writer in self.writers:
            self.takers.update(writer.open)
        self.coming = set(self.takers)
        self.todo = families(_by_turns([task.needs for task in self.tasks]), self.store.encoding)
        self.writing = len(self.writers)

    def run(self) -> list[T]:
        results: dict[int, T] = {}
        walkers = min(self.jobs, len(self.todo))
        self.walking = walkers
        threads = [
            threading.Thread(target=self._guarded, args=(self._write, number, results))
            for number in range(len(self.tasks))
        ]
        threads += [
            threading.Thread(target=self._guarded, args=(self._walk,)) for _ in range(walkers)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException as error:  # Ctrl-C comes to this thread alone
            self._fail(error)
            for thread in threads:
                thread.join()
            raise
        if self.error is not None:
            raise self.error
        return [results[number] for number in range(len(self.tasks))]

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except _Cancelled:
            pass
        except BaseException as error:  # raised again by `run`
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    # Writers

    def _write(self, number: int, results: dict[int, T]) -> None:
        writer = self.writers[number]
        try:
            results[number] = self.tasks[number].write(writer)
        finally:
            with self.changed:
                self._let_go(writer)
                for matrix in writer.open:  # what it could do without
                    self.takers[matrix] -= 1
                writer.open.clear()
                self.writing -= 1
                self.changed.notify_all()

    def take(self, writer: _Writer, matrix: str) -> Raw:
        """A matrix for a writer, as soon as a walker comes by it."""
        with self.changed:
            self._let_go(writer)
            if matrix in writer.open:
                writer.wants = matrix
                self.writing -= 1
                self.changed.notify_all()
                try:
                    while matrix not in self.offered and not self._in_vain(writer):
                        self._go_on()
                        self.changed.wait()
                    self._go_on()
                finally:
                    writer.wants = None
                    self.writing += 1
                writer.open.discard(matrix)
                if matrix in self.offered:
                    writer.holds = matrix
                    self.progress(len(self.offered[matrix]))
                    return self.offered[matrix]
                self.takers[matrix] -= 1
                self.changed.notify_all()
        raw = self.store.matrix(matrix)
        with self.changed:
            self.progress(len(raw))
        return raw

    def _let_go(self, writer: _Writer) -> None:
        if writer.holds is not None:
            self.takers[writer.holds] -= 1
            writer.holds = None
            self.changed.notify_all()

    def _in_vain(self, writer: _Writer) -> bool:
        """Whether nothing moves any more, and this writer is the one to break the tie.

        It comes to that when files want their matrices in different orders.
        """
        if writer.wants not in self.coming:
            return True
        waiting = [other for other in self.writers if other.wants is not None]
        moving = (
            self.writing
            or self.walking
            or any(other.wants in self.offered for other in waiting)
            or any(not self.takers[matrix] for matrix in self.offered)
        )
        return not moving and waiting[0] is writer

    def _go_on(self) -> None:
        if self.error is not None:
            raise _Cancelled

    # Walkers

    def _walk(self) -> None:
        try:
            while True:
                with self.changed:
                    self._go_on()
                    if not self.todo:
                        return
                    family = [name for name in self.todo.pop(0) if self.takers[name]]
                for matrix, raw in self.store.together(family):
                    self._offer(matrix, raw)
                    del raw  # before the next family is begun
        finally:
            with self.changed:
                self.walking -= 1
                self.changed.notify_all()

    def _offer(self, matrix: str, raw: Raw) -> None:
        with self.changed:
            self.offered[matrix] = raw
            self.walking -= 1
            self.changed.notify_all()
            try:
                while self.takers[matrix]:
                    self._go_on()
                    self.changed.wait()
            finally:
                del self.offered[matrix]
                self.coming.discard(matrix)
                self.walking += 1


def _by_turns(needs: Sequence[Sequence[str]]) -> list[str]:
    """The first need of each task, then the second of each, and so on."""
    longest = max(map(len, needs), default=0)
    return [need[at] for at in range(longest) for need in needs if at < len(need)]
