"""What one port answers: TensorBoard, and in front of it the routes of dlv and the guard."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import UsageError, require
from dlv.events.provider.provider import Provider
from dlv.events.server.legacy_http import SIZES, LegacyApi
from dlv.events.server.security import App, BlobRoute, Environ, Guard, Start, refusal
from dlv.events.server.serving import Shield
from dlv.events.server.tb_provider import data_provider

EXTRA = "tensorboard"
# What opens files by itself, or only says what else could be installed.
_LEFT_OUT = ("debugger_v2", "profile_redirect", "wit_redirect")
# TensorBoard takes 0 for nothing, not for everything.
ALL = 1_000_000_000
# A browser can draw only so many points; pictures and the like it fetches one by one.
SAMPLES: Mapping[str, int] = {
    "scalars": 1000,
    "histograms": 200,
    "images": ALL,
    "audio": ALL,
    "text": ALL,
    "pr_curves": ALL,
    "mesh": ALL,
    "custom_scalars": 1000,
}
# What a request that makes no sense leads to within the plugins, which check little.
_CONFUSION = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

Log = Callable[[str], None]


def stock(
    ask: Callable[[], Provider],
    *,
    experiment: str,
    location: str,
    directory: Path,
    samples: Mapping[str, int] = SAMPLES,
    log: Log,
    released: Callable[[], None] = lambda: None,
) -> App:
    """A WSGI application. Only the projector reads `directory`; all else comes out of `ask`.

    `released` is called by a thread of TensorBoard's own that asks no more.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorBoard's own, which nobody here can mend
        default = require("tensorboard.default", EXTRA)
        program = require("tensorboard.program", EXTRA)
        application = require("tensorboard.backend.application", EXTRA)
        projector = require("tensorboard.plugins.projector.projector_plugin", EXTRA)
        plugins = [*_plugins(default), _quiet(projector.ProjectorPlugin, log, released)]
        board = program.TensorBoard(plugins=plugins)
        board.configure(
            argv=["dlv"],
            logdir=str(directory),
            host="127.0.0.1",
            window_title=f"dlv: {location}",
            samples_per_plugin={kind: size or ALL for kind, size in samples.items()},
        )
        app = application.TensorBoardWSGIApp(
            board.flags,
            board.plugin_loaders,
            data_provider=data_provider(ask, experiment=experiment, location=location),
            assets_zip_provider=board.assets_zip_provider,
        )
    _listen(log)
    return _Understanding(app, log)


def _plugins(default: Any) -> list[Any]:
    """Those that come with TensorBoard; what else is installed is code that nobody chose here."""
    return [
        plugin
        for plugin in default.get_static_plugins()
        if not any(
            f".{name}." in (plugin if isinstance(plugin, type) else type(plugin)).__module__
            for name in _LEFT_OUT
        )
    ]


def _quiet(plugin: Any, log: Log, released: Callable[[], None]) -> Any:
    """The projector looks for its files in a thread, whose failures nobody would catch."""

    def look(self: Any) -> None:
        try:
            plugin._determine_is_active(self)
        except Exception as error:  # whatever it is, it is asked again later
            log(f"projector: {type(error).__name__}: {error}")
            self._thread_for_determining_is_active = None
        finally:
            released()

    return type("Projector", (plugin,), {"_determine_is_active": look})


class _Understanding:
    """What the plugins fail at is a bad request, and no failure of the server."""

    def __init__(self, app: App, log: Log) -> None:
        self._app = app
        self._log = log

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        try:
            return self._app(environ, start)
        except _CONFUSION as error:
            path = environ.get("PATH_INFO", "")
            self._log(f"{path}: {type(error).__name__}: {error}")
            told = UsageError("TensorBoard cannot handle this request", why=type(error).__name__)
        return refusal(told).send(environ, start)


def _listen(log: Log) -> None:
    """TensorBoard's remarks go where the server's go."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log(record.getMessage())

    for name in ("tensorboard", "werkzeug"):
        logger = logging.getLogger(name)
        logger.handlers = [Handler()]
        logger.propagate = False


LEGACY = "/legacy"  # where the older API lies on the port of the pages


@dataclass(frozen=True)
class Site:
    """What is served. `ask` gives a thread the provider that answers, `released` takes it back.

    `directory` is for the projector alone; `sizes` say of how many points samples are, by kind.
    """

    ask: Callable[[], Provider]
    experiment: str
    location: str
    directory: Path
    log: Callable[[str], None]
    sizes: Mapping[str, int] = field(default_factory=dict)
    released: Callable[[], None] = lambda: None

    def pages(self, host: str, port: int, token: str) -> App:
        """TensorBoard, stored blobs, and the older API below its prefix."""
        samples = {kind: self.sizes.get(kind, size) for kind, size in SAMPLES.items()}
        board = stock(
            self.ask,
            experiment=self.experiment,
            location=self.location,
            directory=self.directory,
            samples=samples,
            log=self.log,
            released=self.released,
        )
        return self._guarded(_Below(LEGACY, self._legacy(), board), host, port, token)

    def legacy(self, host: str, port: int, token: str) -> App:
        """The older API, as it stood on a port of its own."""
        return self._guarded(self._legacy(), host, port, token)

    def _guarded(self, app: App, host: str, port: int, token: str) -> App:
        """Errors become answers behind the guard, which sees to the headers of all."""
        app = Shield(BlobRoute(app, self.ask), self.log)
        return Guard(app, host=host, port=port, token=token)

    def _legacy(self) -> LegacyApi:
        sizes = {kind: self.sizes.get(kind, size) for kind, size in SIZES.items()}
        return LegacyApi(self.ask, sizes, self.experiment)


class _Below:
    """Requests below a prefix go to one application, which does not see it, the rest to another."""

    def __init__(self, prefix: str, below: App, inner: App) -> None:
        self._prefix = prefix
        self._below = below
        self._rest = inner

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path != self._prefix and not path.startswith(f"{self._prefix}/"):
            return self._rest(environ, start)
        return self._below(environ | {"PATH_INFO": path.removeprefix(self._prefix)}, start)
