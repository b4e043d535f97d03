"""`export`: the weights of a version, or its network, as one file."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import dlv.disk.paths as paths
import dlv.disk.user_files as user_files
import dlv.network.verify as verification
import dlv.repository.revisions as revisions
import dlv.weights.reading.retrieval as retrieval
import dlv.weights.snapshots as snapshots
from dlv.adapters import network_json, registry
from dlv.adapters.checkpoint import Beside, Tensor
from dlv.canonical import HashedFile, hash_bytes
from dlv.dataclass import dataclass
from dlv.disk.paths import Folder
from dlv.disk.user_files import Batch
from dlv.dtypes import ITEM_BYTES, tensor_bytes
from dlv.errors import Conflict, NotFound, UsageError, nearest
from dlv.metadata.versions import Version
from dlv.network.graph import Network
from dlv.objects.manifest import Container, Manifest, Snapshot
from dlv.repository.handle import Repository
from dlv.versions.history import lossy_note
from dlv.weights.reading.retrieval import Source
from dlv.weights.store import MatrixStore, stored_network

_BY_SUFFIX = {
    ".safetensors": "safetensors",
    ".npz": "npz",
    ".pt": "pt",
    ".pth": "pt",
    ".ckpt": "pt",
    ".bin": "pt",
    ".gguf": "gguf",
    ".json": "json",
    ".onnx": "onnx",
    ".keras": "keras",
}


@dataclass
class Request:
    """What to write where; no `format` = by the file's ending."""

    reference: str
    out: Path
    format: str | None = None
    layers: Sequence[str] = ()
    matrices: Sequence[str] = ()
    everything: bool = False
    force: bool = False
    jobs: int = 1
    progress: Callable[[int], None] = lambda _: None
    total: Callable[[int], None] = lambda _: None


@dataclass(frozen=True)
class Exported:
    """`original`: the file equals the one that was added, byte for byte."""

    version: Version
    path: str
    format: str
    bytes: int
    hash: str
    tensors: int
    left_out: int  # optimizer tensors, which only `everything` brings
    original: bool
    notes: tuple[str, ...] = ()


def export(repository: Repository, request: Request) -> Exported:
    """Write one file of a version's weights, or its network as plain JSON."""
    format_ = request.format or _format_of(request.out)
    found = revisions.resolve(repository.database, request.reference)
    if found.file is not None:
        raise UsageError(
            f"`{request.reference}` is a file of a version",
            hint=f"dlv checkout {request.reference} --to DIR",
        )
    manifest = repository.manifest(found.version.id)
    store = MatrixStore.of(repository)
    whole = format_ in registry.MODEL_WRITERS
    network = None
    if format_ == "json" or whole or request.layers:
        network = _network(manifest, store)
    if format_ == "json":
        if network is None:
            raise NotFound(f"{found.version.label} has no network", hint="dlv add network.json")
        return _export_network(network, found.version, request, found.notes)
    index = manifest.own if found.snapshot is None else found.snapshot.index
    if index is None:
        raise _no_weights(manifest, found.version, request)
    snapshot = manifest.snapshots[index]
    present = [i for i, digest in enumerate(snapshot.hashes) if digest is not None]
    chosen, left_out = _choose(manifest, present, network, request)
    original = _original(snapshot, format_, chosen)
    if whole and original is None:
        # What runs has no use for an optimizer's state.
        chosen = [i for i in chosen if manifest.tensors[i].role != "optimizer"]
        left_out = 0
        network = _runnable(network, manifest, chosen, request, found.version)
    _free(request)
    request.total(sum(_bytes(manifest, i) for i in chosen))
    needs = [digest for i in _order(manifest, chosen, format_) if (digest := snapshot.hashes[i])]
    source = retrieval.Ahead(store, needs, request.jobs, request.progress)
    notes = list(found.notes)
    lossy = lossy_note(repository.database, found.version)
    notes += [] if lossy is None else [lossy]
    batch = Batch(Folder(request.out.parent))
    with source, batch, contextlib.ExitStack() as stack:
        out = stack.enter_context(batch.new(request.out.name))
        if original is not None:
            size, digest = snapshots.rebuild(out, manifest, snapshot, original, source)
        else:
            tensors = snapshots.tensors_of(manifest, snapshot, chosen, source.matrix)
            metadata = _metadata(manifest, found.version, snapshot)
            if whole and network is not None:
                sink = HashedFile(out)
                constants = _constants(manifest, source)
                model = registry.model_writer(format_)
                notes += model.save_network(
                    *(cast(BinaryIO, sink), network, tensors, constants),
                    metadata=metadata,
                    **_beside(format_, batch, request, stack),
                )
                size, digest = sink.tell(), sink.hexdigest()
            else:
                size, digest = snapshots.save(out, format_, tensors, metadata)
        paths.read_back(out, digest, request.out)
        stack.close()
        batch.put()
    return Exported(
        found.version,
        *(str(request.out), format_, size, digest, len(chosen), left_out),
        original=original is not None,
        notes=tuple(notes),
    )


