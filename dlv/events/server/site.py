"""What one port answers: TensorBoard, and in front of it the routes of dlv and the guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dlv.events.provider.provider import Provider
from dlv.events.server.frontend import SAMPLES, stock
from dlv.events.server.legacy_answers import SIZES
from dlv.events.server.legacy_http import LegacyApi
from dlv.events.server.media import BlobRoute
from dlv.events.server.responses import App, Environ, Start
from dlv.events.server.security import Guard
from dlv.events.server.serving import Shield

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

    def __init__(self, prefix: str, below: App, rest: App) -> None:
        self._prefix = prefix
        self._below = below
        self._rest = rest

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path != self._prefix and not path.startswith(f"{self._prefix}/"):
            return self._rest(environ, start)
        return self._below(environ | {"PATH_INFO": path.removeprefix(self._prefix)}, start)
