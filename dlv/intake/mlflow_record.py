"""What a version says of the MLflow run that it was imported from."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dlv.adapters.mlflow import LoggedModel, Run, Store, locate, typed, version_name
from dlv.canonical import is_hash, timestamp
from dlv.errors import DlvError, NotFound
from dlv.metadata import versions
from dlv.metadata.versions import Version
from dlv.repository.handle import Repository, read_object
from dlv.versions.artifacts import Place

KEY = "mlflow"  # in the environment of a manifest
MOST_TAG = 8192
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?\Z")
_IN_NAME = re.compile(r"[\n\r<>\0]+")
# What becomes the message, and what says of models what the models themselves say.
_UNKEPT_TAGS = ("mlflow.log-model.history", "mlflow.note.content", "mlflow.runName")


def known(repository: Repository) -> dict[str, tuple[Version, dict[str, Any]]]:
    """Run -> (version that it became, what that says of it); a living version counts first."""
    found: dict[str, tuple[Version, dict[str, Any]]] = {}
    for states in (("removed",), ("live", "recovered")):
        for version in versions.all_versions(repository.database, states):
            # Most versions are no imports, and to decode a manifest takes far longer.
            if b'"mlflow":{' not in read_object(repository.manifests, version.id, "manifest"):
                continue
            said = repository.manifest(version.id).environment.get(KEY)
            if isinstance(said, dict) and isinstance(said.get("run"), str):
                found[said["run"]] = (version, said)
    return found


def name(run: Run) -> str:
    """The registered model's name if there is one, else the experiment's."""
    registered = {version.name for version in run.registered}
    given = registered.pop() if len(registered) == 1 else run.experiment.name
    made = version_name(given) or "mlflow"
    return f"{KEY}-{made}"[:60] if is_hash(made) else made


def message(run: Run) -> str:
    note = run.tags.get("mlflow.note.content", "").strip()
    return "\n\n".join(filter(None, (run.name.strip(), note))) or f"run {run.id}"


def author(run: Run, otherwise: str) -> str:
    who = _IN_NAME.sub(" ", run.user).strip()
    return otherwise if who in ("", "unknown") else who


def created(run: Run) -> str:
    """When the run began: as a version it is as old as that. The import's time if unknown."""
    return moment(run.start) or moment(run.end) or timestamp()


def moment(milliseconds: int | None) -> str | None:
    if milliseconds is None or milliseconds <= 0:
        return None
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    try:
        return timestamp(epoch + datetime.timedelta(milliseconds=milliseconds))
    except OverflowError:
        return None


def parameters(run: Run) -> dict[str, Any]:
    """Its own, then those of its models that it does not have; as numbers where they are some."""
    given = dict(run.params)
    for model in run.models:
        for key, value in model.params.items():
            given.setdefault(key, value)
    return {key: typed(value) for key, value in given.items()}


def environment(run: Run) -> dict[str, Any]:
    """In the form of repository.environment: nothing of the machine that imports, so that the same
    run becomes the same version everywhere."""
    commit = run.tags.get("mlflow.source.git.commit", "")
    return {
        "git": {"head": commit, "dirty": "unknown"} if _COMMIT.match(commit) else None,
        "python": None,
        "packages": {},
        KEY: {
            "run": run.id,
            "name": run.name,
            "experiment": run.experiment.name,
            "parent": run.parent,
            "tags": _short({k: v for k, v in run.tags.items() if k not in _UNKEPT_TAGS}),
            "models": [
                {"id": model.id, "name": model.name, "step": model.step} for model in run.models
            ],
            "registered": [
                {
                    "name": known.name,
                    "version": known.version,
                    "aliases": list(known.aliases),
                    "status": known.status,
                    "stage": known.stage,
                    "tags": _short(known.tags),
                }
                for known in run.registered
            ],
            "datasets": [
                {key: v if len(v) <= MOST_TAG else None for key, v in asdict(data).items()}
                for data in run.datasets
            ],
            **ending(run),
        },
    }


def _short(tags: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in sorted(tags.items()) if len(value) <= MOST_TAG}


def ending(run: Run) -> dict[str, Any]:
    """What is different when a run has gone on since it was imported."""
    return {"status": run.status, "start": moment(run.start), "end": moment(run.end)}


def places(store: Store, run: Run, skipped: list[tuple[str, str]]) -> list[Place]:
    """Where its artifacts lie: those of its models first, as they are what was to be kept."""
    found = []
    stepped = any(model.step for model in run.models)
    for model, prefix in reversed(_prefixed(run.models)):
        step = model.step if stepped else None
        place = _place(store, run, model.id, model.location, skipped)
        if place is not None:
            found.append(Place(place, prefix, step))
    own = _place(store, run, run.id, run.artifacts, skipped)
    return [*found, *([] if own is None else [Place(own, "")])]


def _prefixed(models: list[LoggedModel]) -> list[tuple[LoggedModel, str]]:
    """Each model with the folder for its files: its name, and its step where that is not enough."""
    made: list[tuple[LoggedModel, str]] = []
    names = [version_name(model.name) or "model" for model in models]
    taken: set[str] = set()
    for model, plain in zip(models, names, strict=True):
        folder = plain if names.count(plain) == 1 else f"{plain}/step-{model.step or 0}"
        folder = f"{plain}/{model.id}" if folder in taken else folder
        taken.add(folder)
        made.append((model, f"{folder}/"))
    return made


def _place(
    store: Store, run: Run, owner: str, uri: str | None, skipped: list[tuple[str, str]]
) -> Any:
    if not uri:
        return None
    try:
        return locate(store.bases, uri, owner)
    except NotFound as error:
        # No folder is made for a run without artifacts. Where no run has one, they may be lost.
        if not _has_folder(store, run.experiment.id):
            row = (f"artifacts of {run.experiment.name}", f"{error.message}: {error.why}")
            skipped += [row] if row not in skipped else []
    except DlvError as error:
        skipped.append((f"artifacts of {owner}", f"{error.message}: {error.why or uri}"))
    return None


def _has_folder(store: Store, experiment: str) -> bool:
    return any((base / experiment).is_dir() for base in store.bases)
