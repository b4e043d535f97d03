"""A catalogue with names alone: enough to bind queries, not to ask them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlv.canonical import hash_bytes
from dlv.metadata import metrics
from dlv.metadata.database import Database
from dlv.metadata.metrics import Summary

VERSIONS = (
    *(("lenet", 1), ("lenet", 2), ("lenet", 3), ("alexnet-origin1", 1), ("resnet", 1)),
    *(("resnet", 2), ("alexnet-avgv1", 1)),
)
PARAMETERS: dict[str, Any] = {
    "lr": 0.1,
    "wd": 0.01,
    "loss": 0.2,
    "batch_size": 64,
    "bs": 64,
    "accuracy": 0.9,
    "optimizer": "sgd",
    "note": None,
    "use_bn": True,
    "frozen": False,
    "limit": 3,
    "next": 2,
    "order": 1,
    "auto": True,
    "first": 1,
    "union.select": 2,
    "where.from": 3,
    "optim.lr": 0.1,
    "a b": 1,
    "shape": [1, 2],
    **{letter: number for number, letter in enumerate("abxk")},
}
SERIES = ("loss", "accuracy", "val/acc", "val/loss", "acc", "shared")
LAYERS = (
    *("conv1", "conv2", "conv3", "pool1", "fc7", "fc1", "fc2", "relu1", "data", "mask", "drop"),
    *("layer1.0.conv1", "layer2.0.conv1", "layer3.0.conv1", "fc", "fc8", "shared"),
)
SAVED = {
    "good": 'select m where m["accuracy"] > 0.9',
    "query1": 'select m1 where m1["conv[1,3,5]"].next has POOL("MAX")',
    "query3": 'construct m2 from m1 where m1["conv*($1)"].next has POOL("AVG")'
    ' mutate m1["conv*($1)"].insert = RELU("relu$1")',
    "my good ones": 'select m from m in "good" where m.lr < 1',
    "names": "select m.name",
    "two": "select a, b where a child_of b",
    "self": 'select m from "self"',
    "left": 'select m from "right"',
    "right": 'select m from "left"',
    "broken": "select m where m.nothing = 1",
    "unread": "select m where",
    "asks": "select m where m.lr < $most",
}


def labels() -> dict[str, str]:
    """What to call each version by its full hash."""
    return {
        hash_bytes(f"{name}@{number}".encode()): f"{name}@{number}" for name, number in VERSIONS
    }


def made(folder: Path) -> Database:
    db = Database(folder / "names.db", wal=False)
    db.execute("PRAGMA synchronous = OFF")
    for row, (name, number) in enumerate(VERSIONS, 1):
        digest = hash_bytes(f"{name}@{number}".encode())
        db.execute(
            "INSERT INTO version(id, hash, name, number, creation_time, author, message)"
            " VALUES (?, ?, ?, ?, ?, 'me', '')",
            (row, digest, name, number, row * 1_000_000),
        )
        metrics.insert_hyperparameters(db, row, PARAMETERS)
    metrics.insert_hyperparameters(db, 1, {"mixed": 1})
    metrics.insert_hyperparameters(db, 2, {"mixed": "one"})
    metrics.insert(db, 1, [Summary("", tag, "0" * 64, 1, 1, 0.5) for tag in SERIES])
    metrics.insert(db, 1, [Summary("run1", "loss", "0" * 64, 1, 1, 0.5)])
    db.execute("INSERT INTO tag(name, version_id) VALUES ('prod', 3)")
    db.many(
        "INSERT INTO layer(name, alias, op, variant, attrs) VALUES (?, ?, 'CONV', '', '{}')",
        [(name, f"alias{at}") for at, name in enumerate(LAYERS)],
    )
    db.many(
        "INSERT INTO saved_query(name, text, created) VALUES (?, ?, '2026-01-01')",
        list(SAVED.items()),
    )
    db.execute("INSERT INTO state(key, value) SELECT 'HEAD', hash FROM version WHERE id = 3")
    return db
