"""The pages of `dlv ui`: addresses, what each shows, errors as pages; all of it read-only."""

from __future__ import annotations

import contextlib
import datetime
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dlv.ui.pages as pages
import dlv.ui.repository_pages as repository_pages
import dlv.ui.series as series
from dlv.errors import NotFound, require
from dlv.events.server.security import Guard
from dlv.report.markup import Html
from dlv.report.page import Section
from dlv.repository.handle import Repository
from dlv.ui.addresses import Addresses
from dlv.ui.frame import Frame, now
from dlv.ui.gate import Application, Gate
from dlv.ui.jobs import Jobs
from dlv.ui.repository_pages import Listings, Opened, RepositoryPages, number_of
from dlv.ui.shell import Shell

ADDRESSES = Addresses()
NAV = {
    "Models": "/", "Query": "/query", "Sweeps": "/sweeps", "Evaluate": "/evaluate",
    "Storage": "/storage", "Live": "/live", "TensorBoard": "/tensorboard",
}  # fmt: skip


class Site:
    """The pages of one repository."""

    def __init__(
        self,
        repository: Repository,
        live: series.Live,
        *,
        jobs: int,
        board: Callable[[], str],
        log: Callable[[str], None],
        now: Callable[[], datetime.datetime] = now,
    ) -> None:
        """`board` starts TensorBoard and says where it is."""
        self.repository = repository
        self.live = live
        self.threads = jobs
        self.jobs = Jobs()
        self.shell = Shell(log)
        self._board = board
        self._now = now
        self._listings = Listings()
        self._around = {
            "pages": repository_pages.navigation(NAV, ADDRESSES),
            "versions": ADDRESSES.versions(), "location": str(repository.root),
        }  # fmt: skip

    @property
    def frame(self) -> Frame:
        return Frame.of_pages(self._now(), ADDRESSES)

    def app(self, host: str, port: int, token: str) -> Application:
        """The application behind the guard."""
        applications = require("starlette.applications", "ui")
        route = require("starlette.routing", "ui").Route
        shown = {path: self._read(name) for path, name in repository_pages.PATHS.items()}
        own = {
            "/": self._read("models"),
            "/sweeps": self._sweeps,
            "/sweeps/{run}": self._sweep,
            "/evaluate": self._evaluate,
            "/storage": self._storage,
            "/jobs/{name}": self._job,
            "/live": self._live,
            "/data/live": self._live_data,
            "/tensorboard": self._tensorboard,
            "/static/{name}": lambda request: self.shell.static(request.path_params["name"]),
        }
        routes = [route(path, self._page(show)) for path, show in (shown | own).items()]
        missing = self._page(self._missing)
        inner = applications.Starlette(routes=routes, exception_handlers={404: missing})
        return Gate(inner, Guard(_unused, host=host, port=port, token=token))

    def close(self) -> None:
        self.jobs.close()
        self.live.close()

    # How an address is answered

    def _page(self, show: Callable[[Any], Any]) -> Callable[..., Any]:
        def answer(request: Any) -> Any:
            refused = functools.partial(self.shell.fault, around=self._around)
            return self.shell.attempt(lambda: show(request), refused)

        return self.shell.handler(answer)

    def _read(self, name: str) -> Callable[[Any], Any]:
        """A page that the hub has, too."""

        def show(request: Any) -> Any:
            return getattr(self._pages(), name)(request)

        return show

    def _pages(self) -> RepositoryPages:
        @contextlib.contextmanager
        def reopen() -> Iterator[Repository]:
            yield self.repository

        state = (self.repository.database.value("PRAGMA data_version"), self.repository.head)
        return RepositoryPages(
            self.shell,
            Opened(self.repository, state, reopen),
            ADDRESSES,
            self._around,
            jobs=self.jobs,
            listings=self._listings,
            threads=self.threads,
            frame=self.frame,
        )

    def _sections(self, title: str, sections: Sequence[Section], **values: Any) -> Any:
        return self.shell.sections(title, sections, self._around, **values)

    def _missing(self, _: Any) -> Any:
        raise NotFound("no such page", hint="the links at the top lead on")

    # Sweeps, evaluations, storage

    def _sweeps(self, _: Any) -> Any:
        sections = pages.sweeps(self.repository, self.frame)
        return self._sections(
            "Sweeps", sections, here="Sweeps", command="dlv trials",
            empty="No sweeps yet. A query with `evaluate` starts one: dlv help query",
        )  # fmt: skip

    def _sweep(self, request: Any) -> Any:
        name, about, sections = pages.sweep(self.repository, request.path_params["run"], self.frame)
        return self._sections(
            f"Sweep {name[:7]}", sections, here="Sweeps", about=about,
            command=f"dlv trials {name[:7]}",
        )  # fmt: skip

    def _evaluate(self, request: Any) -> Any:
        asked = dict(request.query_params)
        ref = asked.get("ref", "")
        lead, sections = pages.evaluations(self.repository, self.frame, asked)
        command = ""
        if ref:
            mode = " --progressive" if asked.get("progressive") else ""
            data = f" {asked['data']}" if asked.get("data") else ""
            command = f"dlv eval {ref}{data}{mode} --confusion --no-save"
            begin = functools.partial(pages.evaluate, self.repository, asked, self.frame)
            job = self.jobs.begin(("evaluate", *sorted(asked.items())), begin)
            where = ADDRESSES.to(f"/jobs/{job.name}")
            lead = Html(lead + pages.waiting(where, "Evaluating …"))
        return self._sections("Evaluate", sections, here="Evaluate", lead=lead, command=command)

    def _storage(self, request: Any) -> Any:
        asked = dict(request.query_params)
        add_up = functools.partial(
            pages.storage, self.repository, self.frame, asked, self._begin_plan
        )
        lead, sections = Html(""), []
        if pages.has_many_versions(self.repository):  # each is looked at
            job = self.jobs.begin(("storage", *sorted(asked.items())), lambda _: add_up())
            where = ADDRESSES.to(f"/jobs/{job.name}")
            lead = pages.waiting(where, "Adding up what versions take …")
        else:
            sections = add_up()
        return self._sections(
            "Storage", sections, here="Storage", empty="Nothing is stored yet.", lead=lead,
            command="dlv archive --dry-run" if asked.get("plan") else "dlv stats",
        )  # fmt: skip

    def _begin_plan(self, alpha: str) -> str:
        work = functools.partial(pages.plan, self.repository, alpha, self.frame, self.threads)
        return ADDRESSES.to(f"/jobs/{self.jobs.begin(('plan', alpha), work).name}")

    def _job(self, request: Any) -> Any:
        job = self.jobs.get(request.path_params["name"])
        if job is None:
            raise NotFound("no such job")
        return repository_pages.job_part(self.shell, job)

    # A training that goes on

    def _live(self, request: Any) -> Any:
        chosen = number_of(request.query_params.get("folder"), 0)
        folders = [str(folder) for folder in self.live.folders]
        if folders and chosen >= len(folders):
            raise NotFound("no such log folder")
        command = f"dlv tensorboard {folders[chosen]}" if folders else ""
        return self.shell.render(
            "live.html", "Live", self._around, here="Live", folders=folders, chosen=chosen,
            controls="", command=command, charts=True,
        )  # fmt: skip

    def _live_data(self, request: Any) -> Any:
        number = number_of(request.query_params.get("folder"), 0)
        curves = self.live.scalars(number, request.query_params.get("seen", ""))
        if curves is None:
            return require("starlette.responses", "ui").Response(status_code=204)
        return self.shell.json(curves)

    def _tensorboard(self, _: Any) -> Any:
        return require("starlette.responses", "ui").RedirectResponse(self._board(), 303)


def _unused(*_: Any) -> Any:
    raise AssertionError("the guard only refuses")


def address_of(reference: str) -> str:
    """The page of a version, for `dlv ui REF`."""
    return ADDRESSES.version(reference)


def compare_address(references: Sequence[str]) -> str:
    return ADDRESSES.compare(references)