def _beside(
    format_: str, batch: Batch, request: Request, stack: contextlib.ExitStack
) -> dict[str, Any]:
    """A second file, for the tensors of an ONNX model that is too large for one."""
    name = f"{request.out.name}.data"

    def begin() -> BinaryIO:
        if batch.folder.kind(name) is not None and not request.force:
            raise Conflict(f"{request.out}.data exists", hint="-f to overwrite it")
        out = stack.enter_context(batch.new(name))
        sink = HashedFile(out)

        def check(kind: type[BaseException] | None, *_: object) -> None:
            if kind is None:  # else that is what went wrong
                paths.read_back(out, sink.hexdigest(), request.out.with_name(name))

        stack.push(check)
        return cast(BinaryIO, sink)

    return {"beside": Beside(name, begin)} if format_ == "onnx" else {}


def _no_weights(manifest: Manifest, version: Version, request: Request) -> NotFound:
    message = f"{version.label} has no weights"
    if manifest.network is None:
        return NotFound(message, hint=f"dlv show {version.label}")
    why = "only its network was added"
    if manifest.network.origin.get("importer") == "caffe":
        why = "the prototxt was added without its .caffemodel"
    return NotFound(
        message,
        why=why,
        hint="dlv add the weight file and commit again;"
        f" dlv export {request.reference} net.json writes the network alone",
    )


def _runnable(
    network: Network | None,
    manifest: Manifest,
    chosen: Sequence[int],
    request: Request,
    version: Version,
) -> Network:
    """The network, if a model file of it and the chosen tensors makes sense."""
    if network is None:
        raise NotFound(
            f"{version.label} has no network, and such a file is one with weights",
            hint=f"dlv export {request.reference} weights.safetensors",
        )
    if request.layers or request.matrices:
        raise UsageError(
            "a model file holds all layers", hint="run dlv export without --layer and --tensor"
        )
    tensors = {
        manifest.tensors[i].name: (manifest.tensors[i].dtype, manifest.tensors[i].shape)
        for i in chosen
    }
    for problem in verification.verify(network, tensors):
        if problem.severity == "error":
            raise UsageError(
                f"the network of {version.label} cannot be run, so it cannot be exported",
                why=str(problem),
                hint=f"dlv desc {request.reference} --network",
            )
    return network


def _constants(manifest: Manifest, source: Source) -> list[Tensor]:
    """What the network computes with beside the state dict."""
    found = []
    for each in manifest.network.constants if manifest.network is not None else ():
        dtype, shape, digest = each["dtype"], tuple(each["shape"]), each["hash"]
        nbytes = tensor_bytes(dtype, shape)
        found.append(Tensor(each["name"], dtype, shape, nbytes, partial(source.matrix, digest)))
    return found


def _order(manifest: Manifest, chosen: Sequence[int], format_: str) -> list[int]:
    """In which order a writer will want the tensors, as far as that can be told."""
    if format_ != "safetensors":
        return list(chosen)
    entries = manifest.tensors
    return sorted(chosen, key=lambda i: (-ITEM_BYTES.get(entries[i].dtype, 0), entries[i].name))


def _format_of(out: Path) -> str:
    found = _BY_SUFFIX.get(out.suffix.lower())
    if found is None:
        raise UsageError(
            f"cannot infer a format from `{out.name}`",
            why=f"known extensions: {', '.join(_BY_SUFFIX)}",
            hint="give --file-format, such as --file-format safetensors",
        )
    return found


