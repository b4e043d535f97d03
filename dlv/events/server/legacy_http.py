"""The older HTTP API of TensorBoard over stored curves: `/data/runs` and what belongs to it."""

from __future__ import annotations

import csv
import gzip
import io
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlencode

import numpy as np

from dlv.errors import NotFound, UsageError, nearest
from dlv.events.formats.pbtxt import PLUGIN as GRAPHS
from dlv.events.formats.pbtxt import RUN_GRAPH, limited_graph, text
from dlv.events.formats.tensors import OldHistogram
from dlv.events.logs.points import BLOBS, SCALAR, TENSOR
from dlv.events.provider.downsample import linear
from dlv.events.provider.provider import Provider
from dlv.events.provider.store import Columns, InvalidArgument, SeriesRow, TensorRow, array_of
from dlv.events.server.security import Answer, Environ, Start, document, media, media_type

_BELOW_ONE = math.nextafter(1, 0)


def reservoir(n: int, size: int, seed: int = 0) -> list[int]:
    """Places in a list of `n`, in order; at most `size` of them, or all where it is 0."""
    if size == 0 or n <= size:
        return list(range(n))
    return [*_reservoir(n - 1, size - 1, seed), n - 1]


@lru_cache(maxsize=64)
def _reservoir(n: int, size: int, seed: int) -> tuple[int, ...]:
    """Each of the first `n` places with the same probability, `size` of them."""
    held = list(range(size))
    for place, slot in _replacements(size, seed):
        if place >= n:
            break
        held[slot] = place
    return tuple(sorted(held))


def _replacements(size: int, seed: int) -> Iterator[tuple[int, int]]:
    """Which places enter the reservoir, and what they replace: Li's algorithm L.

    What it would draw for all places that do not enter is drawn at once, so a million
    points cost as many steps as there are changes, about size * log(n / size).
    """
    if not size:
        return
    random = Random(seed)
    weight, place = 1.0, size - 1
    while True:
        weight *= math.exp(math.log(_positive(random)) / size)
        weight = min(weight, _BELOW_ONE)
        place += int(math.log(_positive(random)) / math.log1p(-weight)) + 1
        yield place, random.randrange(size)


def _positive(random: Random) -> float:
    """Above 0, whose logarithm is none, and below 1."""
    while not (drawn := random.random()):
        pass
    return drawn


# The median, and what lies within 1, 2 and 3 bands of half a standard deviation around it.
BASIS_POINTS = (0, 668, 1587, 3085, 5000, 6915, 8413, 9332, 10000)
_WHOLE = 10_000


def compressed_histogram(
    least: float,
    most: float,
    limits: Sequence[float],
    counts: Sequence[float],
    points: Sequence[int] = BASIS_POINTS,
) -> list[tuple[int, float]]:
    """The values below which so many ten-thousandths lie, by straight lines within buckets.

    `limits` are the right edges of the buckets. Of an empty histogram every value is 0.
    """
    total = math.fsum(counts)
    if not (math.isfinite(total) and total > 0):
        return [(point, 0.0) for point in points]
    below = list(accumulate(count * _WHOLE / total for count in counts))
    return [(point, _value(point, least, most, limits, below)) for point in points]


def _value(
    point: float, least: float, most: float, limits: Sequence[float], below: Sequence[float]
) -> float:
    bucket = bisect_right(below, point)
    if bucket == len(below):
        return most
    before = below[bucket - 1] if bucket else 0.0
    left = max(limits[bucket - 1], least) if before else least
    right = min(limits[bucket], most)
    return left + (point - before) * (right - left) / (below[bucket] - before)


# Tag type -> plugin and class of data, and how many points of a tag are shown; 0: all.
KINDS = {
    "scalars": ("scalars", SCALAR),
    "histograms": ("histograms", TENSOR),
    "images": ("images", BLOBS),
    "audio": ("audio", BLOBS),
    "run_metadata": ("graph_tagged_run_metadata", BLOBS),
    "graph": (GRAPHS, BLOBS),
}
SIZES: Mapping[str, int] = {"scalars": 1000, "histograms": 500, "images": 10, "audio": 10}
_HEADER = ("Wall time", "step", "value")

Point = list[Any]


