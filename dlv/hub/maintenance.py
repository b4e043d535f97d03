"""Maintain a remote: retire versions, delete objects that are not needed, verify histories."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

import dlv.hub.deletion as deletion
import dlv.hub.service as service
import dlv.hub.signing as signing
from dlv.dataclass import dataclass
from dlv.errors import DlvError, NotFound, RemoteError
from dlv.hub.deletion import Collected
from dlv.hub.history import published, successor
from dlv.hub.index import Pending
from dlv.hub.records import Ref, object_key
from dlv.hub.remotes import Remote
from dlv.repository.handle import Repository


def retire(
    repository: Repository, remote: Remote, reference: str, author: str, key: Path | None
) -> Ref:
    """Withdraw a version: it disappears from lists and pulls, and gc may delete its objects."""
    name, _, number = reference.partition("@")
    _check_writable(remote)
    while True:
        chain = remote.chain(repository, name)
        refs = published(chain)
        withdrawn = next((ref for ref in refs.values() if str(ref.number) == number), None)
        if withdrawn is None:
            labels = [f"{remote.name}:{ref.name}@{ref.number}" for ref in refs.values()]
            raise NotFound(
                f"{remote.name} has no version {reference}",
                did_you_mean=labels[-3:],
                hint=f"dlv list {remote.name}:",
            )
        ref = successor(
            chain,
            "retire",
            name=name,
            number=withdrawn.number,
            manifest=withdrawn.manifest,
            locator=withdrawn.locator,
            author=author,
        )
        if key is not None:
            ref = signing.sign(ref, key)
        pending = Pending(repository, remote)
        pending.note([ref.manifest])
        if remote.history.append(ref):
            pending.write({})
            return ref


def collect(
    repository: Repository,
    remote: Remote,
    grace: datetime.timedelta,
    *,
    abandon: bool = False,
    dry_run: bool = False,
) -> Collected:
    """Delete objects that no version on the remote has needed for `grace`."""
    _check_writable(remote)
    if remote.store.managed:
        return service.collect(remote, grace, dry_run=dry_run)
    return deletion.collect(
        remote.store, lambda: reachable(repository, remote), grace, abandon=abandon, dry_run=dry_run
    )


def reachable(repository: Repository, remote: Remote) -> set[str]:
    """Return the keys of all objects that the versions on a remote need."""
    keys: set[str] = set()
    for name in remote.history.names():
        for ref in published(remote.chain(repository, name)).values():
            locator = remote.history.locator(ref)
            keys |= {object_key("manifests", ref.manifest), object_key("locators", ref.locator)}
            keys |= {object_key("packs", pack) for pack in locator.packs}
            keys |= {object_key("facts", digest) for digest in locator.facts}
    return keys


def _check_writable(remote: Remote) -> None:
    if not remote.store.writable:
        raise RemoteError(f"{remote.url} is read-only")


@dataclass
class Verified:
    """An entry of a history, who signed it, and what is wrong with it."""

    ref: Ref
    signer: str | None = None
    fault: str | None = None


@dataclass
class Verification:
    """All entries that were verified."""

    entries: list[Verified] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not any(entry.fault for entry in self.entries)


def verify(
    repository: Repository, remote: Remote, references: Sequence[str], signers: Path | None
) -> Verification:
    """Read histories, manifests and locators of models or versions, and check signatures.

    A history that is broken or was changed is an error. If signers are known, an entry that none
    of them has signed is a fault.
    """
    result = Verification()
    for text in references or remote.history.names():
        name, _, number = text.partition("@")
        chain = remote.chain(repository, name)
        wanted = [ref for ref in chain if number in ("", str(ref.number))]
        if not wanted:
            raise NotFound(f"{remote.name} has no {text}", hint=f"dlv list {remote.name}:")
        current = published(chain)
        for ref in wanted:
            entry = Verified(ref)
            try:
                if signers is not None:
                    entry.signer = signing.signer(ref, signers)
                    entry.fault = None if entry.signer else "not signed"
                if ref in current.values():
                    remote.history.object("manifests", ref.manifest)
                    remote.history.locator(ref)
            except RemoteError:
                raise
            except DlvError as error:
                entry.fault = error.message
            result.entries.append(entry)
    return result
