"""dlv.adapters.aten.record and what is done with its graphs, by hand and without torch."""

from __future__ import annotations

from typing import Any

import pytest

from dlv.adapters.aten import record as aten
from dlv.adapters.aten.network import Named, convert, name_calls
from dlv.adapters.aten.record import (
    RESPONSE_NORM,
    Call,
    Given,
    Graph,
    Placeholder,
    Ref,
    Tagged,
    Value,
    join,
    unfold,
)
from dlv.errors import Damaged
from dlv.network.order import FreeNames

VECTOR = Value("float32", ("s1", 4))


def call(name: str, op: str, *arguments: Any, path: str = "", visit: str = "", **more: Any) -> Call:
    """A call of one output, named as itself; positional arguments have the names a, b, c."""
    given = [Given(slot, value) for slot, value in zip("abcdefgh", arguments, strict=False)]
    given += [Given(slot, value, True) for slot, value in more.items()]
    return Call(name, f"aten.{op}", tuple(given), (name,), False, path, visit)


def graph(*calls: Call, outputs: str = "") -> Graph:
    """Calls over an input `x`, a parameter `w`, a constant `c` and a counter `n`."""
    made = Graph(list(map(_placeholder, "xwcn")), list(calls))
    made.values = dict.fromkeys("xwcn", VECTOR)
    made.values |= {name: VECTOR for each in calls for name in each.outputs if name}
    made.outputs = [Ref(name) for name in (outputs or calls[-1].name).split()]
    return made


def _placeholder(name: str) -> Placeholder:
    kinds = {"x": aten.INPUT, "w": aten.PARAMETER, "c": aten.CONSTANT, "n": aten.BUFFER}
    targets = {"w": "fc.weight", "n": "bn.num_batches_tracked", "c": "lifted"}
    return Placeholder(name, kinds[name], targets.get(name, name))


def r(name: str) -> Ref:
    return Ref(name)


class TestGraph:
    def test_references(self) -> None:
        found = aten.refs([r("a"), [r("b"), 1, [r("c")]], "text", r("a"), None])
        assert [ref.name for ref in found] == ["a", "b", "c", "a"]
        deep: Any = r("z")
        for _ in range(100_000):
            deep = [deep]
        assert list(aten.refs(deep)) == [r("z")]

    def test_symbols(self) -> None:
        made = Graph([Placeholder(name, aten.INPUT, name) for name in ("a", "b", "c")])
        made.values = {
            "a": Value("int64", ()),
            "b": Value("float32", (3, "s7")),
            "c": Value("float32", ("s2", "s7", "s9")),
            "y": Value("float32", ("s2", "u0", 4)),
            "n": Value(None, ("s9",)),
        }
        aten.rename_symbols(made)
        shapes = {name: value.shape for name, value in made.values.items()}
        assert shapes == {
            "a": (),
            "b": (3, "S1"),
            "c": ("B", "S1", "S2"),
            "y": ("B", None, 4),
            "n": ("S2",),
        }

    def test_tags(self) -> None:
        assert Tagged("dtype", "float32").json() == {"dtype": "float32"}
        assert Tagged("graph", Graph()).json() == {"text": "graph"}
        assert Tagged("complex", [1.0, float("inf")]).json() == {"complex": [1.0, "Infinity"]}

    @pytest.mark.parametrize(
        ("wrong", "why"),
        [
            (graph(call("y", "relu.default", r("z"))), "nothing makes 'z'"),
            (graph(call("y", "a.b", r("z")), call("z", "a.b")), "nothing makes 'z'"),
            (graph(call("y", "a.b", r("y"))), "nothing makes 'y'"),
            (graph(call("y", "a.b"), call("y", "a.b")), "made twice"),
            (graph(call("x", "a.b")), "made twice"),
            (graph(call("y", "a.b"), outputs="y z"), "nothing makes 'z'"),
        ],
    )
    def test_what_makes_no_sense(self, wrong: Graph, why: str) -> None:
        with pytest.raises(Damaged) as caught:
            aten.check(wrong)
        assert why in (caught.value.why or "")

    def test_an_input_without_a_type(self) -> None:
        made = graph(call("y", "relu.default", r("x")))
        del made.values["x"]
        with pytest.raises(Damaged):
            aten.check(made)

    def test_where_a_call_is(self) -> None:
        assert aten.place("a.b", "visit") == ("a.b", "visit")
        assert aten.place("_empty_nn_module_stack_from_metadata_hook", "v") == ("", "")


