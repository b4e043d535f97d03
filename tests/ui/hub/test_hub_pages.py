"""The pages of a hub as a program sees them: who may see what, forms, errors, nothing changed."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

import dlv
from dlv.ui.gate import POLICY
from dlv.ui.hub.account_pages import LOGIN_COOKIE
from tests.commands.test_reports import Page
from tests.ui.conftest import HOSTILE
from tests.ui.hub.conftest import HUB_PAGES, Team, repository_pages
from tests.ui.hub.hubs import Answer, Keeper, RunningHub, publish

PARTS = ("/rows", "/statistics", "/data/", "/complete")


def is_part(path: str) -> bool:
    return any(part in path for part in PARTS)


def check(path: str, answer: Answer) -> None:
    """What holds of every page."""
    assert answer.headers["X-Content-Type-Options"] == "nosniff", path
    assert answer.headers["Referrer-Policy"] == "same-origin", path
    assert answer.headers["Cache-Control"] == "no-store", path
    assert "Traceback" not in answer.text
    if "json" in answer.headers["Content-Type"]:
        return
    assert answer.headers["Content-Security-Policy"] == POLICY, path
    text = answer.text
    page = Page(f"<!doctype html><table>{text}</table>" if is_part(path) else text)
    assert page.handlers == [], path
    assert all(each.startswith(("/", "data:,")) for each in page.loads), path


def test_every_page_answers(team: Team) -> None:
    wanted = {"/v/nothing": 404}
    for path in [*HUB_PAGES, *repository_pages("/acme/vision", "lenet")]:
        answer = team.running.get(path)
        status = next((code for end, code in wanted.items() if path.endswith(end)), 200)
        assert answer.status == status, (path, answer.text[-500:])
        check(path, answer)


def test_private_repositories_are_as_if_they_were_not_there(team: Team) -> None:
    for path in [*repository_pages("/acme/secret", "lenet"), "/acme/secret/-/settings"]:
        missing = team.running.get(path.replace("secret", "nothing"))
        for session in ("", team.eve, "dlv_wrong"):
            answer = team.running.get(path, session)
            assert answer.status == missing.status == 404, path
            if session != team.eve:  # her page has her name at its top
                assert answer.text == missing.text
            assert "lenet" not in answer.text.replace("secret", "")
    for path in ("/", "/acme", "/search?q=lenet", "/search?where=m.name+%3D+%22lenet%22"):
        for session in ("", team.eve):
            assert "acme/secret" not in team.running.get(path, session).text, path


def test_readers_see_private_repositories(team: Team) -> None:
    for path in repository_pages("/acme/secret", "lenet"):
        answer = team.running.get(path, team.bob)
        assert answer.status == (404 if path.endswith("nothing") else 200), path
        check(path, answer)
    assert "acme/secret" in team.running.get("/search?q=lenet", team.bob).text
    assert "secret" in team.running.get("/acme", team.bob).text
    assert team.running.get("/acme/secret/-/settings", team.bob).status == 403
    assert team.running.get("/acme/-/settings", team.bob).status == 404


def test_names_do_not_matter_in_case(team: Team) -> None:
    assert team.running.get("/Acme/VISION").status == 200


def test_hostile_names_are_text(team: Team) -> None:
    paths = [*repository_pages("/acme/evil", "evil", "CARD.md"), *HUB_PAGES]
    paths += ["/acme", "/search?q=evil"]
    paths += [f"/acme/evil/file/evil@1?path={quote('<b>x.txt')}", f"/search?q={quote(HOSTILE)}"]
    paths += [f"/acme/evil/query?q={quote(HOSTILE)}", f"/{quote(HOSTILE, safe='')}"]
    paths += ["/acme/evil/-/settings"]
    for path in paths:
        answer = team.running.get(path, team.ada)
        assert answer.status in (200, 303, 404), (path, answer.text[-300:])
        if answer.status == 303 or "json" in answer.headers["Content-Type"]:
            continue
        assert "<img src=x" not in answer.text, path
        assert "<script>alert" not in answer.text, path
        kept = re.sub(r'(?:value|data-\w+)="[^"]*"|<textarea.*?</textarea>', "", answer.text)
        assert "\u202e" not in kept, path
        check(path, answer)


def test_files_are_text_or_saved(team: Team) -> None:
    page = team.running.get("/acme/evil/file/evil@1?path=notes.py")
    (address,) = re.findall(r'href="(/acme/evil/raw/[^"]*)"', page.text)
    answer = team.running.get(address.replace("&amp;", "&"))
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert answer.text.startswith("# </script>")
    for path in ("../../etc/passwd", "/etc/passwd", "", "nothing"):
        gone = team.running.get(f"/acme/vision/raw/lenet@1?path={quote(path, safe='')}")
        assert gone.status == 404, path


# Queries and weights have limits


@pytest.mark.parametrize(
    "words",
    [
        'define q as select m',
        'evaluate m from "lenet*" with config = "/etc/passwd"',
        'select m where m.name matches "(a+)+$"',
        "select m where " + " and ".join(["m.number > 0"] * 500),
    ],
)  # fmt: skip
def test_visitors_only_read(team: Team, words: str) -> None:
    answer = team.running.get(f"/acme/vision/query?q={quote(words)}")
    assert answer.status == 200
    assert 'class="fault"' in answer.text
    assert "root:" not in answer.text


def test_a_query_ends_in_time(team: Team) -> None:
    letters = [f"m{n}" for n in range(26)]
    words = f"select count(*) from {', '.join(letters)}"
    words = f"select {', '.join(letters)}" if "from" not in words else words
    query = "select " + ", ".join(letters) + " where " + " and ".join(
        f'{letter}["loss"] < 0' for letter in letters[-1:]
    )  # fmt: skip
    answer = team.running.get(f"/acme/vision/query?q={quote(query)}")
    assert answer.status == 200
    assert (
        "takes too long" in answer.text or "nothing matches" in answer.text or "rows" in answer.text
    )


def test_nothing_for_owners_alone_is_there(team: Team) -> None:
    for path in ("live", "storage", "tensorboard", "sweeps", "evaluate", "jobs/x", "data/live"):
        assert team.running.get(f"/acme/vision/{path}", team.ada).status == 404, path


def test_the_api_keeps_its_addresses(team: Team) -> None:
    for path in ("/v1/nothing", "/v1/acme/nothing", "/v1/acme/vision/nothing"):
        answer = team.running.get(path)
        assert answer.headers["Content-Type"] == "application/json", path
        assert answer.status == 404


@pytest.mark.parametrize("path", ["/", "/acme/vision", "/acme/vision/versions", "/search"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_pages_are_only_read(team: Team, path: str, method: str) -> None:
    assert team.running.get(path, method=method).status == 405


# Sessions


def cookie(answer: Answer) -> str:
    found = re.search(r"dlv_session=([^;]*);", answer.headers["Set-Cookie"])
    assert found is not None
    return found[1].strip('"')


def test_logging_in_and_out(team: Team) -> None:
    token = team.keeper.token("eve")
    answer = team.running.post("/login", {"token": token, "next": "/tokens"})
    assert (answer.status, answer.headers["Location"]) == (303, "/tokens")
    assert "HttpOnly" in answer.headers["Set-Cookie"]
    assert "SameSite=lax" in answer.headers["Set-Cookie"]
    session = cookie(answer)
    page = team.running.get("/tokens", session)
    assert page.status == 200
    assert token not in page.text
    assert session not in page.text
    assert team.running.post("/logout", {}, session).status == 403  # not a form of a page
    (secret,) = set(re.findall(r'name="secret" value="([^"]+)"', page.text))
    assert team.running.post("/logout", {"secret": secret}, session).status == 303
    assert team.running.get("/tokens", session).status == 303


@pytest.mark.parametrize(
    "after", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:x", "/\tx"]
)
def test_a_login_leads_nowhere_else(team: Team, after: str) -> None:
    token = team.keeper.token("eve")
    answer = team.running.post("/login", {"token": token, "next": after})
    assert answer.headers["Location"] == "/"


def test_a_wrong_token_is_refused(team: Team) -> None:
    for token in ("", "x", "dlv_wrong", "dlv_" + "x" * 300):
        answer = team.running.post("/login", {"token": token})
        assert answer.status == 401
        assert "Set-Cookie" not in answer.headers


def test_a_session_is_no_token(team: Team) -> None:
    answer = team.running.get("/v1/me", Authorization=f"Bearer {team.ada}")
    assert answer.status == 401
    assert team.running.get("/v1/acme/secret", team.ada).status == 404
    page = team.running.get("/acme/secret", team.token)  # a token does not work as a session
    assert page.status == 404


def test_forms_come_from_pages_of_this_hub(team: Team) -> None:
    page = team.running.get("/tokens", team.ada)
    (secret,) = set(re.findall(r'name="secret" value="([^"]+)"', page.text))
    form = {"name": "x", "role": "reader", "days": "1", "secret": secret}
    post = team.running.post
    assert post("/tokens", form | {"secret": "x"}, team.ada).status == 403
    assert post("/tokens", form, team.ada, Origin="https://evil.example").status == 403
    assert post("/tokens", form, team.ada, Origin="null").status == 403
    assert post("/tokens", form, team.ada, Sec_Fetch_Site="cross-site").status == 403
    assert post("/tokens", form, team.bob).status == 403  # the secret of another session
    assert post("/tokens", form).status == 303  # to the login
    assert post("/tokens", {"name": "x" * 70_000}, team.ada).status == 413


def test_tokens_are_made_shown_once_and_revoked(team: Team) -> None:
    page = team.running.get("/tokens", team.ada)
    secret = re.findall(r'name="secret" value="([^"]+)"', page.text)[0]
    form = {"name": "ci <b>", "role": "reader", "place": "acme/vision", "days": "3"}
    made = team.running.post("/tokens", {**form, "secret": secret}, team.ada)
    assert made.status == 200
    (token,) = re.findall(r"<code>(dlv_[\w-]{20,})</code>", made.text)
    me = team.running.get("/v1/me", Authorization=f"Bearer {token}")
    assert (me.status, '"repository":"vision"' in me.text.replace(" ", "")) == (200, True)
    page = team.running.get("/tokens", team.ada)
    assert token not in page.text
    assert "<b>" not in page.text.replace("<b></b>", "")
    rows = re.findall(r'name="revoke" value="(\d+)"', page.text)
    team.running.post("/tokens", {"revoke": rows[-1], "secret": secret}, team.ada)
    assert team.running.get("/v1/me", Authorization=f"Bearer {token}").status == 401
    for wrong in ({"name": ""}, {"role": "king"}, {"days": "9999"}, {"place": "../x"}):
        answer = team.running.post("/tokens", {**form, **wrong, "secret": secret}, team.ada)
        assert 'class="fault"' in answer.text, wrong
    other = team.running.post("/tokens", {"revoke": "1", "secret": secret}, team.ada)
    assert other.status in (200, 303)


def test_a_program_is_logged_in(team: Team) -> None:
    import json

    begun = json.loads(team.running.get("/v1/login", method="POST").text)
    path = begun["url"].removeprefix(team.running.root)
    if not path.startswith("/"):
        path = "/" + begun["url"].split("/", 3)[3]
    away = team.running.get(path)
    assert away.status == 303
    assert away.headers["Location"].startswith("/login?next=")
    page = team.running.get(path, team.bob)
    assert begun["code"] in page.text
    (secret,) = set(re.findall(r'name="secret" value="([^"]+)"', page.text))
    form = {"code": begun["code"], "secret": secret}
    assert team.running.post("/login/device", form, team.eve).status == 403
    done = team.running.post("/login/device", form, team.bob)
    assert "logged in as <b>bob</b>" in done.text
    again = team.running.post("/login/device", form, team.bob)
    assert 'class="fault"' in again.text
    assert "No program waits" in team.running.get("/login/device?code=%3Cb%3E", team.bob).text


# Settings


def secret_of(team: Team, path: str, session: str) -> str:
    page = team.running.get(path, session)
    assert page.status == 200
    return str(re.findall(r'name="secret" value="([^"]+)"', page.text)[0])


def test_settings_are_changed(team: Team) -> None:
    path = "/acme/empty/-/settings"
    secret = secret_of(team, path, team.ada)

    def send(form: dict[str, str]) -> Answer:
        return team.running.post(path, {**form, "secret": secret}, team.ada)

    assert team.running.get("/acme/empty").status == 200
    change = {"do": "change", "description": HOSTILE, "visibility": "private"}
    assert send(change).status == 303
    assert team.running.get("/acme/empty").status == 404
    assert send({"do": "member", "user": "eve", "role": "maintainer"}).status == 303
    page = team.running.get(path, team.eve)
    assert page.status == 200
    assert 'id="aliases"' in page.text
    assert 'id="members"' not in page.text
    assert 'id="audit"' not in page.text
    own = secret_of(team, path, team.eve)
    for form in (change, {"do": "member", "user": "eve", "role": "admin"}):
        refused = team.running.post(path, {**form, "secret": own}, team.eve)
        assert "requires the role admin" in refused.text
    assert send({"do": "member", "user": "eve", "delete": "1"}).status == 303
    assert team.running.get(path, team.eve).status == 404
    for form in (
        {"do": "member", "user": "nobody-here", "role": "reader"},
        {"do": "member", "user": "eve", "role": "king"},
        {"do": "change", "visibility": "secret"}, {"do": "x"}, {},
        {"do": "alias", "model": "nothing", "alias": "production", "number": "1"},
        {"do": "alias", "model": "x", "alias": "y", "number": "-1"},
    ):  # fmt: skip
        answer = send(form)
        assert answer.status == 422, form
        assert 'class="fault"' in answer.text
    assert send({"do": "change", "description": "", "visibility": "public"}).status == 303
    audit = team.running.get(path, team.ada).text
    assert "repository.visibility" in audit
    assert "member.remove" in audit


def test_aliases_lead_to_versions(team: Team) -> None:
    for page in ("v", "network", "statistics"):
        answer = team.running.get(f"/acme/vision/{page}/lenet@production")
        assert (answer.status, answer.headers["Location"]) == (303, f"/acme/vision/{page}/lenet@2")
    compared = team.running.get("/acme/vision/compare?v=lenet@1&v=lenet%40Production&all=1")
    assert compared.headers["Location"] == "/acme/vision/compare?v=lenet%401&v=lenet%402&all=1"
    answer = team.running.get("/acme/vision/v/lenet@prodution")
    assert answer.status == 404
    assert "has no alias" in answer.text


def test_aliases_move(team: Team) -> None:
    path = "/acme/vision/-/settings"
    secret = secret_of(team, path, team.ada)
    form = {"do": "alias", "model": "lenet", "alias": "staging", "number": "3", "secret": secret}
    assert team.running.post(path, form, team.ada).status == 303
    assert "staging" in team.running.get("/acme/vision").text
    assert team.running.post(path, form | {"delete": "1"}, team.ada).status == 303
    assert "staging" not in team.running.get("/acme/vision").text
    assert team.running.get("/acme/vision/-/settings").status == 403


def test_settings_of_a_namespace(team: Team) -> None:
    page = team.running.get("/acme/-/settings", team.ada)
    assert page.status == 200
    assert "audit" in page.text
    for session in ("", team.eve):
        assert team.running.get("/acme/-/settings", session).status == 404
    assert team.running.get("/eve", team.eve).status == 200
    assert team.running.get("/eve").status == 404
    assert team.running.get("/nothing").status == 404


# Mirrors


def test_a_push_is_seen_by_all_processes(tmp_path: Path, demo_once: Path, team: Team) -> None:
    data = tmp_path / "hub"
    data.mkdir()
    keeper = Keeper(data)
    keeper.user("ada")
    keeper.repository("ada/nets", "ada")
    token = keeper.token("ada")
    folder = tmp_path / "repo"
    folder.mkdir()
    first, second = RunningHub(data), RunningHub(data)
    try:
        for number in range(1, 4):
            with dlv.open(folder, create=number == 1) as repo:
                weights = {"w": np.full((4, 4), number, np.float32)}
                repo.commit(f"try {number}", name="net", weights=weights)
            publish(first, "ada/nets", folder, token)
            for running in (second, first):
                page = running.get("/ada/nets")
                assert f"net@{number}" in page.text
                assert f'value="net@{number}"' in running.get("/ada/nets/versions").text
        answers: list[int] = []

        def look(running: RunningHub) -> None:
            answers.append(running.get("/ada/nets/compare?v=net@1&v=net@3").status)

        with dlv.open(folder) as repo:
            repo.commit("try 4", name="net", weights={"w": np.zeros((4, 4), np.float32)})
        publish(second, "ada/nets", folder, token)
        threads = [threading.Thread(target=look, args=(each,)) for each in (first, second) * 6]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [200] * 12
        assert "net@4" in first.get("/ada/nets").text
    finally:
        first.stop()
        second.stop()
        keeper.close()


def test_the_login_cookie_is_for_the_login_alone(team: Team) -> None:
    answer = team.running.get("/login/openid")
    assert answer.status == 404  # this hub has no provider
    assert LOGIN_COOKIE not in str(answer.headers.get("Set-Cookie"))
    assert team.running.get("/login/callback?code=x&state=y").status == 404
