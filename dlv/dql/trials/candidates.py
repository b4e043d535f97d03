"""The networks that `evaluate` trains, and the weights that each of them can begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial

import dlv.network.edits.reuse as reuse
import dlv.versions.carrying as carrying
from dlv.adapters.checkpoint import Tensor
from dlv.dataclass import dataclass
from dlv.dql.deriving import Origin
from dlv.dql.outcome import Model
from dlv.dtypes import ITEM_BYTES
from dlv.errors import UsageError
from dlv.metadata.versions import Version
from dlv.network.edits.reuse import Plan
from dlv.network.edits.wiring import Edit
from dlv.network.graph import Network
from dlv.network.verify import verify
from dlv.objects.manifest import Manifest
from dlv.repository.handle import Repository
from dlv.training.config import Config
from dlv.training.trial_files import Weights, start_hash
from dlv.versions.carrying import Held
from dlv.weights.store import MatrixStore

SCRATCH = "scratch"
MOST_TOLD = 60  # characters of what was done to a network


@dataclass(frozen=True)
class Candidate:
    """A network, the version that its weights come from, and what becomes of them in it.

    `origins`: labels of the versions that it was made of; `plan`: None where nothing was changed.
    """

    network: Network
    origins: tuple[str, ...]
    source: Version
    manifest: Manifest
    held: Held
    edits: tuple[Edit, ...] = ()
    plan: Plan | None = None
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    _hashes: dict[tuple[bool, int], str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def label(self) -> str:
        """For people: whose network it is, and what was done to it."""
        told = "; ".join(edit.text or f"{edit.action} {edit.node}" for edit in self.edits)
        told = told if len(told) <= MOST_TOLD else f"{told[: MOST_TOLD - 3]}..."
        return " and ".join(self.origins) + (f": {told}" if told else "")

    def start(self, config: Config) -> list[Tensor]:
        """The tensors that a trial begins with; each is made when it is read."""
        plan = self.plan_of(config)
        if plan is None:
            return list(self.held.tensors)
        return self.held.carried(plan, config.seed)

    def plan_of(self, config: Config) -> Plan | None:
        """How they are made; None: they are those of the version."""
        if config["init"] == SCRATCH:
            return self._fresh
        if not self.held.tensors:
            return self._fresh
        return self.plan

    def start_hash(self, config: Config) -> str:
        plan = self.plan_of(config)
        made = plan is not None and plan.share < 1
        key = (config["init"] == SCRATCH, config.seed if made else 0)
        if key not in self._hashes:
            weights: Mapping[str, Weights] = {each.name: each for each in self.start(config)}
            self._hashes[key] = start_hash(weights)
        return self._hashes[key]

    @property
    def _fresh(self) -> Plan:
        """All tensors new: of the shapes that the network says, of the dtypes that it had."""
        shapes = self.held.shapes
        dtypes = {name: dtype for name, (dtype, _) in shapes.items()}
        return reuse.plan(self.network, self.network, {}, tied=self.held.tied, dtypes=dtypes)


def of_version(repository: Repository, store: MatrixStore, version: Version) -> Candidate | None:
    """None if the version has no network."""
    manifest = repository.manifest(version.id)
    if manifest.network is None:
        return None
    held = carrying.of_version(manifest, version.label, store)
    problems = verify(held.network, held.shapes or None)
    faults = [problem for problem in problems if problem.severity == "error"]
    if faults:
        raise UsageError(
            f"the network of {version.label} cannot be trained: {faults[0]}",
            why="; ".join(map(str, faults[1:3])) or None,
            hint=f"dlv desc {version.label} --layers",
        )
    return Candidate(
        *(held.network, (version.label,), version, manifest, held),
        constants=_constants(manifest, store, held.network),
    )


def of_model(
    repository: Repository, store: MatrixStore, model: Model, origin: Origin, version: Version
) -> Candidate:
    """A derived network; `origin`: the version that it was derived from in the end."""
    manifest = repository.manifest(version.id)
    held = carrying.of_version(manifest, version.label, store)
    plan = model.reuse
    if plan is None and held.tensors:
        plan = origin.plan(model.network)
    return Candidate(
        *(model.network, model.origins, version, manifest, held),
        edits=model.edits,
        plan=plan,
        constants=_constants(manifest, store, model.network),
    )


def _constants(manifest: Manifest, store: MatrixStore, network: Network) -> dict[str, Tensor]:
    assert manifest.network is not None
    found = {}
    for told in manifest.network.constants:
        name, shape = str(told["name"]), tuple(told["shape"])
        if name in network.constants:
            size = ITEM_BYTES.get(str(told["dtype"]), 1)
            for axis in shape:
                size *= axis
            read = partial(store.matrix, str(told["hash"]))
            found[name] = Tensor(name, str(told["dtype"]), shape, size, read)
    return found


def merged(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Equal networks with equal weights once, all origins told."""
    found: dict[tuple[str, str], Candidate] = {}
    for each in candidates:
        found.setdefault((each.network.id, each.source.id), each)
    return list(found.values())
