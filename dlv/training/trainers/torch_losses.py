"""Losses and metrics in torch: what the scores of a network are worth, given the labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dlv.training.answers as answers
from dlv.network.graph import Network, Node
from dlv.network.torch.types import functional, torch

Loss = Callable[[Any, Any], Any]


def scored(network: Network, loss: str, dropout: dict[str, float]) -> Network:
    """The part of a network that is trained: up to its scores, with other shares of dropout.

    Scores stand before a final softmax, or sigmoid, which the loss computes itself.
    """
    port = answers.scores(network, loss)
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
            raise answers.no_labels(self._data, self._loss)
        return torch.from_numpy(answers.fitted(labels, scores, self._loss, self._data)).to(device)


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
