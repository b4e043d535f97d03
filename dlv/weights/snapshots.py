"""Weight files into snapshots: which files are one checkpoint, which tensors they share; and the
matrices that a stored snapshot holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import PurePosixPath
from typing import BinaryIO, Protocol, cast

from dlv.adapters import registry
from dlv.adapters.checkpoint import Checkpoint, Companion, Part, Tensor
from dlv.adapters.detect import shard_of
from dlv.adapters.folders import place_of
from dlv.canonical import HashedFile, HashSink
from dlv.dataclass import dataclass
from dlv.dtypes import ITEM_BYTES, block_of, tensor_bytes
from dlv.errors import Conflict, Damaged, NotFound, UnsafeInput, nearest
from dlv.kinds import Raw
from dlv.objects.manifest import Container, Manifest, Snapshot, TensorEntry


class Store(Protocol):
    """Where matrices and named objects go; a WeightWriter."""

    def add(self, dtype: str, shape: Sequence[int], raw: Raw) -> str: ...

    def add_parts(self, dtype: str, shape: Sequence[int], nbytes: int, read: Part) -> str: ...

    def add_object(self, kind: str, data: Raw) -> str: ...


@dataclass
class WeightFile:
    """An opened weight file, as it was staged."""

    path: str
    format: str
    bytes: int
    hash: str
    step: int | None
    own: bool
    opened: Checkpoint


@dataclass
class Weights:
    """The weight part of a manifest."""

    tensors: tuple[TensorEntry, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    own: int | None = None
    raw: int = 0

    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Tensor name -> (dtype, shape), as `verify` wants it; no network speaks of optimizers."""
        return {
            tensor.name: (tensor.dtype, tensor.shape)
            for tensor in self.tensors
            if tensor.role != "optimizer"
        }


@dataclass
class _Group:
    step: int | None
    own: bool
    files: list[WeightFile] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    containers: list[tuple[WeightFile, list[str], str | None]] = field(default_factory=list)


def store(
    files: Sequence[WeightFile], target: Store, progress: Callable[[int], None] = lambda _: None
) -> Weights:
    """`put` and `prove` in one."""
    return prove(store_snapshots(files, target, progress), files)


def store_snapshots(
    files: Sequence[WeightFile], target: Store, progress: Callable[[int], None] = lambda _: None
) -> Weights:
    """Store every tensor of the files, one at a time, and say how they make up snapshots."""
    entries: dict[str, TensorEntry] = {}
    groups = _groups(files)
    raw = 0
    paths = {file.path for file in files}
    for group in groups:
        for file in group.files:
            with _named(file):
                raw += _store_file(group, file, target, entries, paths)
            progress(file.bytes)
    names = list(entries)
    position = {name: index for index, name in enumerate(names)}
    snapshots = tuple(
        Snapshot(
            step=group.step,
            hashes=tuple(group.hashes.get(name) for name in names),
            containers=tuple(
                Container(
                    path=file.path,
                    format=file.format,
                    bytes=file.bytes,
                    blake3=None,
                    skeleton=skeleton,
                    tensors=tuple(position[name] for name in held),
                )
                for file, held, skeleton in group.containers
            ),
        )
        for group in groups
    )
    own = next((i for i, group in enumerate(groups) if group.own), len(groups) - 1)
    return Weights(tuple(entries.values()), snapshots, own if groups else None, raw)


@contextmanager
def _named(file: WeightFile) -> Iterator[None]:
    """What is wrong with a file is said of it by its path."""
    try:
        yield
    except (Damaged, UnsafeInput) as error:
        if file.path not in error.message:
            error.message = f"{file.path}: {error.message}"
        raise


def prove(weights: Weights, files: Sequence[WeightFile]) -> Weights:
    """The weights of these files, with the hash of each file that comes back byte for byte.

    It is built again from its parts and compared with what was added: that proves both that
    it did not change while it was stored and that `checkout` will give it back.
    """
    hashes: dict[str, str | None] = {}
    for file in files:
        hashes |= _coming_back(file)
    proven = (
        tuple(replace(c, blake3=hashes[c.path]) for c in snapshot.containers)
        for snapshot in weights.snapshots
    )
    snapshots = zip(weights.snapshots, proven, strict=True)
    return replace(weights, snapshots=tuple(replace(s, containers=c) for s, c in snapshots))


