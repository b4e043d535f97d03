"""Repositories by lot, as a model for brute force and as a catalogue with the same versions."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from dlv.canonical import number, timestamp
from dlv.metadata import networks, versions
from dlv.metadata.database import Database
from dlv.metadata.metrics import Summary, summarise
from dlv.network.graph import Network
from dlv.objects.fact import Fact
from dlv.objects.manifest import Manifest, NetworkReference, Parent
from dlv.weights.store import node_figures
from tests.dql import brute_networks
from tests.dql.brute_model import Graph, Repository, Series, Version

NAMES = (
    *("alexnet", "alexnet-origin1", "alexnet_2", "AlexNet1", "alexneu", "alexnet-avgv1"),
    *("resnet18", "resnet34", "lenet", "vgg_16.bn"),
)
TAGS = ("Production", "prod-2", "best", "x_1", "old", "straße", "v1.0", "PROD")
METRICS = ("loss", "accuracy", "val/loss", "gpu mem", "conv1")
OPTIMIZERS = ("adam", "sgd", "Adam", "rms%prop", "")
MIXED: tuple[Any, ...] = (1, 0, True, False, "1", "x", 2.5, None, [1], "", math.nan, -math.inf)
LAYERS: tuple[Any, ...] = ([32, 64], [32], {"a": 1}, 3, [32, 64])
SAVED = {
    "good": 'select g where g["accuracy"] > 0.5',
    "two words": 'select v where v.name like "alex%" and v.lr is not null',
    "rates": "select r.lr from r where r.lr > 0.125",
}
_START = 1_447_000_000_000_000  # November 2015
_DAY = 86_400_000_000
_AUTHORS = ("Ada <ada@example.org>", "Bob <bob@example.org>", "Ζωή <z@example.org>")
_MESSAGES = ("made", "fix 100%", "a_b", "lr\tlower", "", 'say "hi"')


@dataclass
class Made:
    model: Repository
    db: Database
    keys: Mapping[str, Sequence[str]]  # hyperparameters by what they hold: number text boolean any

    def at(self, version: str, name: str, step: int) -> float | None:
        return self.model.by_id[version].at(name, step)


def _parameters(lot: Random) -> dict[str, Any]:
    candidates: dict[str, Any] = {
        "lr": lot.choice((0.5, 0.25, 0.125, 0.0625, 0.5, 1, 1.0, math.nan, math.inf)),
        "batch_size": lot.choice((16, 32, 64, 128, None)),
        "optim.lr": lot.choice((0.5, 0.25, 2)),
        "a b": lot.choice((1, 2, 3)),
        "n": lot.choice((0, -1, 2.5, 7)),
        "optimizer": lot.choice(OPTIMIZERS),
        "note": lot.choice(("x", "100%", "ÄRGER", "ärger", None)),
        "use_bn": lot.random() < 0.5,
        "frozen": lot.choice((True, False, None)),
        "mixed": lot.choice(MIXED),
        "layers": lot.choice(LAYERS),
    }
    return {key: value for key, value in candidates.items() if lot.random() < 0.7}


KEYS = {
    "number": ("lr", "batch_size", "optim.lr", "n"),
    "text": ("optimizer", "note"),
    "boolean": ("use_bn", "frozen"),
    "any": ("mixed", "layers"),
}


def _series(lot: Random) -> dict[str, Series]:
    found = {}
    for name in METRICS:
        if lot.random() < 0.6:
            odd = lot.choice((0.0, 0.2, 0.2, 1.0))  # some are NaN or infinite all over
            steps = sorted(lot.sample(range(12), lot.randint(1, 5)))
            values = [
                lot.choice((math.nan, math.nan, math.inf, -math.inf))
                if lot.random() < odd
                else lot.randint(0, 64) / 64
                for _ in steps
            ]
            found[name] = Series(list(zip(steps, values, strict=True)))
    return found


def time_of(microseconds: int) -> str:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return timestamp(epoch + datetime.timedelta(microseconds=microseconds))


def make(seed: int, folder: Path | None = None, size: int | None = None) -> Made:
    """A catalogue in memory, or in a folder."""
    lot = Random(seed)
    db = Database(Path(":memory:") if folder is None else folder / "c.sqlite", wal=False)
    made = brute_networks.networks(lot)
    figures = [node_figures(each) for each in made]
    graphs = [Graph(each, figure) for each, figure in zip(made, figures, strict=True)]
    found: list[Version] = []
    numbers: dict[str, int] = {}
    tags = list(TAGS)
    for _ in range(size or lot.randint(30, 45)):
        name = lot.choice(NAMES)
        numbers[name] = numbers.get(name, 0) + 1
        earlier = [version.id for version in found]
        parents = lot.sample(earlier[-12:], min(len(earlier), lot.choice((0, 1, 1, 1, 2))))
        if lot.random() < 0.05:
            parents.append(f"{lot.getrandbits(256):064x}")  # of another repository
        place = lot.choice([None, *range(len(made)), *range(len(made))])
        series, parameters = _series(lot), _parameters(lot)
        if len(found) < len(MIXED):  # of each kind there is one that can be seen
            parameters["mixed"] = MIXED[len(found)]
            parameters["layers"] = LAYERS[len(found) % len(LAYERS)]
        results = {}
        if lot.random() < 0.25:
            metric = lot.choice(("accuracy", "f1"))
            results[f"test/{metric}"] = lot.choice(
                (lot.randint(0, 64) / 64, math.nan, math.inf, 1.0)
            )
        version = Version(
            id="",
            name=name,
            number=numbers[name],
            created=_START + lot.randint(0, 40) * _DAY + lot.choice((0, 0, 1_500_000)),
            author=lot.choice(_AUTHORS),
            message=lot.choice(_MESSAGES),
            dirty=lot.choice((True, False, None)),
            framework=None if place is None else lot.choice(("torch", "onnx")),
            state="live"
            if len(found) < len(MIXED)
            else lot.choice(("live",) * 14 + ("removed", "undone", "recovered")),
            graph=None if place is None else graphs[place],
            parameters=parameters,
            series=series,
            results=results,
            parents=parents,
            tags=[tags.pop() for _ in range(lot.choice((0, 0, 0, 1, 2))) if tags],
        )
        network = None if place is None else made[place]
        net_id = None if place is None else networks.insert(db, made[place], figures[place])
        found.append(_written(db, version, network, net_id))
    for name, text in SAVED.items():
        db.execute("INSERT INTO saved_query VALUES (?, ?, '')", (name, text))
    return Made(Repository(found, SAVED), db, KEYS)


def _written(
    db: Database, version: Version, network: Network | None, net_id: int | None
) -> Version:
    """The version with its id, now that it is in the catalogue."""
    manifest = Manifest(
        name=version.name,
        message=version.message,
        author=version.author,
        created=time_of(version.created),
        parents=tuple(Parent(parent) for parent in version.parents),
        network=None
        if network is None
        else NetworkReference(network.id, {"importer": version.framework}),
        hyperparameters={
            key: number(value) if isinstance(value, float) else value
            for key, value in version.parameters.items()
        },
        environment={} if version.dirty is None else {"git": {"dirty": version.dirty}},
    )
    key = versions.insert(
        db,
        manifest,
        number=version.number,
        net_id=net_id,
        summaries=[_summary(name, series) for name, series in version.series.items()],
    )
    version.id = manifest.id
    if version.state == "recovered":
        versions.recover(db, key)
        version.number = None
    db.execute("UPDATE version SET state = ? WHERE id = ?", (version.state, key))
    db.many("INSERT INTO tag VALUES (?, ?)", [(tag, key) for tag in version.tags])
    if version.results:
        data = {
            "step": None,
            "data": {"name": "tests/test.npz"},
            "metrics": {k.removeprefix("test/"): number(v) for k, v in version.results.items()},
        }
        fact = Fact("evaluation", version.id, version.author, timestamp(), data)
        db.execute(
            "INSERT INTO fact(hash, kind, subject, created, data) VALUES (?,?,?,?,?)",
            (fact.hash, fact.kind, fact.subject, fact.created, json.dumps(data)),
        )
    return version


def _summary(name: str, series: Series) -> Summary:
    run, _, tag = name.rpartition("/")
    return summarise(
        run, tag, "0" * 64, [step for step, _ in series.points], [v for _, v in series.points]
    )
