"""What a manifest says of the run that it was imported from, by names for queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OF_RUN = ("run", "name", "experiment", "status")
_OWN = "mlflow."  # before the tags that MLflow itself sets


def run_attributes(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of an imported MLflow run: `mlflow.status`, `mlflow.tags.KEY` and so on.

    Aliases are `mlflow.alias.NAME` with the number of the registered version, data sets
    `mlflow.dataset.NAME` with their digest.
    """
    run = environment.get("mlflow")
    if not isinstance(run, Mapping):
        return {}
    found = {f"{_OWN}{key}": run[key] for key in _OF_RUN if run.get(key)}
    for key, value in _mapping(run.get("tags")).items():
        found[key if key.startswith(_OWN) else f"{_OWN}tags.{key}"] = value
    for known in _mappings(run.get("registered")):
        found[f"{_OWN}model"], found[f"{_OWN}model.version"] = known["name"], known["version"]
        for key in ("status", "stage"):
            if known.get(key):
                found[f"{_OWN}model.{key}"] = known[key]
        for key, value in _mapping(known.get("tags")).items():
            found[f"{_OWN}model.tags.{key}"] = value
        for alias in known.get("aliases") or ():
            found[f"{_OWN}alias.{alias}"] = known["version"]
    for data in _mappings(run.get("datasets")):
        found[f"{_OWN}dataset.{data['name']}"] = data["digest"]
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