def _groups(files: Sequence[WeightFile]) -> list[_Group]:
    """Files of one step are one snapshot; those without a step are the version's own weights."""
    groups: dict[int | None, _Group] = {}
    for file in sorted(files, key=lambda file: _order(file.path)):
        group = groups.setdefault(file.step, _Group(file.step, own=False))
        group.files.append(file)
        group.own = group.own or file.own
    ordered = sorted(groups.values(), key=lambda g: (g.step is None, g.step or 0))
    if sum(group.own for group in ordered) > 1:
        named = [file.path for group in ordered for file in group.files if file.own]
        raise Conflict(
            "several checkpoints were added as the default one",
            why=", ".join(named[:4]),
            hint="add the others with: dlv add --as checkpoint",
        )
    return ordered


def _order(path: str) -> tuple[str, int, str]:
    shard = shard_of(path)
    return (shard[0], shard[1], path) if shard else (path, 0, path)


def _store_file(
    group: _Group, file: WeightFile, target: Store, entries: dict[str, TensorEntry], paths: set[str]
) -> int:
    opened = file.opened
    hashes = []
    for tensor in opened.tensors:
        if tensor.part is None:
            hashes.append(target.add(tensor.dtype, tensor.shape, tensor.read()))
        else:
            hashes.append(target.add_parts(tensor.dtype, tensor.shape, tensor.nbytes, tensor.part))
    names = _names(group, file, hashes)
    for tensor, name, digest in zip(opened.tensors, names.values(), hashes, strict=True):
        entry = TensorEntry(
            name, tensor.dtype, tensor.shape, tensor.role, tensor.tied and names[tensor.tied]
        )
        known = entries.setdefault(name, entry)
        if (known.dtype, known.shape) != (entry.dtype, entry.shape):
            raise Conflict(
                f"{name} is {entry.dtype} {list(entry.shape)} in {file.path}",
                why=f"in another checkpoint it is {known.dtype} {list(known.shape)}",
                hint="commit them as versions of their own",
            )
        group.hashes[name] = digest
    held = list(names.values())
    beside: dict[str, Companion] = {}
    if opened.apart is not None:
        beside = {_beside(file, each): each for each in opened.apart.companions}
        if beside.keys().isdisjoint(paths):
            paths.update(beside)
            opened.skeleton = opened.apart.skeleton
        else:  # two models share a file: each becomes one that holds all of its own
            opened.apart, beside = None, {}
    own = None
    if opened.skeleton is not None:
        own = target.add_object("skeleton", opened.skeleton)
    group.containers.append((file, held, own))
    for path, each in beside.items():
        skeleton = target.add_object("skeleton", each.skeleton)
        part = replace(file, path=path, bytes=each.nbytes)
        group.containers.append((part, [held[at] for at in each.tensors], skeleton))
    return sum(tensor.nbytes for tensor in opened.tensors if tensor.tied is None)


def _names(group: _Group, file: WeightFile, hashes: Sequence[str]) -> dict[str, str]:
    """Name in the file -> name in the snapshot: prefixed where two files use one name."""
    names = [tensor.name for tensor in file.opened.tensors]
    found = dict(zip(names, hashes, strict=True))
    clashing = [name for name in names if group.hashes.get(name, found[name]) != found[name]]
    if not clashing:
        return {name: name for name in names}
    earlier = next(f for f, held, _ in group.containers if clashing[0] in held)
    if {tensor.name for tensor in earlier.opened.tensors} == set(names):
        step = "step unknown" if group.step is None else f"step {group.step}"
        folder = PurePosixPath(file.path).parent
        apart = folder != PurePosixPath(earlier.path).parent
        raise Conflict(
            f"{earlier.path} and {file.path} have the same tensors with different values ({step})",
            why="they look like two models"
            if apart
            else "checkpoints of one version must have different steps",
            hint=f"commit one folder at a time: dlv add --remove {folder}"
            if apart
            else f"dlv add {file.path} --step N",
        )
    prefix = _prefix(file.path)
    longer = {name: prefix + name for name in names}
    for name in names:
        if group.hashes.get(longer[name], found[name]) != found[name]:
            raise Conflict(
                f"`{longer[name]}` would name two tensors of one checkpoint",
                why=f"{file.path} shares names with other files of its step",
                hint="rename the file, or commit it as another version",
            )
    return longer


