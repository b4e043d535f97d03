"""What a query gives to a program: rows with versions in them, networks, or trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dlv.disk.paths as paths
import dlv.dql.execute as execute
from dlv.dataclass import dataclass
from dlv.dql.bind.binder import Faults
from dlv.dql.outcome import Explained, Model, Networks, Outcome, QueryOptions, Table, Trial, Trials
from dlv.dql.words.diagnosis import SyntaxFault, query_of
from dlv.errors import UsageError
from dlv.metadata import versions
from dlv.metadata.rows import VersionCell
from dlv.network.edits.wiring import Edit
from dlv.network.graph import Network
from dlv.network.verify import Problem
from dlv.repository.handle import Repository
from dlv.shown import Shown, frame
from dlv.versions.version import Version

TOGETHER = 500  # versions that are looked up at once


@dataclass(frozen=True)
class DerivedNetwork(Shown):
    """A network that a query has made. `origins`: labels of the models that give just this one.

    `source` is the version that its weights come from, `version` the one that `into` made of it.
    """

    network: Network
    origins: tuple[str, ...]
    edits: tuple[Edit, ...]
    problems: tuple[Problem, ...]
    source: Version
    version: Version | None = None

    @property
    def id(self) -> str:
        return self.network.id

    def __repr__(self) -> str:
        return f"<dlv network {self.id[:12]} from {', '.join(self.origins)}>"


@dataclass(frozen=True)
class TriedNetwork:
    """A trial of evaluate, the best of which has rank 1.

    `metrics` are the last that it logged, `varied` what it was tried with, `config` all of its
    configuration. `state` is done, stopped, diverged, failed, or what it was at when the run
    ended; `version` what `into` made of it.
    """

    id: str
    rank: int | None
    network: DerivedNetwork
    varied: Mapping[str, Any]
    config: Mapping[str, Any]
    metrics: Mapping[str, float]
    step: int
    seconds: float
    state: str
    kept: bool
    why: str
    version: Version | None = None

    def __repr__(self) -> str:
        told = ", ".join(f"{key}={value}" for key, value in self.varied.items())
        return f"<dlv trial {self.id[:12]} {self.state} at {self.step}: {told}>"


class Answer(Sequence[tuple[Any, ...]], Shown):
    """The rows of a query, each a tuple; `networks` where it was slice or construct, `trials`
    and rows of them where it was evaluate.

    Versions in rows are `Version` of dlv.versions, networks not committed are `DerivedNetwork`.
    """

    def __init__(
        self,
        columns: Sequence[str] = (),
        rows: Sequence[tuple[Any, ...]] = (),
        networks: Sequence[DerivedNetwork] = (),
        warnings: Sequence[str] = (),
        plan: Sequence[str] = (),
        trials: Sequence[TriedNetwork] = (),
    ) -> None:
        self.columns = list(columns)
        self.rows = list(rows)
        self.networks = list(networks)
        self.warnings = list(warnings)
        self.plan = list(plan)
        self.trials = list(trials)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        return self.rows[place]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        if self.networks:
            return f"<dlv answer: {len(self.networks)} networks>"
        if self.trials:
            return f"<dlv answer: {len(self.trials)} trials>"
        return f"<dlv answer: {len(self.rows)} rows of {', '.join(self.columns) or 'nothing'}>"

    def to_pandas(self) -> Any:
        """A DataFrame, in which versions stand by their labels."""
        return frame(([_plain(value) for value in row] for row in self.rows), self.columns)


def ask(
    repository: Repository, text: str, parameters: Mapping[str, Any], environ: Mapping[str, str]
) -> Answer:
    """Run all statements; the answer of the last one."""
    options = QueryOptions(parameters=parameters, cache_folder=paths.cache(environ))
    answer = Answer()
    for outcome in execute.run(repository, text, options):
        answer = _answer(repository, outcome)
    return answer


def matching(repository: Repository, condition: str, environ: Mapping[str, str]) -> set[str]:
    """Return ids of the versions that fulfil a condition on m."""
    try:
        answer = ask(repository, query_of(condition), {}, environ)
    except (SyntaxFault, Faults) as fault:
        fault.move_into(condition)
        raise
    if not all(isinstance(value, Version) for row in answer for value in row):
        raise UsageError("this is not one condition")
    return {row[0].id for row in answer}


def _answer(repository: Repository, outcome: Outcome) -> Answer:
    if isinstance(outcome, Networks):
        made = [_derived(repository, model) for model in outcome.models]
        left = [f"{each.origin}: {each.reason}" for each in outcome.dropped]
        return Answer(networks=made, warnings=[*outcome.warnings, *left])
    if isinstance(outcome, Trials):
        return _tried(repository, outcome)
    if isinstance(outcome, Explained):
        return Answer(plan=[*outcome.lines, *outcome.details], warnings=outcome.warnings)
    if isinstance(outcome, Table):
        rows = list(outcome.rows)
        known = _known(repository, rows)

        def value(cell: Any) -> Any:
            if isinstance(cell, (list, tuple)):
                return [value(item) for item in cell]
            if not isinstance(cell, VersionCell):
                return cell
            if cell.derived is not None:
                return _derived(repository, outcome.model(cell))
            return known[cell.id]

        return Answer(
            [column.title for column in outcome.columns],
            [tuple(map(value, row)) for row in rows],
            warnings=outcome.warnings,
        )
    return Answer()


def _tried(repository: Repository, outcome: Trials) -> Answer:
    """Columns: rank, network, what is varied, metrics, step, seconds, state, version."""
    trials = [_trial(repository, each) for each in outcome.trials]
    varied = list(dict.fromkeys(key for each in trials for key in each.varied))
    metrics = list(dict.fromkeys(key for each in trials for key in sorted(each.metrics)))
    rows = [
        (
            *(each.rank, each.network),
            *(each.varied.get(key) for key in varied),
            *(each.metrics.get(key) for key in metrics),
            *(each.step, each.seconds, each.state, each.version),
        )
        for each in trials
    ]
    columns = ["rank", "network", *varied, *metrics, "step", "seconds", "state", "version"]
    return Answer(columns, rows, warnings=outcome.warnings, trials=trials)


def _trial(repository: Repository, trial: Trial) -> TriedNetwork:
    source = versions.by_id(repository.database, trial.source_id)
    assert source is not None, "a network is derived from a version that was just read"
    made = _committed(repository, trial.committed)
    network = DerivedNetwork(
        *(trial.network, trial.origins, trial.edits, ()), Version(repository, source), made
    )
    view = trial.view
    return TriedNetwork(
        *(trial.id, trial.rank, network, trial.varied, trial.config),
        metrics={} if view is None else view.last,
        step=0 if view is None else view.step,
        seconds=0.0 if view is None else view.seconds,
        state="ready" if view is None else view.condition,
        kept=trial.kept,
        why="" if view is None else view.why,
        version=made,
    )


def _committed(repository: Repository, label: str | None) -> Version | None:
    if label is None:
        return None
    name, _, number = label.rpartition("@")
    found = versions.by_number(repository.database, name, int(number))
    return None if found is None else Version(repository, found)


def _known(repository: Repository, rows: Sequence[tuple[Any, ...]]) -> dict[str, Version]:
    cells = (cell for row in rows for value in row for cell in _cells(value))
    wanted = list(dict.fromkeys(c.id for c in cells if c.derived is None))
    found: dict[str, Version] = {}
    for start in range(0, len(wanted), TOGETHER):
        known = versions.by_ids(repository.database, wanted[start : start + TOGETHER])
        found |= {key: Version(repository, row) for key, row in known.items()}
    return found


def _cells(value: Any) -> Iterator[VersionCell]:
    for item in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(item, VersionCell):
            yield item


def _derived(repository: Repository, model: Model) -> DerivedNetwork:
    source = versions.by_id(repository.database, model.source_id)
    assert source is not None, "a network is derived from a version that was just read"
    return DerivedNetwork(
        *(model.network, model.origins, model.edits, model.problems),
        Version(repository, source),
        _committed(repository, model.committed),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Version):
        return value.row.label
    return value.id if isinstance(value, DerivedNetwork) else value
