"""`add`: what a file is and whether it can be read; it is recorded for the next commit."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dlv.disk.durable as durable
import dlv.disk.paths as paths
import dlv.metadata.facts as facts
from dlv.adapters import checkpoint, exported, folders, registry
from dlv.adapters.detect import step_of
from dlv.adapters.folders import Place
from dlv.canonical import dumps, float_of, hash_bytes
from dlv.dataclass import dataclass
from dlv.disk.ignore import walk
from dlv.disk.user_files import is_part
from dlv.errors import Conflict, Damaged, DlvError, NotFound, UnsafeInput, UsageError, nearest
from dlv.metadata import networks, versions
from dlv.metadata.facts import StagedFile
from dlv.repository.handle import Repository
from dlv.versions.working import WEIGHT_SUFFIXES

if TYPE_CHECKING:
    from dlv.adapters import hf
    from dlv.events.formats.series import Scalars

WEIGHT_ROLES = ("weights", "snapshot")
ROLES = (*WEIGHT_ROLES, "network", "config", "log", "data", "file")
LARGE_FILE = 100 << 20
# Up to these sizes `add` reads all data to find damage; in larger files the commit finds it.
READ_FILE, READ_ALL = 8 << 20, 16 << 20
RUNS = ".dlv/runs"
_HELD = ("keras", "hdf5")
_CONFIG_NAME = re.compile(
    r"(^|[._-])(config|conf|cfg|hparams?|hyper_?param\w*|params?|args?|arguments|settings?)([._-]|$)",
    re.IGNORECASE,
)


@dataclass
class Request:
    """What the user asked `add` for."""

    role: str | None = None
    format: str | None = None
    step: int | None = None
    optimizer: str = "keep"
    network: str | None = None  # FILE.py:FACTORY, code that makes the model
    input_shapes: Sequence[str] = ()
    step_column: str | None = None
    time_column: str | None = None
    progress: Callable[[int], None] = lambda _: None
    known: Callable[[str], bool] = lambda _: False  # whether some version has this network
    outside: bool = False  # whether files need not lie in the project


@dataclass
class Added:
    """What is to be staged, and what was passed over with the reason."""

    files: list[StagedFile] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    read: int = 0  # bytes of weights that were read to find damage


def add(repository: Repository, here: Path, paths: Sequence[str], request: Request) -> Added:
    """Look at the files and stage them, all or none of those that were named."""
    if request.input_shapes and request.network is None:
        raise UsageError(
            "--input-shape requires --factory",
            hint="dlv add --factory train.py:make_model --input-shape 1,1,28,28",
        )
    db = repository.database
    known = replace(request, known=lambda net: networks.find(db, net) is not None)
    added = examine(repository.root, here, paths, known)
    if request.network is not None:
        made, notes = _export(repository, here, request.network, request.input_shapes)
        added.files.append(made)
        added.warnings += notes
    _put(repository, added.files)
    return added


@dataclass(frozen=True)
class Removed:
    """Tracked files that leave the next version, and staged ones that do not get into it."""

    marks: list[StagedFile]
    back: list[str]


def remove(repository: Repository, here: Path, paths: Sequence[str]) -> Removed:
    """Mark tracked files as removed; what was only staged is taken back."""
    names = [relative(repository.root, Path(here, name), here) for name in paths]
    waiting = [file.path for file in facts.staged_files(repository.database)]
    tracked = tracked_paths(repository)
    marks = []
    back = [path for path in waiting for name in names if _below(path, name)]
    for name in names:
        if any(_below(path, name) for path in tracked):
            marks += list(removals(tracked, [name]))
        elif not any(_below(path, name) for path in waiting):
            list(removals([*tracked, *waiting], [name]))  # says what was meant
    with repository.writing(), repository.database.atomic():
        facts.drop_staged(repository.database, back)
        facts.insert_staged(repository.database, marks)
    left = {mark.path for mark in marks}
    return Removed(marks, [path for path in dict.fromkeys(back) if path not in left])


def unstage(repository: Repository, here: Path, paths: Sequence[str]) -> list[StagedFile]:
    """Unstage files and removals at or below the paths, or all of them without paths."""
    db = repository.database
    with repository.writing(), db.atomic():
        waiting = facts.staged_files(db)
        if paths:
            names = [relative(repository.root, Path(here, name), here) for name in paths]
            known = [file.path for file in waiting]
            for name, given in zip(names, paths, strict=True):
                if not any(_below(path, name) for path in known):
                    raise NotFound(f"`{given}` is not staged", did_you_mean=nearest(name, known))
            waiting = [file for file in waiting if any(_below(file.path, name) for name in names)]
        facts.drop_staged(db, [file.path for file in waiting])
    return waiting


def _below(path: str, name: str) -> bool:
    return path == name or path.startswith(name.rstrip("/") + "/") or name in ("", ".")


def tracked_paths(repository: Repository) -> list[str]:
    """Files and weight containers of HEAD."""
    head = repository.head
    if head is None or versions.by_id(repository.database, head) is None:
        return []
    manifest = repository.manifest(head)
    containers = {c.path for s in manifest.snapshots for c in s.containers}
    return sorted({entry.path for entry in manifest.files} | containers)


def _export(
    repository: Repository, here: Path, code: str, shapes: Sequence[str]
) -> tuple[StagedFile, list[str]]:
    """The network of a model that FILE.py:FACTORY makes, and notes; this runs the user's code."""
    file, _, factory = code.rpartition(":")
    if not file or not factory:
        raise UsageError(
            f"`{code}` is not FILE.py:FACTORY",
            hint="dlv add --factory FILE.py:FACTORY, where FACTORY() returns a torch module",
        )
    folder = repository.path / "runs" / "networks"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{relative(repository.root, Path(here, file), here)}:{factory}"
    target = folder / f"{hash_bytes(name.encode())[:16]}{exported.SUFFIX}"
    lengths = [",".join(map(str, _shape(text))) for text in shapes]
    with durable.TemporaryFile(repository.tmp, suffix=exported.SUFFIX) as made:
        from dlv.adapters.aten.factory import network_of

        found = network_of(f"{Path(here, file)}:{factory}", lengths, made.path)
        found.close()
        made.path.rename(target)
    digest, status = paths.hash_file(target)
    entry = StagedFile(
        *(name, str(target), "network", exported.FORMAT, None),
        *(status.st_size, status.st_mtime_ns, digest),
    )
    return entry, [f"{name}: {note}" for note in found.notes]


