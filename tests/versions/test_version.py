"""Versions as torch modules, and torch modules as versions."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv
from dlv.api import Repo
from dlv.errors import NotARepository, NotFound, UsageError

torch: Any = pytest.importorskip("torch", reason="torch runs the networks: dlv[torch]")
pytest.importorskip("dlv.adapters.aten.live")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repo]:
    for name in list(os.environ):
        if name.startswith("DLV_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DLV_USER_NAME", "Ada")
    monkeypatch.chdir(tmp_path)
    with dlv.open(tmp_path, create=True) as repo:
        yield repo


class Net(torch.nn.Module):  # type: ignore[misc]
    """With what a state dict alone does not tell: ties, hidden and plain buffers, order."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4, bias=False)
        self.bn = torch.nn.BatchNorm1d(4)
        self.a_gain = torch.nn.Parameter(torch.randn(4))
        self.register_buffer("shift", torch.linspace(0, 1, 4))
        self.register_buffer("hidden", torch.linspace(1, 2, 4), persistent=False)
        self.drop = torch.nn.Dropout(0.25)
        self.again = torch.nn.Linear(4, 4, bias=False)
        self.again.weight = self.first.weight
        self.spare = torch.nn.Linear(1, 1)

    def forward(self, x: Any) -> Any:
        x = self.drop(self.bn(self.first(x)) * self.a_gain + self.shift)
        return self.again(x * self.hidden)


class Choosy(torch.nn.Module):  # type: ignore[misc]
    """torch.export cannot follow it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.fc(x) if x.sum() > 0 else x


X = torch.linspace(-1, 1, 12).reshape(3, 4)


def test_a_logged_model_comes_back(repo: Repo) -> None:
    model = Net().train()
    model(X)
    grown = list(model.state_dict())
    made = dlv.log_model(
        model, X, name="net", message="first", parameters={"lr": 0.1}, metrics={"loss": 0.5}
    )
    assert (made.name, made.message, made.step) == ("net", "first", None)
    assert made.hyperparameters == {"lr": 0.1}
    assert made.metrics["loss"].last == 0.5
    assert made.network is not None
    assert [node.op for node in made.network.nodes][:2] == ["FULL", "NORM"]
    back = repo["net"].module()
    assert not back.training
    assert list(back.state_dict()) == grown
    wanted = [name for name, _ in model.named_parameters()]
    assert [name for name, _ in back.named_parameters()] == wanted
    assert back.again.weight is back.first.weight
    for name, value in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], value)
    plain = model.eval()(X[:2])
    assert torch.equal(back(X[:2]), plain)
    trained = made.module(train=True)
    torch.manual_seed(1)
    found = trained(X)
    torch.manual_seed(1)
    assert torch.equal(found, model.train()(X))
    found.sum().backward()
    assert all(p.grad is not None for n, p in trained.named_parameters() if "spare" not in n)
    # What is trained is a copy: the stored version is what it was.
    with torch.no_grad():
        for tensor in trained.parameters():
            tensor.zero_()
    assert torch.equal(made.module()(X[:2]), plain)


def test_equal_tensors_that_are_not_tied(repo: Repo) -> None:
    """They are stored once, and yet go their own ways."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.fill_(0.5)
    back = repo.log_model(model, X, name="net").module()
    with torch.no_grad():
        back.get_parameter("0.weight").zero_()
    assert back.get_parameter("1.weight").min() == 0.5


def test_modules_of_steps(repo: Repo) -> None:
    model = Net()
    states = []
    with repo.run("net", parameters={"lr": 0.1}) as run:
        for step in (100, 200):
            with torch.no_grad():
                model.a_gain += step
            states.append(model.a_gain.detach().clone())
            run.log(step=step, loss=1 / step)
            run.log_model(model, X)
    version = repo["net"]
    assert version.steps == [100, 200]
    assert version.network is not None
    for reference, wanted in (("net/100", states[0]), ("net/200", states[1]), ("net", states[1])):
        made = repo[reference].module()
        assert torch.equal(made.a_gain, wanted)
        assert list(made.state_dict()) == list(model.state_dict())
    assert torch.equal(version.at(100).module().a_gain, states[0])


def test_the_network_stays_while_training_goes_on(repo: Repo) -> None:
    model = Net()
    repo.log_model(model, X, name="net")
    with torch.no_grad():
        model.a_gain.fill_(3)
    made = repo.commit("more", weights=model.state_dict())
    assert made.network is not None
    assert torch.equal(made.module()(X), model.eval()(X))