class LegacyAnswers:
    """Questions of the older API to the store of a provider, within one experiment."""

    def __init__(
        self, provider: Provider, sizes: Mapping[str, int] = SIZES, experiment: str = ""
    ) -> None:
        self._provider = provider
        self._store = provider.store
        self._sizes = {**SIZES, **sizes}
        self._experiment = experiment

    def runs(self) -> dict[str, dict[str, Any]]:
        """What there is: for each run the tags of each type, and whether it has a graph."""
        found: dict[str, dict[str, Any]] = {
            run.name: {kind: [] for kind in KINDS} for run in self._provider.runs(self._experiment)
        }
        for kind in KINDS:
            for row in self._rows(kind):
                found[row.run][kind].append(row.tag)
        for tags in found.values():
            tags["graph"] = RUN_GRAPH in tags["graph"]
            tags["compressedHistograms"] = tags["histograms"]
        return found

    def scalars(self, run: str, tag: str) -> list[Point]:
        row = self._row("scalars", run, tag)
        places = self._places("scalars", row)
        return _points(self._store.scalar_at(row.id, places))

    def scalars_csv(self, run: str, tag: str) -> str:
        text = io.StringIO()
        csv.writer(text).writerows([_HEADER, *self.scalars(run, tag)])
        return text.getvalue()

    def sampled_scalars(self, count: int) -> dict[str, dict[str, list[Point]]]:
        """`count` points of every tag at equal distances, with the first and the last."""
        rows = self._rows("scalars")
        self._admit(sum(min(row.n, count) for row in rows))
        found: dict[str, dict[str, list[Point]]] = {}
        for row in rows:
            columns = self._store.scalar_at(row.id, linear(row.n, count))
            found.setdefault(row.run, {})[row.tag] = _points(columns)
        return found

    def histograms(self, run: str, tag: str) -> list[Point]:
        return [
            [wall, step, [*numbers, list(limits), list(counts)]]
            for wall, step, (*numbers, limits, counts) in self._histograms(run, tag)
        ]

    def compressed_histograms(self, run: str, tag: str) -> list[Point]:
        return [
            [wall, step, [list(pair) for pair in compressed_histogram(least, most, limits, counts)]]
            for wall, step, (least, most, _, _, _, limits, counts) in self._histograms(run, tag)
        ]

    def _histograms(self, run: str, tag: str) -> Iterator[tuple[float, int, Any]]:
        row = self._row("histograms", run, tag)
        for point in self._store.tensors(row.id, self._places("histograms", row)):
            yield point.wall, point.step, _histogram(point)

    def images(self, run: str, tag: str) -> list[dict[str, Any]]:
        """Width and height stand before the images of a step."""
        found = []
        row = self._row("images", run, tag)
        places = self._places("images", row)
        for place, point in zip(places, self._store.blob_sequences(row.id, places), strict=True):
            if len(point.blobs) < 2:
                continue
            width, height = (self._number(row, place, index) for index in (0, 1))
            for index in range(2, len(point.blobs)):
                entry: dict[str, Any] = {"width": width, "height": height}
                entry |= {"wall_time": point.wall, "step": point.step}
                found.append(entry | {"query": _query(place, index - 2, row)})
        return found

    def audio(self, run: str, tag: str) -> list[dict[str, Any]]:
        found = []
        row = self._row("audio", run, tag)
        places = self._places("audio", row)
        for place, point in zip(places, self._store.blob_sequences(row.id, places), strict=True):
            for index in range(len(point.blobs)):
                head = next(iter(self._store.blob(row.id, place, index)), b"")
                entry: dict[str, Any] = {"wall_time": point.wall, "step": point.step}
                entry["content_type"] = media_type(head[:16])
                found.append(entry | {"query": _query(place, index, row)})
        return found

    def image(self, run: str, tag: str, place: int, number: int) -> Iterator[bytes]:
        return self._blob(self._row("images", run, tag), place, number + 2)

    def clip(self, run: str, tag: str, place: int, number: int) -> Iterator[bytes]:
        return self._blob(self._row("audio", run, tag), place, number)

    def graph(self, run: str) -> bytes:
        return self._newest(self._row("graph", run, RUN_GRAPH))

    def run_metadata(self, run: str, tag: str) -> bytes:
        return self._newest(self._row("run_metadata", run, tag))

    # Out of the store

    def _rows(self, kind: str, run: str | None = None, tag: str | None = None) -> list[SeriesRow]:
        plugin, data_class = KINDS[kind]
        keys = {name: key for key, name in self._store.experiments()}
        if self._experiment not in keys:
            return []
        found = self._store.series(
            keys[self._experiment],
            plugin=plugin,
            data_class=data_class,
            runs=None if run is None else [run],
            tags=None if tag is None else [tag],
        )
        return [row for row in found if row.n]

    def _row(self, kind: str, run: str, tag: str) -> SeriesRow:
        found = self._rows(kind, run, tag)
        if found:
            return found[0]
        runs = [known.name for known in self._provider.runs(self._experiment)]
        if run not in runs:
            raise NotFound(f"no run `{run}`", did_you_mean=nearest(run, runs))
        tags = [row.tag for row in self._rows(kind, run)]
        what = "graph" if kind == "graph" else f"{kind} `{tag}`"
        raise NotFound(f"the run `{run}` has no {what}", did_you_mean=nearest(tag, tags))

    def _places(self, kind: str, row: SeriesRow) -> Sequence[int]:
        places = reservoir(row.n, self._sizes[kind])
        self._admit(len(places))
        return places

    def _admit(self, points: int) -> None:
        if points > self._provider.cap:
            raise InvalidArgument(
                f"that would be {points} points",
                why=f"an answer has at most {self._provider.cap}",
                hint="a size above 0 for the samples; the limit is `curves.cap`",
            )

    def _blob(self, row: SeriesRow, place: int, index: int) -> Iterator[bytes]:
        points = list(self._store.blob_sequences(row.id, [place])) if place < row.n else []
        if not points or index >= len(points[0].blobs):
            raise NotFound(f"`{row.tag}` of the run `{row.run}` has no such item")
        return self._store.blob(row.id, place, index)

    def _newest(self, row: SeriesRow) -> bytes:
        return b"".join(self._blob(row, row.n - 1, 0))

    def _number(self, row: SeriesRow, place: int, index: int) -> int | None:
        text = b"".join(self._store.blob(row.id, place, index))
        return int(text) if text.isdigit() and len(text) < 10 else None


