"""`tensorboard`: what is shown, versions or a folder of logs, and how it stays up to date."""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

import dlv.curves.frozen as frozen_curves
import dlv.curves.ingest as ingest
import dlv.repository.revisions as revisions
from dlv.curves.restart_views import advice, under
from dlv.curves.store import LIVE, CurveStore, curves_of
from dlv.curves.writer import Batch, RunWriter
from dlv.dataclass import dataclass
from dlv.disk.locks import Patience
from dlv.errors import DlvError, NotARepository, NotFound, UsageError, nearest
from dlv.events.formats.pbtxt import (
    PLUGIN,
    RUN_GRAPH,
    TAGGED,
    TAGGED_CONTENT,
    GraphNode,
    as_run_metadata,
    graph_def,
    quoted,
)
from dlv.events.logs.points import BLOBS, BlobPoint, Metadata
from dlv.events.provider.provider import CAP, BlobKeys, Provider
from dlv.events.provider.store import ChosenRuns, Store
from dlv.metadata import curve_writing, versions
from dlv.metadata.versions import Version
from dlv.network.graph import Network, Node, Port
from dlv.network.ops.op import op_of
from dlv.objects.manifest import Manifest
from dlv.repository.handle import Repository
from dlv.weights.arrays import to_array
from dlv.weights.store import MatrixStore, node_figures, stored_network

RELOAD = 5.0  # seconds between two looks for what is new
PATIENCE = 3.0  # seconds of the first look that somebody waits for
NETWORK = "network"  # its tag where the run has a graph already
_IDLE = 8  # stores that are kept open

Tell = Callable[[str], None]


class _Opened(NamedTuple):
    """A store, and which file it was opened at: somebody may delete or replace that."""

    store: CurveStore
    shown: CurveStore  # the same as a policy of restarts shows it
    path: Path
    file: int

    @classmethod
    def at(cls, path: Path, patience: Patience, restarts: str | None = None) -> _Opened:
        store = CurveStore.open(path, patience)
        return cls(store, under(store, restarts), path, _file(path))

    @property
    def current(self) -> bool:
        return _file(self.path) == self.file


