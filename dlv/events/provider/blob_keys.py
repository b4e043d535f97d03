"""Names of blobs that go into addresses: short, opaque, and of no use to who only guesses."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
import struct
from typing import NamedTuple

from dlv.canonical import keyed_hash
from dlv.errors import NotFound

_PLACE = struct.Struct(">qqIq")
_CHECK = 16  # bytes of the keyed hash
_FORM = re.compile(r"[A-Za-z0-9_-]{59}\Z")  # base64url of 28 + 16 bytes, without its padding


class Place(NamedTuple):
    """Blob `number` of the point `ordinal` of a series; `blob` is what stood there.

    A restart moves points to other ordinals, and then the key must not open another blob.
    """

    series: int
    ordinal: int
    number: int
    blob: int


class BlobKeys:
    """Makes and reads keys with a secret; without one given they hold as long as the object."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secrets.token_bytes(32) if secret is None else secret

    def key(self, place: Place) -> str:
        packed = _PLACE.pack(*place)
        return base64.urlsafe_b64encode(packed + self._check(packed)).decode().rstrip("=")

    def place(self, key: str) -> Place:
        """The inverse of `key`; whatever it did not make is not found."""
        if isinstance(key, str) and _FORM.match(key):
            try:
                data = base64.b64decode(key + "=", altchars=b"-_", validate=True)
            except binascii.Error:
                data = b""
            packed, check = data[: _PLACE.size], data[_PLACE.size :]
            # The last character holds bits that no byte takes: one key only for each place.
            exact = base64.urlsafe_b64encode(data).decode().rstrip("=") == key
            if exact and hmac.compare_digest(check, self._check(packed)):
                return Place(*_PLACE.unpack(packed))
        raise NotFound(
            "no blob has this key",
            why="keys are good for the server, or the object, that gave them",
            hint="ask for the blob sequence again",
        )

    def _check(self, packed: bytes) -> bytes:
        return keyed_hash(self._secret, packed)[:_CHECK]
