"""What a store really does, tried out before a remote is trusted to it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dlv.errors import RemoteError
from dlv.hub.stores.interface import Store

RACES, WRITERS = 5, 8


def probe(store: Store) -> dict[str, Any]:
    """Write below probe/, look what becomes of it, and remove it."""
    top = f"probe/{os.urandom(8).hex()}"
    keys: list[str] = []

    def key(name: str) -> str:
        keys.append(f"{top}/{name}")
        return keys[-1]

    found: dict[str, Any] = {}
    twice = key("twice")
    first = store.create(twice, b"first")
    second = store.create(twice, b"second")
    found["create"] = first and not second and store.get(twice, most=16) == b"first"
    found["races"] = sum(_race(store, key(f"race{i}")) for i in range(RACES))
    whole = key("whole")
    data = bytes(range(256)) * 16
    store.put(whole, data)
    found["read_after_write"] = store.get(whole, most=1 << 16) == data
    found["list_after_write"] = whole in store.keys(f"{top}/")
    try:
        found["ranges"] = store.get_range(whole, 1000, 100) == data[1000:1100]
    except RemoteError:
        found["ranges"] = False
    for each in keys:
        store.delete(each)
    return found


def _race(store: Store, key: str) -> bool:
    """Whether of several writers at once exactly one wins, and its bytes are there."""
    said = [b"%d" % i for i in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        won = [
            data
            for data, made in zip(said, pool.map(lambda d: store.create(key, d), said), strict=True)
            if made
        ]
    return len(won) == 1 and store.get(key, most=16) == won[0]


def check(store: Store, found: dict[str, Any], *, single_writer: bool) -> None:
    """Refuse a store on which two that publish at once could lose a version."""
    if not found["read_after_write"]:
        raise RemoteError(f"{store.url} does not give back what was just written")
    if (not found["create"] or found["races"] < RACES) and not single_writer:
        why = "it overwrites objects that must be written only once (PUT-if-absent)"
        raise RemoteError(
            f"{store.url} cannot be shared safely",
            why=why,
            hint="if you are the only one who writes there: add --single-writer",
        )
