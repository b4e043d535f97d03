"""Remotes on a hub: the keys of a remote, mapped to the routes of the hub's API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from dlv.canonical import read_json
from dlv.errors import Conflict, Damaged, DlvError, NotFound, RemoteError, UsageError
from dlv.hub.history import PAGE
from dlv.hub.records import MOST_REMOTE, REMOTE_FILE, ref_key
from dlv.hub.stores.interface import MissingObject, Store
from dlv.hub.stores.objects import ObjectStore
from dlv.hub.stores.web import (
    MOST_RETRY_AFTER,
    TRIES,
    Cut,
    Reply,
    Unexpected,
    WebClient,
    is_token,
    origin_of,
    pause,
    plain,
)

HUB_HEADER = "Dlv-Hub"
PART = 32 << 20  # bytes of a PATCH; hubs keep what has arrived of one that is cut
MOST_PAGE = MOST_ANSWER = 32 << 20  # bytes of JSON
MOST_REFS = 1_000_000  # keys of refs that are listed
BATCH = 1000  # objects in one question
STREAMS = 4
WHOLE = 1 << 20  # objects of this size may come whole where a range was requested
KEPT = 64 << 10  # bytes after which a cut answer counts as progress
BUSY = (408, 429, 500, 502, 503, 504)
_OBJECT = re.compile(
    r"(packs|manifests|locators|facts)/[0-9a-f]{2}/([0-9a-f]{64})\.(?:pack|json|zst)\Z"
)
_REF = re.compile(r"refs/([^/]{1,128})/([0-9]{20})\.json\Z")
_HINT = re.compile(r"refs/([^/]{1,128})/hint\Z")
_LEASE = re.compile(r"leases/([0-9A-Za-z]{8,64})\.json\Z")
_RANGE = re.compile(r"bytes ([0-9]{1,16})-([0-9]{1,16})/([0-9]{1,16})\Z")


def open_web(url: str, environ: Mapping[str, str]) -> Store:
    """Open a repository of a hub, or a folder on a web server; one GET tells which it is."""
    import dlv.hub.credentials as credentials

    url = url.rstrip("/")
    given = credentials.from_environment(url, environ)
    if given is not None and not is_token(given):
        raise UsageError(
            f"the value of {credentials.TOKEN} is not a token", why="tokens begin with dlv_"
        )
    client = WebClient(url, credentials.token_for(url, environ))
    reply = client.request("GET", f"{url}/{REMOTE_FILE}", most=MOST_REMOTE, elsewhere=True)
    if reply.headers.get(HUB_HEADER) == "1":
        if origin_of(reply.url) != client.origin:
            raise client.moved(reply.url.removesuffix(f"/{REMOTE_FILE}"))
        return HubStore(url, client, reply, environ)
    client.close()
    known = {404: None, 200: reply.body}
    answers = {REMOTE_FILE: known[reply.status]} if reply.status in known else {}
    return ObjectStore(url, environ, answers)


class _Upload(NamedTuple):
    """What a hub says of an object: it has it, or how much of it has arrived."""

    present: bool
    offset: int
    href: str | None
    headers: dict[str, str]


class HubStore(Store):
    """A repository of a hub. The hub makes cards, deletes, and keeps the hints itself."""

    managed = True

    def __init__(
        self,
        url: str,
        client: WebClient,
        opened: Reply | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._environ = environ or {}
        self.url, self._client, self._opened = url, client, opened
        self.traffic = client.traffic
        base, _, path = url.partition("://")[2].partition("/")
        *before, namespace, repository = ["", *path.split("/")] if path.count("/") else ["", "", ""]
        if not repository or not namespace:
            raise UsageError(
                f"{url} is the address of a hub, not of a repository",
                hint=f"use {url}/NAMESPACE/REPOSITORY",
            )
        self.hub = "/".join([f"{urlsplit(url).scheme}://{base}", *filter(None, before)])
        self._api = f"{self.hub}/v1/{quote(namespace)}/{quote(repository)}"
        self._part = PART

    @property
    def listable(self) -> bool:
        return True

    def close(self) -> None:
        self._client.close()

    def _count(self, **_: int) -> None:
        """The client counts what is sent, because a key can take several requests or none."""

    # What other stores do not have

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        accepted = (400, 422) if path == "search" else ()
        reply = self._request(
            method, path, body=data, most=MOST_ANSWER, repeats=method != "POST", accepted=accepted
        )
        if reply.status >= 300:
            message, why = _said(reply)
            if message is None:
                raise self._refused(reply)
            raise UsageError(message, why=None if why and message in why else why)
        return self._json(reply, path, MOST_ANSWER) if reply.body else None

    def create_remote(self) -> bytes:
        body = json.dumps({"visibility": "private"}).encode()
        reply = self._request("PUT", "", body=body, accepted=(409,))
        self._opened = None
        data = self.find(REMOTE_FILE, most=MOST_REMOTE)
        if data is None:
            raise self._refused(reply) if reply.status == 409 else self.absent()
        return data

    def absent(self) -> RemoteError:
        why = None
        hint = f"check the address; if it is private, log in: dlv login {self.hub}"
        if self._client.token is not None:
            namespace = self.url.rsplit("/", 2)[1]
            hint = f"check the address, or ask an admin of `{namespace}` for a role"
        elif self._environ.get("DLV_TOKEN") and self._environ.get("DLV_TOKEN_URL"):
            why = f"DLV_TOKEN was not sent: it is for {plain(self._environ['DLV_TOKEN_URL'])}"
        return RemoteError(
            f"no such repository at {self.url}, or it is private", why=why, hint=hint
        )

    def records(self, name: str, after: int) -> list[bytes]:
        path = f"refs/{quote(name, safe='')}?after={after}"
        reply = self._request("GET", path, most=MOST_PAGE)
        listed = self._json(reply, path, MOST_PAGE)
        try:
            texts = listed["refs"]
            if not isinstance(texts, list) or len(texts) > PAGE:
                raise TypeError
            return [text.encode() for text in texts]
        except (KeyError, TypeError, AttributeError, ValueError):
            raise self.broken(f"the history of {name} is not valid") from None

    def add(self, key: str, data: bytes) -> int:
        return self._send_all({key: data})

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        self._send_all(objects)

    # Reading

    def _get(self, key: str, most: int) -> bytes:
        if key == REMOTE_FILE:
            return self._remote_file(most)
        if hint := _HINT.match(key):
            seq = self._newest().get(hint[1])
            if seq is None:
                raise MissingObject(key)
            return json.dumps({"seq": seq}).encode()
        reply = self._fetch(key, most)
        return reply.body

    def _remote_file(self, most: int) -> bytes:
        reply, self._opened = self._opened, None
        if reply is None:
            reply = self._client.request("GET", f"{self.url}/{REMOTE_FILE}", most=most)
        if reply.status == 404:
            raise MissingObject(REMOTE_FILE)
        if reply.status != 200:
            raise self._refused(reply)
        return reply.body

    def _fetch(self, key: str, most: int) -> Reply:
        reply = self._request("GET", self._path(key), most=most, elsewhere=True, accepted=(404,))
        if reply.status == 404:
            raise MissingObject(key)
        return reply

    def _path(self, key: str) -> str:
        """Return the route of a key; a hub does not have other keys."""
        if match := _OBJECT.match(key):
            return f"objects/{match[1]}/{match[2]}"
        if match := _REF.match(key):
            return f"refs/{quote(match[1], safe='')}/{int(match[2])}"
        raise MissingObject(key)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        """Read a range; after a cut, continue with what is missing of it."""
        url, data, failures = f"{self._api}/{self._path(key)}", bytearray(), 0
        while len(data) < length:
            begin = start + len(data)
            headers = {"Range": f"bytes={begin}-{start + length - 1}"}
            most, wait = max(length - len(data), WHOLE), None
            try:
                reply = self._client.once("GET", url, b"", headers, most, elsewhere=True)
            except Cut as cut:
                failures = self._failed(failures, cut)
                if cut.part is None:
                    pause(failures)
                    continue
                reply = cut.part
                if len(reply.body) >= KEPT:
                    failures = 0
                elif reply.status in (200, 206):
                    pause(failures)
            except Unexpected as error:
                raise self.broken(str(error)) from None
            if reply.status in BUSY:
                failures += 1
                wait = reply.number("Retry-After")
                if failures >= TRIES or (wait or 0) > MOST_RETRY_AFTER:
                    raise self._refused(reply)
                pause(failures, wait)
                continue
            if reply.status == 200 and not data:
                return self._slice(reply, key, start, length)
            if reply.status == 404:
                raise MissingObject(key)
            if reply.status != 206:
                break
            match = _RANGE.match(reply.headers.get("Content-Range", ""))
            if match is None or int(match[1]) != begin:
                raise self.broken(f"{key}: another range came than {headers['Range']}")
            data += reply.body[: length - len(data)]
            if int(match[2]) + 1 == int(match[3]) and begin + len(reply.body) > int(match[2]):
                break  # the object ends here
        return bytes(data)

    def _failed(self, failures: int, cut: Cut) -> int:
        if failures + 1 >= TRIES:
            self._client.unreachable(cut)
        return failures + 1

    def _slice(self, reply: Reply, key: str, start: int, length: int) -> bytes:
        """Return a range of an object that came whole."""
        if reply.number("Content-Length") not in (None, len(reply.body)):
            raise self.broken(f"{key} was cut off")
        return reply.body[start : start + length]

    def _size(self, key: str) -> int | None:
        reply = self._head(key)
        return None if reply is None else reply.number("Content-Length")

    def _modified(self, key: str) -> float | None:
        reply = self._head(key)
        if reply is None:
            return None
        try:
            return parsedate_to_datetime(reply.headers.get("Last-Modified", "")).timestamp()
        except ValueError:
            return 0.0

    def _head(self, key: str) -> Reply | None:
        try:
            path = self._path(key)
        except MissingObject:
            return None
        method = "GET" if path.startswith("refs/") else "HEAD"
        reply = self._request(method, path, accepted=(404,), elsewhere=True)
        return None if reply.status == 404 else reply

    def _keys(self, prefix: str) -> list[str]:
        """List refs; they have no gaps. Hubs have no lists of deletions."""
        if not prefix.startswith("refs/"):
            return []
        newest = self._newest()
        if sum(newest.values()) > MOST_REFS:
            raise self.broken(f"{sum(newest.values())} refs")
        keys = [ref_key(name, seq) for name, last in newest.items() for seq in range(1, last + 1)]
        return [key for key in keys if key.startswith(prefix)]

    def names(self) -> list[str]:
        return list(self._newest())

    def _newest(self) -> dict[str, int]:
        """Map models to the numbers of their newest refs."""
        refs = self.call("GET", "refs")
        refs = refs.get("refs") if isinstance(refs, dict) else None
        if not isinstance(refs, dict):
            raise self.broken("the list of models is not valid")
        return {name: seq for name, seq in refs.items() if type(seq) is int and 0 < seq < 1 << 53}

    # Writing

    def _put(self, key: str, data: bytes) -> None:
        if lease := _LEASE.match(key):
            self.call("POST", "leases", {"lease": lease[1]})
        elif _OBJECT.match(key):
            self._send_all({key: data})
        elif not _HINT.match(key):
            raise RemoteError(f"{self.url} does not take {key}", why="a hub makes it by itself")

    def _create(self, key: str, data: bytes) -> bool:
        if not _REF.match(key):
            raise RemoteError(f"{self.url} does not take {key}", why="a hub makes it by itself")
        headers = {"If-None-Match": "*", "Content-Type": "application/json"}
        reply = self._request(
            "PUT", self._path(key), body=data, headers=headers, accepted=(412,), repeats=False
        )
        return reply.status != 412

    def _delete(self, key: str) -> None:
        lease = _LEASE.match(key)
        if lease is None:
            raise RemoteError(f"{key} cannot be deleted", hint="dlv remote gc NAME")
        self._request("DELETE", f"leases/{lease[1]}", accepted=(404,), repeats=True)

    def _send_all(self, objects: Mapping[str, bytes]) -> int:
        """Send those of the objects that the hub lacks; return the number of bytes sent."""
        states = self._ask(objects)
        jobs = [(key, objects[key], state) for key, state in states.items() if not state.present]
        if len(jobs) < 2:
            return sum(self._send(*job) for job in jobs)
        with ThreadPoolExecutor(STREAMS) as pool:
            return sum(pool.map(lambda job: self._send(*job), jobs))

    def _ask(self, objects: Mapping[str, bytes]) -> dict[str, _Upload]:
        """Ask the hub which objects to send, and from which offset on."""
        states: dict[str, _Upload] = {}
        keys = list(objects)
        for start in range(0, len(keys), BATCH):
            asked = {}
            for key in keys[start : start + BATCH]:
                match = _OBJECT.match(key)
                if match is None:
                    raise RemoteError(f"{self.url} does not take {key}")
                asked[match[1], match[2]] = key
            wanted = [
                {"kind": kind, "hash": digest, "size": len(objects[key])}
                for (kind, digest), key in asked.items()
            ]
            body = json.dumps({"objects": wanted}).encode()
            reply = self._request("POST", "batch", body=body, most=MOST_ANSWER, repeats=True)
            listed = self._json(reply, "batch", MOST_ANSWER)
            try:
                states |= {asked[o["kind"], o["hash"]]: _upload(o) for o in listed["objects"]}
            except (KeyError, TypeError, AttributeError):
                raise self.broken("the answer to a batch is not valid") from None
        if states.keys() != objects.keys():
            raise self.broken("the answer to a batch is incomplete")
        return states

    def _send(self, key: str, data: bytes, state: _Upload) -> int:
        """Send an object; after a cut, continue where the hub says. Return the bytes sent."""
        view, failures, sent = memoryview(data), 0, 0
        while not state.present:
            wait = None
            if not 0 <= state.offset <= len(data):
                raise self.broken(f"{key}: {state.offset} of {len(data)} bytes have arrived")
            before = state.offset
            try:
                count, reply = self._send_part(key, view, state)
            except Cut as cut:
                count, reply = 0, None
                failures = self._failed(failures, cut)
            except Unexpected as error:
                raise self.broken(str(error)) from None
            sent += count
            if reply is not None and reply.status == 201:
                return sent
            if reply is not None and reply.status == 204:
                state, failures = state._replace(offset=before + count), 0
                continue
            if reply is not None:
                if not self._may_continue(reply):
                    raise self._refused(reply)
                failures += 1
                wait = reply.number("Retry-After")
                if failures >= TRIES or (wait or 0) > MOST_RETRY_AFTER:
                    raise self._refused(reply)
            pause(failures, wait)
            state = self._ask({key: data})[key]
            if reply is None and not state.present and state.offset == before:
                # The hub may still be writing what it had received.
                pause(failures + 1)
                state = self._ask({key: data})[key]
            if state.offset > before:
                failures = 0
        return sent

    def _send_part(self, key: str, data: memoryview, state: _Upload) -> tuple[int, Reply]:
        """Send the next bytes of an object; return their number, and the answer."""
        match = _OBJECT.match(key)
        assert match is not None
        url = f"{self._api}/uploads/{match[1]}/{match[2]}"
        if state.href is not None:
            return self._send_directly(url, data, state.href, state.headers)
        part = data[state.offset : state.offset + self._part]
        complete = state.offset + len(part) == len(data)
        headers = {
            "Content-Type": "application/partial-upload",
            "Upload-Offset": str(state.offset),
            "Upload-Complete": "?1" if complete else "?0",
        }
        reply = self._client.once("PATCH", url, part, headers, 1 << 16)
        accepted = reply.status in (201, 204)
        if reply.status == 204 and complete:
            # The hub has taken less than was sent, if anything.
            offset = reply.number("Upload-Offset")
            part = part[: max(0, (offset or 0) - state.offset)]
        return (len(part) if accepted else 0), reply

    def _send_directly(
        self, url: str, data: memoryview, href: str, headers: Mapping[str, str]
    ) -> tuple[int, Reply]:
        """Send an object to the store behind the hub, by an address that the hub has signed."""
        reply = self._client.once("PUT", href, data, headers, 1 << 16, bare=True)
        if reply.status not in (200, 201, 204):
            return 0, reply._replace(status=503 if reply.status == 403 else reply.status)
        done = self._client.request("POST", f"{url}/complete", repeats=True)
        return (len(data) if done.status == 201 else 0), done

    def _may_continue(self, reply: Reply) -> bool:
        """Whether an upload can go on after this answer, perhaps in smaller parts."""
        if reply.status == 413 and self._part > self._limit():
            self._part = self._limit()
            return True
        return reply.status in (404, 409, *BUSY)

    def _limit(self) -> int:
        """Return how many bytes the hub takes in one request."""
        reply = self._client.request("GET", f"{self.hub}/v1/config")
        try:
            return max(1, int(self._json(reply, "config", 1 << 16)["limits"]["part"]))
        except (KeyError, TypeError, ValueError):
            return self._part

    # Requests and errors

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        most: int = 1 << 20,
        repeats: bool | None = None,
        elsewhere: bool = False,
        accepted: tuple[int, ...] = (),
    ) -> Reply:
        """Send a request below the repository; raise for statuses that are not accepted."""
        kind = {"Content-Type": "application/json"} if body else {}
        reply = self._client.request(
            method,
            f"{self._api}/{path}" if path else self._api,
            body=body,
            headers={**kind, **(headers or {})},
            most=most,
            repeats=repeats,
            elsewhere=elsewhere,
        )
        if reply.status >= 300 and reply.status not in accepted:
            raise self._refused(reply)
        return reply

    def _json(self, reply: Reply, noun: str, limit: int) -> Any:
        try:
            return read_json(reply.body, noun, limit=limit)
        except Damaged as error:
            raise self.broken(error.message) from None

    def _refused(self, reply: Reply) -> DlvError:
        """Translate an answer that is not a success."""
        token = self._client.token
        if reply.status == 401 and token and token == self._environ.get("DLV_TOKEN", "").strip():
            return RemoteError(
                f"{self.hub} does not accept the token in DLV_TOKEN",
                why=_said(reply)[0],
                hint="set it to a valid token, or unset it to use that of dlv login",
            )
        return refusal(self.url, self.hub, token is not None, reply) or self.absent()


def _upload(answer: Any) -> _Upload:
    direct = answer["upload"]
    href, headers = None, {}
    if direct is not None:
        if direct["method"] != "PUT" or not isinstance(direct["href"], str):
            raise TypeError
        href = direct["href"]
        headers = {
            str(name): str(value)
            for name, value in direct["headers"].items()
            if str(name).lower() not in ("authorization", "cookie", "host", "content-length")
        }
    present, offset = answer["present"], answer["offset"]
    if type(present) is not bool or type(offset) is not int:
        raise TypeError
    return _Upload(present, offset, href, headers)


def refusal(url: str, hub: str, with_token: bool, reply: Reply) -> DlvError | None:
    """Return the error for an answer of a hub, None for a repository that is not visible."""
    message, why = _said(reply)
    login = f"dlv login {hub}"
    match reply.status:
        case 401:
            verb = "does not accept the token" if with_token else "requires a token"
            return RemoteError(f"{hub} {verb}", why=message, hint=login)
        case 403:
            return RemoteError(f"no permission at {url}", why=message)
        case 404:
            return None if message in (None, "not found") else NotFound(str(message), why=why)
        case 409:
            return Conflict(message or f"{url} reports a conflict", why=why, hint="try again")
        case 429:
            wait = reply.number("Retry-After")
            span = "later" if wait is None else f"in {wait} seconds"
            return RemoteError(f"too many requests to {hub}", hint=f"try again {span}")
        case 507:
            return RemoteError(
                f"no room left at {url}", why=message,
                hint="retire versions and run dlv remote gc, or ask for a larger quota",
            )  # fmt: skip
        case status if status >= 500:
            return RemoteError(f"{hub} failed", why=message or f"status {status}")
    return RemoteError(f"{url} refused the request", why=message or f"status {reply.status}")


def _said(reply: Reply) -> tuple[str | None, str | None]:
    """Return message and reason from the body of an error; hints of servers are not shown."""
    try:
        error = read_json(reply.body, "error", limit=1 << 16)["error"]
        texts = [error.get("message"), error.get("why")]
    except (Damaged, KeyError, TypeError, AttributeError):
        return None, None
    message, why = (plain(text) if isinstance(text, str) and text else None for text in texts)
    return message, why
