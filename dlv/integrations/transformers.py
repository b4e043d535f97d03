"""Hugging Face: `Trainer(..., callbacks=[DlvCallback("bert")])` records a training as a version."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlv.api import unwrapped
from dlv.errors import require
from dlv.integrations.recorder import Recorder
from dlv.integrations.torch import saving

_transformers: Any = require("transformers", "transformers")
_ALWAYS = {
    *("learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps", "max_steps"),
    *("num_train_epochs", "weight_decay", "lr_scheduler_type", "optim", "seed"),
}
# Where things are put and shown, and what is secret: no matter of the training.
_NEVER = ("dir", "token", "hub_", "push_", "report_to", "run_name", "logging_", "log_", "project")


class DlvCallback(_transformers.TrainerCallback):  # type: ignore[misc]
    """What the Trainer logs, snapshots, settings; one version for each `train`.

    A snapshot is kept whenever the Trainer saves or, with `every_steps`, every so many steps;
    at the best value of `monitor` (`mode`: min or max), and in the end.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        every_steps: int | None = None,
        monitor: str | None = None,
        mode: str = "min",
        parameters: Mapping[str, Any] | None = None,
        message: str = "",
        parents: Sequence[str] = (),
        path: str | Path = ".",
    ) -> None:
        super().__init__()
        self.every_steps = every_steps
        self.parameters = dict(parameters or {})
        self.recorder = Recorder(
            name or "", path=path, message=message, parents=parents, monitor=monitor, mode=mode
        )

    @property
    def version(self) -> Any:
        """The version, once `train` has ended; None if it could not be committed."""
        return self.recorder.version

    def on_train_begin(self, args: Any, state: Any, _: Any, **given: Any) -> None:
        if not state.is_world_process_zero:
            return
        self.recorder.begin_again()
        model = unwrapped(given.get("model"))
        # Who interrupts a Trainer ends it without another word.
        self.recorder.before_end = lambda: self._snapshot(state, given)
        self.recorder.name = self.recorder.name or type(model).__name__
        with self.recorder.unharmed("reading the settings"):
            self.recorder.parameters = {**dict(_settings(args, model)), **self.parameters}

    def on_log(self, _: Any, state: Any, __: Any, logs: Any = None, **given: Any) -> None:
        if not state.is_world_process_zero:
            return
        better = self.recorder.log(logs or {}, state.global_step)
        if better:
            self._snapshot(state, given, best=True)

    def on_step_end(self, _: Any, state: Any, __: Any, **given: Any) -> None:
        if self.every_steps and state.global_step % self.every_steps == 0:
            self._snapshot(state, given)

    def on_save(self, _: Any, state: Any, __: Any, **given: Any) -> None:
        if not self.every_steps:
            self._snapshot(state, given)

    def on_train_end(self, _: Any, state: Any, __: Any, **given: Any) -> None:
        self._snapshot(state, given)
        if state.is_world_process_zero:
            self.recorder.finish()

    def _snapshot(self, state: Any, arguments: Mapping[str, Any], *, best: bool = False) -> None:
        if state.is_world_process_zero and arguments.get("model") is not None:
            save = saving(arguments["model"])
            self.recorder.snapshot(save, state.global_step, best=best, lasting=not best)


def _settings(args: Any, model: Any) -> Iterator[tuple[str, Any]]:
    """The Trainer's arguments as far as they were set, and the model's config as it is saved."""
    for field in dataclasses.fields(args):
        value = getattr(args, field.name, None)
        default = field.default
        if field.name.startswith("_") or any(part in field.name for part in _NEVER):
            continue
        if field.name in _ALWAYS or (value is not None and value != default):
            yield field.name, getattr(value, "value", value)  # of an enum
    config: Any = getattr(model, "config", None)
    if hasattr(config, "to_diff_dict"):
        yield "model", config.to_diff_dict()
