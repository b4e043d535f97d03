"""`import`: checkpoints that lie somewhere become a version, in one go and without staging."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import dlv.repository.environment as environment
import dlv.versions.add as adding
import dlv.weights.snapshots as snapshots
from dlv.adapters import detect
from dlv.canonical import timestamp
from dlv.dataclass import dataclass
from dlv.errors import Conflict, UsageError
from dlv.metadata import versions
from dlv.metadata.facts import StagedFile
from dlv.metadata.versions import Version
from dlv.objects.manifest import Manifest, Parent, Snapshot, TensorEntry, check_name
from dlv.repository.handle import Repository
from dlv.versions.add import Added
from dlv.versions.commit import NewVersion, publish
from dlv.weights.snapshots import WeightFile, Weights
from dlv.weights.store import MatrixStore
from dlv.weights.writer import WeightWriter


@dataclass
class Request:
    """Checkpoint files, or folders of them, that become the snapshots of one version."""

    files: Sequence[str]
    name: str
    author: str
    here: Path
    message: str | None = None
    optimizer: str = "keep"
    recheck: str = "hash"
    jobs: int = 1
    progress: Callable[[int], None] = lambda _: None
    total: Callable[[int], None] = lambda _: None


@dataclass
class Imported:
    """`new` is False where a version with this very content was there already."""

    id: str
    name: str
    number: int
    new: bool
    steps: list[int | None]
    raw: int
    stored: int
    seconds: float
    default: int | None = None  # step of the weights that count where no step is given
    skipped: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        return f"{self.name}@{self.number}"


def import_checkpoints(repository: Repository, request: Request) -> Imported:
    """One version out of many checkpoints in one go; staging and HEAD are not touched."""
    started = time.monotonic()
    db = repository.database
    check_name(request.name)
    if versions.by_tag(db, request.name) is not None:
        raise Conflict(f"`{request.name}` is a tag already", hint="choose another name")
    asked = adding.Request(role="snapshot", optimizer=request.optimizer, outside=True)
    added = adding.examine(repository.root, request.here, request.files, asked)
    _skip_examples(added, request)
    if not added.files:
        why = "; ".join(f"{path}: {reason}" for path, reason in added.skipped[:3]) or None
        raise UsageError("no checkpoints in what was named", why=why)
    request.total(sum(file.bytes for file in added.files))
    with repository.writing():
        store = MatrixStore.of(repository)
        with WeightWriter(store, jobs=request.jobs, recheck=request.recheck) as writer:
            weights, parameters = _store(added.files, writer, request)
            packs = writer.finish()
        line = versions.of_name(db, request.name)
        known = _known(repository, line, weights)
        manifest = _manifest(repository, request, weights, parameters, line)
        if known is None:
            repository.write_manifest(manifest)
            with repository.change("import", request.author) as change:
                (version,) = publish(change, packs, [NewVersion(manifest)])
        else:
            version = known
    return Imported(
        id=version.id,
        name=request.name,
        number=version.number or 0,
        new=known is None,
        steps=[snapshot.step for snapshot in weights.snapshots],
        raw=weights.raw,
        stored=sum(pack.bytes for pack in packs),
        seconds=time.monotonic() - started,
        default=None if weights.own is None else weights.snapshots[weights.own].step,
        skipped=added.skipped,
        warnings=added.warnings,
    )


def _skip_examples(added: Added, request: Request) -> None:
    """Skip data sets found beside checkpoints; refuse one that was named."""
    named = {os.path.abspath(request.here / path) for path in request.files}
    for file in list(added.files):
        if file.format == "npz" and detect.is_data_set(file.source):
            why = "it is a data set, not weights"
            if file.source in named:
                raise UsageError(f"{file.path} is not a checkpoint", why=why)
            added.files.remove(file)
            added.skipped.append((file.path, why))


def _store(
    files: Sequence[StagedFile], writer: WeightWriter, request: Request
) -> tuple[Weights, dict[str, Any]]:
    """The weights, and the hyperparameters that the files themselves hold."""
    opened: list[WeightFile] = []
    parameters: dict[str, Any] = {}
    try:
        for file in files:
            checkpoint = adding.opened(file)
            parameters.update(checkpoint.hyperparameters)
            opened.append(
                WeightFile(
                    *(file.path, file.format, file.bytes, file.hash, file.step),
                    own=False,
                    opened=checkpoint,
                )
            )
        return snapshots.store(opened, writer, request.progress), parameters
    except Conflict as error:
        if error.hint and error.hint.startswith("dlv add"):
            error.hint = "name them by step, such as ckpt-100.pt"
        raise
    finally:
        for weights in opened:
            weights.opened.close()


def _known(repository: Repository, line: Sequence[Version], weights: Weights) -> Version | None:
    """The newest version of the name with just these weights at just these steps."""
    wanted = _content(weights.tensors, weights.snapshots)
    for version in reversed(line):
        manifest = repository.manifest(version.id)
        if _content(manifest.tensors, manifest.snapshots) == wanted:
            return version
    return None


def _content(
    tensors: Sequence[TensorEntry], rows: Sequence[Snapshot]
) -> dict[int | None, dict[TensorEntry, str | None]]:
    """Step -> tensors; files and their names do not count."""
    return {row.step: dict(zip(tensors, row.hashes, strict=True)) for row in rows}


def _manifest(
    repository: Repository,
    request: Request,
    weights: Weights,
    parameters: dict[str, Any],
    line: Sequence[Version],
) -> Manifest:
    count = len(weights.snapshots)
    default = f"import of {count} checkpoint{'' if count == 1 else 's'}"
    return Manifest(
        name=request.name,
        message=request.message or default,
        author=request.author,
        created=timestamp(),
        parents=(Parent(line[-1].id, "import"),) if line else (),
        tensors=weights.tensors,
        snapshots=weights.snapshots,
        own=weights.own,
        hyperparameters=parameters,
        environment=environment.describe(repository.root),
    )
