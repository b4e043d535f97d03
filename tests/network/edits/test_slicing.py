"""Slices: the right nodes, against brute force; the same numbers, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dlv.errors import NotFound, UsageError
from dlv.network.edits.slicing import slice as cut
from dlv.network.graph import Network
from dlv.network.json_form import read
from dlv.network.verify import verify

Json = dict[str, Any]
Load = Callable[[str], Network]


def _names(network: Network) -> list[str]:
    return [node.name for node in network.nodes]


def _graph(network: Network) -> Any:
    graph = nx.DiGraph()
    graph.add_nodes_from([*_names(network), *network.input_names])
    graph.add_edges_from((p, node.name) for node in network.nodes for p, _ in node.inputs)
    return graph


def _on_paths(network: Network, starts: list[str], ends: list[str]) -> set[str]:
    """By listing every path."""
    graph = _graph(network)
    found: set[str] = set()
    for start in starts:
        for end in ends:
            if start == end:
                found.add(start)
            for path in nx.all_simple_paths(graph, start, end):
                found.update(path)
    return found


class TestNodes:
    def test_inside(self, load: Load) -> None:
        made, edits = cut(load("lenet"), "pool1", "ip1")
        assert _names(made) == ["pool1", "conv2", "pool2", "flatten", "ip1"]
        assert [(i.name, i.shape, i.dtype) for i in made.inputs] == [
            ("conv1", ("B", 20, 24, 24), "float32")
        ]
        assert made.outputs == (("ip1", 0),)
        assert made.tensor_names() == {"conv2.weight", "conv2.bias", "ip1.weight", "ip1.bias"}
        assert [edit.node for edit in edits] == ["pool1", "conv1"]

    def test_the_input_of_the_source_stays(self, load: Load) -> None:
        made, _ = cut(load("lenet"), "conv1", "conv2")
        assert made.inputs == load("lenet").inputs
        assert _names(made) == ["conv1", "pool1", "conv2"]

    def test_the_whole(self, load: Load) -> None:
        assert cut(load("lenet"), "conv1", "prob").network.id == load("lenet").id

    def test_one_node(self, load: Load) -> None:
        made, _ = cut(load("lenet"), "relu1", "relu1")
        assert _names(made) == ["relu1"]
        assert made.inputs[0].name == "ip1"

    def test_behind_plumbing_the_input_is_as_the_layer_gets_it(self, load: Load) -> None:
        made, _ = cut(load("lenet"), "ip1", "ip2")
        assert (made.inputs[0].name, made.inputs[0].shape) == ("flatten", ("B", 800))

    def test_a_block_with_its_skip_branch_has_one_input(self, load: Load) -> None:
        """What the start reads is there once; the skip branch, beside the path, is kept."""
        made, _ = cut(load("resnet"), "a.conv1", "a.relu2")
        assert [item.name for item in made.inputs] == ["stem"]
        assert "a.down" in _names(made)
        assert "stem" not in _names(made)

    def test_side_edges_as_inputs(self, load: Load) -> None:
        made, _ = cut(load("resnet"), "a.conv1", "a.relu2", support="inputs")
        assert [item.name for item in made.inputs] == ["stem", "a.down"]
        assert "a.down" not in _names(made)

    def test_support_reaches_inputs_of_the_source(self, load: Load) -> None:
        made, edits = cut(load("unet"), "middle", "head")
        assert {item.name for item in made.inputs} == {"x", "pool2"}
        assert {"down1", "pool1", "down2"} <= set(_names(made))
        assert "3 more layers are kept" in edits[-1].text

    def test_several_starts_and_ends(self, load: Load) -> None:
        made, _ = cut(load("resnet"), ["a.bn2", "a.down"], ["a.add", "a.relu2"])
        assert [item.name for item in made.inputs] == ["a.conv2", "stem"]
        assert made.outputs == (("a.add", 0), ("a.relu2", 0))

    def test_a_start_behind_a_start_is_no_further_input(self, load: Load) -> None:
        made, _ = cut(load("lenet"), ["conv1", "conv2"], "pool2")
        assert [item.name for item in made.inputs] == ["x"]

    def test_by_alias_and_by_input(self, load: Load) -> None:
        made, _ = cut(load("resnet"), "x", "conv2")
        assert _names(made) == ["stem", "a.conv1"]

    def test_a_length_is_asked_of_the_new_input(self, plain: Callable[[str], Json]) -> None:
        """The zeros of the LSTM need the batch alone, not the tokens."""
        form = plain("lstm")
        form["nodes"][1]["inputs"] = ["tokens"]
        made, _ = cut(read(form)[0], "lstm", "fc")
        assert [item.name for item in made.inputs] == ["embed"]
        assert made.node("batch").inputs == (("embed", 0),)
        form["inputs"][0]["shape"] = [4, 12]
        form["nodes"][2]["attrs"]["size"] = [2, 4, 32]
        made, _ = cut(read(form)[0], "lstm", "fc")
        assert [item.name for item in made.inputs] == ["tokens", "embed"]

    def test_dtypes_of_new_inputs(self, load: Load) -> None:
        made, _ = cut(load("lstm"), "embed", "embed")
        assert made.inputs[0].dtype == "int64"
        assert cut(load("lstm"), "fc", "fc").network.inputs[0].dtype == "float32"

    def test_all_ports_of_a_split(self, load: Load) -> None:
        made, _ = cut(load("transformer"), "ln1", "split")
        assert made.outputs == (("split", 0), ("split", 1), ("split", 2))

    def test_tied_names_that_are_left(self, plain: Callable[[str], Json]) -> None:
        form = plain("transformer")
        form["aliases"] = {"head.weight": "wte.weight", "other": "gone"}
        network = read(form)[0]
        assert cut(network, "head", "head").network.aliases == {"head.weight": "wte.weight"}
        assert cut(network, "ln1", "qkv").network.aliases == {}


class TestErrors:
    @pytest.mark.parametrize(
        ("starts", "ends", "words"),
        [
            (["ip1"], ["conv1"], "no path leads from `ip1` to `conv1`"),
            (["conv1", "ip2"], ["ip1"], "no path leads from `ip2` to `ip1`"),
            (["pool1"], ["ip1", "conv1"], "no path leads from `pool1` to `conv1`"),
            ([], ["conv1"], "at least one start"),
            (["conv1"], [], "at least one end"),
        ],
    )
    def test_no_path(self, load: Load, starts: list[str], ends: list[str], words: str) -> None:
        with pytest.raises(UsageError, match=words):
            cut(load("lenet"), starts, ends)

    def test_unknown(self, load: Load) -> None:
        with pytest.raises(NotFound) as caught:
            cut(load("lenet"), "conv1", "pol2")
        assert "pool2" in caught.value.did_you_mean
        with pytest.raises(UsageError, match="support"):
            cut(load("lenet"), "conv1", "pool1", support="none")

    def test_an_input_of_unknown_shape(self, plain: Callable[[str], Json]) -> None:
        form = plain("resnet")
        form["nodes"][3] = {"name": "odd", "op": "OP", "inputs": ["a.bn1"]}
        form["nodes"][3]["source"] = {"dialect": "x", "op": "y", "args": [], "kwargs": {}}
        form["nodes"][4]["inputs"] = ["odd"]
        with pytest.raises(UsageError, match="`odd` as an input"):
            cut(read(form)[0], "a.conv2", "fc")


@pytest.mark.parametrize("support", ["keep", "inputs"])
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_random_slices(
    data: st.DataObject,
    support: str,
    random_network: st.SearchStrategy[Json],
    forward: Callable[..., Any],
    random_tensors: Callable[..., Any],
    random_inputs: Callable[..., Any],
) -> None:
    """The nodes of brute force, and bit for bit the numbers of the whole network."""
    torch = pytest.importorskip("torch")
    network = read(data.draw(random_network))[0]
    assume(not any(p.severity == "error" for p in verify(network)))
    names = st.lists(st.sampled_from(_names(network)), min_size=1, max_size=2, unique=True)
    starts, ends = data.draw(names), data.draw(names)
    graph = _graph(network)
    reachable = all(any(nx.has_path(graph, s, e) for e in ends) for s in starts) and all(
        any(nx.has_path(graph, s, e) for s in starts) for e in ends
    )
    if not reachable:
        with pytest.raises(UsageError, match="no path"):
            cut(network, starts, ends, support=support)
        return
    made, _ = cut(network, starts, ends, support=support)
    path = _on_paths(network, starts, ends)
    assert path <= set(_names(made))
    given_ = network.input_names
    read_by_starts = {
        port
        for node in network.nodes
        if node.name in starts or (support == "inputs" and node.name in path)
        for port in node.inputs
        if port[0] not in path | given_
    }
    # Support: what is still reached going back from the ends without passing a cut port.
    graph.remove_edges_from(
        [
            (port[0], node.name)
            for node in network.nodes
            for port in node.inputs
            if port in read_by_starts
        ]
    )
    needed = {n for end in ends for n in (*nx.ancestors(graph, end), end)} - given_
    assert set(_names(made)) == needed
    assert len(made.inputs) == len(read_by_starts) + len(
        {n for end in ends for n in nx.ancestors(graph, end)} & given_
    )
    tensors, values = random_tensors(network), random_inputs(network)
    whole = forward(network, tensors, values)
    fed = {item.name: whole[item.name, 0] for item in made.inputs if (item.name, 0) in whole}
    assert len(fed) == len(made.inputs)
    found = forward(made, tensors, fed)
    for port in made.outputs:
        assert torch.equal(found[port], whole[port])


@pytest.mark.parametrize("support", ["keep", "inputs"])
@pytest.mark.parametrize("name", ["lenet", "resnet", "transformer"])
def test_every_slice_of_a_network(
    load: Load,
    forward: Callable[..., Any],
    random_tensors: Callable[..., Any],
    random_inputs: Callable[..., Any],
    name: str,
    support: str,
) -> None:
    torch = pytest.importorskip("torch")
    network = load(name)
    tensors, values = random_tensors(network), random_inputs(network)
    whole = forward(network, tensors, values)
    graph = _graph(network)
    layers = [node.name for node in network.nodes if not node.plumbing]
    count = 0
    for start in layers:
        for end in layers:
            if nx.has_path(graph, start, end):
                made, _ = cut(network, start, end, support=support)
                fed = {item.name: whole[item.name, 0] for item in made.inputs}
                found = forward(made, tensors, fed)
                assert all(torch.equal(found[p], whole[p]) for p in made.outputs)
                assert not [p for p in verify(made) if p.severity == "error"]
                count += 1
    assert count >= 30
