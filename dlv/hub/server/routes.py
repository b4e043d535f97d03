"""Routes of repositories, refs, objects, uploads, leases, aliases and deletion."""

from __future__ import annotations

import datetime
import re
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from dlv.canonical import is_hash
from dlv.dataclass import dataclass
from dlv.hub.records import object_key
from dlv.hub.server import answers, collecting, objects, repositories
from dlv.hub.server.access import Role, namespace_role, visible_repositories
from dlv.hub.server.exchange import Answer, Exchange, Route, declared_length
from dlv.hub.server.objects import Upload, Wanted
from dlv.hub.server.refusal import Refused, not_found

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})\Z")
_LEASE = re.compile(r"[0-9A-Za-z]{8,64}\Z")
MOST_REFS = 1000
KEPT_PART = 64 << 10  # bytes of a part that was cut off which are worth keeping
BINARY = "application/octet-stream"
FOREVER = "private, max-age=31536000, immutable"

R = "/v1/{namespace}/{repository}"


# Repositories


@dataclass(frozen=True)
class NewRepository:
    visibility: str = "private"
    description: str = ""


@dataclass(frozen=True)
class Change:
    visibility: str | None = None
    description: str | None = None


def list_repositories(call: Exchange) -> Answer:
    with call.hub.database.reading() as connection:
        rows = visible_repositories(connection, call.caller, call.parts["namespace"])
    if not rows:
        raise not_found()
    return Answer.of_json({"repositories": rows})


def create_repository(call: Exchange) -> Answer:
    namespace, name = call.parts["namespace"].lower(), call.parts["repository"].lower()
    with call.hub.database.reading() as connection:
        namespace_id, role = namespace_role(connection, call.caller, namespace, name)
    if namespace_id is None or role == Role.NONE:
        raise not_found()
    if role < Role.WRITER:
        raise Refused(403, "creating a repository requires the role writer in its namespace")
    body: NewRepository = call.body
    label = f"{namespace}/{name}"
    repositories.create(
        call.hub, call.caller, namespace_id, label, body.visibility, body.description
    )
    return Answer.of_json({"namespace": namespace, "name": name}, 201)


def show_repository(call: Exchange) -> Answer:
    place = call.place
    return Answer.of_json(
        {
            "namespace": place.namespace,
            "name": place.name,
            "visibility": "public" if place.public else "private",
            "description": place.description,
            "role": place.role.word,
            "uuid": place.uuid,
            "remote": place.record,
        }
    )


def change_repository(call: Exchange) -> Answer:
    body: Change = call.body
    repositories.change(call.hub, call.caller, call.place, body.visibility, body.description)
    return Answer(204)


def delete_repository(call: Exchange) -> Answer:
    repositories.delete(call.hub, call.caller, call.place)
    return Answer(204)


# Refs


def list_refs(call: Exchange) -> Answer:
    with call.hub.database.reading() as connection:
        return Answer.of_json({"refs": repositories.newest_refs(connection, call.place.id)})


def list_records(call: Exchange) -> Answer:
    after = call.number("after", 0)
    with call.hub.database.reading() as connection:
        records = repositories.records_of(
            connection, call.place.id, call.parts["name"], after, MOST_REFS
        )
    return Answer.of_json({"refs": [record.decode() for record in records]})


def show_ref(call: Exchange) -> Answer:
    with call.hub.database.reading() as connection:
        seq = _seq(call.parts["seq"])
        ref = repositories.record_of(connection, call.place.id, call.parts["name"], seq)
    if ref is None:
        raise not_found()
    record, digest = ref
    return _conditional(call, digest, {"Cache-Control": "no-cache"}) or Answer(
        200, record, {"ETag": f'"{digest}"', "Cache-Control": "no-cache"}
    )


def append_ref(call: Exchange) -> Answer:
    if call.header("if-none-match") != "*":
        raise Refused(428, "a ref is written once", hint="send the header If-None-Match: *")
    name, seq = call.parts["name"], _seq(call.parts["seq"])
    repositories.publish(call.hub, call.caller, call.place, name, seq, call.body)
    return Answer.of_json({"seq": seq}, 201)


def _seq(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20) or int(text) >= 1 << 53:
        raise not_found()
    return int(text)


# Objects


def _conditional(call: Exchange, digest: str, headers: dict[str, str]) -> Answer | None:
    """Return 304 if the client has the object."""
    known = call.header("if-none-match")
    if known is not None and (known == "*" or f'"{digest}"' in known):
        return Answer(304, b"", {"ETag": f'"{digest}"', **headers})
    return None


