"""Manifests: golden bytes stay readable, and whatever is not a manifest gives a typed error."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.adapters.checkpoint import ROLES
from dlv.canonical import dumps
from dlv.errors import Damaged, DlvError, NewerFormat, UsageError
from dlv.objects.manifest import ROLES as MANIFEST_ROLES
from dlv.objects.manifest import (
    Container,
    FileEntry,
    Manifest,
    NetworkReference,
    Parent,
    SeriesReference,
    Snapshot,
    TensorEntry,
    check_name,
    decode,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "manifest" / "1"
FULL: dict[str, Any] = json.loads((GOLDEN / "full.json").read_text("utf-8"))
ODD: list[Any] = [None, True, -1, 3, 2**63, 1.5, "", "zz", "a" * 64, [], [None], [[]], {}, {"": 0}]
Path_ = tuple[str | int, ...]


def places(value: Any, above: Path_ = ()) -> Iterator[Path_]:
    yield above
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*above, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*above, index))


PLACES = [place for place in places(FULL) if place]


def changed(place: Path_, new: Any, *, drop: bool = False) -> Any:
    value = copy.deepcopy(FULL)
    here: Any = value
    for key in place[:-1]:
        here = here[key]
    if drop:
        del here[place[-1]]
    else:
        here[place[-1]] = new
    return value


def readable(value: Any) -> bool:
    """Whether it is read; if it is, then without a loss."""
    data = dumps(value)
    try:
        manifest = decode(data)
    except (Damaged, NewerFormat):
        return False
    assert manifest.encode() == data
    return True


@pytest.mark.parametrize("name", ["full", "minimal"])
def test_golden(name: str) -> None:
    data = (GOLDEN / f"{name}.json").read_bytes()
    manifest = decode(data)
    assert manifest.encode() == data
    assert manifest.id == (GOLDEN / f"{name}.id").read_text().strip()


def test_golden_values() -> None:
    manifest = decode((GOLDEN / "full.json").read_bytes())
    assert manifest == Manifest(
        name="lenet",
        message="first\n\nzweite Zeile: ü",
        author="A <a@b.c>",
        created="2026-01-31T12:00:00.000000Z",
        parents=(Parent("1" * 64, "copy"), Parent("2" * 64)),
        network=NetworkReference(
            "3" * 64,
            {"importer": "torch.export", "version": "2.13.0"},
            [{"name": "c", "dtype": "float32", "shape": [], "hash": "4" * 64}],
        ),
        tensors=(
            TensorEntry("conv1.weight", "float32", (20, 1, 5, 5)),
            TensorEntry("head.weight", "bfloat16", (0,), "buffer", "conv1.weight"),
            TensorEntry("q", "raw:Q4_K", (256,), "optimizer"),
        ),
        snapshots=(
            Snapshot(
                500,
                ("5" * 64, None, None),
                (Container("a/w-500.safetensors", "safetensors", 2080, "6" * 64, "7" * 64, (0,)),),
            ),
            Snapshot(
                None,
                ("8" * 64, "8" * 64, "9" * 64),
                (Container("w.pt", "pt", 0, None, None, (2, 0, 1)),),
                ("a" * 64, None, None),
            ),
        ),
        own=1,
        scheme={"id": "uniform", "bits": 8},
        hyperparameters={
            "lr": 0.01,
            "seed": 2**64 - 1,
            "opt.name": "sgd",
            "nesterov": True,
            "decay": None,
            "bad": "NaN",
        },
        series=(SeriesReference("", "loss", "b" * 64), SeriesReference("val", "loss", "c" * 64)),
        tree="d" * 40,
        files=(
            FileEntry("train.py", "file", "100644", 10, "e" * 64, "f" * 40),
            FileEntry("run.sh", "file", "100755", 0, "0" * 64, "0" * 40),
        ),
        derivation={"query": "select", "trial": None, "changes": [], "reuse": 1.0},
        environment={
            "git": {"head": "a" * 40, "dirty": False},
            "python": "3.12.1",
            "packages": {"torch": "2.13.0"},
        },
        writer="dlv 0.1.0",
    )


@pytest.mark.parametrize("own", [None, 0, 1])
def test_own_weights(own: int | None) -> None:
    assert readable(changed(("own",), own))


def test_any_difference_is_another_id() -> None:
    manifest = decode((GOLDEN / "full.json").read_bytes())
    empty = Manifest("n", "", "", "")
    names = [f.name for f in dataclasses.fields(Manifest) if f.name != "writer"]
    ids = {manifest.id}
    for name in names:
        new: dict[str, Any] = {name: getattr(empty, name)}
        ids.add(dataclasses.replace(manifest, **new).id)
    assert len(ids) == len(names) + 1


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_every_value_is_checked(place: Path_) -> None:
    for new in ODD:
        readable(changed(place, new))
    readable(changed(place, None, drop=True))


# Where any text, any object or any list of numbers is right, some of ODD may stand.
FREE = ("hyperparameters", "derivation", "environment", "scheme", "origin", "message", "writer")


@pytest.mark.parametrize(
    "place",
    [place for place in PLACES if not set(place) & set(FREE)],
    ids=lambda place: ".".join(map(str, place)),
)
def test_every_key_can_be_wrong(place: Path_) -> None:
    refused = [new for new in ODD if not readable(changed(place, new))]
    assert len(refused) >= 5
    if isinstance(place[-1], str):
        assert not readable(changed(place, None, drop=True))


@pytest.mark.parametrize(
    "place",
    [place for place in [(), *PLACES] if not set(place) & set(FREE)],
    ids=lambda place: ".".join(map(str, place)),
)
def test_unknown_keys_are_from_a_newer_dlv(place: Path_) -> None:
    value = copy.deepcopy(FULL)
    here: Any = value
    for key in place:
        here = here[key]
    if not isinstance(here, dict):
        return
    here["later"] = 1
    with pytest.raises(NewerFormat, match="`later`") as found:
        decode(dumps(value))
    assert found.value.why == "it was written by dlv 0.1.0"


@pytest.mark.parametrize(
    ("place", "new", "kind"),
    [
        (("format",), "dlv/manifest/2", NewerFormat),
        (("format",), None, Damaged),
        (("parents", 0, "kind"), "merge", NewerFormat),
        (("tensors", 0, "role"), "adapter", NewerFormat),
        (("tensors", 0, "dtype"), "float4", NewerFormat),
        (("tensors", 0, "dtype"), 32, Damaged),
        (("tensors", 0, "name"), "q", Damaged),
        (("tensors", 1, "tied"), "gone", Damaged),
        (("tensors", 0, "shape"), [1, -1], Damaged),
        (("tensors", 0, "shape"), [True], Damaged),
        (("network", "constants", 0, "dtype"), "float4", NewerFormat),
        (("network", "constants", 0, "name"), 1, Damaged),
        (("snapshots", 0, "hashes"), ["5" * 64], Damaged),
        (("snapshots", 0, "hashes", 0), "5" * 63, Damaged),
        (("snapshots", 0, "step"), 2**63, Damaged),
        (("snapshots", 1, "sources"), [None], Damaged),
        (("snapshots", 0, "containers", 0, "tensors"), [3], Damaged),
        (("snapshots", 0, "containers", 0, "bytes"), -1, Damaged),
        (("own",), 2, Damaged),
        (("own",), -1, Damaged),
        (("own",), True, Damaged),
        (("name",), "a/b", Damaged),
        (("created",), "yesterday", Damaged),
        (("created",), "2026-01-31T12:00:00Z", Damaged),
        (("files", "entries", 0, "path"), "run.sh", Damaged),
        (("files", "entries", 0, "mode"), "120000", Damaged),
        (("files", "tree"), "d" * 39, Damaged),
        (("series", 1, "run"), "", Damaged),
    ],
)
def test_named_faults(place: Path_, new: Any, kind: type[DlvError]) -> None:
    with pytest.raises(kind):
        decode(dumps(changed(place, new)), "manifest 12")


@given(
    st.lists(
        st.tuples(st.sampled_from(PLACES), st.sampled_from(ODD), st.booleans()),
        min_size=2,
        max_size=4,
    )
)
@settings(max_examples=300)
def test_several_faults_at_once(edits: list[tuple[Path_, Any, bool]]) -> None:
    value = copy.deepcopy(FULL)
    for place, new, drop in edits:
        here: Any = value
        try:
            for key in place[:-1]:
                here = here[key]
            here[place[-1]]
            if drop:
                del here[place[-1]]
            else:
                here[place[-1]] = copy.deepcopy(new)
        except (KeyError, IndexError, TypeError):
            continue
    readable(value)


@given(st.integers(0, len(dumps(FULL)) - 1), st.integers(1, 255))
@settings(max_examples=200)
def test_flipped_bytes(place: int, flip: int) -> None:
    data = bytearray((GOLDEN / "full.json").read_bytes())
    data[place] ^= flip
    with contextlib.suppress(DlvError):
        assert decode(bytes(data)).encode() == data


@pytest.mark.parametrize("value", [None, [], 5, "text", {}, {"format": "dlv/manifest/1"}])
def test_not_a_manifest(value: Any) -> None:
    with pytest.raises(Damaged):
        decode(dumps(value))


def test_untidy_bytes_are_no_manifest() -> None:
    with pytest.raises(Damaged, match="not canonical"):
        decode((GOLDEN / "full.json").read_bytes() + b"\n")


def test_the_vocabulary_is_that_of_the_adapters() -> None:
    assert MANIFEST_ROLES == ROLES


@pytest.mark.parametrize(
    ("importer", "format_", "expected"),
    [
        ("torch.export", "pt", "torch"),
        (None, "safetensors", "safetensors"),
        ("", "pt", "pt"),
        (None, None, None),
    ],
)
def test_framework(importer: str | None, format_: str | None, expected: str | None) -> None:
    network = None if importer is None else NetworkReference("1" * 64, {"importer": importer})
    containers = () if format_ is None else (Container("w", format_, 0, None, None, ()),)
    manifest = Manifest(
        "n", "", "", "", network=network, snapshots=(Snapshot(None, (), containers),)
    )
    assert manifest.framework == expected


@pytest.mark.parametrize("name", ["lenet", "Lenet-5_b+x.1", "0", "deadbeef", "a" * 63, "A" * 64])
def test_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-a",
        ".a",
        "a b",
        "a/b",
        "a:b",
        "a@1",
        "a~1",
        "a^",
        "ä",
        "a\n",
        "HEAD",
        "latest",
        "a" * 64,
    ],
)
def test_no_names(name: str) -> None:
    with pytest.raises(UsageError):
        check_name(name)
