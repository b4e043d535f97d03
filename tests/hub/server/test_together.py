"""Publishers who send the same objects at the same time, and deletions beside them."""

from __future__ import annotations

import contextlib
import datetime
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dlv.errors import Conflict
from dlv.hub.server import collecting, objects
from dlv.hub.server.hub import Hub
from dlv.hub.server.refusal import Refused
from dlv.hub.server.settings import Settings
from dlv.hub.server.upkeep.checking import check
from tests.hub.server.filling import Publisher

NO_GRACE = datetime.timedelta(seconds=-60)


@pytest.fixture
def hub(hub_database_url: str, tmp_path: Path) -> Hub:
    store = str(tmp_path / "objects")
    return Hub(Settings(database=hub_database_url, store=store, data=tmp_path, url="http://x"))


def test_eight_publishers_send_the_same_objects(hub: Hub) -> None:
    publisher = Publisher(hub)
    packs = {objects.Wanted("packs", _hash(data), len(data)): data for data in _packs(12)}

    def send(turn: int) -> None:
        wanted = list(packs)
        random.Random(turn).shuffle(wanted)
        for each, upload in objects.batch(hub, publisher.caller, publisher.place, wanted):
            if upload is None:
                continue
            try:
                objects.receive(hub, publisher.place, upload, packs[each], start=0, complete=True)
            except Refused as refused:  # another one has finished it
                if refused.status not in (404, 409):
                    raise

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send, range(8)))
    report = check(hub, full=True, grace=NO_GRACE)
    assert report.faults == []
    assert report.checked["objects"] == 12
    hub.close()


def _packs(count: int) -> list[bytes]:
    return [os.urandom(100) for _ in range(count)]


def _hash(data: bytes) -> str:
    from dlv.canonical import hash_bytes

    return hash_bytes(data)


def test_deletions_beside_publishers_delete_nothing_that_is_needed(hub: Hub) -> None:
    publishers = [Publisher(hub) for _ in range(6)]
    shared = _packs(4)

    def publish(number: int) -> None:
        for turn in range(6):
            while True:
                try:
                    publishers[number].publish(f"net{number % 2}", shared[turn % 4])
                    break
                except Conflict:  # an object is being deleted
                    continue
                except Refused as refused:  # it was deleted: send it again
                    if refused.status != 409:
                        raise

    def collect(_: int) -> None:
        for _ in range(10):
            with contextlib.suppress(Conflict):
                collecting.collect(
                    hub, publishers[0].caller, publishers[0].place, NO_GRACE, dry_run=False
                )

    with ThreadPoolExecutor(8) as pool:
        work = [pool.submit(publish, number) for number in range(6)]
        work += [pool.submit(collect, number) for number in range(2)]
        for each in work:
            each.result()
    report = check(hub, full=True, grace=NO_GRACE)
    assert report.faults == []
    hub.close()
