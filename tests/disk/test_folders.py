"""Folders of a user's own, where the environment says so and otherwise."""

from __future__ import annotations

from pathlib import Path

import dlv.disk.paths as paths


def test_as_the_environment_says() -> None:
    environ = {"HOME": "/home/ada", "XDG_CACHE_HOME": "/tmp/c", "XDG_STATE_HOME": "/tmp/s"}
    assert paths.cache(environ) == Path("/tmp/c/dlv")
    assert paths.state(environ) == Path("/tmp/s/dlv")


def test_at_home_otherwise() -> None:
    environ = {"HOME": "/home/ada", "XDG_CACHE_HOME": ""}
    assert paths.cache(environ) == Path("/home/ada/.cache/dlv")
    assert paths.state(environ) == Path("/home/ada/.local/state/dlv")
