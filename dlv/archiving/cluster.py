"""Matrices encoded by tasks on a Ray cluster, from packs in a folder that every node sees.

The machine that archives plans, writes the packs and reads them back: the plan and the bytes are
those of one machine alone. Tasks open no database; where chunks lie is sent to them.
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

RETRIES = 3  # of a task whose node was lost


@dataclass(frozen=True)
class Job:
    """All that a task needs to know; as an index it lists the chains of both matrices."""

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
    """The task."""
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
    """`slots`: tasks that run at once."""

    store: MatrixStore
    ray: Any
    task: Any
    slots: int

    def encoded(
        self, choice: Choice, wanted: Encoding, thorough: bool
    ) -> tuple[Encoding, list[Part]]:
        """Encode on whatever node is free, and wait for it."""
        job = Job.of(self.store, choice, wanted, thorough=thorough)
        try:
            made: tuple[Encoding, list[Part]] = self.ray.get(self.task.remote(job))
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, DlvError):
                raise error.cause from None
            raise StorageError("a task of the Ray cluster failed", why=_line(error)) from error
        except self.ray.exceptions.RayError as error:
            raise StorageError("a task of the Ray cluster was lost", why=_line(error)) from error
        return made


def _line(error: Exception) -> str:
    return str(error).strip().rpartition("\n")[2]


def address_of(place: str) -> str | None:
    """`ray`: a cluster of this machine; `ray:ADDRESS` and `ray://HOST:PORT`: one that runs."""
    if place == "ray":
        return None
    if place.startswith("ray://"):
        return place
    if place.startswith("ray:") and place != "ray:":
        return place.removeprefix("ray:")
    raise UsageError(f"no such place: `{place}`", hint="ray, ray:ADDRESS or ray://HOST:PORT")


@contextmanager
def connected(store: MatrixStore, place: str) -> Iterator[Cluster]:
    with ray_pool.connected(address_of(place)) as ray:
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(encode)
        slots = int(ray.cluster_resources().get("CPU", 1))
        yield Cluster(store, ray, task, max(1, slots))
