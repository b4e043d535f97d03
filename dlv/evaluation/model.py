"""What is evaluated: the network of a version with the matrices of one snapshot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike

import dlv.repository.revisions as revisions
import dlv.weights.snapshots as snapshots
from dlv.dataclass import dataclass
from dlv.dtypes import tensor_bytes
from dlv.errors import NotFound, UsageError, nearest
from dlv.kinds import Array
from dlv.metadata.versions import Version
from dlv.network.graph import Network
from dlv.network.program import Program, program
from dlv.objects.manifest import Manifest, Snapshot
from dlv.repository.handle import Repository
from dlv.weights.arrays import to_array
from dlv.weights.store import MatrixStore, stored_network


@dataclass(frozen=True)
class Model:
    """`hashes`, `shapes`: of every tensor and constant that the program needs, by stored name."""

    repository: Repository
    version: Version
    manifest: Manifest
    snapshot: Snapshot
    network: Network
    program: Program
    store: MatrixStore
    hashes: Mapping[str, str]
    shapes: Mapping[str, tuple[str, tuple[int, ...]]]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, repository: Repository, reference: str, *, until: Sequence[str] = ()) -> Model:
        """The model that a reference names; `until`: nodes whose values are wanted, too."""
        found = revisions.resolve(repository.database, reference)
        if found.file is not None:
            raise UsageError(
                f"`{reference}` is a file", why="a version or checkpoint is required here"
            )
        version, manifest = found.version, repository.manifest(found.version.id)
        index = manifest.own if found.snapshot is None else found.snapshot.index
        if manifest.network is None:
            raise NotFound(
                f"{version.label} has no network",
                why="a network is required to run the model",
                hint="dlv add --factory FILE.py:FACTORY, or a network.json, and commit",
            )
        if index is None:
            raise NotFound(
                f"{version.label} has no weights",
                why="weights are required to run the model",
                hint=f"dlv desc {version.label}",
            )
        store = MatrixStore.of(repository)
        network = stored_network(store, manifest.network.id)
        held = {matrix.name: matrix for matrix in snapshots.matrices(manifest, index)}
        tensors = {name: (each.dtype, each.shape) for name, each in held.items()}
        _check_nodes(network, until, version.label)
        steps = program(network, tensors, until=[_name(network, each) for each in until])
        hashes, shapes = {}, {}
        constants = {each["name"]: each for each in manifest.network.constants}
        for name in steps.tensors:
            if name in constants:
                row = constants[name]
                hashes[name] = str(row["hash"])
                shapes[name] = (str(row["dtype"]), tuple(row["shape"]))
                continue
            if name not in held:
                raise NotFound(
                    f"{version.label} lacks the tensor `{name}`, which its network needs",
                    did_you_mean=nearest(name, held),
                    hint=f"dlv desc {version.label}",
                )
            hashes[name], shapes[name] = held[name].hash, tensors[name]
        return cls(
            repository=repository,
            version=version,
            manifest=manifest,
            snapshot=manifest.snapshots[index],
            network=network,
            program=steps,
            store=store,
            hashes=hashes,
            shapes=shapes,
            notes=found.notes,
        )

    @property
    def label(self) -> str:
        """`lenet@2`, or `lenet@2/100` where that is not the version's own snapshot."""
        own = self.manifest.own
        if own is not None and self.snapshot is self.manifest.snapshots[own]:
            return self.version.label
        return f"{self.version.label}/{self.snapshot.step}"

    @property
    def id(self) -> str:
        return self.version.id

    @property
    def step(self) -> int | None:
        return self.snapshot.step

    @property
    def aliases(self) -> Mapping[str, str]:
        """Tied names of the network, and the names under which they are kept."""
        return self.network.aliases

    def tensor(self, name: str, dtype: DTypeLike = np.float64) -> Array:
        """The numbers of a tensor or constant, exactly; whole numbers keep their dtype."""
        kept = self.aliases.get(name, name)
        kind, shape = self.shapes[kept]
        found = to_array(kind, shape, self.store.matrix(self.hashes[kept]))
        return found.astype(dtype, copy=False) if found.dtype.kind == "f" else found

    @cached_property
    def raw_whole(self) -> int:
        """Bytes of the tensors as they were added, equal ones once."""
        each = {self.hashes[name]: self.shapes[name] for name in self.hashes}
        return sum(tensor_bytes(dtype, shape) for dtype, shape in each.values())

    @cached_property
    def bytes_whole(self) -> int:
        """Stored bytes that have to be read for all of them, with their bases: each chunk once."""
        chunks = {
            (piece.pack, piece.offset): piece.length
            for matrix in dict.fromkeys(self.hashes.values())
            for piece in self.store.pieces_behind(matrix)
        }
        return sum(chunks.values())

    @cached_property
    def elements(self) -> int:
        return sum(math.prod(shape) for _, shape in self.shapes.values())


def _check_nodes(network: Network, wanted: Sequence[str], label: str) -> None:
    known = {node.name for node in network.nodes}
    known |= set(network.node_aliases().values())
    for name in wanted:
        if name not in known:
            raise NotFound(
                f"{label} has no layer `{name}`",
                did_you_mean=nearest(name, known),
                hint=f"dlv desc {label} --layers",
            )


def _name(network: Network, word: str) -> str:
    """The node's own name, for its name or its alias."""
    if word in network:
        return word
    return next(name for name, alias in network.node_aliases().items() if alias == word)