def _shape(text: str) -> tuple[int, ...]:
    """A shape as it is typed: `1,1,28,28` or `1x1x28x28`."""
    parts = [part.strip() for part in text.replace("x", ",").split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(
            f"`{text}` is not a shape",
            why="give lengths separated by commas, batch first",
            hint="1,1,28,28",
        )
    return tuple(int(part) for part in parts)


def _put(repository: Repository, files: Sequence[StagedFile]) -> None:
    with repository.writing(), repository.database.atomic():
        facts.insert_staged(repository.database, files)


def examine(root: Path, here: Path, given: Sequence[str], request: Request) -> Added:
    """Look at every file that was named, or lies in a folder that was named; nothing is copied."""
    from dlv.adapters import detect

    added = Added()
    if request.format is not None and request.format not in detect.ROLES:
        raise UsageError(
            f"no format `{request.format}`",
            why="known: " + ", ".join(sorted(detect.ROLES)),
            did_you_mean=nearest(request.format, detect.ROLES),
        )
    from dlv.adapters import hf

    for argument in given:
        start = Path(here, argument)
        if start.is_dir():
            found = list(walk(root, start))
            whole = request.role in (None, *WEIGHT_ROLES) and request.format is None
            told = hf.advise(found) if whole else None
            added.warnings += told.warnings if told else []
            before = len(added.files)
            for path in found:
                advice = told.files.get(path, hf.Advice()) if told else hf.Advice()
                _add_found(root, path, start.parent, request, added, advice)
            if request.role is None:
                _one_network(added, before)
        elif start.exists():
            if is_part(start.name):
                raise UsageError(
                    f"{argument} is a temporary file of dlv",
                    hint="to delete what interrupted commands left: dlv gc",
                )
            try:
                added.files.append(_examine(root, start, start.parent, request, added, named=True))
            except DlvError as error:
                if start.name not in error.message:  # of several files: which one
                    error.message = f"{argument}: {error.message}"
                raise
        else:
            siblings = os.listdir(start.parent) if start.parent.is_dir() else []
            raise NotFound(
                f"no such file: `{argument}`", did_you_mean=nearest(start.name, siblings)
            )
    if request.step is not None and len(added.files) > 1:
        weights = [file for file in added.files if file.role in WEIGHT_ROLES]
        if len({Path(file.path).parent for file in weights}) > 1:
            raise UsageError("--step applies to one checkpoint", why=f"got {len(weights)}")
    sources: dict[str, str] = {}
    for file in added.files:
        source = sources.setdefault(file.path, file.source)
        if os.path.realpath(source) != os.path.realpath(file.source):
            raise Conflict(
                f"{source} and {file.source} would both be stored as `{file.path}`",
                hint="copy them into the project",
            )
    paths.check_together(sources)
    return added


def _one_network(added: Added, first: int) -> None:
    """Of several networks in a folder one is the version's, the others are plain files."""
    places = [i for i in range(first, len(added.files)) if added.files[i].role == "network"]
    # A network for use comes before one for training, which has no inputs of its own.
    places.sort(key=lambda i: ("deploy" not in added.files[i].path, added.files[i].path))
    for place in places[1:]:
        other = added.files[place]
        added.files[place] = replace(other, role="file")
        added.warnings.append(
            f"{other.path} is a plain file, as {added.files[places[0]].path} is the network;"
            f" dlv add {other.path} makes it that"
        )


def _add_found(
    root: Path, path: Path, above: Path, request: Request, added: Added, advice: hf.Advice
) -> None:
    """A file of a folder: what cannot be taken in is passed over, and said."""
    reason = advice.skip
    if reason is None and advice.role is not None and request.role in WEIGHT_ROLES:
        reason = "it is not weights"
    if reason is not None:
        added.skipped.append((relative(root, path, above), reason))
        return
    try:
        asked = request if advice.role is None else replace(request, role=advice.role)
        named = advice.role is not None
        added.files.append(_examine(root, path, above, asked, added, named=named))
    except Conflict:
        raise
    except DlvError as error:
        from dlv.adapters import detect

        weights = path.suffix.lower() in (*detect.CLAIMED, *WEIGHT_SUFFIXES)
        if (isinstance(error, Damaged) and weights) or path.suffix == detect.DISTRIBUTED:
            raise  # a version must not lose weights silently
        added.skipped.append((relative(root, path, above), _reason(error)))


def _reason(error: DlvError) -> str:
    return f"{error.message}: {error.why}" if error.why else error.message


def relative(root: Path, path: Path, above: Path) -> str:
    """The path in the version: from the project's folder, or from what was named outside it."""
    full = Path(os.path.realpath(path.parent)) / path.name
    if full.is_relative_to(root / RUNS):
        # What a run that was killed has left: named as it would have been committed.
        return Path(*full.relative_to(root / RUNS).parts[1:]).as_posix()
    if full.is_relative_to(root):
        return full.relative_to(root).as_posix()
    return path.relative_to(above).as_posix()


def _examine(
    root: Path, path: Path, above: Path, request: Request, added: Added, *, named: bool
) -> StagedFile:
    from dlv.adapters import detect

    name = paths.check(relative(root, path, above))
    if not request.outside:
        _check_inside(root, path)
    found = request.format or detect.detect(str(path))
    if request.role is None and request.format is None:
        _check_name_and_content(path, name, found)
    place = _place(path, name)
    if request.role is None and request.format is None and _is_state(path, name, place, added):
        request, named = replace(request, role="file"), True
    role = request.role or _role(found, path, named=named)
    step = request.step
    options: dict[str, Any] = {}
    if role in WEIGHT_ROLES:
        if place is not None and place.state:
            raise UsageError(
                f"{name} is state of a training, not weights", hint=f"to keep it: dlv add {name}"
            )
        options = {"optimizer": request.optimizer, "own": request.role == "weights"}
        if place is not None and place.prefix:
            options["prefix"] = place.prefix
            options["extra"] = place.custom
        step = _check_weights(path, name, found, request, options, added, place)
    elif role == "network":
        from dlv.adapters import network_json

        found = found if found in registry.READERS else network_json.FORMAT
        opened = open_network(path, found)
        opened.close()
        added.warnings += [f"{name}: {note}" for note in opened.notes]
        if not _holds(opened, path, name, found, request, added):
            raise UsageError(added.warnings.pop(), hint=f"dlv add {name} --as weights")
    elif role == "config":
        read_config(path, found)
    elif role == "log" and found == detect.EVENTS:
        _check_events(path, name, added)
    elif role == "log":
        from dlv.adapters import logs as metric_logs

        log = metric_logs.read(
            str(path), request.step_column, request.time_column, _log_format(found)
        )
        added.warnings += [f"{name}: {note}" for note in log.notes]
        options = {"step": request.step_column, "time": request.time_column}
    elif not named and path.stat().st_size > LARGE_FILE:
        raise UsageError(
            f"{name} is large and in an unknown format", hint=f"dlv add {name} --as file"
        )
    digest, status = paths.hash_file(path, request.progress)
    return StagedFile(
        path=name,
        source=str(path.absolute()),
        role=role,
        format=found,
        step=step,
        bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        hash=digest,
        options=options,
    )


def _place(path: Path, name: str) -> Place | None:
    """What the file is in a folder of several files; `name`: its path in the project."""
    above = Path(str(path)[: -len(name)])
    if not str(path).endswith(name):
        return None  # of a run that was killed
    return folders.place_of(name, lambda other: (above / other).is_file())


def _is_state(path: Path, name: str, place: Place | None, added: Added) -> bool:
    """Whether the file is state of a training without tensors; its pickle is not loaded."""
    if place is None or not (place.state or place.custom):
        return False
    from dlv.adapters.torch.state_files import check_state

    if place.custom:
        try:
            opened = open_weights(path, "pt")
            opened.close()
            if opened.tensors:
                return False
        except (UnsafeInput, UsageError):
            pass  # an object that only the user's own code can read
    try:
        warning = check_state(str(path))
    except DlvError as error:
        error.hint = error.hint or f"to keep it as a plain file: dlv add {name} --as file"
        raise
    added.warnings += [f"{name}: {warning}"] if warning else []
    return True


def _check_inside(root: Path, path: Path) -> None:
    """Refuse files outside the project, including links that lead there."""
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(root)):
        leads = "" if real == path.absolute() else f"it is a link to {real}"
        raise UnsafeInput(
            f"{path} is outside the project {root}",
            why=leads or None,
            hint="copy it into the project first",
        )


