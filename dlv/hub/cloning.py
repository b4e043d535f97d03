"""Clone a remote into a new repository; if that fails, nothing is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import dlv.hub.pull as pulling
import dlv.hub.remotes as remotes
from dlv.config import REMOTE_PREFIX, Config
from dlv.errors import Conflict
from dlv.hub.names import DEFAULT
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
    """Create a repository and pull all versions; an existing folder must be empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Conflict(f"{folder} is not empty", hint="give another directory: dlv clone URL DIR")
    existed = folder.exists()
    remotes.check_exists(url, environ)
    folder.mkdir(parents=True, exist_ok=True)
    repository, _ = Repository.init(folder)
    try:
        with repository:
            config = Config.load(repository.config_file, environ)
            config.set("repository", REMOTE_PREFIX + DEFAULT, url)
            remote = remotes.open_remote(repository, DEFAULT, url, environ)
            request = pulling.Request(
                names=(), author=author, everything=True, progress=progress, total=total
            )
            return remote, pulling.pull(repository, remote, request)
    except BaseException:
        # Half a clone must not look like a repository.
        shutil.rmtree(repository.path if existed else folder, ignore_errors=True)
        raise
