"""The bounds record `dlv/bounds/1`: what the first planes of a snapshot's weights leave open.

Its norms hold for one encoding of each matrix only, so that it names these, and counts for nothing
once one of them has changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dlv.canonical import WRITER, dumps, float_of, hash_bytes, hash_of, is_hash, loads, number
from dlv.errors import DlvError
from dlv.manifest import Manifest, Snapshot
from dlv.metadata import bounds as rows
from dlv.metadata.database import Database
from dlv.network.ball import Norms
from dlv.pas.footer import MAX_PLANES, Encoding
from dlv.pas.links import chain
from dlv.record import Reader, check_format, natural

Raw = bytes | bytearray | memoryview
Lookup = Callable[[str], Encoding | None]

FORMAT = "dlv/bounds/1"
KIND = "bounds"
REFERENCES = ("f64", "strict")
_MOST = 1 << 20  # rows, matrices, levels of a schedule: no record has more


class Store(Protocol):
    """Where matrices and named objects are read; a MatrixStore."""

    def encoding(self, matrix: str) -> Encoding | None: ...

    def object(self, kind: str, name: str) -> Raw: ...


@dataclass(frozen=True)
class BoundMatrix:
    """A tensor of the network, its matrix, and the encoding that the norms hold for."""

    name: str
    hash: str
    encoding: str


@dataclass(frozen=True)
class LevelNorms:
    """Of dW, what the first `planes` planes do not tell of the weight.

    `dopn`, if there is one, bounds it as an operator on inputs of the record's size.
    """

    planes: int
    dn: float
    dfro: float
    drows: tuple[float, ...] | None = None
    dopn: float | None = None


@dataclass(frozen=True)
class NodeNorms:
    """Of the weight W of a linear node, batch normalisation folded in.

    `opn` bounds it as an operator on inputs of the record's size, `opn_any` on those of any size.
    """

    name: str
    opn: float
    opn_any: float
    fro: float
    absmax: float
    finite: bool
    rows: tuple[float, ...] | None = None
    levels: tuple[LevelNorms, ...] = ()

    def level(self, planes: int) -> LevelNorms | None:
        return next((level for level in self.levels if level.planes == planes), None)


@dataclass(frozen=True)
class NoRecord:
    """Why nothing is known of a snapshot's bounds."""

    why: str


@dataclass(frozen=True)
class Record:
    """Everything a reader needs to tell labels from the first planes.

    `input`: the shapes, without the batch, that each `opn` holds for. `schedule`: after each
    level the planes read of every matrix. `suffix`: a tighter bound's tables, if there are any.
    """

    network: str
    input: tuple[tuple[int, ...], ...]
    matrices: tuple[BoundMatrix, ...]
    nodes: tuple[NodeNorms, ...]
    schedule: tuple[Mapping[str, int], ...]
    helps: Mapping[str, bool]
    suffix: Mapping[str, Any] | None = None
    writer: str = WRITER

    def encode(self) -> bytes:
        return dumps(
            {
                "format": FORMAT,
                "writer": self.writer,
                "network": self.network,
                "input": [list(shape) for shape in self.input],
                "matrices": [vars(matrix) for matrix in self.matrices],
                "nodes": [_node_json(node) for node in self.nodes],
                "schedule": [dict(level) for level in self.schedule],
                "helps": dict(self.helps),
                "suffix": None if self.suffix is None else dict(self.suffix),
            }
        )

    @property
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
            if hashes.get(matrix.name) != matrix.hash:
                return f"`{matrix.name}` holds other numbers than it was made for"
            if encoding_id(matrix.hash, lookup) != matrix.encoding:
                return f"`{matrix.name}` is stored in another way than when it was made"
        return None


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
            holds = all(
                encoding_id(matrix.hash, store.encoding) == matrix.encoding
                for matrix in record.matrices
            )
        except DlvError:
            continue
        if holds and name not in left_out:
            current.append(name)
    return rows.matrices_of(db, current)


