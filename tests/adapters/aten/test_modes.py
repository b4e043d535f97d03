"""The network of a module is what it computes in evaluation; what training adds is told."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
nn: Any = torch.nn

from dlv.adapters.aten.guard import Disagreement  # noqa: E402
from dlv.adapters.aten.live import Unexportable, trace  # noqa: E402
from dlv.errors import DlvError  # noqa: E402
from dlv.network.edits.slicing import slice as cut  # noqa: E402
from dlv.network.graph import Input, Network, Node  # noqa: E402
from dlv.network.program import program, refuse_effects, writes  # noqa: E402
from tests.zoo.oddities import Averaging  # noqa: E402


class Body(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        return self.body(self.fc(x))

    def body(self, y: Any) -> Any:
        raise NotImplementedError


class Auxiliary(Body):
    def body(self, y: Any) -> Any:
        return (y.relu(), y) if self.training else y.relu()


class Noisy(Body):
    def body(self, y: Any) -> Any:
        return y + torch.randn_like(y) if self.training else y


class Switched(Body):
    def body(self, y: Any) -> Any:
        functional = nn.functional
        return functional.dropout(self.norm(y), 0.5, self.training).relu_()


class Always(Body):
    def body(self, y: Any) -> Any:
        return nn.functional.dropout(y, 0.5)


class Drawn(Body):
    def body(self, y: Any) -> Any:
        return y * torch.bernoulli(torch.full_like(y, 0.5))


class Restless(Body):
    def body(self, y: Any) -> Any:
        self.seen.add_(1)
        return y + self.seen


def ops(network: Any) -> list[str]:
    return [node.op for node in network.nodes]


def found(kind: type[Body]) -> Any:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trace(kind(), torch.randn(3, 4))


@pytest.mark.parametrize("training", [True, False])
def test_whatever_mode_it_is_in(training: bool) -> None:
    torch.manual_seed(0)
    module = Auxiliary().train(training)
    made = trace(module, torch.randn(3, 4))
    assert module.training is module.norm.training is training
    assert ops(made.network) == ["FULL", "RELU"]
    assert made.network is not None
    assert len(made.network.outputs) == 1
    assert any("in training the module differs" in note for note in made.notes)


def test_what_only_training_draws_is_left_out() -> None:
    made = found(Noisy)
    assert ops(made.network) == ["FULL"]
    assert any("leaves out" in note for note in made.notes)


def test_layers_that_switch_are_kept_as_they_train() -> None:
    made = found(Switched)
    assert ops(made.network) == ["FULL", "NORM", "DROPOUT", "RELU"]
    assert made.notes == []


def test_dropping_in_evaluation_is_refused() -> None:
    with pytest.raises(Unexportable, match="drops numbers in evaluation") as caught:
        found(Always)
    assert "another answer" in (caught.value.why or "")


def test_random_numbers_in_evaluation_are_told_and_not_run() -> None:
    made = found(Drawn)
    assert any("random numbers" in note for note in made.notes)
    with pytest.raises(DlvError, match="draws random numbers"):
        program(made.network)


def test_a_buffer_that_moves_on_moves_on_in_the_module_too() -> None:
    made = found(Restless)
    assert any("forward changes seen" in note for note in made.notes)
    assert list(writes(made.network)) == []
    assert [step.node.name for step in program(made.network).steps][-1] == "add_1"


def test_statistics_that_average_over_all() -> None:
    """What only training reads from a tensor does not keep the network away."""
    made = trace(Averaging().train(), torch.randn(2, 4, 5))
    assert ops(made.network) == ["NORM"]
    assert any("cannot be traced" in note for note in made.notes)


class Fast(nn.Module):  # type: ignore[misc]
    def __init__(self, nested: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=nested)

    def forward(self, x: Any, mask: Any) -> Any:
        return self.encoder(x, src_key_padding_mask=mask)


def test_a_path_that_only_evaluation_takes() -> None:
    torch.manual_seed(0)
    x, mask = torch.randn(2, 4, 8), torch.tensor([[False] * 4, [False, False, True, True]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Disagreement, match="with gradients than without") as caught:
            trace(Fast(True), (x, mask))
        assert "enable_nested_tensor=False" in (caught.value.hint or "")
        assert trace(Fast(False), (x, mask)).network is not None


def raw(name: str, op: str, inputs: tuple[tuple[str, int], ...], **more: Any) -> Node:
    args = [{"n": place} for place in range(len(inputs))]
    source = {"dialect": "aten", "op": op, "args": args, "kwargs": {}}
    return Node(name, "OP", "raw", {}, inputs, source=source, **more)


def test_networks_that_were_imported_with_their_writes() -> None:
    """Of other times, or other programs: who follows the data would pass by the write."""
    network = Network(
        (Input("x", ("B", 4)),),
        (
            raw("view", "aten.alias.default", (("x", 0),)),
            raw("write", "aten.relu_.default", (("view", 0),)),
            raw("read", "aten.neg.default", (("x", 0),)),
        ),
        (("read", 0),),
    )
    for attempt in (refuse_effects, program, lambda net: cut(net, "read", "read")):
        with pytest.raises(DlvError, match="'write', which changes a tensor in place"):
            attempt(network)
