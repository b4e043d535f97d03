"""Rows of weight matrices in the files that TensorBoard's projector reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import dlv.weights.arrays as arrays
from dlv.events.formats.pbtxt import quoted
from dlv.network.graph import Network
from dlv.network.ops.op import op_of
from dlv.objects.manifest import Manifest
from dlv.weights.store import MatrixStore, stored_network

ROWS = 2000  # of a matrix, at equal distances
VALUES = 2_000_000  # of all matrices of a board: they are written as text
LARGEST = 50_000_000  # values of a matrix that is read at all


@dataclass
class Room:
    """How many values may still be written."""

    left: int = VALUES


@dataclass(frozen=True)
class _Matrix:
    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str


def write_projection(folder: Path, manifest: Manifest, store: MatrixStore, room: Room) -> int:
    """Matrices of a version as `projector_config.pbtxt` and what it names; how many there are."""
    reference = manifest.network
    if reference is None or manifest.own is None:
        return 0
    network = stored_network(store, reference.id)
    config = ""
    written = 0
    for matrix in _matrices(manifest, network):
        rows = min(matrix.shape[0], ROWS)
        if rows * matrix.shape[1] > room.left:
            continue
        places = np.unique(np.linspace(0, matrix.shape[0] - 1, rows).astype(np.int64))
        values = arrays.to_array(matrix.dtype, matrix.shape, store.matrix(matrix.digest))[places]
        values = values.astype(np.float32)
        if not np.isfinite(values).all():
            continue
        room.left -= values.size
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{written:03}"
        np.savetxt(folder / f"{stem}.tsv", values, fmt="%.6g", delimiter="\t")
        names = "".join(f"{matrix.name}[{place}]\n" for place in places)
        (folder / f"{stem}-rows.tsv").write_text(names, encoding="utf-8")
        config += (
            f"embeddings {{\n  tensor_name: {quoted(matrix.name.encode('utf-8', 'replace'))}\n"
            f"  tensor_shape: {len(places)}\n  tensor_shape: {matrix.shape[1]}\n"
            f'  tensor_path: "{stem}.tsv"\n  metadata_path: "{stem}-rows.tsv"\n}}\n'
        )
        written += 1
    if written:
        # Last and at once: the projector may look at any time.
        half = folder / "config"
        half.write_text(config, encoding="ascii")
        half.rename(folder / "projector_config.pbtxt")
    return written


def _matrices(manifest: Manifest, network: Network) -> Iterator[_Matrix]:
    """Two-dimensional weights of the version's own snapshot, embeddings first."""
    snapshot = manifest.snapshots[manifest.own or 0]
    held = {
        tensor.name: _Matrix(" ".join(tensor.name.split()), tensor.dtype, tensor.shape, digest)
        for tensor, digest in zip(manifest.tensors, snapshot.hashes, strict=True)
        if digest is not None
    }
    # A row of their weights stands for a thing, or for a neuron.
    tables = [node for node in network.nodes if op_of(node).lookup]
    for node in (*tables, *(node for node in network.nodes if op_of(node).dense)):
        found = held.get(node.params.get("weight", ""))
        if found is None or len(found.shape) != 2:
            continue
        rows, columns = found.shape
        if rows > 2 and columns > 1 and rows * columns <= LARGEST:
            yield found