def decode(data: bytes, what: str = "bounds record") -> Record:
    """Read a record strictly."""
    value = loads(data, what)
    check_format(value, FORMAT, what)
    top = Reader(value, what, "format writer network input matrices nodes schedule helps suffix")
    matrices = tuple(
        BoundMatrix(
            row.take("name", str),
            row.take("hash", str, is_hash),
            row.take("encoding", str, is_hash),
        )
        for row in top.each("matrices", "name hash encoding")
    )
    nodes = tuple(
        _node(row) for row in top.each("nodes", "name opn opn_any fro absmax finite rows levels")
    )
    _once(top, "matrices", [matrix.name for matrix in matrices])
    _once(top, "nodes", [node.name for node in nodes])
    return Record(
        network=top.take("network", str, is_hash),
        input=tuple(_shape(top, shape) for shape in top.take("input", list)),
        matrices=matrices,
        nodes=nodes,
        schedule=_schedule(top, [matrix.name for matrix in matrices]),
        helps=_helps(top),
        suffix=top.optional("suffix", dict),
        writer=top.take("writer", str),
    )


def _node_json(node: NodeNorms) -> dict[str, Any]:
    return {
        "name": node.name,
        "opn": number(node.opn),
        "opn_any": number(node.opn_any),
        "fro": number(node.fro),
        "absmax": number(node.absmax),
        "finite": node.finite,
        "rows": _list(node.rows),
        "levels": [
            {
                "planes": level.planes,
                "dn": number(level.dn),
                "dfro": number(level.dfro),
                "drows": _list(level.drows),
                "dopn": None if level.dopn is None else number(level.dopn),
            }
            for level in node.levels
        ],
    }


def _list(values: tuple[float, ...] | None) -> list[float | str] | None:
    return None if values is None else [number(value) for value in values]


def _node(row: Reader) -> NodeNorms:
    finite = row.take("finite", bool)
    rows = _floats(row, "rows", finite=finite)
    levels = tuple(
        LevelNorms(
            level.take("planes", int, lambda planes: 0 < planes < MAX_PLANES),
            _float(level, "dn", finite=finite),
            _float(level, "dfro", finite=finite),
            _floats(level, "drows", finite=finite),
            None if level.value["dopn"] is None else _float(level, "dopn", finite=finite),
        )
        for level in row.each("levels", "planes dn dfro drows dopn")
    )
    depths = [level.planes for level in levels]
    if depths != sorted(set(depths)):
        raise row.damaged("its levels are not in order")
    told = (rows, *(level.drows for level in levels))
    lengths = {len(found) for found in told if found is not None}
    if len(lengths) > 1:
        raise row.damaged("its norms of rows are of different lengths")
    return NodeNorms(
        name=row.take("name", str),
        opn=_float(row, "opn", finite=finite),
        opn_any=_float(row, "opn_any", finite=finite),
        fro=_float(row, "fro", finite=finite),
        absmax=_float(row, "absmax", finite=finite),
        finite=finite,
        rows=rows,
        levels=levels,
    )


def _norm(value: Any, *, finite: bool) -> float | None:
    """A norm as it may stand in a record; None if it is none."""
    if isinstance(value, str):
        if finite or value not in ("NaN", "Infinity"):
            return None
        return float_of(value)
    if not isinstance(value, float) or not value >= 0 or (math.copysign(1, value) < 0):
        return None
    return value


def _float(row: Reader, key: str, *, finite: bool) -> float:
    found = _norm(row.value[key], finite=finite)
    if found is None:
        raise row.damaged(f"`{key}` is no norm")
    return found


def _floats(row: Reader, key: str, *, finite: bool) -> tuple[float, ...] | None:
    values = row.optional(key, list, lambda found: len(found) <= _MOST)
    if values is None:
        return None
    found = [_norm(value, finite=finite) for value in values]
    if None in found:
        raise row.damaged(f"`{key}` holds what is no norm")
    return tuple(value for value in found if value is not None)


def _shape(top: Reader, shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(map(natural, shape)):
        raise top.damaged("`input` holds what is no shape")
    return tuple(shape)


def _schedule(top: Reader, names: Iterable[str]) -> tuple[Mapping[str, int], ...]:
    """Levels that read more each time, and at last something."""
    found: list[Mapping[str, int]] = []
    wanted = set(names)
    for level in top.take("schedule", list, lambda levels: 0 < len(levels) <= _MOST):
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
