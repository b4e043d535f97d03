"""Records a training run without ever disturbing it: whatever fails here, training goes on."""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dlv.api as api
from dlv.errors import DlvError

log = logging.getLogger("dlv")

MOST_FAILURES = 3  # snapshots in a row that fail before no more are tried
MOST_TEXT = 1000
MOST_SETTINGS = 1000
MOST_DEPTH = 8
_FOREIGN = re.compile(r"[^A-Za-z0-9._+-]+")
_RESERVED = {"self", "step"}  # of `Run.log`


class Recorder:
    """Metrics and snapshots of one run, committed as one version when it ends.

    Nothing is raised but what stops a program (KeyboardInterrupt, SystemExit): the first
    failure is logged as a warning, later ones for debugging only. Not even the repository is
    looked for before the first call that records something.
    """

    def __init__(
        self,
        name: str,
        *,
        path: str | Path = ".",
        message: str = "",
        parameters: Mapping[str, Any] | None = None,
        parents: Sequence[str] = (),
        monitor: str | None = None,
        mode: str = "min",
        open_end: bool = False,
    ) -> None:
        """`monitor` names a metric: the snapshot at its best value (`mode`) is kept.

        `open_end`: the end of the program is an end of the training like any other.
        """
        if mode not in ("min", "max"):
            raise ValueError(f"mode is {mode!r}, not 'min' or 'max'")
        self.name = name
        self.path = Path(path).absolute()  # programs change their folder
        self.message = message
        self.parameters = dict(parameters or {})
        self.parents = tuple(parents)
        self.monitor, self.mode = monitor, mode
        self.open_end = open_end
        self.before_end: Callable[[], object] = lambda: None  # keeps the last weights at exit
        self.version: Any = None  # the dlv.api.Version, once it is committed
        self.step = -1  # of what was recorded last
        self.best: tuple[float, int] | None = None
        self._repo: Any = None
        self._run: Any = None
        self._over = self._warned = False
        self._failures = 0
        self._kept: dict[int, bool] = {}  # step of a snapshot -> whether it stays

    # What the integrations call

    def log(self, values: Mapping[str, Any], step: int | None = None) -> bool:
        """Record what is a number among `values`; True if the monitored metric was never better."""
        better = False
        with self.unharmed("recording metrics"):
            if self._begun():
                self.step = self.step + 1 if step is None else int(step)
                numbers = self._numbers(values)
                better = self._is_better(numbers)
                if numbers:
                    self._run.log(self.step, **numbers)
        return better

    def snapshot(
        self,
        save: Callable[[Any, int], object],
        step: int,
        *,
        best: bool = False,
        lasting: bool = True,
    ) -> None:
        """Keep weights: `save(run, step)` puts them into the `dlv.runs.Run`, once for a step.

        What is only the `best` so far, not `lasting`, goes when there is a better one.
        """
        if step not in self._kept:
            if self._failures >= MOST_FAILURES:
                return
            self._failures += 1
            with self.unharmed("keeping a checkpoint"):
                if self._begun():
                    save(self._run, step)
                    self._failures = 0
                    self._kept[step] = lasting
        if step in self._kept:
            self._kept[step] = self._kept[step] or lasting
            with self.unharmed("dropping a checkpoint"):
                outdone = [s for s, stays in self._kept.items() if best and not stays and s != step]
                for other in outdone:
                    del self._kept[other]
                    self._run.forget(other)

    def finish(self, error: BaseException | None = None, *, stopped: str | None = None) -> None:
        """Commit what was recorded; nothing was, nothing is.

        What ended by an error, or `stopped` otherwise before its end, is marked, and that is said.
        """
        run, self._run, self._over = self._run, None, True
        atexit.unregister(self._at_exit)
        if run is None:
            return
        with self.unharmed("committing the run", again=True):
            run.parameters.update(self._parameters())
            kind = None if error is None else type(error)
            if kind is not None:
                stopped = f"by {kind.__name__}"
            elif stopped is not None:
                run.message += f" (stopped {stopped})"
            try:
                run.__exit__(kind, error, None)
            finally:
                with contextlib.suppress(Exception):
                    self._repo.close()
            self.version = run.version
            if run.version is not None and stopped is not None:
                said = "dlv: training was stopped %s; the last state is committed as %s"
                log.warning(said, stopped, run.version)
            elif run.version is not None:
                log.info("dlv: committed %s", run.version)
            elif notes := getattr(error, "__notes__", []):  # that is how a `Run` says why
                self._warn("committing the run", str(notes[-1]), again=True)
            elif stopped is not None:
                said = "dlv: training was stopped %s without weights; no version was committed"
                log.warning(said, stopped)

    def begin_again(self) -> None:
        """A recorder serves one run after the other; one that has not ended well is committed."""
        self.finish(stopped="before its end")
        self._over, self._failures, self.step, self.best = False, 0, -1, None
        self._kept = {}

    # How

    @contextmanager
    def unharmed(self, doing: str, *, again: bool = False) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._warn(doing, error, again=again)

    def _warn(self, doing: str, error: Exception | str, *, again: bool = False) -> None:
        parts = [error if isinstance(error, str) else f"{error}" or type(error).__name__]
        if isinstance(error, DlvError):
            parts += [part for part in (error.why, error.hint) if part]
        level = logging.DEBUG if self._warned and not again else logging.WARNING
        self._warned = True
        with contextlib.suppress(Exception):
            log.log(level, "dlv: %s failed; training is not affected: %s", doing, "; ".join(parts))

    def _begun(self) -> bool:
        """Whether there is something to record into; tried once."""
        if self._run is None and not self._over:
            self._over = True  # unless it goes well
            name = _version_name(self.name)
            repo = api.open(self.path)
            with api.open(self.path) as other:  # so that nothing is open when workers are forked
                if name not in other.names and name in other:
                    name += "-run"  # a tag is called so
            message = self.message or f"training of {name}"
            self._run = repo.run(name, message, parents=self.parents)
            self._repo, self._over = repo, False
            atexit.register(self._at_exit)
        return self._run is not None

    def _at_exit(self) -> None:
        """The program ends, perhaps by an exception, and nobody has said that the run is over."""
        kind = getattr(sys, "last_type", None)
        with self.unharmed("keeping a checkpoint"):
            self.before_end()
        early = None if self.open_end else "before its end"
        self.finish(stopped=early if kind is None else f"by {kind.__name__}")

    def _numbers(self, values: Mapping[str, Any]) -> dict[str, float]:
        numbers = {}
        for tag, value in values.items():
            if value is None:
                continue
            name = f"{tag}_" if tag in _RESERVED else str(tag)
            try:
                # Torch warns where a number that gradients flow through is taken.
                numbers[name] = float(value.detach() if hasattr(value, "detach") else value)
            except Exception as error:
                kind = type(value).__name__
                self._warn(f"recording `{name}`", f"{kind} is not a number ({error})"[:MOST_TEXT])
        return numbers

    def _is_better(self, numbers: Mapping[str, float]) -> bool:
        value = numbers.get(self.monitor or "")
        if value is None or math.isnan(value):
            return False
        sign = 1 if self.mode == "max" else -1
        better = self.best is None or sign * value > sign * self.best[0]
        if better:
            self.best = (value, self.step)
        return better

    def _parameters(self) -> dict[str, Any]:
        kept = _flat(self.parameters)
        if self.best is not None:
            kept[f"best.{self.monitor}"], kept["best.step"] = self.best
        return kept


def _version_name(text: str) -> str:
    """The nearest text that can be the name of a version."""
    plain = _FOREIGN.sub("-", text).lstrip("._+-").rstrip("-")[:60]
    return plain if plain not in ("", "HEAD", "latest") else f"model-{plain}".rstrip("-")


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted names, as a version can hold them; what it cannot hold becomes text."""
    flat: dict[str, Any] = {}
    waiting = list(settings.items())[::-1]
    while waiting and len(flat) < MOST_SETTINGS:
        key, value = waiting.pop()
        if isinstance(value, Mapping) and str(key).count(".") < MOST_DEPTH:
            waiting += [(f"{key}.{name}", item) for name, item in value.items()][::-1]
        elif isinstance(value, (list, tuple)) and all(_is_plain(item) for item in value):
            flat[_text(key)] = [_text(v) if isinstance(v, str) else v for v in value]
        else:
            flat[_text(key)] = value if _is_plain(value, text=False) else _text(value)
    return flat


def _is_plain(value: Any, *, text: bool = True) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    return value is None or isinstance(value, float) or (text and isinstance(value, str))


def _text(value: Any) -> str:
    return str(value)[:MOST_TEXT].encode("utf-8", "replace").decode()
