"""Which stretch of a joined axis is which: by what made it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dlv.network.edits.axes as axes
import dlv.network.edits.edit as editing
from dlv.network.edits.axes import Run
from dlv.network.edits.edit import Editor
from dlv.network.edits.reuse import Plan, Side, plan
from dlv.network.edits.slicing import slice as cut
from dlv.network.graph import Network
from dlv.network.inference import input_shapes, node_shapes
from dlv.network.json_form import read
from dlv.network.ops.op import op_of
from dlv.network.patterns import parse

Shapes = dict[str, tuple[str, tuple[int, ...]]]


def _net(*nodes: tuple[Any, ...]) -> Network:
    form: list[dict[str, Any]] = []
    for name, op, inputs, *rest in nodes:
        attrs = dict(rest[0]) if rest else {}
        variant = attrs.pop("variant", None)
        slots = attrs.pop("slots", ("weight", "bias") if op in ("CONV", "FULL") else ())
        node: dict[str, Any] = {"name": name, "op": op, "inputs": inputs.split(), "attrs": attrs}
        node["params"] = {slot: f"{name}.{slot}" for slot in slots}
        form.append(node | ({} if variant is None else {"variant": variant}))
    inputs = [{"name": "x", "shape": ["B", 3, 8, 8]}]
    given = {"dlv_network": 1, "inputs": inputs, "nodes": form, "outputs": [nodes[-1][0]]}
    return read(given)[0]


def _conv(name: str, source: str, out: int, **more: Any) -> tuple[Any, ...]:
    return name, "CONV", source, {"out": out, "kernel": [3, 3], "pad": 1, **more}


def _branches() -> Network:
    """5 + 3 channels, joined, flattened, and read by a FULL."""
    return _net(
        _conv("ca", "x", 5), ("ra", "RELU", "ca"),
        _conv("cb", "x", 3), ("rb", "RELU", "cb"),
        ("cat", "CONCAT", "ra rb", {"axis": 1}),
        ("flat", "RESHAPE", "cat", {"kind": "flatten"}),
        ("fc", "FULL", "flat", {"out": 4}),
    )  # fmt: skip


def _shapes(network: Network) -> Shapes:
    known = node_shapes(network)
    found: Shapes = {}
    for node in network.nodes:
        wanted = op_of(node).parameter_shapes(node, input_shapes(node, known))
        for slot, name in node.params.items():
            found[name] = "float32", tuple(d for d in wanted[slot] or () if isinstance(d, int))
    return found


def _edited(network: Network, *actions: Callable[[Editor], object]) -> Plan:
    return plan(network, editing.edit(network, actions).network, _shapes(network))


def _runs(made: Plan, name: str, axis: int = 1) -> list[tuple[Run, ...]]:
    (item,) = [item for item in made.tensors if item.name == name]
    return [block[axis] for block in item.blocks]


@pytest.mark.parametrize(
    "action",
    [
        lambda e: e.rename("ra", "ra9"),
        lambda e: e.rename("ca", "first"),
        lambda e: e.delete("ra"),
        lambda e: e.insert("ra", parse('DROPOUT("d")')),
        lambda e: e.insert("ra", parse('RELU("r2")')),
        lambda e: e.insert("cat", parse('RELU("r2")')),
        lambda e: e.replace("ra", parse('ACT("TANH", "t")')),
        lambda e: e.insert_before("cat", parse('DROPOUT("d")'), source="rb"),
    ],
)
def test_what_stands_in_front_does_not_matter(action: Callable[[Editor], object]) -> None:
    made = _edited(_branches(), action)
    assert {item.action for item in made.tensors} == {"copy"}
    assert made.share == 1


def test_names_that_change_places() -> None:
    made = _edited(
        _branches(),
        *(lambda e: e.rename("ra", "t"), lambda e: e.rename("rb", "ra")),
        *(lambda e: e.rename("t", "rb"), lambda e: e.set_attributes("ca", out=6)),
    )
    assert _runs(made, "fc.weight") == [(Run(0, 0, 320), Run(384, 320, 192))]


def test_a_new_convolution_stands_where_the_old_one_did() -> None:
    text = 'CONV("new", out=5, kernel=3, pad=1)'
    made = _edited(_branches(), lambda e: e.replace("ca", parse(text)))
    assert {i.name: i.action for i in made.tensors if i.action != "copy"} == {
        "new.weight": "init",
        "new.bias": "init",
    }


def test_a_branch_that_is_resized_or_gone() -> None:
    made = _edited(
        _branches(), lambda e: e.rename("ra", "q"), lambda e: e.set_attributes("ca", out=7)
    )
    assert _runs(made, "fc.weight") == [(Run(0, 0, 320), Run(448, 320, 192))]
    made = _edited(_branches(), lambda e: e.rename("rb", "q"), lambda e: e.delete_edge("ra", "cat"))
    assert _runs(made, "fc.weight") == [(Run(0, 320, 192),)]


def test_channels_in_groups_move_with_their_group() -> None:
    network = _net(
        _conv("ca", "x", 4), _conv("cb", "x", 4), ("cat", "CONCAT", "ca cb", {"axis": 1}),
        _conv("g", "cat", 6, groups=2), ("j", "RELU", "g"),
    )  # fmt: skip
    made = _edited(network, lambda e: e.set_attributes("ca", out=6))
    # Group 0 has ca 0..4 now; group 1 ca 5, that is new, and all of cb.
    assert _runs(made, "g.weight", 0) == [(Run(0, 0, 3),), (Run(3, 3, 3),)]
    assert _runs(made, "g.weight", 1) == [(Run(0, 0, 4),), (Run(1, 0, 4),)]
    made = _edited(network, lambda e: e.set_attributes("g", groups=1))
    assert _runs(made, "g.weight", 0) == [(Run(0, 0, 3),), (Run(3, 3, 3),)]
    assert _runs(made, "g.weight", 1) == [(Run(0, 0, 4),), (Run(4, 0, 4),)]


def test_an_input_of_a_slice_is_what_was_cut_off() -> None:
    network = _branches()
    wider = editing.edit(network, [lambda e: e.set_attributes("ca", out=7)]).network
    sliced = cut(wider, "flat", "fc").network
    shapes = _shapes(network)
    within = Side(wider, _shapes(wider), Side(network, shapes))
    made = plan(network, sliced, shapes, within=within)
    assert _runs(made, "fc.weight") == [(Run(0, 0, 320), Run(448, 320, 192))]
    # Without a word of where it was cut from nothing is known, and nothing is claimed.
    (item,) = [i for i in plan(network, sliced, shapes).tensors if i.name == "fc.weight"]
    assert item.action == "init"


def test_parts_of_a_convolution_that_grows() -> None:
    network = _net(
        _conv("c", "x", 8),
        ("low", "RESHAPE", "c", {"kind": "slice", "axis": 1, "start": 0, "end": 3}),
        ("high", "RESHAPE", "c", {"kind": "slice", "axis": 1, "start": 3, "end": 8}),
        ("cat", "CONCAT", "high low", {"axis": 1}),
        _conv("j", "cat", 4),
    )  # fmt: skip
    made = _edited(network, lambda e: e.rename("low", "a"), lambda e: e.rename("high", "b"))
    assert made.share == 1


def test_the_nearest_marks_are_kept() -> None:
    far = {f"{axes.TENSOR}{i}": i * axes.LAYER for i in range(200)}
    kept = axes.joined([far, {f"{axes.NODE}near": 1}])
    assert len(kept) == 64
    assert f"{axes.NODE}near" in kept
    assert axes.likeness(kept, kept) > axes.likeness(kept, {f"{axes.NODE}near": 1}) > 0
