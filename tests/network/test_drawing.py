from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.network.drawing import draw, operation_text
from dlv.network.graph import Input, Network, Node
from dlv.network.json_form import read

Json = dict[str, Any]
Load = Callable[[str], Network]

LENET = """\
○  x              INPUT float32            B×1×28×28
●  conv1          CONV 20, 5×5             B×20×24×24               520
●  pool1          POOL MAX 2×2, stride 2   B×20×12×12
●  conv2          CONV 50, 5×5             B×50×8×8              25,050
●  pool2          POOL MAX 2×2, stride 2   B×50×4×4
●  ip1 (full1)    FULL 500                 B×500                400,500
●  relu1          RELU                     B×500
●  ip2 (full2)    FULL 10                  B×10                   5,010
●  prob (softmax1)  SOFTMAX                B×10 → output
"""
RESIDUAL = """\
○
●    stem
├─╮
● │  a.conv1
● │  a.bn1
● │  a.relu1
● │  a.conv2
● │  a.bn2
│ ●  a.down
●─╯  a.add
●    a.relu2
●    mean
●    fc
"""


def lanes(drawing: str) -> list[tuple[str, str]]:
    """Lanes and name of each line above the sums."""
    lines = drawing.split("\n\n")[0].splitlines()
    found = []
    for line in lines:
        end = next((i for i, c in enumerate(line) if c not in "○●│─├┤┼┴╮╯ "), len(line))
        found.append((line[:end].rstrip(), line[end:].split("  ")[0]))
    return found


def test_a_chain_is_one_column(load: Load) -> None:
    drawing = draw(load("lenet"))
    squeezed = [line.split() for line in drawing.splitlines()[:9]]
    assert squeezed == [line.split() for line in LENET.splitlines()]
    assert drawing.endswith("8 layers, depth 8, 431,080 parameters, 4.59 M FLOPs per example\n")


def test_columns_are_aligned(load: Load) -> None:
    lines = draw(load("lenet")).splitlines()[:9]
    assert len({line.index("B×") for line in lines}) == 1
    assert len({len(line) for line in lines if line[-1].isdigit() and "," in line[-4:]}) <= 1


def test_a_residual_block_shows_its_skip(load: Load) -> None:
    found = [
        f"{lane:<5}{name.split(' (')[0]}".rstrip() for lane, name in lanes(draw(load("resnet")))
    ]
    assert found[1:] == RESIDUAL.splitlines()[1:]


def test_long_skips_run_beside(load: Load) -> None:
    found = {name.split(" ")[0]: lane for lane, name in lanes(draw(load("unet"))) if name}
    assert found["middle"] == "● │ │"
    assert found["cat2"] == "●─│─╯"
    assert found["cat1"] == "●─╯"


def test_a_lane_that_is_needed_again_goes_on() -> None:
    def node(name: str, *sources: str) -> Node:
        op, attrs = (
            ("ADD", {"const": None, "shape": None}) if sources[1:] else ("RELU", {"slope": 0.0})
        )
        return Node(name, op, None, attrs, tuple((source, 0) for source in sources))

    nodes = (node("a", "x"), node("b", "a", "x"), node("c", "b", "x"))
    drawing = draw(Network((Input("x", ("B", 3)),), nodes, (("c", 0),)))
    assert [lane for lane, _ in lanes(drawing)] == ["○", "├─╮", "● │", "●─┤", "●─╯"]


def test_plumbing_on_demand(load: Load) -> None:
    assert "flatten" not in draw(load("lenet"))
    assert "RESHAPE flatten" in draw(load("lenet"), plumbing=True)


def test_ascii(load: Load) -> None:
    for name in ("unet", "resnet"):
        assert draw(load(name), ascii_only=True).isascii()


def test_width(load: Load) -> None:
    drawing = draw(load("lenet"), width=64)
    assert max(map(len, drawing.splitlines()[:9])) <= 64
    assert "…" in drawing


def test_names_cannot_steer_the_terminal() -> None:
    relu = Node("a\x1b[2J\nb", "RELU", attrs={"slope": 0.0}, inputs=(("x", 0),))
    drawing = draw(Network((Input("x", ("\x1b", 2)),), (relu,), ((relu.name, 0),)))
    assert "\x1b" not in drawing
    assert len(drawing.splitlines()) == 4