def _check_name_and_content(path: Path, name: str, format_: str) -> None:
    """Refuse to stage broken weights or a broken network as a plain file."""
    from dlv.adapters import detect

    claimed = detect.CLAIMED.get(path.suffix.lower())
    if claimed is not None and detect.role_of(format_) == "file":
        empty = path.stat().st_size == 0
        raise Damaged(
            f"{name} is not a valid {claimed} file",
            why="it is empty" if empty else "its content has another form",
            hint=f"to keep it as a plain file: dlv add {name} --as file",
        )


def _role(format_: str, path: Path, *, named: bool) -> str:
    from dlv.adapters import detect

    role = detect.role_of(format_)
    if role == "weights" and not named and format_ not in registry.READERS and format_ != "pickle":
        return "file"
    # Not every JSON file of a project says how the model was trained.
    says = format_ == "caffe_solver" or _CONFIG_NAME.search(path.stem)
    if role == "config" and not named and not says:
        return "file"
    if format_ == "npz" and detect.is_data_set(str(path)):
        return "data"
    return role


def _check_events(path: Path, name: str, added: Added) -> None:
    """That it is an event file; what else is in it the commit will see."""
    import dlv.events.logs.batches as batches

    found = batches.read(path)
    next(iter(found), None)
    if found.status == "foreign":
        raise Damaged(
            f"{name} is not an event file",
            why=found.error,
            hint=f"to keep it as a plain file: dlv add {name} --as file",
        )
    if found.status == "damaged" and found.error is not None:
        added.warnings.append(f"{name}: {found.error}")


