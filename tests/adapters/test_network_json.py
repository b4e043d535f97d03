from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.adapters.network_json import open as open_network
from dlv.adapters.network_json import parse, save, text
from dlv.errors import Damaged, DlvError, NewerFormat, StorageError, UsageError

PLAIN: dict[str, Any] = {
    "dlv_network": 1,
    "inputs": [{"name": "x", "shape": ["B", 1, 28, 28], "dtype": "float32"}],
    "nodes": [
        {
            "name": "conv1",
            "op": "CONV",
            "attrs": {"out": 20, "kernel": [5, 5]},
            "inputs": ["x"],
            "params": {"weight": "conv1.weight", "bias": "conv1.bias"},
        }
    ],
    "outputs": ["conv1"],
}


def written(folder: Path, data: bytes | str) -> str:
    path = folder / "network.json"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


def test_a_file_is_read_and_written_again(tmp_path: Path) -> None:
    network, warnings = open_network(written(tmp_path, json.dumps(PLAIN)))
    assert warnings == []
    assert network.node("conv1").attrs["stride"] == (1, 1)
    path = str(tmp_path / "again.json")
    save(network, path)
    assert open_network(path)[0].id == network.id
    assert '"dlv_network"' in Path(path).read_text()
    assert json.loads(text(network))["nodes"][0]["out_shape"] == ["B", 20, 24, 24]


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbf" + json.dumps(PLAIN).encode())
    assert open_network(path)[0].node("conv1").op == "CONV"


def test_warnings_come_along() -> None:
    data = {**PLAIN, "nodes": [{"name": "conv1", "op": "WARP", "inputs": ["x"]}]}
    network, warnings = parse(json.dumps(data).encode())
    assert network.node("conv1").op == "OP"
    assert "WARP" in warnings[0]


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", Damaged),
        (b"{", Damaged),
        (b'{"dlv_network": NaN}', Damaged),
        (b"\xff\xfe", Damaged),
        (b"[" * 100_000 + b"]" * 100_000, Damaged),
        (b'{"dlv_network": 1' + b"0" * 5000 + b"}", Damaged),
        (b'{"dlv_network": 2}', NewerFormat),
        (b"[]", UsageError),
        (
            b'{"dlv_network": 1, "inputs": [{"name": "\\ud800", "shape": []}], "nodes": []}',
            UsageError,
        ),
        (b" " * ((16 << 20) + 1), Damaged),
    ],
)
def test_hostile_files(tmp_path: Path, data: bytes, kind: type[DlvError]) -> None:
    with pytest.raises(kind):
        open_network(written(tmp_path, data))


@pytest.mark.hostile
def test_limits_are_those_of_the_canonical_form(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="nested too deeply"):
        parse(b'{"dlv_network": 1, "x": ' + b"[" * 16 + b"]" * 16 + b"}")
    with pytest.raises(Damaged, match="too large"):
        open_network(written(tmp_path, b" " * ((16 << 20) + 1)))


def test_numbers_that_no_field_can_hold_are_refused() -> None:
    data = json.dumps(
        {**PLAIN, "nodes": [{"name": "conv1", "op": "ADD", "attrs": {"const": 0}, "inputs": ["x"]}]}
    )
    with pytest.raises(Damaged):
        parse(data.replace('"const": 0', '"const": 1e999').encode())
    network, _ = parse(data.replace('"const": 0', '"const": "Infinity"').encode())
    assert network.canonical()["nodes"][0]["attrs"]["const"] == "Infinity"
    with pytest.raises(UsageError):
        parse(json.dumps(PLAIN).replace('"out": 20', '"out": 99999999999999999999').encode())


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        open_network(str(tmp_path / "none.json"))
    network, _ = parse(json.dumps(PLAIN).encode())
    with pytest.raises(StorageError):
        save(network, str(tmp_path / "no" / "folder.json"))


@given(st.integers(0, len(json.dumps(PLAIN)) - 1), st.binary(max_size=3))
def test_damaged_bytes_give_a_network_or_an_error(place: int, junk: bytes) -> None:
    data = json.dumps(PLAIN).encode()
    # Any other exception fails the test.
    with contextlib.suppress(DlvError):
        parse(data[:place] + junk + data[place + 1 :])
