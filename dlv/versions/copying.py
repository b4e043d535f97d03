"""`copy`: a new model that begins with the files of a version, its network edited on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import dlv.repository.revisions as revisions
import dlv.versions.delivery as delivery
import dlv.weights.snapshots as snapshots
from dlv.adapters.checkpoint import Tensor
from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.errors import Conflict, UsageError
from dlv.metadata import versions
from dlv.objects.manifest import Manifest, check_name
from dlv.repository.handle import Repository
from dlv.repository.revisions import Reference
from dlv.versions.delivery import CheckedOut, Request, Target
from dlv.versions.history import lossy_note
from dlv.versions.working import Tracked
from dlv.weights.store import MatrixStore

if TYPE_CHECKING:
    from dlv.network.edits.instructions import Instructions
    from dlv.network.edits.reuse import Plan
    from dlv.network.edits.wiring import Edit
    from dlv.network.graph import Network

__all__ = ["Copied", "Request", "copy"]

NETWORK_FILE = "network.json"


@dataclass
class Copied(CheckedOut):
    """What was written; of an edited copy also how its network and weights were made."""

    network: Network | None = None
    edits: Sequence[Edit] = ()
    plan: Plan | None = None
    seed: int = 0
    made: Sequence[str] = field(default_factory=list)  # paths of the new network and weights


def copy(
    repository: Repository, request: Request, instructions: Instructions | None = None
) -> Copied:
    """Scaffold a new model from a version: its files, its name and its parent for the commit.

    With `instructions` its network is edited, and its own weights are carried over as far as they
    fit: a network.json and one file of weights stand for all of the version's.
    """
    found = revisions.resolve(repository.database, request.reference)
    if found.file is not None or (found.snapshot is not None and not instructions):
        raise UsageError(
            f"`{request.reference}` names a part of a version",
            why="a copy begins with all of it",
            hint=f"dlv checkout {request.reference} --to DIR writes this part",
        )
    _check_free(repository, request)
    manifest = repository.manifest(found.version.id)
    folder = repository.root if request.to is None else Path(request.here, request.to)
    here = folder.resolve() == repository.root.resolve()
    result = Copied(found.version, folder, notes=list(found.notes))
    lossy = lossy_note(repository.database, found.version) if request.weights else None
    result.notes += [] if lossy is None else [lossy]
    if instructions:
        targets = _edited(repository, manifest, found, request, instructions, result)
    else:
        targets, notes = delivery.targets(repository, manifest, found.version, request, None)
        result.notes += notes

    @contextmanager
    def operation() -> Iterator[None]:
        """The next commit has its name in the moment in which the files are there."""
        with repository.change("copy", request.author) as change:
            change.set_head(found.version.id)
            change.set_next(request.name, "copy")
            change.summary = f"{found.version.label} as {request.name}"
            yield

    delivery.write(repository, manifest, targets, request, result, here=here, operation=operation)
    result.head = True
    return result


def _check_free(repository: Repository, request: Request) -> None:
    db, name = repository.database, request.name
    check_name(name)
    if versions.by_tag(db, name) is not None:
        raise Conflict(f"`{name}` is a tag already", hint="choose another name")
    taken = versions.of_name(db, name)
    if taken and not request.force:
        raise Conflict(
            f"the name `{name}` is taken",
            why=f"{taken[-1].label} exists",
            hint=f"choose another name, or -f: the next commit is then a further `{name}`",
        )


# An edited copy


def _edited(
    repository: Repository,
    manifest: Manifest,
    source: Reference,
    request: Request,
    instructions: Instructions,
    result: Copied,
) -> list[Target]:
    """The version's other files, the edited network, and the weights made for it."""
    import dlv.adapters.network_json as network_json
    import dlv.network.edits.instructions as instructing
    import dlv.versions.carrying as carrying

    held = carrying.of_version(
        manifest,
        source.version.label,
        MatrixStore.of(repository),
        snapshot=None if source.snapshot is None else source.snapshot.index,
        weights=request.weights,
    )
    result.network, result.edits = instructing.derived(held.network, instructions, held.shapes)
    result.seed = instructions.seed
    targets = _files(manifest, source, result)
    network_path = _network_path(manifest)
    text = network_json.text(result.network).encode()
    targets.append(_made(network_path, "network", len(text), partial(_put, text), hash_bytes(text)))
    result.made = [network_path]
    if held.tensors:
        result.plan = held.plan(result.network)
        tensors = held.carried(result.plan, instructions.seed)
        size = sum(tensor.nbytes for tensor in tensors)
        path = f"{request.name}.safetensors"
        targets.append(_made(path, "weights", size, partial(_save, tensors)))
        result.made = [network_path, path]
    elif request.weights:
        result.notes.append(f"{source.version.label} has no weights to carry over")
    return targets


def _files(manifest: Manifest, source: Reference, result: Copied) -> list[Target]:
    """All but what describes the old network or its training."""
    import dlv.versions.carrying as carrying

    kept = carrying.files(manifest)
    logs = [entry.path for entry in manifest.files if entry.role == "log"]
    if logs:
        names = ", ".join(logs[:3]) + (f" and {len(logs) - 3} more" if len(logs) > 3 else "")
        result.notes.append(f"{names}: left out, it tells how {source.version.label} was trained")
    return delivery.associated(replace(manifest, files=kept))


def _network_path(manifest: Manifest) -> str:
    """Where the network's file was, if it was such a file."""
    known = [e.path for e in manifest.files if e.role == "network" and e.path.endswith(".json")]
    return known[0] if len(known) == 1 else NETWORK_FILE


def _made(
    path: str, role: str, size: int, make: Callable[[BinaryIO], tuple[int, str]], mark: str = ""
) -> Target:
    return Target(Tracked(path, role, "", size, mark), make=make)


def _put(data: bytes, out: BinaryIO) -> tuple[int, str]:
    out.write(data)
    return len(data), hash_bytes(data)


def _save(tensors: Sequence[Tensor], out: BinaryIO) -> tuple[int, str]:
    return snapshots.save(out, "safetensors", tensors, {})
