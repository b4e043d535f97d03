"""`diff`: two or more versions side by side; the first one is what the others are held against."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import dlv.repository.revisions as revisions
import dlv.versions.history as history
import dlv.weights.snapshots as snapshots
from dlv.dataclass import dataclass
from dlv.dtypes import ITEM_BYTES
from dlv.errors import NotFound, UsageError, nearest
from dlv.metadata import evaluations
from dlv.metadata.metrics import Summary as Metric
from dlv.metadata.versions import Version
from dlv.network.graph import Network
from dlv.network.likeness import comparison
from dlv.network.likeness.comparison import Comparison, Layer, Turn
from dlv.objects.manifest import FileEntry, Manifest
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository
from dlv.shown import Shown, frame
from dlv.versions.history import Relation
from dlv.versions.working_side import LABEL as WORKING
from dlv.versions.working_side import Opened, WorkingTree
from dlv.weights.snapshots import MODEL_ROLES, Matrix
from dlv.weights.store import MatrixStore, stored_network

if TYPE_CHECKING:
    from dlv.versions.matrix_pairs import MatrixPair

SECTIONS = ("structure", "matrices", "params", "metrics", "files")
ABSENT: Any = object()  # what stands for a value in a version that does not have it


@dataclass(frozen=True)
class Side:
    """One of the versions, or one snapshot of it."""

    repository: Repository
    version: Version
    manifest: Manifest
    step: int | None
    network: Network | None
    matrices: list[Matrix]
    label: str

    @property
    def tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {matrix.name: (matrix.dtype, matrix.shape) for matrix in self.matrices}


@dataclass(frozen=True)
class Against:
    """How one version differs from the reference in what is aligned rather than looked up."""

    side: Side
    relation: Relation
    structure: Comparison | None
    matrices: list[MatrixPair]
    hidden: int  # differing matrices of the optimizer and the like, not among `matrices`


@dataclass(frozen=True)
class Row:
    """One hyperparameter, metric or file, with its value in each version, ABSENT where none."""

    name: str
    values: tuple[Any, ...]
    lines: tuple[LineCounts | None, ...] = ()  # of files: against the reference

    @property
    def differs(self) -> bool:
        return any(_essence(value) != _essence(self.values[0]) for value in self.values[1:])


@dataclass
class Diff(Shown):
    sides: list[Side]
    others: list[Against]
    sections: tuple[str, ...]
    params: list[Row] = field(default_factory=list)
    metrics: list[Row] = field(default_factory=list)
    files: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each tensor and version: how far it is from the base."""
        rows = [
            (
                *(pair.name, other.side.label, pair.status),
                *(
                    (None, None, None)
                    if pair.difference is None
                    else (pair.difference.l2, pair.difference.relative_l2, pair.difference.max_abs)
                ),
            )
            for other in self.others
            for pair in other.matrices
        ]
        return frame(rows, ["tensor", "version", "status", "l2", "relative_l2", "max_abs"])

    @property
    def without_network(self) -> list[Side]:
        return [side for side in self.sides if side.network is None]

    @property
    def same(self) -> bool:
        """Whether the chosen sections hold no difference at all."""
        return not (
            any(row.differs for row in (*self.params, *self.metrics, *self.files))
            or any(other.structure and not other.structure.same for other in self.others)
            or any(pair.status != "unchanged" for other in self.others for pair in other.matrices)
            or any(other.hidden for other in self.others)
            or ("structure" in self.sections and 0 < len(self.without_network) < len(self.sides))
        )


def _essence(value: Any) -> Any:
    """What must agree for two values to be called equal."""
    if isinstance(value, Metric):
        figures = (repr(each) for each in (value.last, value.min, value.max))  # NaN equals itself
        return (value.n, value.last_step, *figures, value.nonfinite)
    if isinstance(value, FileEntry):
        return (value.blake3, value.mode)
    if isinstance(value, list):
        return [_essence(item) for item in value]
    return (isinstance(value, bool), value)


