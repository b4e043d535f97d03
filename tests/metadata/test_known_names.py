"""Names that queries may use, as the catalogue knows them."""

from __future__ import annotations

from dlv.metadata import metrics
from dlv.metadata.database import Database
from dlv.metadata.metrics import Summary
from dlv.metadata.usage import KnownNames


def fill(db: Database) -> KnownNames:
    for key, name in enumerate(("lenet", "resnet"), 1):
        db.execute(
            "INSERT INTO version(id, hash, name, number, creation_time, author, message)"
            " VALUES (?, ?, ?, 1, 0, 'me', '')",
            (key, f"{key}" * 64, name),
        )
    first = {"lr": 0.1, "optimizer": "sgd", "steps": [1, 2], "note": None, "nan": "NaN"}
    metrics.insert_hyperparameters(db, 1, first)
    metrics.insert_hyperparameters(db, 2, {"lr": "auto", "frozen": True, "epochs": 3})
    metrics.insert(
        db, 1, [Summary("", "loss", "0" * 64, 1), Summary("a/b", "val/acc", "0" * 64, 1)]
    )
    db.execute(
        "INSERT INTO fact(hash, kind, subject, created, data)"
        " VALUES ('f', 'evaluation', 'x', '', '{\"metrics\": {\"f1\": 0.5}, \"step\": null}')"
    )
    db.execute(
        "INSERT INTO layer(name, alias, op, variant, attrs)"
        " VALUES ('features.0', 'conv1', 'CONV', '', '{}'), ('x.view', '', 'RESHAPE', '', '{}')"
    )
    db.execute(
        "INSERT INTO saved_query(name, text, created) VALUES ('b', 'select m', ''), ('a', 'x', '')"
    )
    return KnownNames(db)


def test_hyperparameters(db: Database) -> None:
    known = fill(db)
    assert known.hyperparameters == [
        *("epochs", "frozen", "lr", "nan", "note", "optimizer", "steps")
    ]
    assert known.has_hyperparameter("note")
    assert not known.has_hyperparameter("LR")
    assert known.kinds("lr") == ["number", "text"]
    kinds = {
        key: [
            kind
            for kind in ("number", "text", "boolean", "list", "null")
            if known.has_kind(key, kind)
        ]
        for key in known.hyperparameters
    }
    assert kinds == {
        "epochs": ["number"],
        "frozen": ["boolean"],
        "lr": ["number", "text"],
        "nan": ["number"],
        "note": ["null"],
        "optimizer": ["text"],
        "steps": ["list"],
    }


def test_series_and_what_evaluations_gave(db: Database) -> None:
    known = fill(db)
    assert known.series == ["a/b/val/acc", "evaluation/f1", "loss"]
    for name in known.series:
        assert known.has_series(name)
    for name in ("val/acc", "b/val/acc", "Loss", "los"):
        assert not known.has_series(name)


def test_layers_by_name_and_alias(db: Database) -> None:
    known = fill(db)
    assert sorted(known.layers) == ["conv1", "features.0", "x.view"]
    assert known.has_layer("features.0")
    assert known.has_layer("conv1")
    assert not known.has_layer("conv2")


def test_saved_queries(db: Database) -> None:
    known = fill(db)
    assert known.saved_names() == ["a", "b"]
    assert known.saved("b") == "select m"
    assert known.saved("c") is None


def test_good_names_are_found_by_indexes(db: Database) -> None:
    fill(db)
    for condition in (
        "hyperparameter WHERE key = ?",
        "metric WHERE tag = ?",
        "layer WHERE name = ?",
    ):
        (plan,) = db.rows(f"EXPLAIN QUERY PLAN SELECT 1 FROM {condition} LIMIT 1", ("x",))
        assert "SEARCH" in plan[3]
        assert "INDEX" in plan[3]
