"""The callback under the real Lightning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dlv.api as api

torch = pytest.importorskip("torch", reason="torch is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pl: Any = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
    from dlv.integrations.lightning import DlvCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # of Lightning and what it uses
Said = Callable[[], list[str]]


class Net(pl.LightningModule):  # type: ignore[misc, name-defined, unused-ignore]
    def __init__(self, width: int = 4, fail_at: int = -1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.body = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Dropout(0.5))
        self.head = torch.nn.Linear(width, 1)
        self.fail_at = fail_at
        self.losses: list[float] = []
        self.example_input_array = torch.zeros(2, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x))

    def training_step(self, batch: Any, _: int) -> Any:
        if self.global_step == self.fail_at:
            raise KeyError("here")
        loss = self(batch).square().mean()
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("val_loss", self(batch).square().mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(callback: Any | None, net: Any = None, epochs: int = 3, **given: Any) -> Any:
    """Five steps an epoch, all seeded."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = net or Net()
    data = torch.utils.data.DataLoader(torch.randn(20, 3), batch_size=4)
    settings: dict[str, Any] = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
    }
    settings |= {"enable_model_summary": False, "accelerator": "cpu", "log_every_n_steps": 2}
    trainer = pl.Trainer(
        max_epochs=epochs, callbacks=[callback] if callback else [], **{**settings, **given}
    )
    trainer.fit(net, data, data)
    return net


def state_of(model: Any) -> list[bytes]:
    return [value.numpy().tobytes() for value in model.state_dict().values()]


def test_a_training(project: Path, said: Said) -> None:
    callback = DlvCallback("net", every_epochs=2, every_steps=4, parameters={"note": "x"})
    net = fit(callback)
    assert said() == []
    with api.open() as repo:
        version = repo["net@1"]
        assert version.id == callback.version.id
        assert version.steps == [4, 8, 10, 12, 15]
        for name, value in net.state_dict().items():
            assert version.tensor(name).tobytes() == value.numpy().tobytes()
        loss = version.metric("loss")
        # Every second step, and what is there when an epoch ends.
        assert list(loss.steps) == [2, 4, 5, 6, 8, 10, 12, 14, 15]
        assert list(loss.values) == [net.losses[step - 1] for step in loss.steps]
        assert list(version.metric("val_loss").steps) == [5, 10, 15]
        assert version.hyperparameters["width"] == 4
        assert version.hyperparameters["note"] == "x"
        assert version.hyperparameters["trainer.max_epochs"] == 3
        assert version.hyperparameters["optimizer.lr"] == 0.1


def test_training_is_the_same_without_it(project: Path) -> None:
    plain = fit(None)
    after = torch.random.get_rng_state()
    callback = DlvCallback(every_steps=1, monitor="val_loss", network=True)
    net = fit(callback)
    assert callback.version.name == "Net"
    assert net.losses == plain.losses
    assert state_of(net) == state_of(plain)
    assert torch.equal(torch.random.get_rng_state(), after)


def test_a_network(project: Path) -> None:
    callback = DlvCallback(network=True)
    fit(callback, epochs=1)
    network = callback.version.network
    assert network is not None
    assert [node.op for node in network.nodes] == ["FULL", "DROPOUT", "FULL"]


def test_the_best_is_kept(project: Path) -> None:
    callback = DlvCallback("net", every_epochs=None, monitor="val_loss")
    fit(callback, epochs=4)
    with api.open() as repo:
        version = repo["net@1"]
        values = version.metric("val_loss")
        best = min(zip(values.values, values.steps, strict=True))
        assert version.hyperparameters["best.val_loss"] == best[0]
        assert version.hyperparameters["best.step"] == best[1]
        assert version.steps == sorted({best[1], 20})


def test_gradients_are_accumulated(project: Path) -> None:
    callback = DlvCallback("net", every_epochs=None, every_steps=1)
    fit(callback, epochs=2, accumulate_grad_batches=2)
    assert callback.version.steps == [1, 2, 3, 4, 5, 6]


def test_one_after_the_other(project: Path) -> None:
    callback = DlvCallback("net")
    net = fit(callback, epochs=1)
    fit(callback, net, epochs=1)
    with api.open() as repo:
        assert repo["net@2"].parents == [repo["net@1"].id]


def test_a_training_that_fails(project: Path) -> None:
    callback = DlvCallback("net", every_epochs=None)
    with pytest.raises(KeyError, match="here"):
        fit(callback, Net(fail_at=7))
    assert callback.version.message == "training of net (stopped by KeyError)"
    assert callback.version.steps == [7]


def test_a_failure_does_not_stop_it(failing: str, said: Said) -> None:
    plain = fit(None)
    callback = DlvCallback("net", every_steps=2, monitor="val_loss")
    net = fit(callback)
    assert (net.losses, state_of(net)) == (plain.losses, state_of(plain))
    assert 1 <= len(said()) <= 2
    assert any(failing in text for text in said())


def test_not_for_a_try(project: Path) -> None:
    fit(DlvCallback("net"), fast_dev_run=True)
    with api.open() as repo:
        assert len(repo) == 0


def test_other_processes_record_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl.Trainer, "is_global_zero", False)
    fit(DlvCallback("net"), epochs=1)
    with api.open() as repo:
        assert len(repo) == 0


def test_with_loggers_and_checkpoints(project: Path) -> None:
    """Nothing goes elsewhere because of the callback."""
    places = []
    for name, callback in (("with", DlvCallback("net")), ("without", None)):
        root = project / name
        fit(callback, epochs=1, default_root_dir=root, enable_checkpointing=True, logger=True)
        places.append(
            {p.relative_to(root).as_posix() for p in root.rglob("*") if p.suffix == ".ckpt"}
        )
    assert places[0] == places[1]
    assert places[0]
