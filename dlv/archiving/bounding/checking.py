"""Stored bounds computed again: what is stored may be above, and never below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dlv.metadata.matrices as matrices
from dlv.archiving.bounding.make import Centres, Model, node_norms_of, usable
from dlv.archiving.bounding.view import View
from dlv.dataclass import dataclass
from dlv.errors import DlvError
from dlv.metadata.database import Database
from dlv.network.suffix.metric import faults
from dlv.network.suffix.record import misfits, suffix_from_json
from dlv.objects.manifest import Manifest
from dlv.weights.bounds import KIND, NodeNorms, Record, decode, hashes_of
from dlv.weights.store import MatrixStore, stored_network


@dataclass(frozen=True)
class Finding:
    """What is wrong with a record, and which versions it is of."""

    record: str
    why: DlvError | str
    versions: tuple[str, ...]


def check(
    db: Database, store: MatrixStore, held: Sequence[tuple[str, Manifest]], *, quick: bool
) -> Iterator[Finding | None]:
    """One after the other, None where a record is right; `held`: versions by label.

    One that does not hold for the present encodings is right in what it says: nobody heeds it.
    """
    owners: dict[str, list[tuple[str, Manifest]]] = {}
    for label, manifest in held:
        if manifest.network is None or manifest.own is None:
            continue
        hashes = hashes_of(manifest, manifest.snapshots[manifest.own])
        for name in matrices.bounds_candidates(db, manifest.network.id, hashes.values()):
            owners.setdefault(name, []).append((label, manifest))
    for name in matrices.stored_bounds(db):
        labels = tuple(label for label, _ in owners.get(name, ()))
        try:
            record = decode(bytes(store.object(KIND, name)), f"bounds {name[:12]}")
            why = None
            if not quick and name in owners:
                why = _fault(store, owners[name][0][1], record)
        except DlvError as error:
            yield Finding(name, error, labels)
        else:
            yield None if why is None else Finding(name, why, labels)


def _fault(store: MatrixStore, manifest: Manifest, record: Record) -> str | None:
    assert manifest.network is not None
    assert manifest.own is not None
    hashes = hashes_of(manifest, manifest.snapshots[manifest.own])
    if record.stale(manifest.network.id, hashes, store.encoding) is not None:
        return None
    model = Model.of(manifest, stored_network(store, manifest.network.id), hashes)
    view = View(store)
    why = _shape_fault(model, view, record) or _norms_fault(model, view, record)
    return why or _suffix_fault(model, view, record)


def _shape_fault(model: Model, view: View, record: Record) -> str | None:
    """Whether it names the matrices and planes that there are."""
    names = set(model.program.tensors)
    if {matrix.name for matrix in record.matrices} != names:
        return "its tensors are not those that the network needs"
    planes = {}
    for name in names:
        encoding = view.encoding(model.hash(name))
        planes[name] = 0 if encoding is None else encoding.planes
    if dict(record.schedule[-1]) != planes:
        return "its schedule does not end with all planes"
    if len(record.input) != len(model.program.input_names):
        return "its network takes another number of inputs"
    return None


def _norms_fault(model: Model, view: View, record: Record) -> str | None:
    nodes = {step.node.name: step.node for step in model.program.linear}
    if unknown := [node.name for node in record.nodes if node.name not in nodes]:
        return f"the network has no linear layer `{unknown[0]}`"
    depths = _depths(model, view)
    for node in record.nodes:
        known = depths[model.named(nodes[node.name].params["weight"])]
        for level in node.levels:
            if level.planes not in known:
                return f"layer `{node.name}`: {level.planes} byte planes have no bounds"
    shapes = dict(zip(model.program.input_names, record.input, strict=True))
    centres = Centres(model, view)
    for found in node_norms_of(model, centres, depths, shapes, raised=False):
        stored = record.node(found.name)
        why = None if stored is None else _below(stored, found)
        if why is not None:
            return f"layer `{found.name}`: {why}"
    return None


def _suffix_fault(model: Model, view: View, record: Record) -> str | None:
    """The same of the tables of the tighter bound."""
    if record.suffix is None:
        return None
    suffix = suffix_from_json(record.suffix)
    sizes = {name: model.tensors[name][1] for name in model.program.matrices}
    for why in misfits(model.program, sizes, {}, suffix):
        return why
    shapes = dict(zip(model.program.input_names, record.input, strict=True))
    found = faults(model.program, Centres(model, view), _depths(model, view), shapes, suffix)
    try:
        return next(found, None)
    except (ValueError, IndexError) as error:  # the shapes themselves are not the network's
        return f"its tables are not of inputs of the shapes {list(record.input)}: {error}"


def _depths(model: Model, view: View) -> dict[str, tuple[int, ...]]:
    return {name: usable(view, model.hash(name)) for name in model.program.matrices}


def _below(stored: NodeNorms, computed: NodeNorms) -> str | None:
    """The first stored norm that is too small."""
    if not stored.finite:
        return None
    if not computed.finite:
        return "its weight is not finite"
    for key in ("opn", "opn_any", "fro", "absmax"):
        if why := _smaller(key, getattr(stored, key), getattr(computed, key)):
            return why
    if why := _rows("rows", stored.rows, computed.rows):
        return why
    for level in stored.levels:
        real = computed.level(level.planes)
        if real is None:
            return f"{level.planes} byte planes have no bounds"
        where = f"of {level.planes} planes"
        for key in ("dn", "dfro", "dopn"):
            if why := _smaller(f"{key} {where}", getattr(level, key), getattr(real, key)):
                return why
        if why := _rows(f"drows {where}", level.drows, real.drows):
            return why
    return None


def _smaller(noun: str, stored: float | None, computed: float | None) -> str | None:
    if stored is None:
        return None
    if computed is None:
        return f"{noun} is stored without bounds"
    # Written so that NaN is wrong too.
    return None if stored >= computed else f"{noun} is {stored}, and must be at least {computed}"


def _rows(
    noun: str, stored: tuple[float, ...] | None, computed: tuple[float, ...] | None
) -> str | None:
    if stored is None:
        return None
    if computed is None or len(stored) != len(computed):
        return f"{noun} are of another number of rows"
    for row, (mine, real) in enumerate(zip(stored, computed, strict=True)):
        if why := _smaller(f"{noun}[{row}]", mine, real):
            return why
    return None
