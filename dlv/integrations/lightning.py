"""Lightning: `Trainer(callbacks=[DlvCallback("lenet")])` records a training as a version."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlv.errors import require
from dlv.integrations.recorder import Recorder
from dlv.integrations.torch import optimizer_settings, saving

# The two packages have classes of their own; the one that the program uses is loaded by now.
_OLD = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
_lightning: Any = (
    require("pytorch_lightning", "lightning") if _OLD else require("lightning.pytorch", "lightning")
)
_SETTINGS = ("max_epochs", "max_steps", "accumulate_grad_batches", "gradient_clip_val", "precision")


class DlvCallback(_lightning.Callback):  # type: ignore[misc]
    """Metrics as they are logged, snapshots, hyperparameters; one version for each `fit`.

    A snapshot is kept every `every_epochs` epochs or `every_steps` optimizer steps (None: not),
    at the best value of `monitor` (`mode`: min or max), and in the end. The network is recorded
    where the module has an `example_input_array` and `network` is True.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        every_epochs: int | None = 1,
        every_steps: int | None = None,
        monitor: str | None = None,
        mode: str = "min",
        network: bool = False,
        parameters: Mapping[str, Any] | None = None,
        message: str = "",
        parents: Sequence[str] = (),
        path: str | Path = ".",
    ) -> None:
        super().__init__()
        self.every_epochs, self.every_steps = every_epochs, every_steps
        self.network = network
        self.parameters = dict(parameters or {})
        self.recorder = Recorder(
            name or "", path=path, message=message, parents=parents, monitor=monitor, mode=mode
        )
        self._seen: dict[str, Any] = {}  # metric -> its tensor
        self._logged: dict[str, int] = {}  # metric -> the step of its last point
        self._last = 0

    @property
    def version(self) -> Any:
        """The version, once `fit` has ended; None if it could not be committed."""
        return self.recorder.version

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if not self._records(trainer):
            return
        self._seen, self._logged = {}, {}
        self.recorder.begin_again()
        self.recorder.name = self.recorder.name or type(pl_module).__name__
        with self.recorder.unharmed("reading hyperparameters"):
            self.recorder.parameters = {**_settings(trainer, pl_module), **self.parameters}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Only now optimizers are there, and the step from which a checkpoint goes on."""
        self._last = trainer.global_step
        if self._records(trainer) and trainer.optimizers:
            with self.recorder.unharmed("reading the optimizer"):
                found = optimizer_settings(trainer.optimizers[0])
                self.recorder.parameters = {**found, **self.recorder.parameters}

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
        step = trainer.global_step
        if not self._records(trainer) or step == self._last:
            return  # gradients are being accumulated
        self._last = step
        if step % max(1, trainer.log_every_n_steps) == 0:
            self._log(trainer, pl_module)
        if self.every_steps and step % self.every_steps == 0:
            self._snapshot(trainer, pl_module)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._records(trainer):
            if trainer.sanity_checking:
                self._seen.update(trainer.callback_metrics)
            else:
                self._log(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if not self._records(trainer):
            return
        self._log(trainer, pl_module)
        if self.every_epochs and (trainer.current_epoch + 1) % self.every_epochs == 0:
            self._snapshot(trainer, pl_module)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self._finish(trainer, pl_module, None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._finish(trainer, pl_module, exception)

    def _finish(self, trainer: Any, pl_module: Any, error: BaseException | None) -> None:
        if self._records(trainer):
            if self.recorder.step >= 0:
                self._snapshot(trainer, pl_module)
            self.recorder.finish(error)

    def _records(self, trainer: Any) -> bool:
        return bool(trainer.is_global_zero and not trainer.fast_dev_run)

    def _log(self, trainer: Any, pl_module: Any) -> None:
        """What was logged since the last time: every logging makes new tensors."""
        with self.recorder.unharmed("reading metrics"):
            found, step = dict(trainer.callback_metrics), trainer.global_step
            new = {
                key: value
                for key, value in found.items()
                if value is not self._seen.get(key) and self._logged.get(key) != step
            }
            self._seen = found
            self._logged |= dict.fromkeys(new, step)
            if new and self.recorder.log({"epoch": trainer.current_epoch, **new}, step):
                self._snapshot(trainer, pl_module, best=True)

    def _snapshot(self, trainer: Any, pl_module: Any, *, best: bool = False) -> None:
        example = getattr(pl_module, "example_input_array", None) if self.network else None
        save = saving(pl_module, example)
        self.recorder.snapshot(save, trainer.global_step, best=best, lasting=not best)


def _settings(trainer: Any, pl_module: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    sources: list[Any] = [getattr(trainer, "datamodule", None), pl_module]
    for source in sources:
        with contextlib.suppress(Exception):
            found.update(dict(source.hparams))
    for name in _SETTINGS:
        value = getattr(trainer, name, None)
        if value is not None:
            found.setdefault(f"trainer.{name}", value)
    return found
