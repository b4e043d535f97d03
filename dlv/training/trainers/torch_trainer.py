"""The built-in trainer: a network as a module of torch, trained by gradient descent."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

import dlv.training.fitting as fitting
from dlv.errors import Damaged, UsageError
from dlv.kinds import Array
from dlv.network.graph import Network, Node
from dlv.network.ops.op import op_of
from dlv.network.torch.module import build
from dlv.network.torch.types import dtype_of, functional, torch
from dlv.training.checkpoints import WEIGHT, Checkpoint
from dlv.training.config import Config
from dlv.training.trainers.datasets import Rows
from dlv.training.trainers.interface import Log
from dlv.training.trainers.rows import Batches, number
from dlv.training.trial_files import Trial, words_of

OPTIMIZER = "optimizer/"
_WORDS = {1: torch.uint8, 2: torch.int16}


class Optimizing:
    """An optimizer whose rates follow a factor; nodes may have rates of their own."""

    def __init__(self, module: Any, network: Network, config: Config) -> None:
        self._names, groups = _groups(module, network, config)
        if not groups:
            raise UsageError(
                "the network has no trainable weights",
                why="it has no weights, or config.net freezes all of them",
            )
        self._rates = [group["lr"] for group in groups]
        self._clip = config["clip_norm"]
        self._parameters = [p for group in groups for p in group["params"]]
        self.optimizer = _optimizer(config, groups)

    def step(self, factor: float) -> None:
        """One step from the gradients that are there."""
        if self._clip is not None:
            torch.nn.utils.clip_grad_norm_(self._parameters, self._clip, foreach=False)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        self.optimizer.step()

    def arrays(self) -> dict[str, Array]:
        """The state, by the names of parameters."""
        found = {}
        for parameter, state in self.optimizer.state.items():
            for key, value in state.items():
                if value is not None:
                    found[f"{OPTIMIZER}{key}/{self._names[id(parameter)]}"] = to_array(value)
        return found

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """The state as `arrays` gave it."""
        places = {self._names[id(parameter)]: parameter for parameter in self._parameters}
        for name, array in arrays.items():
            if not name.startswith(OPTIMIZER):
                continue
            key, _, of = name.removeprefix(OPTIMIZER).partition("/")
            if of not in places:
                raise Damaged(f"a checkpoint has an optimizer's state of {of!r}")
            parameter = places[of]
            tensor = torch.from_numpy(np.array(array))
            if array.shape == tuple(parameter.shape) and key != "step":
                if not parameter.dtype.is_floating_point or array.dtype.kind != "f":
                    tensor = tensor.view(parameter.dtype)
                tensor = tensor.to(parameter.device)
            self.optimizer.state[parameter][key] = tensor


def to_array(tensor: Any) -> Array:
    """A tensor's elements; those that numpy has no type for as words."""
    plain = tensor.detach().cpu().contiguous()
    try:
        array: Array = plain.numpy()
    except TypeError:
        words = plain.view(_WORDS[plain.element_size()]).numpy()
        array = words.view(np.uint16) if words.dtype == np.int16 else words
    return array.copy()


def to_tensor(array: Array, dtype: str, device: Any) -> Any:
    """The inverse, for a dtype of dlv's."""
    kind = dtype_of(dtype)
    words = np.array(array)
    if words_of(dtype) == dtype:
        return torch.from_numpy(words).to(device)
    signed = words.view(np.int16) if words.dtype == np.uint16 else words
    return torch.from_numpy(signed).view(kind).to(device)


def _optimizer(config: Config, groups: list[dict[str, Any]]) -> Any:
    name = config["optimizer"]
    if name == "sgd":
        return torch.optim.SGD(
            groups, momentum=config["momentum"], nesterov=config["nesterov"], foreach=False
        )
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    betas = (config["beta1"], config["beta2"])
    return kind(groups, betas=betas, eps=config["epsilon"], foreach=False)


def _groups(
    module: Any, network: Network, config: Config
) -> tuple[dict[int, str], list[dict[str, Any]]]:
    """Names by parameter, and parameters by rate and decay; frozen ones are in no group."""
    named = dict(module.named_parameters(remove_duplicate=False))
    names: dict[int, str] = {}
    ways: dict[int, tuple[float, float] | None] = {}
    found: dict[tuple[float, float], list[Any]] = {}
    for node in network.nodes:
        for name in node.params.values():
            parameter = named.get(network.aliases.get(name, name))
            if parameter is None:  # statistics, whole numbers
                continue
            way = _rate_and_decay(config, config["net"].get(node.name, {}))
            if id(parameter) not in names:
                names[id(parameter)] = network.aliases.get(name, name)
                ways[id(parameter)] = way
                parameter.requires_grad_(way is not None)
                if way is not None:
                    found.setdefault(way, []).append(parameter)
            elif ways[id(parameter)] != way:
                raise UsageError(
                    f"config.net says of {node.name} another thing than of a node that shares"
                    f" its weights",
                    why=f"both use {name}",
                )
    return names, [
        {"params": held, "lr": rate, "weight_decay": decay} for (rate, decay), held in found.items()
    ]


