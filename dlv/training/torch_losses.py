"""Losses and metrics in torch: what the scores of a network are worth, given the labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dlv.errors import UsageError
from dlv.network.graph import Network, Node, Port
from dlv.network.torch_types import functional, torch

Loss = Callable[[Any, Any], Any]


def scored(network: Network, loss: str, dropout: dict[str, float]) -> Network:
    """The part of a network that is trained: up to its scores, with other shares of dropout.

    Scores stand before a final softmax, or sigmoid, which the loss computes itself.
    """
    if not network.outputs:
        raise UsageError("the network has no output")
    port = _scores(network, network.outputs[0], loss)
    wanted = {port[0]}
    for node in reversed(network.topological()):
        if node.name in wanted:
            wanted.update(name for name, _ in node.inputs)
    return replace(
        network,
        nodes=tuple(_dropping(n, dropout) for n in network.nodes if n.name in wanted),
        inputs=tuple(item for item in network.inputs if item.name in wanted),
        constants={name: h for name, h in network.constants.items() if name in wanted},
        outputs=(port,),
    )


def _dropping(node: Node, dropout: dict[str, float]) -> Node:
    share = dropout.get(node.name)
    if share is None:
        return node
    # As it was exported, its share would be among its arguments.
    return replace(node, attrs={**node.attrs, "p": share}, source=None)


def _scores(network: Network, port: Port, loss: str) -> Port:
    while port[0] in network:
        node = network.node(port[0])
        passing = node.op == "LOSS" or (
            node.op == "RESHAPE" and node.attrs.get("kind") == "contiguous"
        )
        if loss == "cross_entropy" and node.op == "SOFTMAX":
            passing = node.attrs.get("axis") in (-1, 1)
        if loss == "bce" and node.op == "ACT":
            passing = node.variant == "SIGMOID"
        if not node.inputs or not passing:
            break
        port = node.inputs[0]
    return port


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
            raise UsageError(
                f"{self._data} has no labels",
                why=f"the loss {self._loss} needs them",
                hint="an array y beside x, or config.data.labels = its name",
            )
        if self._loss == "cross_entropy" and labels.dtype.kind in "biu":
            return self._classes(np.asarray(labels, np.int64), scores, device)
        if self._loss == "cross_entropy":
            whole = labels.astype(np.int64)
            if labels.shape != scores and np.array_equal(whole, labels):
                return self._classes(whole, scores, device)
        elif labels.shape != scores and int(np.prod(labels.shape)) == int(np.prod(scores)):
            labels = labels.reshape(scores)  # (rows,) for scores of (rows, 1)
        if labels.shape != scores:
            raise self._misfit(labels.shape, scores)
        if self._loss == "bce" and not ((labels >= 0) & (labels <= 1)).all():
            raise UsageError(f"labels of {self._data} are not between 0 and 1", why="loss: bce")
        return torch.from_numpy(np.asarray(labels, np.float32)).to(device)

    def _classes(self, labels: Any, scores: tuple[int, ...], device: Any) -> Any:
        if len(scores) < 2 or not _are_classes(labels.shape, scores):
            raise self._misfit(labels.shape, scores)
        classes = scores[1] if labels.shape == (scores[0], *scores[2:]) else scores[-1]
        wrong = (labels < 0) | (labels >= classes)
        if wrong.any():
            raise UsageError(
                f"{self._data} has the label {labels[wrong].flat[0]}",
                why=f"the network tells {classes} classes apart, 0 to {classes - 1}",
            )
        return torch.from_numpy(np.ascontiguousarray(labels)).to(device)

    def _misfit(self, labels: tuple[int, ...], scores: tuple[int, ...]) -> UsageError:
        return UsageError(
            f"the labels of {self._data} do not fit what the network computes",
            why=f"a batch has labels of {labels}, and scores of {scores}: loss {self._loss}",
        )


def _are_classes(labels: tuple[int, ...], scores: tuple[int, ...]) -> bool:
    by_second, by_last = (scores[0], *scores[2:]), scores[:-1]
    return labels in (by_second, by_last) or (
        labels == scores[:1] and all(side == 1 for side in scores[2:])
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