def send_object(call: Exchange) -> Answer:
    kind, digest = _object(call)
    hub, place = call.hub, call.place
    with hub.database.reading() as connection:
        size = objects.size_of(connection, place.id, kind, digest)
    if size is None:
        raise not_found()
    headers = {"Cache-Control": FOREVER, "ETag": f'"{digest}"', "Accept-Ranges": "bytes"}
    unchanged = _conditional(call, digest, {"Cache-Control": FOREVER})
    if unchanged is not None:
        return unchanged
    start, length = _range(call.header("range"), size)
    status = 200
    if (start, length) != (0, size):
        status = 206
        headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{size}"
    headers["Content-Length"] = str(length)
    if call.method == "HEAD":
        return Answer(status, b"", headers, "application/octet-stream")
    key = object_key(kind, digest)
    if hub.settings.direct and kind == "packs":
        location = hub.signed(place.uuid, key, "GET")
        if location is not None:
            return Answer(307, b"", {"Location": location, "Cache-Control": "no-store"})
    store = hub.store_of(place.uuid)
    if length <= objects.PIECE:
        body = store.get_range(key, start, length) if length else b""
        return Answer(status, body, headers, "application/octet-stream")
    body_pieces = objects.pieces(store, key, start, length)
    return Answer(status, body_pieces, headers, "application/octet-stream")


def _object(call: Exchange) -> tuple[str, str]:
    kind, digest = call.parts["kind"], call.parts["hash"]
    if kind not in objects.KINDS or not is_hash(digest):
        raise not_found()
    return kind, digest


def _range(header: str | None, size: int) -> tuple[int, int]:
    """Return (start, length) of a single range; anything else means the whole object."""
    match = _RANGE.match(header or "")
    if match is None or not (match[1] or match[2]):
        return 0, size
    if match[1]:
        start, end = int(match[1]), min(int(match[2] or size), size - 1)
    else:
        start, end = max(0, size - int(match[2])), size - 1
    if start > end:
        raise Refused(
            416, "the object has no such bytes", headers={"Content-Range": f"bytes */{size}"}
        )
    return start, end - start + 1


@dataclass(frozen=True)
class Batch:
    objects: tuple[Wanted, ...]


def ask_for_uploads(call: Exchange) -> Answer:
    wanted = call.body.objects
    if len(wanted) > call.hub.limits.hashes:
        raise Refused(413, f"a batch has at most {call.hub.limits.hashes} objects")
    if not all(is_hash(each.hash) and each.size >= 0 for each in wanted):
        raise Refused(422, "an object of the batch has no valid hash or size")
    answers = objects.batch(call.hub, call.caller, call.place, wanted)
    return Answer.of_json({"objects": [_upload(call, *answer) for answer in answers]})


def _upload(call: Exchange, wanted: Wanted, upload: Upload | None) -> dict[str, Any]:
    direct = None
    if upload is not None and upload.kind == "packs" and call.hub.settings.direct:
        href = call.hub.signed(call.place.uuid, upload.direct, "PUT")
        direct = None if href is None else {"href": href, "method": "PUT", "headers": {}}
    return {
        "kind": wanted.kind,
        "hash": wanted.hash,
        "present": upload is None,
        "offset": 0 if upload is None else upload.offset,
        "upload": direct,
    }


# Uploads


def show_upload(call: Exchange) -> Answer:
    upload = objects.upload_of(call.hub, call.place, *_object(call))
    return Answer(
        204, b"", {"Upload-Offset": str(upload.offset), "Upload-Length": str(upload.size)}
    )


async def receive_part(call: Exchange) -> Answer:
    """Take bytes of an object. Of a part that is cut off, what has arrived is kept."""
    kind, digest = _object(call)
    start = _header_number(call, "upload-offset")
    complete = call.header("upload-complete") == "?1"
    upload = await run_in_threadpool(objects.upload_of, call.hub, call.place, kind, digest)
    if start != upload.offset:
        raise objects.wrong_offset(upload)
    room = min(call.hub.limits.part, upload.size - start)
    expected = declared_length(call.headers)
    too_large = Refused(413, f"at most {room} bytes more are accepted in this request")
    if expected > room:
        raise too_large
    data, cut = bytearray(), False
    assert call.stream is not None
    with call.hub.buffers.opened(call.caller, expected) as buffer:
        try:
            async for chunk in call.stream():
                data += chunk
                buffer.grow(len(data))
                if len(data) > room:
                    raise too_large
        except ClientDisconnect:
            cut = True
            if len(data) < KEPT_PART:
                raise
        done = await run_in_threadpool(
            objects.receive,
            call.hub,
            call.place,
            upload,
            data,
            start=start,
            complete=complete and not cut,
        )
    return Answer(201 if done else 204, b"", {"Upload-Offset": str(start + len(data))})


def _header_number(call: Exchange, name: str) -> int:
    text = call.header(name) or ""
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise Refused(400, f"the header {name} must be a number")
    return int(text)


def finish_upload(call: Exchange) -> Answer:
    upload = objects.upload_of(call.hub, call.place, *_object(call))
    objects.finish_direct(call.hub, call.place, upload)
    return Answer(201)


def abort_upload(call: Exchange) -> Answer:
    upload = objects.upload_of(call.hub, call.place, *_object(call))
    objects.abort(call.hub, call.place, upload)
    return Answer(204)


# Leases, aliases, deletion


@dataclass(frozen=True)
class Lease:
    lease: str


@dataclass(frozen=True)
class AliasTarget:
    number: int


