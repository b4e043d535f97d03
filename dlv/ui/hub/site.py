"""The pages of a hub: addresses, who may see what, forms, errors as pages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import sqlalchemy as sa
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute, Match, Route

import dlv.ui.repository_pages as repository_pages
from dlv.errors import DlvError, NotFound
from dlv.hub import service
from dlv.hub.server import oidc, repositories
from dlv.hub.server.access import Caller, Place, place_of
from dlv.hub.server.hub import Hub
from dlv.hub.server.limiting import Limiter
from dlv.hub.server.refusal import Refused, not_found
from dlv.report.markup import Html
from dlv.repository.handle import Repository
from dlv.ui.hub import account_pages, repository_page, search_pages, settings_pages
from dlv.ui.hub.context import TABLE, Context
from dlv.ui.hub.mirrors import Mirror, Mirrors, NotReady
from dlv.ui.hub.visitors import Visitor, check_form, read_form, redirect, visitor_of
from dlv.ui.jobs import Jobs
from dlv.ui.pages import Visit
from dlv.ui.repository_pages import Listings, Opened, RepositoryPages, number_of
from dlv.ui.shell import Shell

VISITOR = Visit(
    limited=True,
    seconds=10.0,
    weights=256 << 20,
    versions=300,
    title="Versions",
    empty="Nothing is published here yet.",
)
# Of what does not exist, and of what the visitor may not know of.
MISSING = NotFound("nothing is here", hint="check the address; private repositories need a login")
LISTINGS = 32
THREADS = 1  # of a comparison; requests share the processor
AGAIN = 3  # seconds after which a page that is not ready loads again
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    # The origin must be sent with forms, and nothing to other sites.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_API = ("/v1", "/v1/")

Show = Callable[[Visitor, Any], Any]
Change = Callable[[Visitor, Any, dict[str, str]], Any]


def pages(hub: Hub) -> list[BaseRoute]:
    """Return the routes of the pages, for `dlv.hub.server.serving.serve`."""
    return HubSite(hub).routes()


class PageRoute(Route):
    """A page; the API has its addresses for itself."""

    def matches(self, scope: Any) -> tuple[Match, Any]:
        if scope["path"].startswith(_API[1]) or scope["path"] == _API[0]:
            return Match.NONE, {}
        return super().matches(scope)


class HubSite:
    """The pages of one hub in one process."""

    def __init__(self, hub: Hub, mirrors: Mirrors | None = None) -> None:
        self.hub = hub
        shell = Shell(self._log)
        self.context = Context(hub, shell, mirrors or Mirrors(hub), Jobs(), Listings(LISTINGS))
        self._limiter = Limiter(hub.limits)

    def close(self) -> None:
        self.context.jobs.close()
        self.context.mirrors.close()

    def _log(self, words: str) -> None:
        self.hub.log("page", "-", RuntimeError(words))

    def routes(self) -> list[BaseRoute]:
        context, base = self.context, "/{namespace}/{repository}"
        whole: dict[str, tuple[Show, Change | None]] = {
            "/": (partial(search_pages.home, context), None),
            "/search": (partial(search_pages.results, context), None),
            "/login": (partial(account_pages.login, context), self._log_in),
            "/logout": (lambda *_: redirect(context.to("/")), self._log_out),
            "/login/openid": (partial(account_pages.begin_openid, context), None),
            oidc.CALLBACK: (partial(account_pages.end_openid, context), None),
            "/login/device": (partial(account_pages.device, context), self._confirm_device),
            "/tokens": (self._tokens, self._change_tokens),
            "/static/{name}": (self._static, None),
            "/{namespace}": (partial(repository_page.namespace, context), None),
            "/{namespace}/-/settings": (
                partial(self._namespace_settings, form=None),
                self._namespace_settings,
            ),
            f"{base}/-/settings": (
                partial(self._repository_settings, form=None),
                self._repository_settings,
            ),
            base: (self._of_place(self._overview), None),
            f"{base}{TABLE}": (self._of_place(partial(self._shown, "models")), None),
        }
        for path, name in repository_pages.PATHS.items():
            whole[base + path] = (self._of_place(partial(self._shown, name)), None)
        whole["/{path:path}"] = (self._missing, None)
        return [
            PageRoute(
                path,
                self._handler(show, change),
                methods=["GET", "POST"] if change is not None else ["GET"],
            )
            for path, (show, change) in whole.items()
        ]

    # How an address is answered

    def _handler(self, show: Show, change: Change | None) -> Callable[[Any], Any]:
        async def handle(request: Any) -> Any:
            form = None
            try:
                form = await read_form(request) if request.method == "POST" else None
            except Refused as refused:
                return self._refused(Visitor(Caller()), refused)
            return await run_in_threadpool(self._answer, request, show, change, form)

        return handle

    def _answer(
        self, request: Any, show: Show, change: Change | None, form: dict[str, str] | None
    ) -> Any:
        visitor = Visitor(Caller())
        request.scope.get("dlv", {})["route"] = "page"
        try:
            visitor = visitor_of(self.hub, request)
            request.scope.get("dlv", {})["caller"] = visitor.caller.name
            self._limit(visitor, request)
            if form is None:
                response = show(visitor, request)
            else:
                assert change is not None
                check_form(self.hub, request, visitor, form)
                response = change(visitor, request, form)
        except Refused as refused:
            response = self._refused(visitor, refused)
        except NotReady as error:
            response = self._not_ready(visitor, error)
        except DlvError as error:
            response = self.context.shell.fault(error, self.context.around(visitor))
        except (sa.exc.OperationalError, sa.exc.TimeoutError) as error:
            self.hub.log("page", request.url.path[:200], error)
            busy = DlvError("the database of the hub is busy or restarting", hint="try again")
            response = self.context.shell.fault(busy, self.context.around(visitor), 503)
        except Exception as error:
            self.hub.log("page", request.url.path[:200], error)
            told = DlvError("internal error of the hub", why="a bug in dlv; its log says more")
            response = self.context.shell.fault(told, self.context.around(visitor), 500)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    def _limit(self, visitor: Visitor, request: Any) -> None:
        if request.url.path.startswith(self.context.root + "/static/"):
            return
        if visitor.caller.known:
            self._limiter.check_token(visitor.caller)
        else:
            self._limiter.check_anonymous(visitor.caller.origin)

    def _refused(self, visitor: Visitor, refused: Refused) -> Any:
        around = self.context.around(visitor)
        error = MISSING if refused.status == 404 else refused.error
        response = self.context.shell.fault(error, around, refused.status)
        for name, value in refused.headers.items():
            response.headers[name] = value
        return response

    def _not_ready(self, visitor: Visitor, error: NotReady) -> Any:
        lead = Html(f'<div data-again="{AGAIN}">{self.context.shell.fault_part(error)}</div>')
        around = self.context.around(visitor)
        response = self.context.shell.sections("Preparing", [], around, lead=lead, status=503)
        response.headers["Retry-After"] = str(AGAIN)
        return response

    def _missing(self, _: Visitor, __: Any) -> Any:
        raise not_found()

    def _static(self, _: Visitor, request: Any) -> Any:
        return self.context.shell.static(request.path_params["name"])

    # Repositories

    def _place(self, visitor: Visitor, request: Any) -> Place:
        """Return the repository of an address; what may not be known of does not exist."""
        parts = request.path_params
        with self.hub.database.reading() as connection:
            place = place_of(connection, visitor.caller, parts["namespace"], parts["repository"])
        if place is None:
            raise not_found()
        return place

    def _of_place(self, show: Callable[[Visitor, Any, Place, Mirror], Any]) -> Show:
        """A page over the mirror of a repository; its errors keep the frame of the repository."""

        def page(visitor: Visitor, request: Any) -> Any:
            place = self._place(visitor, request)
            try:
                with self.context.mirrors.open(place) as mirror:
                    return show(visitor, request, place, mirror)
            except NotReady:
                raise
            except DlvError as error:
                around = self.context.around_place(visitor, place)
                return self.context.shell.fault(error, around)

        return page

    def _overview(self, visitor: Visitor, _: Any, place: Place, mirror: Mirror) -> Any:
        return repository_page.repository(self.context, visitor, place, mirror)

    def _shown(
        self, name: str, visitor: Visitor, request: Any, place: Place, mirror: Mirror
    ) -> Any:
        """A page that `dlv ui` has, too; aliases lead to the versions that they name now."""
        there = self._without_aliases(place, request)
        if there is not None:
            return redirect(there)

        @contextlib.contextmanager
        def reopen() -> Iterator[Repository]:
            with self.context.mirrors.open(place) as again:
                yield again.repository

        state = (place.uuid, mirror.state.seen, mirror.state.folder)
        shown = RepositoryPages(
            self.context.shell,
            Opened(mirror.repository, state, reopen),
            self.context.addresses(place.namespace, place.name),
            self.context.around_place(visitor, place),
            jobs=self.context.jobs,
            listings=self.context.listings,
            threads=THREADS,
            visit=VISITOR,
        )
        return getattr(shown, name)(request)

    def _without_aliases(self, place: Place, request: Any) -> str | None:
        """Return the address with numbers of versions if it has aliases such as @production."""
        ref, query = request.path_params.get("ref", ""), request.query_params.multi_items()
        if not any(map(service.has_alias, [ref, *(value for key, value in query if key == "v")])):
            return None
        with self.hub.database.reading() as connection:
            rows = repositories.aliases(connection, place.id)
        known = {(str(row["name"]), str(row["alias"])): int(str(row["number"])) for row in rows}
        numbered = partial(service.numbered, known=known)
        query = [(key, numbered(value) if key == "v" else value) for key, value in query]
        path = quote(request.scope["path"].removesuffix(ref) + numbered(ref), safe="@/")
        return f"{path}?{urlencode(query)}" if query else path

    # Accounts

    def _log_in(self, visitor: Visitor, _: Any, form: dict[str, str]) -> Any:
        origin = visitor.caller.origin
        response = account_pages.log_in(self.context, visitor, form)
        if response is not None:
            return response
        self._limiter.check_guess(origin)
        fault = "The token is not valid: it is wrong, has expired or was revoked."
        after = form.get("next", "")
        return account_pages.login_page(self.context, visitor, after, fault, 401)

    def _log_out(self, visitor: Visitor, _: Any, __: Mapping[str, str]) -> Any:
        return account_pages.log_out(self.context, visitor)

    def _known(self, visitor: Visitor, request: Any) -> Any:
        """Lead visitors without an account to the login, and back."""
        if visitor.caller.known:
            return None
        back = self.context.root + request.scope["path"]
        return redirect(self.context.to("/login", {"next": back}))

    def _confirm_device(self, visitor: Visitor, request: Any, form: dict[str, str]) -> Any:
        return self._known(visitor, request) or account_pages.confirm_device(
            self.context, visitor, form
        )

    def _tokens(self, visitor: Visitor, request: Any) -> Any:
        return self._known(visitor, request) or account_pages.list_tokens(self.context, visitor)

    def _change_tokens(self, visitor: Visitor, request: Any, form: dict[str, str]) -> Any:
        return self._known(visitor, request) or account_pages.change_tokens(
            self.context, visitor, form
        )

    # Settings

    def _repository_settings(
        self, visitor: Visitor, request: Any, form: dict[str, str] | None
    ) -> Any:
        place = self._place(visitor, request)
        return self._settings(
            visitor, request, settings_pages.of_repository(self.context, place), form
        )

    def _namespace_settings(
        self, visitor: Visitor, request: Any, form: dict[str, str] | None
    ) -> Any:
        name = request.path_params["namespace"]
        subject = settings_pages.of_namespace(self.context, visitor, name)
        return self._settings(visitor, request, subject, form)

    def _settings(
        self,
        visitor: Visitor,
        request: Any,
        subject: settings_pages.Subject,
        form: dict[str, str] | None,
    ) -> Any:
        if form is not None:
            return settings_pages.change(self.context, visitor, subject, form)
        before = number_of(request.query_params.get("before"), 0)
        return settings_pages.show(self.context, visitor, subject, before)
