"""Between the packs and the catalogue: stored networks and series, and the rows of a version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from dlv.canonical import loads
from dlv.errors import Damaged, DlvError
from dlv.kinds import Raw
from dlv.metadata import networks, versions
from dlv.metadata.database import Database
from dlv.metadata.metrics import Summary, summarise
from dlv.objects.manifest import Manifest

if TYPE_CHECKING:
    from dlv.events.formats.series import Scalars
    from dlv.network.graph import Network
    from dlv.pas.footer import Encoding

MOST_POINTS = 1_000_000  # of a series that is read for its curve alone


class Objects(Protocol):
    """Where named objects are read; a MatrixStore."""

    def object(self, kind: str, name: str) -> Raw: ...

    def encoding(self, matrix: str) -> Encoding | None: ...


def network(store: Objects, digest: str) -> Network:
    """A stored network, which must be what its name says."""
    import dlv.network.graph as graph

    found = graph.Network.from_canonical(loads(bytes(store.object("network", digest)), "network"))
    if found.id != digest:
        raise Damaged(f"the network {digest[:12]} is damaged", hint="dlv fsck")
    return with_constants(store, found)


def with_constants(store: Objects, found: Network) -> Network:
    """The network with the shapes of its constants, as far as these are stored."""
    known = {name: store.encoding(digest) for name, digest in found.constants.items()}
    shapes = {name: encoding.shape for name, encoding in known.items() if encoding is not None}
    return replace(found, constant_shapes=shapes) if shapes else found


def series(store: Objects, digest: str, restarts: str = "marked") -> Scalars:
    """A stored metric series with all points that this policy of restarts does not hide."""
    import dlv.events.formats.series as curves

    return curves.decode(
        bytes(store.object("series", digest)),
        lambda kind, name: bytes(store.object(kind, name)),
        restarts,
    )


def summary(store: Objects, digest: str) -> Summary | None:
    """A stored series in figures; None of one that holds no numbers."""
    import dlv.events.formats.heads as heads

    head = bytes(store.object("series", digest))
    if heads.decode(head).data_class != heads.SCALARS:
        return None
    import dlv.events.formats.series as curves

    return summary_of(curves.decode(head, lambda *name: bytes(store.object(*name))), digest)


def summary_of(scalars: Scalars, digest: str) -> Summary:
    return summarise(scalars.run, scalars.tag, digest, scalars.steps, scalars.values)


def insert(
    db: Database,
    manifest: Manifest,
    found: Network | None,
    summaries: Sequence[Summary],
    *,
    number: int | None,
) -> int:
    """The rows of one version and of its network; commit and rebuild both write them here."""
    net_id = None if found is None else networks.insert(db, found, node_figures(found))
    return versions.insert(db, manifest, number=number, net_id=net_id, summaries=summaries)


def node_figures(found: Network) -> dict[str, networks.NodeFigures]:
    """Shapes and parameters of each node, as far as the network alone tells them."""
    if found.cyclic:
        return {}
    try:
        import dlv.network.summary as summaries_of

        rows = summaries_of.outlines(found)
    except DlvError:
        return {}
    return {name: networks.NodeFigures(*row) for name, row in rows.items()}
