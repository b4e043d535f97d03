"""`evaluate` carried out: trials prepared, trained, ranked, and the best of them committed."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import dlv.dql.bind.evaluations as evaluations
import dlv.dql.committing as committing
import dlv.repository.environment as environment
import dlv.training.checkpoints as checkpoints
import dlv.training.trial_files as trial_files
from dlv.adapters.data.sets import fingerprint, open_parts
from dlv.canonical import hash_of
from dlv.dataclass import dataclass
from dlv.dql.bind.bound import Evaluation, Ranked
from dlv.dql.bind.configurations import looked_up
from dlv.dql.committing import check_name
from dlv.dql.outcome import Explained, QueryOptions, TrainingPlan, Trial, Trials
from dlv.dql.trials.foreseeing import Foreseen, foresee
from dlv.dql.trials.preparing import (
    Candidate,
    DataSets,
    Picking,
    Planned,
    Preparing,
    described,
    merged,
    said,
)
from dlv.errors import DlvError, NotFound, UsageError, nearest
from dlv.events.logs.batches import Tail
from dlv.metadata.trials import Trials as Store
from dlv.repository.handle import Repository
from dlv.training.config import TRAINER
from dlv.training.ledger.ledger import Ledger
from dlv.training.ledger.results import RunView, TrialView
from dlv.training.ledger.settling import Budget
from dlv.training.ledger.space import Row
from dlv.training.trainers.interface import Readers
from dlv.training.trial_files import TrialFiles
from dlv.training.workers import pool
from dlv.training.workers.owners import driving
from dlv.weights.store import MatrixStore


def rank_trials(results: Sequence[TrialView], planned: Mapping[str, Planned]) -> list[Trial]:
    """The best first. A trial that an earlier way of asking had, and this one has not, is none."""
    found: list[Trial] = []
    for result in results:
        trial = planned.get(result.trial)
        if trial is not None:
            found.append(_trial(trial, result.ordinal, len(found) + 1, result))
    return found


def _trial(trial: Planned, ordinal: int, rank: int | None, result: TrialView | None) -> Trial:
    config, candidate = trial.config, trial.candidate
    return Trial(
        id=trial.id,
        ordinal=ordinal,
        network=candidate.network,
        origins=candidate.origins,
        source_id=candidate.source.id,
        edits=candidate.edits,
        varied=trial.variation.varied,
        config=config.document(),
        steps=config.steps,
        rank=rank,
        view=result,
    )


def choose_trials(work: Evaluation, trials: Sequence[Trial]) -> list[Trial]:
    """As `order by`, `limit` and `offset` say; without an order the best first."""
    found = list(trials)
    for order in reversed(work.order):
        known = [each for each in found if _value(order, each) is not None]
        absent = [each for each in found if _value(order, each) is None]
        known.sort(key=lambda each: _key(_value(order, each)), reverse=order.descending)
        found = [*absent, *known] if order.nulls_first else [*known, *absent]
    start = work.offset or 0
    return found[start:] if work.limit is None else found[start : start + work.limit]


def _value(order: Ranked, trial: Trial) -> Any:
    view = trial.view
    if order.kind == "config":
        key = order.key
        if key[0] != "net":
            return looked_up(dict(trial.config), key)
        # What was varied for a selector, as it was written, or what a node has.
        nodes = trial.config.get("net", {})
        return trial.varied.get(f'net["{key[1]}"].{key[2]}', nodes.get(key[1], {}).get(key[2]))
    if order.kind == "metric":
        value = None if view is None else view.last.get(order.name)
        return None if value is None or value != value else value
    figures: dict[str, Any] = {
        "rank": trial.rank,
        "trial": trial.ordinal,
        "network": trial.origins[0],
        "steps": None if view is None else view.step,
        "seconds": None if view is None else view.seconds,
        "state": None if view is None else view.condition,
    }
    return figures[order.name]


def _key(value: Any) -> tuple[int, Any]:
    """Numbers before texts before all else."""
    if isinstance(value, (int, float)):
        return 0, value
    return (1, value) if isinstance(value, str) else (2, json.dumps(value, sort_keys=True))


def thin_checkpoints(
    repository: Repository, ledger: Ledger, view: RunView, *, committed: bool, discard: bool
) -> None:
    """Delete the checkpoints that nothing can go on from once a run is over.

    A stopped trial keeps its last one, so that another `keep` can train it on, unless they are to
    be discarded; a trial that has become a version keeps its last ones. What another run works on
    keeps all.
    """
    if view.state == "running":
        return
    for trial in view.trials:
        runs = ledger.store.memberships(trial.trial)
        files = TrialFiles(repository.trials_folder / trial.trial)
        if any(row["state"] == "running" for row in runs):
            continue
        if trial.kept and committed:
            checkpoints.thin(files.checkpoints)
        elif trial.verdict == "stopped" and all(row["stopped"] for row in runs):
            if discard:
                files.discard_checkpoints()
            else:
                checkpoints.thin(files.checkpoints, 1)


def check_metrics(work: Evaluation, trials: Iterable[Planned]) -> None:
    """Check before anything starts. Only the torch trainer's metrics are known in advance."""
    configs = [trial.config for trial in trials]
    if not configs or any(config.trainer != TRAINER for config in configs):
        return
    logged = {name for config in configs for name in config.values["metrics"]} | {"train_loss"}
    asked = [rule["metric"] for rule in work.rules]
    asked += [order.name for order in work.order if order.kind == "metric"]
    asked += [work.sampling.metric] if work.sampling.metric is not None else []
    for name in asked:
        if name not in logged:
            raise UsageError(
                f"no trial would log `{name}`",
                why=f"they log {', '.join(sorted(logged))}",
                did_you_mean=nearest(name, logged),
                hint="config.metrics lists what is logged",
            )


