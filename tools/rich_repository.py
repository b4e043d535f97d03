"""Make a repository with much in it, for pictures and for tests of the pages.

    python tools/rich_repository.py FOLDER

Small torch networks are trained on digits: 60 versions of six models in branches, with curves and
checkpoints, evaluations, bounds, a card, saved queries and a sweep. Needs torch and scikit-learn.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import dlv

ROOT = Path(__file__).resolve().parents[1]
DLV = [sys.executable, "-m", "dlv"]
# Model: (width, depth, versions, the model that it was copied from, learning rate)
PLANS = {
    "mlp": (32, 2, 14, None, 0.1),
    "mlp-wide": (96, 2, 12, "mlp", 0.1),
    "mlp-deep": (32, 6, 10, "mlp", 0.05),
    "conv": (8, 0, 12, None, 0.1),
    "conv-big": (16, 0, 8, "conv", 0.05),
    "residual": (24, 12, 4, None, 0.05),
}
CARD = """---
license: apache-2.0
tags: [digits, small]
---
# Digits

Reads handwritten digits of 8 x 8 pixels. Trained for the pictures in the documentation.
"""


class Block(nn.Module):
    """A residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down, self.norm = (
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.LayerNorm(width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.down(torch.relu(self.up(x))))


class Residual(nn.Module):
    """Many equal blocks, which a drawing folds."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.entry = nn.Linear(64, width)
        self.layer = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.entry(x.flatten(1))
        for block in self.layer:
            x = block(x)
        return self.head(x)


def network(name: str, width: int, depth: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    if name.startswith("conv"):
        return nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(8 * width, 10),
        )  # fmt: skip
    if name == "residual":
        return Residual(width, depth)
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(64, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def command(folder: Path, *words: str) -> None:
    subprocess.run([*DLV, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    x, y = load_digits(return_X_y=True)
    x = torch.tensor((x / 16).astype("float32").reshape(-1, 1, 8, 8))
    y = torch.tensor(y)
    order = torch.tensor(np.random.default_rng(0).permutation(len(x)))
    train, test = order[:1400], order[1400:]
    folder.mkdir(parents=True)
    np.savez(folder / "test.npz", x=x[test].numpy(), y=y[test].numpy())
    (folder / "CARD.md").write_text(CARD)
    with dlv.open(folder, create=True) as repo:
        models: dict[str, nn.Module] = {}
        turns = [(number, name) for name, plan in PLANS.items() for number in range(plan[2])]
        for number, name in sorted(turns, key=lambda turn: (turn[0], list(PLANS).index(turn[1]))):
            width, depth, _, source, rate = PLANS[name]
            model = models.setdefault(name, network(name, width, depth, number))
            lr = rate / (1 + number % 4)
            parameters = {
                "lr": lr, "batch": 32 << (number % 3), "seed": number, "width": width,
                "optimizer": {"name": "SGD", "momentum": [0.0, 0.9][number % 2]},
            }  # fmt: skip
            parents = [f"{source}@1"] if number == 0 and source is not None else []
            _train(repo, name, model, parameters, parents, (x[train], y[train]), (x[test], y[test]))
    for path in ("CARD.md", "test.npz"):
        command(folder, "add", path)
    shutil.copy(ROOT / "examples" / "digits" / "train.py", folder)
    command(folder, "add", "train.py")
    command(folder, "commit", "-m", "Card, script and test data")
    command(folder, "tag", "released", "conv@10")
    command(folder, "tag", "baseline", "mlp@1")
    for ref in ("mlp@14", "mlp-wide@12", "conv@12", "conv-big@8", "residual@4"):
        command(folder, "eval", ref, "test.npz", "--confusion")
    command(folder, "archive", "--bounds", "conv@12", "--calibration", "test.npz")
    command(folder, "archive")
    command(folder, "query", 'define good as select m where m["accuracy"] > 0.95')
    _sweep(folder, x[train], y[train])


def _train(repo, name, model, parameters, parents, train, test):  # type: ignore[no-untyped-def]
    momentum = parameters["optimizer"]["momentum"]
    optimizer = torch.optim.SGD(model.parameters(), parameters["lr"], momentum=momentum)
    message = f"{name}: lr {parameters['lr']:.3g}, momentum {momentum:g}"
    with repo.run(name, message, parameters=parameters, parents=parents) as run:
        for step in range(1, 61):
            rows = torch.randint(len(train[0]), (parameters["batch"],))
            loss = nn.functional.cross_entropy(model(train[0][rows]), train[1][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(step, loss=loss.item())
            if step % 20 == 0:
                with torch.no_grad():
                    hits = (model(test[0]).argmax(1) == test[1]).float().mean()
                run.log(step, accuracy=hits.item())
        run.log_model(model, test[0][:2])


def _sweep(folder: Path, x: torch.Tensor, y: torch.Tensor) -> None:
    np.savez(folder / "digits.npz", x=x[:1000].numpy(), y=y[:1000].numpy(),
             x_val=x[1000:].numpy(), y_val=y[1000:].numpy())  # fmt: skip
    (folder / "base.toml").write_text(
        'trainer = "torch"\ninput_data = "digits.npz"\nsteps = 60\nlog_every = 10\n'
        'batch_size = 32\noptimizer = "sgd"\nmomentum = 0.9\nbase_lr = 0.01\n'
    )
    text = (
        'evaluate m from (select m where m = "conv@12" or m = "mlp@14") with config = "base.toml"'
        " vary config.base_lr in [0.1, 0.03, 0.01, 0.001] and config.momentum in [0.0, 0.5, 0.9]"
        ' keep top(5, m["loss"], 30)'
    )
    command(folder, "query", "-y", text)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
