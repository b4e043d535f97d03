"""What differs between two versions, by a look at all that both have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlv.canonical import dumps
from tests.dql.brute_model import Version
from tests.dql.brute_order import same
from tests.dql.brute_truth import Other


@dataclass(frozen=True)
class Change:
    kind: str
    name: str
    before: Any
    after: Any


def changes(before: Version, after: Version) -> list[Change]:
    found = _differing("hyperparameter", before.parameters, after.parameters)
    found += _differing("metric", _last_values(before), _last_values(after))
    return found + _differing("layer", _layers(before), _layers(after))


def _differing(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    found = []
    for name in sorted(before.keys() | after.keys()):
        old, new = _plain(before.get(name)), _plain(after.get(name))
        if same(old) != same(new):
            found.append(Change(kind, name, old, new))
    return found


def _plain(value: Any) -> Any:
    return Other(dumps(value).decode()) if isinstance(value, (list, dict)) else value


def _last_values(version: Version) -> dict[str, Any]:
    return {name: version.figure(name, "last") for name in (*version.series, *version.results)}


def _layers(version: Version) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for layer in version.graph.layers.values() if version.graph else ():
        found[layer.name] = layer.op
        more = {"variant": layer.variant, "raw": layer.raw}
        own = {**layer.attrs, **{name: value for name, value in more.items() if value}}
        for name, value in own.items():
            found[f"{layer.name}.{name}"] = list(value) if isinstance(value, tuple) else value
    return found
