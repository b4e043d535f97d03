"""dlv.adapters.torch.tensors: windows on storages, checked before anything is read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.adapters.archive import Entry
from dlv.adapters.source import Source
from dlv.adapters.torch.pickles import load
from dlv.adapters.torch.tensors import DTYPES, STORAGES, Storages, is_tensor
from dlv.dtypes import ITEM_BYTES
from dlv.errors import UnsafeInput
from tests.hostile.pickles import tensor


def test_tables_agree_with_the_contract() -> None:
    for here, item, swap in DTYPES.values():
        assert here.startswith("raw:") or ITEM_BYTES[here] == item
        assert item % swap == 0
    assert {here for here, _, _ in DTYPES.values()} >= set(ITEM_BYTES)
    assert set(STORAGES.values()) <= set(DTYPES)


@pytest.fixture(scope="module")
def storages(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("storage") / "raw"
    path.write_bytes(np.arange(16, dtype=np.float32).tobytes())
    with Source(str(path)) as file:
        yield Storages(file, {"0": Entry("data/0", 0, 64, 64, 0, 0)}, big=False, verify=False)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3), st.integers(0, 20))
def test_every_window_is_read_or_refused(
    storages: Storages, axes: list[tuple[int, int]], offset: int
) -> None:
    shape, strides = [a for a, _ in axes], [b for _, b in axes]
    value = load(b"\x80\x02" + tensor(shape, strides, offset) + b".", "p")
    assert is_tensor(value)
    indices = [
        offset + sum(i * step for i, step in zip(index, strides, strict=True))
        for index in np.ndindex(*shape)
    ]
    if max(indices, default=0) > 15:
        with pytest.raises(UnsafeInput, match="'w'"):
            storages.view(value, "w")
        return
    view = storages.view(value, "w")
    assert view.nbytes == 4 * math.prod(shape)
    assert np.frombuffer(storages.read(view), np.float32).tolist() == indices