def _prefix(path: str) -> str:
    return PurePosixPath(path).name.split(".")[0] + "."


def _beside(file: WeightFile, companion: Companion) -> str:
    """The path of a file beside a model's own, in the repository."""
    return str(PurePosixPath(file.path).parent / companion.path)


def _coming_back(file: WeightFile) -> dict[str, str | None]:
    """Path -> hash of each file that its parts make, if it is that of the file that was added."""
    opened = file.opened
    found: dict[str, str | None] = {file.path: None}
    if opened.skeleton is not None and (opened.exact or opened.apart is not None):
        made = _made_of(file, opened.skeleton, opened.tensors)
        found[file.path] = made if made == file.hash else None
    for each in opened.apart.companions if opened.apart is not None else ():
        there = HashSink()
        for part in each.parts():
            there.write(part)
        made = _made_of(file, each.skeleton, [opened.tensors[at] for at in each.tensors])
        found[_beside(file, each)] = made if made == there.hexdigest() else None
    return found


def _made_of(file: WeightFile, skeleton: bytes, tensors: Sequence[Tensor]) -> str:
    sink = HashSink()
    registry.adapter(file.format).restore(cast(BinaryIO, sink), skeleton, tensors)
    return sink.hexdigest()


def without(manifest: Manifest, paths: Iterable[str]) -> Weights:
    """The weights of a version less the containers at `paths`."""
    gone = set(paths)
    kept: list[tuple[Snapshot, tuple[Container, ...], bool]] = []
    for index, snapshot in enumerate(manifest.snapshots):
        containers = tuple(c for c in snapshot.containers if c.path not in gone)
        if containers or not snapshot.containers:
            kept.append((snapshot, containers, index == manifest.own))
    used = sorted({i for s, containers, _ in kept for i in _held(s, containers)})
    place = {old: new for new, old in enumerate(used)}
    snapshots = tuple(
        Snapshot(
            step=snapshot.step,
            hashes=tuple(snapshot.hashes[old] if old in held else None for old in used),
            containers=tuple(
                Container(
                    c.path,
                    c.format,
                    c.bytes,
                    c.blake3,
                    c.skeleton,
                    tuple(place[i] for i in c.tensors),
                )
                for c in containers
            ),
            sources=None
            if snapshot.sources is None
            else tuple(snapshot.sources[old] if old in held else None for old in used),
        )
        for snapshot, containers, _ in kept
        for held in [_held(snapshot, containers)]
    )
    own = next((i for i, (_, _, is_own) in enumerate(kept) if is_own), len(kept) - 1)
    names = {manifest.tensors[i].name for i in used}
    return Weights(
        tensors=tuple(
            entry if entry.tied in names else replace(entry, tied=None)
            for entry in (manifest.tensors[i] for i in used)
        ),
        snapshots=snapshots,
        own=own if kept else None,
    )


def _held(snapshot: Snapshot, containers: Sequence[Container]) -> set[int]:
    if not snapshot.containers:  # made by dlv itself: tensors without files
        return {i for i, digest in enumerate(snapshot.hashes) if digest is not None}
    return {i for container in containers for i in container.tensors}


def tensors_of(
    manifest: Manifest, snapshot: Snapshot, indices: Iterable[int], read: Callable[[str], Raw]
) -> list[Tensor]:
    """Stored tensors in the form in which adapters write them."""
    found = []
    wanted = list(indices)
    place = {manifest.tensors[index].name: index for index in wanted}
    for index in wanted:
        entry, digest = manifest.tensors[index], snapshot.hashes[index]
        if digest is None:
            continue
        # What is tied in one snapshot may have come apart in another.
        other = None if entry.tied is None else place.get(entry.tied)
        tied = entry.tied if other is not None and snapshot.hashes[other] == digest else None
        item = ITEM_BYTES.get(entry.dtype)
        nbytes = len(read(digest)) if item is None else math.prod(entry.shape) * item
        load = partial(read, digest)
        found.append(Tensor(entry.name, entry.dtype, entry.shape, nbytes, load, entry.role, tied))
    return found


