"""`checkout`: a version's files in the working folder, or in another one."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

import numpy as np

import dlv.repository.revisions as revisions
import dlv.versions.delivery as delivery
import dlv.weights.rounding as rounding
import dlv.weights.snapshots as snapshots
from dlv.adapters import registry
from dlv.canonical import HashedFile
from dlv.dataclass import dataclass
from dlv.errors import NotFound, UsageError, nearest
from dlv.kinds import Floats, Raw
from dlv.objects.manifest import Manifest
from dlv.pas.layouts.schemes import BF16, rounded
from dlv.repository.handle import Repository
from dlv.versions.delivery import CheckedOut, Request, Target
from dlv.versions.history import lossy_note
from dlv.versions.working import Tracked
from dlv.weights.reading.approximation import Bounds, NoBounds, Reading, whole
from dlv.weights.store import MatrixStore

__all__ = ["CheckedOut", "Request", "checkout"]


def checkout(repository: Repository, request: Request) -> CheckedOut:
    """Write a version's files; HEAD follows when all of it is in the working folder."""
    found = _version(repository, request)
    manifest = repository.manifest(found.version.id)
    only = None if found.snapshot is None else found.snapshot.index
    folder = repository.root if request.to is None else Path(request.here, request.to)
    here = folder.resolve() == repository.root.resolve()
    targets, notes = delivery.targets(repository, manifest, found.version, request, only)
    wanted = [*request.paths, *([found.file] if found.file else [])]
    if wanted:
        targets = _chosen(repository, targets, wanted, request)
    elif not targets:
        raise NotFound(
            f"{found.version.label} has no files{'' if request.weights else ' except weights'}",
            hint=f"dlv show {found.version.label}",
        )
    rough = None
    if request.planes is not None:
        _check_approximate(request, here)
        rough = Rough(MatrixStore.of(repository), request.planes)
        targets = approximate_targets(targets, manifest, found.version.id, rough)
    lossy = lossy_note(repository.database, found.version) if request.weights else None
    notes += [] if lossy is None else [lossy]
    result = CheckedOut(found.version, folder, notes=[*found.notes, *notes])
    whole = not wanted and only is None and request.format is None and request.weights
    result.head = whole and here
    moves = result.head and (repository.head, repository.next) != (found.version.id, None)
    staged = delivery.check_staged(repository, found.version, force=request.force) if moves else []

    @contextmanager
    def operation() -> Iterator[None]:
        """HEAD moves in the moment in which the files are there, or both stay as they were."""
        with repository.change("checkout", request.author) as change:
            change.set_head(found.version.id)
            change.set_next(None)
            delivery.unstage(change, staged)
            change.summary = found.version.label
            yield

    how = operation if moves else nullcontext
    previous = delivery.previous_version(repository, found.version) if moves else None
    delivery.write(
        *(repository, manifest, targets, request, result),
        here=here,
        operation=how,
        previous=previous,
    )
    result.reading = None if rough is None else rough.reading
    return result


def _version(repository: Repository, request: Request) -> revisions.Reference:
    """Resolve REF; where it names a file instead, say how to restore that file."""
    try:
        return revisions.resolve(repository.database, request.reference)
    except (NotFound, UsageError):
        # `git checkout FILE` is a habit; dlv expects a version before the file.
        name = request.reference
        if not request.paths and Path(request.here, name).exists():
            raise NotFound(
                f"no version matches `{name}`",
                why="it is a file, not a version",
                hint=f"dlv checkout HEAD {name}",
            ) from None
        raise


def _check_approximate(request: Request, here: bool) -> None:
    if not request.weights:
        raise UsageError("--planes requires weights", hint="dlv checkout without --no-weights")
    if here:
        raise UsageError(
            "--planes requires --to",
            why="approximate weights must not replace those of a version",
            hint=f"dlv checkout {request.reference} --planes {request.planes} --to DIR",
        )


def _chosen(
    repository: Repository, targets: Sequence[Target], wanted: Sequence[str], request: Request
) -> list[Target]:
    """The files that were named, from the project's folder or from the working directory."""
    chosen: dict[str, Target] = {}
    for name in wanted:
        plain = name.rstrip("/").removeprefix("./")
        names = {plain}
        full = Path(request.here, name).resolve()
        if full.is_relative_to(repository.root):
            names.add(full.relative_to(repository.root).as_posix())
        fitting = [t for t in targets if any(_below(t.path, known) for known in names)]
        if not fitting:
            known = [target.path for target in targets]
            raise NotFound(
                f"{request.reference} has no file `{name}`",
                did_you_mean=nearest(plain, known),
                hint=f"dlv show {request.reference}",
            )
        chosen.update((target.path, target) for target in fitting)
    return list(chosen.values())


