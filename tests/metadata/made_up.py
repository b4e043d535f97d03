"""A small catalogue to ask: versions written in a line each, over a few networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlv.canonical import hash_bytes
from dlv.metadata import metrics, networks
from dlv.metadata.database import Database
from dlv.metadata.metrics import Summary
from dlv.metadata.networks import NodeFigures
from dlv.metadata.rows import VersionCell
from dlv.metadata.select import relations as r
from dlv.metadata.select import statement as select
from dlv.metadata.select.relations import Fitting, Hop, Named, Nodes, Pick
from dlv.network.graph import Input, Network, Node
from dlv.network.patterns import AttributeTest, Pattern
from dlv.network.selector import selector

DAY = 86_400_000_000


def node(name: str, op: str, *inputs: str, variant: str | None = None, **attrs: Any) -> Node:
    return Node(name, op, variant, attrs, tuple((each, 0) for each in inputs))


def chain(*nodes: Node) -> Network:
    """Each reads the one before, where it does not say what it reads."""
    made: list[Node] = []
    for each in nodes:
        before = made[-1].name if made else "x"
        inputs = each.inputs or ((before, 0),)
        made.append(Node(each.name, each.op, each.variant, each.attrs, inputs))
    return Network((Input("x", ("B", 4)),), tuple(made), ((made[-1].name, 0),))


def figures(network: Network) -> dict[str, NodeFigures]:
    return {n.name: NodeFigures(("B", 2 + at), 10 * at) for at, n in enumerate(network.nodes)}


PLAIN = chain(
    node("conv1", "CONV", out=8, kernel=[3, 3]),
    node("pool1", "POOL", variant="MAX", kernel=[2, 2]),
    node("conv2", "CONV", out=16, kernel=[3, 5]),
    node("pool2", "POOL", variant="AVG", kernel=[2, 2]),
    node("flat", "RESHAPE", kind="flatten"),
    node("fc1", "FULL", out=10),
)
TORCH = chain(
    node("features.0", "CONV", out=8, kernel=[3, 3]),
    node("features.1", "RELU"),
    node("features.2", "POOL", variant="MAX", kernel=[2, 2]),
    node("features.3", "CONV", out=64, kernel=[1, 1]),
)
# Stored out of order, and with a fork.
CROSSED = Network(
    (Input("x", ("B", 4)),),
    (
        node("sum", "ADD", "conv2", "relu1"),
        node("relu1", "RELU", "conv1"),
        node("conv2", "CONV", "relu1", out=8, kernel=[3, 3]),
        node("conv1", "CONV", "x", out=4, kernel=[3, 3]),
    ),
    (("sum", 0),),
)


class Catalogue:
    """`add` gives the label by which the rows of a query name the version."""

    def __init__(self, db: Database | None = None) -> None:
        self.db = db or Database(Path(":memory:"), wal=False)
        self.labels: dict[str, str] = {}
        self.hashes: dict[str, str] = {}

    def add(
        self,
        label: str,
        *,
        name: str | None = None,
        network: Network | None = None,
        parents: Sequence[str] = (),
        tags: Sequence[str] = (),
        parameters: Mapping[str, Any] | None = None,
        series: Mapping[str, float] | None = None,
        state: str = "live",
        dirty: bool | None = None,
        day: int | None = None,
        message: str = "",
    ) -> None:
        digest = hash_bytes(label.encode())
        self.labels[digest], self.hashes[label] = label, digest
        net = None if network is None else networks.insert(self.db, network, figures(network))
        at = len(self.labels) if day is None else day
        key = self.db.insert(
            "INSERT INTO version(hash, name, number, net_id, creation_time, author, message,"
            " dirty, state) VALUES (?,?,?,?,?,'me',?,?,?)",
            (digest, name or label, len(self.labels), net, at * DAY, message, dirty, state),
        )
        for pos, parent in enumerate(parents):
            base = self.hashes.get(parent, hash_bytes(parent.encode()))
            self.db.execute(
                "INSERT INTO parent SELECT ?1, ?2, max(id), iif(max(id), NULL, ?3), 'x'"
                " FROM version WHERE hash = ?3",
                (key, pos, base),
            )
        self.db.many("INSERT INTO tag VALUES (?,?)", [(tag, key) for tag in tags])
        metrics.insert_hyperparameters(self.db, key, parameters or {})
        summaries = []
        for full, last in (series or {}).items():
            run, _, tag = full.rpartition("/")
            odd = math.isnan(last)
            steps = (None, None) if odd else (10, 20)
            extremes = (last - 1, steps[0], last + 1, steps[1])
            summaries.append(Summary(run, tag, "0" * 64, 3, 30, last, *extremes, int(odd)))
        metrics.insert(self.db, key, summaries)

    def rows(self, query: r.Query, **more: Any) -> list[tuple[Any, ...]]:
        _, rows = select.run(self.db, query, **more)
        return [tuple(map(self.plain, row)) for row in rows]

    def plain(self, value: Any) -> Any:
        if isinstance(value, VersionCell) and value.derived is None:
            return self.labels[value.id]
        return value

    def found(self, where: r.Condition | None, variable: str = "m") -> set[str]:
        """The versions that fulfil a condition."""
        return {row[0] for row in self.rows(versions(where, variable))}

    def values(self, value: r.Value) -> dict[str, Any]:
        """Of each version."""
        items = (r.Item("m", r.Whole("m")), r.Item("x", value))
        found = self.rows(r.Query(r.Select(items, (r.Source("m"),))))
        return {row[0]: row[1] for row in found}

    def truth(self, condition: r.Condition) -> dict[str, bool | None]:
        """True, False or None of each version."""
        yes, no = self.found(condition), self.found(r.Not(condition))
        assert not yes & no
        return {
            label: True if label in yes else False if label in no else None
            for label in self.found(None)
        }


def versions(where: r.Condition | None = None, variable: str = "m", **more: Any) -> r.Query:
    item = r.Item(variable, r.Whole(variable))
    return r.Query(r.Select((item,), (r.Source(variable),), where), **more)


def nodes(start: str | Pattern, *steps: Any, variable: str = "m") -> Nodes:
    return Nodes(variable, nodal(start), tuple(map(_step, steps)))


def nodal(given: Any) -> Named | Fitting:
    return Fitting((given,)) if isinstance(given, Pattern) else Named(selector(given))


def _step(given: Any) -> Any:
    if isinstance(given, int):
        return Pick(given)
    if given in ("next", "prev", "next_raw", "prev_raw"):
        return Hop(given.startswith("next"), given.endswith("raw"))
    return given if isinstance(given, Hop) else nodal(given)


def test_of(name: str, operator: str, value: Any) -> r.Compare:
    return r.Compare(operator, r.NodeValue(name), r.Constant(value))


test_of.__test__ = False  # type: ignore[attr-defined]
MAX, AVG = Pattern("POOL", "MAX"), Pattern("POOL", "AVG")
WIDE = Pattern("CONV", tests=(AttributeTest("out", ">=", 16),))
Make = Callable[..., Catalogue]
