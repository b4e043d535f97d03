"""A store that shows some runs of another one only, and their hyperparameters in one place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from dlv.events.formats.logged_hyperparameters import PLUGIN, SESSION, logged
from dlv.events.provider.store import (
    BlobRow,
    ChunkRow,
    Columns,
    RunRow,
    SeriesRow,
    Store,
    TensorRow,
)


class ChosenRuns:
    """Runs with one of the names that `names` gives, and those below them.

    Hyperparameters are those of the runs; where a run has none, those that it logged. So the
    series in which they were logged are not shown: TensorBoard would look at nothing else.
    """

    def __init__(self, store: Store, names: Callable[[], Collection[str]]) -> None:
        self._store = store
        self._names = names

    def runs(self, experiment: int) -> Sequence[RunRow]:
        names = self._names()
        return [row for row in self._store.runs(experiment) if _within(row.name, names)]

    def series(
        self,
        experiment: int,
        *,
        plugin: str | None = None,
        data_class: int | None = None,
        runs: Collection[str] | None = None,
        tags: Collection[str] | None = None,
    ) -> Sequence[SeriesRow]:
        shown = {row.name for row in self.runs(experiment)}
        found = self._store.series(
            experiment,
            plugin=plugin,
            data_class=data_class,
            runs=list(shown if runs is None else shown.intersection(runs)),
            tags=tags,
        )
        return [row for row in found if row.plugin != PLUGIN]

    def hyperparameters(self, experiment: int) -> Sequence[tuple[str, dict[str, Any]]]:
        names = self._names()
        found: dict[str, dict[str, Any]] = {}
        for row in self._store.series(experiment, plugin=PLUGIN, tags=[SESSION]):
            if values := logged(row.content):
                found[row.run] = dict(values)
        found |= dict(self._store.hyperparameters(experiment))
        return [(run, found[run]) for run in sorted(found) if _within(run, names)]

    # A series is known by a number that only the methods above give away.

    def experiments(self) -> Sequence[tuple[int, str]]:
        return self._store.experiments()

    def scalars(self, series: int, first: int = 0, count: int | None = None) -> Columns:
        return self._store.scalars(series, first, count)

    def scalar_at(self, series: int, ordinals: Sequence[int]) -> Columns:
        return self._store.scalar_at(series, ordinals)

    def scalar_chunks(self, series: int) -> Sequence[ChunkRow]:
        return self._store.scalar_chunks(series)

    def preview(self, series: int) -> Columns | None:
        return self._store.preview(series)

    def tensors(self, series: int, ordinals: Sequence[int] | None = None) -> Iterator[TensorRow]:
        return self._store.tensors(series, ordinals)

    def blob_sequences(
        self, series: int, ordinals: Sequence[int] | None = None
    ) -> Iterator[BlobRow]:
        return self._store.blob_sequences(series, ordinals)

    def blob(self, series: int, ordinal: int, index: int) -> Iterator[bytes]:
        return self._store.blob(series, ordinal, index)


def _within(run: str, names: Collection[str]) -> bool:
    """`lenet@3` and `lenet@3/eval` of `lenet@3`; a name has no slash.

    TensorBoard takes runs for folders in places: one that leads out of its own is not shown.
    """
    name, *below = run.split("/")
    return name in names and ".." not in below
