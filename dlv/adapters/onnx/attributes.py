"""The attributes of an ONNX operator while it is translated, and which of them were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlv.adapters.decimals import shortest
from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.model import Operator


class Attributes:
    """Attributes that no rule has read count as not understood."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.asked: set[str] = set()

    def given(self, name: str) -> Any:
        """What the file says, of whatever kind; None: nothing."""
        self.asked.add(name)
        return self.operator.attrs.get(name)

    def idle(self, *names: str) -> None:
        """These make no difference here, whatever they are."""
        self.asked.update(names)

    def integer(self, name: str, default: int | None = None) -> int:
        return int(self._attribute(name, default, int))

    def flag(self, name: str, default: int) -> bool:
        """0 or 1; what any other number means is told differently by everybody."""
        value = self.integer(name, default)
        if value not in (0, 1):
            raise Cannot(f"{name} is {value}")
        return bool(value)

    def decimal(self, name: str, default: float | None = None) -> float:
        return shortest(float(self._attribute(name, default, float)))

    def text(self, name: str, default: str | None = None) -> str:
        return str(self._attribute(name, default, str))

    def integers(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        found: list[int] = list(self._attribute(name, default, list))
        if not all(type(item) is int for item in found):
            raise Cannot(f"{name} are no whole numbers")
        return found

    def _attribute(self, name: str, default: Any, kind: type) -> Any:
        value = self.given(name)
        value = default if value is None else value
        if value is not default and type(value) is not kind:
            raise Cannot(f"{name} is of a wrong kind")
        if value is None:
            raise Cannot(f"{self.operator.kind} lacks {name}")
        return value
