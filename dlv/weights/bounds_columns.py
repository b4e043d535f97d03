"""A bounds record in columns: what `dlv/bounds/2` writes for the rows of `dlv/bounds/1`.

Names stand once, numbers of one kind together, small integers as a letter each: entropy coding
makes half the bytes of it, and every progressive evaluation reads all of them first.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from dlv.errors import Damaged

Json = dict[str, Any]

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_PLACES = {letter: place for place, letter in enumerate(ALPHABET)}
_MIDDLE = 32
_BASIS = 4  # directions are told in steps of 1/32
_NODE = ("opn", "opn_any", "fro", "absmax", "finite")
_LEVEL = ("dn", "dfro", "dopn")


def columns(record: Json) -> Json:
    """The keys `matrices`, `nodes`, `schedule` and `suffix` of a record, by columns."""
    names = [each["name"] for each in record["matrices"]]
    return {
        **record,
        "matrices": {"names": names, "hashes": [each["hash"] for each in record["matrices"]]},
        "nodes": _nodes(record["nodes"]),
        "schedule": [
            "".join(ALPHABET[level[name]] for name in names) for level in record["schedule"]
        ],
        "suffix": None if record["suffix"] is None else _suffix(record["suffix"]),
    }


def rows(record: Json, what: str) -> Json:
    """The inverse; Damaged where it is not what `columns` makes."""
    try:
        found = _rows(record)
        same = columns(found) == record
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise Damaged(f"{what} is malformed", why=repr(error), hint="dlv fsck") from error
    if not same:
        raise Damaged(f"{what} is malformed", why="its columns do not agree", hint="dlv fsck")
    return found


def _rows(record: Json) -> Json:
    held = record["matrices"]
    names = held["names"]
    matrices = [
        {"name": name, "hash": prefix, "encoding": None}
        for name, prefix in zip(names, held["hashes"], strict=True)
    ]
    schedule = [
        {name: _PLACES[letter] for name, letter in zip(names, level, strict=True)}
        for level in record["schedule"]
    ]
    suffix = None if record["suffix"] is None else _suffix_rows(record["suffix"])
    return {
        **record,
        "matrices": matrices,
        "nodes": _node_rows(record["nodes"]),
        "schedule": schedule,
        "suffix": suffix,
    }


def _nodes(nodes: Sequence[Json]) -> Json:
    depths = sorted({level["planes"] for node in nodes for level in node["levels"]})
    levels = []
    for planes in depths:
        at = [next((e for e in n["levels"] if e["planes"] == planes), None) for n in nodes]
        level: Json = {key: [None if e is None else e[key] for e in at] for key in _LEVEL}
        level["there"] = [e is not None for e in at]
        level["drows"] = [None if e is None else e["drows"] for e in at]
        levels.append({"planes": planes, **level})
    return {
        "name": [node["name"] for node in nodes],
        "rows": [node["rows"] for node in nodes],
        "levels": levels,
        **{key: [node[key] for node in nodes] for key in _NODE},
    }


def _node_rows(nodes: Json) -> list[Json]:
    found = []
    for at, name in enumerate(nodes["name"]):
        levels = [
            {"planes": e["planes"], "drows": e["drows"][at], **{k: e[k][at] for k in _LEVEL}}
            for e in nodes["levels"]
            if e["there"][at]
        ]
        node = {key: nodes[key][at] for key in _NODE}
        found.append({"name": name, "rows": nodes["rows"][at], "levels": levels, **node})
    return found


def _suffix(suffix: Json) -> Json:
    """Of the nodes with a weight the numbers of channels as letters, the levels by their depth."""
    nodes: Mapping[str, Json] = suffix["nodes"]
    weighed = {name: node for name, node in nodes.items() if "a" in node}
    depths = sorted({level["planes"] for node in weighed.values() for level in node["levels"]})
    levels = []
    for planes in depths:
        found = {
            name: level
            for name, node in weighed.items()
            for level in node["levels"]
            if level["planes"] == planes
        }
        corrected = {
            name: {k: v for k, v in level.items() if k not in ("planes", "dn")}
            for name, level in found.items()
            if "correction" in level
        }
        dn = [found[name]["dn"] if name in found else None for name in sorted(weighed)]
        levels.append({"planes": planes, "dn": dn, "corrections": corrected})
    return {
        **suffix,
        "nodes": {
            "names": sorted(nodes),
            "reach": [nodes[name]["reach"] for name in sorted(nodes)],
            "weights": sorted(weighed),
            "a": [_letters(weighed[name]["a"]) for name in sorted(weighed)],
            "basis": [_letters(weighed[name]["basis"], _BASIS) for name in sorted(weighed)],
            "levels": levels,
        },
        "p": {key: _letters(text) for key, text in suffix["p"].items()},
    }


def _suffix_rows(suffix: Json) -> Json:
    held = suffix["nodes"]
    nodes: dict[str, Json] = {
        name: {"reach": reach} for name, reach in zip(held["names"], held["reach"], strict=True)
    }
    for at, name in enumerate(held["weights"]):
        levels = [
            {"planes": e["planes"], "dn": e["dn"][at], **e["corrections"].get(name, {})}
            for e in held["levels"]
            if e["dn"][at] is not None
        ]
        a, basis = _text(held["a"][at]), _text(held["basis"][at], _BASIS)
        nodes[name] |= {"a": a, "basis": basis, "levels": levels}
    p = {key: _text(letters) for key, letters in suffix["p"].items()}
    return {**suffix, "nodes": nodes, "p": p}


def _letters(text: str, step: int = 1) -> str:
    """A letter for each of the bytes that base64 spreads over several: -32 .. 31 steps."""
    found = []
    for byte in b64decode(text, validate=True):
        place, rest = divmod((byte + 128) % 256 - 128, step)
        if rest or not -_MIDDLE <= place < _MIDDLE:
            raise ValueError(f"the number {byte} has no letter")
        found.append(ALPHABET[place + _MIDDLE])
    return "".join(found)


def _text(letters: str, step: int = 1) -> str:
    data = bytes((_PLACES[letter] - _MIDDLE) * step % 256 for letter in letters)
    return b64encode(data).decode("ascii")
