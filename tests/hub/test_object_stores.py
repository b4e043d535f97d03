"""Remotes in object stores, against a real S3 server, and on a static web server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dlv.hub.probe as probing
from dlv.errors import RemoteError, UsageError
from dlv.hub.stores.objects import ObjectStore
from dlv.hub.stores.opening import open_store
from tests.conformance.remote_store import StoreSuite, WritableStoreSuite
from tests.hub.stores import Bucket, Files, MemoryStore, web_server


class TestS3(WritableStoreSuite):
    @pytest.fixture
    def place(self, bucket: Callable[[], str]) -> str:
        return bucket()

    @pytest.fixture
    def store(self, place: str, s3_environ: dict[str, str]) -> ObjectStore:
        return ObjectStore(f"s3://{place}/team/models", s3_environ)

    @pytest.fixture
    def behind(self, place: str, s3: tuple[str, Any]) -> Bucket:
        return Bucket(s3[1], place, "team/models/")


class TestWeb(StoreSuite):
    @pytest.fixture
    def address(self, tmp_path: Path) -> Iterator[str]:
        (tmp_path / "site" / "models").mkdir(parents=True)
        with web_server(tmp_path / "site") as address:
            yield f"{address}/models"

    @pytest.fixture
    def store(self, address: str) -> ObjectStore:
        return ObjectStore(address, {})

    @pytest.fixture
    def behind(self, tmp_path: Path) -> Files:
        return Files(tmp_path / "site" / "models")

    def test_what_was_put_is_there(self, store: Any, behind: Any) -> None:
        with pytest.raises(RemoteError, match="is read-only"):
            store.put("a", b"x")
        with pytest.raises(RemoteError, match="is read-only"):
            store.create("a", b"x")
        with pytest.raises(RemoteError, match="is read-only"):
            store.keys("refs/")
        assert len(behind) == 0


def test_keys_from_the_files_of_aws(
    tmp_path: Path, s3: tuple[str, Any], bucket: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `aws configure` leaves them, under the profile that is chosen."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[team]\naws_access_key_id = key\naws_secret_access_key = secret\n"
    )
    (tmp_path / ".aws" / "config").write_text("[profile team]\nregion = us-east-1\n")
    environ = {"HOME": str(tmp_path), "AWS_PROFILE": "team", "AWS_ENDPOINT_URL": s3[0]}
    store = ObjectStore(f"s3://{bucket()}", environ)
    store.put("a", b"x")
    assert store.get("a", most=1) == b"x"


def test_a_bucket_that_is_not_there(s3_environ: dict[str, str]) -> None:
    store = ObjectStore("s3://no-such-bucket", s3_environ)
    with pytest.raises(RemoteError):
        store.put("a", b"x")


def test_other_addresses_are_refused() -> None:
    with pytest.raises(UsageError, match="not the address of a remote"):
        open_store("ftp://host/models", {})


def test_a_store_that_ignores_conditions_is_refused() -> None:
    store = MemoryStore()
    store.lying = True
    found = probing.probe(store)
    assert not found["create"]
    with pytest.raises(RemoteError, match="cannot be shared safely") as caught:
        probing.check(store, found, single_writer=False)
    assert "--single-writer" in str(caught.value.hint)
    probing.check(store, found, single_writer=True)
