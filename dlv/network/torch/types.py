"""torch itself, for the modules that run networks in it: its dtypes, and what one call gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlv.dataclass import dataclass
from dlv.dtypes import DTYPES
from dlv.errors import UsageError, require
from dlv.network.graph import Node

torch: Any = require("torch", "torch")
functional: Any = torch.nn.functional


@dataclass(frozen=True)
class Call:
    """One run of one node. `sizes`: what the symbols of the network's inputs stand for."""

    inputs: Sequence[Any]
    params: Mapping[str, Any]  # slot -> tensor, but for slots that are empty
    training: bool
    sizes: Mapping[str, Any]
    device: Any  # of the network's inputs

    def param(self, slot: str) -> Any:
        return self.params.get(slot)


Run = Callable[[Call], Any]


def dtype_of(name: str) -> Any:
    """torch's dtype of that name here."""
    found = getattr(torch, DTYPES[name].torch if name in DTYPES else name, None)
    if not isinstance(found, torch.dtype):
        raise UsageError(
            f"torch {torch.__version__} has no dtype {name}",
            hint=None if name.startswith("raw:") else "a newer torch may have it",
        )
    return found


def refuse(node: Node, message: str, *, hint: str | None = None) -> UsageError:
    """The error of a node that cannot be run as it stands."""
    what = node.op if node.variant is None else f"{node.op} {node.variant}"
    return UsageError(f"layer {node.name!r} ({what}): {message}", hint=hint)
