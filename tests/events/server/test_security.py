"""The guard of the web server: hosts, methods, origins, tokens, headers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from dlv.events.server.security import Answer, Environ, Guard, Start, new_token

TOKEN = "s3cret-token"
REACHED = b"the page"


def page(environ: Environ, start: Start) -> Iterable[bytes]:
    headers = {"Access-Control-Allow-Origin": "*", "X-Frame-Options": "ALLOWALL"}
    return Answer(REACHED, headers=headers).send(environ, start)


def asked(
    guard: Guard, query: str = f"token={TOKEN}", method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    seen: list[Any] = []
    environ: Environ = {"REQUEST_METHOD": method, "QUERY_STRING": query, "PATH_INFO": "/"}
    environ["HTTP_HOST"] = "127.0.0.1:6006"
    environ |= {f"HTTP_{name.upper()}": value for name, value in headers.items()}
    body = b"".join(guard(environ, lambda *told: seen.append(told)))
    (status, lines, *_), *more = seen
    assert not more
    assert len({name.lower() for name, _ in lines}) == len(lines), lines
    return int(status.split()[0]), {name.lower(): value for name, value in lines}, body


@pytest.fixture
def guard() -> Guard:
    return Guard(page, host="127.0.0.1", port=6006, token=TOKEN)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:6006", "localhost:6006", "LocalHost:6006", "[::1]:6006"]
)
def test_names_of_this_machine_pass(guard: Guard, host: str) -> None:
    assert asked(guard, host=host)[::2] == (200, REACHED)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:6006",
        "127.0.0.1",
        "127.0.0.1:6007",
        "localhost:06006",
        "localhost.evil.example:6006",
        "127.0.0.1.evil.example:6006",
        "evil.example#127.0.0.1:6006",
        "127.0.0.2:6006",
        "192.168.1.4:6006",
        "::1:6006",
        "",
    ],
)
def test_any_other_name_is_refused_even_with_the_token(guard: Guard, host: str) -> None:
    code, _, body = asked(guard, host=host)
    assert code == 403
    assert REACHED not in body


def test_the_port_of_http_need_not_be_named() -> None:
    guard = Guard(page, host="localhost", port=80, token=TOKEN)
    assert asked(guard, host="localhost")[0] == 200
    assert asked(guard, host="localhost:80")[0] == 200
    assert asked(guard, host="localhost:6006")[0] == 403


def test_bound_to_one_address_only_that_one_counts() -> None:
    guard = Guard(page, host="192.168.1.4", port=6006, token=TOKEN)
    assert asked(guard, host="192.168.1.4:6006")[0] == 200
    assert asked(guard, host="localhost:6006")[0] == 403


def test_bound_to_every_address_a_name_could_be_pointed_here_but_an_address_not() -> None:
    guard = Guard(page, host="0.0.0.0", port=6006, token=TOKEN)
    for host in ("192.168.1.4:6006", "[fe80::1]:6006", "localhost:6006"):
        assert asked(guard, host=host)[0] == 200
    for host in ("rebound.example:6006", "192.168.1.4.evil.example:6006", "[evil]:6006"):
        assert asked(guard, host=host)[0] == 403


@pytest.mark.parametrize(
    "query", ["", "token=", "token=s3cret", "token=S3CRET-TOKEN", "token=%00", "token=%ff%fe"]
)
def test_without_the_token_nothing_is_shown(guard: Guard, query: str) -> None:
    code, headers, body = asked(guard, query)
    assert code == 403
    assert "set-cookie" not in headers
    assert REACHED not in body
    assert TOKEN.encode() not in body


def test_a_browser_gets_a_cookie_and_a_page_that_takes_the_token_out_of_the_address(
    guard: Guard,
) -> None:
    code, headers, body = asked(guard, accept="text/html,*/*")
    assert code == 200
    assert REACHED not in body
    assert b"location.replace" in body
    assert TOKEN.encode() not in body
    cookie, *attributes = headers["set-cookie"].split("; ")
    assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=Strict"]
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'sha256-")
    assert asked(guard, "", cookie=f"other=1; {cookie}")[::2] == (200, REACHED)
    assert asked(guard, "", cookie=cookie[:-1])[0] == 403


def test_cookies_of_two_servers_on_one_machine_do_not_meet(guard: Guard) -> None:
    other = Guard(page, host="127.0.0.1", port=6007, token="another")
    both = f"{guard.cookie}={TOKEN}; {other.cookie}=another"
    assert asked(guard, "", cookie=both)[0] == 200
    assert asked(other, "", cookie=both, host="127.0.0.1:6007")[0] == 200


@pytest.mark.parametrize("cookie", ['"', "dlv-6006", "dlv-6006=;;;=", "\x00=\x01", "a" * 9000])
def test_cookies_that_make_no_sense(guard: Guard, cookie: str) -> None:
    assert asked(guard, "", cookie=cookie)[0] == 403


def test_programs_may_send_the_token_as_a_bearer(guard: Guard) -> None:
    assert asked(guard, "", authorization=f"Bearer {TOKEN}")[0] == 200
    assert asked(guard, "", authorization="Bearer nonsense")[0] == 403
    assert asked(guard, "", authorization=f"Basic {TOKEN}")[0] == 403


@pytest.mark.parametrize("origin", ["http://127.0.0.1:6006", "HTTP://127.0.0.1:6006", None])
def test_posts_of_this_site_pass(guard: Guard, origin: str | None) -> None:
    headers = {} if origin is None else {"origin": origin}
    assert asked(guard, method="POST", **headers)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "https://127.0.0.1:6006"},
        {"origin": "http://127.0.0.1:6007"},
        {"origin": "http://localhost:6006"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site", "origin": "http://127.0.0.1:6006"},
    ],
)
def test_posts_of_other_sites_are_refused(guard: Guard, headers: dict[str, str]) -> None:
    assert asked(guard, method="POST", **headers)[0] == 403


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "TRACE", "CONNECT", "", "get"])
def test_other_methods(guard: Guard, method: str) -> None:
    code, headers, _ = asked(guard, method=method)
    assert (code, headers["allow"]) == (405, "GET, HEAD, POST")


def test_no_answer_lets_another_site_read_or_frame_it(guard: Guard) -> None:
    for query in ("", f"token={TOKEN}"):
        _, headers, _ = asked(guard, query, origin="https://evil.example")
        assert not [name for name in headers if name.startswith("access-control")]
        assert headers["x-frame-options"] == "SAMEORIGIN"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "no-referrer"


def test_head_has_no_body(guard: Guard) -> None:
    assert asked(guard, method="HEAD")[::2] == (200, b"")


def test_tokens_cannot_be_guessed() -> None:
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(len(token) >= 32 for token in made)
