"""The bounds record `dlv/bounds/2`: what the first planes of a snapshot's weights leave open.

Its norms hold for one encoding of each matrix only, so that it names these, and counts for nothing
once one of them has changed. `dlv/bounds/1`, which earlier versions wrote, is read as well.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from typing import Any, Protocol

import numpy as np

from dlv.canonical import WRITER, dumps, hash_bytes, hash_of, is_hash, loads
from dlv.errors import Damaged, DlvError
from dlv.kinds import Raw
from dlv.metadata import bounds as rows
from dlv.metadata.database import Database
from dlv.network.bounds.ball import Norms
from dlv.objects.manifest import Manifest, Snapshot
from dlv.objects.record import Reader, check_format, natural
from dlv.pas.deltas.links import chain
from dlv.pas.footer import MAX_PLANES, Encoding
from dlv.weights.bounds_columns import columns
from dlv.weights.bounds_columns import rows as rows_of
from dlv.weights.bounds_norms import MOST, NodeNorms, node_json, read_node

Lookup = Callable[[str], Encoding | None]

FORMAT, ROWS = "dlv/bounds/2", "dlv/bounds/1"
KIND = "bounds"
REFERENCES = ("f64", "strict")
_PREFIX = 8  # digits of a hash that a record has at least
_TRIES = 256


class Store(Protocol):
    """Where matrices and named objects are read; a MatrixStore."""

    def encoding(self, matrix: str) -> Encoding | None: ...

    def object(self, kind: str, name: str) -> Raw: ...


@dataclass(frozen=True)
class BoundMatrix:
    """A tensor of the network, its matrix, and the encoding that the norms hold for.

    Where the record names all weights by one hash, `hash` is the beginning of the matrix's.
    """

    name: str
    hash: str
    encoding: str | None


@dataclass(frozen=True)
class NoRecord:
    """Why nothing is known of a snapshot's bounds."""

    why: str


@dataclass(frozen=True)
class Record:
    """Everything a reader needs to tell labels from the first planes.

    `input`: the shapes, without the batch, that each `opn` holds for. `schedule`: after each
    level the planes read of every matrix. `suffix`: a tighter bound's tables, if there are any.
    `weights`: the hash of all matrices and encodings; None: each matrix has its own.
    """

    network: str
    input: tuple[tuple[int, ...], ...]
    matrices: tuple[BoundMatrix, ...]
    nodes: tuple[NodeNorms, ...]
    schedule: tuple[Mapping[str, int], ...]
    helps: Mapping[str, bool]
    suffix: Mapping[str, Any] | None = None
    writer: str = WRITER
    weights: str | None = None

    def encode(self) -> bytes:
        record = {
            "format": ROWS,
            "writer": self.writer,
            "network": self.network,
            "input": [list(shape) for shape in self.input],
            "matrices": [vars(matrix) for matrix in self.matrices],
            "nodes": [node_json(node) for node in self.nodes],
            "schedule": [dict(level) for level in self.schedule],
            "helps": dict(self.helps),
            "suffix": None if self.suffix is None else dict(self.suffix),
        }
        if self.weights is not None:
            record = columns({**record, "format": FORMAT, "weights": self.weights})
        return dumps(record)

    @cached_property
    def hash(self) -> str:
        return hash_bytes(self.encode())

    @property
    def finite(self) -> bool:
        return all(node.finite for node in self.nodes)

    @property
    def row_counts(self) -> dict[str, int]:
        """Of each node whose rows have norms, how many."""
        return {
            node.name: len(rows)
            for node in self.nodes
            for rows in (node.rows, *(level.drows for level in node.levels))
            if rows is not None
        }

    def node(self, name: str) -> NodeNorms | None:
        return next((node for node in self.nodes if node.name == name), None)

    def norms(
        self,
        node: str,
        planes: int | None,
        shapes: Sequence[Sequence[int]] | None = None,
    ) -> Norms | None:
        """Of a linear node after so many planes of its weight; None: all of it was read.

        `shapes`: those of the inputs at hand, without the batch; as recorded, if not said.
        None where nothing bounds what these planes leave open.
        """
        found = self.node(node)
        if found is None or not found.finite:
            return None
        fits = shapes is None or tuple(tuple(shape) for shape in shapes) == self.input
        whole = (
            found.opn if fits else found.opn_any,
            found.fro,
            found.absmax,
        )
        rows = None if found.rows is None else np.array(found.rows)
        if planes is None:
            none = None if rows is None else np.zeros(len(rows))
            return Norms(*whole, 0.0, 0.0, rows, none, 0.0)
        level = found.level(planes)
        if level is None:
            return None
        open_rows = None if level.drows is None else np.array(level.drows)
        dopn = level.dopn if fits and level.dopn is not None else math.inf
        return Norms(*whole, level.dn, level.dfro, rows, open_rows, dopn)

    def stale(self, network: str, hashes: Mapping[str, str], lookup: Lookup) -> str | None:
        """Why it says nothing of a snapshot as it is stored now; None: it holds.

        `hashes`: the matrix of each tensor and constant.
        """
        if network != self.network:
            return "it is of another network"
        for matrix in self.matrices:
            if not hashes.get(matrix.name, "").startswith(matrix.hash):
                return f"`{matrix.name}` holds other numbers than it was made for"
            if self.weights is None and encoding_id(hashes[matrix.name], lookup) != matrix.encoding:
                return f"`{matrix.name}` is stored in another way than when it was made"
        if self.weights is not None:
            held = [(matrix.name, hashes[matrix.name]) for matrix in self.matrices]
            if weights_id(held, lookup) != self.weights:
                return "some of its matrices are stored in another way than when it was made"
        return None

    def hashes(self, among: Iterable[str], lookup: Lookup) -> dict[str, str]:
        """The matrix of each tensor, of those that are known; a beginning where none is."""
        known = sorted(set(among))
        options = []
        for matrix in self.matrices:
            at = bisect_left(known, matrix.hash)
            end = bisect_left(known, f"{matrix.hash}g")  # behind all that begin so
            fits = known[at:end]
            options.append(fits if self.weights is not None and fits else [matrix.hash])
        names = [matrix.name for matrix in self.matrices]
        first = dict(zip(names, (each[0] for each in options), strict=True))
        gone = any(each not in known for each in first.values())
        if gone or all(len(each) == 1 for each in options):
            return first
        # Matrices that begin alike: the hash of all tells which are meant.
        for chosen in islice(product(*options), _TRIES):
            held = dict(zip(names, chosen, strict=True))
            with suppress(Damaged):  # of one that nothing has any more
                if weights_id(list(held.items()), lookup) == self.weights:
                    return held
        return first


