"""The pages of `dlv ui`: addresses, what each shows, errors as pages; all of it read-only."""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from html import escape as html_escape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import dlv.ui.models as models_page
import dlv.ui.pages as pages
import dlv.ui.series as series
from dlv.errors import DlvError, NotFound, UsageError, require
from dlv.events.server.security import Guard
from dlv.report.markup import Html, text
from dlv.report.page import Section, style
from dlv.repository.handle import Repository
from dlv.terminal.output import error_lines
from dlv.terminal.table import Cell, Text
from dlv.ui.frame import Frame, now
from dlv.ui.gate import POLICY, Application, Gate
from dlv.ui.jobs import Job, Jobs

HERE = Path(__file__).parent
PATIENCE = 0.5  # seconds that a request for a result waits before it reports progress
NAV = (
    ("Models", "/"), ("Query", "/query"), ("Sweeps", "/sweeps"), ("Evaluate", "/evaluate"),
    ("Storage", "/storage"), ("Live", "/live"), ("TensorBoard", "/tensorboard"),
)  # fmt: skip
_STATIC = re.compile(r"[a-z]+(?:\.min)?\.(js|css)\Z")
_TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_STATUS: Mapping[type[DlvError], int] = {NotFound: 404, UsageError: 400}

Query = Mapping[str, str]
# From a version to its page.
_LABEL = re.compile(r"[^@/\s]+@\d+(?:/\d+)?\Z")


