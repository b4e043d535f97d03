"""Records of a remote: its identity, and the refs that publish versions."""

from __future__ import annotations

from typing import Annotated, Any

from dlv.canonical import WRITER, dumps, hash_bytes, is_hash
from dlv.dataclass import dataclass
from dlv.objects.manifest import NAME
from dlv.objects.record import Hash, Natural, Time, Word, as_json, decode, parse

REF_FORMAT, REMOTE_FORMAT = "dlv/ref/1", "dlv/remote/1"
REMOTE_FILE = "dlv-remote.json"
MOST_REF, MOST_REMOTE = 64 << 10, 64 << 10
KINDS = ("publish", "reencode", "tag", "retire")


@dataclass(frozen=True)
class Ref:
    """One entry in the history of a name: written once, never changed, never removed.

    `prev` is the hash of the entry before it. `nonce` is random and tells equal entries of two
    writers apart. `sig` is the signature of the entry without it, as ssh-keygen makes it.
    """

    seq: Natural
    kind: Annotated[str, Word(KINDS.__contains__)]
    name: Annotated[str, NAME.match]
    number: Natural
    manifest: Hash
    locator: Hash
    prev: Hash | None
    author: str
    time: Time
    nonce: str
    sig: str | None = None
    writer: str = WRITER

    def encode(self) -> bytes:
        return dumps({"format": REF_FORMAT, **as_json(self)})

    @property
    def hash(self) -> str:
        return hash_bytes(self.encode())


def decode_ref(data: bytes, noun: str) -> Ref:
    record, place = parse(data, REF_FORMAT, noun)
    return decode(Ref, record, place)


@dataclass(frozen=True)
class RemoteFile:
    """The identity of a remote; `probe` is what its store did when the remote was created."""

    uuid: str
    created: Time
    probe: dict[str, Any]
    hash: Annotated[str, Word("blake3".__eq__)] = "blake3"
    writer: str = WRITER

    def encode(self) -> bytes:
        return dumps({"format": REMOTE_FORMAT, **as_json(self)})


def decode_remote(data: bytes, noun: str) -> RemoteFile:
    record, place = parse(data, REMOTE_FORMAT, noun)
    file = decode(RemoteFile, record, place)
    if not is_hash(file.uuid):
        raise place.damaged("`uuid` is not 64 hex digits")
    return file


def object_key(kind: str, digest: str) -> str:
    """Return the key of an object that is named by its hash."""
    suffix = {"packs": "pack", "manifests": "json", "facts": "json", "locators": "zst"}[kind]
    return f"{kind}/{digest[:2]}/{digest}.{suffix}"


def ref_key(name: str, seq: int) -> str:
    return f"refs/{name}/{seq:020}.json"


def hint_key(name: str) -> str:
    return f"refs/{name}/hint"
