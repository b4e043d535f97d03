"""Pages that only read a repository: of its owner in `dlv ui`, or a mirror on a hub."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import dlv.ui.models as models_page
import dlv.ui.pages as pages
import dlv.ui.series as series
from dlv.dataclass import dataclass
from dlv.errors import DlvError, UsageError
from dlv.report.page import Section
from dlv.repository.handle import Repository
from dlv.terminal.output import error_lines
from dlv.ui.addresses import Addresses
from dlv.ui.frame import Frame, now
from dlv.ui.jobs import Job, Jobs
from dlv.ui.pages import OWNER, Visit
from dlv.ui.shell import Around, Shell

PATIENCE = 0.5  # seconds that a request for a result waits before it reports progress
LISTINGS = 8

# Below the base; the page of all versions has an address that is not the same everywhere.
PATHS = {
    "/rows": "rows",
    "/v/{ref:path}": "version",
    "/file/{ref:path}": "file",
    "/raw/{ref:path}": "raw",
    "/statistics/{ref:path}": "statistics",
    "/network/{ref:path}": "network",
    "/compare": "compare",
    "/weights": "weights",
    "/query": "query",
    "/complete": "complete",
    "/data/curves": "curves",
}


class Listings:
    """Tables of versions, kept as long as nothing changes."""

    def __init__(self, most: int = LISTINGS) -> None:
        self._most = most
        self._tables: OrderedDict[tuple[object, ...], models_page.Models] = OrderedDict()

    def get(
        self, key: tuple[object, ...], make: Callable[[], models_page.Models]
    ) -> models_page.Models:
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = make()
            with contextlib.suppress(KeyError):
                while len(self._tables) > self._most:
                    self._tables.popitem(last=False)
        return table


@dataclass(frozen=True)
class Opened:
    """A repository that is open for one request, and `state`, which changes when it does.

    `reopen` opens it once more for work that goes on after the request.
    """

    repository: Repository
    state: tuple[object, ...]
    reopen: Callable[[], contextlib.AbstractContextManager[Repository]]


class RepositoryPages:
    """Pages of one repository; each takes a request and returns a response."""

    def __init__(
        self,
        shell: Shell,
        opened: Opened,
        addresses: Addresses,
        around: Around,
        *,
        jobs: Jobs,
        listings: Listings,
        threads: int,
        visit: Visit = OWNER,
        frame: Frame | None = None,
    ) -> None:
        self.shell = shell
        self.opened = opened
        self.repository = opened.repository
        self.addresses = addresses
        self.around = {"base": addresses.base, "versions": addresses.versions(), **around}
        self.threads = threads
        self.visit = visit
        self.frame = frame or Frame.of_pages(now(), addresses)
        self._jobs = jobs
        self._listings = listings

    def _sections(self, title: str, sections: Sequence[Section], **values: Any) -> Any:
        return self.shell.sections(title, sections, self.around, **values)

    # All versions

    def _listing(self, asked: models_page.Asked) -> models_page.Models:
        """The table, as long as nothing has changed."""
        key = (self.addresses.base, asked, *self.opened.state)
        with self.visit.limiting(self.repository):
            return self._listings.get(key, partial(models_page.models, self.repository, asked))

    def models(self, request: Any) -> Any:
        asked = models_page.Asked.of(request.query_params)
        fault = ""
        try:
            table = self._listing(asked)
        except DlvError as error:
            fault = "\n".join(error_lines(error))
            table = self._listing(models_page.Asked())
            table = pages.without_rows(table)
        start = number_of(request.query_params.get("from"), 0)
        total = table.count
        shown = models_page.rows(self.repository, table, self.frame, start)
        after = start + models_page.WINDOW
        to = self.addresses
        return self.shell.render(
            "models.html", self.visit.title, self.around, here=self.visit.title, asked=asked,
            fault=fault, total=total, command=asked.command, names=models_page.completions(table),
            head=models_page.head(table, asked, self.frame), rows=shown,
            compare=to.to("/compare"),
            rows_address=to.to("/rows", asked.query(), spaces="%20"),
            columns=",".join(asked.columns or table.columns), choice=models_page.choice(table),
            clear=to.versions(asked.query(where="", sort="")),
            more=to.versions(asked.query(**{"from": str(after)})) if after < total else "",
            count=f"{total:,} version{'' if total == 1 else 's'}",
            empty="No versions match." if asked.where else self.visit.empty,
        )  # fmt: skip

    def rows(self, request: Any) -> Any:
        table = self._listing(models_page.Asked.of(request.query_params))
        start, count = (
            number_of(request.query_params.get(name), default)
            for name, default in (("from", 0), ("count", models_page.WINDOW))
        )
        rows = models_page.rows(self.repository, table, self.frame, start, count)
        return self.shell.html(rows)

    # One version

    def version(self, request: Any) -> Any:
        ref = request.path_params["ref"]
        described, sections = pages.version(self.repository, ref, self.frame, self.visit)
        about = described.version.message.partition("\n")[0]
        return self._sections(
            described.label, sections, about=about, command=f"dlv desc {described.label}",
            charts=True, lead=pages.version_links(described, self.frame, self.visit),
        )  # fmt: skip

    def statistics(self, request: Any) -> Any:
        ref = request.path_params["ref"]
        sections = pages.statistics(self.repository, ref, self.frame, self.visit)
        return self.shell.html("".join(section.body for section in sections))

    def network(self, request: Any) -> Any:
        ref = request.path_params["ref"]
        fold = request.query_params.get("fold") != "0"
        label, sections, lead = pages.network(self.repository, ref, self.frame, fold=fold)
        return self._sections(
            f"Network of {label}", sections, command=f"dlv desc {label} --network", lead=lead
        )

    def file(self, request: Any) -> Any:
        ref, path = request.path_params["ref"], request.query_params.get("path", "")
        label, sections = pages.file(self.repository, ref, path, self.frame)
        return self._sections(f"{path} of {label}", sections, command=f"dlv show {label}:{path}")

    def raw(self, request: Any) -> Any:
        """A file to be saved; the browser shows and runs nothing of it."""
        ref, path = request.path_params["ref"], request.query_params.get("path", "")
        name, content = pages.file_content(self.repository, ref, path)
        return self.shell.download(name, content)

    # Comparison

    def compare(self, request: Any) -> Any:
        refs = request.query_params.getlist("v")
        everything = request.query_params.get("all") == "1"
        if len(refs) < 2:
            return self._sections(
                "Compare", [], empty="Choose two to eight versions on the page of models."
            )
        title, sections, lead = pages.compare(
            self.repository, refs, self.frame, self.visit, everything=everything, jobs=self.threads
        )
        command = f"dlv diff {' '.join(refs)}" + (" --all" if everything else "")
        return self._sections(title, sections, command=command, charts=True, lead=lead)

    def weights(self, request: Any) -> Any:
        """The part of a comparison that takes long; the script of the page asks until it is here.

        The address says everything, so that any process of a hub can answer.
        """
        refs = request.query_params.getlist("v")
        everything = request.query_params.get("all") == "1"
        if not 1 < len(refs) <= pages.MOST_COMPARED:
            raise UsageError("two to eight versions are compared")
        pages.check_bytes(pages.bytes_that_differ(self.repository, refs), self.visit, "dlv diff")
        reopen, frame, threads = self.opened.reopen, self.frame, self.threads

        def work(job: Job) -> list[Section]:
            with reopen() as repository:
                return pages.weights(
                    repository, refs, frame, job, everything=everything, jobs=threads
                )

        key = ("weights", self.addresses.base, *self.opened.state, *refs, everything)
        return job_part(self.shell, self._jobs.begin(key, work, again=False))

    # Queries

    def query(self, request: Any) -> Any:
        words = request.query_params.get("q", "")
        explain = request.query_params.get("explain") == "1"
        answer = pages.query(self.repository, words, self.frame, self.visit, explain=explain)
        option = "--explain " if explain else ""
        quoted = words.replace("'", "'\\''")
        command = f"dlv query {option}'{quoted}'" if words.strip() else ""
        return self.shell.render(
            "query.html", "Query", self.around, here="Query", text=words, command=command,
            action=self.addresses.to("/query"), complete=self.addresses.to("/complete"), **answer,
        )  # fmt: skip

    def complete(self, request: Any) -> Any:
        words = request.query_params.get("text", "")[-4000:]
        return self.shell.json(pages.complete(self.repository, words, self.visit))

    # Curves

    def curves(self, request: Any) -> Any:
        query = request.query_params
        metric = query.get("metric")
        curves = series.of_versions(
            self.repository, query.getlist("v"), [metric] if metric else [], query.get("steps")
        )
        return self.shell.json(curves)


def job_part(shell: Shell, job: Job) -> Any:
    """The result of a job, or how far it is."""
    if not job.ended.wait(PATIENCE):
        return shell.html(pages.progress(job), 202)
    if job.error is not None:
        return shell.html(shell.fault_part(job.error))
    return shell.html("".join(section.html() for section in job.sections or ()))


def number_of(word: str | None, default: int) -> int:
    """Return a natural number from an address."""
    if word is None:
        return default
    if not (word.isascii() and word.isdigit() and len(word) < 10):
        raise UsageError(f"`{word[:40]}` is not a number")
    return int(word)


def navigation(names: Mapping[str, str], addresses: Addresses) -> list[tuple[str, str]]:
    """Links at the top: (name, address)."""
    return [(name, addresses.to(path)) for name, path in names.items()]
