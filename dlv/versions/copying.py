"""`copy`: a new model that begins with the files of a version, its network edited on the way.

Its weights are carried over from the version, or made from a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import numpy.typing as npt

import dlv.network.edits.reuse as reuse
import dlv.repository.revisions as revisions
import dlv.versions.delivery as delivery
import dlv.weights.snapshots as snapshots
from dlv.adapters.checkpoint import Tensor
from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.dtypes import ITEM_BYTES
from dlv.errors import Conflict, Damaged, NotFound, UsageError
from dlv.kinds import Array, Raw
from dlv.metadata import versions
from dlv.network.edits.axes import Run
from dlv.network.edits.reuse import COPY, OVERLAP, Plan, Reuse
from dlv.network.graph import Network
from dlv.network.inference import Tensors
from dlv.objects.manifest import FileEntry, Manifest, check_name
from dlv.repository.handle import Repository
from dlv.repository.revisions import Reference
from dlv.versions.delivery import CheckedOut, Request, Target
from dlv.versions.history import lossy_note
from dlv.versions.working import Tracked
from dlv.weights.arrays import to_array
from dlv.weights.store import MatrixStore, stored_network

if TYPE_CHECKING:
    from dlv.network.edits.instructions import Instructions
    from dlv.network.edits.wiring import Edit


def derived_tensors(plan: Plan, held: Sequence[Tensor], seed: int = 0) -> list[Tensor]:
    """The tensors of a plan, each made when it is read; `held` are those of the source."""
    known = {tensor.name: tensor for tensor in held}
    found = []
    for item in plan.tensors:
        size = _item_bytes(item, known)
        shape = item.shape or ()
        source = known.get(item.name)
        role = "weight" if source is None else source.role
        read = partial(_read, item, known, seed)
        part = source.part if source is not None and item.action == COPY else None
        nbytes = math.prod(shape) * size
        found.append(Tensor(item.name, item.dtype, shape, nbytes, read, role, item.tied, part))
    return found


def _item_bytes(item: Reuse, held: Mapping[str, Tensor]) -> int:
    if item.dtype in ITEM_BYTES:
        return ITEM_BYTES[item.dtype]
    source = held.get(item.name)
    if source is not None and item.action == COPY and source.elements:
        return source.nbytes // source.elements
    raise UsageError(f"cannot initialize `{item.name}`: unsupported dtype {item.dtype}")


def _read(item: Reuse, held: Mapping[str, Tensor], seed: int) -> Raw:
    if item.action == COPY:
        return held[item.name].read()
    made = initial_values(item, seed)
    if item.action != OVERLAP:
        return made
    old = held[item.name].read()
    return carried_values(item, old, made)


def carried_values(item: Reuse, old: Raw, made: Raw) -> bytes:
    """The new tensor's bytes with the old one's put where they belong, whatever they stand for."""
    size = ITEM_BYTES[item.dtype]
    if len(memoryview(old).cast("B")) != math.prod(item.old_shape or ()) * size:
        raise Damaged(f"tensor {item.name} has the wrong length")
    words = np.dtype(f"V{size}")
    source = np.frombuffer(old, words).reshape(item.old_shape or ())
    target = np.frombuffer(bytearray(made), words).reshape(item.shape or ())
    for block in item.blocks:
        places = [_places(runs) for runs in block]
        target[np.ix_(*(new for new, _ in places))] = source[np.ix_(*(old for _, old in places))]
    return target.tobytes()


def _places(runs: Sequence[Run]) -> tuple[Array, Array]:
    new = [np.arange(run.new, run.new + run.size) for run in runs]
    old = [np.arange(run.old, run.old + run.size) for run in runs]
    return np.concatenate(new), np.concatenate(old)


def turned(dtype: str, raw: Raw, factors: Sequence[int], order: Sequence[int]) -> bytes:
    """The same elements in another order: cut into these factors, which then change places."""
    values = np.frombuffer(raw, np.dtype(f"V{ITEM_BYTES[dtype]}"))
    return values.reshape(tuple(factors)).transpose(tuple(order)).tobytes()


# New elements


def initial_values(item: Reuse, seed: int) -> bytes:
    """The tensor as it begins: the same for one seed and name on every machine."""
    count = math.prod(item.shape or ())
    if item.fill == "uniform" and item.fan_in:
        values = _uniform(count, f"{seed}:{item.tied or item.name}") / math.sqrt(item.fan_in)
    else:
        values = np.full(count, 1.0 if item.fill == "one" else 0.0)
    return narrowed(values, item.dtype)


def _uniform(count: int, key: str) -> npt.NDArray[np.float64]:
    """Numbers in -1 .. 1 from Philox, whose raw words numpy promises to keep."""
    words = np.random.Philox(key=int(hash_bytes(key.encode())[:32], 16)).random_raw(count)
    found: npt.NDArray[np.float64] = (words >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
    return found


def narrowed(values: npt.NDArray[np.float64], dtype: str) -> bytes:
    """The bytes of numbers in a dtype, each rounded to the nearest."""
    if dtype == "bfloat16":
        bits = values.astype("<f4").view("<u4")
        # Round to even: half of the last place that stays, and one more if that one is odd.
        rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        return (rounded >> np.uint32(16)).astype("<u2").tobytes()
    if dtype.startswith("float8"):
        return _nearest(values, dtype)
    try:
        kind = np.dtype(dtype)
    except TypeError as error:
        raise UsageError(f"cannot initialize values of dtype {dtype}") from error
    return np.ascontiguousarray(values.astype(kind), kind.newbyteorder("<")).tobytes()


def _nearest(values: npt.NDArray[np.float64], dtype: str) -> bytes:
    """Of a dtype with 256 values: the code whose value is nearest."""
    codes = np.arange(256, dtype=np.uint8)
    known = to_array(dtype, (256,), codes.tobytes()).astype(np.float64)
    order = np.argsort(known, kind="stable")
    order = order[np.isfinite(known[order])]
    table = known[order]
    after = np.clip(np.searchsorted(table, values), 1, len(table) - 1)
    lower = values - table[after - 1] <= table[after] - values
    return codes[order[np.where(lower, after - 1, after)]].tobytes()


@dataclass(frozen=True)
class Held:
    """A network, and the tensors that are stored with it, each read when it is needed."""

    network: Network
    tensors: Sequence[Tensor]

    @cached_property
    def shapes(self) -> Tensors:
        return {tensor.name: (tensor.dtype, tensor.shape) for tensor in self.tensors}

    @cached_property
    def tied(self) -> dict[str, str]:
        """Tensors whose elements are another's, as the files of weights tell."""
        return {tensor.name: tensor.tied for tensor in self.tensors if tensor.tied is not None}

    def plan(self, derived: Network) -> Plan:
        """What each tensor of a network made from this one begins with."""
        return reuse.plan(self.network, derived, self.shapes, tied=self.tied)

    def carried(self, plan: Plan, seed: int = 0) -> list[Tensor]:
        return derived_tensors(plan, self.tensors, seed)


