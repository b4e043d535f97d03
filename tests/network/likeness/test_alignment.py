"""Layers found again: renamed, moved, with others put in between, in networks of all sizes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dlv.network.edits.edit as editing
from dlv.errors import DlvError
from dlv.network.graph import Input, Network, Node
from dlv.network.inference import node_shapes
from dlv.network.json_form import read
from dlv.network.likeness.alignment import align, ordered
from dlv.network.patterns import template
from dlv.network.vocabulary import complete

Json = dict[str, Any]
IMAGE = Input("x", ("B", 3, 32, 32))
SLOTS = {
    "CONV": ("weight", "bias"),
    "FULL": ("weight", "bias"),
    "NORM": ("weight", "bias", "running_mean", "running_var"),
}
VARIANTS = {"NORM": "BATCH", "POOL": "MAX", "ACT": "GELU"}


def _node(name: str, op: str, *sources: str, **attrs: Any) -> Node:
    variant = attrs.pop("variant", VARIANTS.get(op))
    params = {slot: f"{name}.{slot}" for slot in SLOTS.get(op, ())}
    made = complete(op, variant, attrs, axes=2, params=params)
    return Node(name, op, variant, made, tuple((source, 0) for source in sources), params)


def _layer(text: str, source: str) -> Node:
    """`conv1:CONV 20` as a node; the number is how many channels it makes."""
    name, _, rest = text.partition(":")
    op, _, out = rest.partition(" ")
    attrs: Json = {"out": int(out)} if out else {}
    if op == "CONV":
        attrs |= {"kernel": 3, "pad": 1}
    if op == "POOL":
        attrs |= {"kernel": 2, "stride": 2}
    return _node(name, op, source, **attrs)


def _chain(*texts: str) -> Network:
    nodes: list[Node] = []
    for text in texts:
        nodes.append(_layer(text, nodes[-1].name if nodes else "x"))
    return Network((IMAGE,), tuple(nodes), ((nodes[-1].name, 0),) if nodes else ())


def _pairs(old: Network, new: Network) -> set[tuple[str | None, str | None]]:
    found = align(old, new)
    return {
        *((a.name, b.name) for a, b in found.pairs),
        *((a.name, None) for a in found.removed),
        *((None, b.name) for b in found.added),
    }


def _same(*names: str) -> set[tuple[str | None, str | None]]:
    return {(name, name) for name in names}


class TestSmall:
    def test_an_inserted_layer(self) -> None:
        old = _chain("conv1:CONV 20", "relu1:RELU", "fc:FULL 10")
        new = _chain("conv1:CONV 20", "relu1:RELU", "act:ACT", "fc:FULL 10")
        assert _pairs(old, new) == {*_same("conv1", "relu1", "fc"), (None, "act")}

    def test_renamed_layers_are_found_by_what_they_do(self) -> None:
        old = _chain("conv1:CONV 20", "relu1:RELU", "conv2:CONV 50", "relu2:RELU", "ip:FULL 10")
        new = _chain("a:CONV 20", "b:RELU", "c:CONV 64", "d:RELU", "e:FULL 10")
        names = ["conv1", "relu1", "conv2", "relu2", "ip"]
        assert _pairs(old, new) == set(zip(names, "abcde", strict=True))

    def test_places_in_a_list_shift(self) -> None:
        """In torch's Sequential a layer put in renames all that follow."""
        old = _chain(
            *("f.0:CONV 16", "f.1:RELU", "f.2:CONV 32", "f.3:RELU", "f.4:CONV 64", "f.5:RELU")
        )
        new = _chain(
            *("f.0:CONV 16", "f.1:NORM", "f.2:DROPOUT", "f.3:RELU", "f.4:CONV 32", "f.5:RELU"),
            *("f.6:CONV 64", "f.7:RELU"),
        )
        assert _pairs(old, new) == {
            *(("f.0", "f.0"), ("f.1", "f.3"), ("f.2", "f.4"), ("f.3", "f.5"), ("f.4", "f.6")),
            *(("f.5", "f.7"), (None, "f.1"), (None, "f.2")),
        }

    def test_so_do_numbers_that_count(self) -> None:
        """What was conv2 is conv3 now, weights and all."""
        old = _chain("conv1:CONV 16", "relu1:RELU", "conv2:CONV 64", "relu2:RELU", "fc:FULL 10")
        new = _chain(
            *("conv1:CONV 16", "relu1:RELU", "conv2:CONV 32", "relu2:RELU", "conv3:CONV 64"),
            *("relu3:RELU", "fc:FULL 10"),
        )
        assert {("conv2", "conv3"), (None, "conv2"), ("fc", "fc")} <= _pairs(old, new)

    def test_places_in_a_list_stay_where_nothing_was_put_in(self) -> None:
        old = _chain("f.0:CONV 16", "f.1:RELU", "f.2:CONV 32", "f.3:RELU")
        new = _chain("f.0:CONV 32", "f.1:RELU", "f.2:CONV 64", "f.3:RELU")
        assert _pairs(old, new) == _same("f.0", "f.1", "f.2", "f.3")

    def test_a_given_name_counts_more_than_attributes(self) -> None:
        old = _chain("stem:CONV 20", "body:CONV 50", "head:FULL 3")
        new = _chain("stem:CONV 50", "more:CONV 20", "body:CONV 51", "head:FULL 3")
        assert _pairs(old, new) == {*_same("stem", "body", "head"), (None, "more")}

    def test_names_that_changed_places_with_nothing_else(self) -> None:
        """The networks are equal up to names, whatever these say."""
        old, new = _chain("a:CONV 20", "b:CONV 50"), _chain("b:CONV 20", "a:CONV 50")
        assert _pairs(old, new) == {("a", "b"), ("b", "a")}
        assert align(old, new).equality is not None

    def test_names_that_mislead(self) -> None:
        """Nearly everything fits if the names do not count, hardly anything if they do."""
        old = _chain(
            *("one:CONV 16", "two:RELU", "three:POOL", "four:CONV 32", "five:ACT", "six:FULL 9")
        )
        new = _chain(
            *("four:CONV 16", "five:NORM", "two:RELU", "six:POOL", "one:CONV 32", "three:ACT"),
            "head:FULL 9",
        )
        assert _pairs(old, new) == {
            *(("one", "four"), ("two", "two"), ("three", "six"), ("four", "one")),
            *(("five", "three"), ("six", "head"), (None, "five")),
        }

    def test_another_operation_under_the_same_name(self) -> None:
        old, new = _chain("c:CONV 1", "act:RELU"), _chain("c:CONV 1", "act:ACT")
        assert _pairs(old, new) == _same("c", "act")
        old, new = _chain("c1:CONV 1", "act1:RELU"), _chain("c1:CONV 1", "act1:ACT")
        assert _pairs(old, new) == _same("c1", "act1")

    def test_position_counts_between_known_layers(self) -> None:
        """A RELU gone at the front and one come at the end are not one that moved."""
        old = _chain("r1:RELU", "c1:CONV 8", "c2:CONV 9")
        new = _chain("c1:CONV 8", "c2:CONV 9", "r2:RELU")
        assert {(None, "r2"), ("r1", None)} <= _pairs(old, new)

    @pytest.mark.parametrize("names", ["conv relu pool", "a b c"])
    def test_two_layers_that_changed_places(self, names: str) -> None:
        conv, relu, pool = names.split()
        old = _chain("conv:CONV 8", "relu:RELU", "pool:POOL", "fc:FULL 3")
        new = _chain(f"{conv}:CONV 8", f"{pool}:POOL", f"{relu}:RELU", "fc:FULL 3")
        wanted = {("conv", conv), ("relu", relu), ("pool", pool), ("fc", "fc")}
        assert _pairs(old, new) == wanted

    def test_plumbing_is_found_between_what_it_joins(self) -> None:
        def net(conv: str, flat: str, fc: str, kind: str) -> Network:
            size = {"size": ["B", -1]} if kind == "view" else {}
            nodes = (
                _node(conv, "CONV", "x", out=4, kernel=3),
                _node(flat, "RESHAPE", conv, kind=kind, **size),
                _node(fc, "FULL", flat, out=3),
            )
            return Network((IMAGE,), nodes, ((fc, 0),))

        old, new = net("a", "b", "c", "flatten"), net("d", "e", "f", "view")
        assert _pairs(old, new) == {("a", "d"), ("b", "e"), ("c", "f")}

    def test_nodes_on_a_cycle_are_not_lost(self) -> None:
        a = Node("a", "RELU", None, {"slope": 0.0}, (("b", 0),))
        b = Node("b", "RELU", None, {"slope": 0.0}, (("a", 0),))
        c = Node("c", "RELU", None, {"slope": 0.0}, (("x", 0),))
        network = Network((IMAGE,), (a, b, c), (("c", 0),))
        assert [node.name for node in ordered(network)] == ["c", "a", "b"]
        assert len(align(network, network).pairs) == 3


