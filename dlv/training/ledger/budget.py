"""What a run may cost: trials, hours, steps, and the seconds of one trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Budget:
    """None: without a limit."""

    trials: int | None = None  # so many are begun, in their order
    hours: float | None = None  # with a live worker, summed over restarts
    steps: int | None = None  # trained for this run, all trials together
    trial_seconds: float | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Budget:
        return cls(**{name: values.get(name) for name in cls.__dataclass_fields__})

    def as_json(self) -> dict[str, Any]:
        return {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if getattr(self, name) is not None
        }

    def reached(self, seconds: float, steps: int) -> str | None:
        """Why the whole run ends now."""
        if self.hours is not None and seconds >= self.hours * 3600:
            return f"budget: {self.hours:g} hours"
        if self.steps is not None and steps >= self.steps:
            return f"budget: {self.steps} steps"
        return None
