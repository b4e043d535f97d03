"""`doctor`: what in the surroundings could trouble dlv, and what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path

from dlv.canonical import VERSION, timestamp
from dlv.dataclass import dataclass
from dlv.disk.locks import file_system, network_disk
from dlv.errors import DlvError
from dlv.metadata import facts
from dlv.metadata.database import SCHEMA_VERSION
from dlv.repository.environment import run_git
from dlv.repository.handle import Repository

LEAST_FREE = 1 << 30
LEAST_SQLITE = (3, 38)
# Extra -> the module that shows it is installed, and what it is for.
EXTRAS = {
    "torch": ("torch", "networks as modules, training with evaluate"),
    "fast": ("numba", "compiled loops: archives are read and planned sooner"),
    "images": ("PIL", "folders of images as data"),
    "onnxruntime": ("onnxruntime", "another engine of dlv eval"),
    "prompt": ("prompt_toolkit", "completion and history in dlv query"),
    "tensorboard": ("tensorboard", "dlv tensorboard"),
    "ui": ("starlette", "dlv ui"),
    "plots": ("matplotlib", "charts of dlv plots as PNG"),
    "remote": ("obstore", "remotes in object stores and on web servers"),
    "hub": ("sqlalchemy", "dlv hub serve"),
    "keyring": ("keyring", "tokens of hubs in the keyring of the operating system"),
    "pandas": ("pandas", "answers of queries as a DataFrame"),
    "optuna": ("optuna", "evaluate .. using tpe"),
    "ray": ("ray", "evaluate .. on ray, dlv archive --on ray"),
    "keras": ("keras", "commits from a training with Keras"),
    "lightning": ("lightning", "commits from a training with Lightning"),
    "transformers": ("transformers", "commits from the Trainer of transformers"),
}
# What a version cannot do without, below `.dlv`.
_TRUTH = {"packs", "manifests", "facts", "files.git", "dlv.db", "format.json"}
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Check:
    """One finding. `ok` None: neither good nor bad, only good to know."""

    name: str
    ok: bool | None
    detail: str
    hint: str | None = None


def examine(directory: Path, dlv_dir: str | None, environ: Mapping[str, str]) -> list[Check]:
    """All checks; those of a repository only where there is one."""
    found = [*_program(environ)]
    try:
        repository = Repository.find(directory, dlv_dir)
    except DlvError as error:
        ok = None if error.exit_code == 3 and error.kind == "not a repository" else False
        return [*found, Check("repository", ok, error.message, error.hint)]
    with repository:
        return [*found, *_repository(repository, environ)]


def _program(environ: Mapping[str, str]) -> Iterator[Check]:
    yield Check("dlv", True, f"{VERSION}, database schema {SCHEMA_VERSION}")
    yield Check("python", True, f"{platform.python_version()} on {platform.system()}")
    good = sqlite3.sqlite_version_info >= LEAST_SQLITE
    yield Check(
        "sqlite",
        good,
        sqlite3.sqlite_version,
        None if good else "use a Python built with SQLite 3.38 or newer",
    )
    git = run_git(["--version"], Path("/"))
    version = "" if git is None else git.stdout.decode("utf-8", "replace").strip()
    yield Check(
        "git",
        git is not None and git.returncode == 0,
        version or "not found",
        None if version else "install git: dlv stores files with it",
    )
    for extra, (module, purpose) in EXTRAS.items():
        there = PathFinder.find_spec(module) is not None
        hint = None if there else f"pip install 'dlv[{extra}]'"
        detail = "yes" if there else f"no: {purpose}"
        yield Check(f"extra {extra}", True if there else None, detail, hint)
    limits = [f"{name}={environ[name]}" for name in _THREADS if name in environ]
    yield Check("threads", None, f"{os.cpu_count()} processors {' '.join(limits)}".strip())


def _repository(repository: Repository, environ: Mapping[str, str]) -> Iterator[Check]:
    path = repository.path
    yield Check("repository", True, str(path))
    kind = file_system(path) or "unknown"
    network = network_disk(path)
    yield Check(
        "file system",
        not network,
        kind,
        "use it from one host at a time, or move it to a local disk" if network else None,
    )
    free = shutil.disk_usage(path).free
    yield Check(
        "free space",
        free >= LEAST_FREE,
        f"{free / 1e9:.1f} GB",
        None if free >= LEAST_FREE else "commits need space for new weights",
    )
    locked = [
        folder for folder in ("packs", "manifests", "facts", "tmp") if not _writable(path / folder)
    ]
    yield Check(
        "permissions",
        not locked,
        f"not writable: {', '.join(locked)}" if locked else "writable",
        f"chown -R {environ.get('USER', '$USER')} {path}" if locked else None,
    )
    unread = next(_unreadable(path), None)
    if unread is not None:
        yield Check(
            "readable",
            False,
            f"not readable: {unread.relative_to(path)}",
            f"chmod -R u+rX {path}, by its owner",
        )
    yield from _catalogue(repository)
    runs = path / "runs"
    left = sorted(folder.name for folder in runs.iterdir()) if runs.is_dir() else []
    if left:
        yield Check(
            "unfinished runs",
            False,
            f"{len(left)}: checkpoints of interrupted training runs",
            f"dlv import checkpoints {runs / left[0]} --name NAME",
        )


def _unreadable(path: Path) -> Iterator[Path]:
    """What is the truth and may not be looked at: to fsck it is as good as lost."""
    for root, folders, files in os.walk(path):
        if Path(root) == path:
            folders[:] = [name for name in folders if name in _TRUTH]
        yield from (Path(root, name) for name in folders if not _listable(Path(root, name)))
        found = (Path(root, name) for name in files if Path(root) != path or name in _TRUTH)
        yield from (
            each for each in found if not os.access(each, os.R_OK) and not each.is_symlink()
        )


def _listable(folder: Path) -> bool:
    return os.access(folder, os.R_OK | os.X_OK)


def _writable(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _catalogue(repository: Repository) -> Iterator[Check]:
    try:
        newest = facts.newest_moment(repository.database) or ""
    except DlvError as error:
        yield Check("database", False, error.message, error.hint)
        return
    yield Check("database", True, f"schema {SCHEMA_VERSION}")
    now = timestamp()
    late = newest > now
    yield Check(
        "clock",
        not late,
        f"{now[:19]} UTC" + (f", but the newest entry is of {newest[:19]}" if late else ""),
        "set the clock: versions are ordered by it" if late else None,
    )
