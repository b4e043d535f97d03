"""Actions of `mutate`: their places, their order, and what they must not do."""

from __future__ import annotations

from typing import Any

import pytest

from dlv.dql import deriving
from dlv.dql.bind.bound import Change, Delete, Insert, Replace, Set
from dlv.dql.deriving import NothingFits
from dlv.dql.matching import Layers
from dlv.errors import Conflict, UsageError
from dlv.network.edits.edit import Editor
from dlv.network.graph import Network
from tests.dql import work
from tests.dql.work import NEXT, insert, making, nodes

RELU = making("RELU")


def changed(network: Network, *changes: Change, value: Any = None) -> Network:
    tasks = deriving.find_tasks(Layers(network), changes, ())
    tasks = [
        deriving.Task(t.change, t.places, t.change.values[0] if isinstance(t.change, Set) else None)
        for t in tasks
    ]
    editor = Editor(network)
    deriving.do_tasks(editor, tasks)
    return editor.finish().network


def reads(network: Network, name: str) -> list[str]:
    return [producer for producer, _ in network.node(name).inputs]


class TestInsert:
    def test_right_behind_taking_over_all_readers(self) -> None:
        made = changed(work.forked(), insert("stem", making("RELU", "r")))
        assert (reads(made, "a"), reads(made, "add")) == (["r"], ["b", "r"])

    def test_a_list_is_a_chain(self) -> None:
        made = changed(work.alexnet(), insert("conv*($1)", making("NORM", "BATCH", "bn$1"), RELU))
        assert reads(made, "bn3") == ["conv3"]
        assert [reads(made, f"relu{n}") for n in range(1, 6)] == [[f"bn{n}"] for n in range(1, 6)]
        assert reads(made, "conv4") == ["relu3"]

    def test_on_one_edge(self) -> None:
        made = changed(work.forked(), insert("stem", making("RELU", "r"), to=nodes("add")))
        assert (reads(made, "a"), reads(made, "add")) == (["stem"], ["b", "r"])

    def test_on_the_edges_that_are_there(self) -> None:
        """Of each pair of a node and a pool only those with an edge between them."""
        made = changed(
            work.alexnet(), insert("conv*($1)", making("RELU", "r$1"), to=nodes("pool*"))
        )
        assert [n.name for n in made.nodes if n.op == "RELU"] == ["r1", "r2", "r5"]

    def test_no_such_edge(self) -> None:
        with pytest.raises(NothingFits, match=r'no edge leads from m\["conv1"\] to m\["fc8"\]'):
            changed(work.alexnet(), insert("conv1", RELU, to=nodes("fc8")))

    def test_before(self) -> None:
        wanted = Insert(nodes("conv1", NEXT, "pool*"), (making("NORM", "BATCH"),), before=True)
        assert reads(changed(work.alexnet(), wanted), "pool1") == ["norm1"]

    def test_before_behind_the_plumbing(self) -> None:
        made = changed(work.alexnet(), Insert(nodes("fc6"), (RELU,), before=True))
        assert (reads(made, "fc6"), reads(made, "relu1")) == (["relu1"], ["flat"])

    def test_before_one_of_several_inputs(self) -> None:
        with pytest.raises(UsageError, match="several inputs"):
            changed(work.forked(), Insert(nodes("add"), (RELU,), before=True))
        wanted = Insert(nodes("add"), (making("RELU", "r"),), before=True, source=nodes("stem"))
        assert reads(changed(work.forked(), wanted), "add") == ["b", "r"]

    def test_behind_an_input(self) -> None:
        made = changed(work.alexnet(), insert("data", making("NORM", "BATCH", "n")))
        assert reads(made, "conv1") == ["n"]

    def test_two_behind_one_node(self) -> None:
        """The later one stands right behind it."""
        made = changed(
            work.alexnet(),
            insert("conv1", making("RELU", "r")),
            insert("conv1", making("NORM", "BATCH", "n")),
        )
        assert [reads(made, name) for name in ("n", "r", "pool1")] == [["conv1"], ["n"], ["r"]]


