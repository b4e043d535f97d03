"""Single points of metric series, which lie in packs: `m["loss"].at(100)`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from dlv.metadata import metrics, versions
from dlv.repository.handle import Repository

if TYPE_CHECKING:
    import dlv.weights.store as weights

_KEPT = 64  # series


class Points:
    """Asks for one point after the other; those of the series read last are at hand."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._store: weights.MatrixStore | None = None
        self._series = lru_cache(_KEPT)(self._read)

    def at(self, version: str, name: str, step: int) -> float | None:
        """The value at just this step, the last one if it was written twice."""
        return self._series(version, name).get(step)

    def _read(self, version: str, name: str) -> dict[int, float]:
        db = self._repository.database
        found = versions.by_id(db, version)
        summaries = [] if found is None else metrics.of_version(db, found.key)
        wanted = next((each for each in summaries if each.name == name), None)
        if wanted is None:
            return {}
        import dlv.weights.catalogue as catalogue

        if self._store is None:
            import dlv.weights.store as weights

            self._store = weights.MatrixStore.of(self._repository)
        points = catalogue.series(self._store, wanted.hash)
        return dict(zip(points.steps, points.values, strict=True))
