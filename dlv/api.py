"""The Python door: `dlv.open(".")["lenet@3"].matrix("conv1.weight")`, `commit`, `run`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import dlv.metadata.facts as facts
import dlv.repository.revisions as revisions
import dlv.versions.add as adding
import dlv.versions.commit as committing
from dlv.adapters.checkpoint import Checkpoint
from dlv.config import WAIT, Config
from dlv.disk.locks import SECONDS, Patience
from dlv.errors import NotFound, UsageError
from dlv.events.formats.series import Scalars
from dlv.metadata import versions
from dlv.metadata.facts import StagedFile
from dlv.objects.manifest import check_name
from dlv.repository.handle import Repository
from dlv.runs import Run, Spool
from dlv.shown import Shown, frame
from dlv.versions.add import Request as AddRequest
from dlv.versions.commit import Committed
from dlv.versions.draft import network_of, unwrapped, weights_of
from dlv.versions.version import Version, author

if TYPE_CHECKING:
    from dlv.curves.logged import Curves
    from dlv.dql.answers import Answer
    from dlv.kinds import Promised
    from dlv.versions.diff import Diff

__all__ = ["Repo", "Version", "log_model", "open", "unwrapped"]


def open(  # noqa: A001
    path: str | os.PathLike[str] = ".", *, create: bool = False, wait: float | None = None
) -> Repo:
    """The repository around `path`; with `create`, made there if there is none.

    `path` can be the address of a remote, such as s3://bucket/models. What is read of its versions
    is fetched, verified and cached; nothing can be committed to it.

    `wait`: for how many seconds to wait for others at work on it, if not for core.wait; after
    one second the logger `dlv` says for whom.
    """
    if isinstance(path, str) and "://" in path:
        return RemoteRepo(path)
    if create:
        found = Repository.init(Path(path))[0]
    else:
        found = Repository.find(Path(path), os.environ.get("DLV_DIR"))

    def seconds() -> float:
        if wait is not None:
            return wait
        return float(Config.load(found.config_file, os.environ).given(WAIT, None) or SECONDS)

    found.find_promised = _find_promised
    found.patience = Patience(seconds, logging.getLogger("dlv").warning)
    if found.outdated:
        import dlv.recovery.rebuild as rebuild

        rebuild.rebuild(found, if_outdated=True)
    return Repo(found)


def _find_promised(repository: Repository) -> Promised | None:
    import dlv.hub.promised as promised

    return promised.find_promised(repository, os.environ)


def _draw(value: Any) -> str | None:
    import dlv.ui.notebook as notebook

    return notebook.html(value)


Shown.draw = _draw  # notebooks


def log_model(
    model: Any,
    example: Any,
    *,
    name: str | None = None,
    message: str = "",
    parameters: Mapping[str, Any] | None = None,
    metrics: Mapping[str, float | Sequence[tuple[int, float]]] | None = None,
) -> Version:
    """Commit a torch module, weights and network, to the repository around the current folder.

    `example` is what it is called with: a tensor, a tuple of arguments, or a dict of them.
    """
    return open().log_model(
        *(model, example), name=name, message=message, parameters=parameters, metrics=metrics
    )


class Repo(Shown):
    """A repository. Versions are looked up by reference: `repo["lenet@best:accuracy"]`."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        repository.single_host = lambda: bool(self._config.get("core.singlehost"))

    def __repr__(self) -> str:
        return f"<dlv repository {self.repository.root}: {len(self)} versions>"

    def _repr_html_(self) -> str | None:
        import dlv.ui.notebook as notebook

        self._refresh()
        return notebook.repository_html(self.repository)

    def _ipython_key_completions_(self) -> list[str]:
        return [*self.names, *(version.label for version in self)]

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each version: its metrics and hyperparameters."""
        import dlv.versions.history as history

        self._refresh()
        entries = history.list_versions(self.repository, history.Filter()).entries
        metrics = sorted({name for entry in entries for name in entry.metrics})
        parameters = sorted({name for entry in entries for name in entry.parameters})
        rows = [
            (
                *(entry.version.label, entry.version.created, entry.version.message),
                *(None if n not in entry.metrics else entry.metrics[n].last for n in metrics),
                *(entry.parameters.get(name) for name in parameters),
            )
            for entry in entries
        ]
        return frame(rows, ["version", "created", "message", *metrics, *parameters])

    def diff(self, *references: str, everything: bool = False, planes: int | None = None) -> Diff:
        """Compare versions with the first one, as `dlv diff` does."""
        import dlv.versions.diff as diffing

        self._refresh()
        if len(references) < 2:
            raise UsageError("two versions are required", hint='repo.diff("lenet@1", "lenet@2")')
        return diffing.diff(
            self.repository,
            references,
            everything=everything,
            planes=planes,
            jobs=int(self._config.get("core.jobs")) or os.cpu_count() or 1,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.repository.close()

    def _refresh(self, reference: str | None = None) -> None:
        """Of a remote: look for new versions of the model in a reference, or of all."""

    def __getitem__(self, reference: str) -> Version:
        self._refresh(reference)
        found = revisions.resolve(self.repository.database, reference)
        index = None if found.snapshot is None else found.snapshot.index
        return Version(self.repository, found.version, index)

    def __contains__(self, reference: object) -> bool:
        try:
            return isinstance(reference, str) and self[reference] is not None
        except (NotFound, UsageError):
            return False

    def __iter__(self) -> Iterator[Version]:
        """All live versions, newest first."""
        self._refresh()
        for row in versions.all_versions(self.repository.database):
            yield Version(self.repository, row)

    def __len__(self) -> int:
        self._refresh()
        return len(versions.all_versions(self.repository.database))

    def query(self, text: str, /, **parameters: Any) -> Answer:
        """What a query in DQL gives; `parameters` are its `$names`.

        Rows are tuples: `for a, loss in repo.query('select a, a["loss"]')`. `.to_pandas()` makes
        a DataFrame of them; slice and construct give `.networks`.
        """
        import dlv.dql.answers as answers

        self._refresh()
        return answers.ask(self.repository, text, parameters, os.environ)

    def curves(
        self,
        *references: str,
        folder: str | os.PathLike[str] | None = None,
        restarts: str | None = None,
    ) -> Curves:
        """What versions have logged, of all without references; or a folder of logs.

        A folder is read as it is now; what was read of it before is not read again. `restarts`:
        marked, preempt or keep, else as `curves.restarts` says.
        """
        import dlv.curves.logged as logged_curves

        cap = int(self._config.get("curves.cap"))
        policy = self._config.given("curves.restarts", restarts)
        if folder is not None:
            if references:
                raise UsageError("curves of versions or of a folder, not of both at once")
            return logged_curves.of_folder(self.repository, Path(folder), cap=cap, restarts=policy)
        wanted = [self[text].row for text in references] if references else [v.row for v in self]
        return logged_curves.of_versions(self.repository, wanted, cap=cap, restarts=policy)

    @property
    def head(self) -> Version | None:
        return self["HEAD"] if self.repository.head is not None else None

    @property
    def names(self) -> list[str]:
        self._refresh()
        return versions.names(self.repository.database)

    def add(
        self, *files: str | os.PathLike[str], role: str | None = None, step: int | None = None
    ) -> list[str]:
        """Stage files as `dlv add` does; the paths that were staged."""
        request = AddRequest(
            role=role, step=step, optimizer=str(self._config.get("commit.optimizer"))
        )
        found = adding.add(self.repository, Path.cwd(), [os.fspath(f) for f in files], request)
        return [file.path for file in found.files]

    def commit(
        self,
        message: str,
        *,
        name: str | None = None,
        weights: Mapping[str, Any] | None = None,
        checkpoints: Mapping[int, Mapping[str, Any]] | None = None,
        parameters: Mapping[str, Any] | None = None,
        metrics: Mapping[str, float | Sequence[tuple[int, float]]] | None = None,
        parents: Sequence[str] = (),
        orphan: bool = False,
        allow_empty: bool = False,
    ) -> Version:
        """Commit what is staged, plus what is given: arrays by name, numbers, settings.

        `weights` are the version's own, `checkpoints` earlier ones by step. `metrics` are numbers
        or lists of (step, value). `parents` names the parents, else they are those of `dlv commit`;
        `orphan`: none.
        """
        spool = Spool(self.repository.path)
        try:
            for step, values in (checkpoints or {}).items():
                spool.save(values, step)
            if weights is not None:
                spool.save(weights, None)
            made = self._commit(
                message,
                name=name,
                spooled=spool.files,
                parameters=parameters or {},
                series=[_series(tag, points) for tag, points in (metrics or {}).items()],
                parents=parents,
                orphan=orphan,
                allow_empty=allow_empty,
            )
        finally:
            spool.discard()
        return self[made.id]

    def log_model(
        self,
        model: Any,
        example: Any,
        *,
        name: str | None = None,
        message: str = "",
        parameters: Mapping[str, Any] | None = None,
        metrics: Mapping[str, float | Sequence[tuple[int, float]]] | None = None,
        parents: Sequence[str] = (),
    ) -> Version:
        """Commit a torch module: its weights, and its network as torch.export tells it.

        A module that cannot be exported is committed without a network, with a warning. The parent
        is that of `dlv commit`, unless others are named.
        """
        spool = Spool(self.repository.path)
        try:
            spool.save(weights_of(model), None, in_order=True)
            made = self._commit(
                message or f"logged {type(model).__name__}",
                name=name,
                spooled=spool.files,
                parameters=parameters or {},
                series=[_series(tag, points) for tag, points in (metrics or {}).items()],
                parents=parents,
                network=network_of(model, example),
            )
        finally:
            spool.discard()
        return self[made.id]

    def run(
        self,
        name: str,
        message: str = "",
        *,
        parameters: Mapping[str, Any] | None = None,
        parents: Sequence[str] = (),
    ) -> Run[Version]:
        """A training run: `with repo.run("lenet") as run:`, committed when the block ends.

        Its parent is that of `dlv commit`: HEAD for its own model, the newest version for another
        one, and for a new name HEAD if it has a tensor of the same name and shape.
        """
        check_name(name)
        given = dict(parameters or {})

        def finish(text: str, files: Sequence[StagedFile], series: Sequence[Scalars]) -> Version:
            made = self._commit(
                text,
                name=name,
                spooled=files,
                parameters=given,
                series=series,
                parents=parents,
                allow_empty=True,
                fresh=True,
                network=run.network,
            )
            return self[made.id]

        run = Run(self.repository.path, message or f"run of {name}", given, finish)
        return run

    @cached_property
    def _config(self) -> Config:
        return Config.load(self.repository.config_file, os.environ)

    def _commit(
        self,
        message: str,
        *,
        name: str | None,
        spooled: Sequence[StagedFile],
        parameters: Mapping[str, Any],
        series: Sequence[Scalars],
        parents: Sequence[str] = (),
        orphan: bool = False,
        allow_empty: bool = False,
        fresh: bool = False,
        network: Checkpoint | None = None,
    ) -> Committed:
        config = self._config
        waiting = facts.staged_files(self.repository.database)
        request = committing.Request(
            message=message,
            author=author(self.repository),
            name=name,
            parents=parents,
            orphan=orphan,
            fresh=fresh,
            parameters=parameters,
            network=network,
            series=series,
            staged=[*waiting, *spooled],
            allow_empty=allow_empty,
            usual_scheme=str(config.get("commit.quantize")),
            recheck=str(config.get("commit.recheck")),
            jobs=int(config.get("core.jobs")) or os.cpu_count() or 1,
        )
        return committing.commit(self.repository, request)


def _series(tag: str, points: Any) -> Scalars:
    # Numbers of numpy and torch are neither int nor float, but have no axes.
    single = isinstance(points, (int, float)) or getattr(points, "ndim", None) == 0
    try:
        pairs = [(0, points)] if single else list(points)
        steps, values = [int(step) for step, _ in pairs], [float(value) for _, value in pairs]
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the metric `{tag}` is {points!r}"[:200],
            why=str(error),
            hint="a number, or a list of (step, value)",
        ) from error
    return Scalars("", tag, steps, [0.0] * len(pairs), values)


class RemoteRepo(Repo):
    """The versions of a remote, by its address; what is read of them is fetched and cached."""

    def __init__(self, url: str) -> None:
        import dlv.disk.paths as paths
        import dlv.hub.mirror as mirror
        import dlv.hub.remotes as remotes

        cache = paths.cache(os.environ) / "remotes"
        self.remote = remotes.open_address(url, os.environ, cache)
        super().__init__(mirror.mirror_of(self.remote, [], os.environ))

    def __repr__(self) -> str:
        return f"<dlv remote {self.remote.url}>"

    def __getitem__(self, reference: str) -> Version:
        import dlv.hub.service as service

        (numbered,) = service.resolved(self.remote, [reference])
        return super().__getitem__(numbered)

    def _refresh(self, reference: str | None = None) -> None:
        import dlv.hub.mirror as mirror

        wanted = None if reference is None else mirror.models_of(self.remote, [reference])
        mirror.mirror_of(self.remote, wanted, os.environ).close()
        self.repository.look_for_promised()

    def add(self, *_: Any, **__: Any) -> list[str]:
        """Refuse: a remote is changed by `dlv publish`."""
        raise UsageError(f"{self.remote.url} cannot be changed from here", hint="dlv publish")

    def commit(self, *_: Any, **__: Any) -> Version:
        """Refuse: a remote is changed by `dlv publish`."""
        raise UsageError(f"{self.remote.url} cannot be changed from here", hint="dlv publish")

    log_model = run = commit  # type: ignore[assignment]