def _free(request: Request) -> None:
    out = request.out
    if out.is_dir():
        raise Conflict(f"{out} is a folder", hint=f"name a file: {out}/weights.safetensors")
    if out.exists() and not out.is_file():
        raise Conflict(f"{out} is a pipe or a device", hint="name a file")
    if not out.parent.is_dir():
        raise NotFound(f"no such directory: `{out.parent}`", hint=f"mkdir -p {out.parent}")
    if (out.exists() or out.is_symlink()) and not request.force:
        raise Conflict(f"{out} exists", hint="-f to overwrite it")


def _network(manifest: Manifest, store: MatrixStore) -> Network | None:
    if manifest.network is None:
        return None
    found = stored_network(store, manifest.network.id)
    return replace(found, origin=manifest.network.origin)


def _export_network(
    network: Network, version: Version, request: Request, notes: tuple[str, ...]
) -> Exported:
    if request.layers or request.matrices:
        raise UsageError(
            "a network file holds all layers", hint="run dlv export without --layer and --tensor"
        )
    _free(request)
    data = network_json.text(network).encode("utf-8")
    with user_files.replace(Folder(request.out.parent), request.out.name) as out:
        out.write(data)
        digest = hash_bytes(data)
        paths.read_back(out, digest, request.out)
    return Exported(
        version, *(str(request.out), "json", len(data), digest, 0, 0), original=False, notes=notes
    )


def _choose(
    manifest: Manifest, present: Sequence[int], network: Network | None, request: Request
) -> tuple[list[int], int]:
    """Positions of the tensors that were asked for, and how many of an optimizer were not."""
    chosen = list(present)
    names = {index: manifest.tensors[index].name for index in present}
    if request.layers or request.matrices:
        wanted = set()
        for pattern in request.matrices:
            wanted |= _matching(pattern, names, "tensor", request.reference)
        for pattern in request.layers:
            wanted |= _of_layers(pattern, names, network, request.reference)
        return [index for index in chosen if index in wanted], 0
    if not request.everything:
        chosen = [i for i in present if manifest.tensors[i].role != "optimizer"]
    if not chosen:
        raise UsageError(f"{request.reference} has only optimizer state", hint="--all exports it")
    return chosen, len(present) - len(chosen)


def _matching(pattern: str, names: dict[int, str], noun: str, reference: str) -> set[int]:
    found = {index for index, name in names.items() if fnmatch.fnmatchcase(name, pattern)}
    if not found:
        raise NotFound(
            f"no {noun} of {reference} matches `{pattern}`",
            why="* and ? are wildcards",
            did_you_mean=nearest(pattern, dict.fromkeys(names.values())),
            hint=f"dlv desc {reference}",
        )
    return found


def _of_layers(
    pattern: str, names: dict[int, str], network: Network | None, reference: str
) -> set[int]:
    """By the network's nodes where it is known, else by what stands before a name's last dot."""
    owners = {index: name.rpartition(".")[0] or name for index, name in names.items()}
    if network is not None:
        nodes = {tensor: node.name for node in network.nodes for tensor in node.params.values()}
        owners = {index: nodes.get(name, owners[index]) for index, name in names.items()}
    return _matching(pattern, owners, "layer", reference)


def _bytes(manifest: Manifest, index: int) -> int:
    entry = manifest.tensors[index]
    return tensor_bytes(entry.dtype, entry.shape)


def _original(snapshot: Snapshot, format_: str, chosen: Sequence[int]) -> Container | None:
    """The added file that is just this: of the format, with these tensors, kept byte for byte."""
    for container in snapshot.containers:
        whole = set(container.tensors) == set(chosen) and container.blake3 is not None
        if whole and container.format == format_:
            return container
    return None


def _metadata(manifest: Manifest, version: Version, snapshot: Snapshot) -> dict[str, str]:
    found = {"dlv": version.id}
    if snapshot.step is not None:
        found["step"] = str(snapshot.step)
    if manifest.framework in ("pt", "torch"):
        found["format"] = "pt"  # libraries of torch's world load no safetensors without it
    return found