class Source(Protocol):
    """Where matrices and skeletons are read; a MatrixStore."""

    def matrix(self, matrix: str) -> Raw: ...

    def object(self, kind: str, name: str) -> Raw: ...


def rebuild(
    out: BinaryIO, manifest: Manifest, snapshot: Snapshot, container: Container, source: Source
) -> tuple[int, str]:
    """Write the very file that was added, as far as its format allows: (bytes, hash).

    The caller has to throw away what was written if this raises.
    """
    if container.skeleton is None:
        tensors = renamed(manifest, snapshot, container, source)
        return save(out, container.format, tensors, {})
    tensors = tensors_of(manifest, snapshot, container.tensors, source.matrix)
    if len(tensors) != len(container.tensors):
        raise Damaged(f"{container.path} lacks tensors that it names", hint="dlv fsck")
    skeleton = bytes(source.object("skeleton", container.skeleton))
    sink = HashedFile(out)
    registry.adapter(container.format).restore(cast(BinaryIO, sink), skeleton, tensors)
    digest = sink.hexdigest()
    if container.blake3 is not None and digest != container.blake3:
        raise Damaged(
            f"{container.path} does not match the committed file",
            why=f"its hash would be {digest[:12]} instead of {container.blake3[:12]}",
            hint="dlv fsck",
        )
    return sink.tell(), digest


def save(
    out: BinaryIO, format_: str, tensors: Sequence[Tensor], metadata: dict[str, str]
) -> tuple[int, str]:
    """Write a fresh file of these tensors: (bytes, hash)."""
    sink = HashedFile(out)
    registry.adapter(format_).save(cast(BinaryIO, sink), tensors, metadata)
    return sink.tell(), sink.hexdigest()


def renamed(
    manifest: Manifest, snapshot: Snapshot, container: Container, source: Source
) -> list[Tensor]:
    """The tensors of a container under the names that they had in its file."""
    tensors = tensors_of(manifest, snapshot, container.tensors, source.matrix)
    there = names_in_file(manifest, snapshot, container)
    return [
        replace(
            tensor,
            name=there[tensor.name],
            tied=tensor.tied and there.get(tensor.tied, tensor.tied),
        )
        for tensor in tensors
    ]


def names_in_file(manifest: Manifest, snapshot: Snapshot, container: Container) -> dict[str, str]:
    """Name in the snapshot -> name in the file: the reverse of `_names`."""
    names = [manifest.tensors[index].name for index in container.tensors]
    if part := part_prefix(manifest, snapshot, container):
        return {name: name.removeprefix(part) for name in names}
    prefix = _prefix(container.path)
    others = {
        manifest.tensors[index].name: snapshot.hashes[index]
        for other in snapshot.containers
        if other.path != container.path
        for index in other.tensors
    }
    plain = {name: name.removeprefix(prefix) for name in names}
    # A prefix was put there only where another file of the snapshot has other values by the name.
    clash = any(
        others.get(plain[name], snapshot.hashes[index]) != snapshot.hashes[index]
        for name, index in zip(names, container.tensors, strict=True)
    )
    if clash and all(name.startswith(prefix) for name in names):
        return plain
    return {name: name for name in names}


def part_prefix(manifest: Manifest, snapshot: Snapshot, container: Container) -> str:
    """What a model of several parts puts before the names in one of its files; empty for others.

    Known by the files beside it or, without these, by two folders that both have their prefixes.
    """

    def starts(other: Container, prefix: str) -> bool:
        names = (manifest.tensors[index].name for index in other.tensors)
        return bool(other.tensors) and all(name.startswith(prefix) for name in names)

    paths = {entry.path for entry in manifest.files}
    place = place_of(container.path, paths.__contains__)
    if place and place.prefix and starts(container, place.prefix):
        return place.prefix
    folder = PurePosixPath(container.path).parent
    siblings = {
        other.name
        for one in snapshot.containers
        for other in [PurePosixPath(one.path).parent]
        if other.name and other.parent == folder.parent and starts(one, f"{other.name}.")
    }
    return f"{folder.name}." if len(siblings) > 1 and folder.name in siblings else ""


