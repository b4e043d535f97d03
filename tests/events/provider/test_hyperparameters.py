"""Hyperparameters of runs: domains, groups of equal values, filters, order."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dlv.events.provider.hyperparameters import Filter, Hyperparameter, Sort, groups, listed
from dlv.events.provider.store import InvalidArgument

RUNS: list[tuple[str, dict[str, Any]]] = [
    ("a/1", {"lr": 0.1, "layers": 2, "name": "sgd", "warm": True}),
    ("a/2", {"lr": 0.1, "layers": 2, "name": "sgd", "warm": True}),
    ("b", {"lr": 0.01, "layers": 2, "name": "adam", "warm": False}),
    ("c", {"layers": 2, "name": "adam", "warm": False, "extra": [1, {"deep": None}]}),
]


def test_domains() -> None:
    assert listed(RUNS) == [
        Hyperparameter("extra", "string", ('[1, {"deep": null}]',), True),
        Hyperparameter("lr", "float", (0.01, 0.1), True),
        Hyperparameter("name", "string", ("adam", "sgd"), True),
        Hyperparameter("warm", "bool", (False, True), True),
        Hyperparameter("layers", "float", (2.0,), False),
    ]
    assert [each.name for each in listed(RUNS, 2)] == ["extra", "lr"]
    assert len(listed(RUNS, 0)) == 5


def test_many_numbers_become_an_interval() -> None:
    many = [(str(at), {"lr": at / 8}) for at in range(11)]
    assert listed(many) == [Hyperparameter("lr", "interval", (0.0, 1.25), True)]


def test_what_is_of_several_kinds_becomes_text() -> None:
    mixed: list[tuple[str, dict[str, Any]]] = [
        ("a", {"x": 1}),
        ("b", {"x": True}),
        ("c", {"x": "1"}),
        ("d", {"x": 0.5}),
    ]
    assert listed(mixed) == [Hyperparameter("x", "string", ("0.5", "1", "true"), True)]
    assert [group.values["x"] for group in groups(mixed)] == ["1", "true", "0.5"]


@pytest.mark.parametrize("nothing", [None, math.nan])
def test_what_is_unknown_is_left_out(nothing: Any) -> None:
    assert listed([("a", {"x": nothing})]) == []
    assert groups([("a", {"x": nothing})])[0].values == {}


def test_runs_with_equal_values_are_one_group() -> None:
    found = groups(RUNS)
    assert [(group.root, group.runs) for group in found] == [
        ("a", ("a/1", "a/2")),
        ("b", ("b",)),
        ("c", ("c",)),
    ]
    assert found[0].values == {"lr": 0.1, "layers": 2.0, "name": "sgd", "warm": True}


def test_the_root_is_a_folder_and_not_a_half_name() -> None:
    told = {"x": 1}
    (group, _) = groups([("net-1", told), ("net-12", told), ("other", {"x": 2})])
    assert group.root == ""
    (group, _) = groups([("x/net-1/t", told), ("x/net-1/v", told), ("z", {"x": 2})])
    assert group.root == "x/net-1"
    assert groups([("x/a", told), ("x/b", told)])[0].root == "", "all there are"


@pytest.mark.parametrize(
    ("condition", "runs"),
    [
        (Filter("name", pattern="^ad"), ["b", "c"]),
        (Filter("layers", pattern="^2$"), ["a/1", "b", "c"]),
        (Filter("warm", pattern="true"), ["a/1"]),
        (Filter("lr", interval=(0.05, 0.1)), ["a/1"]),
        (Filter("name", interval=(0, 1)), []),
        (Filter("warm", interval=(0, 1)), []),
        (Filter("lr", among=[0.01]), ["b"]),
        (Filter("warm", among=[True]), ["a/1"]),
        (Filter("warm", among=[1]), []),
        (Filter("nobody", among=[None]), []),  # type: ignore[list-item]
    ],
)
def test_filters(condition: Filter, runs: list[str]) -> None:
    assert [group.runs[0] for group in groups(RUNS, [condition])] == runs


def test_all_filters_must_admit() -> None:
    both = [Filter("name", pattern="adam"), Filter("lr", among=[0.01])]
    assert [group.runs for group in groups(RUNS, both)] == [("b",)]


def test_order_by_the_first_then_by_the_next() -> None:
    def order(*sort: Sort) -> list[str]:
        return [group.runs[0] for group in groups(RUNS, sort=sort)]

    assert order(Sort("lr")) == ["b", "a/1", "c"], "what has none comes last"
    assert order(Sort("lr", descending=True)) == ["a/1", "b", "c"]
    assert order(Sort("name"), Sort("lr")) == ["b", "c", "a/1"]
    assert order(Sort("layers"), Sort("name", descending=True)) == ["a/1", "b", "c"]


def test_only_what_is_wanted_and_what_was_filtered_and_sorted_by() -> None:
    found = groups(RUNS, [Filter("lr", among=[0.1])], [Sort("warm")], include=["name"])
    assert found[0].values == {"lr": 0.1, "name": "sgd", "warm": True}
    assert groups(RUNS, include=[])[0].values == {}


@pytest.mark.parametrize(
    "asked", [{"pattern": "("}, {"pattern": "a" * 1001}, {}, {"pattern": "a", "among": ["a"]}]
)
def test_filters_that_are_none(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Filter("name", **asked)


def test_huge_numbers() -> None:
    assert groups([("a", {"x": 10**400})])[0].values == {"x": math.inf}