def _check_weights(
    path: Path,
    name: str,
    format_: str,
    request: Request,
    options: dict[str, Any],
    added: Added,
    place: Place | None,
) -> int | None:
    """Open it as the commit will, so that what cannot be read is refused now."""
    opened = open_weights(path, format_, str(options["optimizer"]))
    try:
        if not opened.tensors:
            raise UsageError(f"{name} has no tensors", hint=f"dlv add {name} --as file")
        _read_little(opened, added)
        added.warnings += [f"{name}: {note}" for note in opened.notes]
        if opened.beside:
            found_there = {each: os.stat(each) for each in opened.beside}
            options["beside"] = {
                each: [status.st_size, status.st_mtime_ns] for each, status in found_there.items()
            }
        if not _holds(opened, path, name, format_, request, added):
            options["network"] = False
        if request.step is not None:
            return request.step
        if place is not None:  # one step for all files of the folder
            return step_of(f"{place.root}/-") if place.root else None
        step = step_of(name)
        return opened.step if step is None else step
    finally:
        opened.close()


def _holds(
    opened: checkpoint.Checkpoint, path: Path, name: str, kind: str, request: Request, added: Added
) -> bool:
    """Compare the network of a file with its own framework; return whether it may be used."""
    if opened.network is None or kind not in _HELD or request.known(opened.network.id):
        return True
    from dlv.adapters.keras.check import held_against

    verdict = held_against(opened, path, kind)
    added.warnings += [f"{name}: {text}" for text in (verdict.refused, verdict.note) if text]
    return verdict.refused is None


