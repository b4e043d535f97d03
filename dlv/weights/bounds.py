"""The bounds record `dlv/bounds/2`: what the first planes of a snapshot's weights leave open.

Its norms hold for one encoding of each matrix only, so that it names these, and counts for nothing
once one of them has changed. `dlv/bounds/1`, which earlier versions wrote, is read as well.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, islice, product
from typing import Annotated, Any

import numpy as np

import dlv.metadata.matrices as matrix_rows
from dlv.canonical import WRITER, dumps, hash_bytes, hash_of, is_hash, loads
from dlv.dataclass import dataclass
from dlv.errors import Damaged, DlvError
from dlv.metadata.database import Database
from dlv.network.bounds.ball import Norms
from dlv.objects.manifest import Manifest, Snapshot
from dlv.objects.record import Hash, Natural, Place, as_json, check_format
from dlv.objects.record import decode as decode_record
from dlv.pas.deltas.links import chain as chain_of
from dlv.pas.footer import MAX_PLANES, Encoding
from dlv.weights.store import Objects

Lookup = Callable[[str], Encoding | None]

FORMAT, ROWS = "dlv/bounds/2", "dlv/bounds/1"
KIND = "bounds"
REFERENCES = ("f64", "strict")
_HEX = set("0123456789abcdef")
_PREFIX = 8  # digits of a hash that a record has at least
_TRIES = 256


@dataclass(frozen=True)
class BoundMatrix:
    """A tensor of the network, its matrix, and the encoding that the norms hold for.

    Where the record names all weights by one hash, `hash` is the beginning of the matrix's.
    """

    name: str
    hash: str
    encoding: str | None


MOST = 1 << 20  # rows, matrices, levels of a schedule: no record has more


def _is_norm(value: float) -> bool:
    return math.copysign(1, value) > 0 and not value < 0


def _are_few(values: Sequence[object]) -> bool:
    return len(values) <= MOST


Norm = Annotated[float, _is_norm]
Planes = Annotated[int, range(MAX_PLANES + 1).__contains__]
RowNorms = Annotated[tuple[Norm, ...], _are_few]


@dataclass(frozen=True)
class LevelNorms:
    """Of dW, what the first `planes` planes do not tell of the weight.

    `dopn`, if there is one, bounds it as an operator on inputs of the record's size.
    """

    planes: Annotated[int, range(1, MAX_PLANES).__contains__]
    dn: Norm
    dfro: Norm
    drows: RowNorms | None = None
    dopn: Norm | None = None


@dataclass(frozen=True)
class NodeNorms:
    """Of the weight W of a linear node, batch normalisation folded in.

    `opn` bounds it as an operator on inputs of the record's size, `opn_any` on those of any size.
    """

    name: str
    opn: Norm
    opn_any: Norm
    fro: Norm
    absmax: Norm
    finite: bool
    rows: RowNorms | None = None
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
    `weights`: the hash of all matrices and encodings; None: each matrix has its own.
    """

    network: Hash
    input: tuple[tuple[Natural, ...], ...]
    matrices: tuple[BoundMatrix, ...]
    nodes: tuple[NodeNorms, ...]
    schedule: Annotated[tuple[dict[str, Planes], ...], _are_few]
    helps: Mapping[str, bool]
    suffix: dict[str, Any] | None = None
    writer: str = WRITER
    weights: Hash | None = None

    def encode(self) -> bytes:
        record = {"format": ROWS, **as_json(self)}
        if self.weights is None:
            del record["weights"]
        else:
            record = columns({**record, "format": FORMAT})
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
        self, node: str, planes: int | None, shapes: Sequence[Sequence[int]] | None = None
    ) -> Norms | None:
        """Of a linear node after so many planes of its weight; None: all of it was read.

        `shapes`: those of the inputs at hand, without the batch; as recorded, if not said.
        None where nothing bounds what these planes leave open.
        """
        found = self.node(node)
        if found is None or not found.finite:
            return None
        fits = shapes is None or tuple(tuple(shape) for shape in shapes) == self.input
        whole = (found.opn if fits else found.opn_any, found.fro, found.absmax)
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
                return f"`{matrix.name}` has changed since"
            if self.weights is None and encoding_id(hashes[matrix.name], lookup) != matrix.encoding:
                return f"`{matrix.name}` is stored in another way than when it was made"
        if self.weights is not None:
            held = [(matrix.name, hashes[matrix.name]) for matrix in self.matrices]
            if weights_id(held, lookup) != self.weights:
                return "some of its tensors are stored in another way than when it was made"
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
    for link in reversed(chain_of(matrix, lookup)):
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
    db: Database, store: Objects, manifest: Manifest, snapshot: Snapshot
) -> Record | NoRecord:
    """The record of a snapshot that holds for how it is stored now, or why there is none.

    A record that is damaged, or of a newer dlv, is as good as none.
    """
    if manifest.network is None:
        return NoRecord("the version has no network")
    hashes = hashes_of(manifest, snapshot)
    why = "no bounds are stored; dlv archive --bounds makes them"
    for name in matrix_rows.bounds_candidates(db, manifest.network.id, hashes.values()):
        try:
            record = decode(bytes(store.object(KIND, name)), f"bounds {name[:12]}")
            stale = record.stale(manifest.network.id, hashes, store.encoding)
        except DlvError as error:
            why = f"the stored bounds cannot be read: {error.message}"
            continue
        if stale is None:
            return record
        why = f"the stored bounds are outdated: {stale}"
    return NoRecord(why)


