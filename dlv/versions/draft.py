"""A version while it is put together: what was staged, what is given, what is carried on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import dlv.disk.paths as paths
import dlv.versions.add as adding
import dlv.weights.snapshots as snapshots
from dlv.adapters import exported
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.dataclass import dataclass
from dlv.errors import Conflict, DlvError, UsageError
from dlv.kinds import Raw
from dlv.metadata.facts import StagedFile
from dlv.metadata.metrics import Summary
from dlv.objects.manifest import (
    Constant,
    FileEntry,
    Manifest,
    NetworkReference,
    Parent,
    SeriesReference,
)
from dlv.repository.git_files import FileStore, Source
from dlv.repository.handle import Repository
from dlv.weights.snapshots import WeightFile, Weights
from dlv.weights.store import stored_network, stored_summary, summary_of

if TYPE_CHECKING:
    from dlv.adapters.checkpoint import Checkpoint
    from dlv.curves.ingest import EventLogs
    from dlv.events.formats.series import Scalars
    from dlv.network.graph import Network
    from dlv.network.verify import Problem
    from dlv.pas.footer import Encoding
    from dlv.pas.layouts.schemes import Scheme
    from dlv.weights.rounding import Tally
    from dlv.weights.store import MatrixStore
    from dlv.weights.writer import WeightWriter


Shapes = Mapping[str, tuple[str, tuple[int, ...]]]
MOST_WARNINGS = 8
# Counters that torch keeps beside a normalisation; no node computes with them.
_COUNTERS = ("num_batches_tracked",)


class Writer(Protocol):
    """Where objects and matrices go; a WeightWriter."""

    def add(self, dtype: str, shape: Sequence[int], raw: Raw) -> str: ...

    def add_object(self, kind: str, data: Raw) -> str: ...


class Store(Protocol):
    """What is stored already; a MatrixStore."""

    def encoding(self, matrix: str) -> Encoding | None: ...

    def object(self, kind: str, name: str) -> Raw: ...


@dataclass(frozen=True)
class Found:
    """A network that a file describes, with the description of its constants, stored by now."""

    where: str
    network: Network
    constants: list[Constant]


@dataclass
class Structure:
    """The network of the version, if it has one."""

    network: Network | None = None
    reference: NetworkReference | None = None
    warnings: list[str] = field(default_factory=list)


def take_network(where: str, opened: Checkpoint, writer: Writer, store: Store) -> Found | None:
    """The network of an opened file; its constants are stored, as they can be read only now."""
    if opened.network is None:
        return None
    given = {tensor.name: tensor for tensor in opened.constants}
    constants: list[Constant] = []
    for name, digest in opened.network.constants.items():
        if name in given:
            constants.append(_store(given[name], digest, where, writer))
            continue
        known = store.encoding(digest)
        if known is None:
            raise UsageError(
                f"the network of {where} needs the constant `{name}`, which is missing",
                why=f"tensor {digest[:12]}",
                hint="add the model file instead of its network.json",
            )
        constants.append(
            {"name": name, "dtype": known.dtype, "shape": list(known.shape), "hash": digest}
        )
    shapes = {each["name"]: tuple(each["shape"]) for each in constants}
    return Found(where, replace(opened.network, constant_shapes=shapes), constants)


def _store(tensor: Tensor, digest: str, where: str, writer: Writer) -> Constant:
    made = writer.add(tensor.dtype, tensor.shape, tensor.read())
    if made != digest:
        raise Conflict(
            f"constant `{tensor.name}` of {where} differs from the network",
            why=f"tensor {made[:12]} instead of {digest[:12]}",
        )
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape), "hash": made}


def choose_network(
    candidates: Sequence[Found], shapes: Shapes, writer: Writer, unused: Collection[str] = ()
) -> Structure:
    """The network that counts: `candidates` is in order of rank, one for each different network.

    `unused`: tensors that no network is expected to speak of.
    """
    import dlv.network.verify as verification

    chosen = candidates[0]
    result = Structure(
        chosen.network,
        NetworkReference(chosen.network.id, dict(chosen.network.origin or {}), chosen.constants),
    )
    others = [other.where for other in candidates[1:] if other.network.id != chosen.network.id]
    if others:
        result.warnings.append(
            f"the network is that of {chosen.where}; {', '.join(others[:3])} "
            f"describe{'s' if len(others) == 1 else ''} another one"
        )
    writer.add_object("network", chosen.network.encoded)
    problems = verification.verify(chosen.network, shapes or None)
    result.warnings += network_warnings(problems, unused)
    return result


def carry_network(reference: NetworkReference, shapes: Shapes, store: Store) -> Structure:
    """The parent's network stays as long as it still describes the weights."""
    import dlv.network.verify as verification

    network = stored_network(store, reference.id)
    problems = verification.verify(network, shapes) if shapes else []
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        return Structure(
            warnings=[
                "the parent's network does not fit these weights and is not inherited: "
                + errors[0].message
            ]
        )
    return Structure(network, reference)


