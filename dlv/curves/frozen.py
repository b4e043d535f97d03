"""Series on their way into packs and back: out of `live.db` at a commit, into it to be shown."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from dlv.curves.store import CurveStore
from dlv.curves.writer import Batch, RunWriter, keep_preview
from dlv.errors import DlvError
from dlv.events.formats import chunks
from dlv.events.formats import series as frozen_series
from dlv.events.formats.chunks import Scalars
from dlv.events.formats.series import BLOBS, BLOCK, SCALARS, Head
from dlv.events.logs.points import BlobPoint, Hide, Item, Metadata, ScalarPoints, TensorPoint
from dlv.events.provider.store import SeriesRow
from dlv.metadata import curve_writing, curves, versions
from dlv.metadata.metrics import Summary, summarise
from dlv.metadata.versions import Version
from dlv.objects.manifest import Manifest
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore, Objects

BATCH = 16 << 20
REPOSITORY = ""  # the experiment of committed versions

Add = Callable[[str, bytes], str]


def freeze(store: CurveStore, row: SeriesRow, run: str, add: Add) -> tuple[str, Summary | None]:
    """Hand a series to `add(kind, bytes) -> hash` piece by piece: its name, and of scalars a
    summary."""
    if row.data_class == SCALARS:
        points = _scalar_blocks(store, row.id, add)
    elif row.data_class == BLOBS:
        points = frozen_series.encode_blobs(_blobs(store, row.id), add)
    else:
        found = store.written_tensors(row.id)
        points = frozen_series.encode_tensors(
            (frozen_series.Tensor(*tensor) for tensor in found), add
        )
    head = Head(
        *(run, row.tag, row.plugin, row.data_class, row.content),
        *(row.display_name, row.description, tuple(points)),
        # Where steps went back without a mark is seen in the points.
        purges=tuple(p for p in curves.purges(store.database, row.id) if p[0] == "marked"),
    )
    digest = add("series", head.encode())
    return digest, _summary(store, row, run, digest) if row.data_class == SCALARS else None


def _scalar_blocks(store: CurveStore, series: int, add: Add) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    waiting: list[Scalars] = []
    held = 0

    def put(points: Scalars) -> None:
        columns = (
            points.steps.astype("<i8", copy=False),
            points.walls.astype("<f8", copy=False),
            points.values.astype("<f8", copy=False),
        )
        found.append((add("points", b"".join(c.tobytes() for c in columns)), points.n))

    for part in store.written(series):
        waiting.append(part)
        held += part.n
        if held >= BLOCK:
            points = chunks.joined(waiting)
            put(points.part(0, BLOCK))
            waiting, held = [points.part(BLOCK, points.n)], held - BLOCK
    if held:
        put(chunks.joined(waiting))
    return found


def _blobs(store: CurveStore, series: int) -> Iterator[frozen_series.Blobs]:
    for point in store.written_blobs(series):
        content = [b"".join(curves.blob(store.database, key)) for key, _ in point.blobs]
        yield frozen_series.Blobs(point.step, point.wall, tuple(content))


def _summary(store: CurveStore, row: SeriesRow, run: str, digest: str) -> Summary:
    """As `metadata.metrics.summarise` makes it of all points, out of the chunks' figures."""
    parts = store.scalar_chunks(row.id)
    if any(part.nonfinite for part in parts):  # of which these figures do not tell
        points = store.points_at(row.id, range(row.n))
        return summarise(run, row.tag, digest, points.steps.tolist(), points.values.tolist())
    low = high = None
    for part in parts:
        if part.vmin is not None and (low is None or part.vmin < low[0]):
            low = (part.vmin, part.imin)
        if part.vmax is not None and (high is None or part.vmax > high[0]):
            high = (part.vmax, part.imax)
    places = [at for found in (low, high) if found and (at := found[1]) is not None]
    if row.n:
        places.append(row.n - 1)
    steps = [int(step) for step in store.points_at(row.id, places).steps]
    return Summary(
        run=run,
        tag=row.tag,
        hash=digest,
        n=row.n,
        last_step=steps[-1] if row.n else None,
        last=row.last,
        min=low[0] if low else None,
        min_step=steps[0] if low else None,
        max=high[0] if high else None,
        max_step=steps[1] if high else None,
    )


