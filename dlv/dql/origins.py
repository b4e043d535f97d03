"""The networks that slice and construct begin with, and the weights that lie under them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import dlv.catalogue as catalogue
import dlv.inventory as inventory
from dlv.metadata.versions import Version
from dlv.network.graph import Network
from dlv.network.inference import Tensors
from dlv.repository import Repository
from dlv.weights import MatrixStore


@dataclass(frozen=True)
class Origin:
    """A network and whose it is. `tensors`: what that version holds, by name."""

    label: str
    version: str
    network: Network
    tensors: Tensors


def of_version(repository: Repository, store: MatrixStore, version: Version) -> Origin | None:
    """None if the version has no network."""
    manifest = repository.manifest(version.id)
    if manifest.network is None:
        return None
    network = catalogue.network(store, manifest.network.id)
    model = [entry for entry in manifest.tensors if entry.role in inventory.MODEL_ROLES]
    used = network.tensor_names()
    # What the weights' file alone knows to be one matrix is resized as one.
    ties = {e.name: e.tied for e in model if e.tied is not None and {e.name, e.tied} <= used}
    shapes = {entry.name: (entry.dtype, tuple(entry.shape)) for entry in model}
    aliases = {**ties, **network.aliases}
    return Origin(version.label, version.id, replace(network, aliases=aliases), shapes)