def network_warnings(problems: Sequence[Problem], unused: Collection[str] = ()) -> list[str]:
    """Errors first; tensors without a node in one line, counters not at all."""
    extra = [problem.seen for problem in problems if problem.rule == "extra"]
    rest = [problem for problem in problems if problem.rule != "extra"]
    rest.sort(key=lambda problem: problem.severity != "error")
    lines = [f"network: {problem}" for problem in rest[:MOST_WARNINGS]]
    if len(rest) > MOST_WARNINGS:
        lines.append(f"network: and {len(rest) - MOST_WARNINGS} more")
    named = [n for n in extra if n not in unused and n.rpartition(".")[2] not in _COUNTERS]
    if named:
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        what = "the tensor" if len(named) == 1 else "the tensors"
        lines.append(f"network: no layer uses {what} {', '.join(named[:3])}{more}")
    return lines


_Logs = Sequence["EventLogs"]

FILE_ROLES = ("file", "config", "log", "data", "network")


@dataclass
class Request:
    """What the user asked `commit` for, beside what is staged."""

    message: str
    author: str
    name: str | None = None
    parents: Sequence[str] = ()
    fresh: bool = False  # a training of its own: of the parent only files are carried on
    orphan: bool = False  # without a parent, and nothing carried on
    parameters: Mapping[str, Any] = field(default_factory=dict)
    network: Checkpoint | None = None  # given beside the files: its network and constants count
    series: Sequence[Scalars] = ()
    logs: Sequence[tuple[Path, Mapping[str, Any]]] = ()  # as of `staging.read_log`
    events: Sequence[EventLogs] = ()  # of TensorBoard; whoever opened them closes them
    metrics: Sequence[Path] = ()  # files of single values
    staged: Sequence[StagedFile] | None = None  # None: what `add` recorded
    allow_empty: bool = False
    scheme: str | None = None  # a lossy one, for the weights that are stored
    usual_scheme: str = ""  # the same, from the configuration: only if there are new weights
    recheck: str = "hash"
    jobs: int = 1
    progress: Callable[[int], None] = lambda _: None
    total: Callable[[int], None] = lambda _: None


@dataclass
class Draft:
    """What is known of the version while it is put together."""

    base: Manifest | None
    staged: list[StagedFile]
    weights: Weights = field(default_factory=Weights)
    scheme: dict[str, Any] | None = None
    rounded: int = 0
    opened: list[WeightFile] = field(default_factory=list)  # till they are proven
    described: list[Found] = field(default_factory=list)  # networks in the weights' files
    network: Network | None = None
    reference: NetworkReference | None = None
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    series: list[tuple[SeriesReference, Summary | None]] = field(default_factory=list)
    tree: str | None = None
    files: list[FileEntry] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    agreed: set[str] = field(default_factory=set)  # networks that were held against their files

    def of_role(self, *roles: str) -> list[StagedFile]:
        return [file for file in self.staged if file.role in roles]

    @property
    def summaries(self) -> list[Summary]:
        return [summary for _, summary in self.series if summary is not None]

    def manifest(
        self,
        name: str,
        message: str,
        author: str,
        created: str,
        parents: tuple[Parent, ...],
        environment: dict[str, Any],
    ) -> Manifest:
        """What is hashed of the version: the draft, and how it came about."""
        return Manifest(
            name=name,
            message=message,
            author=author,
            created=created,
            parents=parents,
            network=self.reference,
            tensors=self.weights.tensors,
            snapshots=self.weights.snapshots,
            own=self.weights.own,
            scheme=self.scheme,
            hyperparameters=self.hyperparameters,
            series=tuple(reference for reference, _ in self.series),
            tree=self.tree,
            files=tuple(self.files),
            environment=environment,
        )

    @property
    def replaced(self) -> set[str]:
        """Paths of which nothing is carried on: what is staged may be of another role."""
        return {file.path for file in self.staged}

    def close(self) -> None:
        while self.opened:
            self.opened.pop().opened.close()