def _points(columns: Columns) -> list[Point]:
    steps = np.frombuffer(columns.steps, "<i8").tolist()
    walls = np.frombuffer(columns.walls, "<f8").tolist()
    values = np.frombuffer(columns.values, "<f8").tolist()
    return [list(point) for point in zip(walls, steps, values, strict=True)]


def _histogram(point: TensorRow) -> Any:
    """Least, most, number, sum, sum of squares, right edges, counts.

    Where only buckets were written, a number stands in the middle of its bucket.
    """
    if point.legacy:
        old = OldHistogram.unpacked(point.legacy)
        head = [old.min, old.max, old.num, old.sum, old.sum_squares]
        return [*head, old.limits.tolist(), old.counts.tolist()]
    rows = array_of(point)
    if rows.ndim != 2 or rows.shape[1] != 3 or not len(rows) or rows.dtype == object:
        return [0.0, 0.0, 0.0, 0.0, 0.0, [], []]
    left, right, counts = (rows[:, i].astype(np.float64) for i in range(3))
    with np.errstate(all="ignore"):
        middle = (left + right) / 2
        sums = [counts.sum(), (middle * counts).sum(), (middle * middle * counts).sum()]
    head = [float(left[0]), float(right[-1]), *map(float, sums)]
    return [*head, right.tolist(), counts.tolist()]


def _query(place: int, number: int, row: SeriesRow) -> str:
    asked: dict[str, Any] = {"index": place, "tagname": row.tag, "run": row.run}
    return urlencode(asked | ({"number": number} if number else {}))


SAMPLES = 10  # points of each tag where all tags are asked for
_MOST_DIGITS = 18
_MOST_PARAMETERS = 64


