"""`checkout`: a version's files in the working folder, or in another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import dlv.repository.lineage as lineage
import dlv.repository.revisions as revisions
import dlv.versions.approximate_files as approximate_files
import dlv.versions.delivery as delivery
from dlv.errors import NotFound, UsageError, nearest
from dlv.repository.handle import Repository
from dlv.versions.approximate_files import Rough
from dlv.versions.delivery import CheckedOut, Request, Target
from dlv.weights.store import MatrixStore

__all__ = ["CheckedOut", "Request", "checkout"]


def checkout(repository: Repository, request: Request) -> CheckedOut:
    """Write a version's files; HEAD follows when all of it is in the working folder."""
    found = revisions.resolve(repository.database, request.reference)
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
            f"{found.version.label} has no files{'' if request.weights else ' besides weights'}",
            hint=f"dlv show {found.version.label}",
        )
    rough = None
    if request.planes is not None:
        _check_approximate(request, here)
        rough = Rough(MatrixStore.of(repository), request.planes)
        targets = approximate_files.targets(targets, manifest, found.version.id, rough)
    lossy = lineage.lossy(repository.database, found.version) if request.weights else None
    notes += [] if lossy is None else [lossy]
    result = CheckedOut(found.version, folder, notes=[*found.notes, *notes])
    whole = not wanted and only is None and request.format is None and request.weights
    result.head = whole and here
    moves = result.head and (repository.head, repository.next) != (found.version.id, None)

    @contextmanager
    def operation() -> Iterator[None]:
        """HEAD moves in the moment in which the files are there, or both stay as they were."""
        with repository.change("checkout", request.author) as change:
            change.set_head(found.version.id)
            change.set_next(None)
            change.summary = found.version.label
            yield

    how = operation if moves else nullcontext
    delivery.write(repository, manifest, targets, request, result, here=here, operation=how)
    result.reading = None if rough is None else rough.reading
    return result


def _check_approximate(request: Request, here: bool) -> None:
    if not request.weights:
        raise UsageError("--planes is about weights", hint="leave out --no-weights")
    if here:
        raise UsageError(
            "approximate weights do not go to the project's folder",
            why="they are not those of any version",
            hint="--to DIR",
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