class TestOthers:
    def test_replace(self) -> None:
        made = changed(work.forked(), Replace(nodes("relu*"), (making("ACT", "GELU", "gelu1"),)))
        assert (reads(made, "b"), reads(made, "gelu1")) == (["gelu1"], ["a"])
        assert "relu" not in made

    def test_replace_by_one_of_the_same_name(self) -> None:
        wanted = Replace(nodes("relu"), (making("ACT", "TANH", "relu"),))
        assert changed(work.forked(), wanted).node("relu").variant == "TANH"

    def test_delete(self) -> None:
        made = changed(work.alexnet(), Delete(nodes("drop*")), Delete(nodes("pool[1,2]")))
        assert reads(made, "fc7") == ["fc6"]
        assert reads(made, "conv3") == ["conv2"]

    def test_delete_an_edge(self) -> None:
        """A sum of one thing is that thing."""
        made = changed(work.forked(), Delete(nodes("stem"), nodes("add")))
        assert reads(made, "pool") == ["b"]
        assert "add" not in made

    def test_inputs_cannot_be_deleted(self) -> None:
        with pytest.raises(NothingFits, match="no match for"):
            changed(work.alexnet(), Delete(nodes("data")))

    def test_a_number_stands_for_all_axes(self) -> None:
        made = changed(
            work.alexnet(), Set(nodes("conv*"), "kernel", (5,)), Set(nodes("conv*"), "pad", (2,))
        )
        assert made.node("conv4").attrs["kernel"] == (5, 5)
        assert made.node("conv4").attrs["pad"] == ((2, 2), (2, 2))

    def test_sizes_follow(self) -> None:
        made = changed(work.alexnet(), Set(nodes("conv5"), "out", (16,)))
        assert work.tensors(made)["fc6.weight"][1] == (32, 256)

    def test_variant(self) -> None:
        made = changed(work.alexnet(), Set(nodes("pool*"), "variant", ("MAX",)))
        assert [n.variant for n in made.nodes if n.op == "POOL"] == ["MAX"] * 3
        assert made.node("pool1").attrs["kernel"] == (2, 2)

    def test_a_variant_with_what_it_needs(self) -> None:
        at = nodes("pool*")
        made = changed(work.alexnet(), Set(at, "variant", ("MAX",)), Set(at, "ceil", (True,)))
        assert made.node("pool1").attrs["ceil"] is True
        network = changed(work.alexnet(), insert("conv1", making("NORM", "BATCH", "n")))
        at = nodes("n")
        made = changed(network, Set(at, "variant", ("GROUP",)), Set(at, "groups", (2,)))
        assert made.node("n").attrs["groups"] == 2

    def test_set_twice_the_last_one_counts(self) -> None:
        made = changed(
            work.alexnet(), Set(nodes("fc6"), "out", (4,)), Set(nodes("fc6"), "out", (5,))
        )
        assert made.node("fc6").attrs["out"] == 5

    def test_an_attribute_that_a_node_has_not(self) -> None:
        with pytest.raises(UsageError, match="unknown attribute 'rows' of CONV"):
            changed(work.alexnet(), Set(nodes("conv1"), "rows", (5,)))
        with pytest.raises(UsageError, match="CONV"):
            changed(work.alexnet(), Set(nodes("conv1"), "variant", ("AVG",)))

    def test_a_value_that_cannot_be(self) -> None:
        with pytest.raises(UsageError, match="kernel"):
            changed(work.alexnet(), Set(nodes("conv1"), "kernel", ("five",)))


