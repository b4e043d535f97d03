"""The networks that slice and construct begin with, and the weights that lie under them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import dlv.network.edits.reuse as reuse
import dlv.versions.carrying as carrying
from dlv.metadata.versions import Version
from dlv.network.edits.reuse import DROPPED, Plan, Side
from dlv.network.graph import Network
from dlv.network.inference import Tensors
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore


@dataclass(frozen=True)
class Origin:
    """A network and whose it is. `tensors`: what that version holds, by name.

    Of a network that was itself derived, `base` is what the stored version has, `made_of` what
    the last step had, and `tensors` are those that it would begin with.
    """

    label: str
    version: str
    network: Network
    tensors: Tensors
    tied: Mapping[str, str] = field(default_factory=dict)
    base: Origin | None = None
    made_of: Origin | None = None

    @property
    def stored(self) -> Origin:
        return self.base or self

    def plan(self, derived: Network) -> Plan | None:
        """What a network made of this one begins with, however often it was derived."""
        held = self.stored
        if not held.tensors:
            return None
        return reuse.plan(
            *(held.network, derived, held.tensors),
            tied=held.tied,
            before=held._side,
            within=self._side,
        )

    @cached_property
    def _side(self) -> Side:
        within = None if self.made_of is None else self.made_of._side
        return Side(self.network, self.tensors, within)

    def onward(self, label: str, network: Network, plan: Plan | None) -> Origin:
        """A network derived from this one, as that from which another one is to be derived."""
        known = beginning(plan)
        return Origin(label, self.version, network, known, base=self.stored, made_of=self)


def beginning(plan: Plan | None) -> Tensors:
    """The tensors of a plan."""
    items = () if plan is None else plan.tensors
    return {
        item.name: (item.dtype, item.shape)
        for item in items
        if item.shape is not None and item.action != DROPPED
    }


def of_version(repository: Repository, store: MatrixStore, version: Version) -> Origin | None:
    """None if the version has no network."""
    manifest = repository.manifest(version.id)
    if manifest.network is None:
        return None
    held = carrying.of_version(manifest, version.label, store)
    return Origin(version.label, version.id, held.network, held.shapes, held.tied)
