"""Login at an OpenID Connect provider: a real one in a thread, and forged answers of it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import urllib3
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

import dlv.canonical as canonical
from dlv.errors import DlvError, RemoteError, UsageError
from dlv.hub.server import accounts, oidc, tokens
from dlv.hub.server.access import Caller, caller_of
from dlv.hub.server.hub import Hub
from dlv.hub.server.oidc import Identity, Provider
from dlv.hub.server.refusal import Refused
from dlv.hub.server.settings import OpenId, Settings

# The provider for tests uses what its library has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CLIENT, SECRET = "dlv-hub", "hunter2"
URL = "https://hub.example.org"
ADA = {"email": "Ada@Example.org", "email_verified": True, "preferred_username": "Ada.Lovelace"}


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import oidc_provider_mock

        people = {
            "1": ADA,
            "2": {**ADA, "email": "eve@example.com"},
            "3": {**ADA, "email_verified": False},
            "4": {"email": "bob@example.org", "email_verified": True},
        }
        users = [oidc_provider_mock.User(sub=sub, claims=claims) for sub, claims in people.items()]
        with oidc_provider_mock.run_server_in_thread(user_claims=users) as server:
            yield f"http://localhost:{server.server_port}"


@pytest.fixture
def make_hub(hub_database_url: str, tmp_path: Path) -> Iterator[Callable[[str], Hub]]:
    hubs: list[Hub] = []

    def make(issuer: str, domains: tuple[str, ...] = ("example.org",)) -> Hub:
        openid = OpenId(issuer, CLIENT, SECRET, domains)
        folder = tmp_path / "hub"
        hubs.append(
            Hub(Settings(hub_database_url, str(folder / "objects"), folder, URL, openid=openid))
        )
        return hubs[-1]

    yield make
    for hub in hubs:
        hub.close()


def browse(address: str, subject: str) -> dict[str, str]:
    """Log in at the provider; what it sends back with the browser."""
    http = urllib3.PoolManager(retries=False)
    answer = http.request("POST", address, fields={"sub": subject}, redirect=False)
    http.clear()
    assert answer.status in (302, 303), answer.data
    back = urlsplit(answer.headers["Location"])
    assert f"{back.scheme}://{back.netloc}{back.path}" == URL + oidc.CALLBACK
    return {key: values[0] for key, values in parse_qs(back.query).items()}


def log_in(hub: Hub, subject: str) -> Caller:
    address, secret = oidc.start(hub)
    session = oidc.come_back(hub, browse(address, subject), secret, "192.0.2.1")
    with hub.database.reading() as connection:
        found = caller_of(connection, session, "-", kind=tokens.SESSION)
    assert found is not None
    return found


def names(hub: Hub) -> list[str]:
    with hub.database.reading() as connection:
        return [user.name for user in accounts.users(connection)]


# With a real provider


def test_the_first_login_makes_an_account(make_hub: Callable[..., Hub], issuer: str) -> None:
    hub = make_hub(issuer)
    ada = log_in(hub, "1")
    assert ada.name == "ada-lovelace"
    assert not ada.operator
    assert log_in(hub, "1").user_id == ada.user_id
    with hub.database.reading() as connection:
        (user,) = accounts.users(connection)
    assert (user.email, user.openid) == ("Ada@Example.org", True)


def test_an_account_is_never_taken_over(make_hub: Callable[..., Hub], issuer: str) -> None:
    hub = make_hub(issuer)
    with hub.database.writing() as connection:
        number = accounts.add_user(
            connection, Caller(), "ada-lovelace", email="Ada@Example.org", operator=True
        )
    ada = log_in(hub, "1")
    assert (ada.name, ada.operator) == ("ada-lovelace-2", False)
    assert ada.user_id != number


@pytest.mark.parametrize("subject", ["2", "3", "unknown"])
def test_who_gets_no_account(make_hub: Callable[..., Hub], issuer: str, subject: str) -> None:
    hub = make_hub(issuer)
    with pytest.raises(Refused) as caught:
        log_in(hub, subject)
    assert caught.value.status == 403
    assert names(hub) == []


def test_no_domain_means_no_accounts(make_hub: Callable[..., Hub], issuer: str) -> None:
    with pytest.raises(Refused):
        log_in(make_hub(issuer, ()), "1")


def test_a_disabled_account_stays_out(make_hub: Callable[..., Hub], issuer: str) -> None:
    hub = make_hub(issuer)
    log_in(hub, "1")
    with hub.database.writing() as connection:
        accounts.change_user(connection, Caller(), "ada-lovelace", disabled=True)
    with pytest.raises(Refused) as caught:
        log_in(hub, "1")
    assert caught.value.status == 403


def test_a_login_comes_back_once(make_hub: Callable[..., Hub], issuer: str) -> None:
    hub = make_hub(issuer)
    address, secret = oidc.start(hub)
    query = browse(address, "1")
    oidc.come_back(hub, query, secret, "-")
    with pytest.raises(Refused) as caught:
        oidc.come_back(hub, query, secret, "-")
    assert caught.value.status == 400


def test_a_login_expires(make_hub: Callable[..., Hub], issuer: str) -> None:
    hub = make_hub(issuer)
    address, secret = oidc.start(hub)
    query = browse(address, "1")
    canonical.fix_clock(canonical.current_moment() + timedelta(minutes=11))
    try:
        with pytest.raises(Refused):
            oidc.come_back(hub, query, secret, "-")
    finally:
        canonical.fix_clock(None)


def test_state_binds_a_login_to_its_browser(make_hub: Callable[..., Hub], issuer: str) -> None:
    hub = make_hub(issuer)
    address, secret = oidc.start(hub)
    _, other = oidc.start(hub)
    query = browse(address, "1")
    wrong: list[tuple[Mapping[str, str], str]] = [
        (query, other), (query, ""), ({**query, "state": "x"}, secret),
        ({**query, "state": "é"}, secret),
        ({key: query[key] for key in query if key != "state"}, secret),
        ({**query, "iss": "https://evil.example"}, secret),
    ]  # fmt: skip
    for changed, cookie in wrong:
        with pytest.raises(Refused) as caught:
            oidc.come_back(hub, changed, cookie, "-")
        assert caught.value.status == 400
    assert oidc.come_back(hub, query, secret, "-"), "none of these ended it"


@pytest.mark.parametrize("query", [{"error": "access_denied"}, {}, {"code": "wrong"}])
def test_a_login_that_was_refused(
    make_hub: Callable[..., Hub], issuer: str, query: dict[str, str]
) -> None:
    hub = make_hub(issuer)
    address, secret = oidc.start(hub)
    state = browse(address, "1")["state"]
    with pytest.raises((Refused, RemoteError)):
        oidc.come_back(hub, {**query, "state": state}, secret, "-")
    assert names(hub) == []


def test_the_address_has_a_challenge_and_no_secret(
    make_hub: Callable[..., Hub], issuer: str
) -> None:
    address, secret = oidc.start(make_hub(issuer))
    query = {key: values[0] for key, values in parse_qs(urlsplit(address).query).items()}
    assert query["code_challenge_method"] == "S256"
    digest = hashlib.sha256(oidc._derived(secret, "verifier").encode()).digest()
    assert query["code_challenge"] == coded(digest)
    assert len({query["state"], query["nonce"], query["code_challenge"], secret}) == 4
    assert SECRET not in address
    assert secret not in address


# With forged answers

KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})
EC = ECKey.generate_key("P-256", {"kid": "two", "use": "sig"})
OTHER = RSAKey.generate_key(2048, {"kid": "one"})
ISSUER = "https://login.example.org"


class Forged(Provider):
    """A provider of which the test says what it answers."""

    def __init__(self, token: str = "", keys: Any = None, **document: Any) -> None:
        super().__init__(OpenId(ISSUER, CLIENT, SECRET, ("example.org",)), URL)
        self.asked: list[str] = []
        self.id_token = token
        self.document = {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize",
            "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/keys",
            "id_token_signing_alg_values_supported": ["RS256", "ES256", "HS256", "none"],
            **document,
        }
        self.keys = keys or KeySet([KEY, EC]).as_dict(private=False)

    def _ask(self, _: str, address: str, *__: Any) -> Any:
        self.asked.append(address)
        answers = {
            "/token": {"id_token": self.id_token, "access_token": "access"},
            "/keys": self.keys,
            "/userinfo": {"sub": "7", **ADA},
        }
        return answers.get(urlsplit(address).path, self.document)


def login(provider: Provider, secret: str = "s") -> Identity:
    return provider.finish({"state": oidc._derived(secret, "state"), "code": "c"}, secret)


def claims(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    whole = {
        "iss": ISSUER, "sub": "7", "aud": CLIENT, "exp": now + 300, "iat": now,
        "nonce": oidc._derived("s", "nonce"), **ADA, **changed,
    }  # fmt: skip
    return {key: value for key, value in whole.items() if value is not None}


def signed(key: Any = KEY, alg: str = "RS256", kid: str = "one", **changed: Any) -> str:
    return jwt.encode({"alg": alg, "kid": kid}, claims(**changed), key, algorithms=[alg])


def coded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unsigned(alg: str) -> str:
    parts = ({"alg": alg, "typ": "JWT", "kid": "one"}, claims())
    return ".".join([*(coded(json.dumps(part).encode()) for part in parts), ""])


def signed_with(secret: bytes) -> str:
    """Sign with a shared secret that everybody knows: the public key, or its number."""
    text = unsigned("HS256").rstrip(".")
    return f"{text}.{coded(hmac.digest(secret, text.encode(), 'sha256'))}"


def test_a_valid_answer() -> None:
    expected = Identity(ISSUER, "7", "Ada@Example.org", "Ada.Lovelace")
    assert login(Forged(signed())) == expected
    assert login(Forged(signed(EC, "ES256", "two"))) == expected
    assert login(Forged(signed(aud=[CLIENT, "other"], azp=CLIENT))) == expected


WRONG: dict[str, Callable[[], str]] = {
    "nonce": lambda: signed(nonce="other"),
    "no nonce": lambda: signed(nonce=None),
    "audience": lambda: signed(aud="other"),
    "no audience": lambda: signed(aud=None),
    "audiences without azp": lambda: signed(aud=[CLIENT, "other"]),
    "azp": lambda: signed(aud=[CLIENT, "other"], azp="other"),
    "issuer": lambda: signed(iss="https://evil.example"),
    "no issuer": lambda: signed(iss=None),
    "expired": lambda: signed(exp=int(time.time()) - 120),
    "no end": lambda: signed(exp=None),
    "from the future": lambda: signed(iat=int(time.time()) + 900),
    "not yet": lambda: signed(nbf=int(time.time()) + 900),
    "no subject": lambda: signed(sub=None),
    "subject of a number": lambda: signed(sub=7),
    "empty subject": lambda: signed(sub=""),
    "long subject": lambda: signed(sub="x" * 300),
    "at_hash": lambda: signed(at_hash="wrong"),
    "another key": lambda: signed(OTHER),
    "unknown key": lambda: signed(OTHER, kid="three"),
    "none": lambda: unsigned("none"),
    "None": lambda: unsigned("None"),
    "public key as secret": lambda: signed_with(KEY.as_pem(private=False)),
    "client secret": lambda: signed_with(SECRET.encode()),
    "changed": lambda: signed()[:-8] + "AAAAAAAA",
    "not a token": lambda: "a.b.c",
    "empty": lambda: "",
    "long": lambda: "x" * 100_000,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", WRONG)
def test_wrong_answers_are_refused(case: str) -> None:
    with pytest.raises((Refused, RemoteError)):
        login(Forged(WRONG[case]()))


def test_a_shared_secret_among_the_keys_does_not_count() -> None:
    secret = OctKey.generate_key(256, {"kid": "one"})
    token = jwt.encode({"alg": "HS256", "kid": "one"}, claims(), secret, algorithms=["HS256"])
    with pytest.raises(Refused):
        login(Forged(token, {"keys": [secret.as_dict(private=True)]}))


def test_new_keys_are_fetched_but_not_for_every_wrong_token() -> None:
    provider = Forged(signed(), KeySet([EC]).as_dict(private=False))
    with pytest.raises(Refused):
        login(provider)
    provider.keys = KeySet([KEY]).as_dict(private=False)
    for _ in range(5):
        with pytest.raises(Refused):
            login(provider)
    assert provider.asked.count(f"{ISSUER}/keys") == 1
    assert provider._keys is not None
    provider._keys = (provider._keys[0] - oidc.BETWEEN, provider._keys[1])
    assert login(provider).subject == "7"
    assert provider.asked.count(f"{ISSUER}/keys") == 2


def test_an_address_that_was_not_verified_does_not_count() -> None:
    for verified in (False, None, "true", 1):
        assert login(Forged(signed(email_verified=verified))).email is None


def test_userinfo_is_asked_where_the_token_has_no_address() -> None:
    endpoint = f"{ISSUER}/userinfo"
    assert login(Forged(signed(email=None), userinfo_endpoint=endpoint)).email == ADA["email"]
    token = signed(email=None, sub="8")
    assert login(Forged(token, userinfo_endpoint=endpoint)).email is None, "of another subject"


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://login.example.org/token"},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": None},
        {"id_token_signing_alg_values_supported": ["none", "HS256"]},
    ],
)
def test_descriptions_that_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises((Refused, RemoteError)):
        login(Forged(signed(), **document))


@pytest.mark.parametrize(
    "address",
    ["http://login.example.org", "ftp://x", "https://u:p@login.example.org", "https://x/?a", ""],
)
def test_issuers_that_are_refused(address: str) -> None:
    with pytest.raises(UsageError):
        Provider(OpenId(address, CLIENT, SECRET), URL)


# A provider that does not work


def test_a_provider_that_is_down() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(RemoteError):
            Provider(OpenId(f"http://127.0.0.1:{port}", CLIENT, SECRET), URL).begin("s")


ANSWERS = {
    "a page": b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
    "a list": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    "a redirect": b"HTTP/1.1 302 F\r\nLocation: http://10.0.0.1/\r\nContent-Length: 0\r\n\r\n",
    "an error": b'HTTP/1.1 500 E\r\nContent-Length: 13\r\n\r\n{"error":"x"}',
    "no end": b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * (oidc.MOST_BYTES + 10),
    "nothing": b"",
    "cut off": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "nonsense": b"\x00\xff" * 100,
}  # fmt: skip


@pytest.mark.parametrize("case", ANSWERS)
def test_answers_that_make_no_sense(case: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(ANSWERS[case])

        done = pool.submit(answer)
        port = listening.getsockname()[1]
        provider = Provider(OpenId(f"http://127.0.0.1:{port}", CLIENT, SECRET), URL)
        with pytest.raises(RemoteError):
            provider.begin("s")
        done.exception()


def test_a_provider_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        provider = Provider(OpenId(f"http://127.0.0.1:{port}", CLIENT, SECRET), URL)
        with pytest.raises(RemoteError):
            provider.begin("s")


# Names


@pytest.mark.parametrize(
    ("name", "email", "expected"),
    [
        ("Ada.Lovelace", None, "ada-lovelace"), ("ada@corp.example", None, "ada"),
        ("Зоя", "zoe@example.org", "zoe"), ("José", None, "jose"), ("--", None, "user"),
        ("x" * 100, None, "x" * 40), (None, None, "user"), ("a/../b", None, "a-b"),
    ],
)  # fmt: skip
def test_names_of_accounts(name: str | None, email: str | None, expected: str) -> None:
    assert oidc._name(Identity(ISSUER, "7", email, name)) == expected


def test_names_are_valid_and_free(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub(ISSUER)
    assert hub.settings.openid is not None

    def log_in_as(subject: str, name: str) -> str:
        identity = Identity(ISSUER, subject, "x@example.org", name)
        with hub.database.writing() as connection:
            return oidc.account_of(connection, identity, hub.settings.openid, "-")[1]  # type: ignore[arg-type]

    assert log_in_as("1", "login") == "login-2", "the name is reserved"
    assert log_in_as("2", "x" * 60) == "x" * 40
    assert log_in_as("3", "x" * 60) == "x" * 38 + "-2"
    assert log_in_as("1", "other") == "login-2", "later names change nothing"


def test_a_first_login_in_two_tabs(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub(ISSUER)
    identity = Identity(ISSUER, "1", "x@example.org", "ada")
    assert hub.settings.openid is not None
    openid = hub.settings.openid

    def log_in(_: int) -> object:
        try:
            with hub.database.writing() as connection:
                return oidc.account_of(connection, identity, openid, "-")
        except DlvError as error:
            return error

    with ThreadPoolExecutor(6) as pool:
        results = set(pool.map(log_in, range(6)))
    assert len(results) == 1
    assert names(hub) == ["ada"]
