"""Open the backend of an address."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from dlv.errors import UsageError, require
from dlv.hub.stores.interface import Store

_OBJECT_STORES, _WEB = ("s3", "gs", "az"), ("http", "https")


def open_store(url: str, environ: Mapping[str, str]) -> Store:
    """Open a folder, a bundle, s3://bucket/prefix, gs://.., az://.., a hub or a web server."""
    scheme = urlsplit(url).scheme if "://" in url else "file"
    if scheme == "file":
        path = Path(url.removeprefix("file://")).expanduser()
        if path.is_file():
            from dlv.hub.stores.bundle import BundleStore

            return BundleStore(path)
        from dlv.hub.stores.directory import DirectoryStore

        return DirectoryStore(path)
    if scheme in _OBJECT_STORES:
        from dlv.hub.stores.objects import ObjectStore

        return ObjectStore(url, environ)
    if scheme in _WEB:
        check_web()
        from dlv.hub.stores.server import open_web

        return open_web(url, environ)
    raise UsageError(
        f"`{url}` is not the address of a remote",
        why=f"known: a folder, {', '.join(f'{each}://' for each in (*_OBJECT_STORES, *_WEB))}",
    )


def check_web() -> None:
    """Refuse what needs HTTP if the package for it is missing."""
    require("urllib3", "remote")


def absolute(url: str, here: Path) -> str:
    """Return the address for the configuration: the absolute path of a folder."""
    if "://" in url and not url.startswith("file://"):
        return url.rstrip("/")
    return str((here / Path(url.removeprefix("file://")).expanduser()).resolve())
