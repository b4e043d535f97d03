"""Derived networks beside those of the catalogue, in temporary tables that queries can ask."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlv.metadata import networks
from dlv.metadata.database import Database

if TYPE_CHECKING:
    from dlv.metadata.networks import NodeFigures
    from dlv.network.graph import Network

_PREFIX = "derived_"
_TABLES = (
    *("net", "layer", "shape", "node", "layer_pair", "edge", "raw_edge", "net_pair"),
    "layer_stat",
)
# What a table refers to would be looked for beside it.
_REFERENCES = re.compile(
    r",\s+FOREIGN KEY \([\w, ]+\) REFERENCES \w+\([\w, ]+\)| REFERENCES \w+\(\w+\)"
)
_FIRST = 1 << 40  # ids that no row of the catalogue has
_OF_SOURCE = (
    "name, number, creation_time, author, message, framework, dirty, scheme, state, tensors_id"
)


@dataclass(frozen=True)
class DerivedNetwork:
    """A network that was derived; `version`: the hash of the version that it comes from."""

    version: str
    network: Network
    figures: Mapping[str, NodeFigures]


def insert_derived(db: Database, derived: Sequence[DerivedNetwork]) -> int:
    """The number of the batch, for `relations.Derived`."""
    _make(db)
    batch = 1 + int(db.value("SELECT max(batch) FROM derived_version") or 0)
    for place, each in enumerate(derived):
        net_id = networks.insert(db, each.network, each.figures, _PREFIX)
        db.execute(
            f"INSERT INTO derived_version(hash, net_id, source_id, batch, place, {_OF_SOURCE})"
            f" SELECT ?, ?, id, ?, ?, {_OF_SOURCE} FROM version WHERE hash = ?",
            (each.network.id, net_id, batch, place, each.version),
        )
    db.execute(
        "UPDATE derived_version SET first_id = (SELECT min(other.id) FROM derived_version AS other"
        " WHERE other.hash = derived_version.hash) WHERE batch = ?",
        (batch,),
    )
    return batch


def _make(db: Database) -> None:
    """Tables as those of the catalogue, but temporary: a reader may have them, too."""
    if db.value("SELECT 1 FROM temp.sqlite_schema WHERE name = 'derived_version'"):
        return
    for kind, name, table, sql in db.rows(
        "SELECT type, name, tbl_name, sql FROM main.sqlite_schema WHERE sql IS NOT NULL"
        " ORDER BY type DESC"
    ):
        if table in _TABLES:
            plain = _REFERENCES.sub("", sql)
            if kind == "table":
                plain = plain.replace(f"TABLE {name}", f"TABLE temp.{_PREFIX}{name}")
            else:
                plain = plain.replace(
                    f"INDEX {name} ON ", f"INDEX temp.{_PREFIX}{name} ON {_PREFIX}"
                )
            db.execute(plain)
    db.execute(
        "CREATE TABLE temp.derived_version(id INTEGER PRIMARY KEY, first_id INTEGER, hash TEXT,"
        f" net_id INTEGER, source_id INTEGER, batch INTEGER, place INTEGER, {_OF_SOURCE})"
    )
    db.execute(f"INSERT INTO derived_net VALUES ({_FIRST}, '', '', 0, 0, 0)")
    db.execute(f"INSERT INTO derived_layer VALUES ({_FIRST}, '', '', '', '', '{{}}')")
    db.execute(f"INSERT INTO derived_shape VALUES ({_FIRST}, '')")
    db.execute(f"INSERT INTO derived_version(id) VALUES ({_FIRST})")
    for table in _TABLES:
        db.execute(
            f"CREATE TEMP VIEW any_{table} AS"
            f" SELECT * FROM main.{table} UNION ALL SELECT * FROM {_PREFIX}{table}"
        )
    columns = f"id, hash, net_id, {_OF_SOURCE}"
    db.execute(
        f"CREATE TEMP VIEW any_version AS SELECT {columns}, id AS first_id, id AS source_id,"
        " NULL AS batch, NULL AS place FROM main.version WHERE state IN ('live', 'recovered')"
        f" UNION ALL SELECT {columns}, first_id, source_id, batch, place FROM derived_version"
        " WHERE batch IS NOT NULL"
    )
