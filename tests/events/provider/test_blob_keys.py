"""Keys of blobs: one for each place, and no other text opens any."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.errors import NotFound
from dlv.events.provider.provider import BlobKeys, Place

SECRET = bytes(range(32))
long = st.integers(0, 2**63 - 1)
places = st.builds(Place, long, long, st.integers(0, 2**32 - 1), long)
alphabet = string.ascii_letters + string.digits + "-_"


@given(places)
def test_a_key_leads_back(place: Place) -> None:
    keys = BlobKeys(SECRET)
    key = keys.key(place)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", key), "goes into an address as it is"
    assert keys.place(key) == place


@given(places, st.integers(0, 58), st.sampled_from(alphabet))
def test_a_key_that_was_changed_opens_nothing(place: Place, at: int, letter: str) -> None:
    keys = BlobKeys(SECRET)
    key = keys.key(place)
    changed = key[:at] + letter + key[at + 1 :]
    if changed != key:
        with pytest.raises(NotFound):
            keys.place(changed)


@given(st.one_of(st.text(max_size=70), st.text(alphabet, min_size=59, max_size=59)))
def test_other_texts_open_nothing(text: str) -> None:
    with pytest.raises(NotFound, match="no blob has this key"):
        BlobKeys(SECRET).place(text)


@pytest.mark.parametrize("text", ["", "=", "A" * 59 + "=", "\0", "../../etc/passwd", "\ud800" * 59])
def test_malformed_keys(text: str) -> None:
    with pytest.raises(NotFound):
        BlobKeys(SECRET).place(text)


def test_a_key_is_good_for_one_secret_only() -> None:
    place = Place(1, 2, 3, 4)
    assert BlobKeys(SECRET).key(place) == BlobKeys(SECRET).key(place)
    with pytest.raises(NotFound):
        BlobKeys().place(BlobKeys().key(place))
