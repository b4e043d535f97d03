"""Trials repeated in plain torch, by what docs/evaluate.md says of schedules, batches and metrics.

The functions of the page are run as they stand there; nothing of dlv's training is imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dlv
from dlv.api import Repo
from dlv.training.workers import pool
from tests.dql import trying

torch = pytest.importorskip("torch")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "evaluate.md"
COUNT, SIZE, STEPS, SEED = 53, 8, 20, 7  # the last batch of an epoch is not full


def documented() -> Any:
    """The functions of the page."""
    text = PAGE.read_text().partition("## Repeating a trial in plain torch")[2]
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block[1], names)
    return SimpleNamespace(**names)


def network() -> Any:
    torch.manual_seed(3)
    nn = torch.nn
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.25), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 3)),
    )


def rows() -> tuple[Any, Any]:
    draw = np.random.default_rng(5)
    y = draw.integers(0, 3, COUNT)
    x = draw.normal(0, 1, (COUNT, 1, 6, 6)) + y[:, None, None, None] / 2
    return x.astype("f4"), y


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repo]:
    folder = tmp_path_factory.mktemp("documented")
    x, y = rows()
    np.savez(folder / "rows.npz", x=x, y=y)
    np.savez(folder / "split.npz", x=x[:40], y=y[:40], x_val=x[40:], y_val=y[40:])
    (folder / "base.toml").write_text(
        'trainer = "torch"\ninput_data = "rows.npz"\n'
        f"steps = {STEPS}\nlog_every = 5\nbatch_size = {SIZE}\nbase_lr = 0.05\nseed = {SEED}\n"
    )
    with dlv.open(folder, create=True) as opened:
        opened.log_model(network(), torch.zeros(2, 1, 6, 6), name="net")
        yield opened


def optimizer(module: Any, config: dict[str, Any]) -> Any:
    options = {"lr": config["base_lr"], "weight_decay": config["weight_decay"]}
    if config["optimizer"] == "sgd":
        options |= {"momentum": config["momentum"], "nesterov": config["nesterov"]}
        return torch.optim.SGD(module.parameters(), **options)
    kind = torch.optim.Adam if config["optimizer"] == "adam" else torch.optim.AdamW
    betas = (config["beta1"], config["beta2"])
    return kind(module.parameters(), **options, betas=betas, eps=config["epsilon"])


def in_order(module: Any) -> list[Any]:
    """The parameters layer by layer, of each the bias first: sums in another order round apart."""
    layers = [dict(layer.named_parameters(recurse=False)) for layer in module.modules()]
    return [parameters[name] for parameters in layers for name in sorted(parameters)]


def repeated(config: dict[str, Any]) -> tuple[Any, dict[int, dict[str, float]]]:
    """The trained module, and the metrics of each log."""
    page, module, seed = documented(), network(), config["seed"]
    with np.load(config["input_data"]) as data:
        arrays = {name: torch.from_numpy(data[name]) for name in data.files}
    x, y = arrays["x"], arrays["y"]
    if "x_val" in arrays:
        tested, labels = arrays["x_val"], arrays["y_val"]
    else:
        places = page.order("validation", len(x))
        count = max(1, round(len(x) * config["val"]))
        kept, left_out = np.sort(places[count:]), np.sort(places[:count])
        tested, labels, x, y = x[left_out], y[left_out], x[kept], y[kept]
    optimizing = optimizer(module, config)
    loss_of = torch.nn.functional.cross_entropy
    smoothed, logs = 0.0, {}
    for s in range(1, config["steps"] + 1):
        some = torch.from_numpy(page.batch(s, len(x), config["batch_size"], seed))
        torch.manual_seed(page.number(f"{seed}:dropout:{s}", 16) >> 1)
        module.train()
        optimizing.zero_grad()
        loss = loss_of(module(x[some]), y[some])
        loss.backward()
        if config["clip_norm"] is not None:
            torch.nn.utils.clip_grad_norm_(in_order(module), config["clip_norm"])
        for group in optimizing.param_groups:
            group["lr"] = config["base_lr"] * page.factor(s, config["steps"], **config["schedule"])
        optimizing.step()
        smoothed = 0.95 * smoothed + 0.05 * loss.item()
        if s % config["log_every"] == 0 or s == config["steps"]:
            module.eval()
            with torch.no_grad():
                scores = module(tested)
            logs[s] = {
                "loss": float(loss_of(scores, labels)),
                "accuracy": float((scores.argmax(1) == labels).double().mean()),
                "train_loss": smoothed / (1 - 0.95**s),
            }
    return module, logs


ADAMW = 'config.optimizer = "adamw", config.weight_decay = 0.1, config.base_lr = 0.01'
COSINE = 'config.schedule.kind = "cosine"'
STEP = 'config.schedule.kind = "step"'
SETTINGS = {
    "constant": "",
    "constant, warmup": "config.schedule.warmup = 7",
    "warmup longer than the training": "config.schedule.warmup = 40",
    "step": STEP,
    "step, every": f"{STEP}, config.schedule.every = 3, config.schedule.gamma = 0.7",
    "step, warmup": f"{STEP}, config.schedule.warmup = 8",
    "cosine": COSINE,
    "cosine, floor": f"{COSINE}, config.schedule.floor = 0.2",
    "cosine, warmup": f"{COSINE}, config.schedule.warmup = 4",
    "adam": f'{COSINE}, config.optimizer = "adam", config.base_lr = 0.01',
    "adamw": f"{STEP}, {ADAMW}",
    "nesterov": "config.nesterov = true, config.weight_decay = 0.01",
    "clipped": "config.clip_norm = 0.5",
    "another seed": "config.seed = 123456789",
    "a batch of all": "config.batch_size = 500",
    "data with a validation part": 'config.input_data = "split.npz"',
    "more to validate on": "config.val = 0.5",
}


@pytest.fixture
def sweep(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Any]:
    """Run a sweep of one trial, in this process: its trial and its version."""
    monkeypatch.setattr(pool, "train", trying.in_process)
    monkeypatch.chdir(repo.repository.root)

    def run(settings: str, keep: str) -> Any:
        words = f'"base.toml"{", " if settings else ""}{settings}'
        text = f'evaluate m from m where m = "net@1" with config = {words} {keep} into "tuned"'
        (trial,) = repo.query(text).trials
        return trial

    return run


@pytest.mark.parametrize("name", SETTINGS)
def test_a_trial_is_repeated_in_plain_torch(sweep: Callable[..., Any], name: str) -> None:
    """In one go here, in two slices there."""
    trial = sweep(SETTINGS[name], 'keep threshold(m["loss"] < 1000, 10)')
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        module, logs = repeated(dict(trial.config))
    finally:
        torch.set_num_threads(before)
    version = trial.version
    for metric in ("loss", "accuracy", "train_loss"):
        points = version.metric(metric)
        values = dict(zip(points.steps, points.values, strict=True))
        expected = {step: row[metric] for step, row in logs.items()}
        exact = metric != "train_loss"
        assert values == (expected if exact else pytest.approx(expected, rel=1e-12))
    for tensor, array in module.state_dict().items():
        assert np.array_equal(version.tensor(tensor), array.numpy()), tensor


def test_schedules_differ(sweep: Callable[..., Any]) -> None:
    """Each of them is another training: a test that takes one for the other would fail."""
    kinds = [name for name in SETTINGS if name.startswith(("constant", "step", "cosine"))]
    losses = [sweep(SETTINGS[name], "").metrics["loss"] for name in kinds]
    assert len(set(losses)) == len(kinds)
