"""Files that a training run left in folders: which are weights, which are kept as they are.

Other than what people `add`, nobody has looked at these: links are not followed, pickles not
kept, and what does not fit together is kept as a plain file rather than refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

import dlv.disk.paths as paths
import dlv.versions.add as adding
from dlv.adapters import detect, registry
from dlv.adapters.detect import step_of
from dlv.dataclass import dataclass
from dlv.errors import DlvError, UnsafeInput
from dlv.metadata.facts import StagedFile

MOST_NAMES = 10_000
MOST_DEPTH = 64
MOST_FILE = 32 << 20
MOST_FILES = 256 << 20  # all plain files of a run together


@dataclass(frozen=True)
class Place:
    """A folder, the path that its files get, and the step of its weights where that is known."""

    folder: Path
    prefix: str
    step: int | None = None


@dataclass
class Gathered:
    files: list[StagedFile] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    plain: int = 0  # bytes of plain files
    # What the weights so far say of a tensor, and which file of a step holds it.
    shapes: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    holders: dict[tuple[int | None, str], StagedFile] = field(default_factory=dict)


def gather(places: Sequence[Place], optimizer: str = "keep") -> Gathered:
    """Every file of these folders as what it can be, or why it cannot be taken."""
    gathered = Gathered()
    for place in places:
        for name, path in _walk(place, gathered):
            try:
                _take(gathered, name, path, place.step, optimizer)
            except DlvError as error:
                gathered.skipped.append((name, _reason(error)))
    try:
        paths.check_together([file.path for file in gathered.files])
    except UnsafeInput as error:
        kept = [file for file in gathered.files if file.role == "snapshot"]
        count = len(gathered.files) - len(kept)
        gathered.skipped.append((f"{count} files", _reason(error)))
        gathered.files = kept
    return gathered


def _reason(error: DlvError) -> str:
    return f"{error.message}: {error.why}" if error.why else error.message


def _walk(place: Place, gathered: Gathered) -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    waiting = [(place.folder, place.prefix, 0)]
    names = 0
    while waiting:
        here, prefix, depth = waiting.pop()
        try:
            with os.scandir(here) as scanned:
                entries = []
                for entry in scanned:
                    names += 1
                    if names > MOST_NAMES:
                        break
                    mode = entry.stat(follow_symlinks=False).st_mode
                    entries.append((f"{prefix}{entry.name}", Path(entry.path), mode))
        except OSError as error:
            gathered.skipped.append((prefix, error.strerror or "it cannot be read"))
            continue
        for name, path, mode in sorted(entries):
            if stat.S_ISDIR(mode) and depth < MOST_DEPTH:
                waiting.append((path, f"{name}/", depth + 1))
            elif stat.S_ISREG(mode):
                found.append((name, path))
            else:
                what = "a link" if stat.S_ISLNK(mode) else "not a regular file"
                gathered.skipped.append((name, "nested too deeply" if stat.S_ISDIR(mode) else what))
        if names > MOST_NAMES:
            gathered.skipped.append((prefix, f"more than {MOST_NAMES} files; the rest is skipped"))
            break
    return sorted(found)


def _take(gathered: Gathered, name: str, path: Path, step: int | None, optimizer: str) -> None:
    paths.check(name)
    found = detect.detect(str(path))
    role = detect.role_of(found)
    if found == "pickle":
        raise UnsafeInput("a pickle, which could execute code")
    if role == "weights" and found in registry.READERS:
        if found == "npz" and detect.is_data_set(str(path)):
            role = "data"
        else:
            _take_weights(gathered, name, path, found, step, optimizer)
            return
    if role == "network" and not any(file.role == "network" for file in gathered.files):
        adding.open_network(path, found).close()
    else:
        role = "data" if role == "data" else "file"
    _keep(gathered, name, path, role, found)


def _take_weights(
    gathered: Gathered, name: str, path: Path, format_: str, step: int | None, optimizer: str
) -> None:
    opened = adding.open_weights(path, format_, optimizer)
    try:
        tensors = {tensor.name: (tensor.dtype, tensor.shape) for tensor in opened.tensors}
        described = opened.network is not None
        if step is None:
            step = step_of(name)
        step = opened.step if step is None else step
    finally:
        opened.close()
    if not tensors:
        _keep(gathered, name, path, "network" if described else "file", format_)
        return
    digest, status = paths.hash_file(path)
    file = StagedFile(
        *(name, str(path.absolute()), "snapshot", format_, step),
        *(status.st_size, status.st_mtime_ns, digest),
        {"optimizer": optimizer, "own": False},
    )
    why = _clash(gathered, file, tensors)
    if why is not None:
        gathered.skipped.append((name, why))
        return
    gathered.files.append(file)
    gathered.shapes.update(tensors)
    for tensor in tensors:
        gathered.holders.setdefault((step, tensor), file)


def _clash(
    gathered: Gathered, file: StagedFile, tensors: dict[str, tuple[str, tuple[int, ...]]]
) -> str | None:
    """Why a file's tensors cannot stand beside those of the files before it."""
    for tensor, form in tensors.items():
        holder = gathered.holders.get((file.step, tensor))
        if holder is not None and holder.hash != file.hash:
            step = "without a step" if file.step is None else f"of step {file.step}"
            return f"{tensor} {step} is already in {holder.path}"
        known = gathered.shapes.get(tensor, form)
        if known != form:
            return (
                f"{tensor} is {form[0]} {list(form[1])} here,"
                f" {known[0]} {list(known[1])} in other weights of the run"
            )
    return None


def _keep(gathered: Gathered, name: str, path: Path, role: str, format_: str) -> None:
    """As a plain file, if it is not too large."""
    size = path.stat().st_size
    if size > MOST_FILE:
        raise UnsafeInput(f"{size >> 20} MiB, in an unknown format")
    if gathered.plain + size > MOST_FILES:
        raise UnsafeInput(f"the run has more than {MOST_FILES >> 20} MiB of plain files")
    digest, status = paths.hash_file(path)
    gathered.plain += size
    gathered.files.append(
        StagedFile(
            *(name, str(path.absolute()), role, format_, None),
            *(status.st_size, status.st_mtime_ns, digest),
        )
    )