def held_by(
    manifest: Manifest,
    label: str,
    store: MatrixStore,
    *,
    snapshot: int | None = None,
    weights: bool = True,
) -> Held:
    """Those of a version, of its own snapshot or that at an index; NotFound without a network."""
    if manifest.network is None:
        raise NotFound(
            f"{label} has no network to edit",
            hint="add a network first: dlv add NETWORK && dlv commit",
        )
    tensors = _tensors(manifest, snapshot, store) if weights else []
    network = stored_network(store, manifest.network.id)
    used = {name for node in network.nodes for name in node.params.values()}
    # What the weights' file alone knows to be one matrix is resized as one.
    ties = {
        tensor.name: tensor.tied
        for tensor in tensors
        if tensor.tied is not None and tensor.name in used and tensor.tied in used
    }
    return Held(replace(network, aliases={**ties, **network.aliases}), tensors)


def _tensors(manifest: Manifest, snapshot: int | None, store: MatrixStore) -> list[Tensor]:
    """The model's tensors of the snapshot that is meant; an optimizer's fit no other network."""
    index = manifest.own if snapshot is None else snapshot
    if index is None:
        return []
    wanted = [
        place for place, entry in enumerate(manifest.tensors) if entry.role in snapshots.MODEL_ROLES
    ]
    return snapshots.tensors_of(manifest, manifest.snapshots[index], wanted, store.matrix)


def copied_files(manifest: Manifest) -> tuple[FileEntry, ...]:
    """All but what describes the old network or its training."""
    return tuple(entry for entry in manifest.files if entry.role not in ("network", "log"))


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
            f"`{request.reference}` is a checkpoint or file",
            why="only whole versions can be copied",
            hint=f"to write this part: dlv checkout {request.reference} --to DIR",
        )
    _check_free(repository, request)
    manifest = repository.manifest(found.version.id)
    folder = repository.root if request.to is None else Path(request.here, request.to)
    here = folder.resolve() == repository.root.resolve()
    result = Copied(found.version, folder, notes=list(found.notes))
    lossy = lossy_note(repository.database, found.version) if request.weights else None
    result.notes += [] if lossy is None else [lossy]
    delivery.check_staged(repository, found.version, force=False)
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

    previous = delivery.previous_version(repository, found.version) if here else None
    delivery.write(
        *(repository, manifest, targets, request, result),
        here=here,
        operation=operation,
        previous=previous,
    )
    result.head = True
    return result


def _check_free(repository: Repository, request: Request) -> None:
    db, name = repository.database, request.name
    check_name(name)
    if versions.by_tag(db, name) is not None:
        raise Conflict(f"`{name}` is already a tag", hint="choose another name")
    taken = versions.of_name(db, name)
    if taken and not request.force:
        raise Conflict(
            f"model `{name}` already exists",
            hint="choose another name, or let the next commit add to it: dlv copy -f",
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

    held = held_by(
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
        result.notes.append(f"{source.version.label} has no weights")
    return targets


def _files(manifest: Manifest, source: Reference, result: Copied) -> list[Target]:
    """All but what describes the old network or its training."""

    kept = copied_files(manifest)
    logs = [entry.path for entry in manifest.files if entry.role == "log"]
    if logs:
        names = ", ".join(logs[:3]) + (f" and {len(logs) - 3} more" if len(logs) > 3 else "")
        result.notes.append(f"skipped {names}: logs of the training of {source.version.label}")
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
