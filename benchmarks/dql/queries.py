"""The queries that are timed, in DQL and in the SQL that the paper's plain tables need."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True)
class Timed:
    """`paper`: conditions on the first node, the second node and the version, for plain tables.

    `hop`: a pattern of two nodes, which any way to answer may be compared on.
    """

    title: str
    text: str
    paper: tuple[str, str, str] | None = None

    @property
    def hop(self) -> bool:
        return self.paper is not None


_QUERY1 = """select m1
where m1.name like "alexnet_%" and
m1.creation_time > "2015-11-22" and
m1["conv[1,3,5]"].next has POOL("MAX")"""
_MAX, _AVG = ("b.op = 'POOL' AND b.variant = 'MAX'", "b.op = 'POOL' AND b.variant = 'AVG'")
_ODD = "a.name IN ('conv1', 'conv3', 'conv5')"
_CONV = "a.name >= 'conv' AND a.name < 'conw'"
_TIME = "v.creation_time > 1448150400000000"
QUERY1, UNFILTERED, QUERY3 = "Query 1", "its pattern alone", "Query 3, its selection"
TIMED = (
    Timed(QUERY1, _QUERY1, (_ODD, _MAX, f"v.name GLOB 'alexnet?*' AND {_TIME}")),
    Timed(UNFILTERED, 'select m where m["conv[1,3,5]"].next has POOL("MAX")', (_ODD, _MAX, "1")),
    Timed(
        QUERY3,
        'select m1 where m1.name like "alexnet-avgv1%" and m1["conv*($1)"].next has POOL("AVG")',
        (_CONV, _AVG, "v.name GLOB 'alexnet-avgv1*'"),
    ),
    Timed(
        "rare: conv60 -> MAX",
        'select m where m["conv60"].next has POOL("MAX")',
        ("a.name = 'conv60'", _MAX, "1"),
    ),
    Timed("conv* -> MAX", 'select m where m["conv*"].next has POOL("MAX")', (_CONV, _MAX, "1")),
    Timed(
        "CONV -> AVG", 'select m where m[CONV].next has POOL("AVG")', ("a.op = 'CONV'", _AVG, "1")
    ),
    Timed(
        "two hops: conv[1,3] -> any -> MAX",
        'select m where m["conv[1,3]"].next.next has POOL("MAX")',
    ),
    Timed(
        "every conv followed by NORM or RELU",
        'select m where m.name like "lenet%" and every m["conv*"].next has NORM | RELU',
    ),
    Timed("CONV count > 60, by name", 'select m where m.name = "vgg16" and m[CONV].count > 60'),
    Timed(
        "loss and lr, top 20",
        'select m where m["loss"] < 0.5 and m.lr = 0.01 order by m["loss"] limit 20',
    ),
    Timed("descendants", 'select m where m derived_from "{root}"'),
    Timed(
        "children better than their parent",
        'select a, b where b child_of a and b["loss"] < a["loss"]',
    ),
    Timed(
        "mean accuracy by optimizer", 'select m.optimizer, avg(m["accuracy"]) group by m.optimizer'
    ),
)


def root(db: sqlite3.Connection, wanted: int) -> str:
    """A version with about so many descendants."""
    below: dict[int, list[int]] = {}
    for derived, base in db.execute("SELECT derived, base FROM parent"):
        below.setdefault(base, []).append(derived)
    count: dict[int, int] = {}
    newest = db.execute("SELECT max(id) FROM version").fetchone()[0]
    for key in range(newest, 0, -1):
        count[key] = sum(1 + count[each] for each in below.get(key, ()))
    best = min(count, key=lambda key: abs(count[key] - wanted))
    name, number = db.execute("SELECT name, number FROM version WHERE id = ?", (best,)).fetchone()
    return f"{name}@{number}"