class TestOrder:
    def test_all_places_are_found_before_anything_is_done(self) -> None:
        """The relu that is put in is not one of those that are deleted."""
        made = changed(work.forked(), insert("a", making("RELU", "relu9")), Delete(nodes("relu*")))
        assert "relu9" in made
        assert "relu" not in made

    def test_a_node_that_was_taken_away(self) -> None:
        with pytest.raises(UsageError) as caught:
            changed(work.forked(), Delete(nodes("relu")), insert("rel*", RELU))
        assert str(caught.value) == '`m["rel*"].insert = RELU()` cannot be done at `relu`'
        assert caught.value.why == '`m["relu"].delete` deleted it'

    def test_also_where_its_name_is_there_again(self) -> None:
        with pytest.raises(UsageError, match="cannot be done at `relu`"):
            changed(
                work.forked(),
                Replace(nodes("relu"), (making("ACT", "TANH", "relu"),)),
                Delete(nodes("relu")),
            )

    def test_the_end_of_an_edge_that_was_taken_away(self) -> None:
        with pytest.raises(UsageError, match="cannot be done at `add`"):
            changed(
                work.forked(),
                Delete(nodes("stem"), nodes("add")),
                insert("b", RELU, to=nodes("add")),
            )


class TestNames:
    def test_of_two_new_nodes(self) -> None:
        with pytest.raises(Conflict) as caught:
            changed(work.alexnet(), insert("conv*", making("RELU", "r")))
        text = '`m["conv*"].insert = RELU("r")`'
        assert str(caught.value) == "two nodes would be named `r`"
        assert caught.value.why == (
            f"the new one of {text} at `conv2`, and that of {text} at `conv1`"
        )

    def test_of_a_node_of_the_network(self) -> None:
        with pytest.raises(Conflict) as caught:
            changed(work.alexnet(), insert("conv1", making("RELU", "pool1")))
        assert str(caught.value.why).endswith("and the POOL of the network")
        with pytest.raises(Conflict, match="`data`") as caught:
            changed(work.alexnet(), insert("conv1", making("RELU", "data")))
        assert str(caught.value.why).endswith("and an input of the network")

    def test_within_one_list(self) -> None:
        with pytest.raises(Conflict, match="two nodes would be named `r`"):
            changed(work.alexnet(), insert("conv1", making("RELU", "r"), making("RELU", "r")))

    def test_given_by_number_they_are_always_the_same(self) -> None:
        wanted = insert("conv*", RELU)
        made = changed(work.alexnet(), wanted)
        assert [n.name for n in made.nodes if n.op == "RELU"] == [f"relu{n}" for n in range(1, 6)]
        assert made == changed(work.alexnet(), wanted)

    def test_with_what_both_ends_of_an_edge_have_captured(self) -> None:
        wanted = insert("conv($1)", making("RELU", "c$1p$2"), to=nodes("pool($2)"))
        made = changed(work.alexnet(), wanted)
        assert [n.name for n in made.nodes if n.op == "RELU"] == ["c1p1", "c2p2", "c5p5"]

    def test_that_are_none(self) -> None:
        with pytest.raises(UsageError):
            changed(work.alexnet(), insert("conv1", making("RELU", "")))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            insert("a", making("POOL", "MAX", "p", kernel=2)),
            'm["a"].insert = POOL("MAX", "p", kernel=2)',
        ),
        (insert("a", RELU, RELU, to=nodes("b")), 'm["a"].insert(to=m["b"]) = [RELU(), RELU()]'),
        (
            Insert(nodes("a"), (RELU,), before=True, source=nodes("b")),
            'm["a"].insert_before(from=m["b"]) = RELU()',
        ),
        (Replace(nodes("a", NEXT), (RELU,)), 'm["a"].next.replace = RELU()'),
        (Delete(nodes("a"), nodes("b")), 'm["a"].delete = m["b"]'),
        (Set(nodes("a"), "variant", ("MAX", "AVG")), 'm["a"].variant = "MAX", "AVG"'),
    ],
)
def test_in_words(change: Change, text: str) -> None:
    assert deriving.change_text(change) == text
