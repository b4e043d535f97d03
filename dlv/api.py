"""The Python door: `dlv.open(".")["lenet@3"].matrix("conv1.weight")`, `commit`, `run`."""

from __future__ import annotations

import contextlib
import getpass
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import dlv.add as adding
import dlv.arrays as arrays
import dlv.catalogue as catalogue
import dlv.commit as committing
import dlv.revisions as revisions
from dlv.adapters.checkpoint import Raw
from dlv.commit import Committed
from dlv.config import Config
from dlv.errors import NotFound, UsageError, nearest
from dlv.events.series import Scalars
from dlv.files import FileStore
from dlv.manifest import Manifest, Snapshot, check_name
from dlv.metadata import metrics, staged, versions
from dlv.metadata.staged import StagedFile
from dlv.network.graph import Network
from dlv.repository import Repository, author_of
from dlv.runs import Run, Spool
from dlv.staging import Request as AddRequest
from dlv.weights import MatrixStore


def open(path: str | os.PathLike[str] = ".", *, create: bool = False) -> Repo:  # noqa: A001
    """The repository around `path`; with `create`, made there if there is none."""
    if create:
        return Repo(Repository.init(Path(path))[0])
    return Repo(Repository.find(Path(path), os.environ.get("DLV_DIR")))


class Repo:
    """A repository. Versions are looked up by reference: `repo["lenet@best:accuracy"]`."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        repository.single_host = lambda: bool(self._config.get("core.singlehost"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.repository.close()

    def __getitem__(self, reference: str) -> Version:
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
        for row in versions.all_versions(self.repository.database):
            yield Version(self.repository, row)

    def __len__(self) -> int:
        return len(versions.all_versions(self.repository.database))

    @property
    def head(self) -> Version | None:
        return self["HEAD"] if self.repository.head is not None else None

    @property
    def names(self) -> list[str]:
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
        snapshots: Mapping[int, Mapping[str, Any]] | None = None,
        parameters: Mapping[str, Any] | None = None,
        metrics: Mapping[str, float | Sequence[tuple[int, float]]] | None = None,
        parents: Sequence[str] = (),
        allow_empty: bool = False,
    ) -> Version:
        """Commit what is staged, plus what is given: arrays by name, numbers, settings.

        `weights` are the version's own, `snapshots` earlier ones by step. `metrics` are numbers
        or lists of (step, value).
        """
        spool = Spool(self.repository.path)
        try:
            for step, values in (snapshots or {}).items():
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
                allow_empty=allow_empty,
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
        """A training run: `with repo.run("lenet") as run:`, committed when the block ends."""
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
            )
            return self[made.id]

        return Run(self.repository.path, message or f"run of {name}", given, finish)

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
        allow_empty: bool = False,
    ) -> Committed:
        config = self._config
        login = ""
        with contextlib.suppress(OSError, KeyError):
            login = getpass.getuser()
        waiting = staged.everything(self.repository.database)
        request = committing.Request(
            message=message,
            author=author_of(str(config.get("user.name")), str(config.get("user.email")), login),
            name=name,
            parents=parents,
            parameters=parameters,
            series=series,
            staged=[*waiting, *spooled],
            allow_empty=allow_empty,
            recheck=str(config.get("commit.recheck")),
            jobs=int(config.get("core.jobs")) or os.cpu_count() or 1,
        )
        return committing.commit(self.repository, request)


def _series(tag: str, points: Any) -> Scalars:
    # Numbers of numpy and torch are neither int nor float, but have no axes.
    single = isinstance(points, (int, float)) or getattr(points, "ndim", None) == 0
    pairs = [(0, points)] if single else list(points)
    walls = [0.0] * len(pairs)
    return Scalars(
        "", tag, [int(step) for step, _ in pairs], walls, [float(value) for _, value in pairs]
    )


class Version:
    """A version, seen through one of its snapshots: its own weights, or those of a step."""

    def __init__(
        self, repository: Repository, row: versions.Version, index: int | None = None
    ) -> None:
        self.repository = repository
        self.row = row
        self._index = index

    def __repr__(self) -> str:
        step = "" if self._index is None else f"/{self.step}"
        return f"<dlv version {self.row.label}{step} {self.id[:12]}>"

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def number(self) -> int | None:
        return self.row.number

    @property
    def message(self) -> str:
        return self.row.message

    @property
    def author(self) -> str:
        return self.row.author

    @property
    def created(self) -> str:
        return self.row.created

    @property
    def tags(self) -> tuple[str, ...]:
        return self.row.tags

    @property
    def parents(self) -> list[str]:
        return [parent for parent, _ in self.row.parents]

    @cached_property
    def manifest(self) -> Manifest:
        return self.repository.manifest(self.id)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return dict(self.manifest.hyperparameters)

    @property
    def steps(self) -> list[int | None]:
        """The steps of its snapshots."""
        return [snapshot.step for snapshot in self.manifest.snapshots]

    @property
    def step(self) -> int | None:
        return self._snapshot.step

    def at(self, step: int) -> Version:
        """The same version seen at a step."""
        return Version(
            self.repository,
            self.row,
            revisions.resolve(self.repository.database, f"{self.id}/{step}").snapshot.index,  # type: ignore[union-attr]
        )

    @property
    def _snapshot(self) -> Snapshot:
        index = self.manifest.own if self._index is None else self._index
        if index is None:
            raise NotFound(f"{self.row.label} has no weights")
        return self.manifest.snapshots[index]

    @cached_property
    def _store(self) -> MatrixStore:
        return MatrixStore.of(self.repository)

    @property
    def matrices(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """name -> (dtype, shape) of the tensors in this snapshot."""
        return {
            tensor.name: (tensor.dtype, tensor.shape)
            for tensor, digest in zip(self.manifest.tensors, self._snapshot.hashes, strict=True)
            if digest is not None
        }

    def raw(self, name: str) -> Raw:
        """The little-endian bytes of a matrix, exactly as they were added."""
        for tensor, digest in zip(self.manifest.tensors, self._snapshot.hashes, strict=True):
            if tensor.name == name and digest is not None:
                return self._store.matrix(digest)
        raise NotFound(
            f"{self.row.label} has no matrix `{name}`", did_you_mean=nearest(name, self.matrices)
        )

    def matrix(self, name: str) -> arrays.Array:
        """A matrix as a numpy array; bfloat16 and float8 come as float32 of the same values."""
        raw = self.raw(name)
        dtype, shape = self.matrices[name]
        return arrays.to_array(dtype, shape, raw)

    def state_dict(self) -> dict[str, arrays.Array]:
        """All matrices but those of optimizers."""
        roles = {tensor.name: tensor.role for tensor in self.manifest.tensors}
        return {name: self.matrix(name) for name in self.matrices if roles[name] != "optimizer"}

    @cached_property
    def network(self) -> Network | None:
        reference = self.manifest.network
        return None if reference is None else catalogue.network(self._store, reference.id)

    @property
    def metrics(self) -> dict[str, metrics.Summary]:
        """Last, least and greatest value of each series."""
        rows = metrics.of_version(self.repository.database, self.row.key)
        return {row.name: row for row in rows}

    def series(self, name: str) -> Scalars:
        """All points of a series."""
        for reference in self.manifest.series:
            shown = f"{reference.run}/{reference.tag}" if reference.run else reference.tag
            if name in (shown, reference.tag):
                return catalogue.series(self._store, reference.hash)
        raise NotFound(
            f"{self.row.label} has no series `{name}`", did_you_mean=nearest(name, self.metrics)
        )

    @property
    def files(self) -> list[str]:
        return [entry.path for entry in self.manifest.files]

    def file(self, path: str) -> bytes:
        """The content of an associated file."""
        for entry in self.manifest.files:
            if entry.path == path:
                return FileStore(self.repository.files_git).read(entry)
        raise NotFound(
            f"{self.row.label} has no file `{path}`", did_you_mean=nearest(path, self.files)
        )
