"""The shell of all pages: templates, answers, errors as pages and never as tracebacks."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from html import escape as html_escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dlv.errors import DlvError, NotFound, UsageError, require
from dlv.report.markup import Html, text
from dlv.report.page import Section, style
from dlv.terminal.output import error_lines
from dlv.ui.gate import POLICY

HERE = Path(__file__).parent
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
_STATIC = re.compile(r"[a-z]+(?:\.min)?\.(js|css)\Z")
_TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_STATUS: Mapping[type[DlvError], int] = {NotFound: 404, UsageError: 400}

# What a page is set into: `pages` are the links at the top, `location` is said at their end.
Around = Mapping[str, Any]


class Shell:
    """Templates and responses that all pages share."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self.log = log
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

    def handler(self, answer: Callable[[Any], Any]) -> Callable[..., Awaitable[Any]]:
        """Return a handler for an address that answers in a thread."""
        concurrency = require("starlette.concurrency", "ui")

        @functools.wraps(answer)
        async def handle(request: Any, *_: Any) -> Any:
            return await concurrency.run_in_threadpool(answer, request)

        return handle

    def attempt(self, show: Callable[[], Any], refused: Callable[[DlvError], Any]) -> Any:
        """Return the page that is shown, or the one about the error."""
        try:
            return show()
        except DlvError as error:
            return refused(error)
        except Exception as error:
            import traceback

            self.log(traceback.format_exc())
            told = DlvError(f"internal: {type(error).__name__}: {error}", why="a bug in dlv")
            return refused(told)

    def fault(self, error: DlvError, around: Around, status: int | None = None) -> Any:
        """A page about an error."""
        if status is None:
            found = (code for kind, code in _STATUS.items() if isinstance(error, kind))
            status = next(found, 500)
        title = {404: "Not found", 400: "Bad request", 403: "Not allowed"}.get(status, "Error")
        return self.sections(title, [], around, lead=self.fault_part(error), status=status)

    def fault_part(self, error: DlvError) -> Html:
        lines = text("\n".join(error_lines(error)))
        return Html(f'<div class="fault" role="alert"><p>{lines}</p></div>')

    def render(
        self, template: str, title: str, around: Around, status: int = 200, **values: Any
    ) -> Any:
        context = {
            "title": title, "heading": "", "about": "", "command": "", "here": "", "charts": False,
            "root": "", "base": "", "versions": "", "home": "/", "trail": [], "account": None,
            "location": "", "place": "On the terminal:", **around, **values,
        }  # fmt: skip
        return self.html(self._templates.get_template(template).render(**context), status)

    def sections(
        self,
        title: str,
        sections: Sequence[Section],
        around: Around,
        *,
        status: int = 200,
        **values: Any,
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
        return self.render("sections.html", title, around, status, sections=shown, **context)

    def html(self, markup: str, status: int = 200, headers: Mapping[str, str] = HEADERS) -> Any:
        responses = require("starlette.responses", "ui")
        return responses.HTMLResponse(markup, status, dict(headers))

    def json(self, value: Any) -> Any:
        responses = require("starlette.responses", "ui")
        return responses.JSONResponse(value, headers={"Cache-Control": "no-store"})

    def download(self, name: str, content: bytes) -> Any:
        """A file of a version, as data that the browser saves."""
        responses = require("starlette.responses", "ui")
        headers = {
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        }
        return responses.Response(content, 200, headers, "application/octet-stream")

    def static(self, name: str) -> Any:
        """A style sheet or a script."""
        responses = require("starlette.responses", "ui")
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


def _harmless(value: Any) -> Any:
    """Strings in templates without characters that turn or hide what follows; `value` does not."""
    return text(value) if isinstance(value, str) and not isinstance(value, Html) else value


def _value(value: str) -> Html:
    """A string as the value of a field, where it must stay what it is."""
    return Html(html_escape(value))
