"""What a trainer is given and what it owes: the contract between workers and trainers.

1. Log at multiples of `log_every` and at `steps`; go on from the checkpoint; return at once if it
   is as far as `steps`.
2. The order of batches, and augmentation, are functions of (seed, step). What is logged as state
   holds weights, optimizer and random numbers.
3. Nothing depends on `steps`: a trial may be trained to 100 and later on to 1,000.
4. An exception is a failure. Return when `log` says True.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from dlv.kinds import Array
    from dlv.training.checkpoints import Checkpoint
    from dlv.training.trial_files import Trial

# Arrays and JSON values by name; weights are called `weight/NAME`.
State = Mapping[str, Any]
# The key of a state under which stand the files that belong to it, with their hashes.
FILES = "\0files"


class Log(Protocol):
    """Keeps the state, if there is one, and then tells the ledger; True: return now."""

    def __call__(
        self, step: int, metrics: Mapping[str, float], state: State | None = None
    ) -> bool: ...


TrainFunction = Callable[["Trial", int, "Checkpoint", Log], None]
Event = tuple[int, str, float]  # step, name, value


# An input of a network, and its shape without the batch; None: of unknown length.
Wanted = tuple[str, tuple[int | None, ...] | None]


class Column(Protocol):
    """Rows of an array that lie somewhere; `shape` is that of one of them."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def count(self) -> int: ...
    def read(self, start: int, stop: int) -> Array: ...


class Part(Protocol):
    """One set of rows, opened."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> Mapping[str, Column]: ...
    @property
    def labels(self) -> Column | None: ...
    @property
    def count(self) -> int: ...
    @property
    def classes(self) -> tuple[str, ...] | None: ...


class Source(Protocol):
    """What a reader gives: rows to train on, rows to validate on, or batches that code makes."""

    @property
    def name(self) -> str: ...
    @property
    def train(self) -> Part | None: ...
    @property
    def validation(self) -> Part | None: ...
    @property
    def batches(self) -> Callable[[int, int], Any] | None: ...
    @property
    def fingerprint(self) -> str | None: ...


@dataclass(frozen=True)
class Rows:
    """Arrays by the names of the network's inputs; labels as the data has them."""

    inputs: Mapping[str, Array]
    labels: Array | None
    count: int

    def take(self, places: Array | slice) -> Rows:
        """Some of them, as a copy."""
        inputs = {name: array[places] for name, array in self.inputs.items()}
        labels = None if self.labels is None else self.labels[places]
        return Rows(inputs, labels, len(next(iter(inputs.values()))))


@dataclass(frozen=True)
class Data:
    """`batches(seed, step)` instead of `train` where code makes every batch anew."""

    name: str
    train: Rows | None
    validation: Rows | None
    classes: tuple[str, ...] | None = None
    batches: Callable[[int, int], Rows] | None = None


@dataclass
class Readers:
    """What workers hand in, as training reads no formats of files.

    `rows(where, settings, wanted, directory)`: the data of a configuration, opened; wanted are
    names and shapes of the network's inputs. `events(folder)`: a function that gives the points
    of event files which it has not given yet.
    """

    rows: Callable[[str, Mapping[str, Any], Sequence[Wanted], Path], Source] | None = None
    events: Callable[[Path], Callable[[], Iterator[Event]]] | None = None
