"""A version as Python sees it: its facts, weights, curves and files, and its model in torch."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import dlv.repository.revisions as revisions
import dlv.weights.reading.retrieval as retrieval
from dlv.config import Config, check
from dlv.errors import NotFound, nearest
from dlv.events.formats.series import Scalars
from dlv.kinds import Array, Raw
from dlv.metadata import evaluations, metrics, versions
from dlv.network.graph import Network
from dlv.objects.manifest import Manifest, Snapshot, TensorEntry
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository
from dlv.shown import Shown, frame
from dlv.weights.arrays import to_array, to_torch
from dlv.weights.reading.reader import Reader
from dlv.weights.store import MatrixStore, stored_network, stored_series

if TYPE_CHECKING:
    from dlv.curves.logged import Curves
    from dlv.evaluation.answers import Evaluation
    from dlv.network.torch.module import NetworkModule

_MODEL_ROLES = ("weight", "buffer")
LOADED = 64 << 20  # bytes of tensors that are loaded into a module at once


def author(repository: Repository) -> str:
    """Return the author of commits made from Python: user.name and user.email, or the login."""
    return Config.load(repository.config_file, os.environ).author({})


def _shape(value: Any) -> tuple[int, ...] | None:
    """The shape of an entry of a state dict; None if it is not a tensor, or not initialized yet."""
    try:
        return tuple(value.shape)
    except (AttributeError, RuntimeError):
        return None


class Version(Shown):
    """A version, at one checkpoint: the default one, or that of a step."""

    def __init__(
        self, repository: Repository, row: versions.Version, index: int | None = None
    ) -> None:
        self.repository = repository
        self.row = row
        self.index = index

    def __repr__(self) -> str:
        step = "" if self.index is None else f"/{self.step}"
        return f"<dlv version {self.row.label}{step} {self.id[:12]}>"

    def __getitem__(self, name: str) -> Array:
        """The tensor of that name, like `tensor`."""
        return self.tensor(name)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.tensors)

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each tensor: name, dtype, shape, elements."""
        rows = [
            (name, dtype, shape, math.prod(shape)) for name, (dtype, shape) in self.tensors.items()
        ]
        return frame(rows, ["tensor", "dtype", "shape", "elements"])

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def label(self) -> str:
        """NAME@NUMBER."""
        return self.row.label

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
        """Steps of the checkpoints."""
        return [snapshot.step for snapshot in self.manifest.snapshots]

    @property
    def step(self) -> int | None:
        return self._snapshot.step

    def at(self, step: int) -> Version:
        """Return the same version at the checkpoint of a step."""
        return Version(
            self.repository,
            self.row,
            revisions.resolve(self.repository.database, f"{self.id}/{step}").snapshot.index,  # type: ignore[union-attr]
        )

    @property
    def _snapshot(self) -> Snapshot:
        index = self.manifest.own if self.index is None else self.index
        if index is None:
            raise NotFound(f"{self.row.label} has no weights")
        return self.manifest.snapshots[index]

    @cached_property
    def _store(self) -> MatrixStore:
        return MatrixStore.of(self.repository)

    @property
    def tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Name -> (dtype, shape) of the tensors in this checkpoint."""
        return {
            tensor.name: (tensor.dtype, tensor.shape)
            for tensor, digest in zip(self.manifest.tensors, self._snapshot.hashes, strict=True)
            if digest is not None
        }

    def open(self) -> Reader:
        """Open the weights to read single tensors, slices, or approximations."""
        held = {
            tensor.name: (tensor.dtype, tensor.shape, digest)
            for tensor, digest in zip(self.manifest.tensors, self._snapshot.hashes, strict=True)
            if digest is not None
        }
        metadata = {"dlv": self.id}
        if self.step is not None:
            metadata["step"] = str(self.step)
        label = self.row.label if self.index is None else f"{self.row.label}/{self.step}"
        # A store of its own, so that closing it takes nothing away from others.
        return Reader(MatrixStore.of(self.repository), label, held, metadata)

    def raw(self, name: str) -> Raw:
        """Return the little-endian bytes of a tensor, exactly as committed."""
        for tensor, digest in zip(self.manifest.tensors, self._snapshot.hashes, strict=True):
            if tensor.name == name and digest is not None:
                return self._store.matrix(digest)
        raise NotFound(
            f"{self.row.label} has no tensor `{name}`", did_you_mean=nearest(name, self.tensors)
        )

    def tensor(self, name: str) -> Array:
        """A matrix as a numpy array; bfloat16 and float8 come as float32 of the same values."""
        raw = self.raw(name)
        dtype, shape = self.tensors[name]
        return to_array(dtype, shape, raw)

    def state_dict(self, *, jobs: int = 1) -> dict[str, Array]:
        """All matrices but those of optimizers, read by so many threads."""
        wanted = {
            tensor.name: (tensor.dtype, tensor.shape, digest)
            for tensor, digest in zip(self.manifest.tensors, self._snapshot.hashes, strict=True)
            if digest is not None and tensor.role != "optimizer"
        }
        raws = retrieval.matrices(self._store, [digest for _, _, digest in wanted.values()], jobs)
        return {
            name: to_array(dtype, shape, raws[digest])
            for name, (dtype, shape, digest) in wanted.items()
        }

    def over_steps(self, name: str) -> dict[int | None, Array]:
        """A matrix in each snapshot that has it, by step; what they share is decoded once."""
        places = [i for i, tensor in enumerate(self.manifest.tensors) if tensor.name == name]
        held = {
            snapshot.step: (self.manifest.tensors[i], digest)
            for i in places
            for snapshot in self.manifest.snapshots
            if (digest := snapshot.hashes[i]) is not None
        }
        if not held:
            names = {tensor.name for tensor in self.manifest.tensors}
            raise NotFound(
                f"{self.row.label} has no tensor `{name}`", did_you_mean=nearest(name, names)
            )
        raws = retrieval.related(self._store, [digest for _, digest in held.values()])
        return {
            step: to_array(tensor.dtype, tensor.shape, raws[digest])
            for step, (tensor, digest) in held.items()
        }

    @cached_property
    def network(self) -> Network | None:
        reference = self.manifest.network
        return None if reference is None else stored_network(self._store, reference.id)

    def torch_state_dict(self) -> dict[str, Any]:
        """The model's tensors as torch has them, in the dtypes and the order that were stored."""
        return {
            tensor.name: to_torch(tensor.dtype, tensor.shape, self._store.matrix(digest))
            for tensor, digest in self._model_tensors()
        }

    def _model_tensors(self) -> Iterator[tuple[TensorEntry, str]]:
        for tensor, digest in zip(self.manifest.tensors, self._snapshot.hashes, strict=True):
            if digest is not None and tensor.role in _MODEL_ROLES:
                yield tensor, digest

    def load_into(self, module: Any, *, strict: bool = True) -> Any:
        """Load this checkpoint's weights into your own torch module; return what torch returns.

        If all names and shapes match, the weights are loaded in parts, to save memory.
        """
        own = {name: _shape(value) for name, value in module.state_dict().items()}
        if own != {tensor.name: tensor.shape for tensor, _ in self._model_tensors()}:
            return module.load_state_dict(self.torch_state_dict(), strict=strict)
        part: dict[str, Any] = {}
        for tensor, digest in self._model_tensors():
            if sum(value.nbytes for value in part.values()) >= LOADED:
                module.load_state_dict(part, strict=False)
                part.clear()
            part[tensor.name] = to_torch(tensor.dtype, tensor.shape, self._store.matrix(digest))
        return module.load_state_dict(part, strict=False)._replace(missing_keys=[])

    def module(self, *, train: bool = False) -> NetworkModule:
        """The network with this snapshot's weights, as a torch module that can be trained on."""
        network, reference = self.network, self.manifest.network
        if network is None or reference is None:
            raise NotFound(
                f"{self.row.label} has no network",
                why="a network is required to run the model",
                hint="fill your own module: version.load_into(module)",
            )
        import dlv.network.torch.module as torch_module

        constants = {
            item["name"]: to_torch(
                item["dtype"], tuple(item["shape"]), self._store.matrix(item["hash"])
            )
            for item in reference.constants
        }
        tensors = self.torch_state_dict()
        # What lies beside a model in its file, where the network speaks of it all the same.
        for name in sorted((network.tensor_names() - tensors.keys()) & self.tensors.keys()):
            tensors[name] = to_torch(*self.tensors[name], self.raw(name))
        told = reference.origin.get("buffers")
        buffers = [tensor.name for tensor in self.manifest.tensors if tensor.role == "buffer"]
        if isinstance(told, Sequence):
            buffers += [name for name in told if isinstance(name, str)]
        made = torch_module.build(network, tensors, constants, buffers=buffers)
        made.train(train)
        return made

    def evaluate(
        self,
        data: Any = None,
        *,
        progressive: bool | str = False,
        top_k: int = 1,
        confusion: bool = False,
        batch: int | None = None,
        precision: str | None = None,
        settings: Mapping[str, Any] | None = None,
        save: bool = True,
        **options: Any,
    ) -> Evaluation:
        """Test this snapshot, as `dlv eval` does: labels and figures of each row of the data.

        `data`: a path, `python:module:function`, x, (x, y) or a dict of arrays; None: what was
        added with the version. `progressive`: True, or "calibrated". `settings`: of the data,
        {"scale": "1/255"}. Kept with the version unless `save` is False or it is on a remote.
        """
        import dlv.evaluation.evaluate as evaluate

        named = isinstance(data, (str, os.PathLike))
        reference = self.id if self.index is None else f"{self.id}/{self.step}"
        request = evaluate.Request(
            words=[reference],
            data=os.fspath(data) if named else None,
            arrays=None if named else data,
            sets=[f"data.{key}={json.dumps(value)}" for key, value in (settings or {}).items()],
            progressive="guaranteed" if progressive is True else progressive or None,
            top_k=top_k,
            confusion=confusion,
            batch=batch,
            precision=precision,
            **options,
        )
        found = evaluate.evaluate(self.repository, request)
        if save and not self.repository.frozen:
            found.save(self.repository, author(self.repository))
        (result,) = found.results
        return result

    @property
    def metrics(self) -> dict[str, metrics.Summary]:
        """Last, smallest and largest value of each metric, evaluations included."""
        rows = evaluations.metrics_of(self.repository.database, self.row)
        return {row.name: row for row in rows}

    def metric(self, name: str, restarts: str = "marked") -> Scalars:
        """Return all points of a metric; with `restarts="keep"` also those a restart hid."""
        for reference in self.manifest.series:
            shown = f"{reference.run}/{reference.tag}" if reference.run else reference.tag
            if name in (shown, reference.tag):
                policy = str(check("curves.restarts", restarts, ""))
                return stored_series(self._store, reference.hash, policy)
        raise NotFound(
            f"{self.row.label} has no metric `{name}`", did_you_mean=nearest(name, self.metrics)
        )

    def curves(self, restarts: str | None = None) -> Curves:
        """Everything that was logged: scalars, histograms, images and what else there is.

        `restarts`: marked, preempt or keep, else as `curves.restarts` says.
        """
        import dlv.curves.logged as logged_curves

        config = Config.load(self.repository.config_file, os.environ)
        cap = int(config.get("curves.cap"))
        policy = config.given("curves.restarts", restarts)
        return logged_curves.of_versions(self.repository, [self.row], cap=cap, restarts=policy)

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