def named(*rows: tuple[str, str, str, bool], tensors: str = "", taken: str = "") -> list[str]:
    """Rows of op, path, visit, main."""
    items = [Named(call("y", op, path=path, visit=visit), main) for op, path, visit, main in rows]
    return name_calls(items, tensors.split(), FreeNames(taken.split()))


class TestNames:
    def test_leaf_modules_and_functions(self) -> None:
        assert named(
            ("linear.default", "fc", "fc", True),
            ("relu_.default", "", "", True),
            ("relu.default", "", "", True),
            ("add.Tensor", "block", "block", True),
            ("linear.default", "block.fc", "block.fc", True),
        ) == ["fc", "relu", "relu_1", "block.add", "block.fc"]

    def test_a_module_called_twice(self) -> None:
        rows = [("linear.default", "l", f"l@{n}", True) for n in range(3)]
        assert named(*rows) == ["l", "l_1", "l_2"]
        other = ("linear.default", "l_1", "l_1", True)
        assert named(*rows, other) == ["l", "l_2", "l_3", "l_1"]

    def test_plumbing_takes_no_name_from_the_layer(self) -> None:
        assert named(
            ("zeros.default", "lstm", "lstm", False),
            ("lstm.input", "lstm", "lstm", True),
            ("flatten.using_ints", "flat", "flat", False),
        ) == ["lstm.zeros", "lstm", "flat"]

    def test_several_layers_in_one_module(self) -> None:
        assert named(
            ("mul.Tensor", "norm", "norm", True),
            ("div.Tensor", "norm", "norm", True),
            ("view.default", "norm", "norm", False),
        ) == ["norm.mul", "norm.div", "norm.view"]

    def test_a_module_with_tensors_below_is_no_leaf(self) -> None:
        row = ("linear.default", "attention", "attention", True)
        assert named(row, tensors="attention.in_proj_weight") == ["attention"]
        assert named(row, tensors="attention.out_proj.weight") == ["attention.linear"]

    def test_names_that_are_taken(self) -> None:
        rows = [("linear.default", "x", "x", True), ("relu.default", "", "", True)]
        assert named(*rows, taken="x relu relu_1") == ["x_1", "relu_2"]

    def test_many_of_one_name(self) -> None:
        rows = [("relu.default", "", "", True)] * 30_000
        assert named(*rows)[-1] == "relu_29999"


NORM = [
    call("sq", "mul.Tensor", path="n", visit="n", self=r("x"), other=r("x")),
    call("up", "unsqueeze.default", path="n", visit="n", self=r("sq"), dim=1),
    call("pd", "pad.default", path="n", visit="n", self=r("up"), pad=[0, 0, 2, 1]),
    call("av", "avg_pool2d.default", path="n", visit="n", self=r("pd"), kernel_size=[4, 1]),
    call("dn", "squeeze.dim", path="n", visit="n", self=r("av"), dim=1),
    call("al", "mul.Tensor", path="n", visit="n", self=r("dn"), other=0.5),
    call("pl", "add.Tensor", path="n", visit="n", self=r("al"), other=2.0),
    call("pw", "pow.Tensor_Scalar", path="n", visit="n", self=r("pl"), exponent=0.75),
    call("dv", "div.Tensor", path="n", visit="n", self=r("x"), other=r("pw")),
]


def changed(place: int, **arguments: Any) -> Graph:
    one = NORM[place]
    kept = {given.name: given.value for given in one.arguments} | arguments
    calls = list(NORM)
    calls[place] = call(
        one.name, one.op.removeprefix("aten."), path=one.path, visit=one.visit, **kept
    )
    return graph(*calls)


