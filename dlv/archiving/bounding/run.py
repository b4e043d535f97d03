"""`archive --bounds`: versions stored so that their first planes tell labels for certain.

Schedules are made with rows of data: given with the command, the version's own, or noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

import dlv.archiving.reencode as reencode
import dlv.evaluation.data as evaluation_data
import dlv.metadata.matrices as matrices
import dlv.recovery.compare as comparing
import dlv.recovery.superseded as superseded
import dlv.repository.revisions as revisions
from dlv.adapters.data.sets import Data, Wanted
from dlv.adapters.data.settings import Settings
from dlv.archiving.bounding.fixing import fix, halved, part
from dlv.archiving.bounding.make import Made, Model, make_record
from dlv.archiving.bounding.view import View
from dlv.archiving.proposal import Progress
from dlv.archiving.reencode import Packing
from dlv.archiving.tryouts import Choice
from dlv.dataclass import dataclass
from dlv.errors import Damaged, DlvError, NotFound, StorageError, UsageError
from dlv.evaluation.data import DataSource
from dlv.kinds import Array
from dlv.metadata import versions
from dlv.metadata.database import Database
from dlv.metadata.versions import Version
from dlv.network.graph import Input, Network
from dlv.network.ops.op import op_of
from dlv.network.program import Program
from dlv.network.suffix.record import suffix_from_json
from dlv.objects.manifest import Manifest
from dlv.pas.footer import Encoding
from dlv.repository.handle import Repository
from dlv.weights.bounds import KIND, Record, decode, hashes_of, pinned, record_of
from dlv.weights.store import MatrixStore, stored_network
from dlv.weights.writer import PackRecord

ROWS = 96
_LENGTH = 16  # of an axis that the network leaves open
_SUFFIXES = (".npz", ".npy", ".csv")


@dataclass(frozen=True)
class Asked:
    """The data that was named, if any was, and how data is read; names are relative to a folder."""

    data: str | None = None
    settings: Settings = field(default_factory=Settings)
    directory: Path = Path()


@dataclass(frozen=True)
class Calibration:
    """Rows of every input; `source` says in a few words where they come from."""

    rows: dict[str, Array]
    source: str


def rows_for(
    repository: Repository, manifest: Manifest, program: Program, request: Asked
) -> Calibration:
    """What there is, best first. Data that was given must fit; the version's own may not."""
    inputs = _inputs(program)
    wanted = [Wanted(each.name, _row_shape(each)) for each in inputs]

    def opened(source: DataSource) -> dict[str, Array]:
        found = evaluation_data.open_source(
            repository, source, request.settings, wanted, request.directory
        )
        return _read(found, inputs)

    if request.data is not None:
        source = evaluation_data.find_data(repository, request.data, [], request.directory)
        return Calibration(opened(source), request.data)
    for entry in manifest.files:
        if entry.role == evaluation_data.ROLE and entry.path.endswith(_SUFFIXES):
            try:
                return Calibration(opened(DataSource(entry.path, entry)), entry.path)
            except DlvError:
                continue
    return Calibration(noise(program.network, inputs), "noise")


def _inputs(program: Program) -> list[Input]:
    named = {each.name: each for each in program.network.inputs}
    found = []
    for name in program.input_names:
        if name in named:
            found.append(named[name])
        else:
            node = program.network.node(name)
            found.append(Input(name, tuple(node.attrs["shape"]), node.attrs["dtype"]))
    return found


def _row_shape(item: Input) -> tuple[int | None, ...]:
    return tuple(size if isinstance(size, int) else None for size in item.shape[1:])


def _read(data: Data, inputs: Sequence[Input]) -> dict[str, Array]:
    """Rows from all over the data: those of one class often stand together."""
    places = np.unique(np.linspace(0, data.count - 1, min(ROWS, data.count)).round().astype(int))
    rows = {}
    for item in inputs:
        column = data.inputs[item.name]
        wanted = _row_shape(item)
        if len(column.shape) != len(wanted) or any(
            size not in (None, length) for size, length in zip(wanted, column.shape, strict=True)
        ):
            raise UsageError(
                f"the rows of {column.name} have another shape than the input `{item.name}`",
                why=f"they are {list(column.shape)}, the network expects {list(wanted)}",
            )
        rows[item.name] = np.concatenate([column.read(at, at + 1) for at in places.tolist()])
    return rows


