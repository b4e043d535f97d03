"""Lossy versions in rows."""

from __future__ import annotations

import dlv.views.archive as view
from dlv.metadata.versions import Version
from dlv.versions.quantize import Quantized


def version(number: int) -> Version:
    time = "2026-01-01T00:00:00.000000Z"
    return Version(number, f"{number:064x}", "m", number, time, "a", "m", None, None, "live")


def test_a_row_each_and_sums() -> None:
    found = [
        Quantized(version(2), version(1), "fp16", True, 1000, 800, 430, 9, 4),
        Quantized(version(3), version(1), "uniform:8", False, 1000, 800, 200, 9, 5),
    ]
    document, blocks = view.quantized(found)
    assert (document["before"], document["after"]) == (1600, 630)
    assert [(row["version"], row["of"], row["quantized"]) for row in document["quantized"]] == [
        ("m@2", "m@1", "fp16"),
        ("m@3", "m@1", "uniform:8"),
    ]
    assert [row["made"] for row in document["quantized"]] == [True, False]
    assert document["quantized"][1]["id"] == f"{3:064x}"
    assert len(blocks) == 1