def _resnet(blocks: list[int], prefix: str = "", rename: bool = False) -> Network:
    """As torchvision builds them: basic blocks in four stages."""
    nodes: list[Node] = []
    count = 0

    def add(name: str, op: str, *sources: str, **attrs: Any) -> str:
        nonlocal count
        count += 1
        made = _node(f"n{count:03}x" if rename else prefix + name, op, *sources, **attrs)
        nodes.append(made)
        return made.name

    last = add("conv1", "CONV", "x", out=64, kernel=7, stride=2, pad=3)
    last = add("bn1", "NORM", last)
    last = add("relu", "RELU", last)
    last = add("maxpool", "POOL", last, kernel=3, stride=2, pad=1)
    for stage, many in enumerate(blocks, 1):
        width = 64 << (stage - 1)
        for block in range(many):
            name, start = f"layer{stage}.{block}", last
            step = 2 if stage > 1 and block == 0 else 1
            last = add(f"{name}.conv1", "CONV", start, out=width, kernel=3, stride=step, pad=1)
            last = add(f"{name}.bn1", "NORM", last)
            last = add(f"{name}.relu", "RELU", last)
            last = add(f"{name}.conv2", "CONV", last, out=width, kernel=3, pad=1)
            last = add(f"{name}.bn2", "NORM", last)
            if step == 2:
                start = add(f"{name}.downsample.0", "CONV", start, out=width, kernel=1, stride=2)
                start = add(f"{name}.downsample.1", "NORM", start)
            last = add(f"{name}.add", "ADD", last, start)
            last = add(f"{name}.relu_1", "RELU", last)
    last = add("avgpool", "POOL", last, variant="AVG", size=[1, 1])
    last = add("flatten", "RESHAPE", last, kind="flatten")
    last = add("fc", "FULL", last, out=1000)
    return Network((IMAGE,), tuple(nodes), ((last, 0),))


