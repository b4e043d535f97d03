"""`into "name"`: derived networks become versions, with the weights they can begin with.

All of them or none: packs and manifests first, then the rows of all in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import dlv.objects.manifest as manifests
import dlv.repository.environment as environment
import dlv.versions.carrying as carrying
import dlv.versions.version as version
import dlv.weights.snapshots as snapshots
from dlv.adapters.checkpoint import Checkpoint
from dlv.canonical import timestamp
from dlv.dql.outcome import Model, Networks
from dlv.errors import Conflict, NotFound
from dlv.metadata import versions
from dlv.network.edits.reuse import Plan
from dlv.network.graph import Network
from dlv.objects.manifest import FileEntry, Manifest, NetworkReference, Parent
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository
from dlv.versions.carrying import Held
from dlv.versions.commit import NewVersion, publish
from dlv.versions.history import lossy_note
from dlv.weights.snapshots import WeightFile, Weights
from dlv.weights.store import MatrixStore
from dlv.weights.writer import WeightWriter

FORMAT = "safetensors"  # in which a checkout writes weights that came from no file


@dataclass(frozen=True)
class _Source:
    """A version that networks come from, and what of it they keep."""

    label: str
    manifest: Manifest
    held: Held
    tree: str | None
    files: tuple[FileEntry, ...]


def commit(
    repository: Repository,
    networks: Networks,
    text: str,
    *,
    author: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    jobs: int = 1,
) -> Networks:
    """The same networks, each with the label of the version that it became.

    Each is a child of the version its weights come from, and keeps `text`, the query.
    """
    name, models = networks.into, networks.models
    if name is None or not models:
        return networks
    check_name(repository, name)
    who = version.author(repository) if author is None else author
    query = {"query": text, **({"parameters": dict(parameters)} if parameters else {})}
    where = environment.describe(repository.root)
    with repository.writing():
        store = MatrixStore.of(repository)
        try:
            sources, notes = _sources(repository, models, store, name)
            with WeightWriter(store, jobs=jobs) as writer:
                made = []
                for model in models:
                    source = sources[model.source_id]
                    weights, reused = _weights(source.held, model.network, writer, name, seed)
                    writer.add_object("network", model.network.encoded)
                    made.append(
                        replace(
                            _manifest(source, model, weights, networks.verb),
                            name=name,
                            author=who,
                            created=timestamp(),
                            environment=where,
                            derivation={**query, **_derivation(model, reused)},
                        )
                    )
                packs = writer.finish()
        finally:
            store.close()
        for each in made:
            repository.write_manifest(each)
        ready = [NewVersion(one, model.network) for one, model in zip(made, models, strict=True)]
        with repository.change(networks.verb, who) as change:
            labels = [version.label for version in publish(change, packs, ready)]
    committed = [
        replace(model, committed=label) for model, label in zip(models, labels, strict=True)
    ]
    return replace(networks, models=tuple(committed), warnings=(*networks.warnings, *notes))


def check_name(repository: Repository, name: str) -> None:
    manifests.check_name(name)
    if versions.by_tag(repository.database, name) is not None:
        raise Conflict(f"`{name}` is a tag already", hint="choose another name")


def _sources(
    repository: Repository, models: Iterable[Model], store: MatrixStore, name: str
) -> tuple[dict[str, _Source], list[str]]:
    """By the id of the version; and what is to be known of their weights."""
    found: dict[str, _Source] = {}
    notes: list[str] = []
    for id_ in dict.fromkeys(model.source_id for model in models):
        row = versions.by_id(repository.database, id_)
        if row is None:
            raise NotFound(f"the version {id_[:12]} is not there any more", hint="ask again")
        manifest = repository.manifest(id_)
        held = carrying.of_version(manifest, row.label, store)
        lossy = lossy_note(repository.database, row) if held.tensors else None
        notes += [] if lossy is None else [lossy]
        found[id_] = _Source(row.label, manifest, held, *files_of(repository, manifest, name))
    return found, notes


def files_of(
    repository: Repository, manifest: Manifest, name: str
) -> tuple[str | None, tuple[FileEntry, ...]]:
    kept = carrying.files(manifest)
    if len(kept) == len(manifest.files):
        return manifest.tree, manifest.files
    if not kept:
        return None, ()
    with repository.alone("files.lock"):
        tree, entries = FileStore(repository.files_git).store([], kept, name)
    return tree, tuple(entries)


def _weights(
    held: Held, network: Network, writer: WeightWriter, name: str, seed: int
) -> tuple[Weights, dict[str, Any] | None]:
    """The weights, stored, as one snapshot without a file; and where they are from."""
    if not held.tensors:
        return Weights(), None
    plan = held.plan(network)
    opened = Checkpoint(FORMAT, held.carried(plan, seed))
    file = WeightFile(name, FORMAT, 0, "", None, own=True, opened=opened)
    stored = snapshots.store_snapshots([file], writer)
    (snapshot,) = stored.snapshots
    return replace(stored, snapshots=(replace(snapshot, containers=()),)), _reused(plan, seed)


def _manifest(source: _Source, model: Model, weights: Weights, verb: str) -> Manifest:
    """Metrics stay with the source: they were measured of another network."""
    reference = source.manifest.network
    assert reference is not None
    constants = [each for each in reference.constants if each["name"] in model.network.constants]
    return replace(
        source.manifest,
        message=f"{verb} of {' and '.join(model.origins)}",
        parents=(Parent(model.source_id, verb),),
        network=NetworkReference(model.network.id, reference.origin, constants),
        tensors=weights.tensors,
        snapshots=weights.snapshots,
        own=weights.own,
        scheme=None,
        series=(),
        tree=source.tree,
        files=source.files,
        writer=Manifest.writer,
    )


def _derivation(model: Model, reused: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "trial": None,
        "changes": [
            {"action": edit.action, "node": edit.node, "text": edit.text} for edit in model.edits
        ],
        "reuse": reused,
    }


def _reused(plan: Plan, seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "share": round(plan.share, 6),
        "tensors": [
            {"name": item.name, "action": item.action, "reason": item.reason or None}
            for item in (*plan.tensors, *plan.dropped)
        ],
    }