def noise(network: Network, inputs: Sequence[Input]) -> dict[str, Array]:
    """The same for every run: what it is, is said, and it bounds nothing wrongly."""
    rng = np.random.default_rng(0)
    words = [node.attrs["rows"] for node in network.nodes if op_of(node).lookup]
    symbols: dict[str, int] = {}
    rows: dict[str, Array] = {}
    for item in inputs:
        sizes = [
            size if isinstance(size, int) else symbols.setdefault(str(size), _LENGTH)
            for size in item.shape[1:]
        ]
        if item.dtype.startswith(("float", "bfloat")):
            rows[item.name] = rng.standard_normal((ROWS, *sizes)).astype(np.float32)
        else:
            rows[item.name] = rng.integers(0, min(words, default=2), (ROWS, *sizes))
    return rows


Advance = Callable[[int], None]

# Up to this matrices share chunks: of larger ones a level should not read more than it needs.
POOLED = 8 << 10


def write_bounds(
    repository: Repository,
    view: View,
    record: Record,
    record_matrices: Collection[str],
    stale: Sequence[str],
    author: str,
    summary: str,
    advance: Advance = lambda _: None,
) -> int:
    """New packs written, read back and switched to: their bytes. `record_matrices`: the record's.

    The record counts from the very transaction in which its encodings do, and those that it takes
    the place of go. The caller holds `repository.writing()`.
    """
    data = record.encode()
    if decode(data) != record:
        raise Damaged("the bounds record does not read back", hint="report this bug")
    if record.suffix is not None:
        suffix_from_json(record.suffix)  # nor may this be refused later
    store = MatrixStore.of(repository)
    fresh = [(Choice(name, None, "materialise"), _known(view, name)) for name in view.made]
    beside = reencode.work(repository, fresh)
    with Packing(store) as packing:
        name = packing.add_object(KIND, data)
        for _, encoding in fresh:
            _encode(packing, view, encoding)
        packing.seal()  # so that reading this snapshot does not mean reading others
        for encoding in beside.carried:
            packing.carry(encoding)
        for kind, other in beside.objects:
            if kind != KIND or (other != name and other not in stale):
                packing.carry_object(kind, other)
        made = packing.finish(lambda names: superseded.intend(repository, names))

    def also(db: Database) -> None:
        matrices.forget_bounds(db, [other for other in stale if other != name])
        matrices.insert_bounds(db, name, record.network, record_matrices)

    reencode.verify(repository, store, made, advance)
    reencode.switch(repository, store, made, author, summary, also)
    store.close()
    return _size(made)


def _size(packs: Sequence[PackRecord]) -> int:
    return sum(pack.bytes for pack in packs)


def _known(view: View, matrix: str) -> Encoding:
    encoding = view.encoding(matrix)
    assert encoding is not None
    return encoding


def _encode(packing: Packing, view: View, encoding: Encoding) -> None:
    """Own chunks for the planes of a large matrix; a small one's share theirs, as side data do."""
    attempt = view.made[encoding.matrix]
    if (encoding.nbytes or 0) > POOLED:
        for part in attempt.parts():
            if part.kind != "side":
                packing.put(encoding, part)
        side = b"".join(
            bytes(view.read(p)) for p in view.chunks(encoding.matrix) if p.plane is None
        )
        if side:
            packing.pool(encoding, None, side)
        return
    planes: dict[int | None, bytes] = {}
    for piece in view.chunks(encoding.matrix):
        planes[piece.plane] = planes.get(piece.plane, b"") + bytes(view.read(piece))
    for plane, data in sorted(planes.items(), key=lambda item: -1 if item[0] is None else item[0]):
        packing.pool(encoding, plane, data)


# Smaller ones share chunks with their like: then planes more would be chunks more.
SMALLEST = 8 << 10
DTYPES = ("float32", "float64")  # codes of others end before their third plane
LEVEL = 0.9  # of the rows, of the level that must read less
WORTH = 0.02  # of the bytes, that it must read less

_SECOND = 2  # depth of `fixed`: 16 bits