EIGHTEEN, THIRTY_FOUR = [2, 2, 2, 2], [3, 4, 6, 3]


class TestResnets:
    def test_by_name(self) -> None:
        found = align(_resnet(EIGHTEEN), _resnet(THIRTY_FOUR))
        assert all(a.name == b.name for a, b in found.pairs)
        assert not found.removed
        assert len(found.added) == 8 * 7
        assert all(int(node.name.split(".")[1]) >= 2 for node in found.added)

    def test_by_what_they_do(self) -> None:
        """Which of the equal blocks are the new ones nobody can know, but each stays whole."""
        old, new = _resnet(EIGHTEEN), _resnet(THIRTY_FOUR, rename=True)
        names = {b.name: a.name for a, b in zip(_resnet(THIRTY_FOUR).nodes, new.nodes, strict=True)}
        found = align(old, new)
        assert not found.removed
        for a, b in found.pairs:
            ours, theirs = a.name.split("."), names[b.name].split(".")
            assert (ours[0], ours[2:]) == (theirs[0], theirs[2:])
        blocks: dict[str, set[str]] = {}
        for a, b in found.pairs:
            if a.name.startswith("layer"):
                block = ".".join(a.name.split(".")[:2])
                blocks.setdefault(block, set()).add(".".join(names[b.name].split(".")[:2]))
        assert all(len(each) == 1 for each in blocks.values())

    def test_renamed_and_stored_in_another_order(self) -> None:
        old, new = _resnet(EIGHTEEN), _resnet(EIGHTEEN, rename=True)
        nodes = list(new.nodes)
        random.Random(1).shuffle(nodes)
        found = align(old, Network(new.inputs, tuple(nodes), new.outputs))
        expected = {a.name: b.name for a, b in zip(old.nodes, new.nodes, strict=True)}
        assert {a.name: b.name for a, b in found.pairs} == expected
        assert found.equality is not None

    def test_sums_the_other_way_round_and_a_layer_more(self) -> None:
        old, new = _resnet(EIGHTEEN), _resnet(EIGHTEEN, rename=True)
        expected = {a.name: b.name for a, b in zip(old.nodes, new.nodes, strict=True)}
        nodes = [
            replace(node, inputs=node.inputs[::-1]) if node.op == "ADD" else node
            for node in new.nodes
        ]
        turned = Network(new.inputs, tuple(nodes), new.outputs)
        where = expected["layer2.0.relu"]
        made = editing.insert(turned, where, template("DROPOUT", "new", p=0.1)).network
        made = editing.insert(
            made, expected["layer4.1.bn1"], template("ACT", "TANH", "one")
        ).network
        found = align(old, made)
        assert {a.name: b.name for a, b in found.pairs} == expected
        assert {node.name for node in found.added} == {"new", "one"}

    def test_a_block_that_is_repeated(self) -> None:
        old, new = _resnet([2, 2, 2, 2]), _resnet([2, 3, 2, 2], rename=True)
        found = align(old, new)
        assert (len(found.removed), len(found.added)) == (0, 7)

    def test_a_prefix(self) -> None:
        found = align(_resnet(EIGHTEEN), _resnet(EIGHTEEN, prefix="backbone."))
        assert all(b.name == f"backbone.{a.name}" for a, b in found.pairs)
        assert not found.removed

    def test_wider(self) -> None:
        wide = _resnet(EIGHTEEN, rename=True)
        editor = editing.Editor(wide)
        for node in wide.nodes:
            if node.op == "CONV":
                editor.set_attributes(node.name, out=node.attrs["out"] * 2)
        found = align(_resnet(EIGHTEEN), editor.finish().network)
        assert [b.name for _, b in found.pairs] == [node.name for node in wide.nodes]


