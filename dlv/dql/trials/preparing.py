"""Trials before they start: which there are, and all that can be said to be wrong with them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlv.canonical import dumps
from dlv.dql.bind.bound import Evaluation
from dlv.dql.trials.candidates import Candidate
from dlv.dql.trials.training_data import DataSet, DataSets
from dlv.dql.trials.variations import Variation, resolved, space
from dlv.errors import StorageError, UnsafeInput, UsageError
from dlv.repository.handle import Repository
from dlv.training import checkpoints
from dlv.training.config import TRAINER, Config, trial_id
from dlv.training.ledger.ledger import NewTrial
from dlv.training.ledger.space import Point, Row, Space
from dlv.training.trainers import contract
from dlv.training.trial_files import TrialFiles

MOST_WITHOUT_BUDGET = 1_000
MOST = 20_000
CODE = "python:"


@dataclass(frozen=True)
class Planned:
    """A trial to be. `unverified`: what its data holds is known to code alone."""

    id: str
    ordinal: int
    candidate: Candidate
    variation: Variation
    data: DataSet | None

    @property
    def config(self) -> Config:
        return self.variation.config

    @property
    def label(self) -> str:
        return self.candidate.label

    def new(self) -> NewTrial:
        return NewTrial(
            id=self.id,
            ordinal=self.ordinal,
            network=self.candidate.network.id,
            config=dumps(self.config.document()).decode(),
            seed=self.config.seed,
            label=self.label,
            varied=self.variation.varied,
        )


@dataclass
class Preparing:
    """The networks of one query, and what becomes of points of their spaces."""

    repository: Repository
    work: Evaluation
    candidates: Sequence[Candidate]
    rows: Mapping[int, Sequence[Row]]
    directory: Path
    sets: DataSets
    trust: bool = False
    keep_all: bool = False  # checkpoints, not only the last ones
    record: Mapping[str, Any] = field(default_factory=dict)
    spaces: list[Space] = field(default_factory=list)
    _versions: dict[str, str] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spaces = [space(self.work, self.rows, each.network) for each in self.candidates]

    def count(self) -> int | None:
        """Configurations of all networks, before equal ones are merged."""
        wanted = self.work.sampling.n
        found = 0
        for each in self.spaces:
            points = each.count
            if points is None and wanted is None:
                return None
            found += min(count for count in (points, wanted) if count is not None)
        return found

    def check_count(self) -> None:
        """Too many trials are refused before the first of them is made."""
        count = self.count() or 0
        # What is absent under a condition makes equal points; a grid that is small is looked at.
        if self.work.sampling.kind == "grid" and count <= 10 * MOST:
            count = sum(sum(1 for _ in each.grid()) for each in self.spaces)
        if count > MOST:
            raise UsageError(
                f"these would be {count:,} trials",
                why=f"at most {MOST:,} are prepared at once",
                hint="using random(200) tries some of them; fewer values or networks",
            )
        if count > MOST_WITHOUT_BUDGET and not self.work.budget:
            raise UnsafeInput(
                f"these would be {count:,} trials",
                why=f"more than {MOST_WITHOUT_BUDGET:,} need a budget",
                hint="budget(hours = 3), budget(trials = 200), or using random(200)",
            )

    def trial(self, place: int, point: Point) -> Planned:
        """The trial of a candidate at a point; equal ones have the same id and number."""
        candidate, made = self.candidates[place], self.spaces[place]
        variation = resolved(self.work, candidate.network, made, point)
        config = variation.config
        self._check_consent(variation)
        data = None
        if config.input_data is not None:
            data = self.sets.of(config.input_data)
            self.sets.check(data, candidate.network, f"the network {candidate.label}", config)
        name = trial_id(
            candidate.network.id,
            candidate.start_hash(config),
            config,
            self._prints(data),
            self._version(config),
        )
        ordinal = self._seen.setdefault(name, len(self._seen) + 1)
        return Planned(name, ordinal, candidate, variation, data)

    def _prints(self, data: DataSet | None) -> dict[str, str]:
        if data is None:
            return {}
        if data.verified:
            return {"input_data": data.fingerprint}
        # Nobody can say whether the code gives the same again: such a trial is of its query alone.
        return {"input_data": f"{data.where} of {self.record.get('asked', '')}"}

    def _version(self, config: Config) -> str:
        """What the trainer is; looked at once each, and refused if it is not there."""
        key = dumps({"trainer": config.trainer}).decode()
        if key not in self._versions:
            contract.check(config, self.directory)
            self._versions[key] = contract.version(config, self.directory)
        elif config.trainer == TRAINER and config.input_data is None:
            contract.check(config, self.directory)
        return self._versions[key]

    def _check_consent(self, variation: Variation) -> None:
        """Code that nobody here has named is not run."""
        file = self.work.config
        if self.trust or not file.stored:
            return
        own = {key for key, _ in self.work.settings} | {k for d in self.work.varied for k in d.keys}
        config = variation.config
        if config.trainer != TRAINER and ("trainer",) not in own:
            raise UnsafeInput(
                f"{file.where} names code of its own to train with: {config.trainer}",
                why="it came with a version, and code runs with all your rights",
                hint="dlv query --trust, if you know what it does",
            )
        data = config.input_data
        if data is not None and data.startswith(CODE) and ("input_data",) not in own:
            raise UnsafeInput(
                f"{file.where} names code that makes the data: {data}",
                why="it came with a version, and code runs with all your rights",
                hint="dlv query --trust, if you know what it does",
            )

    # What the workers find

    def write(self, trials: Sequence[Planned], done: Container[str] = ()) -> list[str]:
        """The folders of trials that have none yet, and what is damaged in others: their ids. gc
        sees that they are wanted. Of those that are `done` nothing is read."""
        folder = self.repository.trials_folder
        for each in trials:
            with suppress(OSError):
                os.utime(folder / each.id)
        files = {each.id: TrialFiles(folder / each.id) for each in trials}
        missing = [
            each
            for each in trials
            if not (files[each.id].exists() if each.id in done else files[each.id].whole())
        ]
        self._check_room(missing)
        for each in missing:
            start = {tensor.name: tensor for tensor in each.candidate.start(each.config)}
            TrialFiles(folder / each.id).create(
                each.candidate.network,
                each.config,
                start,
                self._record(each),
                constants=each.candidate.constants,
            )
        for each in trials if self.keep_all else ():
            checkpoints.keep_all(TrialFiles(folder / each.id).checkpoints)
        return [each.id for each in missing]

    def _check_room(self, trials: Sequence[Planned]) -> None:
        wanted = sum(
            tensor.nbytes * (each.config.steps // each.config.log_every if self.keep_all else 1)
            for each in trials
            for tensor in each.candidate.start(each.config)
        )
        free = shutil.disk_usage(self.repository.path).free
        # Two checkpoints with the state of the optimizer lie beside what a trial begins with.
        if wanted * 3 > free:
            raise StorageError(
                f"{len(trials):,} trials need about {wanted * 5 / 1e9:.1f} GB",
                why=f"{free / 1e9:.1f} GB are free",
                hint="fewer trials at once: using random(20), or one network after the other",
            )

    def _record(self, trial: Planned) -> dict[str, Any]:
        data = trial.data
        return {
            **self.record,
            "directory": str(self.directory),
            "source": trial.candidate.source.id,
            "origins": list(trial.candidate.origins),
            "paths": {} if data is None else {data.where: data.path},
            "fingerprints": {} if data is None else {"input_data": data.fingerprint},
        }
