"""Clone: a new repository beside a remote, removed again if nothing comes of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import dlv.hub.pull as pulling
import dlv.hub.remotes as remotes
from dlv.config import Config
from dlv.errors import Conflict
from dlv.hub.names import DEFAULT, PREFIX
from dlv.hub.pull import Pulled
from dlv.hub.remotes import Remote
from dlv.repository.handle import Repository


def clone(
    url: str,
    folder: Path,
    environ: Mapping[str, str],
    author: str,
    *,
    progress: Callable[[int], None],
    total: Callable[[int], None],
) -> tuple[Remote, Pulled]:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Conflict(f"{folder} is not empty", hint="give another directory: dlv clone URL DIR")
    there = folder.exists()
    remotes.check_exists(url, environ)
    folder.mkdir(parents=True, exist_ok=True)
    repository, _ = Repository.init(folder)
    try:
        with repository:
            config = Config.load(repository.config_file, environ)
            config.set("repository", PREFIX + DEFAULT, url)
            remote = remotes.open_remote(repository, DEFAULT, url, environ)
            request = pulling.Request(
                names=(), author=author, everything=True, progress=progress, total=total
            )
            return remote, pulling.pull(repository, remote, request)
    except BaseException:
        # What came so far stays in no repository that looks whole.
        shutil.rmtree(repository.path if there else folder, ignore_errors=True)
        raise
