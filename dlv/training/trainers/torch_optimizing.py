"""Optimizers of torch: a group of parameters for each way to train, and their state as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlv.errors import Damaged, UsageError
from dlv.kinds import Array
from dlv.network.graph import Network
from dlv.network.torch.types import dtype_of, torch
from dlv.training.config import Config
from dlv.training.trial_files import words_of

OPTIMIZER = "optimizer/"
_WORDS = {1: torch.uint8, 2: torch.int16}


class Optimizing:
    """An optimizer whose rates follow a factor; nodes may have rates of their own."""

    def __init__(self, module: Any, network: Network, config: Config) -> None:
        self._names, groups = _groups(module, network, config)
        if not groups:
            raise UsageError(
                "the network has nothing to train",
                why="it has no weights, or config.net says of all of them that they are frozen",
            )
        self._rates = [group["lr"] for group in groups]
        self._clip = config["clip_norm"]
        self._parameters = [p for group in groups for p in group["params"]]
        self.optimizer = _made(config, groups)

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


def _made(config: Config, groups: list[dict[str, Any]]) -> Any:
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
            way = _way(config, config["net"].get(node.name, {}))
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
                    why=f"{name} belongs to both",
                )
    return names, [
        {"params": held, "lr": rate, "weight_decay": decay} for (rate, decay), held in found.items()
    ]


def _way(config: Config, said: Mapping[str, Any]) -> tuple[float, float] | None:
    """Rate and decay of a node's weights; None: frozen."""
    rate = said.get("lr", config["base_lr"] * said.get("lr_mult", 1.0))
    if said.get("frozen") or said.get("lr_mult") == 0.0 or said.get("lr") == 0.0:
        return None
    return float(rate), float(said.get("weight_decay", config["weight_decay"]))


def frozen(config: Config) -> set[str]:
    """The nodes whose weights do not change, nor their statistics."""
    return {name for name, said in config["net"].items() if _way(config, said) is None}