def named(hashes: Mapping[str, str], lookup: Lookup) -> tuple[tuple[BoundMatrix, ...], str]:
    """These tensors as a record names them: by the beginnings of hashes, and one hash of all."""
    length = _PREFIX
    distinct = set(hashes.values())
    while len({digest[:length] for digest in distinct}) < len(distinct):
        length += 1
    matrices = tuple(BoundMatrix(name, each[:length], None) for name, each in hashes.items())
    return matrices, weights_id(list(hashes.items()), lookup)


def weights_id(held: Sequence[tuple[str, str]], lookup: Lookup) -> str:
    """The hash of tensors' names, matrices and encodings."""
    return hash_of([[name, each, encoding_id(each, lookup)] for name, each in held])


def encoding_id(matrix: str, lookup: Lookup) -> str:
    """The hash of how a matrix is stored, its chain of bases included; codecs do not count."""
    found: str | None = None
    for link in reversed(chain(matrix, lookup)):
        delta = None if link.delta is None else dict(link.delta)
        found = hash_of({"layout": dict(link.layout), "delta": delta, "base": found})
    assert found is not None
    return found


def hashes_of(manifest: Manifest, snapshot: Snapshot) -> dict[str, str]:
    """Tensor or constant -> its matrix, of what a snapshot holds."""
    found = {
        tensor.name: digest
        for tensor, digest in zip(manifest.tensors, snapshot.hashes, strict=True)
        if digest is not None
    }
    for constant in manifest.network.constants if manifest.network else ():
        found.setdefault(constant["name"], constant["hash"])
    return found