# Random edit scripts: what is left of the source is known, so what is found can be counted.


def _random_net(source: random.Random, size: int, branches: bool) -> Network:
    nodes: list[Node] = []
    last, width = "x", 3

    def add(op: str, *sources: str, **attrs: Any) -> str:
        made = _node(f"{op.lower()}_{len(nodes)}", op, *sources, **attrs)
        nodes.append(made)
        return made.name

    while len(nodes) < size:
        kind = source.random()
        if kind < 0.45:
            width, kernel = source.choice([width, 8, 16, 32]), source.choice([1, 3, 3, 5])
            last = add("CONV", last, out=width, kernel=kernel, pad=kernel // 2)
            last = add("NORM", last) if source.random() < 0.5 else last
            last = add("RELU", last) if source.random() < 0.7 else last
        elif kind < 0.7:
            op = source.choice(["RELU", "DROPOUT", "ACT", "ACT"])
            variant = {"variant": source.choice(["TANH", "GELU"])} if op == "ACT" else {}
            last = add(op, last, **variant)
        elif kind < 0.75:
            last = add("POOL", last, kernel=3, stride=1, pad=1)
        elif branches:
            for _ in range(source.choice([1, 1, 2, 3])):
                side = last if nodes and source.random() < 0.5 and last != "x" else None
                start = last
                for op in ("CONV", "NORM", "RELU", "CONV"):
                    attrs = {"out": width, "kernel": 3, "pad": 1} if op == "CONV" else {}
                    last = add(op, last, **attrs)
                shape = None if side is None else node_shapes(_made(nodes))[side][0]
                if side is None or shape is None or shape[1] != width:
                    side = add("CONV", start, out=width, kernel=1)
                last = add("ADD", last, side)
    last = add("POOL", last, variant="MEAN", axis=[2, 3])
    add("FULL", last, out=10)
    return _made(nodes)


def _made(nodes: list[Node]) -> Network:
    return Network((IMAGE,), tuple(nodes), ((nodes[-1].name, 0),))


def _edited(source: random.Random, network: Network, count: int) -> Network:
    """So many things put in, taken out, replaced and resized."""
    done = 0
    for number in range(count * 40):
        if done == count:
            break
        name = source.choice([node.name for node in network.nodes])
        node = network.node(name)
        kind = source.choice(["insert", "insert", "delete", "set", "replace"])
        new = f"new {number}"
        acts = [template("RELU", new), template("DROPOUT", new), template("ACT", "TANH", new)]
        try:
            if kind == "insert":
                shape = node_shapes(network)[name][0] or ()
                more = [template("NORM", "BATCH", new)]
                if len(shape) == 4:
                    more.append(template("CONV", new, out=shape[1], kernel=3, pad=1))
                network = editing.insert(network, name, source.choice([*acts, *more])).network
            elif kind == "delete":
                network = editing.delete(network, name).network
            elif kind == "set" and node.op == "CONV":
                size = source.choice([1, 3, 5, 7])
                network = editing.set_attributes(network, name, kernel=size, pad=size // 2).network
            elif kind == "replace" and node.op in ("RELU", "ACT", "DROPOUT"):
                network = editing.replace(network, name, source.choice(acts)).network
            else:
                continue
        except DlvError:
            continue
        done += 1
    return network


def _recovered(seed: int, size: int, edits: int, share: float, branches: bool) -> tuple[int, int]:
    """How many layers of the source were found again, of those that are still there."""
    source = random.Random(seed)
    old = _random_net(source, size, branches)
    new = _edited(source, old, edits)
    kept = {node.name for node in new.nodes} & {node.name for node in old.nodes}
    names = {
        node.name: f"z{number * 7919 % 10007}z"
        for number, node in enumerate(new.nodes)
        if source.random() < share
    }
    new = editing.rename(new, names).network
    found = {a.name: b.name for a, b in align(old, new).pairs}
    return sum(found.get(name) == names.get(name, name) for name in kept), len(kept)


@pytest.mark.parametrize("branches", [False, True], ids=["chains", "branches"])
@pytest.mark.parametrize(
    ("share", "least"), [(0.0, 0.99), (0.5, 0.97), (1.0, 0.95)], ids=["named", "half", "renamed"]
)
def test_random_edit_scripts(share: float, least: float, branches: bool) -> None:
    right = there = 0
    for seed in range(12):
        found = _recovered(seed, 30, 4, share, branches)
        right, there = right + found[0], there + found[1]
    assert right / there >= least


def test_a_thousand_layers_in_seconds() -> None:
    source = random.Random(3)
    old = _random_net(source, 1000, True)
    new = _edited(source, old, 10)
    names = {node.name: f"z{i}" for i, node in enumerate(new.nodes)}
    renamed = editing.rename(new, names).network
    started = time.process_time()
    found = align(old, renamed)
    assert time.process_time() - started < 8
    right = sum(names.get(a.name) == b.name for a, b in found.pairs)
    assert right / len(found.pairs) > 0.95


# Whatever is compared


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_every_node_stands_once_and_both_ways_agree(
    data: st.DataObject, random_network: st.SearchStrategy[Json]
) -> None:
    old, new = (read(data.draw(random_network))[0] for _ in range(2))
    found = align(old, new)
    before, after = [n.name for n in old.nodes], [n.name for n in new.nodes]
    assert sorted([a.name for a, _ in found.pairs] + [a.name for a in found.removed]) == (
        sorted(before)
    )
    assert sorted([b.name for _, b in found.pairs] + [b.name for b in found.added]) == (
        sorted(after)
    )
    back = align(new, old)
    assert {(a.name, b.name) for b, a in back.pairs} == {(a.name, b.name) for a, b in found.pairs}
    place = {node.name: i for i, node in enumerate(ordered(old))}
    assert [a.name for a, _ in found.pairs] == sorted(
        (a.name for a, _ in found.pairs), key=place.__getitem__
    )


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_network_is_itself(data: st.DataObject, random_network: st.SearchStrategy[Json]) -> None:
    network = read(data.draw(random_network))[0]
    found = align(network, network)
    assert (found.removed, found.added) == ((), ())
    assert all(a.op == b.op for a, b in found.pairs)


def test_every_node_of_renamed_networks_is_found(
    load: Callable[[str], Network], named: str
) -> None:
    """Plumbing too, also what only brings sizes."""
    network = load(named)
    names = {node.name: f"new {place}" for place, node in enumerate(network.nodes)}
    found = align(network, editing.rename(network, names).network)
    assert {a.name: b.name for a, b in found.pairs} == names


def test_named_networks_are_themselves(load: Callable[[str], Network], named: str) -> None:
    network = load(named)
    found = align(network, network)
    assert [(a.name, b.name) for a, b in found.pairs] == [
        (node.name, node.name) for node in ordered(network)
    ]
