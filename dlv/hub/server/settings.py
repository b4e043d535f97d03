"""Settings of a hub: where its database and objects are, and what it limits."""

from __future__ import annotations

from pathlib import Path

from dlv.dataclass import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What a single request, token or namespace may use. Sizes are in bytes."""

    part: int = 64 * MIB  # of an upload in one request
    manifest: int = 16 * MIB
    locator: int = 64 * MIB
    ref: int = 64 << 10
    document: int = 4 * MIB  # JSON bodies of other requests
    hashes: int = 10_000  # in one batch
    object: int = 256 * MIB
    buffered: int = 512 * MIB  # of uploads that one process has in memory
    quota: int | None = None  # of a namespace that has none of its own
    requests: int = 6000  # a minute for each token
    anonymous: int = 1200  # a minute for each address without a token
    logins: int = 30  # wrong tokens a minute for each address


@dataclass(frozen=True)
class OpenId:
    """An OpenID Connect provider with which people log in.

    `domains`: e-mail domains whose people get an account with their first login, none if empty.
    """

    issuer: str
    client: str
    secret: str
    domains: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """`database` is an SQLAlchemy URL, `store` a folder or an s3:// address.

    `data` has what this process can make again: uploads in progress, mirrors, catalogues. `url` is
    the public address. `direct`: clients fetch objects from the store by signed addresses.
    """

    database: str
    store: str
    data: Path
    url: str
    limits: Limits = Limits()
    openid: OpenId | None = None
    direct: bool = False
    trusted_proxies: str = "127.0.0.1"
