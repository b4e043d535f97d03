"""Accounts over HTTP: tokens, users, members, quotas, the audit log, and the login of programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlv.hub.server import audit, tokens
from dlv.hub.server.access import Role
from tests.hub.server.site import Reply, Site


@pytest.fixture
def site(tmp_path: Path, hub_database_url: str) -> Iterator[Site]:
    made = Site(tmp_path / "hub", hub_database_url)
    for name in ("ada", "bob"):
        made.user(name)
    made.user("root", operator=True)
    made.member("acme", "ada", "admin")
    yield made
    assert made.errors() == []
    with made.hub.database.reading() as connection:
        assert list(audit.faults(connection)) == []
    made.close()


def created(reply: Reply) -> Any:
    assert reply.status == 201, reply.body
    return reply.json


def test_me(site: Site) -> None:
    token = site.token("ada", role=Role.WRITER, namespace="acme", repository="vision")
    answer = site.send("GET", "/v1/me", token=token).json
    expires = answer.pop("expires")
    assert expires > "2026"
    assert answer == {
        "name": "ada", "operator": False, "role": "writer", "namespace": "acme",
        "repository": "vision",
    }  # fmt: skip
    assert site.send("GET", "/v1/me").status == 401


def test_the_life_of_a_token(site: Site) -> None:
    token = site.token("ada")
    body = {"name": "ci", "role": "writer", "namespace": "Acme", "days": 30}
    made = created(site.send("POST", "/v1/tokens", token=token, body=body))
    assert (made["role"], made["namespace"], made["repository"]) == ("writer", "acme", None)
    assert site.send("GET", "/v1/me", token=made["token"]).status == 200
    listed = site.send("GET", "/v1/tokens", token=token).json["tokens"]
    assert [each["name"] for each in listed] == ["t", "ci"]
    assert made["token"] not in str(listed)
    inner = site.send("GET", "/v1/tokens", token=made["token"]).json["tokens"]
    assert [each["name"] for each in inner] == ["ci"], "wider ones are not shown"
    path = f"/v1/tokens/{listed[0]['id']}"
    assert site.send("DELETE", path, token=made["token"]).status == 404
    assert site.send("DELETE", path, token=site.token("bob")).status == 404
    assert site.send("DELETE", f"/v1/tokens/{made['id']}", token=token).status == 204
    assert site.send("GET", "/v1/me", token=made["token"]).status == 401


def test_a_token_inherits_its_scope(site: Site) -> None:
    token = site.token("ada", role=Role.WRITER, namespace="acme", repository="vision")
    made = created(site.send("POST", "/v1/tokens", token=token, body={"name": "x"}))
    assert (made["role"], made["namespace"], made["repository"]) == ("writer", "acme", "vision")
    for body in ({"role": "admin"}, {"namespace": "other"}, {"repository": "speech"}):
        reply = site.send("POST", "/v1/tokens", token=token, body={"name": "x", **body})
        assert reply.status == 403, body


@pytest.mark.parametrize(
    "body",
    [
        {}, {"name": ""}, {"name": "x", "days": 0}, {"name": "x", "days": 367},
        {"name": "x", "role": "owner"}, {"name": "x", "namespace": "a b"},
        {"name": "x", "repository": "vision"}, {"name": "x", "namespace": "a", "repository": "/"},
        {"name": 5}, {"name": "x", "more": 1}, {"name": "x" * 200}, {"name": "a\x00b"},
        {"name": "x", "namespace": ""},
    ],
)  # fmt: skip
def test_tokens_that_are_not_valid(site: Site, body: dict[str, Any]) -> None:
    assert site.send("POST", "/v1/tokens", token=site.token("ada"), body=body).status == 422


def test_operators_add_and_change_users(site: Site) -> None:
    root = site.token("root")
    put = {"email": "eve@example.org"}
    made = created(site.send("PUT", "/v1/users/Eve", token=root, body=put))
    assert (made["name"], made["email"], made["operator"]) == ("eve", "eve@example.org", False)
    reply = site.send("PUT", "/v1/users/eve", token=root, body={"operator": True})
    assert (reply.status, reply.json["operator"], reply.json["email"]) == (200, True, put["email"])
    token = created(site.send("POST", "/v1/users/eve/tokens", token=root, body={"name": "first"}))
    assert site.send("GET", "/v1/me", token=token["token"]).json["name"] == "eve"
    reply = site.send("PUT", "/v1/users/eve", token=root, body={"disabled": True})
    assert reply.json["disabled"]
    assert site.send("GET", "/v1/me", token=token["token"]).status == 401
    names = [user["name"] for user in site.send("GET", "/v1/users", token=root).json["users"]]
    assert names == ["ada", "bob", "eve", "root"]
    assert site.send("PUT", "/v1/users/acme", token=root, body={}).status == 409, "a namespace"
    assert site.send("PUT", "/v1/users/login", token=root, body={}).status == 422
    disabled = {"disabled": True}
    assert site.send("PUT", "/v1/users/root", token=root, body=disabled).status == 409, "the last"
    missing = site.send("POST", "/v1/users/nobody/tokens", token=root, body={"name": "x"})
    assert missing.status == 404


@pytest.mark.parametrize(
    "limits", [{"role": Role.MAINTAINER}, {"namespace": "root"}, {"namespace": "acme"}]
)
def test_a_limited_token_of_an_operator_runs_no_hub(site: Site, limits: Any) -> None:
    token = site.token("root", **limits)
    for method, path in (
        ("GET", "/v1/users"), ("PUT", "/v1/users/eve"), ("POST", "/v1/users/ada/tokens"),
        ("PUT", "/v1/acme/-/quota"), ("GET", "/v1/metrics"),
    ):  # fmt: skip
        assert site.send(method, path, token=token, body={"name": "x"}).status == 403
    reply = site.send("PUT", "/v1/newer/-/members/root", token=token, body={"role": "admin"})
    assert reply.status == 404


def test_operators_make_organizations(site: Site) -> None:
    path = "/v1/newer/-/members/bob"
    assert site.send("PUT", path, token=site.token("ada"), body={"role": "admin"}).status == 404
    root = site.token("root")
    assert site.send("PUT", path, token=root, body={"role": "reader"}).status == 422
    assert site.send("GET", "/v1/newer/-/members", token=root).status == 404
    assert site.send("GET", "/v1/newer/-/audit", token=root).status == 404
    assert site.send("PUT", path, token=root, body={"role": "admin"}).status == 204
    (member,) = site.send("GET", "/v1/newer/-/members", token=site.token("bob")).json["members"]
    assert (member["user"], member["role"]) == ("bob", "admin")


def test_members(site: Site) -> None:
    ada = site.token("ada")
    site.repository("acme/vision", "private", "ada")
    base = "/v1/acme/vision/members"
    assert site.send("PUT", f"{base}/bob", token=ada, body={"role": "writer"}).status == 204
    assert site.send("GET", "/v1/acme/vision", token=site.token("bob")).json["role"] == "writer"
    assert site.send("GET", base, token=site.token("bob")).status == 403
    assert site.send("PUT", f"{base}/eve", token=ada, body={"role": "writer"}).status == 404
    assert site.send("PUT", f"{base}/bob", token=ada, body={"role": "none"}).status == 422
    assert site.send("DELETE", f"{base}/bob", token=ada).status == 204
    assert site.send("DELETE", f"{base}/bob", token=ada).status == 404
    assert site.send("GET", "/v1/acme/vision", token=site.token("bob")).status == 404
    assert site.send("DELETE", "/v1/acme/-/members/ada", token=ada).status == 409, "the last"


def test_quotas(site: Site) -> None:
    root, ada = site.token("root"), site.token("ada")
    path = "/v1/acme/-/quota"
    assert site.send("GET", path, token=ada).json == {"used": 0, "reserved": 0, "quota": None}
    assert site.send("PUT", path, token=ada, body={"bytes": 5}).status == 403
    assert site.send("PUT", path, token=root, body={"bytes": 5}).json["quota"] == 5
    assert site.send("PUT", path, token=root, body={"bytes": -5}).status == 422
    assert site.send("PUT", path, token=root, body={"bytes": 2**63}).status == 422
    assert site.send("PUT", "/v1/none/-/quota", token=root, body={}).status == 404
    assert site.send("GET", path, token=site.token("bob")).status == 404


def test_the_audit_log_of_a_place(site: Site) -> None:
    ada = site.token("ada")
    site.repository("acme/vision", "private", "ada")
    site.send("PUT", "/v1/acme/vision/members/bob", token=ada, body={"role": "writer"})
    lines = site.send("GET", "/v1/acme/-/audit", token=ada).json["lines"]
    assert [line["action"] for line in lines] == [
        "organization.create", "member.set", "repository.create", "member.set",
    ]  # fmt: skip
    assert (lines[-1]["actor"], lines[-1]["origin"]) == ("ada", "192.0.2.1")
    last = site.send("GET", f"/v1/acme/-/audit?after={lines[1]['seq']}&most=1", token=ada).json
    assert last["lines"] == lines[2:3]
    inner = site.send("GET", "/v1/acme/vision/audit", token=ada).json["lines"]
    assert inner == lines[2:]
    assert site.send("GET", "/v1/acme/-/audit?most=x", token=ada).status == 400


def test_a_program_logs_in(site: Site) -> None:
    begun = site.send("POST", "/v1/login").json
    assert begun["url"] == f"https://hub.example.org/login/device?code={begun['code']}"
    ask = {"device": begun["device"]}
    reply = site.send("POST", "/v1/login/token", body=ask)
    assert (reply.status, reply.json) == (202, {"state": "pending"})
    with site.hub.database.writing() as connection:
        assert tokens.confirm_device_login(connection, site.caller("ada"), begun["code"])
    reply = site.send("POST", "/v1/login/token", body=ask)
    assert (reply.status, reply.json["name"]) == (200, "ada")
    assert site.send("GET", "/v1/me", token=reply.json["token"]).json["role"] == "admin"
    assert site.send("POST", "/v1/login/token", body=ask).status == 404
    assert site.send("POST", "/v1/login/token", body={"device": "x" * 5000}).status == 404
    assert not any(begun["device"] in line for line in site.logged)


def test_too_many_logins(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST_LOGINS", 1)
    assert site.send("POST", "/v1/login").status == 200
    reply = site.send("POST", "/v1/login")
    assert (reply.status, reply.header("Retry-After")) == (503, "60")
    site.logged.clear()