def _file(path: Path) -> int:
    """Its number in the file system, which is not given away while it is open; 0: none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


class Board(ABC):
    """Curves that are served by many threads while one more keeps them up to date."""

    experiment: str
    location: str  # as people know it

    def __init__(
        self,
        repository: Repository | None,
        *,
        cap: int = CAP,
        restarts: str | None,
        tell: Tell,
        reload: float = RELOAD,
    ) -> None:
        """`restarts` None: as marked, and where another policy would hide more, that is told."""
        self._tell = tell
        self._restarts = restarts
        self._cap = cap
        self._reload = reload
        # When a page last asked for points; without recent requests, logs are read less often.
        self.watched = math.inf
        self._keys = BlobKeys()
        self._idle: list[_Opened] = []
        self._lock = threading.Lock()
        self._local = threading.local()
        self._ended = threading.Event()
        self._seen = threading.Event()
        self._told: set[str] = set()
        self._advised = False
        self._scratch = tempfile.TemporaryDirectory(prefix="dlv-board-", ignore_cleanup_errors=True)
        patience = Patience() if repository is None else repository.patience
        self._patience = replace(patience, tell=self.tell_once)
        kept = None if repository is None else curves_of(repository.path)
        self.path = kept or self.scratch / LIVE
        self._thread = threading.Thread(target=self._keep_up, daemon=True)

    @property
    def scratch(self) -> Path:
        """An empty folder that goes away with the board."""
        return Path(self._scratch.name)

    @property
    @abstractmethod
    def directory(self) -> Path:
        """What the projector may read."""

    def shown(self, store: CurveStore) -> Store:
        """What of a store is on this board."""
        return store

    def has(self, run: str) -> bool:  # noqa: ARG002
        """Whether a run of its experiment is on this board."""
        return True

    @abstractmethod
    def look(self, store: CurveStore) -> None:
        """Bring what is new into the store."""

    def ask(self) -> Provider:
        """The provider of this thread, until `release`."""
        if getattr(self._local, "provider", None) is None:
            self._local.opened = self._open()
            shown = self.shown(self._local.opened.shown)
            self._local.provider = Provider(shown, keys=self._keys, cap=self._cap)
        found: Provider = self._local.provider
        return found

    def _open(self) -> _Opened:
        """A store that nobody uses, unless somebody has put another file in its place."""
        while True:
            try:
                found = self._idle.pop()
            except IndexError:
                return _Opened.at(self.path, self._patience, self._restarts)
            if found.current:
                return found
            found.store.close()

    def release(self) -> None:
        """This thread asks no more."""
        found: _Opened | None = getattr(self._local, "opened", None)
        self._local.opened = self._local.provider = None
        if found is None:
            return
        current = found.current
        with self._lock:  # otherwise two threads could both take the last place
            reusable = len(self._idle) < _IDLE and current and not self._ended.is_set()
            if reusable:
                self._idle.append(found)
        if not reusable:
            found.store.close()

    def start(self) -> bool:
        """Look at once, and again and again from then on; whether the first look is over yet."""
        self._thread.start()
        return self._seen.wait(PATIENCE)

    def close(self) -> None:
        with self._lock:
            self._ended.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE)
        while self._idle:
            self._idle.pop().store.close()
        self._scratch.cleanup()

    def _keep_up(self) -> None:
        while not self._ended.is_set():
            try:
                opened = _Opened.at(self.path, self._patience)
                with closing(opened.store):
                    while not self._ended.is_set() and opened.current:
                        self.look(opened.store)
                        self._advise(opened.store)
                        self._seen.set()
                        self._ended.wait(self._pause())
            except DlvError as error:
                self.tell_once(": ".join(filter(None, (error.message, error.why, error.hint))))
            except Exception as error:  # what is shown already is shown on
                self.tell_once(f"nothing new is read: {type(error).__name__}: {error}")
            else:
                continue  # another file is there now
            # What went wrong may be over at the next look.
            self._ended.wait(RELOAD)

    def _pause(self) -> float:
        return self._reload if time.monotonic() - self.watched < 3 * RELOAD else RELOAD

    def _advise(self, store: CurveStore) -> None:
        if self._restarts is not None or self._advised:
            return
        text = advice(store, self.experiment, self.has)
        if text is not None:
            self._advised = True
            self._tell(text)

    def tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)


class VersionsBoard(Board):
    """Versions of a repository as runs; without references all there are, later ones too."""

    experiment = frozen_curves.REPOSITORY

    def __init__(
        self,
        repository: Repository,
        references: Sequence[str],
        *,
        cap: int = CAP,
        restarts: str | None = None,
        tell: Tell,
    ) -> None:
        found = [revisions.whole(repository.database, text) for text in references]
        super().__init__(repository, cap=cap, restarts=restarts, tell=tell)
        self._repository = repository
        for note in dict.fromkeys(note for reference in found for note in reference.notes):
            tell(note)
        self._chosen = [reference.version for reference in found]
        self._labels: frozenset[str] = frozenset()
        self._seen_in: CurveStore | None = None
        self._drawn: set[str] = set()  # in that store
        self._projected: set[str] = set()
        self._room = Room()
        self.directory.mkdir()
        self.location = " ".join(references) or str(repository.root)

    @property
    def directory(self) -> Path:
        return self.scratch / "projector"

    def shown(self, store: CurveStore) -> Store:
        return ChosenRuns(store, lambda: self._labels)

    def has(self, run: str) -> bool:
        return run.split("/")[0] in self._labels

    def look(self, store: CurveStore) -> None:
        wanted = self._chosen or versions.all_versions(self._repository.database)
        for series, why in frozen_curves.fill(self._repository, store, wanted):
            self.tell_once(f"{series} is skipped: {why}")
        if store is not self._seen_in:
            self._seen_in = store
            self._drawn.clear()
        for version in wanted:
            if version.id in self._drawn:
                continue
            self._drawn.add(version.id)
            try:
                self._draw(store, version)
            except DlvError as error:
                self.tell_once(f"the network of {version.label} is not shown: {error.message}")
        self._labels = frozenset(version.label for version in wanted)
        self._seen.set()
        self._project([version for version in wanted if version.id not in self._projected])

    def _draw(self, store: CurveStore, version: Version) -> None:
        """The network as the graph of its run; where the training has logged one itself, beside
        it as one with a tag."""
        key = {name: number for number, name in store.experiments()}[self.experiment]
        manifest = self._repository.manifest(version.id)
        logged = {series.tag for series in manifest.series if not series.run}
        own = RUN_GRAPH in logged
        tag = RUN_GRAPH if not own else NETWORK if NETWORK not in logged else f"{NETWORK} (dlv)"
        if manifest.network is None or store.series(key, runs=[version.label], tags=[tag]):
            return
        plugin, content = (TAGGED, TAGGED_CONTENT) if own else (PLUGIN, b"")
        with closing(MatrixStore.of(self._repository)) as objects:
            network = stored_network(objects, manifest.network.id)
        batch = Batch()
        blob = graph_def(graph_nodes(network))
        batch.add(
            [BlobPoint(tag, 0, 0.0, (as_run_metadata(blob) if own else blob,))],
            [Metadata(tag, plugin, BLOBS, content, "", "")],
        )
        with store.alone(), store.database.atomic():
            RunWriter(store, curve_writing.run(store.database, key, version.label)).write(batch)

    def _project(self, wanted: Sequence[Version]) -> None:
        """Weights for the projector, of the newest versions if there is no room for all."""
        for version in sorted(wanted, key=lambda version: version.created, reverse=True):
            self._projected.add(version.id)
            folder = self.directory / version.label
            try:
                manifest = self._repository.manifest(version.id)
                with closing(MatrixStore.of(self._repository)) as objects:
                    write_projection(folder, manifest, objects, self._room)
            except DlvError as error:
                self.tell_once(f"weights of {version.label} are not projected: {error.message}")


class DirectoryBoard(Board):
    """A folder of event files; of a training that goes on, too."""

    def __init__(
        self,
        directory: Path,
        repository: Repository | None,
        *,
        cap: int = CAP,
        restarts: str | None = None,
        tell: Tell,
        reload: float = RELOAD,
    ) -> None:
        if not directory.is_dir():
            raise NotFound(f"no such directory: `{directory}`")
        super().__init__(repository, cap=cap, restarts=restarts, tell=tell, reload=reload)
        self._directory = directory.resolve()
        self.location = str(directory)
        self.experiment = ingest.text_of(self._directory)
        self._strangers: dict[Path, ingest.Look] = {}

    @property
    def directory(self) -> Path:
        return self._directory

    def look(self, store: CurveStore) -> None:
        found = ingest.scan(
            store, self._directory, experiment=self.experiment, strangers=self._strangers
        )
        if not found.runs:
            self.tell_once(f"no logs below {self.location} yet: {ingest.WHAT}")
        for file, remark in found.remarks:
            self.tell_once(f"{file}: {remark}")


# The network of a version as a graph of named operations


MANY = 5  # of one operation in one scope are drawn as one
_KINDS = (bool, int, float, str, list, tuple)


def graph_nodes(network: Network) -> Iterator[GraphNode]:
    """Inputs, constants, then the layers in their order; `block.0.conv` becomes a nested name."""
    figures = node_figures(network)
    names = _nested(network)
    ops = _told_apart(network, names)

    def port(source: Port) -> str:
        name = names.get(source[0], source[0])
        return f"{name}:{source[1]}" if source[1] else name

    for item in network.inputs:
        yield GraphNode(
            names[item.name],
            "Input",
            attributes={"dtype": item.dtype, "shape": [str(size) for size in item.shape]},
            shapes=[_sizes(item.shape)],
        )
    for name in sorted(network.constants):
        held = network.constant_shapes.get(name)
        yield GraphNode(names[name], "Const", shapes=[] if held is None else [_sizes(held)])
    given_out = {name for name, _ in network.outputs}
    for node in network.nodes:
        found = figures.get(node.name)
        inferred = None if found is None else found.out_shape
        shape = node.out_shape if inferred is None else inferred
        attributes = _attributes(node)
        if found is not None and found.parameters:
            attributes["parameters"] = found.parameters
        if node.name in given_out:
            attributes["output"] = True
        yield GraphNode(
            names[node.name],
            ops[node.name],
            [port(source) for source in node.inputs],
            attributes,
            [] if shape is None else [_sizes(shape)],
        )


def _nested(network: Network) -> Mapping[str, str]:
    """Slashes fold a graph: what the dots of most names mean. A name that would not be unique
    then stays as it is."""
    known = [
        *(item.name for item in network.inputs),
        *network.constants,
        *(node.name for node in network.nodes),
    ]
    folded = {name: "/".join(part for part in name.split(".") if part) or name for name in known}
    taken = Counter(folded.values()) + Counter(known)
    return {name: new if new == name or taken[new] == 1 else name for name, new in folded.items()}


def _told_apart(network: Network, names: Mapping[str, str]) -> Mapping[str, str]:
    """Operations by node. TensorBoard draws many of one kind in a scope as a single node, and
    a chain of layers as a tangle: where there are many, each has its alias too."""
    scopes = {node.name: (names[node.name].rpartition("/")[0], node.op) for node in network.nodes}
    count = Counter(scopes.values())
    aliases = network.node_aliases()
    return {
        node.name: node.op
        if count[scopes[node.name]] < MANY
        else f"{node.op} ({aliases.get(node.name, node.name)})"
        for node in network.nodes
    }


def _attributes(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {} if node.variant is None else {"variant": node.variant}
    for name, value in node.attrs.items():
        if isinstance(value, _KINDS):
            found[name] = value
    found |= {f"params.{slot}": tensor for slot, tensor in node.params.items()}
    return found


def _sizes(shape: Sequence[int | str | None]) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in shape]


# Rows of weight matrices in the files that TensorBoard's projector reads


ROWS = 2000  # of a matrix, at equal distances
VALUES = 2_000_000  # of all matrices of a board: they are written as text
LARGEST = 50_000_000  # values of a matrix that is read at all


@dataclass
class Room:
    """How many values may still be written."""

    left: int = VALUES


@dataclass(frozen=True)
class _Matrix:
    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str


def write_projection(folder: Path, manifest: Manifest, store: MatrixStore, room: Room) -> int:
    """Matrices of a version as `projector_config.pbtxt` and what it names; how many there are."""
    reference = manifest.network
    if reference is None or manifest.own is None:
        return 0
    network = stored_network(store, reference.id)
    config = ""
    written = 0
    for matrix in _projected_matrices(manifest, network):
        rows = min(matrix.shape[0], ROWS)
        if rows * matrix.shape[1] > room.left:
            continue
        places = np.unique(np.linspace(0, matrix.shape[0] - 1, rows).astype(np.int64))
        values = to_array(matrix.dtype, matrix.shape, store.matrix(matrix.digest))[places]
        values = values.astype(np.float32)
        if not np.isfinite(values).all():
            continue
        room.left -= values.size
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{written:03}"
        np.savetxt(folder / f"{stem}.tsv", values, fmt="%.6g", delimiter="\t")
        names = "".join(f"{matrix.name}[{place}]\n" for place in places)
        (folder / f"{stem}-rows.tsv").write_text(names, encoding="utf-8")
        config += (
            f"embeddings {{\n  tensor_name: {quoted(matrix.name.encode('utf-8', 'replace'))}\n"
            f"  tensor_shape: {len(places)}\n  tensor_shape: {matrix.shape[1]}\n"
            f'  tensor_path: "{stem}.tsv"\n  metadata_path: "{stem}-rows.tsv"\n}}\n'
        )
        written += 1
    if written:
        # Last and at once: the projector may look at any time.
        half = folder / "config"
        half.write_text(config, encoding="ascii")
        half.rename(folder / "projector_config.pbtxt")
    return written


def _projected_matrices(manifest: Manifest, network: Network) -> Iterator[_Matrix]:
    """Two-dimensional weights of the version's own snapshot, embeddings first."""
    snapshot = manifest.snapshots[manifest.own or 0]
    held = {
        tensor.name: _Matrix(" ".join(tensor.name.split()), tensor.dtype, tensor.shape, digest)
        for tensor, digest in zip(manifest.tensors, snapshot.hashes, strict=True)
        if digest is not None
    }
    # A row of their weights stands for a thing, or for a neuron.
    tables = [node for node in network.nodes if op_of(node).lookup]
    for node in (*tables, *(node for node in network.nodes if op_of(node).dense)):
        found = held.get(node.params.get("weight", ""))
        if found is None or len(found.shape) != 2:
            continue
        rows, columns = found.shape
        if rows > 2 and columns > 1 and rows * columns <= LARGEST:
            yield found


