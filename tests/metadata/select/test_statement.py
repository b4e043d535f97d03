"""Rows out of queries: conditions of each kind, columns, groups, set operations, order."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest

from dlv.metadata import facts, networks
from dlv.metadata.database import Database
from dlv.metadata.networks import DerivedNetwork
from dlv.metadata.rows import Column, VersionCell
from dlv.metadata.select import relations as r
from dlv.metadata.select import statement as select
from dlv.network.selector import selector
from dlv.objects.fact import Fact
from tests.metadata.made_up import (
    AVG,
    CROSSED,
    MAX,
    PLAIN,
    TORCH,
    WIDE,
    Catalogue,
    figures,
    nodes,
    test_of,
    versions,
)

NAME = r.Column("m", "name")
LOSS = r.Metric("m", "loss", "last")


def is_(operator: str, value: r.Value, constant: object) -> r.Compare:
    return r.Compare(operator, value, r.Constant(constant))  # type: ignore[arg-type]


def busy(db: Database) -> bool:
    return db._connection.in_transaction


def key(name: str, variable: str = "m") -> r.Hyperparameter:
    return r.Hyperparameter(variable, name)


def select_of(*items: r.Value, **more: object) -> r.Select:
    titled = tuple(r.Item(str(at), item) for at, item in enumerate(items))
    return r.Select(titled, (r.Source("m"),), **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def made() -> Catalogue:
    """a -> b -> c, a -> d; of d nothing is known, e was removed."""
    made = Catalogue()
    made.add(
        "a",
        name="alexnet_1",
        network=PLAIN,
        parameters={"lr": 0.1, "opt": "adam", "bn": True, "big": 2**70, "nan": "NaN", "l": [1, 2]},
        series={"loss": 0.5, "train/acc": 0.9},
        tags=("best", "Straße"),
        dirty=True,
    )
    made.add("b", name="AlexNet", network=TORCH, parents=("a",), parameters={"lr": 1, "bn": False,
        "opt": None}, series={"loss": math.nan, "train/acc": 0.5}, dirty=False)  # fmt: skip
    made.add("c", name="alexnet-2", network=CROSSED, parents=("b",), parameters={"lr": "x"})
    made.add("d", name="100%", parents=("a", "elsewhere"), tags=("old",))
    made.add("e", name="alexnet_3", parents=("a",), parameters={"lr": 0.1}, state="removed")
    return made


def test_nothing_but_what_is_visible_newest_first(made: Catalogue) -> None:
    assert made.rows(versions()) == [("d",), ("c",), ("b",), ("a",)]
    columns, _ = select.run(made.db, versions())
    assert columns == [Column("m", "version")]


@pytest.mark.parametrize(
    ("condition", "a", "b", "c", "d"),
    [
        (is_("=", key("lr"), 0.1), True, False, False, None),
        (is_("!=", key("lr"), 0.1), False, True, True, None),
        (is_("<", key("lr"), 1), True, False, None, None),
        (is_(">=", key("lr"), "w"), None, None, True, None),
        (is_("=", key("bn"), True), True, False, None, None),
        (is_("=", key("bn"), 1), False, False, None, None),
        (is_("<", key("bn"), True), False, True, None, None),
        (is_("=", key("opt"), "adam"), True, None, None, None),
        (r.IsNull(key("opt")), False, True, True, True),
        (r.IsNull(key("nan")), False, True, True, True),
        (is_("=", key("l"), (1, 2)), True, None, None, None),
        (is_("=", key("l"), (1,)), False, None, None, None),
        (is_("<", key("l"), (3,)), None, None, None, None),
        (is_("=", key("big"), 2**70), True, None, None, None),
        (r.Compare("<", key("lr"), LOSS), True, False, None, None),
        (r.Compare("=", key("lr"), key("opt")), False, None, None, None),
        (r.Compare(">=", key("lr"), key("lr")), True, True, True, None),
        (is_("<=", LOSS, 0.5), True, False, None, None),
        (is_(">", LOSS, 0.4), True, False, None, None),
        (is_("!=", LOSS, 0.4), True, True, None, None),
        (r.Compare("=", LOSS, LOSS), True, False, None, None),
        (r.Compare("!=", LOSS, LOSS), False, True, None, None),
        (r.Compare("<=", LOSS, r.Metric("m", "no", "last")), None, None, None, None),
        (r.Compare("<=", r.Metric("m", "no", "last"), LOSS), None, None, None, None),
        (r.Compare("!=", r.Metric("m", "no", "last"), LOSS), None, None, None, None),
        (r.Not(r.Compare("<", LOSS, LOSS)), True, True, None, None),
        (r.OneOf(LOSS, (r.Constant(0.5), r.Constant(math.nan))), True, False, None, None),
        (r.OneOf(LOSS, (r.Constant(None), r.Constant(math.nan))), None, None, None, None),
        (is_(">", LOSS, math.nan), False, False, None, None),
        (r.IsNull(LOSS), False, False, True, True),
        (r.IsNan(LOSS), False, True, False, False),
        (r.Not(r.IsNan(LOSS)), True, False, True, True),
        (r.IsNan(r.Arithmetic("-", LOSS, LOSS)), False, True, False, False),
        (r.IsNan(r.Metric("m", "loss", "min")), False, True, False, False),
        (r.IsNull(r.Metric("m", "loss", "min_step")), False, True, True, True),
        (r.IsNan(key("nan")), True, False, False, False),
        (r.Compare("=", key("nan"), key("nan")), False, None, None, None),
        (r.Compare("!=", key("nan"), key("lr")), True, None, None, None),
        (r.Compare("<", key("nan"), key("lr")), False, None, None, None),
        (r.Compare("<", key("nan"), key("bn")), None, None, None, None),
        (is_(">", r.Metric("m", "train/acc", "max"), 1.6), True, False, None, None),
        (is_("=", r.Metric("m", "acc", "max"), 1.6), None, None, None, None),
        (is_("=", r.Metric("m", "loss", "n"), 3), True, True, None, None),
        (is_("=", r.Column("m", "dirty"), True), True, False, None, None),
        (is_(">", r.Column("m", "n_nodes"), 4), True, False, False, None),
        (is_("=", r.Column("m", "net"), TORCH.structure), False, True, False, None),
        (is_("=", NAME, 3), False, False, False, False),
        (is_("=", NAME, None), None, None, None, None),
        (is_("=", r.Coalesce((key("opt"), r.Constant("none"))), "none"), False, True, True, True),
        (r.OneOf(key("lr"), (r.Constant(1), r.Constant("x"))), False, True, True, None),
        (r.OneOf(key("lr"), (r.Constant(1), r.Constant(None))), None, True, None, None),
        (r.OneOf(key("lr"), tuple(map(r.Constant, range(50)))), False, True, False, None),
        (r.OneOf(NAME, ()), False, False, False, False),
        (r.Truth(True), True, True, True, True),
        (r.Truth(None), None, None, None, None),
        (r.All((r.Truth(None), is_("=", key("bn"), True))), None, False, None, None),
        (r.Either((r.Truth(None), is_("=", key("bn"), True))), True, None, None, None),
        (r.Not(r.Not(is_("=", key("bn"), True))), True, False, None, None),
        (r.Not(r.All(())), False, False, False, False),
    ],
)
def test_truth(
    made: Catalogue,
    condition: r.Condition,
    a: bool | None,
    b: bool | None,
    c: bool | None,
    d: bool | None,
) -> None:
    assert made.truth(condition) == {"a": a, "b": b, "c": c, "d": d}


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        (r.Like(NAME, r.Constant("alexnet_%")), "ac"),
        (r.Like(NAME, r.Constant("alexnet\\_%"), escape="\\"), "a"),
        (r.Like(NAME, r.Constant("ALEXNET%"), folded=True), "abc"),
        (r.Like(NAME, r.Constant("100\\%"), escape="\\"), "d"),
        (r.Like(NAME, r.Constant("%-_")), "c"),
        (r.Like(NAME, r.Constant("%a%l%e%x%n%e%t%")), "ac"),
        (r.Like(NAME, NAME), "abcd"),
        (r.Like(NAME, r.Constant("")), ""),
        (r.Like(key("opt"), r.Constant("ad%")), "a"),
        (r.Like(key("lr"), r.Constant("%")), "c"),
        (r.Matches(NAME, selector("alexnet?[1-2]")), "ac"),
        (r.AnyOf("m", "tag", is_("=", r.ManyValue(), "best")), "a"),
        (r.AnyOf("m", "tag", r.Like(r.ManyValue(), r.Constant("STRASSE"), folded=True)), "a"),
        (r.AnyOf("m", "tag", r.Truth(True)), "ad"),
        (r.Not(r.AnyOf("m", "parents", r.Truth(True))), "a"),
        (r.Within(NAME, r.Query(select_of(r.Constant("100%")))), "d"),
        (r.Exists(versions(r.Related("child_of", "x", "m"), "x")), "ab"),
        (r.Within(r.Whole("m"), versions(r.Related("child_of", "x", "m"), "x")), ""),
        (r.Same("m", "m"), "abcd"),
    ],
)
def test_found(made: Catalogue, condition: r.Condition, found: str) -> None:
    assert made.found(condition) == set(found)


def test_ids(made: Catalogue) -> None:
    assert made.found(r.Is("m", (made.hashes["a"], made.hashes["e"], "0" * 64))) == {"a"}
    parent = r.AnyOf("m", "parents", is_("=", r.ManyValue(), made.hashes["a"]))
    assert made.found(parent) == {"b", "d"}


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        (r.AnyNode(nodes("conv*")), "abc"),
        (r.AnyNode(nodes("features.*")), "b"),
        # Not by alias where a node is called so: of `c` conv1 is the one that reads the input.
        (r.AnyNode(nodes("conv1", "next"), r.Fits((MAX,))), "a"),
        (r.AnyNode(nodes("conv2", "prev"), r.Fits((MAX,))), "ab"),
        (r.AnyNode(nodes("conv*", "next"), r.Fits((MAX, AVG))), "a"),
        (r.EveryNode(nodes("conv*", "next"), r.Fits((MAX, AVG))), "a"),
        (r.EveryNode(nodes("conv*"), test_of("out", ">=", 8)), "ab"),
        (r.Not(r.AnyNode(nodes("fc*"))), "bcd"),
        (r.EveryNode(nodes("fc*"), r.Truth(True)), "a"),
        (r.AnyNode(nodes(WIDE)), "ab"),
        (r.AnyNode(nodes(WIDE, "prev", MAX)), "ab"),
        (r.AnyNode(nodes("pool2", "next"), test_of("op", "=", "FULL")), "a"),
        (r.AnyNode(nodes("pool2", "next_raw"), test_of("op", "=", "RESHAPE")), "a"),
        (r.AnyNode(nodes("*", "next", "next", "prev", "prev"), test_of("op", "=", "CONV")), "abc"),
        (r.AnyNode(nodes("conv*", *["next"] * 12)), ""),
        (r.AnyNode(nodes("*", -1), test_of("name", "=", "sum")), "c"),
        (r.AnyNode(nodes("conv*", 1, "next"), test_of("op", "=", "ADD")), "c"),
        (r.AnyNode(nodes("conv*", 2)), ""),
        (r.AnyNode(nodes("conv*", 0), test_of("kernel", "=", 3)), "abc"),
        (r.AnyNode(nodes("conv*"), test_of("kernel", "=", 3)), "abc"),
        (r.AnyNode(nodes("conv*"), test_of("kernel", "!=", 3)), "ab"),
        (r.AnyNode(nodes("*"), test_of("variant", "=", "MAX")), "ab"),
        (r.AnyNode(nodes("*"), r.IsNull(r.NodeValue("alias"))), "a"),
        (r.AnyNode(nodes("fc*"), r.Compare(">", r.NodeValue("out"), key("lr"))), "a"),
        (r.AnyNode(nodes("fc*"), is_("=", r.NodeValue("n_params"), 50)), "a"),
        (r.AnyNode(nodes("*"), is_("=", r.NodeValue("out_shape"), ("B", 7))), "a"),
        (r.AnyNode(nodes("conv*"), is_(">", r.Arithmetic("*", r.NodeValue("out"),
            r.Constant(2)), 20)), "ab"),
        (r.EveryNode(nodes("*"), is_("<", r.NodeValue("n_params"), 31)), "bc"),
        (r.AnyNode(nodes("*"), r.Like(r.NodeValue("name"), r.Constant("conv_"))), "ac"),
        (r.AnyNode(nodes("*"), r.OneOf(r.NodeValue("out"), (r.Constant(64), r.Constant(9)))), "b"),
        (r.AnyNode(nodes("*"), r.Not(is_("=", r.NodeValue("out"), 8))), "abc"),
        (r.EveryNode(nodes("pool*"), r.Not(is_("=", r.NodeValue("out"), 8))), ""),
        (is_("=", r.NodeCount(nodes("conv*")), 2), "abc"),
        (is_("=", r.NodeCount(nodes("*", "next")), 3), "bc"),
        (is_("=", r.NodeCount(nodes("nothing")), 0), "abcd"),
    ],
)  # fmt: skip
def test_nodes(made: Catalogue, condition: r.Condition, found: str) -> None:
    assert made.found(condition) == set(found)
    assert made.found(r.Not(condition)) == set("abcd") - set(found)


@pytest.mark.parametrize(
    ("relation", "to", "within", "found"),
    [
        ("derived_from", "a", None, "bcd"),
        ("derived_from", "a", 1, "bd"),
        ("derived_from", "b", None, "c"),
        ("child_of", "a", None, "bd"),
        ("parent_of", "c", None, "b"),
        ("ancestor_of", "c", None, "ab"),
        ("ancestor_of", "c", 1, "b"),
        ("sibling_of", "b", None, "d"),
        ("sibling_of", "c", None, ""),
        ("sibling_of", "c", 2, "bd"),
        ("sibling_of", "e", None, "bd"),
    ],
)
def test_lineage(made: Catalogue, relation: str, to: str, within: int | None, found: str) -> None:
    fixed = r.Fixed(made.hashes[to])
    assert made.found(r.Related(relation, "m", fixed, within)) == set(found)
    other = is_("=", r.Column("x", "id"), made.hashes[to])
    if to != "e":
        both = r.All((other, r.Related(relation, "m", "x", within)))
        query = r.Select((r.Item("m", r.Whole("m")),), (r.Source("m"), r.Source("x")), both)
        assert {row[0] for row in made.rows(r.Query(query))} == set(found)


def test_a_cycle_of_versions_ends() -> None:
    made = Catalogue()
    made.add("a", parents=("b",))
    made.add("b", parents=("a",))
    made.db.execute(
        "UPDATE parent SET base = (SELECT id FROM version WHERE hash = base_hash), base_hash = NULL"
        " WHERE base IS NULL"
    )
    fixed = r.Fixed(made.hashes["a"])
    assert made.found(r.Related("derived_from", "m", fixed)) == {"b"}
    assert made.found(r.Related("derived_from", "m", fixed, 50)) == {"b"}


def test_values(made: Catalogue) -> None:
    assert made.values(key("big"))["a"] == 2**70
    assert math.isnan(made.values(key("nan"))["a"])
    assert made.values(key("l")) == {"a": [1, 2], "b": None, "c": None, "d": None}
    assert made.values(key("bn")) == {"a": True, "b": False, "c": None, "d": None}
    assert made.values(key("lr")) == {"a": 0.1, "b": 1, "c": "x", "d": None}
    assert made.values(r.Column("m", "creation_time"))["a"] == "1970-01-02T00:00:00.000000Z"
    assert made.values(r.Listed("tag", "m"))["a"] == ["Straße", "best"]
    assert made.values(r.Listed("parents", "m"))["b"] == [made.hashes["a"]]
    assert made.values(r.Listed(nodes("conv*"), "m")) == {
        "a": ["conv1", "conv2"], "b": ["features.0", "features.3"], "c": ["conv1", "conv2"], "d": []
    }  # fmt: skip
    assert made.values(r.Constant(True))["a"] is True


@pytest.mark.parametrize(
    ("operator", "right", "found"),
    [
        ("/", 0, None),
        ("/", 4, 0.25),
        ("%", 0, None),
        ("%", -3, -2),
        ("*", 2, 2),
        ("+", "x", None),
        ("-", True, None),
    ],
)
def test_arithmetic(made: Catalogue, operator: str, right: object, found: object) -> None:
    value = r.Arithmetic(operator, key("lr"), r.Constant(right))  # type: ignore[arg-type]
    assert made.values(value)["b"] == found


def test_metric_at_a_step(made: Catalogue) -> None:
    def at(version: str, name: str, step: int) -> float | None:
        assert name == "loss"
        return {("a", 7): 0.25}.get((made.labels[version], step))

    asked = select_of(r.Whole("m"), r.MetricAt("m", "loss", 7), where=is_("=", LOSS, 0.5))
    assert made.rows(r.Query(asked), metric_at=at) == [("a", 0.25)]


def test_what_a_function_raises_comes_out(made: Catalogue) -> None:
    def at(version: str, name: str, step: int) -> float | None:
        raise KeyboardInterrupt

    asked = r.Query(select_of(r.MetricAt("m", "loss", 7)))
    with pytest.raises(KeyboardInterrupt):
        made.rows(asked, metric_at=at)
    assert not busy(made.db)
    assert len(made.rows(versions())) == 4


def test_aggregates(made: Catalogue) -> None:
    functions = ("count", "sum", "avg", "min", "max", "stddev", "median")
    asked = [r.Aggregate(function, key("lr")) for function in functions]
    ((*found,),) = made.rows(r.Query(select_of(r.Aggregate("count", None), *asked)))
    assert found == [4, 3, 1.1, 0.55, 0.1, "x", pytest.approx(0.6363961), 0.55]
    nobody = r.Query(select_of(*asked, where=r.Truth(False)))
    assert made.rows(nobody) == [(0, None, None, None, None, None, None)]
    asked = [r.Aggregate(function, NAME) for function in ("min", "max")]
    assert made.rows(r.Query(select_of(*asked))) == [("100%", "alexnet_1")]
    whole = r.Aggregate("count", r.Whole("m"))
    having = is_(">", whole, 10)
    assert made.rows(r.Query(select_of(whole, having=having))) == []


def test_groups(made: Catalogue) -> None:
    asked = select_of(key("opt"), r.Aggregate("count", None), group_by=(key("opt"),))
    assert made.rows(r.Query(asked)) == [("adam", 1), (None, 3)]
    many = is_(">", r.Aggregate("count", None), 1)
    asked = select_of(key("opt"), group_by=(key("opt"),), having=many)
    assert made.rows(r.Query(asked)) == [(None,)]
    asked = select_of(r.Whole("m"), r.Aggregate("count", None), group_by=(r.Whole("m"),))
    assert made.rows(r.Query(asked)) == [("d", 1), ("c", 1), ("b", 1), ("a", 1)]
    asked = select_of(r.NodeCount(nodes("x")), group_by=(r.NodeCount(nodes("x")),))
    assert made.rows(r.Query(asked)) == [(0,)]


def test_order(made: Catalogue) -> None:
    def order(*given: r.Order) -> str:
        return "".join(row[0] for row in made.rows(versions(order=given)))

    known = sorted("abcd", key=made.hashes.__getitem__)
    assert order(r.Order(r.Constant(1))) == "".join(known)
    assert order(r.Order(NAME)) == "dbca"
    assert order(r.Order(NAME, descending=True)) == "acbd"
    assert order(r.Order(key("lr"))) == "abcd"
    assert order(r.Order(key("lr"), descending=True)) == "cbad"
    assert order(r.Order(key("lr"), descending=True, nulls_first=True)) == "dcba"
    assert made.rows(versions(limit=2, offset=1)) == [("c",), ("b",)]
    assert made.rows(versions(limit=0)) == []


def test_distinct(made: Catalogue) -> None:
    asked = select_of(r.NodeCount(nodes("conv*")), distinct=True)
    assert made.rows(r.Query(asked)) == [(0,), (2,)]
    latest = r.Order(r.Column("m", "creation_time"), descending=True)
    assert made.rows(r.Query(asked, (latest,), limit=5)) == [(0,), (2,)]
    asked = select_of(r.Whole("m"), key("opt"), distinct=True)
    assert made.rows(r.Query(asked)) == [("d", None), ("c", None), ("b", None), ("a", "adam")]


def test_set_operations(made: Catalogue) -> None:
    convs, old = versions(r.AnyNode(nodes("conv*"))), versions(is_("=", r.Whole("n"), 1), "n")
    old = versions(r.Like(r.Column("n", "name"), r.Constant("a%")), "n")

    def both(operator: str, **more: object) -> list[str]:
        query = r.Query(r.Combined(operator, convs, old), **more)  # type: ignore[arg-type]
        return [row[0] for row in made.rows(query)]

    assert both("union") == ["c", "b", "a"]
    assert both("union all") == ["c", "c", "b", "a", "a"]
    assert both("intersect") == ["c", "a"]
    assert both("except") == ["b"]
    assert both("union", limit=1, offset=1) == ["b"]
    turned = r.Order(r.Output(0), descending=True)
    assert both("union", order=(turned,), limit=2) == ["a", "b"]
    nested = r.Query(r.Query(r.Combined("union", convs, old), limit=2), limit=1, offset=1)
    assert made.rows(nested) == [("b",)]
    many: r.Body = convs
    for _ in range(900):
        many = r.Combined("union", many, old)
    assert [row[0] for row in made.rows(r.Query(many))] == ["c", "b", "a"]


def test_variables_over_queries(made: Catalogue) -> None:
    inner = versions(r.AnyNode(nodes("conv*", variable="x")), "x", limit=2)
    query = r.Select(
        (r.Item("m", r.Whole("m")),), (r.Source("m", inner),), is_("=", key("bn"), False)
    )
    assert made.rows(r.Query(query)) == [("b",)]
    pairs = (r.Item("a", r.Whole("m")), r.Item("b", r.Whole("x")))
    sources = (r.Source("m"), r.Source("x"))
    same = r.Compare("=", r.Column("m", "net"), r.Column("x", "net"))
    found = made.rows(r.Query(r.Select(pairs, sources, same)))
    assert found == [("c", "c"), ("b", "b"), ("a", "a")]


def test_evaluations_are_metrics_of_their_data_set() -> None:
    made = Catalogue()
    made.add("a", series={"loss": 0.5, "run/acc": 0.7})
    made.add("b", series={"loss": 0.25})
    told = {"loss": 0.125, "acc": "NaN"}
    data = {"step": None, "data": {"name": "sets/test.npz"}, "metrics": told}
    facts.load(made.db, [Fact("evaluation", made.hashes["a"], "me", "2026-01-01", data)])
    assert made.values(LOSS) == {"a": 0.5, "b": 0.25}
    for figure in ("last", "min", "max"):
        assert made.values(r.Metric("m", "test/loss", figure)) == {"a": 0.125, "b": None}
    assert made.values(r.Coalesce((r.Metric("m", "test/acc", "last"),))) == {
        "a": pytest.approx(math.nan, nan_ok=True),
        "b": None,
    }
    assert made.truth(r.IsNull(r.Metric("m", "test/acc", "last"))) == {"a": False, "b": True}


def test_a_string_of_digits_is_no_number() -> None:
    made = Catalogue()
    made.add("a", series={"loss": 1.0}, parameters={"mixed": "1"})
    made.add("b", series={"loss": 1.0}, parameters={"mixed": 1})
    assert made.found(r.Compare("=", key("mixed"), LOSS)) == {"b"}


def test_derived_networks_beside_those_of_the_catalogue(made: Catalogue) -> None:
    batch = networks.insert_derived(
        made.db, [DerivedNetwork(made.hashes["a"], each, figures(each)) for each in (TORCH, PLAIN)]
    )
    again = networks.insert_derived(
        made.db, [DerivedNetwork(made.hashes["b"], TORCH, figures(TORCH))]
    )
    assert (batch, again) == (batch, batch + 1)

    def asked(
        source: object, where: r.Condition | None, *items: r.Value
    ) -> list[tuple[object, ...]]:
        titled = tuple(r.Item("x", item) for item in items or (r.Whole("m"),))
        return made.rows(r.Query(r.Select(titled, (r.Source("m", source),), where)))  # type: ignore[arg-type]

    of = r.Derived(batch)
    cells = {VersionCell(TORCH.id, (batch, 0)), VersionCell(PLAIN.id, (batch, 1))}
    assert {row[0] for row in asked(of, None)} == cells
    wide = r.AnyNode(nodes(WIDE, "prev", MAX))
    assert asked(of, wide, NAME, r.NodeCount(nodes("conv*")), LOSS, key("lr")) == [
        ("alexnet_1", 2, None, 0.1), ("alexnet_1", 2, None, 0.1)
    ]  # fmt: skip
    assert asked(of, r.AnyNode(nodes("features.0")), r.Column("m", "id")) == [(TORCH.id,)]
    assert made.rows(versions(r.AnyNode(nodes(WIDE)))) == [("b",), ("a",)]
    derived_ones = r.Query(r.Select((r.Item("d", r.Whole("d")),), (r.Source("d", of),)))
    mixed = r.Query(r.Combined("union", versions(), derived_ones))
    full = {row[0] for row in asked(mixed, r.AnyNode(nodes("fc1")))}
    assert full == {"a", VersionCell(PLAIN.id, (batch, 1))}
    measured = asked(mixed, r.IsNull(LOSS), r.NodeCount(nodes("*")))
    assert sorted(row[0] for row in measured) == [0, 4, 4, 6]  # type: ignore[type-var]
    other = r.Select(
        (r.Item("m", r.Whole("m")), r.Item("d", r.Whole("d"))),
        (r.Source("m", of), r.Source("d", r.Derived(again))),
        r.Same("m", "d"),
    )
    found = made.rows(r.Query(other))
    assert found == [(VersionCell(TORCH.id, (batch, 0)), VersionCell(TORCH.id, (again, 0)))]
    both = r.Combined("intersect", derived_ones, derived_ones)
    assert len(made.rows(r.Query(both))) == 2


def test_a_reader_may_ask_of_derived_networks_too(tmp_path: Path) -> None:
    made = Catalogue(Database(tmp_path / "c.db"))
    made.add("a", network=PLAIN)
    made.db.close()
    (tmp_path / "c.db").chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        made.db = Database(tmp_path / "c.db", create=False)
        with made.db.snapshot():
            batch = networks.insert_derived(
                made.db, [DerivedNetwork(made.hashes["a"], TORCH, figures(TORCH))]
            )
            item = r.Item("m", r.Listed(nodes(WIDE), "m"))
            query = r.Query(r.Select((item,), (r.Source("m", r.Derived(batch)),)))
            assert made.rows(query) == [(["features.3"],)]
            many = r.OneOf(NAME, tuple(map(r.Constant, "abcdefghijklmnopqrstuvwxyz")))
            assert made.found(many) == {"a"}
    finally:
        tmp_path.chmod(0o700)


def test_rows_stream_and_leave_nothing_behind(made: Catalogue) -> None:
    _, rows = select.run(made.db, versions(r.AnyNode(nodes("conv*"))))
    assert not busy(made.db)
    next(rows)
    assert busy(made.db)
    rows.close()  # type: ignore[attr-defined]
    assert not busy(made.db)
    with made.db.snapshot():
        many = r.OneOf(NAME, tuple(map(r.Constant, "abcdefghijklmnopqrstuvwxyz")))
        made.rows(versions(r.All((many, r.AnyNode(nodes("conv*"))))))
        assert not made.db.rows("SELECT 1 FROM temp.sqlite_schema WHERE name LIKE '%_list%'")


def test_one_moment_for_all_rows(tmp_path: Path) -> None:
    made = Catalogue(Database(tmp_path / "c.db"))
    made.add("a")
    made.add("b")
    _, rows = select.run(made.db, versions())
    next(rows)

    def remove() -> None:
        other = Database(tmp_path / "c.db")
        other.execute("UPDATE version SET state = 'removed'")
        other.close()

    writer = threading.Thread(target=remove)
    writer.start()
    writer.join()
    assert len(list(rows)) == 1
    assert made.rows(versions()) == []


def test_many_conditions_and_deep_ones(made: Catalogue) -> None:
    one = is_("=", NAME, "100%")
    assert made.found(r.Either((one,) * 2000)) == {"d"}
    assert made.found(r.All((one,) * 2000)) == {"d"}
    deep: r.Condition = one
    for _ in range(200):
        deep = r.Not(deep)
    assert made.found(deep) == {"d"}
    value: r.Value = r.Constant(0)
    for _ in range(300):
        value = r.Arithmetic("+", value, r.Constant(1))
    assert made.values(value)["a"] == 300
