"""`import mlflow`: every run of an MLflow store becomes a version, once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dlv.intake.mlflow_record as record
import dlv.versions.artifacts as artifacts
from dlv.adapters.mlflow import FileStore, Run, Store, is_store
from dlv.adapters.mlflow_database import DatabaseStore, is_database
from dlv.dataclass import dataclass
from dlv.errors import (
    Conflict,
    Damaged,
    DlvError,
    NewerFormat,
    NotFound,
    UnsafeInput,
    UsageError,
    nearest,
)
from dlv.events.formats.series import Scalars
from dlv.intake.imported_runs import Imported, ImportedRun, publish_imported, write_imported
from dlv.metadata import versions
from dlv.metadata.versions import Version
from dlv.objects.manifest import Manifest, Parent, check_name
from dlv.repository.handle import Repository
from dlv.versions.draft import Draft, fill, store_files
from dlv.versions.draft import Request as DraftRequest
from dlv.weights.store import MatrixStore
from dlv.weights.writer import PackRecord, WeightWriter

BATCH = 100  # runs without weights that are stored in one go
LEAST_PREFIX = 4
# What is wrong with one run; a full disk is not, and ends the import.
_FAULTS = (Conflict, Damaged, NewerFormat, NotFound, UnsafeInput, UsageError)


@dataclass
class Request:
    """An MLflow store, and which of its runs; all where nothing is said."""

    store: str
    author: str
    here: Path
    experiments: Sequence[str] = ()  # names or ids
    runs: Sequence[str] = ()  # names, ids or their beginnings
    artifacts: Sequence[str] = ()  # folders outside the store that may be read, too
    name: str | None = None
    optimizer: str = "keep"
    recheck: str = "hash"
    jobs: int = 1
    progress: Callable[[int], None] = lambda _: None


@dataclass
class _Work:
    """A run on its way into a version."""

    run: Run
    name: str
    draft: Draft
    request: DraftRequest
    manifest: Manifest | None = None


def import_mlflow(repository: Repository, request: Request) -> Imported:
    """A version for each run that was not imported before; HEAD and staging stay as they are."""
    started = time.monotonic()
    if request.name is not None:
        check_name(request.name)
        _check_free(repository, request.name)
    store = open_store(Path(request.here, request.store))
    try:
        store.bases += [_folder(Path(request.here, name)) for name in request.artifacts]
        done = _Import(repository, request, store).run()
    finally:
        store.close()
    done.seconds = time.monotonic() - started
    return done


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise NotFound(f"no such directory: {path}", hint="--artifacts names one with artifacts")
    return path.absolute()


def open_store(path: Path) -> Store:
    """A folder `mlruns`, a file `mlflow.db`, or a project's folder with one of these."""
    if path.is_dir():
        if (path / "mlflow.db").is_file():
            return open_store(path / "mlflow.db")
        for folder in (path, path / "mlruns"):
            if is_store(folder):
                return FileStore(folder)
        beside = path.parent / "mlflow.db"
        meant = beside if beside.is_file() else path.parent
        known = meant is beside or is_store(meant)
        raise UsageError(
            f"{path} is not an MLflow store",
            why="no folder in it is an experiment with a meta.yaml",
            hint=f"dlv import mlflow {meant}" if known else None,
        )
    if is_database(path):  # NotFound if there is nothing
        return DatabaseStore(path)
    raise UsageError(
        f"{path} is not an MLflow store", why="it is neither a directory nor an SQLite database"
    )


def _check_free(repository: Repository, name: str) -> None:
    if versions.by_tag(repository.database, name) is not None:
        raise Conflict(f"`{name}` is already a tag", hint="--name gives another name")


def _reason(error: DlvError) -> str:
    return f"{error.message}: {error.why}" if error.why else error.message