def opened(file: StagedFile) -> checkpoint.Checkpoint:
    """A staged file of weights, without a network that was found not to hold.

    Its tensors have the names and roles that they get in the version.
    """
    found = open_weights(Path(file.source), file.format, str(file.options.get("optimizer", "keep")))
    if prefix := file.options.get("prefix"):
        found.tensors = [
            replace(
                tensor,
                name=f"{prefix}{tensor.name}",
                tied=tensor.tied and f"{prefix}{tensor.tied}",
                role="extra" if file.options.get("extra") else tensor.role,
            )
            for tensor in found.tensors
        ]
    return found if file.options.get("network", True) else replace(found, network=None)


def _read_little(opened: checkpoint.Checkpoint, added: Added) -> None:
    """Verify the checksums of a small file by reading it."""
    size = sum(tensor.nbytes for tensor in opened.tensors if tensor.tied is None)
    if size <= READ_FILE and added.read + size <= READ_ALL:
        added.read += size
        for tensor in opened.tensors:
            for _ in tensor.parts():
                pass


def open_weights(path: Path, format_: str, optimizer: str = "keep") -> checkpoint.Checkpoint:
    """Open a weight file with the adapter of its format."""
    adapter = registry.adapter(format_)
    try:
        if format_ == "pt":
            from dlv.adapters.torch import reader as torch_files

            return torch_files.open(str(path), optimizer=optimizer)
        return adapter.open(str(path))
    except UnsafeInput as error:
        error.hint = error.hint or f"to keep it as a plain file: dlv add {path.name} --as file"
        raise