def fill(draft: Draft, writer: WeightWriter, store: MatrixStore, request: Request) -> None:
    """`put` and `prove` in one."""
    with closing(draft):
        store_draft(draft, writer, store, request)
        prove(draft)


def without_collected(manifest: Manifest, steps: Collection[int | None]) -> Manifest:
    """The manifest less the snapshots of steps that gc has taken."""
    rows = list(enumerate(manifest.snapshots))
    kept = [at for at, row in rows if at == manifest.own or row.step not in steps]
    if len(kept) == len(rows):
        return manifest
    own = None if manifest.own is None else kept.index(manifest.own)
    return replace(manifest, snapshots=tuple(manifest.snapshots[at] for at in kept), own=own)


def store_draft(draft: Draft, writer: WeightWriter, store: MatrixStore, request: Request) -> None:
    """Weights first: networks, settings and curves are carried on only where they fit them.

    Files of weights stay open: `prove` has to follow, and `close` in any case.
    """
    _weights(draft, writer, store, request)
    _network(draft, writer, store, request)
    _hyperparameters(draft, request)
    _series(draft, writer, request, store)


def _weights(draft: Draft, writer: WeightWriter, store: MatrixStore, request: Request) -> None:
    found = draft.of_role(*adding.WEIGHT_ROLES)
    scheme = _scheme(request, carried=not found)
    if not found:
        if draft.base is not None and not request.fresh:
            draft.weights = snapshots.without(draft.base, draft.replaced)
            draft.scheme = draft.base.scheme if draft.weights.snapshots else None
        return
    import dlv.weights.rounding as rounding

    request.total(sum(file.bytes for file in found))
    tally = None if scheme is None else rounding.Tally()
    sources: dict[str, dict[int, str]] = {}
    for file in found:
        checkpoint = adding.opened(file)
        for key, value in checkpoint.hyperparameters.items():
            draft.hyperparameters.setdefault(key, value)
        checkpoint = _agreeing(draft, file, checkpoint)
        if scheme is not None and tally is not None:
            made = rounding.checkpoint(checkpoint, scheme, store.tmp_dir, tally)
            checkpoint, sources[file.path] = made
        draft.opened.append(
            WeightFile(
                *(file.path, file.format, file.bytes, file.hash, file.step),
                own=file.role == "weights" and file.options.get("own") is True,
                opened=checkpoint,
            )
        )
    draft.weights = snapshots.store_snapshots(draft.opened, writer, request.progress)
    for weights in draft.opened:
        draft.described += _opened(weights.path, weights.opened, writer, store)
    parts = {file.path for file in found if file.options.get("prefix")}
    draft.warnings += snapshots.mixed(draft.weights, parts)
    if scheme is not None and tally is not None:
        _lossy(draft, scheme, rounding.with_sources(draft.weights, sources), tally)


def _agreeing(draft: Draft, file: StagedFile, opened: Checkpoint) -> Checkpoint:
    """Return the file with a verified network, or without one; each network is compared once."""
    if opened.format == "onnx" and opened.network is not None:
        import dlv.evaluation.imported as imported

        draft.agreed |= {draft.base.network.id} if draft.base and draft.base.network else set()
        opened, notes = imported.keep_agreeing_apart(file.source, opened, draft.agreed)
        draft.warnings += [f"{file.path}: {note}" for note in notes]
    return opened


def _scheme(request: Request, *, carried: bool) -> Scheme | None:
    if request.scheme is not None and carried:
        raise UsageError(
            f"no new weights to quantize to {request.scheme}",
            why="no weights are staged, and existing versions never change",
            hint=f"to quantize a version: dlv quantize REF --to {request.scheme}",
        )
    from dlv.pas.layouts import schemes

    text = request.usual_scheme if request.scheme is None else request.scheme
    return None if carried or not text else schemes.parse(text)


def _lossy(draft: Draft, scheme: Scheme, weights: Weights, tally: Tally) -> None:
    """Say what is not as it was given; if everything is, the version is like any other."""
    import dlv.weights.rounding as rounding

    draft.rounded = rounding.changed(weights)
    if not draft.rounded:
        draft.warnings.append(f"quantizing to {scheme} changes nothing; weights are stored exactly")
        return
    draft.weights, draft.scheme = weights, scheme.get_config()
    draft.warnings += tally.notes