def pinned(db: Database, store: Objects, besides: Iterable[str] = ()) -> set[str]:
    """The matrices whose encodings records hold for, and their bases: none of them may change.

    `besides`: records that do not count, since they are about to be replaced.
    """
    left_out = set(besides)
    current = []
    for name in matrix_rows.needed_bounds(db):
        try:
            record = decode(bytes(store.object(KIND, name)), f"bounds {name[:12]}")
            hashes = record.hashes(matrix_rows.matrices_of_record(db, name), store.encoding)
            holds = record.stale(record.network, hashes, store.encoding) is None
        except DlvError:
            continue
        if holds and name not in left_out:
            current.append(name)
    return matrix_rows.matrices_of_bounds(db, current)


def decode(data: bytes, noun: str = "bounds record") -> Record:
    """Read a record strictly."""
    json = loads(data, noun)
    place = Place(noun, json.get("writer") if isinstance(json, dict) else None)
    in_columns = not isinstance(json, dict) or json.get("format") != ROWS
    if in_columns:
        check_format(json, FORMAT, noun)
        json = rows_of(json, noun)
    elif "weights" in json:
        raise place.newer("the key `weights`")
    else:
        json["weights"] = None
    del json["format"]
    record = decode_record(Record, json, place)
    if in_columns and record.weights is None:
        raise place.damaged("`weights` is not str")
    _check_matrices(place, record)
    _check_unique(place, "nodes", [node.name for node in record.nodes])
    for index, node in enumerate(record.nodes):
        _check_node(place.inner(f"nodes[{index}]"), node)
    _check_schedule(place, record)
    if unknown := sorted(set(record.helps) - set(REFERENCES)):
        raise place.newer(f"the reference `{unknown[0]}`")
    if set(record.helps) != set(REFERENCES):
        raise place.damaged("`helps` does not say yes or no of each reference")
    record.__dict__["hash"] = hash_bytes(data)  # a text is canonical, and encoding it takes longer
    return record


def _check_matrices(place: Place, record: Record) -> None:
    _check_unique(place, "matrices", [matrix.name for matrix in record.matrices])
    for matrix in record.matrices:
        if record.weights is None:
            allowed = is_hash(matrix.hash) and is_hash(matrix.encoding)
        else:
            allowed = _PREFIX <= len(matrix.hash) <= 64 and not set(matrix.hash) - _HEX
        if not allowed:
            raise place.damaged(f"`{matrix.name}` has a hash that is not allowed")


