"""New versions made visible: rows of packs, of versions and the facts that number them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dlv.weights.catalogue as catalogue
from dlv.errors import Conflict
from dlv.metadata import matrices, versions
from dlv.metadata.metrics import Summary
from dlv.metadata.versions import Version
from dlv.objects.manifest import Manifest
from dlv.repository.handle import Change

if TYPE_CHECKING:
    from dlv.network.graph import Network
    from dlv.weights.writer import PackRecord


@dataclass(frozen=True)
class NewVersion:
    """A version whose manifest is written and which no catalogue knows yet."""

    manifest: Manifest
    network: Network | None = None
    summaries: Sequence[Summary] = ()


def publish(
    change: Change,
    packs: Iterable[PackRecord],
    ready: Iterable[NewVersion],
    *,
    skip_known: bool = False,
) -> list[Version]:
    """Insert all rows: the commit of the change is the moment from which the versions exist.

    Return the versions that are new, numbered in this order. One that another process made
    meanwhile is a conflict, or passed over with `skip_known`. The summary of the change names
    the first and the last.
    """
    db = change.db
    matrices.insert_packs(db, [(pack.hash, pack.bytes, pack.footer) for pack in packs])
    published: list[Version] = []
    for new in ready:
        manifest = new.manifest
        if versions.by_id(db, manifest.id) is not None:
            if skip_known:
                continue
            raise Conflict("this very version exists already", why=manifest.id[:12])
        number = versions.next_number(db, manifest.name)
        catalogue.insert(db, manifest, new.network, new.summaries, number=number)
        change.record("number", manifest.id, {"name": manifest.name, "number": number})
        version = versions.by_id(db, manifest.id)
        assert version is not None
        published.append(version)
    labels = [version.label for version in published]
    change.summary = " to ".join(dict.fromkeys([*labels[:1], *labels[-1:]]))
    return published