def links(title: str, cell: Cell) -> str | None:
    """Where a cell leads: labels of versions lead to their pages."""
    value = cell.value if isinstance(cell, Text) else cell
    if title in ("version", "parents", "model", "of", "base") and isinstance(value, str):
        return models_page.address(value) if _LABEL.match(value) else None
    return None


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
        self._board = board
        self._log = log
        self._now = now
        self._listings: dict[tuple[object, ...], models_page.Models] = {}
        jinja = require("jinja2", "ui")
        self._templates = jinja.Environment(
            loader=jinja.FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=jinja.StrictUndefined,
            finalize=_harmless,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["value"] = _value

    @property
    def frame(self) -> Frame:
        return Frame(self._now(), links)

    def app(self, host: str, port: int, token: str) -> Application:
        """The application behind the guard."""
        applications = require("starlette.applications", "ui")
        route = require("starlette.routing", "ui").Route
        found = [
            route("/", self._page(self._models)),
            route("/rows", self._page(self._rows)),
            route("/v/{ref:path}", self._page(self._version)),
            route("/file/{ref:path}", self._page(self._file)),
            route("/statistics/{ref:path}", self._page(self._statistics)),
            route("/network/{ref:path}", self._page(self._network)),
            route("/compare", self._page(self._compare)),
            route("/query", self._page(self._query)),
            route("/complete", self._page(self._complete)),
            route("/sweeps", self._page(self._sweeps)),
            route("/sweeps/{run}", self._page(self._sweep)),
            route("/evaluate", self._page(self._evaluate)),
            route("/storage", self._page(self._storage)),
            route("/jobs/{name}", self._page(self._job)),
            route("/live", self._page(self._live)),
            route("/data/curves", self._page(self._curves)),
            route("/data/live", self._page(self._live_data)),
            route("/tensorboard", self._page(self._tensorboard)),
            route("/static/{name}", self._page(self._static)),
        ]
        missing = self._page(self._missing)
        inner = applications.Starlette(routes=found, exception_handlers={404: missing})
        return Gate(inner, Guard(_unused, host=host, port=port, token=token))

    def close(self) -> None:
        self.jobs.close()
        self.live.close()

    # How an address is answered

    def _page(self, show: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """Answer in a thread; errors become pages, never tracebacks."""
        concurrency = require("starlette.concurrency", "ui")

        @functools.wraps(show)
        async def answer(request: Any, *_: Any) -> Any:
            return await concurrency.run_in_threadpool(self._answer, show, request)

        return answer

    def _answer(self, show: Callable[..., Any], request: Any) -> Any:
        try:
            return show(request)
        except DlvError as error:
            return self._refused(error)
        except Exception as error:
            import traceback

            self._log(traceback.format_exc())
            told = DlvError(f"internal: {type(error).__name__}: {error}", why="a bug in dlv")
            return self._refused(told)

    def _refused(self, error: DlvError) -> Any:
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
        body = self.frame.html("\n".join(error_lines(error)))
        lead = Html(f'<div class="fault" role="alert">{body}</div>')
        title = {404: "Not found", 400: "Bad request"}.get(status, "Error")
        return self._sections(title, [], lead=lead, status=status)

    def _render(self, template: str, title: str, status: int = 200, **values: Any) -> Any:
        context = {
            "title": title, "heading": "", "about": "", "command": "", "here": "", "charts": False,
            "pages": NAV, "location": str(self.repository.root), **values,
        }  # fmt: skip
        return self._html(self._templates.get_template(template).render(**context), status)

    def _sections(
        self, title: str, sections: Sequence[Section], *, status: int = 200, **values: Any
    ) -> Any:
        """A page of sections, with a list of them if there are many."""
        named = [(f"s{place}", s.title) for place, s in enumerate(sections) if s.title]
        shown = [
            Html(section.html().replace("<section>", f'<section id="s{place}">', 1))
            for place, section in enumerate(sections)
        ]
        titles = [(key, name.partition(":")[0]) for key, name in named]
        contents = [(key, name[:1].upper() + name[1:]) for key, name in titles]
        context = {
            "lead": "", "empty": "Nothing here.", "contents": contents if len(contents) > 3 else [],
            **values,
        }  # fmt: skip
        return self._render("sections.html", title, status, sections=shown, **context)

    def _html(self, markup: str, status: int = 200) -> Any:
        responses = require("starlette.responses", "ui")
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
        return responses.HTMLResponse(markup, status, headers)

    def _json(self, value: Any) -> Any:
        responses = require("starlette.responses", "ui")
        return responses.JSONResponse(value, headers={"Cache-Control": "no-store"})

    def _missing(self, _: Any) -> Any:
        raise NotFound("no such page", hint="the links at the top lead on")

    def _static(self, request: Any) -> Any:
        responses = require("starlette.responses", "ui")
        name = request.path_params["name"]
        if not _STATIC.match(name):
            raise NotFound("no such file")
        if name == "style.css":
            content = style()
        else:
            path = HERE / "static" / name
            if not path.is_file():
                raise NotFound("no such file")
            content = path.read_text(encoding="utf-8")
        headers = {"Cache-Control": "no-cache"}
        return responses.Response(
            content, headers=headers, media_type=_TYPES[name.rpartition(".")[2]]
        )

    # Models

    def _listing(self, asked: models_page.Asked) -> models_page.Models:
        """The table, as long as nothing has changed."""
        state = self.repository.database.value("PRAGMA data_version")
        key = (asked, state, self.repository.head)
        if key not in self._listings:
            if len(self._listings) > 8:
                self._listings.clear()
            self._listings[key] = models_page.models(self.repository, asked)
        return self._listings[key]

    def _models(self, request: Any) -> Any:
        asked = models_page.Asked.of(request.query_params)
        fault = ""
        try:
            table = self._listing(asked)
        except DlvError as error:
            fault = "\n".join(error_lines(error))
            table = self._listing(models_page.Asked())
            table = pages.without_rows(table)
        start = _number(request.query_params.get("from"), 0)
        total = table.count
        shown = models_page.rows(self.repository, table, self.frame, start)
        after = start + models_page.WINDOW
        rows_address = asked.address().replace("/", "/rows", 1)
        return self._render(
            "models.html", "Models", here="Models", asked=asked, fault=fault, total=total,
            command=asked.command, names=models_page.completions(table),
            head=models_page.head(table, asked), rows=shown, rows_address=rows_address,
            columns=",".join(asked.columns or table.columns), choice=models_page.choice(table),
            clear=asked.address(where="", sort=""),
            more=asked.address(**{"from": str(after)}) if after < total else "",
            count=f"{total:,} version{'' if total == 1 else 's'}",
            empty="No versions match." if asked.where else
            "No versions yet. Commit one: dlv add . && dlv commit -m 'first'",
        )  # fmt: skip

    def _rows(self, request: Any) -> Any:
        table = self._listing(models_page.Asked.of(request.query_params))
        start, count = (
            _number(request.query_params.get(name), default)
            for name, default in (("from", 0), ("count", models_page.WINDOW))
        )
        return self._html(models_page.rows(self.repository, table, self.frame, start, count))

    # One version

    def _version(self, request: Any) -> Any:
        ref = request.path_params["ref"]
        described, sections = pages.version(self.repository, ref, self.frame)
        about = described.version.message.partition("\n")[0]
        return self._sections(
            described.label, sections, about=about, command=f"dlv desc {described.label}",
            charts=True, lead=pages.version_links(described),
        )  # fmt: skip

    def _statistics(self, request: Any) -> Any:
        sections = pages.statistics(self.repository, request.path_params["ref"], self.frame)
        return self._html("".join(section.body for section in sections))

    def _network(self, request: Any) -> Any:
        ref = request.path_params["ref"]
        fold = request.query_params.get("fold") != "0"
        label, sections, lead = pages.network(self.repository, ref, self.frame, fold=fold)
        return self._sections(
            f"Network of {label}", sections, command=f"dlv desc {label} --network", lead=lead
        )

    def _file(self, request: Any) -> Any:
        ref, path = request.path_params["ref"], request.query_params.get("path", "")
        label, sections = pages.file(self.repository, ref, path, self.frame)
        return self._sections(f"{path} of {label}", sections, command=f"dlv show {label}:{path}")

    # Comparison

    def _compare(self, request: Any) -> Any:
        refs = request.query_params.getlist("v")
        everything = request.query_params.get("all") == "1"
        if len(refs) < 2:
            return self._sections(
                "Compare", [], empty="Choose two to eight versions on the page of models."
            )
        title, sections, lead = pages.compare(
            self.repository,
            refs,
            self.frame,
            functools.partial(self._begin_weights, refs, everything),
            everything=everything,
            jobs=self.threads,
        )
        command = f"dlv diff {' '.join(refs)}" + (" --all" if everything else "")
        return self._sections(title, sections, command=command, charts=True, lead=lead)

    def _begin_weights(self, refs: Sequence[str], everything: bool) -> str:
        def work(job: Job) -> list[Section]:
            return pages.weights(
                self.repository, refs, self.frame, job, everything=everything, jobs=self.threads
            )

        return f"/jobs/{self.jobs.begin(('weights', *refs, everything), work)}"

    # Queries

    def _query(self, request: Any) -> Any:
        words = request.query_params.get("q", "")
        explain = request.query_params.get("explain") == "1"
        answer = pages.query(self.repository, words, self.frame, explain=explain)
        option = "--explain " if explain else ""
        quoted = words.replace("'", "'\\''")
        command = f"dlv query {option}'{quoted}'" if words.strip() else ""
        return self._render(
            "query.html", "Query", here="Query", text=words, command=command, **answer
        )

    def _complete(self, request: Any) -> Any:
        words = request.query_params.get("text", "")[-4000:]
        return self._json(pages.complete(self.repository, words))

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
            name = self.jobs.begin(("evaluate", *sorted(asked.items())), begin)
            lead = Html(lead + pages.waiting(f"/jobs/{name}", "Evaluating …"))
        return self._sections("Evaluate", sections, here="Evaluate", lead=lead, command=command)

    def _storage(self, request: Any) -> Any:
        asked = dict(request.query_params)
        add_up = functools.partial(
            pages.storage, self.repository, self.frame, asked, self._begin_plan
        )
        lead, sections = Html(""), []
        if pages.has_many_versions(self.repository):  # each is looked at
            name = self.jobs.begin(("storage", *sorted(asked.items())), lambda _: add_up())
            lead = pages.waiting(f"/jobs/{name}", "Adding up what versions take …")
        else:
            sections = add_up()
        return self._sections(
            "Storage", sections, here="Storage", empty="Nothing is stored yet.", lead=lead,
            command="dlv archive --dry-run" if asked.get("plan") else "dlv stats",
        )  # fmt: skip

    def _begin_plan(self, alpha: str) -> str:
        work = functools.partial(pages.plan, self.repository, alpha, self.frame, self.threads)
        return f"/jobs/{self.jobs.begin(('plan', alpha), work)}"

    def _job(self, request: Any) -> Any:
        job = self.jobs.get(request.path_params["name"])
        if job is None:
            raise NotFound("no such job")
        if not job.ended.wait(PATIENCE):
            return self._html(pages.progress(job), 202)
        if job.error is not None:
            body = self.frame.html("\n".join(error_lines(job.error)))
            return self._html(f'<div class="fault" role="alert">{body}</div>')
        return self._html("".join(section.html() for section in job.sections or ()))

    # Curves

    def _curves(self, request: Any) -> Any:
        query = request.query_params
        metric = query.get("metric")
        curves = series.of_versions(
            self.repository, query.getlist("v"), [metric] if metric else [], query.get("steps")
        )
        return self._json(curves)

    def _live(self, request: Any) -> Any:
        chosen = _number(request.query_params.get("folder"), 0)
        folders = [str(folder) for folder in self.live.folders]
        if folders and chosen >= len(folders):
            raise NotFound("no such log folder")
        command = f"dlv tensorboard {folders[chosen]}" if folders else ""
        return self._render(
            "live.html", "Live", here="Live", folders=folders, chosen=chosen, controls="",
            command=command, charts=True,
        )  # fmt: skip

    def _live_data(self, request: Any) -> Any:
        number = _number(request.query_params.get("folder"), 0)
        curves = self.live.scalars(number, request.query_params.get("seen", ""))
        if curves is None:
            return require("starlette.responses", "ui").Response(status_code=204)
        return self._json(curves)

    def _tensorboard(self, _: Any) -> Any:
        return require("starlette.responses", "ui").RedirectResponse(self._board(), 303)


def _number(word: str | None, default: int) -> int:
    if word is None:
        return default
    if not (word.isascii() and word.isdigit() and len(word) < 10):
        raise UsageError(f"`{word[:40]}` is not a number")
    return int(word)


def _harmless(value: Any) -> Any:
    """Strings in templates without characters that turn or hide what follows; `value` does not."""
    return text(value) if isinstance(value, str) and not isinstance(value, Html) else value


def _value(value: str) -> Html:
    """A string as the value of a field, where it must stay what it is."""
    return Html(html_escape(value))


def _unused(*_: Any) -> Any:
    raise AssertionError("the guard only refuses")


def address_of(reference: str) -> str:
    """The page of a version, for `dlv ui REF`."""
    return models_page.address(reference)


def compare_address(references: Sequence[str]) -> str:
    return f"/compare?{urlencode([('v', ref) for ref in references])}"
