"""Some points of a series of scalars, read from no more chunks than they need."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.events.provider import downsample
from dlv.events.provider.store import ChunkRow, Columns, InvalidArgument, Points, SeriesRow, Store

Sampling = Literal["sampled", "linear", "step", "envelope"]
SAMPLINGS = ("sampled", "linear", "step", "envelope")
Steps = tuple[int | None, int | None]


@dataclass(frozen=True)
class Choice:
    """Which points: of a range of steps, both ends included, the last of those, so many of them.

    `points` None: all. The last are those of the greatest steps, of one step the last written.
    """

    points: int | None = downsample.SAMPLE
    steps: Steps | None = None
    last: int | None = None
    sampling: Sampling = "sampled"

    def __post_init__(self) -> None:
        for name in ("points", "last"):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and value >= 0):
                raise InvalidArgument(f"`{name}` is {value!r}", why="a whole number from 0 on")
        if self.sampling not in SAMPLINGS:
            raise InvalidArgument(f"no sampling `{self.sampling}`", hint=", ".join(SAMPLINGS))
        if self.steps is not None:
            first, last = _ends(self.steps)
            if first is not None and last is not None and first > last:
                raise InvalidArgument(
                    f"the range of steps {first} to {last} is empty", why="both ends are included"
                )

    @property
    def whole(self) -> bool:
        return self.steps is None and self.last is None

    def most(self, n: int) -> int:
        """How many points it may give of n."""
        return min(each for each in (n, self.points, self.last) if each is not None)


def _ends(steps: object) -> Steps:
    if isinstance(steps, tuple) and len(steps) == 2:
        first, last = steps
        if all(each is None or type(each) is int for each in steps):
            return first, last
    raise InvalidArgument(
        f"{steps!r} is not a range of steps", why="(first, last), either of them None or whole"
    )


def points_of(store: Store, row: SeriesRow, choice: Choice) -> Points:
    """The chosen points, by step."""
    if choice.most(row.n) == 0:
        return _points(Columns(b"", b"", b""))
    if not choice.whole:
        return _thinned(_within(store, row, choice), choice)
    k = choice.most(row.n)
    if k == row.n or choice.sampling == "step":
        return _thinned(by_step(_points(store.scalars(row.id))), choice)
    if choice.sampling == "envelope":
        return by_step(_envelope(store, row, k))
    if choice.sampling == "sampled" and k == downsample.SAMPLE:
        ready = store.preview(row.id)
        if ready is not None and ready.n == k:
            return by_step(_points(ready))
    choose = downsample.sampled if choice.sampling == "sampled" else downsample.linear
    return by_step(_points(store.scalar_at(row.id, choose(row.n, k))))


def last_of(store: Store, row: SeriesRow) -> Points:
    """The point written last."""
    return _points(store.scalars(row.id, row.n - 1, 1))


def places(choice: Choice, n: int, steps: Sequence[int] | None) -> list[int]:
    """Which of n tensors or blob sequences. `steps` are needed for ranges, and buckets of them."""
    if choice.sampling == "envelope":
        raise InvalidArgument(
            "only scalars have an envelope", hint="sampling: sampled, linear or step"
        )
    kept: Sequence[int] = range(n)
    if steps is not None:
        first, last = choice.steps or (None, None)
        kept = [
            at
            for at, step in enumerate(steps)
            if (first is None or step >= first) and (last is None or step <= last)
        ]
        if choice.last is not None:
            ordered = sorted(kept, key=steps.__getitem__)
            kept = sorted(ordered[max(0, len(ordered) - choice.last) :])
    k = choice.most(len(kept))
    if choice.sampling == "step" and steps is not None:
        kept = sorted(kept, key=steps.__getitem__)
        return [kept[at] for at in downsample.by_step([steps[at] for at in kept], k)]
    choose = downsample.sampled if choice.sampling == "sampled" else downsample.linear
    return [kept[at] for at in choose(len(kept), k)]


def by_step(points: Points) -> Points:
    if (points.steps[1:] >= points.steps[:-1]).all():
        return points
    return points[np.argsort(points.steps, kind="stable")]


def _points(columns: Columns) -> Points:
    return Points(
        np.frombuffer(columns.steps, "<i8").astype(np.int64, copy=False),
        np.frombuffer(columns.walls, "<f8").astype(np.float64, copy=False),
        np.frombuffer(columns.values, "<f8").astype(np.float64, copy=False),
    )


def _within(store: Store, row: SeriesRow, choice: Choice) -> Points:
    """The points of the range, or the last of them, in the order in which they were written."""
    chunks = store.scalar_chunks(row.id)
    first, last = choice.steps or (None, None)
    if first is not None:
        chunks = [chunk for chunk in chunks if chunk.step1 >= first]
    if last is not None:
        chunks = [chunk for chunk in chunks if chunk.step0 <= last]
    inside = all(
        (first is None or chunk.step0 >= first) and (last is None or chunk.step1 <= last)
        for chunk in chunks
    )
    if choice.last is not None and inside:
        chunks = _latest(chunks, choice.last)
    points = _read(store, row.id, chunks)
    kept = np.ones(len(points), bool)
    if first is not None:
        kept &= points.steps >= first
    if last is not None:
        kept &= points.steps <= last
    points = points[kept]
    if choice.last is None or choice.last >= len(points):
        return points
    places = np.argsort(points.steps, kind="stable")[len(points) - choice.last :]
    return points[np.sort(places)]


def _latest(chunks: Sequence[ChunkRow], last: int) -> list[ChunkRow]:
    """Chunks that hold the `last` greatest steps: of a log without restarts the last ones."""
    count, at = 0, len(chunks)
    while at and count < last:
        at -= 1
        count += chunks[at].n
    if not at:
        return list(chunks)
    least = min((chunk.step0 for chunk in chunks[at:]), default=0)
    return [chunk for chunk in chunks[:at] if chunk.step1 > least] + list(chunks[at:])


def _read(store: Store, series: int, chunks: Sequence[ChunkRow]) -> Points:
    """The points of chunks; neighbours are read together."""
    runs: list[tuple[int, int]] = []
    for chunk in chunks:
        if runs and sum(runs[-1]) == chunk.ordinal:
            runs[-1] = (runs[-1][0], runs[-1][1] + chunk.n)
        else:
            runs.append((chunk.ordinal, chunk.n))
    parts = [store.scalars(series, first, count) for first, count in runs]
    columns = zip(*parts, strict=True) if parts else ((), (), ())
    return _points(parts[0] if len(parts) == 1 else Columns(*map(b"".join, columns)))


def _thinned(points: Points, choice: Choice) -> Points:
    """At most the points wanted, drawn from all that may be shown."""
    n, k = len(points), choice.most(len(points))
    if k == n:
        return by_step(points)
    if choice.sampling == "step":
        points = by_step(points)
        return points[list(downsample.by_step(points.steps, k))]  # type: ignore[arg-type]
    if choice.sampling == "envelope":
        return by_step(points[_extremes(np.arange(n), points.values, n, k)])
    choose = downsample.sampled if choice.sampling == "sampled" else downsample.linear
    return by_step(points[list(choose(n, k))])


def _envelope(store: Store, row: SeriesRow, k: int) -> Points:
    """Only chunks that lie in two buckets are opened; of the others the figures are enough."""
    n, buckets = row.n, max(1, (k - 2) // 2)
    cut: list[ChunkRow] = []
    places: list[int] = []
    values: list[float] = []
    for chunk in store.scalar_chunks(row.id):
        if chunk.ordinal * buckets // n != (chunk.ordinal + chunk.n - 1) * buckets // n:
            cut.append(chunk)
            continue
        for place, value in ((chunk.imin, chunk.vmin), (chunk.imax, chunk.vmax)):
            places.append(chunk.ordinal if place is None else place)
            values.append(math.nan if value is None else value)
    if 2 * sum(chunk.n for chunk in cut) > n:
        points = _points(store.scalars(row.id))
        return points[_extremes(np.arange(n), points.values, n, k)]
    inside = [np.arange(chunk.ordinal, chunk.ordinal + chunk.n) for chunk in cut]
    at = np.concatenate([np.asarray(places, np.int64), *inside])
    shown = np.concatenate([np.asarray(values), _read(store, row.id, cut).values])
    order = np.argsort(at, kind="stable")
    found = _extremes(at[order], shown[order], n, k)
    return _points(store.scalar_at(row.id, found.tolist()))


def _extremes(
    places: NDArray[np.int64], values: NDArray[np.float64], n: int, k: int
) -> NDArray[np.int64]:
    """Of each bucket of n places the first least and the first greatest value, and both ends.

    `places` are in order, all that can matter. What is not finite counts only in a bucket that
    holds nothing else.
    """
    if k < 4:
        return np.asarray([0, n - 1][-k:], np.int64)
    buckets = (k - 2) // 2
    begins = [-(-bucket * n // buckets) for bucket in range(buckets)]
    starts = [*np.searchsorted(places, begins).tolist(), len(places)]
    finite = np.isfinite(values)
    low = high = values
    if not finite.all():
        # Where nothing is finite all are equal, and the first one stands for the gap.
        low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
    found: list[int] = []
    for start, end in itertools.pairwise(starts):
        found += [start + int(low[start:end].argmin()), start + int(high[start:end].argmax())]
    return np.unique(np.append(places[found], (0, n - 1)))
