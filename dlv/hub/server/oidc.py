"""Login at an OpenID Connect provider: authorization code, PKCE, and a verified id_token.

The pages send a browser to the address of `start`, keep its secret in a cookie of that browser, and
hand both to `come_back`, which answers with the secret of a session. The provider is fixed by the
operator, so that no request can make the hub ask another server.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import threading
import time
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa
import urllib3
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from dlv.dataclass import dataclass
from dlv.errors import Conflict, RemoteError, UsageError
from dlv.hub.server import accounts, audit, tables, tokens
from dlv.hub.server.access import Caller
from dlv.hub.server.hub import Hub
from dlv.hub.server.refusal import Refused
from dlv.hub.server.settings import OpenId

CALLBACK = "/login/callback"
COOKIE_SECONDS = tokens.DEVICE_SECONDS
SCOPE = "openid profile email"
# Signatures with public keys alone: with `none` or a shared secret anybody could sign.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
              "EdDSA")  # fmt: skip
LEEWAY = 60  # seconds that two clocks may differ
MOST_BYTES = 1 << 20  # of an answer of the provider
SECONDS = 10.0  # for one answer
KEPT = 3600.0  # seconds that the description of the provider counts
BETWEEN = 30.0  # seconds between two looks for a new key
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Identity:
    """Whom the provider names. The e-mail address is only there if the provider verified it."""

    issuer: str
    subject: str
    email: str | None
    name: str | None


@dataclass(frozen=True)
class _Description:
    authorize: str
    token: str
    userinfo: str | None
    algorithms: tuple[str, ...]
    auth_method: str
    keys: str
    read: float


class Provider:
    """The provider of a hub. `url` is the address of the hub."""

    def __init__(self, settings: OpenId, url: str) -> None:
        self.settings = settings
        self.redirect = url.rstrip("/") + CALLBACK
        self.issuer = settings.issuer
        _check_address(self.issuer, "the issuer")
        self._http = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=SECONDS / 2, read=SECONDS), retries=False, maxsize=4
        )
        self._lock = threading.Lock()
        self._description: _Description | None = None
        self._keys: tuple[float, KeySet] | None = None

    def begin(self, secret: str) -> str:
        """Return the address to which a browser goes that keeps this secret."""
        address: str = prepare_grant_uri(
            self._describe().authorize,
            client_id=self.settings.client,
            response_type="code",
            redirect_uri=self.redirect,
            scope=SCOPE,
            state=_derived(secret, "state"),
            nonce=_derived(secret, "nonce"),
            code_challenge=create_s256_code_challenge(_derived(secret, "verifier")),
            code_challenge_method="S256",
        )
        return address

    def check_state(self, query: Mapping[str, str], secret: str) -> None:
        """Refuse a browser that another one sent here, or that comes from another provider."""
        state = query.get("state", "").encode()
        if not secret or not hmac.compare_digest(state, _derived(secret, "state").encode()):
            raise Refused(400, "this login was begun in another browser", hint="log in again")
        if query.get("iss", self.issuer) != self.issuer:
            raise Refused(400, "this login comes from another provider", hint="log in again")

    def finish(self, query: Mapping[str, str], secret: str) -> Identity:
        """Return whom the provider names, for the answer that it sent with the browser."""
        self.check_state(query, secret)
        if "error" in query or not query.get("code"):
            why = re.sub(r"[^ -~]", " ", query.get("error", "it sent no code"))[:100]
            raise Refused(403, "the provider refused the login", why=why)
        answer = self._exchange(query["code"], _derived(secret, "verifier"))
        claims = self._verified(answer, _derived(secret, "nonce"))
        return self._identity(claims, answer.get("access_token"))

    # What the provider says about itself

    def _describe(self) -> _Description:
        with self._lock:
            known = self._description
        if known is not None and time.monotonic() - known.read < KEPT:
            return known
        address = self.issuer.rstrip("/") + "/.well-known/openid-configuration"
        document = self._ask("GET", address)
        if document.get("issuer") != self.issuer:
            raise _broken("it describes another issuer")
        methods = document.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        basic = "client_secret_basic"
        offered = document.get("id_token_signing_alg_values_supported") or ["RS256"]
        algorithms = tuple(name for name in ALGORITHMS if name in offered)
        if not algorithms:
            raise _broken("it signs with no key that can be checked")
        described = _Description(
            authorize=self._endpoint(document, "authorization_endpoint"),
            token=self._endpoint(document, "token_endpoint"),
            userinfo=(
                self._endpoint(document, "userinfo_endpoint")
                if document.get("userinfo_endpoint")
                else None
            ),
            algorithms=algorithms,
            auth_method=basic if basic in methods else "client_secret_post",
            keys=self._endpoint(document, "jwks_uri"),
            read=time.monotonic(),
        )
        with self._lock:
            self._description = described
        return described

    def _endpoint(self, document: Mapping[str, Any], key: str) -> str:
        address = document.get(key)
        if not isinstance(address, str):
            raise _broken(f"it names no {key}")
        if urlsplit(self.issuer).scheme == "https" and not address.startswith("https://"):
            raise _broken(f"its {key} is not encrypted")
        return address

    # Requests

    def _ask(
        self, method: str, address: str, headers: Mapping[str, str] | None = None, body: str = ""
    ) -> dict[str, Any]:
        """Return the JSON object with which the provider answers; redirects are not followed."""
        end = time.monotonic() + SECONDS
        data = bytearray()
        try:
            response = self._http.request(
                method, address, body=body.encode() or None, redirect=False, preload_content=False,
                headers={"Accept": "application/json", **(headers or {})},
            )  # fmt: skip
            try:
                for part in response.stream(1 << 14):
                    data += part
                    if len(data) > MOST_BYTES or time.monotonic() > end:
                        raise _broken("its answer is too long, or too slow")
            finally:
                response.close()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            why = type(error).__name__
            raise RemoteError("the login provider does not answer", why=why) from error
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        if response.status != 200 or not isinstance(value, dict):
            problem = value.get("error") if isinstance(value, dict) else None
            why = f"status {response.status}" + (f", {str(problem)[:100]!a}" if problem else "")
            raise _broken(why)
        return value

    def _exchange(self, code: str, verifier: str) -> dict[str, Any]:
        description = self._describe()
        body = prepare_token_request(
            "authorization_code", code=code, redirect_uri=self.redirect, code_verifier=verifier
        )
        auth = ClientAuth(self.settings.client, self.settings.secret, description.auth_method)
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        _, headers, body = auth.prepare("POST", description.token, headers, body)
        return self._ask("POST", description.token, headers, body)

    # The id_token

    def _verified(self, answer: Mapping[str, Any], nonce: str) -> CodeIDToken:
        """Return the claims of the id_token, if it is for this login."""
        text = answer.get("id_token")
        if not isinstance(text, str) or len(text) > 1 << 16:
            raise _broken("it sent no id_token")
        description = self._describe()
        try:
            try:
                decoded = jwt.decode(text, self._keys_now(), algorithms=description.algorithms)
            except (JoseError, ValueError):
                # The provider may have changed its keys since they were read.
                decoded = jwt.decode(
                    text, self._keys_now(again=True), algorithms=description.algorithms
                )
            claims = CodeIDToken(
                decoded.claims,
                decoded.header,
                options={
                    "iss": {"essential": True, "value": self.issuer},
                    "aud": {"essential": True, "value": self.settings.client},
                    "sub": {"essential": True},
                    "exp": {"essential": True},
                    "iat": {"essential": True},
                    "nonce": {"essential": True, "value": nonce},
                },
                params={
                    "nonce": nonce,
                    "client_id": self.settings.client,
                    "access_token": answer.get("access_token"),
                },
            )
            claims.validate(leeway=LEEWAY)
        except (JoseError, ValueError, TypeError, KeyError, AttributeError) as error:
            why = re.sub(r"[^ -~]", " ", str(error))[:200]
            raise Refused(
                403, "the answer of the login provider is not valid", why=why, hint="log in again"
            ) from error
        return claims

    def _keys_now(self, *, again: bool = False) -> KeySet:
        with self._lock:
            known = self._keys
        age = KEPT if known is None else time.monotonic() - known[0]
        if known is not None and age < (BETWEEN if again else KEPT):
            return known[1]
        document = self._ask("GET", self._describe().keys)
        usable = [
            key
            for key in document.get("keys") or []
            # A shared secret among public keys would let anybody sign.
            if isinstance(key, dict) and key.get("kty") != "oct" and key.get("use", "sig") == "sig"
        ]
        keys = KeySet.import_key_set({"keys": usable})
        with self._lock:
            self._keys = (time.monotonic(), keys)
        return keys

    def _identity(self, claims: Mapping[str, Any], access_token: object) -> Identity:
        subject = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= 255:
            raise _broken("it names no subject")
        about = dict(claims)
        userinfo = self._describe().userinfo
        if "email" not in about and userinfo is not None and isinstance(access_token, str):
            header = {"Authorization": f"Bearer {access_token}"}
            more = self._ask("GET", userinfo, header)
            if more.get("sub") == subject:
                about = {**more, **about}
        email = about.get("email")
        verified = about.get("email_verified") is True and isinstance(email, str)
        name = about.get("preferred_username")
        return Identity(
            issuer=self.issuer,
            subject=subject,
            email=str(email) if verified and len(str(email)) <= 320 else None,
            name=name if isinstance(name, str) else None,
        )


def _check_address(address: str, what: str) -> None:
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise UsageError(f"{what} must be an https:// address", why=address)
    if parts.username or parts.query or parts.fragment:
        raise UsageError(f"{what} must be a plain address", why=address)


def _broken(why: str) -> RemoteError:
    return RemoteError("the login provider does not work", why=why)


def _derived(secret: str, purpose: str) -> str:
    """Return words that only who has the secret can make; 43 characters, as PKCE requires."""
    made = hmac.digest(secret.encode(), f"dlv {purpose}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


# What the pages call


@lru_cache(maxsize=8)
def _provider(settings: OpenId, url: str) -> Provider:
    return Provider(settings, url)


def provider_of(hub: Hub) -> Provider:
    """Return the provider of a hub; 404 where people log in with tokens alone."""
    if hub.settings.openid is None:
        raise Refused(404, "this hub has no login provider", hint="log in with a token")
    return _provider(hub.settings.openid, hub.settings.url)


def start(hub: Hub) -> tuple[str, str]:
    """Begin a login; return the address to go to, and the secret for a cookie."""
    secret = secrets.token_urlsafe(32)
    address = provider_of(hub).begin(secret)
    with hub.database.writing() as connection:
        if not tokens.begin_browser_login(connection, secret):
            raise Refused(503, "too many logins are under way", headers={"Retry-After": "60"})
    return address, secret


def come_back(hub: Hub, query: Mapping[str, str], secret: str, origin: str) -> str:
    """Finish a login; return the secret of the session. Each login comes back once."""
    provider = provider_of(hub)
    provider.check_state(query, secret)
    with hub.database.writing() as connection:
        under_way = tokens.end_browser_login(connection, secret)
    if not under_way:
        raise Refused(400, "this login has expired", hint="log in again")
    identity = provider.finish(query, secret)
    with hub.database.writing() as connection:
        user_id, name = account_of(connection, identity, provider.settings, origin)
        caller = Caller(user_id, name, origin=origin)
        return tokens.start_session(connection, caller, user_id)[0]


def account_of(
    connection: sa.Connection, identity: Identity, settings: OpenId, origin: str
) -> tuple[int, str]:
    """Return the id and name of the account of an identity; the first login makes it.

    Neither the e-mail address nor the name leads to an account that exists.
    """
    known = _known(connection, identity)
    if known is not None:
        return known
    domain = (identity.email or "").rpartition("@")[2].lower()
    if not domain or domain not in {allowed.lower() for allowed in settings.domains}:
        why = f"accounts are for: {', '.join(settings.domains)}" if settings.domains else None
        raise Refused(
            403, "you have no account on this hub", why=why, hint="ask an operator of the hub"
        )
    wanted = _name(identity)
    for number in range(1, 100):
        ending = f"-{number}" if number > 1 else ""
        name = wanted[: 40 - len(ending)].rstrip("-") + ending
        caller = Caller(name=name, origin=origin)
        try:
            added = accounts.add_user(
                connection, caller, name, email=identity.email,
                identity=(identity.issuer, identity.subject),
            )  # fmt: skip
        except (Conflict, UsageError):
            known = _known(connection, identity)  # by a login at the same moment
            if known is not None:
                return known
            continue
        audit.record(connection, caller, "user.openid", name, None, identity.issuer)
        return added, name
    raise Refused(409, f"no name like `{wanted}` is free", hint="ask an operator of the hub")


def _known(connection: sa.Connection, identity: Identity) -> tuple[int, str] | None:
    account = tables.account.c
    row = connection.execute(
        sa.select(account.id, account.name, account.disabled).where(
            account.issuer == identity.issuer, account.subject == identity.subject
        )
    ).first()
    if row is not None and row.disabled:
        raise Refused(403, "this account is disabled", hint="ask an operator of the hub")
    return None if row is None else (row.id, row.name)


def _name(identity: Identity) -> str:
    """Return the name that an account may have, after the name or address at the provider."""
    for text in (identity.name, identity.email):
        plain = unicodedata.normalize("NFKD", (text or "").partition("@")[0])
        letters = plain.encode("ascii", "ignore").decode().lower()
        name = re.sub(r"[^a-z0-9]+", "-", letters).strip("-")
        if name:
            return name[:40].rstrip("-")
    return "user"