def test_what_cannot_be_exported_is_committed_without_a_network(repo: Repo) -> None:
    model = Choosy()
    with pytest.warns(UserWarning, match="Choosy is committed without its network") as found:
        made = dlv.log_model(model, X, name="net")
    assert found[0].filename == __file__
    assert made.network is None
    assert set(made.tensors) == {"fc.weight", "fc.bias"}
    with pytest.warns(UserWarning, match="without its network"):
        made = repo.log_model(torch.nn.Linear(4, 2), "no input", name="net")
    assert made.network is None
    with repo.run("net") as run:
        with pytest.warns(UserWarning, match="without its network"):
            run.log_model(model, X, step=1)
        run.log_model(model, X, step=2)  # told once
    assert repo["net"].steps == [1, 2]
    with pytest.raises(NotFound, match="net@3 has no network") as missing:
        repo["net"].module()
    assert missing.value.hint


def test_weights_into_a_module_of_ones_own(repo: Repo) -> None:
    model = Choosy().to(torch.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = repo.log_model(model, X, name="net")
    assert made.torch_state_dict()["fc.weight"].dtype == torch.bfloat16
    other = Choosy().to(torch.bfloat16)
    assert not torch.equal(other.fc.weight, model.fc.weight)
    made.load_into(other)
    assert torch.equal(other.fc.weight, model.fc.weight)
    with pytest.raises(RuntimeError):
        made.load_into(torch.nn.Linear(4, 2))


def test_few_tensors_are_in_memory_beside_a_module(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlv.versions.version.LOADED", 1)

    class Watching(torch.nn.Sequential):  # type: ignore[misc]
        def load_state_dict(self, state_dict: Any, strict: bool = True, **_: Any) -> Any:
            sizes.append(len(state_dict))
            return super().load_state_dict(state_dict, strict=strict)

    sizes: list[int] = []
    parts = [torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.LazyLinear(3)]
    model = Watching(*parts)
    model(torch.ones(5, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = repo.log_model(model, torch.ones(2, 2), name="net")
    other = Watching(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
    said = made.load_into(other)
    assert said.missing_keys == said.unexpected_keys == []
    assert sizes == [1] * 9
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
    lazy = Watching(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.LazyLinear(3))
    made.load_into(lazy)
    assert sizes[9:] == [9]
    assert torch.equal(lazy[2].weight, other[2].weight)


def compiled(model: Any) -> Any:
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize("wrap", [torch.nn.DataParallel, compiled])
def test_wrapped_models(repo: Repo, wrap: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 2))
    made = repo.log_model(wrap(model), X, name="net")
    assert list(made.tensors) == ["0.weight", "0.bias"]
    assert torch.equal(made.module()(X), model(X))


def test_what_is_not_there(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="not a torch module"):
        dlv.log_model({"w": 1}, X, name="net")
    with pytest.raises(UsageError, match="named NAME@1,"):
        dlv.log_model(torch.nn.Linear(4, 2), X)
    assert len(repo) == 0
    (tmp_path / "net.json").write_text(
        '{"dlv_network": 1, "inputs": [{"name": "x", "shape": ["B", 4]}], "outputs": ["fc"],'
        ' "nodes": [{"name": "fc", "op": "FULL", "attrs": {"out": 2}, "inputs": ["x"],'
        ' "params": {"weight": "fc.weight"}}]}'
    )
    repo.add("net.json")
    bare = repo.commit("no weights", name="bare")
    with pytest.raises(NotFound, match="has no weights"):
        bare.module()
    repo.add("net.json")
    made = repo.commit("other names", weights={"linear.weight": np.ones((2, 4), "f4")})
    with pytest.raises(NotFound, match=r"tensors that are not there: fc\.weight"):
        made.module()
    repo.add("net.json")
    made = repo.commit("all there", weights={"fc.weight": np.ones((2, 4), "f4")})
    # Another order of the additions, so not to the last bit.
    torch.testing.assert_close(made.module()(X), X.sum(1, keepdim=True).expand(3, 2))
    monkeypatch.chdir("/")
    with pytest.raises(NotARepository):
        dlv.log_model(Choosy(), X, name="net")


def test_logging_leaves_the_model_alone(repo: Repo) -> None:
    model = Net().train()
    model.bn.eval()
    model(X).sum().backward()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    random = torch.get_rng_state()
    repo.log_model(model, X, name="net")
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training
    assert not model.bn.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    for name, gradient in gradients.items():
        assert torch.equal(model.get_parameter(name).grad, gradient)