def prove(draft: Draft) -> None:
    """The staged weights are what was added, or Conflict.

    A container that comes back byte for byte is that; the others are hashed again.
    """
    if not draft.opened:
        return
    draft.weights = snapshots.prove(draft.weights, draft.opened)
    containers = (c for s in draft.weights.snapshots for c in s.containers)
    proven = {c.path for c in containers if c.blake3 is not None}
    for file in draft.of_role(*adding.WEIGHT_ROLES):
        if file.path not in proven and paths.hash_file(Path(file.source))[0] != file.hash:
            raise Conflict(
                f"{file.path} changed after it was staged",
                why="its content differs",
                hint=f"{adding.again(file)}; to unstage it: dlv reset {file.path}",
            )


def _network(draft: Draft, writer: WeightWriter, store: MatrixStore, request: Request) -> None:
    """Given, else staged, else described by the weights' own files, else that of the parent."""
    staged = draft.of_role("network")
    if len(staged) > 1:
        raise Conflict(
            "more than one network is staged",
            why=", ".join(file.path for file in staged),
            hint=f"dlv add --remove {staged[-1].path}",
        )
    shapes = draft.weights.shapes()
    found: list[Found] = []
    if request.network is not None:
        found += _opened("the given model", request.network, writer, store)
    for file in staged:
        opened = _agreeing(draft, file, adding.open_network(Path(file.source), file.format))
        try:
            found += _opened(file.path, opened, writer, store)
        finally:
            opened.close()
    # What people say themselves is not held against what a file says beside its weights.
    found = found[:1] or draft.described[::-1]
    if found:
        unused = {tensor.name for tensor in draft.weights.tensors if tensor.role == "extra"}
        made = choose_network(found, shapes, writer, unused)
    elif (
        draft.base is not None and draft.base.network is not None and (shapes or not request.fresh)
    ):
        files = {entry.path for entry in draft.base.files if entry.role == "network"}
        if files & draft.replaced:
            return
        made = carry_network(draft.base.network, shapes, store)
    else:
        return
    draft.network, draft.reference = made.network, made.reference
    draft.warnings += made.warnings


def _opened(
    where: str, opened: Checkpoint, writer: WeightWriter, store: MatrixStore
) -> list[Found]:
    found = take_network(where, opened, writer, store)
    return [] if found is None else [found]


def _hyperparameters(draft: Draft, request: Request) -> None:
    """From the weights' own files, then configs in the order of paths, then the command line."""
    configs = draft.of_role("config")
    carried = {}
    if draft.base is not None and not request.fresh:
        carried = dict(draft.base.hyperparameters)
    if not configs and not draft.hyperparameters:
        draft.hyperparameters = carried
    for file in configs:
        draft.hyperparameters.update(adding.read_config(Path(file.source), file.format))
    draft.hyperparameters.update(adding.parameters(request.parameters))


def _series(draft: Draft, writer: WeightWriter, request: Request, store: MatrixStore) -> None:
    from dlv.adapters import detect

    staged = {f.path: Path(f.source) for f in draft.of_role("log") if f.format == detect.EVENTS}
    if staged:
        import dlv.curves.ingest as ingest

        with closing(ingest.event_logs_of_files(staged)) as opened:
            _put_series(draft, writer, request, store, [*request.events, opened])
    else:
        _put_series(draft, writer, request, store, request.events)


def _put_series(
    draft: Draft, writer: WeightWriter, request: Request, store: MatrixStore, logs: _Logs
) -> None:
    found = _given_series(draft, request)
    events = [(log, run, row) for log in logs for run, row in log.series()]
    for log in logs:
        draft.warnings += log.remarks
    if draft.base is not None and not (request.fresh or draft.of_role(*adding.WEIGHT_ROLES)):
        # The curves belong to the weights: they stay as long as those do, but for newer ones.
        newer = {(scalars.run, scalars.tag) for scalars in found}
        newer |= {(run, row.tag) for _, run, row in events}
        for reference in draft.base.series:
            if (reference.run, reference.tag) not in newer:
                draft.series.append((reference, stored_summary(store, reference.hash)))
    names: set[tuple[str, str]] = set()
    for run, tag in [(s.run, s.tag) for s in found] + [(run, row.tag) for _, run, row in events]:
        if (run, tag) in names:
            raise Conflict(
                f"metric `{tag}` is in two logs",
                why=f"both are named `{run}`" if run else None,
                hint="rename one log, or keep it as a plain file: dlv add LOG --as file",
            )
        names.add((run, tag))
    import dlv.events.formats.series as series_format

    for scalars in found:
        digest = series_format.encode_scalars(scalars, writer.add_object)
        reference = SeriesReference(scalars.run, scalars.tag, digest)
        draft.series.append((reference, summary_of(scalars, digest)))
    for log, run, row in events:
        digest, summary = log.freeze(row, run, writer.add_object)
        draft.series.append((SeriesReference(run, row.tag, digest), summary))


