"""How statements are run, and what they give: rows, networks, trials, a saved query, a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dlv.dataclass import dataclass
from dlv.metadata.rows import Column, Row, VersionCell

if TYPE_CHECKING:  # rows need none of it
    from dlv.network.edits.reuse import Plan
    from dlv.network.edits.wiring import Edit
    from dlv.network.graph import Network
    from dlv.network.verify import Problem
    from dlv.training.ledger.progress import Progress
    from dlv.training.ledger.results import TrialView


def _ignore(_: Any) -> None:
    """Ignore the message or the progress: the caller of the query gave no listener."""


@dataclass(frozen=True)
class QueryOptions:
    """How statements are to be run, besides what they say."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False  # a network that fails its check ends the statement
    force: bool = False  # `define` may put another query in the place of one
    dry_run: bool = False  # nothing is committed or saved
    explain: bool = False  # queries are explained instead of answered
    author: str | None = None
    cache_folder: Path | None = None  # for the parser's tables
    directory: Path | None = None  # in which files are named; None: the current one
    trust: bool = False  # code that came with a version may run
    retry_failed: bool = False
    fresh: bool = False  # trials of the very query are dropped first
    discard_checkpoints: bool = False  # of trials that were stopped
    snapshots: str = "last"  # of trials that become versions: the last checkpoint, or "all"
    jobs: int = 1
    say: Callable[[str], None] = _ignore
    progress: Callable[[Progress], None] = _ignore
    agree: Callable[[str], None] = _ignore  # raises where the user does not


def _no_model(cell: VersionCell) -> Model:
    raise LookupError(f"{cell.id} was not derived here")


@dataclass(frozen=True)
class Table:
    """Rows, which come as they are read. `reasons`: why there was none, asked for only then.

    `model`: the derived network that a cell stands for.
    """

    columns: Sequence[Column]
    rows: Iterator[Row]
    warnings: Sequence[str] = ()
    reasons: Callable[[], Sequence[str]] = tuple
    model: Callable[[VersionCell], Model] = _no_model


@dataclass(frozen=True)
class Model:
    """A network that was derived. `origins`: labels of all versions that give just this one."""

    network: Network
    origins: tuple[str, ...]
    source_id: str  # the version that its weights come from, by the full hash
    edits: tuple[Edit, ...]
    problems: tuple[Problem, ...] = ()  # warnings of the check; with errors there is no model
    reuse: Plan | None = None
    committed: str | None = None  # the label of the version that it became

    @property
    def id(self) -> str:
        return self.network.id


@dataclass(frozen=True)
class Dropped:
    """A network that did not pass its check, or an action that could not be done."""

    origin: str
    reason: str


@dataclass(frozen=True)
class Networks:
    """What slice and construct give. `skipped`: sources in which nothing matched."""

    verb: str
    name: str
    models: Sequence[Model]
    dropped: Sequence[Dropped] = ()
    skipped: Sequence[str] = ()
    warnings: Sequence[str] = ()
    into: str | None = None


@dataclass(frozen=True)
class Trial:
    """A trial of `evaluate`. `rank`: 1 is the best, None before anything was trained.

    `origins`, `source_id`, `edits`: as of a Model; of a version as it is there are no edits.
    """

    id: str
    ordinal: int
    network: Network
    origins: tuple[str, ...]
    source_id: str
    edits: tuple[Edit, ...]
    varied: Mapping[str, Any]
    config: Mapping[str, Any]
    steps: int  # it was to have
    rank: int | None = None
    view: TrialView | None = None
    committed: str | None = None  # the label of the version that it became
    before: bool = False  # that version was there already
    begin: int | None = None  # of a plan: the step from which it would be trained, if it would

    @property
    def kept(self) -> bool:
        return self.view is not None and self.view.kept


@dataclass(frozen=True)
class TrainingPlan:
    """Trials of a sweep before it begins: `finished` ones are reused, with what rules can already
    say of them; `waiting` ones go on if a rule that also looks at others keeps them; `steps`: to be
    trained at most."""

    finished: int
    to_train: int
    waiting: int
    steps: int


@dataclass(frozen=True)
class Trials:
    """What evaluate gives, in the order that was asked for.

    `plan`: nothing was trained, for it was only asked what would be. `metric`: what they are
    ranked by, and `direction`, where a rule says so. `done`: how many had nothing left to train.
    `state`: of the sweep; None if it is only planned, and new.
    """

    run: str
    name: str
    said: str
    trials: Sequence[Trial]
    networks: int
    most_steps: int
    done: int = 0
    metric: str | None = None
    direction: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    state: str | None = "over"
    why: str = ""
    seconds: float = 0.0
    plan: TrainingPlan | None = None
    warnings: Sequence[str] = ()
    into: str | None = None


@dataclass(frozen=True)
class Defined:
    name: str
    text: str
    replaced: bool = False


@dataclass(frozen=True)
class Explained:
    """The plan as lines to show, with its SQL as `details`, and as a document."""

    lines: Sequence[str]
    document: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    details: Sequence[str] = ()


Outcome: TypeAlias = Table | Networks | Trials | Defined | Explained