def diff(
    repository: Repository,
    references: Sequence[str],
    *,
    sections: Collection[str] = (),
    layer: str | None = None,
    everything: bool = False,
    planes: int | None = None,
    opened: Opened | None = None,
    elsewhere: Mapping[str, tuple[Repository, str]] | None = None,
    jobs: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> Diff:
    """Compare versions or checkpoints, by default in all sections.

    With fewer than two, the working directory is compared with the one given, or with HEAD;
    `opened` opens its weights; `jobs` threads compare tensors. `layer` narrows to the layers of
    that pattern. `everything` compares the tensors of the optimizer, too. `planes`: read only the
    first planes. `elsewhere` has the repository of references that lead to a remote, and what
    they are called there.
    """
    places = [
        _Place(*elsewhere[text], f"{text.partition(':')[0]}:")
        if elsewhere and text in elsewhere
        else _Place(repository, text, "")
        for text in references
    ]
    if len(references) >= 2:
        return _diff(repository, places, sections, layer, everything, planes, None, jobs, progress)
    if opened is None:
        raise UsageError("diff requires two versions")
    if planes is not None:
        raise UsageError("--planes requires two versions", hint="dlv diff REF REF --planes 2")
    with closing(WorkingTree(repository, opened)) as tree:
        first = places or [_Place(repository, "HEAD", "")]
        return _diff(repository, first, sections, layer, everything, None, tree, 1, progress)


def _diff(
    repository: Repository,
    places: Sequence[_Place],
    sections: Collection[str],
    layer: str | None,
    everything: bool,
    planes: int | None,
    tree: WorkingTree | None,
    jobs: int,
    progress: Callable[[int], None],
) -> Diff:
    default = SECTIONS[:2] if layer is not None else SECTIONS
    chosen = tuple(name for name in SECTIONS if name in (sections or default))
    # A mirror reads what is here, too.
    mirrors = [place.repository for place in places if place.prefix]
    if any(mirror.path != mirrors[0].path for mirror in mirrors):
        raise UsageError("versions of two remotes cannot be compared", hint="dlv pull one of them")
    store = MatrixStore.of(mirrors[0] if mirrors else repository)
    notes: list[str] = []
    sides = [_side(place, store, text, prefix, notes) for place, text, prefix in places]
    if tree is not None:
        chosen = tuple(name for name in chosen if name != "metrics")  # files have none yet
        store = tree.store()
        network = None if tree.manifest.network is None else tree.manifest.network.id
        sides.append(
            Side(
                *(repository, tree.version, tree.manifest, None),
                None if network is None else stored_network(store, network),
                tree.matrices,
                WORKING,
            )
        )
    wanted = _Wanted(sides, layer)
    others = [
        _against(store, sides[0], side, wanted, chosen, everything, planes, jobs, progress)
        for side in sides[1:]
    ]
    result = Diff(sides, others, chosen, notes=list(dict.fromkeys(notes)))
    if layer is None:
        if "params" in chosen:
            result.params = _rows([side.manifest.hyperparameters for side in sides])
        if "metrics" in chosen:
            result.metrics = _rows([_metrics(side) for side in sides])
        if "files" in chosen:
            result.files = _files(sides, None if tree is None else tree.files())
    return result


class _Place(NamedTuple):
    """A reference, the repository in which it is meant, and what its label begins with."""

    repository: Repository
    reference: str
    prefix: str


def _side(
    repository: Repository, store: MatrixStore, text: str, prefix: str, notes: list[str]
) -> Side:
    found = revisions.resolve(repository.database, text)
    if found.file is not None:
        raise UsageError(
            f"`{text}` is a file",
            why="dlv diff compares versions and checkpoints",
            hint=f"dlv show {text}",
        )
    notes.extend(found.notes)
    manifest = repository.manifest(found.version.id)
    reference, row = manifest.network, found.snapshot
    step = None if row is None else row.step
    return Side(
        repository,
        found.version,
        manifest,
        step,
        None if reference is None else stored_network(store, reference.id),
        snapshots.matrices(manifest, None if row is None else row.index),
        prefix + found.version.label + ("" if step is None else f"/{step}"),
    )


class _Wanted:
    """Which layers and matrices were asked for."""

    def __init__(self, sides: Sequence[Side], pattern: str | None) -> None:
        self.pattern = pattern
        self.tensors: set[str] = set()
        if pattern is None:
            return
        known: dict[str, None] = {}
        for side in sides:
            for name in (matrix.name for matrix in side.matrices):
                known[name.rpartition(".")[0] or name] = None
                if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*"):
                    self.tensors.add(name)
            aliases = {} if side.network is None else side.network.node_aliases()
            for node in () if side.network is None else side.network.nodes:
                known |= {node.name: None, aliases.get(node.name, node.name): None}
                if self.fits(node.name, aliases.get(node.name)):
                    self.tensors.update(node.params.values())
        if not self.tensors and not any(fnmatchcase(name, pattern) for name in known):
            raise NotFound(
                f"no layer `{pattern}`",
                why="in none of the versions, by name or alias",
                did_you_mean=nearest(pattern, known),
                hint=f"dlv desc {sides[0].label} --layers",
            )

    def fits(self, *names: str | None) -> bool:
        """Whether one of these names of a layer is meant."""
        pattern = self.pattern
        return pattern is None or any(name and fnmatchcase(name, pattern) for name in names)

    def matrix(self, *matrices: Matrix | None) -> bool:
        return self.pattern is None or any(m and m.name in self.tensors for m in matrices)

    def narrow(self, comparison: Comparison) -> Comparison:
        if self.pattern is None:
            return comparison
        layers: list[list[Layer]] = [
            [layer for layer in part if self.fits(layer.name, layer.alias)]
            for part in (comparison.removed, comparison.added)
        ]
        pairs = [
            pair
            for pair in comparison.pairs
            if self.fits(pair.old.name, pair.old.alias, pair.new.name, pair.new.alias)
        ]
        return replace(
            comparison,
            pairs=tuple(pairs),
            removed=tuple(layers[0]),
            added=tuple(layers[1]),
            ends=(),
        )


def _against(
    store: MatrixStore,
    base: Side,
    side: Side,
    wanted: _Wanted,
    sections: Collection[str],
    everything: bool,
    planes: int | None,
    jobs: int,
    progress: Callable[[int], None],
) -> Against:
    structure = None
    if base.network is not None and side.network is not None:
        structure = comparison.compare(base.network, side.network, base.tensors, side.tensors)
    chosen: list[tuple[Matrix | None, Matrix | None]] = []
    hidden = 0
    if "matrices" in sections:
        for old, new in _pairs(base, side, structure):
            if not wanted.matrix(old, new):
                continue
            roles = {matrix.role for matrix in (old, new) if matrix is not None}
            if everything or roles & {*MODEL_ROLES}:
                chosen.append((old, new))
            else:
                hidden += old is None or new is None or old.hash != new.hash

    pairs: list[MatrixPair] = []
    if chosen:
        from dlv.versions.matrix_pairs import compare_all  # and with it numpy

        turned = [(old, new, _turn(structure, old, new)) for old, new in chosen]
        pairs = compare_all(store, turned, planes, jobs, progress)
    return Against(
        side,
        Relation("working", f"the working directory against {base.label}")
        if side.label == WORKING
        else history.relation(
            base.repository.database, base.version, side.repository.database, side.version
        ),
        wanted.narrow(structure) if structure and "structure" in sections else None,
        pairs,
        hidden,
    )


def _pairs(
    base: Side, side: Side, structure: Comparison | None
) -> list[tuple[Matrix | None, Matrix | None]]:
    if structure is None:
        return snapshots.pair(base.matrices, side.matrices)
    removed, added = (
        {name for layer in layers for name in layer.node.params.values()}
        for layers in (structure.removed, structure.added)
    )
    return snapshots.pair(base.matrices, side.matrices, structure.slots(), removed & added)


def _turn(structure: Comparison | None, old: Matrix | None, new: Matrix | None) -> Turn | None:
    """How the new one's elements come into the order of the old one's, if they lie otherwise."""
    if structure is None or old is None or new is None or new.dtype not in ITEM_BYTES:
        return None
    turn = structure.turns.get((old.name, new.name))
    fits = turn is not None and math.prod(turn[0]) == new.elements == old.elements
    return turn if fits else None


def _rows(values: Sequence[dict[str, Any]]) -> list[Row]:
    """One row for each key, in the order in which the versions bring them."""
    keys = dict.fromkeys(key for held in values for key in held)
    return [Row(key, tuple(held.get(key, ABSENT) for held in values)) for key in keys]


def _metrics(side: Side) -> dict[str, Any]:
    items = evaluations.metrics_of(side.repository.database, side.version)
    return {item.name: item for item in items}


def _files(sides: Sequence[Side], working: FileStore | None) -> list[Row]:
    rows = _rows([{entry.path: entry for entry in side.manifest.files} for side in sides])
    rows.sort(key=lambda row: row.name)
    stores = [working or FileStore(side.repository.files_git) for side in sides]
    return [
        Row(row.name, row.values, tuple(_lines(stores, row.values))) if row.differs else row
        for row in rows
    ]


def _lines(stores: Sequence[FileStore], values: Sequence[Any]) -> Iterator[LineCounts | None]:
    """How many lines each version adds to the reference's file and takes from it."""
    first = values[0]
    for store, value in zip(stores[1:], values[1:], strict=True):
        sizes = [entry.bytes for entry in (first, value) if entry is not ABSENT]
        if not sizes or max(sizes) > MOST_BYTES:
            yield None
            continue
        before = b"" if first is ABSENT else stores[0].read(first)
        after = b"" if value is ABSENT else store.read(value)
        yield count_lines(before, after)


MOST_BYTES = 1 << 20  # difflib takes too long over more
MOST_LINES = 20_000


class LineCounts(NamedTuple):
    added: int
    removed: int


def count_lines(old: bytes, new: bytes) -> LineCounts | None:
    """Lines added and removed; None of what is no text, or too long to compare."""
    if old == new:
        return LineCounts(0, 0)
    if max(len(old), len(new)) > MOST_BYTES or b"\0" in old or b"\0" in new:
        return None
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    before, after = before[head:], after[head:]
    while before and after and before[-1] == after[-1]:
        before.pop()
        after.pop()
    if len(before) + len(after) > MOST_LINES:
        return None
    import difflib

    kept = sum(
        block.size for block in difflib.SequenceMatcher(None, before, after).get_matching_blocks()
    )
    return LineCounts(len(after) - kept, len(before) - kept)