class TestRewriting:
    def test_a_response_norm(self) -> None:
        made = graph(*NORM)
        unfold(made)
        join(made)
        found = made.calls[-1]
        assert found.op == RESPONSE_NORM
        assert {given.name: given.value for given in found.arguments} == {
            "self": r("x"),
            "size": 4,
            "alpha": 0.5,
            "beta": 0.75,
            "k": 2.0,
        }
        network = convert(graph(*NORM), {}, {}).network
        (node,) = network.nodes
        assert (node.name, node.variant, node.attrs["size"]) == ("n", "LRN", 4)

    @pytest.mark.parametrize(
        "other",
        [
            changed(0, other=r("w")),
            changed(2, pad=[0, 0, 1, 2]),
            changed(2, pad=[1, 0, 2, 1]),
            changed(3, kernel_size=[4, 2]),
            changed(3, kernel_size=[3, 1]),
            changed(5, other=r("w")),
            changed(6, alpha=2),
            changed(7, exponent=r("w")),
            changed(8, self=r("w")),
        ],
    )
    def test_what_only_looks_like_one(self, other: Graph) -> None:
        unfold(other)
        join(other)
        assert all(each.op != RESPONSE_NORM for each in other.calls)

    def test_unbind(self) -> None:
        both = Call("u", "aten.unbind.int", (Given("self", r("x")), Given("dim", 1)), ("p", "q"))
        made = graph(both, call("y", "add.Tensor", self=r("p"), other=r("q")))
        unfold(made)
        join(made)
        assert [each.op for each in made.calls[:2]] == ["aten.select.int"] * 2
        assert [each.get("index") for each in made.calls[:2]] == [0, 1]
        assert [each.outputs for each in made.calls[:2]] == [("p",), ("q",)]

    @staticmethod
    def wrapped(op: str, *before: Any) -> Graph:
        inner = Graph([Placeholder("a", "other", "")])
        inner.calls = [call("y", "relu.default", r("a")), call("z", "relu.default", r("y"))]
        inner.values = {"a": VECTOR, "y": VECTOR, "z": VECTOR}
        inner.outputs = [Ref("z")]
        arguments = (*before, Tagged("graph", inner), r("x"))
        given = tuple(Given("", value) for value in arguments)
        outer = Call("w0", f"higher_order.{op}", given, ("y",), True)
        made = graph(outer)
        made.outputs = [Ref("y")]
        return made

    def test_without_gradients(self) -> None:
        made = self.wrapped("wrap_with_set_grad_enabled", False)
        unfold(made)
        join(made)
        words = ["aten.relu.default", "aten.relu.default", "aten.detach.default"]
        assert [each.op for each in made.calls] == words
        assert [list(each.refs()) for each in made.calls] == [[r("x")], [r("y/y")], [r("y/z")]]
        aten.check(made)

    def test_with_gradients_after_all(self) -> None:
        made = self.wrapped("wrap_with_set_grad_enabled", True)
        unfold(made)
        join(made)
        assert made.calls[-1].op == "aten.alias.default"

    def test_autocast(self) -> None:
        off = self.wrapped("wrap_with_autocast", "cpu", None, False, None)
        unfold(off)
        assert [each.base for each in off.calls] == ["relu", "relu", "alias"]
        on = self.wrapped("wrap_with_autocast", "cpu", None, True, None)
        unfold(on)
        assert [each.op for each in on.calls] == ["higher_order.wrap_with_autocast"]

    def test_graphs_that_do_not_fit(self) -> None:
        made = self.wrapped("wrap_with_set_grad_enabled", False)
        inner = made.calls[0].arguments[1].value.value
        inner.placeholders.append(Placeholder("b", "other", ""))
        unfold(made)
        join(made)
        assert len(made.calls) == 1


class TestConversion:
    def test_what_nobody_reads_is_left_out(self) -> None:
        made = graph(
            call("dead", "mul.Tensor", self=r("x"), other=2),
            call("deader", "relu.default", self=r("dead")),
            call("y", "relu.default", self=r("x")),
        )
        assert [node.name for node in convert(made, {}, {}).network.nodes] == ["relu"]

    def test_constants_that_nobody_reads_are_left_out(self) -> None:
        converted = convert(graph(call("y", "relu.default", self=r("x"))), {}, {})
        assert converted.network.constants == {}
        assert converted.constants == []

    def test_what_contradicts_its_shape_stays_as_it_is(self) -> None:
        """A word of the vocabulary is given only to what it explains."""
        made = graph(call("y", "softmax.int", self=r("x"), dim=5))
        (node,) = convert(made, {}, {}).network.nodes
        assert (node.op, node.out_shape) == ("OP", ("B", 4))
        made = graph(call("y", "relu.default", self=r("x")))
        made.values["y"] = Value("float32", ("s1", 5))
        assert convert(made, {}, {}).network.nodes[0].op == "OP"

    @pytest.mark.parametrize("wrong", [{"stride": [0]}, {"kernel_size": [-1]}, {"padding": [9]}])
    def test_attributes_out_of_range(self, wrong: dict[str, Any]) -> None:
        given = {"kernel_size": [2], "stride": [1], "padding": [0], **wrong}
        made = graph(call("y", "max_pool1d.default", self=r("x"), **given))
        made.values["x"] = made.values["y"] = Value("float32", (2, 3, 4))
        (node,) = convert(made, {}, {}).network.nodes
        assert node.op == "OP"

    def test_arguments_that_a_word_does_not_tell(self) -> None:
        made = graph(call("y", "relu.default", self=r("x"), out=r("x")))
        (node,) = convert(made, {}, {}).network.nodes
        assert node.op == "OP"
        assert node.inputs == (("x", 0), ("x", 0))
