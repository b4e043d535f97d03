"""Records with any field changed: read as what they say, refused in words, or heeded by nobody."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dlv.archiving.bounding.checking as checking
import dlv.weights.bounds as bounds
from dlv.adapters.data.columns import Held
from dlv.adapters.data.sets import Data
from dlv.canonical import dumps
from dlv.errors import Damaged, DlvError
from dlv.evaluation.answers import NoBounds, Settings
from dlv.evaluation.data import Rows
from dlv.evaluation.model import Model
from dlv.evaluation.planes import Planes
from dlv.evaluation.progressive import progressive, suffix_of
from dlv.network.suffix.record import Correction, Suffix, SuffixLevel, SuffixNode, suffix_from_json
from dlv.repository.handle import Repository
from dlv.weights.bounds import Record
from tests.archiving.bounding.nets import digits

Path = tuple[Any, ...]
GONE = object()
VALUES = [
    *(None, True, -1, 0, 1, 2, 63, 3.5, 0.0, -1.0, 1e308, "", "x", "A", "AAAA", "~", "Infinity"),
    *("NaN", [], {}, [1], [[]], {"planes": 1}, GONE),
]
CHANGES = ("value", "shorter", "twice", "longer", "swapped")


def places(value: Any, at: Path = ()) -> Iterator[Path]:
    if at:
        yield at
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value[:5])
    for key, each in inner:
        yield from places(each, (*at, key))


def changed(record: Any, at: Path, how: str, to: Any) -> Any:
    """The record with one field that is another, or gone."""
    made = copy.deepcopy(record)
    inner = made
    for key in at[:-1]:
        inner = inner[key]
    old: Any = inner[at[-1]]
    if isinstance(old, (str, list)) and how != "value":
        longer: Any = old + old[:1]  # type: ignore[operator]
        to = {"shorter": old[:-1], "twice": 2 * old, "longer": longer}.get(how, old[::-1])
    if to is GONE:
        del inner[at[-1]]
    else:
        inner[at[-1]] = to
    return made


@pytest.fixture
def opened(repository: Repository) -> tuple[Model, Record]:
    """Two convolutions, the second with normalisation behind it, and a last layer."""
    model = Model.of(repository, "conv@1")
    found = bounds.record_of(repository.database, model.store, model.manifest, model.snapshot)
    assert isinstance(found, Record)
    assert found.suffix is not None
    return model, found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_no_change_breaks_a_reader(opened: tuple[Model, Record], data: st.DataObject) -> None:
    model, record = opened
    x = digits()[0][:3]
    rows = Rows(model.program, Data("rows", {"x": Held("x", x)}, None, len(x), None))
    told = json.loads(record.encode())
    at = data.draw(st.sampled_from(sorted(places(told), key=repr)))
    other = changed(
        told, at, data.draw(st.sampled_from(CHANGES)), data.draw(st.sampled_from(VALUES))
    )
    try:
        read = bounds.decode(dumps(other))
        checking._fault(model.store, model.manifest, read)
        progressive(model, rows, Settings(top_k=2, tighten=True), read)
    except (DlvError, NoBounds):
        pass


def misfits(record: Record) -> Iterator[Record]:
    """Records that are well-formed, of sizes that the network does not have."""
    assert record.suffix is not None
    suffix = suffix_from_json(record.suffix)
    wider = np.pad(suffix.pairs, ((0, 1), (0, 1)))
    yield replace(record, suffix=replace(suffix, pairs=wider).to_json())
    yield replace(record, suffix=_with(suffix, nowhere=SuffixNode(1.0)))
    for result, node in suffix.nodes.items():
        if node.a is None:
            continue
        none = np.zeros(0, np.int8)
        plain = tuple(replace(level, correction=None, rest=0.0) for level in node.levels)
        for channels in (len(node.a) - 1, len(node.a) + 1, 2 * len(node.a)):
            if channels:
                odd = replace(node, a=np.zeros(channels, np.int8), basis=none, levels=plain)
                yield replace(record, suffix=_with(suffix, **{result: odd}))
        basis = np.full(len(node.a), 4, np.int8)
        short = SuffixLevel(1, 1.0, 1.0, Correction(np.ones(1, np.int8), 0, 1))
        odd = replace(node, basis=basis, levels=(short,))
        yield replace(record, suffix=_with(suffix, **{result: odd}))
    last = record.nodes[-1]
    assert last.rows is not None
    for rows in ((), last.rows[:-1], (*last.rows, 1.0)):
        levels = tuple(replace(level, drows=rows) for level in last.levels)
        odd_rows = replace(last, rows=rows, levels=levels)
        yield replace(record, nodes=(*record.nodes[:-1], odd_rows))


def _with(suffix: Suffix, **nodes: SuffixNode) -> dict[str, Any]:
    return replace(suffix, nodes={**suffix.nodes, **nodes}).to_json()


def test_tables_of_another_size_are_damage(opened: tuple[Model, Record]) -> None:
    """Said by whoever reads them; fsck finds them, and an evaluation goes on without."""
    model, record = opened
    x = digits()[0][:2]
    rows = Rows(model.program, Data("rows", {"x": Held("x", x)}, None, len(x), None))
    planes = Planes(model.store, model.hashes)
    assert suffix_of(record, model.program, planes) is not None
    count = 0
    for odd in misfits(record):
        read = bounds.decode(odd.encode())
        with pytest.raises(Damaged, match="not of this network's sizes") as caught:
            suffix_of(read, model.program, planes)
        assert caught.value.exit_code == 6
        with pytest.raises(NoBounds, match="the stored bounds cannot be read"):
            progressive(model, rows, Settings(), read)
        assert checking._fault(model.store, model.manifest, read) is not None
        count += 1
    assert count > 8
