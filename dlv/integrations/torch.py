"""Plain torch loops: metrics, snapshots of the weights, and one version in the end.

with dlv.integrations.torch.track(model, "lenet", every=100) as run:
    for batch in data:
        ...
        run.log(loss=loss)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from dlv.api import unwrapped
from dlv.errors import require
from dlv.integrations.recorder import Recorder


def track(
    model: Any,
    name: str | None = None,
    *,
    every: int | None = None,
    example: Any = None,
    optimizer: Any = None,
    parameters: Mapping[str, Any] | None = None,
    monitor: str | None = None,
    mode: str = "min",
    message: str = "",
    parents: Sequence[str] = (),
    path: str | os.PathLike[str] = ".",
) -> Tracker:
    """Record the training of a module; `every` so many steps a snapshot, and one in the end.

    With an `example` of what the module is called with, its network is recorded, too. With
    `monitor`, a metric's name, the weights at its best value (`mode`: min or max) are kept.
    """
    recorder = Recorder(
        name or type(unwrapped(model)).__name__,
        path=os.fspath(path),
        message=message,
        parameters={**optimizer_settings(optimizer), **(parameters or {})},
        parents=parents,
        monitor=monitor,
        mode=mode,
        open_end=True,  # the loop is the user's own, and may say nothing of its end
    )
    return Tracker(model, recorder, every, example)


class Tracker:
    """A run that is being recorded; use it in a `with`, or call `finish` in the end."""

    def __init__(self, model: Any, recorder: Recorder, every: int | None, example: Any) -> None:
        self.model = model
        self.recorder = recorder
        self.every = every
        self.example = example
        recorder.before_end = self._last

    @property
    def version(self) -> Any:
        """The version, once it is committed; None if it could not be, and in other processes."""
        return self.recorder.version

    def log(self, step: int | None = None, **values: Any) -> None:
        """Record metrics at a step; without one, the next after the last."""
        if not is_first_process():
            return
        better = self.recorder.log(values, step)
        now = self.recorder.step
        due = bool(self.every) and now > 0 and now % (self.every or 1) == 0
        if due or better:
            save = saving(self.model, self.example)
            self.recorder.snapshot(save, now, best=better, lasting=due)

    def checkpoint(self, step: int | None = None) -> None:
        """Keep the weights as they are now."""
        if is_first_process():
            step = max(self.recorder.step, 0) if step is None else step
            self.recorder.snapshot(saving(self.model, self.example), step)

    def finish(self, error: BaseException | None = None) -> None:
        """Keep the last weights, and commit."""
        self._last()
        self.recorder.finish(error)

    def _last(self) -> None:
        if self.recorder.step >= 0:
            self.checkpoint()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None
    ) -> None:
        self.finish(value)


def saving(model: Any, example: Any = None) -> Any:
    """What puts a module's weights into a `dlv.runs.Run`."""

    def save(run: Any, step: int) -> None:
        inner = unwrapped(model)
        if is_sharded(inner):
            raise ValueError("weights are sharded over processes; recording only metrics")
        if example is not None:
            run.log_model(inner, example, step)
            return
        tensors = {k: v for k, v in inner.state_dict().items() if hasattr(v, "detach")}
        run.checkpoint(tensors, step, in_order=True)

    return save


def is_sharded(model: Any) -> bool:
    """Whether state_dict() would need all processes at once, which only the first one asks."""
    names = {type(module).__name__ for module in model.modules()}
    return "FullyShardedDataParallel" in names or any(
        type(parameter).__name__ == "DTensor" or hasattr(parameter, "ds_id")
        for parameter in model.parameters()
    )


def is_first_process() -> bool:
    torch: Any = require("torch", "torch")
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_rank() == 0)
    return os.environ.get("RANK", "0") == "0"


def optimizer_settings(optimizer: Any) -> dict[str, Any]:
    """An optimizer's name and the settings that it began with."""
    if optimizer is None:
        return {}
    settings = {"name": type(optimizer).__name__}
    for key, value in _defaults(optimizer):
        settings[key] = value
    return {"optimizer": settings}


def _defaults(optimizer: Any) -> Iterator[tuple[str, Any]]:
    for key, value in dict(getattr(optimizer, "defaults", {})).items():
        if isinstance(value, (bool, int, float, str)):
            yield key, value
        elif isinstance(value, (tuple, list)) and all(isinstance(v, (int, float)) for v in value):
            yield key, list(value)
