"""A golden bounds record: every kind of value that one may hold."""

from __future__ import annotations

import json
from pathlib import Path

from dlv.canonical import hash_bytes

VERSION = "2"  # of the format

# Written out here, so that nothing of dlv decides what the bytes are.
RECORD = {
    "format": "dlv/bounds/2",
    "writer": "dlv 0.1.0",
    "network": "0" * 63 + "1",
    "input": [[1, 28, 28], [7]],
    "weights": "9" * 64,
    "matrices": {
        "names": ["conv.weight", "fc.weight", "größe"],
        "hashes": ["a" * 8, "c" * 9, "e" * 10],
    },
    "nodes": {
        "name": ["conv", "fc", "odd"],
        "opn": [2.1, 1.5, "Infinity"],
        "opn_any": [2.625, 1.5, "Infinity"],
        "fro": [3.0, 2.0, "NaN"],
        "absmax": [0.4, 0.25, "Infinity"],
        "finite": [True, True, False],
        "rows": [None, [1.0, 0.5], None],
        "levels": [
            {
                "planes": 1,
                "there": [True, False, False],
                "dn": [0.01, None, None],
                "dfro": [0.02, None, None],
                "dopn": [0.0075, None, None],
                "drows": [None, None, None],
            },
            {
                "planes": 2,
                "there": [False, True, False],
                "dn": [None, 0.5, None],
                "dfro": [None, 0.75, None],
                "dopn": [None, None, None],
                "drows": [None, [0.5, 0.0], None],
            },
            {
                "planes": 3,
                "there": [True, False, False],
                "dn": [1e-07, None, None],
                "dfro": [2e-07, None, None],
                "dopn": [None, None, None],
                "drows": [None, None, None],
            },
        ],
    },
    # A letter for each matrix: A is 0, B is 1.
    "schedule": ["BCE", "DCE", "EEE"],
    "helps": {"f64": True, "strict": False},
    "suffix": {
        "classes": 3,
        "pairs": [1.0, 0.5, 0.75],
        "nodes": {
            "names": ["add", "conv"],
            "reach": [1.5, 2.0],
            "weights": ["conv"],
            "a": ["ghA/"],  # g is 0, A is -32, / is 31
            "basis": ["ghA/"],
            "levels": [
                {
                    "planes": 1,
                    "dn": [0.5],
                    "corrections": {
                        "conv": {"correction": "gh", "rank": 1, "rest": 0.125, "unit": -9}
                    },
                },
                {"planes": 3, "dn": [0.25], "corrections": {}},
            ],
        },
        "p": {"relu": "fg"},
        "theta": {"relu": 128},
    },
}


def make(folder: Path) -> None:
    text = json.dumps(RECORD, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    data = text.encode("utf-8")
    (folder / "record.json").write_bytes(data)
    (folder / "record.id").write_text(hash_bytes(data) + "\n")