class _Import:
    """One import: what is done so far, and the version of every run that has one."""

    def __init__(self, repository: Repository, request: Request, store: Store) -> None:
        self.repository = repository
        self.request = request
        self.store = store
        self.done = Imported()
        self.known = record.known(repository)
        self.ids = {run: version.id for run, (version, _) in self.known.items()}

    def run(self) -> Imported:
        waiting: list[_Work] = []
        runs = _parents_first(_chosen(self.store, self.request))
        for run in runs:
            if run.id in self.known and self._settled(run, *self.known[run.id]):
                continue
            try:
                work = self._prepare(run)
            except _FAULTS as error:
                self.done.skipped.append((run.id, _reason(error)))
                continue
            waiting.append(work)
            # Weights can fail halfway, and nothing of that may be kept: they are alone.
            if work.draft.of_role("snapshot", "network"):
                self._store(waiting[:-1])
                self._store(waiting[-1:])
                waiting = []
            elif len(waiting) == BATCH:
                self._store(waiting)
                waiting = []
        self._store(waiting)
        place = {run.id: index for index, run in enumerate(runs)}
        self.done.versions.sort(key=lambda made: place[made.run])
        self.done.skipped += [] if self.request.runs else self.store.skipped
        self.done.warnings += self.store.notes
        return self.done

    def _settled(self, run: Run, version: Version, recorded: dict[str, Any]) -> bool:
        """Whether nothing is to be done for a run that was imported before."""
        same = all(recorded.get(key) == value for key, value in record.ending(run).items())
        if version.state == "removed":
            if same:
                why = f"{version.label}, which it was imported as, was removed"
                self.done.skipped.append((run.id, why))
            return same
        if same:
            self._add(run, version, self.repository.manifest(version.id), new=False)
        else:
            why = f"it has continued since it was imported as {version.label}"
            why += f": dlv rm {version.label}, then import it again"
            self.done.skipped.append((run.id, why))
        return True

    def _prepare(self, run: Run) -> _Work:
        """All that is known of a run; of its weights only what they are."""
        name = self.request.name or record.name(run)
        _check_free(self.repository, name)
        series = [
            Scalars("", tag, points.steps, points.walls, points.values)
            for tag, points in self.store.metrics(run).items()
        ]
        found = artifacts.gather(
            record.places(self.store, run, self.done.skipped), self.request.optimizer
        )
        self.done.skipped += [(f"{run.id}/{path}", why) for path, why in found.skipped]
        request = DraftRequest(
            message=record.message(run),
            author=record.author(run, self.request.author),
            name=name,
            parameters=record.parameters(run),
            series=series,
            progress=self.request.progress,
        )
        return _Work(run, name, Draft(None, found.files), request)

    def _store(self, batch: Sequence[_Work]) -> None:
        """All of these or, where a run cannot be stored, all but that."""
        if not batch:
            return
        with self.repository.writing():
            store = MatrixStore.of(self.repository)
            with WeightWriter(
                store, jobs=self.request.jobs, recheck=self.request.recheck
            ) as writer:
                filled = [
                    work
                    for work in batch
                    if self._tried(work, lambda w: fill(w.draft, writer, store, w.request))
                ]
                if not filled:
                    return
                packs = writer.finish()
            whole = [work for work in filled if self._tried(work, self._complete)]
            if whole:
                self._publish(whole, packs)

    def _tried(self, work: _Work, step: Callable[[_Work], None]) -> bool:
        try:
            step(work)
        except _FAULTS as error:
            self.done.skipped.append((work.run.id, _reason(error)))
            return False
        return True

    def _complete(self, work: _Work) -> None:
        """Files and the manifest; children of the run can name it from now on."""
        run, draft = work.run, work.draft
        store_files(self.repository, draft, work.name)
        parent = self.ids.get(run.parent or "")
        made = draft.manifest(
            name=work.name,
            message=work.request.message,
            author=work.request.author,
            created=record.created(run),
            parents=() if parent is None else (Parent(parent, "import"),),
            environment=record.environment(run),
        )
        work.manifest = made = write_imported(self.repository, made)
        self.ids[run.id] = made.id

    def _publish(self, works: Sequence[_Work], packs: Sequence[PackRecord]) -> None:
        with self.repository.change("import", self.request.author) as change:
            ready = [(work, made) for work in works if (made := work.manifest) is not None]
            new = publish_imported(change, packs, [(work.draft, made) for work, made in ready])
            for work, made in ready:
                version = versions.by_id(change.db, made.id)
                assert version is not None
                self._add(work.run, version, made, new=made.id in new, work=work)
        self.done.stored += sum(pack.bytes for pack in packs)

    def _add(
        self,
        run: Run,
        version: Version,
        manifest: Manifest,
        *,
        new: bool,
        work: _Work | None = None,
    ) -> None:
        steps = [snapshot.step for snapshot in manifest.snapshots]
        series: list[tuple[str, int]] = []
        if work is not None:
            series = [(one.tag, len(one)) for one in work.request.series]
            self.done.warnings += [f"{version.label}: {text}" for text in work.draft.warnings]
        self.done.versions.append(
            ImportedRun(
                *(run.id, run.name, version.id, version.name, version.number, new, steps, series),
                raw=0 if work is None else work.draft.weights.raw,
            )
        )


def _chosen(store: Store, request: Request) -> list[Run]:
    """The runs that were asked for."""
    experiments = store.experiments()
    names = {key for known in experiments for key in (known.name, known.id)}
    for asked in request.experiments:
        if asked not in names:
            raise NotFound(
                f"the store has no experiment `{asked}`", did_you_mean=nearest(asked, names)
            )
    wanted = set(request.experiments)
    found = [
        run
        for experiment in experiments
        if not wanted or wanted & {experiment.name, experiment.id}
        for run in store.runs(experiment)
    ]
    if not request.runs:
        return found
    chosen = {}
    for asked in request.runs:
        run = _named(found, asked, store)
        chosen[run.id] = run
    return list(chosen.values())


def _named(runs: Sequence[Run], wanted: str, store: Store) -> Run:
    matching = [run for run in runs if run.id == wanted or run.name == wanted]
    if not matching and len(wanted) >= LEAST_PREFIX:
        matching = [run for run in runs if run.id.startswith(wanted)]
    if len(matching) > 1:
        raise UsageError(
            f"`{wanted}` matches several runs", why=", ".join(run.id for run in matching[:4])
        )
    if not matching:
        known = [run.name for run in runs] + [run.id for run in runs]
        why = next((why for run, why in store.skipped if run == wanted), None)
        # MLflow makes names of several words: one of them is as good as a mistyped name.
        parts = [name for name in known if wanted.lower() in name.lower()][:3]
        raise NotFound(
            f"no run `{wanted}` in the store", why=why, did_you_mean=nearest(wanted, known) or parts
        )
    return matching[0]


def _parents_first(runs: Sequence[Run]) -> list[Run]:
    """By their start, but a run that others are nested in before these."""
    by_id = {run.id: run for run in runs}
    ordered: list[Run] = []
    placed: set[str] = set()
    for run in sorted(runs, key=lambda run: (run.start or 0, run.id)):
        line: list[Run] = []
        here: Run | None = run
        while here is not None and here.id not in placed:
            placed.add(here.id)  # at once, which also ends circles
            line.append(here)
            here = by_id.get(here.parent or "")
        ordered += reversed(line)
    return ordered
