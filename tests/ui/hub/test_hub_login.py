"""Logging in at an OpenID Connect provider, by the pages."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3

from dlv.hub.server.hub import Hub
from dlv.hub.server.serving import application
from dlv.hub.server.settings import OpenId, Settings
from dlv.ui.hub.site import HubSite

URL = "https://hub.example.org"
# The provider for tests and the client use what their libraries have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def issuer() -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import oidc_provider_mock

        claims = {"email": "ada@example.org", "email_verified": True, "preferred_username": "ada"}
        users = [oidc_provider_mock.User(sub="1", claims=claims)]
        with oidc_provider_mock.run_server_in_thread(user_claims=users) as server:
            yield f"http://localhost:{server.server_port}"


@pytest.fixture
def client(issuer: str, tmp_path: Path) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient

    openid = OpenId(issuer, "dlv-hub", "hunter2", ("example.org",))
    database, objects = f"sqlite:///{tmp_path / 'hub.db'}", str(tmp_path / "objects")
    hub = Hub(Settings(database, objects, tmp_path, URL, openid=openid))
    site = HubSite(hub)
    client = TestClient(application(hub, site.routes()), base_url=URL, follow_redirects=False)
    yield client
    client.close()
    site.close()
    hub.close()


def back(address: str) -> str:
    """Log in at the provider; the path to which it sends the browser."""
    http = urllib3.PoolManager(retries=False)
    answer = http.request("POST", address, fields={"sub": "1"}, redirect=False)
    http.clear()
    parts = urlsplit(answer.headers["Location"])
    return f"{parts.path}?{parts.query}"


def test_a_login_comes_back_to_the_page_that_it_began_from(client: Any, issuer: str) -> None:
    page = client.get("/login?next=/tokens")
    assert "/login/openid?next=%2Ftokens" in page.text
    begun = client.get("/login/openid?next=/tokens")
    assert begun.status_code == 303
    assert begun.headers["Location"].startswith(issuer)
    cookie = begun.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "Secure" in cookie
    assert "Path=/login" in cookie
    path = back(begun.headers["Location"])
    done = client.get(path)
    assert (done.status_code, done.headers["Location"]) == (303, "/tokens")
    page = client.get("/tokens")
    assert page.status_code == 200
    assert ">ada</a>" in page.text
    assert client.get(path).status_code == 400  # each login comes back once


def test_another_browser_cannot_finish_a_login(client: Any) -> None:
    begun = client.get("/login/openid")
    path = back(begun.headers["Location"])
    client.cookies.clear()
    answer = client.get(path)
    assert answer.status_code == 400
    assert "dlv_session" not in answer.headers.get("Set-Cookie", "")


@pytest.mark.parametrize("after", ["https://evil.example/", "//evil.example"])
def test_a_login_leads_nowhere_else(client: Any, after: str) -> None:
    begun = client.get("/login/openid", params={"next": after})
    assert client.get(back(begun.headers["Location"])).headers["Location"] == "/"