class Asked:
    """The query of a request; of a name that is given twice, the first value counts."""

    def __init__(self, environ: Environ) -> None:
        given = environ.get("QUERY_STRING", "")
        try:
            pairs = parse_qsl(given, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
        except ValueError as error:
            raise UsageError("the query has too many parameters") from error
        self._given: dict[str, str] = dict(reversed(pairs))
        # Those who do not say what they accept get what the document promises.
        self.gzip = "gzip" in environ.get("HTTP_ACCEPT_ENCODING", "gzip")

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def text(self, name: str, default: str | None = None) -> str:
        found = self._given.get(name, default)
        if found is None:
            raise UsageError(f"`{name}` is missing", why="give it in the address, after `?`")
        return found

    def number(self, name: str, least: int, default: int | None = None) -> int:
        value = self.text(name, None if default is None else str(default))
        plain = value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
        if not plain or (name in self and int(value) < least):
            raise UsageError(
                f"`{name}` is `{value[:100]}`", why=f"it must be a whole number, {least} or more"
            )
        return int(value)


Route = Callable[[LegacyAnswers, Asked], Answer]


class LegacyApi:
    """A WSGI application. Its routes are also answered without `/data` in front.

    `ask` gives the provider of the thread that answers; `sizes` are those of reservoirs.
    """

    def __init__(
        self, ask: Callable[[], Provider], sizes: Mapping[str, int] = SIZES, experiment: str = ""
    ) -> None:
        self._ask = ask
        self._sizes = sizes
        self._experiment = experiment

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        route = ROUTES.get(path.removeprefix("/data"))
        if route is None:
            raise NotFound(
                f"no page `{path[:100]}`", hint=f"known: {', '.join(ROUTES)} under /data"
            )
        if environ.get("REQUEST_METHOD") == "POST":
            answer = Answer(b"not allowed\n", status=405, headers={"Allow": "GET, HEAD"})
        else:
            answers = LegacyAnswers(self._ask(), self._sizes, self._experiment)
            answer = route(answers, Asked(environ))
        return answer.send(environ, start)


def _runs(answers: LegacyAnswers, _: Asked) -> Answer:
    return document(answers.runs())


def _scalars(answers: LegacyAnswers, request: Asked) -> Answer:
    form = request.text("format", "json")
    if form not in ("json", "csv"):
        raise UsageError(f"no format `{form[:100]}`", hint="format=json or format=csv")
    if form == "csv":
        table = answers.scalars_csv(request.text("run"), request.text("tag"))
        return Answer(table.encode(), "text/csv; charset=utf-8")
    if "run" in request or "tag" in request:
        return document(answers.scalars(request.text("run"), request.text("tag")))
    return document(answers.sampled_scalars(request.number("sample_count", 2, SAMPLES)))


def _graph(answers: LegacyAnswers, request: Asked) -> Answer:
    run, key = request.text("run"), request.text("large_attrs_key", "")
    limit = request.number("limit_attr_size", 1, 0)
    if limit and not key:
        raise UsageError("`large_attrs_key` is missing", why="limit_attr_size needs it")
    graph = answers.graph(run)
    return _gzipped("GraphDef", limited_graph(graph, limit, key) if limit else graph, request)


def _run_metadata(answers: LegacyAnswers, request: Asked) -> Answer:
    return _gzipped(
        "RunMetadata", answers.run_metadata(request.text("run"), request.text("tag")), request
    )


def _of_tag(answer: Callable[[LegacyAnswers, str, str], Any]) -> Route:
    return lambda answers, asked: document(answer(answers, asked.text("run"), asked.text("tag")))


def _item(answer: Callable[[LegacyAnswers, str, str, int, int], Iterator[bytes]]) -> Route:
    """`number`: which of several at one step."""

    def one(answers: LegacyAnswers, request: Asked) -> Answer:
        place, number = request.number("index", 0), request.number("number", 0, 0)
        return media(answer(answers, request.text("run"), request.text("tagname"), place, number))

    return one


def _gzipped(kind: str, data: bytes, request: Asked) -> Answer:
    body = "".join(f"{line}\n" for line in text(kind, data)).encode()
    headers = {"Vary": "Accept-Encoding"}
    if request.gzip:
        body = gzip.compress(body, 6, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Answer(body, "text/x-protobuf; charset=utf-8", headers=headers)


ROUTES: Mapping[str, Route] = {
    "/runs": _runs,
    "/scalars": _scalars,
    "/histograms": _of_tag(LegacyAnswers.histograms),
    "/compressedHistograms": _of_tag(LegacyAnswers.compressed_histograms),
    "/images": _of_tag(LegacyAnswers.images),
    "/individualImage": _item(LegacyAnswers.image),
    "/audio": _of_tag(LegacyAnswers.audio),
    "/individualAudio": _item(LegacyAnswers.clip),
    "/graph": _graph,
    "/run_metadata": _run_metadata,
}