def board_of(
    words: Sequence[str],
    directory: Path,
    find: Callable[[], Repository],
    *,
    cap: int = CAP,
    restarts: str | None = None,
    tell: Tell,
) -> Board:
    """What `words` name: references of versions, or one folder; none: all versions."""
    try:
        repository: Repository | None = find()
        missing: DlvError | None = None
    except DlvError as error:
        repository, missing = None, error
    folders = [word for word in words if _is_folder(repository, directory, word)]
    if folders:
        if len(words) > 1:
            raise UsageError(
                "a log folder cannot be combined with versions",
                why=f"`{folders[0]}` is a log folder",
                hint="put the logs of several runs into subfolders",
            )
        return DirectoryBoard(
            directory / folders[0], repository, cap=cap, restarts=restarts, tell=tell
        )
    if repository is None:
        assert missing is not None
        if words and isinstance(missing, NotARepository):
            missing = _no_folder(directory, words[0])
            missing.why = "outside of a repository only folders of logs can be shown"
        raise missing
    for word in words:
        try:
            revisions.whole(repository.database, word)
        except (NotFound, UsageError) as error:
            if "/" in word and Path(directory, word).parent.is_dir():
                raise _no_folder(directory, word) from error
            meant = _meant(directory, word)
            error.hint = meant["hint"] or error.hint
            error.did_you_mean = [*error.did_you_mean, *meant["did_you_mean"]]
            raise
    return VersionsBoard(repository, words, cap=cap, restarts=restarts, tell=tell)


class _Meant(TypedDict):
    hint: str | None
    did_you_mean: list[str]


def _no_folder(directory: Path, word: str) -> NotFound:
    return NotFound(f"no such directory: `{word}`", **_meant(directory, word))


def _meant(directory: Path, word: str) -> _Meant:
    """The folder that somebody may have thought of."""
    path = Path(directory, word)
    if path.is_file():
        folder = os.path.relpath(path.parent, directory)
        hint = f"give the log folder: dlv tensorboard {folder}"
        return {"hint": hint, "did_you_mean": []}
    try:
        folders = [entry.name for entry in os.scandir(path.parent) if entry.is_dir()]
    except OSError:
        folders = []
    return {"hint": None, "did_you_mean": nearest(path.name, folders)}


def _is_folder(repository: Repository | None, directory: Path, word: str) -> bool:
    """What is both, a version and a folder, is the version; `./lenet` is always a folder."""
    if not (directory / word).is_dir():
        return False
    if repository is None or word.startswith((".", "/", "~")) or word.endswith("/"):
        return True
    try:
        revisions.whole(repository.database, word)
    except DlvError:
        return True
    return False