def made_in_halves(
    model: Model, view: View, rows: Mapping[str, Array], folder: Path, *, strict: bool
) -> Made:
    """The record; the weights of the view are in halves then if that pays."""
    made = make_record(model, view, rows, strict=strict)
    fresh = {name for name in model.program.matrices if _fits(view, model.hash(name))}
    before = _level(made)
    if before is None or _most(made, before, fresh) < WORTH * _bytes(made):
        return made
    with View(view) as tried:
        for matrix in {model.hash(name) for name in fresh}:
            tried.put(halved(view, matrix, folder))
        # The first planes stay what they are.
        finer = make_record(model, tried, rows, strict=strict, tuning=made.tuning)
        after = _level(finer)
        spared = 0.0 if after is None else _bytes(made, before) - _bytes(finer, after)
        if spared < WORTH * _bytes(made):
            return made
        for matrix in list(tried.made):
            view.put(tried.made.pop(matrix))
    return finer


def _fits(view: View, matrix: str) -> bool:
    encoding = view.encoding(matrix)
    return (
        encoding is not None
        and encoding.layout["id"] == "fixed"
        and encoding.delta is None
        and matrix in view.made
        and encoding.dtype in DTYPES
        and (encoding.nbytes or 0) > SMALLEST
    )


def _level(made: Made) -> Mapping[str, int] | None:
    """The first level that tells most of the rows."""
    found = zip(made.schedule.levels, made.schedule.shares, strict=False)
    sought = list(found)[: made.schedule.sought]
    return next((level for level, share in sought if share >= LEVEL), None)


def _bytes(made: Made, level: Mapping[str, int] | None = None) -> float:
    """Of the planes that a level reads; of all."""
    return sum(
        each.bytes[each.planes if level is None else level[name]]
        for name, each in made.stored.items()
    )


def _most(made: Made, level: Mapping[str, int], names: Iterable[str]) -> float:
    """What could be spared of a level: half of a second plane, wherever one is read."""
    found = 0.0
    for name in names:
        sizes = made.stored[name].bytes
        if level[name] >= _SECOND:
            found += (sizes[_SECOND] - sizes[_SECOND - 1]) / 2
    return found


@dataclass(frozen=True)
class Request:
    """`calibration`: the data to make the schedule with, as `eval` takes it.

    `lenient`: a version that cannot have bounds is passed over, though it is named.
    """

    references: tuple[str, ...] = ()
    calibration: Asked = field(default_factory=Asked)
    author: str = ""
    lenient: bool = False


@dataclass(frozen=True)
class Level:
    """Of a schedule: the part of the encoded bytes, and of the calibration rows determined."""

    planes: Mapping[str, int]
    bytes: int
    share: float
    determined: float | None


@dataclass(frozen=True)
class Bounded:
    """One version: what its matrices took before and after, and what the record promises."""

    version: str
    id: str
    record: str
    made: bool  # else it was there already
    changed: int
    matrices: int
    before: float
    after: float
    calibration: str | None
    levels: Sequence[Level]
    helps: Mapping[str, bool]
    why: str | None  # nothing is determined before all is read


@dataclass
class Outcome:
    versions: list[Bounded] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)  # version, why
    written: int = 0
    freed: int = 0
    waiting: int = 0
    seconds: float = 0.0


def bound(repository: Repository, request: Request, *, progress: Progress) -> Outcome:
    """Encode, make records and write both, a version at a time.

    Without references: the latest version of each name.
    """
    started = time.monotonic()
    outcome = Outcome()
    with superseded.alone(repository):
        with repository.writing():
            pass
        comparing.demand(repository, "bound")
        superseded.settle(repository)
        for version in _chosen(repository, request):
            try:
                _check_fit(repository, version)
                with repository.writing():
                    outcome.versions.append(_one(repository, version, request, progress, outcome))
            except (UsageError, NotFound) as error:
                if request.references and not request.lenient:
                    raise
                outcome.skipped.append((version.label, error.why or error.message))
        try:
            outcome.freed, outcome.waiting = superseded.clear(repository)
        except StorageError:  # the new packs count already
            outcome.waiting = len(matrices.unused_packs(repository.database))
    outcome.seconds = time.monotonic() - started
    return outcome


