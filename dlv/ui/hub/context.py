"""What every page of a hub needs: the hub, the shell, mirrors, and who looks at the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from dlv.dataclass import dataclass
from dlv.errors import DlvError
from dlv.hub.server.access import Place, Role
from dlv.hub.server.hub import Hub
from dlv.ui.addresses import Addresses
from dlv.ui.hub.mirrors import Mirrors
from dlv.ui.hub.visitors import Visitor, root_of
from dlv.ui.jobs import Jobs
from dlv.ui.repository_pages import Listings
from dlv.ui.shell import Shell

TABLE = "/versions"  # of a repository, below its address


@dataclass(frozen=True)
class Context:
    """What pages share in one process."""

    hub: Hub
    shell: Shell
    mirrors: Mirrors
    jobs: Jobs
    listings: Listings

    @property
    def root(self) -> str:
        return root_of(self.hub.settings.url)

    def to(self, path: str, query: Mapping[str, Any] | None = None) -> str:
        """Return the address of a page of the hub."""
        words = urlencode({key: value for key, value in (query or {}).items() if value})
        return f"{self.root}{path}{'?' if words else ''}{words}"

    def namespace(self, name: str) -> str:
        return self.to(f"/{quote(name, safe='')}")

    def addresses(self, namespace: str, repository: str) -> Addresses:
        base = f"{self.namespace(namespace)}/{quote(repository, safe='')}"
        return Addresses(base, TABLE)

    def public(self, path: str) -> str:
        """Return an address for the terminal."""
        return f"{self.hub.settings.url.rstrip('/')}{path}"

    # What pages are set into

    def around(self, visitor: Visitor) -> dict[str, Any]:
        """The frame of a page of the hub."""
        caller = visitor.caller
        links = [("Log in", self.to("/login"))]
        if caller.known:
            links = [(caller.name, self.namespace(caller.name)), ("Tokens", self.to("/tokens"))]
        account = {"links": links, "secret": visitor.secret if caller.known else ""}
        return {"root": self.root, "home": self.to("/"), "pages": [], "account": account}

    def around_namespace(self, visitor: Visitor, namespace: str, role: Role) -> dict[str, Any]:
        address = self.namespace(namespace)
        pages = [("Repositories", address)]
        if role >= Role.ADMIN:
            pages.append(("Settings", f"{address}/-/settings"))
        return {**self.around(visitor), "trail": [(namespace, address)], "pages": pages}

    def around_place(self, visitor: Visitor, place: Place) -> dict[str, Any]:
        """The frame of a page of a repository."""
        to = self.addresses(place.namespace, place.name)
        trail = [(place.namespace, self.namespace(place.namespace)), (place.name, to.base)]
        pages = [("Overview", to.base), ("Versions", to.versions()), ("Query", to.to("/query"))]
        if place.role >= Role.MAINTAINER:
            pages.append(("Settings", to.to("/-/settings")))
        around = {**self.around(visitor), "trail": trail, "pages": pages}
        return {**around, "versions": to.versions(), "place": "In a clone:"}


def words_of(error: DlvError) -> str:
    """An error in a few lines, for a page that goes on below it."""
    near = f"did you mean: {', '.join(error.did_you_mean)}" if error.did_you_mean else None
    found = ""
    for part in (error.why, near, error.hint):
        if part and part not in found:
            found += f"\n{part}"
    return (found if error.message in found else f"{error.message}{found}").strip()
