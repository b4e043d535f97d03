"""Between packs and catalogue: stored networks and series, the figures of nodes."""

from __future__ import annotations

import math

import pytest

from dlv.canonical import dumps, hash_bytes
from dlv.errors import Damaged, DlvError
from dlv.events.formats.series import Scalars, encode_scalars
from dlv.network.graph import Input, Network, Node
from dlv.network.vocabulary import complete
from dlv.pas.footer import Encoding
from dlv.weights.store import node_figures, stored_network, stored_series, summary_of


class Objects(dict[str, bytes]):
    def encoding(self, matrix: str) -> Encoding | None:  # noqa: ARG002
        return None

    def object(self, kind: str, name: str) -> bytes:
        return self[f"{kind} {name}"]

    def add(self, kind: str, data: bytes) -> str:
        name = hash_bytes(data)
        self[f"{kind} {name}"] = data
        return name


NETWORK = Network(
    (Input("x", ("B", 4)),),
    (
        Node("a", "RELU", None, {"slope": 0.0}, (("x", 0),)),
        Node("b", "RELU", None, {"slope": 0.0}, (("a", 0),)),
    ),
    (("b", 0),),
)


def test_networks_come_back_under_their_name() -> None:
    objects = Objects()
    assert objects.add("network", dumps(NETWORK.canonical())) == NETWORK.id
    assert stored_network(objects, NETWORK.id) == NETWORK


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", dumps({**NETWORK.canonical(), "outputs": []}), b"{" * 100]
)
def test_what_is_not_that_network(data: bytes) -> None:
    objects = Objects({f"network {NETWORK.id}": data})
    with pytest.raises(DlvError) as found:
        stored_network(objects, NETWORK.id)
    assert isinstance(found.value, Damaged)


def test_series_and_their_summaries() -> None:
    objects = Objects()
    scalars = Scalars(
        "run", "loss", range(5000), [0.0] * 5000, [*map(float, range(4999)), math.nan]
    )
    digest = encode_scalars(scalars, objects.add)
    found = stored_series(objects, digest)
    assert (found.run, found.tag, len(found)) == ("run", "loss", 5000)
    summary = summary_of(found, digest)
    assert (summary.name, summary.hash, summary.n) == ("run/loss", digest, 5000)
    assert (str(summary.last), summary.max, summary.nonfinite) == ("nan", 4998.0, 1)


def test_figures_count_parameters() -> None:
    attrs = complete("FULL", None, {"out": 3}, params={"weight": "w", "bias": "b"})
    node = Node("fc", "FULL", None, attrs, (("x", 0),), {"weight": "w", "bias": "b"})
    figures = node_figures(Network((Input("x", ("B", 4)),), (node,), (("fc", 0),)))
    assert {name: f.parameters for name, f in figures.items()} == {"fc": 15}
    assert {f.parameters for f in node_figures(NETWORK).values()} == {0}


def test_figures() -> None:
    figures = node_figures(NETWORK)
    assert {name: tuple(f.out_shape or ()) for name, f in figures.items()} == {
        "a": ("B", 4),
        "b": ("B", 4),
    }
    cyclic = Network((), (Node("a", "RELU", None, {"slope": 0.0}, (("a", 0),)),), (("a", 0),))
    assert node_figures(cyclic) == {}
    unknown = Network((), (Node("a", "RELU", None, {"slope": 0.0}, (("gone", 0),)),), ())
    node_figures(unknown)  # says what it can, and does not fail