def _chosen(repository: Repository, request: Request) -> list[Version]:
    db = repository.database
    if request.references:
        named = [revisions.version(db, text) for text in request.references]
        return list({version.id: version for version in named}.values())
    found = [versions.latest(db, name) for name in versions.names(db)]
    return [version for version in found if version is not None]


def _check_fit(repository: Repository, version: Version) -> None:
    manifest = repository.manifest(version.id)
    why = None
    if manifest.network is None:
        why = "it has no network"
    elif manifest.own is None:
        why = "it has no weights"
    else:
        rows = versions.snapshots(repository.database, version.key)
        if any(row.index == manifest.own and row.removed for row in rows):
            why = "its weights were removed"
    if why is not None:
        raise UsageError(f"{version.label} has no bounds", why=why)


def _one(
    repository: Repository, version: Version, request: Request, progress: Progress, outcome: Outcome
) -> Bounded:
    manifest = repository.manifest(version.id)
    assert manifest.network is not None
    assert manifest.own is not None
    snapshot = manifest.snapshots[manifest.own]
    store = MatrixStore.of(repository)
    model = Model.of(
        manifest, stored_network(store, manifest.network.id), hashes_of(manifest, snapshot)
    )
    db = repository.database
    held = {model.hash(name) for name in model.program.tensors}
    before = sum(matrices.stored_of(db, held).values())
    total = sum(encoding.nbytes or 0 for m in held if (encoding := store.encoding(m)))
    old = matrices.bounds_candidates(db, manifest.network.id, model.hashes.values())
    with View(store) as view, progress("Computing bounds", 3 * total) as bar:
        keep = pinned(db, store, old)
        for name, rows in _weights(model):
            matrix = model.hash(name)
            if matrix not in keep and matrix not in view.made:
                fix(view, matrix, rows, _bases(repository, manifest, name), repository.tmp)
        part(view, store, sorted(held - keep - view.made.keys()), repository.tmp)
        bar.advance(total)
        current = record_of(db, store, manifest, snapshot)
        given = request.calibration.data is not None
        if isinstance(current, Record) and not view.made and not given:
            return _bounded(version, model, current, before, before)
        calibration = rows_for(repository, manifest, model.program, request.calibration)
        made = made_in_halves(model, view, calibration.rows, repository.tmp, strict=given)
        bar.advance(total)
        summary = f"bounds of {version.label}"
        outcome.written += write_bounds(
            repository, view, made.record, held, old, request.author, summary, bar.advance
        )
        changed = len(view.made)
    after = sum(matrices.stored_of(db, held).values())
    return _bounded(version, model, made.record, before, after, made, calibration.source, changed)


def _weights(model: Model) -> Iterator[tuple[str, str]]:
    """Tensors of linear nodes, with the axis that counts the node's outputs."""
    done: set[str] = set()
    for step in model.program.linear:
        name = model.named(step.node.params["weight"])
        if name not in done:
            done.add(name)
            yield name, op_of(step.node).row_axis(step.node)


def _bases(repository: Repository, manifest: Manifest, name: str) -> list[str]:
    """The same tensor in the parents' own weights."""
    found = []
    for parent in manifest.parents:
        if versions.by_id(repository.database, parent.id) is None:
            continue
        other = repository.manifest(parent.id)
        if other.own is not None:
            found.append(hashes_of(other, other.snapshots[other.own]).get(name))
    return [matrix for matrix in found if matrix is not None]


def _bounded(
    version: Version,
    model: Model,
    record: Record,
    before: float,
    after: float,
    made: Made | None = None,
    calibration: str | None = None,
    changed: int = 0,
) -> Bounded:
    return Bounded(
        version=version.label,
        id=version.id,
        record=record.hash,
        made=made is not None,
        changed=changed,
        matrices=len(model.program.tensors),
        before=before,
        after=after,
        calibration=calibration,
        levels=[] if made is None else list(_levels(made)),
        helps=record.helps,
        why=None if made is None else made.schedule.why,
    )


def _levels(made: Made) -> Iterator[Level]:
    whole = sum(each.bytes[each.planes] for each in made.stored.values())
    shares = made.schedule.shares
    for at, level in enumerate(made.schedule.levels):
        size = sum(made.stored[name].bytes[planes] for name, planes in level.items())
        told = shares[at] if at < len(shares) else None
        yield Level(level, round(size), size / max(whole, 1.0), told)
