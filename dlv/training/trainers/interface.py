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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dlv.dataclass import dataclass

if TYPE_CHECKING:
    from dlv.training.checkpoints import Checkpoint
    from dlv.training.trainers.datasets import Source, Wanted
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


@dataclass
class Readers:
    """What workers hand in, as training reads no formats of files.

    `rows(where, settings, wanted, directory)`: the data of a configuration, opened; wanted are
    names and shapes of the network's inputs. `events(folder)`: a function that gives the points
    of event files which it has not given yet.
    """

    rows: Callable[[str, Mapping[str, Any], Sequence[Wanted], Path], Source] | None = None
    events: Callable[[Path], Callable[[], Iterator[Event]]] | None = None
