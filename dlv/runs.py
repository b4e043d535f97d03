"""A training run: checkpoints and metrics collected while a loop is running."""

from __future__ import annotations

import json
import operator
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, SupportsFloat, TypeVar

import dlv.disk.paths as paths
import dlv.disk.user_files as user_files
from dlv.adapters import registry
from dlv.adapters.checkpoint import Checkpoint
from dlv.errors import DlvError, UsageError
from dlv.events.formats.series import Scalars
from dlv.metadata.facts import StagedFile
from dlv.versions.draft import network_of, weights_of
from dlv.weights.arrays import to_tensors


class Spool:
    """Checkpoints of a run on their way into the store; what a crash leaves can be imported."""

    def __init__(self, repository_path: Path) -> None:
        stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        self.folder = repository_path / "runs" / stamp
        self.files: list[StagedFile] = []

    def note(self, line: Mapping[str, Any]) -> None:
        """Metrics, one JSON object a line: `dlv add` reads them as a log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "metrics.jsonl").open("a") as out:
            out.write(json.dumps(line) + "\n")

    def save(self, values: Mapping[str, Any], step: int | None, *, in_order: bool = False) -> None:
        """Keep tensors, `in_order` as a torch file: safetensors are sorted, and know no ties."""
        adapter = registry.adapter("pt" if in_order else "safetensors")
        name = (
            f"weights{adapter.SUFFIX}"
            if step is None
            else f"checkpoints/step-{step}{adapter.SUFFIX}"
        )
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        metadata = {} if step is None else {"step": str(step)}
        with user_files.replacing(target) as out:
            adapter.save(out, to_tensors(values), metadata)
        digest, status = paths.hash_file(target)
        staged_file = StagedFile(
            *(name, str(target), "snapshot" if step is not None else "weights", adapter.FORMAT),
            *(step, status.st_size, status.st_mtime_ns, digest),
            {"own": step is None},
        )
        self.files = [f for f in self.files if f.path != name] + [staged_file]

    def forget(self, step: int) -> None:
        """A checkpoint is not to be kept after all."""
        for file in [file for file in self.files if file.step == step]:
            self.files.remove(file)
            Path(file.source).unlink(missing_ok=True)

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


V = TypeVar("V")


def _metrics_and_step(given: tuple[Any, ...], step: Any) -> tuple[Mapping[str, Any], Any]:
    """Tell a step and a dict of metrics apart, in either order."""
    named: Mapping[str, Any] = {}
    for value in given:
        if isinstance(value, Mapping):
            named = value
        elif step is None:
            step = value
        elif value is not None:
            raise TypeError("give one step and one dict of metrics")
    return named, step


def _number(value: Any) -> float:
    detach = getattr(value, "detach", None)  # a tensor that is part of a graph of gradients
    return float(value if detach is None else detach())


class Run(Generic[V]):
    """Collects metrics and checkpoints of a training loop and commits them as one version."""

    def __repr__(self) -> str:
        return f"<dlv run at step {self._step}: {', '.join(self._points) or 'no metrics yet'}>"

    def __init__(
        self,
        repository_path: Path,
        message: str,
        parameters: dict[str, Any],
        finish: Callable[[str, Sequence[StagedFile], Sequence[Scalars]], V],
    ) -> None:
        """`finish` commits a run that has ended: message, files, series -> the version."""
        self.message = message
        self.parameters = parameters  # may be filled until the block ends
        self.version: V | None = None
        self.network: Checkpoint | None = None  # of the model that was logged
        self._finish = finish
        self._spool = Spool(repository_path)
        self._points: dict[str, tuple[list[int], list[float], list[float]]] = {}
        self._step = -1
        self._described = False

    def log(self, *given: Any, step: int | None = None, **values: SupportsFloat) -> None:
        """Record metrics at a step; without one, the next after the last.

        `run.log(3, loss=0.5)`, `run.log({"loss": 0.5}, step=3)` and `run.log(loss=0.5)` all work.
        Tensors with one element are taken by value.
        """
        try:
            named, at = _metrics_and_step(given, step)
            at = self._step + 1 if at is None else operator.index(at)
            numbers = {tag: _number(value) for tag, value in {**named, **values}.items()}
        except (TypeError, ValueError, RuntimeError) as error:
            raise UsageError(
                f"cannot log {given or values!r} at step {step!r}"[:200],
                why=str(error),
                hint='use run.log(step, loss=0.5) or run.log({"loss": 0.5}, step=step)',
            ) from error
        self._step = at
        now = time.time()
        for tag, number in numbers.items():
            steps, walls, points = self._points.setdefault(tag, ([], [], []))
            steps.append(self._step)
            walls.append(now)
            points.append(number)
        self._spool.note({"step": self._step, "time": now, **numbers})

    def checkpoint(self, weights: Any, step: int | None = None, *, in_order: bool = False) -> None:
        """Keep a checkpoint: arrays by name, such as `model.state_dict()`, or a torch module.

        Without a step it is of the last one logged; where nothing is logged they are counted.
        `in_order` keeps the order of the names, and which of them share their elements.
        """
        if not isinstance(weights, Mapping):  # a module itself
            weights, in_order = weights_of(weights), True
        self._spool.save(weights, self._next(step), in_order=in_order)

    def forget(self, step: int) -> None:
        """Drop the checkpoint of a step, for example of what was the best so far."""
        self._spool.forget(step)

    def log_model(self, model: Any, example: Any, step: int | None = None) -> None:
        """Keep a checkpoint of a torch module and, the first time, its network.

        `example` is what the module is called with: a tensor, a tuple, or a dict of arguments.
        """
        self._spool.save(weights_of(model), self._next(step), in_order=True)
        if not self._described:
            self.network, self._described = network_of(model, example), True

    def _next(self, step: int | None) -> int:
        if step is not None:
            return step
        kept = [file.step for file in self._spool.files if file.step is not None]
        return self._step if self._step >= 0 else max(kept, default=-1) + 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None
    ) -> None:
        """Commit, also after an exception if there is a checkpoint; the exception goes on.

        What could not be committed stays under `.dlv/runs`, from where `dlv add` takes it.
        """
        if kind is not None and not self._spool.files:
            self._spool.discard()
            return
        message = self.message
        if kind is not None:
            message += f" (stopped by {kind.__name__})"
        series = [Scalars("", tag, *columns) for tag, columns in self._points.items()]
        try:
            self.version = self._finish(message, self._spool.files, series)
        except DlvError as error:
            where = f"checkpoints and metrics are saved in {self._spool.folder}"
            if value is None:
                error.hint = f"{error.hint}; {where}" if error.hint else where
                raise
            value.add_note(f"the run was not committed: {error.message}; {where}")
            return
        self._spool.discard()