def record_of(
    db: Database, store: Store, manifest: Manifest, snapshot: Snapshot
) -> Record | NoRecord:
    """The record of a snapshot that holds for how it is stored now, or why there is none.

    A record that is damaged, or of a newer dlv, is as good as none.
    """
    if manifest.network is None:
        return NoRecord("the version has no network")
    hashes = hashes_of(manifest, snapshot)
    why = "no bounds are stored; dlv archive --bounds makes them"
    for name in rows.candidates(db, manifest.network.id, hashes.values()):
        try:
            record = decode(bytes(store.object(KIND, name)), f"bounds {name[:12]}")
            stale = record.stale(manifest.network.id, hashes, store.encoding)
        except DlvError as error:
            why = f"the stored bounds cannot be read: {error.message}"
            continue
        if stale is None:
            return record
        why = f"the stored bounds do not hold any more: {stale}"
    return NoRecord(why)


def pinned(db: Database, store: Store, besides: Iterable[str] = ()) -> set[str]:
    """The matrices whose encodings records hold for, and their bases: none of them may change.

    `besides`: records that do not count, since they are about to be replaced.
    """
    left_out = set(besides)
    current = []
    for name in rows.needed(db):
        try:
            record = decode(bytes(store.object(KIND, name)), f"bounds {name[:12]}")
            hashes = record.hashes(rows.matrices_of_record(db, name), store.encoding)
            holds = record.stale(record.network, hashes, store.encoding) is None
        except DlvError:
            continue
        if holds and name not in left_out:
            current.append(name)
    return rows.matrices_of(db, current)


def decode(data: bytes, what: str = "bounds record") -> Record:
    """Read a record strictly."""
    value = loads(data, what)
    whole = isinstance(value, dict) and value.get("format") == ROWS
    if not whole:
        check_format(value, FORMAT, what)
        value = rows_of(value, what)
    keys = "format writer network input matrices nodes schedule helps suffix"
    top = Reader(value, what, keys if whole else f"{keys} weights")
    matrices = tuple(
        BoundMatrix(
            row.take("name", str),
            row.take("hash", str, is_hash if whole else _is_prefix),
            row.take("encoding", str, is_hash) if whole else None,
        )
        for row in top.each("matrices", "name hash encoding")
    )
    nodes = tuple(
        read_node(row)
        for row in top.each("nodes", "name opn opn_any fro absmax finite rows levels")
    )
    _once(top, "matrices", [matrix.name for matrix in matrices])
    _once(top, "nodes", [node.name for node in nodes])
    found = Record(
        network=top.take("network", str, is_hash),
        input=tuple(_shape(top, shape) for shape in top.take("input", list)),
        matrices=matrices,
        nodes=nodes,
        schedule=_schedule(top, [matrix.name for matrix in matrices]),
        helps=_helps(top),
        suffix=top.optional("suffix", dict),
        writer=top.take("writer", str),
        weights=None if whole else top.take("weights", str, is_hash),
    )
    found.__dict__["hash"] = hash_bytes(data)  # a text is canonical, and encoding it takes longer
    return found


def _is_prefix(text: str) -> bool:
    return _PREFIX <= len(text) <= 64 and not set(text) - set("0123456789abcdef")


def _shape(top: Reader, shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(map(natural, shape)):
        raise top.damaged("`input` holds what is no shape")
    return tuple(shape)


def _schedule(top: Reader, names: Iterable[str]) -> tuple[Mapping[str, int], ...]:
    """Levels that read more each time, and at last something."""
    found: list[Mapping[str, int]] = []
    wanted = set(names)
    for level in top.take("schedule", list, lambda levels: 0 < len(levels) <= MOST):
        if not isinstance(level, dict) or set(level) != wanted:
            raise top.damaged("a level of `schedule` does not name just the matrices")
        if not all(natural(planes) and planes <= MAX_PLANES for planes in level.values()):
            raise top.damaged("`schedule` holds an impossible number of planes")
        if found and (level == found[-1] or any(level[name] < found[-1][name] for name in wanted)):
            raise top.damaged("a level of `schedule` does not read more than the one before")
        found.append(level)
    return tuple(found)


def _helps(top: Reader) -> Mapping[str, bool]:
    found = top.take("helps", dict)
    if unknown := sorted(set(found) - set(REFERENCES)):
        raise top.newer(f"the reference `{unknown[0]}`")
    if set(found) != set(REFERENCES) or not all(isinstance(v, bool) for v in found.values()):
        raise top.damaged("`helps` does not say yes or no of each reference")
    return found


def _once(top: Reader, key: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise top.damaged(f"`{key}` has a name twice")
