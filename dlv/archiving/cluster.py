"""Encoding on a Ray cluster, whose nodes read the packs from a shared folder.

The machine that runs the archive plans, writes the packs and verifies them, so plan and packs are
the same as without a cluster. Tasks open no database: each is sent the places of its chunks.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dlv.training.workers.ray_pool as ray_pool
from dlv.archiving.tryouts import Choice, encoded
from dlv.dataclass import dataclass
from dlv.errors import DlvError, StorageError, UsageError
from dlv.kinds import Piece
from dlv.pas.deltas.links import chain
from dlv.pas.encode import Part
from dlv.pas.footer import Encoding
from dlv.weights.store import MatrixStore

RETRIES = 3  # for a task whose node is lost


@dataclass(frozen=True)
class Job:
    """One matrix to encode. It serves the task as the index of both chains of deltas."""

    packs: Path
    choice: Choice
    wanted: Encoding
    thorough: bool
    encodings: dict[str, Encoding]
    pieces: dict[str, Sequence[Piece]]
    objects: dict[tuple[str, str], Sequence[Piece]]

    @classmethod
    def of(cls, store: MatrixStore, choice: Choice, wanted: Encoding, *, thorough: bool) -> Job:
        encodings: dict[str, Encoding] = {}
        pieces: dict[str, Sequence[Piece]] = {}
        objects: dict[tuple[str, str], Sequence[Piece]] = {}
        for name in filter(None, (choice.matrix, choice.base)):
            for link in chain(name, store.encoding):
                encodings[link.matrix] = link
                pieces[link.matrix] = store.chunks(link.matrix)
        for piece in (piece for some in pieces.values() for piece in some):
            if "table" in piece.codec:
                key = ("table", str(piece.codec["table"]))
                objects[key] = store.object_chunks(*key)
        return cls(store.packs_dir, choice, wanted, thorough, encodings, pieces, objects)

    def encoding(self, matrix: str) -> Encoding | None:
        return self.encodings.get(matrix)

    def chunks(self, matrix: str) -> Sequence[Piece]:
        return self.pieces.get(matrix, ())

    def object_chunks(self, kind: str, name: str) -> Sequence[Piece]:
        return self.objects.get((kind, name), ())


def encode(job: Job) -> tuple[Encoding, list[Part]]:
    """Encode one matrix on a node of the cluster."""
    if not job.packs.is_dir():
        raise UsageError(
            f"a node of the Ray cluster does not see {job.packs}",
            hint="put the repository on a shared file system",
        )
    with tempfile.TemporaryDirectory(prefix="dlv-archive-") as name:
        folder = Path(name)
        store = MatrixStore(job.packs, folder, job)
        try:
            given = (job.choice, job.wanted, store.matrix, folder)
            with encoded(*given, thorough=job.thorough) as attempt:
                assert attempt.encoding is not None
                return attempt.encoding, list(attempt.parts())
        finally:
            store.close()


@dataclass(frozen=True)
class Cluster:
    """A connected cluster; `slots` is how many tasks it runs at once."""

    store: MatrixStore
    ray: Any
    task: Any
    slots: int

    def encoded(
        self, choice: Choice, wanted: Encoding, thorough: bool
    ) -> tuple[Encoding, list[Part]]:
        """Encode a matrix on any free node and wait for the result."""
        job = Job.of(self.store, choice, wanted, thorough=thorough)
        try:
            result: tuple[Encoding, list[Part]] = self.ray.get(self.task.remote(job))
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, DlvError):
                raise error.cause from None
            raise StorageError("a task of the Ray cluster failed", why=_cause(error)) from error
        except self.ray.exceptions.RayError as error:
            raise StorageError("a task of the Ray cluster was lost", why=_cause(error)) from error
        return result


def _cause(error: Exception) -> str:
    """Return what happened; a traceback stands before it in the text of a Ray error."""
    return str(error).strip().rpartition("\n")[2]


def address_of(place: str) -> str | None:
    """Return the address in `ray:ADDRESS` or `ray://HOST:PORT`; None for `ray`, a new cluster."""
    if place == "ray":
        return None
    if place.startswith("ray://"):
        return place
    if place.startswith("ray:") and place != "ray:":
        return place.removeprefix("ray:")
    raise UsageError(f"no such place: `{place}`", hint="ray, ray:ADDRESS or ray://HOST:PORT")


@contextmanager
def connected(store: MatrixStore, place: str) -> Iterator[Cluster]:
    """Connect to the cluster, which encodes matrices of this store until the context ends."""
    with ray_pool.connected(address_of(place)) as ray:
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(encode)
        slots = int(ray.cluster_resources().get("CPU", 1))
        yield Cluster(store, ray, task, max(1, slots))
