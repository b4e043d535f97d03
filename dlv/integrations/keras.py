"""Keras 3: `model.fit(..., callbacks=[DlvCallback("lenet")])` records a training as a version."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlv.errors import require
from dlv.integrations.recorder import Recorder

_keras: Any = require("keras", "keras")


class DlvCallback(_keras.callbacks.Callback):  # type: ignore[misc]
    """Metrics of every epoch, snapshots, settings of the optimizer; one version for each `fit`.

    A snapshot is kept every `every_epochs` epochs or `every_steps` batches (None: not), at the
    best value of `monitor` (`mode`: min or max), and in the end. Steps are batches, counted by
    the optimizer, so that a second `fit` of a model goes on where the first has ended.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        every_epochs: int | None = 1,
        every_steps: int | None = None,
        monitor: str | None = None,
        mode: str = "min",
        parameters: Mapping[str, Any] | None = None,
        message: str = "",
        parents: Sequence[str] = (),
        path: str | Path = ".",
    ) -> None:
        super().__init__()
        self.every_epochs, self.every_steps = every_epochs, every_steps
        self.parameters = dict(parameters or {})
        self.recorder = Recorder(
            name or "", path=path, message=message, parents=parents, monitor=monitor, mode=mode
        )
        self._first = self._batches = 0

    @property
    def version(self) -> Any:
        """The version, once `fit` has ended; None if it could not be committed."""
        return self.recorder.version

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        if not _is_first_process():
            return
        self.recorder.begin_again()
        self.recorder.before_end = self._last
        self._first = self._batches = 0
        with self.recorder.unharmed("reading the settings"):
            self.recorder.name = self.recorder.name or self.model.name
            self._first = int(self.model.optimizer.iterations)
            given = {key: value for key, value in self.params.items() if key != "verbose"}
            optimizer = self.model.optimizer
            settings = {
                "optimizer": {**optimizer.get_config(), "name": type(optimizer).__name__},
                "fit": given,
            }
            self.recorder.parameters = {**settings, **self.parameters}

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        self._batches += 1
        if self.every_steps and self._step % self.every_steps == 0 and _is_first_process():
            self.recorder.snapshot(self._save, self._step)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not _is_first_process():
            return
        better = self.recorder.log({"epoch": epoch, **(logs or {})}, self._step)
        due = bool(self.every_epochs) and (epoch + 1) % (self.every_epochs or 1) == 0
        if due or better:
            self.recorder.snapshot(self._save, self._step, best=better, lasting=due)

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        if _is_first_process():
            self._last()
            self.recorder.finish()

    def _last(self) -> None:
        if self._batches:
            self.recorder.snapshot(self._save, self._step)

    @property
    def _step(self) -> int:
        return self._first + self._batches

    def _save(self, run: Any, step: int) -> None:
        to_numpy = _keras.ops.convert_to_numpy
        run.checkpoint({each.path: to_numpy(each) for each in self.model.weights}, step)


def _is_first_process() -> bool:
    """Whether this is the process that records, as far as launchers say it."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "OMPI_COMM_WORLD_RANK"))
