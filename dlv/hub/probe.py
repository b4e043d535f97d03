"""Probe a store: does it do what a remote depends on?"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dlv.errors import RemoteError
from dlv.hub.stores.interface import Store

RACES, WRITERS = 5, 8


def probe(store: Store) -> dict[str, Any]:
    """Write objects below probe/, read them back, and delete them."""
    top = f"probe/{os.urandom(8).hex()}"
    keys: list[str] = []

    def key(name: str) -> str:
        keys.append(f"{top}/{name}")
        return keys[-1]

    abilities: dict[str, Any] = {}
    twice = key("twice")
    first = store.create(twice, b"first")
    second = store.create(twice, b"second")
    abilities["create"] = first and not second and store.get(twice, most=16) == b"first"
    abilities["races"] = sum(_race(store, key(f"race{i}")) for i in range(RACES))
    whole = key("whole")
    data = bytes(range(256)) * 16
    store.put(whole, data)
    abilities["read_after_write"] = store.get(whole, most=1 << 16) == data
    abilities["list_after_write"] = whole in store.keys(f"{top}/")
    try:
        abilities["ranges"] = store.get_range(whole, 1000, 100) == data[1000:1100]
    except RemoteError:
        abilities["ranges"] = False
    for written in keys:
        store.delete(written)
    return abilities


def _race(store: Store, key: str) -> bool:
    """Return whether exactly one of several simultaneous writers succeeds, with its own bytes."""
    contents = [b"%d" % i for i in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        created = list(pool.map(lambda data: store.create(key, data), contents))
    winners = [data for data, won in zip(contents, created, strict=True) if won]
    return len(winners) == 1 and store.get(key, most=16) == winners[0]


def check(store: Store, abilities: dict[str, Any], *, single_writer: bool) -> None:
    """Refuse a store in which simultaneous publishers could lose a version."""
    if not abilities["read_after_write"]:
        raise RemoteError(f"{store.url} does not return what was just written")
    exclusive = abilities["create"] and abilities["races"] == RACES
    if not exclusive and not single_writer:
        raise RemoteError(
            f"{store.url} cannot be shared safely",
            why="it overwrites objects that must be written only once (PUT-if-absent)",
            hint="if you are the only one who writes there: add --single-writer",
        )