def _below(path: str, name: str) -> bool:
    return name in (".", path) or path.startswith(name + "/")


# Where there is room to say in the file what it is.
_TELLING = ("safetensors", "gguf")
# dtype -> that of its parts, of which a centre is made. All others are exact from their one
# plane, or are counts and flags, of which nothing between is one.
_PARTS = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
    "float64": "float64",
    "complex64": "float32",
    "complex128": "float64",
}


@dataclass
class Rough:
    """A store that gives the centres of what the first planes allow, in the matrix's dtype."""

    store: MatrixStore
    planes: int
    readings: dict[str, Reading] = field(default_factory=dict)  # of each matrix

    @property
    def reading(self) -> Reading | None:
        found = self.readings.values()
        return functools.reduce(Reading.and_, found) if found else None

    def matrix(self, matrix: str) -> Raw:
        encoding = self.store.encoding(matrix)
        if encoding is None or encoding.dtype not in _PARTS or encoding.empty:
            return self._exact(matrix)
        found, made = Bounds(self.store, matrix, self.planes), bytearray()
        try:
            for centre, _, _ in () if found.exact else found:
                made += _bytes(centre, _PARTS[encoding.dtype])
        except NoBounds as error:
            found = found.exactly(error.why)
        if found.exact:
            return self._exact(matrix, found.reading)
        self.readings[matrix] = found.reading
        return made

    def object(self, kind: str, name: str) -> Raw:
        return self.store.object(kind, name)

    def _exact(self, matrix: str, reading: Reading | None = None) -> Raw:
        """Bit for bit: float64 does not hold the payload of a NaN, nor every integer."""
        self.readings[matrix] = reading or whole(self.store, matrix, self.planes)
        return self.store.matrix(matrix)


def _bytes(centre: Floats, dtype: str) -> Raw:
    if dtype == "bfloat16":
        words = rounded(centre, BF16).astype("<f4").view("<u4") >> np.uint32(16)
        return words.astype("<u2").tobytes()
    most = float(np.finfo(dtype).max)
    return np.clip(centre, -most, most).astype(np.dtype(dtype).newbyteorder("<")).tobytes()


def approximate_targets(
    targets: Sequence[Target], manifest: Manifest, version: str, source: Rough
) -> list[Target]:
    """The same files, those of weights with approximate ones under names that say so."""
    return [
        target if target.container is None else _approximate(target, manifest, version, source)
        for target in targets
    ]


def _approximate(target: Target, manifest: Manifest, version: str, source: Rough) -> Target:
    item = target.item
    path = PurePosixPath(item.path)
    name = f"{path.stem}.{source.planes}-plane{'s' if source.planes > 1 else ''}{path.suffix}"
    if item.format == "onnx" and path.suffix != ".onnx":
        name = path.name  # the model says where its weights are
    new = Tracked(str(path.with_name(name)), item.role, item.format, item.bytes, "", item.step)
    return Target(new, make=partial(_write, target, manifest, version, source))


def _write(
    target: Target, manifest: Manifest, version: str, source: Rough, out: BinaryIO
) -> tuple[int, str]:
    container, snapshot = target.container, target.snapshot
    assert container is not None
    assert snapshot is not None
    kind = target.item.format
    if kind == container.format and kind not in _TELLING and container.skeleton is not None:
        tensors = snapshots.tensors_of(manifest, snapshot, container.tensors, source.matrix)
        frame = bytes(source.object("skeleton", container.skeleton))
        renewed = rounding.skeleton(kind, frame, tensors, source.store.tmp_dir)
        if renewed is not None:
            sink = HashedFile(out)
            registry.adapter(kind).restore(cast(BinaryIO, sink), renewed, tensors)
            return sink.tell(), sink.hexdigest()
    metadata = {"dlv": version, "approximate": f"from the first {source.planes} byte planes"}
    if snapshot.step is not None:
        metadata["step"] = str(snapshot.step)
    if manifest.framework in ("pt", "torch"):
        metadata["format"] = "pt"  # libraries of torch's world load no safetensors without it
    tensors = snapshots.renamed(manifest, snapshot, container, source)
    return snapshots.save(out, kind, tensors, metadata)
