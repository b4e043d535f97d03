"""The gateway of Ceph and s3rver as they are, and publishers who race for one name."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import dlv.hub.probe as probing
from dlv.errors import RemoteError
from dlv.hub.history import History, successor
from dlv.hub.stores.directory import DirectoryStore
from dlv.hub.stores.interface import Store
from dlv.hub.stores.objects import ObjectStore
from tests.conformance.remote_store import WritableStoreSuite
from tests.hub.real_stores import CEPH, S3RVER, ceph_gateway, s3rver
from tests.hub.stores import Bucket, MemoryStore

needs_ceph = pytest.mark.skipif(
    not all(map(shutil.which, CEPH)), reason="apt install radosgw ceph-mon ceph-osd ceph-common"
)
WRITERS, ROUNDS = 16, 100


@pytest.fixture(scope="module")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], Any]]:
    """(environment, client) of a gateway."""
    import boto3

    with ceph_gateway(tmp_path_factory.mktemp("ceph")) as address:
        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
        client = boto3.client("s3", endpoint_url=address, region_name="us-east-1", **keys)
        environ = {name.upper(): value for name, value in keys.items()}
        yield environ | {"AWS_ENDPOINT_URL": address, "AWS_REGION": "us-east-1"}, client


@pytest.mark.slow
@needs_ceph
class TestCeph(WritableStoreSuite):
    @pytest.fixture
    def place(self, ceph: tuple[dict[str, str], Any]) -> str:
        name = f"test-{os.urandom(4).hex()}"
        ceph[1].create_bucket(Bucket=name)
        return name

    @pytest.fixture
    def store(self, place: str, ceph: tuple[dict[str, str], Any]) -> ObjectStore:
        return ObjectStore(f"s3://{place}/team/models", ceph[0])

    @pytest.fixture
    def behind(self, place: str, ceph: tuple[dict[str, str], Any]) -> Bucket:
        return Bucket(ceph[1], place, "team/models/")


@pytest.mark.slow
@pytest.mark.skipif(S3RVER is None, reason="npm install s3rver, and name it in DLV_S3RVER")
def test_a_store_that_ignores_conditions_is_refused(tmp_path: Path) -> None:
    with s3rver(tmp_path) as address:
        environ = {"AWS_ENDPOINT_URL": address, "AWS_REGION": "us-east-1"}
        environ |= {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER"}
        store = ObjectStore("s3://test/models", environ)
        abilities = probing.probe(store)
        assert not abilities["create"]
        assert abilities["ranges"]
        with pytest.raises(RemoteError, match="cannot be shared safely") as caught:
            probing.check(store, abilities, single_writer=False)
        assert caught.value.exit_code == 7


def _race(stores: Callable[[], Store], tmp_path: Path, rounds: int) -> None:
    """All append to one history through clients of their own, as `dlv publish` does."""

    def write(number: int) -> None:
        folder = tmp_path / f"w{number}"
        (folder / "tmp").mkdir(parents=True)
        history = History(stores(), folder / "cache", folder / "tmp")
        for turn in range(rounds):
            while True:
                chain = history.chain("net", None)
                ref = successor(
                    chain,
                    "publish",
                    name="net",
                    number=len(chain) + 1,
                    manifest=f"{number:032x}{turn:032x}",
                    locator="ab" * 32,
                    author=f"writer {number}",
                )
                if history.append(ref):
                    break
                time.sleep(0.001 * number)  # as fetching what the others have published takes

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    (tmp_path / "tmp").mkdir()
    chain = History(stores(), tmp_path / "cache", tmp_path / "tmp").chain("net", None)
    wanted = {f"{number:032x}{turn:032x}" for number in range(WRITERS) for turn in range(rounds)}
    assert {ref.manifest for ref in chain} == wanted
    assert [ref.number for ref in chain] == list(range(1, WRITERS * rounds + 1))


@pytest.mark.parametrize("rounds", [3, pytest.param(ROUNDS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend", ["memory", "directory"])
def test_push_race(tmp_path: Path, backend: str, rounds: int) -> None:
    memory = MemoryStore()
    folder = tmp_path / "remote"
    _race(lambda: memory if backend == "memory" else DirectoryStore(folder), tmp_path, rounds)


@pytest.mark.slow
def test_push_race_on_moto(
    tmp_path: Path, s3_environ: dict[str, str], bucket: Callable[[], str]
) -> None:
    place = bucket()
    _race(lambda: ObjectStore(f"s3://{place}", s3_environ), tmp_path, ROUNDS)


@pytest.mark.slow
@needs_ceph
def test_push_race_on_ceph(tmp_path: Path, ceph: tuple[dict[str, str], Any]) -> None:
    ceph[1].create_bucket(Bucket="race")
    _race(lambda: ObjectStore("s3://race", ceph[0]), tmp_path, ROUNDS)
