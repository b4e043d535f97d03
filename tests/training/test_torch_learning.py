"""What the trainer of torch computes, against numpy and against torch used plainly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dlv.errors import DlvError, UsageError
from dlv.network.graph import Network
from dlv.training.trainers import torch_trainer
from dlv.training.trainers.datasets import Data, Rows
from dlv.training.trainers.rows import Batches
from dlv.training.trial_files import Held
from tests.conformance.trainer import Run
from tests.training import small

torch = pytest.importorskip("torch")

Array = npt.NDArray[Any]
PLAIN = {"flip": False, "shift": 0, "noise": 0.0}


def trained(
    folder: Path,
    steps: int,
    network: Network | None = None,
    weights: Mapping[str, Array] | None = None,
    data: tuple[Array, Array] | None = None,
    **config: Any,
) -> tuple[Run, dict[str, Array]]:
    """A run, and its weights after so many steps."""
    where = small.saved(folder / "data.npz", *(data or small.blobs()))
    given = {"input_data": where, "batch_size": 16, "val": 0.0, "steps": steps, "log_every": steps}
    made = small.created(
        folder, network or small.mlp(), weights or small.mlp_weights(), {**given, **config}
    )
    run = Run(made.folder, small.READERS, config.get("log_every", steps)).to(steps)
    return run, {n: np.asarray(a) for n, a in run.newest.weights.items()}


def slopes(weights: Mapping[str, Array], x: Array, y: Array) -> tuple[float, dict[str, Array]]:
    """The mean cross entropy of the small network and its derivatives, in float64."""
    w1, b1, w2, b2 = (weights[n] for n in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"))
    hidden = np.maximum(x @ w1.T + b1, 0)
    scores = hidden @ w2.T + b2
    odds = np.exp(scores - scores.max(1, keepdims=True))
    odds /= odds.sum(1, keepdims=True)
    loss = -float(np.log(odds[np.arange(len(y)), y]).mean())
    out = (odds - np.eye(3)[y]) / len(y)
    inner = (out @ w2) * (hidden > 0)
    return loss, {
        "fc1.weight": inner.T @ x,
        "fc1.bias": inner.sum(0),
        "fc2.weight": out.T @ hidden,
        "fc2.bias": out.sum(0),
    }


def by_numpy(steps: int, seed: int = 0, **config: Any) -> tuple[dict[str, Array], float]:
    """The same training in float64; weights and the smoothed loss."""
    x, y = small.blobs()
    batches = Batches(Data("d", Rows({"x": x}, y, len(x)), None), seed, 16, PLAIN)
    weights = {n: a.astype(np.float64) for n, a in small.mlp_weights().items()}
    speed = {n: np.zeros_like(a) for n, a in weights.items()}
    square = {n: np.zeros_like(a) for n, a in weights.items()}
    kind = config.get("optimizer", "sgd")
    decay, momentum = config.get("weight_decay", 0.0), config.get("momentum", 0.9)
    schedule = {"kind": "constant", "warmup": 0, "every": None, "gamma": 0.1, "floor": 0.0}
    schedule |= config.get("schedule", {})
    smoothed, most = 0.0, config.get("clip_norm")
    for step in range(1, steps + 1):
        rows = batches.batch(step)
        assert rows.labels is not None
        loss, found = slopes(weights, rows.inputs["x"].astype(np.float64), rows.labels)
        smoothed = smoothed * 0.95 + loss * 0.05
        if most is not None:
            norm = math.sqrt(sum(float((g**2).sum()) for g in found.values()))
            found = {n: g * min(1.0, most / (norm + 1e-6)) for n, g in found.items()}
        factor = torch_trainer.rate_factor(schedule, steps, step)
        for name, slope in found.items():
            said = config.get("net", {}).get(name.split(".")[0], {})
            if said.get("frozen") or said.get("lr_mult") == 0:
                continue
            rate = said.get("lr", config.get("base_lr", 0.01) * said.get("lr_mult", 1.0)) * factor
            fading = said.get("weight_decay", decay)
            if kind == "sgd":
                slope = slope + fading * weights[name]
                speed[name] = slope if step == 1 else momentum * speed[name] + slope
                push = slope + momentum * speed[name] if config.get("nesterov") else speed[name]
                weights[name] = weights[name] - rate * push
                continue
            if kind == "adamw":
                weights[name] = weights[name] * (1 - rate * fading)
            else:
                slope = slope + fading * weights[name]
            speed[name] = 0.9 * speed[name] + 0.1 * slope
            square[name] = 0.999 * square[name] + 0.001 * slope**2
            root = np.sqrt(square[name] / (1 - 0.999**step)) + 1e-8
            weights[name] = weights[name] - rate * speed[name] / (1 - 0.9**step) / root
    return weights, smoothed / (1 - 0.95**steps)


WAYS: Mapping[str, dict[str, Any]] = {
    "sgd": {"base_lr": 0.05},
    "plain": {"base_lr": 0.05, "momentum": 0.0, "weight_decay": 0.01},
    "nesterov": {"base_lr": 0.02, "nesterov": True, "weight_decay": 0.01},
    "adam": {"base_lr": 0.01, "optimizer": "adam", "weight_decay": 0.1},
    "adamw": {"base_lr": 0.01, "optimizer": "adamw", "weight_decay": 0.1},
    "clipped": {"base_lr": 0.1, "clip_norm": 0.1},
    "warmed up": {"base_lr": 0.05, "schedule": {"kind": "cosine", "warmup": 5, "floor": 0.1}},
    "in steps": {"base_lr": 0.05, "schedule": {"kind": "step", "every": 4, "gamma": 0.5}},
    "by layer": {
        "base_lr": 0.05,
        "net": {"fc1": {"lr": 0.01, "weight_decay": 0.1}, "fc2": {"lr_mult": 0.5}},
    },
    "frozen": {"base_lr": 0.05, "net": {"fc1": {"frozen": True}}},
    "factor 0": {"base_lr": 0.05, "weight_decay": 0.1, "net": {"fc2": {"lr_mult": 0}}},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_training_is_what_numpy_computes(tmp_path: Path, way: str) -> None:
    config = WAYS[way]
    run, found = trained(tmp_path, 12, **config)
    expected, loss = by_numpy(12, **config)
    for name, array in expected.items():
        assert np.allclose(found[name], array, rtol=1e-4, atol=2e-6), name
    assert run.rows[12]["loss"] == pytest.approx(loss, rel=1e-5)
    for name, array in small.mlp_weights().items():
        layer = config.get("net", {}).get(name.split(".")[0], {})
        still = layer.get("frozen") or layer.get("lr_mult") == 0
        assert np.array_equal(found[name], array) == bool(still)


def plain_module() -> Any:
    """The network with batch normalisation, as one writes it in torch."""
    torch_nn = torch.nn
    module = torch_nn.Module()
    module.conv1 = torch_nn.Conv2d(1, 4, 3, padding=1)
    module.bn1 = torch_nn.BatchNorm2d(4)
    module.fc = torch_nn.Linear(36, 3)
    state = {name: torch.from_numpy(array.copy()) for name, array in small.cnn_weights().items()}
    module.load_state_dict(state)

    def forward(x: Any) -> Any:
        hidden = torch.relu(module.bn1(module.conv1(x)))
        return module.fc(torch.max_pool2d(hidden, 2).flatten(1))

    module.forward = forward
    return module


def test_statistics_of_batches_are_those_of_torch(tmp_path: Path) -> None:
    data = small.pictures()
    config = {"base_lr": 0.05, "dropout": 0.0}
    _, found = trained(tmp_path, 10, small.cnn(), small.cnn_weights(), data, **config)
    module = plain_module()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    batches = Batches(Data("d", Rows({"x": data[0]}, data[1], len(data[0])), None), 0, 16, PLAIN)
    for step in range(1, 11):
        rows = batches.batch(step)
        optimizer.zero_grad()
        scores = module(torch.from_numpy(rows.inputs["x"]))
        torch.nn.functional.cross_entropy(scores, torch.from_numpy(rows.labels)).backward()
        optimizer.step()
    for name, tensor in module.state_dict().items():
        assert np.allclose(found[name], tensor.numpy(), rtol=1e-4, atol=1e-5), name
    assert found["bn1.num_batches_tracked"] == 10


def test_a_frozen_normalisation_keeps_its_statistics(tmp_path: Path) -> None:
    net = {"bn1": {"frozen": True}}
    _, found = trained(
        tmp_path, 5, small.cnn(), small.cnn_weights(), small.pictures(), net=net, base_lr=0.05
    )
    start = small.cnn_weights()
    for name in start:
        assert np.array_equal(found[name], start[name]) == name.startswith("bn1"), name


def test_shares_of_dropout(tmp_path: Path) -> None:
    def with_share(name: str, **config: Any) -> Array:
        given = {"network": small.cnn(), "weights": small.cnn_weights(), "data": small.pictures()}
        found: Array = trained(tmp_path / name, 3, **given, **config)[1]["fc.weight"]  # type: ignore[arg-type]
        return found

    usual = with_share("usual")
    assert np.array_equal(usual, with_share("said", dropout=0.3))
    assert np.array_equal(usual, with_share("of one", dropout=0.5, net={"drop": {"dropout": 0.3}}))
    none = with_share("none", dropout=0.0)
    assert not np.array_equal(usual, none)
    assert not np.array_equal(none, with_share("most", dropout=0.9))


def with_last(*more: dict[str, Any]) -> Network:
    return small.network(
        [
            {"name": "fc1", "op": "FULL", "attrs": {"out": 8}},
            {"name": "relu1", "op": "RELU"},
            {"name": "fc2", "op": "FULL", "attrs": {"out": 3}},
            *more,
        ],
        ["B", 4],
    )


def test_a_final_softmax_is_the_losses(tmp_path: Path) -> None:
    _, plain = trained(tmp_path / "plain", 5, base_lr=0.1)
    for log in (False, True):
        last = {"name": "last", "op": "SOFTMAX", "attrs": {"axis": -1, "log": log}}
        _, found = trained(tmp_path / str(log), 5, with_last(last), base_lr=0.1)
        assert all(np.array_equal(found[name], plain[name]) for name in plain)


def logistic(weights: Mapping[str, Array], x: Array) -> Array:
    hidden = np.maximum(x @ weights["fc1.weight"].T + weights["fc1.bias"], 0)
    scores: Array = hidden @ weights["fc2.weight"].T + weights["fc2.bias"]
    return scores


@pytest.mark.parametrize("last", [True, False])
def test_binary_cross_entropy(tmp_path: Path, last: bool) -> None:
    x, labels = small.blobs()
    y = np.eye(3, dtype=np.float32)[labels]
    sigmoid = [{"name": "last", "op": "ACT", "variant": "SIGMOID"}] if last else []
    run, found = trained(
        tmp_path, 60, with_last(*sigmoid), data=(x, y), loss="bce", base_lr=0.1, val=0.3
    )
    kept = held_out(x, y, run)
    odds = 1 / (1 + np.exp(-logistic(found, kept[0]).astype(np.float64)))
    loss = -(kept[1] * np.log(odds) + (1 - kept[1]) * np.log(1 - odds)).mean()
    assert run.rows[60]["loss"] == pytest.approx(loss, rel=1e-4)
    assert run.rows[60]["accuracy"] == pytest.approx(((odds > 0.5) == (kept[1] > 0.5)).mean())
    assert run.rows[60]["accuracy"] > 0.9


def held_out(x: Array, y: Array, run: Run) -> tuple[Array, Array]:
    """The rows that were not trained on."""
    trial = run.trial()
    found = small.opened(trial)
    assert found.validation is not None
    assert found.validation.labels is not None
    assert len(found.validation.labels) == round(len(y) * trial.config["val"])
    assert {row.tobytes() for row in found.validation.inputs["x"]} <= {r.tobytes() for r in x}
    return found.validation.inputs["x"], found.validation.labels


def test_squared_errors(tmp_path: Path) -> None:
    x, _ = small.blobs()
    y = (x[:, :3] * [1, -1, 0.5]).astype(np.float32)
    run, found = trained(tmp_path, 100, data=(x, y), loss="mse", base_lr=0.05, val=0.2)
    kept, wanted = held_out(x, y, run)
    loss = ((logistic(found, kept).astype(np.float64) - wanted) ** 2).mean()
    assert run.rows[100] == {
        "loss": pytest.approx(loss, rel=1e-4),
        "train_loss": pytest.approx(loss, abs=0.2),
    }
    assert loss < 0.15


def test_figures_of_validation(tmp_path: Path) -> None:
    run, found = trained(tmp_path, 40, base_lr=0.05, val=0.3)
    x, y = held_out(*small.blobs(), run)
    loss, _ = slopes({n: a.astype(np.float64) for n, a in found.items()}, x.astype(np.float64), y)
    assert run.rows[40]["loss"] == pytest.approx(loss, rel=1e-4)
    right = (logistic(found, x).argmax(1) == y).mean()
    assert run.rows[40]["accuracy"] == pytest.approx(right)
    assert right > 0.9


@pytest.mark.parametrize(
    ("labels", "config", "said"),
    [
        (None, {}, "has no labels"),
        (np.full(90, 3), {}, "has the label 3"),
        (np.full(90, -1), {}, "has the label -1"),
        (np.full(90, 0.5), {}, "do not fit what the network computes"),
        (np.zeros((90, 2), np.int64), {}, "do not fit what the network computes"),
        (np.zeros((90, 2)), {"loss": "mse"}, "do not fit what the network computes"),
        (np.full((90, 3), 2.0), {"loss": "bce"}, "are not between 0 and 1"),
    ],
)
def test_labels_that_do_not_fit(
    tmp_path: Path, labels: Array | None, config: dict[str, Any], said: str
) -> None:
    x, _ = small.blobs()
    path = tmp_path / "d.npz"
    np.savez(path, **{"x": x} if labels is None else {"x": x, "y": labels})  # type: ignore[arg-type]
    given = {"input_data": str(path), "steps": 3, "log_every": 3, **config}
    made = small.created(tmp_path, small.mlp(), small.mlp_weights(), given)
    with pytest.raises(UsageError, match=said):
        Run(made.folder, small.READERS, 3).to(3)


def test_labels_as_shares_and_of_other_shapes(tmp_path: Path) -> None:
    x, labels = small.blobs()
    _, plain = trained(tmp_path / "plain", 5, base_lr=0.1)
    shares = np.eye(3, dtype=np.float32)[labels]
    _, found = trained(tmp_path / "shares", 5, data=(x, shares), base_lr=0.1)
    assert all(np.allclose(found[n], plain[n], atol=1e-6) for n in plain)
    for other in (labels.astype(np.float64), labels.astype(np.uint8), labels[:, None]):
        name = f"{other.dtype} {other.ndim}"
        _, found = trained(tmp_path / name, 5, data=(x, other), base_lr=0.1)
        assert all(np.array_equal(found[n], plain[n]) for n in plain)


def test_nothing_to_train(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trainable"):
        trained(tmp_path, 2, net={"*": {"frozen": True}})


def test_a_rate_that_is_too_high_diverges(tmp_path: Path) -> None:
    x, _ = small.blobs()
    y = (x[:, :3] * 1e6).astype(np.float32)
    where = small.saved(tmp_path / "d.npz", x, y)
    given = {"input_data": where, "loss": "mse", "base_lr": 1e6, "steps": 20, "log_every": 4}
    made = small.created(tmp_path, small.mlp(), small.mlp_weights(), given)
    run = Run(made.folder, small.READERS, 4).to(20)
    assert len(run.rows) < 5
    assert not all(math.isfinite(v) for v in run.rows[max(run.rows)].values())


def test_weights_of_half_the_width(tmp_path: Path) -> None:
    half = {
        "fc1.weight": ("bfloat16", (8, 4)),
        "fc1.bias": ("bfloat16", (8,)),
        "fc2.weight": ("bfloat16", (3, 8)),
        "fc2.bias": ("bfloat16", (3,)),
    }
    network = small.mlp()
    form = network.canonical()
    form["inputs"][0]["dtype"] = "bfloat16"
    network = Network.from_canonical(form)
    start = {}
    for name, (dtype, shape) in half.items():
        words = (small.mlp_weights()[name].view(np.uint32) >> 16).astype("<u2")
        start[name] = Held(dtype, shape, words.tobytes())
    where = small.saved(tmp_path / "d.npz", *small.blobs())
    for kind in ("sgd", "adam"):
        given = {"input_data": where, "base_lr": 0.05, "steps": 40, "log_every": 8}
        given["optimizer"] = kind
        runs = []
        for name in ("whole", "cut"):
            made = small.of_held(tmp_path / kind / name, network, start, given)
            runs.append(Run(made.folder, small.READERS, 8))
        runs[0].to(40)
        runs[1].to(8, 20, 40)
        assert runs[0].bits() == runs[1].bits()
        assert {dtype for dtype, _, _ in runs[0].bits().values()} == {"bfloat16"}
        assert runs[0].rows[40]["accuracy"] > 0.9


def test_a_network_of_a_fixed_length(tmp_path: Path) -> None:
    form = small.mlp().canonical()
    form["inputs"][0]["shape"][0] = 16
    fixed = Network.from_canonical(form)
    run, found = trained(tmp_path / "fixed", 10, fixed, batch_size=7, val=0.3)
    _, plain = trained(tmp_path / "plain", 10, val=0.3)
    assert all(np.array_equal(found[name], plain[name]) for name in plain)
    x, y = held_out(*small.blobs(), run)
    right = (logistic(found, x[:16]).argmax(1) == y[:16]).mean()
    assert run.rows[10]["accuracy"] == pytest.approx(right)
    with pytest.raises(UsageError, match="has 9 rows to validate on"):
        trained(tmp_path / "few", 10, fixed, val=0.1)


def test_what_it_changes_of_torch_it_puts_back(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    trained(tmp_path, 3, threads=threads + 1, deterministic=True)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(DlvError):
        trained(tmp_path / "bad", 3, device="nowhere")
    assert torch.get_num_threads() == threads


def test_batches_of_code(tmp_path: Path) -> None:
    (tmp_path / "own_stream.py").write_text(
        "import numpy as np\n"
        "def make(seed, step):\n"
        "    draw = np.random.default_rng([seed, step])\n"
        "    y = draw.integers(0, 3, 16)\n"
        "    return draw.normal(0, 0.3, (16, 4)) + np.eye(3, 4)[y] * 2, y\n"
    )
    given = {"input_data": "python:own_stream:make", "base_lr": 0.1, "steps": 60, "log_every": 20}
    made = small.created(tmp_path, small.mlp(), small.mlp_weights(), given)
    run = Run(made.folder, small.READERS, 20).to(20, 60)
    assert run.rows[60].keys() == {"loss", "accuracy"}
    assert run.rows[60]["accuracy"] > 0.9