def open_network(path: Path, format_: str) -> checkpoint.Checkpoint:
    """Open a file for the network in it."""
    if format_ == exported.FORMAT:
        return exported.open(str(path))
    from dlv.adapters import network_json

    if format_ == network_json.FORMAT:
        network, notes = network_json.open(str(path))
        return checkpoint.Checkpoint(format_, [], notes=notes, network=network)
    opened = registry.adapter(format_).open(str(path))
    if opened.network is None:
        opened.close()
        raise UsageError(
            f"{path.name} has no network",
            why=f"it has {format_} weights only",
            hint=f"dlv add {path.name}",
        )
    return opened


def removals(entries: Sequence[str], paths: Sequence[str]) -> Iterator[StagedFile]:
    """Marks that tracked files are to leave the next version."""
    for name in paths:
        prefix = name.rstrip("/")
        whole = prefix in ("", ".")
        matching = [p for p in entries if whole or p == prefix or p.startswith(prefix + "/")]
        if not matching:
            raise NotFound(f"no tracked file `{name}`", did_you_mean=nearest(prefix, entries))
        for path in matching:
            yield StagedFile(path=path, source="", role="removed", format="")


def again(file: StagedFile, path: str | None = None) -> str:
    """The command that stages it once more; `path` as the user would type it."""
    if file.format == exported.FORMAT:
        return f"dlv add --factory {file.path} --input-shape SHAPE"
    return f"dlv add {path or file.path}"


def changed(staged: StagedFile) -> str | None:
    """Why a staged file is no longer what was added; None if it is. Size and time only."""
    for path, look in staged.looks.items():
        what = "it" if path == staged.source else Path(path).name
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return f"{what} is missing"
        if (status.st_size, status.st_mtime_ns) != look:
            return f"{what} was changed"
    return None


def _log_format(format_: str) -> str | None:
    return format_ if format_ in ("csv", "jsonl", "trainer_state", "json") else None


def read_log(path: Path, run: str, options: Mapping[str, Any]) -> list[Scalars]:
    """The metric series of a log, in the order of its columns."""
    import dlv.events.formats.series as series_format
    from dlv.adapters import logs as metric_logs

    format_ = _log_format(str(options.get("format")))
    log = metric_logs.read(str(path), options.get("step"), options.get("time"), format_)
    return [
        series_format.Scalars(run, tag, column.steps, column.walls, column.values)
        for tag, column in log.columns.items()
    ]


def read_config(path: Path, format_: str) -> Mapping[str, Any]:
    """The hyperparameters of a file; a format that `add` recorded counts, if it is of these."""
    from dlv.adapters import settings as settings_files

    known = format_ if format_ in settings_files.MOST_BYTES else None
    return settings_files.flatten(settings_files.read(str(path), known))


def read_metrics(path: Path) -> tuple[list[Scalars], list[str]]:
    """Single values from a settings file, a series of one point each; keys that are no numbers."""
    from dlv.adapters import settings as settings_files

    values = settings_files.flatten(settings_files.read(str(path)))
    numbers = {
        key: number for key, value in values.items() if (number := _number(value)) is not None
    }
    if not numbers:
        raise UsageError(
            f"{path} has no metrics", why='expected names with numbers, such as {"accuracy": 0.98}'
        )
    import dlv.events.formats.series as series_format

    series = [
        series_format.Scalars("", key, [0], [0.0], [number]) for key, number in numbers.items()
    ]
    return series, [key for key in values if key not in numbers]


def parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Hyperparameters that were given as Python values."""
    if not values:
        return {}
    try:
        from dlv.adapters import settings as settings_files

        found = settings_files.flatten(dict(values))
        dumps(found)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UsageError(
            "invalid hyperparameter",
            why=str(error),
            hint="use 64-bit numbers, strings, booleans, None, and lists or tables of these",
        ) from error
    return dict(found)


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return float_of(value) if value in ("NaN", "Infinity", "-Infinity") else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
