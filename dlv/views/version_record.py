"""What `desc` prints as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dlv.network import json_form
from dlv.network.graph import Network
from dlv.versions.describe import Description
from dlv.weights.inventory import Matrix

if TYPE_CHECKING:
    from dlv.weights.reading.interval_statistics import StatisticsBounds


def document(found: Description) -> dict[str, Any]:
    """The JSON of a whole version."""
    network = found.network
    return {
        "version": version_record(found),
        "network": None if network is None else _network_json(found, network),
        "summary": None if found.summary is None else asdict(found.summary),
        "hyperparameters": found.manifest.hyperparameters,
        "metrics": [
            {"name": item.name, **{k: v for k, v in asdict(item).items() if k != "hash"}}
            for item in found.metrics
        ],
        "logged": [
            {"name": item.name, "kind": item.plugin, "points": item.points} for item in found.logged
        ],
        "evaluations": [{"created": at, **told} for at, told in found.evaluations],
        "snapshots": [asdict(line) for line in found.snapshots],
        "matrices": [_matrix_record(found, matrix) for matrix in found.matrices],
        "files": [
            {"path": f.path, "role": f.role, "mode": f.mode, "bytes": f.bytes, "hash": f.blake3}
            for f in found.manifest.files
        ],
        "storage": {**asdict(found.storage), "ratio": found.storage.ratio},
    }


def _network_json(found: Description, network: Network) -> dict[str, Any]:
    form = json_form.write(network)
    reference = found.manifest.network
    form["origin"] = None if reference is None else reference.origin
    return form


def matrix_document(found: Description) -> dict[str, Any]:
    """The JSON of those matrices alone whose figures were asked for."""
    asked = {*found.statistics, *found.bounds}
    wanted = [matrix for matrix in found.matrices if matrix.name in asked]
    return {
        "version": version_record(found),
        "matrices": [_matrix_record(found, matrix) for matrix in wanted],
    }


def version_record(found: Description) -> dict[str, Any]:
    version = found.version
    return {
        "id": version.id,
        "name": version.name,
        "number": version.number,
        "step": None if found.snapshot is None else found.snapshot.step,
        "created": version.created,
        "author": version.author,
        "message": version.message,
        "state": version.state,
        "tags": list(version.tags),
        "parents": [asdict(parent) for parent in found.parents],
        "framework": version.framework,
        "scheme": version.scheme,
        "git": found.git,
        "mlflow": found.mlflow,
    }


def _matrix_record(found: Description, matrix: Matrix) -> dict[str, Any]:
    record: dict[str, Any] = {
        **asdict(matrix),
        "elements": matrix.elements,
        "bytes": matrix.nbytes,
        "stored": found.stored_bytes(matrix),
    }
    if matrix.name in found.statistics:
        figures = found.statistics[matrix.name]
        record["statistics"] = None if figures is None else asdict(figures)
    if matrix.name in found.readings:
        record["approximation"] = {
            **found.readings[matrix.name].as_json(),
            "bounds": _bounds_record(found.bounds.get(matrix.name)),
        }
    return record


def _bounds_record(found: StatisticsBounds | None) -> dict[str, Any] | None:
    """Intervals as [low, high]; null where `statistics` are exact."""
    if found is None:
        return None
    intervals = {
        name: [held.low, held.high]
        for name in ("zeros", "min", "max", "mean", "std", "l2")
        for held in [getattr(found, name)]
    }
    histogram = found.histogram
    counts = [[count.low, count.high] for count in histogram.counts]
    bins = {"low": histogram.low, "high": histogram.high, "counts": counts}
    return {"elements": found.elements, **intervals, "histogram": bins}
