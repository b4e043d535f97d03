"""A server and buckets for the tests of remotes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hub.stores import s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[tuple[str, Any]]:
    with s3_server() as found:
        yield found


@pytest.fixture
def s3_environ(
    s3: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """What a user would export to reach the server."""
    environ = {
        "AWS_ENDPOINT_URL": s3[0],
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "HOME": str(tmp_path),
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return environ


@pytest.fixture
def bucket(s3: tuple[str, Any]) -> Callable[[], str]:
    """Makes an empty bucket; its name."""

    def make() -> str:
        name = f"test-{uuid.uuid4().hex}"
        s3[1].create_bucket(Bucket=name)
        return name

    return make
