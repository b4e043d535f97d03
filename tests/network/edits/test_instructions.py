"""Edits as they are typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dlv.network.edits.edit as editing
from dlv.errors import DlvError, NotFound, UsageError
from dlv.network.edits.instructions import Instructions, derived
from dlv.network.edits.slicing import slice as cut
from dlv.network.graph import Network
from dlv.network.patterns import template

Load = Callable[[str], Network]
RELU, GELU = template("RELU", "new"), template("ACT", "GELU", "new")


def _id(network: Network, **given: Any) -> str:
    return derived(network, Instructions(**given))[0].id


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"delete": ["pool1"]}, lambda n: editing.delete(n, "pool1")),
        ({"delete": [" norm1 "]}, lambda n: editing.delete(n, "a.bn1")),
        ({"delete": ["a.down..a.add"]}, lambda n: editing.delete_edge(n, "a.down", "a.add")),
        ({"insert": ['stem=RELU("new")']}, lambda n: editing.insert(n, "stem", RELU)),
        (
            {"insert": ['stem..a.down=RELU("new")']},
            lambda n: editing.insert(n, "stem", RELU, to="a.down"),
        ),
        ({"insert": ['..a.down=RELU("new")']}, lambda n: editing.insert_before(n, "a.down", RELU)),
        ({"insert": ['stem..=RELU("new")']}, lambda n: editing.insert(n, "stem", RELU)),
        ({"replace": ['relu1=ACT("GELU", "new")']}, lambda n: editing.replace(n, "a.relu1", GELU)),
        ({"set": ["stem.out=64"]}, lambda n: editing.set_attributes(n, "stem", out=64)),
        (
            {"set": ["conv1.kernel=[5, 5]", "conv1.pad=2"]},
            lambda n: editing.set_attributes(n, "stem", kernel=[5, 5], pad=2),
        ),
        ({"set": ["a.bn1.eps=1e-3"]}, lambda n: editing.set_attributes(n, "a.bn1", eps=1e-3)),
        ({"set": ["mean.keep=true"]}, lambda n: editing.set_attributes(n, "mean", keep=True)),
        ({"rename": ["stem=root"]}, lambda n: editing.rename(n, {"stem": "root"})),
        ({"slice": "a.conv1..a.relu2"}, lambda n: cut(n, "a.conv1", "a.relu2")),
        ({"slice": "a.bn2, a.down .. a.add"}, lambda n: cut(n, ["a.bn2", "a.down"], "a.add")),
        ({"slice": "x..conv2"}, lambda n: cut(n, "x", "a.conv1")),
    ],
)  # fmt: skip
def test_one_by_one(load: Load, given: Any, same: Any) -> None:
    network = load("lenet" if given.get("delete") == ["pool1"] else "resnet")
    assert _id(network, **given) == same(network).network.id


def test_aliases_are_those_before(load: Load) -> None:
    """relu2 is a.relu2 also when a.relu1 is gone, and conv2 when the stem was cut off."""
    made, edits = derived(
        load("resnet"), Instructions(delete=["relu1"], rename=["relu2=last"], slice="conv2..relu2")
    )
    assert [node.name for node in made.nodes if node.op == "RELU"] == ["last"]
    assert [edit.action for edit in edits] == ["slice", "slice", "slice", "delete", "rename"]


def test_all_at_once_is_checked_at_the_end(load: Load) -> None:
    made, _ = derived(
        load("resnet"), Instructions(set=["a.conv2.out=48", "a.down.out=48", "a.conv1.out=8"])
    )
    assert made.node("a.down").attrs["out"] == 48


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"set": ["conv1"]}, "is empty"),
        ({"set": ["conv1="]}, "is empty"),
        ({"set": ["out=3"]}, "names no attribute"),
        ({"set": ["a.conv1=64"]}, "names no attribute"),
        ({"set": ["conv1.out=many"]}, "'out' is 'many'"),
        ({"set": ["conv9.out=3"]}, "no layer `conv9`"),
        ({"set": ["stem.out=" + "[" * 100_000]}, "no value|is "),
        ({"insert": ["conv1"]}, "--insert 'conv1' is empty"),
        ({"insert": ["conv1=relu()"]}, "no operation 'relu'"),
        ({"insert": ["fc..stem=RELU()"]}, "no edge leads"),
        ({"replace": ["=RELU()"]}, "is empty"),
        ({"rename": ["stem"]}, "is empty"),
        ({"rename": ["stem=fc"]}, "`fc` already exists"),
        ({"slice": "stem"}, "not a slice"),
        ({"slice": "stem.."}, "not a slice"),
        ({"slice": "fc..stem"}, "no path"),
        ({"slice": "stem..nowhere"}, "no layer"),
        ({"delete": ["nowhere"]}, "no layer"),
        ({"delete": ["fc..a.add"]}, "no edge leads"),
    ],
)
def test_refused(load: Load, given: Any, words: str) -> None:
    with pytest.raises(DlvError, match=words):
        derived(load("resnet"), Instructions(**given))


def test_kinds_of_errors(load: Load) -> None:
    with pytest.raises(NotFound) as caught:
        derived(load("resnet"), Instructions(set=["stm.out=3"]))
    assert "stem" in caught.value.did_you_mean
    with pytest.raises(UsageError) as wrong:
        derived(load("resnet"), Instructions(set=["a.conv1=64"]))
    assert wrong.value.hint == "write --set a.conv1.out=64"


def test_whether_there_are_any() -> None:
    assert not Instructions()
    assert not Instructions(seed=3)
    assert Instructions(slice="")
    assert Instructions(rename=["a=b"])
