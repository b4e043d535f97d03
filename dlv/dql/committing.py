"""`into "name"`: derived networks and trials that were kept become versions.

All of them or none: packs and manifests first, then the rows of all in one transaction. A trial
that is a version of that name already, at the same step, is left as it is, so that a query may be
asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dlv.events.formats.series as series_format
import dlv.objects.manifest as manifest_format
import dlv.repository.environment as environment
import dlv.training.checkpoints as checkpoints
import dlv.versions.copying as copying
import dlv.versions.version as version
import dlv.weights.snapshots as snapshots
from dlv.adapters import settings as settings_files
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.canonical import timestamp
from dlv.dataclass import dataclass
from dlv.dql.outcome import Model, Networks, Trial
from dlv.dql.trials.preparing import Candidate
from dlv.errors import Conflict, Damaged, NotFound
from dlv.events.formats.series import Scalars
from dlv.metadata import versions
from dlv.metadata.metrics import Summary
from dlv.network.edits.reuse import Plan
from dlv.network.edits.wiring import own_edits
from dlv.network.graph import Network
from dlv.objects.manifest import FileEntry, Manifest, NetworkReference, Parent, SeriesReference
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository
from dlv.training.ledger.ledger import Ledger
from dlv.training.trial_files import TrialFiles
from dlv.versions.commit import NewVersion, publish
from dlv.versions.copying import Held
from dlv.versions.history import lossy_note
from dlv.weights.snapshots import WeightFile, Weights, store_snapshots
from dlv.weights.store import MatrixStore, summary_of
from dlv.weights.writer import PackRecord, WeightWriter

FORMAT = "safetensors"  # in which a checkout writes weights that came from no file
MOST_EDITS = 8  # in a message; the version's derivation has all


# Derived networks, with the weights that they can begin with


@dataclass(frozen=True)
class _Source:
    """A version that networks come from, and what of it they keep."""

    label: str
    manifest: Manifest
    held: Held
    tree: str | None
    files: tuple[FileEntry, ...]


def commit_networks(
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
                    weights, reused = _store_weights(source.held, model.network, writer, name, seed)
                    writer.add_object("network", model.network.encoded)
                    made.append(
                        replace(
                            _derived_manifest(source, model, weights, networks.verb),
                            name=name,
                            author=who,
                            created=timestamp(),
                            environment=where,
                            derivation={**query, **_derivation_record(model, reused)},
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
    manifest_format.check_name(name)
    if versions.by_tag(repository.database, name) is not None:
        raise Conflict(f"`{name}` is already a tag", hint="choose another name")


def _sources(
    repository: Repository, models: Iterable[Model], store: MatrixStore, name: str
) -> tuple[dict[str, _Source], list[str]]:
    """By the id of the version; and what is to be known of their weights."""
    found: dict[str, _Source] = {}
    notes: list[str] = []
    for id_ in dict.fromkeys(model.source_id for model in models):
        row = versions.by_id(repository.database, id_)
        if row is None:
            raise NotFound(f"version {id_[:12]} no longer exists", hint="ask again")
        manifest = repository.manifest(id_)
        held = copying.held_by(manifest, row.label, store)
        lossy = lossy_note(repository.database, row) if held.tensors else None
        notes += [] if lossy is None else [lossy]
        found[id_] = _Source(row.label, manifest, held, *files_of(repository, manifest, name))
    return found, notes


def files_of(
    repository: Repository, manifest: Manifest, name: str
) -> tuple[str | None, tuple[FileEntry, ...]]:
    kept = copying.copied_files(manifest)
    if len(kept) == len(manifest.files):
        return manifest.tree, manifest.files
    if not kept:
        return None, ()
    with repository.alone("files.lock"):
        tree, entries = FileStore(repository.files_git).store([], kept, name)
    return tree, tuple(entries)


def _store_weights(
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


def _derived_manifest(source: _Source, model: Model, weights: Weights, verb: str) -> Manifest:
    """Metrics stay with the source: they were measured of another network."""
    reference = source.manifest.network
    assert reference is not None
    constants = [each for each in reference.constants if each["name"] in model.network.constants]
    return replace(
        source.manifest,
        message=_message(verb, model),
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


def _message(verb: str, result: Model | Trial, settings: Mapping[str, Any] = {}) -> str:
    """What a version is of, in a line: the edits of its network, and the settings of its trial."""
    edits = [edit.statement for edit in own_edits(result.edits)]
    if len(edits) > MOST_EDITS:
        edits[MOST_EDITS:] = [f"and {len(edits) - MOST_EDITS} more edits"]
    parts = [*edits, *(f"{key} = {value}" for key, value in settings.items())]
    origins = " and ".join(result.origins)
    return f"{verb} of {origins}: {', '.join(parts)}" if parts else f"{verb} of {origins}"


def _derivation_record(model: Model, reused: dict[str, Any] | None) -> dict[str, Any]:
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


# Trials of `evaluate`

VERB = "evaluate"


@dataclass(frozen=True)
class _Made:
    trial: Trial
    manifest: Manifest
    summaries: Sequence[Summary]


class LostCheckpoint(Damaged):
    """What a trial had come to cannot be read; up to `step` it can."""

    def __init__(self, trial: str, reached: int, step: int) -> None:
        super().__init__(
            f"the trial {trial[:7]} has no checkpoint at step {reached}",
            why="it is corrupt or missing, and training again does not restore it",
            hint="dlv query --fresh with the same query begins again",
        )
        self.trial, self.step = trial, step


def commit_trials(
    repository: Repository,
    ledger: Ledger,
    run: str,
    name: str,
    trials: Sequence[Trial],
    candidates: Mapping[str, Candidate],
    query: Mapping[str, Any],
    *,
    settings: Mapping[str, Any],
    author: str | None = None,
    jobs: int = 1,
    every: bool = False,
    warn: Callable[[str], None] = lambda _: None,
) -> list[Trial]:
    """The same trials, those that were kept with the label of the version that each became.

    `candidates`: what each was made of, by its id; `query`: its text and parameters, as they are
    kept with each version; `settings`: those that all trials share, for the messages; `every`: all
    checkpoints that are there become snapshots.
    """
    check_name(repository, name)
    there = committed_trials(repository, name)
    kept = [trial for trial in trials if trial.kept]
    new = [trial for trial in kept if trial_key(trial) not in there]
    labels: dict[str, str] = {}
    if new:
        who = version.author(repository) if author is None else author
        pairs = [(trial, candidates[trial.id]) for trial in new]
        labels, few = _write(
            repository, ledger, run, name, pairs, query, settings, who, jobs, every
        )
        for trial, said in few.items():
            warn(f"{labels[trial]} has {said}; the others are missing")
    return [
        replace(
            trial,
            committed=labels.get(trial.id) or there[trial_key(trial)],
            before=trial.id not in labels,
        )
        if trial.kept
        else trial
        for trial in trials
    ]


def trial_key(trial: Trial) -> tuple[str, int]:
    """What a version is of: a trial may be trained on for another run, and be another one then."""
    return trial.id, 0 if trial.view is None else trial.view.step


def committed_trials(repository: Repository, name: str) -> dict[tuple[str, int], str]:
    """The trials that are versions of that name, with their steps, and the labels of these."""
    found: dict[tuple[str, int], str] = {}
    for row in versions.of_name(repository.database, name):
        told = repository.manifest(row.id).derivation or {}
        if told.get("trial") is not None:
            found.setdefault((str(told["trial"]), int(told.get("step") or 0)), row.label)
    return found


def _write(
    repository: Repository,
    ledger: Ledger,
    run: str,
    name: str,
    trials: Sequence[tuple[Trial, Candidate]],
    query: Mapping[str, Any],
    settings: Mapping[str, Any],
    author: str,
    jobs: int,
    every: bool,
) -> tuple[dict[str, str], dict[str, str]]:
    """Labels, and how many snapshots there are of those that have fewer than there were logs."""
    few: dict[str, str] = {}
    where = environment.describe(repository.root)
    with repository.writing():
        store = MatrixStore.of(repository)
        try:
            with WeightWriter(store, jobs=jobs) as writer:
                made = []
                for trial, candidate in trials:
                    files = files_of(repository, candidate.manifest, name)
                    weights, step = _weights(repository, trial, writer, name, every)
                    series = _series(ledger, trial, step, writer)
                    logs = {at for points in ledger.curves(trial.id).values() for at, _ in points}
                    wanted, count = sum(at <= step for at in logs), len(weights.snapshots)
                    if every and count < wanted:
                        few[trial.id] = f"{count} of {wanted} checkpoints"
                    writer.add_object("network", trial.network.encoded)
                    manifest = replace(
                        _manifest(trial, candidate, weights, settings),
                        name=name,
                        author=author,
                        created=timestamp(),
                        environment=where,
                        tree=files[0],
                        files=files[1],
                        series=tuple(reference for reference, _ in series),
                        derivation={
                            **query,
                            "run": run,
                            "step": step,
                            **_derivation(repository, trial, candidate),
                        },
                    )
                    summaries = [summary for _, summary in series]
                    made.append(_Made(trial, manifest, summaries))
                packs = writer.finish()
        finally:
            store.close()
        for each in made:
            repository.write_manifest(each.manifest)
        return _insert(repository, made, packs, author), few


def _weights(
    repository: Repository, trial: Trial, writer: WeightWriter, name: str, every: bool
) -> tuple[Weights, int]:
    """Those of the newest checkpoint up to the steps of the run, and its step; with `every` those
    of the earlier ones as snapshots before it."""
    files = TrialFiles(repository.trials_folder / trial.id)
    found = checkpoints.newest(files.checkpoints, trial.steps)
    reached = 0 if trial.view is None else trial.view.step
    if found is None or found.step < reached:
        beyond = checkpoints.newest(files.checkpoints)
        if beyond is None or beyond.step <= trial.steps:
            raise LostCheckpoint(trial.id, reached, 0 if found is None else found.step)
        raise Damaged(
            f"the trial {trial.id[:7]} has no checkpoint at step {reached}",
            why=f"another run has trained it on to {beyond.step}",
            hint=f"config.steps = {beyond.step} takes it as it is now",
        )
    own = _stored(files, found, writer, name)
    if not own.snapshots or not every:
        return own, found.step
    before = [
        stored.snapshots[0]
        for each in checkpoints.steps(files.checkpoints, found.step - 1)
        if (stored := _stored(files, each, writer, name)).tensors == own.tensors
    ]
    return replace(own, snapshots=(*before, *own.snapshots), own=len(before)), found.step


def _stored(
    files: TrialFiles, checkpoint: checkpoints.Checkpoint, writer: WeightWriter, name: str
) -> Weights:
    """The weights of one checkpoint as one snapshot; none where it holds none."""
    held = files.weights(checkpoint)
    if not held:
        return Weights()
    tensors = [
        Tensor(each, one.dtype, one.shape, len(one.raw), one.read, one.role, one.tied)
        for each, one in held.items()
    ]
    opened = Checkpoint(FORMAT, tensors)
    file = WeightFile(name, FORMAT, 0, "", checkpoint.step, own=True, opened=opened)
    stored = store_snapshots([file], writer)
    (snapshot,) = stored.snapshots
    return replace(stored, snapshots=(replace(snapshot, containers=()),))


def _series(
    ledger: Ledger, trial: Trial, step: int, writer: WeightWriter
) -> list[tuple[SeriesReference, Summary]]:
    """What was logged up to the step of the weights."""
    found = []
    for tag, points in sorted(ledger.curves(trial.id).items()):
        points = [point for point in points if point[0] <= step]
        if not points:
            continue
        steps, values = [at for at, _ in points], [value for _, value in points]
        scalars = Scalars("", tag, steps, [0.0] * len(points), values)
        digest = series_format.encode_scalars(scalars, writer.add_object)
        summary = summary_of(scalars, digest)
        found.append((SeriesReference("", tag, digest), summary))
    return found


def _manifest(
    trial: Trial, candidate: Candidate, weights: Weights, settings: Mapping[str, Any]
) -> Manifest:
    """Hyperparameters are the configuration that it was trained with, all of it."""
    source = candidate.manifest
    assert source.network is not None
    network = trial.network
    constants = [each for each in source.network.constants if each["name"] in network.constants]
    return replace(
        source,
        message=_message(VERB, trial, {**settings, **trial.varied}),
        parents=(Parent(candidate.source.id, VERB),),
        network=NetworkReference(network.id, source.network.origin, constants),
        tensors=weights.tensors,
        snapshots=weights.snapshots,
        own=weights.own,
        scheme=None,
        hyperparameters=settings_files.flatten(dict(trial.config)),
        writer=Manifest.writer,
    )


def _derivation(repository: Repository, trial: Trial, candidate: Candidate) -> dict[str, Any]:
    """How it came about, and all that is needed for it to come about again."""
    record = TrialFiles(repository.trials_folder / trial.id).load().record
    view = trial.view
    return {
        "trial": trial.id,
        "rank": trial.rank,
        "varied": dict(trial.varied),
        "config": dict(trial.config),
        "fingerprints": dict(record.get("fingerprints", {})),
        "trainer": record.get("trainer"),
        "environment": record.get("environment"),
        "reproducible": None if view is None else view.unlike is None,
        "changes": [
            {"action": edit.action, "node": edit.node, "text": edit.text} for edit in trial.edits
        ],
        "reuse": None
        if candidate.plan is None
        else {
            "init": trial.config.get("init"),
            "seed": trial.config.get("seed"),
            "share": round(candidate.plan.share, 6),
        },
    }


def _insert(
    repository: Repository, made: Sequence[_Made], packs: Sequence[PackRecord], author: str
) -> dict[str, str]:
    """The label of the version of each trial, in one change; the first process makes it."""
    with repository.change(VERB, author) as change:
        # Another process may have done the same meanwhile.
        there = committed_trials(repository, made[0].manifest.name)
        new = [winner for winner in made if trial_key(winner.trial) not in there]
        published = publish(
            change,
            packs,
            [NewVersion(one.manifest, one.trial.network, one.summaries) for one in new],
        )
        if not new:
            change.cancel()
    there |= {trial_key(one.trial): row.label for one, row in zip(new, published, strict=True)}
    return {winner.trial.id: there[trial_key(winner.trial)] for winner in made}