def _check_unique(place: Place, key: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise place.damaged(f"`{key}` has a name twice")


def _check_node(place: Place, node: NodeNorms) -> None:
    depths = [level.planes for level in node.levels]
    if depths != sorted(set(depths)):
        raise place.damaged("its levels are not in order")
    rows = [r for r in (node.rows, *(level.drows for level in node.levels)) if r is not None]
    if len({len(norms) for norms in rows}) > 1:
        raise place.damaged("its norms of rows are of different lengths")
    if node.finite:
        norms = [node.opn, node.opn_any, node.fro, node.absmax, *chain.from_iterable(rows)]
        for level in node.levels:
            norms += [level.dn, level.dfro, 0.0 if level.dopn is None else level.dopn]
        if not all(map(math.isfinite, norms)):
            raise place.damaged("it is finite, and a norm of it is not")


def _check_schedule(place: Place, record: Record) -> None:
    """Refuse levels that do not read more each time, and at last something."""
    names = {matrix.name for matrix in record.matrices}
    if not record.schedule:
        raise place.damaged("`schedule` has a value that is not allowed")
    before: Mapping[str, int] | None = None
    for level in record.schedule:
        if set(level) != names:
            raise place.damaged("a level of `schedule` does not name just the tensors")
        if before and (level == before or any(level[name] < before[name] for name in names)):
            raise place.damaged("a level of `schedule` does not read more than the one before")
        before = level


Json = dict[str, Any]

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_PLACES = {letter: place for place, letter in enumerate(ALPHABET)}
_MIDDLE = 32
_BASIS = 4  # directions are told in steps of 1/32
_NODE = ("opn", "opn_any", "fro", "absmax", "finite")
_LEVEL = ("dn", "dfro", "dopn")


def columns(record: Json) -> Json:
    """The keys `matrices`, `nodes`, `schedule` and `suffix` of a record, by columns."""
    names = [each["name"] for each in record["matrices"]]
    return {
        **record,
        "matrices": {"names": names, "hashes": [each["hash"] for each in record["matrices"]]},
        "nodes": _nodes(record["nodes"]),
        "schedule": [
            "".join(ALPHABET[level[name]] for name in names) for level in record["schedule"]
        ],
        "suffix": None if record["suffix"] is None else _suffix(record["suffix"]),
    }


def rows_of(record: Json, noun: str) -> Json:
    """The inverse; Damaged where it is not what `columns` makes."""
    try:
        found = _rows_of(record)
        same = columns(found) == record
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise Damaged(f"{noun} is malformed", why=repr(error), hint="dlv fsck") from error
    if not same:
        raise Damaged(f"{noun} is malformed", why="its columns do not agree", hint="dlv fsck")
    return found


def _rows_of(record: Json) -> Json:
    held = record["matrices"]
    names = held["names"]
    matrices = [
        {"name": name, "hash": prefix, "encoding": None}
        for name, prefix in zip(names, held["hashes"], strict=True)
    ]
    schedule = [
        {name: _PLACES[letter] for name, letter in zip(names, level, strict=True)}
        for level in record["schedule"]
    ]
    suffix = None if record["suffix"] is None else _suffix_rows(record["suffix"])
    return {
        **record,
        "matrices": matrices,
        "nodes": _node_rows(record["nodes"]),
        "schedule": schedule,
        "suffix": suffix,
    }


def _nodes(nodes: Sequence[Json]) -> Json:
    depths = sorted({level["planes"] for node in nodes for level in node["levels"]})
    levels = []
    for planes in depths:
        at = [next((e for e in n["levels"] if e["planes"] == planes), None) for n in nodes]
        level: Json = {key: [None if e is None else e[key] for e in at] for key in _LEVEL}
        level["there"] = [e is not None for e in at]
        level["drows"] = [None if e is None else e["drows"] for e in at]
        levels.append({"planes": planes, **level})
    return {
        "name": [node["name"] for node in nodes],
        "rows": [node["rows"] for node in nodes],
        "levels": levels,
        **{key: [node[key] for node in nodes] for key in _NODE},
    }


def _node_rows(nodes: Json) -> list[Json]:
    found = []
    for at, name in enumerate(nodes["name"]):
        levels = [
            {"planes": e["planes"], "drows": e["drows"][at], **{k: e[k][at] for k in _LEVEL}}
            for e in nodes["levels"]
            if e["there"][at]
        ]
        node = {key: nodes[key][at] for key in _NODE}
        found.append({"name": name, "rows": nodes["rows"][at], "levels": levels, **node})
    return found


def _suffix(suffix: Json) -> Json:
    """Of the nodes with a weight the numbers of channels as letters, the levels by their depth."""
    nodes: Mapping[str, Json] = suffix["nodes"]
    weighed = {name: node for name, node in nodes.items() if "a" in node}
    depths = sorted({level["planes"] for node in weighed.values() for level in node["levels"]})
    levels = []
    for planes in depths:
        found = {
            name: level
            for name, node in weighed.items()
            for level in node["levels"]
            if level["planes"] == planes
        }
        corrected = {
            name: {k: v for k, v in level.items() if k not in ("planes", "dn")}
            for name, level in found.items()
            if "correction" in level
        }
        dn = [found[name]["dn"] if name in found else None for name in sorted(weighed)]
        levels.append({"planes": planes, "dn": dn, "corrections": corrected})
    return {
        **suffix,
        "nodes": {
            "names": sorted(nodes),
            "reach": [nodes[name]["reach"] for name in sorted(nodes)],
            "weights": sorted(weighed),
            "a": [_letters(weighed[name]["a"]) for name in sorted(weighed)],
            "basis": [_letters(weighed[name]["basis"], _BASIS) for name in sorted(weighed)],
            "levels": levels,
        },
        "p": {key: _letters(text) for key, text in suffix["p"].items()},
    }


def _suffix_rows(suffix: Json) -> Json:
    held = suffix["nodes"]
    nodes: dict[str, Json] = {
        name: {"reach": reach} for name, reach in zip(held["names"], held["reach"], strict=True)
    }
    for at, name in enumerate(held["weights"]):
        levels = [
            {"planes": e["planes"], "dn": e["dn"][at], **e["corrections"].get(name, {})}
            for e in held["levels"]
            if e["dn"][at] is not None
        ]
        a, basis = _text(held["a"][at]), _text(held["basis"][at], _BASIS)
        nodes[name] |= {"a": a, "basis": basis, "levels": levels}
    p = {key: _text(letters) for key, letters in suffix["p"].items()}
    return {**suffix, "nodes": nodes, "p": p}


def _letters(text: str, step: int = 1) -> str:
    """A letter for each of the bytes that base64 spreads over several: -32 .. 31 steps."""
    found = []
    for byte in b64decode(text, validate=True):
        place, rest = divmod((byte + 128) % 256 - 128, step)
        if rest or not -_MIDDLE <= place < _MIDDLE:
            raise ValueError(f"the number {byte} has no letter")
        found.append(ALPHABET[place + _MIDDLE])
    return "".join(found)


def _text(letters: str, step: int = 1) -> str:
    data = bytes((_PLACES[letter] - _MIDDLE) * step % 256 for letter in letters)
    return b64encode(data).decode("ascii")