@dataclass(frozen=True)
class Collection:
    """`grace` in seconds."""

    grace: int = 14 * 86400
    dry_run: bool = False


def take_lease(call: Exchange) -> Answer:
    name = call.body.lease
    if not _LEASE.match(name):
        raise Refused(422, "a lease has 8 to 64 letters and digits")
    expires = collecting.lease(call.hub, call.caller, call.place, name)
    return Answer.of_json({"lease": name, "expires": expires}, 201)


def end_lease(call: Exchange) -> Answer:
    collecting.end_lease(call.hub, call.place, call.parts["lease"])
    return Answer(204)


def list_aliases(call: Exchange) -> Answer:
    with call.hub.database.reading() as connection:
        return Answer.of_json({"aliases": repositories.aliases(connection, call.place.id)})


def set_alias(call: Exchange) -> Answer:
    name, alias = call.parts["model"], call.parts["alias"].lower()
    repositories.set_alias(call.hub, call.caller, call.place, name, alias, call.body.number)
    return Answer.of_json({"model": name, "alias": alias, "number": call.body.number})


def delete_alias(call: Exchange) -> Answer:
    name, alias = call.parts["model"], call.parts["alias"].lower()
    repositories.set_alias(call.hub, call.caller, call.place, name, alias, None)
    return Answer(204)


def collect(call: Exchange) -> Answer:
    body: Collection = call.body
    if not 0 <= body.grace <= 10 * 365 * 86400:
        raise Refused(422, "`grace` is not a sensible number of seconds")
    grace = datetime.timedelta(seconds=body.grace)
    done = collecting.collect(call.hub, call.caller, call.place, grace, dry_run=body.dry_run)
    return Answer.of_json(
        {
            "deleted": done.deleted,
            "listed": done.listed,
            "until": done.until,
            "bytes": done.bytes,
            "leases": done.leases,
        }
    )


W, M, A = Role.WRITER, Role.MAINTAINER, Role.ADMIN
UPLOAD = R + "/uploads/{kind}/{hash}"
ALIAS = R + "/aliases/{model}/{alias}"
ROUTES = [
    Route("GET", "/v1/{namespace}", Role.NONE, list_repositories, "List repositories",
          answer=answers.REPOSITORIES),
    Route("GET", R, Role.READER, show_repository, "Show a repository", answer=answers.REPOSITORY),
    Route(
        "PUT", R, Role.NONE, create_repository, "Create a repository",
        answer=answers.CREATED, known=True,
        body=NewRepository, statuses=(201, 409),
    ),
    Route("PATCH", R, A, change_repository, "Change a repository", body=Change, statuses=(204,)),
    Route("DELETE", R, A, delete_repository, "Delete a repository", statuses=(204,)),
    Route("GET", R + "/refs", Role.READER, list_refs, "List models and their newest refs",
          answer=answers.NEWEST),
    Route(
        "GET", R + "/refs/{name}", Role.READER, list_records, "Read the history of a model",
        answer=answers.RECORDS,
        query={"after": "only refs after this number"},
    ),
    Route("GET", R + "/refs/{name}/{seq}", Role.READER, show_ref, "Read a ref", answer=answers.REF,
          statuses=(200, 304)),
    Route(
        "PUT", R + "/refs/{name}/{seq}", W, append_ref, "Publish, retire or tag a version",
        answer=answers.APPENDED,
        body=bytes, statuses=(201, 409, 412),
    ),
    Route(
        "GET", R + "/objects/{kind}/{hash}", Role.READER, send_object, "Read an object",
        answer=answers.BYTES,
        media=BINARY,
        statuses=(200, 206, 304, 307, 416),
    ),
    Route("POST", R + "/batch", W, ask_for_uploads, "Ask which objects to send",
          answer=answers.BATCH, body=Batch,
          large=True, statuses=(200, 409, 507)),
    Route("GET", UPLOAD, W, show_upload, "Show how much of an upload has arrived",
          statuses=(204,)),
    Route(
        "PATCH", UPLOAD, W, receive_part, "Send bytes of an object", streams=True,
        statuses=(201, 204, 409),
    ),
    Route("POST", UPLOAD + "/complete", W, finish_upload, "Finish a direct upload",
          statuses=(201, 409)),
    Route("DELETE", UPLOAD, W, abort_upload, "Give up an upload", statuses=(204,)),
    Route("POST", R + "/leases", W, take_lease, "Keep objects from being deleted",
          answer=answers.LEASE, body=Lease,
          statuses=(201,)),
    Route("DELETE", R + "/leases/{lease}", W, end_lease, "End a lease", statuses=(204,)),
    Route("GET", R + "/aliases", Role.READER, list_aliases, "List aliases", answer=answers.ALIASES),
    Route("PUT", ALIAS, M, set_alias, "Let an alias name a version",
          answer=answers.ALIAS, body=AliasTarget),
    Route("DELETE", ALIAS, M, delete_alias, "Delete an alias", statuses=(204,)),
    Route("POST", R + "/gc", M, collect, "Delete objects that no version needs",
          answer=answers.COLLECTED, body=Collection),
]  # fmt: skip
