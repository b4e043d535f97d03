"""What a version needs beside its matrices."""

from __future__ import annotations

from dlv.events.formats.series import Scalars, encode_scalars
from dlv.objects.manifest import (
    Constant,
    Container,
    Manifest,
    NetworkReference,
    SeriesReference,
    Snapshot,
)
from dlv.versions.reachable import needs, skeletons

SKELETONS = ("a" * 64, None, "b" * 64)


def test_everything_that_a_manifest_names() -> None:
    objects: dict[str, bytes] = {}

    def add(kind: str, data: bytes) -> str:
        name = f"{kind}{len(objects)}".encode().hex().ljust(64, "0")
        objects[name] = data
        return name

    head = encode_scalars(Scalars("", "loss", range(5000), [0.0] * 5000, [1.0] * 5000), add)
    constant: Constant = {"name": "c", "dtype": "float32", "shape": [1], "hash": "d" * 64}
    containers = [Container("p", "npz", 1, None, skeleton, ()) for skeleton in SKELETONS]
    manifest = Manifest(
        *("net", "message", "Ada", "2026-06-15T12:00:00.000000Z"),
        network=NetworkReference("e" * 64, {}, [constant]),
        snapshots=(Snapshot(1, (), tuple(containers)), Snapshot(2, ())),
        series=(SeriesReference("", "loss", head),),
    )
    points = [name for name in objects if name != head]
    assert len(points) == 2, "5000 points are two blocks"
    assert set(needs(manifest, objects.__getitem__)) == {
        ("network", "e" * 64),
        ("matrix", "d" * 64),
        ("series", head),
        *(("points", name) for name in points),
    }
    assert list(skeletons(manifest, 0)) == [("skeleton", "a" * 64), ("skeleton", "b" * 64)]
    assert list(skeletons(manifest, 1)) == []
    assert list(needs(Manifest("net", "m", "a", "t"), objects.__getitem__)) == []
