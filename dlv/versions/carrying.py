"""What a derived network can begin with: the network and weights of a version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import dlv.network.edits.reuse as reuse
import dlv.versions.derive as derive
import dlv.weights.snapshots as snapshots
from dlv.adapters.checkpoint import Tensor
from dlv.dataclass import dataclass
from dlv.errors import NotFound
from dlv.network.edits.reuse import Plan
from dlv.network.graph import Network
from dlv.network.inference import Tensors
from dlv.objects.manifest import FileEntry, Manifest
from dlv.weights.store import MatrixStore, stored_network


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
        return derive.tensors(plan, self.tensors, seed)


def of_version(
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
            hint="dlv add NETWORK and dlv commit give it one; dlv copy alone takes the files",
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


def files(manifest: Manifest) -> tuple[FileEntry, ...]:
    """All but what describes the old network or its training."""
    return tuple(entry for entry in manifest.files if entry.role not in ("network", "log"))
