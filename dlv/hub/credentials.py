"""Tokens of hubs: in a file that only its owner can read, in the keyring, or in the environment."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dlv.config import user_file
from dlv.dataclass import dataclass
from dlv.errors import NotFound, StorageError, UnsafeInput, UsageError, require

FILE, FORMAT = "credentials.json", "dlv/credentials/1"
SERVICE = "dlv"  # in the keyring
TOKEN, TOKEN_URL = "DLV_TOKEN", "DLV_TOKEN_URL"
MOST_FILE = 1 << 20
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Credential:
    """Who is logged in at a hub. `token` is None if the keyring has it."""

    hub: str
    name: str
    expires: str | None
    token: str | None


def normal(url: str) -> str:
    """Return the address of a hub in the one form that is compared."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise UsageError("the address of the remote is not valid", why=str(error)) from None
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "an address must not contain a user name or a password",
            hint=f"dlv login {parts.scheme}://{host}",
        )
    if parts.scheme not in _PORTS or not host:
        raise UsageError(
            f"`{url}` is not the address of a hub", hint="use https://HOST or http://HOST:PORT"
        )
    host = f"[{host}]" if ":" in host else host
    place = host if port in (None, _PORTS[parts.scheme]) else f"{host}:{port}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}"


def path_of(environ: Mapping[str, str]) -> Path:
    return user_file(environ).with_name(FILE)


def known(environ: Mapping[str, str]) -> dict[str, Credential]:
    """Return all credentials by the addresses of their hubs."""
    path = path_of(environ)
    data = _read(path)
    if data is None:
        return {}
    try:
        record = json.loads(data)
        if record["format"] != FORMAT:
            raise ValueError("unknown format")
        return {hub: _credential(hub, entry) for hub, entry in record["hubs"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{path} is not valid", why=str(error), hint=f"to start again: rm {path}"
        ) from None


def _credential(hub: str, entry: Mapping[str, Any]) -> Credential:
    token, expires = entry.get("token"), entry.get("expires")
    if not isinstance(token, str | None) or not isinstance(expires, str | None):
        raise TypeError(f"entry of {hub}")
    return Credential(hub, str(entry["name"]), expires, token)


def _read(path: Path) -> bytes | None:
    """Return the file. It must belong to this user and be unreadable for others."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafeInput(f"{path} is a symbolic link", hint=f"rm {path}") from None
        raise StorageError(f"cannot read {path}", why=error.strerror) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeInput(f"{path} is not a regular file", hint=f"rm {path}")
        if status.st_uid != os.geteuid():
            raise UnsafeInput(f"{path} belongs to another user", why=f"user id {status.st_uid}")
        if status.st_mode & 0o077:
            raise UnsafeInput(
                f"other users can read {path}",
                why=f"its mode is {status.st_mode & 0o777:03o}",
                hint=f"chmod 600 {path}",
            )
        return file.read(MOST_FILE)


def hub_of(url: str, hubs: Mapping[str, object]) -> str | None:
    """Return the hub that an address belongs to, the longest one if there are several."""
    address = normal(url)
    fitting = [hub for hub in hubs if address == hub or address.startswith(f"{hub}/")]
    return max(fitting, key=len, default=None)


def from_environment(url: str, environ: Mapping[str, str]) -> str | None:
    """Return DLV_TOKEN, if it is for this address."""
    token, hub = environ.get(TOKEN, "").strip(), environ.get(TOKEN_URL, "")
    fits = not hub or not token or hub_of(url, {normal(hub): None}) is not None
    return token if token and fits else None


def token_for(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the token for an address: DLV_TOKEN, or that of its hub; None without a login."""
    if (token := from_environment(url, environ)) is not None:
        return token
    credentials = known(environ)
    hub_ = hub_of(url, credentials)
    if hub_ is None:
        return None
    credential = credentials[hub_]
    return credential.token if credential.token is not None else _from_keyring(hub_)


def store(credential: Credential, environ: Mapping[str, str], *, in_keyring: bool) -> None:
    """Keep a token; an older one for the same hub is replaced."""
    assert credential.token is not None
    credentials = known(environ)
    if in_keyring:
        _keyring("set_password", credential.hub, credential.token)
        credential = Credential(credential.hub, credential.name, credential.expires, None)
    _write(credentials | {credential.hub: credential}, environ)


def forget(hub: str, environ: Mapping[str, str]) -> Credential:
    """Remove the token of a hub, and return what it was."""
    credentials = known(environ)
    name = hub_of(hub, credentials)
    if name is None:
        raise NotFound(
            f"not logged in at {normal(hub)}",
            why=f"logged in at {', '.join(credentials)}" if credentials else None,
        )
    credential = credentials.pop(name)
    if credential.token is None:
        _keyring("delete_password", name)
    _write(credentials, environ)
    return credential


def _write(credentials: Mapping[str, Credential], environ: Mapping[str, str]) -> None:
    import dlv.disk.durable as durable
    import dlv.disk.user_files as user_files
    from dlv.disk.paths import Folder

    path = path_of(environ)
    durable.make_directory(path.parent)
    hubs = {
        hub: {"name": entry.name, "expires": entry.expires}
        | ({} if entry.token is None else {"token": entry.token})
        for hub, entry in sorted(credentials.items())
    }
    data = json.dumps({"format": FORMAT, "hubs": hubs}, indent=1).encode()
    # A new file takes the place of the old one, and of a link.
    with user_files.replace(Folder(path.parent, free=True), path.name, mode=0o600) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)


def _from_keyring(hub: str) -> str:
    token = _keyring("get_password", hub)
    if token is None:
        raise NotFound(f"the keyring has no token for {hub}", hint=f"dlv login {hub}")
    return str(token)


def check_keyring() -> None:
    """Refuse to use the keyring if the package for it is missing."""
    require("keyring", "keyring")


def _keyring(call: str, hub: str, *values: str) -> Any:
    keyring: Any = require("keyring", "keyring")
    errors: Any = require("keyring.errors", "keyring")
    try:
        return getattr(keyring, call)(SERVICE, hub, *values)
    except errors.PasswordDeleteError:
        return None
    except errors.KeyringError as error:
        raise StorageError(
            "cannot use the keyring", why=str(error), hint="dlv login without --keyring"
        ) from error