LAST = "last"


class AllFailed(DlvError):
    """No trial came to anything."""

    exit_code = 4
    kind = "failed"


@dataclass
class Evaluating:
    """One evaluate at work. `rows`: what queries gave as values, by the place of the dimension.

    `store`: where the candidates read their weights; closed with this.
    """

    repository: Repository
    store: MatrixStore
    work: Evaluation
    candidates: Sequence[Candidate]
    rows: Mapping[int, Sequence[Row]]
    query: Mapping[str, Any]  # its text, and its parameters if it has some
    question: str  # its text without what does not matter to the result
    how: QueryOptions
    directory: Path  # in which files are named
    warnings: list[str] = field(default_factory=list)

    def close(self) -> None:
        self.store.close()

    @cached_property
    def sets(self) -> DataSets:
        beside = self.work.config.folder
        return DataSets(self.repository, self.directory, beside)

    @cached_property
    def picking(self) -> Picking:
        """All that can be known before anything starts, and every fault there is in it."""
        if not self.candidates:
            raise NotFound(
                "no network to train",
                why=f"{self.work.source_text} gives no version with a network",
                hint="dlv query 'select m where exists m[\"*\"]' shows those that have one",
            )
        if self.work.into is not None:
            check_name(self.repository, self.work.into)
        preparing = Preparing(
            *(self.repository, self.work, merged(self.candidates), self.rows),
            *(self.directory, self.sets),
            trust=self.how.trust,
            keep_all=self.how.snapshots != LAST,
            record={"asked": self._asked, "environment": self._environment},
        )
        preparing.check_count()
        picking = Picking(preparing)
        picking.first()
        check_metrics(self.work, picking.trials.values())
        return picking

    @cached_property
    def _environment(self) -> dict[str, Any]:
        return environment.describe(self.repository.root)

    @cached_property
    def _asked(self) -> str:
        """A hash of what is asked, whatever it is asked of."""
        asked = {**self.query, "query": self.question}
        return hash_of({**asked, "config": dict(self.work.config.table)})

    @cached_property
    def run(self) -> str:
        """The id of the run: of the same query about the same networks and data."""
        return hash_of({"asked": self._asked, "trials": list(self.picking.trials)})

    def trials(self) -> Trials:
        picking = self.picking
        planned = list(picking.trials.values())
        run = self.run
        with _store(self.repository) as store, driving(self.repository.tmp, run):
            ledger = Ledger(store)
            if self.how.fresh:
                self._forget(ledger, run)
            mended = picking.preparing.write(planned, self._finished(store))
            begun = self._open(ledger, run, planned)
            self.how.say(self._header(begun))
            if ledger.retry_failed(run, None if self.how.retry_failed else mended):
                self.how.say("failed trials are tried again")
            picking.replay(ledger.run(run))
            return self._carried_out(store, ledger, run, begun)

    def _carried_out(self, store: Store, ledger: Ledger, run: str, begun: int) -> Trials:
        """What has lost its checkpoint is trained again, once."""
        again: set[str] = set()
        while True:
            if ledger.run(run).state == "running":
                self._train(store, ledger, run)
            try:
                return self._found(ledger, run, begun)
            except committing.LostCheckpoint as lost:
                if lost.trial in again:
                    raise
                again.add(lost.trial)
                self.how.say(f"{lost.message}: it is trained again from step {lost.step}")
                ledger.go_back(run, lost.trial, lost.step)

    def planned(self) -> Trials:
        """What there would be; nothing is trained or written."""
        foreseen, there = self._foreseen, self._committed
        trials = []
        for trial in rank_trials(foreseen.results, self.picking.trials):
            label = there.get(committing.trial_key(trial)) if trial.kept else None
            begin = foreseen.begins.get(trial.id)
            rank = trial.rank if trial.view is not None and trial.view.step else None
            trials.append(
                replace(trial, rank=rank, committed=label, before=label is not None, begin=begin)
            )
        return replace(
            self._outcome(self._done_before()),
            trials=choose_trials(self.work, trials),
            counts=dict(foreseen.view.counts),
            state=foreseen.condition,
            why=foreseen.view.why,
            seconds=foreseen.view.seconds,
            plan=self._plan,
        )

    @cached_property
    def _committed(self) -> Mapping[tuple[str, int], str]:
        """Trials that are versions of the name already, with their steps."""
        name = self.work.into
        return {} if name is None else committing.committed_trials(self.repository, name)

    @cached_property
    def _foreseen(self) -> Foreseen:
        planned, run = list(self.picking.trials.values()), self.run

        def begin(ledger: Ledger) -> None:
            if self.how.fresh and ledger.store.run(run) is not None:
                ledger.forget(run)
            self._open(ledger, run, planned)
            folders = {each.id: self.repository.trials_folder / each.id for each in planned}
            failed = [t.trial for t in ledger.run(run).trials if t.state == "failed"]
            mended = [name for name in failed if not TrialFiles(folders[name]).whole()]
            ledger.retry_failed(run, None if self.how.retry_failed else mended)
            self.picking.replay(ledger.run(run))

        def lost(trial: TrialView) -> bool:
            if self.work.into is None or not trial.kept:
                return False
            files = TrialFiles(self.repository.trials_folder / trial.trial)
            gone = checkpoints.last_step(files.checkpoints) < trial.step
            return gone and (trial.trial, trial.step) not in self._committed

        return foresee(self.repository, run, begin, lost)

    @property
    def _plan(self) -> TrainingPlan:
        known = [trial.config.steps for trial in self.picking.trials.values()]
        return self._foreseen.plan(self._count - len(known), max(known, default=0))

    def explained(self) -> Explained:
        """In lines: networks, dimensions, trials, steps at most."""
        picking = self.picking
        done = self._done_before()
        lines = [self._header(done)]
        for candidate in picking.preparing.candidates:
            told = "; ".join(edit.text or edit.action for edit in candidate.edits)
            lines.append(f"  network {candidate.network.id[:7]}  {' and '.join(candidate.origins)}")
            lines[-1] += f": {told}" if told else ""
        dimensions = []
        for each in self.work.varied:
            text, count = described(each, picking.preparing.spaces[0])
            lines.append(f"  vary {text}" + ("" if count is None else f"  {count} values"))
            dimensions.append({"vary": text, "values": count})
        chosen = self.work.sampling
        if chosen.kind != "grid":
            lines.append(f"  using {chosen.kind}, {chosen.n} configurations for each network")
        lines += [f"  keep {evaluations.rule_text(rule)}" for rule in self.work.rules]
        if self.work.budget:
            lines.append("  budget " + ", ".join(f"{k} {v:g}" for k, v in self.work.budget.items()))
        if self.work.into is not None:
            lines.append(f'  into "{self.work.into}"')
        plan = self._plan if self.repository.trials_path.exists() else None
        if plan is not None and plan.finished:
            lines.append(f"  {plan.finished:,} finished before, <= {plan.steps:,} steps to train")
        found = self._outcome(done)
        document = {
            "step": "evaluate",
            "name": self.work.name,
            "networks": found.networks,
            "dimensions": dimensions,
            "using": chosen.kind,
            "trials": self._count,
            "most_steps": found.most_steps,
            "done": done,
            "plan": None if plan is None else asdict(plan),
            "keep": [dict(rule) for rule in self.work.rules],
            "budget": dict(self.work.budget),
            "into": self.work.into,
        }
        return Explained(lines, document, self.warnings)

    # What is said before

    @property
    def _count(self) -> int:
        """Trials that there will be at most."""
        if not self.picking.growing:
            return len(self.picking.trials)
        return self.picking.preparing.count() or 0

    def _header(self, done: int) -> str:
        picking, count = self.picking, self._count
        networks = len(picking.preparing.candidates)
        plural = "s" if networks != 1 else ""
        each = count // networks if count == networks * (count // networks) else None
        if each is None:
            trials = f"{networks} network{plural}, {count:,} trials"
        else:
            trials = (
                f"{networks} network{plural} x {each:,} configuration{'s' * (each != 1)}"
                f" = {count:,} trial{'s' * (count != 1)}"
            )
        found = f"{self.work.source_text}: {trials}, <= {self._most_steps:,} steps"
        return found + (f", {done:,} already done" if done else "")

    @property
    def _most_steps(self) -> int:
        known = [trial.config.steps for trial in self.picking.trials.values()]
        return sum(known) + (self._count - len(known)) * max(known, default=0)

    def _finished(self, store: Store) -> set[str]:
        """Trials that nobody will read again: they are done, and none is committed."""
        if self.work.into is not None:
            return set()
        rows = map(store.trial, self.picking.trials)
        return {row["id"] for row in rows if row is not None and row["state"] == "done"}

    def _done_before(self) -> int:
        if not self.repository.trials_path.exists():
            return 0
        with _store(self.repository) as store:
            rows = ((store.trial(name), each) for name, each in self.picking.trials.items())
            return sum(
                row is not None and row["state"] == "done" and row["step"] >= each.config.steps
                for row, each in rows
            )

    # The run

    def _forget(self, ledger: Ledger, run: str) -> None:
        known = {view["id"] for view in ledger.store.runs()}
        if run not in known:
            return
        trials = ledger.run(run).trials
        self.how.agree(f"{len(trials)} trials and their checkpoints will be discarded")
        for name in ledger.forget(run):
            shutil.rmtree(self.repository.trials_folder / name, ignore_errors=True)

    def _open(self, ledger: Ledger, run: str, planned: Sequence[Planned]) -> int:
        chosen = self.work.sampling
        sampler: dict[str, Any] = {"kind": chosen.kind, "n": chosen.n, "seed": chosen.seed}
        state = ledger.open_run(
            run,
            str(self.query["query"]),
            dict(self.query.get("parameters", {})),
            self.work.rules,
            Budget.of(self.work.budget),
            [each.new() for each in planned],
            steps=max(each.config.steps for each in planned),
            sampler=sampler,
            growing=self.picking.growing,
        )
        return state.done

    def _train(self, store: Store, ledger: Ledger, run: str) -> None:
        picking, place = self.picking, self.work.workers
        more = None
        if picking.growing:
            more = picking.more(ledger, run, picking.preparing.write)
        if place.kind == "ray":
            import dlv.training.workers.ray_pool as ray_pool

            ray_pool.train(
                *(store, self.repository.trials_folder, run),
                reopen=partial(Store, self.repository.trials_path),
                readers=Readers(rows=partial(open_parts, digest=fingerprint), events=Tail),
                address=place.address,
                cpus=place.cpus,
                gpus=place.gpus,
                workers=place.count,
                progress=self.how.progress,
                more=more,
            )
            return
        pool.train(
            store,
            run,
            workers=place.count,
            gpus=int(place.gpus),
            progress=self.how.progress,
            command=pool.worker_command(self.repository.root, run),
            environ=pool.worker_environment(),
            more=more,
        )

    def _found(self, ledger: Ledger, run: str, done: int) -> Trials:
        view = ledger.run(run)
        self._check(view)
        trials = rank_trials(ledger.result(run), self.picking.trials)
        name = self.work.into
        if name is not None and view.state != "running":
            trials = committing.commit_trials(
                *(self.repository, ledger, run, name, trials),
                {key: each.candidate for key, each in self.picking.trials.items()},
                self.query,
                settings={said(key): value for key, value in self.work.settings},
                author=self.how.author,
                jobs=self.how.jobs,
                every=self.how.snapshots != LAST,
                warn=self.warnings.append,
            )
        thin_checkpoints(
            *(self.repository, ledger, view),
            committed=name is not None,
            discard=self.how.discard_checkpoints,
        )
        self._warn(view)
        found = self._outcome(done)
        return replace(
            found,
            trials=choose_trials(self.work, trials),
            counts=dict(view.counts),
            state=view.state,
            why=view.why,
            seconds=view.seconds,
        )

    def _outcome(self, done: int) -> Trials:
        rule: Mapping[str, Any] = next((r for r in self.work.rules if r.get("direction")), {})
        return Trials(
            run=self.run,
            name=self.work.name,
            said=self._header(done),
            trials=(),
            networks=len(self.picking.preparing.candidates),
            most_steps=self._most_steps,
            done=done,
            metric=rule.get("metric"),
            direction=rule.get("direction"),
            warnings=self.warnings,
            into=self.work.into,
        )

    def _check(self, view: RunView) -> None:
        """Whether anything came of it."""
        if view.state == "failed":
            raise UsageError("the trials cannot be judged", why=view.why)
        bad = [trial for trial in view.trials if trial.state in ("failed", "diverged")]
        if not view.trials or len(bad) < len(view.trials):
            return
        first = next((trial for trial in bad if trial.error), bad[0])
        line = (first.error or "a metric was not finite").strip().splitlines()[-1]
        count = len(bad)
        printed = self.repository.trials_folder / first.trial / "output.txt"
        raise AllFailed(
            f"all {count} trials failed" if count > 1 else "the trial failed",
            why=f"trial #{first.ordinal} of {first.label}: {line}",
            hint=f"dlv trials {view.id[:7]} {first.ordinal} (its output: {printed});"
            " to retry: --retry-failed",
        )

    def _warn(self, view: RunView) -> None:
        for trial in view.trials:
            if trial.unlike is not None:
                self.warnings.append(f"trial {trial.ordinal} is not reproducible: {trial.unlike}")
        odd = [
            each.data.where
            for each in self.picking.trials.values()
            if each.data is not None and not each.data.verified
        ]
        for where in dict.fromkeys(odd):
            self.warnings.append(f"{where} cannot be verified, so changes are not noticed")


@contextmanager
def _store(repository: Repository) -> Iterator[Store]:
    store = trial_files.open_store(repository)
    with contextlib.closing(store):
        yield store
