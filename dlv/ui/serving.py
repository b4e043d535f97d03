"""Serving the pages: uvicorn on a socket that is bound first, TensorBoard when it is asked for."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dlv.curves.board as boards
import dlv.events.server.security as security
import dlv.events.server.serving as serving
import dlv.events.server.site as board_site
from dlv.config import Config
from dlv.errors import NotFound, UsageError, require
from dlv.repository.handle import Repository
from dlv.ui.series import USUAL, Live
from dlv.ui.site import Site, address_of, compare_address

THREADS = 4  # requests that are answered at once


def log_folders(root: Path, named: Sequence[Path]) -> list[Path]:
    """The folders that were named, and those of the usual names in the project."""
    found = [folder.resolve() for folder in named]
    found += [root / name for name in USUAL if (root / name).is_dir()]
    return list(dict.fromkeys(found))


class BoardBeside:
    """TensorBoard on its own port, started on the first click."""

    def __init__(self, repository: Repository, config: Config, log: Callable[[str], None]) -> None:
        self._repository, self._config, self._log = repository, config, log
        self._ending = ExitStack()
        self._address: str | None = None

    def __call__(self) -> str:
        if self._address is None:
            board = boards.VersionsBoard(
                self._repository,
                [],
                cap=int(self._config.get("curves.cap")),
                restarts=self._config.given("curves.restarts", None),
                tell=self._log,
            )
            self._ending.callback(board.close)
            token = security.new_token()
            site = board_site.Site(
                *(board.ask, board.experiment, board.location, board.directory),
                *(self._log, {}, board.release),
            )
            server = serving.Server(serving.LOOPBACK, 0, self._log, board.release)
            self._ending.callback(server.stop)
            pages = site.pages(serving.LOOPBACK, server.port, token)
            board.start()
            server.in_background(pages)
            self._address = serving.address(serving.LOOPBACK, server.port, token)
        return self._address

    def close(self) -> None:
        self._ending.close()


@contextlib.contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """Bind a socket, or say what is wrong with the address."""
    server = serving.Server(host, port, lambda _: None)
    # Only its binding, with the error messages for it, is used here.
    held = server.socket
    try:
        yield held
    finally:
        held.close()


def first_page(references: Sequence[str]) -> str:
    """Where `dlv ui REF..` begins."""
    if not references:
        return "/"
    return address_of(references[0]) if len(references) == 1 else compare_address(references)


def serve(
    repository: Repository,
    config: Config,
    listening: socket.socket,
    *,
    host: str,
    token: str,
    folders: Sequence[Path],
    jobs: int,
    log: Callable[[str], None],
    ready: Callable[[], None],
) -> None:
    """Answer until Ctrl-C; `ready` is called once requests are answered."""
    uvicorn = require("uvicorn", "ui")
    beside = BoardBeside(repository, config, log)
    live = Live(repository, log_folders(repository.root, folders))
    site = Site(repository, live, jobs=jobs, board=beside, log=log)
    port = int(listening.getsockname()[1])
    options = uvicorn.Config(
        _limited(site.app(host, port, token), ready),
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
        limit_concurrency=256,
    )
    try:
        uvicorn.Server(options).run(sockets=[listening])
    finally:
        site.close()
        beside.close()


def _limited(app: Any, ready: Callable[[], None]) -> Any:
    """The application with few threads, which tells when it has begun."""
    limiting = require("anyio.to_thread", "ui")

    async def entry(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                limiting.current_default_thread_limiter().total_tokens = THREADS
                await send({"type": "lifespan.startup.complete"})
                ready()
            else:
                await send({"type": "lifespan.shutdown.complete"})
                return

    return entry


def check_installed() -> None:
    """Fail early if a package of the extra `ui` is missing."""
    require("starlette.applications", "ui")
    require("uvicorn", "ui")
    require("jinja2", "ui")
    require("pygments", "ui")


def split(
    words: Sequence[str], directory: Path, known: Callable[[str], object]
) -> tuple[list[str], list[Path]]:
    """References, and folders of logs."""
    references, folders = [], []
    for word in words:
        path = directory / word
        if path.is_dir() and (word.endswith("/") or word.startswith((".", "/")) or "@" not in word):
            folders.append(path)
        elif word.endswith("/") or word.startswith("./"):
            raise NotFound(f"no such directory: `{word}`")
        else:
            known(word)
            references.append(word)
    if len(references) > 8:
        raise UsageError("at most 8 versions are compared at once")
    return references, folders