def _rate_and_decay(config: Config, own: Mapping[str, Any]) -> tuple[float, float] | None:
    """Rate and decay of a node's weights; None: frozen."""
    rate = own.get("lr", config["base_lr"] * own.get("lr_mult", 1.0))
    if own.get("frozen") or own.get("lr_mult") == 0.0 or own.get("lr") == 0.0:
        return None
    return float(rate), float(own.get("weight_decay", config["weight_decay"]))


def frozen(config: Config) -> set[str]:
    """The nodes whose weights do not change, nor their statistics."""
    return {name for name, said in config["net"].items() if _rate_and_decay(config, said) is None}


Loss = Callable[[Any, Any], Any]


def scoring_part(network: Network, loss: str, dropout: dict[str, float]) -> Network:
    """The part of a network that is trained: up to its scores, with other shares of dropout.

    Scores stand before a final softmax, or sigmoid, which the loss computes itself.
    """
    port = fitting.scores_port(network, loss)
    part = network.part((port,))
    return replace(part, nodes=tuple(_dropping(node, dropout) for node in part.nodes))


def _dropping(node: Node, dropout: dict[str, float]) -> Node:
    share = dropout.get(node.name)
    if share is None:
        return node
    # As it was exported, its share would be among its arguments.
    return replace(node, attrs={**node.attrs, "p": share}, source=None)


class Judge:
    """The loss of a configuration, and which share of the answers is right."""

    def __init__(self, loss: str, data: str) -> None:
        self._loss = loss
        self._data = data
        self._judge = _JUDGES[loss]

    def __call__(self, scores: Any, labels: Any) -> tuple[Any, Any]:
        """Mean loss, and how many answers are right (NaN where nothing can be)."""
        found: tuple[Any, Any] = self._judge(scores, labels)
        return found

    def labels(self, labels: Any, scores: tuple[int, ...], device: Any) -> Any:
        """The labels of a batch as the loss takes them; UsageError where they do not fit."""
        if labels is None:
            raise fitting.no_labels_error(self._data, self._loss)
        return torch.from_numpy(fitting.fitted_labels(labels, scores, self._loss, self._data)).to(
            device
        )


def _cross_entropy(scores: Any, labels: Any) -> tuple[Any, Any]:
    if labels.is_floating_point():  # shares of the classes
        right = (scores.argmax(-1) == labels.argmax(-1)).double().mean()
        flat = scores.flatten(0, -2)
        return functional.cross_entropy(flat, labels.flatten(0, -2).to(scores.dtype)), right
    if labels.dim() == 1 and scores.dim() > 2:
        scores = scores.flatten(1)
    if labels.shape != (scores.shape[0], *scores.shape[2:]):
        scores = scores.movedim(-1, 1)
    right = (scores.argmax(1) == labels).double().mean()
    return functional.cross_entropy(scores, labels), right


def _bce(scores: Any, labels: Any) -> tuple[Any, Any]:
    right = ((scores > 0) == (labels > 0.5)).double().mean()
    return functional.binary_cross_entropy_with_logits(scores, labels.to(scores.dtype)), right


def _mse(scores: Any, labels: Any) -> tuple[Any, Any]:
    return functional.mse_loss(scores, labels.to(scores.dtype)), torch.tensor(float("nan"))


_JUDGES: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "cross_entropy": _cross_entropy,
    "bce": _bce,
    "mse": _mse,
}


def rate_factor(schedule: Mapping[str, Any], steps: int, step: int) -> float:
    """By what the rates of step `step` (from 1 on) are multiplied; `steps` is config.steps.

    Beyond `steps`, a cosine stays where it ended.
    """
    done, warmup = step - 1, schedule["warmup"]
    if done < warmup:
        return float(step / (warmup + 1))
    kind = schedule["kind"]
    if kind == "step":
        every = schedule["every"] or max(1, math.ceil(steps / 3))
        return float(schedule["gamma"] ** (done // every))
    if kind == "cosine":
        share = min(1.0, (done - warmup) / max(1, steps - warmup))
        floor = schedule["floor"]
        return float(floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * share)))
    return 1.0


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
            if op_of(node).dropout
            and (share := config["net"].get(node.name, {}).get("dropout", config["dropout"]))
            is not None
        }
        self.network = scoring_part(trial.network, config["loss"], dropout)
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
            self._learn(self.batches.batch(self.step))
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
        self.optimizing.step(rate_factor(self.config["schedule"], self.config.steps, self.step))
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
