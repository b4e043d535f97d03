"""A golden bounds record: every kind of value that one may hold."""

from __future__ import annotations

import json
from pathlib import Path

from dlv.canonical import hash_bytes

VERSION = "1"  # of the format

# Written out here, so that nothing of dlv decides what the bytes are.
RECORD = {
    "format": "dlv/bounds/1",
    "writer": "dlv 0.1.0",
    "network": "0" * 63 + "1",
    "input": [[1, 28, 28], [7]],
    "matrices": [
        {"name": "conv.weight", "hash": "a" * 64, "encoding": "b" * 64},
        {"name": "fc.weight", "hash": "c" * 64, "encoding": "d" * 64},
        {"name": "größe", "hash": "e" * 64, "encoding": "f" * 64},
    ],
    "nodes": [
        {
            "name": "conv",
            "opn": 2.1,
            "opn_any": 2.625,
            "fro": 3.0,
            "absmax": 0.4,
            "finite": True,
            "rows": None,
            "levels": [
                {"planes": 1, "dn": 0.01, "dfro": 0.02, "drows": None, "dopn": 0.0075},
                {"planes": 3, "dn": 1e-07, "dfro": 2e-07, "drows": None, "dopn": None},
            ],
        },
        {
            "name": "fc",
            "opn": 1.5,
            "opn_any": 1.5,
            "fro": 2.0,
            "absmax": 0.25,
            "finite": True,
            "rows": [1.0, 0.5],
            "levels": [{"planes": 2, "dn": 0.5, "dfro": 0.75, "drows": [0.5, 0.0], "dopn": None}],
        },
        {
            "name": "odd",
            "opn": "Infinity",
            "opn_any": "Infinity",
            "fro": "NaN",
            "absmax": "Infinity",
            "finite": False,
            "rows": None,
            "levels": [],
        },
    ],
    "schedule": [
        {"conv.weight": 1, "fc.weight": 2, "größe": 4},
        {"conv.weight": 3, "fc.weight": 2, "größe": 4},
        {"conv.weight": 4, "fc.weight": 4, "größe": 4},
    ],
    "helps": {"f64": True, "strict": False},
    "suffix": None,
}


def make(folder: Path) -> None:
    text = json.dumps(RECORD, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    data = text.encode("utf-8")
    (folder / "record.json").write_bytes(data)
    (folder / "record.id").write_text(hash_bytes(data) + "\n")