def test_operations_in_words(load: Load) -> None:
    resnet = load("resnet")
    assert operation_text(resnet.node("a.conv1")) == "CONV 32, 3×3, stride 2, pad 1"
    assert operation_text(resnet.node("mean")) == "POOL MEAN axis (-1, -2), keep"
    assert operation_text(load("transformer").node("gelu")) == "ACT GELU approximate tanh"
    uneven = replace(
        resnet.node("a.conv1"), attrs={**resnet.node("a.conv1").attrs, "pad": ((0, 1), (0, 1))}
    )
    assert operation_text(uneven).endswith("pad (0, 1)")
    raw = Node("o", "OP", "raw", source={"op": "aten.roll"})
    assert operation_text(raw) == "OP aten.roll"


@settings(max_examples=100)
@given(st.data())
def test_every_node_stands_on_one_line_in_order(
    random_network: st.SearchStrategy[Json], data: st.DataObject
) -> None:
    network, _ = read(data.draw(random_network))
    for plumbing in (False, True):
        drawing = draw(network, plumbing=plumbing)
        nodes = [node for node in network.topological() if plumbing or not node.plumbing]
        rows = [lane for lane, _ in lanes(drawing) if "●" in lane]
        assert len(rows) == len(nodes)
        assert all(lane.count("●") == 1 for lane in rows)
        # As many lanes join as the nodes have further inputs.
        edges = network.edges() if plumbing else network.logical_edges()
        pairs = {(edge.src, edge.dst) for edge in edges}
        joins = sum(lane.count(mark) for lane in rows for mark in "╯┤┴┼")
        assert joins == sum(max(0, sum(d == n.name for _, d in pairs) - 1) for n in nodes)


@pytest.mark.parametrize("twice", [False, True])
def test_odd_networks_are_drawn_too(load: Load, twice: bool) -> None:
    assert "0 layers" in draw(Network())
    network = load("resnet")
    again = network.nodes * 2 if twice else network.nodes[3:]
    assert "layers" in draw(replace(network, nodes=again))


def test_long_networks_are_drawn_quickly() -> None:
    nodes = tuple(
        Node(f"r{i}", "RELU", attrs={"slope": 0.0}, inputs=((f"r{i - 1}" if i else "x", 0),))
        for i in range(3000)
    )
    network = Network((Input("x", ("B", 3)),), nodes, (("r2999", 0),))
    started = time.process_time()
    assert draw(network).count("●") == 3000
    assert time.process_time() - started < 10


@pytest.mark.parametrize("joined", [False, True])
def test_wide_networks_are_drawn_quickly(joined: bool) -> None:
    count = 4000
    nodes = [Node(f"r{i}", "RELU", attrs={"slope": 0.0}, inputs=(("x", 0),)) for i in range(count)]
    outputs = tuple((node.name, 0) for node in nodes)
    if joined:
        nodes.append(Node("all", "CONCAT", attrs={"axis": 1}, inputs=outputs))
        outputs = (("all", 0),)
    network = Network((Input("x", ("B", 3)),), tuple(nodes), outputs)
    started = time.process_time()
    drawing = draw(network)
    assert time.process_time() - started < 10
    assert max(map(len, drawing.splitlines())) < 300
    assert {f"r{i}" for i in range(count)} <= set(drawing.split())
    assert "…  r3000 " in drawing
    assert "~" in draw(network, ascii_only=True)


def test_fifty_lanes_are_drawn_in_full() -> None:
    nodes = [Node(f"r{i}", "RELU", attrs={"slope": 0.0}, inputs=(("x", 0),)) for i in range(50)]
    nodes.append(
        Node("all", "CONCAT", attrs={"axis": 1}, inputs=tuple((f"r{i}", 0) for i in range(50)))
    )
    network = Network((Input("x", ("B", 3)),), tuple(nodes), (("all", 0),))
    last = next(line for line in draw(network).splitlines() if " all " in line)
    assert last.split()[0] == "●" + "─┴" * 48 + "─╯"