def mixed(weights: Weights, parts: Collection[str] = ()) -> list[str]:
    """Files of one step in several folders are more often two models than parts of one.

    `parts`: paths of files that are known to belong together.
    """
    found = []
    for snapshot in weights.snapshots:
        apart = (c.path for c in snapshot.containers if c.path not in parts)
        folders = sorted({str(PurePosixPath(path).parent) for path in apart})
        if len(folders) > 1:
            step = "the own weights" if snapshot.step is None else f"step {snapshot.step}"
            found.append(
                f"{step} was assembled from {' and '.join(folders[:3])}: if these are two"
                " models, dlv undo, then dlv add and dlv commit one folder at a time"
            )
    return found[:1]


MODEL_ROLES = ("weight", "buffer")


@dataclass(frozen=True)
class Matrix:
    """A named tensor of one snapshot."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str
    tied: str | None
    hash: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int | None:
        """Size in memory; None of a dtype that dlv does not know."""
        known = block_of(self.dtype)[1] > 0
        return tensor_bytes(self.dtype, self.shape) if known else None


def matrices(manifest: Manifest, index: int | None = None) -> list[Matrix]:
    """Those of one snapshot, by default of the version's own weights."""
    index = manifest.own if index is None else index
    if index is None:
        return []
    return [
        Matrix(entry.name, entry.dtype, entry.shape, entry.role, entry.tied, digest)
        for entry, digest in zip(manifest.tensors, manifest.snapshots[index].hashes, strict=True)
        if digest is not None
    ]


def find(
    held: Sequence[Matrix], name: str, label: str, layers: Mapping[str, Sequence[str]]
) -> Matrix:
    """The matrix of that name; `layers` gives the tensors of each layer, for what was meant."""
    for matrix in held:
        if matrix.name == name:
            return matrix
    if name in layers:
        raise NotFound(
            f"`{name}` is a layer of {label}, not a tensor",
            did_you_mean=list(layers[name])[:3],
            hint=f"dlv desc {label}",
        )
    known = [matrix.name for matrix in held]
    many = f"{len(known)} {'tensor' if len(known) == 1 else 'tensors'}"
    raise NotFound(
        f"{label} has no tensor `{name}`",
        why=f"it has {many}" if known else "it has no weights",
        did_you_mean=nearest(name, known) or [n for n in known if n.endswith(f".{name}")][:3],
        hint=f"dlv desc {label}",
    )


def _ends_alike(a: str, b: str) -> bool:
    return a.endswith(f".{b}") or b.endswith(f".{a}")


def pair(
    old: Sequence[Matrix],
    new: Sequence[Matrix],
    slots: Iterable[tuple[str, str]] = (),
    apart: Collection[str] = (),
) -> list[tuple[Matrix | None, Matrix | None]]:
    """Which matrix of one snapshot is which of another; None on one side: only in the other.

    First by `slots`, pairs of names known to mean the same; then by name, but for those
    `apart`; last by content, where just one on each side has it, or just one has this name
    but for a prefix: `embed.weight` and `head.weight`, tied, in `model.` later.
    """
    before = {matrix.name: matrix for matrix in old}
    after = {matrix.name: matrix for matrix in new}
    partner: dict[str, str] = {}
    taken: set[str] = set()

    def join(a: str, b: str) -> None:
        if a in before and b in after and a not in partner and b not in taken:
            partner[a] = b
            taken.add(b)

    for a, b in slots:
        join(a, b)
    for name in before:
        if name not in apart:
            join(name, name)
    places: dict[str, list[str]] = {}
    for matrix in new:
        if matrix.name not in taken:
            places.setdefault(matrix.hash, []).append(matrix.name)
    left = [matrix for matrix in old if matrix.name not in partner]
    for matrix in left:
        alike = places.get(matrix.hash, [])
        equal = [other.name for other in left if other.hash == matrix.hash]
        if len(alike) > 1 or len(equal) > 1:
            alike = [name for name in alike if _ends_alike(matrix.name, name)]
            equal = [name for name in equal if alike and _ends_alike(name, alike[0])]
        if len(alike) == len(equal) == 1:
            join(matrix.name, alike[0])
    found: list[tuple[Matrix | None, Matrix | None]] = [
        (matrix, after[partner[matrix.name]] if matrix.name in partner else None) for matrix in old
    ]
    return [*found, *((None, matrix) for matrix in new if matrix.name not in taken)]