def fill(
    repository: Repository, store: CurveStore, wanted: Sequence[Version]
) -> list[tuple[str, str]]:
    """Bring the curves of versions into the store: a run called NAME@N, others below it.

    What is there already stays; runs of versions that are no more go. What cannot be read is
    left out: (series, why).
    """
    db = store.database
    known = {v.id: v.label for v in versions.all_versions(repository.database)}
    known |= {version.id: version.label for version in wanted}
    remarks: list[tuple[str, str]] = []
    key = curves.experiment(db, REPOSITORY)
    there = {} if key is None else _there(store, key, known)
    if there.keys() >= {version.id for version in wanted} and None not in there.values():
        return remarks
    with store.alone(), contextlib.closing(MatrixStore.of(repository)) as objects:
        with db.atomic():
            key = curve_writing.experiment(db, REPOSITORY)
            for run_id, _, version in curve_writing.versions(db, key):
                if _there(store, key, known).get(version) is None:
                    curve_writing.withdraw(db, run_id)
        there = _there(store, key, known)
        for version in wanted:
            if version.id not in there:
                manifest = repository.manifest(version.id)
                with db.atomic():
                    _fill(store, key, version, manifest, objects, remarks)
    return remarks


def _there(store: CurveStore, key: int, known: Mapping[str, str]) -> dict[str, str | None]:
    """Version -> its label, or None where a run of it has to go."""
    found: dict[str, str | None] = {}
    for _, name, version in curve_writing.versions(store.database, key):
        label = known.get(version)
        fits = label is not None and (name == label or name.startswith(f"{label}/"))
        found[version] = label if fits and found.get(version, label) == label else None
    return found


def _fill(
    store: CurveStore,
    key: int,
    version: Version,
    manifest: Manifest,
    objects: MatrixStore,
    remarks: list[tuple[str, str]],
) -> None:
    db = store.database
    start = datetime.datetime.fromisoformat(version.created).timestamp()
    runs: dict[str, RunWriter] = {}

    def writer(run: str) -> RunWriter:
        if run not in runs:
            run_id = curve_writing.run(db, key, f"{version.label}/{run}" if run else version.label)
            settings = {} if run else manifest.hyperparameters
            curve_writing.describe_run(db, run_id, version.id, start, settings)
            runs[run] = RunWriter(store, run_id)
        return runs[run]

    writer("")
    for reference in manifest.series:
        of_run = writer(reference.run)
        try:
            with db.atomic():
                _fill_series(of_run, reference.hash, objects)
        except DlvError as error:
            of_run.forget(reference.tag)
            remarks.append((f"{version.label}: {reference.tag}", error.message))
    for of_run in runs.values():
        for state in of_run.series.values():
            if state.data_class == SCALARS:
                keep_preview(store, state.id, state.n)


def _fill_series(writer: RunWriter, digest: str, objects: Objects) -> None:
    head = frozen_series.decode_head(bytes(objects.object("series", digest)))
    batch = Batch()
    texts = (head.content, head.display_name, head.description)
    batch.add([], [Metadata(head.tag, head.plugin, head.data_class, *texts)])
    for item in thaw(head, objects):
        batch.add([item])
        if batch.bytes >= BATCH:
            writer.write(batch)
            batch = Batch()
    writer.write(batch)


def thaw(head: Head, objects: Objects) -> Iterator[Item]:
    """The points of a frozen series in the order written, restarts between them."""
    purges = [purge for purge in head.purges if purge[0] == "marked"]
    seq = 0
    for digest, count in head.points:
        for item in _thawed(head, bytes(objects.object("points", digest)), count):
            while purges and isinstance(item, ScalarPoints) and purges[0][1] < seq + len(item):
                cut = purges[0][1] - seq
                if cut > 0:
                    yield _part(item, 0, cut)
                    item, seq = _part(item, cut, len(item)), seq + cut
                yield Hide(head.tag, purges.pop(0)[2])
            while purges and purges[0][1] <= seq:
                yield Hide(head.tag, purges.pop(0)[2])
            yield item
            seq += len(item) if isinstance(item, ScalarPoints) else 1
    for _, _, step in purges:
        yield Hide(head.tag, step)


def _part(points: ScalarPoints, start: int, end: int) -> ScalarPoints:
    columns = (points.steps[start:end], points.walls[start:end], points.values[start:end])
    return ScalarPoints(points.tag, *columns)


def _thawed(
    head: Head, data: bytes, count: int
) -> Iterator[ScalarPoints | TensorPoint | BlobPoint]:
    if head.data_class == SCALARS:
        if len(data) != 24 * count:
            raise frozen_series.damaged(f"a block of {count} points has {len(data)} bytes")
        yield ScalarPoints(
            head.tag,
            np.frombuffer(data, "<i8", count).astype(np.int64),
            np.frombuffer(data, "<f8", count, 8 * count).astype(np.float64),
            np.frombuffer(data, "<f8", count, 16 * count).astype(np.float64),
        )
    elif head.data_class == BLOBS:
        for blobs in frozen_series.read_blobs(data, count):
            yield BlobPoint(head.tag, *blobs)
    else:
        for tensor in frozen_series.read_tensors(data, count):
            yield TensorPoint(head.tag, *tensor)
