"""Derived networks held against what networkx says they must be, edge by edge, and computed."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.dql import deriving
from dlv.dql.bind.bound import Change, Delete, Insert, Replace, Set
from dlv.errors import UsageError
from dlv.network.forward import Forward
from dlv.network.graph import Network
from dlv.network.ops.shape import SIZE_KINDS
from dlv.network.program import program
from tests.dql import work
from tests.dql.work import making, nodes

Read = tuple[str, int, str, int]  # of a port by a port; outputs are the ports of ""
QUICK = settings(max_examples=60, deadline=None)


def drawn(lot: Random) -> Network:
    """Layers on maps of one shape, so that nearly every edit of them is sound."""
    made: list[dict[str, Any]] = []
    known = ["data"]
    for number in range(lot.randint(3, 16)):
        below = known[-1] if lot.random() < 0.5 else lot.choice(known)
        name, other = f"n{number}", lot.choice(known)
        kinds = [
            work.node(name, "CONV", [below], out=3, kernel=3, pad=1),
            work.node(name, "RELU", [below]),
            work.node(name, "DROPOUT", [below], p=0.5),
            work.node(name, "ACT", [below], variant="TANH"),
            work.node(name, "ADD", [below, other]),
            work.node(name, "RESHAPE", [below], kind="contiguous"),
        ]
        made.append(lot.choice(kinds))
        known.append(name)
    return work.chain(*made, shape=(3, 5, 5))


def reads(network: Network) -> set[Read]:
    inner = {
        (name, port, node.name, place)
        for node in network.nodes
        for place, (name, port) in enumerate(node.inputs)
    }
    ends = {(name, port, "", place) for place, (name, port) in enumerate(network.outputs)}
    return inner | ends


def graph(found: Iterable[Read]) -> Any:
    return nx.DiGraph([(source, target) for source, _, target, _ in found])


def alive(found: set[Read], network: Network) -> set[Read]:
    """Without what was needed for an output before and is not now."""
    before, after = (nx.ancestors(graph(each), "") for each in (reads(network), found))
    gone = before - after
    return {each for each in found if each[0] not in gone and each[2] not in gone}


def changed(network: Network, *changes: Change) -> Network | str:
    try:
        made = deriving.derive(work.construct(*changes), [work.origin(network)], strict=False)
    except UsageError as error:
        return error.message
    return made.models[0].network


@pytest.fixture(params=["lenet", "resnet16"])
def real(request: pytest.FixtureRequest) -> Network:
    pytest.importorskip("torch", reason="torch makes the networks: dlv[torch]")
    traced: Any = pytest.importorskip("tests.zoo.traced")
    found: Network = traced.traced(request.param).network
    return found


# What each action must do to the edges


def insertion(found: set[Read], name: str, new: str) -> set[Read]:
    moved = {(new, 0, *read[2:]) if read[0] == name else read for read in found}
    return moved | {(name, 0, new, 0)}


def deletion(found: set[Read], name: str) -> set[Read]:
    ((source, port, _, _),) = (read for read in found if read[2] == name)
    kept = {read for read in found if name not in (read[0], read[2])}
    return kept | {(source, port, *read[2:]) for read in found if read[0] == name}


def replacement(found: set[Read], name: str, new: str) -> set[Read]:
    turned = {name: new}
    return {(turned.get(a, a), p, turned.get(b, b), q) for a, p, b, q in found}


def before(found: set[Read], name: str, new: str) -> set[Read]:
    (old,) = (read for read in found if read[2] == name)
    return (found - {old}) | {(*old[:2], new, 0), (new, 0, name, 0)}


def _single(network: Network, lot: Random) -> str:
    names = [n.name for n in network.nodes if len(n.inputs) == 1 and not n.plumbing]
    return lot.choice(names or [network.nodes[0].name])


def _actions(network: Network, lot: Random) -> tuple[list[Change], set[Read]]:
    """Some actions, each at a node of its own, and what the edges are after all of them."""
    expected = reads(network)
    changes: list[Change] = []
    used: set[str] = set()
    for number in range(lot.randint(1, 3)):
        name, new = _single(network, lot), f"new{number}"
        near = {each for read in expected if name in (read[0], read[2]) for each in read[::2]}
        if used & {name, *near} or len([r for r in reads(network) if r[2] == name]) != 1:
            continue
        used |= {name, *near, new}
        at, relu = nodes(name.replace("[", "\\[")), (making("RELU", new),)
        kind = lot.choice(["insert", "delete", "replace", "before", "set"])
        if kind == "insert":
            changes.append(Insert(at, relu))
            expected = insertion(expected, name, new)
        elif kind == "delete":
            changes.append(Delete(at))
            expected = deletion(expected, name)
        elif kind == "replace":
            changes.append(Replace(at, relu))
            expected = replacement(expected, name, new)
        elif kind == "before":
            changes.append(Insert(at, relu, before=True))
            expected = before(expected, name, new)
        elif network.node(name).op == "DROPOUT":
            changes.append(Set(at, "p", (0.25,)))
    return changes, alive(expected, network)


@QUICK
@given(st.randoms(use_true_random=False))
def test_actions_on_networks_by_lot(lot: Random) -> None:
    network = drawn(lot)
    changes, expected = _actions(network, lot)
    if changes:
        made = changed(network, *changes)
        assert isinstance(made, Network), made
        assert reads(made) == expected


def test_actions_on_real_models(real: Network) -> None:
    lot = Random(1)
    done = 0
    for _ in range(25):
        changes, expected = _actions(real, lot)
        made = changed(real, *changes) if changes else None
        if isinstance(made, Network):  # some do not fit the shapes
            assert reads(made) == expected
            done += 1
    assert done > 8


def test_every_attribute_stays_but_those_that_are_set(real: Network) -> None:
    for node in real.nodes:
        if node.op == "CONV":
            made = changed(real, Set(nodes(node.name), "bias", (not node.attrs["bias"],)))
            assert isinstance(made, Network)
            assert reads(made) == reads(real)
            for other in made.nodes:
                same = other.attrs == real.node(other.name).attrs
                assert same is (other.name != node.name)


# Slices


def between(network: Network, starts: set[str], ends: set[str]) -> set[str] | None:
    """The nodes on paths; None if some start or end is on none."""
    whole = graph(reads(network))
    below = {name for start in starts for name in ({start} | nx.descendants(whole, start))}
    above = {name for end in ends for name in ({end} | nx.ancestors(whole, end))}
    return None if starts - above or ends - below else below & above


def needed(network: Network, path: set[str], starts: set[str], ends: set[str]) -> set[str]:
    """Those and all that the ends depend on, once nothing comes through where it was cut."""
    given = network.input_names
    cut = {
        (name, port)
        for start in starts
        for name, port in network.node(start).inputs
        if name not in path and name not in given
    }
    kept = {read for read in reads(network) if read[:2] not in cut}
    whole = graph(kept)
    whole.add_nodes_from(ends)
    found = {name for end in ends for name in ({end} | nx.ancestors(whole, end))}
    return found & {node.name for node in network.nodes}


def sliced(network: Network, starts: set[str], ends: set[str], support: str = "keep") -> Any:
    texts = [[name.replace("[", "\\[") for name in sorted(side)] for side in (starts, ends)]
    asked = work.sliced(texts[0], texts[1], support)
    return deriving.derive(asked, [work.origin(network)], strict=False)


def _slice_agrees(network: Network, lot: Random) -> Network | None:
    names = [node.name for node in network.nodes if node.attrs.get("kind") not in SIZE_KINDS]
    starts = {*lot.sample(names, lot.choice([1, 1, 2]))}
    ends = {*lot.sample(names, lot.choice([1, 1, 2]))}
    path = between(network, starts, ends)
    if path is None:
        with pytest.raises(UsageError, match="no path leads from"):
            sliced(network, starts, ends)
        return None
    (model,) = sliced(network, starts, ends).models
    kept = needed(network, path, starts, ends)
    assert {node.name for node in model.network.nodes} == kept
    order = [node.name for node in network.topological()]
    assert [name for name, _ in model.network.outputs] == [name for name in order if name in ends]
    for node in model.network.nodes:
        assert node.attrs == network.node(node.name).attrs
        assert len(node.inputs) == len(network.node(node.name).inputs)
    alone = sliced(network, starts, ends, "inputs")
    assert {node.name for node in alone.models[0].network.nodes} == path
    found: Network = model.network
    return found


@QUICK
@given(st.randoms(use_true_random=False))
def test_slices_of_networks_by_lot(lot: Random) -> None:
    network = drawn(lot)
    for _ in range(4):
        made = _slice_agrees(network, lot)
        if made is not None:
            _computes_the_same(network, made)


def test_slices_of_real_models(real: Network) -> None:
    lot = Random(2)
    cuts = [made for _ in range(12) if (made := _slice_agrees(real, lot)) is not None]
    assert len(cuts) > 3
    _computes_the_same(real, cuts[0])


def _values(network: Network, given: dict[str, Any], wanted: list[str]) -> dict[str, Any]:
    """What the nodes called so compute, from weights that are told by their names."""
    shapes = work.tensors(network)

    def tensor(name: str) -> Any:
        kept = network.aliases.get(name, name)
        lot = np.random.default_rng(list(kept.encode()))
        return lot.uniform(0.5, 1.5, shapes[kept][1]).astype("f4")

    forward = Forward(program(network, shapes, fold=False, until=wanted), tensor, "float32")
    found = forward.values(given)
    return {name: found[forward.program.kept[name]] for name in wanted}


def _computes_the_same(network: Network, made: Network) -> None:
    """Bit for bit, fed with what the whole network has there."""
    lot = np.random.default_rng(0)
    (image,) = network.inputs
    x = lot.normal(size=[dim if isinstance(dim, int) else 2 for dim in image.shape]).astype("f4")
    ends = [name for name, _ in made.outputs]
    cuts = {
        item.name: network.node(node.name).inputs[place]
        for item in made.inputs
        if item.name != image.name
        for node in made.nodes
        for place, port in enumerate(node.inputs)
        if port == (item.name, 0)
    }
    whole = _values(network, {image.name: x}, [*ends, *(name for name, _ in cuts.values())])
    fed = {name: whole[port[0]] for name, port in cuts.items()}
    if image.name in made.input_names:
        fed[image.name] = x
    part = _values(made, fed, ends)
    for name in ends:
        assert np.array_equal(part[name], whole[name]), name
