"""The built-in trainer: a network as a module of torch, trained by gradient descent."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from dlv.errors import UsageError
from dlv.network.torch.module import build
from dlv.network.torch.types import dtype_of, torch
from dlv.training.checkpoints import WEIGHT, Checkpoint
from dlv.training.trainers.batches import Batches, number
from dlv.training.trainers.datasets import Rows
from dlv.training.trainers.interface import Log
from dlv.training.trainers.rates import factor
from dlv.training.trainers.torch_losses import Judge, scored
from dlv.training.trainers.torch_optimizing import Optimizing, frozen, to_array, to_tensor
from dlv.training.trial_files import Trial

# Rows at a time when the network is tested: fixed, as rounding may depend on it.
_TESTED = 512
# Of the smoothed figures of training: how much of the one before stays at each step.
_STAYS = 0.95


def train(trial: Trial, steps: int, checkpoint: Checkpoint, log: Log) -> None:
    """Train to `steps`; bit for bit the same in one go and in several."""
    if checkpoint.step >= steps:
        return
    config = trial.config
    with _alone(config["threads"], config["deterministic"]):
        Training(trial, checkpoint).run(steps, log)


class Training:
    """A network on its way: weights, optimizer, smoothed figures."""

    def __init__(self, trial: Trial, checkpoint: Checkpoint) -> None:
        self.config = config = trial.config
        self.trial = trial
        self.step = checkpoint.step
        self.fixed: int | None = None  # rows at a time, where the network says so
        self.device = _device(config["device"])
        dropout = {
            node.name: share
            for node in trial.network.nodes
            if node.op == "DROPOUT"
            and (share := config["net"].get(node.name, {}).get("dropout", config["dropout"]))
            is not None
        }
        self.network = scored(trial.network, config["loss"], dropout)
        self.module = self._built(checkpoint.weights)
        self.module.hold(frozen(config))
        self.optimizing = Optimizing(self.module, self.network, config)
        self.optimizing.restore(checkpoint.arrays)
        self.data = trial.data
        self.judge = Judge(config["loss"], self.data.name)
        self.batches = Batches(
            self.data,
            config.seed,
            self._batch(config["batch_size"]),
            config["augment"],
            channels_last=any(n.attrs.get("channels") == "last" for n in self.network.nodes),
        )
        smoothed = checkpoint.arrays.get("smoothed", np.zeros(2))
        self.smoothed = torch.from_numpy(np.array(smoothed)).to(self.device)

    def _batch(self, size: int) -> int:
        """How many rows are trained on at once, and tested: as many as the network takes."""
        fixed = [i.shape[0] for i in self.network.inputs if i.shape and isinstance(i.shape[0], int)]
        if not fixed:
            return size
        parts = {"to train on": self.data.train, "to validate on": self.data.validation}
        for what, rows in parts.items():
            if rows is not None and rows.count < fixed[0]:
                raise UsageError(
                    f"{self.data.name} has {rows.count} rows {what}",
                    why=f"the network takes {fixed[0]} at a time: its batch has a fixed length",
                )
        self.fixed = fixed[0]
        return fixed[0]

    def _built(self, weights: Mapping[str, Any]) -> Any:
        """The module, with the weights of the checkpoint, else of the start."""
        trial, tensors, buffers = self.trial, {}, []
        for start in trial.tensors.values():
            if start.tied is not None:
                continue
            given = weights.get(start.name) if weights else None
            if given is not None:
                trial.tensor_of(start.name, given)
            array = trial.weights(start.name) if given is None else given
            tensors[start.name] = to_tensor(array, start.dtype, self.device)
            if start.role == "buffer":
                buffers.append(start.name)
        constants = {
            name: to_tensor(trial.constant(name), start.dtype, self.device)
            for name, start in trial.constants.items()
        }
        return build(self.network, tensors, constants, buffers=buffers)

    def run(self, steps: int, log: Log) -> None:
        every = self.config.log_every
        while self.step < steps:
            self.step += 1
            self._learn(self.batches.of(self.step))
            due = self.step % every == 0 or self.step == steps
            if due and log(self.step, self.metrics(), self.state()):
                return

    def _learn(self, rows: Rows) -> None:
        # Whatever is drawn in a step is drawn from its own seed, as steps may be resumed.
        torch.manual_seed(number(self.config.seed, "dropout", self.step))
        self.module.train()
        scores = self.module(**self._inputs(rows))
        loss, right = self.judge(scores, self._labels(rows, scores))
        for parameter in self.module.parameters():
            parameter.grad = None
        loss.backward()
        self.optimizing.step(factor(self.config["schedule"], self.config.steps, self.step))
        seen = torch.stack([loss.detach().double(), right.to(self.device)])
        self.smoothed = self.smoothed * _STAYS + seen * (1.0 - _STAYS)

    def _inputs(self, rows: Rows) -> dict[str, Any]:
        dtypes = {item.name: item.dtype for item in self.network.inputs}
        found = {}
        for name, array in rows.inputs.items():
            tensor = torch.from_numpy(np.ascontiguousarray(array))
            found[name] = tensor.to(self.device, dtype_of(dtypes.get(name, str(array.dtype))))
        return found

    def _labels(self, rows: Rows, scores: Any) -> Any:
        return self.judge.labels(rows.labels, tuple(scores.shape), self.device)

    def metrics(self) -> dict[str, float]:
        """Of the rows that are not trained on, where there are any; else smoothed of training."""
        smoothed = (self.smoothed / (1.0 - _STAYS**self.step)).tolist()
        found = {"loss": smoothed[0], "accuracy": smoothed[1]}
        wanted = self.config["metrics"]
        if self.data.validation is None:
            return {name: found[name] for name in wanted}
        tested = self._tested(self.data.validation)
        return {**{name: tested[name] for name in wanted}, "train_loss": smoothed[0]}

    def _tested(self, rows: Rows) -> dict[str, float]:
        self.module.eval()
        at_once = self.fixed or _TESTED
        count = rows.count - (rows.count % self.fixed if self.fixed else 0)
        total = torch.zeros(2, dtype=torch.float64, device=self.device)
        with torch.no_grad():
            for start in range(0, count, at_once):
                part = rows.take(slice(start, start + at_once))
                scores = self.module(**self._inputs(part))
                loss, right = self.judge(scores, self._labels(part, scores))
                total += torch.stack([loss.double(), right.to(self.device)]) * part.count
        loss, right = (total / count).tolist()
        return {"loss": loss, "accuracy": right}

    def state(self) -> dict[str, Any]:
        held = self.module.state_dict()
        weights = {
            f"{WEIGHT}{start.name}": to_array(held[start.name])
            for start in self.trial.tensors.values()
            if start.tied is None
        }
        return {**weights, **self.optimizing.arrays(), "smoothed": to_array(self.smoothed)}


@contextmanager
def _alone(threads: int, deterministic: bool) -> Iterator[None]:
    """torch with so many threads, and its random numbers and settings put back afterwards."""
    before, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with torch.random.fork_rng(devices=[]):
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic or strict, warn_only=warns)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(strict, warn_only=warns)
            torch.set_num_threads(before)


def _device(name: str) -> Any:
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        said = str(error).partition("\n")[0]
        raise UsageError(f"config.device is {name!r}", why=said) from error
    return device
