"""Log in at a hub: with a token, or by confirming a code in the browser."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from dlv.canonical import read_json
from dlv.dataclass import dataclass
from dlv.errors import Damaged, NotFound, RemoteError, UsageError
from dlv.hub.credentials import Credential, normal
from dlv.hub.stores.server import refusal
from dlv.hub.stores.web import Reply, WebClient, is_token, origin_of, plain

HUB_FORMAT = "dlv/hub/1"
LONGEST = 900.0  # seconds that a login may take
_ADDRESS = re.compile(r"https?://[!-~]{1,500}")
INTERVALS = (1.0, 30.0)  # seconds between two questions


@dataclass(frozen=True)
class Begun:
    """A login that a person must confirm at an address, after comparing the code."""

    device: str
    code: str
    url: str
    interval: float


class Login:
    """The hub at an address, of which the last parts may be those of a repository."""

    def __init__(self, url: str) -> None:
        address = normal(url)
        bare = f"{urlsplit(address).scheme}://{urlsplit(address).netloc}"
        parts = urlsplit(address).path.strip("/").split("/")
        shorter = "/".join([bare, *parts[:-2]]) if len(parts) > 1 else bare
        for hub in dict.fromkeys((address, shorter)):
            self.hub, self._client = hub, WebClient(hub)
            reply = self._client.request("GET", f"{hub}/v1/config")
            if reply.status == 200 and self._record(reply).get("format") == HUB_FORMAT:
                return
        raise RemoteError(f"no hub found at {address}", hint="check the address")

    def check(self, token: str) -> Credential:
        """Return whose token it is; RemoteError if the hub does not accept it."""
        if not is_token(token):
            raise UsageError("this is not a token", why="tokens begin with dlv_")
        client = WebClient(self.hub, token)
        try:
            reply = client.request("GET", f"{self.hub}/v1/me")
        finally:
            client.close()
        record = self._accepted(reply)
        return self._credential({**record, "token": token})

    def begin(self) -> Begun:
        """Begin a login that is confirmed in the browser."""
        reply = self._client.request("POST", f"{self.hub}/v1/login", repeats=True)
        record = self._accepted(reply)
        try:
            interval = min(max(float(record["interval"]), INTERVALS[0]), INTERVALS[1])
            url, code = str(record["url"]), plain(record["code"], 40)
            begun = Begun(str(record["device"]), code, url, interval)
        except (KeyError, TypeError, ValueError):
            raise self._strange() from None
        if _ADDRESS.fullmatch(url) is None:
            raise self._strange()
        return begun

    def may_open(self, begun: Begun) -> bool:
        """Whether the address to confirm at is on the hub itself."""
        try:
            return origin_of(begun.url) == self._client.origin
        except UsageError:
            return False

    def wait(self, begun: Begun, sleep: Callable[[float], None] = time.sleep) -> Credential:
        """Wait until the login is confirmed, and return the new credential."""
        body = json.dumps({"device": begun.device}).encode()
        headers = {"Content-Type": "application/json"}
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            sleep(begun.interval)
            url = f"{self.hub}/v1/login/token"
            reply = self._client.request("POST", url, body=body, headers=headers)
            if reply.status == 404:
                raise NotFound("the login was not confirmed in time", hint=f"dlv login {self.hub}")
            record = self._accepted(reply)
            if reply.status == 200:
                return self._credential(record)
        raise NotFound("the login was not confirmed in time", hint=f"dlv login {self.hub}")

    def close(self) -> None:
        self._client.close()

    def _credential(self, record: dict[str, Any]) -> Credential:
        name, token, expires = (record.get(key) for key in ("name", "token", "expires"))
        if not isinstance(name, str) or not isinstance(token, str) or not is_token(token):
            raise self._strange()
        expires = plain(expires, 40) if isinstance(expires, str) else None
        return Credential(self.hub, plain(name, 100), expires, token)

    def _accepted(self, reply: Reply) -> dict[str, Any]:
        if reply.status >= 300:
            refused = refusal(self.hub, self.hub, reply.status == 401, reply)
            raise refused or self._strange()
        return self._record(reply)

    def _record(self, reply: Reply) -> dict[str, Any]:
        try:
            record = read_json(reply.body, "answer", limit=1 << 16)
        except Damaged:
            return {}
        return record if isinstance(record, dict) else {}

    def _strange(self) -> RemoteError:
        return RemoteError(f"{self.hub} sent something unexpected")
