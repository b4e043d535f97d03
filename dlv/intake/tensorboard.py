"""`import tensorboard`: every run below a folder of event files becomes a version, once.

A run that others lie in takes them along: writers make such runs for hyperparameters and for
curves that belong together. Of a training and its validation, as Keras logs them, the folder
above is the run.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import dlv.curves.ingest as ingest
import dlv.events.formats.summaries as summaries
import dlv.intake.mlflow_record as record
from dlv.adapters.mlflow import version_name
from dlv.canonical import is_hash, timestamp
from dlv.curves.ingest import EventLogs
from dlv.curves.restart_views import advice
from dlv.curves.store import LIVE, CurveStore
from dlv.dataclass import dataclass
from dlv.errors import Conflict, UsageError
from dlv.events.provider.store import SeriesRow
from dlv.intake.imported_runs import Imported, ImportedRun, publish_imported, write_imported
from dlv.metadata import versions
from dlv.metadata.versions import Version
from dlv.objects.manifest import Manifest, Parent, check_name
from dlv.repository.handle import Repository, read_object
from dlv.versions.draft import Draft, fill
from dlv.versions.draft import Request as DraftRequest
from dlv.weights.store import MatrixStore
from dlv.weights.writer import WeightWriter

KEY = "tensorboard"  # in the environment of a manifest
BATCH = 100  # runs that are stored in one go
_PARTS = ("train", "training", "val", "valid", "validation", "test", "eval")


@dataclass
class Request:
    folder: str
    author: str
    here: Path
    name: str | None = None
    jobs: int = 1
    recheck: str = "hash"
    progress: Callable[[int], None] = lambda _: None


@dataclass
class _Work:
    """A run, and those below it, on the way into a version."""

    run: str
    start: str | None  # when it began; with the run it tells whether it was imported before
    end: str
    logs: EventLogs
    rows: list[tuple[str, SeriesRow]]
    draft: Draft
    manifest: Manifest | None = None


def import_tensorboard(repository: Repository, request: Request) -> Imported:
    """A version for each run that is new or has gone on; HEAD and staging stay as they are."""
    started = time.monotonic()
    folder = Path(request.here, request.folder)
    name = request.name or _name(folder)
    check_name(name)
    if versions.by_tag(repository.database, name) is not None:
        raise Conflict(f"`{name}` is already a tag", hint="--name gives another name")
    found = ingest.find(folder)
    if not found:
        raise UsageError(
            f"no event files in {folder}", why="event files contain `tfevents` in their name"
        )
    done = Imported()
    with CurveStore.open(repository.path / LIVE, repository.patience) as store:
        read = ingest.scan(store, folder, progress=request.progress)
        done.warnings += [f"{path}: {what}" for path, what in read.remarks]
        if back := advice(store, read.experiment):
            done.warnings.append(back)
        experiment = next(key for key, known in store.experiments() if known == read.experiment)
        starts = {row.name: row.start_time for row in store.runs(experiment)}
        works = []
        for run, parts in grouped(found).items():
            logs = EventLogs(store, experiment, runs=parts)
            rows = logs.series()
            if not rows:
                done.skipped.append((run, "it is empty"))
                continue
            began = [start for part in parts if (start := starts.get(part)) is not None]
            works.append(_work(run, min(began, default=None), logs, rows))
        works.sort(key=lambda work: (work.start or "", work.run))
        known = _known(repository)
        for at in range(0, len(works), BATCH):
            _store(repository, request, name, works[at : at + BATCH], known, done)
    done.seconds = time.monotonic() - started
    return done


def grouped(runs: Iterable[str]) -> dict[str, dict[str, str]]:
    """Run that becomes a version -> the runs that it holds -> what they are called in it."""
    names = sorted(runs)
    found: dict[str, dict[str, str]] = {}
    for name in names:
        above = [top for top in names if top == "." or name == top or name.startswith(f"{top}/")]
        root = min(above, key=len)
        if posixpath.basename(root).lower() in _PARTS:
            root = posixpath.dirname(root) or "."
        inner = posixpath.relpath(name, root)
        found.setdefault(root, {})[name] = "" if inner == "." else inner
    return found


def _name(folder: Path) -> str:
    made = version_name(folder.resolve().name) or KEY
    return f"{KEY}-{made}"[:60] if is_hash(made) else made


def _work(
    run: str, start: float | None, logs: EventLogs, rows: list[tuple[str, SeriesRow]]
) -> _Work:
    walls = [row.max_wall for _, row in rows if row.max_wall is not None]
    end = _moment(max(walls, default=None)) or timestamp()
    return _Work(run, _moment(start), end, logs, rows, Draft(None, []))


def _moment(seconds: float | None) -> str | None:
    known = seconds is not None and 0 < seconds < 2**40  # NaN is not
    return record.moment(int(seconds * 1000)) if known and seconds is not None else None


def _known(repository: Repository) -> dict[tuple[str, str | None], Version]:
    """Run and start -> the newest version that it became; a living one counts first."""
    found: dict[tuple[str, str | None], Version] = {}
    for states in (("removed",), ("live", "recovered")):
        for version in reversed(versions.all_versions(repository.database, states)):
            # Most versions are no imports, and to decode a manifest takes far longer.
            if b'"tensorboard":{' not in read_object(repository.manifests, version.id, "manifest"):
                continue
            said = repository.manifest(version.id).environment.get(KEY)
            if isinstance(said, dict) and isinstance(said.get("run"), str):
                found[said["run"], said.get("start")] = version
    return found


def _store(
    repository: Repository,
    request: Request,
    name: str,
    works: Sequence[_Work],
    known: dict[tuple[str, str | None], Version],
    done: Imported,
) -> None:
    with repository.writing():
        store = MatrixStore.of(repository)
        with WeightWriter(store, jobs=request.jobs, recheck=request.recheck) as writer:
            for work in works:
                settings = _hyperparameters(work.rows)
                given = DraftRequest("", request.author, parameters=settings, events=[work.logs])
                fill(work.draft, writer, store, given)
            new = [
                work
                for work in works
                if not _settled(repository, work, known.get((work.run, work.start)), done)
            ]
            if not new:
                return
            packs = writer.finish()
        for work in new:
            _complete(repository, request, name, work, known.get((work.run, work.start)))
        with repository.change("import", request.author) as change:
            ready = [(work, made) for work in new if (made := work.manifest) is not None]
            publish_imported(change, packs, [(work.draft, made) for work, made in ready])
            for work, made in ready:
                version = versions.by_id(change.db, made.id)
                assert version is not None
                _add(work, version, done, new=True)
        done.stored += sum(pack.bytes for pack in packs)


def _settled(repository: Repository, work: _Work, version: Version | None, done: Imported) -> bool:
    """Whether the run has become a version before, and has not gone on since."""
    if version is None:
        return False
    references = {reference for reference, _ in work.draft.series}
    if set(repository.manifest(version.id).series) != references:
        return False
    if version.state == "removed":
        done.skipped.append((work.run, f"{version.label}, which it was imported as, was removed"))
    else:
        _add(work, version, done, new=False)
    return True


def _complete(
    repository: Repository, request: Request, name: str, work: _Work, before: Version | None
) -> None:
    follows = before is not None and before.state != "removed"
    made = work.draft.manifest(
        name=name,
        message=f"run {work.run}" if work.run != "." else f"run of {name}",
        author=request.author,
        created=work.end,
        parents=(Parent(before.id, "import"),) if follows and before is not None else (),
        environment={
            "git": None,
            "python": None,
            "packages": {},
            KEY: {"run": work.run, "start": work.start},
        },
    )
    work.manifest = write_imported(repository, made)


def _hyperparameters(rows: Sequence[tuple[str, SeriesRow]]) -> dict[str, Any]:
    """Of the run, then of those below it."""
    found: dict[str, Any] = {}
    for _, row in sorted(rows, key=lambda pair: (len(pair[0]), pair[0])):
        if row.tag == summaries.SESSION:
            for key, value in summaries.logged_hyperparameters(row.content).items():
                found.setdefault(key, value)
    return found


def _add(work: _Work, version: Version, done: Imported, *, new: bool) -> None:
    series = [(f"{run}/{row.tag}" if run else row.tag, row.n) for run, row in work.rows]
    done.versions.append(
        ImportedRun(
            *(work.run, work.run, version.id, version.name, version.number, new, []),
            series if new else [],
        )
    )
    if new:
        done.warnings += [f"{version.label}: {text}" for text in work.draft.warnings]
        done.warnings += [
            f"{version.label}: {row.tag}: {row.error}" for _, row in work.rows if row.error
        ]
