"""In-place operations as functions: what is written reaches whoever reads that memory later."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from dlv.adapters.aten.functional import Inseparable, functionalise, in_place  # noqa: E402
from dlv.adapters.aten.live import Unexportable, trace  # noqa: E402
from dlv.adapters.aten.network import plain  # noqa: E402
from dlv.adapters.aten.record import BUFFER, Call, Given, Graph, Placeholder, Ref, Value  # noqa: E402


def call(name: str, op: str, *given: Any, **more: Any) -> Call:
    arguments = [Given("self" if not place else "", value) for place, value in enumerate(given)]
    arguments += [Given(word, value) for word, value in more.items()]
    return Call(name, f"aten.{op}", tuple(arguments), (name,))


def graph(*calls: Call, outputs: str, shapes: dict[str, tuple[int, ...]] | None = None) -> Graph:
    made = Graph(
        [Placeholder("x", "input", "x"), Placeholder("c", BUFFER, "counts")],
        list(calls),
        [Ref(name) for name in outputs.split()],
    )
    for name in ("x", "c", *(each.name for each in calls)):
        made.values[name] = Value("float32", (shapes or {}).get(name, (2, 4)), dense=True)
    functionalise(made, lambda name: None)  # noqa: ARG005
    return made


def told(made: Graph) -> list[str]:
    return [each.op.removeprefix("aten.") for each in made.calls]


class TestGraphs:
    def test_a_chain_of_writes_keeps_its_names(self) -> None:
        made = graph(
            call("a", "mul.Tensor", Ref("x"), 2),
            call("b", "relu_.default", Ref("a")),
            call("d", "add_.Tensor", Ref("b"), 1),
            outputs="a",
        )
        assert told(made) == ["mul.Tensor", "relu.default", "add.Tensor"]
        assert [each.outputs for each in made.calls] == [("a",), ("b",), ("d",)]
        assert made.outputs == [Ref("d")]

    def test_a_view_that_is_read_later_is_taken_again(self) -> None:
        made = graph(
            call("a", "mul.Tensor", Ref("x"), 2),
            call("v", "select.int", Ref("a"), dim=1, index=0),
            call("b", "add_.Tensor", Ref("a"), 1),
            call("d", "neg.default", Ref("v")),
            outputs="d",
            shapes={"v": (2,), "d": (2,)},
        )
        assert told(made) == ["mul.Tensor", "select.int", "add.Tensor", "select.int", "neg.default"]
        assert made.calls[3].arguments[0].value == Ref("b")

    def test_a_write_into_a_column_makes_the_base_anew(self) -> None:
        made = graph(
            call("v", "select.int", Ref("x"), dim=1, index=-1),
            call("b", "fill_.Scalar", Ref("v"), 1.0),
            outputs="x",
            shapes={"v": (2,), "b": (2,)},
        )
        assert told(made) == [
            *("select.int", "full.default", "unsqueeze.default", "slice.Tensor", "cat.default")
        ]
        parts = made.calls[-1].arguments[0].value
        assert [ref.name for ref in parts] == [made.calls[3].name, made.calls[2].name]

    def test_a_buffer_gets_its_content_at_the_end(self) -> None:
        made = graph(
            call("a", "add_.Tensor", Ref("c"), 1),
            call("d", "mul.Tensor", Ref("x"), Ref("c")),
            outputs="d",
        )
        assert told(made) == ["add.Tensor", "mul.Tensor", "copy_.default"]
        assert made.calls[1].arguments[1].value == Ref("a")
        assert made.calls[2].arguments[0].value == Ref("c")

    def test_whether_it_is_a_copy_is_not_known(self) -> None:
        shapes = {"t": (4, 2), "v": (8,), "d": (4, 2)}
        calls = (call("t", "t.default", Ref("x")), call("v", "view_as_strange.default", Ref("t")))
        assert told(graph(*calls, outputs="v", shapes=shapes)) == [
            "t.default",
            "view_as_strange.default",
        ]
        made = Graph([Placeholder("x", "input", "x")], [], [Ref("v")])
        made.values.update(
            x=Value("float32", (2, 4), dense=False),
            v=Value("float32", (8,)),
            b=Value("float32", (2, 4)),
        )
        made.calls = [
            call("v", "reshape.default", Ref("x"), [8]),
            call("b", "add_.Tensor", Ref("x"), 1),
        ]
        with pytest.raises(Inseparable, match="add_") as caught:
            functionalise(made, lambda name: None)  # noqa: ARG005
        assert "reshape" in str(caught.value.why)

    @pytest.mark.parametrize("op", ["set_.source_Tensor", "fill_diagonal_.default", "add.out"])
    def test_what_no_function_gives_is_refused_by_name(self, op: str) -> None:
        with pytest.raises(Inseparable, match=op.replace(".", r"\.")):
            graph(call("b", op, Ref("x"), Ref("x")), outputs="x")

    def test_it_is_done_once(self) -> None:
        made = graph(call("b", "add_.Tensor", Ref("x"), 1), outputs="x")
        assert not any(map(in_place, made.calls))
        before = list(made.calls)
        plain(made, {})
        assert made.calls == before


# Steps of random programs: what they do to a tensor, and what they give to go on with.
VIEWS: dict[str, Callable[[Any, random.Random], Any]] = {
    "select": lambda t, dice: t.select(_axis(t, dice), 0),
    "slice": lambda t, dice: t.narrow(_axis(t, dice), 0, 1),
    "part": lambda t, dice: t[..., 1:] if t.shape[-1] > 1 else t,  # noqa: ARG005
    "last": lambda t, dice: t[-1] if t.dim() else t,  # noqa: ARG005
    "step": lambda t, dice: t[..., ::2] if t.dim() else t,  # noqa: ARG005
    "turned": lambda t, dice: t.transpose(0, -1) if t.dim() else t,  # noqa: ARG005
    "permuted": lambda t, dice: t.permute(*dice.sample(range(t.dim()), t.dim())),
    "more": lambda t, dice: t.unsqueeze(dice.randrange(t.dim() + 1)),
    "less": lambda t, dice: t.squeeze(),  # noqa: ARG005
    "flat": lambda t, dice: t.reshape(-1),  # noqa: ARG005
    "plain": lambda t, dice: t.view(t.shape),  # noqa: ARG005
    "chunk": lambda t, dice: t.chunk(2, 0)[-1] if t.dim() else t,  # noqa: ARG005
    "diagonal": lambda t, dice: t.diagonal() if t.dim() > 1 else t,  # noqa: ARG005
    "detached": lambda t, dice: t.detach(),  # noqa: ARG005
    "same": lambda t, dice: t.to(torch.float32),  # noqa: ARG005
    "close": lambda t, dice: t.contiguous(),  # noqa: ARG005
}
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda t, other: t.add_(1),  # noqa: ARG005
    "scale": lambda t, other: t.mul_(0.5),  # noqa: ARG005
    "relu": lambda t, other: t.relu_(),  # noqa: ARG005
    "fill": lambda t, other: t.fill_(0.25),  # noqa: ARG005
    "zero": lambda t, other: t.zero_(),  # noqa: ARG005
    "power": lambda t, other: t.pow_(2),  # noqa: ARG005
    "greater": lambda t, other: t.gt_(0.1),  # noqa: ARG005
    "mask": lambda t, other: t.masked_fill_(t > 0.2, -0.5),  # noqa: ARG005
    "copy": lambda t, other: t.copy_(other.flatten()[0]),
    "others": lambda t, other: t.add_(other.double().sum()),
    "item": lambda t, other: t.__setitem__(Ellipsis, other.flatten()[-1]),
    "choose": lambda t, other: t.__setitem__(t < 0, 0.125),  # noqa: ARG005
}


def _axis(tensor: Any, dice: random.Random) -> int:
    return dice.randrange(max(tensor.dim(), 1))


class Program(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """A random mixture of views, writes and reads, which gives back all that it made."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(6, 6)
        self.seed = seed

    def forward(self, x: Any) -> Any:
        dice = random.Random(self.seed)
        values = [self.fc(x).view(2, 3, 6)]
        for _ in range(dice.randrange(4, 12)):
            tensor = dice.choice(values[-4:])
            step = dice.random()
            if step < 0.45:
                values.append(VIEWS[dice.choice(sorted(VIEWS))](tensor, dice))
            elif step < 0.9:
                made = WRITES[dice.choice(sorted(WRITES))](tensor, dice.choice(values))
                values += [] if made is None else [made]
            else:
                values.append(tensor.clone() if step < 0.95 else tensor.sum() * tensor)
        return [value for value in values if value.numel()]


def run(seed: int) -> str:
    """`equal`, or `refused`. What the import compares is the module itself, run by torch."""
    torch.manual_seed(seed)
    module = Program(seed).eval()
    x = torch.randn(6, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.no_grad():
                module(x.clone())
        except (RuntimeError, IndexError):
            return "impossible"
        try:
            found = trace(module, x, dynamic_batch=False)
        except (Inseparable, Unexportable):
            return "refused"
    assert found.network is not None
    return "equal"


class TestRandomPrograms:
    def test_some(self) -> None:
        outcomes = [run(seed) for seed in range(8)]
        assert outcomes.count("equal") >= 5

    @pytest.mark.slow
    def test_many(self) -> None:
        outcomes = [run(seed) for seed in range(8, 1000)]
        assert outcomes.count("equal") > 0.7 * len(outcomes)