def _given_series(draft: Draft, request: Request) -> list[Scalars]:
    """From logs, then single values, each under its file's name only where it would clash."""
    from dlv.adapters import detect

    logs = [
        (Path(log.source), log.path, {**log.options, "format": log.format})
        for log in draft.of_role("log")
        if log.format != detect.EVENTS
    ]
    logs += [(path, path.name, dict(options)) for path, options in request.logs]
    found = list(request.series)
    for source, path, options in logs:
        run = "" if len(logs) == 1 and not found else Path(path).name.split(".")[0]
        found += adding.read_log(source, run, options)
    for file in request.metrics:
        scalars, skipped = adding.read_metrics(file)
        draft.warnings += [
            f"{file.name}: skipped `{key}`, which is not a number" for key in skipped
        ]
        taken = {(known.run, known.tag) for known in found}
        for one in scalars:
            clash = (one.run, one.tag) in taken
            found.append(replace(one, run=file.name.split(".")[0]) if clash else one)
    return found


def store_files(repository: Repository, draft: Draft, name: str) -> None:
    containers = {c.path for s in draft.weights.snapshots for c in s.containers}
    found = [
        file
        for file in draft.of_role(*FILE_ROLES)
        # What a model keeps its weights in is stored as weights, though it was added as a file.
        if file.format != exported.FORMAT and file.path not in containers
    ]
    new = {file.path for file in found}
    _check_beside(draft, new)
    base = draft.base.files if draft.base is not None else ()
    renewed = bool(draft.of_role("network"))
    kept = [
        entry
        for entry in base
        # The file of a network that is another one now would mislead who trains from it.
        if entry.path not in draft.replaced | containers
        and not (renewed and entry.role == "network")
    ]
    if not found and len(kept) == len(base):
        draft.files, draft.tree = list(base), draft.base.tree if draft.base else None
        return
    paths.check_together([*new, *(entry.path for entry in kept), *containers])
    if not found and not kept:
        return
    sources = [Source(file.path, Path(file.source), file.role, file.hash) for file in found]
    with repository.alone("files.lock"):
        store = FileStore(repository.files_git)
        draft.tree, draft.files = store.store(sources, kept, name)


def _check_beside(draft: Draft, new: set[str]) -> None:
    """That no file of weights of a model is stored as a file, without the model knowing."""
    for snapshot in draft.base.snapshots if draft.base is not None else ():
        for container in snapshot.containers:
            if container.path in new and container.format == "onnx":
                models = [c.path for c in snapshot.containers if c.path.endswith(".onnx")]
                raise Conflict(
                    f"{container.path} holds weights of an ONNX model",
                    why="added as a file, it would differ from the stored weights",
                    hint=f"add the model again: dlv add {' '.join(models)}",
                )


def weights_of(model: Any) -> dict[str, Any]:
    """The tensors of its state dict, in its order, without what parallel training puts before."""
    state_dict = getattr(unwrapped(model), "state_dict", None)
    if not callable(state_dict):
        raise UsageError(
            f"{type(model).__name__} is not a torch module", why="it has no state_dict() method"
        )
    # Modules may keep other things beside tensors.
    return {name: value for name, value in state_dict().items() if hasattr(value, "detach")}


def network_of(model: Any, example: Any) -> Checkpoint | None:
    """Its network and constants; None, and a warning that says why, where there is none to get.

    What goes wrong here is no reason to lose the weights.
    """
    try:
        import dlv.adapters.aten.live as torch_export

        return torch_export.trace(model, example)
    except DlvError as error:
        why = error.message if error.why is None else f"{error.message} ({error.why})"
    except Exception as error:  # the model's own code is run
        why = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"{type(model).__name__} is committed without its network: {why}", UserWarning, stacklevel=4
    )
    return None


def unwrapped(model: Any) -> Any:
    """Without the wrappers of torch.compile and of data-parallel training, whose names differ."""
    for _ in range(8):
        if type(model).__name__ in ("DataParallel", "DistributedDataParallel"):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            break
    return model
